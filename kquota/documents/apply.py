"""The report of an apply, an undo or a reconcile (schemas/apply.schema.json)."""

from __future__ import annotations

from kquota.core.change.plan import Plan
from kquota.core.change.report import ApplyReport
from kquota.documents.encoding import Document
from kquota.documents.plan import objection_document
from kquota.documents.quotas import entity_document


def apply_document(report: ApplyReport, plan: Plan) -> Document:
    """What became of each change of the plan."""
    status = {change.entity: "applied" for change in report.applied}
    errors = {entity: error.message for entity, error in report.failed}
    for word, entities in (
        ("already", report.already),
        ("failed", errors),
        ("skipped", report.skipped),
        ("rolled back", report.rolled_back),
        ("unknown", report.unknown),
        ("unverified", report.unverified),
    ):
        status.update(dict.fromkeys(entities, word))
    return {
        "kind": "kquota.apply",
        "version": 1,
        "fingerprint": plan.fingerprint,
        "outcome": report.outcome,
        "cluster": None if plan.cluster is None else {"address": plan.cluster.address, "id": plan.cluster.id},
        "objections": [objection_document(each) for each in plan.objections],
        "journal": report.entry,
        "changes": [
            {
                "entity": entity_document(change.entity),
                "action": change.action.value,
                "status": status[change.entity],
                "error": errors.get(change.entity),
            }
            for change in plan.changes
        ],
    }
