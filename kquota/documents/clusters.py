"""What clusters show and what is done to them: documents of `brokers`, `doctor`, `watch`, `migrate` and `record`.

Their schemas have these names. `commands` are the command lines that mend what a migration's check found.
"""

import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from kquota.core.change.broker import Broker, BrokerAlterResult, BrokerSnapshot, beside
from kquota.core.change.migration import Finding
from kquota.core.change.plan import Change, Cluster
from kquota.core.change.recording import LOGGER, RECORDING, Bounds, Draft, Settled
from kquota.core.check import Check, State
from kquota.core.quotas.alteration import Alteration
from kquota.core.quotas.entity import DEFAULT
from kquota.core.quotas.quota import QuotaKey, format_value
from kquota.documents.derive import each, picked, plain, utc
from kquota.documents.encoding import Document, headed
from kquota.documents.journal import Entry
from kquota.documents.plan import objection_documents


def brokers_document(snapshot: BrokerSnapshot) -> Document:
    """Per broker its configs: what is in effect, where it is set, and what is set below that."""
    return {
        **headed("brokers"),
        "brokers": [
            {
                "broker": _broker(broker),
                "configs": [
                    {
                        **picked(config, "name value source alterable=is_alterable"),
                        "shadows": each(config.hidden, "name value source"),
                        "beside": None
                        if (other := beside(config, configs)) is None
                        else {**picked(other, "name value source"), "unless_inter_broker": config.is_protected is None},
                    }
                    for config in configs
                ],
            }
            for broker, configs in snapshot.items()
        ],
    }


def broker_alter_document(result: BrokerAlterResult, cluster: Cluster, *, dry_run: bool) -> Document:
    """The limits that are set for that broker itself, before and after, and the cluster by its address."""
    return {
        **headed("broker_alter"),
        "dry_run": dry_run,
        "cluster": plain(cluster),
        "broker": _broker(result.broker),
        **picked(result, "changed before after"),
    }


def _broker(broker: Broker) -> Any:
    return {"default": True} if broker is DEFAULT else broker


def doctor_document(
    checks: Sequence[Check], cluster: str | None, context: str | None, remedy: Callable[[Check], str]
) -> Document:
    """The checks in their order; `remedy` gives the next step of each, empty for none."""
    return {
        **headed("doctor"),
        "cluster": cluster,
        "context": context,
        "summary": {str(state): sum(check.state is state for check in checks) for state in State},
        "checks": [
            {**picked(check, "area subject state message"), "remedy": remedy(check) or None} for check in checks
        ],
    }


def change_document(time_ms: int, change: Change, key: QuotaKey) -> Document:
    """One key of a change that was seen at that time (epoch ms)."""
    return {
        **headed("watch"),
        "time": utc(time_ms),
        "entity": plain(change.entity),
        "key": key.value,
        "before": plain(change.before.get(key)),
        "after": plain(change.after.get(key)),
    }


def migration_document(findings: Iterable[Finding], zookeeper: str, bootstrap_server: str) -> Document:
    """Each finding: what, where, what shows it, and what mends it."""
    return {
        **headed("migration"),
        "zookeeper": zookeeper,
        "bootstrap_server": bootstrap_server,
        "findings": [
            {
                **picked(finding, "damage cause=damage.cause entity where proof"),
                "commands": commands(finding, bootstrap_server),
                "note": finding.note,
            }
            for finding in findings
        ],
    }


def commands(finding: Finding, bootstrap_server: str) -> list[str]:
    """The command lines that mend a finding, in their order; none where none can."""
    return [_alter(alteration, bootstrap_server) for alteration in finding.mend]


def _alter(alteration: Alteration, bootstrap_server: str) -> str:
    words = ["kquota", "alter", "--bootstrap-server", bootstrap_server, "--entity", str(alteration.entity)]
    if alteration.set:
        values = (f"{key}={format_value(key, value)}" for key, value in alteration.set.items())
        words += ["--add-config", ",".join(values)]
    if alteration.remove:
        words += ["--delete-config", ",".join(sorted(map(str, alteration.remove)))]
    return shlex.join(words)


def record_document(
    cluster: Cluster, noun: str, draft: Draft, recorded: Document | None, settled: Iterable[Settled] = ()
) -> Document:
    """A recording; `recorded` is null for a dry run, and `settled` what became of each node's logger."""
    nodes: dict[int, Document] = {
        node: {"node": node, "before": level.name, "outcome": None, "now": level.name, "on_ms": 0, "error": None}
        for node, level in draft.levels.items()
    }
    nodes |= {became.node: picked(became, "node before outcome=fate now on_ms error") for became in settled}
    return {
        **headed("record"),
        "cluster": plain(cluster),
        "node_type": noun,
        "logger": LOGGER,
        "level": RECORDING,
        "bounds": None if draft is _UNKNOWN else picked(draft.bounds, "for_ms requests size rotate_ms=rotate"),
        "estimates": each(draft.estimates, "node on_ms requests_per_second bytes_per_second bytes"),
        "log_dirs": each(draft.spaces, "node log_dir total_bytes=total usable_bytes=usable"),
        "objections": objection_documents(draft.objections),
        "recorded": recorded,
        "nodes": [*nodes.values()],
    }


RECORDED: Final = """journal=entry started finished ended_by error requests=total.requests bytes=total.bytes
    exact=total.exact"""
"""What a document has of a recording that was made. Times are ms since the epoch."""


_UNKNOWN: Final = Draft((), {}, (), Bounds(0))
"""Of a recording that `undo` ends: the journal does not keep what was planned."""


def taken_back_document(entry: Entry, settled: Iterable[Settled]) -> Document:
    """What `undo` made of a recording that had not switched everything back."""
    noun = "controller" if entry.cluster.startswith("controller://") else "broker"
    ended = {"finished": entry.finished or entry.started, "ended_by": "undo"}
    unknown = dict.fromkeys(("error", "requests", "bytes", "exact"))
    recorded = {**picked(entry, "journal=id started"), **ended, **unknown}
    return record_document(entry.place, noun, _UNKNOWN, recorded, settled)
