"""`kquota plan --usage`: who would be newly throttled."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from kquota.audit.result import AuditResult
from kquota.audit.settings import AuditSettings
from kquota.brokers import BrokerFacts
from kquota.cli import auditing, whatif
from kquota.cli.exit_codes import ExitCode
from kquota.core.findings.whatif import ClientChange, Outcome, Standing
from kquota.core.quotas.quota import QuotaKey
from kquota.documents.plan import read_plan
from kquota.documents.quotas import read_quotas
from tests.cli.conftest import Golden, Kquota, quotas, validated
from tests.cli.test_audit_quotas import START_MS

ARGUMENTS = ("plan", "planned.json", "--usage", "usage.csv")


@pytest.fixture(autouse=True)
def files(tmp_path: Path) -> None:
    """Half a minute of alice and bob, and quotas: alice's sinks below what she uses, bob's goes."""
    rows = [
        f"{START_MS + 100 * number},1,{user},orders,produce,1000\n"
        for number in range(300)
        for user in ("alice", "bob", "carol")
    ]
    (tmp_path / "usage.csv").write_text("time_ms,broker,user,client_id,api,bytes\n" + "".join(rows))
    (tmp_path / "current.json").write_text(quotas(alice=20_000, bob=5000, carol=5000))
    (tmp_path / "planned.json").write_text(quotas(alice=5000, carol=5000))
    (tmp_path / "lower.json").write_text(quotas(bob=2000))


@pytest.mark.parametrize("output", ["table", "markdown", "json"])
def test_who_is_newly_throttled(kquota: Kquota, golden: Golden, output: str) -> None:
    """Under what is there and under what would be; an entity that the file does not name keeps what it has."""
    done = kquota(*ARGUMENTS, "--quotas", "current.json", "-o", output)

    assert done.code == 0
    golden(f"plan.usage.{output}", done.out)
    if output == "table":
        assert done.err.splitlines() == [
            "0 entities to create, 1 to update, 0 to delete; limits are per broker; 1 not in the file left as they are"
            " (--prune deletes them)",
            "1 client newly throttled, 2 clients as before; 900 requests, 2026-03-11 09:00:00 to 09:00:29 UTC",
            "kquota: warning: user=alice: a client at its current limit would be blocked for up to 33.0 s"
            " (producer_byte_rate 20 kB/s to 5 kB/s)",
        ]
    if output == "json":
        validated(done.out, "plan")


CONNECTED = "time_ms,broker,user,client_id,api,bytes,connection,throttle_time_ms\n" + "".join(
    f"{START_MS + 100 * number},1,{user},{client},produce,1000,{user}-{client},0\n"
    for number in range(300)
    for user, client in (("alice", "orders"), ("bob", "orders"), ("carol", "billing-1"), ("carol", "billing-2"))
)
"""With connections, from which waits and what is delivered are predicted."""


def test_a_comment_shows_everybody_the_worst_first(kquota: Kquota, tmp_path: Path) -> None:
    """Who is newly throttled, or more, comes before those who are throttled less, with what they still get."""
    (tmp_path / "usage.csv").write_text(CONNECTED)
    (tmp_path / "planned.json").write_text(quotas(alice=5000, bob=9000, carol=2500))

    out = kquota(*ARGUMENTS, "--quotas", "current.json", "-o", "markdown").out

    assert "### Recorded usage: 1 client newly throttled, 2 clients throttled more, 1 client throttled less" in out
    headings, *rows = (line.strip("| ").split(" | ") for line in out.splitlines() if re.match(r"\| (CHANGE|.*`)", line))
    assert [row[0] for row in rows] == ["newly throttled", "throttled more", "throttled more", "throttled less"]
    assert (rows[0][1:3], rows[-1][1]) == (["`alice`", "`orders`"], "`bob`")
    delivered = headings.index("DELIVERED")
    cells = {row[2]: row[delivered] for row in rows[:-1]}
    few, some = (rf"[{digits}](\.\d+)? kB/s( to [{digits}](\.\d+)? kB/s)?" for digits in ("23", "4567"))
    assert re.fullmatch(f"10 kB/s → {some}", cells["`orders`"])
    assert cells["`billing-1`"] == cells["`billing-2`"]
    assert re.fullmatch(rf"{some} → {few}.* \(2 clients\)", cells["`billing-1`"])
    assert "kB, done after " in " ".join(rows[0])


def test_the_wish_is_one_of_the_counter() -> None:
    """A client of several did not want what all of them did."""
    standing = Standing("undetermined", None, None, limit=300_000, wanted=359_000.0, clients=3)
    change = ClientChange(
        QuotaKey.PRODUCER_BYTE_RATE, "carol", "billing-2", 300, Standing(), standing, Outcome.UNDETERMINED
    )

    [row] = whatif.clients_table([change]).rows

    assert ("0", "→ ?", "of 300", "its counter wanted", "at least 359 kB/s") in row


def test_what_is_pruned_limits_no_longer(kquota: Kquota) -> None:
    done = kquota(*ARGUMENTS, "--quotas", "current.json", "--prune", "-o", "json")

    outcomes = {client["user"]: client["outcome"] for client in json.loads(done.out)["comparison"]["clients"]}
    assert outcomes == {"alice": "newly throttled", "bob": "no longer throttled"}


def test_the_live_cluster(kquota: Kquota, tmp_path: Path, chroot: str) -> None:
    """What is there is the cluster's; what is kept for apply is the plan alone."""
    assert kquota("apply", "current.json", "--zookeeper", chroot, "--yes").code == 0
    done = kquota(*ARGUMENTS, "--zookeeper", chroot, "--out", "plan.json", "-o", "markdown")

    assert done.code == 0
    assert "### Recorded usage: 1 client newly throttled, 2 clients as before" in done.out
    assert "under this plan instead of the live quotas" in done.out
    assert "comparison" not in (tmp_path / "plan.json").read_text()
    assert len(read_plan(tmp_path / "plan.json").changes) == 1


def test_the_brokers_own_defaults_count(kquota: Kquota, tmp_path: Path) -> None:
    """A client whose quota goes meets the static default of its broker, and takes its part of that counter."""
    (tmp_path / "server.properties").write_text("quota.producer.default=4000\n")
    (tmp_path / "before.json").write_text(quotas(alice=20_000))
    (tmp_path / "after.json").write_text(quotas())
    arguments = ["plan", "after.json", "--prune", "--usage", "usage.csv", "--quotas", "before.json", "-o", "json"]
    done = kquota(*arguments, "--server-properties", "server.properties", "--kafka-version", "2.8")

    [alice, *others] = json.loads(done.out)["comparison"]["clients"]
    assert (alice["user"], alice["outcome"]) == ("alice", "newly throttled")
    assert (alice["before"]["limit"], alice["after"]["limit"]) == (20_000, 4000)
    assert {other["outcome"] for other in others} == {"throttled more"}


def test_the_controllers_own_windows_count(kquota: Kquota, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their number is the burst of the mutation quota's token bucket."""
    (tmp_path / "server.properties").write_text("controller.quota.window.num=2\n")
    audited: list[AuditSettings] = []
    audit_files = auditing.audit_files

    def kept(paths: Sequence[str], settings: AuditSettings) -> AuditResult:
        audited.append(settings)
        return audit_files(paths, settings)

    monkeypatch.setattr(auditing, "audit_files", kept)
    before, after = (read_quotas(tmp_path / name) for name in ("current.json", "planned.json"))
    whatif.replay(
        [str(tmp_path / "usage.csv")], before, after, BrokerFacts("4.0", tmp_path / "server.properties"), None
    )

    assert [(each.windows.samples, each.controller_windows.samples) for each in audited] == [(11, 2)]


@pytest.mark.parametrize(
    ("file", "options", "code"),
    [
        ("planned.json", ["--fail-on", "newly-throttled"], 1),
        ("current.json", ["--fail-on", "newly-throttled"], 0),
        ("planned.json", ["--fail-on", "throttled-more"], 0),
        ("lower.json", ["--fail-on", "newly-throttled"], 0),
        ("lower.json", ["--fail-on", "throttled-more"], 1),
        ("lower.json", ["--fail-on", "newly-throttled", "--fail-on", "throttled-more"], 1),
        ("current.json", ["--fail-on", "newly-throttled", "--exit-code"], 0),
        ("planned.json", ["--prune", "--exit-code"], 1),
        ("none.json", [], 3),
        ("planned.json", ["--usage", "none.csv"], 3),
    ],
)
def test_codes(kquota: Kquota, file: str, options: list[str], code: int) -> None:
    assert kquota("plan", file, "--usage", "usage.csv", "--quotas", "current.json", *options).code == code


def test_without_quotas_nothing_is_replayed(kquota: Kquota, tmp_path: Path) -> None:
    (tmp_path / "empty.json").write_text(quotas())
    done = kquota("plan", "empty.json", "--usage", "usage.csv", "--quotas", "empty.json")
    assert (done.code, done.out, done.complaint) == (0, "", "nothing changes")


def test_records_that_cannot_be_read(kquota: Kquota, tmp_path: Path) -> None:
    """They are named, and the rest is replayed; of other users they leave nothing open. No file is left behind."""
    with (tmp_path / "usage.csv").open("a") as file:
        file.write("x,1,carol,orders,produce,1\n")
    done = kquota(*ARGUMENTS, "--quotas", "current.json")

    assert done.code == 0
    assert "1 record of the usage cannot be read: 1 × time_ms is not a whole number" in done.err
    assert "newly throttled  alice" in done.out
    plan = validated(kquota(*ARGUMENTS, "--quotas", "current.json", "-o", "json").out, "plan")
    assert "1 record of the usage cannot be read: 1 × time_ms is not a whole number" in plan["warnings"]
    assert not (tmp_path / ".state" / "kquota" / "quarantine.jsonl").exists()


def test_a_file_that_is_not_read_shows_in_the_exit_code(kquota: Kquota, tmp_path: Path) -> None:
    """`--fail-on` and `--exit-code` come first, as in an audit."""
    (tmp_path / "bad.parquet").write_bytes(b"PAR1")
    arguments = (*ARGUMENTS, "--usage", "bad.parquet", "--quotas", "current.json")

    done = kquota(*arguments)

    assert done.code == ExitCode.PARTIAL
    assert "bad.parquet: not a Parquet file" in done.err
    assert kquota(*arguments, "--fail-on", "undetermined").code == ExitCode.DIFFERENT
    assert kquota(*arguments, "--exit-code").code == ExitCode.DIFFERENT
