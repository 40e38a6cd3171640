"""`kquota recommend` as a process: what it prints, and that `kquota plan` reads it."""

import json
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from kquota import DEFAULT, Entity, QuotaKey
from kquota.documents.encoding import schema
from kquota.documents.quotas import read_quotas
from tests.cli.conftest import Golden, Kquota, validated
from tests.support.data import data_rows, data_text
from tests.support.processes import ran

QUOTAS = data_text("cli/recommended.yaml")
START_MS = 1_773_219_600_000
USERS = {"alice": 900, "bob": 100, "carol": 80, "dave": 60}


@pytest.fixture(autouse=True)
def files(tmp_path: Path) -> None:
    """Alice has what she needs, Bob is held back, Carol's default is enough, and Dave's is not."""
    rows = ["time_ms,broker,user,client_id,api,bytes,throttle_time_ms"]
    for second in range(900):
        wave = 100 + (second * 37) % 60 + (300 if second % 200 < 30 else 0)
        for number, (user, size) in enumerate(USERS.items()):
            for broker in (1, 2):
                time_ms = START_MS + 1000 * second + 100 * number + broker
                held = 400 if user == "bob" and wave > 150 else 0
                spike = 50 if user == "dave" and second % 300 < 40 else 1
                rows.append(f"{time_ms},{broker},{user},app,produce,{size * wave * broker * spike // 10},{held}")
                rows.append(f"{time_ms + 50},{broker},{user},app,fetch,{size * wave // 5},0")
    (tmp_path / "usage.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "quotas.yaml").write_text(QUOTAS)
    (tmp_path / "none.yaml").write_text("kind: kquota.quotas\nversion: 1\nquotas: []\n")


@pytest.mark.parametrize("output", ["table", "json", "yaml"])
def test_output(kquota: Kquota, golden: Golden, output: str) -> None:
    """Evidence for each quota, and what is not known is said."""
    done = kquota("recommend", "usage.csv", "--quotas", "quotas.yaml", "-o", output)

    assert done.code == 0
    golden(f"recommend.{output}", done.out)
    golden(f"recommend.{output}.stderr", done.err)
    if output == "json":
        validated(done.out, "recommendation")


def test_share_fetches_without_sizes_are_left_out(kquota: Kquota, tmp_path: Path) -> None:
    rows = [f"{START_MS},{broker},alice,app,share_fetch,,0" for broker in (1, 2)]
    usage = tmp_path / "usage.csv"
    usage.write_text(usage.read_text() + "\n".join(rows) + "\n")

    done = kquota("recommend", "usage.csv", "--quotas", "none.yaml", "--only", "alice")

    assert "consumer_byte_rate" not in done.out
    assert (
        "consumer_byte_rate: nothing is recommended for 2 counters: the usage does not record all that is charged"
        in done.err
    )


def test_throttled_counters_of_others_are_counted(kquota: Kquota, tmp_path: Path) -> None:
    """Whoever asks about one user hears how many others are throttled, of users as well."""
    (tmp_path / "tight.yaml").write_text(QUOTAS.replace("5kB", "1kB"))
    done = kquota("recommend", "usage.csv", "--quotas", "tight.yaml", "--only", "alice")
    audit = json.loads(kquota("audit", "usage.csv", "--quotas", "tight.yaml", "-o", "json").out)
    verdicts = [each for each in audit["quotas"] if each["verdict"] == "throttled"]

    others = [each for each in verdicts if each["entity"].get("user") not in ("alice", {"default": True})]
    assert others
    count = sum(each["counters"]["throttled"] for each in others)
    assert f"{count} throttled counter" in done.err
    assert "(--key and --only choose)" in done.err, "users were asked for"


def test_what_is_left_out_is_named(kquota: Kquota, tmp_path: Path) -> None:
    """Quotas that throttled, of pairs where users are asked for, and a key that nothing is recommended for."""
    usage = tmp_path / "usage.csv"
    header, *rows = usage.read_text().splitlines()
    topics = [f"{START_MS + number},1,erin,app,create_topics,,0,5" for number in range(50)]
    usage.write_text("\n".join([f"{header},partitions", *(f"{row}," for row in rows), *topics]) + "\n")
    (tmp_path / "pairs.yaml").write_text(
        QUOTAS
        + "  - {entity: {user: bob, client-id: app}, values: {producer_byte_rate: 5kB}}\n"
        + "  - {entity: {user: erin}, values: {controller_mutation_rate: 1}}\n"
        + "  - {entity: {ip: 10.0.0.1}, values: {connection_creation_rate: 1}}\n"
    )

    done = kquota("recommend", "usage.csv", "--quotas", "pairs.yaml", "-o", "json")
    fewer = kquota("recommend", "usage.csv", "--quotas", "pairs.yaml", "-o", "json", "--key", "consumer_byte_rate")

    assert "user=bob,client-id=app producer_byte_rate" in fewer.err
    assert done.code == 0, done.err
    lines = done.err.splitlines()
    assert (
        "kquota: warning: left out: 2 throttled counters of user=erin controller_mutation_rate,"
        " user=bob,client-id=app producer_byte_rate (--entities user-clients, --key and --only choose)" in lines
    )
    assert "undetermined (the table has no ip column): ip=10.0.0.1 connection_creation_rate" in lines
    report = validated(done.out, "recommendation")
    assert [quota["entity"] for quota in report["left_out"]] == [
        {"user": "erin"},
        {"user": "bob", "client-id": "app"},
    ]


def test_a_default(kquota: Kquota, golden: Golden, tmp_path: Path) -> None:
    """With lines for those that need more, and those that have one."""
    command = ["recommend", "usage.csv", "--quotas", "none.yaml", "--entities", "default-user", "--covers", "75%"]
    done = kquota(*command, "--key", "producer_byte_rate", "-o", "yaml")
    report = json.loads(kquota(*command, "-o", "json").out)

    assert done.code == 0
    golden("recommend.default.yaml", done.out)
    Draft202012Validator(schema("recommendation")).validate(report)
    default = next(quota for quota in report["recommendations"] if "default_for" in quota)
    assert default["entity"] == {"user": {"default": True}}
    assert default["default_for"]["entities"] == 4
    assert 3 <= default["default_for"]["covered"] <= 4

    own = [f"  - {{entity: {{user: {name}}}, values: {{producer_byte_rate: 9MB}}}}" for name in USERS]
    (tmp_path / "own.yaml").write_text("\n".join(["kind: kquota.quotas", "version: 1", "quotas:", *own, ""]))
    of_all = ("recommend", "usage.csv", "--quotas", "own.yaml", "--entities", "default-user")
    why = "warning: no producer_byte_rate for user=<default>: all that were looked at have quotas of their own"
    assert why in kquota(*of_all).err
    (tmp_path / "own.yaml").write_text("\n".join(["kind: kquota.quotas", "version: 1", "quotas:", own[0], ""]))
    assert (why in kquota(*of_all, "--only", "alice").err, why in kquota(*of_all).err) == (True, False)


@pytest.mark.parametrize("scope", ["users", "user-clients"])
def test_a_quota_at_another_level_is_not_lowered_in_passing(kquota: Kquota, tmp_path: Path, scope: str) -> None:
    """A new user quota would replace that of the client-id: where this suffices it stays, unless --lower is given."""
    text = (
        QUOTAS.partition("quotas:")[0] + "quotas:\n  - {entity: {client-id: app}, values: {producer_byte_rate: 50MB}}\n"
    )
    (tmp_path / "clients.yaml").write_text(text)
    usual = ["recommend", "usage.csv", "--quotas", "clients.yaml", "--key", "producer_byte_rate", "--entities", scope]

    table, kept, lowered = (kquota(*usual, *more) for more in ([], ["-o", "yaml"], ["--lower", "-o", "json"]))

    [alice] = [line for line in table.out.splitlines() if line.startswith("user alice")]
    assert "50 MB/s by client-id=app  " in alice
    assert " keep " in alice
    assert alice.endswith("as now")
    assert "entity: {user: alice" not in kept.out
    assert "producer_byte_rate: 50 MB/s is enough (by {client-id: app})\n# --lower writes what they need" in kept.out
    report = validated(lowered.out, "recommendation")
    changes = {quota["entity"]["user"]: quota for quota in report["recommendations"]}
    assert changes["alice"]["change"] == "lower"
    assert changes["alice"]["current"] == 50_000_000
    assert changes["alice"]["governed_by"] == [{"client-id": "app"}]
    assert 0 < changes["alice"]["value"] < 50_000_000


def test_a_quota_at_another_level_that_is_too_low_is_replaced(kquota: Kquota, tmp_path: Path) -> None:
    """By a higher one, that says what it replaces."""
    text = (
        QUOTAS.partition("quotas:")[0] + "quotas:\n  - {entity: {client-id: app}, values: {producer_byte_rate: 1kB}}\n"
    )
    (tmp_path / "clients.yaml").write_text(text)

    out = kquota("recommend", "usage.csv", "--quotas", "clients.yaml", "--only", "alice", "-o", "yaml").out

    assert "  # producer_byte_rate: new, in place of 1 kB/s by client-id=app\n" in out


def test_plan_reads_it(kquota: Kquota, tmp_path: Path) -> None:
    """Through a pipe: what stays is no change, and what was applied is recommended again as it is."""
    done = kquota("recommend", "usage.csv", "--quotas", "quotas.yaml", "-o", "yaml")
    command = [sys.executable, "-m", "kquota", "plan", "-", "--quotas", "quotas.yaml", "-o", "json"]
    plan = ran(command, tmp_path, given=done.out)
    (tmp_path / "recommended.yaml").write_text(done.out)
    recommended = read_quotas(tmp_path / "recommended.yaml")

    changed = {tuple(change["entity"].items()) for change in json.loads(plan.stdout)["changes"]}
    assert changed == {(("user", name),) for name in ("alice", "bob", "carol", "dave")}
    assert recommended[Entity(user="alice")][QuotaKey.PRODUCER_BYTE_RATE] == 1_000_000
    assert recommended[Entity(user="bob")][QuotaKey.PRODUCER_BYTE_RATE] > 5_000
    assert QuotaKey.PRODUCER_BYTE_RATE not in recommended[Entity(user="carol")]
    assert Entity(user=DEFAULT) not in recommended
    again = kquota("recommend", "usage.csv", "--quotas", "recommended.yaml", "--only", "[!b]*", "--key")
    assert again.code == 2
    again = kquota("recommend", "usage.csv", "--quotas", "recommended.yaml", "--only", "alice", "-o", "json")
    assert {quota["change"] for quota in json.loads(again.out)["recommendations"]} == {"keep"}


@pytest.mark.parametrize(("arguments", "code", "says"), data_rows("refused/recommend.txt"))
def test_what_goes_wrong(kquota: Kquota, arguments: str, code: str, says: str) -> None:
    done = kquota("recommend", *arguments.split())

    assert (done.code, done.out) == (int(code), "")
    assert says in done.err


def test_nothing_is_recommended_where_another_quota_is_charged(kquota: Kquota, tmp_path: Path) -> None:
    """The quota is named, and what of the log is missing for which key; nothing of others is given as a reason."""
    pair = "  - {entity: {user: alice, client-id: app}, values: {producer_byte_rate: 1MB, consumer_byte_rate: 1MB}}\n"
    (tmp_path / "pair.yaml").write_text(QUOTAS + pair)
    usual = ("recommend", "usage.csv", "--quotas", "pair.yaml", "--only", "alice")
    nothing = "kquota: nothing to recommend: none of 14,400 requests counts for the quotas in question"
    other = f"{nothing}: other quotas count them: user=alice,client-id=app"
    chosen = "--key and --only choose what is recommended for)"
    other_kind = f"(--entities user-clients, {chosen}"
    assert kquota(*usual, "--key", "producer_byte_rate").complaint == f"{other} {other_kind}"
    incomplete = "request_percentage: the usage does not record everything that this quota counts"
    assert kquota(*usual).complaint == f"{other}; {incomplete} {other_kind}"
    assert kquota(*usual, "--entities", "user-clients").code == 0
    assert kquota(*usual[:-1], "nobody").complaint.startswith(f"{nothing} (--entities, {chosen}")
    apart = "nothing is recommended for what other quotas count: user=alice,client-id=app (--entities user-clients)"
    assert apart in kquota(*usual[:-2], "--key", "producer_byte_rate", "-o", "yaml").err
    told = kquota(*usual[:-1], "bob").err
    assert "other quotas count" not in told
    assert (
        "request_percentage: nothing is recommended for 2 counters: the usage does not record all thread time" in told
    )


def test_a_quota_whose_clients_are_all_recommended_for_is_not_left_out(kquota: Kquota, tmp_path: Path) -> None:
    """Users get quotas of their own in place of the default of client-ids, which throttled them."""
    quotas = "  - {entity: {client-id: {default: true}}, values: {producer_byte_rate: 30kB}}\n"
    (tmp_path / "clients.yaml").write_text(QUOTAS.partition("  - ")[0] + quotas)

    done = kquota("recommend", "usage.csv", "--quotas", "clients.yaml")

    assert "by client-id=<default>" in done.out
    assert "left out" not in done.err
