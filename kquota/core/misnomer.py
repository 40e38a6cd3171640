"""What Kafka takes and nobody can mean: names that no client has, on which a quota would never do anything.

Values are checked where they are made (`kquota.core.quota.check_value`), and those checks have no exception. A name is
another matter: Kafka stores any, and a cluster may hold such a one on purpose.
"""

from __future__ import annotations

from kquota.core.alteration import Alteration
from kquota.core.entity import DEFAULT, EntityType, Name

USER_PREFIX = "User:"
"""What ACLs and logs put before the name of a user; quotas go by the name alone."""


def prefixed_user(entity_type: EntityType, name: Name) -> str | None:
    """The name of the user that is meant where one has the prefix of ACLs; None for every other name."""
    if entity_type is EntityType.USER and name is not DEFAULT and name.startswith(USER_PREFIX):
        return name.removeprefix(USER_PREFIX)
    return None


def is_literal_default(name: Name) -> bool:
    """Whether the name is the text `<default>`: the default entity itself has no name."""
    return name == DEFAULT.value


def misnomer(entity_type: EntityType, name: Name) -> str | None:
    """Why hardly any client goes by that name, and what was meant; None for a name like any other."""
    if is_literal_default(name):
        flag = f"--{entity_type.plural.removesuffix('s')}-defaults"
        return f"the name '{name}' is not the default entity: that is {flag}, or {entity_type.value}={name} as --entity"
    meant = prefixed_user(entity_type, name)
    if meant is not None:
        return f"quotas go by the principal's name alone, {meant!r}, without the '{USER_PREFIX}' of ACLs"
    return None


def misnomers(alteration: Alteration) -> tuple[str, ...]:
    """Why the alteration should not be made unless somebody insists; none for one that only deletes."""
    if not alteration.set:
        return ()
    reasons = (misnomer(entity_type, name) for entity_type, name in alteration.entity.parts)
    return tuple(reason for reason in reasons if reason is not None)
