"""`kquota alter`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click

from kquota.access import Access
from kquota.backends import describe_entities
from kquota.changes import Altered, Rehearsal, alter, place_of, rehearse
from kquota.cli import brokers, consent, grammar, leases, params, session
from kquota.cli.commands.apply import says_what_may_be_written
from kquota.cli.contexts import Given
from kquota.cli.exit_codes import ExitCode, exit_code_of
from kquota.cli.leases import known_leases
from kquota.cli.streams import Stop, note, say, stoppable, warn
from kquota.cli.text import entity_text, safe
from kquota.cli.views import DRY_RUN, Csv, Document, Note, Part, View, changes_table, check_sorting, show
from kquota.core.change.broker import Broker
from kquota.core.change.plan import Objection
from kquota.core.change.review import Guards
from kquota.core.quotas.alteration import Alteration, AlterResult
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.filter import ANY
from kquota.core.quotas.filter import Any as AnyName
from kquota.core.quotas.quota import QuotaKey, Value, humanize, parse_value
from kquota.core.quotas.selector import selected
from kquota.documents.alter import alter_document
from kquota.documents.journal import Command, Entry, Journal, name_of
from kquota.documents.quotas import read_quota_file
from kquota.errors import Conflict, InputError, Uncertain
from kquota.leases import kept
from kquota.reconcile import Terms, now


@click.command("alter", cls=grammar.Command)
@params.entity_options
@click.option(
    "--file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Set what a quotas file (as 'kquota describe -o yaml' prints it) says, for all its entities.",
)
@click.option(
    "--add-config",
    multiple=True,
    metavar="KEY=VALUE[,…]",
    shell_complete=params.completed_by("additions"),
    help="Values to set; units are understood: 10MB, 10MiB, 50%.",
)
@click.option(
    "--delete-config",
    multiple=True,
    metavar="KEY[,…]",
    shell_complete=params.completed_by("deletions"),
    help="Keys to delete; all: every one that is set.",
)
@click.option(
    "--strict-delete", is_flag=True, help="It is an error to delete a key that is not set; with all, where none is set."
)
@params.alter_options
def command(
    selection: params.Selection,
    add_config: tuple[str, ...],
    delete_config: tuple[str, ...],
    strict_delete: bool,
    file: Path | None,
    given: Given,
    writing: params.Writing,
) -> int:
    """Set and delete quotas.

    Keys: producer_byte_rate and consumer_byte_rate (bytes/s), request_percentage (% of one thread) and
    controller_mutation_rate (partitions/s) for users, clients and their pairs; connection_creation_rate
    (connections/s) for ips. Every quota holds per broker. Several entities are altered in one go. An entity is altered
    as a whole or not at all. The exit code is 9 when some entities were altered and others were not.

    Every alter is reviewed first, as a plan is ('kquota help review'). The review warns, asks or refuses: for example
    about the name User:alice, or a limit so low that busy clients are blocked. It does not compare a new name with the
    names of other quotas. The journal then keeps the way back: 'kquota undo' reverts the alter. Controllers
    (--bootstrap-controller) do not show the values before, so an alter through them has no undo.

    With --for TIME, 'kquota reconcile' reverts the alter when the time is over. It has to read the same journal. The
    same alter with another --for moves the end, and without --for it makes the value permanent. --for TIME alone moves
    the ends of all such values of the entity. Another value without --for ends the lease as well ('kquota help
    temporary').

    A repeated --user, --client or --ip means all of them. Of pairs, one side may be repeated; for others, name each
    with --entity. All entities of one alter get the same values; --file sets different ones.

    Limits of brokers (--broker 1, or --broker-defaults for all): max.connection.creation.rate, and of one listener
    listener.name.NAME.max.connection.creation.rate, in connections/s or unlimited; through brokers only, and without
    a journal.

    \b
    Examples:
      kquota alter --user alice --add-config producer_byte_rate=10MB,consumer_byte_rate=20MiB
      kquota alter --user alice --client app1 --add-config request_percentage=50%
      kquota alter --client-defaults --delete-config producer_byte_rate
      kquota alter --user alice --user bob --delete-config all
      kquota alter --ip 10.0.0.7 --add-config connection_creation_rate=20 --dry-run
      kquota alter --entity user=alice --entity user=bob --add-config request_percentage=50%
      kquota alter --user alice --add-config producer_byte_rate=40MB --for 2h
      kquota alter --user alice --for 3h
      kquota alter --file quotas.yaml
      kquota alter --broker-defaults --add-config max.connection.creation.rate=200
    """
    if selection.broker is not None:
        if file is not None:
            raise click.UsageError("brokers are altered alone: no --file beside them")
        _alter_broker(selection.broker, add_config, delete_config, given, writing, strict_delete=strict_delete)
        return ExitCode.OK
    guards, everything = None, False
    if file is not None:
        if add_config or delete_config or selection:
            raise click.UsageError("--file says what to alter: no entity, --add-config or --delete-config beside it")
        alterations, guards = _from_file(file)
    else:
        chosen = selection.entities()
        if writing.lasts_ms is not None and not add_config and not delete_config:
            return carry_out(_prolonged(chosen, given.access(), writing.journal), given.access(), writing)
        _check_changes(add_config, delete_config)
        for option, lists in (("--add-config", add_config), ("--delete-config", delete_config)):
            if len(chosen) > 1 and len(lists) > 1:
                raise click.UsageError(
                    f"each {option} would be for every entity; give one list for all, as {option} {','.join(lists)},"
                    " or different values by --file"
                )
        additions = _additions(add_config)
        everything = _ALL in _items(delete_config)
        alterations = [
            Alteration(
                entity,
                additions,
                _deletions(delete_config, entity),
                strict_remove=strict_delete and not everything,
                strict_any=strict_delete and everything,
            )
            for entity in chosen
        ]
    return carry_out(alterations, given.access(), writing, guards=guards, everything=everything, file=file)


def _prolonged(entities: Sequence[Entity], access: Access, journal: Path) -> list[Alteration]:
    """The alterations that wish the leased values of entities once more. Raises InputError where one has none."""
    if access.bootstrap_controller:
        raise click.UsageError("--for needs the values before, which controllers do not show: give --bootstrap-server")
    with session.open_backend(access) as backend:
        current = describe_entities(backend, entities)
        leases = known_leases(Journal(journal), lambda: place_of(backend))
    leased = dict(kept(leases.kept_by_quotas(current, current, prune=True)))
    missing = [entity_text(entity) for entity in dict.fromkeys(entities) if entity not in leased]
    if missing:
        raise InputError(
            f"no value of {' and '.join(missing)} has an end in the journal {safe(journal)}: --for alone moves none",
            hint="set one: --add-config KEY=VALUE --for TIME; 'kquota history --leases' lists the values that end",
        )
    alterations = []
    for entity in dict.fromkeys(entities):
        values = current.get(entity, {})
        here = {key: values[key] for key in leased[entity] if key in values}
        gone = frozenset(key for key in leased[entity] if key not in values)
        # A value that somebody changes meanwhile is not set back.
        alterations.append(Alteration(entity, here, gone, expect=values, relative=True))
    return alterations


def carry_out(
    alterations: Sequence[Alteration],
    access: Access,
    writing: params.Writing,
    *,
    guards: Guards | None = None,
    everything: bool = False,
    command: Command = "alter",
    file: Path | None = None,
) -> int:
    """Alters on the one road, and says what came of it: the end of alter and delete.

    With `everything`, all keys of the entities are deleted, so that it says nothing of those that were not set.
    """
    check_sorting(COLUMNS)
    named = session.label(access)
    book = Journal(writing.journal) if writing.dry_run else params.open_journal(writing.journal, access, file)
    dry_run, wait = writing.dry_run, writing.wait
    if wait and access.bootstrap_controller:
        raise click.UsageError("--wait asks brokers what they show: give --bootstrap-server")
    if writing.lasts_ms is not None and access.bootstrap_controller:
        raise click.UsageError("--for needs the values before, which controllers do not show: give --bootstrap-server")
    expires = None if writing.lasts_ms is None else now() + writing.lasts_ms
    agreed: set[Objection] = set()
    rounds: list[Rehearsal] = []

    shown: list[tuple[AlterResult, ...]] = []

    def agree(rehearsal: Rehearsal) -> None:
        new = [each for each in rehearsal.plan.objections if each not in agreed]
        if writing.output == "table" and consent.will_ask(new, yes=writing.yes, force=writing.force):
            # Who is asked sees first what it is about.
            show(altered_view(Altered(rehearsal.results, kept=rehearsal.kept), dry_run=False), writing.output)
            shown[:] = [rehearsal.results]
        consent.heed(
            new,
            yes=writing.yes,
            force=writing.force,
            question=f"Alter {named} all the same?",
            done="altered",
        )
        agreed.update(new)
        if not rounds:
            consent.name_cluster(named)
        rounds.append(rehearsal)

    begun: list[Entry] = []
    stop = Stop()
    terms = Terms(
        journal=book,
        cluster=session.cluster_name(access),
        command=command,
        expires=expires,
        stop=stop,
        begun=begun.append,
    )

    with session.open_backend(access) as backend:
        if dry_run:
            rehearsal = rehearse(backend, alterations, guards)
            known = leases.known_leases(book, lambda: place_of(backend))
            rehearsal = rehearsal.among(known, alterations, expires=expires)
            consent.rehearse(rehearsal.plan.objections, yes=writing.yes, force=writing.force)
            consent.name_cluster(named)
            altered = Altered(
                rehearsal.results, plan=rehearsal.plan, kept=rehearsal.kept, ended=rehearsal.ended, leases=known
            )
        else:
            with says_what_may_be_written(begun):
                # Not stoppable while somebody is asked: there, Ctrl-C means no.
                altered = alter(
                    backend, alterations, terms, consent=agree, guards=guards, writing=lambda: stoppable(stop)
                )
        results = altered.results
        absent = _absent_keys(alterations, results, everything)
        # Of one entity that is not there, the name may be a slip; to look for that of each of many would take for ever.
        others = backend.describe() if absent and len(results) == 1 and not results[0].before else None
    if len(results) == 1 and results[0].error is not None and not altered.interrupted:
        if isinstance(results[0].error, Uncertain):
            _note_way_back(altered, access)
        raise results[0].error
    if results not in shown:
        show(altered_view(altered, dry_run=dry_run), writing.output)
    if not dry_run:
        leases.warn_unread(altered.leases.unreadable, book)
    leases.note_kept_and_ended(altered.kept, altered.ended, expires, dry_run=dry_run)
    for entity, keys in absent.items():
        what = ", ".join(map(str, keys)) if keys else "any quota"
        note(safe(f"{entity}: not set: {what}"))
        if others is not None and entity not in others:
            session.note_slips(others, dict(entity.parts))
    changed = [result for result in results if result.error is None and result.changed]
    if not dry_run and changed:
        _note_way_back(altered, access)
    if expires is not None and (altered.kept or (changed if dry_run else altered.entries)):
        then = [
            f"{leases.shown(key, altered.leases.beneath(result.entity, key, result.before.get(key), expires))} again"
            for result in changed
            for key in QuotaKey
            if result.before.get(key) != result.after.get(key)
        ]
        leases.note_end(expires, then, access, writing.journal, dry_run=dry_run)
    if altered.unverified:
        late = ", ".join(map(str, altered.unverified))
        hint = "the broker lags behind, or somebody else altered it meanwhile: describe it"
        if wait and not altered.interrupted:
            raise Conflict(f"written, but not shown in time: {late}", hint=hint)
        warn(f"written, but not shown yet: {late} ({hint})")
    if altered.unfinished is not None:
        say(f"kquota: {altered.entries[-1]} stays unfinished: {altered.unfinished}")
    if altered.interrupted:
        return stop.exit_code
    code = exit_code_of_results(results)
    return ExitCode.OUTPUT if altered.unfinished is not None and code is ExitCode.OK else code


def _note_way_back(altered: Altered, access: Access) -> None:
    made = [result for result in altered.results if result.error is None]
    lost = [f"{result.entity} {key}" for result in made for key in QuotaKey if key in result.unusable]
    if lost:
        note(f"'kquota undo' does not restore values that were not valid: {', '.join(lost)}")
    if altered.entries and (altered.plan is None or altered.plan.inverse):
        commands = " and ".join(
            f"'kquota undo {name_of(entry)}{params.there(access)}'" for entry in reversed(altered.entries)
        )
        note(f"{commands} takes it back")
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
        keys = _absent(alteration, result)
        if everything and not alteration.set:
            if result.error is None and not (result.before or result.blind or result.unusable):
                absent[alteration.entity] = []
        elif keys:
            absent[alteration.entity] = keys
    return absent


def _alter_broker(
    broker: Broker | AnyName,
    add_config: tuple[str, ...],
    delete_config: tuple[str, ...],
    given: Given,
    writing: params.Writing,
    *,
    strict_delete: bool,
) -> None:
    if broker is ANY:
        raise click.UsageError("--entity-name or --entity-default must be specified with each --entity-type")
    _check_changes(add_config, delete_config)
    if writing.lasts_ms is not None:
        raise click.UsageError("--for needs the journal, and limits of brokers are not in it")
    brokers.alter(
        broker,
        brokers.parse_additions(_items(add_config)),
        _items(delete_config),
        given.access(),
        writing,
        strict_delete=strict_delete,
    )


def _check_changes(add_config: tuple[str, ...], delete_config: tuple[str, ...]) -> None:
    if not add_config and not delete_config:
        raise click.UsageError("nothing to do: give --add-config KEY=VALUE or --delete-config KEY")


def _from_file(file: Path) -> tuple[list[Alteration], Guards]:
    """What a quotas file sets, and the guards that it asks for. What it calls unmanaged is left as it is."""
    quota_file = read_quota_file(file)
    session.warn_problems(quota_file)
    managed = [
        Alteration(entity, values)
        for entity, values in quota_file.snapshot.items()
        if selected(entity, quota_file.unmanaged) is None
    ]
    if not managed:
        raise InputError(f"{file}: no quotas in it")
    usual = Guards()
    return managed, quota_file.guards(usual.most_deleted, usual.most_changed)


def _absent(alteration: Alteration, result: AlterResult) -> list[QuotaKey]:
    """The keys to delete that were not there."""
    if result.error is not None:
        return []
    there = result.before.keys() | result.blind | result.unusable
    return [key for key in QuotaKey if key in alteration.remove - there]


def exit_code_of_results(results: Sequence[AlterResult]) -> ExitCode:
    """OK when all were altered, PARTIAL when some were, else the code of the first error."""
    errors = [result.error for result in results if result.error is not None]
    if not errors:
        return ExitCode.OK
    return ExitCode.PARTIAL if len(errors) < len(results) else exit_code_of(errors[0])


def _items(texts: Iterable[str]) -> list[str]:
    """The items of comma-separated lists. A trailing comma is harmless, an empty item between commas is not."""
    items = [item.strip() for text in texts for item in text.strip().removesuffix(",").split(",")]
    if "" in items:
        raise InputError("an empty item between commas", hint="KEY=VALUE[,KEY=VALUE…], without thousands separators")
    return items


def _additions(texts: Iterable[str]) -> dict[QuotaKey, Value]:
    values: dict[QuotaKey, Value] = {}
    for item in _items(texts):
        name, separator, text = item.partition("=")
        if not separator:
            hint = (
                "a number has no commas: 1000000, or 1MB" if values and re.fullmatch(r"\d{3}", item.strip()) else None
            )
            raise InputError(f"{item!r}: all configs to be added must be in the format key=value", hint=hint)
        key = QuotaKey.parse(name.strip())
        if key in values:
            raise InputError(f"{key} is given twice")
        values[key] = parse_value(key, text)
    return values


_ALL = "all"
"""Among keys to delete: every key that the entity may have."""


def _deletions(texts: Iterable[str], entity: Entity) -> frozenset[QuotaKey]:
    items = _items(texts)
    if _ALL in items:
        if len(items) > 1:
            raise InputError(f"'{_ALL}' deletes every key: name no other beside it")
        return all_keys(entity)
    return frozenset(map(QuotaKey.parse, items))


def all_keys(entity: Entity) -> frozenset[QuotaKey]:
    """Every key that the entity may have."""
    return frozenset(key for key in QuotaKey if key.allowed_for(entity))


_UNKNOWN = "?"
"""What was set before, where nobody could look."""
_UNUSABLE = "unusable"
"""What was set before, where it was no value."""


COLUMNS = ("ENTITY", "KEY", "BEFORE", "AFTER")
"""The table of an alter, and its CSV in small letters."""


def altered_view(altered: Altered, *, dry_run: bool) -> View:
    """What changed, per entity and key."""
    results = altered.results

    def document() -> Document:
        return alter_document(
            results,
            dry_run=dry_run,
            objections=() if altered.plan is None else altered.plan.objections,
            cluster=None if altered.plan is None else altered.plan.cluster,
            journal=altered.entries,
        )

    changes = [
        (result.entity, key, _before(result, key), result.after.get(key))
        for result in results
        for key in QuotaKey
        if key in result.before
        or key in result.after
        or key in result.unusable
        or (key in result.blind and result.error is None)
    ]

    def csv() -> Csv:
        return Csv([name.lower() for name in COLUMNS], [(str(entity), *rest) for entity, *rest in changes])

    def shown(key: QuotaKey, value: Value | str | None) -> str:
        return "-" if value is None else value if isinstance(value, str) else humanize(key, value)

    def screen() -> Iterator[Part]:
        for result in results:
            if result.error is not None:
                yield Note(f"kquota: {entity_text(result.entity)}: {result.error}", by=say)
        rows = [
            (entity_text(entity), key, shown(key, before), shown(key, after), before, after)
            for entity, key, before, after in changes
            if before != after
        ]
        if rows or not altered.kept:
            yield from changes_table(COLUMNS, rows, dry_run=dry_run)
        elif dry_run:
            yield Note(DRY_RUN, by=say)

    return View(screen=screen, document=document, csv=csv)


def _before(result: AlterResult, key: QuotaKey) -> Value | str | None:
    if key in result.blind:
        return _UNKNOWN
    return _UNUSABLE if key in result.unusable else result.before.get(key)
