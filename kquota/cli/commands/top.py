"""`kquota top`."""

from __future__ import annotations

import contextlib
import io
import math
import os
import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from kquota.audit.run import settings_of
from kquota.brokers import BrokerFacts
from kquota.cli import grammar, keys, params, session
from kquota.cli import live as watched
from kquota.cli.board import Board, Row
from kquota.cli.contexts import requiring_reason
from kquota.cli.exit_codes import ExitCode
from kquota.cli.leases import cluster_words
from kquota.cli.options import choice, count, flag, group, lasting, value, values
from kquota.cli.reach import source
from kquota.cli.streams import aside, console, note, quiet, reader_is_gone, stoppable, warn
from kquota.cli.text import Column, age, entity_text, first_of, layout, many, moment, rate_text, safe, short_unit
from kquota.cli.usage import time_zone
from kquota.cli.views import Document, Note, Part, Shown, Table, View, show, shown_as, table_of
from kquota.core.change.history import QuotaHistory
from kquota.core.findings.use import State, Use
from kquota.core.quotas.entity import Entity, EntityType
from kquota.core.quotas.quota import QuotaKey, limit_text
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.documents.limits import top_document
from kquota.errors import InputError, KquotaError
from kquota.live.explain import (
    Explanation,
    concerning,
    explain,
    lift,
    lift_command,
    record_command,
    together,
    undo_command,
)
from kquota.live.sources import LiveSource, Look
from kquota.live.watching import View as Seen
from kquota.live.watching import Watching
from kquota.reconcile import now

if TYPE_CHECKING:
    from rich.text import Text

OLD_S: Final = 60.0
"""What is older says nothing of now: pages and logs of a broker with clients change every few seconds."""
_TURN_S = 0.2
_REDRAW_S = 1.0
"""How often a screen is drawn again, as ages grow."""


@dataclass(frozen=True)
class _Wanted:
    """Which counters are shown."""

    user: str | None = params.named("user", "Only counters of that user.")
    client: str | None = params.named("client", "Only counters of that client-id.")
    ip: str | None = params.named("ip", "Only connections of that ip.")
    key: str | None = choice([key.value for key in QuotaKey], "Only counters of that quota key.")
    broker: str | None = value("NAME", "Only counters of that broker.")
    everything: bool = flag("Counters within their limit too, and those without a limit.", "--all")

    def selects(self, use: Use) -> bool:
        """Whether the filters let a counter through, whatever its state."""
        counter = use.counter
        connections = counter.key is QuotaKey.CONNECTION_CREATION_RATE
        return (
            self.key in (None, counter.key.value)
            and self.broker in (None, counter.broker)
            and self.user in (None, counter.user)
            and (self.client is None or (not connections and counter.client_id == self.client))
            and (self.ip is None or (connections and counter.client_id == self.ip))
        )


@grammar.command("top")
@shown_as("table", "json", takes_output=True)
def command(
    *,
    live: watched.Asked = watched.ASKED,
    logs: tuple[str, ...] = values(
        "[BROKER=]PATH",
        "Follow a broker's request log instead, a file or a folder: exact, with the clients of each counter. Repeat it"
        " for each broker.",
        "--log",
    ),
    log_timezone: str = value("ZONE", "The time zone of a log's times.", default="UTC"),
    wanted: _Wanted = group(_Wanted),
    subject: str | None = value(
        "SUBJECT",
        "Explain all counters of user=alice, client-id=app1 or a pair: rule, since when, clients, what lifts it.",
        "--explain",
    ),
    once: bool = flag("Look once."),
    count: int | None = count("End after N looks."),
    interval: int = lasting("How often to look.", default="5s"),
    facts: BrokerFacts = params.FACTS,
    source: session.QuotaSource = params.SOURCE,
    output: str,
) -> View | int:
    """Show who is throttled or near it now.

    Looks again at each --interval until Ctrl-C: on a terminal in one screen, in a pipe table after table, with -o json
    a document a line. The longest throttle times come first, then the greatest shares. Rates and throttle times are the
    brokers' own, from the pages of their exporters or from a Prometheus. Their age is always shown, and '-' stands for
    a number that the source does not have. NEAR: so close to the limit that the timing of single requests decides
    whether a broker throttles. WAS THROTTLED: within the last minute, and no longer.

    On a terminal, keys work while it runs: space pauses, s and r sort, / filters, a shows all counters. Up and down
    choose a counter, Enter explains it as --explain does, and q quits.

    With --log they are computed from each request that a broker logs, under the given quotas, as the broker computes
    them. The clients of a counter are known then. A client without a quota is in no counter. Changed quotas count from
    the look on that finds them. Changes of topics, and connections, are judged by 'kquota audit' only.

    --explain SUBJECT shows every counter that a user, a client-id or a pair is charged to, the throttled ones first,
    each over all brokers. It names the rule, what it shadows, since when the counter is throttled, and who is loudest
    in it. It says what would be enough, and which command lifts the limit for two hours. Where no counter is throttled
    on any broker, a slow client is slow for another reason than quotas.

    \b
    Examples:
      kquota top --bootstrap-server localhost:9092 --metrics http://broker-1:7071/metrics
      kquota top --context prod --prometheus http://prometheus:9090 --once
      kquota top --quotas quotas.yaml --metrics page.prom --all --sort-by -rate
      kquota top --context prod --prometheus http://prometheus:9090 --explain client-id=web-edge
      kquota top --quotas quotas.yaml --log 1=kafka-request.log
    """
    if interval < 1000:
        raise click.UsageError("--interval is at least 1s")
    brokers = watched.enforcers(facts)
    looked = _followed(logs, log_timezone, live, facts) if logs else live.open(source.cluster.timeout_s)
    screen = _Screen(Watching(looked, brokers), watched.quotas_reader(source, facts), wanted, source)
    if subject is not None:
        return _explained(subject, screen)
    if once:
        return screen.look()
    if output == "table" and sys.stdout.isatty() and keys.can_be_read():
        return _at_the_keys(screen, interval / 1000, count)
    return _again_and_again(screen, interval / 1000, count, output)


def _followed(logs: Sequence[str], zone: str, live: watched.Asked, facts: BrokerFacts) -> LiveSource:
    """The source of --log. Raises click.UsageError beside another source, InputError and MissingDependency."""
    if live.is_named:
        raise click.UsageError("live metrics come from one source: give --log, or --metrics, or --prometheus")
    settings = settings_of(QuotaHistory.of(QuotaSnapshot({})), facts, broker=session.load_broker_settings(facts))
    from kquota.live.followed import Logs

    followed = Logs(logs, replace(settings, read=replace(settings.read, zone=time_zone(zone))))
    click.get_current_context().call_on_close(followed.close)
    return followed


@dataclass
class _Screen:
    """The screen: what is looked at, and the view of the latest look."""

    watching: Watching
    read_quotas: Callable[[], QuotaSnapshot]
    wanted: _Wanted
    cluster: session.QuotaSource
    quotas_ms: int = 0
    _quotas: QuotaSnapshot | None = None
    _lost: str | None = None

    def seen(self, *, patient: bool = False) -> Seen:
        """One look. `patient`: a lost cluster leaves the quotas of before, which the view says."""
        try:
            self._quotas, self.quotas_ms, self._lost = self.read_quotas(), now(), None
        except KquotaError as error:
            if not patient or self._quotas is None:
                raise
            self._lost = error.message
        return self.watching.look(self._quotas)

    def explained(self, uses: Sequence[Use], seen: Seen) -> Iterator[str]:
        """What is known about one counter, a line each."""
        explanation = explain(uses, seen, self.watching.source, self.watching.brokers)
        access = self.cluster.access
        why: tuple[str, ...] = ()
        with contextlib.suppress(InputError):  # contexts that cannot be read are no reason to explain nothing
            why = () if access is None or requiring_reason(access) is None else ("-m", "WHY")
        return _explanation(explanation, (*cluster_words(access), *why))

    def look(self, *, patient: bool = False) -> View:
        """One look as an answer."""
        seen = self.seen(patient=patient)
        if not patient and not self.shown(seen, everything=True):
            wanted = self.wanted
            asked = {EntityType.USER: wanted.user, EntityType.CLIENT_ID: wanted.client, EntityType.IP: wanted.ip}
            session.note_slips(seen.quotas, asked)
        now_ms = now()
        shown = self.shown(seen, everything=self.wanted.everything)
        return View(
            screen=lambda: self.parts(seen, shown, now_ms),
            document=lambda: iter([self.document(seen, shown, now_ms)]),
            code=ExitCode.PARTIAL if seen.look.missing else ExitCode.OK,
        )

    def document(self, seen: Seen, shown: Sequence[Use], now_ms: int) -> Document:
        """One refresh as a document."""
        return top_document(
            shown,
            source=self.watching.source.name,
            now_ms=now_ms,
            quotas_ms=self.quotas_ms,
            missing=seen.look.missing,
            unread=len(seen.look.unread),
        )

    def shown(self, seen: Seen, *, everything: bool) -> list[Use]:
        """The uses that the filters let through; without `everything` those that are throttled or near it."""
        return [use for use in seen.uses if self.wanted.selects(use) and (everything or _is_hot(use))]

    def parts(self, seen: Seen, shown: Sequence[Use], now_ms: int) -> Iterator[Part]:
        """A look for people: what is known of its source in lines, and a table of the uses that are shown."""
        selected = self.shown(seen, everything=True)
        states = Counter(use.state.value for use in selected)
        yield Note(
            ", ".join(
                f"{number} {state.replace('_', ' ').replace('within', 'within the limit')}"
                for state, number in states.items()
            )
            or (
                f"none of {many(len(seen.uses), 'counter')} was asked for"
                if seen.uses
                else "no counter of a quota was seen"
            )
        )
        yield Note(_ages(self.watching.source.name, seen.uses, self.quotas_ms, now_ms))
        if self._lost is not None:
            yield Note(f"quotas: {self._lost}; the limits are those of before", by=warn)
        yield from _left_out(seen)
        if seen.look.unread:
            yield Note(_unread(seen.look), by=warn)
        yield from self.doubts(selected)
        if shown:
            yield _table(shown, now_ms)
            if any(use.state is State.THROTTLED and use.observed.rate == 0 for use in shown):
                yield Note("at 0 and throttled: it waits, and brokers read nothing from it until its delay is over")
        elif selected:
            yield Note(self.nobody(seen, selected, now_ms))

    def doubts(self, uses: Sequence[Use]) -> Iterator[Note]:
        """A warning where brokers throttle counters that have no limit by these quotas."""
        strange = {use.counter.subject: None for use in uses if use.limit is None and use.observed.throttle_ms}
        if strange:
            yield Note(
                f"brokers throttle {first_of([*strange], safe)}, which these quotas do not limit:"
                " they are the quotas of another cluster, or changed within the last minute",
                by=warn,
            )

    def nobody(self, seen: Seen, uses: Sequence[Use], now_ms: int, subject: str = "") -> str:
        """What follows where no counter is throttled or near it: that quotas are not the reason, or what is not known.

        `uses` are the counters that the filters let through, or those of the `subject`.
        """
        read = len({use.counter.broker for use in seen.uses})
        of = session.count_brokers(self.cluster)
        unknown = sum(use.state is State.UNKNOWN for use in uses)
        newest: dict[str | None, float] = {}
        for use in seen.uses:
            newest[use.counter.broker] = min(use.age_s(now_ms), newest.get(use.counter.broker, math.inf))
        old = [seconds for seconds in newest.values() if seconds > OLD_S]
        gaps = []
        if of is not None and read < of:
            gaps.append(f"{read} of {of} brokers were read")
        elif seen.look.missing:
            gaps.append(f"{many(len(seen.look.missing), 'source')} did not answer")
        if old:
            gaps.append(
                f"nothing is newer than {age(max(old))} on {many(len(old), 'broker')} ('kquota record' shows now)"
            )
        if unknown:
            gaps.append(f"nothing says how near {many(unknown, 'counter')} {'is' if unknown == 1 else 'are'}")
        if any(self.doubts(uses)):
            gaps.append("the quotas do not fit")
        whom = f"no counter of {subject}" if subject else "nobody" if len(uses) == len(seen.uses) else "none of these"
        if gaps:
            return f"{whom} is seen throttled, but {' and '.join(gaps)}: a quota may still be the reason"
        if of is not None:
            where = f"on {read} of {of} brokers"
        else:
            where = "on the one broker that was read" if read == 1 else f"on the {read:,} brokers that were read"
        slow = f"where {subject} is slow, it" if subject else "a slow client"
        shows = "" if subject else " (--all shows all counters)"
        return f"{whom} is throttled or near it {where}: {slow} has another reason{shows}"


def _left_out(seen: Seen) -> Iterator[Note]:
    return (Note(f"{place}: {why}", by=warn) for place, why in seen.look.missing)


def _is_hot(use: Use) -> bool:
    return use.state in (State.THROTTLED, State.WAS_THROTTLED, State.NEAR)


def _state(use: Use) -> str:
    return use.state.value.replace("_", " ").upper()


def _ages(source: str, uses: Sequence[Use], quotas_ms: int, now_ms: int) -> str:
    """How old samples and quotas are."""
    quotas = f"quotas read {age((now_ms - quotas_ms) / 1000)} ago"
    if not uses:
        return f"{source}; {quotas}"
    ages = sorted(use.age_s(now_ms) for use in uses)
    youngest, oldest = age(ages[0]), age(ages[-1])
    samples = youngest if youngest == oldest else f"{youngest} to {oldest}"
    return f"{source}, samples {samples} old; {quotas}"


def _shown(now_ms: int) -> list[Shown[Use]]:
    """The columns, with what stands in them of a use."""

    def clients(use: Use) -> str:
        return ", ".join(safe(client) for client in use.clients[:3]) + ("…" if len(use.clients) > 3 else "") or "-"

    def known(value: float | None, text: Callable[[float], str]) -> str:
        return "-" if value is None else text(value)

    return [
        (Column("STATE", whole=True, spare=4, tells=True), _state),
        (Column("COUNTER", least=16), lambda use: safe(use.counter.subject)),
        (Column("KEY", whole=True, least=9), lambda use: use.counter.key.value),
        (
            Column("SET FOR", spare=3, least=10),
            lambda use: "-" if use.level is None else source(use.counter.key, use.entity),
        ),
        (Column("LIMIT", number=True, spare=1), lambda use: limit_text(use.counter.key, use.limit)),
        (Column("RATE", number=True, spare=6), lambda use: _rate(use.counter.key, use.observed.rate)),
        (Column("SHARE", number=True, spare=5), lambda use: known(use.share, lambda share: f"{100 * share:.0f} %")),
        (Column("THROTTLE", number=True, spare=2), lambda use: known(use.observed.throttle_ms, "{:,.0f} ms".format)),
        (
            Column("TREND", number=True, spare=10),
            lambda use: known(use.trend, lambda trend: f"{'+' if trend >= 0 else ''}{_rate(use.counter.key, trend)}/s"),
        ),
        (
            Column("UNTIL", number=True, spare=8),
            lambda use: "now" if use.until_throttled_s == 0 else known(use.until_throttled_s, age),
        ),
        (Column("BROKER", spare=7, tells=True), lambda use: safe(use.counter.broker) or "-"),
        (Column("CLIENTS", spare=9), clients),
        (Column("AGE", number=True, spare=11), lambda use: age(use.age_s(now_ms))),
    ]


_COLUMNS = tuple(shown[0] for shown in _shown(0) if shown)
_STYLES = {"throttled": "red", "near": "yellow"}


def _table(uses: Sequence[Use], now_ms: int) -> Table:
    return table_of(uses, _shown(now_ms), lambda use: _STYLES.get(use.state.value, ""))


def _rate(key: QuotaKey, rate: float | None) -> str:
    return "-" if rate is None else rate_text(rate, short_unit(key.unit))


def _again_and_again(screen: _Screen, interval_s: float, count: int | None, output: str) -> int:
    """Looks until it is stopped, or so many times; a lost source is looked at again."""
    number = 0
    with stoppable() as stop:
        code: int = ExitCode.OK
        while True:
            number += 1
            try:
                view = screen.look(patient=number > 1)
            except InputError:
                raise
            except KquotaError as error:
                if number == 1:
                    raise
                warn(f"{error.message}; trying again")
            else:
                code = show(view, output)
                with contextlib.suppress(OSError):
                    sys.stdout.flush()
            if count is not None and number >= count:
                return code
            stop.wait(interval_s, reader_is_gone)
            if stop():
                return stop.exit_code
            if reader_is_gone():
                return code


class _Explained(NamedTuple):
    """An explanation of a counter, by one look."""

    seen: Seen
    of: Hashable
    lines: list[str]


def _at_the_keys(screen: _Screen, interval_s: float, count: int | None) -> int:
    """Looks until somebody at the terminal has enough, or so many times."""
    from rich.live import Live

    board = Board(_COLUMNS, layout(), everything=screen.wanted.everything)
    seen = screen.seen()
    drawn, messages = console(sys.stdout), io.StringIO()
    asked: Future[Seen] | Future[_Explained] | None = None
    explained: _Explained | None = None

    def explanation() -> list[str] | None:
        """The lines of the explanation that is shown; asked for once after each look."""
        nonlocal asked
        of, view = board.choices.selected, seen
        if not board.choices.explained:
            return None
        uses = [use for use in view.uses if isinstance(of, tuple) and use.counter[1:] == of[1:]]
        if not any(use.counter == of for use in uses):
            return ["this counter is gone from the last look; Esc goes back"]
        if asked is None and (explained is None or explained.seen is not view or explained.of != of):
            asked = aside(lambda: _Explained(view, of, explaining(uses, view)))
        return explained.lines if explained is not None and explained.of == of else ["asking …"]

    def explaining(uses: Sequence[Use], view: Seen) -> list[str]:
        try:
            return [*screen.explained(uses, view)]
        except KquotaError as error:
            return [error.message]

    def rows() -> list[Row]:
        return board.rows(_rows(screen.shown(seen, everything=board.choices.everything), now()))

    def draw(live: Live) -> float:
        """Draws the screen, and returns when it is to be drawn again."""
        size = os.get_terminal_size(sys.stdout.fileno())
        if all(size):
            drawn.size = size
        uses = screen.shown(seen, everything=board.choices.everything)
        notes = [*_notes(screen.parts(seen, uses, now()), messages.getvalue())]
        live.update(board.screen(drawn, notes, rows(), explanation()), refresh=True)
        return time.monotonic() + _REDRAW_S

    number, due = 1, time.monotonic() + interval_s
    with (
        stoppable() as stop,
        contextlib.redirect_stderr(messages),
        keys.reading() as read,
        Live(console=drawn, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live,
    ):
        redraw = draw(live)
        while count is None or number < count:
            pressed = read(min(_TURN_S, max(redraw - time.monotonic(), 0.0)))
            for key in pressed:
                board.press(key, rows())
            if board.choices.over or stop() or reader_is_gone():
                break
            answered, asked = (asked, None) if asked is not None and asked.done() else (None, asked)
            if answered is not None:
                outcome = answered.exception() or answered.result()
                if isinstance(outcome, _Explained):
                    explained = outcome
                else:
                    number, due = number + 1, time.monotonic() + interval_s
                if isinstance(outcome, Seen):
                    seen = outcome
                elif isinstance(outcome, KquotaError) and not isinstance(outcome, InputError):
                    warn(f"{outcome.message}; trying again")
                elif isinstance(outcome, BaseException):
                    raise outcome
            if asked is None and not board.choices.paused and time.monotonic() >= due:
                messages.seek(0)
                messages.truncate()
                asked = aside(lambda: screen.seen(patient=True))
            if pressed or answered is not None or time.monotonic() >= redraw:
                redraw = draw(live)
    if stop():
        return stop.exit_code
    return ExitCode.PARTIAL if seen.look.missing else ExitCode.OK


def _rows(uses: Sequence[Use], now_ms: int) -> list[Row]:
    table = _table(uses, now_ms)
    rows = zip(uses, table.rows, table.styles, strict=True)
    return [Row(use.counter, cells, style) for use, cells, style in rows]


def _notes(parts: Iterator[Part], messages: str) -> Iterator[Text]:
    """The lines above the table, and the last of the `messages` meanwhile, on a screen that has no stderr."""
    from rich.text import Text

    for part in parts:
        if isinstance(part, Note) and not (part.by is note and quiet()):
            yield Text(safe(part.text), style="yellow" if part.by is warn else "")
    yield from (Text(line, style="yellow") for line in messages.splitlines()[-1:])


def _unread(look: Look) -> str:
    """What was not understood."""
    place, why = look.unread[0]
    return f"{many(len(look.unread), *look.unread_are)} not understood: {place}: {why}"


def _explained(subject: str, screen: _Screen) -> View:
    """The answer of --explain: each counter that the subject is charged to, the nearest to its limit first."""
    wanted = Entity.parse(subject if "=" in subject else f"user={subject}")
    seen = screen.seen()
    held = concerning(wanted, seen, screen.watching.brokers)
    charged, others = (tuple(filter(screen.wanted.selects, uses)) for uses in held)
    possible = [*filter(_is_hot, others)] or ([] if charged else others)
    if not charged and not possible:
        nobody = [f"no counter that was read holds {safe(subject)}"]
        if seen.look.missing:
            nobody.append(screen.nobody(seen, (), now(), safe(subject)))
        if seen.look.unread:
            nobody.append(_unread(seen.look))
        hint = "'kquota top --all' shows all; a counter is gone after an idle hour"
        if wanted.user is None and isinstance(wanted.client_id, str):
            hint += "; where a quota of users governs, the user's counter is charged: 'kquota resolve --all --client"
            hint += f" {safe(shlex.quote(wanted.client_id))}' shows where"
        raise InputError("; ".join(nobody), hint=hint)
    limited = [use for use in charged if use.limit is not None]
    explanations = [[*screen.explained(uses, seen)] for uses in together(limited) or together(charged)[:1]]
    now_ms = now()

    def lines() -> Iterator[Part]:
        yield Note(_ages(screen.watching.source.name, charged, screen.quotas_ms, now_ms))
        yield from _left_out(seen)
        yield from screen.doubts(charged)
        for explanation in explanations:
            yield from explanation
        if possible:
            names = dict.fromkeys(f"{safe(use.counter.subject)} ({use.counter.key}, {_state(use)})" for use in possible)
            yield "may be charged to these counters as well, whose clients the source does not name:"
            yield f"  {first_of([*names], most=5)}"
            yield "  next: --explain with one of them, or with user=NAME,client-id=NAME, or with --log FILE"
        elif not any(map(_is_hot, charged)):
            yield Note(screen.nobody(seen, charged, now_ms, safe(subject)))

    return View(
        screen=lines,
        document=lambda: iter([screen.document(seen, (*charged, *possible), now_ms)]),
        code=ExitCode.PARTIAL if seen.look.missing else ExitCode.OK,
    )


_MOST_BROKERS = 5
"""The brokers that an explanation names, the worst first."""


def _explanation(explained: Explanation, address: Sequence[str]) -> Iterator[str]:
    worst = explained.uses[0]
    counter, key = worst.counter, worst.counter.key
    states, brokers = Counter(map(_state, explained.uses)), len(explained.uses)
    on = f"{states.pop(_state(worst))} of {many(brokers, 'broker')}" if brokers > 1 else safe(counter.broker)
    others = "".join(f", {state} on {number}" for state, number in states.items()) if brokers > 1 else ""
    yield f"{safe(counter.subject)}: {key} on {on or 'one broker'}: {_state(worst)}{others}"
    for use in explained.uses[:_MOST_BROKERS]:
        share = "" if use.share is None else f", {100 * use.share:.0f} %"
        throttle = use.observed.throttle_ms
        delayed = "" if not throttle else f"; throttled requests are delayed by {throttle:,.0f} ms in the mean"
        if use.state is State.WAS_THROTTLED:
            before = f"{moment(use.observed.at_ms)} UTC at most"
            delayed = f"; was throttled until {before}, by {throttle or 0:,.0f} ms in the mean"
        where = "" if len(explained.uses) == 1 else f" on {safe(use.counter.broker)}"
        yield f"  rate{where}: {_rate(key, use.observed.rate)} of {limit_text(key, use.limit)}{share}{delayed}"
    if len(explained.uses) > _MOST_BROKERS:
        yield f"  and on {len(explained.uses) - _MOST_BROKERS} more"
    if worst.level is None:
        yield "  rule: none: these quotas do not limit it"
    else:
        yield f"  rule: {source(key, worst.entity)}, level {worst.level.number}, {worst.level.label}"
        for other in worst.resolution.shadows:
            yield f"    shadows {source(key, other.entity)}: {limit_text(key, other.value)}"
    yield f"  in it: {safe(counter.whom)}"
    for client, of, rate in explained.loudest[:5]:
        yield f"    {safe(client)}: {of} {_rate(of, rate)}"
    if explained.since_ms is not None:
        yield f"  since: {moment(explained.since_ms)} UTC or before"
    elif explained.since_unknown is not None:
        yield f"  since: unknown ({safe(explained.since_unknown)})"
    if explained.enough and worst.limit is not None and worst.state is not State.WAS_THROTTLED:
        for_what = "" if worst.state is State.THROTTLED else " for the present rate"
        least = "at least " if explained.enough_at_least else ""
        yield f"  enough: {least}{rate_text(explained.enough, key.unit)}{for_what}"
    elif explained.enough is None and worst.state is State.THROTTLED:
        yield f"  enough: {explained.enough_unknown}"
        if worst.observed.clients is None:
            yield f"  record it, which names the commands that tell: {record_command(address)}"
    for why in dict.fromkeys(why for use in explained.uses for why in use.unknown):
        yield f"  not known: {safe(why)}"
    if worst.limit is not None and worst.state in (State.THROTTLED, State.NEAR):
        if lift(worst) != worst.entity:
            yield f"  to lift it: {entity_text(lift(worst))} gets a quota of its own, as its limit is inherited"
        yield f"  twice the limit for two hours: {lift_command(worst, address)}"
        yield f"  take that back, by the ID that it prints: {undo_command(address)}"
