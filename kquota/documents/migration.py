"""The report of a migration's check (schemas/migration.schema.json), and the commands that mend what it found."""

import shlex
from collections.abc import Iterable, Sequence

from kquota.core.change.migration import Finding
from kquota.core.quotas.alteration import Alteration
from kquota.core.quotas.quota import format_value
from kquota.documents.derive import picked
from kquota.documents.encoding import Document


def migration_document(findings: Iterable[Finding], zookeeper: str, bootstrap_server: str) -> Document:
    """Each finding: what, where, what shows it, and what mends it."""
    return {
        "kind": "kquota.migration",
        "version": 1,
        "zookeeper": zookeeper,
        "bootstrap_server": bootstrap_server,
        "findings": [
            {
                **picked(finding, "damage cause=damage.cause entity where proof"),
                "commands": list(commands(finding, zookeeper, bootstrap_server)),
                "note": finding.note,
            }
            for finding in findings
        ],
    }


def commands(finding: Finding, zookeeper: str, bootstrap_server: str) -> Sequence[str]:
    """The command lines that mend a finding, in their order; none where none can."""
    lines = [_alter(alteration, bootstrap_server) for alteration in finding.mend]
    if finding.zookeeper_shell is not None:
        lines.append(f"zookeeper-shell.sh {shlex.quote(zookeeper)} {finding.zookeeper_shell}")
    return lines


def _alter(alteration: Alteration, bootstrap_server: str) -> str:
    words = ["kquota", "alter", "--bootstrap-server", bootstrap_server, "--entity", str(alteration.entity)]
    if alteration.set:
        values = (f"{key}={format_value(key, value)}" for key, value in alteration.set.items())
        words += ["--add-config", ",".join(values)]
    if alteration.remove:
        words += ["--delete-config", ",".join(sorted(map(str, alteration.remove)))]
    return shlex.join(words)
