"""The generations of Kafka's quotas, and the settings of a broker that they work with."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from kquota.core.enforcement.arithmetic import INT_MAX, LONG_MAX
from kquota.core.quotas.snapshot import Problem
from kquota.core.quotas.static import NO_STATIC_QUOTAS, StaticQuotas
from kquota.core.quotas.version import DELAYS_CAPPED, SAMPLES_BY_LAST_EVENT, parse_version
from kquota.errors import InputError


class Generation(enum.Enum):
    """How a broker keeps and drops samples, and what it makes of a delay of 25 days or more.

    Delays differ wherever a sample holds more than one event.

    Kafka 3.3 and later are exact. Releases before 3.3 differ from `N_BY_START` for `quota.window.num=1` only.
    """

    N_BY_START = "n_by_start"
    """Kafka 3.7 and older: N slots, a slot is dropped N windows after its start."""
    N_PLUS_1_BY_LAST = "n_plus_1_by_last"
    """Kafka 3.8 and later (PR 15889): N+1 slots, a slot is dropped N windows after its last event."""
    CAPPED = "capped"
    """Kafka 4.4 and later: the same slots; a delay that does not fit into 32 bits is the longest one that does."""

    @property
    def by_last(self) -> bool:
        """Whether the age of a slot counts from its last event, not from its start."""
        return self is not Generation.N_BY_START

    @property
    def longest_ms(self) -> int:
        """What the delays of the byte quotas are cut to, before they become 32 bits."""
        return INT_MAX if self is Generation.CAPPED else LONG_MAX

    def slots(self, samples: int) -> int:
        """How many slots a statistic of that many samples keeps."""
        return samples + 1 if self.by_last else samples

    @classmethod
    def for_version(cls, text: str) -> Self:
        """The generation of a Kafka release: `3.7.1`, `4.0.0`. Raises InputError (`parse_version`) for another text."""
        version = parse_version(text)
        if version >= DELAYS_CAPPED:
            return cls.CAPPED
        return cls.N_PLUS_1_BY_LAST if version >= SAMPLES_BY_LAST_EVENT else cls.N_BY_START


@dataclass(frozen=True, slots=True)
class QuotaWindows:
    """`quota.window.num` and `quota.window.size.seconds` of a broker; both static, at least 1. Raises InputError."""

    samples: int = 11
    window_seconds: int = 1

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise InputError(f"quota.window.num must be at least 1, not {self.samples}")
        if self.window_seconds < 1:
            raise InputError(f"quota.window.size.seconds must be at least 1, not {self.window_seconds}")

    @property
    def window_ms(self) -> int:
        """The length of one sample in ms."""
        return self.window_seconds * 1000

    @property
    def span_ms(self) -> int:
        """The length of all samples in ms: a rate is a mean over at most so long."""
        return self.samples * self.window_ms


@dataclass(frozen=True)
class BrokerSettings:
    """The part of a broker's `server.properties` that decides about quotas; by default Kafka's own defaults."""

    windows: QuotaWindows = field(default_factory=QuotaWindows)
    """`quota.window.*`: of the byte, request and connection quotas."""
    controller_windows: QuotaWindows = field(default_factory=QuotaWindows)
    """`controller.quota.window.*`: of the mutation quota; with KRaft those of the controller count."""
    static: StaticQuotas = NO_STATIC_QUOTAS
    connection_rate: int | None = None
    """`max.connection.creation.rate`, connections per second; None for no limit."""
    listeners: Mapping[str, int | None] = field(default_factory=lambda: {"PLAINTEXT": None})
    """The names of the listeners, in order, and the limit of each."""
    inter_broker_listener: str | None = None
    """One of them, or None where it is none of them (as on a controller)."""
    callback: str | None = None
    """`client.quota.callback.class`, which decides quotas in the place of Kafka's own."""
    problems: tuple[Problem, ...] = ()
    """What is in the file and means nothing to the brokers that read it."""
