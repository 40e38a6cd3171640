"""Which quota governs a client, and whose counter it is.

The eight levels of KIP-55 per quota key, with the tags of the shared counter and the one exception of the brokers: an
empty client-id escapes every client-id default. Sources: `ClientQuotaManager.DefaultQuotaCallback` (`quotaLimit`,
`quotaMetricTags`) and `ClientQuotaManager.quotaTypesEnabled`; for ips, `ConnectionQuotas`.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self
from urllib.parse import quote

from kquota.core.quotas.entity import DEFAULT, Entity, Name, address
from kquota.core.quotas.quota import CLIENT_KEYS, QuotaKey, Value
from kquota.core.quotas.snapshot import Ignored, QuotaSnapshot
from kquota.core.quotas.static import NO_STATIC_QUOTAS, StaticQuotas
from kquota.errors import InputError


class Level(enum.IntEnum):
    """The levels in order of precedence; 1 wins. The ip levels are KIP-612's own pair.

    STATIC is what `server.properties` of a broker before Kafka 3.0 says (`StaticQuotas`); it comes after the eight.
    """

    label: str
    """The level in words, as in KIP-55: `<user, default client-id>`."""

    def __new__(cls, rank: int, label: str = "") -> Self:
        member = int.__new__(cls, rank)
        member._value_ = rank
        member.label = label
        return member

    USER_CLIENT = 1, "<user, client-id>"
    USER_DEFAULT_CLIENT = 2, "<user, default client-id>"
    USER = 3, "user"
    DEFAULT_USER_CLIENT = 4, "<default user, client-id>"
    DEFAULT_USER_DEFAULT_CLIENT = 5, "<default user, default client-id>"
    DEFAULT_USER = 6, "default user"
    CLIENT = 7, "client-id"
    DEFAULT_CLIENT = 8, "default client-id"
    IP = 9, "ip"
    DEFAULT_IP = 10, "default ip"
    STATIC = 11, "static default client-id"

    @property
    def number(self) -> int:
        """The place in the order of precedence: 1 to 8 for users and clients, then 9 (static); 1 and 2 for ips."""
        if self is Level.STATIC:
            return 9
        return self.value if self <= Level.DEFAULT_CLIENT else self - Level.DEFAULT_CLIENT


@dataclass(frozen=True, slots=True)
class Sensor:
    """The identity of a counter: all clients with equal tags share it (per broker and quota key).

    `user` is URL-encoded as Kafka does, `client_id` is raw; both may be empty.
    """

    user: str
    client_id: str

    def __str__(self) -> str:
        """KIP-55's quota-id and the suffix of Kafka's sensor name: `user1:`, `user2:clientA`, `:clientA`."""
        return f"{self.user}:{self.client_id}"


def tagged(key: QuotaKey, user: str, client_id: str) -> Entity:
    """The entity with a counter of just these tags; a tag that it does not have is empty, and of connections an ip."""
    if key is QuotaKey.CONNECTION_CREATION_RATE:
        return Entity(ip=client_id)
    return Entity(user=user or None, client_id=client_id or None)


@dataclass(frozen=True, slots=True)
class Shadowed:
    """A quota that would apply if the ones before it were not set."""

    level: Level
    entity: Entity | None
    """None for a static default."""
    value: Value


@dataclass(frozen=True, slots=True)
class Resolution:
    """What governs one client under one quota key; without a match `limit`, `level` and `entity` are None.

    A static default has a level and no entity. `ignored` are the quotas of this client that its brokers do not enforce
    (`kquota.core.quotas.static`), in order of precedence.
    """

    key: QuotaKey
    limit: Value | None
    level: Level | None
    entity: Entity | None
    sensor: Sensor
    shadows: tuple[Shadowed, ...] = ()
    ignored: tuple[Ignored, ...] = ()

    @classmethod
    def of(
        cls, key: QuotaKey, sensor: Sensor, matches: Sequence[Shadowed], ignored: tuple[Ignored, ...] = ()
    ) -> Resolution:
        """By what matches the client, in order of precedence: the first governs it, and shadows the others."""
        if not matches:
            return cls(key, None, None, None, sensor, ignored=ignored)
        winner, *others = matches
        return cls(key, winner.value, winner.level, winner.entity, sensor, tuple(others), ignored)

    @property
    def is_determined(self) -> bool:
        """Whether it is certain which limit holds: several entities may spell one address."""
        return not any(ignored.reason == ONE_ADDRESS for ignored in self.ignored)


ONE_ADDRESS = "not determined: another entity spells the same address, and the last write decides"


def encode_user(user: str) -> str:
    """`Sanitizer.sanitize`: UTF-8 bytes other than A-Z a-z 0-9 . - _ as upper-case %XX."""
    if _UNRESERVED.match(user):
        return user
    try:
        return quote(user, safe="").replace("~", "%7E")
    except UnicodeEncodeError:
        raise InputError(f"the user {user!r} is not valid Unicode", hint="Kafka knows names in UTF-8 only") from None


_UNRESERVED = re.compile(r"[\w.-]*\Z", re.ASCII)
"""Texts that stay what they are: nearly all, and looking is much faster than encoding."""


_PAIR_LEVELS = tuple(level for level in Level if level <= Level.DEFAULT_CLIENT)
PER_PAIR = frozenset(
    {Level.USER_CLIENT, Level.USER_DEFAULT_CLIENT, Level.DEFAULT_USER_CLIENT, Level.DEFAULT_USER_DEFAULT_CLIENT}
)
"""The levels whose counters are of a user and a client-id."""
_PER_USER = frozenset({Level.USER, Level.DEFAULT_USER})
_PER_CLIENT = frozenset({Level.CLIENT, Level.DEFAULT_CLIENT, Level.STATIC})
DEFAULTS = frozenset({Level.DEFAULT_USER_DEFAULT_CLIENT, Level.DEFAULT_USER, Level.DEFAULT_CLIENT})
"""The levels of those that no entity names."""

_EVERY = frozenset({*_PAIR_LEVELS, Level.STATIC})

CLIENT_ID_ENABLED, USER_ENABLED, USER_CLIENT_ENABLED = 1, 2, 4
"""The bits of Kafka's `quotaTypesEnabled`: which kinds of entity a manager has ever held."""


def enabled_mask(entities: Mapping[Entity, object]) -> int:
    """The mask for a set of entities; on a broker a bit also stays set after its last entity was removed."""
    mask = 0
    for entity in entities:
        if entity.user is not None and entity.client_id is not None:
            mask |= USER_CLIENT_ENABLED
        elif entity.user is not None:
            mask |= USER_ENABLED
        elif entity.client_id is not None:
            mask |= CLIENT_ID_ENABLED
    return mask


@dataclass(frozen=True)
class Resolver:
    """Resolves clients under the values of one quota key of users and clients.

    `mask` holds bits that a broker has kept from removed entities; by default it is what the values imply.
    `empty_client_id`: whether an empty client-id has the limits of client-ids, as before Kafka 2.0.
    """

    key: QuotaKey
    values: Mapping[Entity, Value]
    mask: int | None = None
    static: StaticQuotas = NO_STATIC_QUOTAS
    empty_client_id: bool = False
    ignored: Mapping[Entity, Ignored] = field(default_factory=dict)

    @classmethod
    def of(cls, snapshot: QuotaSnapshot, key: QuotaKey, static: StaticQuotas = NO_STATIC_QUOTAS) -> Resolver:
        """The resolver of one key of a snapshot."""
        return cls(
            key,
            {entity: values[key] for entity, values in snapshot.items() if key in values},
            static=static,
            empty_client_id=snapshot.empty_client_id,
            ignored={ignored.entity: ignored for ignored in snapshot.ignored if ignored.key is key},
        )

    @cached_property
    def _enabled(self) -> int:
        static = CLIENT_ID_ENABLED if self.key in self.static.values else 0
        return enabled_mask(self.values) | (self.mask or 0) | static

    def resolve(self, user: str, client_id: str) -> Resolution:
        """What governs that user (the principal's name) with that client-id; a null client-id is the empty one."""
        # As the broker does it: the walk decides whose counter it is, then the counter's own tags decide the limit. The
        # two steps differ from a plain walk for the empty client-id only: its tags are those of a user, or nobody's.
        # Before 2.0 it was a plain walk.
        matches = self._matches(user, client_id)
        sensor = self._sensor(matches[0].level if matches else None, user, client_id)
        older = not client_id and self.empty_client_id
        governing = _EVERY if older else _levels_of(bool(sensor.user), bool(sensor.client_id))
        first = next((number for number, match in enumerate(matches) if match.level in governing), len(matches))
        holding = [match for match in matches[first:] if client_id or older or match.level in _PER_USER]
        return Resolution.of(self.key, sensor, holding, self._ignored(user, client_id) if self.ignored else ())

    def of_counter(self, user: str, client_id: str) -> Resolution:
        """What limits the counter with these tags, whoever is charged to it; a tag that it does not have is empty.

        `ClientQuotaManager.DefaultQuotaCallback.quotaLimit`: brokers derive a counter's limit from its tags alone.
        """
        governing = _levels_of(bool(user), bool(client_id))
        matches = [match for match in self._matches(user, client_id) if match.level in governing]
        return Resolution.of(self.key, Sensor(encode_user(user), client_id), matches)

    def _ignored(self, user: str, client_id: str) -> tuple[Ignored, ...]:
        """The quotas that name the client, in order of precedence, and that brokers do not enforce."""
        names = (Entity(*parts) for parts in _names_of(user, client_id) if "" not in parts)
        return tuple(self.ignored[entity] for entity in names if entity in self.ignored)

    @cached_property
    def _by_name(self) -> dict[tuple[Name | None, Name | None], tuple[Entity, Value]]:
        # Plain tuples hash several times faster than entities, and an audit resolves every pair it meets.
        return {(entity.user, entity.client_id): (entity, value) for entity, value in self.values.items()}

    def _matches(self, user: str, client_id: str) -> list[Shadowed]:
        """Every level at which an entity is configured for the client, in order of precedence."""
        known = self._by_name
        names = zip(_PAIR_LEVELS, _names_of(user, client_id), strict=True)
        matches = [Shadowed(level, *known[name]) for level, name in names if name in known]
        if self.key in self.static.values:
            matches.append(Shadowed(Level.STATIC, None, self.static.values[self.key]))
        return matches

    def _sensor(self, level: Level | None, user: str, client_id: str) -> Sensor:
        name = encode_user(user)
        match self._enabled:
            case 0 | 1:  # nothing, or client-ids only
                return Sensor("", client_id)
            case 2:  # users only
                return Sensor(name, "")
            case 4:  # pairs only
                return Sensor(name, client_id)
        if level in _PER_USER:
            return Sensor(name, "")
        if level in PER_PAIR:
            return Sensor(name, client_id)
        return Sensor("", client_id)


def _names_of(user: str, client_id: str) -> tuple[tuple[Name | None, Name | None], ...]:
    """The (user, client-id) of the entities that can govern a client, in the order of `_PAIR_LEVELS`."""
    return (
        (user, client_id),
        (user, DEFAULT),
        (user, None),
        (DEFAULT, client_id),
        (DEFAULT, DEFAULT),
        (DEFAULT, None),
        (None, client_id),
        (None, DEFAULT),
    )


def _levels_of(has_user: bool, has_client_id: bool) -> frozenset[Level]:
    """The levels that can limit a counter with these tags."""
    if has_user:
        return PER_PAIR if has_client_id else _PER_USER
    return _PER_CLIENT if has_client_id else frozenset()


def resolve_ip(snapshot: QuotaSnapshot, ip: str) -> Resolution:
    """What limits the connections of one ip: its own value, else the default's; each ip has its own counter.

    The name of an entity is an address however it is spelled: a broker looks it up (`IpConfigHandler`).
    """
    key = QuotaKey.CONNECTION_CREATION_RATE
    spelled = [entity for entity in snapshot.addresses.get(address(ip), ()) if key in snapshot[entity]]
    named = next((entity for entity in spelled if entity.ip == ip), spelled[0] if spelled else Entity(ip=ip))
    candidates = ((Level.IP, named), (Level.DEFAULT_IP, Entity(ip=DEFAULT)))
    matches = [
        Shadowed(level, entity, snapshot[entity][key])
        for level, entity in candidates
        if entity in snapshot and key in snapshot[entity]
    ]
    ignored = tuple(
        unused
        for unused in snapshot.ignored
        if (isinstance(name := unused.entity.ip, str) and address(name) == address(ip)) or unused.entity.ip is DEFAULT
    )
    if len({snapshot[other][key] for other in spelled}) > 1:
        ignored += tuple(Ignored(other, key, snapshot[other][key], ONE_ADDRESS) for other in spelled if other != named)
    return Resolution.of(key, Sensor("", ip), matches, ignored)


def resolve(
    snapshot: QuotaSnapshot, user: str, client_id: str, ip: str | None = None, static: StaticQuotas = NO_STATIC_QUOTAS
) -> tuple[Resolution, ...]:
    """Every quota key for one client; the connection quota only where an ip is given."""
    resolutions = [Resolver.of(snapshot, key, static).resolve(user, client_id) for key in CLIENT_KEYS]
    if ip is not None:
        resolutions.append(resolve_ip(snapshot, ip))
    return tuple(resolutions)


def tags(sensor: str) -> tuple[str, str]:
    """The user, as sensors have it, and the client-id. An empty tag stands for all."""
    user, _, client_id = sensor.partition(":")
    return user, client_id


class Sensors:
    """Some counters of one broker, found by the tags of their sensors. An empty tag stands for all."""

    def __init__(self) -> None:
        self._sensors: set[str] = set()
        self._users: set[str] = set()
        self._clients: set[str] = set()

    def add(self, sensor: str) -> None:
        """Adds a counter."""
        user, client_id = tags(sensor)
        self._sensors.add(sensor)
        self._users.add(user)
        self._clients.add(client_id)

    def hold(self, user: str, client_id: str) -> bool:
        """Whether one of them counts all clients with these tags."""
        return any(f"{one}:{other}" in self._sensors for one in (user, "") for other in (client_id, ""))

    def meet(self, user: str, client_id: str) -> bool:
        """Whether one of them may count a client with these tags. An empty tag may be any."""
        if user and client_id:
            return self.hold(user, client_id)
        if user:
            return not self._users.isdisjoint((user, ""))
        if client_id:
            return not self._clients.isdisjoint((client_id, ""))
        return bool(self._sensors)
