"""The workload document: what it means, and what is wrong with it."""

import re
from pathlib import Path

import pytest

from kquota import DEFAULT, Entity, InputError, QuotaKey, QuotaSnapshot
from kquota.core.quotas.version import NEWEST, Version
from kquota.core.simulation.workload import Brokers, Burst, Change, Client, Workload, enforced_workload, plan
from kquota.documents.workload import read_workload
from tests.support.data import data_text, wrong_documents


def written(folder: Path, body: str) -> Path:
    path = folder / "workload.yaml"
    path.write_text(f"kind: kquota.workload\nversion: 1\n{body}", encoding="utf-8")
    return path


def test_everything_is_read(tmp_path: Path) -> None:
    """Units, defaults, and the names that differ from the fields."""
    path = written(
        tmp_path,
        data_text("documents/workload.yaml"),
    )

    file = read_workload(path)

    assert file.kafka_version == "3.7"
    assert file.quotas == QuotaSnapshot({Entity(user="alice"): {QuotaKey.PRODUCER_BYTE_RATE: 1_000_000}})
    assert file.workload == Workload(
        3_600_000,
        (
            Client("app", "produce", "alice", "app", pace=50.0, size=20_000, nanos=200_000, acks=0, closed=False),
            Client("etl", "fetch", pace=2.0, size=16_000, backlog=10**9, max_bytes=2**20, random=True),
            Client("t", "create-topics", pace=0.5, topics=3, partitions=8, strict=False),
            Client(
                "m", "metadata", think_ms=20, stop_ms=300_000, bursts=(Burst(60_000, 5_000, 3.0, every_ms=120_000),)
            ),
        ),
        Brokers(
            names=("broker-0", "broker-1"),
            windows=file.workload.brokers.windows,
            listeners={"SASL_SSL": 20, "PLAIN": None},
            inter_broker_listener="PLAIN",
        ),
        (
            Change(90_000, Entity(user="alice"), {QuotaKey.PRODUCER_BYTE_RATE: 2 * 2**20}),
            Change(1_800_000, Entity(user=DEFAULT), {QuotaKey.REQUEST_PERCENTAGE: None}),
        ),
        seed=9,
        scrape_ms=15_000,
    )
    assert file.workload.brokers.windows.samples == 5


@pytest.mark.parametrize(("body", "says"), wrong_documents("documents/wrong_workloads.yaml"))
def test_what_is_wrong_is_one_line(tmp_path: Path, body: str, says: str) -> None:
    path = written(tmp_path, body)

    with pytest.raises(InputError, match=re.escape(says)) as caught:
        read_workload(path)

    assert caught.value.message.startswith(str(path))
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("key", ["total", "backlog"])
def test_how_much_in_all_is_requests_of_a_size(tmp_path: Path, key: str) -> None:
    path = written(tmp_path, f"duration: 1h\nclients: [{{api: produce, {key}: 5GB}}]")

    with pytest.raises(InputError) as caught:
        read_workload(path)

    assert "'requests' of one 'size': size: 100kB, requests: 50000 are 5 GB" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("typo", "meant"),
    [("create-topic", "create-topics"), ("make-topics", "create-topics"), ("prodcue", "produce"), ("Meta", "metadata")],
)
def test_a_request_that_kafka_does_not_have(tmp_path: Path, typo: str, meant: str) -> None:
    """A slip gives no clean bill: it is refused, with the name that was meant."""
    path = written(tmp_path, f"duration: 1h\nclients: [{{api: {typo}, pace: 1}}]")

    with pytest.raises(InputError) as caught:
        read_workload(path)

    assert caught.value.hint == f"did you mean {meant}?"


def test_so_many_requests_and_no_more(tmp_path: Path) -> None:
    """At the pace, whatever its segments; without a pace they are all there at the start."""
    body = (
        "duration: 1h\nclients:\n"
        "  - {name: once, api: create-topics, requests: 1, topics: 30, partitions: 10, start: 5s}\n"
        "  - {name: paced, api: produce, pace: 10, requests: 55, ramp: 2s, bursts: [{at: 3s, length: 1s, factor: 3}]}\n"
    )
    workload = read_workload(written(tmp_path, body)).workload

    once, paced = (plan(client, workload.stop_of(client)) for client in workload.clients)

    assert [(segment.start, segment.end, segment.after) for segment in once] == [(5000.0, 5001.0, 1.0)]
    assert [segment.after for segment in paced] == pytest.approx([10, 20, 50, 55])
    assert [segment.rate for segment in paced] == pytest.approx([0, 0.01, 0.03, 0.01])


@pytest.mark.parametrize("version", [(3, 7, 0), NEWEST])
@pytest.mark.parametrize("api", ["stop-replica", "ControlledShutdown", "LeaderAndIsr", "update-metadata"])
def test_requests_among_brokers_are_exempt(tmp_path: Path, api: str, version: Version) -> None:
    """KIP-124 exempts them: brokers count their thread time, and charge nobody. A heartbeat is charged as anybody's."""
    body = "duration: 1min\nclients:\n"
    for name in (api, "Heartbeat"):
        body += f"  - {{api: {name}, pace: 1, request_time: 50ms, request_time_per_mib: 2ms, network_time: 1ms}}\n"

    workload, _ = enforced_workload(read_workload(written(tmp_path, body)).workload, version)

    assert [client.exempt for client in workload.clients] == [True, False]
    for client in workload.clients:
        assert (client.nanos, client.nanos_per_mib, client.network_nanos) == (50_000_000, 2_000_000, 1_000_000)


def test_a_plan_is_made_of_segments() -> None:
    """A ramp, then the pace, then a burst in it; each segment goes on where the last one ended."""
    client = Client("p", "produce", pace=100, size=1, start_ms=1_000, ramp_ms=2_000, bursts=(Burst(5_000, 1_000, 3.0),))

    segments = plan(client, 10_000)

    assert [segment.start for segment in segments] == [1000, 3000, 5000, 6000]
    assert [segment.end for segment in segments] == [3000, 5000, 6000, 10_000]
    assert [segment.rate for segment in segments] == pytest.approx([0, 0.1, 0.3, 0.1])
    assert [segment.end_rate for segment in segments] == pytest.approx([0.1, 0.1, 0.3, 0.1])
    assert [segment.before for segment in segments] == pytest.approx([0, 100, 300, 600])
    assert [segment.after for segment in segments] == pytest.approx([100, 300, 600, 1000])
