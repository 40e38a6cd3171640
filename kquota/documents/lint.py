"""Lint findings as documents: kquota's own (schemas/lint.schema.json), and SARIF 2.1.0 as code hosts read it."""

from collections.abc import Callable, Sequence
from typing import Any

from kquota.core.change.lint import RULES, Finding, Severity
from kquota.core.quotas.entity import Entity
from kquota.documents.derive import picked
from kquota.documents.encoding import Document

Line = Callable[[Entity | None], int | None]
"""The line of the quotas file that an entity's entry begins at."""


def lint_document(findings: Sequence[Finding], line: Line = lambda entity: None) -> Document:
    """The findings with their proofs."""
    return {
        "kind": "kquota.lint",
        "version": 1,
        "summary": {str(severity): sum(found.severity is severity for found in findings) for severity in Severity},
        "findings": [{**finding_document(found), "line": line(found.entity)} for found in findings],
    }


def finding_document(found: Finding) -> Document:
    """One finding, without its place."""
    names = "rule=rule.name severity entity key by message proof hint"
    return picked(found, names) | {"severity": str(found.severity)}


def sarif_document(findings: Sequence[Finding], version: str, file: str | None, line: Line) -> Document:
    """The findings as one SARIF run of that version of kquota; without a file they have no place."""
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "kquota",
                        "version": version,
                        "rules": [
                            {
                                "id": rule.name,
                                "shortDescription": {"text": rule.about},
                                "defaultConfiguration": {"level": str(rule.severity)},
                            }
                            for rule in RULES
                        ],
                    }
                },
                "results": [_result(found, file, line(found.entity)) for found in findings],
            }
        ],
    }


def _result(found: Finding, file: str | None, line: int | None) -> Document:
    result: dict[str, Any] = {
        "ruleId": found.rule.name,
        "level": str(found.severity),
        "message": {"text": f"{subject(found)}: {found.message}. {found.proof}. {found.hint}."},
    }
    if file is not None:
        result["locations"] = [
            {"physicalLocation": {"artifactLocation": {"uri": file}, "region": {"startLine": line or 1}}}
        ]
    return result


def subject(found: Finding) -> str:
    """What a finding is about: `producer_byte_rate of user=alice`."""
    parts = [str(part) for part in (found.key, found.entity) if part is not None]
    return " of ".join(parts) or "all quotas"
