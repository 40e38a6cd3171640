"""How a real broker throttles, beside what kquota predicts: `python -m tools.accuracy.probes --seconds N`.

Starts a broker, sets a quota for each probe, runs `kquota probe` for N seconds under each, and prints the Markdown
table that the README holds.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kquota.backends.kafka import KafkaBackend
from kquota.core.quotas.alteration import Alteration
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey, humanize
from tests.brokers.kafka import AT_ONCE, KafkaBroker, password_of

TOPIC = "probed"
RECORD_BYTES = 1_000
RECORDS = 20_000
"""What a fetch probe finds."""


@dataclass(frozen=True)
class Case:
    """A probe and the quota that it meets."""

    probe: str
    limit: float
    arguments: tuple[str, ...]

    @property
    def client_id(self) -> str:
        """A client-id of its own, so a counter of its own."""
        return f"prober-{self.probe}"

    @property
    def key(self) -> QuotaKey:
        """The quota that it meets."""
        from kquota.core.findings.probe import Probe

        return Probe(self.probe).key


CASES = (
    Case("produce", 500_000, ("--topic", TOPIC, "--rate", "5MB", "--size", "20kB")),
    Case("fetch", 500_000, ("--topic", TOPIC, "--rate", "5MB", "--size", "50kB")),
    Case("request", 0.1, ("--topic", TOPIC, "--rate", "200")),
)


def fill(broker: KafkaBroker) -> None:
    """Creates `TOPIC`, and records in it that make many small batches."""
    admin = AdminClient(broker.client())
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)
    producer = Producer({**broker.client(), "client.id": "filler", "batch.size": 10_000})
    for _ in range(RECORDS):
        producer.produce(TOPIC, b"x" * RECORD_BYTES)
        producer.poll(0)
    assert producer.flush(60) == 0


@contextmanager
def limited(broker: KafkaBroker, case: Case) -> Iterator[None]:
    """The quota of a case, for as long as the block lasts. The connection that sets it takes it away again."""
    entity = Entity("ANONYMOUS", case.client_id)
    with KafkaBackend(broker.bootstrap) as backend:
        for alteration in (
            Alteration(entity, {case.key: case.limit}),
            Alteration(entity, remove=frozenset({case.key})),
        ):
            results = backend.alter([alteration])
            assert [result.error for result in results] == [None]
            assert backend.wait_visible(results) == ()
            if alteration.set:
                yield


def login_of(user: str, folder: Path) -> Path:
    """A client.properties for the SASL listener."""
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    path = folder / f"{user}.properties"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={module} required username="{user}" password="{password_of(user)}";\n'
    )
    return path


def command_line(broker: KafkaBroker, case: Case, seconds: float) -> list[str]:
    """What runs the probe of a case, with its document on stdout."""
    command = [sys.executable, "-m", "kquota", "probe", case.probe, *case.arguments, "--yes", "-o", "json"]
    command += ["--duration", f"{round(seconds)}s", "--client-id", case.client_id]
    return [*command, "--bootstrap-server", broker.bootstrap]


def run(broker: KafkaBroker, case: Case, seconds: float) -> dict[str, Any]:
    """The document of one probe under its quota, which is taken away again."""
    command = command_line(broker, case, seconds)
    with limited(broker, case):
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60, check=False)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def row(case: Case, document: dict[str, Any]) -> str:
    """A line of the table."""
    seen, least, most = document["observed"], *(document["predicted"][side] for side in ("least", "most"))

    def both(left: str, right: str) -> str:
        return left if left == right else f"{left} to {right}"

    cells = (
        case.probe,
        f"`{case.key.value}` {humanize(case.key, case.limit)}",
        f"{document['events']}",
        f"{seen['throttled_requests']}",
        both(str(least["throttled_requests"]), str(most["throttled_requests"])),
        f"{seen['throttle_time_ms']}",
        both(str(least["throttle_time_ms"]), str(most["throttle_time_ms"])),
        both(*(f"{ratio:.3f}" for ratio in document["ratio"])),
    )
    return f"| {' | '.join(cells)} |"


def main(argv: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.accuracy.probes", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="length of each probe")
    seconds = parser.parse_args(argv).seconds
    print("| probe | quota | sent | throttled: broker | predicted | total ms: broker | predicted | ratio |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    with KafkaBroker(settings=AT_ONCE, heap="1g") as broker:
        fill(broker)
        for case in CASES:
            print(row(case, run(broker, case, seconds)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
