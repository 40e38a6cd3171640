"""What request logging costs a broker: CPU time per request with the logger at DEBUG, beside the same load without.

    python -m benchmarks.record [--seconds N] [--rounds N] [--rate N]

One real broker, whose log4j writes with the appender that `kquota record --appender log4j2` prints. A load of produce
requests of one record of 1 kB, one connection, at a steady rate; and another load of small requests without data. The
logger is switched on and off in turns, each phase as long as the others, so that what disturbs the machine disturbs
both. CPU time is the broker's own, user and system, from /proc; the first rounds warm the JVM and do not count.

`cores` is the CPU time that 1,000 logged requests per second take more, and the share of throughput is that of a broker
whose CPU is the limit: the CPU time of a request without logging over that with it.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kquota.backends import wire
from kquota.backends.kafka.brokers import KafkaLoggers
from kquota.cli.commands.record import appender_text
from tests.brokers.kafka import BROKER, KafkaBroker

ROOT = "    Root:\n      level: WARN\n      AppenderRef:\n        ref: RequestAppender\n"
SERVER_JVM = ("-XX:-UseSerialGC", "-XX:+UseG1GC", "-XX:TieredStopAtLevel=4")
"""As Kafka's own scripts start it, in the place of the flags for tests, which start quickly."""
_TICKS = os.sysconf("SC_CLK_TCK")
_WARM_ROUNDS = 2


def cpu_s(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def paced(send: Callable[[], None], rate: int, seconds: float) -> int:
    """Calls `send` at a steady rate; returns how often."""
    begin, count = time.monotonic(), 0
    while (passed := time.monotonic() - begin) < seconds:
        due = int(passed * rate) - count
        for _ in range(due):
            send()
        count += max(due, 0)
        time.sleep(0.002)
    return count


class Produce:
    """Produce requests of one record of 1 kB each, on one connection; all are answered when a phase ends."""

    name = "produce, 1 kB"

    def __init__(self, broker: KafkaBroker) -> None:
        topic = f"load-{time.monotonic_ns()}"
        admin = AdminClient(broker.client())  # named: its futures fail once it is gone
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)
        self._topic = topic
        # A request for each record: batches would hide how many requests the broker served.
        settings = {"linger.ms": 0, "batch.num.messages": 1, "acks": 1, "queue.buffering.max.messages": 1_000_000}
        self._producer = Producer({**broker.client(), **settings})
        self._record = os.urandom(1000)

    def run(self, rate: int, seconds: float) -> int:
        """How many requests were sent and answered."""

        def send() -> None:
            self._producer.produce(self._topic, self._record)
            self._producer.poll(0)

        count = paced(send, rate, seconds)
        assert self._producer.flush(60) == 0
        return count


class Small:
    """DescribeCluster requests, ten in a row on one connection."""

    name = "DescribeCluster"

    def __init__(self, broker: KafkaBroker) -> None:
        self._loggers = KafkaLoggers(broker.bootstrap)

    def run(self, rate: int, seconds: float) -> int:
        """How many requests were answered."""
        requests = [wire.DescribeClusterRequest(False)] * 10
        session = self._loggers._nodes.any
        return 10 * paced(lambda: (session.ask(requests, wire.DescribeClusterResponse), None)[1], rate // 10, seconds)


def measure(broker: KafkaBroker, load: Produce | Small, rate: int, seconds: float, rounds: int) -> None:
    """Prints the cost of logging under one load."""
    pid = broker._running[BROKER].pid
    spent: dict[str, list[float]] = {"WARN": [], "DEBUG": []}
    written: list[float] = []
    with KafkaLoggers(broker.bootstrap) as loggers:
        for number in range(_WARM_ROUNDS + rounds):
            for level, times in spent.items():
                loggers.set_level(1, level)
                size, before = broker.request_log.stat().st_size, cpu_s(pid)
                count = load.run(rate, seconds)
                if number >= _WARM_ROUNDS:
                    times.append((cpu_s(pid) - before) / count)
                    if level == "DEBUG":
                        written.append((broker.request_log.stat().st_size - size) / count)
        loggers.set_level(1, "WARN")
    off, on = (statistics.median(times) for times in spent.values())
    more = sorted(with_log - without for without, with_log in zip(*spent.values(), strict=True))
    print(
        f"{load.name:16} {rate:6,} requests/s: {1e6 * off:6.0f} µs CPU a request without logging, {1e6 * on:6.0f} µs"
        f" with it; {1e6 * (on - off):5.0f} µs more ({1e6 * more[0]:.0f} to {1e6 * more[-1]:.0f} by round) ="
        f" {1e3 * (on - off):.3f} cores per 1,000 requests/s; ratio {on / off:.2f}, throughput at full CPU"
        f" {100 * off / on:.0f} %; {statistics.median(written):,.0f} bytes a line"
    )


def main() -> None:
    """Prints a line for each load and rate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rate", type=int, action="append", help="requests per second; repeatable")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        logging = Path(folder) / "log4j2.yaml"
        # One file, however large: its growth is the size of the lines.
        logging.write_text((appender_text("log4j2") + ROOT).replace("100 MB", "10 GB"))
        with KafkaBroker(logging=logging, jvm_flags=SERVER_JVM) as broker:
            for rate in given.rate or [1000, 3000]:
                for load in (Produce, Small):
                    measure(broker, load(broker), rate, given.seconds, given.rounds)


if __name__ == "__main__":
    main()
