"""What history tells of the writes, and what undo says of the one that it takes back."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kquota.core.change.plan import Plan
from kquota.core.change.recording import Level, LevelChange
from kquota.documents.journal import Entry, Journal
from tests.cli.conftest import Kquota
from tests.cli.terminal import on_terminal
from tests.cli.test_leases import entries, let_time_pass
from tests.cli.test_screens import STYLED
from tests.conftest import new_chroot
from tests.support.sandbox import Sandbox

BACK = ("undo", "--yes")


@pytest.fixture
def zed(kquota: Kquota, chroot: str) -> Any:
    def alter(value: str, *more: str, user: str = "zed", at: str = chroot) -> None:
        words = ("--user", user, "--add-config", f"producer_byte_rate={value}", "--yes", "--zookeeper", at, *more)
        assert kquota("alter", *words).code == 0

    return alter


def rows(kquota: Kquota, *more: str, **environment: str) -> list[str]:
    return kquota("history", *more, **environment).out.splitlines()[1:]


def test_history_says_what_and_who_the_newest_first(kquota: Kquota, zed: Any) -> None:
    zed("1MB")
    zed("2MB")
    by = entries(kquota)[0]["by"]
    first, second = rows(kquota)
    assert re.match(r"2 .* alter +user=zed producer_byte_rate 1 MB/s → 2 MB/s +applied ", first), first
    assert re.match(r"1 .* alter +user=zed producer_byte_rate no quota → 1 MB/s +applied ", second), second
    assert by in first
    narrow = kquota("history", COLUMNS="80").out
    assert "user=zed producer_byte_rate" in narrow
    page = kquota("history", "2", "-o", "markdown").out
    assert "| ENTRY | STARTED (UTC) | COMMAND |" in page
    assert "| ~ | user=zed | producer_byte_rate | 1 MB/s | 2 MB/s |" in page
    every = "`kquota history ENTRY -o markdown` has all values of an entry."
    assert every not in kquota("history", "-o", "markdown").out
    zed("3MB", "--add-config", "request_percentage=50")
    assert every in kquota("history", "-o", "markdown").out
    assert "| request_percentage | - | 50 % |" in kquota("history", "3", "-o", "markdown").out


def test_history_of_a_while_and_of_somebody(kquota: Kquota, zed: Any, tmp_path: Path) -> None:
    zed("1MB")
    zed("1MB", user="alice")
    file = next((tmp_path / ".state" / "kquota" / "journal").glob("*-1.json"))
    file.write_text(json.dumps(json.loads(file.read_text()) | {"started": 1_700_000_000_000}))
    assert [row.split()[0] for row in rows(kquota)] == ["2", "1"]
    for since in ("1h", "1w", "2 weeks", "2 hours ago", "yesterday", "yesterday 23:00", "2024-01-31T12:00"):
        assert [row.split()[0] for row in rows(kquota, "--since", since)] == ["2"], since
    assert [row.split()[0] for row in rows(kquota, "--user", "zed")] == ["1"]
    assert (
        json.loads(kquota("history", "--user", "zed", "-o", "json").out)["entries"][0]["started"] == 1_700_000_000_000
    )
    assert "is like that" in kquota("history", "--client-id", "app1").err
    assert "is like that" in kquota("history", "--ip", "10.0.0.7").err
    assert kquota("history", "1", "--since", "1h").code == 2


def test_history_of_somebody_names_the_change_of_somebody(kquota: Kquota, chroot: str) -> None:
    """What else an entry changed is counted."""
    who = ("--user", "alice", "--user", "zed")
    assert kquota("alter", *who, "--add-config", "producer_byte_rate=1MB", "--yes", "--zookeeper", chroot).code == 0

    for name in ("alice", "zed"):
        assert f"user={name} producer_byte_rate no quota → 1 MB/s, +1 more" in rows(kquota, "--user", name)[0]


def test_history_of_a_cluster(kquota: Kquota, zed: Any, chroot: str) -> None:
    """By an option that names it; the environment narrows nothing."""
    zed("1MB")
    assert kquota("history", "1", "--zookeeper", chroot).code == 2
    assert len(rows(kquota, "--zookeeper", chroot)) == 1
    assert "is like that" in kquota("history", "--zookeeper", "elsewhere:2181").err
    assert len(rows(kquota)) == len(rows(kquota, KQUOTA_BOOTSTRAP_SERVER="elsewhere:9092"))


def test_an_empty_history_names_its_journal(kquota: Kquota, tmp_path: Path) -> None:
    done = kquota("history", KQUOTA_JOURNAL=str(tmp_path / "none"))
    others = "journals of other people are not seen (--journal cluster is one for all of them)"
    assert done.err == f"no entries in the journal {tmp_path}/none; {others}\n"


def test_history_says_until_when_a_recording_runs(kquota: Kquota, tmp_path: Path) -> None:
    """Whether its process lives is not known; from the end on, the loggers wait for an undo."""
    levels = (LevelChange(1, Level("WARN", inherited=True)),)
    for expires in (4_102_444_800_000, 1):
        Journal(tmp_path).begin(Entry("", "kafka://h:1", "record", 0, Plan(()), expires=expires, levels=levels))
    over, runs = rows(kquota, "--journal", str(tmp_path))
    assert len(rows(kquota, "--journal", str(tmp_path), "--leases")) == 2, "reconcile ends recordings, too"
    begun = Journal(tmp_path).read().entries[0].id
    Journal(tmp_path).begin(Entry("", "kafka://h:1", "undo", 0, Plan(()), undoes=begun))
    assert "  undo     1 logger  " in rows(kquota, "--journal", str(tmp_path))[0]
    assert (
        "LEVEL MEANWHILE" in kquota("history", Journal(tmp_path).read().entries[-1].id, "--journal", str(tmp_path)).out
    )
    assert "unfinished, until 2100-01-01 00:00:00" in runs
    assert "  1 logger  " in runs
    assert "unfinished" in over
    assert "until" not in over


def test_history_says_how_each_lease_ended(kquota: Kquota, chroot: str, zed: Any, tmp_path: Path) -> None:
    """And JSON says it to programs."""
    for user in ("ended", "undone", "permanent", "overtaken", "conflict", "on"):
        zed("5MB", "--for", "2h", user=user)
    last = entries(kquota)[-1]["id"]
    assert kquota(*BACK, "2", "--zookeeper", chroot).code == 0
    zed("5MB", user="permanent")
    zed("6MB", user="overtaken")
    zed("7MB", "--journal", "elsewhere", user="conflict")
    folder = tmp_path / ".state" / "kquota" / "journal"
    kept = (folder / f"{last}.json").read_text()
    let_time_pass(folder)
    assert any("overdue since" in row for row in rows(kquota, "--user", "ended"))
    (folder / f"{last}.json").write_text(kept)
    assert kquota("reconcile", "--zookeeper", chroot).code == 7

    def outcome(user: str) -> str:
        return rows(kquota, "--user", user)[-1]

    assert re.search(r"  ended [-\d]+ [:\d]+ by 11 ", outcome("ended"))
    assert "  undone by 7 " in outcome("undone")
    assert "  made permanent by 8 " in outcome("permanent")
    assert "  overtaken by 9 " in outcome("overtaken")
    assert re.search(r"  conflict [-\d]+ [:\d]+ by 10 ", outcome("conflict"))
    assert re.search(r"  until 2\d\d\d-", outcome("on"))
    (on,) = rows(kquota, "--leases")
    assert "user=on producer_byte_rate no quota → 5 MB/s" in on
    leases = json.loads(kquota("history", "-o", "json").out)["leases"]
    assert {each["entity"]["user"]: each["state"] for each in leases} == {
        **{user: user for user in ("ended", "undone", "overtaken", "conflict", "on")},
        "permanent": "made permanent",
    }


def test_an_entry_that_moved_an_end_says_how_the_lease_ended(kquota: Kquota, zed: Any) -> None:
    """The lease is the first entry's; its end is as well the second one's."""
    zed("5MB", "--for", "2h")
    zed("5MB", "--for", "3h")
    assert all("  until 2" in row for row in rows(kquota, COLUMNS="200"))
    zed("5MB")
    third, second, first = rows(kquota, COLUMNS="200")
    assert ("  made permanent by 3" in second, "  made permanent by 3" in first) == (True, True)
    assert "  applied" in third


def test_undo_says_what_it_takes_back(kquota: Kquota, chroot: str, zed: Any) -> None:
    zed("1MB")
    by = entries(kquota)[0]["by"]
    done = kquota(*BACK, "--zookeeper", chroot)
    assert re.match(rf"undo of entry 1: alter of [-\d]+ [:\d]+ UTC, \d+ s ago, by {re.escape(by)}\n", done.err), (
        done.err
    )


def test_an_undo_once_more_does_nothing(kquota: Kquota, chroot: str, zed: Any) -> None:
    zed("1MB")
    assert kquota(*BACK, "1", "--zookeeper", chroot).code == 0
    again = kquota(*BACK, "1", "--zookeeper", chroot)
    assert (again.code, again.out) == (0, "")
    assert re.fullmatch(r"entry 1 is undone already, by entry 2 at [-\d]+ [:\d]+ UTC: nothing is done\n", again.err)
    assert len(entries(kquota)) == 2
    assert json.loads(kquota(*BACK, "1", "-o", "json", "--zookeeper", chroot).out)["outcome"] == "applied"


def test_an_undo_in_the_wrong_order_names_the_entry_between(kquota: Kquota, chroot: str, zed: Any) -> None:
    zed("8MB")
    zed("9MB")
    done = kquota(*BACK, "1", "--zookeeper", chroot)
    assert (done.code, done.out) == (7, "")
    assert "user=zed producer_byte_rate is 9 MB/s and not 8 MB/s: entry 2 set it since" in done.err
    assert "(undo that first: 'kquota undo 2')" in done.err
    zed("7MB", "--journal", "elsewhere")
    assert "is 7 MB/s and not 9 MB/s: somebody else set it since" in kquota(*BACK, "2", "--zookeeper", chroot).err


def test_several_entries_are_undone_the_newest_first(kquota: Kquota, chroot: str, zed: Any) -> None:
    zed("8MB")
    zed("9MB")
    assert kquota(*BACK, "1", "2", "--zookeeper", chroot).code == 0
    assert kquota("describe", "--zookeeper", chroot, "-o", "name").out == ""


def test_the_reason_of_a_plan_goes_where_the_plan_goes(kquota: Kquota, chroot: str, tmp_path: Path) -> None:
    """Into the file, the Markdown and the journal, to the undo, and to what ends it; -m of apply goes before it."""
    (tmp_path / "quotas.csv").write_text("user,key,value\nzed,producer_byte_rate,5000\n")
    where = ("--zookeeper", chroot)
    planned = kquota("plan", "quotas.csv", "-m", "INC-7 *now*", "--out", "plan.json", "-o", "markdown", *where)
    assert planned.code == 0
    assert "INC-7 \\*now\\*" in planned.out
    assert json.loads((tmp_path / "plan.json").read_text())["message"] == "INC-7 *now*"
    assert "why: INC-7 *now*" in kquota("apply", "plan.json", "--dry-run", *where).err
    assert kquota("apply", "plan.json", "--yes", "--for", "1h", *where).code == 0
    assert entries(kquota)[-1]["message"] == "INC-7 *now*"
    let_time_pass(tmp_path / ".state" / "kquota" / "journal")
    assert kquota("reconcile", *where).code == 0
    last = entries(kquota)[-1]
    assert (last["command"], last["message"]) == ("reconcile", "INC-7 *now*")
    assert kquota("apply", "plan.json", "--yes", "-m", "INC-8", *where).code == 0
    assert entries(kquota)[-1]["message"] == "INC-8"
    assert ": INC-8" in kquota("undo", "--yes", *where).err


def test_entries_of_two_clusters_name_them_on_a_narrow_terminal(
    kquota: Kquota, zed: Any, tmp_path: Path, chroot: str, zookeeper: Sandbox
) -> None:
    zed("1MB")
    other = new_chroot(zookeeper)
    zed("1MB", at=other)
    shown = on_terminal(["history"], tmp_path, COLUMNS="80", XDG_STATE_HOME=str(tmp_path / ".state"))
    for cluster in (chroot, other):
        assert f"at zookeeper://{cluster}" in "".join(STYLED.sub("", shown).split("\n")), shown


@pytest.mark.parametrize("width", [80, 100])
def test_who_when_what_and_why_stay_on_a_narrow_terminal(
    kquota: Kquota, tmp_path: Path, chroot: str, width: int
) -> None:
    """No word is broken, and nothing of these is left out."""
    whose = ("--user", "team-alpha", "--user", "team-beta", "--client", "app1")
    what = ("--add-config", "controller_mutation_rate=5,request_percentage=50%", "--for", "2h")
    why = "OPS-4711: the nightly backfill"
    assert kquota("alter", *whose, *what, "-m", why, "--yes", "--zookeeper", chroot).code == 0
    (tmp_path / "q.csv").write_text("user,request_percentage\nteam-gamma,50%\n")
    assert kquota("apply", "q.csv", "--yes", "--zookeeper", chroot).code == 0
    by = entries(kquota)[0]["by"]

    shown = on_terminal(["history"], tmp_path, COLUMNS=str(width), XDG_STATE_HOME=str(tmp_path / ".state"))

    table = STYLED.sub("", shown[: shown.index("left out")])
    assert max(map(len, table.splitlines())) <= width
    # A word that is broken is not among the words of the lines.
    found = set(table.split())
    assert "FILE" not in found, "a column of its own would leave the others too little"
    for text in (by, "STARTED", "BY", "alter", "apply", "q.csv", why, "request_percentage", "no", "quota", "until"):
        assert found.issuperset(text.split()), table
