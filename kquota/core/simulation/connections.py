"""Clients that open connections: the acceptor threads of each broker, fed by the plans of its clients.

The next connection of a client is added when the one before it was taken; a rejected one may be added again.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from kquota.core.enforcement import UNLIMITED_IP, Acceptors, ConnectionManager, Generation, Mode, kernel
from kquota.core.enforcement.traffic import DONE, Traffic, take
from kquota.core.quotas.entity import DEFAULT, Entity
from kquota.core.quotas.quota import QuotaKey, Value
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.core.resolve.resolver import resolve_ip
from kquota.core.simulation.apis import CONNECT_API
from kquota.core.simulation.members import Member
from kquota.core.simulation.result import Acceptor, ClientResult, CounterResult, Share, Timeline
from kquota.core.simulation.rows import Rows
from kquota.core.simulation.timeline import limits_by_bucket, recovery
from kquota.core.simulation.workload import Change, Workload

_KEY = QuotaKey.CONNECTION_CREATION_RATE


@dataclass(slots=True, eq=False)
class _Delays:
    """The delays of a client or of an ip."""

    count: int = 0
    total_ms: int = 0
    max_ms: int = 0
    first_ms: int | None = None
    until_ms: int | None = None

    def add(self, now: int, delay: int) -> None:
        self.count += 1
        self.total_ms += delay
        self.max_ms = max(self.max_ms, delay)
        self.first_ms = now if self.first_ms is None else self.first_ms
        self.until_ms = max(self.until_ms or 0, now + delay)


@dataclass(slots=True, eq=False)
class _Source:
    """A client on one broker, and what became of its connections."""

    member: Member
    ip: str
    connection: int
    requests: int = 0
    offered: int = 0
    delivered: int = 0
    delivered_ms: int = 0
    rejected: int = 0
    rejections: int = 0
    ip_ms: int = 0
    delays: _Delays = field(default_factory=_Delays)


@dataclass(slots=True, eq=False)
class _Ip:
    """The counter of an ip that has or had a limit."""

    quotas: QuotaSnapshot
    """Those that limited it last: a quota that is removed still names what it did before."""
    offered: list[float]
    delivered: list[float]
    throttling: list[float]
    ends: list[float]
    events: int = 0
    delays: _Delays = field(default_factory=_Delays)
    peak: float = 0.0
    peak_ms: int | None = None
    clients: dict[str, list[int]] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Listener:
    """How long an acceptor thread waited, and for how long it closed connections."""

    connections: int = 0
    waited: int = 0
    wait_ms: int = 0
    max_ms: int = 0
    closed: int = 0
    closed_ms: int = 0


def run_connections(
    workload: Workload, quotas: QuotaSnapshot, *, generation: Generation
) -> tuple[list[ClientResult], list[CounterResult], list[Acceptor]]:
    """What becomes of all connections that the clients open."""
    clients: list[ClientResult] = []
    counters: list[CounterResult] = []
    acceptors: list[Acceptor] = []
    for number, broker in enumerate(workload.brokers.names):
        members = list(_members(workload, broker, number))
        if members:
            run = _Broker(workload, quotas, generation, broker, members)
            run.run()
            clients += run.clients()
            counters += run.counters()
            acceptors += run.acceptors()
    return clients, counters, acceptors


def _members(workload: Workload, broker: str, number: int) -> Iterator[Member]:
    for client in workload.clients:
        if client.api != CONNECT_API or broker not in workload.brokers_of(client):
            continue
        for copy in range(client.count):
            name = client.name if client.count == 1 else f"{client.name}-{copy}"
            user, client_id = (text.replace("{n}", str(copy)) for text in (client.user, client.client_id))
            yield Member(client, name, user, client_id, copy, broker, number, 0.0)


class _Broker:
    """One broker: its connection quotas and the acceptor threads of its listeners."""

    def __init__(
        self, workload: Workload, quotas: QuotaSnapshot, generation: Generation, name: str, members: list[Member]
    ) -> None:
        brokers = workload.brokers
        self._workload, self._name = workload, name
        self._values: dict[Entity, Value] = {
            entity: values[_KEY] for entity, values in quotas.items() if _KEY in values
        }
        self._manager = ConnectionManager(
            brokers.listeners,
            broker=brokers.connection_rate,
            inter_broker=brokers.inter_broker,
            windows=brokers.windows,
            generation=generation,
        )
        self._limits: dict[str, list[tuple[int, Value | None]]] = {}
        self._apply()
        self._rows = Rows(workload, generation, kernel(Mode.PLAIN))
        self._traffic: Traffic = self._rows.traffic(members, 0, 0)
        self._sources = []
        connection = 0
        for member in members:
            ip = member.client.ip.replace("{n}", str(member.number))
            self._sources.append(_Source(member, ip, connection))
            connection += member.client.connections
        self._listeners = {name: _Listener() for name in brokers.listeners}
        self._ips: dict[str, _Ip] = {}
        self._acceptors = Acceptors[tuple[_Source, bool]](self._manager)

    def _apply(self) -> None:
        values = self._values
        self._quotas = QuotaSnapshot({entity: {_KEY: value} for entity, value in values.items()})
        self._manager.default_ip = values.get(Entity(ip=DEFAULT))
        self._manager.ips = {
            entity.ip: value for entity, value in values.items() if entity.ip is not None and entity.ip is not DEFAULT
        }

    def _change(self, change: Change) -> None:
        if _KEY in change.values:
            value = change.values[_KEY]
            self._values.pop(change.entity, None)
            if value is not None:
                self._values[change.entity] = value
            self._apply()

    def _pull(self, source: _Source) -> None:
        """The next connection of each of a client's plans joins the backlog."""
        now = take(self._traffic, source.connection)
        if now != DONE:
            source.offered += 1
            ip = self._ip(source.ip, now)
            if ip is not None:
                ip.offered[self._bucket(now)] += 1
            self._queue(source, now, again=False)

    def _queue(self, source: _Source, now: int, *, again: bool) -> None:
        self._acceptors.add(
            now, source.member.client.listener or next(iter(self._listeners)), source.ip, (source, again)
        )

    def _bucket(self, now: int) -> int:
        return min((now - self._workload.origin_ms) // self._rows.bucket_ms, self._rows.buckets - 1)

    def _ip(self, ip: str, now: int) -> _Ip | None:
        """The counter of an ip, where it has ever had a limit."""
        limit = self._manager.ips.get(ip, self._manager.default_ip)
        limit = None if limit == UNLIMITED_IP else limit  # which no broker counts
        known = self._limits.setdefault(ip, [])
        if not known or known[-1][1] != limit:
            known.append(((now - self._workload.origin_ms) if known else 0, limit))
        counter = self._ips.get(ip)
        if limit is None:
            return counter
        if counter is None:
            counter = self._ips[ip] = _Ip(self._quotas, self._zeros(), self._zeros(), self._zeros(), self._zeros())
        counter.quotas = self._quotas
        return counter

    def _zeros(self) -> list[float]:
        return [0.0] * self._rows.buckets

    def run(self) -> None:
        """All steps before the end."""
        origin = self._workload.origin_ms
        end = origin + self._workload.duration_ms
        changes = [change for change in self._workload.changes if change.entity.ip is not None]
        for source in self._sources:
            self._pull(source)
        while (now := self._acceptors.due_ms) is not None and now < end:
            while changes and origin + changes[0].at_ms <= now:
                self._change(changes.pop(0))
            step = self._acceptors.step()
            listener, (source, again) = self._listeners[step.listener], step.subject
            if step.begins:
                listener.connections += 1
                if step.wait.delay_ms > 0:
                    listener.waited += 1
                    listener.wait_ms += step.wait.delay_ms
                    listener.max_ms = max(listener.max_ms, step.wait.delay_ms)
            if step.outcome is not None:
                self._admit(source, listener, now, step.wait.delay_ms, step.outcome.ip_ms)
                if not again:
                    self._pull(source)

    def _admit(self, source: _Source, listener: _Listener, now: int, waited_ms: int, delay: int) -> None:
        """Counts a connection that was accepted, or that is closed after `delay` ms."""
        source.requests += 1
        if waited_ms > 0:
            source.delays.add(now - waited_ms, waited_ms)
        ip = self._ip(source.ip, now)
        if ip is not None:
            ip.events += 1
            rate = self._manager.ip_rate(source.ip, now)
            if rate > ip.peak:
                ip.peak, ip.peak_ms = rate, now
            share = ip.clients.setdefault(source.member.name, [0, 0])
            share[0] += delay <= 0
            share[1] += max(delay, 0)
        if delay <= 0:
            source.delivered += 1
            source.delivered_ms = now
            if ip is not None:
                ip.delivered[self._bucket(now)] += 1
            return
        assert ip is not None
        listener.closed += 1
        listener.closed_ms += delay
        source.rejections += 1
        source.delays.add(now, delay)
        source.ip_ms += delay
        ip.delays.add(now, delay)
        bucket = self._bucket(now)
        ip.throttling[bucket] += delay
        ip.ends[bucket] = max(ip.ends[bucket], float(now + delay - self._workload.origin_ms))
        client = source.member.client
        if client.closed and client.retry:
            self._queue(source, now + delay + client.backoff_ms, again=True)
        else:
            source.rejected += 1

    # --- results ---

    def _since(self, now: int | None) -> int | None:
        return None if now is None else now - self._workload.origin_ms

    def clients(self) -> list[ClientResult]:
        """What became of each client's connections."""
        results = []
        for source in self._sources:
            member, client = source.member, source.member.client
            while take(self._traffic, source.connection) != DONE:
                source.offered += 1
            by_key: Mapping[QuotaKey, int] = {_KEY: source.ip_ms} if source.ip_ms else {}
            results.append(
                ClientResult(
                    name=member.name,
                    group=client.name,
                    broker=self._name,
                    user=member.user,
                    client_id=member.client_id,
                    ip=source.ip,
                    api=client.api,
                    unit=client.unit,
                    active_ms=max(self._workload.stop_of(client) - client.start_ms, 1),
                    delivering_ms=max(
                        self._workload.stop_of(client) - client.start_ms,
                        source.delivered_ms - self._workload.origin_ms - client.start_ms,
                        1,
                    ),
                    requests=source.requests,
                    offered=source.offered,
                    delivered=source.delivered,
                    rejected=source.rejected,
                    waiting=source.offered - source.delivered - source.rejected,
                    rejections=source.rejections,
                    throttled=source.delays.count,
                    throttle_ms=source.delays.total_ms,
                    throttle_max_ms=source.delays.max_ms,
                    first_throttled_ms=self._since(source.delays.first_ms),
                    throttled_until_ms=self._since(source.delays.until_ms),
                    throttle_by=by_key,
                    throttle_range_ms=(source.delays.total_ms, source.delays.total_ms),
                    delivered_range=(source.delivered, source.delivered),
                    delivered_until_ms=self._since(source.delivered_ms if source.delivered else None),
                )
            )
        return results

    def counters(self) -> list[CounterResult]:
        """What was counted for each ip with a limit."""
        workload = self._workload
        width = self._rows.bucket_ms
        results = []
        for name, ip in self._ips.items():
            resolution = resolve_ip(ip.quotas, name)
            assert resolution.entity is not None
            assert resolution.level is not None
            limits = self._limits[name]
            by_bucket = limits_by_bucket(limits, width, self._rows.buckets)
            timeline = Timeline.of(width, workload.duration_ms, by_bucket, ip.offered, ip.delivered, ip.throttling)
            recovery_ms, recovered = recovery(ip.offered, by_bucket, ip.ends, width, workload.duration_ms)
            shares = sorted(ip.clients.items(), key=lambda item: (-item[1][0], item[0]))
            results.append(
                CounterResult(
                    broker=self._name,
                    key=_KEY,
                    sensor=resolution.sensor,
                    entity=resolution.entity,
                    level=resolution.level,
                    limits=tuple(limits),
                    events=ip.events,
                    violated=ip.delays.count,
                    throttled=ip.delays.count,
                    throttle_ms=ip.delays.total_ms,
                    throttle_max_ms=ip.delays.max_ms,
                    first_throttled_ms=self._since(ip.delays.first_ms),
                    throttled_until_ms=self._since(ip.delays.until_ms),
                    recovery_ms=recovery_ms,
                    recovered=recovered,
                    rate=self._manager.ip_rate(name, workload.origin_ms + workload.duration_ms),
                    peak=ip.peak,
                    peak_ms=self._since(ip.peak_ms),
                    clients=tuple(Share(client, float(value), ms) for client, (value, ms) in shares[:10]),
                    client_count=len(shares),
                    total=float(sum(value for value, _ in ip.clients.values())),
                    throttle_range_ms=(ip.delays.total_ms, ip.delays.total_ms),
                    timeline=timeline,
                )
            )
        return results

    def acceptors(self) -> list[Acceptor]:
        """How long connections had to wait for the rates of the broker and the listeners."""
        end = self._workload.origin_ms + self._workload.duration_ms
        broker_rate = self._manager.broker.measure(end)
        return [
            Acceptor(
                self._name,
                name,
                listener.connections,
                listener.waited,
                listener.wait_ms,
                listener.max_ms,
                self._manager.listeners[name].measure(end),
                broker_rate,
                listener.closed,
                listener.closed_ms,
            )
            for name, listener in self._listeners.items()
            if listener.connections
        ]
