"""`kquota plan`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from kquota.brokers import BrokerFacts
from kquota.cli import auditing, consent, grammar, leases, params, session, whatif
from kquota.cli.commands.lint import finding_lines
from kquota.cli.exit_codes import ExitCode
from kquota.cli.streams import note, wrote
from kquota.cli.text import Column, code, entity_text, markdown, markdown_table, safe, said_once
from kquota.cli.usage import recorded_under_option
from kquota.cli.verdicts import lines
from kquota.cli.views import Document, Note, Part, Table, View, show, shown_as
from kquota.cli.whatif import Replayed, comparison_markdown, replay, usage_text
from kquota.core.change.lint import Facts, Finding, concerning, lint
from kquota.core.change.plan import Action, Objection, Plan, Severity, plan
from kquota.core.change.review import SHORT_FREEZE, Guards, with_review
from kquota.core.findings.whatif import Comparison
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import humanize
from kquota.core.quotas.selector import selected
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.documents.encoding import to_json, write_text
from kquota.documents.lint import subject
from kquota.documents.plan import is_plan, plan_document
from kquota.errors import InputError

Labels = Mapping["Entity", Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Words:
    """What a table of changes says around the numbers; the actions are those of creating, updating and deleting."""

    title: str
    before: str
    after: str
    actions: tuple[str, str, str]
    nothing: str
    ignored: str
    noun: str = ""
    """What the first number counts, where the actions alone do not say it."""
    sides: tuple[str, str] | None = None
    """What is compared, where it is not a cluster with a file."""


_PLAN = Words(
    "Quota plan",
    "BEFORE",
    "AFTER",
    ("to create", "to update", "to delete"),
    "nothing changes",
    "unmanaged left as they are",
)


@click.command("plan", cls=grammar.Command)
@click.argument("file", type=click.Path(path_type=Path))
@params.quota_file_options
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Keep the plan for 'kquota apply FILE'.")
@click.option("--exit-code", is_flag=True, help="Exit with 1 when something would change.")
@click.option(
    "--brokers",
    type=click.IntRange(min=1),
    metavar="N",
    help="Show the sum of each limit over N brokers: every broker grants it by itself, but for mutations, which one"
    " controller counts. Default: the number of brokers of the live cluster.",
)
@click.option(
    "--usage",
    multiple=True,
    type=click.Path(),
    metavar="PATH",
    help="Recorded usage, as 'kquota audit' reads it: also show who would be throttled anew, more or less. May be"
    " repeated.",
)
@recorded_under_option
@params.message_option
@click.option(
    "--fail-on",
    type=click.Choice(["newly-throttled", "throttled-more", "undetermined"]),
    multiple=True,
    help="Exit with 1 when a client of --usage would be newly throttled, or throttled more than it is, or when that is"
    " undetermined. May be given several times.",
)
@params.broker_options
@params.quotas_options
@shown_as("table", "json", "markdown", takes_output=True)
def command(
    file: Path,
    prune: bool,
    cluster: str | None,
    out: Path | None,
    exit_code: bool,
    brokers: int | None,
    usage: tuple[str, ...],
    recorded_under: str | None,
    fail_on: tuple[str, ...],
    facts: BrokerFacts,
    source: session.QuotaSource,
    output: str,
) -> int:
    """Show what would change so that the cluster has the quotas of FILE.

    Nothing is written. Entities and keys that the file does not name stay as they are; --prune deletes them. Below the
    changes stand the findings of 'kquota lint' about the quotas that change, and the objections that apply would raise
    ('kquota help review').

    --usage adds the clients who would notice: recorded usage is replayed under the quotas before and after the plan.
    --quotas FILE replaces the live cluster, for a review without access to the cluster.

    \b
    Examples:
      kquota plan quotas.yaml --bootstrap-server localhost:9092
      kquota plan quotas.yaml --prune --exit-code
      kquota plan quotas.yaml --cluster prod --out plan.json
      git show main:quotas.yaml | kquota plan quotas.yaml --quotas -
      kquota plan quotas.yaml --usage usage.parquet
      kquota plan quotas.yaml -o markdown >> "$GITHUB_STEP_SUMMARY"
    """
    if fail_on and not usage:
        raise click.UsageError("who would be throttled is known with --usage PATH only")
    if recorded_under is not None and not usage:
        raise click.UsageError("--recorded-under is about recorded usage: give --usage PATH, too")
    if is_plan(file):
        raise InputError(f"{file} is a plan already", hint=f"'kquota apply {file} --dry-run' shows it")
    quota_file = session.load_quota_file(file, cluster)
    current, alive, where = session.load_quotas_and_brokers(source)
    planned = plan(current, quota_file.desired, prune=prune, unmanaged=quota_file.unmanaged)
    planned = replace(planned, cluster=where, message=params.message())
    findings = lint(planned.applied_to(current), Facts(internal=quota_file.internal))
    usual = Guards()
    guards = quota_file.guards(usual.most_deleted, usual.most_changed)
    planned = with_review(planned, current, guards, findings)
    if out is not None:
        save(planned, quota_file.labels, out)
        wrote(out, f"'kquota apply {out}{params.there(source.access)}' applies it")
    named = {*quota_file.desired, *(change.entity for change in planned.changes)}
    unnamed = 0
    if not prune:
        rest = (entity for entity in current if entity not in quota_file.entries)
        unnamed = sum(selected(entity, quota_file.unmanaged) is None for entity in rest)
    under = _under(usage, planned, current, source.file, facts, recorded_under)
    review = Review(brokers or alive, concerning(findings, named), under, unnamed)
    show(plan_view(planned, quota_file.labels, review), output)
    if where is not None:
        known = leases.leases_at(lambda: where)
        kept = known.kept_by_quotas(quota_file.desired, current, prune=prune, unmanaged=quota_file.unmanaged)
        leases.note_planned(kept, known.ended_by(planned), None)
        if kept and out is not None:
            note(f"a plan that was kept makes nothing permanent: apply {safe(file)} for that")
    consent.foretell(planned.objections)
    if auditing.fails(fail_on, review.answers) or (exit_code and planned):
        return ExitCode.DIFFERENT
    return ExitCode.PARTIAL if review.unread else ExitCode.OK


def _under(
    usage: Sequence[str],
    planned: Plan,
    current: QuotaSnapshot,
    file: Path | None,
    facts: BrokerFacts,
    recorded_under: str | None,
) -> tuple[Comparison, Replayed] | None:
    """What the plan changes for the clients of recorded usage, where there is some, and quotas."""
    if not usage or not (current or planned):
        return None
    comparison, result = replay(usage, current, planned.applied_to(current), facts, recorded_under)
    before = "the live quotas" if file is None else code(file)
    unread = bool(result.quality.unread_files)
    return comparison, Replayed(before, "this plan", usage_text(result), unread)


def save(planned: Plan, labels: Labels, out: Path) -> None:
    """Writes the plan document, whole or not at all. Raises InputError when it cannot be written."""
    write_text(out, to_json(plan_document(planned, labels)), mode=0o644)


@dataclass(frozen=True, slots=True)
class Review:
    """What is said about a plan beside its changes: what its limits come to on so many brokers, None where nobody knows
    how many there are; what is wrong with the quotas as they would be; and what recorded usage tells.
    """

    brokers: int | None
    findings: Sequence[Finding]
    usage: tuple[Comparison, Replayed] | None = None
    unnamed: int = 0
    """Entities of the cluster that the file does not name, and that no prune deletes."""

    @property
    def unread(self) -> bool:
        """Whether files of the recorded usage cannot be read."""
        return self.usage is not None and self.usage[1].unread

    @property
    def answers(self) -> frozenset[str]:
        """What is true of what `--fail-on` can name."""
        return frozenset() if self.usage is None else self.usage[0].answers


def plan_view(planned: Plan, labels: Labels, review: Review | None = None, *, words: Words = _PLAN) -> View:
    """A plan in plan's formats; `words` are those of its tables."""
    brokers = review.brokers if review is not None else None
    findings, unchanged = _about_changes(planned, () if review is None else review.findings)
    comparison, replayed = (review.usage if review is not None else None) or (None, None)

    def document() -> Document:
        return plan_document(
            planned,
            labels,
            brokers=brokers,
            findings=None if review is None else review.findings,
            comparison=comparison,
            unnamed=None if review is None else review.unnamed,
            sides=words.sides,
        )

    title = summary(planned, words)
    if planned and review is not None and brokers is None:
        title += "; limits are per broker"
    if review is not None and review.unnamed:
        title += f"; {review.unnamed} not in the file left as they are (--prune deletes them)"

    def page() -> Iterator[Part]:
        yield f"### {words.title}: {title}\n"
        if planned.message is not None:
            yield f"{markdown(planned.message)}\n"
        table = _table(planned, labels, brokers, words)
        if table.rows:
            yield markdown_table([column.heading for column in table.columns], said_once(table.columns, table.rows))
        yield from _objections_markdown(planned.objections, findings)
        yield from _findings_markdown(findings)
        if unchanged:
            yield f"* {unchanged}"
        if comparison is not None and replayed is not None:
            yield ""
            yield from comparison_markdown(comparison, replayed, title="Recorded usage")

    def screen() -> Iterator[Part]:
        if planned:
            yield _table(planned, labels, brokers, words)
        yield from _findings(findings)
        yield Note(title)
        if planned.message is not None:
            yield Note(f"why: {safe(planned.message)}")
        if unchanged:
            yield Note(unchanged)
        if comparison is not None and replayed is not None:
            if comparison.clients:
                yield ""
                yield whatif.clients_table(comparison)
            yield Note(f"{whatif.summary(comparison)}; {replayed.usage}")
            yield from map(Note, lines(comparison.quotas, counts=False))

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


def _findings(findings: Sequence[Finding]) -> Iterator[Part]:
    for found in findings[:_MOST_FINDINGS]:
        yield from finding_lines(found)
    if len(findings) > _MOST_FINDINGS:
        yield _more(findings)


def _findings_markdown(findings: Sequence[Finding]) -> Iterator[Part]:
    if findings:
        yield ""
    for found in findings[:_MOST_FINDINGS]:
        what = f"{subject(found)}: {found.message} [{found.rule.name}]"
        yield f"* **{found.severity}**: {markdown(what)}: {markdown(found.proof)}"
    if len(findings) > _MOST_FINDINGS:
        yield f"* {_more(findings)}"


def _objections_markdown(objections: Sequence[Objection], findings: Sequence[Finding]) -> Iterator[Part]:
    """What would stop an apply, and freezes; what lint finds stands among the findings."""
    found = {finding.rule.name for finding in findings}
    listed = [
        each
        for each in objections
        if (each.severity > Severity.WARNING and each.name not in found) or each.name == SHORT_FREEZE.name
    ]
    if listed:
        yield ""
    for each in listed[:_MOST_FINDINGS]:
        lifts = f" ({' or '.join(f'`{option}`' for option in each.lifted_by)})" if each.lifted_by else ""
        yield f"* **{each.severity}**: {markdown(each.message)} [{each.name}]{lifts}"
    if len(listed) > _MOST_FINDINGS:
        yield f"* and {len(listed) - _MOST_FINDINGS} more such objections: -o json has all"


def _more(findings: Sequence[Finding]) -> str:
    return f"and {len(findings) - _MOST_FINDINGS} more such findings: -o json has all"


def summary(planned: Plan, words: Words = _PLAN) -> str:
    """`2 to create, 1 to update, 0 to delete`, or that nothing changes; and what is left to others."""
    counts = [f"{planned.count(action)} {word}" for action, word in zip(Action, words.actions, strict=True)]
    if words.noun:
        number, word = planned.count(Action.CREATE), words.actions[0]
        counts[0] = f"{number} {words.noun if number != 1 else 'entity'} {word}"
    text = ", ".join(counts) if planned else words.nothing
    if planned.ignored:
        text += f"; {len(planned.ignored)} {words.ignored}"
    return text


MARKS = {"create": ("+", "green"), "update": ("~", "yellow"), "delete": ("-", "red")}
"""The mark and the colour of what happens to a key."""


def _table(planned: Plan, labels: Labels, brokers: int | None, words: Words) -> Table:
    """A row for every key that changes; the entity once, so that its keys read as a group."""
    labelled = any(labels.get(change.entity) for change in planned.changes)
    several = brokers is not None and brokers > 1
    columns = [Column(""), Column("ENTITY", once=True), Column("KEY", whole=True)]
    columns += [Column(words.before, number=True), Column(words.after, number=True)]
    columns += [Column(f"ON {brokers} BROKERS", number=True, spare=1)] if several else []
    columns += [Column("LABELS", spare=2)] if labelled else []
    rows, styles = [], []
    for change in planned.changes:
        for key in change.keys:
            before, after = change.before.get(key), change.after.get(key)
            mark, style = MARKS["create" if before is None else "delete" if after is None else "update"]
            row = [mark, entity_text(change.entity), key.value]
            row += ["-" if value is None else humanize(key, value) for value in (before, after)]
            if several:
                assert brokers is not None
                row.append("-" if after is None else humanize(key, key.on_brokers(after, brokers)))
            if labelled:
                row.append(" ".join(f"{name}={text}" for name, text in labels.get(change.entity, {}).items()))
            rows.append(row)
            styles.append(style)
    return Table(columns, rows, styles)
