"""kquota against the bare protocol on a real Kafka broker: the same frames, without the meaning.

    python -m benchmarks.protocol [--entities N] [--repeat N]

The baseline sends the frames that kquota sends, made beforehand, and reads the answers without looking at them; the
ratio is what encoding, decoding, entities, sorting and comparing cost. An alter of kquota describes first, which the
baseline does too. The best of the repeats counts.
"""

from __future__ import annotations

import argparse
import gc
import socket
import struct
import time
from collections.abc import Callable, Sequence

from kquota.backends import wire
from kquota.backends.kafka import KafkaBackend, Servers
from kquota.backends.kafka.quotas import alter_entry, describe_request
from kquota.core.alteration import Alteration
from kquota.core.entity import Entity, EntityType
from kquota.core.filter import ANY, EVERYTHING, QuotaFilter
from kquota.core.quota import QuotaKey
from tests.brokers.kafka import KafkaBroker


def best(repeat: int, action: Callable[[int], object]) -> float:
    """The shortest wall time of the action, in seconds; it is given the number of the run."""
    times = []
    for run in range(repeat):
        gc.collect()
        started = time.perf_counter()
        action(run)
        times.append(time.perf_counter() - started)
    return min(times)


class Bare:
    """A socket that sends frames and reads as many bytes as the answer has."""

    def __init__(self, bootstrap: str) -> None:
        (server,) = Servers.parse(bootstrap).servers
        self._socket = socket.create_connection((server.host, server.port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, frame: bytes) -> int:
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", self._exactly(4))
        return len(self._exactly(size))

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


def alterations(count: int, value: int) -> list[Alteration]:
    return [
        Alteration(Entity(user=f"user-{number:06}-of-a-team"), {QuotaKey.PRODUCER_BYTE_RATE: value})
        for number in range(count)
    ]


def alter_frame(changes: Sequence[Alteration]) -> bytes:
    request = wire.AlterClientQuotasRequest([alter_entry(change) for change in changes], False)
    return wire.encode_request(request, 1, 1, "kquota")


def describe_frame(filter: QuotaFilter) -> bytes:
    request = describe_request(filter)
    assert request is not None
    return wire.encode_request(request, 1, 1, "kquota")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entities", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=7)
    options = parser.parse_args()
    count, repeat = options.entities, options.repeat
    assert count <= 10_000, "more than a request may have"

    with KafkaBroker() as broker, KafkaBackend(broker.bootstrap, timeout_s=60) as backend:
        bare = Bare(broker.bootstrap)
        assert backend.wait_visible(backend.alter(alterations(count, 1))) == ()
        everything = describe_frame(EVERYTHING)
        users = describe_frame(QuotaFilter({EntityType.USER: ANY}, strict=True))
        for _ in range(20):  # the broker compiles what it does often
            bare.ask(everything)

        bare_describe = best(repeat, lambda run: bare.ask(everything))
        describe = best(repeat, lambda run: backend.describe())
        ratio = describe / bare_describe
        print(f"describe of {count}: kquota {describe:.3f} s, bare {bare_describe:.3f} s, ratio {ratio:.2f}")

        frames = [alter_frame(alterations(count, 1000 + run)) for run in range(repeat)]
        changes = [alterations(count, 2000 + run) for run in range(repeat)]

        def bare_alter(run: int) -> None:
            bare.ask(users)
            bare.ask(frames[run])

        bare_time = best(repeat, bare_alter)
        times = []
        for run in range(repeat):
            gc.collect()
            started = time.perf_counter()
            results = backend.alter(changes[run])
            times.append(time.perf_counter() - started)
            # What the next read would wait for is the broker's lag, not kquota.
            assert backend.wait_visible(results) == ()
        print(
            f"alter of {count}: kquota {min(times):.3f} s, bare {bare_time:.3f} s, ratio {min(times) / bare_time:.2f}"
        )

        one = [Alteration(Entity(user="one"), {QuotaKey.PRODUCER_BYTE_RATE: value}) for value in range(1, repeat + 1)]
        print(f"alter of one among {count}: kquota {best(repeat, lambda run: backend.alter([one[run]])):.3f} s")
        bare.close()


if __name__ == "__main__":
    main()
