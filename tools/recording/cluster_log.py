"""Records the request logs of a cluster: `python -m tools.recording.cluster_log 4.4.0 --out FOLDER --seconds N`.

Starts a controller and two brokers, sets the quotas below, drives synthetic traffic against them for N seconds (after a
short prefill), changes the quotas twice meanwhile, and writes into the output folder what each node logged
(`NODE/kafka-request.log.gz`) and the quotas with the times of their changes (`quotas.json`). Clients are librdkafka's
and Java's, all on TLS; some of them create and delete topics faster than `controller_mutation_rate` lets them.
"""

import argparse
import contextlib
import json
import statistics as stats
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException

from kquota.backends.kafka import KafkaBackend
from kquota.core.change.history import QuotaHistory
from kquota.core.quotas.alteration import Alteration
from kquota.core.quotas.entity import DEFAULT, Entity, Name
from kquota.core.quotas.quota import QuotaKey
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.documents.history import history_document
from tests.support.processes import java
from tools.recording.cluster import CONTROLLER, RELEASES, KafkaCluster
from tools.recording.kept import keep, span, statistics
from tools.recording.traffic import Traffic, burst, create_topics, mutate, prefill, read_backlog, saturate, steady, tail

Quota = tuple[dict[str, Any], dict[str, float]]
"""An entity and the values that are set for it."""

_DEFAULT = {"default": True}
QUOTAS: tuple[Quota, ...] = (
    ({"client-id": _DEFAULT}, {"producer_byte_rate": 60_000}),
    ({"client-id": "feeder"}, {"producer_byte_rate": 50_000_000}),
    ({"user": _DEFAULT}, {"consumer_byte_rate": 300_000, "controller_mutation_rate": 1.5}),
    ({"user": "admin"}, {"controller_mutation_rate": 1_000}),
    ({"user": "alice"}, {"producer_byte_rate": 150_000}),
    ({"user": "grace"}, {"consumer_byte_rate": 50_000_000}),
    ({"user": "heidi"}, {"producer_byte_rate": 120_000}),
    ({"user": "bob", "client-id": "fraud-reader"}, {"consumer_byte_rate": 200_000}),
)
"""What is in force at first."""

CHANGES: tuple[tuple[Quota, ...], ...] = (
    (
        ({"user": "alice"}, {"producer_byte_rate": 90_000}),
        ({"user": _DEFAULT}, {"consumer_byte_rate": 200_000}),
    ),
    (
        ({"user": "alice"}, {"producer_byte_rate": 250_000}),
        # From here on this client has a counter of its own; before, it shared one with all users of its client-id.
        ({"user": "dave", "client-id": "web-edge"}, {"producer_byte_rate": 90_000}),
        ({"user": _DEFAULT}, {"consumer_byte_rate": 350_000, "controller_mutation_rate": 3}),
    ),
)
"""What is set while the traffic runs, after equal parts of it."""

TOPICS = {"history": (4, 1), "orders": (4, 2), "clicks": (4, 1), "metrics": (2, 1)}
PREFILL_BYTES = 150_000_000
_CLIENTS = Path(__file__).with_name("RecordedClients.java")


def change(cluster: KafkaCluster, quotas: Sequence[Quota]) -> int:
    """Sets quotas, all in one request. Returns when they took effect, in epoch ms, from the brokers' own logs."""
    asked_ms = round(time.time() * 1000) - 1
    with KafkaBackend(cluster.inside) as backend:
        alterations = [
            Alteration(entity_of(entity), {QuotaKey.parse(key): value for key, value in values.items()})
            for entity, values in quotas
        ]
        results = backend.alter(alterations)
        assert [result.error for result in results] == [None] * len(results)
    deadline = time.monotonic() + 10
    while len(moments := cluster.quota_changes(asked_ms)) < len(cluster.nodes):
        assert time.monotonic() < deadline, "a node did not log that its quotas changed"
        time.sleep(0.05)
    time.sleep(0.5)  # a change is several lines
    moments = cluster.quota_changes(asked_ms)
    print("quotas changed,", ", ".join(f"node {node}: {moment - asked_ms} ms" for node, moment in moments.items()))
    return round(stats.mean(moment for node, moment in moments.items() if node != CONTROLLER))


def entity_of(entity: Mapping[str, Any]) -> Entity:
    """The entity of a `Quota`."""

    def name(of: str | dict[str, bool] | None) -> Name | None:
        return DEFAULT if isinstance(of, dict) else of

    return Entity(user=name(entity.get("user")), client_id=name(entity.get("client-id")))


JAVA_CLIENTS = (
    ("heidi", "app", "produce {} clicks 4000"),
    ("heidi", "reader", "consume {} history 0,1,2,3"),
    ("carol", "report-1", "consume {} history 2,3"),
    ("ivan", "deploy", "mutate {} deploy 1200 false"),
    ("ivan", "ci", "mutate {} ci 2500 true"),
)
"""User, client-id and what they do (see `RecordedClients.java`)."""

WARM_UP = (
    ("grace", "feeder", "produce {} metrics 400"),
    ("grace", "archiver", "consume {} history 0,1,2,3"),
    ("admin", "setup", "mutate {} warm 100 false"),
)


@contextlib.contextmanager
def java_clients(cluster: KafkaCluster, clients: Sequence[tuple[str, str, str]]) -> Iterator[None]:
    """Java's producers, consumers and admins, while the block lasts. Raises RuntimeError when one of them failed."""
    folder = cluster.authority.parent
    arguments = []
    for user, client_id, text in clients:
        path = folder / f"{user}-{client_id}.properties"
        settings = {**cluster.java_client(user), "client.id": client_id}
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        arguments.append(text.format(path))
    with (folder / "java-clients.log").open("w+") as said:
        command = [java(), "-Xmx256m", "-XX:+UseSerialGC", "-cp", f"{cluster.release.jars()}/*", str(_CLIENTS)]
        process = subprocess.Popen([*command, *arguments], stdin=subprocess.PIPE, stdout=said, stderr=said, text=True)
        try:
            yield
        finally:
            failed = process.poll()
            process.communicate()
        if failed is not None:
            said.seek(0)
            raise RuntimeError(f"the Java clients ended too early:\n{said.read()[-2000:]}")


def drive(cluster: KafkaCluster, seconds: float) -> list[int]:
    """All the traffic of a recording. Returns when each of `CHANGES` took effect, in epoch ms."""
    traffic = Traffic(cluster)
    create_topics(traffic, TOPICS)
    prefill(traffic, PREFILL_BYTES)
    # Java's kinds of line once before they count, as those of librdkafka in the prefill.
    with java_clients(cluster, WARM_UP):
        traffic.stop.wait(8)
    moments = []
    with java_clients(cluster, JAVA_CLIENTS):
        traffic.start(saturate, "alice", "billing-1", "orders", 6_000, 30, 5)
        traffic.start(steady, "alice", "billing-2", "orders", 700, 20, 0.3, "all")
        traffic.start(burst, "alice", "billing-3", "orders", 40_000, 15, 20)
        traffic.start(steady, "dave", "web-edge", "clicks", 3_500, 38, 0.25, "1")
        traffic.start(steady, "erin", "sensor-gw", "metrics", 3_000, 45, 0.4, "0")
        traffic.start(read_backlog, "bob", "fraud-reader", (0, 1), 50_000, 25_000)
        traffic.start(tail, "carol", "report-2", ["orders"], 40_000)
        traffic.start(mutate, "judy", "terraform", "job", 1.0)
        for quotas in CHANGES:
            traffic.stop.wait(seconds / (len(CHANGES) + 1))
            moments.append(change(cluster, quotas))
        traffic.stop.wait(seconds / (len(CHANGES) + 1))
        traffic.finish()
    return moments


def main(argv: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.recording.cluster_log", description=__doc__)
    parser.add_argument("release", choices=sorted(RELEASES))
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--seconds", type=float, default=100, help="length of the traffic")
    options = parser.parse_args(argv)
    with KafkaCluster(RELEASES[options.release]) as cluster:
        change(cluster, QUOTAS)
        moments = drive(cluster, options.seconds)
        for node in cluster.nodes:
            name = f"controller-{node}" if node == CONTROLLER else f"broker-{node}"
            lines = keep(cluster.request_log(node), options.out / name)
            apis, throttled, by_client = statistics(lines)
            print(f"{name}: {len(lines)} requests in {span(lines)} s, {throttled} throttled")
            for what, count in [*apis.most_common(), *by_client.most_common()]:
                print(f"{count:8} {what}")
    document = json.dumps(history_document(history(moments)), indent=2)
    (options.out / "quotas.json").write_text(document + "\n", encoding="utf-8")
    return 0


def history(moments: Sequence[int]) -> QuotaHistory:
    """What was in force at first, and from each of these moments (epoch ms) on."""
    values: dict[Entity, dict[QuotaKey, float]] = {}
    snapshots = []
    for quotas in (QUOTAS, *CHANGES):
        for entity, changed in quotas:
            added = {QuotaKey.parse(key): value for key, value in changed.items()}
            values[entity_of(entity)] = {**values.get(entity_of(entity), {}), **added}
        snapshots.append(QuotaSnapshot(values))
    return QuotaHistory(tuple(snapshots), tuple(moments))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KafkaException as error:
        sys.exit(f"kafka: {error}")
