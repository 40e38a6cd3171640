"""Plans, their findings, and what came of them: documents of `plan`, `lint`, `alter` and `apply`, with such schemas.

A plan is read back by `apply`. Findings of lint are SARIF 2.1.0 as well, as code hosts read it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kquota.core.change.lint import RULES, Finding
from kquota.core.change.lint import Severity as LintSeverity
from kquota.core.change.plan import Action, ApplyReport, Change, Cluster, Objection, Plan, Severity
from kquota.core.quotas.alteration import AlterResult
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey
from kquota.documents.derive import each, picked, plain, present
from kquota.documents.encoding import Document, headed, read_document, read_text
from kquota.documents.quotas import read_entity, read_values
from kquota.errors import InputError, placed

VERSION: Final = 2
Line = Callable[[Entity | None], int | None]
"""The line of the quotas file that an entity's entry begins at."""


def plan_document(
    plan: Plan,
    labels: Mapping[Entity, Mapping[str, str]] | None = None,
    *,
    brokers: int | None = None,
    findings: Sequence[Finding] | None = None,
    comparison: object = None,
    unnamed: int | None = None,
    warnings: Sequence[str] = (),
    sides: tuple[str, str] | None = None,
) -> Document:
    """The plan with each change's values before and after, and the labels of its entity.

    For readers also which `sides` a diff compared, how many brokers there are, and what lint finds. `comparison` is
    what changes for the clients of recorded usage, with its `warnings`. `read_plan` has no use for these.
    """
    labels = labels or {}
    return {
        **headed("plan", VERSION),
        **picked(plan, "fingerprint existing"),
        "summary": {action.value: plan.count(action) for action in Action},
        "changes": [
            {
                **picked(change, "action entity before after"),
                **{name: value for name, value in picked(change, "relative unusable form").items() if value},
                **({"labels": dict(labels[change.entity])} if labels.get(change.entity) else {}),
            }
            for change in plan.changes
        ],
        **present(message=plan.message),
        "ignored": plain(plan.ignored),
        "objections": objection_documents(plan.objections),
        "cluster": plain(plan.cluster),
        **({} if sides is None else {"a": sides[0], "b": sides[1]}),
        **present(unnamed=unnamed, brokers=brokers),
        **present(findings=None if findings is None else each(findings, _FINDING), comparison=comparison),
        **present(warnings=[*warnings] or None),
    }


def objection_documents(objections: Iterable[Objection]) -> list[Document]:
    """`{"name": "freeze", "severity": "question", "message": …, "lifted_by": ["--yes", "--force"]}` of each."""
    return each(objections, "name severity message lifted_by")


def is_plan(path: Path) -> bool:
    """Whether the file says of itself that it is a plan, which kquota writes as JSON. Raises InputError."""
    return '"kind": "kquota.plan"' in read_text(path)[:100]


def read_plan(path: Path) -> Plan:
    """Reads a plan document. Raises InputError, also when its fingerprint does not match the rest of it."""
    document = read_document(path, "plan")
    with placed(path):
        return plan_of(document)


def plan_of(document: Mapping[str, Any]) -> Plan:
    """The plan of a document. Raises InputError for what no plan says."""
    if document["version"] != VERSION:
        raise InputError("another version of kquota made this plan")
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
        tuple(map(_objection, document.get("objections", ()))),
        None if cluster is None else Cluster(cluster["address"], cluster["id"]),
        document.get("message"),
    )
    own = plan.fingerprint
    if own != document["fingerprint"]:
        raise InputError(
            f"the fingerprint {document['fingerprint']} does not match the changes, the review and the cluster ({own})",
            hint="a plan is applied as it was reviewed: plan again rather than edit it",
        )
    return plan


def _objection(raw: Mapping[str, Any]) -> Objection:
    return Objection(raw["name"], Severity[raw["severity"].upper()], raw["message"], tuple(raw["lifted_by"]))


def alter_document(
    results: Sequence[AlterResult], plan: Plan, journal: Sequence[str] = (), *, dry_run: bool
) -> Document:
    """Per entity the values before and after, and the error of an entity that was left as it was.

    Where nobody could look (`AlterResult.blind`) before and changed are null, and after has the written keys only, null
    for a deleted one. `unusable` are the keys that had an invalid value, so that before is without them. The plan has
    what the review has against it, and where it was. `journal` are the entries that undo takes.
    """
    return {
        **headed("alter"),
        "dry_run": dry_run,
        "cluster": plain(plan.cluster),
        "journal": list(journal),
        "objections": objection_documents(plan.objections),
        "results": [
            {
                "entity": plain(result.entity),
                "changed": None if result.blind and result.changed else result.changed,
                "before": None if result.blind else plain(result.before),
                "after": _after(result),
                **picked(result, "unusable error"),
            }
            for result in results
        ],
    }


def _after(result: AlterResult) -> Document:
    written = dict.fromkeys(sorted(map(str, result.blind))) if result.error is None else {}
    return {**written, **plain(result.after)}


def apply_document(report: ApplyReport, plan: Plan) -> Document:
    """What became of each change of a plan: of an apply, an undo or a reconcile."""
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
        **headed("apply"),
        "fingerprint": plan.fingerprint,
        "outcome": report.outcome,
        "cluster": plain(plan.cluster),
        "objections": objection_documents(plan.objections),
        "journal": report.entry,
        "changes": [
            {**picked(change, "entity action"), "status": status[change.entity], "error": errors.get(change.entity)}
            for change in plan.changes
        ],
    }


def lint_document(findings: Sequence[Finding], line: Line = lambda entity: None) -> Document:
    """The findings of lint with their proofs."""
    counts = {str(severity): sum(finding.severity is severity for finding in findings) for severity in LintSeverity}
    return {
        **headed("lint"),
        "summary": counts,
        "findings": [{**picked(finding, _FINDING), "line": line(finding.entity)} for finding in findings],
    }


_FINDING: Final = "rule=rule.name severity entity key by message proof hint"


def sarif_document(findings: Sequence[Finding], version: str, file: str | None, line: Line) -> Document:
    """The findings as one SARIF run of that version of kquota; without a file they have no place."""
    rules = [
        {
            "id": rule.name,
            "shortDescription": {"text": rule.about},
            "defaultConfiguration": {"level": str(rule.severity)},
        }
        for rule in RULES
    ]
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {"name": "kquota", "version": version, "rules": rules}},
                "results": [_result(finding, file, line(finding.entity)) for finding in findings],
            }
        ],
    }


def _result(finding: Finding, file: str | None, line: int | None) -> Document:
    result: Document = {
        "ruleId": finding.rule.name,
        "level": str(finding.severity),
        "message": {"text": stated(finding)},
    }
    if file is not None:
        place = {"artifactLocation": {"uri": file}, "region": {"startLine": line or 1}}
        result["locations"] = [{"physicalLocation": place}]
    return result


def subject(finding: Finding, text: Callable[[Entity], str] = str) -> str:
    """What a finding is about: `producer_byte_rate of user=alice`, with the entity as `text` has it."""
    parts = [] if finding.key is None else [finding.key.value]
    parts += [] if finding.entity is None else [text(finding.entity)]
    return " of ".join(parts) or "all quotas"


def stated(finding: Finding, text: Callable[[Entity], str] = str) -> str:
    """What a finding is about, and what it says; the message about a file that is not read begins with its place."""
    about = "" if finding.rule.name == UNREADABLE else f"{subject(finding, text)}: "
    return f"{about}{finding.message}. {finding.proof}. {finding.hint}."


UNREADABLE: Final = "unreadable"
"""The rule for the mistakes of a file that is not read."""
