"""kquota on a real Kafka broker, beside Kafka's own tool and beside the bare protocol; one run, one broker.

    python -m benchmarks.protocol [--entities N] [--repeat N] [--tool-repeat N]

Kafka's tool is `org.apache.kafka.tools.ConfigCommand` started as a plain JVM with a class path, without the shell
script around it and with the quickest start that a JVM has. Commands are whole processes, by wall time, kquota's
and Kafka's in turns.

The bare round trip sends the frames that kquota sends, made beforehand, and reads the answers without looking at them;
the ratio is what encoding, decoding, entities, sorting and comparing cost. An alter of kquota describes first, which
the baseline does too. The best of the repeats counts, bare and kquota in turns. The broker logs no requests meanwhile:
it would write the last answer down while it makes the next one.
"""

import argparse
import gc
import resource
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from kquota.backends import wire
from kquota.backends.kafka import KafkaBackend, Servers
from kquota.backends.kafka.quotas import alter_entry, describe_request
from kquota.backends.kafka.writer import OPS_PER_REQUEST
from kquota.core.quotas.alteration import Alteration, AlterResult
from kquota.core.quotas.entity import Entity, EntityType
from kquota.core.quotas.quota import QuotaKey, Value
from kquota.core.quotas.selector import ANY, EVERYTHING, QuotaFilter
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.documents.encoding import to_json
from kquota.documents.quotas import quotas_document
from tests.brokers.kafka import KafkaBroker

KEYS = (QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE)
TIERS = 20
"""How many different sets of values the entities have, as where a platform hands out small, medium and large."""


def timed(action: Callable[[], object]) -> float:
    """The wall time of the action, in seconds."""
    gc.collect()
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def in_turns(repeat: int, *actions: Callable[[], object]) -> list[list[float]]:
    """The wall times of each action, which take turns: what disturbs the machine disturbs all of them."""
    times: list[list[float]] = [[] for _ in actions]
    for _ in range(repeat):
        for action, each in zip(actions, times, strict=True):
            each.append(timed(action))
    return times


class Bare:
    """A socket that sends frames and reads as many bytes as the answer has."""

    def __init__(self, bootstrap: str) -> None:
        (server,) = Servers.parse(bootstrap).servers
        self._socket = socket.create_connection((server.host, server.port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, *frames: bytes) -> None:
        for frame in frames:
            self._socket.sendall(struct.pack(">i", len(frame)) + frame)
            (size,) = struct.unpack(">i", self._exactly(4))
            self._exactly(size)

    def close(self) -> None:
        self._socket.close()

    def _exactly(self, size: int) -> bytes:
        parts = []
        while size:
            part = self._socket.recv(min(size, 1 << 18))
            assert part, "the broker closed the connection"
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


def user(number: int) -> Entity:
    return Entity(user=f"user-{number:06}-of-a-team")


def alterations(count: int, value: int, *, tiers: int = TIERS, keys: Sequence[QuotaKey] = KEYS) -> list[Alteration]:
    """An alter of that many users; the values begin at `value`."""

    def values(number: int) -> dict[QuotaKey, Value]:
        return dict.fromkeys(keys, value + number % tiers)

    return [Alteration(user(number), values(number)) for number in range(count)]


def alter_frames(changes: Sequence[Alteration]) -> list[bytes]:
    """The alter as requests of the size that a controller takes."""
    size = OPS_PER_REQUEST // len(KEYS)
    parts = [changes[start : start + size] for start in range(0, len(changes), size)]
    requests = [wire.AlterClientQuotasRequest([alter_entry(change) for change in part], False) for part in parts]
    return [wire.encode_request(request, 1, 1, "kquota") for request in requests]


def describe_frame(filter: QuotaFilter) -> bytes:
    request = describe_request(filter)
    assert request is not None
    return wire.encode_request(request, 1, 1, "kquota")


def kquota(broker: KafkaBroker, *arguments: str) -> None:
    command = [sys.executable, "-m", "kquota", *arguments, "--bootstrap-server", broker.bootstrap, "--timeout", "60"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def tool(broker: KafkaBroker, *arguments: str) -> None:
    done = broker.kafka_configs(*arguments, as_shipped=True)
    assert done.returncode == 0, done.stderr


def children_cpu() -> float:
    """CPU seconds, user and system, of the processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def describe_commands(broker: KafkaBroker, repeat: int) -> tuple[float, float]:
    """`describe --user`: kquota's wall time and CPU time, as shares of the tool's."""
    name = user(1).user
    assert isinstance(name, str)
    cpu: dict[str, list[float]] = {"kquota": [], "tool": []}

    def measured(who: str, action: Callable[[], object]) -> None:
        before = children_cpu()
        action()
        cpu[who].append(children_cpu() - before)

    ours, theirs = in_turns(
        repeat,
        lambda: measured("kquota", lambda: kquota(broker, "describe", "--user", name)),
        lambda: measured("tool", lambda: tool(broker, "--describe", "--user", name)),
    )
    wall = [statistics.median(times) for times in (ours, theirs)]
    used = [statistics.median(times) for times in cpu.values()]
    print(
        f"describe --user, medians of {repeat}: kquota {wall[0]:.3f} s ({used[0]:.3f} s CPU), "
        f"Kafka's tool {wall[1]:.3f} s ({used[1]:.3f} s CPU)"
    )
    return wall[0] / wall[1], used[0] / used[1]


def alter_commands(broker: KafkaBroker, backend: KafkaBackend, count: int, repeat: int) -> float:
    """Alters of three keys in a second: how many times the tool's rate kquota's is."""

    def theirs(number: int) -> None:
        values = ",".join(f"{key}={number + 1}" for key in KEYS)
        tool(broker, "--alter", "--user", f"sample-{number}", "--add-config", values)

    sample = [timed(lambda number=number: theirs(number)) for number in range(repeat)]  # type: ignore[misc]
    times = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "quotas.json")
        for run in range(3):
            changes = alterations(count, 5000 + 100 * run)
            quotas = QuotaSnapshot({change.entity: change.set for change in changes})
            file.write_text(to_json(quotas_document(quotas)))
            times.append(timed(lambda: kquota(broker, "alter", "--file", str(file), "--wait")))
            described = backend.describe()
            assert QuotaSnapshot({entity: described[entity] for entity in quotas}) == quotas
    seconds, rate = min(times), 1 / statistics.median(sample)
    print(
        f"alters of {len(KEYS)} keys: kquota {count} in {seconds:.2f} s by one command, {count / seconds:.0f} a second;"
        f" Kafka's tool {rate:.2f} a second, the median of {repeat} commands"
    )
    return count / seconds / rate


def describe_round_trip(bare: Bare, backend: KafkaBackend, repeat: int) -> float:
    """The wall time of a describe of everything by that of the bare round trip."""
    frame = describe_frame(EVERYTHING)
    bare_times, times = in_turns(repeat, lambda: bare.ask(frame), backend.describe)
    print(f"describe of {len(backend.describe())}: kquota {min(times):.3f} s, bare {min(bare_times):.3f} s")
    return min(times) / min(bare_times)


def alter_round_trip(bare: Bare, backend: KafkaBackend, count: int, repeat: int) -> float:
    """The wall time of an alter of three keys each by that of the bare round trips."""
    users = describe_frame(QuotaFilter({EntityType.USER: ANY}, strict=True))
    bare_times, times = [], []
    for run in range(repeat):
        frames = alter_frames(alterations(count, 10_000 + run))
        bare_times.append(timed(lambda: bare.ask(users, *frames)))  # noqa: B023
        # The broker applies what it acknowledged behind our backs: neither shall pay for the other.
        last = alterations(count, 10_000 + run)[-1]
        assert backend.wait_visible([AlterResult(last.entity, {}, last.set)]) == ()
        changes = alterations(count, 20_000 + run)
        results: list[AlterResult] = []
        times.append(timed(lambda: results.extend(backend.alter(changes))))  # noqa: B023
        assert backend.wait_visible(results) == ()
    print(f"alter of {count}, {len(KEYS)} keys each: kquota {min(times):.3f} s, bare {min(bare_times):.3f} s")
    return min(times) / min(bare_times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entities", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--tool-repeat", type=int, default=7)
    options = parser.parse_args()
    count, repeat = options.entities, options.repeat

    with KafkaBroker() as broker, KafkaBackend(broker.bootstrap, timeout_s=60) as backend:
        loggers = ("--entity-type", "broker-loggers", "--entity-name", "1")
        tool(broker, "--alter", *loggers, "--add-config", "kafka.request.logger=WARN")
        bare = Bare(broker.bootstrap)
        assert backend.wait_visible(backend.alter(alterations(count, 1))) == ()
        for _ in range(20):  # the broker compiles what it does often
            bare.ask(describe_frame(EVERYTHING))
        wall, cpu = describe_commands(broker, options.tool_repeat)
        ratios = [
            ("describe --user, wall time, kquota / Kafka's tool", wall, "at most 0.08"),
            ("describe --user, CPU time, kquota / Kafka's tool", cpu, "none"),
            ("rate of alters, kquota / Kafka's tool", alter_commands(broker, backend, count, 5), "at least 1000"),
            (f"describe of {count}, kquota / bare", describe_round_trip(bare, backend, repeat), "at most 1.3"),
            (f"alter of {count}, kquota / bare", alter_round_trip(bare, backend, count, 5), "none"),
        ]
        assert backend.wait_visible(backend.alter(alterations(count, 1, tiers=count))) == ()
        ratio = describe_round_trip(bare, backend, repeat)
        ratios.append((f"describe of {count}, no two with the same values, kquota / bare", ratio, "none"))
        bare.close()
    print()
    for what, ratio, aim in ratios:
        print(f"{what}: {ratio:.3g} (aim: {aim})")


if __name__ == "__main__":
    main()
