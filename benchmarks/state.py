"""The state of a stream's counters over many events and many clients: whether it stays flat.

    python -m benchmarks.state [--events 2000000 4000000] [--users 10000] [--clients 1000000]

One broker, one counter for each user. The events are spread over ten hours, and so are so many client-ids: each is
seen in one of the hours, as the names of short-lived pods are. Once 200,000 clients are known, those that rest are
forgotten, so the state goes up and down. Printed is the most that it has in each fifth of the events, in bytes for each
counter. The slope is fitted to the last four of these. With it the last line extrapolates to 10^8 events, which nobody
measured.
"""

import argparse
import time
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from kquota.audit.batch import Batch, Column
from kquota.audit.engines.portable import encode
from kquota.audit.follow.counters import Counters
from kquota.audit.follow.follow import SETTLE_MS
from kquota.audit.ledger.charge import Charger
from kquota.audit.settings import AuditSettings
from kquota.core.change.history import QuotaHistory
from kquota.core.enforcement.kind import PRODUCE
from kquota.core.quotas.entity import DEFAULT, Entity
from kquota.core.quotas.quota import QuotaKey
from kquota.core.quotas.snapshot import QuotaSnapshot

HOURS: Final = 10
TURN: Final = 50_000
_START_MS: Final = 1_700_000_000_000
_MANY: Final = 10**8


class Size(NamedTuple):
    """The state after so many events."""

    events: int
    counters: int
    names: int
    state_bytes: int

    @property
    def each(self) -> float:
        """Bytes of a counter."""
        return self.state_bytes / self.counters


def turns(events: int, users: int, clients: int) -> Iterator[Batch]:
    """What comes in each turn."""
    random = np.random.default_rng(3)
    of_user = max(clients // users // HOURS, 1)
    names = [f"user-{number:05}" for number in range(users)]
    for start in range(0, events, TURN):
        rows = min(TURN, events - start)
        at = np.arange(start, start + rows)
        user = random.integers(0, users, rows)
        client = ((at * HOURS // events) * users + user) * of_user + random.integers(0, of_user, rows)
        present, codes = np.unique(client, return_inverse=True)
        yield Batch(
            broker=Column.constant("1", rows),
            user=Column(user.astype(np.int32), names),
            client_id=Column(codes.astype(np.int32), [f"worker-6f9c8d7b5-{number:07}" for number in present.tolist()]),
            kind=np.full(rows, PRODUCE, np.uint8),
            time_ms=_START_MS + at * (HOURS * 3_600_000) // events,
            bytes=random.integers(100, 100_000, rows),
        )


def grow(events: int, users: int, clients: int) -> list[Size]:
    """The state at some fifty moments, as a follower keeps it."""
    limit = {QuotaKey.PRODUCER_BYTE_RATE: 1e5}
    history = QuotaHistory.of(QuotaSnapshot({Entity(user=DEFAULT): limit}))
    settings = AuditSettings(history)
    counters, charger = Counters(settings, SETTLE_MS), Charger(settings)
    sizes = []
    each = max(events // TURN // (5 * HOURS), 1)
    for turn, batch in enumerate(turns(events, users, clients), 1):
        charger.charge(batch)
        counters.take(charger.take((0, turn)))
        counters.episodes()
        counters.forget()
        if turn % each == 0:
            sizes.append(Size(turn * TURN, len(counters.refs), len(counters._names), len(encode(counters.kept()))))
    return sizes


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, nargs="+", default=[2_000_000, 4_000_000])
    parser.add_argument("--users", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=1_000_000)
    asked = parser.parse_args()
    for events in asked.events:
        begun = time.process_time()
        sizes = grow(events, asked.users, asked.clients)
        spent = time.process_time() - begun
        fifths = [sizes[part * len(sizes) // 5 : (part + 1) * len(sizes) // 5] for part in range(5)]
        peaks = [max(fifth, key=lambda size: size.each) for fifth in fifths]
        slope, at_zero = np.polyfit([peak.events for peak in peaks[1:]], [peak.each for peak in peaks[1:]], 1)
        print(f"{events:,} events, {asked.users:,} counters, {asked.clients:,} clients: {spent:.1f} s CPU")
        print("  bytes a counter at most:", ", ".join(f"{peak.each:.0f}" for peak in peaks))
        print("  clients known then:     ", ", ".join(f"{peak.names:,}" for peak in peaks))
        print(f"  slope: {1e6 * slope:+.2f} bytes a counter for a million events")
        print(f"  by that slope {at_zero + slope * _MANY:,.0f} bytes a counter after {_MANY:,} events")


if __name__ == "__main__":
    main()
