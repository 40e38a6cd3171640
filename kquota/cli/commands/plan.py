"""`kquota plan`."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import click

from kquota.brokers import BrokerFacts
from kquota.cli import auditing, consent, grammar, leases, params, session
from kquota.cli.exit_codes import ExitCode
from kquota.cli.options import argument, choice, count, flag, path, values
from kquota.cli.plans import Review, lines_of, plan_view
from kquota.cli.streams import wrote
from kquota.cli.text import code, safe
from kquota.cli.usage import RECORDED_UNDER
from kquota.cli.views import View, show, shown_as
from kquota.cli.whatif import replay, usage_view
from kquota.core.change.lint import Facts, concerning, lint
from kquota.core.change.plan import Plan, Severity, plan
from kquota.core.change.review import with_review
from kquota.core.quotas.selector import selected
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.documents.encoding import to_json, write_text
from kquota.documents.plan import is_plan, plan_document
from kquota.errors import InputError


@grammar.command("plan")
@shown_as("table", "wide", "json", "markdown", takes_output=True)
def command(
    *,
    file: Path = argument(type=click.Path(path_type=Path)),
    prune: bool = params.PRUNE,
    cluster: str | None = params.CLUSTER,
    columns: Mapping[str, str] = params.COLUMNS,
    out: Path | None = path("Keep the plan for 'kquota apply FILE'."),
    exit_code: bool = flag("Exit with 1 when something would change."),
    brokers: int | None = count(
        "Show the sum of each limit over N brokers: every broker grants it by itself, but for mutations, which one"
        " controller counts. Default: the number of brokers of the live cluster."
    ),
    usage: tuple[str, ...] = values(
        "PATH",
        "Recorded usage, as 'kquota audit' reads it: also show who would be throttled anew, more or less. May be"
        " repeated.",
    ),
    recorded_under: str | None = RECORDED_UNDER,
    message: str | None = params.MESSAGE,
    fail_on: tuple[str, ...] = choice(
        ["newly-throttled", "throttled-more", "undetermined", "refused"],
        "Exit with 1 when a client of --usage would be newly throttled, or throttled more than it is, or when that is"
        " undetermined; or when apply would refuse the plan. May be given several times.",
        multiple=True,
    ),
    facts: BrokerFacts = params.FACTS,
    source: session.QuotaSource = params.SOURCE,
    output: str,
) -> int:
    """Show what would give a cluster the quotas of FILE.

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
    if {*fail_on} - {"refused"} and not usage:
        raise click.UsageError("who would be throttled is known with --usage PATH only")
    if recorded_under is not None and not usage:
        raise click.UsageError("--recorded-under is about recorded usage: give --usage PATH, too")
    if is_plan(file):
        raise InputError(f"{file} is a plan already", hint=f"'kquota apply {file} --dry-run' shows it")
    quota_file = session.load_quota_file(file, cluster, columns)
    current, live = session.load_quotas_and_live(source)
    planned = plan(current, quota_file.desired, prune=prune, unmanaged=quota_file.unmanaged)
    planned = replace(planned, cluster=live.cluster, message=message)
    findings = lint(planned.applied_to(current), Facts(internal=quota_file.internal))
    planned = with_review(planned, current, quota_file.guards, findings)
    if out is not None:
        write_text(out, to_json(plan_document(planned, quota_file.labels)), mode=0o644)
        wrote(out, f"'kquota apply {out}{params.there(source.access)}' applies it")
    named = {*quota_file.desired, *(change.entity for change in planned.changes)}
    unnamed = 0
    if not prune:
        rest = (entity for entity in current if entity not in quota_file.entries)
        unnamed = sum(selected(entity, quota_file.unmanaged) is None for entity in rest)
    answers, seen = _under(usage, planned, current, source.file, facts, recorded_under)
    findings = concerning(findings, named)
    line = lines_of(quota_file, file, findings)
    review = Review(brokers or live.brokers, findings, seen, unnamed, file, line)
    asked = "--exit-code" if exit_code and planned else ""
    code = show(replace(plan_view(planned, quota_file.labels, review), asked=asked), output)
    if live.leases is not None:
        kept = live.leases.kept_by_quotas(quota_file.desired, current, prune=prune, unmanaged=quota_file.unmanaged)
        by_file = f"an apply of {safe(file)} makes it permanent, and one of {safe(out)} does not" if out else ""
        leases.note_changed(kept, live.leases.ended_by(planned), None, by_file)
    session.note_new_names(current, [change.entity for change in planned.changes if not change.before])
    consent.foretell(planned.objections)
    refused = ["refused" for objection in planned.objections if objection.severity is Severity.REFUSAL]
    if auditing.fails(fail_on, [*answers, *refused]) or code:
        return ExitCode.DIFFERENT
    return ExitCode.OK if seen is None else seen.code


def _under(
    usage: Sequence[str],
    planned: Plan,
    current: QuotaSnapshot,
    file: Path | None,
    facts: BrokerFacts,
    recorded_under: str | None,
) -> tuple[Collection[str], View | None]:
    """What `--fail-on` may name, and what the plan changes for the clients of recorded usage; without it nothing."""
    if not usage or not (current or planned):
        return (), None
    comparison, result = replay(usage, current, planned.applied_to(current), facts, recorded_under)
    return comparison.answers, replace(
        usage_view(comparison, result, "the live quotas" if file is None else code(file)),
        code=ExitCode.PARTIAL if result.quality.unread_files else ExitCode.OK,
    )
