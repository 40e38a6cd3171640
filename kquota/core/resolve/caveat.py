"""Where the eight levels are not the whole story: the exceptions of brokers that apply to one client."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kquota.core.quotas.entity import DEFAULT
from kquota.core.quotas.quota import QuotaKey
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.core.quotas.static import NO_STATIC_QUOTAS, StaticQuotas
from kquota.core.quotas.version import BITS_CLEARED, KRAFT, KRAFT_MUTATIONS, REMOVAL_HOLDS, Version
from kquota.core.resolve.resolver import (
    CLIENT_ID_ENABLED,
    USER_CLIENT_ENABLED,
    USER_ENABLED,
    Resolution,
    Resolver,
    resolve,
)

_LATER: Final = (999, 0, 0)
"""Brokers of an unknown version are taken for newer than any."""
_ALL_BITS: Final = CLIENT_ID_ENABLED | USER_ENABLED | USER_CLIENT_ENABLED


@dataclass(frozen=True, slots=True)
class Caveat:
    """An exception that applies, by a name that stays, and in words."""

    name: str
    message: str


def caveats(
    snapshot: QuotaSnapshot,
    user: str,
    client_id: str,
    *,
    static: StaticQuotas = NO_STATIC_QUOTAS,
    version: Version | None = None,
    callback: str | None = None,
) -> tuple[Caveat, ...]:
    """What applies to a client on brokers of that version, with that `client.quota.callback.class`.

    Without a version, nothing that only old brokers do.
    """
    resolutions = resolve(snapshot, user, client_id, static=static)
    version = version or _LATER
    messages = {
        "custom-callback": f"client.quota.callback.class is {callback}: what is stored counts only as far as that class"
        " wants"
        if callback
        else None,
        "empty-client-id": _empty_client_id(snapshot, user, resolutions, static) if not client_id else None,
        "unlimited-value": _unlimited_value(resolutions),
        "kraft-mutations": _kraft_mutations(resolutions) if KRAFT <= version < KRAFT_MUTATIONS else None,
        "removed-quota": _removed_quota(resolutions) if version < REMOVAL_HOLDS else None,
        "sticky-state": _sticky_bits(snapshot, user, client_id, resolutions, static)
        if version < BITS_CLEARED
        else None,
    }
    return tuple(Caveat(name, message) for name, message in messages.items() if message is not None)


def _empty_client_id(
    snapshot: QuotaSnapshot, user: str, resolutions: Sequence[Resolution], static: StaticQuotas
) -> str | None:
    # A client-id that no entity has: what governs it is a default, if anything of a client-id is.
    unknown = max((name for entity in snapshot for name in entity if isinstance(name, str)), key=len, default="") + "\0"
    escaped = [
        f"{other.key} of {other.entity}"
        for own, other in zip(resolutions, resolve(snapshot, user, unknown, static=static), strict=True)
        if other.entity is not None and other.entity.client_id is DEFAULT and own.entity != other.entity
    ]
    return f"an empty client-id escapes {', '.join(escaped)} (KAFKA-13341)" if escaped else None


def _unlimited_value(resolutions: Sequence[Resolution]) -> str | None:
    names = [
        f"{resolution.key} of {resolution.entity}"
        for resolution in resolutions
        if resolution.entity is not None and resolution.limit == resolution.key.value_type.maximum
    ]
    if not names:
        return None
    return (
        f"{', '.join(names)} is the largest value of its type, which limits nothing, and it governs as any other value:"
        " weaker quotas do not take its place (KIP-55's text has an unlimited default passed over; Kafka never did)"
    )


def _kraft_mutations(resolutions: Sequence[Resolution]) -> str | None:
    if not any(
        resolution.key is QuotaKey.CONTROLLER_MUTATION_RATE and resolution.limit is not None
        for resolution in resolutions
    ):
        return None
    return (
        "clusters in KRaft mode enforce controller_mutation_rate since 3.5 only (KAFKA-14351); with ZooKeeper since 2.7"
    )


def _removed_quota(resolutions: Sequence[Resolution]) -> str | None:
    keys = [str(resolution.key) for resolution in resolutions if resolution.limit is None]
    if not keys:
        return None
    return (
        f"brokers before 2.5 go on throttling by a quota whose removal left none ({', '.join(keys)}): until they are"
        " started anew, or the client was silent for an hour (KAFKA-9658)"
    )


def _sticky_bits(
    snapshot: QuotaSnapshot, user: str, client_id: str, resolutions: Sequence[Resolution], static: StaticQuotas
) -> str | None:
    """Only whose counter it is can be in doubt, and only where nothing limits it."""
    keys, counters = [], set()
    for resolution in resolutions:
        if resolution.limit is not None:
            continue
        values = Resolver.of(snapshot, resolution.key).values
        sensors = {
            Resolver(resolution.key, values, mask, static).resolve(user, client_id).sensor
            for mask in range(1, _ALL_BITS + 1)
        } - {resolution.sensor}
        if sensors:
            keys.append(str(resolution.key))
            counters |= sensors
    if not keys:
        return None
    others = ", ".join(sorted(map(str, counters)))
    return (
        f"brokers before 4.2 remember which kinds of entities ever had a quota: without a limit ({', '.join(keys)}) the"
        f" counter may also be {others} until they are started anew (KAFKA-19282)"
    )
