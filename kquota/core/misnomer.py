"""What Kafka takes and nobody can mean: names that no client has, on which a quota would never do anything.

Values are checked where they are made (`kquota.core.quota.check_value`), and those checks have no exception. A name is
another matter: Kafka stores any, and a cluster may hold such a one on purpose.
"""

from __future__ import annotations

from kquota.core.alteration import Alteration
from kquota.core.entity import DEFAULT, EntityType, Name

_PREFIX = "User:"


def misnomer(entity_type: EntityType, name: Name) -> str | None:
    """Why hardly any client goes by that name, and what was meant; None for a name like any other."""
    if name == DEFAULT.value:  # a text: the default itself is none
        flag = f"--{entity_type.plural.removesuffix('s')}-defaults"
        return f"the name '{name}' is not the default entity: that is {flag}, or {entity_type.value}={name} as --entity"
    if entity_type is EntityType.USER and name is not DEFAULT and name.startswith(_PREFIX):
        return (
            f"quotas go by the principal's name alone, {name.removeprefix(_PREFIX)!r}, without the '{_PREFIX}' of ACLs"
        )
    return None


def misnomers(alteration: Alteration) -> tuple[str, ...]:
    """Why the alteration should not be made unless somebody insists; none for one that only deletes."""
    if not alteration.set:
        return ()
    reasons = (misnomer(entity_type, name) for entity_type, name in alteration.entity.parts)
    return tuple(reason for reason in reasons if reason is not None)
