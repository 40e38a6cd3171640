"""The report of an alter (schemas/alter.schema.json)."""

from collections.abc import Sequence

from kquota.core.change.plan import Cluster, Objection
from kquota.core.quotas.alteration import AlterResult
from kquota.documents.derive import picked, plain
from kquota.documents.encoding import Document
from kquota.documents.plan import objection_document
from kquota.documents.quotas import entity_document, values_document


def alter_document(
    results: Sequence[AlterResult],
    *,
    dry_run: bool,
    objections: Sequence[Objection] = (),
    cluster: Cluster | None = None,
    journal: Sequence[str] = (),
) -> Document:
    """Per entity the values before and after, and the error of an entity that was left as it was.

    Where nobody could look (`AlterResult.blind`) before and changed are null, and after has the written keys only, null
    for a deleted one. `unusable` are the keys that had an invalid value, so that before is without them. `objections`
    is what the review has against it, `cluster` where it was, and `journal` the entries that undo takes.
    """
    return {
        "kind": "kquota.alter",
        "version": 1,
        "dry_run": dry_run,
        "cluster": plain(cluster),
        "journal": list(journal),
        "objections": [objection_document(each) for each in objections],
        "results": [
            {
                "entity": entity_document(result.entity),
                "changed": None if result.blind and result.changed else result.changed,
                "before": None if result.blind else values_document(result.before),
                "after": _after(result),
                **picked(result, "unusable error"),
            }
            for result in results
        ],
    }


def _after(result: AlterResult) -> Document:
    written = dict.fromkeys(sorted(map(str, result.blind))) if result.error is None else {}
    return {**written, **values_document(result.after)}
