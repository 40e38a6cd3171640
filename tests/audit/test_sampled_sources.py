"""What the sources of samples make of real exports, and of broken ones."""

import gzip
import json
import random
from collections.abc import Mapping
from pathlib import Path

import pytest

from kquota import Entity, QuotaKey
from kquota.audit.batch import Tally
from kquota.audit.sources import ReadSettings, kafka_jmx, openmetrics, plan_splits, prometheus
from kquota.audit.sources import read as read_split
from kquota.audit.sources.files import File
from kquota.audit.sources.lost import Lost
from kquota.audit.sources.samples import Samples
from kquota.metrics.exposition import labels_of
from kquota.metrics.series import Nature, Series, Swallowed, of_labels, of_mbean
from tests.support.data import data_rows

DATA = Path(__file__).parents[1] / "data" / "samples"
PRODUCE, FETCH, REQUEST = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE
RATE, THROTTLE = Nature.RATE, Nature.THROTTLE
ODD_USER, ODD_CLIENT = "team a/ci*", 'ingest,"eu"'

COUNTERS = {
    (PRODUCE, "alice", None),
    (PRODUCE, "bob", "etl"),
    (PRODUCE, None, "sensor-gw"),
    (PRODUCE, None, "web-edge"),
    (PRODUCE, ODD_USER, ODD_CLIENT),
    (FETCH, "carol", None),
    *((REQUEST, user, None) for user in ("ANONYMOUS", "alice", "bob", "carol", "dave", "erin", "frank", ODD_USER)),
}
"""What the recorded broker counted."""


def read(module: object, path: Path, broker: str | None = "1") -> tuple[list[Samples], Tally]:
    """All samples in a file, and what could not be read."""
    tally = Tally()
    samples = [
        each
        for split in module.splits(File(str(path), path.stat().st_size))  # type: ignore[attr-defined]
        for each in module.read(split, ReadSettings(broker=broker), tally)  # type: ignore[attr-defined]
    ]
    return samples, tally


def counters(samples: list[Samples], nature: Nature) -> set[tuple[QuotaKey, str | None, str | None]]:
    """(key, user, client-id) of the series of one nature, controller mutations aside."""
    found = {
        s.series for s in samples if s.series.nature is nature and s.series.key.value != "controller_mutation_rate"
    }
    return {(series.key, series.user, series.client_id) for series in found}


@pytest.mark.parametrize(
    ("module", "file", "length"),
    [
        (kafka_jmx, "kafka-jmx.csv", 18),
        (kafka_jmx, "kafka-jmx-lines.csv", 6),
        (prometheus, "prometheus-raw.json", 18),
        (prometheus, "prometheus-range.json", 6),
        (prometheus, "prometheus-instant.json", 1),
        (openmetrics, "federate.prom", 1),
    ],
)
def test_a_recorded_export(module: object, file: str, length: int) -> None:
    """Every tool shows the same counters, each with its rates and throttle times, and nothing is rejected."""
    samples, tally = read(module, DATA / file)

    assert tally.rejects == []
    assert counters(samples, RATE) == counters(samples, THROTTLE) == COUNTERS
    assert {len(each) for each in samples} >= {length}
    alice = next(each for each in samples if each.series == Series("1", PRODUCE, RATE, "alice", None))
    assert 55_000 < alice.values.min() <= alice.values.max() < 75_000
    bob = next(each for each in samples if each.series == Series("1", PRODUCE, THROTTLE, "bob", "etl"))
    assert set(bob.values) == {0.0}


@pytest.mark.parametrize(
    ("file", "ceiling"),
    [("prometheus-raw.json", True), ("prometheus-range.json", False), ("prometheus-instant.json", False)],
)
def test_prometheus_in_steps_is_told_from_readings(file: str, ceiling: bool) -> None:
    """A step repeats the last reading: that nothing lay between does not follow from it."""
    samples, _ = read(prometheus, DATA / file)

    assert {each.ceiling for each in samples} == {ceiling}


@pytest.mark.parametrize("rules", ["resource", "named", "swallowed"])
def test_the_rules_of_the_exporter(rules: str, tmp_path: Path) -> None:
    """With timestamps, as Prometheus would keep it, each set of rules gives what it has."""
    scrape = (DATA / f"scrape-{rules}.prom").read_text()
    stamped = "".join(f"{line} 1700000000000\n" for line in scrape.splitlines() if not line.startswith("#"))
    (tmp_path / "x.prom").write_text(stamped)

    samples, tally = read(openmetrics, tmp_path / "x.prom")

    by_user = {counter for counter in COUNTERS if counter[1] is not None and counter[2] is None}
    assert counters(samples, RATE) == (COUNTERS - by_user if rules == "swallowed" else COUNTERS)
    assert tally.rejects == []


def test_a_scrape_without_timestamps_is_rejected() -> None:
    """When it was read is not known."""
    samples, tally = read(openmetrics, DATA / "scrape-resource.prom")

    assert samples == []
    assert {reject.reason for reject in tally.rejects} == {"no timestamp: when it was read is not known"}


def labels(series: str) -> dict[str, str]:
    """The labels of a series as a scrape prints it."""
    name, _, rest = series.partition("{")
    return {"__name__": name} | labels_of(rest)


@pytest.mark.parametrize(("series", "key", "nature", "user", "client_id", "part"), data_rows("samples/dialects.txt"))
def test_a_dialect_of_labels(series: str, key: str, nature: str, user: str, client_id: str, part: str) -> None:
    """Whose labels they are does not matter."""
    who, client = (None if name == "-" else name for name in (user, client_id))
    assert of_labels(labels(series), "b") == Series("b", QuotaKey(key), Nature[nature], who, client, part.strip("-"))


def test_a_quoted_name_in_a_label() -> None:
    client_id = {"clientId": '"a:\\"b\\*\\\\\\nc"'}
    found = of_labels({"__name__": "kafka_server_quota_throttle_time", "resource": "Fetch"} | client_id, "b")
    assert found == Series("b", FETCH, THROTTLE, None, 'a:"b*\\\nc')


@pytest.mark.parametrize(
    "series",
    [
        'redpanda_kafka_quotas_client_quota_throughput_sum{redpanda_quota_rule="x"}',
        'kafka_server_quota_tokens{resource="ControllerMutation",user="u"}',
        'kafka_server_quota_byte_rate{resource="Produce"}',
        *("kafka_server_produce_queue_size", "up"),
    ],
)
def test_what_is_no_counter_of_a_quota(series: str) -> None:
    assert of_labels(labels(series), "b") is None


@pytest.mark.parametrize(
    ("labels", "broker"),
    [
        ({"broker": "3", "pod": "p", "instance": "i:1"}, "3"),
        ({"pod": "p", "instance": "i:1"}, "p"),
        ({"instance": "i:1"}, "i:1"),
        ({}, ""),
    ],
)
def test_the_label_that_names_the_broker(labels: Mapping[str, str], broker: str) -> None:
    """Where the caller does not."""
    series = of_labels({**labels, "__name__": "kafka_server_produce_byte_rate", "user": "u"}, None)

    assert series is not None
    assert series.broker == broker


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        ({"__name__": "kafka_server_quota_byte_rate", "user": "u"}, "no label says which quota it is about"),
        ({"__name__": "kafka_server_quota_byte_rate", "resource": "Leader", "user": "u"}, "'Leader'"),
        ({"__name__": "kafka_server_fetch_request_time", "user": "u"}, "fetch has no request_time"),
    ],
)
def test_labels_that_no_rule_makes(labels: Mapping[str, str], reason: str) -> None:
    """They are rejected, not guessed at."""
    with pytest.raises(ValueError, match=reason):
        of_labels(labels, "b")


@pytest.mark.parametrize(
    ("name", "series"),
    [
        ("kafka.server:type=Produce,user=a%2Cb,client-id=c:byte-rate", Series("1", PRODUCE, RATE, "a,b", "c")),
        (
            'kafka.server:type=Fetch,client-id="a:b,\\"c\\"":throttle-time',
            Series("1", FETCH, THROTTLE, None, 'a:b,"c"'),
        ),
        ("kafka.server:type=Fetch:queue-size", None),
        ("kafka.server:type=Request:exempt-request-time", None),
        ("kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec:Count", None),
    ],
)
def test_an_mbean(name: str, series: Series | None) -> None:
    """As JmxTool prints its name."""
    assert of_mbean(name, "1") == series


@pytest.mark.parametrize(
    ("module", "text", "reason"),
    [
        (prometheus, '{"status": "error", "error": "bad query"}', "Prometheus answered with an error: bad query"),
        (prometheus, '{"data": {"resultType": "scalar", "result": [1, "2"]}}', "not an answer of Prometheus"),
        (prometheus, '{"data": {"resultType": "matrix", "result": [{"metric": 1}]}}', "not a series"),
        (prometheus, "[1, 2", "not JSON"),
        (openmetrics, "kafka_server_produce_byte_rate{user=} 1 2\n", "not a line of a scrape"),
        (openmetrics, 'kafka_server_produce_byte_rate{user="u"} x 1700000000000\n', "not a number"),
        (openmetrics, 'kafka_server_produce_byte_rate{user="u"} 1 17\n', "not one between 2001 and 2100"),
        (openmetrics, 'kafka_server_produce_byte_rate{user="u"} -1 1700000000\n', "-1 is not a rate"),
        (prometheus, '{"metric":{"__name__":"x"},"values":[1],"timestamps":[1,2]}\n', "2 timestamps for 1 values"),
        (kafka_jmx, '"time","kafka.server:type=Produce,user=u:byte-rate"\n1700000000000\n', "0 values instead of 1"),
        (kafka_jmx, 'kafka.server:type=Produce,user=u:byte-rate,"1"\n', "no time before it"),
        (kafka_jmx, "time,\"noon\"\n", "noon is not a time"),
    ],
)  # fmt: skip
def test_a_record_that_cannot_be_read(tmp_path: Path, module: object, text: str, reason: str) -> None:
    """It is kept with its reason."""
    (tmp_path / "x").write_text(text)

    samples, tally = read(module, tmp_path / "x")

    assert samples == []
    assert [reason in reject.reason for reject in tally.rejects] == [True]
    assert tally.rejects[0].place.startswith("line ")


def test_garbage_costs_only_itself(tmp_path: Path) -> None:
    """5 % of the lines of a scrape are damaged: exactly these are lost. Gzip is read as it is."""
    random_numbers = random.Random(1)
    lines = [
        f'kafka_server_produce_byte_rate{{user="u{number % 7}"}} {number} {1_700_000_000_000 + number}'
        for number in range(2000)
    ]
    damaged = sorted(random_numbers.sample(range(2000), 100))
    for number in damaged:
        lines[number] = lines[number][: random_numbers.randrange(1, 60)] + "\x00"
    with gzip.open(tmp_path / "x.prom.gz", "wt") as file:
        file.write("\n".join(lines) + "\n# EOF\n")

    samples, tally = read(openmetrics, tmp_path / "x.prom.gz")

    assert sum(len(each) for each in samples) == 1900
    assert [reject.place for reject in tally.rejects] == [f"line {number + 1}" for number in damaged]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ('{"data": {"resultType": "vector", "result": [{"metric": {}, "value": [' + "1" * 5000 + ', "1"]}]}}',
         "a number has too many digits"),
        ('{"data": {"resultType": "vector", "result": ' + "[" * 100_000 + "]" * 100_000 + "}}", "nested too deeply"),
    ],
    ids=["many digits", "nested"],
)  # fmt: skip
def test_an_answer_that_python_cannot_read_costs_itself(tmp_path: Path, bad: str, reason: str) -> None:
    """The answers around it are read."""
    answer = (DATA / "prometheus-instant.json").read_text()
    (tmp_path / "x.json").write_text(f"{answer}\n{bad}\n{answer}")

    samples, tally = read(prometheus, tmp_path / "x.json")

    once, _ = read(prometheus, DATA / "prometheus-instant.json")
    assert len(samples) == 2 * len(once) > 0
    assert [(reject.place, reject.reason) for reject in tally.rejects] == [
        (f"line {answer.count(chr(10)) + 2}", f"not JSON: {reason}")
    ]


NAME = "kafka.server:type=Produce,user=web,client-id=app:byte-rate"
TIMES = [1_757_921_650_000 + 10_000 * number for number in range(3)]
DATED = ["2025-09-15 07:34:10", "2025-09-15 07:34:20", "2025-09-15 07:34:30"]
LABELS = '{clientId="app",resource="Produce",user="web"}'
SORTED = "kafka.server:client-id=app,type=Produce,user=web"


def answer(bean: str, value: object, time_ms: int) -> str:
    """What Jolokia answers to a read."""
    asked = {"mbean": bean, "type": "read"}
    return json.dumps({"request": asked, "value": value, "timestamp": time_ms // 1000, "status": 200}) + "\n"


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"time\t{time}\n{NAME}\t150.5\n" for time in TIMES),
        "".join(f"time={time}\n{NAME}=150.5\n" for time in TIMES),
        f'"time","{NAME}"\n' + "".join(f"{time},150.5\n" for time in DATED),
        f'"time","{NAME}"\n' + "".join(f'"{time}","150.5"\n' for time in TIMES),
        "".join(answer("kafka.server:type=Produce,*", {SORTED: {"byte-rate": 150.5}}, time) for time in TIMES),
        "[" + ",".join(answer(NAME.rpartition(":")[0], {"byte-rate": 150.5}, time) for time in TIMES) + "]",
        "".join(f"kafka_server_quota_byte_rate{LABELS} => 150.5 @[{time / 1000}]\n" for time in TIMES),
        f"kafka_server_quota_byte_rate{LABELS} =>\n" + "".join(f"150.5 @[{time / 1000}]\n" for time in TIMES),
        '{"metric":{"__name__":"kafka_server_quota_byte_rate","clientId":"app","resource":"Produce","user":"web"},'
        f'"values":[150.5,150.5,150.5],"timestamps":{TIMES}}}\n',
    ],
    ids=["tsv", "properties", "dates", "quoted", "Jolokia", "in bulk", "promtool", "promtool range", "VictoriaMetrics"],
)  # fmt: skip
def test_a_form_of_another_tool(tmp_path: Path, text: str) -> None:
    """It is known for what it is, and read."""
    path = tmp_path / "samples.txt"
    path.write_text(text)
    tally = Tally()

    splits = plan_splits([str(path)], "auto")
    samples = [each for split in splits for each in read_split(split, ReadSettings(broker="b"), tally)]

    assert tally.rejects == []
    assert {each.series for each in samples if isinstance(each, Samples)} == {Series("b", PRODUCE, RATE, "web", "app")}
    times = [time for each in samples if isinstance(each, Samples) for time in each.end_ms.tolist()]
    assert times == pytest.approx(TIMES, rel=0, abs=500)  # a date without a fraction is of any time in its second


@pytest.mark.parametrize(
    "name",
    [
        "kafka_server_Produce_user_bob_byte_rate",
        "kafka_server_produce_user_a_b_byte_rate",
        "kafka_server_Produce_client_id_app_byte_rate",
        "kafka_server_Produce_bob_byte_rate",
    ],
)
def test_a_user_in_the_name_of_a_metric_is_said(tmp_path: Path, name: str) -> None:
    """With the kind of rule that did it; nobody is said to be unseen by it."""
    path = tmp_path / "x.prom"
    path.write_text(f'{name}{{client_id="app"}} 150000 1757921650000\n')
    with pytest.raises(Swallowed, match=r"type=.*kquota generate jmx-exporter"):
        of_labels({"__name__": name, "client_id": "app"}, "1")

    tally = read(openmetrics, path)[1]

    assert len(tally.rejects) == 1
    assert Lost(tally.noted).may_be_governed(Entity(user="bob"), PRODUCE)
    assert not Lost(tally.noted).may_be_governed(Entity(user="bob"), FETCH)
