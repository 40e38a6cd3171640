"""What other quotas would change for the clients, as audit and plan print it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kquota.audit.run import settings_of
from kquota.brokers import BrokerFacts
from kquota.cli import auditing, session
from kquota.cli.report import words
from kquota.cli.streams import warn, warned
from kquota.cli.text import Column, code, many, period, rate_text, records_text
from kquota.cli.usage import recorded_quotas
from kquota.cli.views import Csv, Note, Part, Table, View, csv_of, markdown_of, table_of
from kquota.core.findings.whatif import ClientChange, Comparison, Outcome, Standing
from kquota.core.quotas.quota import QuotaKey, limit_text
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.core.tabular import paths
from kquota.documents.audit import comparison_document
from kquota.errors import MissingDependency

if TYPE_CHECKING:
    from kquota.audit.result import AuditResult

_STYLES = {
    Outcome.NEWLY_THROTTLED: "red",
    Outcome.MORE: "red",
    Outcome.LESS: "green",
    Outcome.NO_LONGER_THROTTLED: "green",
    Outcome.UNDETERMINED: "yellow",
}
_MOST_ROWS = 50
"""Of a table in a comment on a pull request, which takes 65,536 characters in all."""


def records(result: AuditResult) -> str:
    """`300 requests`: what was read."""
    return records_text(result.quality.events, result.findings.column("basis").to_pylist())


def usage_text(result: AuditResult) -> str:
    """`300 requests, 2026-03-11 09:00:00 to 09:00:29 UTC`; what of it could not be read is warned of."""
    return f"{records(result)}, {' '.join(period(result.quality.first_ms, result.quality.last_ms))} UTC"


def replay(
    usage: Sequence[str], before: QuotaSnapshot, after: QuotaSnapshot, facts: BrokerFacts, recorded_under: str | None
) -> tuple[Comparison, AuditResult]:
    """What changes for the clients of the usage in those files, and the replay under `after`. Raises InputError."""

    try:
        from kquota.audit.answers.whatif import compare
        from kquota.audit.evidence.verdict import audited
    except ImportError as error:
        raise MissingDependency(f"--usage needs {error.name}", extra="audit") from None
    broker = session.load_broker_settings(facts)
    settings = settings_of(after, facts, against=before, broker=broker)
    session.warn_approximations(facts.kafka_version)
    session.warn_ignored([ignored for quotas in reversed(settings.variants) for ignored in quotas.latest.ignored])
    settings = replace(settings, top_clients=None, per_client=True, recorded_under=recorded_quotas(recorded_under))
    result = audited(lambda asked: auditing.audit_files(usage, asked), settings)
    auditing.say_recorded_under(result, settings)
    auditing.warn_unread(result.quality.unread_files)
    if rejected := result.quality.rejected:
        warn(f"{many(rejected, 'record')} of the usage cannot be read: {auditing.why(result.rejects)}")
    return compare(result, settings), result


def clients_table(changes: Sequence[ClientChange], show: Callable[[str], str] = str) -> Table:
    """A row for each client for whom something changes, its names as `show` has them.

    The key, the limit and the throttled requests, before and after; then what is predicted, where anything is.
    """
    delays = _says_delays(changes)
    behind = delays and any(map(_behind, changes))

    def predicted(name: str) -> Callable[[ClientChange], object]:
        return lambda change: _moved(lambda _, standing: words.predicted_parts(name, standing), change)

    return table_of(
        changes,
        [
            (Column("CHANGE"), _outcome),
            (Column("USER", style="bold"), lambda change: _who(change, show)[0]),
            (Column("CLIENT-ID", style="bold"), lambda change: _who(change, show)[1]),
            (Column("QUOTA", style="cyan", whole=True), lambda change: change.key.value),
            (Column("LIMIT", number=True, spare=2), functools.partial(_moved, _limit)),
            (Column("DELAYED", number=True, spare=1 if delays else 0), _delayed),
            delays and (Column("MUTED", number=True, spare=5), predicted("muted_share")),
            delays and (Column("LONGEST", number=True, spare=3), predicted("throttle_time_max_ms")),
            delays and (Column("DELIVERED", number=True, spare=4), _delivered),
            behind and (Column("BEHIND", number=True, spare=7), lambda change: _behind(change) or ("-",)),
            # Of one source that nobody named, no broker has a name.
            any(change.brokers for change in changes)
            and (Column("BROKERS", spare=6), lambda change: ", ".join(change.brokers)),
        ],
        lambda change: _STYLES[change.outcome],
    )


def _outcome(change: ClientChange) -> tuple[str, str]:
    """`newly throttled`, in two lines on a terminal."""
    first, _, last = words.outcome(change).rpartition(" ")
    return first, last


def comparison_csv(comparison: Comparison) -> Csv:
    """A row for each client."""
    side = _CSV_SIDE.format(_CSV_PREDICTED if _says_delays(comparison.clients) else "")
    sides = (f"{way}_{name}={way}.{'.'.join(path)}" for way in ("before", "after") for name, path in paths(side))
    return csv_of(comparison.clients, f"outcome key user client_id ip requests {' '.join(sides)}")


_CSV_SIDE = """verdict open_loop_throttled_events=throttled_events open_loop_throttle_time_ms=throttle_time_ms sensor
    entity limit wanted_at_least=wanted {} brokers"""
_CSV_PREDICTED = " ".join(
    f"predicted_{name}_{end}=predicted.{name}.{end}"
    for name in ("muted_share", "throttle_time_max_ms")
    for end in ("low", "high")
)


def usage_view(comparison: Comparison, result: AuditResult, before: str) -> View:
    """The comparison as a part of a plan: the clients who would notice, and what the usage was.

    `before` names the quotas before the plan, as Markdown.
    """

    def screen() -> Iterator[Part]:
        if comparison.clients:
            yield ""
            yield clients_table(comparison.clients)
        yield Note(f"{words.changes(comparison)}; {usage_text(result)}")
        yield from map(Note, words.verdict_lines(comparison.quotas, counts=False))

    return View(
        screen=screen,
        document=lambda: comparison_document(comparison),
        others={"markdown": lambda: comparison_markdown(comparison, result, before, "this plan", "Recorded usage")},
    )


def comparison_markdown(
    comparison: Comparison, result: AuditResult, before: str, after: str, title: str = "Quota audit"
) -> Iterator[str]:
    """A summary for a comment on a pull request: what changes, and for whom, the worst first.

    `before` and `after` name the two sets of quotas, as Markdown.
    """
    yield f"### {title}: {words.changes(comparison)}\n"
    yield f"{usage_text(result)}, under {after} instead of {before}. Limits hold per broker."
    if comparison.clients:
        yield f"\n{markdown_of(clients_table(comparison.clients[:_MOST_ROWS], code), ' ', aligned=False)}"
    if (more := len(comparison.clients) - _MOST_ROWS) > 0:
        yield f"\nand {more} more: `-o json` has all"
    for line in words.markdown_lines(comparison.quotas, counts=False, warned=warned()):
        yield f"\n{line}"


def _who(change: ClientChange, show: Callable[[str], str]) -> tuple[str, str]:
    """The user and the client-id; an ip in place of both."""
    if change.ip is not None:
        return show(f"ip={change.ip}"), "-"
    user = "(any)" if change.user is None else show(change.user)
    client_id = "(any)" if change.client_id is None else show(change.client_id or "(empty client-id)")
    return user, client_id


def _says_delays(changes: Sequence[ClientChange]) -> bool:
    """Whether it is predicted of anybody how long they wait: it takes a recording with connections."""
    return any(side.predicted is not None for change in changes for side in (change.before, change.after))


def _limit(key: QuotaKey, standing: Standing) -> tuple[str, ...]:
    return ("none" if standing.limit is None else limit_text(key, standing.limit),)


def _delayed(change: ClientChange) -> tuple[str, ...]:
    """The throttled requests; of who was held back also the least that its counter wants."""

    def events(_: QuotaKey, standing: Standing) -> tuple[str, ...]:
        return ("?" if standing.throttled_events is None else f"{standing.throttled_events:,}",)

    of = "" if change.requests is None else f"of {change.requests:,}"
    wanted = max((side.wanted for side in (change.before, change.after) if side.wanted is not None), default=None)
    least = () if wanted is None else ("its counter wanted", f"at least {rate_text(wanted, change.key.unit)}")
    return (*_moved(events, change), of, *least)


def _delivered(change: ClientChange) -> tuple[str, ...]:
    shared = max(change.before.clients, change.after.clients)
    parts = _moved(words.delivered_of, change)
    return (*parts, f"({shared} clients)") if shared > 1 else parts


def _moved(lines: Callable[[QuotaKey, Standing], tuple[str, ...]], change: ClientChange) -> tuple[str, ...]:
    """Both sides, in lines of their own on a terminal; what is the same on both sides once."""
    before, (first, *rest) = lines(change.key, change.before), lines(change.key, change.after)
    return before if before == (first, *rest) else (*before, f"→ {first}", *rest)


def _behind(change: ClientChange) -> tuple[str, ...]:
    """What the counter has not delivered at the end of the recorded time, and when it is gone, after the change."""
    predicted = change.after.predicted
    match () if predicted is None else words.behind_parts(change.key, predicted):
        case (left, gone):
            return (f"{left},", gone)
        case parts:
            return parts
