"""kquota: Kafka client quotas - describe, alter, resolve, simulate and audit them.

The public API; importing it loads nothing, each name brings its module when it is first used:

    from kquota import apply, connect, plan, resolve

    with connect(context="prod") as cluster:
        for entity, values in cluster.describe().items():
            print(entity, dict(values))
        report = apply(cluster, plan(cluster, {"user=alice": {"producer_byte_rate": "10MB"}}), yes=True)
    print(resolve("quotas.yaml", user="alice", client_id="app1"))

Reading: `connect(...).describe`, `resolve`, `lint`. Writing: `plan`, `apply` and `undo` are the road of the commands,
with review and journal; `cluster.alter` writes at once. Traffic: `audit`, `audit_stream` and `recommend` from recorded
usage, `simulate` a workload, `probe` a live broker. Quotas are a cluster, a file by its path, a snapshot, or a mapping
of texts as the command line takes them. Every error is a `KquotaError`. None of this needs the command line.
"""

# Not imported from typing, which alone would load two dozen modules; type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from kquota.access import connect
    from kquota.audit.run import Usage, audit, audit_stream, recommend
    from kquota.backends import QuotaBackend
    from kquota.backends.kafka import KafkaSecurity, Plain, Scram
    from kquota.backends.tls import Tls
    from kquota.backends.zookeeper import ZooKeeperSecurity
    from kquota.changes import apply, plan, undo
    from kquota.core.change.plan import ApplyReport, Change, Objection, Plan
    from kquota.core.change.review import Guards
    from kquota.core.quotas.alteration import Alteration, AlterResult
    from kquota.core.quotas.entity import DEFAULT, Entity, EntityType
    from kquota.core.quotas.quota import QuotaKey
    from kquota.core.quotas.selector import ANY, QuotaFilter
    from kquota.core.quotas.snapshot import QuotaSnapshot
    from kquota.core.resolve.resolver import Resolution
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
    from kquota.probe.run import ProbeResult, probe
    from kquota.questions import lint, resolve
    from kquota.simulations import simulate

__version__ = "0.2.0"

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
    "ProbeResult",
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
    "Usage",
    "ZooKeeperSecurity",
    "apply",
    "audit",
    "audit_stream",
    "connect",
    "lint",
    "plan",
    "probe",
    "recommend",
    "resolve",
    "simulate",
    "undo",
]

_HOMES = {
    "kquota.access": ("connect",),
    "kquota.audit.run": ("Usage", "audit_stream", "recommend"),
    "kquota.backends": ("QuotaBackend",),
    "kquota.backends.kafka": ("KafkaSecurity", "Plain", "Scram"),
    "kquota.backends.tls": ("Tls",),
    "kquota.backends.zookeeper": ("ZooKeeperSecurity",),
    "kquota.changes": ("apply", "plan", "undo"),
    "kquota.core.quotas.alteration": ("AlterResult", "Alteration"),
    "kquota.core.quotas.entity": ("DEFAULT", "Entity", "EntityType"),
    "kquota.core.quotas.selector": ("ANY", "QuotaFilter"),
    "kquota.core.change.plan": ("ApplyReport", "Change", "Objection", "Plan"),
    "kquota.core.quotas.quota": ("QuotaKey",),
    "kquota.core.resolve.resolver": ("Resolution",),
    "kquota.core.change.review": ("Guards",),
    "kquota.core.quotas.snapshot": ("QuotaSnapshot",),
    "kquota.probe.run": ("ProbeResult",),
    "kquota.questions": ("lint", "resolve"),
    "kquota.simulations": ("simulate",),
}
_PACKAGES = ("audit", "probe")
"""The functions that are packages as well (`kquota.callables`)."""


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'kquota' has no attribute {name!r}")
    import importlib

    if name in _PACKAGES:
        return importlib.import_module(f"kquota.{name}")
    home = next((home for home, names in _HOMES.items() if name in names), "kquota.errors")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
