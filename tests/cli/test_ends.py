"""How a command ends when its streams, its signals or its disk are not as usual: in the truth."""

import contextlib
import fcntl
import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from kquota import (
    Alteration,
    AlterResult,
    Entity,
    InputError,
    QuotaFilter,
    QuotaKey,
    QuotaSnapshot,
    Rejected,
    reconcile,
)
from kquota.backends.kafka.turns import Turns
from kquota.backends.memory import MemoryBackend
from kquota.cli import main, session
from kquota.core.quotas.selector import EVERYTHING
from kquota.documents.journal import Entry, Journal
from kquota.errors import Uncertain
from tests.support.processes import ran
from tests.support.scheduling import part

COUNT = 300
"""So many that their table does not fit into a buffer."""
KEY = QuotaKey.PRODUCER_BYTE_RATE


def quotas(rate: int, count: int = COUNT) -> str:
    rows = [
        {"entity": {"user": f"user-{number:04}"}, "values": {"producer_byte_rate": rate}} for number in range(count)
    ]
    return json.dumps({"kind": "kquota.quotas", "version": 1, "quotas": rows})


class Shell:
    """Runs kquota by a shell that gives it other streams."""

    def __init__(self, folder: Path, chroot: str) -> None:
        self.folder = folder
        clean = {name: value for name, value in os.environ.items() if not name.startswith("KQUOTA_")}
        self.environment = clean | {
            "KQUOTA_ZOOKEEPER": chroot,
            "KQUOTA_JOURNAL": str(folder / "journal"),
            "XDG_CONFIG_HOME": str(folder),
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }
        (folder / "one.json").write_text(quotas(1000))
        (folder / "two.json").write_text(quotas(2000))

    def __call__(self, arguments: str, streams: str, **environment: str) -> tuple[int, str]:
        """The exit code, and what was said on the stderr of the shell."""
        done = subprocess.run(
            ["bash", "-c", f'"$0" -m kquota {arguments} {streams}; exit ${{PIPESTATUS[0]}}', sys.executable],
            cwd=self.folder,
            env=self.environment | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            timeout=300,
            check=False,
        )
        return done.returncode, done.stderr

    def rates(self) -> set[int]:
        done = ran([sys.executable, "-m", "kquota", "describe", "-o", "json"], self.folder, self.environment)
        return {row["values"]["producer_byte_rate"] for row in json.loads(done.stdout)["quotas"]}

    def outcomes(self) -> list[str | None]:
        return [entry.outcome for entry in Journal(self.folder / "journal").read().entries]


@pytest.fixture
def shell(tmp_path: Path, chroot: str) -> Shell:
    return Shell(tmp_path, chroot)


GONE = {"a reader that is gone": "| true", "a reader of both that is gone": "2>&1 | true", "stdout closed": ">&-"}
FULL = {"a full disk": "> /dev/full", "not open for writing": "1< /dev/null"}


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_writes_do_not_depend_on_who_reads_stdout(shell: Shell, unbuffered: str) -> None:
    rate, number = 1000, 0
    some = ["| true", "> /dev/full"]
    for streams in some if unbuffered else [*GONE.values(), ">&- 2>&-", *FULL.values(), "> /dev/full 2>&1"]:
        rate, number = 3000 - rate, number + 1
        file = "one.json" if rate == 1000 else "two.json"
        code, err = shell(f"apply {file} --yes --force", streams, PYTHONUNBUFFERED=unbuffered)
        full = streams not in GONE.values() and streams != ">&- 2>&-"
        assert code == (74 if full else 0), (streams, err)
        assert "internal error" not in err
        assert ("the output could not be written" in err) == (full and "2>&1" not in streams)
        assert shell.rates() == {rate}
        assert shell.outcomes() == ["applied"] * number


def test_an_answer_in_the_exit_code_needs_no_reader(shell: Shell) -> None:
    for streams in part([*GONE.values()], 0):
        assert shell("plan one.json --exit-code", streams)[0] == 1
    for streams in part([*FULL.values()], 0):
        assert shell("plan one.json --exit-code", streams)[0] == 74
        assert shell("help concepts", streams)[0] == 74
    assert shell("help concepts", "| head -1") == (0, "")
    assert shell("describe --user x --client", "| true")[0] == 2
    assert shell.outcomes() == []


@pytest.mark.parametrize("verb", ["--alter --add-config producer_byte_rate=5", "--describe"])
def test_the_drop_in_does_not_look_at_its_output_as_kafkas_tool(shell: Shell, verb: str) -> None:
    command = f"kafka-configs --zookeeper $KQUOTA_ZOOKEEPER --entity-type users --entity-name a {verb}"
    for streams in part([*GONE.values(), *FULL.values()], "--alter" in verb):
        assert shell(command, streams)[0] == 0
    assert shell.rates() == ({5} if "--alter" in verb else set())


def test_nobody_is_asked_where_there_is_no_stdin(shell: Shell) -> None:
    for streams in ("<&-", "<&- >&-"):
        code, err = shell("apply one.json --force", streams)
        assert (code, "--yes" in err) == (8, True)
    assert shell.rates() == set()


# In one process


class Signalled(MemoryBackend):
    """Has the process asked to end, so often, while it writes the batch of that number."""

    cluster_address = "zookeeper://nowhere:2181"

    def __init__(self, number: int, at: int = 1, times: int = 1) -> None:
        entities = {Entity(user=f"user-{number:04}"): {KEY: 1000} for number in range(0, COUNT, 2)}
        super().__init__(QuotaSnapshot(entities))
        self.start = self.describe()
        self.signal, self.at, self.times = number, at, times
        self.batches = 0
        self.broken: Exception | None = None

    def cluster_id(self) -> None:
        """None: no cluster has it."""

    def alter(self, alterations: Sequence[Alteration], *, validate_only: bool = False) -> tuple[AlterResult, ...]:
        results = super().alter(alterations, validate_only=validate_only)
        if not validate_only:
            self.batches += 1
            if self.batches == self.at:
                for _ in range(self.times):
                    os.kill(os.getpid(), self.signal)
                if self.broken is not None:
                    raise self.broken
        return results


class Here:
    """Runs kquota in this process, on a backend that stands behind the address `ADDRESS`, with a journal of its own."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        self.folder, self.monkeypatch, self._capfd = folder, monkeypatch, capfd
        self.address = ["--zookeeper", "nowhere:2181", "--journal", str(folder / "journal")]
        self.way_back = f"'kquota undo 1 --zookeeper nowhere:2181 --journal {folder / 'journal'}' takes it back"

    def run(self, backend: MemoryBackend, *words: str) -> int:
        self.monkeypatch.setattr(session, "open_backend", lambda options: backend)
        return main.run([*words, *self.address])

    def applied(self, backend: MemoryBackend, *options: str, rate: int = 2000) -> int:
        """The exit code of an apply of three batches."""
        self.monkeypatch.setattr(reconcile, "_BATCH", COUNT // 3)
        (self.folder / "quotas.json").write_text(quotas(rate))
        return self.run(backend, "apply", str(self.folder / "quotas.json"), "--yes", "--force", *options)

    def altered(self, backend: MemoryBackend, user: str, *options: str) -> int:
        """The exit code of an alter of one user."""
        return self.run(backend, "alter", "--user", user, "--add-config", f"{KEY.value}=2000", *options)

    def said(self) -> str:
        """What stderr got since it was looked at."""
        return self._capfd.readouterr().err

    def entries(self) -> list[Entry]:
        return [*Journal(self.folder / "journal").read().entries]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Here:
    return Here(tmp_path, monkeypatch, capfd)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_stops_an_apply_between_batches_and_takes_it_back(here: Here, number: int, code: int) -> None:
    # Under nohup SIGHUP is ignored, and an apply lets it be.
    before = signal.signal(number, signal.default_int_handler)
    backend = Signalled(number, at=2)
    assert here.applied(backend) == code
    said = here.said()
    assert "stopping after what is under way" in said
    assert said.endswith(f"stopped: {COUNT // 3:,} entities not tried, {2 * COUNT // 3:,} entities rolled back\n")
    assert backend.describe() == backend.start
    (entry,) = here.entries()
    assert (entry.outcome, entry.error) == ("rolled back", "stopped by a signal")
    assert signal.signal(number, before) == signal.default_int_handler


def test_a_signal_without_rollback_leaves_what_is_written_and_says_so(here: Here) -> None:
    backend = Signalled(signal.SIGTERM, at=1)
    assert here.applied(backend, "--no-rollback") == 143
    (entry,) = here.entries()
    said = here.said()
    assert f"stopped: {COUNT // 3:,} entities applied, {2 * COUNT // 3:,} entities not tried" in said
    assert f"'kquota undo {entry.name} --zookeeper " in said
    assert (entry.outcome, len(entry.made.changes)) == ("incomplete", COUNT // 3)
    backend.alter([change.inverse.alteration for change in entry.made.changes])
    assert backend.describe() == backend.start


CTRL_C = "\x03"
STOPPED = """\
import signal, sys
from pathlib import Path
from kquota import reconcile
from kquota.cli import main, session
from tests.cli.test_ends import COUNT, Signalled
backend = Signalled(signal.SIGINT, at=1)
session.open_backend, reconcile._BATCH = lambda access: backend, COUNT // 3
code = main.run(["apply", *sys.argv[1:]])
Path("left").write_text(str(backend.describe() == backend.start))
sys.exit(code)
"""
"""An apply that is interrupted in its first of three batches."""


@pytest.mark.parametrize(
    ("keys", "said", "outcome", "back"),
    [
        ("y\r", "stopped: 200 entities not tried, 100 entities rolled back", "rolled back", True),
        (
            "n\r",
            "stopped: 100 entities applied, 200 entities not tried; the same once more completes it",
            "incomplete",
            False,
        ),
        (
            CTRL_C,
            "stopped: 100 entities applied, 200 entities not tried; the same once more completes it",
            "incomplete",
            False,
        ),
    ],
    ids=["yes", "no", "Ctrl-C"],
)
def test_a_terminal_is_asked_what_becomes_of_a_stopped_apply(
    keys: str, said: str, outcome: str, back: bool, tmp_path: Path
) -> None:
    """Ctrl-C at the question, too: whoever presses it once more wants no further writes."""
    (tmp_path / "quotas.json").write_text(quotas(2000))
    outer, inner = pty.openpty()
    options = ["--yes", "--force", "--zookeeper", "nowhere:2181", "--journal", str(tmp_path / "journal")]
    process = subprocess.Popen(
        [sys.executable, "-c", STOPPED, "quotas.json", *options],
        stdin=inner, stdout=subprocess.DEVNULL, stderr=inner, cwd=tmp_path, start_new_session=True,
        env=os.environ | {"TERM": "dumb", "PYTHONPATH": str(Path(__file__).parents[2])},
        preexec_fn=lambda: fcntl.ioctl(inner, termios.TIOCSCTTY, 0),  # noqa: PLW1509
    )  # fmt: skip
    os.close(inner)
    heard = ""
    try:
        while "Take them back? [Y/n]: " not in heard:
            assert select.select([outer], [], [], 120)[0], heard
            heard += os.read(outer, 65536).decode()  # fails where the process ends without the question
        os.write(outer, keys.encode())
        with contextlib.suppress(OSError):  # the end of a terminal
            while process.poll() is None or select.select([outer], [], [], 0)[0]:
                if select.select([outer], [], [], 20)[0]:
                    heard += os.read(outer, 65536).decode()
                elif keys == CTRL_C:
                    # Python sees a signal between the question and the reading of its answer once that reading ends.
                    # Whoever sits at the terminal presses the keys again.
                    os.write(outer, keys.encode())
        assert process.wait(300) == 130
    finally:
        process.kill()
        process.wait()
        os.close(outer)
    assert "100 of 300 entities are written. Take them back?" in heard
    assert said in heard
    way_back = f"'kquota undo 1 --zookeeper nowhere:2181 --journal {tmp_path / 'journal'}' takes it back"
    assert (way_back in heard) is not back
    assert (tmp_path / "left").read_text() == str(back)
    (entry,) = Journal(tmp_path / "journal").read().entries
    assert (entry.outcome, len(entry.certain)) == (outcome, 0 if back else 100)


def test_a_signal_before_the_first_write_leaves_no_entry(here: Here) -> None:
    class Early(Signalled):
        def alter(self, alterations: Sequence[Alteration], *, validate_only: bool = False) -> tuple[AlterResult, ...]:
            assert validate_only
            os.kill(os.getpid(), self.signal)
            return super().alter(alterations, validate_only=True)

    backend = Early(signal.SIGTERM)
    assert here.applied(backend) == 143
    assert backend.describe() == backend.start
    assert not (here.folder / "journal").exists()


@pytest.mark.parametrize("command", ["apply", "alter"])
def test_a_signal_ends_the_wait_for_another_writer(here: Here, command: str) -> None:
    here.monkeypatch.setenv("KQUOTA_LOCKS", str(here.folder / "locks"))

    class Waiting(Signalled):
        def alone(self, stop: Callable[[], bool] = lambda: False) -> contextlib.AbstractContextManager[None]:
            threading.Timer(0.1, os.kill, (os.getpid(), self.signal)).start()
            return Turns(lambda: "it", "broker:9092").alone(stop=stop)

    backend = Waiting(signal.SIGTERM)
    start = time.monotonic()
    with Turns(lambda: "it", "broker:9092").alone():
        if command == "apply":
            assert here.applied(backend) == 143
        else:
            assert here.altered(backend, "user-0000", "--yes", "--force") == 143
    assert time.monotonic() - start < 50
    assert "stopping after what is under way" in here.said()
    assert backend.describe() == backend.start
    assert not (here.folder / "journal").exists()


def test_a_signal_in_the_last_batch_comes_too_late(here: Here) -> None:
    assert here.applied(Signalled(signal.SIGINT, at=3)) == 0
    assert here.entries()[0].outcome == "applied"


def test_a_second_signal_interrupts_at_once_and_leads_back(here: Here) -> None:
    backend = Signalled(signal.SIGINT, at=2, times=2)
    assert here.applied(backend) == 130
    (entry,) = here.entries()
    assert (entry.outcome, entry.finished) == (None, None)
    said = here.said()
    assert f"some of {COUNT} changes may be written: 'kquota undo {entry.name}' takes them back" in said


def test_a_signal_that_is_ignored_stays_ignored(here: Here) -> None:
    """`nohup kquota apply …`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert here.applied(Signalled(signal.SIGHUP)) == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_bug_in_the_middle_leads_back_too(here: Here) -> None:
    backend = Signalled(signal.SIGINT, at=2, times=0)
    backend.broken = ZeroDivisionError("oops")
    assert here.applied(backend) == 70
    (entry,) = here.entries()
    assert f"'kquota undo {entry.name}' takes them back" in here.said()


def test_a_journal_that_cannot_be_finished_is_no_failure_of_the_apply(here: Here) -> None:
    """All is written, and its user learns of that, and of the entry that leads back."""

    def full(self: Journal, *arguments: Any, **options: Any) -> None:
        raise InputError("the journal cannot be written in /j: No space left on device")

    here.monkeypatch.setattr(Journal, "finish", full)
    backend = Signalled(signal.SIGINT, times=0)
    assert here.applied(backend) == 74
    said = here.said()
    (entry,) = here.entries()
    assert f"{entry.id} stays unfinished: the journal cannot be written in /j: No space left on device" in said
    assert f"{COUNT:,} entities applied; 'kquota undo {entry.name} --zookeeper " in said
    assert {values[KEY] for values in backend.describe().values()} == {2000}


def test_a_failure_keeps_its_code_where_the_journal_is_full_too(here: Here) -> None:
    def full(self: Journal, *arguments: Any, **options: Any) -> None:
        raise InputError("the journal cannot be written in /j: No space left on device")

    here.monkeypatch.setattr(Journal, "finish", full)
    backend = Signalled(signal.SIGINT, at=2, times=0)
    backend.broken = Rejected("no")
    assert here.applied(backend) == 6


class Stale(Signalled):
    """Confirms every write, and goes on to show some users as they were."""

    hidden: ClassVar[list[Entity]] = [Entity(user="user-0002"), Entity(user="user-0004")]

    def __init__(self) -> None:
        super().__init__(signal.SIGINT, times=0)

    def describe(self, filter: QuotaFilter = EVERYTHING) -> QuotaSnapshot:
        shown = dict(super().describe(filter))
        return QuotaSnapshot(shown | {entity: {KEY: 1000} for entity in self.hidden if entity in shown})


def test_an_apply_whose_values_are_not_shown_afterwards_is_incomplete(here: Here) -> None:
    assert here.applied(Stale(), "-o", "json") == 9
    out, err = here._capfd.readouterr()
    for entity in Stale.hidden:
        assert f"kquota: {entity}: written, but not shown\n" in err
    assert f"\n{COUNT:,} entities applied; the same once more completes it, {here.way_back}" in err
    changes = json.loads(out)["changes"]
    assert [change["entity"]["user"] for change in changes if change["status"] == "unverified"] == [
        entity.user for entity in Stale.hidden
    ]
    assert here.entries()[0].outcome == "incomplete"


@pytest.mark.parametrize(("wait", "code"), [([], 0), (["--wait"], 7)])
def test_an_alter_whose_value_is_not_shown_afterwards_says_so(here: Here, wait: list[str], code: int) -> None:
    assert here.altered(Stale(), "user-0002", *wait) == code
    said = here.said()
    late = "written, but not shown in time" if wait else "warning: written, but not shown yet"
    assert f"kquota: {late}: user=user-0002 (the broker lags behind, or somebody else altered it meanwhile" in said
    assert here.way_back in said


def test_a_signal_during_an_alter_of_one_entity_has_its_own_exit_code(here: Here) -> None:
    """It comes in the dry run that validates, before the first write."""

    class Early(Signalled):
        dry_runs = 0

        def alter(self, alterations: Sequence[Alteration], *, validate_only: bool = False) -> tuple[AlterResult, ...]:
            assert validate_only
            self.dry_runs += 1
            if self.dry_runs == 2:
                os.kill(os.getpid(), self.signal)
            return super().alter(alterations, validate_only=True)

    backend = Early(signal.SIGTERM)
    assert here.altered(backend, "user-0000") == 143
    assert "user=user-0000: not altered: it was stopped before" in here.said()
    assert backend.describe() == backend.start


def test_a_lost_answer_about_one_entity_leads_back_too(here: Here) -> None:
    backend = Signalled(signal.SIGINT, times=0)
    backend.broken = Uncertain("the connection was lost")
    assert here.altered(backend, "user-0000") == 4
    (entry,) = here.entries()
    assert f"'kquota undo {entry.name} --zookeeper " in here.said()


def test_a_signal_stops_reconcile_between_entries_as_well(here: Here) -> None:
    assert here.applied(Signalled(signal.SIGINT, times=0), "--for", "1s") == 0
    backend = Signalled(signal.SIGTERM, times=0)
    assert here.applied(backend, "--for", "1s", rate=3000) == 0
    # In the order of the journal: ids of one second compare by their fingerprints.
    before = [entry.id for entry in here.entries()]
    backend.batches, backend.times = 0, 1
    here.monkeypatch.setattr(time, "time_ns", lambda: 10**20)
    assert here.run(backend, "reconcile") == 143
    (back,) = [entry for entry in here.entries() if entry.id not in before]
    assert (back.outcome, back.undoes) == ("rolled back", before[-1])


@pytest.mark.parametrize("ended", [["undo", "1", "2", "--yes"], ["reconcile"]])
def test_a_signal_in_the_last_batch_of_an_entry_is_heeded_before_the_next(here: Here, ended: list[str]) -> None:
    backend = Signalled(signal.SIGTERM, at=3)
    for user in ("alice", "bob"):
        assert here.altered(backend, user, "--for", "1s") == 0
    here.monkeypatch.setattr(time, "time_ns", lambda: 10**20)
    here.said()
    assert here.run(backend, *ended) == 143
    assert [entry.undoes is not None for entry in here.entries()] == [False, False, True]
    assert len(backend.describe()) == len(backend.start) + 1
    assert "\nstopped: " in here.said()
