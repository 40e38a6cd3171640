"""`kquota alter`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from kquota.cli import params, session
from kquota.cli.contexts import settled
from kquota.cli.exit_codes import ExitCode, exit_code_of
from kquota.cli.streams import note, say, warn
from kquota.cli.text import safe
from kquota.core.alteration import Alteration, AlterResult
from kquota.core.entity import Entity
from kquota.core.filter import ANY
from kquota.core.quota import QuotaKey, Value, humanize, parse_value
from kquota.errors import Conflict, InputError, Refused


@click.command("alter")
@params.entity_options
@click.option(
    "--entity",
    "entities",
    multiple=True,
    metavar="TYPE=NAME[,…]",
    shell_complete=params.completed_by("entities"),
    help="An entity as text, such as user=alice,client-id=app1 or user=<default>; repeat it to alter several.",
)
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
    help="Keys to delete.",
)
@click.option("--strict-delete", is_flag=True, help="Deleting a key that is not set is an error.")
@click.option(
    "--force",
    is_flag=True,
    help="Also set quotas on names that are most likely a mistake: 'User:alice', and '<default>' as a name.",
)
@click.option("--dry-run", is_flag=True, help="Show what would change and write nothing.")
@click.option("--wait", is_flag=True, help="Return when a describe shows the change: brokers of KRaft may lag behind.")
@params.cluster_options
@params.output_option("table", "json", "yaml", "csv")
def command(
    add_config: tuple[str, ...],
    delete_config: tuple[str, ...],
    strict_delete: bool,
    force: bool,
    dry_run: bool,
    wait: bool,
    entities: tuple[str, ...],
    file: Path | None,
    output: str,
    **options: Any,
) -> int:
    """Set and delete quotas.

    Keys: producer_byte_rate and consumer_byte_rate (bytes/s), request_percentage (% of one thread) and
    controller_mutation_rate (partitions/s) for users, clients and their pairs; connection_creation_rate
    (connections/s) for ips. Every quota holds per broker. Several entities are altered in one go; each either as a
    whole or not at all, and when some could not be, the exit code is 9.

    Through controllers (--bootstrap-controller) what was set before is not known: the report says so.

    Limits of brokers (--broker 1, or --broker-defaults for all): max.connection.creation.rate, and of one listener
    listener.name.NAME.max.connection.creation.rate, in connections/s or unlimited; through brokers only.

    \b
    Examples:
      kquota alter --user alice --add-config producer_byte_rate=10MB,consumer_byte_rate=20MiB
      kquota alter --user alice --client app1 --add-config request_percentage=50%
      kquota alter --client-defaults --delete-config producer_byte_rate
      kquota alter --ip 10.0.0.7 --add-config connection_creation_rate=20 --dry-run
      kquota alter --entity user=alice --entity user=bob --add-config request_percentage=50%
      kquota alter --file quotas.yaml
      kquota alter --broker-defaults --add-config max.connection.creation.rate=200
    """
    broker = params.selected_broker(options)
    if broker is not None:
        if entities or file is not None:
            raise click.UsageError("brokers are altered alone: no --entity or --file beside them")
        if broker is ANY:
            raise click.UsageError("--entity-name or --entity-default must be specified with each --entity-type")
        _check_changes(add_config, delete_config)
        from kquota.cli import brokers

        brokers.alter(
            broker,
            brokers.parse_additions(_items(add_config)),
            _items(delete_config),
            output,
            options,
            strict_delete=strict_delete,
            dry_run=dry_run,
            wait=wait,
        )
        return ExitCode.OK
    if file is not None:
        if entities or add_config or delete_config or params.selection(options):
            raise click.UsageError("--file says what to alter: no entity, --add-config or --delete-config beside it")
        alterations = _from_file(file)
    else:
        chosen = [Entity.parse(text) for text in entities]
        if not chosen or params.selection(options):
            chosen.append(params.selected_entity(options))
        _check_changes(add_config, delete_config)
        changes = (_additions(add_config), _deletions(delete_config))
        alterations = [Alteration(entity, *changes, strict_remove=strict_delete) for entity in chosen]
    if not force:
        _refuse_misnomers(alterations)
    options = settled(options)
    if wait and options["bootstrap_controller"]:
        raise click.UsageError("--wait asks brokers what they show: give --bootstrap-server")
    with session.open_backend(options) as backend:
        if not dry_run:
            _warn_of_freezes(backend.alter(alterations, validate_only=True))
        results = backend.alter(alterations, validate_only=dry_run)
        late = backend.wait_visible(results, timeout_s=options["timeout"]) if wait and not dry_run else ()
        absent = {
            done.entity: keys for each, done in zip(alterations, results, strict=True) if (keys := _absent(each, done))
        }
        # Of one entity that is not there, the name may be a slip; to look for that of each of many would take for ever.
        others = backend.describe() if absent and len(results) == 1 and not results[0].before else None
    if len(results) == 1 and results[0].error is not None:
        raise results[0].error
    print_results(results, output, dry_run=dry_run)
    for entity, keys in absent.items():
        note(safe(f"{entity}: not set: {', '.join(map(str, keys))}"))
        if others is not None and entity not in others:
            session.note_slips(others, dict(entity.parts))
    if late:
        raise Conflict(
            f"written, but not shown by the broker within {options['timeout']:g} s: {', '.join(map(str, late))}",
            hint="the broker lags behind, or somebody else altered it meanwhile: describe it",
        )
    return exit_code_of_results(results)


def _check_changes(add_config: tuple[str, ...], delete_config: tuple[str, ...]) -> None:
    if not add_config and not delete_config:
        raise click.UsageError("nothing to do: give --add-config KEY=VALUE or --delete-config KEY")


def _from_file(file: Path) -> list[Alteration]:
    from kquota.documents.quotas import read_quotas

    snapshot = read_quotas(file)
    session.warn_problems(snapshot)
    if not snapshot:
        raise InputError(f"{file}: no quotas in it")
    return [Alteration(entity, values) for entity, values in snapshot.items()]


def _refuse_misnomers(alterations: Iterable[Alteration]) -> None:
    """Raises Refused, before anything is read or written, for names that no client has."""
    from kquota.core.misnomer import misnomers

    found = [(alteration.entity, reason) for alteration in alterations for reason in misnomers(alteration)]
    if found:
        entity, reason = found[0]
        more = f" (and {len(found) - 1} more like it)" if len(found) > 1 else ""
        raise Refused(f"{entity}: {reason}{more}", hint="if it is meant, say --force; deleting needs none")


_LONG_FREEZE_S = 60
_FREEZING = {QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE}


def _warn_of_freezes(results: Sequence[AlterResult]) -> None:
    """Says before it happens that a busy client will stand still: it is throttled for the rate it had."""
    if any(not result.blind.isdisjoint(_FREEZING) for result in results):
        warn(
            "controllers do not tell the present limits: whether a busy client will stand still under"
            " a lower one is not known"
        )
    for result in results:
        seconds = result.longest_freeze_s
        if seconds >= _LONG_FREEZE_S:
            from kquota.cli.text import duration, entity_text

            warn(
                f"{entity_text(result.entity)}: a client that uses its present limit in full "
                f"will stand still for up to {duration(round(1000 * seconds))}"
            )


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
            raise InputError(f"{item!r}: all configs to be added must be in the format key=value")
        key = QuotaKey.parse(name.strip())
        if key in values:
            raise InputError(f"{key} is given twice")
        values[key] = parse_value(key, text)
    return values


def _deletions(texts: Iterable[str]) -> frozenset[QuotaKey]:
    return frozenset(QuotaKey.parse(item) for item in _items(texts))


_UNKNOWN = "?"
"""What was set before, where nobody could look."""
_UNUSABLE = "unusable"
"""What was set before, where it was no value."""


def print_results(results: Sequence[AlterResult], output: str, *, dry_run: bool) -> None:
    """Prints what changed, per entity and key."""
    if output in ("json", "yaml"):
        from kquota.documents.alter import alter_document
        from kquota.documents.encoding import to_json, to_yaml

        document = alter_document(results, dry_run=dry_run)
        click.echo(to_json(document) if output == "json" else to_yaml(document), nl=False)
        return
    from kquota.cli.text import Column, entity_text, print_csv, print_table

    changes = [
        (result.entity, key, _before(result, key), result.after.get(key))
        for result in results
        for key in QuotaKey
        if key in result.before
        or key in result.after
        or key in result.unusable
        or (key in result.blind and result.error is None)
    ]
    if output == "csv":
        print_csv(("entity", "key", "before", "after"), [(str(entity), *rest) for entity, *rest in changes])
        return
    different = [change for change in changes if change[2] != change[3]]
    for result in results:
        if result.error is not None:
            say(f"kquota: {entity_text(result.entity)}: {result.error}")
    if not different:
        note("nothing changes")
        return

    def shown(key: QuotaKey, value: Value | str | None) -> str:
        return "-" if value is None else value if isinstance(value, str) else humanize(key, value)

    print_table(
        [Column("ENTITY", style="cyan"), Column("KEY"), Column("BEFORE", number=True), Column("AFTER", number=True)],
        [(entity_text(entity), key, shown(key, before), shown(key, after)) for entity, key, before, after in different],
        styles=["red" if after is None else "green" if before is None else "yellow" for *_, before, after in different],
    )
    if dry_run:
        note("dry run: nothing was written")


def _before(result: AlterResult, key: QuotaKey) -> Value | str | None:
    if key in result.blind:
        return _UNKNOWN
    return _UNUSABLE if key in result.unusable else result.before.get(key)
