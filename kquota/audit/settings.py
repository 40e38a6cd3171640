"""What an audit is asked to do, as one value that travels to the executors."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace
from functools import cached_property

from kquota.audit.batch import KEYS
from kquota.audit.sources import ReadSettings
from kquota.core.change.history import QuotaHistory
from kquota.core.enforcement.generation import Generation, QuotaWindows
from kquota.core.quotas.quota import BYTE_RATES, QuotaKey
from kquota.documents.derive import utc
from kquota.errors import InputError


class Together(enum.Enum):
    """Which counters of one broker are replayed by the same task."""

    COUNTER = "counter"
    """Each goes where there is room."""
    USER = "user"
    """Those of one user; none may be a client-id's."""
    CLIENT_ID = "client-id"
    """Those of one client-id; none may be a user's."""
    BROKER = "broker"
    """All."""


@dataclass(frozen=True)
class Question:
    """What is asked about the counters without a limit."""

    max_throttled: float
    """The share of the time, between 0 and 1, that may be throttled."""
    confidence: float


@dataclass(frozen=True)
class AuditSettings:
    """The quotas to test, and how the brokers enforce them."""

    quotas: QuotaHistory
    generation: Generation = Generation.N_PLUS_1_BY_LAST
    windows: QuotaWindows = field(default_factory=QuotaWindows)
    controller_windows: QuotaWindows = field(default_factory=QuotaWindows)
    """Those of the controller mutation quota."""
    against: QuotaHistory | None = None
    """Other quotas to test in the same pass, to tell what the first ones change."""
    top_clients: int | None = 5
    """How many clients of a counter a finding names, the busiest first; None: all of them."""
    per_client: bool = False
    """Whether to count the throttled events of each client of a shared counter."""
    timelines: int = 0
    """Of how many of the most throttled counters to tell what happened when."""
    in_force: bool = False
    """Whether the quotas are those that were in force: what a broker says it throttled is then throttled."""
    question: Question | None = None
    """What to tell of counters without a limit (those that UNLIMITED is set for), and to count the seconds of all."""
    predicts: bool = True
    """Whether to predict what the clients of each counter will meet."""
    recorded_under: QuotaHistory | None = None
    """The quotas that were in force while the usage was recorded (empty: none were); None where nobody says."""
    ordered: bool = True
    """Whether the events of one ms have an order; else those of smaller values come first, wherever they lie."""
    together: Together = Together.COUNTER
    """A request's counters must be in one task where what one does to it matters to another."""
    read: ReadSettings = field(default_factory=ReadSettings)

    @cached_property
    def kept(self) -> Together:
        """How counters are kept together: predictions need the bytes and the thread time of one connection."""
        if self.together is not Together.COUNTER or not self.predicts or self.question is not None:
            return self.together
        both = QuotaKey.REQUEST_PERCENTAGE in self.keys and not self.keys.isdisjoint(BYTE_RATES)
        return together(*self.variants) if both else self.together

    @cached_property
    def keys(self) -> frozenset[QuotaKey]:
        """The keys that anybody ever has a quota of, under any of the variants."""
        snapshots = (snapshot for history in self.variants for snapshot in history.snapshots)
        return frozenset(key for snapshot in snapshots for values in snapshot.values() for key in values)

    @property
    def sizes_fetches(self) -> bool:
        """Whether the sizes of fetches matter: whether any consumer ever has a quota on bytes."""
        return QuotaKey.CONSUMER_BYTE_RATE in self.keys

    @property
    def limits_ips(self) -> bool:
        """Whether an ip ever has a quota."""
        return QuotaKey.CONNECTION_CREATION_RATE in self.keys

    @property
    def variants(self) -> tuple[QuotaHistory, ...]:
        """The quotas under test: `quotas`, and `against` where it is given."""
        return (self.quotas,) if self.against is None else (self.quotas, self.against)

    def check_known(self, first_ms: float) -> None:
        """Raises InputError where it is not known which quotas were in force from that time (epoch ms) on."""
        for history in self.variants:
            if history.known_from is not None and first_ms < history.known_from[0]:
                since = utc(history.known_from[0])
                why = f"{history.known_from[1]}: quotas from before {since} are not known"
                raise InputError(why, hint=f"--since {since} leaves that time out")

    def under(self, variant: int, history: QuotaHistory) -> AuditSettings:
        """The same with other quotas as one of the variants."""
        return replace(self, quotas=history) if variant == 0 else replace(self, against=history)


def together(*quotas: QuotaHistory) -> Together:
    """The smallest groups of counters of which no request has counters in two."""
    kinds = {
        (entity.user is not None, entity.client_id is not None)
        for history in quotas
        for snapshot in history.snapshots
        for entity, values in snapshot.items()
        if any(key in values for key in KEYS)
    }
    if (False, True) not in kinds:
        return Together.USER
    return Together.BROKER if (True, False) in kinds else Together.CLIENT_ID
