"""The law of verdicts: each quota that is set ends in exactly one, whatever the source and the command."""

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from kquota import DEFAULT, Entity, QuotaKey, QuotaSnapshot
from kquota.audit.answers.whatif import compare
from kquota.audit.batch import Tally
from kquota.audit.engines import local
from kquota.audit.engines import spark as job
from kquota.audit.evidence.bounds import Window
from kquota.audit.evidence.connections import SETUP_MS, judge_connections
from kquota.audit.result import AuditResult
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import DIALECTS, SAMPLED, ReadSettings, Split, module, plan_splits, usage, usage_topic
from kquota.audit.sources.data_log import LOWER_BOUND, ConnectionLog
from kquota.cli.main import cli
from kquota.cli.report.words import verdict_lines
from kquota.core.change.history import QuotaHistory
from kquota.core.enforcement import ConnectionManager, Generation, MutationSensor, QuotaWindows
from kquota.core.enforcement.apis import EXEMPTIONS
from kquota.core.findings.verdicts import Governed, QuotaVerdict, Verdict, verdicts
from kquota.core.quotas.snapshot import Ignored
from kquota.core.quotas.static import enforced
from kquota.core.quotas.version import parse_version
from kquota.documents.encoding import schema, to_json
from kquota.documents.quotas import quotas_document
from tests.audit.request_lines import STAMP, fields
from tests.audit.usage_files import write_table
from tests.support.scheduling import examples

DATA = Path(__file__).parents[1] / "data"
START_MS = 1_700_000_000_000
MUTATION, CONNECTION = QuotaKey.CONTROLLER_MUTATION_RATE, QuotaKey.CONNECTION_CREATION_RATE
THROTTLED, FREE = Verdict.THROTTLED, Verdict.NOT_THROTTLED
UNDETERMINED, NOBODY = Verdict.UNDETERMINED, Verdict.NOBODY_SEEN

SHAPES = (
    Entity(user="alice"),
    Entity(user=DEFAULT),
    Entity(client_id="app"),
    Entity(client_id=DEFAULT),
    Entity(user="alice", client_id="app"),
    Entity(user="alice", client_id=DEFAULT),
    Entity(user=DEFAULT, client_id="app"),
    Entity(user=DEFAULT, client_id=DEFAULT),
    Entity(ip="10.0.0.2"),
    Entity(ip=DEFAULT),
)


def everything(value: int) -> QuotaSnapshot:
    """All keys at that value for entities of all shapes, and for some that nobody has."""
    strangers = (Entity(user="zork"), Entity(client_id="zork"), Entity(ip="10.9.9.9"))
    return QuotaSnapshot(
        {
            entity: {key: value for key in QuotaKey if key.allowed_for(entity)}
            for entity in (*SHAPES, *strangers, Entity(user="zork", client_id="zork"))
        }
    )


def request(time: int, api: str = "produce", user: str = "alice", **more: Any) -> dict[str, Any]:
    row = {"time_ms": START_MS + time, "broker": "1", "user": user, "client_id": "app", "api": api}
    return row | {"bytes": 100 if api in ("produce", "fetch") else None, "request_time_ns": 1000} | more


def connect(time: int, ip: str | None = "10.0.0.2") -> dict[str, Any]:
    return {"time_ms": START_MS + time, "broker": "1", "user": None, "api": "connect", "ip": ip, "listener": "A"}


FULL = [
    *(request(100 * number) for number in range(30)),
    *(request(100 * number, "create_topics", partitions=1) for number in range(30)),
    *(connect(100 * number) for number in range(30)),
]


def write(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def log_line(number: int, api: str = "API_VERSIONS", key: int = 18, **changes: Any) -> str:
    """A line of a request log: the first request of a connection of its own."""
    made = fields(api, key, 3, request={}, response={}, **changes)
    made["connection"] = f"10.0.0.1:9092-10.0.0.2:{40000 + number}-0-{number}"
    return f"[{STAMP}] DEBUG Completed request:{json.dumps(made)} (kafka.request.logger)\n"


def request_log(folder: Path) -> Path:
    """Some connections, and nothing else."""
    path = folder / "kafka-request.log"
    path.write_text("".join(map(log_line, range(20))))
    return path


EXPORTS: Mapping[str, Callable[[Path], Path]] = {
    "request-log": request_log,
    "usage": lambda folder: write(folder / "usage.jsonl", FULL),
    "usage-topic": lambda folder: write(folder / "topic.jsonl", FULL),
    "prometheus": lambda folder: DATA / "samples" / "prometheus-raw.json",
    "openmetrics": lambda folder: DATA / "samples" / "federate.prom",
    "kafka-jmx": lambda folder: DATA / "samples" / "kafka-jmx.csv",
}


@pytest.fixture(autouse=True)
def topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic is a file of JSON lines."""

    def records(split: Split, _: object) -> Iterator[tuple[str, bytes]]:
        lines = Path(split.path).read_bytes().splitlines()
        yield from ((f"offset {number}", line) for number, line in enumerate(lines))

    monkeypatch.setattr(usage_topic, "_records", records)


def splits_of(dialect: str, path: Path) -> list[Split]:
    if dialect == "usage-topic":
        return [Split(dialect, str(path), 0, 1, 1)]
    return plan_splits([str(path)], dialect)


def audit(
    splits: Sequence[Split], quotas: QuotaSnapshot | QuotaHistory, processes: int = 1, **others: Any
) -> AuditResult:
    history = quotas if isinstance(quotas, QuotaHistory) else QuotaHistory.of(quotas)
    read = others.pop("read", ReadSettings(broker="1", kafka={}))
    return local.audit(splits, AuditSettings(history, read=read, **others), "it", processes=processes)


def of_rows(folder: Path, rows: Sequence[Mapping[str, Any]], quotas: Any, **others: Any) -> AuditResult:
    return audit(plan_splits([str(write(folder / "usage.jsonl", rows))], "usage"), quotas, **others)


def lawful(found: Sequence[QuotaVerdict], quotas: QuotaSnapshot, ignored: Sequence[Ignored] = ()) -> None:
    """Each value has one verdict, and a reason just where that is undetermined or the brokers ignore the value."""
    left_out = {(each.entity, each.key) for each in ignored}
    wanted = [(entity, key) for entity, values in quotas.items() for key in values]
    assert sorted(map(str, found)) == sorted(f"{entity} {key.value}" for entity, key in wanted)
    for quota in found:
        assert quotas[quota.entity][quota.key] == quota.value
        reasoned = quota.verdict is UNDETERMINED or (quota.entity, quota.key) in left_out
        assert bool(quota.reason) == reasoned, quota
        assert (quota.verdict is NOBODY) <= (not quota.counters), quota


def test_every_dialect_is_walked() -> None:
    """A new source cannot be forgotten, nor can a key in what it declares."""
    assert EXPORTS.keys() == DIALECTS.keys()
    for dialect in DIALECTS:
        assert module(dialect).SIGHT.keys() == set(QuotaKey)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_quota_has_a_verdict(tmp_path: Path, dialect: str) -> None:
    """All shapes and keys at once, under both sets of quotas; what a source cannot see is never passed over."""
    splits = splits_of(dialect, EXPORTS[dialect](tmp_path))

    result = audit(splits, everything(1), against=QuotaHistory.of(everything(10**9)), per_client=True, top_clients=None)

    lawful(result.quotas, everything(1))
    assert result.against is not None
    lawful(result.against.quotas, everything(10**9))
    by_key = {key: {quota.verdict for quota in result.quotas if quota.key is key} for key in QuotaKey}
    if dialect in SAMPLED - {"usage-topic"}:
        assert by_key[CONNECTION] == {UNDETERMINED}
    else:
        assert by_key[CONNECTION] == {THROTTLED, NOBODY}
    if dialect == "request-log":
        assert by_key[MUTATION] == {UNDETERMINED}
    elif dialect.startswith("usage"):
        assert by_key[MUTATION] == {THROTTLED, NOBODY}
    settings_ = AuditSettings(QuotaHistory.of(everything(1)), against=QuotaHistory.of(everything(10**9)))
    comparison = compare(result, settings_)
    lawful(comparison.quotas, everything(1))
    assert {quota.verdict for quota in comparison.unjudged} <= {UNDETERMINED}
    assert {quota.key for quota in comparison.unjudged} >= {
        quota.key for quota in result.quotas if quota.verdict is UNDETERMINED
    }


@pytest.mark.parametrize("version", ["0.9", "0.10.2", "2.5", "2.7"])
def test_a_quota_that_the_brokers_ignore_has_its_verdict(tmp_path: Path, version: str) -> None:
    """It throttles nobody, and the reason names the release that enforces it."""
    quotas = enforced(everything(1), parse_version(version))
    assert quotas.ignored

    result = of_rows(tmp_path, FULL, quotas)

    lawful(result.quotas, everything(1), quotas.ignored)
    reasons = {(quota.entity, quota.key): (quota.verdict, quota.reason) for quota in result.quotas}
    for entity, key, _, reason in quotas.ignored:
        assert reasons[entity, key] == (FREE, reason)
        assert f"not enforced by Kafka {version}" in reason
    assert any("not enforced" in line for line in verdict_lines(result.quotas))


def test_nobody_is_a_short_line() -> None:
    """Of hundreds of quotas a few are named, and the others are counted."""
    unseen = verdicts(QuotaHistory.of(everything(1)), {}, {})
    (line,) = verdict_lines(unseen, counts=False)
    assert line.startswith(f"nobody seen whom these govern: {unseen[0]}, {unseen[1]}, ")
    assert line.endswith(f" and {len(unseen) - 5} more")
    assert verdict_lines(unseen[:2], counts=False) == [f"nobody seen whom these govern: {unseen[0]}, {unseen[1]}"]


@pytest.mark.parametrize(
    ("entity", "key"), [(entity, key) for entity in SHAPES for key in QuotaKey if key.allowed_for(entity)], ids=str
)
def test_every_shape_by_itself(tmp_path: Path, entity: Entity, key: QuotaKey) -> None:
    """A table with all columns judges each of them: whom it governs is throttled at little, and free far above."""
    for value, verdict in ((1e-6 if key is QuotaKey.REQUEST_PERCENTAGE else 1, THROTTLED), (10**9, FREE)):
        quotas = QuotaSnapshot({entity: {key: value}})
        (quota,) = of_rows(tmp_path, [*FULL, request(7, "fetch")], quotas).quotas
        assert quota.verdict in ((verdict,) if key is not QuotaKey.CONSUMER_BYTE_RATE else (verdict, FREE))


TABLES: Mapping[str, tuple[Sequence[Mapping[str, Any]], Mapping[QuotaKey, str]]] = {
    "no column": (
        [request(number) for number in range(5)],
        {MUTATION: "the table has no partitions column", CONNECTION: "the table has no ip column"},
    ),
    "topics without partitions": (
        [request(number, "create_topics") for number in range(5)],
        {MUTATION: "the table has no partitions column", CONNECTION: "the table has no ip column"},
    ),
    "an ip of requests": (
        [request(number, ip="10.0.0.2", partitions=0) for number in range(5)],
        {CONNECTION: "the table has no rows of connect"},
    ),
    "connections without an ip": (
        [*FULL, connect(5000, None)],
        {CONNECTION: "some connections in the table have no ip"},
    ),
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("spoon", [1, 100])
def test_what_a_table_does_not_hold(tmp_path: Path, name: str, spoon: int) -> None:
    """Is undetermined with the reason, however its rows are cut into files."""
    rows, reasons = TABLES[name]
    for number in range(0, len(rows), spoon):
        write(tmp_path / f"{number:05}.jsonl", rows[number : number + spoon])

    result = audit(plan_splits([str(tmp_path)], "usage"), everything(10**9))

    lawful(result.quotas, everything(10**9))
    for quota in result.quotas:
        if quota.key in reasons:
            assert (quota.verdict, quota.reason) == (UNDETERMINED, reasons[quota.key])
    assert result.undetermined


def test_a_stray_file_hides_nothing(tmp_path: Path) -> None:
    """What is none of the export is counted as unread, and leaves no quota undetermined."""
    write(tmp_path / "usage.jsonl", FULL)
    (tmp_path / "NOTES").write_text("These are the tables of May.\n")

    result = audit(plan_splits([str(tmp_path)], "auto"), everything(1))

    assert result.quality.rejected == 1
    assert not result.undetermined


def test_topics_of_unknown_size(tmp_path: Path) -> None:
    """One row without partitions leaves its counter open, and no other."""
    quotas = QuotaSnapshot({Entity(user=name): {MUTATION: 10**6} for name in ("alice", "bob")})
    rows = [request(1, "create_topics", name, partitions=1) for name in ("alice", "bob")]

    result = of_rows(tmp_path, [*rows, request(2, "delete_topics", "bob")], quotas)

    assert [quota.verdict for quota in result.quotas] == [FREE, UNDETERMINED]


def test_the_columns_in_every_form(tmp_path: Path) -> None:
    """Parquet and CSV say what JSON lines do."""
    rows = [*FULL, request(5000, "DeleteTopics", partitions=50, strict=False), request(5001, acks=0)]
    records = ((str(n), json.dumps(row).encode()) for n, row in enumerate(rows))
    (table,) = usage.json_tables(records, "it", ReadSettings(), Tally())
    expected = of_rows(tmp_path, rows, everything(1))

    for name in ("usage.parquet", "usage.csv"):
        path = write_table(pa.Table.from_batches([table]), tmp_path / name, 7)
        found = audit(plan_splits([str(path)], "usage"), everything(1))
        assert found.quotas == expected.quotas
        assert found.findings.to_pylist() == expected.findings.to_pylist()
        assert found.quality == expected.quality


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (connect(1, "localhost"), "ip is not an address"),
        (connect(1, "167772167"), "ip is not an address"),
        (request(1, "create_topics", partitions=-1), "partitions is out of range"),
        (request(1, "create_topics", strict="maybe"), "strict is not true or false"),
        (request(1) | {"user": None}, "user is missing"),
    ],
)
def test_rows_that_cannot_be(tmp_path: Path, row: Mapping[str, Any], reason: str) -> None:
    result = of_rows(tmp_path, [*FULL, row], everything(1))

    assert [reject.reason for reject in result.rejects] == [reason]


@given(
    times=st.lists(st.integers(0, 30_000), min_size=1, max_size=80),
    limit=st.sampled_from([1, 2, 5]),
    seed=st.integers(0, 3),
)
@settings(max_examples=examples(40), deadline=None)
def test_connections_as_the_manager_admits_them(
    tmp_path_factory: pytest.TempPathFactory, times: list[int], limit: int, seed: int
) -> None:
    """Each ip by itself, over all listeners; two spellings of an address are one ip."""
    ips = ("::1", "0:0:0:0:0:0:0:1") if seed % 2 else ("10.0.0.2", "10.0.0.3")
    chosen = [random.Random(seed + number).choice(ips) for number in range(len(times))]
    rows = [connect(time, ip) for time, ip in zip(sorted(times), chosen, strict=True)]
    manager = ConnectionManager({"A": None}, default_ip=limit)
    expected: dict[str, list[int]] = {}
    for row in rows:
        name = "::1" if seed % 2 else row["ip"]
        expected.setdefault(f":{name}", []).append(manager.admit(row["time_ms"], "A", name))

    result = of_rows(tmp_path_factory.mktemp("t"), rows, QuotaSnapshot({Entity(ip=DEFAULT): {CONNECTION: limit}}))

    found = {
        row["sensor"]: (row["events"], row["throttled_events"], row["throttle_time_ms"])
        for row in result.findings.to_pylist()
    }
    assert found == {
        name: (len(delays), sum(delay > 0 for delay in delays), sum(delays)) for name, delays in expected.items()
    }
    (quota,) = result.quotas
    throttled = sum(any(delays) for delays in expected.values())
    assert quota.verdict is (THROTTLED if throttled else FREE)
    counted = {THROTTLED: throttled, FREE: len(expected) - throttled}
    assert quota.counters == {verdict: count for verdict, count in counted.items() if count}


@given(
    topics=st.lists(st.tuples(st.integers(0, 60_000), st.integers(0, 40), st.booleans()), min_size=1, max_size=40),
    limit=st.sampled_from([0.5, 1, 7]),
)
@settings(max_examples=examples(40), deadline=None)
def test_topics_as_the_manager_charges_them(
    tmp_path_factory: pytest.TempPathFactory, topics: list[tuple[int, int, bool]], limit: float
) -> None:
    """A row for each topic, strict or permissive."""
    topics = sorted(topics)
    sensor = MutationSensor(limit)
    outcomes = []
    for time, partitions, strict in topics:
        (outcome,) = sensor.request(START_MS + time, [partitions], strict=strict).topics
        outcomes.append(outcome)
    rows = [request(time, "create_topics", partitions=size, strict=strict) for time, size, strict in topics]

    result = of_rows(tmp_path_factory.mktemp("t"), rows, QuotaSnapshot({Entity(user="alice"): {MUTATION: limit}}))

    (row,) = result.findings.to_pylist()
    throttled = [outcome for outcome in outcomes if outcome.throttle_ms > 0 or not outcome.accepted]
    assert row["throttled_events"] == len(throttled)
    assert row["throttle_time_ms"] == sum(outcome.throttle_ms for outcome in throttled)
    assert (result.quality.events, len(result.rejects)) == (len(rows), 0)


def test_topics_that_failed_are_not_charged(tmp_path: Path) -> None:
    """Only those that the quota was asked for: 36 is TOPIC_ALREADY_EXISTS, 89 the quota's own rejection."""
    quotas = QuotaSnapshot({Entity(user="alice"): {MUTATION: 1000}})
    errors = (None, 0, 36, 89, 38)
    rows = [
        request(number, api, partitions=1, error_code=error)
        for api in ("create-topics", "CreatePartitions")
        for number, error in enumerate(errors)
    ]

    (row,) = of_rows(tmp_path, rows, quotas).findings.to_pylist()

    assert row["events"] == 3 + 4


@pytest.mark.parametrize("version", ["0.11.0", "2.8.0", "3.7.0", "4.0.0"])
def test_requests_among_brokers_are_exempt(tmp_path: Path, version: str) -> None:
    """As in request logs, in any spelling; a failed authorization (31) is charged."""
    quotas = QuotaSnapshot({Entity(user="broker"): {QuotaKey.REQUEST_PERCENTAGE: 1}})
    apis = [each.api for each in EXEMPTIONS if each.gone]
    spelled = [name for api in apis for name in (api, api.lower().replace("_", "-"), api.title().replace("_", ""))]
    rows = [request(number, api, "broker", request_time_ns=10**9) for number, api in enumerate(spelled)]
    read = ReadSettings(broker="1", version=tuple(map(int, version.split("."))))  # type: ignore[arg-type]

    result = of_rows(tmp_path, rows, quotas, read=read)

    assert result.findings.num_rows == 0
    assert (result.quality.exempt, result.quality.events) == (len(rows), 0)
    assert result.quality.exemptions["inter_broker"].request_time_ns == len(rows) * 10**9
    assert [quota.verdict for quota in result.quotas] == [NOBODY]

    refused = of_rows(tmp_path, [row | {"error_code": 31} for row in rows], quotas, read=read)
    assert (refused.quality.exempt, refused.findings.to_pylist()[0]["events"]) == (0, len(rows))
    assert [quota.verdict for quota in refused.quotas] == [THROTTLED]


def test_thread_time_of_acks_0(tmp_path: Path) -> None:
    """Is exempt, the bytes are not; its thread time may even be missing."""
    quotas = QuotaSnapshot({Entity(user="alice"): {QuotaKey.REQUEST_PERCENTAGE: 1, QuotaKey.PRODUCER_BYTE_RATE: 1}})
    for nanos in (10**9, None):
        rows = [request(number, acks=0, request_time_ns=nanos) for number in range(3)]

        result = of_rows(tmp_path, [*rows, request(5)], quotas)

        found = {row["key"]: row for row in result.findings.to_pylist()}
        assert found["request_percentage"]["verdict"] == "not throttled"
        assert found["producer_byte_rate"]["events"] == 4
        assert result.quality.exemptions["acks_0"].requests == 3
        assert of_rows(tmp_path, [row | {"acks": 1, "request_time_ns": 10**9} for row in rows], quotas).throttled


@pytest.mark.parametrize(("percent", "verdict"), [(100, FREE), (0.2, UNDETERMINED)])
def test_a_request_quota_far_from_its_limit_is_judged(tmp_path: Path, percent: float, verdict: Verdict) -> None:
    """A log lacks the time of network threads; twice the handlers' time bounds what is charged."""
    quotas = QuotaSnapshot({Entity(user="ann"): {QuotaKey.REQUEST_PERCENTAGE: percent}})

    result = audit(plan_splits([str(request_log(tmp_path))], "request-log"), quotas)

    (row,) = result.findings.to_pylist()
    (prediction,) = result.predictions.values()
    assert (row["verdict"], prediction.verdict) == (verdict.value, verdict.value)
    assert [quota.verdict for quota in result.quotas] == [verdict]
    assert row["peak_rate_max"] == (2 * row["peak_rate"] if verdict is FREE else None)
    assert row["throttle_time_ms"] == (0 if verdict is FREE else None)


@pytest.mark.parametrize(
    ("entity", "nanos", "verdict"),
    [
        (Entity(user="alice"), 10**9, UNDETERMINED),
        (Entity(user="alice", client_id="app"), 10**9, UNDETERMINED),
        (Entity(user="alice"), 1, THROTTLED),
    ],
)
def test_fetches_under_both_quotas_without_connections(
    tmp_path: Path, entity: Entity, nanos: int, verdict: Verdict
) -> None:
    """Kafka takes the bytes of a fetch back where the request quota throttles it; delayed clients ask more rarely."""
    rows = [request(100 * n, "fetch", bytes=5_000_000, request_time_ns=nanos) for n in range(5)]
    quotas = QuotaSnapshot(
        {Entity(user="alice"): {QuotaKey.REQUEST_PERCENTAGE: 1}} | {entity: {QuotaKey.CONSUMER_BYTE_RATE: 1_000_000}}
        if entity.client_id is not None
        else {entity: {QuotaKey.REQUEST_PERCENTAGE: 1, QuotaKey.CONSUMER_BYTE_RATE: 1_000_000}}
    )

    result = of_rows(tmp_path, rows, quotas)

    found = {row["key"]: row for row in result.findings.to_pylist()}
    assert found["consumer_byte_rate"]["verdict"] == verdict.value
    assert found["request_percentage"]["verdict"] == ("throttled" if nanos > 1 else "not throttled")
    assert result.predictions["1", "consumer_byte_rate", found["consumer_byte_rate"]["sensor"]].verdict == verdict.value


def logged(folder: Path, lines: Sequence[str], limit: int) -> AuditResult:
    """The audit of a request log under a quota of each ip."""
    (folder / "kafka-request.log").write_text("".join(lines))
    quotas = QuotaSnapshot({Entity(ip=DEFAULT): {CONNECTION: limit}, Entity(ip="10.9.9.9"): {CONNECTION: limit}})
    return audit(plan_splits([str(folder)], "request-log"), quotas)


def test_a_request_log_shows_some_connections(tmp_path: Path) -> None:
    """A lower bound above the limit proves a refusal; below it nothing follows, however high the limit is."""
    lines = list(map(log_line, range(40)))

    certain, open_ = logged(tmp_path, lines, 1), logged(tmp_path, lines, 10**6)

    (row,) = certain.findings.to_pylist()
    assert (row["sensor"], row["verdict"], row["basis"], row["events"]) == (":10.0.0.2", "throttled", "connections", 40)
    assert 40 / 24 < row["peak_rate"] <= 4
    assert [quota.verdict for quota in certain.quotas] == [THROTTLED, NOBODY]
    assert [(quota.verdict, quota.reason) for quota in open_.quotas] == [(UNDETERMINED, LOWER_BOUND), (NOBODY, None)]


def test_connections_that_were_there_before_are_not_counted(tmp_path: Path) -> None:
    """A connection whose first request is not ApiVersions may be old; the same connection counts once."""
    old = [log_line(number, "METADATA", 3) for number in range(40)]
    again = [log_line(0) for _ in range(40)]
    late = [log_line(number).replace(STAMP, "2026-05-04 10:20:31,456") for number in range(40)]

    for lines, events in ((old, 0), (again, 1), ([*old, *late], 0)):
        (row,) = logged(tmp_path, lines, 1).findings.to_pylist()
        assert (row["verdict"], row["events"], row["peak_rate_max"]) == ("undetermined", events, None)


@given(
    gaps=st.lists(st.integers(0, 4000), min_size=2, max_size=60),
    delays=st.randoms(use_true_random=False),
    limit=st.sampled_from([1, 2, 3]),
)
@settings(max_examples=examples(60), deadline=None)
def test_the_lower_bound_is_one(gaps: list[int], delays: random.Random, limit: int) -> None:
    """Whenever it says throttled, the manager refuses some connection, however long each took to its first request."""
    log, manager, now, refused = ConnectionLog("1"), ConnectionManager({"A": None}, default_ip=limit), START_MS, False
    for number, gap in enumerate(gaps):
        now += gap
        refused |= manager.admit(now, "A", "10.0.0.2") > 0
        log.add("10.0.0.2", str(number), now + delays.randint(0, SETUP_MS), opens=True)
    quotas = QuotaHistory.of(QuotaSnapshot({Entity(ip=DEFAULT): {CONNECTION: limit}}))

    table, governing = judge_connections([log], quotas, Window.of(QuotaWindows(), Generation.N_PLUS_1_BY_LAST))

    assert (table.to_pylist()[0]["verdict"] == "throttled") <= refused
    assert list(governing) == [("connection_creation_rate", "ip=<default>")]


def test_a_history_blames_the_quota_that_throttled(tmp_path: Path) -> None:
    """A counter that two quotas governed, one after the other."""
    produce = QuotaKey.PRODUCER_BYTE_RATE
    early = QuotaSnapshot({Entity(user="alice"): {produce: 10**6}, Entity(user=DEFAULT): {produce: 1}})
    late = QuotaSnapshot({Entity(user=DEFAULT): {produce: 1}})
    history = QuotaHistory((early, late), (START_MS + 50_000,))
    rows = [request(100 * number) for number in range(30)]

    for tail, verdict in (((), NOBODY), ([request(60_000 + 10 * number) for number in range(300)], THROTTLED)):
        result = of_rows(tmp_path, [*rows, *tail], history)
        found = {quota.entity: quota.verdict for quota in result.quotas}
        assert found == {Entity(user=DEFAULT): verdict, Entity(user="alice"): FREE}


@pytest.mark.parametrize(
    ("early_limit", "late_limit", "answered", "expected"),
    [
        (1000, 10**6, (0, 0), (FREE, FREE)),
        (1000, 10**6, (9, 0), (THROTTLED, FREE)),
        (1000, 1000, (0, 0), (FREE, FREE)),
        (10_000, 10_000, (9, 0), (THROTTLED, FREE)),
        (10_000, 10_000, (0, 9), (FREE, THROTTLED)),
    ],
)
def test_answers_move_the_quotas_that_they_are_about(
    tmp_path: Path, early_limit: int, late_limit: int, answered: tuple[int, int], expected: tuple[Verdict, Verdict]
) -> None:
    """Of two quotas that governed a counter in turn, each gets the verdict of the brokers' answers in its own time."""
    produce, default, alice = QuotaKey.PRODUCER_BYTE_RATE, Entity(user=DEFAULT), Entity(user="alice")
    early = QuotaSnapshot({default: {produce: early_limit}})
    late = QuotaSnapshot({default: {produce: early_limit}, alice: {produce: late_limit}})
    history = QuotaHistory((early, late), (START_MS + 50_000,))
    rows = [
        request(start + 100 * number, user="alice", client_id="app", bytes=999, throttle_time_ms=throttle)
        for start, throttle in zip((0, 100_000), answered, strict=True)
        for number in range(100)
    ]

    result = of_rows(tmp_path, rows, history, in_force=True)

    found = {quota.entity: quota for quota in result.quotas}
    assert (found[default].verdict, found[alice].verdict) == expected
    assert [dict(found[entity].counters) for entity in (default, alice)] == [{verdict: 1} for verdict in expected]


def test_a_history_blames_the_quota_that_rejected_without_a_wait(tmp_path: Path) -> None:
    """A thousandth of a token is owed, a third of a millisecond: a rejection between those of another quota."""
    alice, default = ({Entity(user=user): {MUTATION: 3}} for user in ("alice", DEFAULT))
    history = QuotaHistory(
        tuple(QuotaSnapshot(each) for each in (alice | default, default, alice | default)),
        (START_MS + 200, START_MS + 400),
    )
    charged = [(0, 34), (10, 1), (333, 1), (60_000, 34), (60_010, 1)]

    result = of_rows(tmp_path, [request(at, "create_topics", partitions=size) for at, size in charged], history)

    (row,) = result.findings.to_pylist()
    assert row["throttled_events"] == 3
    assert {quota.verdict for quota in result.quotas} == {THROTTLED}
    assert len(result.quotas) == 2


def test_precedence() -> None:
    """Throttled beats all; what is hidden beats what is seen; nothing seen is nobody."""
    alice = Entity(user="alice")
    history = QuotaHistory.of(QuotaSnapshot({alice: {MUTATION: 1}}))

    def verdict(hidden: str | None, *found: Verdict) -> tuple[Verdict, str | None]:
        governed = Governed()
        for each in found:
            governed.add(each, "open" if each is UNDETERMINED else None)
        (quota,) = verdicts(history, {(MUTATION.value, str(alice)): governed}, {MUTATION: hidden})
        return quota.verdict, quota.reason

    assert verdict(None) == (NOBODY, None)
    assert verdict(None, FREE) == (FREE, None)
    assert verdict(None, FREE, UNDETERMINED) == (UNDETERMINED, "open")
    assert verdict("hidden", FREE, UNDETERMINED) == (UNDETERMINED, "hidden")
    assert verdict("hidden") == (UNDETERMINED, "hidden")
    assert verdict("hidden", UNDETERMINED, THROTTLED, FREE) == (THROTTLED, None)


def many_rows(seed: int) -> list[dict[str, Any]]:
    """Requests, topics and connections of some clients on two brokers, some of them without what it takes."""
    chance = random.Random(seed)
    rows = []
    for time in sorted(chance.sample(range(60_000), 600)):
        user = chance.choice(("alice", "bob", "carol"))
        api = chance.choice(
            ("produce", "fetch", "metadata", "create_topics", "delete_topics", "connect", "stop_replica")
        )
        row = request(time, api, user, broker=chance.choice("12"), client_id=chance.choice(("app", "", "other")))
        if api.endswith("topics"):
            row |= {"partitions": chance.choice((1, 3, 10)), "strict": chance.choice((True, False, None))}
        if api == "connect":
            row |= {"ip": f"10.0.0.{chance.randint(1, 3)}", "user": None, "request_time_ns": None}
        if api == "produce":
            row |= {"acks": chance.choice((0, 1, -1))}
        if api == "stop_replica":
            row |= {"error_code": chance.choice((0, 31))}
        rows.append(row)
    return rows


def same(one: AuditResult, other: AuditResult) -> None:
    assert one.quotas == other.quotas
    assert one.findings.to_pylist() == other.findings.to_pylist()
    assert one.quality == other.quality


@given(seed=st.integers(0, 50), cuts=st.lists(st.integers(0, 600), max_size=6), value=st.sampled_from([1, 40, 10**6]))
@settings(max_examples=examples(20), deadline=None)
def test_verdicts_are_a_function_of_the_rows(
    tmp_path_factory: pytest.TempPathFactory, seed: int, cuts: list[int], value: int
) -> None:
    """However they are cut into files."""
    rows, folder = many_rows(seed), tmp_path_factory.mktemp("cut")
    edges = [0, *sorted(cuts), len(rows)]
    for number, (start, end) in enumerate(pairwise(edges)):
        if end > start:
            write(folder / f"{number}.jsonl", rows[start:end])

    whole = of_rows(tmp_path_factory.mktemp("whole"), rows, everything(value))

    same(audit(plan_splits([str(folder)], "usage"), everything(value)), whole)
    lawful(whole.quotas, everything(value))


@pytest.mark.parametrize("value", [1, 10**6])
def test_every_engine_says_the_same(spark: Any, tmp_path: Path, value: int) -> None:
    """This process, two processes, Spark reading files, and a DataFrame of Spark's."""
    path = write(tmp_path / "usage.jsonl", many_rows(7))
    log = request_log(tmp_path)
    for file, dialect in ((path, "usage"), (log, "request-log")):
        splits = splits_of(dialect, file)
        one = audit(splits, everything(value))
        same(audit(splits, everything(value), processes=2), one)
        asked = AuditSettings(QuotaHistory.of(everything(value)), read=ReadSettings(broker="1"))
        same(job.audit(spark, splits, asked, "it"), one)
        if dialect == "usage":
            names = {"time_ms": "bigint", "strict": "boolean"} | dict.fromkeys(usage.TEXTS, "string")
            columns = ", ".join(f"{name} {names.get(name, 'bigint')}" for name in usage.COLUMNS)
            frame = spark.read.schema(columns).json(str(file))
            same(job.audit_dataframe(frame, asked), one)


AUDITING = {
    "audit": ([], ["-o", "json"], ["-o", "csv"], ["-o", "markdown"], ["--against", "old.json"]),
    "plan": ([], ["-o", "json"], ["-o", "markdown"]),
    "recommend": ([], ["-o", "json"], ["-o", "yaml"]),
}
"""The commands that judge recorded usage, and how they are called."""


def test_every_command_is_walked() -> None:
    """A new command that reads usage cannot be forgotten; 'simulate' and 'follow' show what requests came to."""
    context = click.Context(cli)
    judging = set()
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        names = {parameter.name for parameter in command.params} if command is not None else set()
        if "quotas" in names and names & {"paths", "usage"}:
            judging.add(name)
    assert judging - {"follow"} == AUDITING.keys()


@pytest.mark.parametrize(("command", "more"), [(name, more) for name, all_ in AUDITING.items() for more in all_])
def test_every_command_says_what_it_cannot_judge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, more: list[str]
) -> None:
    """A quota of an ip, and one of topics, over a table that holds neither; and a quota of nobody."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "usage.jsonl", [request(100 * number) for number in range(600)])

    def quotas(rate: int) -> QuotaSnapshot:
        return QuotaSnapshot(
            {
                Entity(user="alice"): {QuotaKey.PRODUCER_BYTE_RATE: 10**6, MUTATION: rate},
                Entity(user="zork"): {QuotaKey.PRODUCER_BYTE_RATE: rate},
                Entity(ip=DEFAULT): {CONNECTION: rate},
            }
        )

    for name, rate in (("old.json", 100), ("new.json", 2)):
        Path(name).write_text(to_json(quotas_document(quotas(rate))))
    arguments = {
        "audit": ["usage.jsonl", "--quotas", "new.json", "--fail-on", "throttled", "--fail-on", "undetermined"],
        "plan": ["new.json", "--quotas", "old.json", "--usage", "usage.jsonl", "--fail-on", "undetermined"],
        "recommend": ["usage.jsonl", "--quotas", "new.json"],
    }[command]

    done = CliRunner().invoke(cli, [command, *arguments, *more], standalone_mode=False)

    assert done.exception is None, done.exception
    assert int(done.return_value) == (0 if command == "recommend" else 1)
    said = done.output
    assert "the table has no ip column" in said
    assert "the table has no partitions column" in said
    if "json" in more:
        document = json.loads(done.stdout)
        Draft202012Validator(schema({"recommend": "recommendation"}.get(command, command))).validate(document)
        where = document["comparison"] if command == "plan" else document
        found = {(str(quota["entity"]), quota["key"]): quota["verdict"] for quota in where["quotas"]}
        assert found == {
            ("{'user': 'alice'}", "producer_byte_rate"): "not throttled",
            ("{'user': 'alice'}", "controller_mutation_rate"): "undetermined",
            ("{'user': 'zork'}", "producer_byte_rate"): "nobody seen",
            ("{'ip': {'default': True}}", "connection_creation_rate"): "undetermined",
        }
    else:
        assert "user=zork producer_byte_rate" in said
        assert "ip=<default> connection_creation_rate" in said.replace("\\<", "<").replace("\\_", "_")


def test_the_page_says_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "usage.jsonl", [request(100 * number) for number in range(30)])
    Path("q.json").write_text(to_json(quotas_document(everything(10**6))))

    arguments = ["audit", "usage.jsonl", "--quotas", "q.json", "--report", "r.html"]
    done = CliRunner().invoke(cli, arguments, standalone_mode=False)

    assert done.exception is None, done.exception
    page = Path("r.html").read_text()
    assert "the table has no ip column" in page
    assert "Nobody seen whom these govern" in page
