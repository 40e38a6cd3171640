"""`kquota audit --report`: the findings as one HTML page that an application team understands.

The page is all there is: no script, no font, no picture from elsewhere. Its charts are SVG in the page, drawn here,
because a page without scripts opens wherever pages are kept (mail, artifact stores with a strict policy), prints, and
cannot be made to run the names that are in it. What a chart would tell on hovering is in a table below it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kquota.cli import drawing
from kquota.errors import InputError, MissingDependency
from kquota.files import replacing

if TYPE_CHECKING:
    from kquota.audit.result import DataQuality
    from kquota.audit.settings import AuditSettings
    from kquota.audit.timeline import CounterName, Timeline
    from kquota.core.findings.finding import Finding
    from kquota.core.findings.verdicts import QuotaVerdict
    from kquota.core.findings.whatif import Comparison

MOST: Final = 8
"""Counters that get a chart."""


@dataclass(frozen=True, slots=True)
class Report:
    """All that the page tells."""

    findings: Sequence[Finding]
    """The most harmful first."""
    timelines: Mapping[CounterName, Timeline]
    quality: DataQuality
    reasons: Sequence[tuple[str, int]]
    """Why records could not be read, and how many."""
    settings: AuditSettings
    engine: str
    command: str
    """The command line that makes the same report again."""
    quarantine: str = ""
    """The file with the records that could not be read; empty when there are none."""
    comparison: Comparison | None = None
    """What these quotas change, where others were replayed beside them."""
    quotas: Sequence[QuotaVerdict] = ()
    """What became of each quota that is set."""


def check_report(path: Path) -> None:
    """Says early what would fail late: the name, the folder, the libraries.

    Raises click.UsageError, InputError and MissingDependency.
    """
    if path.suffix not in (".html", ".htm"):
        raise click.UsageError(f"--report: {path} is no *.html")
    if not path.absolute().parent.is_dir():
        raise InputError(f"{path}: there is no such folder")
    drawing.check_drawing("--report", "report")
    try:
        import jinja2  # noqa: F401
    except ImportError as error:
        raise MissingDependency(f"--report needs {error.name}", extra="report") from None


def write_report(report: Report, path: Path) -> None:
    """Writes the page. Raises InputError where it cannot be written."""
    from kquota.cli.report.page import render

    page = render(report)
    try:
        with replacing(path) as aside:
            aside.write_text(page, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot write the report: {error.strerror or error}") from None
