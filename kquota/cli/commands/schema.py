"""`kquota schema`."""

import click

from kquota.cli import grammar
from kquota.documents.encoding import schema, schema_names, to_json
from kquota.errors import InputError


@click.command("schema", cls=grammar.Command)
@click.argument("name", required=False)
def command(name: str | None) -> None:
    """Print the JSON Schema of a document, or the names of all.

    Every document that kquota reads or writes has one. For help in an editor, keep the schema of quotas files beside
    them and begin the file with '# yaml-language-server: $schema=quotas.schema.json'.

    \b
    Examples:
      kquota schema
      kquota schema quotas > quotas.schema.json
    """
    if name is None:
        width = max(map(len, schema_names()))
        for known in schema_names():
            click.echo(f"{known:<{width}}  {schema(known)['title']}")
        return
    if name not in schema_names():
        raise InputError(f"no schema named {name!r}", hint=f"schemas: {', '.join(schema_names())}")
    click.echo(to_json(schema(name)), nl=False)
