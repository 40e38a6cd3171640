"""The CPU time of tests: the worker's own, and all that its processes take, servers too.

    pytest --cpu-durations=40

Not with `--workers`: these share the warm processes that run command lines, and no test is charged with them.
Wall time depends on what else the machine does, and most tests wait. CPU time is what a machine with few cores runs out
of: the table at the end says which modules and which phases of tests take most of it.
"""

import resource
import time
from collections import defaultdict
from collections.abc import Generator
from typing import Any

import psutil
import pytest


def tree_cpu_s() -> float:
    """CPU seconds of this process and of every process below it, ended or running.

    A process that has left the tree, such as a daemon, is not counted.
    """
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = time.process_time() + ended.ru_utime + ended.ru_stime
    for process in psutil.Process().children(recursive=True):
        try:
            total += sum(process.cpu_times()[:4])
        except psutil.NoSuchProcess:
            continue
    return total


class Costs:
    """The plugin: each report of a phase gets the phase's CPU time, and the terminal shows the largest."""

    def __init__(self, rows: int) -> None:
        """With the number of rows of each table."""
        self._rows = rows
        self._last = 0.0
        self._phases: dict[tuple[str, str], float] = {}

    def pytest_sessionstart(self) -> None:
        """What was before the first test, is the start's."""
        self._last = tree_cpu_s()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self) -> Generator[None, Any, Any]:
        """Writes the CPU seconds since the last phase into the report."""
        report = yield
        now = tree_cpu_s()
        report.cpu_s = max(0.0, now - self._last)
        self._last = now
        return report

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Keeps the figures."""
        self._phases[report.nodeid, report.when] = getattr(report, "cpu_s", 0.0)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """The modules and the phases that cost most."""
        if not self._phases:
            return
        modules: dict[str, float] = defaultdict(float)
        counts: dict[str, int] = defaultdict(int)
        for (test, phase), seconds in self._phases.items():
            modules[test.partition("::")[0]] += seconds
            counts[test.partition("::")[0]] += phase == "call"
        terminalreporter.section(f"CPU time: {sum(modules.values()):.1f} s")
        for module, seconds in sorted(modules.items(), key=lambda each: -each[1])[: self._rows]:
            terminalreporter.write_line(f"{seconds:8.2f} s  {counts[module]:4} tests  {module}")
        terminalreporter.write_line("")
        for (test, phase), seconds in sorted(self._phases.items(), key=lambda each: -each[1])[: self._rows]:
            terminalreporter.write_line(f"{seconds:8.2f} s  {phase:8}  {test}")
