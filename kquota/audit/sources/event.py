"""One request of a request log as the quota managers met it, whatever form its line has."""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple
from zlib import crc32

from kquota.core.change.history import EARLIEST_MS, LATEST_MS

MOST_MS: Final = 2**31 - 1
"""No part of a request takes longer: Kafka's time-outs are ints of ms. Nor is any negative (`nanosToMs`)."""
MOST_NUMBER: Final = 2**31
"""No number of a request is farther from 0."""
_ADDRESSES: Final = re.compile(r"(?:.+:[0-9]+|[A-Z_]+)-(?P<client>.+):[0-9]+(?:-[0-9]+){0,2}")


class ControllerLine(NamedTuple):
    """A line about topics, or about which listener is a controller's: what a `TopicBook` is to see."""

    begun_ms: float
    """When the request was begun with, epoch ms: that is about when a controller charges its topics."""
    fields: Mapping[str, Any]
    """The whole JSON object."""


class UsageEvent(NamedTuple):
    """One request as the quota managers met it."""

    time_ms: int
    """When it was charged, epoch ms: the time of the line less the time the response then took to be sent."""
    user: str
    """The principal's name, without its type."""
    client_id: str
    """Empty for null, as the quota managers take it."""
    ip: str
    """The client's address."""
    connection: str
    """Repeats for the requests of one connection to one broker."""
    api: str
    """`produce`, `fetch`, `share_fetch`, or another API's name in lower case, such as `list_offsets`."""
    bytes: int
    """What the byte-rate quota of `produce` or `fetch` is charged, exact (but see `sized`); 0 for other APIs; UNKNOWN
    (-1) for a fetch that was throttled: the broker logs the empty response it sent, not the one it charged and took
    back."""
    request_ns: int
    """Time on the request handler thread; the network threads' share, also charged, is not logged."""
    throttle_ms: int | None
    """The throttle time that the broker applied: the larger of bandwidth and request quota. None where old logs do not
    tell."""
    acks: int | None
    """Of a produce request; with 0 its request time is exempt, its bytes are not."""
    exemption: str | None
    """Why no client quota is charged, None where one is: `follower_fetch`, `inter_broker` (other requests among
    brokers), `forwarded` (the controller's copies, for which exactly the mutation quota is charged), or `in_flight` (it
    came before the log did, so that the line does not hold it: it is counted, and no event of the log)."""
    position: int = 0
    """Of a fetch: stands for the first partition it asked for and the offset there; 0 where it names none (incremental
    fetch sessions) and for other APIs. Two fetches of a connection with the same position asked for the same data. Of a
    produce request the library of its client and the partition, as `sender_of`."""
    sized: bool = True
    """False where the line does not hold the size (text form, and share fetches): `bytes` is then no more than a lower
    bound."""
    controller: ControllerLine | None = None
    number: int = 0
    """That its client gave it (`correlationId`)."""


def check_times(times_ms: Iterable[float]) -> None:
    """Raises ValueError when a part of a request took less than nothing, or longer than any can."""
    if not all(0 <= time_ms <= MOST_MS for time_ms in times_ms):
        raise ValueError("the request's times are out of range")


def check_moment(event: UsageEvent) -> UsageEvent:
    """The event. Raises ValueError when it was charged at no time of Kafka's, or has no number of Kafka's."""
    if not EARLIEST_MS <= event.time_ms < LATEST_MS:
        raise ValueError("the request's time is out of range")
    if abs(event.number) > MOST_NUMBER:
        raise ValueError("the request's number is out of range")
    return event


def user_in(principal: str) -> str:
    """The user of a principal. Raises ValueError for one without a type."""
    _, colon, user = principal.partition(":")
    if not colon:
        raise ValueError("the principal has no type")
    return user


def position_of(topic: Any, partition: int, offset: int) -> int:
    """A number for the first partition in a fetch and its offset; the same in every process."""
    return int(position_in(crc32(f"{topic}".encode()), partition, offset))


def position_in(topic: Any, partition: Any, offset: Any) -> Any:
    """As `position_of`, by the CRC of the topic; of many at once, too."""
    return ((topic * 1_000_003 + partition) * 1_000_003 + offset) & 0xFFFFFFFF


@lru_cache(maxsize=16384)
def client_address(connection: str) -> str:
    """The client's address in `local:port-client:port-index`, or with the processor before the index (4.0 and later).

    Before 1.0 there is no index. Amazon MSK masks the local address (`INTERNAL_IP`). IPv6 addresses have no brackets.
    """
    if (match := _ADDRESSES.fullmatch(connection)) is None:
        raise ValueError(f"the connection is not one: {connection[:60]!r}")
    return match["client"]
