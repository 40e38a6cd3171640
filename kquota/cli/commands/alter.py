"""`kquota alter`."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from kquota.cli import brokers, grammar, params, session
from kquota.cli.altering import all_keys, carry_out
from kquota.cli.exit_codes import ExitCode
from kquota.cli.options import flag, path, values
from kquota.cli.streams import note
from kquota.core.change.broker import Broker
from kquota.core.change.review import Guards
from kquota.core.quotas.alteration import Alteration, values_of
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey
from kquota.core.quotas.selector import ANY, selected
from kquota.core.quotas.selector import Any as AnyName
from kquota.errors import InputError


@grammar.command("alter")
def command(
    *,
    selection: params.Selection = params.ENTITIES,
    file: Path | None = path(
        "Set what a quotas file (as 'kquota describe -o yaml' prints it) says, for all its entities."
    ),
    add_config: tuple[str, ...] = values(
        "KEY=VALUE[,…]",
        "Values to set; units are understood: 10MB, 10MiB, 50%; unlimited lifts a limit.",
        shell_complete=params.completed_by("additions"),
    ),
    delete_config: tuple[str, ...] = values(
        "KEY[,…]", "Keys to delete; all: every one that is set.", shell_complete=params.completed_by("deletions")
    ),
    strict_delete: bool = flag("It is an error to delete a key that is not set; with all, where none is set."),
    writing: params.Writing = params.ALTERING,
) -> int:
    """Set and delete quotas.

    Keys: producer_byte_rate and consumer_byte_rate (bytes/s), request_percentage (% of one thread) and
    controller_mutation_rate (partitions/s) for users, clients and their pairs; connection_creation_rate
    (connections/s) for ips. Each broker enforces a quota by itself, but the controller enforces
    controller_mutation_rate. Several entities are altered in one go. An entity is altered as a whole or not at all. The
    exit code is 9 when some entities were altered and others were not.

    Every alter is reviewed first, as a plan is ('kquota help review'). The review warns, asks or refuses: for example
    about the name User:alice, or a limit so low that busy clients are blocked. A new name that is nearly the name of
    another quota is named. The journal then keeps the way back: 'kquota undo' reverts the alter. Controllers
    (--bootstrap-controller) do not show the values before, so an alter through them has no undo.

    With --for TIME, 'kquota reconcile' reverts the alter when the time is over. It has to read the same journal. The
    same alter with another --for moves the end, and without --for it makes the value permanent. Another value without
    --for ends the lease as well ('kquota help temporary').

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
      kquota alter --file quotas.yaml
      kquota alter --broker-defaults --add-config max.connection.creation.rate=200
    """
    if selection.broker is not None:
        if file is not None:
            raise click.UsageError("brokers are altered alone: no --file beside them")
        _alter_broker(selection.broker, add_config, delete_config, writing, strict=strict_delete)
        return ExitCode.OK
    guards, everything = None, False
    if file is not None:
        if add_config or delete_config or selection:
            raise click.UsageError("--file says what to alter: no entity, --add-config or --delete-config beside it")
        alterations, guards = _from_file(file)
    else:
        chosen = selection.entities()
        _check_changes(add_config, delete_config)
        for option, lists in (("--add-config", add_config), ("--delete-config", delete_config)):
            if len(chosen) > 1 and len(lists) > 1:
                raise click.UsageError(
                    f"each {option} would be for every entity; give one list for all, as {option} {','.join(lists)},"
                    " or different values by --file"
                )
        additions = values_of(_additions(add_config))
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
    return carry_out(alterations, writing, guards=guards, everything=everything, file=file)


def _alter_broker(
    broker: Broker | AnyName, adding: Sequence[str], deleting: Sequence[str], writing: params.Writing, *, strict: bool
) -> None:
    if broker is ANY:
        raise click.UsageError("--entity-name or --entity-default must be specified with each --entity-type")
    _check_changes(adding, deleting)
    if writing.lasts_ms is not None:
        raise click.UsageError("--for needs the journal, and limits of brokers are not in it")
    brokers.alter(broker, _additions(adding), _items(deleting), writing, strict_delete=strict)


def _check_changes(adding: Sequence[str], deleting: Sequence[str]) -> None:
    if not adding and not deleting:
        raise click.UsageError("nothing to do: give --add-config KEY=VALUE or --delete-config KEY")


def _from_file(file: Path) -> tuple[list[Alteration], Guards]:
    """What a quotas file sets, and the guards that it asks for. What it calls unmanaged is left as it is."""
    quota_file = session.load_quota_file(file, None)
    if quota_file.clusters:
        note(f"{file}: no overlay of its clusters is used: 'kquota apply {file} --cluster NAME' uses one")
    managed = [
        Alteration(entity, values)
        for entity, values in quota_file.snapshot.items()
        if selected(entity, quota_file.unmanaged) is None
    ]
    if unmanaged := len(quota_file.snapshot) - len(managed):
        note(f"{unmanaged} unmanaged left as they are")
    if not managed:
        raise InputError(f"{file}: no quotas in it to set")
    return managed, quota_file.guards


def _items(texts: Iterable[str]) -> list[str]:
    """The items of comma-separated lists. A trailing comma is harmless, an empty item between commas is not."""
    items = [item.strip() for text in texts for item in text.strip().removesuffix(",").split(",")]
    if "" in items:
        raise InputError("an empty item between commas", hint="KEY=VALUE[,KEY=VALUE…], without thousands separators")
    return items


def _additions(texts: Iterable[str]) -> dict[str, str]:
    """KEY=VALUE items as texts by key. Raises InputError for another form and for a key given twice."""
    values: dict[str, str] = {}
    for item in _items(texts):
        name, separator, text = (part.strip() for part in item.partition("="))
        if not separator:
            hint = "a number has no commas: 1000000, or 1.5MB" if values and re.match(r"\d", item) else None
            raise InputError(f"{item!r}: all configs to be added must be in the format key=value", hint=hint)
        if name in values:
            raise InputError(f"{name} is given twice")
        values[name] = text
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
