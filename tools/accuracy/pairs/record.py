"""Records one run of a pair: `python -m tools.accuracy.pairs.record --quotas tight --out FOLDER`.

The workload of `workload.py` runs on a real broker (or on three) under one of its sets of quotas, or under those of a
file. Schedules last `--seconds`; then the clients send and read what is left, until all are done or `--until` seconds
are over. Into the folder go each broker's request log with times in µs (`BROKER/kafka-request.log.gz`), the quotas that
were in force (`quotas.json`), and what each client met (`facts.json`). One run at a time: two on one machine disturb
each other. On three brokers the leader of each partition is pinned, and producers draw the partition of each record
from their name, as keys would: so each broker gets the same records in each run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kquota.backends.kafka import KafkaBackend
from kquota.core.quotas.alteration import Alteration
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.documents.quotas import quotas_document, read_quotas
from tests.brokers.kafka import COORDINATES, VERSION, KafkaBroker
from tests.brokers.maven import retrieve
from tests.brokers.nodes import MICROSECONDS
from tests.support.processes import java
from tools.accuracy.pairs.clients import Run, launch, schedule
from tools.accuracy.pairs.measure import Recording, recommendations
from tools.accuracy.pairs.workload import (
    BACKLOG_RECORDS,
    CLIENTS,
    JAVA,
    SETS,
    Client,
    quotas,
    topics,
)
from tools.recording.cluster import CONTROLLER, RELEASES, KafkaCluster
from tools.recording.kept import keep, statistics

_JAVA_CLIENTS = Path(__file__).with_name("PairClients.java")
_RELEASE = "4.4.0"
"""Of the cluster of several brokers."""
_SETTINGS = {"transaction.state.log.num.partitions": "2", "offsets.topic.num.partitions": "2"}


@contextlib.contextmanager
def started(brokers: int) -> Iterator[KafkaBroker | KafkaCluster]:
    """A broker, or a cluster of several."""
    if brokers == 1:
        with KafkaBroker(heap="1g", log_time=MICROSECONDS, settings=_SETTINGS) as one:
            yield one
    else:
        with KafkaCluster(RELEASES[_RELEASE], brokers=brokers) as several:
            yield several


def jars(broker: KafkaBroker | KafkaCluster) -> Path:
    """The jars of its release."""
    if isinstance(broker, KafkaCluster):
        return broker.release.jars()
    return retrieve(f"kafka-{VERSION}", COORDINATES)


def inside(broker: KafkaBroker | KafkaCluster) -> str:
    """host:port of a listener without passwords."""
    return broker.inside if isinstance(broker, KafkaCluster) else broker.bootstrap


def logs(broker: KafkaBroker | KafkaCluster) -> Mapping[str, Path]:
    """The request log of each node by the name of its folder."""
    if isinstance(broker, KafkaBroker):
        return {"broker-1": broker.request_log}
    return {
        f"{'controller' if node == CONTROLLER else 'broker'}-{node}": broker.request_log(node) for node in broker.nodes
    }


def create_topics(broker: KafkaBroker | KafkaCluster, brokers: int) -> None:
    """The topics of the workload."""
    admin = AdminClient({**broker.client("admin"), "client.id": "setup"})
    ids = [node for node in broker.nodes if node != CONTROLLER] if isinstance(broker, KafkaCluster) else [1]
    wanted = [
        NewTopic(name, count, replica_assignment=[[ids[each % len(ids)]] for each in range(count)])
        for name, count in topics(brokers).items()
    ]
    for future in admin.create_topics(wanted).values():
        future.result(60)


def prefill(broker: KafkaBroker | KafkaCluster, brokers: int) -> None:
    """The backlog; and each kind of line once, for the first of a kind costs the broker some ms of class loading."""
    feeder: dict[str, Any] = {**broker.client("grace"), "client.id": "feeder", "log_level": 0}
    producer = Producer({**feeder, "linger.ms": 20, "batch.size": 30_000})
    for index in range(BACKLOG_RECORDS):
        producer.produce("history", os.urandom(2_000), partition=index % topics(brokers)["history"])
        producer.poll(0)
    assert producer.flush(60) == 0
    for settings in ({"acks": "0"}, {"acks": "1"}, {"acks": "all", "compression.type": "gzip"}):
        warm = Producer({**feeder, **settings, "linger.ms": 0})
        for _ in range(200):
            warm.produce("warm", bytes(200))
            warm.flush(5)
    sure = Producer({**feeder, "transactional.id": "warm"})
    sure.init_transactions(60)
    for _ in range(5):
        sure.begin_transaction()
        sure.produce("warm", bytes(200))
        sure.commit_transaction(60)


def set_quotas(broker: KafkaBroker | KafkaCluster, wanted: QuotaSnapshot) -> None:
    """Sets the quotas and waits until a broker shows them."""
    with KafkaBackend(inside(broker)) as backend:
        results = backend.alter([Alteration(entity, values) for entity, values in wanted.items()])
        assert [result.error for result in results] == [None] * len(results)
        assert backend.wait_visible(results) == ()


class JavaClients:
    """The Java clients in a process of their own, as a context manager."""

    def __init__(
        self,
        broker: KafkaBroker | KafkaCluster,
        clients: Sequence[Client],
        expected: Mapping[str, int],
        spread: Mapping[str, int],
    ) -> None:
        self._broker, self._clients, self._expected, self._spread = broker, clients, expected, spread

    def __enter__(self) -> JavaClients:
        folder = Path(tempfile.mkdtemp(prefix="java-", dir=self._broker.folder))
        found = jars(self._broker)
        subprocess.run(
            [str(Path(java()).with_name("javac")), "-cp", f"{found}/*", "-d", str(folder), str(_JAVA_CLIENTS)],
            check=True,
        )
        files = [self._write(folder, client) for client in self._clients]
        command = [java(), "-Xmx512m", "-XX:+UseSerialGC", "-cp", f"{folder}:{found}/*", "PairClients", *files]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.strip() == "ready", f"the Java clients said {line!r}"
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(15)

    def begin(self, start_ms: int, seconds: float) -> None:
        """Sets the clients going."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{start_ms} {seconds}\n")

    def finish(self) -> dict[str, dict[str, Any]]:
        """Ends the clients; their facts by name."""
        said, _ = self.process.communicate("stop\n", timeout=120)
        documents = [json.loads(line) for line in said.splitlines()]
        return {document.pop("name"): document for document in documents}

    def _write(self, folder: Path, client: Client) -> str:
        options = {**client.options, "name": client.name, "does": client.does}
        options["spread"] = self._spread.get(options.get("topic", ""), 0)
        if "expect" in options:
            options["expected"] = self._expected[options["expect"]]
        settings = {
            "client.id": client.id,
            **self._broker.java_client(client.user),
            **client.settings,
            **{f"pair.{key}": value for key, value in options.items()},
        }
        path = folder / f"{client.name}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return str(path)


def expected_records(seconds: float) -> dict[str, int]:
    """How many records each source will have for its consumers."""
    by_name = {client.name: client for client in CLIENTS}
    counts = {name: len(schedule(by_name[name], seconds)) for name in ("feed", "feed4", "const")}
    return {**counts, "backlog": BACKLOG_RECORDS}


def finished(run: Run, wanted: Sequence[str]) -> bool:
    """Whether all librdkafka clients have what they wanted."""
    return all(run.facts[name].done_ms is not None or name in run.finished for name in wanted)


def drive(
    broker: KafkaBroker | KafkaCluster, clients: Sequence[Client], seconds: float, until: float, wanted: QuotaSnapshot
) -> dict[str, Any]:
    """Runs the clients under the quotas. Returns the facts."""
    expected = expected_records(seconds)
    host, port = inside(broker).rsplit(":", 1)
    spread = topics(len(broker.nodes) - 1) if isinstance(broker, KafkaCluster) else {}
    run = Run(broker.client, (host, int(port)), expected, seconds=seconds, spread=spread)
    mine = [client for client in clients if client.library != JAVA]
    with JavaClients(
        broker, [client for client in clients if client.library == JAVA], expected, spread
    ) as java_clients:
        launch(run, mine)
        set_quotas(broker, wanted)
        run.begin(time.time() + 2)
        java_clients.begin(round(run.start * 1000), seconds)
        loads = []
        # Consumers of throttled topics are done when their target is; two that share have none of their own.
        watched = [client.name for client in mine if "share" not in client.options]
        while (elapsed := time.time() - run.start) < until:
            threading.Event().wait(1)
            loads.append(round(os.getloadavg()[0], 1))
            if elapsed > seconds + 20 and finished(run, watched):
                break
        end_ms = run.ms()
        run.stop.set()
        java_facts = java_clients.finish()
        for _ in range(100):
            if len(run.finished) == len(mine):
                break
            time.sleep(0.1)
    documents = {name: facts.document() for name, facts in run.facts.items()} | java_facts
    return {
        "started_ms": round(run.start * 1000),
        "seconds": seconds,
        "end_ms": end_ms,
        "load": {"mean": round(sum(loads) / len(loads), 2), "max": max(loads)},
        "clients": {client.name: _described(client) | documents[client.name] for client in clients},
    }


def _described(client: Client) -> dict[str, Any]:
    return {"user": client.user, "client_id": client.id, "library": client.library, "does": client.does}


def asked_for(options: argparse.Namespace) -> QuotaSnapshot:
    """The quotas that the command line names."""
    if options.recommended is not None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "quotas.yaml")
            path.write_text(recommendations(Recording(options.recommended), "yaml"), encoding="utf-8")
            return read_quotas(path)
    return quotas(options.quotas, options.brokers) if options.quotas in SETS else read_quotas(Path(options.quotas))


def main(argv: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.accuracy.pairs.record", description=__doc__)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--quotas", help=f"{', '.join(SETS)}, or a file of quotas")
    which.add_argument("--recommended", type=Path, help="a recording: runs under what kquota recommends from it")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--seconds", type=float, default=75, help="length of the schedules")
    parser.add_argument("--until", type=float, default=170, help="when the run ends at the latest, in seconds")
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1)
    parser.add_argument("--only", default="", help="names of clients, comma-separated; else all")
    options = parser.parse_args(argv)
    chosen = [client for client in CLIENTS if not options.only or client.name in options.only.split(",")]
    wanted = asked_for(options)
    with started(options.brokers) as broker:
        create_topics(broker, options.brokers)
        prefill(broker, options.brokers)
        facts = drive(broker, chosen, options.seconds, options.until, wanted)
        kept = {name: keep(log, options.out / name) for name, log in logs(broker).items()}
    (options.out / "quotas.json").write_text(json.dumps(quotas_document(wanted), indent=2) + "\n", encoding="utf-8")
    name = options.quotas or f"recommended-{options.recommended.name}"
    facts = {"quotas": name, "brokers": options.brokers, **facts}
    (options.out / "facts.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    for name, lines in kept.items():
        _, throttled, _ = statistics(lines)
        print(f"{name}: {len(lines)} requests, {throttled} throttled")
    print("load", facts["load"], "latest", max(each.get("late_ms", 0) for each in facts["clients"].values()), "ms")
    for name, each in facts["clients"].items():
        got, sought = each["delivered_records"], each["wanted_records"]
        print(f"{name:10} {got:6} of {sought:6} done {each['done_ms']} {each['errors']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
