"""`kquota describe` and `kquota alter` against a real ZooKeeper."""

import json
from pathlib import Path
from typing import Any

import pytest

from kquota import Alteration, connect
from kquota.documents.quotas import read_quotas
from tests.cli.conftest import Golden, Kquota, validated
from tests.support.data import DATA, data_rows

FILLED = read_quotas(DATA / "cli" / "filled.yaml")


@pytest.fixture
def filled(chroot: str) -> str:
    """A chroot with a quota on each kind of entity."""
    with connect(zookeeper=chroot) as backend:
        results = backend.alter([Alteration(entity, values) for entity, values in FILLED.items()])
    assert {result.error for result in results} == {None}
    return chroot


def test_alter_sets_each_kind_of_entity(kquota: Kquota, chroot: str) -> None:
    for (arguments,) in data_rows("cli/filled.txt"):
        done = kquota("alter", *arguments.split(), KQUOTA_ZOOKEEPER=chroot)
        held = "user=alice,client-id=<default>: producer_byte_rate was 10 MB/s before, by user=alice\n"
        assert (done.code, done.rest) == (0, held if "--user alice --client-defaults" in arguments else "")
    with connect(zookeeper=chroot) as backend:
        assert dict(backend.describe()) == dict(FILLED)


@pytest.mark.parametrize("output", ["table", "wide", "json", "yaml", "csv", "name"])
def test_describe_prints_every_format(kquota: Kquota, filled: str, golden: Golden, output: str) -> None:
    done = kquota("describe", "--zookeeper", filled, "-o", output)

    assert (done.code, done.err) == (0, "")
    golden(f"describe.{output}", done.out)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ("--user alise", "did you mean 'alice'?"),
        ("--ip 10.0.0.8", ""),
        ("--user zoe", ""),
    ],
)
def test_describe_of_a_name_that_is_nearly_right(kquota: Kquota, filled: str, arguments: str, hint: str) -> None:
    """The one that is meant is named; other digits make a neighbour, not a slip."""
    done = kquota("describe", "--zookeeper", filled, *arguments.split())

    assert (done.code, done.out) == (0, "")
    assert done.err.startswith("no quotas are set")
    kind, name = arguments.removeprefix("--").split()
    resolve = f"kquota resolve --{kind} {name} --zookeeper {filled}"
    asks = f"no quotas are set for {kind}={name}; '{resolve}' shows the quota that governs it"
    assert done.err.splitlines()[0] == asks
    assert ("did you mean" in done.err, hint in done.err) == (hint != "", True)


def test_alter_of_a_new_name_that_is_nearly_right(kquota: Kquota, filled: str, tmp_path: Path) -> None:
    """Once, where the name begins to have a quota, before anything is written; an apply says the same."""
    note = "user=alcie is a new name; did you mean 'alice'?\n"
    usual = ("alter", "--zookeeper", filled, "--user", "alcie", "--add-config", "producer_byte_rate=1MB")
    (tmp_path / "new.csv").write_text("user,producer_byte_rate\nalcie,1MB\n")
    assert note in kquota("apply", "new.csv", "--zookeeper", filled, "--dry-run").err
    assert note not in kquota(*usual, "--dry-run", "--quiet").err
    for arguments, said in ((("--dry-run",), True), ((), True), (("--add-config", "request_percentage=9"), False)):
        done = kquota(*usual, *arguments)
        assert (done.code, done.err.startswith(note), "did you mean" in done.err) == (0, said, said)


def test_describe_of_a_user_whose_pairs_have_quotas(kquota: Kquota, filled: str) -> None:
    """The user's own quota is not the one that governs such clients."""

    def notes(*arguments: str) -> list[str]:
        done = kquota("describe", "--zookeeper", filled, *arguments)
        assert (done.code, "alice" in done.out) == (0, True)
        return done.err.splitlines()

    resolve = f"kquota resolve --user alice --zookeeper {filled}"
    shows = f"too: --no-strict shows them; '{resolve}' shows what governs a client"
    assert notes("--user", "alice") == [f"2 pairs of this user have quotas {shows}"]
    assert notes("--user", "alice", "--no-strict") == notes("--user", "alice", "-o", "csv") == []
    assert kquota("delete", "--user", "alice", "--client", "app1", "--yes", "--zookeeper", filled).code == 0
    assert notes("--user", "alice", "-o", "wide") == [f"1 pair of this user has quotas {shows}"]
    assert kquota("delete", "--user", "alice", "--client-defaults", "--yes", "--zookeeper", filled).code == 0
    assert notes("--user", "alice") == []


@pytest.mark.parametrize(
    "words", ["--user bob", "--user bob --user-defaults", "--entity-type users", "--client-defaults"]
)
def test_describe_of_what_has_none_names_the_pairs_that_have(kquota: Kquota, tmp_path: Path, words: str) -> None:
    """Whichever way it is asked for."""
    pair = "{entity: {user: bob, client-id: {default: true}}, values: {producer_byte_rate: 1MB}}"
    (tmp_path / "q.yaml").write_text(f"kind: kquota.quotas\nversion: 1\nquotas:\n  - {pair}\n")
    told = kquota("describe", "--quotas", "q.yaml", *words.split()).err
    assert told.startswith("no quotas are set")
    assert "there are quotas of user=bob,client-id=<default>: --no-strict shows them\n" in told
    assert "no-strict" not in kquota("describe", "--quotas", "q.yaml", *words.split(), "--match", "z").err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("--user alice", ["user=alice"]),
        ("--user alice --no-strict", ["user=alice", "user=alice,client-id=<default>", "user=alice,client-id=app1"]),
        ("--entity-type users", ["user=<default>", "user=alice"]),
        ("--entity-type users --entity-type clients", ["user=alice,client-id=<default>", "user=alice,client-id=app1"]),
        ("--entity-type users --entity-type clients --entity-default --entity-name app1", []),
        (
            "--entity-type clients --entity-type users --entity-default --entity-name alice",
            ["user=alice,client-id=<default>"],
        ),
        ("--client-defaults", ["client-id=<default>"]),
        ("--ip 10.0.0.7", ["ip=10.0.0.7"]),
        ("--ip 10.0.0.7 --ip-defaults", ["ip=<default>", "ip=10.0.0.7"]),
        ("--user nobody", []),
    ],
)
def test_describe_selects(kquota: Kquota, filled: str, arguments: str, expected: list[str]) -> None:
    """Entity options mean what they mean in kafka-configs; names pair with types by place."""
    done = kquota("describe", "--zookeeper", filled, *arguments.split(), "-o", "name")

    assert done.code == 0
    assert done.out.splitlines() == expected


def test_json_validates_and_reads_back(kquota: Kquota, filled: str, tmp_path: Path) -> None:
    """What describe prints is what --quotas reads: the answers are the same."""
    for output in ("json", "yaml"):
        text = kquota("describe", "--zookeeper", filled, "-o", output).out
        if output == "json":
            validated(text, "quotas")
        (tmp_path / f"quotas.{output}").write_text(text)
        client = ("--user", "alice", "--client", "app1", "--ip", "10.0.0.7", "-o", "json")

        live = kquota("resolve", *client, "--zookeeper", filled)
        offline = kquota("resolve", *client, "--quotas", f"quotas.{output}")

        assert live.code == offline.code == 0
        assert live.out == offline.out
        validated(live.out, "resolution")


def test_alter_reports_before_and_after(kquota: Kquota, filled: str) -> None:
    """The report validates, and a dry run writes nothing."""
    arguments = ("--zookeeper", filled, "--user", "alice", "--add-config", "producer_byte_rate=2MB", "-o", "json")

    dry = validated(kquota("alter", *arguments, "--dry-run").out, "alter")
    real = validated(kquota("alter", *arguments).out, "alter")

    assert dry == real | {"dry_run": True, "journal": []}
    assert real["cluster"] == {"address": f"zookeeper://{filled}", "id": None}
    (result,) = real["results"]
    assert result["before"]["producer_byte_rate"] == 10_000_000
    assert result["after"] == {"producer_byte_rate": 2_000_000, "consumer_byte_rate": 20_971_520}


def test_alter_several(kquota: Kquota, filled: str) -> None:
    """One batch, a report per entity, and code 9 when some of them could not be altered."""
    alter = ("alter", "--zookeeper", filled, "--entity", "user=alice", "--entity", "user=bob,client-id=<default>")

    both = kquota(*alter, "--add-config", "producer_byte_rate=3MB", "-o", "csv")
    some = kquota(*alter, "--delete-config", "consumer_byte_rate", "--strict-delete")
    none = kquota(*alter, "--delete-config", "controller_mutation_rate", "--strict-delete")

    assert (both.code, both.rest) == (0, "")
    assert both.out.splitlines()[1:] == [
        "user=alice,producer_byte_rate,10000000,3000000",
        "user=alice,consumer_byte_rate,20971520,20971520",
        '"user=bob,client-id=<default>",producer_byte_rate,,3000000',
    ]
    assert some.code == 9
    assert "user=bob,client-id=<default>: cannot delete consumer_byte_rate" in some.err
    assert none.code == 3


def test_a_file_describes_what_to_set(kquota: Kquota, filled: str, chroot: str, tmp_path: Path) -> None:
    """What describe prints can be set again."""
    text = kquota("describe", "--zookeeper", filled, "-o", "yaml").out
    (tmp_path / "quotas.yaml").write_text(text)
    kquota("alter", "--zookeeper", filled, "--user", "alice", "--delete-config", "producer_byte_rate")

    done = kquota("alter", "--zookeeper", filled, "--file", "quotas.yaml")

    assert (done.code, done.rest) == (0, "")
    assert len(done.out.splitlines()) == 2
    assert kquota("describe", "--zookeeper", filled, "-o", "yaml").out == text


def test_a_freeze_is_announced(kquota: Kquota, filled: str) -> None:
    """Before it happens: a client at the old limit would be blocked for minutes under the new one."""
    alter = ("alter", "--zookeeper", filled, "--user", "alice", "--add-config")

    dry = kquota(*alter, "producer_byte_rate=50kB", "--dry-run", "--quiet")
    refused = kquota(*alter, "producer_byte_rate=50kB")
    deep = kquota(*alter, "producer_byte_rate=50kB", "--yes", "-o", "json")
    light = kquota(*alter, "producer_byte_rate=40kB")

    text = "blocked for up to 36 min 29 s (producer_byte_rate 10 MB/s to 50 kB/s)"
    assert (dry.code, refused.code, deep.code, light.code) == (0, 8, 0, 0)
    assert all(text in done.rest for done in (dry, refused, deep))
    assert dry.err.endswith("dry run: nothing was written\n")
    assert f"cluster: zookeeper://{filled}\n" not in dry.err, "--quiet"
    assert f"cluster: zookeeper://{filled}\n" in kquota(*alter, "producer_byte_rate=50kB", "--dry-run").err
    assert "use --yes or --force if you mean it [freeze]" in refused.complaint
    assert [each["name"] for each in validated(deep.out, "alter")["objections"]] == ["freeze"]
    assert light.rest == ""


def test_an_alter_names_who_failed_beside_csv(kquota: Kquota, filled: str) -> None:
    delete = ("--user", "alice", "--user", "nobody", "--delete-config", "producer_byte_rate", "--strict-delete")
    done = kquota("alter", "--zookeeper", filled, *delete, "-o", "csv")
    assert (done.code, done.out.splitlines()[1].startswith("user=alice,producer_byte_rate,")) == (9, True)
    assert "kquota: user=nobody: cannot delete producer_byte_rate: not set\n" in done.err


def test_a_deletion_that_does_not_reach_an_older_name_says_so(kquota: Kquota, chroot: str, znodes: Any) -> None:
    """Brokers read a client-id that is not encoded as they encode it; kquota writes their own znode only."""
    data = b'{"version":1,"config":{"producer_byte_rate":"20000"}}'
    znodes.create("/config/clients/c@1", data, makepath=True)
    assert "and deletions do not reach it" in kquota("describe", "--zookeeper", chroot).err
    done = kquota("delete", "--client", "c@1", "--zookeeper", chroot)
    assert "client-id=c@1 has quotas under an older name, whose znode has to be deleted" in done.err
    assert znodes.get("/config/clients/c@1")[0] == data
    both = ("--add-config", "producer_byte_rate=20MB", "--delete-config", "request_percentage")
    done = kquota("alter", "--client", "new", *both, "--zookeeper", chroot)
    assert done.rest == "client-id=new: not set: request_percentage\n"


def test_who_sets_what_governs_nobody_is_asked_and_learns_of_the_remedy(kquota: Kquota, filled: str) -> None:
    alter = ("alter", "--zookeeper", filled, "--add-config", "producer_byte_rate=50kB")
    assert kquota(*alter, "--user-defaults").code == 0

    refused = kquota(*alter, "--client", "etl")

    assert refused.code == 8
    assert "--user-defaults --client etl, which does not reach user=alice" in refused.complaint
    assert "use --yes or --force if you mean it [unreachable]" in refused.complaint
    both = kquota(*alter, "--user", "User:a", "--user", "a,b").complaint
    assert "(and 1 more) (use --force if you mean it [user-prefix, doubtful-name])" in both
    assert kquota(*alter, "--client", "etl", "--yes").code == 0
    pair = "user=<default>,client-id=etl: producer_byte_rate"
    said = f"{pair} does not reach user=alice\n{pair} was 50 kB/s before, by user=<default>\n"
    assert kquota(*alter, "--client", "etl", "--user-defaults").rest == said


def test_notes_of_several_keys_are_in_the_order_of_the_keys(kquota: Kquota, chroot: str) -> None:
    values = "producer_byte_rate=1MB,consumer_byte_rate=1MB,request_percentage=50,controller_mutation_rate=5"
    for entity in (("--user-defaults",), ("--user", "zoe")):
        done = kquota("alter", "--zookeeper", chroot, *entity, "--add-config", values)

    said = [line.split()[1] for line in done.rest.splitlines() if "before, by user=<default>" in line]
    assert said == [value.partition("=")[0] for value in values.split(",")]


def test_delete(kquota: Kquota, filled: str) -> None:
    """Deleting what is not set is no error unless asked."""
    alter = ("alter", "--zookeeper", filled, "--user", "alice", "--delete-config")

    assert kquota(*alter, "consumer_byte_rate").rest == (
        "user=alice: consumer_byte_rate is 1000001 B/s without it, by client-id=<default>\n"
    )
    again = kquota(*alter, "consumer_byte_rate")
    assert (again.code, again.err) == (0, "nothing changes\nuser=alice: not set: consumer_byte_rate\n")
    strict = kquota(*alter, "consumer_byte_rate", "--strict-delete")

    assert strict.code == 3
    assert "consumer_byte_rate" in strict.complaint
    assert "20971520" not in kquota("describe", "--zookeeper", filled, "-o", "csv").out


@pytest.mark.parametrize(("arguments", "says"), data_rows("refused/alter.txt"))
def test_bad_input_is_one_line_and_writes_nothing(
    kquota: Kquota, chroot: str, znodes: Any, arguments: str, says: str
) -> None:
    """Every kind of bad input: the reason, the code of the table, an untouched cluster."""
    done = kquota("alter", "--zookeeper", chroot, *arguments.split(" "))

    assert (done.code, done.out) == (3, "")
    assert says in done.complaint
    assert znodes.get_children("/") == []


DAMAGED = b'{"version":1,"config":{"producer_byte_rate":"ten","consumer_byte_rate":"5"}}'


@pytest.mark.parametrize(
    ("change", "after"),
    [
        (("--delete-config", "producer_byte_rate"), {"consumer_byte_rate": 5}),
        (("--add-config", "producer_byte_rate=10"), {"producer_byte_rate": 10, "consumer_byte_rate": 5}),
    ],
    ids=["deleted", "set"],
)
def test_the_repair_of_what_is_no_value_is_told(
    kquota: Kquota, chroot: str, znodes: Any, change: tuple[str, ...], after: dict[str, int]
) -> None:
    znodes.create("/config/users/alice", DAMAGED, makepath=True)
    alter = ("alter", "--zookeeper", chroot, "--user", "alice", *change)

    rehearsed = kquota(*alter, "--dry-run")
    assert rehearsed.err.endswith("dry run: nothing was written\n")
    assert znodes.get("/config/users/alice")[0] == DAMAGED
    told = kquota(*alter, "-o", "json")
    (result,) = validated(told.out, "alter")["results"]

    assert "'kquota undo' does not restore values that were not valid: user=alice producer_byte_rate" in told.err
    assert ("takes it back" in told.err) == ("--add-config" in change)
    assert result["changed"] is True
    assert (result["before"], result["after"]) == ({"consumer_byte_rate": 5}, after)
    assert result["unusable"] == ["producer_byte_rate"]
    assert json.loads(znodes.get("/config/users/alice")[0])["config"] == {key: str(each) for key, each in after.items()}


def test_apply_tells_of_a_value_that_was_none_as_well(kquota: Kquota, chroot: str, znodes: Any, tmp_path: Path) -> None:
    znodes.create("/config/users/alice", DAMAGED, makepath=True)
    (file := tmp_path / "quotas.csv").write_text("user,producer_byte_rate\nalice,10\n")
    told = kquota("apply", str(file), "--zookeeper", chroot, "--yes")
    assert "'kquota undo' does not restore values that were not valid: user=alice producer_byte_rate" in told.err
    assert kquota("undo", "--zookeeper", chroot, "--yes").code == 0
    assert json.loads(znodes.get("/config/users/alice")[0])["config"] == {"consumer_byte_rate": "5"}


@pytest.mark.parametrize(
    ("words", "entity", "says"),
    [
        (["--user", "User:alice"], "user=User:alice", "'alice'"),
        (["--user", "<default>"], r"user=\<default>", "--user-defaults"),
        (["--user", "alice", "--client", "<default>"], r"user=alice,client-id=\<default>", "--client-defaults"),
        (["--entity", "user=User:alice,client-id=app1"], "user=User:alice,client-id=app1", "'alice'"),
        (["--entity-type", "users", "--entity-name", "<default>"], r"user=\<default>", "--user-defaults"),
    ],
)
def test_a_name_that_nobody_has_needs_force(
    kquota: Kquota, chroot: str, znodes: Any, words: list[str], entity: str, says: str
) -> None:
    """Kafka would take it; deleting it again needs no force."""
    alter = ("alter", "--zookeeper", chroot, *words)
    for more in ([], ["--dry-run"], ["--entity", "user=bob"]):
        refused = kquota(*alter, *more, "--add-config", "producer_byte_rate=1")
        assert (refused.code, refused.out) == (8, "")
        assert says in refused.complaint
        assert "--force" in refused.complaint
        assert znodes.get_children("/") == []

    forced = kquota(*alter, "--add-config", "producer_byte_rate=1", "--force", "-o", "csv")

    assert forced.code == 0
    assert kquota("describe", "--zookeeper", chroot, "-o", "name").out == f"{entity}\n"
    assert kquota(*alter, "--delete-config", "producer_byte_rate").code == 0
    assert kquota("describe", "--zookeeper", chroot, "-o", "name").out == ""


def test_scram_credentials_are_never_printed(kquota: Kquota, chroot: str, znodes: Any) -> None:
    """They live in the same node, survive an alter byte for byte, and show nowhere."""
    secret = "salt=c2FsdA==,stored_key=c3RvcmVk,server_key=c2VydmVy,iterations=8192"
    data = {"version": 1, "config": {"SCRAM-SHA-256": secret, "producer_byte_rate": "1024"}}
    znodes.create("/config/users/alice", json.dumps(data, separators=(",", ":")).encode(), makepath=True)
    alter = ("alter", "--zookeeper", chroot, "--user", "alice", "--add-config", "consumer_byte_rate=1", "-o", "json")

    ran = [
        kquota("--debug", *alter),
        *(kquota("describe", "--zookeeper", chroot, "-o", o) for o in ("table", "json", "yaml", "csv")),
    ]

    assert [done.code for done in ran] == [0] * 5
    assert not any(word in done.out + done.err for done in ran for word in ("SCRAM", "c2FsdA", "stored_key"))
    assert json.loads(znodes.get("/config/users/alice")[0])["config"]["SCRAM-SHA-256"] == secret


def test_wide_says_who_has_which_credentials(kquota: Kquota, chroot: str, znodes: Any) -> None:
    """By mechanism, also of users without quotas, and nothing of the keys."""
    secret = "salt=c2FsdA==,stored_key=c3RvcmVk,server_key=c2VydmVy,iterations=8192"
    for user, mechanisms in (("alice", ("512",)), ("bob", ("512", "256")), ("CN%3Dcarol", ("256",)), ("dave", ())):
        config = {f"SCRAM-SHA-{bits}": secret for bits in mechanisms}
        data = json.dumps({"version": 1, "config": config | {"foo": secret}}).encode()
        znodes.create(f"/config/users/{user}", data, makepath=True)
    kquota("alter", "--zookeeper", chroot, "--user", "alice", "--add-config", "producer_byte_rate=1MB")
    kquota("alter", "--zookeeper", chroot, "--user", "erin", "--add-config", "consumer_byte_rate=1MB")
    describe = ("describe", "--zookeeper", chroot, "-o", "wide")

    done = kquota(*describe)

    assert (done.code, done.err) == (0, "")
    assert [line.split() for line in done.out.splitlines()] == [
        ["ENTITY", "PRODUCER_BYTE_RATE", "CONSUMER_BYTE_RATE", "SCRAM"],
        ['user="CN=carol"', "-", "-", "SCRAM-SHA-256"],
        ["user=alice", "1", "MB/s", "-", "SCRAM-SHA-512"],
        ["user=bob", "-", "-", "SCRAM-SHA-256,SCRAM-SHA-512"],
        ["user=erin", "-", "1", "MB/s", "-"],
    ]
    bob = kquota(*describe, "--user", "bob").out.split()
    assert bob == ["ENTITY", "SCRAM", "user=bob", "SCRAM-SHA-256,SCRAM-SHA-512"]
    assert kquota(*describe, "--user", "dave").out == ""
    assert kquota(*describe, "--entity-type", "clients").out == ""
