"""The journal under many writers, clocks that go back, disks that fill, and files that are no entries."""

import json
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kquota import Entity, InputError, Plan, QuotaKey, QuotaSnapshot
from kquota.changes import to_undo
from kquota.core.change.plan import Cluster, plan
from kquota.core.change.recording import Level, LevelChange
from kquota.documents.journal import Entry, Journal
from kquota.errors import Locked
from tests.support.processes import ran

ALICE, BOB = Entity(user="alice"), Entity(user="bob")
PLAN: Plan = plan(QuotaSnapshot({}), {entity: {QuotaKey.PRODUCER_BYTE_RATE: 1000} for entity in (ALICE, BOB)})
NOW = 1_700_000_000_000


def begin(journal: Journal, cluster: str = "kafka://a", now: int = NOW, **options: Any) -> Entry:
    return journal.begin(Entry("", cluster, "apply", now, PLAN, **options))


def test_no_entry_is_lost_among_many_writers(tmp_path: Path) -> None:
    """The same plan in the same second on four clusters, by eight writers at once."""
    ids: list[str] = []

    def write(cluster: str) -> None:
        journal = Journal(tmp_path)
        for _ in range(25):
            entry = begin(journal, cluster)
            journal.finish(entry, "applied", now=NOW)
            ids.append(entry.id)

    threads = [threading.Thread(target=write, args=(f"zookeeper://z/{number % 4}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pages = Journal(tmp_path).read()
    assert len(ids) == len(set(ids)) == len(pages.entries) == 200
    assert {entry.id for entry in pages.entries} == set(ids)
    assert sorted(entry.number for entry in pages.entries) == list(range(1, 201))
    assert [len(pages.of(f"zookeeper://z/{number}")) for number in range(4)] == [50] * 4
    assert {entry.outcome for entry in pages.entries} == {"applied"}


def test_two_without_a_lock_still_have_ids_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the file system has none, and both saw the same names."""
    journal = Journal(tmp_path)
    monkeypatch.setattr(os, "listdir", lambda folder: [])
    ids = [begin(journal).id for _ in range(3)]
    monkeypatch.undo()
    assert len(set(ids)) == 3
    assert {entry.id for entry in journal.read().entries} == set(ids)


def test_the_order_is_that_of_the_journal_and_not_of_the_clock(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    ids = [begin(journal, now=now).id for now in (NOW, NOW - 7_200_000, NOW + 5, NOW - 1)]
    assert [entry.id for entry in journal.read().entries] == ids


def test_an_entry_is_named_by_its_id_or_number(tmp_path: Path) -> None:
    """A number may stand for several, where somebody copied entries into the folder."""
    journal = Journal(tmp_path)
    a, b = begin(journal, "kafka://a"), begin(journal, "kafka://b")
    assert [journal.read().entry(text).id for text in (a.id, str(b.number))] == [a.id, b.id]
    for text in ("nothing", PLAN.fingerprint, a.id[:11]):
        with pytest.raises(InputError, match=f"no entry '{text}'") as none:
            journal.read().entry(text)
        assert "--journal names another journal, such as 'cluster'" in str(none.value.hint)
    copied = a.id.replace(PLAN.fingerprint, "0" * 12)
    (tmp_path / f"{copied}.json").write_text((tmp_path / a.file_name).read_text().replace(a.id, copied))
    with pytest.raises(InputError, match="'1' means 2 entries") as several:
        journal.read().entry("1")
    assert all(id in str(several.value.hint) for id in (a.id, copied))


def test_an_entry_that_is_still_written_is_not_undone(tmp_path: Path) -> None:
    """What its run writes after the undo would have no way back. One whose run was killed can be undone."""
    journal = Journal(tmp_path)
    running = begin(journal)
    for id in (None, running.name):
        with pytest.raises(Locked, match="entry 1 is still being written by "):
            to_undo(journal.read(), id, Cluster("kafka://a"))
    journal.release(running)
    assert to_undo(journal.read(), None, Cluster("kafka://a")) == running
    ended = begin(journal)
    journal.finish(ended, "applied", now=NOW)
    assert to_undo(journal.read(), None, Cluster("kafka://a")).id == ended.id


def changed(change: dict[str, Any]) -> Callable[[str], str]:
    return lambda text: json.dumps(json.loads(text) | change)


def within_plan(change: dict[str, Any]) -> Callable[[str], str]:
    def write(text: str) -> str:
        document = json.loads(text)
        document["plan"] |= change
        return json.dumps(document)

    return write


CHANGE = {"action": "create", "entity": {"user": "a"}, "before": {}, "after": {"producer_byte_rate": 1}}
BROKEN: dict[str, Callable[[str], str]] = {
    "empty": lambda text: "",
    "cut off": lambda text: text[: len(text.rstrip()) // 2],
    "cut off in its last line": lambda text: text.rstrip()[:-3],
    "zeros": lambda text: "\0" * len(text),
    "no object": lambda text: "[1]",
    "nested": lambda text: "[" * 200_000,
    "another kind": changed({"kind": "kquota.plan"}),
    "a version to come": changed({"version": 99}),
    "an id of another": changed({"id": f"20260101T000000Z-{PLAN.fingerprint}"}),
    "times of no calendar": changed({"started": 10**30}),
    "a time that is text": changed({"started": "now"}),
    "no cluster": changed({"cluster": None}),
    "no plan": changed({"plan": None}),
    "a plan of nothing": changed({"plan": {}}),
    "untouched text": changed({"untouched": ["alice"]}),
    "changes that are none": within_plan({"changes": {"a": 1}}),
    "numbers for changes": within_plan({"changes": [1, 2]}),
    "a name that is a number": within_plan({"changes": [CHANGE | {"entity": {"user": 5}}]}),
    "a name that is a list": within_plan({"changes": [CHANGE | {"entity": {"user": ["a"]}}]}),
    "an entity that is text": within_plan({"changes": [CHANGE | {"entity": "a"}]}),
    "values that are a list": within_plan({"changes": [CHANGE | {"after": [1]}]}),
    "a value that is a list": within_plan({"changes": [CHANGE | {"after": {"producer_byte_rate": [1]}}]}),
    "a value that is huge": within_plan({"changes": [CHANGE | {"after": {"producer_byte_rate": 10**400}}]}),
    "a key that is none": within_plan({"changes": [CHANGE | {"after": {"zork": 1}}]}),
    "changes that were edited": within_plan({"changes": [CHANGE]}),
}


@pytest.mark.parametrize("how", BROKEN)
def test_one_broken_file_hides_no_other(tmp_path: Path, how: str) -> None:
    journal = Journal(tmp_path)
    first, broken, last = (begin(journal) for _ in range(3))
    file = tmp_path / f"{broken.id}.json"
    file.write_text(BROKEN[how](file.read_text()))
    pages = journal.read()
    assert [entry.id for entry in pages.entries] == [first.id, last.id]
    ((name, why),) = pages.unreadable
    assert name == file.name
    assert why
    assert "\n" not in why
    assert pages.entry(last.id).id == last.id
    for text in (broken.id, broken.name):
        with pytest.raises(InputError, match="cannot be read"):
            pages.entry(text)
    assert begin(journal).number == last.number + 1


def fifo(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "make", [fifo, Path.mkdir, lambda path: path.symlink_to("nowhere"), lambda path: path.symlink_to("/dev/zero")]
)
def test_what_is_no_file_is_not_waited_for(tmp_path: Path, make: Callable[[Path], None]) -> None:
    journal = Journal(tmp_path)
    entry = begin(journal)
    make(tmp_path / "20260101T000000Z-odd.json")
    pages = journal.read()
    assert [each.id for each in pages.entries] == [entry.id]
    assert [each.name for each in pages.unreadable] in (["20260101T000000Z-odd.json"], [])


class Full:
    """A disk with room for so many bytes: later writes fail, as the kernel's do, in their middle too."""

    def __init__(self, room: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room = room
        self.written = 0
        self._write = os.write
        monkeypatch.setattr(os, "write", self.write)

    def take(self, size: int) -> int:
        taken = min(size, self.room - self.written)
        self.written += taken
        if taken == 0 and size:
            raise OSError(28, "No space left on device")
        return taken

    def write(self, descriptor: int, data: Any) -> int:
        return self._write(descriptor, memoryview(data)[: self.take(len(data))])


def begun_and_finished(journal: Journal) -> Iterator[str]:
    entry = begin(journal)
    yield "begun"
    journal.finish(entry, "incomplete", now=NOW, error="x" * 5000, untouched=(ALICE, BOB))
    yield "finished"


def test_a_disk_that_fills_at_every_byte_leaves_whole_entries(tmp_path: Path) -> None:
    """What has begun can be finished: the room for it was taken before the first write on the cluster."""
    with pytest.MonkeyPatch.context() as patch:
        disk = Full(1 << 30, patch)
        (tmp_path / "all").mkdir()
        assert [*begun_and_finished(Journal(tmp_path / "all"))] == ["begun", "finished"]
        finished = disk.written
    reached: dict[str, int] = {}
    complaints: set[tuple[str, str | None]] = set()
    for room in [*range(0, finished, 97), finished - 1, finished]:
        folder = tmp_path / str(room)
        journal = Journal(folder)
        steps = []
        with pytest.MonkeyPatch.context() as patch:
            Full(room, patch)
            try:
                for step in begun_and_finished(journal):
                    steps.append(step)
            except InputError as error:
                complaints.add((error.message, error.hint))
        pages = journal.read()
        assert pages.unreadable == ()
        assert not [name for name in os.listdir(folder) if name.startswith(".") and name != ".lock"] or steps == [
            "begun"
        ]
        assert len(pages.entries) == bool(steps)
        last = steps[-1] if steps else "nothing"
        reached[last] = reached.get(last, 0) + 1
        if steps:
            assert pages.entries[0].plan == PLAN
            # All of an end but its newline says it as well.
            assert pages.entries[0].outcome == "incomplete" or (last == "begun" and room < finished)
    assert all("No space left on device" in message and str(tmp_path) in message for message, _ in complaints)
    assert all(hint and "KQUOTA_JOURNAL" in hint for _, hint in complaints)
    assert reached["nothing"] > 10
    assert reached["finished"] >= 1


def test_what_was_begun_is_finished_on_a_full_disk(tmp_path: Path) -> None:
    """Its room is there already: not one byte more is needed."""
    journal = Journal(tmp_path)
    entry = begin(journal)
    before = sum(file.stat().st_size for file in tmp_path.iterdir())
    with pytest.MonkeyPatch.context() as patch:
        made: list[object] = []
        patch.setattr(os, "open", lambda *arguments, **options: made.append(arguments))
        journal.finish(entry, "incomplete", now=NOW, error="no", untouched=(BOB,))
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= before
    (read,) = journal.read().entries
    assert (read.outcome, read.untouched) == ("incomplete", (BOB,))
    assert [change.entity for change in read.made.changes] == [ALICE]
    assert made == []


@pytest.mark.parametrize("folder", ["/proc/x", "file/journal", "/dev/null/journal"])
def test_a_journal_that_cannot_be_written_says_where_and_why(tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError) as refused:
        begin(Journal(tmp_path / folder))
    assert "Errno" not in refused.value.message
    assert str(tmp_path / folder) in refused.value.message
    assert "KQUOTA_JOURNAL" in str(refused.value.hint)


LIMITED = """
import resource, sys
from pathlib import Path
from kquota.documents.journal import Journal
from tests.documents.test_journal import begin
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
entry = begin(Journal(Path(sys.argv[1])))
Journal(Path(sys.argv[1])).finish(entry, "applied", now=5)
"""


@pytest.mark.parametrize(("most", "begins"), [(100, False), (3000, False), (100_000, True)])
def test_the_kernels_own_refusal_comes_before_the_first_write(tmp_path: Path, most: int, begins: bool) -> None:
    """`ulimit -f`: no room for the entry, none for its outcome, enough for both."""
    import sys

    done = ran([sys.executable, "-c", LIMITED, str(tmp_path / "journal"), str(most)])
    assert ("File too large" in done.stderr) == (not begins), done.stderr
    assert [entry.outcome for entry in Journal(tmp_path / "journal").read().entries] == (["applied"] if begins else [])
    assert {*os.listdir(tmp_path / "journal")} <= {".lock", *Journal(tmp_path / "journal").names()}


def test_a_cluster_is_the_same_by_every_address(tmp_path: Path) -> None:
    """By its id where that is known; entries without a cluster in their plan are known by any of their servers."""
    journal = Journal(tmp_path)
    begin(journal, "kafka://a:1,b:2")
    known = replace(PLAN, cluster=Cluster("kafka://a:1", "id-1"))
    journal.begin(Entry("", "kafka://a:1", "apply", NOW, known))
    pages = journal.read()
    assert [entry.number for entry in pages.of(Cluster("kafka://B:2,a:1", "id-1"))] == [1, 2]
    assert [entry.number for entry in pages.of(Cluster("kafka://c:3", "id-1"))] == [1, 2]
    assert pages.of(Cluster("kafka://a:1", "id-2")) == ()


def test_a_lease_of_loggers_is_read_back(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    levels = (LevelChange(1, Level("WARN")), LevelChange(2, Level("INFO", inherited=True)))
    entry = journal.begin(Entry("", "kafka://a", "record", NOW, Plan(()), expires=NOW + 1, levels=levels))
    assert journal.read().entries == (entry,)
    assert journal.read().entries[0].levels == levels


def test_who_writes_an_entry_is_known_on_its_own_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path)
    entry = begin(journal)
    assert (journal.is_written(entry), journal.is_abandoned(entry)) == (True, False)
    journal.release(entry)
    assert (journal.is_written(entry), journal.is_abandoned(entry)) == (False, True)
    assert not journal.is_abandoned(replace(entry, outcome="applied"))
    monkeypatch.setattr("socket.gethostname", lambda: "another")
    assert not journal.is_abandoned(entry)
    assert journal.read().entries == (entry,)


def test_what_killed_runs_left_is_removed_by_the_next(tmp_path: Path) -> None:
    """A file that never got its name. The folder of one who keeps more there stays as it is."""
    journal = Journal(tmp_path)
    for name in (".new-0123456789abcdef", ".gitignore", "README"):
        (tmp_path / name).write_text("{")
    entry = begin(journal)
    journal.finish(entry, "applied", now=NOW)
    assert {*os.listdir(tmp_path)} == {".gitignore", "README", ".lock", entry.file_name}


@pytest.mark.parametrize("lost", [0.0, 0.3, 0.9, 1.0])
def test_an_end_that_is_torn_leaves_the_beginning(tmp_path: Path, lost: float) -> None:
    """As a loss of power may: some of the last line is still the blanks that kept its room."""
    journal = Journal(tmp_path)
    begun = begin(journal)
    file = tmp_path / begun.file_name
    before = file.read_bytes()
    journal.finish(begun, "applied", now=NOW)
    whole = file.read_bytes()
    old, end = len(before.rstrip()), len(whole)
    torn, blank = old + round((end - old) * lost), round(old * lost)
    both = before[:old] + whole[old:]
    for cut in (before[:torn] + whole[torn:], both[:torn] + before[torn:], whole[:blank] + both[blank:]):
        file.write_bytes(cut)
        (entry,) = journal.read().entries
        assert entry.outcome in (None, "applied")
        assert replace(entry, outcome=None, finished=None) == begun
    assert json.loads(whole) | {"outcome": None, "finished": None} == json.loads(before)
