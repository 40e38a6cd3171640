"""Guards: what makes a plan too dangerous to apply without being asked for by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kquota.core.plan import Action, Plan
from kquota.core.quota import QuotaKey
from kquota.core.resolver import Level, Resolver
from kquota.core.selector import Selector, selected
from kquota.core.snapshot import QuotaSnapshot

_SMALLEST = 10
"""Below so many entities a share says nothing."""
_DEFAULTS = frozenset({Level.DEFAULT_USER_DEFAULT_CLIENT, Level.DEFAULT_USER, Level.DEFAULT_CLIENT})


@dataclass(frozen=True)
class Guards:
    """What may be changed at once.

    `most_deleted` and `most_changed` are shares of the entities that exist (0 to 1; clusters of fewer than ten entities
    are free). `protected` entities are never changed. `internal` are principals (users by name) that no default entity
    may begin to limit.
    """

    most_deleted: float = 0.2
    most_changed: float = 0.5
    protected: tuple[Selector, ...] = ()
    internal: tuple[str, ...] = ()


def objections(plan: Plan, current: QuotaSnapshot, guards: Guards) -> tuple[str, ...]:
    """Why the plan should not be applied to a cluster that has the quotas of `current`; a sentence each."""
    return (*_shares(plan, guards), *_protected(plan, guards), *_internal(plan, current, guards))


def _shares(plan: Plan, guards: Guards) -> Iterator[str]:
    if plan.existing < _SMALLEST:
        return
    deleted = plan.count(Action.DELETE)
    changed = deleted + plan.count(Action.UPDATE)
    for count, most, what in ((deleted, guards.most_deleted, "delete"), (changed, guards.most_changed, "change")):
        if count > most * plan.existing:
            share = 100 * count / plan.existing
            yield f"it would {what} {count} of {plan.existing} entities ({share:.0f} %, at most {100 * most:.0f} %)"
            return


def _protected(plan: Plan, guards: Guards) -> Iterator[str]:
    for change in plan.changes:
        selector = selected(change.entity, guards.protected)
        if selector is not None:
            yield f"it would {change.action.value} {change.entity}, which is protected by {selector}"


def _internal(plan: Plan, current: QuotaSnapshot, guards: Guards) -> Iterator[str]:
    if not guards.internal:
        return
    after = plan.applied_to(current)
    touched = {change.entity for change in plan.changes}
    for key in QuotaKey:
        if key is QuotaKey.CONNECTION_CREATION_RATE:
            continue
        was, is_ = Resolver.of(current, key), Resolver.of(after, key)
        for user in guards.internal:
            # With a client-id that nobody has and without one: these are governed by different defaults.
            for client_id in ("\0", ""):
                now = is_.resolve(user, client_id)
                if now.level in _DEFAULTS and now.entity in touched and now.limit != was.resolve(user, client_id).limit:
                    yield f"{key} of {now.entity} would limit the internal principal {user}"
                    break
