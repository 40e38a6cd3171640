"""The plan document: what `plan -o json` and `--out` write and `apply` reads back (schemas/plan.schema.json)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kquota.core.entity import Entity
from kquota.core.lint import Finding
from kquota.core.plan import Action, Change, Plan
from kquota.core.whatif import Comparison
from kquota.documents.encoding import Document, read_document, read_text
from kquota.documents.lint import finding_document
from kquota.documents.quotas import entity_document, read_entity, read_values, values_document
from kquota.documents.whatif import comparison_document
from kquota.errors import InputError

KIND = "kquota.plan"
VERSION = 1


def plan_document(
    plan: Plan,
    labels: Mapping[Entity, Mapping[str, str]] | None = None,
    *,
    brokers: int | None = None,
    findings: Sequence[Finding] | None = None,
    comparison: Comparison | None = None,
) -> Document:
    """The plan with each change's values before and after, and the labels of its entity.

    For readers also how many brokers there are, what lint finds, and what changes for the clients of recorded usage;
    `read_plan` has no use for these.
    """
    labels = labels or {}
    return {
        "kind": KIND,
        "version": VERSION,
        "fingerprint": plan.fingerprint,
        "existing": plan.existing,
        "summary": {action.value: plan.count(action) for action in Action},
        "changes": [
            {
                "action": change.action.value,
                "entity": entity_document(change.entity),
                "before": values_document(change.before),
                "after": values_document(change.after),
                **({"labels": dict(labels[change.entity])} if labels.get(change.entity) else {}),
            }
            for change in plan.changes
        ],
        "ignored": [entity_document(entity) for entity in plan.ignored],
        **({"objections": list(plan.objections)} if plan.objections else {}),
        **({} if brokers is None else {"brokers": brokers}),
        **({} if findings is None else {"findings": [finding_document(found) for found in findings]}),
        **({} if comparison is None else {"comparison": comparison_document(comparison)}),
    }


def is_plan(path: Path) -> bool:
    """Whether the file says of itself that it is a plan, which kquota writes as JSON. Raises InputError."""
    return f'"kind": "{KIND}"' in read_text(path)[:100]


def read_plan(path: Path) -> Plan:
    """Reads a plan document. Raises InputError, also when its fingerprint is not that of its changes."""
    try:
        return plan_of(read_document(path, "plan"))
    except InputError as error:
        if error.message.startswith(str(path)):
            raise
        raise type(error)(f"{path}: {error.message}", hint=error.hint) from None


def plan_of(document: Mapping[str, Any]) -> Plan:
    """The plan of a document that fits the schema. Raises InputError for what no plan says."""
    changes = []
    seen = set()
    for number, raw in enumerate(document["changes"]):
        entity = read_entity(raw["entity"])
        before, after = read_values(raw["before"]), read_values(raw["after"])
        if entity in seen:
            raise InputError(f"changes[{number}]: {entity} is given twice")
        if before == after:
            raise InputError(f"changes[{number}]: {entity} does not change")
        seen.add(entity)
        changes.append(Change(entity, before, after))
    ignored = tuple(read_entity(raw) for raw in document["ignored"])
    plan = Plan(tuple(changes), document["existing"], ignored, tuple(document.get("objections", ())))
    if plan.fingerprint != document["fingerprint"]:
        raise InputError(
            f"the fingerprint {document['fingerprint']} is not that of its changes ({plan.fingerprint})",
            hint="a plan is applied as it was reviewed: plan again rather than edit it",
        )
    return plan
