"""Tests side by side: `pytest --workers=4` collects once, and forks workers that have all modules imported.

pytest-xdist starts an interpreter for each worker, which imports and collects every test again: 7 s of CPU time for
each, 17 s in a fresh clone. A fork has that already, and shares the memory.

A unit of work (`tests.support.scheduling`) is run by one worker as a whole, so its servers start once. Workers ask for
units in the order of the collected tests. What they report goes to the first process: only that writes to the terminal.
"""

import atexit
import os
import sys
import traceback
from collections import defaultdict
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any, NoReturn

import pytest

from tests.support.scheduling import unit_of

Unit = list[pytest.Item]


class Workers:
    """The plugin."""

    def __init__(self, count: int) -> None:
        """With the number of workers."""
        self._count = count

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Runs all tests; None, so that pytest itself does what there is to do, where there are none to run."""
        if session.testsfailed or session.config.option.collectonly:
            return None
        grouped: dict[str, Unit] = defaultdict(list)
        for item in session.items:
            grouped[unit_of(item.nodeid)].append(item)
        units = [*grouped.values()]
        running: dict[Connection, int] = {}
        sys.stdout.flush()
        sys.stderr.flush()
        for number in range(min(self._count, len(units))):
            ours, theirs = Pipe()
            if (pid := os.fork()) == 0:
                for each in (*running, ours):
                    each.close()
                _Worker(session, theirs, number).run(units)
            theirs.close()
            running[ours] = pid
        self._listen(session, units, running)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        return True

    def _listen(self, session: pytest.Session, units: list[Unit], running: dict[Connection, int]) -> None:
        """Hands out units, and passes reports on, until every worker has ended."""
        hook = session.config.hook
        if terminal := session.config.pluginmanager.get_plugin("terminalreporter"):
            terminal.showfspath = False  # tests of several modules run at once
        waiting = iter(range(len(units)))
        at_work: dict[Connection, str] = {}
        try:
            while running:
                for connection in wait([*running]):
                    assert isinstance(connection, Connection)
                    try:
                        kind, said = connection.recv()
                    except EOFError:
                        _, status = os.waitpid(running.pop(connection), 0)
                        if status:
                            code = os.waitstatus_to_exitcode(status)
                            test = at_work.get(connection, "no test")
                            hook.pytest_runtest_logreport(report=_crash(test, f"its worker ended with code {code}"))
                        continue
                    if kind == "unit":
                        connection.send(None if session.shouldfail else next(waiting, None))
                    elif kind == "start":
                        at_work[connection] = said[0]
                        hook.pytest_runtest_logstart(nodeid=said[0], location=said[1])
                    elif kind == "finish":
                        hook.pytest_runtest_logfinish(nodeid=said[0], location=said[1])
                    elif kind == "report":
                        report = hook.pytest_report_from_serializable(config=session.config, data=said)
                        hook.pytest_runtest_logreport(report=report)
                    else:
                        hook.pytest_runtest_logreport(report=_crash(at_work.get(connection, "no test"), said))
        finally:
            for connection, pid in running.items():
                connection.close()  # after an interrupt: a worker ends when it cannot report
                os.waitpid(pid, 0)


def _crash(test: str, text: str) -> pytest.TestReport:
    """That test has failed, and the rest of its unit is not run."""
    return pytest.TestReport(test, (test.partition("::")[0], None, test), {}, "failed", text, "call")


class _Worker:
    """The forked process, as a plugin of the session that it has got."""

    def __init__(self, session: pytest.Session, connection: Connection, number: int) -> None:
        self._session = session
        self._connection = connection
        self._number = number

    def run(self, units: list[Unit]) -> NoReturn:
        """Runs units until there are no more, and ends the process."""
        code = 1
        try:
            self._leave_to_the_first()
            self._run(units)
            self._session._setupstate.teardown_exact(None)
            atexit._run_exitfuncs()
            code = 0
        except BaseException:
            # Where the first process is gone, or was interrupted, nobody listens.
            try:
                self._session._setupstate.teardown_exact(None)
                self._connection.send(("broken", traceback.format_exc()))
                code = 0
            finally:
                os._exit(code)
        os._exit(code)

    def _leave_to_the_first(self) -> None:
        """What the first process has opened, prints, and tidies up, is not this one's."""
        atexit._clear()
        config = self._session.config
        config.get_terminal_writer()._file = open(os.devnull, "w")  # noqa: SIM115
        captures: Any = config.pluginmanager.get_plugin("capturemanager")
        captures.stop_global_capturing()
        captures.start_global_capturing()
        captures.suspend_global_capture()
        folders: Any = config._tmp_path_factory  # type: ignore[attr-defined]
        folders._basetemp = folders.mktemp(f"worker-{self._number}", numbered=False)
        config.pluginmanager.register(self)

    def _run(self, units: list[Unit]) -> None:
        unit = self._next(units)
        while unit:
            following: Unit = []
            for item, after in zip(unit, [*unit[1:], None], strict=True):
                if after is None:  # pytest takes down what the next test does not need
                    following = self._next(units)
                    after = following[0] if following else None
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
                if self._session.shouldfail or self._session.shouldstop:
                    return
            unit = following

    def _next(self, units: list[Unit]) -> Unit:
        self._connection.send(("unit", None))
        number = self._connection.recv()
        return [] if number is None else units[number]

    def pytest_runtest_logstart(self, nodeid: str, location: Any) -> None:
        """Says what is run: whose fault a crash would be."""
        self._connection.send(("start", (nodeid, location)))

    def pytest_runtest_logfinish(self, nodeid: str, location: Any) -> None:
        """Says that it is run."""
        self._connection.send(("finish", (nodeid, location)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Passes it on."""
        config = self._session.config
        data = config.hook.pytest_report_to_serializable(config=config, report=report)
        self._connection.send(("report", data))
