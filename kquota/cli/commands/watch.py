"""`kquota watch`."""

import itertools
import math
import time
from collections.abc import Callable, Iterator

import click

from kquota.access import Access
from kquota.cli import grammar, params, session
from kquota.cli.options import count, fine_duration, lasting
from kquota.cli.streams import note, reader_is_gone, say
from kquota.cli.text import MARKS, entity_text
from kquota.cli.views import View, show, shown_as
from kquota.core.change.plan import Change, plan
from kquota.core.quotas.quota import QuotaKey, limit_text
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.documents.clusters import change_document
from kquota.documents.derive import utc
from kquota.errors import KquotaError, Unauthorized
from kquota.reconcile import now

_TURN_S = 0.5
"""The longest wait in one piece: in between, a reader that left is noticed. Also the pause before trying again."""


@grammar.command("watch")
@shown_as("text", "json", takes_output=True)
def command(
    *,
    interval: int = lasting("How often the cluster is asked.", type=fine_duration, default="1s"),
    count: int | None = count("End after N lines."),
    for_ms: int | None = lasting("End after that time, such as 30m or 2h.", "--for"),
    access: Access = params.ACCESS,
    output: str,
) -> None:
    """Follow the changes of quotas.

    Prints a line for every key that is set, changed or deleted from now on: the time (in UTC), the entity, the key, and
    the value before and after. The cluster is asked every --interval. When it is lost, watch tries again until it
    answers, and prints the changes of the time between.

    Ctrl-C ends it with exit code 130. --count and --for end it with exit code 0, and so does the end of the program
    that reads its output. -o json prints a document a line.

    \b
    Examples:
      kquota watch --zookeeper localhost:2181
      kquota watch --bootstrap-server localhost:9092 --interval 5s
      kquota watch --for 1h -o json >> changes.jsonl
      kquota watch --count 1 && notify-send 'quotas have changed'
    """
    if interval < 100:
        raise click.UsageError("--interval is at least 100ms")
    end = math.inf if for_ms is None else time.monotonic() + for_ms / 1000
    with session.open_backend(access) as backend:
        snapshot = backend.describe()
        session.warn_problems(snapshot.problems)
        count_text = "1 entity" if len(snapshot) == 1 else f"{len(snapshot)} entities"
        note(f"watching {session.cluster_name(access)} ({count_text}); looking every {interval / 1000:g} s")
        changes = changes_of(backend.describe, snapshot, interval / 1000, end)
        seen = ((now(), change, key) for change, key in changes)
        show(changes_view(itertools.islice(seen, count)), output)


def changes_of(
    read: Callable[[], QuotaSnapshot], before: QuotaSnapshot, interval_s: float, end: float
) -> Iterator[tuple[Change, QuotaKey]]:
    """Every key that changes, until the end (of the monotonic clock). Raises Unauthorized.

    Each reading is compared with the one before, through any other error: what comes and goes in between is not seen.
    Ends as well when nobody reads the changes any more.
    """
    lost, due = False, time.monotonic() + interval_s
    while (begun := time.monotonic()) < end and not reader_is_gone():
        if begun < due:
            time.sleep(min(due - begun, end - begun, _TURN_S))
            continue
        try:
            after = read()
        except Unauthorized:
            raise
        except KquotaError as error:
            if not lost:
                say(f"kquota: {error.message}; trying again")
            lost, due = True, time.monotonic() + _TURN_S
            continue
        if lost:
            note("kquota: connected again")
        lost, due = False, begun + interval_s
        for change in plan(before, after, prune=True).changes:
            for key in change.keys:
                yield change, key
        before = after


def changes_view(seen: Iterator[tuple[int, Change, QuotaKey]]) -> View:
    """Keys of changes, each with the time when it was seen, in watch's formats; each is printed as it comes."""

    def line(time_ms: int, change: Change, key: QuotaKey) -> str:
        before, after = (values.get(key) for values in (change.before, change.after))
        mark, colour = MARKS["create" if before is None else "delete" if after is None else "update"]
        texts = ["-" if value is None else limit_text(key, value) for value in (before, after)]
        text = f"{mark} {entity_text(change.entity)}  {key}  {texts[0]} -> {texts[1]}"
        return f"{utc(time_ms)}  {click.style(text, fg=colour)}"

    return View(screen=lambda: itertools.starmap(line, seen), document=lambda: itertools.starmap(change_document, seen))
