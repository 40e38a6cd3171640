"""`kquota delete`."""

import click

from kquota.cli import grammar, params
from kquota.cli.altering import all_keys, carry_out
from kquota.core.quotas.alteration import Alteration


@grammar.command("delete")
def command(*, selection: params.Selection = params.ENTITIES, writing: params.Writing = params.ALTERING) -> int:
    """Delete all quotas of entities.

    The same as 'kquota alter --delete-config all': what an entity has besides quotas stays, such as SCRAM credentials,
    and 'kquota undo' takes it back.

    \b
    Examples:
      kquota delete --user alice
      kquota delete --user alice --client app1 --dry-run
      kquota delete --entity user=alice --entity user=bob,client-id=app1
    """
    if selection.broker is not None:
        raise click.UsageError("brokers have no quotas: 'kquota alter --broker ID --delete-config KEY' deletes a limit")
    alterations = [Alteration(entity, remove=all_keys(entity)) for entity in selection.entities()]
    return carry_out(alterations, writing, everything=True, command="delete")
