"""One look after the other: samples become what is observed of each counter, and with the quotas its use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kquota.core.findings.use import Counter, Enforcers, Observed, Use, uses
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.live.sources import LiveSource, Look, Sample
from kquota.metrics.series import Nature

GONE_MS = 300_000
"""A counter that was not seen for so long is forgotten: Prometheus too looks back for five minutes."""


_KEPT_MS = 120_000
"""How long readings are kept: brokers report a throttle for a minute at most."""


@dataclass
class Watching:
    """Looks at a source again and again, and remembers the last readings of each counter."""

    source: LiveSource
    brokers: Enforcers = field(default_factory=Enforcers)
    _past: Mapping[Counter, tuple[Observed, ...]] = field(default_factory=dict)
    _totals: dict[tuple[Counter, str], tuple[int, float]] = field(default_factory=dict)

    def look(self, snapshot: QuotaSnapshot) -> View:
        """The uses of all counters now. Raises what `LiveSource.look` raises."""
        look = self.source.look(snapshot)
        seen = observed(look, self._totals) | {reading.counter: [reading] for reading in look.readings}
        now = {counter: readings[-1] for counter, readings in seen.items()}
        earlier = {**self._past, **{counter: tuple(past) for counter, (*past, _) in seen.items() if past}}
        current = uses(now.values(), snapshot, source=self.source.name, earlier=earlier, brokers=self.brokers)
        latest = max((reading.at_ms for reading in now.values()), default=0)
        for counter, reading in now.items():
            recent = [past for past in earlier.get(counter, ()) if latest - _KEPT_MS <= past.at_ms < reading.at_ms]
            earlier[counter] = (*recent, reading)
        self._past = {
            counter: readings for counter, readings in earlier.items() if latest - readings[-1].at_ms <= GONE_MS
        }
        return View(current, look, snapshot)


@dataclass(frozen=True)
class View:
    """All uses of one look, and the samples behind them."""

    uses: tuple[Use, ...]
    look: Look
    quotas: QuotaSnapshot


def observed(look: Look, totals: dict[tuple[Counter, str], tuple[int, float]]) -> dict[Counter, list[Observed]]:
    """By counter, the readings that the samples of a look are, in the order of time: several of a range.

    A counter that only grows (Redpanda's) becomes a rate between two readings; `totals` keeps the last reading of each
    series from one look to the next. The parts of a counter, such as shards, are added up.
    """
    times: dict[Counter, dict[int, dict[tuple[Nature, str], float]]] = {}
    for sample in sorted(look.samples, key=lambda sample: sample.at_ms):
        series = sample.series
        counter, nature, value = series.counter, series.nature, sample.value
        if nature is Nature.COUNTER:
            rate = _rate(sample, totals, (counter, series.part))
            if rate is None:
                times.setdefault(counter, {}).setdefault(sample.at_ms, {})
                continue
            nature, value = Nature.RATE, rate
        times.setdefault(counter, {}).setdefault(sample.at_ms, {})[nature, series.part] = value
    # The series of one scrape have one time: they are read together.
    return {
        counter: [_of_values(counter, at_ms, readings[at_ms]) for at_ms in sorted(readings)]
        for counter, readings in times.items()
    }


def _rate(
    sample: Sample, totals: dict[tuple[Counter, str], tuple[int, float]], place: tuple[Counter, str]
) -> float | None:
    """Units per second since the reading before; None for the first, and after a counter began anew."""
    before = totals.get(place)
    if before is not None and sample.at_ms <= before[0]:
        return None
    totals[place] = sample.at_ms, sample.value
    if before is None or sample.value < before[1]:
        return None
    return (sample.value - before[1]) * 1000 / (sample.at_ms - before[0])


def _of_values(counter: Counter, at_ms: int, values: Mapping[tuple[Nature, str], float]) -> Observed:
    rates = [value for (nature, _), value in values.items() if nature is Nature.RATE]
    return Observed(
        counter,
        at_ms,
        sum(rates) if rates else None,
        next((value for (nature, _), value in values.items() if nature is Nature.THROTTLE), None),
        next((value for (nature, _), value in values.items() if nature is Nature.TOKENS), None),
    )
