"""How far quotas reach: every client that the names in the quotas distinguish, and whom an entity governs."""

import enum
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Final, Literal, NamedTuple, TypeAlias

from kquota.core.quotas.entity import Entity, address
from kquota.core.quotas.quota import CLIENT_KEYS, QuotaKey
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.core.quotas.static import NO_STATIC_QUOTAS, StaticQuotas
from kquota.core.resolve.resolver import Resolution, Resolver, Sensor, encode_user, resolve_ip


class Other(enum.Enum):
    """Any name that no entity has: a type of its own, so that no name is taken for it."""

    OTHER = "<other>"

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return "OTHER"


OTHER: Final = Other.OTHER
ClientName: TypeAlias = str | Literal[Other.OTHER]
"""The name of a client's part: one name, or any that no entity has."""


class Client(NamedTuple):
    """A client, or all clients that quotas do not distinguish. An empty client-id is one that was not sent."""

    user: ClientName
    client_id: ClientName
    ip: ClientName | None = None
    """None where it is not known."""


@dataclass(frozen=True)
class Reach:
    """Resolves many clients under one snapshot."""

    snapshot: QuotaSnapshot
    static: StaticQuotas = NO_STATIC_QUOTAS

    @cached_property
    def names(self) -> Sequence[Sequence[str]]:
        """The users, the client-ids and the ips that entities name."""
        return [
            sorted({name for entity in self.snapshot if isinstance(name := entity[part], str)}) for part in range(3)
        ]

    @cached_property
    def keys(self) -> tuple[QuotaKey, ...]:
        """The keys of users and client-ids that are set anywhere; nobody has a limit of the others."""
        used = {key for values in self.snapshot.values() for key in values} | self.static.values.keys()
        return tuple(key for key in CLIENT_KEYS if key in used)

    def pairs(self, user: str | None = None, client_id: str | None = None) -> tuple[int, Iterator[Client]]:
        """The known clients, and their number: every user with every client-id, any other and the empty client-id.

        With a user or a client-id, only clients of that name.
        """
        users, client_ids, _ = self.names
        ones: Sequence[ClientName] = (*users, OTHER) if user is None else (user,)
        others: Sequence[ClientName] = (*client_ids, OTHER, "") if client_id is None else (client_id,)
        return len(ones) * len(others), (Client(one, other) for one in ones for other in others)

    def candidates(self, entity: Entity) -> tuple[int, Iterator[Client]]:
        """The known clients whom the entity can govern, and their number."""
        if entity.ip is not None:
            ips: Sequence[ClientName] = (entity.ip,) if isinstance(entity.ip, str) else (*self.names[2], OTHER)
            return len(ips), (Client(OTHER, OTHER, ip) for ip in ips)
        user, client_id = (name if isinstance(name, str) else None for name in (entity.user, entity.client_id))
        return self.pairs(user, client_id)

    def resolve(self, client: Client) -> tuple[Resolution, ...]:
        """What governs the client, under each of `keys`; where its ip is known, the connections too."""
        user, client_id, ip = client
        names = self._unknown if user is OTHER else user, self._unknown if client_id is OTHER else client_id
        resolutions = [resolver.resolve(*names) for resolver in self._resolvers]
        if ip is not None:
            resolutions.append(resolve_ip(self.snapshot, self._unknown if ip is OTHER else ip))
        return tuple(map(self._named, resolutions)) if OTHER in client else tuple(resolutions)

    def governed(self, entity: Entity, clients: Iterable[Client]) -> Iterator[tuple[Client, tuple[Resolution, ...]]]:
        """Those of the clients whom the entity governs, each with what it is governed in."""
        named = _one_spelling(entity)
        for client in clients:
            pairs = zip(named, _one_spelling(client), strict=True)
            if any(isinstance(name, str) and name != of_client for name, of_client in pairs):
                continue
            resolutions = tuple(resolution for resolution in self.resolve(client) if resolution.entity == entity)
            if resolutions:
                yield client, resolutions

    @cached_property
    def _resolvers(self) -> tuple[Resolver, ...]:
        return tuple(Resolver.of(self.snapshot, key, self.static) for key in self.keys)

    @cached_property
    def _unknown(self) -> str:
        """A name that no entity has."""
        return max(chain([""], *self.names), key=len) + "\0"

    def _named(self, resolution: Resolution) -> Resolution:
        """With the text of OTHER in the counter instead of the unknown name."""
        user, client_id = resolution.sensor.user, resolution.sensor.client_id
        sensor = Sensor(
            OTHER.value if user == encode_user(self._unknown) else user,
            OTHER.value if client_id == self._unknown else client_id,
        )
        return replace(resolution, sensor=sensor)


def _one_spelling(parts: Entity | Client) -> tuple[object, object, object]:
    """User, client-id and ip, which is compared as an address."""
    user, client_id, ip = parts
    return user, client_id, address(ip) if isinstance(ip, str) else ip
