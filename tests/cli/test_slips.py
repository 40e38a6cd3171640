"""Names and keys that are nearly right, and first steps that go nowhere: each has a next step."""

from pathlib import Path

import pytest

from kquota.cli.grammar import Command
from kquota.cli.main import cli
from kquota.core.quotas.quota import QuotaKey, parse_value
from tests.cli.conftest import Kquota, commands

QUOTAS = """\
kind: kquota.quotas
version: 1
quotas:
  - {entity: {user: alice}, values: {producer_byte_rate: 1MB}}
  - {entity: {client-id: worker-1}, values: {producer_byte_rate: 1MB}}
"""


FREE = "no quota limits this client\n"
WITHOUT = "for a client without a client-id (--client NAME for another)\n"


@pytest.fixture(autouse=True)
def quotas(tmp_path: Path) -> None:
    (tmp_path / "quotas.yaml").write_text(QUOTAS)


@pytest.mark.parametrize(
    ("arguments", "note"),
    [
        ("--user alise", f"{WITHOUT}no quota is set for user=alise; did you mean 'alice'?\n{FREE}"),
        ("--user bob --client wroker-1", f"no quota is set for client-id=wroker-1; did you mean 'worker-1'?\n{FREE}"),
        ("--user bob --client worker-2", FREE),
        ("--user alice --client wroker-1", ""),
        ("--user somebody --client else", FREE),
        ("--user alise --quiet", ""),
        ("--ip 10.0.0.71", FREE),
    ],
)
def test_a_name_that_is_nearly_one_with_quotas(kquota: Kquota, arguments: str, note: str) -> None:
    done = kquota("resolve", *arguments.split(), "--quotas", "quotas.yaml")
    assert (done.code, done.err) == (0, note)


def test_a_new_name_that_is_nearly_one_with_quotas(kquota: Kquota, tmp_path: Path) -> None:
    """It would limit nobody: plan and lint say so, once for many, and ask nothing."""
    note = "user=alcie is a new name; did you mean 'alice'?"
    head = "user,client-id,producer_byte_rate\n"
    (tmp_path / "new.csv").write_text(f"{head}alcie,,1MB\nalcie,app,1MB\nbob,worker-2,1MB\n")
    planned = kquota("plan", "new.csv", "--quotas", "quotas.yaml")
    assert [line for line in planned.err.splitlines() if "did you mean" in line] == [note]
    assert kquota("plan", "new.csv", "--quotas", "new.csv").err == "nothing changes\n"
    (tmp_path / "new.csv").write_text(f"{head}alcie,,1MB\nalice,,1MB\n")
    done = kquota("lint", "new.csv", "--fail-on", "warning")
    assert (done.code, done.err) == (0, "1 note\n")
    assert done.out.startswith("new.csv:2: note: user=alcie: the user is nearly another one, 'alice' [similar-name]")
    words = [f"{one}{other}ation" for one in ("bakt", "dolm", "fenr") for other in ("ub", "ev", "iz", "og")]
    for name, letters in (("known", ""), ("many", "s")):
        (tmp_path / f"{name}.csv").write_text(head + "".join(f",{word}{letters},1MB\n" for word in words))
    told = kquota("plan", "many.csv", "--quotas", "known.csv").err.splitlines()
    assert ["did you mean" in line for line in told] == [False, *[True] * 5, False]
    assert told[-1] == "and 7 more new names are nearly others: 'kquota lint' shows them"


@pytest.mark.parametrize(("new", "meant"), [("Tenant-098", "tenant-098"), ("tenatn-5", "tenant-001")])
def test_a_slip_among_numbered_names(kquota: Kquota, tmp_path: Path, new: str, meant: str) -> None:
    """The name with the same digits is meant; one of the many is no slip, and no note when it is new."""
    (tmp_path / "known.csv").write_text("user,producer_byte_rate\ntenant-098,1MB\ntenant-097,1MB\n")
    (tmp_path / "new.csv").write_text(f"user,producer_byte_rate\n{new},1MB\ntenant-001,1MB\ntenant-098,1MB\n")
    planned = kquota("plan", "new.csv", "--quotas", "known.csv")
    assert f"user={new} is a new name; did you mean {meant!r}?" in planned.err.splitlines()
    assert planned.err.count("did you mean") == 1
    linted = kquota("lint", "new.csv")
    assert f"user={new}: the user is nearly another one, {meant!r} [similar-name]" in linted.out
    assert linted.out.count("similar-name") == 1


def test_many_new_names_are_no_slips_of_a_known_one(kquota: Kquota, tmp_path: Path) -> None:
    (tmp_path / "known.csv").write_text("user,producer_byte_rate\nTenant-029,1MB\n")
    (tmp_path / "new.csv").write_text("user,producer_byte_rate\ntenant-029,1MB\ntenant-030,1MB\n")
    assert "did you mean" not in kquota("plan", "new.csv", "--quotas", "known.csv").err


def test_who_takes_an_entity_as_text(kquota: Kquota) -> None:
    done = kquota("resolve", "--who", "--user", "alice", "--quotas", "quotas.yaml")
    assert (done.code, done.out) == (2, "")
    assert "--user is no entity: --who user=NAME, client-id=NAME or ip=ADDRESS" in done.err


@pytest.mark.parametrize(
    ("key", "hint"),
    [("producer_byterate", "(did you mean 'producer_byte_rate'?)"), ("xyz", "(quota keys: producer_byte_rate, ")],
)
def test_a_key_that_is_nearly_one(kquota: Kquota, key: str, hint: str) -> None:
    done = kquota("alter", "--user", "alice", "--add-config", f"{key}=1", "--zookeeper", "127.0.0.1:1")
    assert done.code == 3
    assert hint in done.complaint


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["alter", "--user", "alice", "--add-config", "producer_byte_rate=1", "consumer_byte_rate=2"], "one list"),
        (["alter", "--user", "alice", "--add-config", "producer_byte_rate", "10MB"], "KEY=VALUE,KEY=VALUE"),
        (["resolve", "alice", "app1"], "Entities are options: --user NAME, --client NAME or --ip ADDRESS\n"),
        (["lint", "quotas.yaml", "quotas.yaml"], "unexpected extra argument (quotas.yaml)\n"),
        (["plan"], "Missing argument 'FILE'."),
        (["history", "--prune", "9d", "--bootstrap-server", "a:9092"], "nothing that narrows it goes beside it"),
        (["describe", "-o", "jsn"], "Invalid value for '-o' / '--output': 'jsn' is not one of"),
    ],
)
def test_a_word_too_much_or_wrong(kquota: Kquota, arguments: list[str], advice: str) -> None:
    done = kquota(*arguments, KQUOTA_ZOOKEEPER="127.0.0.1:1")
    assert done.code == 2
    assert advice in done.err


@pytest.mark.parametrize(
    "arguments",
    [
        "alter --file a.yaml --file b.yaml",
        "alter --broker 1 --broker 2 --add-config max.connection.creation.rate=9",
        "describe --broker 1 --broker 2",
        "top --user alice --user bob --metrics x --once",
        "top --client a --client-id b --metrics x --once",
        "probe produce --topic load --client a --client-id b",
        "simulate workload.yaml --quotas a.yaml --quotas b.yaml",
        "audit log --quotas a.yaml --quotas b.yaml",
        "diff a.yaml live --bootstrap-server a:9092 --bootstrap-server b:9092",
        "config set-context here --zookeeper a:2181 --zookeeper b:2181",
    ],
)
def test_the_last_of_several_does_not_win(kquota: Kquota, arguments: str) -> None:
    """Nothing is read or written where an option that takes one value has two."""
    done = kquota(*arguments.split(), KQUOTA_BOOTSTRAP_SERVER="127.0.0.1:1")
    assert done.code == 2
    assert "Found multiple arguments for option" in done.err


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        (
            "kquota.plan",
            "kquota.plan ('kquota apply PLAN --dry-run' shows it; here give the quotas file that it was made of)",
        ),
        ("kquota.quota", "kquota.quota"),
        ("s3cret", "another"),
    ],
)
def test_another_document_says_which_it_is(kquota: Kquota, tmp_path: Path, kind: str, found: str) -> None:
    (tmp_path / "other.yaml").write_text(f"version: 1\nkind: {kind}\nchanges: []\n")
    done = kquota("lint", "other.yaml")
    assert done.code == 3
    assert done.complaint == f"kquota: other.yaml, line 2: kind: expected kquota.quotas, found {found}"


def test_what_a_and_b_of_a_diff_may_be(kquota: Kquota) -> None:
    for name in ("quotas.yml", "x" * 300):
        done = kquota("diff", name, "quotas.yaml")
        assert done.code == 3
        assert (
            "(a file, a context, kafka://HOST:PORT, zookeeper://HOST:PORT, or live: the cluster of the options)"
            in done.complaint
        )


def test_unlimited_is_the_largest_value_where_there_is_one(kquota: Kquota) -> None:
    """Under a default, deleting the key gives the default and no freedom."""
    assert parse_value(QuotaKey.PRODUCER_BYTE_RATE, "unlimited") == 2**63 - 1
    done = kquota("alter", "--user", "alice", "--add-config", "request_percentage=unlimited")
    assert done.code == 3
    assert "so large that no client reaches it; deleting the key gives the default)" in done.complaint


def test_unlimited_is_shown_as_it_was_typed(kquota: Kquota, tmp_path: Path) -> None:
    """Before a write and in a plan, as `describe` shows it afterwards."""
    head = "kind: kquota.quotas\nversion: 1\nquotas:\n"
    (tmp_path / "now.yaml").write_text(head + "- entity: {user: alice}\n  values: {producer_byte_rate: 1MB}\n")
    (tmp_path / "wanted.yaml").write_text(head + "- entity: {user: alice}\n  values: {producer_byte_rate: unlimited}\n")
    done = kquota("plan", str(tmp_path / "wanted.yaml"), "--quotas", str(tmp_path / "now.yaml"))
    assert "unlimited (Long.MAX_VALUE)" in done.out
    assert "9223372036854775807" not in done.out


def test_several_lists_are_not_set_for_several_entities(kquota: Kquota) -> None:
    """Who writes an entity and its values in turns wants different values, not all of them for each."""
    words = (
        "--entity user=dora --add-config producer_byte_rate=10kB --entity user=carol --add-config request_percentage=9"
    )
    done = kquota("alter", *words.split(), KQUOTA_ZOOKEEPER="127.0.0.1:1")
    assert done.code == 2
    assert "each --add-config would be for every entity" in done.err
    assert "or different values by --file" in done.err


def test_no_command_lets_the_last_of_several_win() -> None:
    found = dict(commands(cli))
    assert [name for name, command in found.items() if not isinstance(command, Command)] == ["kafka-configs"]


def test_a_name_beside_its_default_has_another_form(kquota: Kquota) -> None:
    done = kquota("alter", "--user", "a", "--user-defaults", "--add-config", "producer_byte_rate=1MB", "--dry-run")
    assert (done.code, "name each by --entity TYPE=NAME, such as user=<default>" in done.err) == (2, True)
