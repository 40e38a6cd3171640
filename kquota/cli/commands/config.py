"""`kquota config`."""

from __future__ import annotations

import os

import click

from kquota.access import config_path, load_config
from kquota.cli import contexts, params
from kquota.cli.streams import Group, note, warn
from kquota.errors import InputError


@click.group("config", cls=Group)
def command() -> None:
    """Name clusters, and choose the one to talk to.

    Contexts are read from ~/.config/kquota/config.yaml (XDG_CONFIG_HOME; KQUOTA_CONFIG names another file):

    \b
      current-context: staging
      contexts:
        staging:
          bootstrap-server: broker1.staging:9092
          command-config: staging.properties     # relative to this file
        legacy:
          zookeeper: zk1:2181,zk2:2181/kafka
          comment: until the migration

    A setting comes from an option, else from the environment, else from the context. An address in an option or in the
    environment leaves the current context out, credentials included. --context NAME takes that context as it is and
    nothing from the environment, KQUOTA_ZOOKEEPER_USERNAME and the like included; options beside it, an address too,
    replace what it says. Secrets stay in the properties and JAAS files.

    \b
    Examples:
      kquota config get-contexts
      kquota config use-context staging
      kquota describe --context legacy
      kquota config view --show-origin
    """


@command.command("get-contexts")
@params.output_option("table", "json")
def get_contexts(output: str) -> None:
    """List the contexts; an asterisk marks the current one."""
    config = load_config()
    current = os.environ.get("KQUOTA_CONTEXT") or config.current
    if output == "json":
        from kquota.documents.config import contexts_document
        from kquota.documents.encoding import to_json

        click.echo(to_json(contexts_document(config, current)), nl=False)
        return
    if not config.contexts:
        note(f"no contexts in {config.path}")
        return
    from kquota.cli.text import Column, print_table

    print_table(
        [
            Column("CURRENT"),
            Column("NAME", style="cyan", whole=True),
            Column("CLUSTER"),
            Column("COMMENT", style="dim"),
        ],
        [
            (
                "*" if context.name == current else "",
                context.name,
                tuple(f"{option} {address}" for option, address in context.addresses.items()),
                context.comment,
            )
            for context in config.contexts.values()
        ],
    )


@command.command("use-context")
@click.argument("name", shell_complete=params.completed_by("context_names"))
def use_context(name: str) -> None:
    """Make a context the current one: the file keeps all else that is written in it."""
    from kquota.documents.config import use_context

    path = config_path()
    if not path.exists():
        raise InputError(f"{path}: no such file", hint="'kquota config --help' shows what to write into it")
    use_context(path, name)
    note(f"{name} is the current context of {path}")
    shadowing = os.environ.get("KQUOTA_CONTEXT")
    if shadowing and shadowing != name:
        warn(f"KQUOTA_CONTEXT says {shadowing}, and comes before the file")


@command.command("current-context")
def current_context() -> None:
    """Print the name of the current context; exits with 3 when there is none."""
    from kquota.cli.text import safe

    config = load_config()
    name = os.environ.get("KQUOTA_CONTEXT") or config.current
    if name is None:
        raise InputError(f"no current context in {config.path}", hint="kquota config use-context NAME")
    click.echo(safe(config.context(name).name))


@command.command("view")
@click.option("--show-origin", is_flag=True, help="Also where each setting comes from.")
@params.given_cluster_options
@params.output_option("table", "json")
def view(show_origin: bool, given: contexts.Given, output: str) -> None:
    """Show the cluster's settings in effect, with the same options and environment as any other command."""
    context, found = given.in_effect()
    file = config_path()
    shown = [(setting.name.replace("_", "-"), setting) for setting in found.values() if setting.value is not None]
    if output == "json":
        from kquota.documents.config import settings_document
        from kquota.documents.encoding import to_json

        document = settings_document(
            file,
            None if context is None else context.name,
            [(name, setting.value, setting.origin, setting.where) for name, setting in shown],
        )
        click.echo(to_json(document), nl=False)
        return
    from kquota.cli.text import Column, print_table

    def origin(setting: contexts.Setting) -> str:
        words = [setting.origin, setting.where or "", f"in {file}" if setting.origin == "context" else ""]
        return " ".join(filter(None, words))

    def value(setting: contexts.Setting) -> str:
        return f"{setting.value:g} s" if isinstance(setting.value, float | int) else str(setting.value)

    print_table(
        [Column("SETTING", style="cyan", whole=True), Column("VALUE"), *([Column("ORIGIN")] if show_origin else [])],
        [(name, value(setting), *([origin(setting)] if show_origin else [])) for name, setting in shown],
    )
