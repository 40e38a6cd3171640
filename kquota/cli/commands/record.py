"""`kquota record`."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import click

from kquota import recorder
from kquota.access import Access
from kquota.backends.kafka.brokers import KafkaLoggers
from kquota.cli import consent, grammar, params, session
from kquota.cli.exit_codes import ExitCode, exit_code_of
from kquota.cli.options import choice, count, flag, lasting, value, values
from kquota.cli.options import duration as length
from kquota.cli.progress import progress
from kquota.cli.streams import ask, note, say, stoppable, warn
from kquota.cli.text import Column, amount_text, many, rate_text
from kquota.cli.views import Note, Part, View, show, table_of
from kquota.cli.writing import complain, settled_table
from kquota.core.change.broker import parse_broker
from kquota.core.change.recording import LOGGER, RECORDING, Bounds, Draft, Estimate
from kquota.core.duration import duration
from kquota.core.quotas.quota import QuotaKey, parse_value
from kquota.documents.clusters import RECORDED, record_document
from kquota.documents.derive import picked, utc
from kquota.documents.journal import Journal, name_of
from kquota.errors import InputError
from kquota.metrics.meters import LogMeter, Meter, PageMeter
from kquota.reconcile import now
from kquota.recorder import Recorded

APPENDERS = {"log4j2": "log4j2.yaml", "log4j1": "log4j1.properties"}
"""Which log4j: the file that configures an appender for the request log."""


def appender_text(name: str) -> str:
    """The text of an appender's configuration, by the name of its log4j."""
    return (files("kquota.cli") / "appenders" / APPENDERS[name]).read_text(encoding="utf-8")


def _rotation(text: str) -> tuple[int, int]:
    """ON/EVERY, such as 30s/5m, as two lengths of time in ms."""
    on, slash, every = text.partition("/")
    if not slash:
        raise click.BadParameter(f"{text!r} is not ON/EVERY, such as 30s/5m")
    lengths = length(on), length(every)
    if not 0 < lengths[0] <= lengths[1]:
        raise click.BadParameter(f"{text!r}: a turn is at most as long as the time between two turns")
    return lengths


def _size(text: str) -> int:
    """A size such as 1GB or 500MiB, in bytes."""
    with contextlib.suppress(InputError):
        if "/" not in text and not text.endswith("ps"):
            return int(parse_value(QuotaKey.PRODUCER_BYTE_RATE, text))
    raise click.BadParameter(f"{text!r} is not a size, such as 1GB or 500MiB")


@grammar.command("record")
def command(
    *,
    brokers: tuple[str, ...] = values(
        "ID[,…]", "The brokers, or with --bootstrap-controller the controllers; all of them without it.", "--broker"
    ),
    duration: int = lasting("Switch back after so long at the latest.", "--for", default="2m"),
    requests: int | None = count("Switch back after so many requests of all brokers; needs --metrics or --log."),
    size: int | None = value(
        "SIZE", "Switch back after so many bytes of all brokers, such as 1GB; needs --metrics or --log.", type=_size
    ),
    rotate: tuple[int, int] | None = value(
        "ON/EVERY", "One broker after the other: on for ON, a turn every EVERY, such as 30s/5m.", type=_rotation
    ),
    metrics: tuple[str, ...] = values(
        "[ID=]URL",
        "The metrics page of a broker, as its JMX exporter serves it: it counts requests. Bytes are estimated.",
    ),
    logs: tuple[str, ...] = values(
        "[ID=]FILE", "In place of its --metrics, a broker's request log that can be read here: it counts both.", "--log"
    ),
    appender: str | None = choice(APPENDERS, "Print the appender for the broker's log4j, and end."),
    writing: params.Writing = params.writing(
        force=flag("Record in spite of the review: 'kquota help review' lists what it lifts."),
        dry_run=flag("Show the levels, the estimate and the review, and switch nothing."),
        wait=None,
        lasts_ms=None,
    ),
) -> int:
    """Switch brokers' request logs on for a while, and always back.

    Switches the logger kafka.request.logger to DEBUG (KIP-412), until the first bound is reached: --for, --requests or
    --size. A lease in the journal comes before the first switch: Ctrl-C and SIGTERM switch back, and after a crash
    'kquota reconcile' or 'kquota undo' does. A level that somebody else sets meanwhile is left alone. --rotate burdens
    one broker at a time.

    Over Kafka's protocol brokers do not report how many requests they serve: without --metrics or --log only the time
    ends a recording, and nothing is estimated. Where a log dir runs full meanwhile, the recording ends.

    The log is a file of the broker: 'kquota help request-log' has its appender, and how to collect it. It holds
    principals, client-ids, addresses and topics of all clients, and no records.

    \b
    Examples:
      kquota record --bootstrap-server localhost:9092 --for 2m
      kquota record --broker 1 --for 10m --size 1GB --metrics http://host:7071/metrics
      kquota record --for 1h --rotate 30s/5m
      kquota record --for 5m --requests 100000 --log /var/log/kafka/kafka-request.log
      kquota record --appender log4j2
    """
    if appender is not None:
        click.echo(appender_text(appender), nl=False)
        return ExitCode.OK
    if not duration:
        raise click.UsageError("--for must be longer than nothing")
    access, dry_run, output = writing.access, writing.dry_run, writing.output
    # A missing reason is an error before the first question.
    journal = session.journal(writing.journal, access) if dry_run else writing.open_journal()
    named = session.label(access)
    bounds = Bounds(duration, requests, size, rotate)
    nodes = _nodes(brokers)
    with session.open_broker_loggers(access) as loggers:
        chosen = nodes if nodes is not None else loggers.nodes()
        meters = _meters(metrics, logs, chosen, access.timeout_s)
        unmetered = [node for node in chosen if node not in meters]
        if unmetered and (requests is not None or size is not None):
            option = "--requests" if requests is not None else "--size"
            raise click.UsageError(
                f"{option} needs --metrics or --log for each {loggers.noun}: {', '.join(map(str, unmetered))} has none"
            )
        drafted = recorder.draft(loggers, nodes, bounds, meters)
        answers = replace(writing, yes=writing.yes or dry_run)
        consent.refuse(drafted.objections, answers)
        if output == "table":
            show(View(screen=lambda: _drafted(drafted, loggers.noun)), output)
        consent.heed(drafted.objections, answers)
        if drafted.on:
            _say_who(drafted, loggers, journal)
        if dry_run or not drafted.changes:
            if output == "json":
                show(View(document=lambda: record_document(loggers.place(), loggers.noun, drafted, None)), output)
            consent.name_cluster(named)
            note("dry run: nothing was switched" if dry_run else "every request logger is on already: nothing to do")
            return ExitCode.OK
        note(
            "each request is about to be logged with its principal, client-id, address and topics; whoever reads the"
            " broker's log files reads them"
        )
        if not writing.yes:
            ask(_question(drafted, bounds, named, loggers.noun), done="switched", yes="switches on")
        consent.name_cluster(named)
        with stoppable() as stop, progress("recording") as bar, consent.says_what_may_be_written() as begun:
            start = now()
            bar.watch(lambda: (min(now() - start, bounds.for_ms), bounds.for_ms))
            recorded = recorder.record(
                drafted, loggers, journal=journal, clock=now, meters=meters, stop=stop, said=note, begun=begun
            )
        view = View(
            screen=lambda: [settled_table(recorded.settled, loggers.noun)],
            document=lambda: record_document(
                loggers.place(), loggers.noun, drafted, picked(recorded, RECORDED), recorded.settled
            ),
        )
        show(view, output)
        then = _next(logs, chosen, access, recorded.started, whole=rotate is None)
        return _conclude(recorded, stop.exit_code, loggers.noun, then)


def _nodes(texts: Iterable[str]) -> tuple[int, ...] | None:
    """The ids in `--broker 1,2`; None without one. Raises InputError."""
    given = [parse_broker(part.strip()) for text in texts for part in text.split(",")]
    return tuple(dict.fromkeys(given)) if given else None


def _meters(pages: Sequence[str], logs: Sequence[str], nodes: Sequence[int], timeout_s: float) -> dict[int, Meter]:
    """The meters by node. A page or a file without an id is that of the only node. Raises click.UsageError."""
    meters: dict[int, Meter] = {}
    for option, texts in (("--metrics", pages), ("--log", logs)):
        for text in texts:
            match = re.fullmatch(r"(\d{1,10})=(.+)", text)
            if match is None and len(nodes) != 1:
                raise click.UsageError(f"{option} {text!r}: there are several brokers; name one: {option} ID=…")
            node = nodes[0] if match is None else int(match[1])
            where = text if match is None else match[2]
            if node not in nodes:
                raise click.UsageError(f"{option} {text!r}: {node} is not among {', '.join(map(str, nodes))}")
            if node in meters:
                raise click.UsageError(f"broker {node}: --metrics and --log exclude each other, and one is enough")
            meters[node] = PageMeter(where, timeout_s=timeout_s) if option == "--metrics" else LogMeter(Path(where))
    return meters


def _say_who(draft: Draft, loggers: KafkaLoggers, journal: Journal) -> None:
    """Which recordings of the journal have switched on the loggers that are on already."""
    pages = journal.read()
    for entry in pages.of(loggers.place()):
        nodes = [change.node for change in entry.levels if change.node in draft.on]
        if nodes and pages.can_be_undone(entry):
            named = ", ".join(map(str, nodes))
            warn(
                f"{loggers.noun} {named}: switched on by entry {entry.name}:"
                f" 'kquota undo {entry.name}' switches it back"
            )


def _question(draft: Draft, bounds: Bounds, named: str, noun: str) -> str:
    """What is agreed to."""
    nodes = [str(change.node) for change in draft.changes]
    turns = "" if bounds.rotate is None else ", one after the other"
    return (
        f"Log every request of {many(len(nodes), noun)} ({', '.join(nodes)}) of {named} for up to"
        f" {duration(bounds.for_ms)}{turns}?"
    )


def _drafted(draft: Draft, noun: str) -> Iterator[Part]:
    def shown(value: float | None, unit: str) -> str:
        if value is None:
            return "?"
        return rate_text(value, unit) if unit.endswith("/s") else amount_text(value, unit)

    def room(node: int) -> float | None:
        return min((disk.left for disk in draft.spaces if disk.node == node and disk.left is not None), default=None)

    def of(say: Callable[[Estimate], str]) -> Callable[[int], str]:
        return lambda node: say(estimates[node]) if node in estimates else "-"

    estimates = {cost.node: cost for cost in draft.estimates}
    yield table_of(
        draft.nodes,
        [
            (Column(noun.upper(), style="cyan", whole=True), str),
            (Column("LEVEL"), lambda node: draft.levels[node].name),
            (Column("LEVEL MEANWHILE"), lambda node: RECORDING if node in estimates else draft.levels[node].name),
            (Column("ON AT MOST", number=True), of(lambda cost: duration(cost.on_ms))),
            (Column("REQUEST RATE", number=True), of(lambda cost: shown(cost.requests_per_second, "requests/s"))),
            (Column("LOG SIZE", number=True), of(lambda cost: shown(cost.bytes, "bytes"))),
            (Column("FREE SPACE", number=True), of(lambda cost: shown(room(cost.node), "bytes"))),
        ],
    )
    yield Note(f"levels of {LOGGER}; a line has about 1.1 kB; FREE SPACE is beside a reserve in the log dirs")


def _next(logs: Sequence[str], nodes: Sequence[int], access: Access, started: int, *, whole: bool) -> str:
    """What to do with what was recorded: who was throttled, and of a whole recording which limits are enough."""
    paths = " ".join(text.rpartition("=")[2] for text in logs) or " ".join(f"{node}/" for node in nodes)
    since = f" --since {utc(started)}" if logs else ""  # a log may hold recordings from before
    what = f"{paths}{since}{params.there(access)}"
    collect = "" if logs else "copy each log into a folder of its broker's number ('kquota help request-log'); "
    enough = f", 'kquota recommend {what}' what is enough" if whole else "; what is enough, turns do not show"
    return f"{collect}'kquota audit {what} --in-force' says who was throttled{enough}"


def _conclude(recorded: Recorded, stopped: ExitCode, noun: str, then: str) -> int:
    """What came of it, on stderr, and the exit code; `then` is what to do next."""
    code = complain(recorded.settled, noun)
    total = recorded.total
    counted = "nothing counted the logged requests"
    if total is not None:
        about = "" if total.exact else "about "
        counted = f"logged {about}{many(total.requests, 'request')}, {about}{amount_text(total.bytes, 'bytes')}"
    note(f"ended by {recorded.ended_by}; {counted}")
    if recorded.entry is not None and any(not logger.fate.is_settled for logger in recorded.settled):
        say(f"kquota: 'kquota undo {name_of(recorded.entry)}' or 'kquota reconcile' switches back what is left")
    elif total is not None and total.exact and not total.requests:
        warn(f"no line came into the file of --log: does {LOGGER} write there? ('kquota help request-log')")
    else:
        note(then)
    if recorded.unfinished is not None:
        say(f"kquota: {recorded.entry} stays unfinished: {recorded.unfinished}")
    if recorded.error is not None:
        say(f"kquota: {recorded.error.message}")
        return max(code, exit_code_of(recorded.error))
    if recorded.ended_by == "space":
        warn("a log dir has no room left beside the reserve: the recording ended early")
    if recorded.ended_by == "signal":
        return stopped
    return ExitCode.OUTPUT if recorded.unfinished is not None and code is ExitCode.OK else code
