"""Who is charged to which counter, and who has nothing to do with each other."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar

from kquota.core.enforcement import UNLIMITED_IP
from kquota.core.enforcement.apis import CONNECT_API
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey, Value
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.core.resolve.resolver import Level, Resolution, Resolver, Sensor, enabled_mask, resolve_ip
from kquota.core.simulation.result import CONTROLLER
from kquota.core.simulation.workload import Client, Workload, plan

T = TypeVar("T")
_Tags: TypeAlias = tuple[QuotaKey, str, str]
_CONNECTIONS: Final = QuotaKey.CONNECTION_CREATION_RATE
_BATCH: Final = 64
"""Connections that run together at least, where groups are smaller: a call of the kernel has its price."""


def expected_of(workload: Workload, client: Client) -> float:
    """About how many events a client, or each of its copies, will have."""
    stop = workload.stop_of(client)
    if client.given is not None:
        return client.given[1] - client.given[0]
    if not client.saturates:
        segments = plan(client, stop)
        return segments[-1].after if segments else 0.0
    return max(stop - client.start_ms, 0) / client.cycle_ms * client.connections * len(workload.brokers_of(client))


@dataclass(slots=True)
class Counter:
    """A counter that is limited at some time; the limits are those of each epoch."""

    number: int
    place: str
    key: QuotaKey
    sensor: Sensor
    entity: Entity
    level: Level
    limits: list[Value | None]


@dataclass(slots=True, eq=False)
class Member:
    """One client on one broker: its counters by key, one per epoch (None where it has none)."""

    client: Client
    name: str
    user: str
    client_id: str
    ip: str
    number: int
    broker: str
    broker_number: int
    weight: float
    counters: dict[QuotaKey, list[Counter | None]] = field(default_factory=dict)

    @property
    def keys(self) -> Iterator[QuotaKey]:
        """The keys that it is charged under."""
        client = self.client
        recorded_topic = client.mutates and client.given is not None  # its request is an event of its own
        if client.api != CONNECT_API and not recorded_topic:
            yield QuotaKey.REQUEST_PERCENTAGE
        if client.key is not None:
            yield client.key

    def tags(self, key: QuotaKey) -> _Tags:
        """What decides under a key which counter it is charged to."""
        return (key, "", self.ip) if key is _CONNECTIONS else (key, self.user, self.client_id)


def members_of(workload: Workload) -> list[Member]:
    """Every client, and every copy of one, on each of its brokers; no counters yet."""
    members = []
    for client in workload.clients:
        brokers = workload.brokers_of(client)
        weight = expected_of(workload, client) / len(brokers)
        for number in range(client.count):
            name = client.name if client.count == 1 else f"{client.name}-{number}"
            user, client_id, ip = (
                text.replace("{n}", str(number)) for text in (client.user, client.client_id, client.ip)
            )
            members += [
                Member(client, name, user, client_id, ip, number, broker, broker_number, weight)
                for broker_number, broker in enumerate(brokers)
            ]
    return members


def epochs_of(workload: Workload) -> list[int]:
    """The times between which no quota changes."""
    return sorted({0, *(change.at_ms for change in workload.changes if change.at_ms < workload.duration_ms)})


def resolve_members(workload: Workload, quotas: QuotaSnapshot) -> list[Member]:
    """Who is charged to which counter, in each epoch. Counters that are never limited are left out."""
    members = members_of(workload)
    epochs = epochs_of(workload)
    resolved: dict[_Tags, list[Resolution | None]] = {member.tags(key): [] for member in members for key in member.keys}
    values = {key: {entity: own[key] for entity, own in quotas.items() if key in own} for key in QuotaKey}
    masks = {key: enabled_mask(own) for key, own in values.items()}
    for epoch, since in enumerate(epochs):
        for change in workload.changes:
            if change.at_ms == since or (epoch == 0 and change.at_ms < 0):
                for key, value in change.values.items():
                    # As on brokers before KAFKA-19282, a kind of entity is remembered after its last removal.
                    masks[key] |= enabled_mask({change.entity: value})
                    values[key].pop(change.entity, None)
                    if value is not None:
                        values[key][change.entity] = value
        ips = QuotaSnapshot({entity: {_CONNECTIONS: value} for entity, value in values[_CONNECTIONS].items()})
        resolvers = {
            key: Resolver(key, dict(own), masks[key], empty_client_id=quotas.empty_client_id)
            for key, own in values.items()
        }
        for (key, user, client_id), resolutions in resolved.items():
            if key is not _CONNECTIONS:
                resolutions.append(resolvers[key].resolve(user, client_id) if masks[key] else None)
            else:  # brokers do not count the connections of an ip without a limit
                of_ip = resolve_ip(ips, client_id)
                resolutions.append(None if of_ip.limit in (None, UNLIMITED_IP) else of_ip)

    limits: dict[tuple[QuotaKey, Sensor], list[Value | None]] = {}
    origins: dict[tuple[QuotaKey, Sensor], tuple[Entity, Level]] = {}
    for (key, _, _), resolutions in resolved.items():
        for epoch, resolution in enumerate(resolutions):
            if resolution is None or resolution.limit is None:
                continue
            assert resolution.entity is not None
            assert resolution.level is not None
            identity = (key, resolution.sensor)
            limits.setdefault(identity, [None] * len(epochs))[epoch] = resolution.limit
            origins[identity] = (resolution.entity, resolution.level)

    counters: dict[tuple[str, QuotaKey, Sensor], Counter] = {}
    for member in members:
        for key in member.keys:
            place = CONTROLLER if key is QuotaKey.CONTROLLER_MUTATION_RATE else member.broker
            charged: list[Counter | None] = []
            for resolution in resolved[member.tags(key)]:
                counter = None
                if resolution is not None and (key, resolution.sensor) in limits:
                    identity = (key, resolution.sensor)
                    new = Counter(len(counters), place, *identity, *origins[identity], limits[identity])
                    counter = counters.setdefault((place, *identity), new)
                charged.append(counter)
            member.counters[key] = charged
    return members


def groups_of(members: Sequence[Member]) -> list[list[Member]]:
    """The members in groups that share no counter with each other, in a stable order."""
    return grouped(members, lambda member: (counter.number for counter in counters_of([member])))


def grouped(things: Sequence[T], keys_of: Callable[[T], Iterable[Hashable]]) -> list[list[T]]:
    """The things in groups that have no key in common, each in the place of its first one."""
    parent = list(range(len(things)))

    def root(number: int) -> int:
        while parent[number] != number:
            parent[number] = parent[parent[number]]
            number = parent[number]
        return number

    first: dict[Hashable, int] = {}
    for number, thing in enumerate(things):
        for key in keys_of(thing):
            one, two = root(first.setdefault(key, number)), root(number)
            parent[max(one, two)] = min(one, two)
    groups: dict[int, list[T]] = {}
    for number, thing in enumerate(things):
        groups.setdefault(root(number), []).append(thing)
    return list(groups.values())


def batches_of(groups: Sequence[list[Member]]) -> Iterator[list[list[Member]]]:
    """Small groups together, large ones alone."""
    batch: list[list[Member]] = []
    connections = 0
    for group in groups:
        size = sum(member.client.connections for member in group)
        if batch and connections + size > _BATCH:
            yield batch
            batch, connections = [], 0
        batch.append(group)
        connections += size
    if batch:
        yield batch


def counters_of(members: Iterable[Member]) -> list[Counter]:
    """All counters that the members are charged to, by number."""
    counters = {
        counter.number: counter
        for member in members
        for charged in member.counters.values()
        for counter in charged
        if counter is not None
    }
    return [counters[number] for number in sorted(counters)]
