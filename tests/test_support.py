"""What the tests stand on: ids, ports and the order leave nothing to chance."""

import os
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.brokers.nodes import new_cluster_id
from tests.cli.conftest import quotas
from tests.support import here, processes
from tests.support.processes import free_ports, ran
from tests.support.scheduling import LONG, LONG_WITHOUT_SERVERS, NIGHTLY, UNITS, WITH_SERVERS, part, unit_of

ROOT = Path(__file__).resolve().parents[1]


def test_no_cluster_id_is_taken_for_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `Uuid.randomUuid` has it; `kafka-storage format -t -abc` fails."""
    drawn = iter([uuid.UUID(bytes=bytes([first]) * 16) for first in (0xF8, 0xFB, 0x61)])
    monkeypatch.setattr(uuid, "uuid4", lambda: next(drawn))
    assert new_cluster_id() == "YWFhYWFhYWFhYWFhYWFhYQ"


def test_free_ports_are_reserved_between_processes() -> None:
    """Also while no server listens there; the ports of connections (`ip_local_port_range`) are left alone."""
    mine = free_ports(20)
    script = f"from tests.support import processes; processes._PORTS = {mine[:-1]}; print(processes.free_ports(1))"
    other = ran([sys.executable, "-c", script])
    assert len({*mine, *free_ports(20)}) == 40
    assert max(mine) < 32_768
    assert "no port is free" in other.stderr, other.stdout


@pytest.fixture
def sample(tmp_path: Path) -> Callable[..., list[str]]:
    """Runs two modules of 20 tests each under this suite's conftest, and returns the order in which they ran."""
    for name in ("a", "b"):
        tests = "".join(f"def test_{number}(): print('ran {name}{number}')\n" for number in range(20))
        (tmp_path / f"test_{name}.py").write_text(tests)

    def run(*options: str) -> list[str]:
        command = [sys.executable, "-m", "pytest", "-s", "-p", "tests.conftest", "--rootdir", str(tmp_path), *options]
        done = ran([*command, tmp_path])
        assert "40 passed" in done.stdout.splitlines()[-1]
        return [line.split("ran ")[1] for line in done.stdout.splitlines() if "ran " in line]

    return run


def test_the_order_is_random_within_modules_and_can_be_repeated(sample: Callable[..., list[str]]) -> None:
    first = sample("--order", "7")
    assert sample("--order", "7") == first
    assert sample("--order", "8") != first
    written = [f"{name}{number}" for name in "ab" for number in range(20)]
    assert (sorted(first), first != written) == (sorted(written), True)
    assert [test[0] for test in first] == ["a"] * 20 + ["b"] * 20


def test_workers_run_each_module_in_one_process_and_tell_who_crashed(tmp_path: Path) -> None:
    """What one of them leaves behind (a folder, an exit function) is its own."""
    for name in ("a", "b"):
        (tmp_path / f"test_{name}.py").write_text(
            "import atexit, os, sys, pathlib\n"
            "def note(what):\n"
            f"    with open({str(tmp_path / 'notes')!r}, 'a') as notes:\n"
            f"        print('{name}', os.getpid(), what, file=notes)\n"
            "def test_folder(tmp_path):\n    note(tmp_path)\n    atexit.register(note, 'end')\n"
            "def test_fails():\n    print('said before')\n    assert 1 == 2\n"
        )
    (tmp_path / "test_c.py").write_text("import os\ndef test_crash(): os._exit(7)\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "--rootdir", str(tmp_path), "--workers=2"]
    done = ran([*command, tmp_path])
    assert "3 failed, 2 passed" in done.stdout.splitlines()[-1]
    assert done.stdout.count("\nsaid before\n") == 2
    assert "its worker ended with code 7" in done.stdout
    notes = [line.split() for line in (tmp_path / "notes").read_text().splitlines()]
    for name in ("a", "b"):
        assert len({pid for who, pid, _ in notes if who == name}) == 1
    assert len({what for _, _, what in notes} - {"end"}) == 2


def test_every_module_that_is_scheduled_is_there() -> None:
    """A module that was renamed would lose its place, its server would start twice, and its long tests run each day."""
    placed = {name for modules in UNITS.values() for name in modules} | {*LONG} - UNITS.keys()
    contract = (ROOT / "tests/backends/contract.py").read_text()
    for place in placed | {*WITH_SERVERS, *LONG_WITHOUT_SERVERS, *NIGHTLY}:
        module, _, test = place.partition("::")
        assert (ROOT / module).exists(), place
        assert (
            not test or f"def {test.rpartition('::')[2].partition('[')[0]}" in (ROOT / module).read_text() + contract
        ), place
    assert unit_of("tests/audit/test_job.py::test_x[a::b]") == unit_of("tests/audit/test_judge.py::test_y") == "Spark"
    assert unit_of("tests/core/test_plan.py::test_x") == "tests/core/test_plan.py"


@pytest.mark.parametrize(
    "line",
    part(
        [
            "--version",
            "resolve --quotas quotas.yaml --user aliceé\udcff -o json",
            "resolve --quotas none.yaml --user alice",
            "describe --zookeeper 127.0.0.1:1",
            "audit usage.csv --quotas quotas.yaml --fail-on throttled",
            "simulate --nonsense",
        ],
        0,
    ),
)
def test_this_process_does_what_a_process_does(tmp_path: Path, line: str) -> None:
    """With its folder, environment, streams and exit code."""
    (tmp_path / "quotas.yaml").write_text(quotas(alice=1))
    (tmp_path / "usage.csv").write_text("time_ms,broker,user,api,bytes\n0,1,alice,produce,99\n1,1,alice,produce,99\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    arguments = line.split()

    before = dict(os.environ), Path.cwd(), sys.stdin, sys.stdout, sys.stderr

    in_process = here.run(arguments, tmp_path, environment)

    assert (dict(os.environ), Path.cwd(), sys.stdin, sys.stdout, sys.stderr) == before
    done = processes.kquota(arguments, tmp_path, environment, timeout_s=300)
    assert (in_process.returncode, in_process.stdout, in_process.stderr) == (done.returncode, done.stdout, done.stderr)
