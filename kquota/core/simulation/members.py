"""Who is charged to which counter, and who has nothing to do with each other."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from kquota.core.enforcement import ClientQuotaManager
from kquota.core.enforcement.sensors import LimitedSensor
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey, Value
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.core.resolve.resolver import Level, Resolution, Sensor
from kquota.core.simulation.apis import CONNECT_API
from kquota.core.simulation.result import CONTROLLER
from kquota.core.simulation.workload import Client, Workload, plan

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
    cycle = client.latency_ms + client.round_trip_ms + client.think_ms
    return max(stop - client.start_ms, 0) / cycle * client.connections * len(workload.brokers_of(client))


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
    number: int
    broker: str
    broker_number: int
    weight: float
    counters: dict[QuotaKey, list[Counter | None]] = field(default_factory=dict)


def epochs_of(workload: Workload) -> list[int]:
    """The times between which no quota changes."""
    return sorted({0, *(change.at_ms for change in workload.changes if change.at_ms < workload.duration_ms)})


def _keys(client: Client) -> tuple[QuotaKey, ...]:
    if client.mutates and client.given is not None:  # a recorded topic, whose request is an event of its own
        return (QuotaKey.CONTROLLER_MUTATION_RATE,)
    keys = [QuotaKey.REQUEST_PERCENTAGE]
    if client.byte_key is not None:
        keys.append(client.byte_key)
    if client.mutates:
        keys.append(QuotaKey.CONTROLLER_MUTATION_RATE)
    return tuple(keys)


def resolve_members(workload: Workload, quotas: QuotaSnapshot) -> list[Member]:
    """Who is charged to which counter, in each epoch. Counters that are never limited are left out."""
    managers: dict[QuotaKey, ClientQuotaManager[LimitedSensor]] = {
        key: ClientQuotaManager(
            key,
            LimitedSensor,
            {entity: values[key] for entity, values in quotas.items() if key in values},
            empty_client_id=quotas.empty_client_id,
        )
        for key in QuotaKey
        if key is not QuotaKey.CONNECTION_CREATION_RATE
    }
    epochs = epochs_of(workload)
    found: dict[tuple[str, str, QuotaKey], list[Resolution | None]] = {}
    copies = [
        (client, number, client.user.replace("{n}", str(number)), client.client_id.replace("{n}", str(number)))
        for client in workload.clients
        if client.api != CONNECT_API
        for number in range(client.count)
    ]
    for epoch, since in enumerate(epochs):
        for change in workload.changes:
            if (epoch == 0 and change.at_ms <= 0) or (epoch > 0 and change.at_ms == since):
                for key, value in change.values.items():
                    if key in managers:
                        managers[key].update(change.entity, value)
        for client, _, user, client_id in copies:
            for key in _keys(client):
                resolutions = found.setdefault((user, client_id, key), [])
                if len(resolutions) == epoch:
                    manager = managers[key]
                    resolutions.append(manager.resolve(user, client_id) if manager.mask else None)
    limits: dict[tuple[QuotaKey, Sensor], list[Value | None]] = {}
    origins: dict[tuple[QuotaKey, Sensor], tuple[Entity, Level]] = {}
    for (_, _, key), resolutions in found.items():
        for epoch, resolution in enumerate(resolutions):
            if resolution is None or resolution.limit is None:
                continue
            assert resolution.entity is not None
            assert resolution.level is not None
            identity = (key, resolution.sensor)
            limits.setdefault(identity, [None] * len(epochs))[epoch] = resolution.limit
            origins[identity] = (resolution.entity, resolution.level)
    counters: dict[tuple[str, QuotaKey, Sensor], Counter] = {}
    members = []
    for client, number, user, client_id in copies:
        brokers = workload.brokers_of(client)
        weight = expected_of(workload, client) / len(brokers)
        name = client.name if client.count == 1 else f"{client.name}-{number}"
        for broker_number, broker in enumerate(brokers):
            member = Member(client, name, user, client_id, number, broker, broker_number, weight)
            for key in _keys(client):
                place = CONTROLLER if key is QuotaKey.CONTROLLER_MUTATION_RATE else broker
                charged: list[Counter | None] = []
                for resolution in found[user, client_id, key]:
                    counter = None
                    if resolution is not None and (key, resolution.sensor) in limits:
                        identified = (place, key, resolution.sensor)
                        identity = (key, resolution.sensor)
                        new = Counter(len(counters), place, *identity, *origins[identity], limits[identity])
                        counter = counters.setdefault(identified, new)
                    charged.append(counter)
                member.counters[key] = charged
            members.append(member)
    return members


def groups_of(members: Sequence[Member]) -> list[list[Member]]:
    """The members in groups that share no counter with each other, in a stable order."""
    parent = list(range(len(members)))

    def root(number: int) -> int:
        while parent[number] != number:
            parent[number] = parent[parent[number]]
            number = parent[number]
        return number

    first: dict[int, int] = {}
    for number, member in enumerate(members):
        for charged in member.counters.values():
            for counter in charged:
                if counter is not None:
                    other = first.setdefault(counter.number, number)
                    if other != number:
                        one, two = root(other), root(number)
                        parent[max(one, two)] = min(one, two)
    groups: dict[int, list[Member]] = {}
    for number, member in enumerate(members):
        groups.setdefault(root(number), []).append(member)
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
