"""kquota: Kafka client quotas - describe, alter, resolve, simulate and audit them.

The public API; importing it loads nothing, each name brings its module when it is first used:

    from kquota import Alteration, Entity, QuotaKey, connect

    with connect(zookeeper="localhost:2181/kafka") as cluster:
        for entity, values in cluster.describe().items():
            print(entity, dict(values))
        cluster.alter([Alteration(Entity(user="alice"), {QuotaKey.PRODUCER_BYTE_RATE: 10_000_000})])

`cluster.alter` writes at once; `plan`, `apply` and `undo` are the road of the commands, with review and journal.
"""

# Not imported from typing, which alone would load two dozen modules; type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from kquota.backends import QuotaBackend, connect
    from kquota.backends.kafka import KafkaSecurity, Plain, Scram
    from kquota.backends.tls import Tls
    from kquota.backends.zookeeper import ZooKeeperSecurity
    from kquota.changes import apply, plan, undo
    from kquota.core.change.plan import Change, Objection, Plan
    from kquota.core.change.report import ApplyReport
    from kquota.core.change.review import Guards
    from kquota.core.quotas.alteration import Alteration, AlterResult
    from kquota.core.quotas.entity import DEFAULT, Entity, EntityType
    from kquota.core.quotas.filter import ANY, QuotaFilter
    from kquota.core.quotas.quota import QuotaKey
    from kquota.core.quotas.snapshot import QuotaSnapshot
    from kquota.core.resolve.resolver import Resolution, resolve
    from kquota.errors import (
        Conflict,
        InputError,
        InvalidRequest,
        KquotaError,
        MissingDependency,
        Refused,
        Rejected,
        Unauthorized,
        Unreachable,
    )

__version__ = "0.1.0"

__all__ = [
    "ANY",
    "DEFAULT",
    "AlterResult",
    "Alteration",
    "ApplyReport",
    "Change",
    "Conflict",
    "Entity",
    "EntityType",
    "Guards",
    "InputError",
    "InvalidRequest",
    "KafkaSecurity",
    "KquotaError",
    "MissingDependency",
    "Objection",
    "Plain",
    "Plan",
    "QuotaBackend",
    "QuotaFilter",
    "QuotaKey",
    "QuotaSnapshot",
    "Refused",
    "Rejected",
    "Resolution",
    "Scram",
    "Tls",
    "Unauthorized",
    "Unreachable",
    "ZooKeeperSecurity",
    "apply",
    "connect",
    "plan",
    "resolve",
    "undo",
]

_HOMES = {
    "kquota.backends": ("QuotaBackend", "connect"),
    "kquota.backends.kafka": ("KafkaSecurity", "Plain", "Scram"),
    "kquota.backends.tls": ("Tls",),
    "kquota.backends.zookeeper": ("ZooKeeperSecurity",),
    "kquota.changes": ("apply", "plan", "undo"),
    "kquota.core.quotas.alteration": ("AlterResult", "Alteration"),
    "kquota.core.quotas.entity": ("DEFAULT", "Entity", "EntityType"),
    "kquota.core.quotas.filter": ("ANY", "QuotaFilter"),
    "kquota.core.change.plan": ("Change", "Objection", "Plan"),
    "kquota.core.quotas.quota": ("QuotaKey",),
    "kquota.core.change.report": ("ApplyReport",),
    "kquota.core.resolve.resolver": ("Resolution", "resolve"),
    "kquota.core.change.review": ("Guards",),
    "kquota.core.quotas.snapshot": ("QuotaSnapshot",),
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'kquota' has no attribute {name!r}")
    import importlib

    home = next((home for home, names in _HOMES.items() if name in names), "kquota.errors")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
