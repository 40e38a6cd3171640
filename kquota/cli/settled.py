"""Request loggers that a recording switched, and what became of each."""

from collections.abc import Iterable

import click

from kquota.cli import consent, session
from kquota.cli.exit_codes import ExitCode
from kquota.cli.streams import ask, note, say, warn
from kquota.cli.text import Column
from kquota.cli.views import Table, View, check_sorting, show, table_of
from kquota.cli.writing import Terms
from kquota.core.change.recording import Fate, Settled
from kquota.core.duration import duration
from kquota.documents.clusters import taken_back_document
from kquota.documents.journal import Entry
from kquota.errors import InputError
from kquota.reconcile import now


def switch_back(entry: Entry, terms: Terms) -> int:
    """Switches back the request loggers that a recording left on; returns the exit code."""
    from kquota.recorder import take_back as switched

    if terms.access.is_zookeeper:
        raise InputError(f"{entry.id} switched request loggers at {entry.cluster}", hint="give --bootstrap-server")
    check_sorting(SETTLED)
    nodes = ", ".join(str(change.node) for change in entry.levels)
    writing = terms.writing
    if writing.dry_run:
        if writing.output == "json":
            raise click.UsageError("-o json --dry-run is for writes of quotas, and not for recordings")
        note(f"would switch the request loggers of {nodes} of {terms.named} back (entry {entry.name})")
        return ExitCode.OK
    if not writing.yes:
        ask(f"Switch the request loggers of {nodes} of {terms.named} back?", done="switched", yes="switches back")
    consent.name_cluster(terms.named)
    with session.open_broker_loggers(terms.access) as loggers:
        settled = switched(entry, loggers, journal=terms.journal, clock=now, command=terms.command)
        noun = loggers.noun
    view = View(screen=lambda: [settled_table(settled, noun)], document=lambda: taken_back_document(entry, settled))
    show(view, writing.output, written=True)
    return complain(settled, noun)


SETTLED = ("BROKER", "CONTROLLER", "BEFORE", "NOW", "WAS ON FOR", "OUTCOME")
"""The columns of the tables of a recording; a node is a broker or a controller."""


def settled_table(settled: Iterable[Settled], noun: str) -> Table:
    """What became of each node's logger."""
    return table_of(
        settled,
        [
            (Column(noun.upper(), style="cyan", whole=True), lambda logger: str(logger.node)),
            (Column("BEFORE"), lambda logger: logger.before),
            (Column("NOW"), lambda logger: logger.now or "?"),
            (Column("WAS ON FOR", number=True), lambda logger: duration(logger.on_ms) if logger.on_ms else "-"),
            (Column("OUTCOME"), lambda logger: logger.fate.value),
        ],
    )


def complain(settled: Iterable[Settled], noun: str) -> ExitCode:
    """Says which loggers are not as they were, a line each on stderr; the exit code is the gravest."""
    every = list(settled)
    lost = [logger for logger in every if not logger.fate.is_settled]
    foreign = [logger for logger in every if logger.fate is Fate.FOREIGN]
    for logger in lost:
        say(f"kquota: {noun} {logger.node}: {logger.fate.value}: {logger.error or f'the level is {logger.now}'}")
    for logger in foreign:
        warn(f"{noun} {logger.node}: somebody else set the logger to {logger.now} meanwhile: it is left so")
    if lost:
        return ExitCode.UNREACHABLE if len(lost) == len(every) else ExitCode.PARTIAL
    return ExitCode.CONFLICT if foreign else ExitCode.OK
