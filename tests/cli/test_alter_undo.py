"""An alter is journalled: undo restores what was there, to the byte."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kquota import Entity, Plan, QuotaKey, reconcile
from kquota.access import Access, connect
from kquota.backends import wire
from kquota.changes import apply, plan, undo
from kquota.cli.contexts import Given
from kquota.cli.params import Writing
from kquota.cli.writing import Terms, switch_back
from kquota.core.change.recording import Level, LevelChange
from kquota.documents.journal import Entry, Journal
from tests.backends.test_kafka_peers import Peer
from tests.cli.conftest import Kquota, validated

SECRET = "salt=c2FsdA==,stored_key=c3RvcmVk,server_key=c2VydmVy,iterations=8192"
NODES = {
    "/config/users/alice": b'{"version":1,"config":{"producer_byte_rate":"4096","SCRAM-SHA-256":"%s",'
    b'"request_percentage":"50.0"}}' % SECRET.encode(),
    "/config/users/bob/clients/app": b'{ "version" : 1, "config" : { "consumer_byte_rate" : "5000" } }\n',
    "/config/clients/x": b'{"version":1,"config":{}}',
    "/config/clients/y": b"",
}


def tree(znodes: Any, path: str = "/config") -> dict[str, bytes | None]:
    """Every node below, with its data, without notifications."""
    if not znodes.exists(path):
        return {}
    found: dict[str, bytes | None] = {path: znodes.get(path)[0]}
    for child in znodes.get_children(path):
        if child != "changes":
            found |= tree(znodes, f"{path}/{child}")
    return found


@pytest.mark.parametrize(
    "words",
    [
        "alter --user alice --add-config producer_byte_rate=8192,consumer_byte_rate=7000",
        "alter --user alice --delete-config request_percentage",
        "delete --user alice",
        "alter --user bob --client app --add-config consumer_byte_rate=6000",
        "alter --user bob --add-config producer_byte_rate=2048",
        "alter --user carol --client app --add-config consumer_byte_rate=6000",
        "alter --client x --client y --client z --add-config consumer_byte_rate=6000",
        "alter --ip 10.0.0.7 --add-config connection_creation_rate=6",
    ],
)
def test_undo_restores_znodes_to_the_byte(kquota: Kquota, chroot: str, znodes: Any, tmp_path: Path, words: str) -> None:
    """Foreign keys, their order, other ways to write numbers, and nodes that were not there."""
    for path, data in NODES.items():
        znodes.create(path, data, makepath=True)
    before = tree(znodes)

    altered = kquota(*words.split(), "--yes", KQUOTA_ZOOKEEPER=chroot)
    assert altered.code == 0
    assert f"cluster: zookeeper://{chroot}" in altered.err
    assert tree(znodes) != before
    assert all(b"c2FsdA" not in file.read_bytes() for file in (tmp_path / ".state").rglob("*") if file.is_file())
    assert kquota("undo", "--yes", KQUOTA_ZOOKEEPER=chroot).code == 0

    assert tree(znodes) == before


def test_an_undo_takes_back_its_own_keys_only(kquota: Kquota, chroot: str, znodes: Any) -> None:
    """What another writer did to other keys meanwhile is no conflict, and stays; to the same key it is one."""
    alter = ("alter", "--zookeeper", chroot, "--user", "alice", "--add-config")
    assert kquota(*alter, "producer_byte_rate=1MB").code == 0
    done = kquota(*alter, "consumer_byte_rate=2MB", "-o", "json", KQUOTA_JOURNAL="/proc/none")
    assert done.code == 3, done
    assert kquota(*alter, "consumer_byte_rate=2MB").code == 0
    first = json.loads(kquota("history", "-o", "json").out)["entries"][0]["id"]

    assert kquota("undo", first, "--yes", "--zookeeper", chroot).code == 0
    assert kquota("describe", "--zookeeper", chroot, "-o", "csv").out.splitlines()[1:] == [
        "alice,,,consumer_byte_rate,2000000,bytes/s"
    ]
    assert kquota(*alter, "consumer_byte_rate=3MB").code == 0
    second = json.loads(kquota("history", "-o", "json").out)["entries"][1]["id"]
    assert kquota("undo", second, "--yes", "--zookeeper", chroot).code == 7


def test_an_undo_elsewhere_names_the_option_for_the_cluster(kquota: Kquota, chroot: str) -> None:
    assert kquota("alter", "--zookeeper", chroot, "--user", "a", "--add-config", "request_percentage=1").code == 0
    refused = kquota("undo", "1", "--yes", "--zookeeper", chroot.partition("/")[0])
    assert refused.code == 3
    assert "entry 1 was done at" in refused.complaint
    assert refused.complaint.endswith(f"(give --zookeeper {chroot})")


def test_a_repeated_flag_means_all_of_them(kquota: Kquota, chroot: str) -> None:
    """Of users or clients, not of both: which pairs would that be?"""
    alter = ("alter", "--zookeeper", chroot, "--add-config", "producer_byte_rate=10MB", "-o", "json")
    users = kquota(*alter, "--user", "bob", "--user", "carol", "--user", "bob")
    pairs = kquota(*alter, "--user", "bob", "--client", "c1", "--client", "c2")
    both = kquota(*alter, "--user", "bob", "--user", "carol", "--client", "c1", "--client", "c2")
    assert [result["entity"] for result in validated(users.out, "alter")["results"]] == [
        {"user": "bob"},
        {"user": "carol"},
    ]
    assert [result["entity"]["client-id"] for result in json.loads(pairs.out)["results"]] == ["c1", "c2"]
    assert (both.code, "--entity user=NAME,client-id=NAME" in both.err) == (2, True)
    described = kquota(
        "describe", "--zookeeper", chroot, "--user", "bob", "--user", "carol", "--user", "zoe", "-o", "name"
    )
    assert described.out.splitlines() == ["user=bob", "user=carol"]
    assert "no quotas are set on user=zoe" in described.err
    nothing = kquota("describe", "--zookeeper", chroot, "--user", "yan", "--user", "zoe").err
    assert all(f"no quotas are set on user={name}\n" in nothing for name in ("yan", "zoe"))
    twice = kquota("resolve", "--zookeeper", chroot, "--user", "bob", "--user", "carol")
    assert (twice.code, "Found multiple arguments for option user" in twice.err) == (2, True)


def test_delete_is_the_deletion_of_all_keys(kquota: Kquota, chroot: str) -> None:
    alter = ("alter", "--zookeeper", chroot, "--user", "alice")
    for words in (["delete", "--zookeeper", chroot, "--user", "alice"], [*alter, "--delete-config", "all"]):
        assert kquota(*alter, "--add-config", "producer_byte_rate=1MB,request_percentage=50").code == 0
        dry = kquota(*words, "--dry-run", "--quiet")
        assert (dry.code, dry.err) == (0, "dry run: nothing was written\n")
        done = kquota(*words, "-o", "csv")
        assert done.out.splitlines()[1:] == [
            "user=alice,producer_byte_rate,1000000,",
            "user=alice,request_percentage,50.0,",
        ]
        last = json.loads(kquota("history", "-o", "json").out)["entries"][-1]
        assert last["command"] == words[0]
        again = kquota(*words)
        assert (again.code, again.err) == (0, "nothing changes\nuser=alice: not set: any quota\n")
    assert kquota(*alter, "--delete-config", "all,producer_byte_rate").code == 3


def test_a_file_of_alter_has_its_guards(kquota: Kquota, chroot: str, tmp_path: Path) -> None:
    """As apply has them; what the file says beside that is not left out in silence."""
    (tmp_path / "quotas.yaml").write_text(
        "kind: kquota.quotas\nversion: 1\nprotected: [{user: admin}]\nunmanaged: [{user: other}]\n"
        "clusters: {prod: {}}\nquotas:\n  - {entity: {user: admin}, values: {producer_byte_rate: 1MB}}\n"
        "  - {entity: {user: other}, values: {producer_byte_rate: 1MB}}\n"
    )
    alter = ("alter", "--zookeeper", chroot, "--file", "quotas.yaml")
    assert "[protected]" in kquota(*alter).err
    done = kquota(*alter, "--force")
    assert (done.code, "1 unmanaged left as they are" in done.err) == (0, True)
    assert "no overlay of its clusters is used: 'kquota apply quotas.yaml --cluster NAME' uses one" in done.err
    assert kquota("describe", "--zookeeper", chroot, "-o", "name").out == "user=admin\n"


def test_undo_takes_away_a_user_and_its_pair(kquota: Kquota, chroot: str, znodes: Any) -> None:
    """The user's node was not there before either, though the pair's is below it."""
    before = tree(znodes)
    entities = ("--entity", "user=alice", "--entity", "user=alice,client-id=app1")
    alter = ("alter", *entities, "--add-config", "producer_byte_rate=10MB", "--yes")
    assert kquota(*alter, KQUOTA_ZOOKEEPER=chroot).code == 0
    assert "2 entities applied (2 deleted); " in kquota("undo", "--yes", KQUOTA_ZOOKEEPER=chroot).err
    left = tree(znodes)
    assert left.keys() - before.keys() <= {"/config", "/config/users"}


def test_users_and_pairs_of_several_batches_leave_no_node(
    chroot: str, znodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Users come before pairs in a plan; the node of a user goes with the last pair below it."""
    monkeypatch.setattr(reconcile, "_BATCH", 3)
    znodes.create("/config/users/b/clients/old", b'{"version":1,"config":{"producer_byte_rate":"7"}}', makepath=True)
    before = tree(znodes)
    entities = [Entity(user=user, client_id=client) for client in (None, "x", "y") for user in "abcd"]
    with connect(zookeeper=chroot) as backend:
        made = plan(backend, {entity: {QuotaKey.PRODUCER_BYTE_RATE: 1024} for entity in entities})
        assert apply(backend, made, yes=True, journal=tmp_path).outcome == "applied"
        assert undo(backend, journal=tmp_path).outcome == "applied"
    assert tree(znodes) == before


def test_reconcile_goes_on_after_an_entry_that_it_cannot_take_back(
    kquota: Kquota, chroot: str, znodes: Any, tmp_path: Path
) -> None:
    """Whatever is wrong with that one; by another address of the cluster."""
    wish = "kind: kquota.quotas\nversion: 1\nquotas:\n  - {entity: {user: %s}, values: {producer_byte_rate: 1MB}}\n"
    folder = tmp_path / ".state" / "kquota" / "journal"
    for user in ("alice", "bob"):
        (tmp_path / "quotas.yaml").write_text(wish % user)
        apply = ("apply", "quotas.yaml", "--zookeeper", chroot, "--yes", "--for", "1h")
        assert kquota(*apply).code == 0
    for file in folder.glob("*.json"):
        entry = json.loads(file.read_text())
        file.write_text(json.dumps(entry | {"expires": entry["started"]}))
    znodes.set("/config/users/bob", b'{"version":1,"config":{"producer_byte_rate":"1000000","request_percentage":"x"}}')
    server, _, root = chroot.partition("/")
    done = kquota("reconcile", "--zookeeper", f"{server},{server}/{root}")
    assert done.code == 6, done
    assert re.search(r"^kquota: \S+-2: .*user=bob", done.err, re.MULTILINE)
    assert kquota("describe", "--zookeeper", chroot, "-o", "name").out == "user=bob\n"


def test_an_undo_shows_what_it_does_and_not_what_others_did(kquota: Kquota, chroot: str, znodes: Any) -> None:
    live = ("--zookeeper", chroot)
    alter = ("alter", *live, "--user", "alice", "--user", "bob", "--add-config", "producer_byte_rate=1MB")
    for left in ("bob", ""):
        assert kquota(*alter).code == 0
        znodes.set("/config/users/alice", b"{}")
        if not left:
            znodes.delete("/config/users/bob")
        dry, done = (kquota("undo", *live, "--yes", *option) for option in (("--dry-run",), ()))
        assert (dry.code, done.code, done.out, "user=alice" in done.out) == (0, 0, dry.out, False)
        assert ("user=bob" in done.out) == bool(left)
        assert f"{1 if left else 2} entit{'y' if left else 'ies'} already as planned" in dry.err
        assert "undone by" in kquota("history", *live, COLUMNS="200").out.splitlines()[2]


def test_a_part_of_an_entry_can_be_undone(kquota: Kquota, chroot: str) -> None:
    """Without an ID it is the last change about them; the rest can be undone later."""
    live = ("--zookeeper", chroot)
    users = ("--user", "alice", "--user", "bob", "--add-config", "producer_byte_rate=1MB")
    assert kquota("alter", *live, *users).code == 0
    assert kquota("alter", *live, "--user", "carol", "--add-config", "producer_byte_rate=2MB").code == 0
    undo = ("undo", "--yes", *live)
    dry = kquota(*undo, "--user", "alice", "--dry-run")
    assert (dry.code, "dry run: nothing was written" in dry.err) == (0, True), dry
    planned = validated(kquota(*undo, "--user", "alice", "--dry-run", "-o", "json").out, "plan")
    assert [change["entity"] for change in planned["changes"]] == [{"user": "alice"}]

    assert kquota(*undo, "--user", "alice").code == 0
    named = kquota("describe", *live, "-o", "name").out.splitlines()
    assert named == ["user=bob", "user=carol"]
    assert "undone in part by 3" in kquota("history", COLUMNS="200").out
    none = kquota(*undo, "1", "--user", "alice")
    assert none.code == 3
    assert "entry 1 has no value to revert for user=alice" in none.err
    assert "nothing of these entities to undo at zookeeper://" in kquota(*undo, "--user", "zoe").err
    assert kquota(*undo, "1").code == 0
    assert kquota("describe", *live, "-o", "name").out.splitlines() == ["user=carol"]
    assert "undone by 3 and 4" in kquota("history", COLUMNS="200").out
    assert "entry 1 is undone already, parts by 3, the rest by entry 4 at " in kquota(*undo, "1").err
    told = json.loads(kquota("history", "-o", "json").out)
    first, *_, third, fourth = (entry["id"] for entry in told["entries"])
    assert told["undone"] == [{"entry": first, "by": [third, fourth], "whole": True}]


def test_the_default_is_a_part_of_an_entry_and_nobody_is_passed_over(
    kquota: Kquota, chroot: str, tmp_path: Path
) -> None:
    """By its option or by the text that kquota prints; a name that the entry is not about is an error."""
    live = ("--zookeeper", chroot)
    limit = ("--add-config", "producer_byte_rate=1MB")
    (tmp_path / "two.yaml").write_text(
        "kind: kquota.quotas\nversion: 1\nquotas:\n"
        "  - {entity: {user: {default: true}}, values: {producer_byte_rate: 1MB}}\n"
        "  - {entity: {user: bob}, values: {producer_byte_rate: 1MB}}\n"
    )
    assert kquota("apply", *live, "two.yaml", "--yes").code == 0
    assert kquota("alter", *live, "--user", "carol", *limit).code == 0
    for default in (("--user-defaults",), ("--entity", "user=<default>")):
        (line,) = kquota("history", *default).out.splitlines()[1:]
        assert line.startswith("1 ")

    for unknown, named in (
        (("--entity", "user=nobody"), "user=nobody"),
        (("--client-defaults",), "user=<default>,client-id="),
    ):
        refused = kquota("undo", "1", "--yes", *live, "--user-defaults", *unknown)
        assert refused.code == 3
        assert f"entry 1 has no value to revert for {named}" in refused.err
    assert kquota("undo", "1", "--yes", *live, "--user-defaults").code == 0
    assert kquota("describe", *live, "-o", "name").out.splitlines() == ["user=bob", "user=carol"]


def test_a_dry_run_switches_no_request_loggers(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It names the brokers, without a connection."""
    levels = (LevelChange(1, Level("WARN", inherited=True)),)
    journal = Journal(tmp_path)
    entry = journal.begin(Entry("", "kafka://h:1", "record", 0, Plan(()), expires=1, levels=levels))
    writing = Writing(False, False, True, False, None, None, tmp_path, Given({}), "table")
    vars(writing)["access"] = Access(bootstrap_server="h:1")
    terms = Terms(journal=journal, cluster="kafka://h:1", named="h:1", writing=writing, command="undo")
    assert switch_back(entry, terms) == 0
    said = capfd.readouterr().err
    assert said == "would switch the request loggers of node 1 at h:1 back (entry 1)\n"
    assert len(journal.read().entries) == 1


@pytest.mark.parametrize(
    "command", [("alter", "--user", "u", "--add-config", "producer_byte_rate=1MB"), ("apply", "q")]
)
def test_without_an_answer_nothing_is_written_and_that_is_said(
    kquota: Kquota, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """A lost quorum: what comes before the first write is not answered."""

    def answer(request: wire.Request, header: wire.RequestHeader) -> Any:
        return None if isinstance(request, wire.AlterClientQuotasRequest | wire.DescribeClientQuotasRequest) else ...

    (tmp_path / "q").write_text("kind: kquota.quotas\nversion: 1\nquotas: []\n")
    with Peer(answer) as peer:
        done = kquota(*command, "--bootstrap-server", peer.bootstrap, "--timeout", "1", "--yes")

    assert done.code == 4
    assert f"Kafka at {peer.bootstrap} did not answer within 1 s. Nothing was written." in done.err


def test_an_undo_that_is_repeated_goes_no_further_by_itself(kquota: Kquota, chroot: str) -> None:
    """Whoever repeats it wants nothing else reverted; by its ID each entry is, the undo as well."""
    live = ("--zookeeper", chroot)
    for rate in ("1MB", "2MB", "3MB"):
        assert kquota("alter", *live, "--user", "alice", "--add-config", f"producer_byte_rate={rate}").code == 0

    def value() -> str:
        return kquota("describe", *live, "-o", "csv").out.splitlines()[1].split(",")[4]

    assert kquota("undo", "--yes", *live).code == 0
    for yes in ([], ["--yes"], ["--yes", "--user", "alice"]):
        again = kquota("undo", *yes, *live)
        assert again.code == 8
        assert "the last write, entry 4, was an undo of entry 3; one more goes further back, to entry 2" in again.err
        assert f"('kquota undo 2 --zookeeper {chroot}' if you mean it; " in again.err
        assert f"'kquota undo 4 --zookeeper {chroot}' brings entry 3 back)" in again.err
    assert value() == "2000000"
    dry = kquota("undo", "--dry-run", *live)
    assert (dry.code, "was an undo of entry 3; one more goes further back\n" in dry.err) == (0, True)

    assert kquota("undo", "4", "--yes", *live).code == 0
    assert value() == "3000000"
    assert kquota("undo", "2", "3", "--yes", *live).code == 0
    assert value() == "1000000"
