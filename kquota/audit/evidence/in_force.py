"""Which quotas were in force while the usage was recorded, and what the recording then says of its clients.

Where the quotas in question were in force, nothing has to be simulated: the throttle times that the brokers answered
are what the clients met. Three things show it: somebody says so, the quotas are a history that the log does not deny,
or the replay comes to the throttle times that were logged. The rate of a counter that is held at its limit stays near
to it. So the replay under a limit one percent off comes to several times the throttle time, or to none.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kquota.audit.batch import NO_CONNECTION
from kquota.audit.evidence.clients import EMPTY_BYTES, Rows
from kquota.audit.evidence.prediction_store import as_recorded
from kquota.core.change.history import QuotaHistory
from kquota.core.findings.prediction import LOGGED, REPLAYED, UNKNOWN, Interval, Prediction, RecordedUnder, Source
from kquota.core.findings.verdicts import Verdict
from kquota.core.quotas.quota import QuotaKey
from kquota.core.resolve.resolver import Resolver

if TYPE_CHECKING:
    from kquota.audit.ledger.rows import Judged
    from kquota.audit.settings import AuditSettings

SAME: Final = 0.05
"""A replay within this share of the logged throttle times and throttled requests is under the same quota."""
ENOUGH_HITS: Final = 20
"""Fewer throttled requests show nothing."""
REPLAY_ERROR: Final = 0.1
"""The replay of quotas in force is within this share of the brokers' throttle times (docs/accuracy.md)."""


class InForce:
    """The quotas under which an export was recorded, as far as the settings say it."""

    def __init__(self, settings: AuditSettings) -> None:
        self._settings = settings
        self._resolvers: dict[tuple[int, QuotaKey], Resolver] = {}

    def recorded_under(self, judged: Judged) -> RecordedUnder:
        """What held the clients of a counter back: as the user says, and as the recorded throttle times show."""
        named = self._settings.recorded_under
        if named is None:
            source = Source.LOG if judged.held_back else Source.UNKNOWN
            limit = judged.limits[-1][1] if len(judged.limits) == 1 and reproduces(judged) else None
            return RecordedUnder(source, limit, judged.held_back)
        if not any(named.snapshots):
            return RecordedUnder(Source.NONE, None, judged.held_back)
        resolver = self._resolver(named, judged.ref.key)
        limits = {resolver.resolve(*client).limit for client in judged.clients}
        limit = limits.pop() if len(limits) == 1 else None
        return RecordedUnder(Source.FILE, None if limit is None else float(limit), judged.held_back)

    def of_calm(self, variant: int) -> tuple[RecordedUnder, bool] | None:
        """The same of all counters that nobody throttled, and whether it `holds`; None where each is another case."""
        named = self._settings.recorded_under
        if named is not None and any(named.snapshots):
            return None
        return RecordedUnder(Source.UNKNOWN if named is None else Source.NONE), are_in_force(self._settings, variant)

    def holds(self, judged: Judged) -> bool:
        """Whether the quotas in question of a counter's clients are those under which they were recorded."""
        variant = judged.ref.variant
        quotas, named = self._settings.variants[variant], self._settings.recorded_under
        if are_in_force(self._settings, variant):
            # Of a history nobody says that these brokers had it: a log in which nobody was throttled denies it.
            denied = judged.verdict is Verdict.THROTTLED and judged.logged is not None and not judged.held_back
            return self._settings.in_force or quotas == named or not denied
        if named is None:
            return reproduces(judged)
        if not judged.clients or not any(named.snapshots) or named.changes_ms:
            return False
        # Another quota of the same clients may hold them back otherwise.
        return all(
            (one.limit, one.sensor) == (other.limit, other.sensor)
            for key in QuotaKey
            if key is not QuotaKey.CONNECTION_CREATION_RATE
            for client in judged.clients
            for one, other in [
                (self._resolver(quotas, key).resolve(*client), self._resolver(named, key).resolve(*client))
            ]
        )

    def _resolver(self, quotas: QuotaHistory, key: QuotaKey) -> Resolver:
        name = (id(quotas), key)
        if name not in self._resolvers:
            self._resolvers[name] = Resolver.of(quotas.latest, key)
        return self._resolvers[name]


def are_in_force(settings: AuditSettings, variant: int) -> bool:
    """Whether the quotas of a variant were in force while the export was recorded, as far as the settings say."""
    quotas = settings.variants[variant]
    return (settings.in_force and variant == 0) or bool(quotas.changes_ms) or quotas == settings.recorded_under


def reproduces(judged: Judged) -> bool:
    """Whether the replay comes to what the brokers answered: then it is under the quotas that were in force."""
    logged = judged.logged
    if judged.verdict is not Verdict.THROTTLED or logged is None or logged.throttled_events < ENOUGH_HITS:
        return False
    pairs = ((judged.throttled, logged.throttled_events), (judged.throttle_ms, logged.throttle_time_ms or 0))
    return all(abs(replayed - answered) <= SAME * answered for replayed, answered in pairs)


def happened(judged: Judged, recorded: RecordedUnder, rows: Rows, kind: str) -> Prediction:
    """What the clients of a counter met while they were recorded, which is what they meet under the same quotas.

    `rows` are its requests, `kind` the kind of its clients.
    """
    key, logged = judged.ref.key, judged.logged
    order = np.argsort(rows.time, kind="stable")
    rows = rows.take(order)
    length = int(rows.time[-1] - rows.time[0])
    seconds = max(length, 1000) / 1000
    throttle = np.maximum(rows.throttle, 0)
    # The broker sends nothing of a throttled fetch, and rejects a throttled mutation that is strict.
    lost = throttle > 0
    if key is QuotaKey.CONTROLLER_MUTATION_RATE:
        lost &= rows.detail == 0
    elif key is not QuotaKey.CONSUMER_BYTE_RATE:
        lost[:] = False
    got = int(rows.size[~lost].sum()) / scale_of(key) / seconds
    moved = np.flatnonzero(~lost & (rows.size > (EMPTY_BYTES if key is QuotaKey.CONSUMER_BYTE_RATE else 0)))
    done = int(rows.time[moved[-1]] - rows.time[0]) if len(moved) else length
    delivered = Interval.at_least(got) if key is QuotaKey.REQUEST_PERCENTAGE else Interval.exactly(got)
    calm = as_recorded(done, got, REPLAYED if logged is None else LOGGED, recorded)
    prediction = replace(calm, client_kind=kind, delivered_per_s=delivered, wanted_per_s=delivered, recorded_ms=length)
    if not (judged.verdict is Verdict.THROTTLED if logged is None else logged.throttled_events):
        return prediction
    if logged is None:  # the recording has no throttle times: the replay of the quotas says them
        total, longest, muted = _about(judged.throttle_ms), _about(judged.throttle_max_ms), UNKNOWN
    else:
        answers = _answers(rows, throttle, key)
        total, longest = Interval.exactly(int(answers.sum())), Interval.exactly(int(answers.max()))
        muted = _muted(rows, throttle, length)
    return replace(
        prediction,
        verdict=Verdict.THROTTLED.value,
        throttle_time_ms=total,
        throttle_time_max_ms=longest,
        muted_share=muted,
        wanted_per_s=Interval.at_least(got),
        left_units=Interval.at_least(0),
    )


def scale_of(key: QuotaKey) -> float:
    """How many of the units that rows have make one of the units of predictions: thread time has ns, and seconds."""
    return 1e9 if key is QuotaKey.REQUEST_PERCENTAGE else 1


def _answers(rows: Rows, throttle: Any, key: QuotaKey) -> Any:
    """The throttle times that clients were told."""
    if key is QuotaKey.CONTROLLER_MUTATION_RATE:
        # Each rejected topic of a request has the one throttle time of the answer.
        return np.unique(np.column_stack([rows.time, throttle])[throttle > 0], axis=0)[:, 1]
    return throttle[throttle > 0]


def _muted(rows: Rows, throttle: Any, length: int) -> Interval:
    """The share of the time in which the busiest connection was muted."""
    connections = rows.connection
    if (connections == NO_CONNECTION).any():
        return UNKNOWN
    end = rows.time[-1]
    _, numbers = np.unique(connections, return_inverse=True)
    muted = np.bincount(numbers, np.minimum(throttle, end - rows.time))
    return Interval.exactly(min(float(muted.max()) / max(length, 1), 1.0))


def _about(value: int) -> Interval:
    """A throttle time of which the replay comes to that value."""
    return Interval((1 - REPLAY_ERROR) * value, value, (1 + REPLAY_ERROR) * value)
