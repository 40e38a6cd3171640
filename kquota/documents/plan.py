"""The plan document: what `plan -o json` and `--out` write and `apply` reads back (schemas/plan.schema.json)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kquota.core.change.lint import Finding
from kquota.core.change.plan import Action, Change, Cluster, Objection, Plan, Severity
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey
from kquota.documents.derive import picked, plain
from kquota.documents.encoding import Document, read_document, read_text
from kquota.documents.lint import finding_document
from kquota.documents.quotas import read_entity, read_values
from kquota.errors import InputError

KIND = "kquota.plan"
VERSION = 2


def plan_document(
    plan: Plan,
    labels: Mapping[Entity, Mapping[str, str]] | None = None,
    *,
    brokers: int | None = None,
    findings: Sequence[Finding] | None = None,
    comparison: object = None,
    unnamed: int | None = None,
    sides: tuple[str, str] | None = None,
) -> Document:
    """The plan with each change's values before and after, and the labels of its entity.

    For readers also which `sides` a diff compared, how many brokers there are, what lint finds, and what changes for
    the clients of recorded usage; `read_plan` has no use for these.
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
                **picked(change, "action entity before after"),
                **{name: each for name, each in picked(change, "relative unusable form").items() if each},
                **({"labels": dict(labels[change.entity])} if labels.get(change.entity) else {}),
            }
            for change in plan.changes
        ],
        **({} if plan.message is None else {"message": plan.message}),
        "ignored": plain(plan.ignored),
        "objections": [objection_document(each) for each in plan.objections],
        "cluster": plain(plan.cluster),
        **({} if sides is None else {"a": sides[0], "b": sides[1]}),
        **({} if unnamed is None else {"unnamed": unnamed}),
        **({} if brokers is None else {"brokers": brokers}),
        **({} if findings is None else {"findings": [finding_document(found) for found in findings]}),
        **({} if comparison is None else {"comparison": comparison}),
    }


def objection_document(objection: Objection) -> Document:
    """`{"name": "freeze", "severity": "question", "message": …, "lifted_by": ["--yes", "--force"]}`."""
    return picked(objection, "name severity message lifted_by") | {"severity": str(objection.severity)}


def is_plan(path: Path) -> bool:
    """Whether the file says of itself that it is a plan, which kquota writes as JSON. Raises InputError."""
    return f'"kind": "{KIND}"' in read_text(path)[:100]


def read_plan(path: Path) -> Plan:
    """Reads a plan document. Raises InputError, also when its fingerprint does not match the rest of it."""
    try:
        document = read_document(path, "plan")
        if document["version"] < VERSION:
            raise InputError(
                "an older kquota made this plan, without its review and its cluster", hint="plan again with this one"
            )
        return plan_of(document)
    except InputError as error:
        if error.message.startswith(str(path)):
            raise
        raise type(error)(f"{path}: {error.message}", hint=error.hint) from None


def plan_of(document: Mapping[str, Any]) -> Plan:
    """The plan of a document that fits the schema; journals may hold version 1.

    Raises InputError for what no plan says.
    """
    changes = []
    seen = set()
    for number, raw in enumerate(document["changes"]):
        entity = read_entity(raw["entity"])
        before, after = read_values(raw["before"]), read_values(raw["after"])
        unusable = frozenset(map(QuotaKey.parse, raw.get("unusable", ())))
        if entity in seen:
            raise InputError(f"changes[{number}]: {entity} is given twice")
        if before == after and not unusable:
            raise InputError(f"changes[{number}]: {entity} does not change")
        seen.add(entity)
        changes.append(Change(entity, before, after, raw.get("relative", False), unusable, raw.get("form")))
    ignored = tuple(read_entity(raw) for raw in document["ignored"])
    cluster = document.get("cluster")
    plan = Plan(
        tuple(changes),
        document["existing"],
        ignored,
        tuple(map(_objection, document.get("objections", ()))) if document["version"] == VERSION else (),
        None if cluster is None else Cluster(cluster["address"], cluster["id"]),
        document.get("message"),
    )
    own = plan.fingerprint if document["version"] == VERSION else plan.first_fingerprint
    if own != document["fingerprint"]:
        raise InputError(
            f"the fingerprint {document['fingerprint']} does not match the changes, the review and the cluster ({own})",
            hint="a plan is applied as it was reviewed: plan again rather than edit it",
        )
    return plan


def _objection(raw: Mapping[str, Any] | str) -> Objection:
    if isinstance(raw, str):  # plans of version 1 had texts
        raise InputError("objections: expected an object, found text")
    return Objection(raw["name"], Severity[raw["severity"].upper()], raw["message"], tuple(raw["lifted_by"]))
