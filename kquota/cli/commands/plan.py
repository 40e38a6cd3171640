"""`kquota plan`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kquota.cli import params, session
from kquota.cli.exit_codes import ExitCode
from kquota.cli.streams import note, wrote
from kquota.cli.usage import recorded_under_option

if TYPE_CHECKING:
    from kquota.brokers import BrokerFacts
    from kquota.cli.whatif import Replayed
    from kquota.core.change.lint import Finding
    from kquota.core.change.plan import Objection, Plan
    from kquota.core.findings.whatif import Comparison
    from kquota.core.quotas.entity import Entity
    from kquota.core.quotas.snapshot import QuotaSnapshot

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


_PLAN = Words(
    "Quota plan",
    "BEFORE",
    "AFTER",
    ("to create", "to update", "to delete"),
    "nothing changes",
    "unmanaged left as they are",
)


@click.command("plan")
@click.argument("file", type=click.Path(path_type=Path))
@params.quota_file_options
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Keep the plan for 'kquota apply FILE'.")
@click.option("--exit-code", is_flag=True, help="Exit with 1 when something would change.")
@click.option(
    "--brokers",
    type=click.IntRange(min=1),
    metavar="N",
    help="What a limit comes to on N brokers, each of which grants it by itself (but mutations, which one controller"
    " counts). Without it: on the brokers that the live cluster has.",
)
@click.option(
    "--usage",
    multiple=True,
    type=click.Path(),
    metavar="PATH",
    help="Recorded usage ('kquota audit' reads it): say also who would be newly throttled. May be given several times.",
)
@recorded_under_option
@click.option(
    "--fail-on",
    type=click.Choice(["newly-throttled", "undetermined"]),
    multiple=True,
    help="Exit with 1 when a client of --usage would be newly throttled, or when it is undetermined for a client or"
    " a quota that changes. May be given several times.",
)
@params.broker_options
@params.quotas_options
@params.output_option("table", "json", "markdown")
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

    Entities and keys that the file does not name stay as they are; --prune deletes them. Nothing is written. With
    --quotas the cluster is one that 'kquota describe' kept in a file. The review that apply will make ('kquota help
    review') is said beforehand. What 'kquota lint' warns of in the quotas as they would be, as far as the file has to
    do with it, stands below the changes; and with --usage the clients for whom the plan would change something:
    recorded usage is replayed under the quotas as they are and as they would be.

    \b
    Examples:
      kquota plan quotas.yaml --bootstrap-server localhost:9092
      kquota plan quotas.yaml --prune --exit-code
      kquota plan quotas.yaml --cluster prod --out plan.json
      kquota plan quotas.yaml --quotas described.yaml
      kquota plan quotas.yaml --usage usage.parquet
      kquota plan quotas.yaml -o markdown >> "$GITHUB_STEP_SUMMARY"
    """
    from dataclasses import replace

    if fail_on and not usage:
        raise click.UsageError("who would be newly throttled is known with --usage PATH only")
    if recorded_under is not None and not usage:
        raise click.UsageError("--recorded-under is about recorded usage: give --usage PATH, too")
    from kquota.cli import consent
    from kquota.core.change.lint import Facts, concerning, lint
    from kquota.core.change.plan import plan
    from kquota.core.change.review import Guards, with_review
    from kquota.core.quotas.selector import selected

    quota_file = session.load_quota_file(file, cluster)
    current, alive, where = session.load_quotas_and_brokers(source)
    planned = plan(current, quota_file.desired, prune=prune, unmanaged=quota_file.unmanaged)
    planned = replace(planned, cluster=where)
    findings = lint(planned.applied_to(current), Facts(internal=quota_file.internal))
    usual = Guards()
    guards = quota_file.guards(usual.most_deleted, usual.most_changed)
    planned = with_review(planned, current, guards, findings)
    if out is not None:
        save(planned, quota_file.labels, out)
        wrote(out, f"'kquota apply {out}' applies it")
    named = {*quota_file.desired, *(change.entity for change in planned.changes)}
    unnamed = 0
    if not prune:
        rest = (entity for entity in current if entity not in quota_file.entries)
        unnamed = sum(selected(entity, quota_file.unmanaged) is None for entity in rest)
    under = _under(usage, planned, current, source.file, facts, recorded_under)
    review = Review(brokers or alive, concerning(findings, named), under, unnamed)
    print_plan(planned, quota_file.labels, output, review)
    consent.foretell(planned.objections)
    if (exit_code and planned) or set(fail_on) & review.answers:
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
    from kquota.cli.text import code
    from kquota.cli.whatif import Replayed, replay, usage_text

    comparison, result = replay(usage, current, planned.applied_to(current), facts, recorded_under)
    before = "the live quotas" if file is None else code(file)
    unread = bool(result.quality.unread_files)
    return comparison, Replayed(before, "this plan", usage_text(result), unread)


def save(planned: Plan, labels: Labels, out: Path) -> None:
    """Writes the plan document, whole or not at all. Raises InputError when it cannot be written."""
    from kquota.documents.encoding import to_json, write_text
    from kquota.documents.plan import plan_document

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
    def answers(self) -> set[str]:
        """What is true of what `--fail-on` can name."""
        from kquota.core.findings.whatif import Outcome

        if self.usage is None:
            return set()
        comparison = self.usage[0]
        newly = comparison.count(Outcome.NEWLY_THROTTLED) > 0
        answers = {"newly-throttled": newly, "undetermined": comparison.undetermined}
        return {answer for answer, true in answers.items() if true}


def print_plan(
    planned: Plan, labels: Labels, output: str, review: Review | None = None, *, words: Words = _PLAN
) -> None:
    """Prints a plan in one of plan's formats; `words` are those of its tables."""
    brokers = review.brokers if review is not None else None
    findings = review.findings if review is not None else None
    comparison, replayed = (review.usage if review is not None else None) or (None, None)
    if output == "json":
        from kquota.documents.encoding import to_json
        from kquota.documents.plan import plan_document

        unnamed = None if review is None else review.unnamed
        document = plan_document(
            planned, labels, brokers=brokers, findings=findings, comparison=comparison, unnamed=unnamed
        )
        click.echo(to_json(document), nl=False)
        return
    on_all = f"ON {brokers} BROKERS" if brokers is not None and brokers > 1 else ""
    rows = _rows(planned, labels, brokers if on_all else None)
    headings = ["", "ENTITY", "KEY", words.before, words.after]
    headings += [on_all] if on_all else []
    headings += ["LABELS"] if any(labels.get(change.entity) for change in planned.changes) else []
    title = summary(planned, words)
    if planned and review is not None and brokers is None:
        title += "; limits are per broker"
    if review is not None and review.unnamed:
        title += f"; {review.unnamed} not in the file left as they are (--prune deletes them)"
    if output == "markdown":
        from kquota.cli.text import print_markdown

        click.echo(f"### {words.title}: {title}\n")
        if rows:
            print_markdown(headings, [row for _, row in rows])
        _print_objections_markdown(planned.objections, findings or ())
        _print_findings_markdown(findings or ())
        if comparison is not None and replayed is not None:
            from kquota.cli.whatif import print_comparison_markdown

            click.echo()
            print_comparison_markdown(comparison, replayed, title="Recorded usage")
        return
    if rows:
        from kquota.cli.text import Column, print_table

        numbers = {words.before, words.after, on_all}
        print_table(
            [Column(heading, number=heading in numbers, whole=heading == "KEY") for heading in headings],
            [row for _, row in rows],
            styles=[style for style, _ in rows],
        )
    _print_findings(findings or ())
    note(title)
    if comparison is not None and replayed is not None:
        from kquota.cli import whatif
        from kquota.cli.verdicts import lines

        if comparison.clients:
            click.echo()
        whatif.print_clients(comparison)
        note(f"{whatif.summary(comparison)}; {replayed.usage}")
        for line in lines(comparison.quotas, counts=False):
            note(line)


_MOST_FINDINGS = 20
"""More would bury the changes."""


def _print_findings(findings: Sequence[Finding]) -> None:
    from kquota.cli.commands.lint import print_finding

    for found in findings[:_MOST_FINDINGS]:
        print_finding(found)
    if len(findings) > _MOST_FINDINGS:
        click.echo(_more(findings))


def _print_findings_markdown(findings: Sequence[Finding]) -> None:
    from kquota.cli.text import markdown
    from kquota.documents.lint import subject

    if findings:
        click.echo()
    for found in findings[:_MOST_FINDINGS]:
        what = f"{subject(found)}: {found.message} [{found.rule.name}]"
        click.echo(f"* **{found.severity}**: {markdown(what)}: {markdown(found.proof)}")
    if len(findings) > _MOST_FINDINGS:
        click.echo(f"* {_more(findings)}")


def _print_objections_markdown(objections: Sequence[Objection], findings: Sequence[Finding]) -> None:
    """What would stop an apply, and freezes; what lint finds stands among the findings."""
    from kquota.cli.text import markdown
    from kquota.core.change.plan import Severity
    from kquota.core.change.review import SHORT_FREEZE

    found = {finding.rule.name for finding in findings}
    told = [
        each
        for each in objections
        if (each.severity > Severity.WARNING and each.name not in found) or each.name == SHORT_FREEZE.name
    ]
    if told:
        click.echo()
    for each in told[:_MOST_FINDINGS]:
        lifts = f" ({' or '.join(f'`{option}`' for option in each.lifted_by)})" if each.lifted_by else ""
        click.echo(f"* **{each.severity}**: {markdown(each.message)} [{each.name}]{lifts}")
    if len(told) > _MOST_FINDINGS:
        click.echo(f"* and {len(told) - _MOST_FINDINGS} more such objections: -o json has all")


def _more(findings: Sequence[Finding]) -> str:
    return f"and {len(findings) - _MOST_FINDINGS} more such findings: -o json has all"


def summary(planned: Plan, words: Words = _PLAN) -> str:
    """`2 to create, 1 to update, 0 to delete`, or that nothing changes; and what is left to others."""
    from kquota.core.change.plan import Action

    counts = [f"{planned.count(action)} {word}" for action, word in zip(Action, words.actions, strict=True)]
    text = ", ".join(counts) if planned else words.nothing
    if planned.ignored:
        text += f"; {len(planned.ignored)} {words.ignored}"
    return text


MARKS = {"create": ("+", "green"), "update": ("~", "yellow"), "delete": ("-", "red")}
"""The mark and the colour of what happens to a key."""


def _rows(planned: Plan, labels: Labels, brokers: int | None) -> list[tuple[str, list[str]]]:
    """A style and the cells for every key that changes."""
    from kquota.cli.text import entity_text
    from kquota.core.quotas.quota import humanize

    labelled = any(labels.get(change.entity) for change in planned.changes)
    rows = []
    for change in planned.changes:
        for number, key in enumerate(change.keys):
            before, after = change.before.get(key), change.after.get(key)
            mark, style = MARKS["create" if before is None else "delete" if after is None else "update"]
            # The entity once, so that its keys read as a group.
            row = [mark, entity_text(change.entity) if number == 0 else "", key.value]
            row += ["-" if value is None else humanize(key, value) for value in (before, after)]
            if brokers:
                row.append("-" if after is None else humanize(key, key.on_brokers(after, brokers)))
            if labelled:
                row.append(" ".join(f"{name}={text}" for name, text in labels.get(change.entity, {}).items()))
            rows.append((style, row))
    return rows
