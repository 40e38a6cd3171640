"""From samples to findings, with the local engine; what may follow from a series and what may not."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota import DEFAULT, Entity, QuotaKey, QuotaSnapshot
from kquota.audit.engines import local
from kquota.audit.evidence.judge import judge
from kquota.audit.result import AuditResult
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import ReadSettings, plan_splits
from kquota.audit.sources.samples import Samples
from kquota.core.change.history import QuotaHistory
from kquota.core.enforcement import Generation, Kind, Mode, QuotaWindows, kernel
from kquota.core.quotas.quota import Value
from kquota.core.resolve.resolver import Resolver
from kquota.documents.quotas import read_quotas
from kquota.metrics.series import Nature, Series
from tests.cli.conftest import validated
from tests.core.enforcement.strategies import START

DATA = Path(__file__).parents[1] / "data" / "samples"
PRODUCE, FETCH, REQUEST = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE
Row = Mapping[str, Any]


def quotas(values: Mapping[Entity, Mapping[QuotaKey, Value]]) -> QuotaHistory:
    """The same quotas at all times."""
    return QuotaHistory.of(QuotaSnapshot(values))


def audit(file: str, history: QuotaHistory, *, broker: str | None = "1", **others: Any) -> AuditResult:
    audit_settings = AuditSettings(history, read=ReadSettings(broker=broker), **others)
    return local.audit(plan_splits([str(DATA / file)], "auto"), audit_settings, file)


def rows(result: AuditResult) -> dict[tuple[str, str], Row]:
    return {(row["key"], row["sensor"]): row for row in result.findings.to_pylist()}


def gauge(values: Sequence[float], *, user: str | None = "u", client: str | None = None, **others: Any) -> Samples:
    """Readings every 5 s."""
    times = np.arange(len(values)) * others.pop("gap", 5000) + START
    series = Series("1", others.pop("key", PRODUCE), others.pop("nature", Nature.RATE), user, client)
    return Samples(series, times, np.array(values, float), **others)


def totals(values: Sequence[float], *, user: str | None = "u", client: str | None = None) -> Samples:
    """A counter of which the first reading is 0: totals of neighbouring minutes."""
    readings = np.concatenate([[0.0], np.cumsum(values)])
    series = Series("1", PRODUCE, Nature.COUNTER, user, client)
    return Samples(series, np.arange(len(readings)) * 60_000 + START, readings, slack_ms=0)


def counter(readings: Sequence[tuple[int, float]], *, user: str | None = "u", **others: Any) -> Samples:
    """Readings (ms, value) of a counter of which nobody knows when it began."""
    times, values = (np.array(column) for column in zip(*readings, strict=True))
    series = Series("1", PRODUCE, Nature.COUNTER, user, None)
    return Samples(series, times + START, values.astype(float), **others)


def verdicts(samples: Sequence[Samples], history: QuotaHistory, **others: Any) -> dict[str, tuple[str, str | None]]:
    ((table,), _) = judge(samples, AuditSettings(history, **others))
    return {row["sensor"]: (row["verdict"], row["reason"]) for row in table.to_pylist()}


RECORDED = QuotaHistory.of(read_quotas(DATA / "quotas.json"))
THROTTLED = {
    ("producer_byte_rate", "alice:"),
    ("producer_byte_rate", ":sensor-gw"),
    ("consumer_byte_rate", "carol:"),
    ("request_percentage", "frank:"),
}
UNTHROTTLED = {
    ("producer_byte_rate", "bob:etl"),
    ("producer_byte_rate", ":web-edge"),
    ("producer_byte_rate", 'team%20a%2Fci%2A:ingest,"eu"'),
}


@pytest.mark.parametrize("file", ["kafka-jmx.csv", "kafka-jmx-lines.csv", "prometheus-raw.json"])
def test_in_force_the_verdicts_are_the_brokers_own(file: str) -> None:
    """A real broker under real quotas: throttled is what it throttled, and nothing else.

    frank, whom the request quota throttled, may have used the client-id web-edge: there a throttle could be hidden.
    """
    found = rows(audit(file, RECORDED, in_force=True))

    assert {name for name, row in found.items() if row["verdict"] == "throttled"} == THROTTLED
    free = {name for name, row in found.items() if row["verdict"] == "not throttled"}
    assert free == UNTHROTTLED - {("producer_byte_rate", ":web-edge")}
    for name in THROTTLED:
        assert found[name]["logged_throttled_events"] > 0
        assert found[name]["first_throttled_ms"] <= found[name]["last_throttled_ms"]
    for name in free:
        assert (found[name]["logged_throttled_events"], found[name]["throttled_events"]) == (0, 0)


@pytest.mark.parametrize(
    "file",
    ["kafka-jmx.csv", "prometheus-raw.json", "prometheus-range.json", "prometheus-instant.json", "federate.prom"],
)
def test_the_bounds_never_contradict_the_broker(file: str) -> None:
    """Whatever the rates alone allow to say, under the quotas that were in force."""
    found = rows(audit(file, RECORDED))

    assert set(found) == THROTTLED | UNTHROTTLED
    assert not any(found[name]["verdict"] == "not throttled" for name in THROTTLED)
    assert not any(found[name]["verdict"] == "throttled" for name in UNTHROTTLED)
    assert all(found[name]["logged_throttled_events"] > 0 for name in THROTTLED)
    if file in ("kafka-jmx.csv", "prometheus-raw.json"):
        assert found["producer_byte_rate", "bob:etl"]["verdict"] == "not throttled"


@pytest.mark.parametrize("file", ["kafka-jmx.csv", "prometheus-raw.json", "prometheus-range.json", "federate.prom"])
def test_a_tighter_quota_throttles_for_certain(file: str) -> None:
    """Rates far over a proposed limit prove it, whatever the export."""
    proposed = quotas({Entity(user="bob", client_id="etl"): {PRODUCE: 20_000}})

    (row,) = rows(audit(file, proposed)).values()

    assert (row["verdict"], row["reason"], row["basis"]) == ("throttled", None, "rates")
    assert row["throttled_events"] is None
    assert 20_000 < row["peak_rate"] < 55_000
    assert row["first_throttled_ms"] > 1_700_000_000_000


def test_spark_finds_the_same(spark: Any) -> None:
    from kquota.audit.engines import spark as engine

    audit_settings = AuditSettings(RECORDED, read=ReadSettings(broker="1"))
    paths = [str(DATA / name) for name in ("kafka-jmx.csv", "prometheus-raw.json")]

    result = engine.audit(spark, plan_splits(paths, "auto"), audit_settings, "samples")

    assert result.findings.equals(local.audit(plan_splits(paths, "auto"), audit_settings, "samples").findings)
    assert result.findings.num_rows == 7


def test_requests_and_samples_side_by_side() -> None:
    """In one audit: each file by what it is."""
    log = DATA.parent / "request_log"
    paths = [str(log / "kafka-request.log.gz"), str(DATA / "kafka-jmx.csv")]

    result = local.audit(plan_splits(paths, "auto"), AuditSettings(RECORDED, read=ReadSettings(broker="1")), "both")

    assert {row["basis"] for row in result.findings.to_pylist()} == {"requests", "rates"}


@pytest.mark.parametrize(
    ("entities", "sensors"),
    [
        ({Entity(user="u"): 1}, {"u:"}),
        ({Entity(user=DEFAULT): 1}, {"u:"}),
        ({Entity(user="u"): 1, Entity(user="u", client_id="a"): 1}, {"u:"}),  # a has a series of its own
        ({Entity(client_id="b"): 1}, set()),
    ],
)
def test_a_series_that_is_a_counter(entities: Mapping[Entity, int], sensors: set[str]) -> None:
    """What the rates of a user's clients are under quotas of users."""
    samples = [gauge([10_000] * 3), gauge([10_000] * 3, client="a")]
    history = quotas({entity: {PRODUCE: value} for entity, value in entities.items()})

    found = verdicts(samples, history)

    assert {sensor for sensor, (verdict, _) in found.items() if verdict == "throttled"} >= sensors


def test_a_coarser_series_is_undetermined() -> None:
    """A user's rate says nothing about one client-id, unless it is within the limit itself."""
    history = quotas(
        {Entity(user="u", client_id=DEFAULT): {PRODUCE: 1000}, Entity(user="u", client_id="a"): {PRODUCE: 500}}
    )

    assert verdicts([gauge([10_000.0] * 30)], history) == {
        "u:": ("undetermined", "the series adds up several counters")
    }
    assert verdicts([gauge([100.0] * 30)], history) == {"u:": ("not throttled", None)}
    assert verdicts([totals([100.0] * 30)], history) == {"u:": ("not throttled", None)}


def test_finer_series_are_added_up() -> None:
    """Two clients, each below the limit of their user."""
    history = quotas({Entity(user="u"): {PRODUCE: 1000}})
    one, other = (totals([60_000.0], client=client) for client in "ab")

    assert verdicts([one], history)["u:"][0] == "undetermined"
    assert verdicts([one, other], history)["u:"] == ("throttled", None)
    assert verdicts([totals([1000.0], client=client) for client in "ab"], history)["u:"] == ("not throttled", None)


@pytest.mark.parametrize(
    ("others", "verdict"),
    [
        ({}, "not throttled"),
        ({"gap": 11_000}, "undetermined"),
        ({"ceiling": False}, "undetermined"),
    ],
)
def test_not_throttled_needs_the_whole_time(others: dict[str, Any], verdict: str) -> None:
    """Readings at most a window apart, at the times they were made."""
    history = quotas({Entity(user="u"): {PRODUCE: 1000}})

    assert verdicts([gauge([100.0] * 10, **others)], history)["u:"][0] == verdict


MINUTES = [(60_000 * n, 0.0) for n in range(4)]


@pytest.mark.parametrize(
    ("readings", "verdict"),
    [
        ([(0, 7e6), (60_000, 7e6), (120_000, 7e6)], "not throttled"),
        # What was charged from the second reading to the restart is in none.
        ([(0, 7e6), (60_000, 7e6), (120_000, 5.0)], "undetermined"),
        # Nobody saw it begin: all of it may have come in the minute before.
        ([(60_000, 7e6), (120_000, 7e6)], "undetermined"),
        ([(60_000, 0.0), (120_000, 7.0)], "not throttled"),
        ([(0, 0.0), (60_000, 1e6)], "throttled"),
        # It began anew, and came to more than a minute may hold.
        ([(0, 7e6), (60_000, 1e6)], "throttled"),
        # Two servers scrape it; the one whose scrape began later was answered first.
        ([(0, 7e6), (60_000, 7_000_500.0), (60_300, 7_000_400.0), (120_000, 7_000_500.0)], "not throttled"),
    ],
)
def test_counters(readings: Sequence[tuple[int, float]], verdict: str) -> None:
    """What is lost when a counter begins anew, or before it is first read, excludes nothing, and proves nothing."""
    history = quotas({Entity(user=DEFAULT): {PRODUCE: 1000}})

    assert verdicts([counter(readings), counter(MINUTES, user="other")], history)["u:"][0] == verdict


@given(
    st.lists(st.tuples(st.integers(0, 179_999), st.sampled_from([10, 3000, 9000, 20_000])), min_size=1, max_size=25),
    st.lists(st.integers(0, 180_000), max_size=2),
    st.integers(0, 180_000),
    st.sampled_from([5000, 15_000, 60_000]),
    st.sampled_from(list(Generation)),
)
def test_a_verdict_on_a_counter_is_never_wrong(
    requests: list[tuple[int, int]], restarts: list[int], born: int, gap: int, generation: Generation
) -> None:
    """Whenever it begins anew, unless nobody can see that it did, and whenever it is first read."""
    requests = sorted(requests)
    readings: list[tuple[int, float]] = []
    hidden = False
    for now in range(0, 180_000 + gap, gap):
        since = max((time for time in restarts if time <= now), default=0)
        value = float(sum(size for time, size in requests if since <= time < now))
        hidden |= any(now - gap < time <= now for time in restarts) and value >= (readings or [(0, 0.0)])[-1][1]
        if now >= born:
            readings.append((now, value))
    rate, plain = kernel(Mode.PLAIN).new_counter(QuotaWindows(), generation), kernel(Mode.PLAIN)
    throttled = any(
        plain.charge_counter(rate, Kind.PRODUCE, START + time, size, 1000.0).throttle_ms > 0 for time, size in requests
    )
    samples = [counter(MINUTES, user="other"), *([counter(readings)] if readings else [])]

    history = quotas({Entity(user=DEFAULT): {PRODUCE: 1000}})
    verdict, _ = verdicts(samples, history, generation=generation).get("u:", ("nothing", None))

    if verdict == "throttled":
        assert throttled
    elif verdict == "not throttled" and not hidden:
        before = [time for time, _ in requests if time < readings[0][0]]
        assert not throttled or (before and readings[0][1] == 0)


def test_a_throttled_fetch_is_in_no_rate() -> None:
    """Low rates of a consumer that was throttled exclude nothing."""
    history = quotas({Entity(user="u"): {FETCH: 1000}})
    rates = gauge([100.0] * 10, key=FETCH)
    throttled, free = (gauge([value] * 10, key=FETCH, nature=Nature.THROTTLE) for value in (700.0, 0.0))

    assert verdicts([rates, free], history)["u:"][0] == "not throttled"
    assert verdicts([rates, throttled], history)["u:"][0] == "undetermined"
    assert verdicts([rates, throttled], history, in_force=True)["u:"] == ("throttled", None)


@pytest.mark.parametrize(
    ("gap", "beside", "verdict"),
    [
        (30_000, None, "undetermined"),
        (30_000, 0.0, "not throttled"),
        (30_000, 5.0, "undetermined"),
        (31_000, 0.0, "undetermined"),
    ],
)
def test_in_force_throttle_times_exclude(gap: int, beside: float | None, verdict: str) -> None:
    """Seen for half a minute; hidden where the request quota delays more."""
    history = quotas({Entity(user="u"): {PRODUCE: 1000, REQUEST: 10.0}})
    samples = [gauge([900.0] * 9, gap=gap), gauge([0.0] * 9, gap=gap, nature=Nature.THROTTLE)]
    if beside is not None:
        samples.append(gauge([beside] * 9, gap=gap, key=REQUEST, nature=Nature.THROTTLE))

    assert verdicts(samples, history)["u:"][0] == "undetermined"
    ((table,), _) = judge(samples, AuditSettings(history, in_force=True))
    assert {row["verdict"] for row in table.to_pylist() if row["key"] == PRODUCE.value} == {verdict}


@pytest.mark.parametrize(
    ("first", "count", "verdict"),
    [(0, 9, "not throttled"), (0, 6, "undetermined"), (3, 6, "undetermined"), (1, 8, "not throttled")],
)
def test_throttle_times_exclude_only_where_there_are_some(first: int, count: int, verdict: str) -> None:
    """From half a minute after the first rate to the last one."""
    history = quotas({Entity(user="u"): {PRODUCE: 1000}})
    free = gauge([0.0] * count, gap=20_000, nature=Nature.THROTTLE)
    free = replace(free, end_ms=free.end_ms + first * 20_000)

    assert verdicts([gauge([900.0] * 9, gap=20_000), free], history, in_force=True)["u:"][0] == verdict


def test_rates_do_not_show_what_hides_a_throttle() -> None:
    """The request quota may have delayed more: only its throttle times tell."""
    history = quotas({Entity(user="u"): {PRODUCE: 1000, REQUEST: 10.0}})
    samples = [gauge([900.0] * 9), gauge([0.0] * 9, nature=Nature.THROTTLE), gauge([9.0] * 9, key=REQUEST)]

    ((table,), _) = judge(samples, AuditSettings(history, in_force=True))

    assert {row["verdict"] for row in table.to_pylist() if row["key"] == PRODUCE.value} == {"undetermined"}


def test_controller_mutations_are_evidence_only() -> None:
    """Their rate is not what a token bucket is judged by."""
    key = QuotaKey.CONTROLLER_MUTATION_RATE
    history = quotas({Entity(user="u"): {key: 1.0}})
    samples = [gauge([9.0] * 3, key=key), gauge([40.0] * 3, key=key, nature=Nature.THROTTLE)]

    assert verdicts(samples, history)["u:"] == ("undetermined", "no sample shows a token bucket's use")
    assert verdicts(samples, history, in_force=True)["u:"][0] == "throttled"


def test_a_history_of_quotas() -> None:
    """Readings count for the quotas of their time, and not in the first window after a change."""
    change = START + 60_000
    strict, loose = ({Entity(user="u"): {PRODUCE: value}} for value in (1000, 100_000))
    samples = [gauge([50_000.0] * 13 + [10.0] * 12)]

    def of(first: Any, second: Any) -> tuple[str, int]:
        history = QuotaHistory((QuotaSnapshot(first), QuotaSnapshot(second)), (change,))
        ((table,), _) = judge(samples, AuditSettings(history))
        (row,) = table.to_pylist()
        return row["verdict"], row["limit_changes"]

    assert of(strict, loose) == ("throttled", 1)
    assert of(loose, strict) == ("undetermined", 1)


def test_a_period_that_no_sample_is_all_of() -> None:
    """A total that reaches into it from another does not leave it out."""
    loose, strict, late = ({Entity(user="u"): {PRODUCE: value}} for value in (100_000, 1000, 1000))
    history = QuotaHistory(tuple(map(QuotaSnapshot, (loose, strict, loose))), (START + 70_000, START + 90_000))
    after = QuotaHistory(tuple(map(QuotaSnapshot, (loose, late))), (START + 180_001,))

    assert verdicts([totals([50_000.0] * 3)], history)["u:"] == ("undetermined", "the samples allow both")
    assert verdicts([totals([500.0] * 3)], history)["u:"] == ("not throttled", None)
    assert verdicts([totals([50_000.0] * 3)], after)["u:"] == ("not throttled", None)


named = st.sampled_from(
    [
        Entity(user="u"), Entity(user=DEFAULT), Entity(user="u", client_id="a"), Entity(client_id="a"),
        Entity(client_id=DEFAULT),
    ]
)  # fmt: skip
snapshots = st.dictionaries(
    named, st.sampled_from([100, 1000, 5000]).map(lambda limit: {PRODUCE: limit}), min_size=1, max_size=3
).map(QuotaSnapshot)


@given(
    st.lists(
        st.tuples(st.integers(0, 179_999), st.sampled_from("ab"), st.sampled_from([1, 1000, 3000, 9000])),
        min_size=1,
        max_size=40,
    ),
    st.lists(snapshots, min_size=3, max_size=3),
    st.lists(st.integers(0, 179_999), max_size=2, unique=True),
    st.sampled_from([("u", True), ("u", False), (None, True)]),
    st.sampled_from(list(Generation)),
)
def test_a_verdict_over_a_history_is_never_wrong(
    requests: list[tuple[int, str, int]],
    quotas_of_then: list[QuotaSnapshot],
    changes: list[int],
    finer: tuple[str | None, bool],
    generation: Generation,
) -> None:
    """Wherever the quotas change, and the clients from one counter to another with them."""
    history = QuotaHistory(tuple(quotas_of_then[: len(changes) + 1]), tuple(START + time for time in sorted(changes)))
    user, by_client = finer
    plain = kernel(Mode.PLAIN)
    sums: dict[str | None, list[float]] = {}
    rates: dict[str, Any] = {}
    throttled: dict[str, bool] = {}
    behind: dict[str, set[str]] = {}
    for time, client, size in sorted(requests):
        scope = client if by_client else None
        sums.setdefault(scope, [0.0] * 3)[time // 60_000] += size
        found = Resolver.of(history.at(START + time), PRODUCE).resolve("u", client)
        if found.limit is not None:
            name = str(found.sensor)
            rate = rates.setdefault(name, plain.new_counter(QuotaWindows(), generation))
            delay = plain.charge_counter(rate, Kind.PRODUCE, START + time, size, float(found.limit)).throttle_ms
            throttled[name] = throttled.get(name, False) or delay > 0
            behind.setdefault(f"{user or ''}:{scope or ''}", set()).add(name)
    samples = [totals(amounts, user=user, client=client) for client, amounts in sums.items()]

    said = {name: verdict for name, (verdict, _) in verdicts(samples, history, generation=generation).items()}

    for name, verdict in said.items():
        if verdict == "throttled":
            assert throttled[name]
        elif verdict == "not throttled":
            # Where it was a part of another counter, that has a finding of its own, or none at all.
            parts = {other for other in behind.get(name, ()) if said.get(other, verdict) == verdict}
            assert not any(throttled.get(other, False) for other in {name, *parts})


USERS, CLIENTS = ("u", "v"), ("a", "b", "")


@st.composite
def placements(draw: st.DrawFn) -> tuple[list[tuple[int, str, str, int]], dict[Entity, dict[QuotaKey, Value]]]:
    """Requests of (time, user, client-id, bytes), and quotas on any level."""
    moment = st.one_of(st.integers(0, 179_999), st.sampled_from([0, 59_999, 60_000, 119_999, 120_000]))
    size = st.one_of(st.integers(0, 300), st.integers(0, 20_000))
    request = st.tuples(moment, st.sampled_from(USERS), st.sampled_from(CLIENTS), size)
    user = st.sampled_from([None, DEFAULT, *USERS])
    client = st.sampled_from([None, DEFAULT, "a", "b"])
    names = st.tuples(user, client).filter(lambda pair: pair != (None, None))
    entities = draw(st.lists(names, min_size=1, max_size=4, unique=True))
    limits = st.sampled_from([1, 100, 1000, 5000])
    return sorted(draw(st.lists(request, min_size=1, max_size=30))), {
        Entity(user=u, client_id=c): {PRODUCE: draw(limits)} for u, c in entities
    }


@given(
    placements(),
    st.sets(st.tuples(st.sampled_from(USERS), st.sampled_from(CLIENTS))),
    st.sets(st.sampled_from(USERS)),
    st.sampled_from(list(Generation)),
)
def test_a_verdict_is_never_wrong(
    placed: tuple[list[tuple[int, str, str, int]], dict[Entity, dict[QuotaKey, Value]]],
    pairs: set[tuple[str, str]],
    users: set[str],
    generation: Generation,
) -> None:
    """Totals of some pairs, of some users and of client-ids, under quotas on any level, against a replay."""
    requests, values = placed
    snapshot = QuotaSnapshot(values)
    resolver, plain = Resolver.of(snapshot, PRODUCE), kernel(Mode.PLAIN)
    sums: dict[tuple[str | None, str | None], list[float]] = {}
    rates: dict[str, Any] = {}
    throttled: dict[str, bool] = {}
    behind: dict[tuple[str | None, str | None], set[str]] = {}
    for time, user, client, size in requests:
        # As a broker under other quotas would have charged them: to one of three kinds of counter.
        scope = (user, client) if (user, client) in pairs else (user, None) if user in users else (None, client)
        sums.setdefault(scope, [0.0] * 3)[time // 60_000] += size
        found = resolver.resolve(user, client)
        if found.limit is not None:
            name = str(found.sensor)
            rate = rates.setdefault(name, plain.new_counter(QuotaWindows(), generation))
            delay = plain.charge_counter(rate, Kind.PRODUCE, START + time, size, float(found.limit)).throttle_ms
            throttled[name] = throttled.get(name, False) or delay > 0
            behind.setdefault(scope, set()).add(name)
    samples = [totals(amounts, user=user, client=client) for (user, client), amounts in sums.items()]

    ((table,), _) = judge(samples, AuditSettings(QuotaHistory.of(snapshot), generation))

    said = {row["sensor"]: row["verdict"] for row in table.to_pylist()}
    for sensor, verdict in said.items():
        if verdict == "throttled":
            assert throttled[sensor]
        elif verdict == "not throttled":
            inside = [names for (u, c), names in behind.items() if sensor == f"{u or ''}:{c or ''}"]
            assert not any(throttled.get(name, False) for name in {sensor}.union(*inside))
    if len(sums) == len([scope for scope in sums if None not in scope]):
        assert set(said) == set(throttled)


def test_findings_are_a_document() -> None:
    """The JSON of sampled findings is what its schema says, also where a counter has throttle times and no rates."""

    from kquota.audit.findings import Findings
    from kquota.cli.auditing import data_of
    from kquota.documents.audit import audit_document
    from kquota.documents.encoding import to_json

    free = [gauge([0.0] * 9, nature=Nature.THROTTLE)]
    ((table,), _) = judge(free, AuditSettings(quotas({Entity(user="u"): {PRODUCE: 1000}}), in_force=True))
    (finding,) = audit_document(Findings(table), {}, {}, "local")["findings"]
    assert (finding["verdict"], finding["events"], finding["throttled_share"]) == ("not throttled", 0, 0)
    result = audit("kafka-jmx.csv", RECORDED)
    brokers = {"generation": "n_by_start", "quota_window_num": 11, "quota_window_size_seconds": 1}

    document = audit_document(Findings(result.findings), data_of(result.quality), brokers, "local")

    validated(to_json(document), "audit")
