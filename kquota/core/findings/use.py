"""The use of a counter at a moment: what brokers report about it, beside the quota that governs it.

A broker keeps a counter for each set of tags that its clients are charged under. It derives the counter's limit from
these tags alone (`ClientQuotaManager.DefaultQuotaCallback.quotaLimit`). Its metrics bear the tags and not the limit:
the series `user="alice"` may be limited by the default user, and no entity is called alice then. `uses` brings both
together, for all five keys. What the metrics cannot say is in `Use.unknown`.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from kquota.core.enforcement.generation import Generation, QuotaWindows
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey, Value, share_of_limit
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.core.quotas.static import NO_STATIC_QUOTAS, StaticQuotas
from kquota.core.resolve.resolver import Level, Resolution, Resolver, Sensor, encode_user, resolve_ip, tagged


class Counter(NamedTuple):
    """A counter of one broker by its tags; a tag that it does not have is empty."""

    broker: str
    key: QuotaKey
    user: str
    """The principal's name, not encoded."""
    client_id: str
    """Of connections, the ip."""

    @property
    def sensor(self) -> Sensor:
        """The counter's identity as brokers spell it."""
        return Sensor(encode_user(self.user), self.client_id)

    @property
    def subject(self) -> str:
        """The tags as the text of an entity: `user=alice,client-id=app1`, `ip=10.0.0.1`."""
        return str(tagged(*self[1:]))

    @property
    def whom(self) -> str:
        """Whose requests the counter holds, in words."""
        if self.key is QuotaKey.CONNECTION_CREATION_RATE:
            return f"the connections from {self.client_id}"
        if self.user and self.client_id:
            return f"the clients of user {self.user} with client-id {self.client_id}"
        if self.user:
            return f"all clients of user {self.user} that share this limit"
        return f"all clients with client-id {self.client_id}, of any user, that share this limit"


class Share(NamedTuple):
    """A client of a counter, and its part of the counter's rate."""

    client: Sensor
    rate: float


class Observed(NamedTuple):
    """What a source reports about a counter. None stands for a series that the source does not have."""

    counter: Counter
    at_ms: int
    rate: float | None = None
    """In units of the key per second, over the broker's own window."""
    throttle_ms: float | None = None
    """The mean throttle time of requests that were throttled in the last half minute or minute; 0 where none was."""
    tokens: float | None = None
    """Of mutations: what is left in the bucket; below 0 the controller throttles."""
    at_least: bool = False
    """Whether the rate is a lower bound."""
    clients: tuple[Share, ...] | None = None
    """The clients in the counter, the loudest first; None where only finer series can name them."""
    unknown: tuple[str, ...] = ()
    """What the source cannot say about this counter, a sentence each."""


class State(enum.Enum):
    """How near a counter is to its limit, from the worst on."""

    THROTTLED = "throttled"
    """The broker reports a throttle time, no tokens, or a rate that proves one."""
    WAS_THROTTLED = "was_throttled"
    """The broker reports a throttle time of the last minute, and the counter is used too little to be throttled now."""
    NEAR = "near"
    """From `near_share` on, the moments at which requests arrive decide."""
    WITHIN = "within"
    UNKNOWN = "unknown"
    """There is a limit, and nothing says how near the counter is."""
    UNLIMITED = "unlimited"


@dataclass(frozen=True, slots=True)
class Use:
    """One counter with the quota that governs it. Rates are in units of the key per second."""

    observed: Observed
    resolution: Resolution
    state: State
    share: float | None
    """The rate over the limit; None without one of them."""
    until_throttled_s: float | None
    """Seconds until the counter is over its limit if its clients go on as now; None for never, or not known."""
    trend: float | None
    """How much the rate has changed since the reading before, per second; None without one."""
    clients: tuple[Sensor, ...]
    """The clients that are known to be charged to the counter, from finer series of the same broker or from a log."""
    source: str
    unknown: tuple[str, ...]
    """What the source cannot say about this counter, a sentence each."""

    @property
    def counter(self) -> Counter:
        """The counter."""
        return self.observed.counter

    @property
    def limit(self) -> Value | None:
        """The limit that governs the counter; None for none."""
        return self.resolution.limit

    @property
    def level(self) -> Level | None:
        """The level at which the limit is set."""
        return self.resolution.level

    @property
    def entity(self) -> Entity | None:
        """The entity whose quota it is; None for a static default, and without a limit."""
        return self.resolution.entity

    def age_s(self, now_ms: int) -> float:
        """How old the reading is."""
        return max(now_ms - self.observed.at_ms, 0) / 1000


@dataclass(frozen=True)
class Enforcers:
    """What is known of the brokers beside their quotas."""

    windows: QuotaWindows = field(default_factory=QuotaWindows)
    generation: Generation = Generation.N_PLUS_1_BY_LAST
    static: StaticQuotas = NO_STATIC_QUOTAS

    @property
    def window_s(self) -> int:
        """The shortest window over which a rate is a mean."""
        return (self.windows.samples - 1) * self.windows.window_seconds

    @property
    def near(self) -> float:
        """The share of the limit from which on steady traffic may be throttled: (N-1)/N, 0.91 by default.

        A request at the end of each sample puts N samples into a window of N-1: the broker sees N/(N-1) of the rate.
        """
        return (self.windows.samples - 1) / self.windows.samples

    @property
    def proven(self) -> float:
        """The share of the limit above which a reading proves a throttle: 1.2 by default, 1.1 before Kafka 3.8.

        A rate rises between requests when the window shrinks, from its longest to its shortest length.
        """
        longest = self.windows.samples + (1 if self.generation.by_last else 0)
        return longest * self.windows.window_seconds / max(self.window_s, 1)

    def idle(self, throttle_ms: float) -> float:
        """The share up to which a counter whose requests were delayed for so long is throttled no more.

        Brokers report the mean of the last half minute or minute. A counter that is still throttled goes over its limit
        with each request. Until the next one its rate falls by what leaves the window: by the delay's part of it, and
        by the window's own growth.
        """
        return max(1 / self.proven - throttle_ms / (1000 * self.window_s), 0.0)


def uses(
    observed: Iterable[Observed],
    snapshot: QuotaSnapshot,
    *,
    source: str,
    earlier: Mapping[Counter, Sequence[Observed]] | None = None,
    brokers: Enforcers | None = None,
) -> tuple[Use, ...]:
    """The use of every counter that was observed, in the order of `rank`.

    `earlier` holds the readings before, in the order of time.
    """
    readings = {reading.counter: reading for reading in observed}
    before = earlier or {}
    known = brokers or Enforcers()
    resolvers = {key: Resolver.of(snapshot, key, known.static) for key in QuotaKey}
    members = _members(readings, resolvers)
    used = [
        _use(now, _governing(counter, snapshot, resolvers), before.get(counter, ()), members, resolvers, source, known)
        for counter, now in readings.items()
    ]
    return tuple(sorted(used, key=rank))


def rank(use: Use) -> tuple[object, ...]:
    """The order of uses: the throttled ones first, then by throttle time, then by share, then by name."""
    harm = -(use.observed.throttle_ms or 0.0), -(use.share or 0.0)
    return list(State).index(use.state), harm, use.counter[:1], use.counter.key.value, use.counter[2:]


def _governing(counter: Counter, snapshot: QuotaSnapshot, resolvers: Mapping[QuotaKey, Resolver]) -> Resolution:
    if counter.key is QuotaKey.CONNECTION_CREATION_RATE:
        return resolve_ip(snapshot, counter.client_id)
    return resolvers[counter.key].of_counter(counter.user, counter.client_id)


_Members = Mapping[tuple[str, QuotaKey, Sensor], Collection[Sensor]]


def _members(readings: Mapping[Counter, Observed], resolvers: Mapping[QuotaKey, Resolver]) -> _Members:
    """(broker, key, counter) → the clients in it, of all pairs of user and client-id that any series names."""
    connections = QuotaKey.CONNECTION_CREATION_RATE
    pairs = {
        (counter.broker, counter.user, counter.client_id): None
        for counter in readings
        if counter.user and counter.client_id
    }
    keys = {counter.key for counter in readings if counter.key is not connections}
    members: dict[tuple[str, QuotaKey, Sensor], dict[Sensor, None]] = {}
    for broker, user, client_id in pairs:
        for key in keys:
            sensor = resolvers[key].resolve(user, client_id).sensor
            members.setdefault((broker, key, sensor), {})[Sensor(encode_user(user), client_id)] = None
    return members


def _use(
    now: Observed,
    resolution: Resolution,
    earlier: Sequence[Observed],
    members: _Members,
    resolvers: Mapping[QuotaKey, Resolver],
    source: str,
    brokers: Enforcers,
) -> Use:
    counter, limit = now.counter, resolution.limit
    before = earlier[-1] if earlier else None
    share = None if now.rate is None or limit is None else share_of_limit(now.rate, limit)
    trend = None
    if before is not None and before.rate is not None and now.rate is not None and now.at_ms > before.at_ms:
        trend = (now.rate - before.rate) * 1000 / (now.at_ms - before.at_ms)
    state = _state(now, limit, share, earlier, brokers)
    near = before is not None and now.at_ms - before.at_ms <= brokers.window_s * 1000
    rise = trend if near else None
    until = 0.0 if state is State.THROTTLED else until_throttled(now, limit, rise, brokers)
    if now.clients is None:
        clients = tuple(sorted(members.get((counter.broker, counter.key, counter.sensor), ()), key=str))
    else:
        clients = tuple(share.client for share in now.clients)
    return Use(
        now,
        resolution,
        state,
        share,
        until,
        trend,
        clients,
        source,
        tuple(_unknown(now, resolution, clients, resolvers)),
    )


def _state(
    now: Observed, limit: Value | None, share: float | None, earlier: Sequence[Observed], brokers: Enforcers
) -> State:
    if limit is None:
        return State.UNLIMITED
    # The rate of mutations is for people to look at: tokens alone decide.
    if now.counter.key is QuotaKey.CONTROLLER_MUTATION_RATE and now.tokens is not None:
        full = now.tokens >= limit * brokers.windows.window_seconds
        if now.tokens < 0 or (now.throttle_ms and not full):
            return State.THROTTLED
        return (State.WAS_THROTTLED if now.throttle_ms else State.WITHIN) if full else State.NEAR
    if now.throttle_ms and share is not None and not now.at_least and share <= brokers.idle(now.throttle_ms):
        if now.counter.key is QuotaKey.CONSUMER_BYTE_RATE:
            held = _still_held(now, limit, earlier, brokers)
        else:
            held = now.throttle_ms >= 1000 * brokers.window_s
        return State.THROTTLED if held else State.WAS_THROTTLED
    if now.throttle_ms or (share is not None and share > brokers.proven):
        return State.THROTTLED
    if share is None or (now.at_least and share < brokers.near):
        return State.UNKNOWN
    return State.NEAR if share >= brokers.near else State.WITHIN


def _still_held(now: Observed, limit: Value, earlier: Sequence[Observed], brokers: Enforcers) -> bool:
    """Whether a consumer that reads little may be held back still.

    A broker takes back what it charged for a fetch that it throttles. So the rate falls to 0 while the consumer waits,
    and a wait is as long as a window where one fetch uses up what a window allows. Since the counter was last in use,
    a whole wait has to pass before it is over. Where nobody saw it in use, long waits alone speak for one.
    """
    readings, throttle_ms, window_ms = (*earlier, now), now.throttle_ms or 0.0, 1000 * brokers.window_s
    in_use = [
        after.at_ms
        for before, after in pairwise((readings[0], *readings))
        if (after.rate or 0.0) >= limit / 2
        # Between two scrapes that are far apart the counter may have been in use: another delay tells.
        or (after.at_ms - before.at_ms > window_ms and after.throttle_ms != before.throttle_ms)
    ]
    if throttle_ms >= window_ms / 2:
        in_use.append(readings[0].at_ms)
    return bool(in_use) and now.at_ms - max(in_use) <= max(window_ms, 2 * throttle_ms)


def until_throttled(now: Observed, limit: Value | None, rise: float | None, brokers: Enforcers) -> float | None:
    """Seconds until the counter is over its limit, if its clients go on as they do; None for never, or not known.

    A bucket of mutations empties by what is taken beyond the limit. A rate is a mean over a window of N-1 samples. The
    `rise` is per second, between two readings within a window. It gives the rate at which the clients send now. Only
    above the limit does that rate ever throttle, and the mean gets there in a straight line. Without a rise the rate is
    over the limit already, or stays below.
    """
    if limit is None or limit <= 0:
        return None
    if now.counter.key is QuotaKey.CONTROLLER_MUTATION_RATE and now.tokens is not None:
        if now.tokens < 0:
            return 0.0
        surplus = (now.rate or 0.0) - limit
        return now.tokens / surplus if surplus > 0 else None
    if now.rate is None:
        return None
    if now.rate > limit:
        return 0.0
    if rise is None or rise <= 0 or now.rate + rise * brokers.window_s <= limit:
        return None
    return (limit - now.rate) / rise


def _unknown(
    now: Observed, resolution: Resolution, clients: tuple[Sensor, ...], resolvers: Mapping[QuotaKey, Resolver]
) -> Iterable[str]:
    counter = now.counter
    if now.rate is None:
        yield "its rate: the source has no such series"
    if counter.key is QuotaKey.CONNECTION_CREATION_RATE:
        yield "how long connections were delayed: brokers report that for a listener, not for an ip"
        return
    yield from now.unknown
    if now.throttle_ms is None and not now.unknown:
        yield "how long requests were throttled: the source has no throttle time of it"
    if counter.key is QuotaKey.CONTROLLER_MUTATION_RATE and now.tokens is None:
        yield "how many mutations are left: the source has no tokens of it"
    if counter.user and counter.client_id:
        charged = resolvers[counter.key].resolve(counter.user, counter.client_id).sensor
        if charged != counter.sensor:
            yield f"whether it is still in use: its clients are charged to {charged} now"
    elif not clients and now.clients is None:
        yield "which clients are in it: the metrics name the counter only"
    if resolution.ignored:
        yield "; ".join(ignored.reason for ignored in resolution.ignored)
