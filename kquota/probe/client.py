"""A probe's requests to the broker that leads a partition: one at a time, on a connection of their own."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from kquota.backends import wire
from kquota.backends.addresses import Server
from kquota.backends.kafka.codes import NONE, OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC, error_of
from kquota.backends.kafka.connection import Connection, Deadline
from kquota.backends.kafka.records import batch_of, offset_after
from kquota.core.duration import duration
from kquota.core.findings.probe import Exchange, Load, Probe, Throttling
from kquota.errors import Conflict, InputError

_OVERHEAD: Final = 1024
"""What a request is larger than its record at most: header, names, batch."""
_FETCH_WAIT_MS: Final = 100
_ACKNOWLEDGED_MS: Final = 10_000
_BY_ALL: Final = -1
_CLIENT: Final = -1
"""The replica id of a request that is no broker's."""
_LATEST, _EARLIEST = -1, -2
_NO_SESSION, _EPOCH_OF_NONE = 0, -1


@dataclass
class Pace:
    """When the next request of a load is due; the clock starts with the first."""

    load: Load
    spent: int = 0
    exhausted: bool = False
    """Whether the bound ended the run."""
    _start: float = field(default_factory=time.monotonic)

    def allows(self, amount: int) -> bool:
        """Whether so much more may be sent."""
        if self.spent + amount > self.load.most:
            self.exhausted = True
        return not self.exhausted and self.left_s() > 0

    def wait_s(self) -> float:
        """Seconds until the next request is due; not above 0 when it is."""
        return self._start + self.spent / self.load.rate - time.monotonic()

    def left_s(self) -> float:
        """Seconds until the end."""
        return max(self._start + self.load.duration_s - time.monotonic(), 0.0)


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition of a topic, and the broker that leads it."""

    topic: str
    number: int
    leader: int
    address: Server


@dataclass
class Client:
    """A client that waits out every throttle. `exchanges` gets each answer as it comes, whatever ends the run."""

    connection: Connection
    partition: Partition
    pace: Pace
    exchanges: list[Exchange]
    timeout_s: float

    def drive(self, kind: Probe) -> None:
        """Sends the load. Raises Lost, and what the broker answers: Conflict, Rejected, Unauthorized, InputError."""
        {Probe.PRODUCE: self._produce, Probe.FETCH: self._fetch, Probe.REQUEST: self._request}[kind]()

    def _produce(self) -> None:
        """One record a request, acknowledged by all replicas, never sent again."""
        size = self.pace.load.size
        batch = batch_of("", os.urandom(size), round(time.time() * 1000))
        topic = wire.ProduceTopic(self.partition.topic, [wire.ProducePartition(self.partition.number, batch)])
        request = wire.ProduceRequest(None, _BY_ALL, _ACKNOWLEDGED_MS, [topic])
        while self._is_due(size + _OVERHEAD):
            exchange, answer = self._ask(wire.ProduceResponse, request, lambda sent, received: sent)
            self.pace.spent += exchange.charge
            self._checked(answer)

    def _fetch(self) -> None:
        """Reads the partition from its beginning, and again when it is at the end. No group is joined.

        A throttled fetch brings nothing. A broker answers with a whole batch, which may be larger than what was asked.
        """
        size = self.pace.load.size
        largest = size + _OVERHEAD
        first = offset = self._offset(_EARLIEST)
        while self._is_due(largest):
            part = wire.FetchPartition(self.partition.number, -1, offset, -1, size)
            topics = [wire.FetchTopic(self.partition.topic, [part])]
            request = wire.FetchRequest(_CLIENT, _FETCH_WAIT_MS, 1, size, 0, _NO_SESSION, _EPOCH_OF_NONE, topics)
            # A quota charges the body and 4 bytes: the frame with its correlation id has as many.
            exchange, answer = self._ask(wire.FetchResponse, request, lambda sent, received: received)
            self.pace.spent += exchange.charge
            largest = max(largest, exchange.charge)
            if exchange.throttle_ms > 0 and not answer.topics:
                continue
            fetched = self._checked(answer, OFFSET_OUT_OF_RANGE)
            if fetched.error_code == OFFSET_OUT_OF_RANGE:  # the oldest records are deleted meanwhile
                first = offset = self._offset(_EARLIEST)
                continue
            offset = max(offset, offset_after(fetched.records or b""))
            if offset >= fetched.high_watermark:
                if offset == first:
                    raise InputError(f"partition {part.partition} of topic {self.partition.topic!r} has no records")
                offset = first

    def _request(self) -> None:
        """Asks for the partition's last offset."""
        while self._is_due(1):
            self.pace.spent += 1
            self._offset(_LATEST, measured=True)

    def _offset(self, timestamp: int, *, measured: bool = False) -> int:
        asked = wire.ListOffsetsPartition(self.partition.number, timestamp)
        request = wire.ListOffsetsRequest(_CLIENT, 0, [wire.ListOffsetsTopic(self.partition.topic, [asked])])
        if measured:
            _, answer = self._ask(wire.ListOffsetsResponse, request, lambda sent, received: 0)
        else:
            (answer,) = self.connection.ask([request], wire.ListOffsetsResponse, Deadline(self.timeout_s))
        return int(self._checked(answer).offset)

    def _is_due(self, amount: int) -> bool:
        """Waits until the next request is due and the throttle is over; False once the load is over."""
        last = self.exchanges[-1] if self.exchanges else None
        muted_until_ms = 0.0 if last is None else last.answered_ms + last.throttle_ms
        while self.pace.allows(amount):
            wait_s = max(self.pace.wait_s(), muted_until_ms / 1000 - time.time())
            if wait_s <= 0:
                return True
            time.sleep(min(wait_s, self.pace.left_s()))
        return False

    def _ask(self, kind: type, request: Any, charge: Callable[[int, int], int]) -> tuple[Exchange, Any]:
        """The exchange, whose charge is of the bytes sent and received, and the answer."""
        measured = self.connection.measured(request, kind, Deadline(self.timeout_s))
        exchange = Exchange(
            measured.sent_ms,
            measured.answered_ms,
            charge(measured.sent_bytes, measured.received_bytes),
            measured.answer.throttle_time_ms,
        )
        self.exchanges.append(exchange)
        return exchange, measured.answer

    def _checked(self, answer: Any, *expected: int) -> Any:
        """What the answer says of the partition. Raises its error, unless it is an expected one."""
        (part,) = answer.topics[0].partitions
        if part.error_code == UNKNOWN_TOPIC:  # it was there when the probe began
            seen = Throttling.of([exchange.throttle_ms for exchange in self.exchanges])
            delayed = f"{seen.count:,} of them delayed, by {duration(seen.total_ms)} in all"
            raise Conflict(
                f"topic {self.partition.topic!r} was deleted after {len(self.exchanges):,} requests ({delayed})",
                hint="probe another one; --create-topic makes one for the probe",
            )
        if part.error_code not in (NONE, *expected):
            raise error_of(part.error_code, f"topic {self.partition.topic!r}")
        return part
