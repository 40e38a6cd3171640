"""Samples become findings: which counters the series add up to, and what follows for each from the bounds.

A series is exactly one counter, a part of one (then the parts are added up), or coarser. A coarser series is a sum over
several counters: an upper bound of the sum is an upper bound of each counter. A broker charges a request to one counter
only: what has a series of its own is not in its user's series, and what is in its user's series is not in its
client-id's. Nothing is ever a guess: between the bounds a counter is undetermined.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from kquota.audit.batch import Int64s
from kquota.audit.evidence.accounts import THROTTLE_SEEN_MS, Account, Scope, accounts_of
from kquota.audit.evidence.bounds import UNKNOWN, Bounds, Window, of_gauge, of_totals
from kquota.audit.findings import SCHEMA
from kquota.audit.settings import AuditSettings
from kquota.audit.sources.samples import Float64s, Samples
from kquota.core.findings.finding import Basis
from kquota.core.findings.verdicts import Governed, Verdict
from kquota.core.quotas.quota import BYTE_RATES, QuotaKey
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.core.resolve.resolver import Resolution, Resolver, Sensor, encode_user

_COARSER = "the series adds up several counters"
_SHARED = "the series is a part of counters that others share"
_UNSEEN = "the samples leave out some of the time"
_BETWEEN = "the samples allow both"
_EVIDENCE = "no sample shows a token bucket's use"

_HIDES = {
    QuotaKey.REQUEST_PERCENTAGE: (QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE),
    QuotaKey.PRODUCER_BYTE_RATE: (QuotaKey.REQUEST_PERCENTAGE,),
    QuotaKey.CONSUMER_BYTE_RATE: (QuotaKey.REQUEST_PERCENTAGE,),
}
"""Of two quotas that a request violates, only the one with the longer delay shows in `throttle-time`."""

_ANY = "\0"
"""Stands for all names that no quota names."""

_Totals = tuple[Int64s, Int64s, Float64s]
"""(starts, ends, amounts) of intervals."""


class Judgement(NamedTuple):
    """What was found about a counter in one period of the quotas' history."""

    resolution: Resolution
    verdict: Verdict
    reason: str | None
    bounds: Bounds
    accounts: Sequence[Account]
    """Its samples in that period, or the connections."""
    governing: Collection[str]
    """The entities that can be the ones that limit it: one, unless the series adds up several counters."""
    shown: Sequence[int] = ()
    """The times of samples that show a throttle."""

    @property
    def events(self) -> int:
        """How many of them there are."""
        return sum(map(len, self.accounts))

    def tell(self, governing: dict[tuple[str, str], Governed]) -> None:
        """Adds the counter to the quotas that governed it."""
        for entity in sorted(self.governing):
            governing.setdefault((self.resolution.key.value, entity), Governed()).add(self.verdict, self.reason)


def judge(
    samples: Iterable[Samples],
    settings: AuditSettings,
    governing: Sequence[dict[tuple[str, str], Governed]] | None = None,
) -> tuple[list[pa.Table], int]:
    """(the findings under each of the settings' variants, samples without a quota) of all samples of some brokers.

    `governing` takes, for each of the variants, the counters that each quota governed.
    """
    window = Window.of(settings.windows, settings.generation)
    brokers = accounts_of(samples)
    tables, ungoverned = [], 0
    for variant, history in enumerate(settings.variants):
        edges = [0, *history.changes_ms, 1 << 62]
        rows = []
        for broker, accounts in brokers.items():
            periods = []
            for (begin, end), quotas in zip(pairwise(edges), history.snapshots, strict=True):
                trial = _Trial(accounts, quotas, window, settings.in_force, (begin, end))
                periods.append(trial.findings())
                if governing is not None:
                    for judgement in trial.judged:
                        judgement.tell(governing[variant])
                if variant == 0 and end == edges[-1]:
                    ungoverned += trial.ungoverned
            names = dict.fromkeys(name for period in periods for name in period)
            rows += [row_of(broker, *name, [period[name] for period in periods if name in period]) for name in names]
        tables.append(pa.Table.from_pylist(rows, SCHEMA))
    return tables, ungoverned


@dataclass
class _Trial:
    """The samples of one broker under one snapshot, from begin to before end."""

    accounts: dict[Scope, Account]
    quotas: QuotaSnapshot
    window: Window
    in_force: bool
    period: tuple[int, int]
    ungoverned: int = 0
    judged: list[Judgement] = field(default_factory=list)
    """Every finding, also those that share a row with another one."""

    def __post_init__(self) -> None:
        keys = {key for key, _, _ in self.accounts}
        self._resolvers = {key: Resolver.of(self.quotas, key) for key in (*keys, *_HIDES)}

    def findings(self) -> dict[tuple[str, str], Judgement]:
        """By key and counter."""
        exact: dict[tuple[QuotaKey, Sensor], tuple[Resolution, list[Scope]]] = {}
        coarse: dict[Scope, list[Resolution]] = {}
        for scope in self.accounts:
            resolutions = self._resolutions(scope)
            limited = [resolution for resolution in resolutions if resolution.limit is not None]
            sensors = {resolution.sensor for resolution in resolutions}
            if not limited:
                self.ungoverned += len(self.accounts[scope])
            elif len(sensors) == 1 and (_sensor(scope) in sensors or None not in scope):
                exact.setdefault((scope[0], limited[0].sensor), (limited[0], []))[1].append(scope)
            else:
                coarse[scope] = resolutions
        judgements = {
            (scope[0].value, str(_sensor(scope))): self._coarse(scope, resolutions)
            for scope, resolutions in coarse.items()
            if self._is_seen([scope])
        }
        self.judged = [*judgements.values()]
        for (key, sensor), (resolution, scopes) in exact.items():
            if not self._is_seen(scopes):
                continue
            others = [] if self.in_force else [scope for scope in coarse if self._feeds(scope, key, sensor)]
            judgement = self._counter(resolution, scopes, others)
            self.judged.append(judgement)
            name = (key.value, str(sensor))
            # A series that adds up several counters may have the name of one of them.
            if judgement.verdict is Verdict.THROTTLED or name not in judgements or judgements[name].reason is None:
                judgements[name] = judgement
        return judgements

    def _is_seen(self, scopes: Sequence[Scope]) -> bool:
        """Whether there are samples before and after some moment of the period, or in it."""
        return any(self.accounts[scope].reaches_into(*self.period) for scope in scopes)

    def _resolutions(self, scope: Scope, towards: Sensor | None = None) -> list[Resolution]:
        """What governs the clients in a scope, each possibility once; if a sensor is given, those it can hold."""
        key, user, client = scope
        resolver = self._resolvers[key]
        users, clients = [user], [client]
        if user is None:
            users = [_ANY, *{e.user for e in resolver.values if isinstance(e.user, str)}]
            if towards is not None and towards.user:
                users = [unquote(towards.user)]
        if client is None:
            # An empty client-id is not one like others.
            clients = ["", _ANY, *{e.client_id for e in resolver.values if isinstance(e.client_id, str)}]
            if towards is not None and towards.client_id:
                clients = [towards.client_id]
        known = self.accounts
        possible = [
            resolver.resolve(one, other)
            for one in users
            for other in clients
            if one is not None
            and other is not None
            and (user is not None or (key, one, None) not in known)
            and (None not in (user, client) or (key, one, other) not in known)
        ]
        if self.in_force:
            # It is the broker's own counter, and holds whoever is charged to that.
            return [resolution for resolution in possible if resolution.sensor == _sensor(scope)] or possible
        return possible

    def _feeds(self, scope: Scope, key: QuotaKey, sensor: Sensor) -> bool:
        """Whether requests in a coarser series can be charged to a counter that other series add up to."""
        if scope[0] is not key:
            return False
        return any(resolution.sensor == sensor for resolution in self._resolutions(scope, sensor))

    def _counter(self, resolution: Resolution, scopes: list[Scope], others: list[Scope]) -> Judgement:
        """A counter that the series of these scopes add up to; requests in those of `others` may be charged to it."""
        accounts = [self.accounts[scope] for scope in scopes]
        most = [*accounts, *(self.accounts[scope] for scope in others)]
        inside = [account.within(*self.period, self.window.reach) for account in accounts]
        key, limit = resolution.key, float(resolution.limit or 0)
        own = len(scopes) == 1
        bounds = UNKNOWN
        if key is not QuotaKey.CONTROLLER_MUTATION_RATE:
            bounds = Bounds(self._least(inside), self._most(most, key, alone=len(most) == 1))
        hits = [int(t) for account in inside for t in account.throttle_times[account.throttles > 0]]
        shown: list[int] = []
        reason: str | None = None
        if self.in_force and own and hits:
            verdict, shown = Verdict.THROTTLED, hits
        elif bounds.least > limit > 0:
            verdict = Verdict.THROTTLED
            if own:
                over = inside[0].rates * self.window.least > limit * self.window.reach
                shown = inside[0].times[over].tolist()
        elif (limit == 0 and key in BYTE_RATES) or bounds.most <= limit:  # a broker divides by 0: a negative delay
            # What a throttled fetch tried to read is taken back, and in no rate.
            taken_back = key is QuotaKey.CONSUMER_BYTE_RATE and bool(hits)
            verdict = Verdict.UNDETERMINED if taken_back else Verdict.NOT_THROTTLED
        elif self.in_force and own and self._never_throttled(scopes[0]):
            verdict = Verdict.NOT_THROTTLED
        else:
            verdict = Verdict.UNDETERMINED
        if verdict is Verdict.UNDETERMINED:
            unseen = _UNSEEN if math.isinf(bounds.most) else _BETWEEN
            reason = _EVIDENCE if key is QuotaKey.CONTROLLER_MUTATION_RATE else unseen
        governing = _governing(other for scope in scopes for other in self._resolutions(scope))
        return Judgement(resolution, verdict, reason, bounds, inside, governing, shown)

    def _coarse(self, scope: Scope, resolutions: list[Resolution]) -> Judgement:
        """A series whose requests are charged to several counters, or to one that holds others, too."""
        key, user, client = scope
        inside = self.accounts[scope].within(*self.period, self.window.reach)
        limited = [resolution for resolution in resolutions if resolution.limit is not None]
        strictest = min(limited, key=lambda resolution: float(resolution.limit or 0))
        own = _sensor(scope)
        # An empty tag is no tag: it stands for a sum over all.
        contained = all(
            resolution.sensor == own
            or (user and resolution.sensor.user == own.user)
            or (client and resolution.sensor.client_id == client)
            for resolution in limited
        )
        most = math.inf
        if contained and key is not QuotaKey.CONTROLLER_MUTATION_RATE:
            most = self._most([self.accounts[scope]], key, alone=False)
        within = most <= float(strictest.limit or 0)
        verdict = Verdict.NOT_THROTTLED if within else Verdict.UNDETERMINED
        reason = None if within else _COARSER if contained else _SHARED
        return Judgement(strictest, verdict, reason, Bounds(0.0, most), [inside], _governing(limited))

    def _least(self, accounts: list[Account]) -> float:
        window = self.window
        parts = [(account.starts, account.ends, account.amounts) for account in accounts if len(account.amounts)]
        least = of_totals(*_together(parts), window, whole=False).least if parts else 0.0
        if len(accounts) == 1:
            account = accounts[0]
            return max(least, of_gauge(account.times, account.rates, window, exact=False).least)
        # The counter that holds them all has slots of its own: only what was charged in the window before is known.
        readings = [_highest(account.times, account.rates) for account in accounts]
        times, rates = (np.concatenate(column) for column in zip(*readings, strict=True))
        if len(times) == 0:
            return least
        moments, places = np.unique(times, return_inverse=True)
        sums = np.bincount(places, rates)
        best = np.array([moments[sums.argmax()]])
        amount = np.array([sums.max() * window.least / 1000])
        return max(least, of_totals(best - window.reach, best + 1, amount, window, whole=False).least)

    def _most(self, accounts: list[Account], key: QuotaKey, *, alone: bool) -> float:
        """The upper bound for a counter of just these requests; `alone`: one series is the counter."""
        window = self.window
        if any(len(account) == 0 for account in accounts):
            return math.inf
        if alone and len(accounts[0].times):
            account = accounts[0]
            return of_gauge(account.times, account.rates, window, exact=account.rates_exact).most
        if any(len(account.times) for account in accounts):
            readings = [_as_totals(account, window) for account in accounts]
            known = [part for part in readings if part is not None]
            return of_totals(*_together(known), window, whole=True).most if len(known) == len(accounts) else math.inf
        whole = all(account.totals_whole for account in accounts) and self._seamless(key, accounts)
        parts = [(account.starts, account.ends, account.amounts) for account in accounts]
        return of_totals(*_together(parts), window, whole=whole).most

    def _seamless(self, key: QuotaKey, accounts: Sequence[Account]) -> bool:
        """Whether the totals of all series of a key leave no time out; one of these accounts that is missing then is 0.

        But not one with a counter that was something when it was first read, later than others.
        """
        of_key = [account for (other, _, _), account in self.accounts.items() if other is key]
        starts = np.concatenate([account.starts for account in of_key])
        if any(account.born_ms > starts.min() for account in accounts):
            return False
        ends = np.concatenate([account.ends for account in of_key])
        order = np.argsort(starts, kind="stable")
        reached = np.maximum.accumulate(ends[order])
        return bool((starts[order][1:] <= reached[:-1]).all())

    def _never_throttled(self, scope: Scope) -> bool:
        """Whether the broker's own throttle times show that it never did."""
        account = self.accounts[scope]
        if not _quiet(account):
            return False
        for other in _HIDES.get(scope[0], ()):
            if self._resolvers[other].values:
                beside = [peer for name, peer in self.accounts.items() if name[0] is other and _overlap(name, scope)]
                if not beside or not all(map(_quiet, beside)):
                    return False
        return True


def _governing(resolutions: Iterable[Resolution]) -> set[str]:
    return {str(resolution.entity) for resolution in resolutions if resolution.limit is not None}


def _sensor(scope: Scope) -> Sensor:
    """The tags of the broker's own counter of a scope."""
    return Sensor(encode_user(scope[1] or ""), scope[2] or "")


def _quiet(account: Account) -> bool:
    """Whether throttle times cover the time of an account without a gap and are all zero."""
    times = account.throttle_times
    if not account.throttles_exact or len(times) < 2 or (account.throttles > 0).any():
        return False
    first = min((int(marks.min()) for marks in (account.times, account.starts) if len(marks)), default=int(times[0]))
    last = max((int(marks.max()) for marks in (account.times, account.ends) if len(marks)), default=0)
    return int(np.diff(times, prepend=first).max()) <= THROTTLE_SEEN_MS and last <= times[-1]


def _overlap(one: Scope, other: Scope) -> bool:
    """Whether a client can be in both."""
    return all(a is None or b is None or a == b for a, b in zip(one[1:], other[1:], strict=True))


def _highest(times: Int64s, rates: Float64s) -> tuple[Int64s, Float64s]:
    """The readings, one of each moment: two servers that scrape the same counter may give it twice."""
    if len(times) == 0:
        return times, rates
    starts = np.flatnonzero(np.diff(times, prepend=times[0] - 1))
    return times[starts], np.maximum.reduceat(rates, starts)


def _together(parts: Sequence[_Totals]) -> _Totals:
    """The intervals of all parts."""
    starts, ends, amounts = (np.concatenate(column) for column in zip(*parts, strict=True))
    return starts, ends, amounts


def _as_totals(account: Account, window: Window) -> _Totals | None:
    """(starts, ends, amounts) that the readings of a rate allow at most; None where they leave time out.

    What was charged since an earlier reading, at most `lives` before, lives at a later one. Few readings as far apart
    as that are better than many: each allows a whole window.
    """
    if not account.rates_exact or len(account.times) == 0 or len(account.amounts):
        return None
    chosen = [0]
    while chosen[-1] < len(account.times) - 1:
        last = int(np.searchsorted(account.times, account.times[chosen[-1]] + window.lives, side="right")) - 1
        if last == chosen[-1]:
            return None
        chosen.append(last)
    ends = account.times[chosen] + 1
    starts = np.concatenate([[ends[0] - window.lives - 1], ends[:-1]])
    return starts, ends, account.rates[chosen] * window.reach / 1000


def row_of(broker: str, key: str, sensor: str, periods: list[Judgement]) -> dict[str, Any]:
    """The finding of a counter, from what was found in each period."""
    limited = [judgement.resolution for judgement in periods]
    verdicts = {judgement.verdict for judgement in periods}
    verdict = next(v for v in (Verdict.THROTTLED, Verdict.UNDETERMINED, Verdict.NOT_THROTTLED) if v in verdicts)
    most = max(judgement.bounds.most for judgement in periods)
    shown = [time for judgement in periods for time in judgement.shown]
    logged = np.concatenate([account.throttles for judgement in periods for account in judgement.accounts])
    last = next((judgement for judgement in reversed(periods) if judgement.events), periods[-1])
    never = verdict is Verdict.NOT_THROTTLED
    return {
        "broker": broker,
        "key": key,
        "sensor": sensor,
        "entity": str(limited[-1].entity),
        "level": int(limited[-1].level or 0),
        "limit": float(limited[-1].limit or 0),
        "limit_changes": sum((a.entity, a.limit) != (b.entity, b.limit) for a, b in pairwise(limited)),
        "verdict": verdict.value,
        "reason": next((j.reason for j in periods if j.verdict is verdict), None),
        "basis": (Basis.TOTALS if any(len(account.amounts) for account in last.accounts) else Basis.RATES).value,
        "events": sum(judgement.events for judgement in periods),
        "throttled_events": 0 if never else None,
        "throttle_time_ms": 0 if never else None,
        "throttle_time_max_ms": 0 if never else None,
        "peak_rate": max(judgement.bounds.least for judgement in periods),
        "peak_rate_max": None if math.isinf(most) else most,
        "first_throttled_ms": min(shown, default=None),
        "last_throttled_ms": max(shown, default=None),
        "logged_throttled_events": int((logged > 0).sum()) if len(logged) else None,
        "logged_throttle_time_max_ms": round(float(logged.max(initial=0.0))) if len(logged) else None,
        "estimated_events": 0,
        "rebuilt_events": 0,
        "client_count": max(len(judgement.accounts) for judgement in periods),
        "clients": [],
    }
