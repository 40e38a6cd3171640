"""`kquota edit`: what an editor makes of the file is planned, reviewed and applied."""

import csv
import io
import re
import shlex
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Kquota, Ran


class Editing:
    """A kquota on one chroot, and editors that are Python programs: each edits `text` of the file."""

    def __init__(self, kquota: Kquota, chroot: str, folder: Path) -> None:
        self.kquota = kquota
        self.folder = folder
        self.environment = {"KQUOTA_ZOOKEEPER": chroot, "KQUOTA_JOURNAL": str(folder / "journal")}
        self.environment["TMPDIR"] = str(folder / "tmp")
        (folder / "tmp").mkdir()

    def __call__(self, *arguments: str, **environment: str) -> Ran:
        return self.kquota(*arguments, **self.environment | environment)

    def edit(self, program: str, *arguments: str) -> Ran:
        """Runs `kquota edit` with an editor that runs these statements on the file's `text`."""
        script = self.folder / "editor.py"
        script.write_text(
            "import pathlib, sys\npath = pathlib.Path(sys.argv[1])\ntext = path.read_text()\n"
            f"with pathlib.Path({str(self.folder / 'seen')!r}).open('a') as seen:\n    seen.write(text + '=====\\n')\n"
            f"{program}\npath.write_text(text)\n"
        )
        return self("edit", *arguments, EDITOR=f"{shlex.quote(sys.executable)} {shlex.quote(str(script))}", VISUAL="")

    def seen(self) -> list[str]:
        """The texts that the editor was opened with."""
        return (self.folder / "seen").read_text().split("=====\n")[:-1]

    def shown(self) -> list[str]:
        """What is set, a line each."""
        rows = csv.DictReader(io.StringIO(self("describe", "-o", "csv").out))
        named = {kind: f"{kind}=" for kind in ("user", "client-id", "ip")}
        return [
            ",".join([*(named[kind] + row[kind] for kind in named if row[kind]), row["key"], row["value"]])
            for row in rows
        ]

    def kept(self) -> list[Path]:
        """The files that were kept."""
        return list((self.folder / "tmp").glob("kquota-edit-*/quotas.yaml"))


@pytest.fixture
def editing(kquota: Kquota, chroot: str, tmp_path: Path) -> Editing:
    """With quotas of alice, bob, and of a team."""
    made = Editing(kquota, chroot, tmp_path)
    for entity, configs in (
        ("user=alice", "producer_byte_rate=10MB,request_percentage=50"),
        ("user=bob", "consumer_byte_rate=5MB"),
        ("user=team-a-x", "producer_byte_rate=1MB"),
    ):
        assert made("alter", "--entity", entity, "--add-config", configs).code == 0
    return made


def test_an_edit_is_applied_and_undone(editing: Editing) -> None:
    """A value that is changed, one that is gone, an entity that is gone, and a new one."""
    before = editing.shown()
    ran = editing.edit(
        "import re\n"
        "text = text.replace('10 MB/s', '20MB').replace(', request_percentage: 50 %', '')\n"
        "text = re.sub('  - entity: {user: bob}.*\\n.*\\n', '', text)\n"
        "text += '  - entity: {user: carol}\\n    values: {producer_byte_rate: 3MB}\\n'",
        "--yes",
    )
    assert ran.code == 0, ran.err
    assert editing.shown() == [
        "user=alice,producer_byte_rate,20000000",
        "user=carol,producer_byte_rate,3000000",
        "user=team-a-x,producer_byte_rate,1000000",
    ]
    assert "BEFORE" in ran.out
    assert f"cluster: zookeeper://{editing.environment['KQUOTA_ZOOKEEPER']}" in ran.err.splitlines()
    assert editing.kept() == []
    assert editing("undo", "--yes").code == 0
    assert editing.shown() == before


@pytest.mark.parametrize(
    ("program", "says"),
    [("pass", "the file is unchanged"), ("text = '# ' + text", "unchanged"), ("text = '# nothing\\n'", "is empty")],
)
def test_nothing_is_done(editing: Editing, program: str, says: str) -> None:
    before = editing.shown()
    ran = editing.edit(program, "--yes")
    assert (ran.code, ran.out, editing.shown()) == (0, "", before)
    assert says in ran.err
    assert editing.kept() == []


def test_a_mistake_opens_the_editor_again(editing: Editing) -> None:
    """With the mistake at the top, and the line as it is in the file that is open now."""
    ran = editing.edit(
        "if text.startswith('# kquota: '):\n"
        "    text = text.replace('10 MBB/s', '7MB')\n"
        "else:\n"
        "    text = text.replace('10 MB/s', '10 MBB/s')",
        "--yes",
    )
    assert ran.code == 0, ran.err
    assert "user=alice,producer_byte_rate,7000000" in editing.shown()
    _, second = editing.seen()
    comment = second.splitlines()[0]
    assert "10 MBB/s" in comment
    line = re.search(r"line (\d+)", comment)
    assert line is not None
    assert "alice" in "".join(second.splitlines()[int(line[1]) - 1 : int(line[1]) + 1])


@pytest.mark.parametrize("program", ["text = 'quotas: ['", "text = text.replace('10 MB/s', '10 MBB/s')"])
def test_an_edit_that_keeps_its_mistake_is_kept(editing: Editing, program: str) -> None:
    before = editing.shown()
    ran = editing.edit(program, "--yes")
    assert (ran.code, editing.shown()) == (3, before)
    (kept,) = editing.kept()
    assert f"the edit is kept in {kept}" in ran.err


def test_only_the_entities_that_were_asked_for(editing: Editing) -> None:
    ran = editing.edit("text = text.replace('1 MB/s', '2MB')", "--match", "team-a-*", "--yes")
    assert ran.code == 0, ran.err
    assert "alice" not in editing.seen()[0]
    assert "user=team-a-x,producer_byte_rate,2000000" in editing.shown()
    assert "user=alice,producer_byte_rate,10000000" in editing.shown()
    other = "if 'user: bob' not in text: text += '  - entity: {user: bob}\\n    values: {producer_byte_rate: 3MB}\\n'"
    refused = editing.edit(other, "--user", "alice", "--yes")
    assert refused.code == 3
    assert "user=bob is not among the entities that were asked for" in refused.err


def test_what_stops_an_edit_keeps_it(editing: Editing) -> None:
    """No consent, a refusal, an editor that fails, and one that is not there."""
    before = editing.shown()
    slower = "text = text.replace('10 MB/s', '9MB')"
    nobody = editing.edit(slower)
    assert (nobody.code, len(editing.kept())) == (8, 1)
    refused = editing.edit(slower + "\ntext = text.replace('alice', 'User:alice')", "--yes")
    assert (refused.code, len(editing.kept())) == (8, 2), refused.err
    failed = editing.edit("sys.exit(3)", "--yes")
    assert (failed.code, "Editing failed" in failed.err) == (8, True)
    missing = editing("edit", EDITOR="/no/such/editor", VISUAL="")
    assert (missing.code, "set VISUAL or EDITOR" in missing.err) == (8, True)
    assert editing.shown() == before


def test_a_change_by_another_writer_is_a_conflict(editing: Editing) -> None:
    """The editor's user saw 10 MB/s; somebody sets another value meanwhile."""
    alter = [sys.executable, "-m", "kquota", "alter", "--user", "alice", "--add-config", "producer_byte_rate=8MB"]
    ran = editing.edit(
        f"import subprocess\nsubprocess.run({alter!r}, check=True)\ntext = text.replace('10 MB/s', '9MB')", "--yes"
    )
    assert ran.code == 7, ran.err
    assert "user=alice,producer_byte_rate,8000000" in editing.shown()
    assert len(editing.kept()) == 1
