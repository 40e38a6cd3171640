"""The exporter: one join with the brokers' own series, bounded, and never silently stale."""

import re
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kquota import DEFAULT, Entity, InputError, KquotaError, QuotaKey, QuotaSnapshot, Unreachable
from kquota.core.change.plan import plan
from kquota.documents.quotas import read_quotas
from kquota.live.exporter import Exporter, exposition, serve
from kquota.live.sources import Page, Pages
from kquota.live.watching import View, Watching
from kquota.metrics.exposition import labels_of, parse
from kquota.metrics.series import IDENTITY, Nature, of_live_labels

SAMPLES = Path(__file__).parents[1] / "data" / "samples"
QUOTAS = read_quotas(SAMPLES / "quotas.json")
PRODUCE = QuotaKey.PRODUCER_BYTE_RATE


def pages(*files: Path) -> Pages:
    return Pages(tuple(Page(None, str(file)) for file in files))


def exported(exporter: Exporter, now_ms: int = 5000) -> dict[str, list[tuple[Mapping[str, str], float]]]:
    """The metrics as a Prometheus reads them, without the prefix."""
    text = exposition(exporter.families(now_ms), exporter.labels)
    return {
        family.name.removeprefix("kquota_"): [(sample.labels, sample.value) for sample in family.samples]
        for family in text_string_to_metric_families(text)
    }


def of_pages(source: Pages, most_series: int = 10_000) -> Exporter:
    exporter = Exporter(lambda: QUOTAS, Watching(source).look, most_series=most_series)
    exporter.refresh(1000, KquotaError)
    return exporter


@pytest.mark.parametrize("name", ["resource", "named", "swallowed", "openmetrics"])
def test_every_limited_series_of_the_brokers_has_one_limit_by_its_own_labels(name: str) -> None:
    """In each dialect, the broken one included, and so with inherited defaults, odd names and shared counters."""
    file = SAMPLES / ("federate.prom" if name == "openmetrics" else f"scrape-{name}.prom")
    exporter = of_pages(pages(file))
    limits = exported(exporter)["limit"]
    joined = 0
    for line in file.read_text().splitlines():
        parts = parse(line) if line.startswith("kafka_") else None
        labels = {} if parts is None else {**labels_of(parts.labels), "__name__": parts.name}
        series = of_live_labels(labels, "1") if labels else None
        if series is None or series.nature is not Nature.RATE:
            continue
        identity = {label: labels.get(label, "") for label in IDENTITY}
        found = [
            value
            for limit, value in limits
            if limit["key"] == series.key.value and {label: limit.get(label, "") for label in IDENTITY} == identity
        ]
        expected = {
            (PRODUCE, None, "sensor-gw"): 40_000,
            (PRODUCE, None, "web-edge"): 40_000,
            (PRODUCE, "alice", None): 60_000,
            (PRODUCE, "bob", "etl"): 1_000_000,
            (PRODUCE, "team a/ci*", 'ingest,"eu"'): 1_000_000,
            (QuotaKey.CONSUMER_BYTE_RATE, "carol", None): 100_000,
            (QuotaKey.REQUEST_PERCENTAGE, "frank", None): 0.5,
        }.get((series.key, series.user, series.client_id))
        assert found == ([] if expected is None else [expected])
        joined += len(found)
    assert joined >= 4


def test_the_limits_are_bounded_and_the_rest_is_summed() -> None:
    exporter = of_pages(pages(SAMPLES / "scrape-resource.prom"), most_series=2)
    metrics = exported(exporter)

    # Those that are throttled or nearest to their limits are kept.
    assert [labels.get("user") or labels["clientId"] for labels, _ in metrics["limit"]] == ["carol", "frank"]
    left_out = {labels["key"]: value for labels, value in metrics["left_out_counters"]}
    assert sum(left_out.values()) == 5
    whole = exported(of_pages(pages(SAMPLES / "scrape-resource.prom")))
    sums = {labels["key"]: value for labels, value in metrics["left_out_limit"]}
    for key in left_out:
        kept = sum(value for labels, value in metrics["limit"] if labels["key"] == key)
        assert sums[key] + kept == sum(value for labels, value in whole["limit"] if labels["key"] == key)


def test_a_lost_cluster_leaves_the_metrics_with_their_age() -> None:
    answers: list[QuotaSnapshot | KquotaError] = [QUOTAS, Unreachable("no broker answers")]

    def read() -> QuotaSnapshot:
        answer = answers.pop(0)
        if isinstance(answer, KquotaError):
            raise answer
        return answer

    exporter = Exporter(read, Watching(pages(SAMPLES / "scrape-resource.prom")).look)
    exporter.refresh(1_000)
    before = exported(exporter, 1_000)["limit"]
    exporter.refresh(61_000)
    metrics = exported(exporter, 62_000)

    assert exporter.errors == {"quotas": "no broker answers"}
    assert metrics["limit"] == before
    assert ({"part": "quotas"}, 0) in metrics["part_up"]
    assert ({"part": "quotas"}, 61.0) in metrics["age_seconds"]
    # The metrics were read again, beside the quotas of before.
    assert ({"part": "metrics"}, 1.0) in metrics["age_seconds"]


def test_what_was_never_read_is_not_exported() -> None:
    def read() -> QuotaSnapshot:
        raise Unreachable("no broker answers")

    exporter = Exporter(read, labels={"cluster": "prod"})
    exporter.refresh(1000)
    metrics = exported(exporter)

    assert metrics["part_up"] == [({"part": "quotas", "cluster": "prod"}, 0)]
    assert "limit" not in metrics
    assert metrics["age_seconds"] == []
    with pytest.raises(Unreachable):
        exporter.refresh(2000, KquotaError)


def test_drift_and_leases() -> None:
    live = QuotaSnapshot({Entity(user="alice"): {PRODUCE: 1}, Entity(user="bob"): {PRODUCE: 1}})
    wanted = QuotaSnapshot({Entity(user="alice"): {PRODUCE: 2}, Entity(user=DEFAULT): {PRODUCE: 9}})
    exporter = Exporter(
        lambda: live,
        read_drift=lambda snapshot: plan(snapshot, wanted, prune=True),
        read_leases=lambda: {"20261122T000000Z-abc-1": 7_000},
    )
    exporter.refresh(1000, KquotaError)
    metrics = exported(exporter)

    assert metrics["drift_entities"] == [({"state": state}, 1) for state in ("absent", "different", "unexpected")]
    assert metrics["lease_expires_timestamp_seconds"] == [({"entry": "20261122T000000Z-abc-1"}, 7.0)]
    assert metrics["entities"] == [({}, 2)]


def test_it_serves_what_it_exports() -> None:
    exporter = of_pages(pages(SAMPLES / "scrape-named.prom"))
    stop, port = serve(exporter, "127.0.0.1", 0, lambda: 3000)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=300) as answer:
            text = answer.read().decode()
        with pytest.raises(InputError, match="cannot listen on"):
            serve(exporter, "127.0.0.1", port, lambda: 3000)
    finally:
        stop()

    assert re.search(r'^kquota_age_seconds\{part="quotas"\} 2\.0$', text, re.M)
    assert 'kquota_limit{entity="user=alice",key="producer_byte_rate",level="user",user="alice"} 60000.0' in text


def test_time_until_throttled_needs_two_looks(tmp_path: Path) -> None:
    page = tmp_path / "broker-1.prom"
    watching = Watching(pages(page))
    line = 'kafka_server_quota_byte_rate{{resource="Produce",user="alice"}} {} {}\n'

    def look(rate: int, time_ms: int) -> View:
        page.write_text(line.format(rate, time_ms))
        return watching.look(QUOTAS)

    first = look(20_000, 1_700_000_000_000)
    second = look(30_000, 1_700_000_002_000)

    assert first.uses[0].until_throttled_s is None
    assert second.uses[0].until_throttled_s == 6.0  # 5,000 more each second, 30,000 to go
    assert second.uses[0].counter.broker == "broker-1"


def test_the_bytes_of_redpanda_become_a_rate_and_shards_are_added_up(tmp_path: Path) -> None:
    page = tmp_path / "rp.prom"
    watching = Watching(pages(page))
    labels = 'redpanda_quota_type="produce_quota",redpanda_quota_user="alice"'
    name = "redpanda_kafka_quotas_client_quota_throughput_by_entity_total"
    found = []
    for time_ms, one, other in ((1_700_000_000_000, 0, 1000), (1_700_000_010_000, 100_000, 301_000)):
        page.write_text(
            f'{name}{{{labels},shard="0"}} {one} {time_ms}\n{name}{{{labels},shard="1"}} {other} {time_ms}\n'
        )
        (use,) = watching.look(QUOTAS).uses
        found.append((use.observed.rate, use.limit))

    assert found == [(None, 60_000), (40_000.0, 60_000)]


@pytest.mark.parametrize(
    ("text", "page"),
    [
        ("http://b:7071/metrics", Page(None, "http://b:7071/metrics")),
        ("1=http://b:7071/metrics?a=b", Page("1", "http://b:7071/metrics?a=b")),
        ("http://b:7071/metrics?a=b", Page(None, "http://b:7071/metrics?a=b")),
        ("b1=page.prom", Page("b1", "page.prom")),
    ],
)
def test_pages_as_they_are_written(text: str, page: Page) -> None:
    assert Page.parse(text) == page
