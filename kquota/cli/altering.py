"""The end of alter and delete: looks, asks, alters on the one road, and says what came of it."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import click

from kquota.changes import Altered, Rehearsal, alter, governing_of, place_of, rehearse
from kquota.cli import consent, leases, params, session
from kquota.cli.exit_codes import ExitCode, exit_code_of
from kquota.cli.streams import note, quiet, say, stoppable, warn
from kquota.cli.text import entity_text, first_of, safe
from kquota.cli.views import DRY_RUN, Csv, Note, Part, View, changes_table, show
from kquota.cli.writing import Terms, note_lost, terms_of
from kquota.core.change.lint import unreached
from kquota.core.change.plan import Objection
from kquota.core.change.review import Guards
from kquota.core.quotas.alteration import Alteration, AlterResult
from kquota.core.quotas.entity import DEFAULT, Entity
from kquota.core.quotas.quota import QuotaKey, Value, limit_text
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.documents.journal import Command, name_of
from kquota.documents.plan import alter_document
from kquota.errors import Conflict, KquotaError, Uncertain
from kquota.leases import Leases


def carry_out(
    alterations: Sequence[Alteration],
    writing: params.Writing,
    *,
    guards: Guards | None = None,
    everything: bool = False,
    command: Command = "alter",
    file: Path | None = None,
) -> int:
    """Alters on the one road, and says what came of it: the end of alter and delete.

    With `everything`, all keys of the entities are deleted: nothing is said of keys that were not set.
    """
    access, terms = writing.access, terms_of(writing, command, file)
    named, dry_run, expires = terms.named, writing.dry_run, terms.expires
    if writing.wait and access.bootstrap_controller:
        raise click.UsageError("--wait asks brokers what they show: give --bootstrap-server")
    if expires is not None and access.bootstrap_controller:
        raise click.UsageError("--for needs the values before, which controllers do not show: give --bootstrap-server")
    agreed: set[Objection] = set()
    shown: list[tuple[AlterResult, ...]] = []

    def note_new_names(rehearsal: Rehearsal) -> None:
        created = [change.entity for change in rehearsal.plan.changes if not change.before]
        # Whoever may read these entities alone can alter them all the same.
        with contextlib.suppress(KquotaError):
            if created and not rehearsal.blind and not quiet():
                session.note_new_names(backend.describe(), created)

    def agree(rehearsal: Rehearsal) -> None:
        note_new_names(rehearsal)
        new = [objection for objection in rehearsal.plan.objections if objection not in agreed]
        if writing.output == "table" and consent.will_ask(new, writing):
            # Who is asked sees first what it is about.
            show(altered_view(rehearsal, dry_run=False), writing.output)
            shown[:] = [rehearsal.results]
        consent.heed(new, writing, f"Alter {named} all the same?", "altered")
        agreed.update(new)
        consent.name_cluster(named)

    with session.open_backend(access) as backend:
        if dry_run:
            rehearsal = rehearse(backend, alterations, guards)
            known = leases.known_leases(terms.journal, lambda: place_of(backend))
            rehearsal = rehearsal.among(known, alterations, expires=expires)
            note_new_names(rehearsal)
            consent.rehearse(rehearsal.plan.objections, writing)
            consent.name_cluster(named)
            altered = Altered(**vars(rehearsal), leases=known)
        else:
            with consent.says_what_may_be_written() as begun:
                terms = replace(terms, begun=begun)
                # Not stoppable while somebody is asked: there, Ctrl-C means no.
                altered = alter(
                    backend, alterations, terms, consent=agree, guards=guards, writing=lambda: stoppable(terms.stop)
                )
        results = altered.results
        absent = _absent_keys(alterations, results, everything)
        # A similar name is suggested only where one entity was asked for; for many it is too slow.
        bare = absent and len(results) == 1 and not results[0].before and not results[0].after
        others = backend.describe() if bare else None
    if len(results) == 1 and results[0].error is not None and not altered.interrupted:
        if isinstance(results[0].error, Uncertain):
            _note_way_back(altered, terms)
        raise results[0].error
    if results not in shown:
        show(altered_view(altered, dry_run=dry_run), writing.output)
    if not dry_run:
        leases.warn_unread(altered.leases.unreadable, terms.journal)
    leases.note_changed(altered.kept, altered.ended, expires)
    for entity, keys in absent.items():
        what = ", ".join(map(str, keys)) if keys else "any quota"
        note(safe(f"{entity}: not set: {what}"))
        if others is not None and entity in others:
            note(safe(f"{entity} has quotas under an older name, whose znode has to be deleted ('kquota describe')"))
        elif others is not None:
            session.note_slips(others, dict(entity.parts))
            if within := [other for other in others if {*entity.parts} < {*other.parts}]:
                note(f"there are quotas of {first_of(within, entity_text, 1)}: --entity names a pair")
    changed = [result for result in results if result.error is None and result.changed]
    if not dry_run and changed:
        _note_way_back(altered, terms)
    if terms.expires is not None and (altered.kept or (changed if dry_run else altered.entries)):
        _note_end(changed, altered.leases, terms)
    return _concluded(altered, terms)


def _note_end(changed: Sequence[AlterResult], known: Leases, terms: Terms) -> None:
    """Says when the new values end, and what is there then."""
    assert terms.expires is not None
    then = [
        f"{leases.shown(key, known.beneath(result.entity, key, result.before.get(key), terms.expires))} again"
        for result in changed
        for key in result.keys
    ]
    leases.note_end(terms.expires, then, terms.writing.access, terms.journal.folder, dry_run=terms.writing.dry_run)


def _concluded(altered: Altered, terms: Terms) -> int:
    """The exit code. Raises Conflict where a value is not shown for which somebody waited."""
    if altered.unverified:
        late = ", ".join(map(str, altered.unverified))
        hint = "the broker lags behind, or somebody else altered it meanwhile: describe it"
        if terms.writing.wait and not altered.interrupted:
            raise Conflict(f"written, but not shown in time: {late}", hint=hint)
        warn(f"written, but not shown yet: {late} ({hint})")
    if altered.unfinished is not None:
        say(f"kquota: {altered.entries[-1]} stays unfinished: {altered.unfinished}")
    if altered.interrupted:
        return terms.stop.exit_code
    code = exit_code_of_results(altered.results)
    return ExitCode.OUTPUT if altered.unfinished is not None and code is ExitCode.OK else code


def _note_way_back(altered: Altered, terms: Terms) -> None:
    made = [result for result in altered.results if result.error is None]
    note_lost(made)
    if altered.entries and altered.plan.inverse:
        entries = [name_of(entry) for entry in reversed(altered.entries)]
        commands = " and ".join(params.way_back(entry, terms.writing.access, terms.journal) for entry in entries)
        note(f"{commands} take{'s' * (len(altered.entries) == 1)} it back")
    elif any(result.blind for result in made):
        note("not in the journal: 'kquota undo' cannot take back what went through a controller")


def _absent_keys(
    alterations: Sequence[Alteration], results: Sequence[AlterResult], everything: bool
) -> dict[Entity, list[QuotaKey]]:
    """The keys to delete that were not there, by entity; with `everything`, none for an entity that had no quota."""
    by_entity = {result.entity: result for result in results}
    absent: dict[Entity, list[QuotaKey]] = {}
    for alteration in alterations:
        result = by_entity[alteration.entity]
        if result.error is not None:
            continue
        there = result.before.keys() | result.blind | result.unusable
        if everything and not alteration.set:
            if not there:
                absent[alteration.entity] = []
        elif keys := [key for key in QuotaKey if key in alteration.remove - there]:
            absent[alteration.entity] = keys
    return absent


def exit_code_of_results(results: Sequence[AlterResult]) -> ExitCode:
    """OK when all were altered, PARTIAL when some were, else the code of the first error."""
    errors = [result.error for result in results if result.error is not None]
    if not errors:
        return ExitCode.OK
    return ExitCode.PARTIAL if len(errors) < len(results) else exit_code_of(errors[0])


COLUMNS = ("ENTITY", "KEY", "BEFORE", "AFTER")
"""The table of an alter, and its CSV in small letters."""


def altered_view(altered: Rehearsal, *, dry_run: bool) -> View:
    """What changed or would, per entity and key."""
    results, entries = altered.results, altered.entries if isinstance(altered, Altered) else ()
    changes = [
        (result.entity, key, _before(result, key), result.after.get(key))
        for result in results
        for key in QuotaKey
        if key in result.before
        or key in result.after
        or key in result.unusable
        or (key in result.blind and result.error is None)
    ]

    def shown(key: QuotaKey, value: Value | str | None) -> str:
        return "-" if value is None else value if isinstance(value, str) else limit_text(key, value)

    failed = [(result.entity, str(result.error)) for result in results if result.error is not None]
    errors = [Note(f"kquota: {entity_text(who)}: {why.removeprefix(f'{who}: ')}", by=say) for who, why in failed]

    def screen() -> Iterator[Part]:
        yield from errors
        rows = [
            (entity_text(entity), key, shown(key, before), shown(key, after), before, after)
            for entity, key, before, after in changes
            if before != after
        ]
        if rows or not altered.kept:
            yield from changes_table(COLUMNS, rows, dry_run=dry_run)
            yield from map(Note, _inherited(altered))
        elif dry_run:
            yield Note(DRY_RUN, by=say)

    return View(
        screen=screen,
        csv=lambda: [*errors, Csv([*map(str.lower, COLUMNS)], [(str(entity), *rest) for entity, *rest in changes])],
        document=lambda: alter_document(results, altered.plan, entries, dry_run=dry_run),
    )


_FEW = 5
"""Of more changes nobody reads a line each."""


def _inherited(altered: Rehearsal) -> Iterator[str]:
    """What the clients of an entity get by another one, where it had no value or has none any more."""
    changed = [result for result in altered.results if result.error is None and not result.blind]
    after = QuotaSnapshot({**altered.around, **{result.entity: result.after for result in changed}})
    for result in changed if len(changed) <= _FEW else ():
        for key in result.after if result.entity.user is DEFAULT and result.entity.client_id is not None else ():
            if own := unreached(entity for entity, values in after.items() if key in values):
                yield safe(f"{result.entity}: {key} does not reach {own}")
        differing = result.before.keys() ^ result.after.keys() - result.unusable
        for key in [key for key in QuotaKey if key in differing]:
            there, gone = (altered.around, after) if key in result.before else (after, altered.around)
            other = governing_of(gone, result.entity, key)
            if other.limit is not None and governing_of(there, result.entity, key).entity == result.entity:
                limit = limit_text(key, other.limit)
                when = f"is {limit} without it" if key in result.before else f"was {limit} before"
                yield safe(f"{result.entity}: {key} {when}, by {other.entity}")


def _before(result: AlterResult, key: QuotaKey) -> Value | str | None:
    """What was set before; a word where nobody could look, and where it was no value."""
    if key in result.blind:
        return "?"
    return "unusable" if key in result.unusable else result.before.get(key)


def all_keys(entity: Entity) -> frozenset[QuotaKey]:
    """Every key that the entity may have."""
    return frozenset(key for key in QuotaKey if key.allowed_for(entity))
