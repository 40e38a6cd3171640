"""`kquota audit --report`: the page in a real browser, and Markdown."""

import json
import math
import re
import sys
import tomllib
import urllib.parse
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pyarrow as pa
import pytest

from kquota import Entity, MissingDependency, QuotaKey, QuotaSnapshot
from kquota.audit.engines import local
from kquota.audit.result import AuditResult
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import ReadSettings, plan_splits
from kquota.cli import findings as findings_of_audit
from kquota.cli.findings import audited_view, summary
from kquota.cli.report import MOST, check_report, words
from kquota.cli.report.page import write_report
from kquota.cli.streams import warn
from kquota.cli.views import show
from kquota.core.change.history import QuotaHistory
from kquota.core.enforcement.generation import Generation, QuotaWindows
from kquota.core.findings.prediction import Interval
from kquota.core.findings.whatif import ClientChange, Comparison, Outcome, Standing
from kquota.core.quotas.quota import LONG_MAX
from kquota.documents.quotas import read_quotas
from tests.audit.recorded import LOG, QUOTAS
from tests.cli.conftest import Kquota, quotas, validated
from tests.support.browser import Browser

EVIL = "<script>alert(1)</script><img src=http://evil.test/x onerror=alert(2)>{{ 7*7 }}\"'&amp;"
WIDTHS = (1280, 390)
CHARTS = "[...document.querySelectorAll('figure svg')].filter(svg => svg.getBoundingClientRect().width > 0)"
LINKS = "[...document.querySelectorAll('[src], [href], script, iframe')].map(element => element.outerHTML)"


@cache
def recorded() -> tuple[AuditResult, AuditSettings]:
    """The audit of the recorded log, as a report needs it."""
    quotas = QuotaHistory.of(read_quotas(QUOTAS))
    settings = AuditSettings(quotas, per_client=True, timelines=MOST, read=ReadSettings(broker="1"))
    return local.audit(plan_splits([str(LOG)], "request-log"), settings, "the recorded log", processes=1), settings


def changed_result(**changes: Any) -> Any:
    """What a report shows of the recorded log, with other values where they are given."""
    result, _ = recorded()
    names = ("found", "timelines", "quality", "rejects", "engine", "quotas")
    return SimpleNamespace(**{name: getattr(result, name) for name in names} | changes)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(path, *recorded(), command="kquota audit x.log")
    return path


@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_in_a_browser(page: Path, browser: Browser, width: int) -> None:
    """Charts are drawn, nothing is asked of a network or complained about, and nothing sticks out."""
    browser.open(page, width=width)

    assert (browser.troubles, browser.requests) == ([], [])
    assert browser.evaluate("document.documentElement.scrollWidth") == width
    drawn = browser.evaluate(f"{CHARTS}.map(svg => svg.querySelectorAll('.mark-rect path').length)")
    timelines = recorded()[0].timelines.values()
    # Two bars where the rate is over the limit, one elsewhere, and one for the delay.
    expected = [sum(3 if one.peak_rate > one.limit else 2 for one in line.bins) for line in timelines]
    assert sorted(drawn) == sorted(expected)
    boxes = browser.evaluate(f"{CHARTS}.map(svg => svg.getBoundingClientRect().width)")
    assert all(width / 3 < box <= width - 32 for box in boxes)
    outside = (
        f"{CHARTS}.flatMap(svg => [...svg.querySelectorAll('text')].filter(text => {{"
        " const a = text.getBoundingClientRect(), b = svg.getBoundingClientRect();"
        " return a.width > 0 && (a.left < b.left - 1 || a.right > b.right + 1 || a.bottom > b.bottom + 1) }))"
    )
    assert browser.evaluate(f"{outside}.map(text => text.textContent)") == []
    smallest = browser.evaluate(
        f"Math.min(...{CHARTS}.flatMap(svg => [...svg.querySelectorAll('text')])"
        ".map(text => text.getBoundingClientRect()).map(box => Math.min(box.width, box.height)).filter(Boolean))"
    )
    assert smallest > 6


def test_the_next_step_names_the_kind_of_entities_that_recommend_has_to_look_at() -> None:
    pair, user = Entity("alice", "billing-1"), Entity("alice")
    command = "'kquota recommend --entities user-clients'"
    assert words.next_step([pair], ["requests"], reported=True) == f"{command} proposes limits that are enough"
    assert words.next_step([pair, user], ["requests"], reported=True) == (
        "'kquota recommend' proposes limits that are enough"
    )
    # Of samples it recommends nothing.
    assert words.next_step([pair], ["rates"], reported=False) == "--report FILE.html shows when and who"
    assert words.next_step([pair], ["rates"], reported=True) is None
    assert words.next_step([], [], reported=False) is None


def test_what_the_page_tells(page: Path, browser: Browser) -> None:
    """Who, which quota, when, how bad, the clients behind a counter, the data, and how to do it again."""
    browser.open(page)
    text = " ".join(browser.evaluate("document.body.innerText").split())

    worst = next(found for found in recorded()[0].found if found.throttled)
    assert f"6 of 9 counters throttled somebody, 1 undetermined; worst: {worst.subject} on broker 1, muted " in text
    alice = next(found for found in recorded()[0].found if found.sensor == "alice:")
    assert (
        f"User alice: {words.suffering(alice)} (2026-11-20 14:23:05 to 14:27:04 UTC),"
        " by the quota producer_byte_rate of user=alice: 300 kB/s." in text
    )
    assert words.suffering(alice) == "muted 98 % of the time, 2.0 s at the longest", "these quotas were in force"
    assert "359 kB/s, 120 % of the limit" in text
    assert "4,625 delayed, 2.0 s at the longest" in text
    assert f"alice billing-1 59.8 MB 83 % 6,558 {alice.clients[0].throttled_events:,}" in text
    assert "user frank request_percentage of user=frank 0.5 % ≥ 0.775 %, ≥ 155 % of the limit" in text
    assert f"{recorded()[0].quality.events:,} requests" in text
    assert "kquota audit x.log" in text
    # The next step is the one that the table has, without the page that is there already.
    throttled = [found for found in recorded()[0].found if found.throttled]
    step = words.next_step({found.entity for found in throttled}, ["requests"], reported=True)
    assert step == "'kquota recommend' proposes limits that are enough"
    assert f"Next: {step.replace(chr(39), '')}. 2026-11-20" in text
    assert browser.evaluate("[...document.querySelectorAll('header code')].map(one => one.textContent)") == [
        "kquota recommend"
    ]
    order = browser.evaluate("[...document.querySelectorAll('article h3')].map(h => h.firstChild.textContent.trim())")
    throttled = [found for found in recorded()[0].found if found.throttled]
    assert order == [f"{number}. {found.subject}" for number, found in enumerate(throttled, 1)]
    assert [found.harm for found in throttled] == sorted((found.harm for found in throttled), reverse=True)


def test_a_rate_as_it_was_held_back_is_not_all_that_was_wanted() -> None:
    alice = next(found for found in recorded()[0].found if found.sensor == "alice:")
    assert alice.prediction is not None
    got, wanted = Interval.exactly(52_600), Interval(52_600, None, None)
    held_back = replace(alice, prediction=replace(alice.prediction, delivered_per_s=got, wanted_per_s=wanted))
    assert words.delivered(held_back) == "52.6 kB/s, wanted ≥ 52.6 kB/s"


def test_dark_light_and_paper(page: Path, browser: Browser) -> None:
    """Colours follow the reader, the charts' too; paper is always light, and holds the whole page."""
    colours = "JSON.stringify([document.body, document.querySelector('figure svg .mark-rect path')].map(element => {"
    colours += " const style = getComputedStyle(element); return [style.backgroundColor, style.fill, style.color] }))"
    seen = {}
    for dark in (False, True):
        browser.open(page, dark=dark)
        seen[dark] = json.loads(browser.evaluate(colours))
    assert seen[False][0][0] == "rgb(255, 255, 255)"
    assert seen[True][0][0] != seen[False][0][0]
    assert seen[True][1][1] != seen[False][1][1]

    browser.call(
        "Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}]
    )
    assert json.loads(browser.evaluate(colours)) == seen[False]
    browser.call("Emulation.setEmulatedMedia", media="")
    printed = browser.pdf()
    assert printed.startswith(b"%PDF-")
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) > 2


def test_the_page_for_those_who_do_not_see_it(page: Path, browser: Browser) -> None:
    """One heading of the first order, no level left out; each chart has a text and a table; tables have headings."""
    browser.open(page)

    levels = browser.evaluate("[...document.querySelectorAll('h1,h2,h3,h4')].map(h => +h.tagName[1])")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(later <= earlier + 1 for earlier, later in pairwise(levels))
    labels = browser.evaluate("[...document.querySelectorAll('figure [role=img]')].map(i => i.ariaLabel)")
    assert len(labels) == 12
    assert all(re.fullmatch(r"Chart: .* It peaks at .* of the limit\.", label) for label in labels)
    assert browser.evaluate("[...document.querySelectorAll('article')].every(a => a.querySelector('details table'))")
    assert browser.evaluate(
        "[...document.querySelectorAll('table')].every(t => t.querySelector('thead th[scope=col]'))"
    )
    assert browser.evaluate("document.documentElement.lang") == "en"


def write_hostile(path: Path) -> None:
    """A page with names that are markup, wherever a name can be, long ones, and every part of a page."""
    result, settings = recorded()
    rows = list(result.found)
    timelines = dict(result.timelines)
    worst, edge = (next(row for row in rows if row.sensor == sensor) for sensor in ("alice:", ":sensor-gw"))
    for row, sensor, broker in ((worst, f"{urllib.parse.quote(EVIL)}:", EVIL), (edge, f":{EVIL * 3}", "1")):
        line = timelines.pop(row.name)
        clients = tuple(replace(client, user=EVIL, client_id="x" * 249) for client in row.clients)
        changed = replace(row, sensor=sensor, broker=broker, clients=clients)
        rows[rows.index(row)] = changed
        timelines[changed.name] = line
    free, held = Standing(), Standing("throttled", 7, 1234, (EVIL,), ":", Entity(user=EVIL), 1000)
    unknown = Standing("undetermined", None, None)
    changes = (
        ClientChange(QuotaKey.PRODUCER_BYTE_RATE, EVIL, "x" * 249, 9, free, held, Outcome.NEWLY_THROTTLED),
        ClientChange(QuotaKey.PRODUCER_BYTE_RATE, "bob", "", 9, held, free, Outcome.NO_LONGER_THROTTLED),
        ClientChange(QuotaKey.REQUEST_PERCENTAGE, "", "app", 9, unknown, held, Outcome.UNDETERMINED),
    )
    comparison = Comparison(changes, 5)
    made = changed_result(found=rows, timelines=timelines)
    with click.Context(click.Command("audit")):
        warn(f"{EVIL} {'x' * 249}")
        write_report(path, made, settings, command=EVIL, comparison=comparison)


def test_names_are_text(tmp_path: Path, browser: Browser) -> None:
    """Nothing in a name becomes an element, a request or a script; long ones do not widen the page."""
    write_hostile(tmp_path / "hostile.html")
    for width in WIDTHS:
        browser.open(tmp_path / "hostile.html", width=width)
        assert browser.evaluate("document.documentElement.scrollWidth") == width

    assert (browser.troubles, browser.requests) == ([], [])
    assert browser.evaluate("document.querySelectorAll('script, img, iframe').length") == 0
    assert browser.evaluate(LINKS) == ['<link rel="icon" href="data:,">']
    text = browser.evaluate("document.body.innerText")
    assert text.count(EVIL) > 8
    for heading in ("Newly delayed", "No longer delayed", "Undetermined"):
        assert heading in text
    assert "1 client newly delayed" in text
    assert "5 clients as before" in text
    assert "no limit" in text


def test_a_short_trouble_and_a_limit_that_was_lifted(tmp_path: Path, browser: Browser) -> None:
    """The chart shows the time around it, in the scale of what was used; the text names the limit of then."""
    start, trouble = 1_700_000_000_000, 1_700_003_600_000
    rows = [(start + at, 1000) for at in range(0, 7_200_001, 20_000)]
    rows += [(trouble + at, 100_000) for at in range(0, 120_001, 5000)]
    usage = tmp_path / "usage.csv"
    usage.write_text("time_ms,user,api,bytes\n" + "".join(f"{time},alice,produce,{n}\n" for time, n in sorted(rows)))
    low, high = (
        QuotaSnapshot({Entity(user="alice"): {QuotaKey.PRODUCER_BYTE_RATE: limit}}) for limit in (5000, LONG_MAX)
    )
    settings = AuditSettings(QuotaHistory((low, high), (trouble + 180_000,)), per_client=True, timelines=MOST)
    result = local.audit(plan_splits([str(usage)], "auto"), settings, "usage.csv", processes=1)

    write_report(tmp_path / "page.html", result, settings, command="kquota audit")
    browser.open(tmp_path / "page.html")

    assert browser.troubles == []
    text = " ".join(browser.evaluate("document.body.innerText").split())
    assert "by the quota producer_byte_rate of user=alice: 5 kB/s. The limit changed 1 time meanwhile" in text
    assert "in the end it is unlimited (Long.MAX_VALUE)." in text
    assert "Shown are 6 min of 2 h, those around the delays: 2023-11-14 23:11:20 to 23:17:20 UTC." in text
    assert "of the limit" not in text
    labels = browser.evaluate(f"{CHARTS}.flatMap(s => [...s.querySelectorAll('text')].map(t => t.textContent))")
    assert any(label.endswith("0k") for label in labels)
    assert not any(label.endswith(("M", "G", "T", "P", "E")) for label in labels)
    (drawn,) = browser.evaluate(f"{CHARTS}.map(svg => svg.querySelectorAll('.mark-rect path').length)")
    (line,) = result.timelines.values()
    assert drawn == sum(3 if one.peak_rate > one.limit else 2 for one in line.bins)


@pytest.mark.parametrize("limit", [0.0, -1.0, math.nan, math.inf])
def test_limits_that_only_a_cluster_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str], limit: float) -> None:
    """What nobody can set any more is shown everywhere: as it is, and without a share of it."""
    rate = 0 if limit == 0 else -1
    stored = {QuotaKey.PRODUCER_BYTE_RATE: rate, QuotaKey.REQUEST_PERCENTAGE: limit}
    settings = AuditSettings(
        QuotaHistory.of(QuotaSnapshot({Entity(user="alice"): stored})), per_client=True, timelines=MOST
    )
    usage = tmp_path / "usage.csv"
    rows = [f"{1_700_000_000_000 + 100 * n},alice,produce,1000,1000000" for n in range(50)]
    usage.write_text("\n".join(["time_ms,user,api,bytes,request_time_ns", *rows]))
    result = local.audit(plan_splits([str(usage)], "auto"), settings, "usage.csv", processes=1)

    write_report(tmp_path / "page.html", result, settings, command="kquota audit")

    delayed = "1 of 2 counters throttled somebody" if limit == 0 else "Nobody is delayed."
    assert delayed in (tmp_path / "page.html").read_text()
    said = "1 of 2 counters throttled somebody" if limit == 0 else "Nobody throttled by 2 counters"
    assert summary(result, settings).startswith(f"**{said}")
    show(audited_view(result, settings, None, show_all=True), "table")
    assert f"{rate} B/s  " in capsys.readouterr().out
    show(audited_view(result, settings, None, show_all=True), "json")
    document = validated(capsys.readouterr().out, "audit")
    shares = {finding["key"]: finding["peak_share"] for finding in document["findings"]}
    assert shares == {"producer_byte_rate": None, "request_percentage": 0.0 if limit == math.inf else None}


def test_a_calm_report(tmp_path: Path, browser: Browser) -> None:
    """Where nobody is delayed it says so; who is near the limit is named."""
    rows = [
        replace(row, peak_rate=0.9 * row.limit, peak_rate_max=0.9 * row.limit)
        for row in recorded()[0].found
        if not row.throttled and not row.undetermined
    ]
    settings = replace(recorded()[1], generation=Generation.N_BY_START, windows=QuotaWindows(5, 3))
    write_report(tmp_path / "page.html", changed_result(found=rows, timelines={}), settings, command="kquota audit")
    browser.open(tmp_path / "page.html")
    text = browser.evaluate("document.body.innerText")

    assert "Nobody is delayed." in text
    assert "Next:" not in text
    assert "Not throttled, but near the limit" in text
    assert "90 %" in text
    assert "quota.window.num=5" in text
    assert "Kafka 3.7 and older" in text
    assert browser.evaluate("document.querySelectorAll('svg').length") == 0


def test_from_the_command_line(kquota: Kquota, tmp_path: Path, browser: Browser) -> None:
    """The whole way, with the table still on stdout, what could not be read, and the command that does it again."""
    folder = tmp_path / "broker 7"
    folder.mkdir()
    (folder / "usage.csv").write_text(
        "time_ms,broker,user,client_id,api,bytes\n"
        + "".join(f"{1_700_000_000_000 + 100 * n},7,alice,app-{n % 2},produce,{900 * (n % 3)}\n" for n in range(600))
        + "never,7,bob,app,produce,1\n"
    )
    (tmp_path / "quotas.yaml").write_text(quotas(alice="2kB"))
    (tmp_path / "before.yaml").write_text(quotas(alice="2MB"))
    options = ["--quotas", "quotas.yaml", "--against", "before.yaml", "--engine", "local", "--report", "a.html"]

    done = kquota("audit", "broker 7", *options)

    assert done.code == 0
    assert "newly throttled" in done.out
    assert "wrote a.html" in done.err.splitlines()
    browser.open(tmp_path / "a.html")
    assert (browser.troubles, browser.requests) == ([], [])
    assert browser.evaluate(f"{CHARTS}.length") == 1
    text = " ".join(browser.evaluate("document.body.innerText").split())
    assert f"kquota audit 'broker 7' {' '.join(options)}" in text
    assert "Beside the quotas of before: 2 clients newly delayed." in text
    assert "2 MB/s user=alice 0 2 kB/s user=alice" in text
    assert "Unreadable 1 record" in text
    assert re.search(r"Warnings 1 record cannot be read, quarantined in \S+/quarantine\.jsonl: 1 × time_ms", text)
    assert "2 clients share this counter" in text
    assert not list(tmp_path.glob(".*.part"))


def test_what_samples_do_not_tell(kquota: Kquota, tmp_path: Path, browser: Browser) -> None:
    """Readings of a metric show that a counter is over its limit, and no number of requests: none is made up."""
    samples = Path(__file__).parents[1] / "data" / "samples" / "prometheus-range.json"
    (tmp_path / "quotas.yaml").write_text(
        "kind: kquota.quotas\nversion: 1\nquotas:\n- entity: {user: alice}\n  values: {producer_byte_rate: 30kB}\n"
        "- entity: {user: frank}\n  values: {request_percentage: 1}\n"
    )

    done = kquota("audit", str(samples), "--quotas", "quotas.yaml", "--report", "a.html", "-o", "markdown")

    assert done.code == 0
    row = "| producer_byte_rate of `user=alice` | 30 kB/s | ≥ 54.4 kB/s ≥ 181 % | throttled of 6 rates | - |"
    assert row in done.out
    assert "| request_percentage of `user=frank` | 1 % | ≥ 0.455 % ≥ 46 % of limit | undetermined of" in done.out
    assert "Undetermined (the samples leave out some of the time): user=frank request_percentage." in done.out
    assert kquota("audit", str(samples), "--quotas", "quotas.yaml").code == 0
    browser.open(tmp_path / "a.html")
    text = " ".join(browser.evaluate("document.body.innerText").split())
    assert (browser.troubles, browser.requests) == ([], [])
    assert "Delayed requests not known" in text
    assert (
        "User alice is over the limit of the quota producer_byte_rate of user=alice, 30 kB/s, as samples show" in text
    )
    assert "the samples leave out some of the time" in text


@pytest.mark.parametrize(
    ("report", "code", "says"),
    [("report.pdf", 2, "must end in .html"), ("missing/report.html", 3, "no such folder")],
)
def test_a_report_that_cannot_be(kquota: Kquota, tmp_path: Path, report: str, code: int, says: str) -> None:
    """It is said before the work begins."""
    done = kquota("audit", "x.log", "--quotas", "quotas.yaml", "--report", report)

    assert (done.code, done.out) == (code, "")
    assert says in done.err.splitlines()[-1]
    assert not list(tmp_path.glob("report*"))


def test_the_extra_of_the_audit_has_what_a_page_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    extras = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    for module in ("jinja2", "vl_convert"):
        with monkeypatch.context() as without:
            without.setitem(sys.modules, module, None)
            with pytest.raises(MissingDependency) as missing:
                check_report(tmp_path / "report.html")
        assert missing.value.extra == "audit"
        assert any(each.startswith(module.replace("_", "-")) for each in extras["audit"])


def test_as_markdown() -> None:
    result, settings = recorded()
    first, *lines = summary(result, settings).splitlines()

    worst = result.found[0]
    who = f"{worst.subject} on broker 1"
    said = f"6 of 9 counters throttled somebody, 1 undetermined; worst: {who}, {words.suffering(worst)}"
    assert first == f"**{said}.** {result.quality.events:,} requests, 2026-11-20 14:22:46 to 14:27:06 UTC."
    table = [line for line in lines if line.startswith("|")]
    assert f"`{worst.subject}`" in table[2]
    assert len(table) == 2 + 6 + 1
    assert "`user frank`" in table[-1]
    assert "≥ 0.775 % ≥ 155 % of limit" in table[-1]
    assert f"Undetermined ({result.found[6].reason}): user=frank request_percentage." in lines


def test_what_markdown_leaves_out_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each counter once, on however many brokers it is."""
    monkeypatch.setattr(findings_of_audit, "MOST_ROWS", 2)
    result, settings = recorded()
    other = [{**row, "broker": "2"} for row in result.findings.to_pylist()]
    both = pa.concat_tables([result.findings, pa.Table.from_pylist(other, schema=result.findings.schema)])
    said = summary(replace(result, findings=both), settings).splitlines()
    assert len([line for line in said if "1 and 1 more" in line]) == 2
    assert "5 counters more: `kquota audit -o json`." in said


def test_what_one_broker_leaves_open_is_on_the_page(tmp_path: Path) -> None:
    """Also of a counter that another broker throttles: its reason would be passed over."""
    result, settings = recorded()
    (frank,) = [row for row in result.findings.to_pylist() if row["verdict"] == "undetermined"]
    alice = next(row for row in result.findings.to_pylist() if row["verdict"] == "throttled")
    open_, reason = {**alice, "broker": "2", "verdict": "undetermined"}, "the log of broker 2 is cut"
    rows = [alice, {**open_, "reason": reason}, frank]
    findings = pa.Table.from_pylist(rows, schema=result.findings.schema)
    write_report(tmp_path / "report.html", replace(result, findings=findings), settings, command="kquota audit")
    assert reason in (tmp_path / "report.html").read_text()


def test_a_name_in_markdown_is_text() -> None:
    """No cell ends early, and no tag or link comes of it."""
    result, settings = recorded()
    names = {"sensor": ":a|b<img>[x](y)`", "broker": "b|c"}
    rows = [{**row, **(names if row["sensor"] == "alice:" else {})} for row in result.findings.to_pylist()]
    findings = pa.Table.from_pylist(rows, schema=result.findings.schema)

    said = summary(replace(result, findings=findings), settings)
    (line,) = [line for line in said.splitlines() if r"| b\|c |" in line]
    assert line.startswith(r"| `` client-id a\|b<img>[x](y)` `` | b\|c | producer_byte_rate of `user=alice` |")
