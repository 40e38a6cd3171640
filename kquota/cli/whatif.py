"""What other quotas would change for the clients, as audit and plan print it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from kquota.audit.run import settings_of
from kquota.brokers import BrokerFacts
from kquota.cli import auditing, session
from kquota.cli.report import words
from kquota.cli.streams import warn
from kquota.cli.text import Column, code, many, period, rate_text, records_text
from kquota.cli.usage import recorded_quotas
from kquota.cli.views import Csv, Note, Part, Shown, Table, View, csv_of, markdown_of, table_of
from kquota.core.findings.finding import subject
from kquota.core.findings.whatif import ClientChange, Comparison, CounterChange, Outcome, Standing
from kquota.core.quotas.quota import QuotaKey, limit_text
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.core.tabular import paths
from kquota.documents.audit import comparison_document
from kquota.errors import MissingDependency

if TYPE_CHECKING:
    from kquota.audit.result import AuditResult

Change: TypeAlias = ClientChange | CounterChange
_STYLES = {
    Outcome.NEWLY_THROTTLED: "red",
    Outcome.MORE: "red",
    Outcome.LESS: "green",
    Outcome.NO_LONGER_THROTTLED: "green",
    Outcome.UNDETERMINED: "yellow",
}
_BETTER = (Outcome.LESS, Outcome.NO_LONGER_THROTTLED)
"""What a comment folds: clients for whom things get better."""
_MOST_ROWS = 50
"""Of a table in a comment on a pull request, which takes 65,536 characters in all."""


def records(result: AuditResult) -> str:
    """`300 requests`: what was read."""
    return records_text(result.quality.events, result.findings.column("basis").to_pylist())


def usage_text(result: AuditResult) -> str:
    """`300 requests, 2026-03-11 09:00:00 to 09:00:29 UTC`, and what of it could not be read."""
    quality = result.quality
    text = f"{records(result)}, {' '.join(period(quality.first_ms, quality.last_ms))} UTC"
    return f"{text} ({many(quality.rejected, 'record')} cannot be read)" if quality.rejected else text


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
    rejected = result.quality.rejected
    if rejected:
        reasons = auditing.why(result.rejects)
        warn(f"{many(rejected, 'record')} of the usage cannot be read: {reasons}")
    return compare(result, settings), result


COLUMNS = (
    "CHANGE",
    "USER",
    "CLIENT-ID",
    "QUOTA",
    "LIMIT",
    "DELAYED",
    "MUTED",
    "LONGEST",
    "DELIVERED",
    "BEHIND",
    "BROKERS",
    "BROKER",
    "WHOSE LIMIT",
)
"""The columns of the tables of a comparison."""


def comparison_screen(comparison: Comparison) -> Iterator[Part]:
    """A table of the clients, and one of the counters."""
    if comparison.clients:
        yield clients_table(comparison)
    if comparison.counters:
        named = any(change.broker for change in comparison.counters)
        yield ""
        yield table_of(
            comparison.counters,
            [
                (Column("CHANGE", spare=1), _outcome),
                named and (Column("BROKER", spare=6, tells=True), lambda change: change.broker),
                (Column("WHOSE LIMIT", style="bold"), lambda change: subject(change.key, change.sensor)),
                *_columns(comparison, comparison.counters),
            ],
            _style,
        )


def clients_table(comparison: Comparison) -> Table:
    """A row for each client for whom something changes."""
    return table_of(
        comparison.clients,
        [
            (Column("CHANGE"), _outcome),
            (Column("USER", style="bold"), lambda change: _who(change)[0]),
            (Column("CLIENT-ID", style="bold"), lambda change: _who(change)[1]),
            *_columns(comparison, comparison.clients),
            _names_brokers(comparison) and (Column("BROKERS", spare=6), lambda change: ", ".join(change.brokers)),
        ],
        _style,
    )


def _style(change: Change) -> str:
    return _STYLES[change.outcome]


def _columns(comparison: Comparison, changes: Sequence[Change], key: str = "QUOTA") -> list[Shown[Change]]:
    """The key, the limit and the throttled requests, before and after; then what is predicted, where anything is.

    Of who was held back the least that its counter wants.
    """
    delays = _says_delays(comparison)
    behind = delays and any(map(_behind, _changes(comparison)))

    def predicted(name: str) -> Callable[[Change], object]:
        return lambda change: _moved(functools.partial(words.predicted_parts, name), change)

    return [
        (Column(key, style="cyan", whole=True), lambda change: change.key.value),
        (Column("LIMIT", number=True, spare=2), lambda change: _moved(functools.partial(_limit, change.key), change)),
        (Column("DELAYED", number=True, spare=1 if delays else 0), _delayed),
        delays and (Column("MUTED", number=True, spare=5), predicted("muted_share")),
        delays and (Column("LONGEST", number=True, spare=3), predicted("throttle_time_max_ms")),
        delays and (Column("DELIVERED", number=True, spare=4), _delivered),
        behind and (Column("BEHIND", number=True, spare=7), lambda change: _behind(change) or ("-",)),
    ]


def _outcome(change: Change) -> tuple[str, str]:
    """`newly throttled`, in two lines on a terminal."""
    first, _, last = words.outcome(change).rpartition(" ")
    return first, last


def comparison_csv(comparison: Comparison) -> Csv:
    """A row for each client."""
    side = _CSV_SIDE.format(_CSV_PREDICTED if _says_delays(comparison) else "")
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
            yield clients_table(comparison)
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
    """A summary for a comment on a pull request: the verdict, the clients that are worse off, and the rest folded.

    `before` and `after` name the two sets of quotas, as Markdown.
    """
    named = _names_brokers(comparison)

    def table(changes: Sequence[ClientChange], *, with_outcome: bool) -> Iterator[str]:
        shown = table_of(
            changes[:_MOST_ROWS],
            [
                with_outcome and (Column("CHANGE"), lambda change: change.outcome.value),
                (Column("USER"), lambda change: _who(change, code, "(empty)")[0]),
                (Column("CLIENT-ID"), lambda change: _who(change, code, "(empty)")[1]),
                *_columns(comparison, comparison.clients, key="KEY"),
                named and (Column("BROKERS"), lambda change: ", ".join(change.brokers)),
            ],
        )
        yield markdown_of(shown, " ", aligned=False)
        if len(changes) > _MOST_ROWS:
            yield f"\nand {len(changes) - _MOST_ROWS} more"

    yield f"### {title}: {words.changes(comparison)}\n"
    yield f"{usage_text(result)}, under {after} instead of {before}. Limits hold per broker."
    worse = [change for change in comparison.clients if change.outcome not in _BETTER]
    for outcome, changes in words.by_outcome(worse).items():
        yield f"\n**{outcome.capitalize()}**\n"
        yield from table(changes, with_outcome=False)
    better = [change for change in comparison.clients if change.outcome in _BETTER]
    if better:
        yield f"\n<details><summary>{many(len(better), 'client')} throttled less, or no longer</summary>\n"
        yield from table(better, with_outcome=True)
        yield "\n</details>"
    for line in words.markdown_lines(comparison.quotas, counts=False):
        yield f"\n{line}"


def _who(change: ClientChange, show: Callable[[str], str] = str, empty: str = "(empty client-id)") -> tuple[str, str]:
    """The user and the client-id, their names as `show` has them; an ip in place of both."""
    if change.ip is not None:
        return show(f"ip={change.ip}"), "-"
    user = "(any)" if change.user is None else show(change.user)
    client_id = "(any)" if change.client_id is None else show(change.client_id) if change.client_id else empty
    return user, client_id


def _says_delays(comparison: Comparison) -> bool:
    """Whether it is predicted of anybody how long they wait: it takes a recording with connections."""
    return any(side.predicted is not None for change in _changes(comparison) for side in (change.before, change.after))


def _changes(comparison: Comparison) -> Sequence[Change]:
    return [*comparison.clients, *comparison.counters]


def _limit(key: QuotaKey, standing: Standing) -> tuple[str, ...]:
    return ("none" if standing.limit is None else limit_text(key, standing.limit),)


def _delayed(change: Change) -> tuple[str, ...]:
    """The throttled requests; of who was held back also the least that its counter wants."""

    def events(standing: Standing) -> tuple[str, ...]:
        return ("?" if standing.throttled_events is None else f"{standing.throttled_events:,}",)

    of = "" if change.requests is None else f"of {change.requests:,}"
    wanted = max((side.wanted for side in (change.before, change.after) if side.wanted is not None), default=None)
    least = () if wanted is None else ("its counter wanted", f"at least {rate_text(wanted, change.key.unit)}")
    return (*_moved(events, change), of, *least)


def _delivered(change: Change) -> tuple[str, ...]:
    shared = max(change.before.clients, change.after.clients)
    parts = _moved(functools.partial(words.delivered_of, change.key), change)
    return (*parts, f"({shared} clients)") if isinstance(change, ClientChange) and shared > 1 else parts


def _moved(lines: Callable[[Standing], tuple[str, ...]], change: Change) -> tuple[str, ...]:
    """Both sides, in lines of their own on a terminal; what is the same on both sides once."""
    before, (first, *rest) = lines(change.before), lines(change.after)
    return before if before == (first, *rest) else (*before, f"→ {first}", *rest)


def _behind(change: Change) -> tuple[str, ...]:
    """What the counter has not delivered at the end of the recorded time, and when it is gone, after the change."""
    predicted = change.after.predicted
    match () if predicted is None else words.behind_parts(change.key, predicted):
        case (left, gone):
            return (f"{left},", gone)
        case parts:
            return parts


def _names_brokers(comparison: Comparison) -> bool:
    """Whether any broker has a name: of one source that nobody named there is none."""
    return any(change.brokers for change in comparison.clients)
