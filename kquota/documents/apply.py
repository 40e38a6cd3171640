"""The report of an apply, an undo or a reconcile (schemas/apply.schema.json)."""

from kquota.core.change.plan import ApplyReport, Plan
from kquota.documents.derive import picked, plain
from kquota.documents.encoding import Document
from kquota.documents.plan import objection_document


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
        "cluster": plain(plan.cluster),
        "objections": [objection_document(each) for each in plan.objections],
        "journal": report.entry,
        "changes": [
            {
                **picked(change, "entity action"),
                "status": status[change.entity],
                "error": errors.get(change.entity),
            }
            for change in plan.changes
        ],
    }
