"""Records a real request log: `python -m tools.recording.request_log --out tests/data/request_log --seconds N`.

Starts a real broker, sets the quotas below, drives synthetic traffic against them with librdkafka clients for N seconds
(after a short prefill), and writes into the output folder what the broker logged (`kafka-request.log.gz`), the quotas
that were in force (`quotas.json`) and a `README.md`. The traffic is made to be worth an audit: counters held at their
limit, one shared by several clients, bursts, idle gaps longer than the quota window, lagging and tailing readers.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException

from tests.brokers.kafka import KafkaBroker
from tools.recording.kept import keep, span, statistics
from tools.recording.traffic import Traffic, ask, burst, create_topics, prefill, read_backlog, saturate, steady, tail

QUOTAS: tuple[tuple[dict[str, Any], dict[str, float]], ...] = (
    ({"client-id": {"default": True}}, {"producer_byte_rate": 120_000}),
    ({"client-id": "feeder"}, {"producer_byte_rate": 50_000_000}),
    ({"user": "alice"}, {"producer_byte_rate": 300_000}),
    ({"user": "carol"}, {"consumer_byte_rate": 400_000}),
    ({"user": "frank"}, {"request_percentage": 0.5}),
    ({"user": "bob", "client-id": "etl"}, {"producer_byte_rate": 150_000}),
    ({"user": "bob", "client-id": "fraud-reader"}, {"consumer_byte_rate": 250_000}),
)
"""Entity and values; a user or client-id that none of them names is unlimited, but for the default client-id."""

TOPICS = {"history": (4, 1), "orders": (3, 1), "clicks": (2, 1), "metrics": (1, 1)}
PREFILL_BYTES = 120_000_000
"""What lagging readers find on `history`: more than their quotas let them read in ten minutes."""

README = """\
# A recorded request log

`kafka-request.log.gz` is the unchanged JSON request log of one real broker: Apache Kafka {version} (KRaft, one node,
loopback, SASL/PLAIN), {lines} lines over {seconds} s, of which {throttled} carry a throttle time. `quotas.json` holds
the quotas that were in force all the time: they were set before the first client started, and never changed. Times are
in **UTC**. All traffic is synthetic; broker settings that matter are Kafka's defaults
(`quota.window.num=11`, `quota.window.size.seconds=1`).

Nothing was dropped from the log: it starts with the broker and ends when the clients were told to stop.

| user | client-id | does |
|---|---|---|
| alice | billing-1, billing-2, billing-3 | produce under one counter: at the limit, small steady, bursts every 20 s |
| bob | etl | produces without pause for 20 s, then rests for 20 s |
| bob | fraud-reader | reads a long backlog as fast as its quota lets it |
| carol | report-1, report-2 | one reads a backlog, one reads the newest records; they share a counter |
| dave | web-edge | produces around the default client-id quota, now over it and now under it |
| dave | cron | a few small records every few seconds |
| erin | sensor-gw | produces with acks=0 over the default client-id quota |
| frank | poller | asks for offsets as fast as it can, under a request quota |
| grace | feeder, archiver | fills the topics under a quota it never reaches; reads with none |

Record again (needs java, mvn and confluent-kafka; a minute more than the traffic; on a machine with nothing else to do,
because a broker that waits for a processor between a charge and its log line puts a wrong time on the line), then see
how well a replay predicts what the broker did:

    python -m tools.recording.request_log --out tests/data/request_log --seconds {seconds_asked}
    python -m tools.accuracy.throttles tests/data/request_log

Expect recordings to differ. Prefixes have whole milliseconds, and a charge that is put a millisecond to the other side
of a sample's edge changes what its counter sees for the next eleven seconds. In two recordings of this traffic, made
one after the other, the replayed throttle time of a counter (fetch counters following the log) was 0.98 to 1.01 of the
broker's in the one, which was kept, and 1.00 to 1.20 in the other; of the throttles of 10 ms and more, at least 97 %
were met in both, and no more than 3 % made up. A third had five counters of six within 1 % and one at 1.26: for three
seconds the replay's samples, which begin with events, had begun with others than the broker's.
"""


def set_quotas(broker: KafkaBroker) -> None:
    """Sets `QUOTAS` with Kafka's own tool."""
    for entity, values in QUOTAS:
        where: list[str] = []
        for kind, name in entity.items():
            where += ["--entity-type", "users" if kind == "user" else "clients"]
            where += ["--entity-default"] if isinstance(name, dict) else ["--entity-name", name]
        added = ",".join(f"{key}={value}" for key, value in values.items())
        done = broker.kafka_configs("--alter", "--add-config", added, *where)
        if done.returncode != 0:
            raise RuntimeError(f"cannot set {added} on {entity}: {done.stdout}{done.stderr}")


def drive(broker: KafkaBroker, seconds: float) -> None:
    """All the traffic of a recording."""
    traffic = Traffic(broker)
    create_topics(traffic, TOPICS)
    prefill(traffic, PREFILL_BYTES)
    traffic.start(saturate, "alice", "billing-1", "orders", 6_000, 45, 0)
    traffic.start(steady, "alice", "billing-2", "orders", 700, 25, 0.3, "all")
    traffic.start(burst, "alice", "billing-3", "orders", 40_000, 25, 20)
    traffic.start(saturate, "bob", "etl", "clicks", 7_000, 20, 20)
    traffic.start(steady, "dave", "web-edge", "clicks", 3_500, 34, 0.25, "1")
    traffic.start(burst, "dave", "cron", "metrics", 900, 3, 4)
    traffic.start(steady, "erin", "sensor-gw", "metrics", 3_000, 50, 0.4, "0")
    traffic.start(read_backlog, "bob", "fraud-reader", (0, 1), 50_000, 25_000)
    traffic.start(read_backlog, "carol", "report-1", (2, 3), 60_000, 30_000)
    traffic.start(tail, "carol", "report-2", ["orders"], 40_000)
    traffic.start(tail, "grace", "archiver", ["clicks"], 1_000_000)
    traffic.start(ask, "frank", "poller")
    traffic.stop.wait(seconds)
    traffic.finish()


def main(argv: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.recording.request_log", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--seconds", type=float, default=240, help="length of the traffic")
    options = parser.parse_args(argv)
    with KafkaBroker(heap="1g") as broker:
        set_quotas(broker)
        drive(broker, options.seconds)
        version = broker.version
        lines = keep(broker.request_log, options.out)
    apis, throttled, by_client = statistics(lines)
    quotas = [{"entity": entity, "values": values} for entity, values in QUOTAS]
    document = {"kind": "kquota.quotas", "version": 1, "quotas": quotas}
    (options.out / "quotas.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    facts = {"version": version, "lines": len(lines), "seconds": span(lines), "throttled": throttled}
    readme = README.format(**facts, seconds_asked=f"{options.seconds:g}")
    (options.out / "README.md").write_text(readme, encoding="utf-8")
    print(
        f"{len(lines)} requests, {throttled} throttled, {(options.out / 'kafka-request.log.gz').stat().st_size} bytes"
    )
    for name, count in [*apis.most_common(), *by_client.most_common()]:
        print(f"{count:8} {name}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KafkaException as error:
        sys.exit(f"kafka: {error}")
