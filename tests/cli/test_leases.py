"""Temporary changes, from their beginning to each of their ends, as people and cron meet them."""

import getpass
import json
import re
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Kquota, quotas

ALICE = ("--user", "alice", "--client", "etl", "--yes", "--add-config")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / ".state" / "kquota" / "journal"


def let_time_pass(folder: Path) -> None:
    """Moves every end of the journal into the past."""
    for file in folder.glob("*.json"):
        entry = json.loads(file.read_text())
        if entry["expires"] is not None:
            file.write_text(json.dumps(entry | {"expires": entry["started"] - 1}))


def value(kquota: Kquota, chroot: str, who: str = "alice,etl,,") -> str | None:
    rows = kquota("describe", "--zookeeper", chroot, "-o", "csv").out.splitlines()
    found = [row.split(",")[4] for row in rows if row.startswith(who)]
    return found[0] if found else None


def entries(kquota: Kquota) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(kquota("history", "-o", "json").out)["entries"]
    return found


def test_the_same_alter_with_another_time_moves_the_end(kquota: Kquota, chroot: str, folder: Path) -> None:
    alter = ("alter", "--zookeeper", chroot, *ALICE, "producer_byte_rate=15MB")
    assert kquota(*alter, "--for", "2h").code == 0
    dry = kquota(*alter, "--for", "4h", "--dry-run")
    assert re.search(r"15 MB/s until .* \(entry 1\); with this it ends ", dry.err), dry.err
    assert len(entries(kquota)) == 1

    again = kquota(*alter, "--for", "4h")
    assert again.code == 0
    assert re.search(r"15 MB/s until .* \(entry 1\); with this it ends .* UTC, then no quota again\n", again.err), (
        again.err
    )
    assert "nothing changes" not in again.err
    let_time_pass(folder)
    first, second = entries(kquota)
    file = folder / f"{second['id']}.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"expires": 4_000_000_000_000}))
    assert "next at 2096" in kquota("reconcile", "--zookeeper", chroot).err
    assert value(kquota, chroot) == "15000000"

    let_time_pass(folder)
    reverted = kquota("reconcile", "--zookeeper", chroot)
    assert reverted.code == 0
    assert f"cluster: zookeeper://{chroot}" in reverted.err.splitlines()
    assert value(kquota, chroot) is None
    assert entries(kquota)[-1]["undoes"] == first["id"]


def test_the_same_alter_without_a_time_is_permanent(kquota: Kquota, chroot: str, folder: Path) -> None:
    """A leased deletion, too."""
    alter = ("alter", "--zookeeper", chroot, *ALICE, "producer_byte_rate=5MB")
    delete = ("delete", "--zookeeper", chroot, "--user", "bob")
    assert kquota("alter", "--zookeeper", chroot, "--user", "bob", "--add-config", "producer_byte_rate=1MB").code == 0
    assert kquota(*alter, "--for", "2h").code == 0
    assert kquota(*delete, "--for", "2h").code == 0
    done = kquota(*alter)
    assert re.search(r"5 MB/s until .* \(entry 2\); this makes it permanent", done.err), done.err
    assert re.search(r"no quota until .* \(entry 3\); this makes it permanent", kquota(*delete).err)
    let_time_pass(folder)
    assert "nothing is due; no lease" in kquota("reconcile", "--zookeeper", chroot).err
    assert (value(kquota, chroot), value(kquota, chroot, "bob,,,")) == ("5000000", None)
    assert kquota("undo", "--zookeeper", chroot, "--yes").code == 0, "of the last write of a value"
    assert value(kquota, chroot, "bob,,,") == "1000000"


@pytest.mark.parametrize(
    "words",
    [
        "alter --user alice --client etl --add-config producer_byte_rate=7MB",
        "delete --user alice --client etl",
        "apply quotas.csv",
    ],
)
def test_a_permanent_write_ends_a_lease_for_good(
    kquota: Kquota, chroot: str, folder: Path, tmp_path: Path, words: str
) -> None:
    """Reconcile does not fail over it, and an undo of the write does not bring the lease back."""
    (tmp_path / "quotas.csv").write_text("user,client-id,producer_byte_rate\nalice,etl,7MB\n")
    alter = ("alter", "--zookeeper", chroot, *ALICE)
    assert kquota(*alter, "producer_byte_rate=3MB").code == 0
    assert kquota(*alter, "producer_byte_rate=5MB", "--for", "2h").code == 0
    done = kquota(*words.split(), "--yes", "--zookeeper", chroot)
    assert "this ends the lease of entry 2: user=alice,client-id=etl producer_byte_rate: 5 MB/s until" in done.err
    let_time_pass(folder)
    for _ in range(2):
        reconciled = kquota("reconcile", "--zookeeper", chroot)
        assert (reconciled.code, reconciled.out) == (0, ""), reconciled
    undone = kquota("undo", "--yes", "--zookeeper", chroot)
    said = "user=alice,client-id=etl producer_byte_rate 5 MB/s has no end then: an undo begins no lease anew"
    assert (undone.code, said in undone.err) == (0, True), undone
    assert kquota("reconcile", "--zookeeper", chroot).code == 0
    assert value(kquota, chroot) == "5000000"


def test_an_undo_names_the_ends_that_it_does_not_bring_back(kquota: Kquota, chroot: str) -> None:
    """Of the values that are taken back, and of those that only got another end, or none."""
    live = ("--zookeeper", chroot)
    alter = ("alter", *live, "--add-config", "producer_byte_rate=5MB", "--user", "alice")
    assert kquota(*alter, "--for", "1h").code == kquota(*alter, "--user", "bob", "--for", "2h").code == 0
    assert "user=alice producer_byte_rate still ends " in kquota("undo", "2", "--yes", *live).err
    assert kquota(*alter, "--user", "bob").code == 0
    said = "user=alice producer_byte_rate 5 MB/s has no end then"
    assert said in kquota("undo", "4", "--dry-run", *live).err
    part = kquota("undo", "4", "--user", "bob", "--yes", *live)
    assert (part.code, said in part.err) == (0, False)


def test_a_lease_on_a_lease_ends_first(kquota: Kquota, chroot: str, folder: Path) -> None:
    """The lower one waits for it, however long its own time is over; then both end in one run."""
    alter = ("alter", "--zookeeper", chroot, *ALICE)
    assert kquota(*alter, "producer_byte_rate=3MB").code == 0
    assert kquota(*alter, "producer_byte_rate=5MB", "--for", "2h").code == 0
    let_time_pass(folder)
    assert kquota(*alter, "producer_byte_rate=9MB", "--for", "1h").code == 0
    waits = kquota("reconcile", "--zookeeper", chroot)
    assert (waits.code, value(kquota, chroot)) == (0, "9000000")
    assert waits.err.startswith("nothing is due; 2 leases, next at "), waits.err
    _, lower, _ = kquota("history", COLUMNS="200").out.splitlines()[1:]
    assert (", below another lease  " in lower, "overdue" in lower) == (True, False), lower
    assert [lease["state"] for lease in json.loads(kquota("history", "-o", "json").out)["leases"]] == ["on", "on"]
    let_time_pass(folder)
    assert kquota("reconcile", "--zookeeper", chroot).code == 0
    assert value(kquota, chroot) == "3000000"


def test_reconcile_says_why_it_did_nothing(kquota: Kquota, chroot: str, tmp_path: Path) -> None:
    """Not to cron, which asks for quiet; and alter prints the line for it."""
    reconcile = ("reconcile", "--zookeeper", chroot)
    assert re.fullmatch(r"nothing is due; no lease \(journal .*/journal\)\n", kquota(*reconcile).err)
    done = kquota("alter", "--zookeeper", chroot, *ALICE, "producer_byte_rate=5MB", "--for", "2h", "--journal", "mine")
    # Cron looks for programs in few folders.
    program = "kquota" if shutil.which("kquota", path="/usr/bin:/bin") else shutil.which("kquota") or "kquota"
    line = f"*/5 * * * * {program} reconcile --quiet --zookeeper {chroot} --journal {tmp_path}/mine\n"
    assert line in done.err
    assert re.search(r"^ends .* UTC, then no quota again, if 'kquota reconcile' runs", done.err, re.MULTILINE), done.err
    assert "nothing is due; no lease" in kquota(*reconcile).err
    assert re.match(r"nothing is due; 1 lease, next at .* UTC", kquota(*reconcile, KQUOTA_JOURNAL="mine").err)
    quiet = kquota(*line.strip().removeprefix(f"*/5 * * * * {program} ").split())
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")


def test_a_dry_run_says_when_it_would_end(kquota: Kquota, chroot: str) -> None:
    alter = ("alter", "--zookeeper", chroot, *ALICE)
    assert kquota(*alter, "producer_byte_rate=3MB").code == 0
    dry = kquota(*alter, "producer_byte_rate=9MB", "--for", "2h", "--dry-run")
    assert re.search(r"^would end .* UTC, then 3 MB/s again$", dry.err, re.MULTILINE), dry.err


def test_the_journal_knows_who(kquota: Kquota, chroot: str) -> None:
    """Whatever the environment says."""
    alter = ("alter", "--zookeeper", chroot, *ALICE, "producer_byte_rate=3MB")
    assert kquota(*alter, LOGNAME="mallory", USER="mallory").code == 0
    assert entries(kquota)[0]["by"] == f"{getpass.getuser()}@{socket.gethostname()}"


def test_readers_say_which_values_end(kquota: Kquota, chroot: str, folder: Path) -> None:
    """Not of values that were overwritten since; an export has a comment."""
    live = ("--zookeeper", chroot)
    assert kquota("alter", *live, *ALICE, "producer_byte_rate=3MB").code == 0
    assert kquota("alter", *live, *ALICE, "producer_byte_rate=5MB", "--for", "2h").code == 0
    said = r"user=alice,client-id=etl producer_byte_rate: 5 MB/s until [-\d]+ [:\d]+ UTC, then 3 MB/s again \(entry 2\)"
    for words in (
        ("describe",),
        ("describe", "--user", "alice", "--client", "etl", "-o", "csv"),
        ("resolve", "--user", "alice", "--client", "etl"),
        ("lint",),
    ):
        done = kquota(*words, *live)
        assert re.search(rf"^{said}$", done.err, re.MULTILINE), (words, done.err)
    exported = kquota("export", *live)
    assert re.match(rf"# For a while: {said}\n", exported.out), exported.out
    assert re.search(rf"^kquota: warning: a value for a while: {said}$", exported.err, re.MULTILINE), exported.err
    assert "# For a while" not in kquota("export", "--user", "bob", *live).out
    assert re.search(r"ok    leases of .*: 1, none overdue", kquota("doctor", *live).out)

    let_time_pass(folder)
    assert re.search(
        r"5 MB/s is overdue since .* UTC: 'kquota reconcile' sets 3 MB/s again", kquota("describe", *live).err
    )
    kept = kquota("alter", *live, *ALICE, "producer_byte_rate=5MB", "--dry-run").err
    assert re.search(r"5 MB/s is overdue since .* UTC \(entry 2\); this makes it permanent\n", kept), kept
    assert re.search(r"warn  leases of .*: 1 of 1 are overdue", kquota("doctor", *live).out)
    assert kquota("alter", *live, *ALICE, "producer_byte_rate=7MB").code == 0
    assert kquota("describe", *live).err == ""


def test_a_value_that_was_put_back_by_hand_ends_beside_others(kquota: Kquota, chroot: str, folder: Path) -> None:
    """One value of the entry is back already, one has a later end: the first lease is over all the same."""
    alter = ("alter", "--zookeeper", chroot)
    both = ("--user", "alice", "--user", "bob", "--add-config", "producer_byte_rate=5MB", "--for", "2h")
    assert kquota(*alter, *both).code == 0
    later = (*alter, "--user", "bob", "--add-config", "producer_byte_rate=5MB", "--for", "2h")
    let_time_pass(folder)
    assert kquota(*later).code == 0
    assert kquota("delete", "--zookeeper", chroot, "--user", "alice", "--journal", "elsewhere").code == 0
    reconcile = ("reconcile", "--zookeeper", chroot)
    assert "the values before are back already" in kquota(*reconcile).err
    again = kquota(*reconcile)
    assert again.err.startswith("nothing is due; 1 lease, next at "), again
    assert "overdue" not in kquota("history", "--leases").out
    assert "in part by 3" in kquota("history", COLUMNS="200").out

    undone = kquota("undo", "--yes", "--zookeeper", chroot)
    assert (undone.code, "undo of entry 1" in undone.err) == (0, True), undone
    assert kquota("describe", "--zookeeper", chroot, "-o", "name").out == ""
    assert "nothing is due; no lease" in kquota(*reconcile).err


def test_a_file_with_the_leased_value_makes_it_permanent(
    kquota: Kquota, chroot: str, folder: Path, tmp_path: Path
) -> None:
    """The plan says so, although it changes nothing; with --prune, a leased deletion as well."""
    live = ("--zookeeper", chroot)
    (tmp_path / "quotas.csv").write_text("user,client-id,producer_byte_rate\nalice,etl,5MB\n")
    assert kquota("alter", *live, "--user", "bob", "--add-config", "producer_byte_rate=1MB").code == 0
    assert kquota("alter", *live, *ALICE, "producer_byte_rate=5MB", "--for", "2h").code == 0
    assert kquota("delete", *live, "--user", "bob", "--for", "2h").code == 0
    apply = ("apply", "quotas.csv", "--yes", *live)
    moved = kquota(*apply, "--for", "3h")
    assert re.search(r"5 MB/s until .* \(entry 2\); with this it ends .* UTC, then no quota again\n", moved.err)
    assert re.search(r"^ends .* UTC, if 'kquota reconcile' runs", moved.err, re.MULTILINE), moved.err

    said = r"5 MB/s until .* \(entry 2\); this makes it permanent\n"
    planned = kquota("plan", "quotas.csv", "--out", "plan.json", *live)
    assert "(entry 2); an apply of quotas.csv makes it permanent, and one of plan.json does not\n" in planned.err
    assert "this makes" not in planned.err
    assert "nothing changes" in kquota("apply", "plan.json", "--yes", *live).err
    done = kquota(*apply)
    assert (done.code, bool(re.search(said, done.err)), "entry 3" in done.err) == (0, True, False), done
    assert re.search(r"^1 lease changed$", done.err, re.MULTILINE), done.err
    assert "this makes it permanent" not in kquota(*apply).err
    assert re.search(r"no quota until .* \(entry 3\); this makes it permanent\n", kquota(*apply, "--prune").err)
    let_time_pass(folder)
    assert "nothing is due; no lease" in kquota("reconcile", *live).err
    assert (value(kquota, chroot), value(kquota, chroot, "bob,,,")) == ("5000000", None)


def test_a_lease_changes_beside_values_that_fail_unless_all_is_rolled_back(
    kquota: Kquota, chroot: str, znodes: Any, tmp_path: Path
) -> None:
    """An alter takes nothing back, and an apply everything."""
    from kazoo.security import make_acl

    live, rate = ("--zookeeper", chroot), "producer_byte_rate=40MB"
    (tmp_path / "quotas.yaml").write_text(quotas(alice="40MB", bob="40MB"))
    assert kquota("alter", *live, "--user", "bob", "--add-config", "producer_byte_rate=1MB").code == 0
    assert kquota("alter", *live, "--user", "alice", "--add-config", rate, "--for", "1h").code == 0
    znodes.set_acls("/config/users/bob", [make_acl("world", "anyone", read=True)])

    failed = kquota("apply", "quotas.yaml", "--yes", *live)
    assert (failed.code, "1 entity failed\n" in failed.err, "lease changed" in failed.err) == (5, True, False), failed
    assert "1 lease, next at" in kquota("reconcile", *live).err
    altered = kquota("alter", *live, "--user", "alice", "--user", "bob", "--yes", "--add-config", rate)
    assert (altered.code, "this makes it permanent" in altered.err) == (9, True), altered
    last, before, lease, _ = kquota("history", COLUMNS="200").out.splitlines()[1:]
    assert ("  incomplete  " in last, "  rolled back  " in before, "  made permanent by 4  " in lease) == (True,) * 3
    assert "nothing is due; no lease" in kquota("reconcile", *live).err
