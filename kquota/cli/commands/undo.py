"""`kquota undo`."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace

import click

from kquota import reconcile
from kquota.backends import QuotaBackend, describe_entities
from kquota.changes import check_cluster, last_standing, place_of, to_undo, with_freezes
from kquota.cli import grammar, params, session
from kquota.cli.exit_codes import ExitCode
from kquota.cli.leases import few, named, shown
from kquota.cli.options import argument
from kquota.cli.streams import note, on_terminal, say, warn
from kquota.cli.text import age, moment, safe
from kquota.cli.views import DRY_RUN
from kquota.cli.writing import Terms, carry_out, switch_back, terms_of
from kquota.core.change.plan import Cluster, Plan, still_due
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import differ
from kquota.core.quotas.selector import QuotaFilter
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.documents.journal import Entry, Journal, Pages, name_of
from kquota.errors import Conflict, InputError, Refused
from kquota.leases import Fate, Leases
from kquota.reconcile import now
from kquota.state import usual_beside


@grammar.command("undo")
def command(
    *,
    ids: tuple[str, ...] = argument(nargs=-1, metavar="[ID]…", shell_complete=params.completed_by("journal_ids")),
    about: params.Selection = params.ENTITIES,
    writing: params.Writing = params.writing(force=None, dry_run=params.DRY_UNDO, wait=None, lasts_ms=None),
) -> int:
    """Revert an apply, an alter or a delete, or end a recording.

    ID is an entry of 'kquota history': its number or its whole ID. Several are reverted one by one, the newest first.
    Without an ID, undo reverts the last change of this cluster that is not undone yet. Right after another undo that is
    one change further back: undo asks first, and a script has to name the ID. The ID of an undo brings back what it
    reverted. The entities get the values that they had before. When one of them was changed since,
    undo reports a conflict and writes nothing. An entry that is undone already is left alone. An apply that was killed
    is reverted as far as it got. For a 'kquota record' that was killed, undo switches the request loggers back.

    --user, --client and --ip revert a part of an entry: the values of these users with their pairs, client-ids or ips.
    Without an ID, that is the last change that is about them. The rest of the entry can be reverted later.

    \b
    Examples:
      kquota undo --bootstrap-server localhost:9092
      kquota undo 24
      kquota undo 20260131T120000Z-3f2a91c0d4e5-782c-24 --yes
      kquota undo 24 25 --yes
      kquota undo 24 --user alice --dry-run
    """
    if len(ids) > 1 and writing.output == "json":
        raise click.UsageError("-o json is for one ID")
    if len(ids) > 1 and writing.dry_run:
        # The plan of the second depends on what the first leaves.
        raise click.UsageError("--dry-run is for one ID")
    terms = terms_of(writing, "undo")
    pages = terms.journal.read()
    session.warn_unreadable(pages)
    with session.open_backend(writing.access) as backend:
        here = place_of(backend)
        meant = about.covers if about else None
        entries = {entry.id: entry for entry in (to_undo(pages, id, here, meant) for id in ids or (None,))}
        if not ids:
            _heed_newer(next(iter(entries.values())), here, terms, meant)
            _heed_repeated(next(iter(entries.values())), pages, here, terms, about)
        order = {entry.id: place for place, entry in enumerate(pages.entries)}
        for entry in sorted(entries.values(), key=lambda entry: order[entry.id], reverse=True):
            if terms.stop():
                say(f"stopped: entry {entry.name} is not undone, nor what comes after it")
                return terms.stop.exit_code
            if entry.levels:
                if about:
                    raise InputError(f"entry {entry.name} switched request loggers on, and changed no quotas")
                code = switch_back(entry, terms)
            else:
                of_entry = replace(terms, cluster=entry.cluster, undoes=entry.id)
                code = take_back(entry, pages, backend, of_entry, about)
            if code != ExitCode.OK:
                return code
            pages = terms.journal.read()
    if writing.dry_run:
        say(DRY_RUN)
    return ExitCode.OK


def _heed_repeated(entry: Entry, pages: Pages, here: Cluster, terms: Terms, about: params.Selection) -> None:
    """Says that an undo without an ID, right after an undo, goes further back. Raises Refused where nobody is asked.

    Whoever repeats a command that seemed to do nothing wants no second change reverted.
    """
    writes = reversed([write for write in pages.of(here) if write.may_have_changed])
    last = next(write for write in writes if not about or any(about.covers(one.entity) for one in write.made.changes))
    if last.command != "undo" or last.undoes in (None, entry.id):
        return
    undone = f"entry {name_of(str(last.undoes))}"
    message = f"the last write, entry {last.name}, was an undo of {undone}; one more goes further back"
    again = params.way_back(last.name, terms.writing.access, terms.journal)
    _heed(message, entry, terms, f"{again} brings {undone} back")


def _heed_newer(entry: Entry, here: Cluster, terms: Terms, about: Callable[[Entity], bool] | None) -> None:
    """As for a repeated undo, where a newer write is in this user's usual journal: the drop-in's, for one."""
    usual = usual_beside(terms.journal.folder)
    if usual is None:
        return
    book = Journal(usual)
    try:
        pages = book.read(name for name in book.names() if name[:16] >= entry.id[:16])  # they begin with the time
    except InputError as error:
        warn(f"{safe(error.message)}: it is not known whether it has a newer write")
        return
    session.warn_unreadable(pages)
    with contextlib.suppress(InputError):  # nothing stands there
        last = last_standing(pages, here, about)
        if last.started > entry.started:
            where = f"{_described(last, now())}, is in the journal {usual}; an undo here goes further back"
            command = f"'kquota undo {last.name}{params.there(terms.writing.access, usual)}'"
            _heed(f"the last write, {where}", entry, terms, f"{command} reverts the last one")


def _heed(message: str, entry: Entry, terms: Terms, other: str) -> None:
    if terms.writing.dry_run or (not terms.writing.yes and on_terminal()):
        say(message)
        return
    meant = params.way_back(entry.name, terms.writing.access, terms.journal)
    raise Refused(f"refused: {message}, to {_described(entry, now())}", hint=f"{meant} if you mean it; {other}")


def take_back(entry: Entry, pages: Pages, backend: QuotaBackend, terms: Terms, about: params.Selection) -> int:
    """Applies the way back of an entry, or of a part of it, as far as it is due; returns the exit code.

    What was there may be there again: of the review, the freezes alone are said. Raises Conflict, naming who changed an
    entity since, before anything is asked.
    """
    by = pages.undone_by(entry) if entry.id in pages.undone else ()
    if by:
        last = f"entry {by[-1].name} at {moment(by[-1].started)} UTC"
        parts = f"parts by {' and '.join(undo.name for undo in by[:-1])}, the rest by " if len(by) > 1 else "by "
        say(f"entry {entry.name} is undone already, {parts}{last}: nothing is done")
        return carry_out(Plan(()), backend, terms, {}) if terms.writing.output == "json" else ExitCode.OK
    note(f"undo of {_described(entry, now())}")
    back = pages.way_back(entry)
    check_cluster(back, backend)
    if about:
        entities = [change.entity for change in back.changes]
        wanted = {entity: QuotaFilter(dict(entity.parts)) for entity in about.entities()}
        if missing := [str(entity) for entity, filter in wanted.items() if not any(map(filter.matches, entities))]:
            raise InputError(
                f"entry {entry.name} has no value to revert for {' and '.join(missing)}",
                hint=f"'kquota history {entry.name}' shows its values",
            )
        chosen = tuple(change for change in back.changes if about.covers(change.entity))
        if len(chosen) < len(back.changes):
            terms = replace(terms, part=tuple((change.entity, change.keys) for change in chosen))
            back = replace(back, changes=chosen)
    _warn_of_leases(back, entry, Leases.of(pages.of(place_of(backend))), about)
    current = describe_entities(backend, [change.entity for change in back.changes])
    _check_values(entry, back, pages, current)
    already = {change.entity for change in back.changes if change.is_made(current.get(change.entity, {}))}
    if len(already) == len(back.changes) and not terms.writing.dry_run:
        # Also where it was no value, which is not restored: the journal knows from now on that nothing is left.
        reconcile.apply(replace(back, changes=()), backend, terms)
    return carry_out(with_freezes(back, backend), backend, terms, {}, already=already)


def _warn_of_leases(back: Plan, entry: Entry, leases: Leases, about: params.Selection) -> None:
    """Says what an undo of the entry does not bring back: the leases that it ended, and the ends that it moved."""
    values = {(change.entity, key): change.after.get(key) for change in back.changes for key in change.keys}

    def lines() -> Iterator[str]:
        for lease in (lease for lease in leases.all if not about or about.covers(lease.entity)):
            place = lease.entity, lease.key
            is_back = not differ(values[place], lease.value) if place in values else lease.fate is Fate.PERMANENT
            if lease.is_on and lease.moved == entry:
                yield f"{named(lease)} still ends {moment(lease.ends)} UTC"
            elif lease.by == entry and is_back:
                yield f"{named(lease)} {shown(lease.key, lease.value)} has no end then: an undo begins no lease anew"

    for line in few(lines()):
        warn(line)


def _described(entry: Entry, now: int) -> str:
    """Which entry it is, for a person who is about to say yes: its number, command, time and author."""
    ago = age(max(now - entry.started, 0) // 1000)
    by = "" if entry.by is None else f", by {entry.by}"
    why = "" if entry.message is None else f": {entry.message}"
    return safe(f"entry {entry.name}: {entry.command} of {moment(entry.started)} UTC, {ago} ago{by}{why}")


def _check_values(entry: Entry, back: Plan, pages: Pages, current: QuotaSnapshot) -> None:
    """Raises Conflict where a value is neither as the entry left it nor as it was before, and says who set it."""
    _, conflicts = still_due(back, current)
    for change in back.changes:
        values = current.get(change.entity, {})
        for key in change.unexpected_in(values) if change.entity in conflicts else ():
            value = values.get(key)
            what = f"{change.entity} {key} is {shown(key, value)} and not {shown(key, change.before.get(key))}"
            setter = pages.setter(change.entity, key, value, entry)
            if setter is None:
                raise Conflict(f"{what}: somebody else set it since", hint="look at it, and alter it by hand")
            raise Conflict(
                f"{what}: entry {setter.name} set it since", hint=f"undo that first: 'kquota undo {setter.name}'"
            )
