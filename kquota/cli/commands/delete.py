"""`kquota delete`."""

from __future__ import annotations

from typing import Any

import click

from kquota.cli import params
from kquota.core.quotas.alteration import Alteration
from kquota.core.quotas.entity import Entity


@click.command("delete")
@params.entity_options
@params.entity_text_option
@params.alter_options
def command(entities: tuple[str, ...], **options: Any) -> int:
    """Delete all quotas of entities.

    The same as 'kquota alter --delete-config all': what an entity has besides quotas stays, such as SCRAM credentials,
    and 'kquota undo' takes it back.

    \b
    Examples:
      kquota delete --user alice
      kquota delete --user alice --client app1 --dry-run
      kquota delete --entity user=alice --entity user=bob,client-id=app1
    """
    from kquota.cli.commands import alter

    if params.selected_broker(options) is not None:
        raise click.UsageError("brokers have no quotas: 'kquota alter --broker ID --delete-config KEY' deletes a limit")
    chosen = [Entity.parse(text) for text in entities]
    if not chosen or params.selection(options):
        chosen += params.selected_entities(options)
    alterations = [Alteration(entity, remove=alter.all_keys(entity)) for entity in chosen]
    return alter.carry_out(alterations, options, everything=True, command="delete")
