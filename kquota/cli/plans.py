"""Plans for people: the changes as a table, what lint finds about them, and what recorded usage says."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import click

from kquota.cli.streams import warned
from kquota.cli.text import MARKS, Column, code, entity_text, many, markdown, safe
from kquota.cli.views import Document, Note, Part, Table, View, markdown_of
from kquota.core.change.lint import Finding, concerning
from kquota.core.change.plan import Action, Objection, Plan, Severity
from kquota.core.change.review import FELT
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import limit_text
from kquota.documents.encoding import entry_lines
from kquota.documents.plan import Line, plan_document, subject
from kquota.documents.quotas import QuotaFile

Labels = Mapping["Entity", Mapping[str, str]]


Sides = tuple[str, str]
"""What is compared, where it is not a cluster with a file, as people named it."""
_TO_DO, _DIFFERENT = ("to create", "to update", "to delete"), ("only in B", "different", "only in A")
"""What the actions of a plan and of a comparison stand for."""
_LONGEST_NAME = 24
"""Longer names would take the room of the values below them."""


@dataclass(frozen=True, slots=True)
class Review:
    """What is said about a plan beside its changes: what its limits come to on so many brokers, None where nobody knows
    how many there are; what is wrong with the quotas as they would be; and what recorded usage says.
    """

    brokers: int | None
    findings: Sequence[Finding]
    usage: View | None = None
    """What recorded usage says of the plan."""
    unnamed: int = 0
    """Entities of the cluster that the file does not name, and that no prune deletes."""
    file: Path | None = None
    line: Line = lambda entity: None
    """At which line of the file an entity stands."""


def plan_view(
    planned: Plan, labels: Labels, review: Review | None = None, *, sides: Sides | None = None, titled: bool = True
) -> View:
    """A plan in plan's formats, or with `sides` a comparison; a screen may do without the line of how many change."""
    brokers = review.brokers if review is not None else None
    findings, unchanged = _about_changes(planned, () if review is None else review.findings)
    usage = None if review is None else review.usage

    def document() -> Document:
        return plan_document(
            planned,
            labels,
            brokers=brokers,
            findings=None if review is None else review.findings,
            comparison=usage and usage.document and usage.document(),
            unnamed=None if review is None else review.unnamed,
            warnings=() if usage is None else warned(),
            sides=sides,
        )

    title = summary(planned, sides)
    if planned and review is not None and brokers is None:
        title += "; limits are per broker"
    if review is not None and review.unnamed:
        title += f"; {review.unnamed} not in the file left as they are (--prune deletes them)"

    def page() -> Iterator[Part]:
        what = f"Quotas of {code(sides[0])} (A) and {code(sides[1])} (B)" if sides else "Quota plan"
        yield f"### {what}: {title}\n"
        if planned.message is not None:
            yield f"{markdown(planned.message)}\n"
        table = _table(planned, labels, brokers, sides)
        if table.rows:
            yield markdown_of(table, aligned=False)
        yield from _remarks_markdown(planned.objections, findings)
        if unchanged:
            yield f"* {unchanged}"
        if usage is not None:
            yield ""
            yield from usage.parts("markdown")

    def screen() -> Iterator[Part]:
        if planned:
            yield _table(planned, labels, brokers, sides)
        if review is not None:
            yield from finding_lines(findings[:_MOST_FINDINGS], review.file, review.line)
        if len(findings) > _MOST_FINDINGS:
            yield f"and {len(findings) - _MOST_FINDINGS} more such findings: -o json has all"
        if titled:
            yield Note(title)
        if planned.message is not None:
            yield Note(f"why: {safe(planned.message)}")
        if unchanged:
            yield Note(unchanged)
        if usage is not None:
            yield from usage.parts("table")

    return View(screen=screen, document=document, others={"markdown": page})


def _about_changes(planned: Plan, findings: Sequence[Finding]) -> tuple[Sequence[Finding], str]:
    """The findings about what the plan changes, and a line about the others: they were there before."""
    new = concerning(findings, {change.entity for change in planned.changes}) if planned else ()
    rest = len(findings) - len(new)
    if not rest:
        return new, ""
    return new, f"{rest} {'finding' if rest == 1 else 'findings'} about quotas that stay: 'kquota lint' shows them"


_MOST_FINDINGS = 20
"""More would bury the changes."""


def _remarks_markdown(objections: Sequence[Objection], findings: Sequence[Finding]) -> Iterator[Part]:
    """What would stop an apply, what clients feel, and what lint finds, an item each."""
    rules = {finding.rule.name for finding in findings}
    items = [
        f"* **{objection.severity}**: {markdown(objection.message)} [{objection.name}]{_lifts(objection)}"
        for objection in objections
        if (objection.severity > Severity.WARNING and objection.name not in rules) or objection.name in FELT
    ]
    for finding in findings:
        what = f"{subject(finding, entity_text)}: {finding.message} [{finding.rule.name}]"
        items.append(f"* **{finding.severity}**: {markdown(what)}: {markdown(finding.proof)}")
    for severity, what in _STOPS.items():
        if names := dict.fromkeys(objection.name for objection in objections if objection.severity is severity):
            items.insert(0, f"* **`kquota apply` {what}**: {', '.join(names)}")
    yield from ["", *items[:_MOST_FINDINGS]] if items else []
    if len(items) > _MOST_FINDINGS:
        yield f"* and {len(items) - _MOST_FINDINGS} more: -o json has all"


_STOPS = {
    Severity.QUESTION: "asks about this plan, and needs `--yes` in a script",
    Severity.REFUSAL: "refuses this plan",
}


def _lifts(objection: Objection) -> str:
    return f" ({' or '.join(f'`{option}`' for option in objection.lifted_by)})" if objection.lifted_by else ""


def summary(planned: Plan, sides: Sides | None = None) -> str:
    """`2 entities to create, 1 to update, 0 to delete`, or that nothing changes; and what is left to others."""
    first, *rest = [*zip(map(planned.count, Action), _DIFFERENT if sides else _TO_DO, strict=True)]
    counts = [f"{many(first[0], 'entity', 'entities')} {first[1]}", *(f"{count:,} {word}" for count, word in rest)]
    text = ", ".join(counts) if planned else "no difference" if sides else "nothing changes"
    if planned.ignored:
        text += f"; {len(planned.ignored)} unmanaged {'not compared' if sides else 'left as they are'}"
    return text


def _table(planned: Plan, labels: Labels, brokers: int | None, sides: Sides | None) -> Table:
    """A row for every key that changes; the entity once, so that its keys read as a group."""
    labelled = any(labels.get(change.entity) for change in planned.changes)
    several = brokers is not None and brokers > 1
    columns = [Column(""), Column("ENTITY", once=True), Column("KEY", whole=True)]
    names = zip("AB", sides or (), strict=False)
    headings = [f"{side}: {safe(name)}" if len(name) <= _LONGEST_NAME else side for side, name in names]
    columns += [Column(heading, number=True) for heading in headings or ("BEFORE", "AFTER")]
    columns += [Column(f"ON {brokers} BROKERS", number=True, spare=1)] if several else []
    columns += [Column("LABELS", spare=2)] if labelled else []
    rows, styles = [], []
    for change in planned.changes:
        for key in change.keys:
            before, after = change.before.get(key), change.after.get(key)
            mark, style = MARKS["create" if before is None else "delete" if after is None else "update"]
            row = [mark, entity_text(change.entity), key.value]
            row += ["-" if value is None else limit_text(key, value) for value in (before, after)]
            if several:
                assert brokers is not None
                row.append("-" if after is None else limit_text(key, key.on_brokers(after, brokers)))
            if labelled:
                row.append(" ".join(f"{name}={text}" for name, text in labels.get(change.entity, {}).items()))
            rows.append(row)
            styles.append(style)
    return Table(columns, rows, styles)


def lines_of(quota_file: QuotaFile, file: Path, findings: Sequence[Finding]) -> Line:
    """At which lines of its file the entities stand that something is found about."""
    lines = entry_lines(file, "quotas") if findings and not quota_file.lines else ()

    def line(entity: Entity | None) -> int | None:
        number = None if entity is None else quota_file.entries.get(entity)
        return None if number is None or entity is None else quota_file.lines.get(entity) or lines[number]

    return line


def finding_lines(findings: Sequence[Finding], file: Path | None, line: Line, hints: bool = False) -> Iterator[str]:
    """What is wrong, in a line that begins with where; then the proof, and the hint, once for findings in a row."""
    for finding, after in zip_longest(findings, findings[1:]):
        at = line(finding.entity)
        where = "" if at is None else f"{safe(file)}:{at}: "
        word = click.style(str(finding.severity), fg=_COLOURS[str(finding.severity)], bold=True)
        yield f"{where}{word}: {subject(finding, entity_text)}: {safe(finding.message)} [{finding.rule.name}]"
        if after is not None and (finding.proof, finding.hint) == (after.proof, after.hint):
            continue
        yield f"    {safe(finding.proof)}"
        if hints:
            yield f"    {click.style('hint:', bold=True)} {safe(finding.hint)}"


_COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}
