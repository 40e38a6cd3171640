"""Which quotas `kquota audit` tests: those of a time, those of a journal, and two sets side by side."""

import html
import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from kquota.audit.engines import local
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import plan_splits
from kquota.cli.report import MOST
from kquota.cli.report.page import WIDE, _specification
from kquota.core.change.history import QuotaHistory
from kquota.core.change.plan import plan
from kquota.core.findings.finding import limits_under
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.documents.encoding import schema, to_json
from kquota.documents.history import history_document
from kquota.documents.journal import Entry, Journal
from kquota.documents.quotas import read_quotas
from tests.cli.conftest import Golden, Kquota, quotas, validated
from tests.support.data import data_rows

START_MS = 1_773_219_600_000
"""2026-03-11 09:00:00 UTC."""


@pytest.fixture(autouse=True)
def files(tmp_path: Path) -> None:
    """Half a minute of alice, 10 kB ten times a second, and files of quotas."""
    rows = (f"{START_MS + 100 * number},1,alice,app{number % 2},produce,1000\n" for number in range(300))
    (tmp_path / "usage.csv").write_text("time_ms,broker,user,client_id,api,bytes\n" + "".join(rows))
    (tmp_path / "high.json").write_text(quotas(alice=20_000))
    (tmp_path / "low.json").write_text(quotas(alice=5000))
    (tmp_path / "lower.json").write_text(quotas(alice=2500))
    shifted = "kind: kquota.quotas\nversion: 1\nquotas:\n" + "".join(
        f"  - {{entity: {entity}, values: {{producer_byte_rate: {rate}}}}}\n"
        for entity, rate in (("{user: alice}", 20_000), ("{user: alice, client-id: app1}", 4000))
    )
    (tmp_path / "shifted.yaml").write_text(shifted)
    (tmp_path / "history.yaml").write_text(
        "kind: kquota.quota-history\nversion: 1\nperiods:\n  - file: high.json\n"
        "  - from: 2026-03-11T09:00:20Z\n    file: low.json\n"
    )


def test_quotas_of_a_time(kquota: Kquota) -> None:
    """Nobody is throttled before the limit sinks."""
    done = kquota("audit", "usage.csv", "--quotas", "history.yaml", "-o", "json")

    (finding,) = json.loads(done.out)["findings"]
    assert (finding["limit"], finding["limit_changes"]) == (5000, 1)
    assert finding["throttled_events"] > 0
    assert finding["first_throttled_ms"] >= START_MS + 20_000


def test_limits_that_no_request_met_count(kquota: Kquota, tmp_path: Path) -> None:
    """A limit that held while a client was silent is a limit that changed: the chart drew the one of before."""
    head, *rows = (tmp_path / "usage.csv").read_text().splitlines()
    rows = [row for row in rows if not 10_000 <= int(row[:13]) - START_MS < 25_000]
    (tmp_path / "usage.csv").write_text("\n".join([head, *rows]) + "\n")
    limits = {0: 3000, 12: 6000, 15: 7000, 18: 6000, 21: 2000}
    history = QuotaHistory(
        tuple(QuotaSnapshot({Entity(user="alice"): {QuotaKey.PRODUCER_BYTE_RATE: limit}}) for limit in limits.values()),
        tuple(START_MS + 1000 * second for second in limits if second),
    )
    (tmp_path / "history.json").write_text(to_json(history_document(history)))

    done = kquota("audit", "usage.csv", "--quotas", "history.json", "--report", "r.html", "-o", "markdown")

    assert "| 2 kB/s changed 4 times |" in done.out
    page = (tmp_path / "r.html").read_text()
    assert 'The limit changed 4 times meanwhile; in the end it is <span class="u">2 kB/s</span>.' in page
    assert "<dd>of a history; in the time of this report they changed 4 times</dd>" in page
    settings = AuditSettings(history, timelines=MOST)
    result = local.audit(plan_splits([str(tmp_path / "usage.csv")], "auto"), settings, "usage.csv", processes=1)
    (row,) = result.found
    period = (result.quality.first_ms or 0, result.quality.last_ms or 0)
    chart = _specification(row.key, result.timelines[row.name], limits_under(history)(row), *period, WIDE)
    line = {one["start"] - START_MS: one["limit"] for one in chart["datasets"]["limits"]}
    assert line == {1000 * second: limit for second, limit in limits.items()} | {30_000: 2000}


def write_journal(
    folder: Path,
    tmp_path: Path,
    time_ms: int,
    cluster: str = "kafka://here:9092",
    message: str | None = None,
    names: tuple[str, str] = ("high", "low"),
) -> None:
    """As if apply had lowered the limit."""
    journal = Journal(folder, message=message)
    change = plan(*(read_quotas(tmp_path / f"{name}.json") for name in names))
    entry = journal.begin(Entry("", cluster, "apply", time_ms, change))
    journal.finish(entry, "applied", now=time_ms + 5000)  # brokers have the value before it is read back


def test_a_journal_leads_back(kquota: Kquota, tmp_path: Path) -> None:
    """The findings are those of the history that says the same."""
    write_journal(tmp_path / "journal", tmp_path, START_MS + 20_000)

    arguments = ["audit", "usage.csv", "-o", "csv", "--quotas"]
    expected = kquota(*arguments, "history.yaml")
    assert kquota(*arguments, "low.json", "--quotas-journal", "journal") == expected
    (tmp_path / "journal" / "zz.json").write_text("{")
    done = kquota(*arguments, "low.json", "--quotas-journal", "journal")
    assert (done.code, done.out) == (expected.code, expected.out)
    assert "zz.json is no entry of the journal" in done.err


@pytest.mark.parametrize(("since", "code"), [((), 3), (("--since", "2026-03-11T09:00:10Z"), 0)])
def test_what_another_tool_changed_before_hides_only_what_was_before(
    kquota: Kquota, tmp_path: Path, since: tuple[str, ...], code: int
) -> None:
    """kquota set 20 kB/s, something else 2.5 kB/s, and ten seconds after the begin kquota 5 kB/s."""
    write_journal(tmp_path / "journal", tmp_path, START_MS - 20_000, names=("lower", "high"))
    write_journal(tmp_path / "journal", tmp_path, START_MS + 10_000, names=("lower", "low"))
    command = ("audit", "usage.csv", "--quotas", "low.json", "--quotas-journal", "journal", "-o", "csv")

    done = kquota(*command, *since)

    assert done.code == code
    followed = kquota("follow", *command[1:], *since, "--until-idle", "1s")
    assert (followed.code, followed.out) == (done.code, done.out)
    if since:
        history = (tmp_path / "history.yaml").read_text().replace("high", "lower").replace("00:20", "00:10")
        (tmp_path / "known.yaml").write_text(history)
        assert done.out == kquota("audit", "usage.csv", "--quotas", "known.yaml", "-o", "csv", *since).out
    else:
        assert "user=alice was changed by something else: quotas from before 2026-03-11T09:00:10.000Z" in done.complaint
        assert "(--since 2026-03-11T09:00:10.000Z leaves that time out)" in done.complaint
        assert followed.complaint == done.complaint


def test_a_new_quota_is_told_as_history_tells_it(kquota: Kquota, tmp_path: Path) -> None:
    (tmp_path / "none.json").write_text(quotas())
    write_journal(tmp_path / "journal", tmp_path, START_MS + 20_000, names=("none", "low"))
    done = kquota("audit", "usage.csv", "--quotas", "low.json", "--quotas-journal", "journal", "-o", "markdown")
    assert "UTC: user=alice producer_byte_rate no quota → 5 kB/s (" in done.out


def test_a_report_says_why_quotas_changed_meanwhile(kquota: Kquota, tmp_path: Path) -> None:
    write_journal(tmp_path / "journal", tmp_path, START_MS + 20_000, message="OPS-7: <alice> floods the brokers")
    command = ("audit", "usage.csv", "--quotas", "low.json", "--quotas-journal", "journal", "--report", "page.html")
    document = json.loads(kquota(*command, "-o", "json").out)
    (changed,) = document["data"]["quota_changes"]
    why = "user=alice producer_byte_rate 20 kB/s → 5 kB/s: OPS-7: <alice> floods the brokers"
    assert changed["time_ms"] == START_MS + 20_000
    assert changed["reason"].startswith(f"{why} (")
    Draft202012Validator(schema("audit")).validate(document)
    assert f"quotas changed at 2026-03-11 09:00:20 UTC: {why}" in " ".join(kquota(*command).err.split())
    said = f"\nQuotas changed at 2026-03-11 09:00:20 UTC: {why.replace('<', chr(92) + '<')}"
    assert said in kquota(*command, "-o", "markdown").out
    page = (tmp_path / "page.html").read_text()
    assert f"<dt>2026-03-11 09:00:20 UTC</dt><dd>quotas changed: {html.escape(why)}" in page


def test_quotas_of_another_time_have_no_verdict(kquota: Kquota, tmp_path: Path) -> None:
    """Those that were taken away before the first record, or set after the last."""
    (tmp_path / "bob.json").write_text(quotas(bob=1, alice=20_000))
    (tmp_path / "carol.json").write_text(quotas(carol=1, alice=20_000))
    (tmp_path / "long.yaml").write_text(
        "kind: kquota.quota-history\nversion: 1\nperiods:\n  - file: bob.json\n"
        "  - {from: 2026-03-11T08:00:00Z, file: high.json}\n  - {from: 2026-03-11T10:00:00Z, file: carol.json}\n"
    )
    done = kquota("audit", "usage.csv", "--quotas", "long.yaml", "-o", "json")
    assert [quota["entity"] for quota in json.loads(done.out)["quotas"]] == [{"user": "alice"}]


@pytest.mark.parametrize(("arguments", "code", "says"), data_rows("refused/audit_quotas.txt"))
def test_what_cannot_be(kquota: Kquota, tmp_path: Path, arguments: str, code: str, says: str) -> None:
    write_journal(tmp_path / "journal", tmp_path, START_MS)

    done = kquota("audit", "usage.csv", *arguments.split())

    assert (done.code, done.out) == (int(code), "")
    assert says in done.err


def test_a_journal_with_a_topic(kquota: Kquota, tmp_path: Path) -> None:
    """The cluster is where the topic is; the file and its journal are no less the quotas."""
    write_journal(tmp_path / "journal", tmp_path, START_MS)
    where = ["--topic", "usage", "--bootstrap-server", "127.0.0.1:1"]

    done = kquota("audit", *where, "--quotas", "low.json", "--quotas-journal", "empty")

    assert (done.code, done.out) == (3, "")
    assert "empty: no changes of this cluster in the journal" in done.complaint


@pytest.mark.parametrize("output", ["table", "csv", "json", "markdown"])
def test_what_changes(kquota: Kquota, golden: Golden, output: str) -> None:
    """Some are throttled anew, though their counter is another one now."""
    done = kquota("audit", "usage.csv", "--quotas", "shifted.yaml", "--against", "high.json", "-o", output)

    assert done.code == 0
    golden(f"audit.whatif.{output}", done.out)
    said = ["1 client newly throttled", "300 requests read (local engine)"]
    *lines, warning = sorted(done.err.splitlines(), key=lambda line: line.startswith("kquota: warning: "))
    assert lines == (said if output == "table" else [])
    assert "counter without throttle times: " in warning or "counters without throttle times: " in warning
    if output == "json":
        validated(done.out, "audit")


@pytest.mark.parametrize(
    ("quotas", "against", "answers"),
    [
        ("high.json", "high.json", set()),
        ("high.json", "low.json", set()),
        ("low.json", "low.json", {"throttled"}),
        ("low.json", "high.json", {"throttled", "newly-throttled"}),
        ("lower.json", "low.json", {"throttled", "throttled-more"}),
    ],
)
def test_fail_on(kquota: Kquota, quotas: str, against: str, answers: set[str]) -> None:
    """Each by itself or any of several, and none of the others."""
    others = {"throttled", "newly-throttled", "throttled-more", "undetermined"} - answers
    for asked in (others, *({answer} for answer in answers), others | answers):
        options = [word for answer in asked for word in ("--fail-on", answer)]
        done = kquota("audit", "usage.csv", "--quotas", quotas, "--against", against, *options)
        assert done.code == (1 if answers & asked else 0)


def write_rejection(folder: Path) -> None:
    """Usage in which carol's topic is rejected, with a wait that rounds to 0 ms, for what bob created before."""
    rows = f"{START_MS},1,bob,app,create_topics,0,34\n{START_MS + 333},1,carol,app,create_topics,0,1\n"
    (folder / "topics.csv").write_text("time_ms,broker,user,client_id,api,bytes,partitions\n" + rows)
    for name, client_id in (("new.json", "app"), ("old.json", "other")):
        entry = {"entity": {"client-id": client_id}, "values": {"controller_mutation_rate": 3}}
        document = {"kind": "kquota.quotas", "version": 1, "quotas": [entry]}
        (folder / name).write_text(json.dumps(document))


@pytest.mark.parametrize("answer", ["throttled", "newly-throttled"])
def test_a_rejection_without_a_wait_counts_for_its_client(kquota: Kquota, tmp_path: Path, answer: str) -> None:
    """The summary says what the table says."""
    write_rejection(tmp_path)

    done = kquota("audit", "topics.csv", "--quotas", "new.json", "--against", "old.json", "--fail-on", answer)

    assert done.code == 1
    assert "1 client newly throttled" in done.err
    assert "newly throttled  carol" in done.out


def test_against_the_live_cluster(kquota: Kquota, chroot: str, golden: Golden) -> None:
    """The live quotas are those before."""
    assert kquota("apply", "high.json", "--zookeeper", chroot, "--yes").code == 0
    arguments = ["--quotas", "shifted.yaml", "--against", "live", "--prune", "--zookeeper", chroot, "-o", "markdown"]
    done = kquota("audit", "usage.csv", *arguments)

    assert done.code == 0
    golden("audit.whatif.markdown", done.out.replace("the live quotas", "`high.json`"))


def test_a_file_is_a_change_of_the_live_quotas(kquota: Kquota, tmp_path: Path, chroot: str) -> None:
    """An entity that the file does not name keeps its quota; with --prune it is as if the cluster had none."""
    live = ("--zookeeper", chroot)
    assert kquota("apply", "low.json", *live, "--yes").code == 0
    (tmp_path / "other.json").write_text(quotas(somebody=1e6))
    arguments = ("audit", "usage.csv", "--quotas", "other.json", "--against", "live", *live, "-o", "json")

    change, whole = kquota(*arguments), kquota(*arguments, "--prune")

    assert "counts as a change: 1 entity of the cluster that it does not name stay" in change.err
    assert "counts as all quotas: 1 entity of the cluster that it does not name would go" in whole.err
    named = ("audit", "usage.csv", "--quotas", "low.json", *arguments[4:])
    assert "counts as" not in kquota(*named).err
    throttled = [[each["verdict"] for each in json.loads(done.out)["findings"]] for done in (change, whole)]
    assert "throttled" in throttled[0]
    assert "throttled" not in throttled[1]
    assert kquota("audit", "usage.csv", "--quotas", "other.json", "--prune").code == 2
    pages = [kquota(*arguments[:-1], "markdown", *prune).out for prune in ((), ("--prune",))]
    assert "under `other.json` as a change of the live quotas instead of the live quotas." in pages[0]
    assert "under `other.json` instead of the live quotas." in pages[1]
