"""What brokers of one version make of a snapshot: the quotas that they enforce, and the quotas that they ignore."""

from dataclasses import replace

from kquota.core.quotas.entity import Entity
from kquota.core.quotas.snapshot import Ignored, QuotaSnapshot, Values
from kquota.core.quotas.static import NO_STATIC_QUOTAS, StaticQuotas
from kquota.core.quotas.version import EMPTY_CLIENT_ID_ESCAPES, Version, ignored


def enforced(snapshot: QuotaSnapshot, version: Version, static: StaticQuotas = NO_STATIC_QUOTAS) -> QuotaSnapshot:
    """The quotas that brokers of that version enforce, with the static defaults as values of the default client-id.

    The other quotas are in its `ignored`, each with the reason.
    """
    kept: dict[Entity, Values] = {}
    left_out: list[Ignored] = []
    for entity, values in snapshot.items():
        reasons = {key: reason for key in values if (reason := ignored(entity, key, version)) is not None}
        left_out += [Ignored(entity, key, values[key], reason) for key, reason in reasons.items()]
        kept[entity] = {key: value for key, value in values.items() if key not in reasons} if reasons else values
    return static.added_to(
        replace(
            snapshot,
            quotas=kept if left_out else snapshot.quotas,
            ignored=(*snapshot.ignored, *left_out),
            empty_client_id=version < EMPTY_CLIENT_ID_ESCAPES,
        )
    )
