"""What a log with milliseconds costs: `python -m tools.accuracy.milliseconds FOLDER`, of a recording with microseconds.

The times of the log are cut to milliseconds. Then each throttled counter of fetches is replayed, following the log:

* *us*: at the times of the whole log; *ms*: at those of the cut one; both with the sizes that the produced data tells.
* *told*: at the cut times, each moved by up to a millisecond to where the broker's logged throttle times fit best. This
  is circular: it shows how much the log could tell, and proves nothing about quotas in force.
* *ahead*: each throttle time as predicted from those before it alone, which is not circular.

*Edges* are the events that begin a sample of the rate; *wrong* are those that begin one in the cut log or in the whole
log only, before and after the throttle times moved them.
"""

from __future__ import annotations

import argparse
import gzip
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kquota.audit.batch import UNKNOWN
from kquota.audit.sources.event import UsageEvent
from kquota.core.enforcement.counter import CURRENT, Counter
from kquota.core.enforcement.generation import Generation, QuotaWindows
from kquota.core.enforcement.kernel import Mode, kernel
from kquota.core.enforcement.kind import PRODUCE
from kquota.core.quotas.quota import QuotaKey
from kquota.documents.history import read_history
from tools.accuracy.throttles import LOG, Limits, estimate_fetches, logs_of, read_events, rebuilt_sizes

_MICROSECONDS = re.compile(r"^(\[[^]]*,\d{3})\d{3}\]", re.MULTILINE)
_KERNEL = kernel(Mode.PLAIN)
_HYPOTHESES = 24
"""So many ways to move the times are followed at once."""
_MOST_MS = 2000
"""A throttle time that is off by more counts as this."""
_MOVED = 0.3
"""What a moved time costs, in ms of a throttle time that does not fit."""


@dataclass(frozen=True)
class Charges:
    """The fetches of one counter, in order of time."""

    events: Sequence[UsageEvent]
    sizes: Sequence[int]
    limits: Sequence[float]

    @property
    def logged_ms(self) -> int:
        """What the broker answered."""
        return sum(event.throttle_ms or 0 for event in self.events)


def cut(folder: Path, out: Path) -> None:
    """Copies the logs of a recording with whole milliseconds."""
    for name, path in logs_of(folder).items():
        (out / name).mkdir()
        text = gzip.decompress(path.read_bytes()).decode()
        (out / name / LOG).write_bytes(gzip.compress(_MICROSECONDS.sub(r"\1]", text).encode(), 1))


def _charge(counter: Counter, charges: Charges, row: int, time_ms: int) -> int:
    """Charges a fetch; the counter takes back what the broker took back."""
    size = float(charges.sizes[row])
    throttle = _KERNEL.charge_counter(counter, PRODUCE, time_ms, size, charges.limits[row]).throttle_ms
    if charges.events[row].bytes == UNKNOWN:
        _KERNEL.note(counter, PRODUCE, time_ms, -size)
    return max(throttle, 0)


def replay(charges: Charges, times: Sequence[int]) -> tuple[int, frozenset[int]]:
    """The throttle time in ms, and the events that begin a sample."""
    counter = _KERNEL.new_counter(QuotaWindows(), Generation.N_PLUS_1_BY_LAST)
    total, current, edges = 0, -1, set()
    for row, time_ms in enumerate(times):
        total += _charge(counter, charges, row, time_ms)
        if counter.ints[CURRENT] != current:
            current = counter.ints[CURRENT]
            edges.add(row)
    return total, frozenset(edges)


@dataclass(frozen=True)
class _Times:
    """Times as a chain from the last one."""

    last: int
    before: _Times | None


@dataclass(frozen=True)
class _Way:
    """One way to move the times, as far as it has come."""

    cost: float
    counter: Counter
    times: _Times | None


def tell(charges: Charges, times: Sequence[int]) -> tuple[list[int], int]:
    """The times at which the logged throttle times fit best; the sum of those predicted one ahead, in ms."""
    ways = [_Way(0.0, _KERNEL.new_counter(QuotaWindows(), Generation.N_PLUS_1_BY_LAST), None)]
    ahead = 0
    for row, time_ms in enumerate(times):
        logged = charges.events[row].throttle_ms or 0
        found: dict[tuple[tuple[int, ...], tuple[float, ...]], _Way] = {}
        for number, way in enumerate(ways):
            for moved in (0, -1, 1):
                now = time_ms + moved if way.times is None else max(time_ms + moved, way.times.last)
                counter = way.counter._replace(ints=list(way.counter.ints), floats=list(way.counter.floats))
                throttle = _charge(counter, charges, row, now)
                if number == moved == 0:
                    ahead += throttle
                cost = way.cost + min(abs(throttle - logged), _MOST_MS) + _MOVED * abs(moved)
                key = tuple(counter.ints), tuple(counter.floats)
                if key not in found or found[key].cost > cost:
                    found[key] = _Way(cost, counter, _Times(now, way.times))
        ways = sorted(found.values(), key=lambda way: way.cost)[:_HYPOTHESES]
    best, chain = [], ways[0].times
    while chain is not None:
        best.append(chain.last)
        chain = chain.before
    return best[::-1], ahead


def main(argv: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.accuracy.milliseconds", description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args(argv).folder
    limits = Limits(read_history(folder / "quotas.json"), QuotaKey.CONSUMER_BYTE_RATE)
    with tempfile.TemporaryDirectory() as scratch:
        cut(folder, Path(scratch))
        sizes = rebuilt_sizes(logs_of(Path(scratch)))
        for broker, path in logs_of(folder).items():
            whole = read_events(path)
            counters: dict[str, list[tuple[UsageEvent, int, float]]] = defaultdict(list)
            for event, exact in zip(read_events(Path(scratch, broker, LOG)), whole, strict=True):
                found = limits.of(event, event.time_ms) if event.api == "fetch" and not event.exempt else None
                if found is not None:
                    counters[str(found[0])].append((event, exact.time_ms, found[1]))
            for sensor, rows in sorted(counters.items()):
                rows.sort(key=lambda row: row[0].time_ms)
                events, exact_ms, bounds = zip(*rows, strict=True)
                charges = Charges(events, estimate_fetches(events, sizes[broker]), bounds)
                if charges.logged_ms < _MOST_MS:
                    continue
                cut_ms = [event.time_ms for event in events]
                moved_ms, ahead = tell(charges, cut_ms)
                (us, truth), (ms, edges), (told, moved) = (
                    replay(charges, each) for each in (exact_ms, cut_ms, moved_ms)
                )
                ratios = " ".join(f"{value / charges.logged_ms:7.3f}" for value in (us, ms, told, ahead))
                print(f"{broker:12} {sensor:24} {ratios}  {len(truth):4} {len(truth ^ edges):4} {len(truth ^ moved):4}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
