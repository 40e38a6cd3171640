"""All samples of one scope on one broker, in time: what a judgement is made of.

Servers that scrape the same counter twice, counters that begin anew, and counters that are first read late are known
for what they are here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from kquota.audit.batch import Int64s
from kquota.audit.sources.samples import Float64s, Samples
from kquota.core.quotas.quota import QuotaKey
from kquota.core.tabular import grouped
from kquota.metrics.series import Nature

THROTTLE_SEEN_MS = 30_000
"""How long a throttle shows in `throttle-time`: the mean of two samples of 30 s, unless `metrics.sample.window.ms` is
smaller."""

Scope = tuple[QuotaKey, str | None, str | None]
"""(key, user, client-id) of a series; None sums over all."""


@dataclass
class Account:
    """All samples of one scope on one broker, in time."""

    times: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    rates: Float64s = field(default_factory=lambda: np.zeros(0))
    rates_exact: bool = True
    throttle_times: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    throttles: Float64s = field(default_factory=lambda: np.zeros(0))
    throttles_exact: bool = True
    starts: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    ends: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    amounts: Float64s = field(default_factory=lambda: np.zeros(0))
    totals_whole: bool = True
    born_ms: int = 0
    """From when (ms) its totals are known: before, one of its counters came to what it was when it was first read."""

    def __len__(self) -> int:
        return len(self.times) + len(self.amounts)

    def reaches_into(self, begin: int, end: int) -> bool:
        """Whether some of the time from the first sample to the last one is between `begin` and before `end` (ms)."""
        firsts, lasts = (self.times, self.throttle_times, self.starts), (self.times, self.throttle_times, self.ends - 1)
        first, last = (np.concatenate(columns) for columns in (firsts, lasts))
        return len(first) > 0 and int(first.min()) < end and int(last.max()) >= begin

    def within(self, begin: int, end: int, reach: int) -> Account:
        """What is only about the time from `begin` to before `end` (ms)."""
        reading = (self.times >= begin + reach) & (self.times < end)
        throttle = (self.throttle_times >= begin + 2 * THROTTLE_SEEN_MS) & (self.throttle_times < end)
        total = (self.starts >= begin) & (self.ends <= end)
        return Account(
            self.times[reading], self.rates[reading], self.rates_exact,
            self.throttle_times[throttle], self.throttles[throttle], self.throttles_exact,
            self.starts[total], self.ends[total], self.amounts[total], self.totals_whole, self.born_ms,
        )  # fmt: skip


def accounts_of(samples: Iterable[Samples]) -> dict[str, dict[Scope, Account]]:
    """By broker and scope; each series once, however often it was exported."""
    brokers: dict[str, dict[Scope, Account]] = {}
    for series, parts in grouped(samples, lambda piece: piece.series).items():
        scope = (series.key, series.user, series.client_id)
        account = brokers.setdefault(series.broker, {}).setdefault(scope, Account())
        columns = np.concatenate(
            [np.column_stack([piece.end_ms, np.full(len(piece), piece.slack_ms)]) for piece in parts]
        )
        values = np.concatenate([piece.values for piece in parts])
        order = np.lexsort((values, columns[:, 0]))
        columns, values = columns[order], values[order]
        new = np.ones(len(values), bool)
        new[1:] = (np.diff(columns[:, 0]) != 0) | (np.diff(values) != 0)
        _put(account, series.nature, columns[new], values[new], all(piece.ceiling for piece in parts))
    return brokers


def _put(account: Account, nature: Nature, columns: Int64s, values: Float64s, ceiling: bool) -> None:
    """Adds a series to the account of its scope."""
    ends, slack = columns.T
    match nature:
        case Nature.RATE:
            order = np.argsort(np.concatenate([account.times, ends]), kind="stable")
            account.times = np.concatenate([account.times, ends])[order]
            account.rates = np.concatenate([account.rates, values])[order]
            account.rates_exact &= ceiling
            return
        case Nature.THROTTLE:
            order = np.argsort(np.concatenate([account.throttle_times, ends]), kind="stable")
            account.throttle_times = np.concatenate([account.throttle_times, ends])[order]
            account.throttles = np.concatenate([account.throttles, values])[order]
            account.throttles_exact &= ceiling
            return
        case Nature.COUNTER:
            in_order = _in_order(ends, values, slack)
            ends, slack, values = (column[in_order] for column in (ends, slack, values))
            # A counter that went down began anew; what was charged to it from the last reading to then is lost.
            rises = np.diff(values, prepend=0.0)
            ceiling = ceiling and not (rises < 0).any()
            amounts = np.where(rises < 0, values, rises)
            if values[0] > 0:
                account.born_ms = max(account.born_ms, int(ends[0] - slack[0]))
            starts, ends, values = ends[:-1] - slack[1:], (ends + slack + 1)[1:], amounts[1:]
    account.starts = np.concatenate([account.starts, starts])
    account.ends = np.concatenate([account.ends, ends])
    account.amounts = np.concatenate([account.amounts, values])
    account.totals_whole &= ceiling


def _in_order(ends: Int64s, values: Float64s, slack: Int64s) -> list[int]:
    """The places of a counter's readings without those that were made before an earlier one, as far as times tell.

    Two servers that scrape the same counter do not read it in the order of their times.
    """
    if not (np.diff(values) < 0).any():
        return list(range(len(values)))
    kept: list[int] = []
    readings = zip(ends.tolist(), values.tolist(), slack.tolist(), strict=True)
    highest = (0, 0.0)
    for place, (end, value, off) in enumerate(readings):
        if kept and value < highest[1] and end - highest[0] <= 2 * off:
            continue
        kept.append(place)
        highest = end, value
    return kept
