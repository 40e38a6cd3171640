"""Recording requests: a broker's request logger is at DEBUG for a while, and then as it was.

Kafka's brokers and KRaft controllers change the levels of their loggers at runtime (KIP-412, KIP-919). A level that was
changed so ends with the process. Nothing here reads or writes: these are the values, and the rules of the way back.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kquota.core.change.plan import Objection
from kquota.core.change.review import LEVEL_OFF, LOG_SPACE, UNMEASURED, gravest_first
from kquota.core.quotas.quota import QuotaKey, humanize

LOGGER: Final = "kafka.request.logger"
"""`RequestChannel.requestLogger`: it logs each request when it was answered."""
ANCESTORS: Final = ("kafka.request", "kafka", "root")
"""The loggers whose level it inherits, the nearest first; `root` is Kafka's name for log4j's root."""
RECORDING: Final = "DEBUG"
"""The level that `kquota audit` needs. From Kafka 2.8 on, TRACE adds nothing to the lines of DEBUG."""
SETTABLE: Final = frozenset({"TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"})
"""`LogLevelConfig.VALID_LOG_LEVELS`: brokers refuse OFF and ALL (KIP-817 would have added OFF)."""
QUIETEST: Final = "FATAL"
"""In the place of OFF: no request is logged at this level."""
_RECORDS: Final = frozenset({"DEBUG", "TRACE", "ALL"})
LINE_BYTES: Final = 1150
"""Bytes of a line: 1,070 to 1,150 on average in recorded logs of brokers (tests/data); 1,600 of controllers."""
RESERVE: Final = 0.1
"""The share of a volume that a recording leaves free."""


@dataclass(frozen=True, slots=True)
class Level:
    """The level that a logger has: `WARN`.

    `inherited`: its nearest ancestor has the same level. Brokers do not report whether a level was set or comes from an
    ancestor; where both are equal, the logger is taken for one without a level of its own.
    """

    name: str
    inherited: bool = False

    @property
    def records(self) -> bool:
        """Whether requests are logged at this level."""
        return self.name in _RECORDS


def level_of(levels: Mapping[str, str]) -> Level | None:
    """The level of the request logger out of the levels that a node lists; None where it has no such logger."""
    if LOGGER not in levels:
        return None
    nearest = next((levels[name] for name in ANCESTORS if name in levels), None)
    return Level(levels[LOGGER], nearest == levels[LOGGER])


@dataclass(frozen=True, slots=True)
class LevelChange:
    """The request logger of one node, a broker or a controller: its level before, and the level that is set."""

    node: int
    before: Level
    after: str = RECORDING

    @property
    def restored(self) -> str:
        """The level that the node shows when the change is taken back."""
        return self.before.name if self.before.inherited or self.before.name in SETTABLE else QUIETEST


class Fate(enum.Enum):
    """What became of the logger of a node."""

    RESTORED = "switched back"
    AS_BEFORE = "as before"
    """It showed its old level already: never switched, or the broker was started again."""
    FOREIGN = "changed by somebody else"
    ALREADY_ON = "was on before"
    UNKNOWN = "unknown"
    UNVERIFIED = "written, but not shown"

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to be taken back there."""
        return self not in (Fate.UNKNOWN, Fate.UNVERIFIED)


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of a node's logger: the level before, the level that is shown now, and why that is not known."""

    node: int
    before: str
    fate: Fate
    now: str | None = None
    error: str | None = None
    on_ms: int = 0
    """For how long it was switched on."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One stretch of recording on some nodes, in ms since the start: from `start_ms` until before `end_ms`."""

    nodes: tuple[int, ...]
    start_ms: int
    end_ms: int


def turns(nodes: Sequence[int], for_ms: int, rotate: tuple[int, int] | None = None) -> Iterator[Turn]:
    """When which nodes are on: all the time; or with (on, every) one node after the other, on for `on` ms of `every`.

    The last turn ends with the time.
    """
    if rotate is None:
        yield Turn(tuple(nodes), 0, for_ms)
        return
    on_ms, every_ms = rotate
    for number, start in enumerate(range(0, for_ms, every_ms)):
        yield Turn((nodes[number % len(nodes)],), start, min(start + on_ms, for_ms))


@dataclass(frozen=True, slots=True)
class Bounds:
    """What ends a recording, whichever comes first; of all nodes together. Times are ms, the size is bytes."""

    for_ms: int
    requests: int | None = None
    size: int | None = None
    rotate: tuple[int, int] | None = None

    def on_ms(self, nodes: Sequence[int]) -> Mapping[int, int]:
        """For how long each node is on if nothing but the time ends it."""
        lengths = dict.fromkeys(nodes, 0)
        for turn in turns(nodes, self.for_ms, self.rotate):
            for node in turn.nodes:
                lengths[node] += turn.end_ms - turn.start_ms
        return lengths


@dataclass(frozen=True, slots=True)
class Space:
    """The volume of a log dir of a node, in bytes; None where the broker does not say (before Kafka 3.3, KIP-827)."""

    node: int
    log_dir: str
    total: int | None
    usable: int | None

    @property
    def left(self) -> int | None:
        """Bytes that a recording may take: what is usable, without a reserve of a tenth of the volume."""
        if self.total is None or self.usable is None:
            return None
        return max(0, int(self.usable - RESERVE * self.total))


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a node will write if nothing but the time ends it: lines (= requests) and bytes; None where not known."""

    node: int
    requests_per_second: float | None
    on_ms: int

    @property
    def bytes_per_second(self) -> float | None:
        """Bytes of lines of the usual length."""
        return None if self.requests_per_second is None else LINE_BYTES * self.requests_per_second

    @property
    def bytes(self) -> float | None:
        """Bytes in the whole time."""
        per_second = self.requests_per_second
        return None if per_second is None else LINE_BYTES * (per_second * self.on_ms / 1000)


@dataclass(frozen=True, slots=True)
class Draft:
    """A recording that nobody has begun: what it would change, how much it would write, and what speaks against it.

    `on` are the nodes whose logger is on already: these are left alone.
    """

    nodes: tuple[int, ...]
    levels: Mapping[int, Level]
    changes: tuple[LevelChange, ...]
    bounds: Bounds
    estimates: tuple[Estimate, ...] = ()
    spaces: tuple[Space, ...] = ()
    objections: tuple[Objection, ...] = ()

    @property
    def on(self) -> tuple[int, ...]:
        """The nodes that log their requests already."""
        return tuple(node for node in self.nodes if self.levels[node].records)


@dataclass(frozen=True, slots=True)
class Reading:
    """What was recorded so far: lines (= requests) and bytes; `exact` where lines of the file were counted."""

    requests: int
    bytes: int
    exact: bool

    def __add__(self, other: Reading) -> Reading:
        return Reading(self.requests + other.requests, self.bytes + other.bytes, self.exact and other.exact)


def objections(
    changes: Iterable[LevelChange],
    estimates: Iterable[Estimate],
    spaces: Iterable[Space],
    bounds: Bounds,
    noun: str = "broker",
) -> tuple[Objection, ...]:
    """What speaks against a recording, the gravest first."""
    reasons: list[Objection] = []
    for change in changes:
        if change.restored != change.before.name:
            reasons.append(
                LEVEL_OFF.objection(
                    f"{noun} {change.node}: the logger's level is {change.before.name}, which brokers do not take back;"
                    f" it would be {change.restored} afterwards, until the broker is started again"
                )
            )
    known = [(space, space.left) for space in spaces if space.left is not None]
    unmeasured: list[int] = []
    for estimate in estimates:
        sizes = [size for size in (estimate.bytes, bounds.size) if size is not None]
        if bounds.requests is not None:
            sizes.append(LINE_BYTES * bounds.requests)
        if not sizes:
            unmeasured.append(estimate.node)
            continue
        own = [(left, space.log_dir) for space, left in known if space.node == estimate.node]
        left, log_dir = min(own, default=(None, ""))
        if left is not None and min(sizes) > left:
            reasons.append(
                LOG_SPACE.objection(
                    f"{noun} {estimate.node}: about {_size(min(sizes))} would be written, and {log_dir} has room"
                    f" for {_size(left)} beside a reserve of {100 * RESERVE:.0f} %"
                )
            )
    if unmeasured:
        named = ", ".join(map(str, unmeasured))
        reasons.append(
            UNMEASURED.objection(
                f"how much {noun} {named} will write is not known: only the time ends it (--size with --log"
                " bounds it; --metrics in place of --log estimates it)"
            )
        )
    return gravest_first(reasons)


def _size(size: float) -> str:
    """Bytes with three digits: `1.15 GB`."""
    rounded = round(size, 3 - len(str(int(size)))) if size >= 1000 else size
    return humanize(QuotaKey.PRODUCER_BYTE_RATE, int(rounded)).removesuffix("/s")
