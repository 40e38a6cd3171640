"""What clients want, from what they got: the rates that a broker observed, where throttled ones are lower bounds.

A quota that throttles also hides how much would have been used. The observed rate of a second in which a client was
held back is therefore right-censored: it says that the client wanted at least so much. The distribution of what was
wanted is the Kaplan-Meier estimate; without throttling it is the plain distribution of the observed rates.

A rate looks back over N windows, and traffic comes in waves: neighbouring seconds show nearly the same. The confidence
interval therefore comes from blocks of time: how much the estimate changes when one of them is left out (the
jackknife), and at least what N dependent windows imply.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

BIN_WIDTH = 0.01
"""Rates are kept to one percent."""

NOTHING = -5000
"""The bin of a rate of 0, below that of any other."""

USUAL = 0.25
"""The share of the time that is looked at for how alike neighbouring seconds are."""

_LOG = math.log1p(BIN_WIDTH)


def upper_end(number: int) -> float:
    """The highest rate of a bin, up to rounding of a double's last digits."""
    return 0.0 if number <= NOTHING else math.exp(number * _LOG)


class Cell(NamedTuple):
    """Seconds of one block of time with a rate of one bin."""

    block: int
    bin: int
    seen: int
    """Seconds whose rate is what was wanted."""
    held: int
    """Seconds in which the client was held back: it wanted at least this."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The smallest limit at which at most a given share of the time would be throttled. Rates are units per second."""

    value: float | None
    """None where it is unknown, because the client was throttled each time it wanted more than `at_least`."""
    at_least: float
    """What the limit would be if the client had wanted no more than it got: it is not less."""
    low: float | None
    """The lower end of the confidence interval; None without a value, or with too little data to tell."""
    high: float | None
    """The upper end; None where the data end before it."""
    seconds: int
    """The time in which the client was active or held back, in seconds."""
    held: int
    """How much of it is a lower bound only."""
    p50: float
    p99: float
    """Of the observed rates, throttled or not."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The seconds of one counter."""

    seconds: int
    throttled: int
    """Seconds with a throttled request; of a measured counter also those in which the client was muted."""
    peak: float
    """The highest observed rate."""
    estimate: Estimate | None
    """Of a counter without a limit."""


def estimate(cells: Iterable[Cell], share: float, confidence: float, samples: int, peak: float = math.inf) -> Estimate:
    """The limit at which at most that share of the time would be throttled, with an interval of that confidence.

    `samples` is N, the number of windows that a rate looks back over; `peak` the highest rate, where the bins say it
    too roughly. There must be a cell with a second in it.
    """
    blocks: dict[int, dict[int, tuple[int, int]]] = {}
    total: dict[int, tuple[int, int]] = {}
    for block, number, seen, held in cells:
        for table in (blocks.setdefault(block, {}), total):
            before = table.get(number, (0, 0))
            table[number] = (before[0] + seen, before[1] + held)
    bins = sorted(total)
    counts = [total[number] for number in bins]
    seconds, held = sum(seen + held for seen, held in counts), sum(held for _, held in counts)
    exceeding = _survival(counts, seconds)
    plain = _survival([(seen + held, 0) for seen, held in counts], seconds)

    def limit(curve: Sequence[float], at: float) -> float | None:
        # One more second than allowed is too much: rounding of a product must not hide it, nor invent it.
        place = next((i for i, left in enumerate(curve) if left <= at * (1 + 1e-9)), None)
        return None if place is None else min(upper_end(bins[place]), peak)

    def observed(at: float) -> float:
        rate = limit(plain, at)
        assert rate is not None, "all plain curves end at 0"
        return rate

    low = high = None
    value = limit(exceeding, share)
    if value is not None:
        interval = _interval(bins, exceeding, total, blocks, share, confidence, samples)
        if interval is not None:
            least, most, certain = interval
            low = limit(exceeding, most)
            high = limit(exceeding, least) if certain else None
    return Estimate(value, observed(share), low, high, seconds, held, observed(0.5), observed(0.01))


def _survival(counts: Sequence[tuple[int, int]], at_risk: int) -> list[float]:
    """Kaplan and Meier: the share of the time in which more was wanted than each of the bins, which are in order.

    Those held back in a bin count as having wanted more than all that were seen in it. `at_risk` is how many seconds
    there are in all bins, those that are left out behind the last one included.
    """
    left, curve = 1.0, []
    for seen, held in counts:
        if seen:
            left *= (at_risk - seen) / at_risk
        at_risk -= seen + held
        curve.append(left)
    return curve


def _interval(
    bins: Sequence[int],
    exceeding: Sequence[float],
    total: dict[int, tuple[int, int]],
    blocks: dict[int, dict[int, tuple[int, int]]],
    share: float,
    confidence: float,
    samples: int,
) -> tuple[float, float, bool] | None:
    """(least, most, …): the shares whose limits are the ends of the interval; whether the data reach the upper end.

    The interval of the curve at the estimate, on the log-log scale that keeps it between 0 and 1, turned around
    (Woodruff). None with less than two blocks.
    """
    if len(blocks) < 2:
        return None
    place = next(i for i, left in enumerate(exceeding) if left <= share * (1 + 1e-9))
    if exceeding[place] <= 0.0:
        place -= 1
    left = exceeding[place] if place >= 0 else 1.0
    if left >= 1.0:  # one rate that was wanted, and no other
        return None
    seconds = sum(seen + held for seen, held in total.values())
    # The few seconds above the limit tell little of how alike seconds are; the busiest quarter tells it better.
    usual = next(i for i, rest in enumerate(exceeding) if rest <= max(left, USUAL))
    usual -= exceeding[usual] <= 0.0
    alike = max(_jackknife(bins, total, blocks, exceeding, at) for at in {place, max(usual, 0)})
    variance = left * (1 - left) / seconds * max(alike, samples)
    independent = left * (1 - left) / variance
    width = _student((1 + confidence) / 2, len(blocks) - 1) * math.sqrt(variance) / (left * -math.log(left))
    # Beyond the highest rate nothing is known: that it lies above the limit at all is only likely with enough data.
    certain = (1 - share) ** independent <= (1 - confidence) / 2
    return share ** math.exp(width), share ** math.exp(-width), certain


def _jackknife(
    bins: Sequence[int],
    total: dict[int, tuple[int, int]],
    blocks: dict[int, dict[int, tuple[int, int]]],
    exceeding: Sequence[float],
    place: int,
) -> float:
    """How many seconds tell as much as one that is independent: the variance at a place of the curve, relative."""
    below = bins[: place + 1]
    plain = all(total[number][1] == 0 for number in below)
    passed = sum(total[number][0] for number in below)
    seconds = sum(seen + held for seen, held in total.values())
    lefts = []
    for block in blocks.values():
        at_risk = seconds - sum(seen + held for seen, held in block.values())
        if plain:  # without a lower bound among them the product is a share
            gone = passed - sum(seen for number, (seen, _) in block.items() if number <= below[-1])
            lefts.append((at_risk - gone) / at_risk if at_risk else 0.0)
            continue
        counts = []
        for number in below:
            seen, held = total[number]
            less = block.get(number, (0, 0))
            counts.append((seen - less[0], held - less[1]))
        lefts.append(_survival(counts, at_risk)[-1])
    mean = sum(lefts) / len(lefts)
    variance = (len(lefts) - 1) / len(lefts) * sum((left - mean) ** 2 for left in lefts)
    left = exceeding[place]
    return variance * seconds / (left * (1 - left)) if 0 < left < 1 else 0.0


def _student(probability: float, freedom: int) -> float:
    """The quantile of Student's t (Cornish and Fisher's series; within a few percent from 3 degrees of freedom on)."""
    z = NormalDist().inv_cdf(probability)
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )
