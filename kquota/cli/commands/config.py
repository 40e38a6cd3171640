"""`kquota config`."""

import os
from collections.abc import Sequence
from pathlib import Path

import click

from kquota.access import config_path, load_config
from kquota.backends.addresses import Address, Servers, without_scheme
from kquota.cli import contexts, params
from kquota.cli.grammar import Group
from kquota.cli.options import Seconds, declared, flag
from kquota.cli.streams import note, warn
from kquota.cli.text import Column
from kquota.cli.views import Note, Part, View, shown_as, table_of
from kquota.documents import config as file
from kquota.errors import InputError
from kquota.state import CLUSTER


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
      kquota config set-context dev --bootstrap-server broker1.dev:9092
      kquota config use-context staging
      kquota describe --context legacy
      kquota config view --show-origin
    """


@command.command("get-contexts")
@shown_as("table", "json")
def get_contexts() -> View:
    """List the contexts; an asterisk marks the current one."""
    config = load_config()
    current = os.environ.get("KQUOTA_CONTEXT") or config.current

    def screen() -> Sequence[Part]:
        if not config.contexts:
            return [Note(f"no contexts in {config.path}")]
        table = table_of(
            config.contexts.values(),
            [
                (Column("CURRENT"), lambda context: "*" if context.name == current else ""),
                (Column("NAME", style="cyan", whole=True), lambda context: context.name),
                (Column("CLUSTER"), lambda context: tuple(map(" ".join, context.addresses.items()))),
                (Column("COMMENT", style="dim"), lambda context: context.comment),
            ],
        )
        return [table]

    return View(screen=screen, document=lambda: file.contexts_document(config, current))


@command.command("use-context")
@click.argument("name", shell_complete=params.completed_by("context_names"))
def use_context(name: str) -> None:
    """Make a context the current one: the file keeps all else that is written in it."""
    path = _existing()
    file.use_context(path, name)
    note(f"{name} is the current context of {path}")
    _warn_of_the_environment(name)


@command.command("set-context")
@click.argument("name", shell_complete=params.completed_by("context_names"))
@click.option("--bootstrap-server", metavar="HOST:PORT[,…]", help="Brokers of the cluster.")
@click.option("--bootstrap-controller", metavar="HOST:PORT[,…]", help="KRaft controllers, where no broker serves.")
@click.option("--zookeeper", metavar="HOST:PORT[,…][/CHROOT]", help="The ZooKeeper ensemble of the cluster.")
@click.option(
    "--command-config", metavar="FILE", help="A client.properties with security settings, as for Kafka's tools."
)
@click.option("--zk-tls-config-file", metavar="FILE", help="Kafka's ZooKeeper TLS properties.")
@click.option("--zk-jaas-file", metavar="FILE", help="A JAAS file with the login to ZooKeeper.")
@click.option(
    "--timeout",
    type=Seconds(min=0.1),
    metavar="SECONDS",
    help="How long to wait for the connection, and then for each answer.",
)
@click.option("--journal", metavar="DIR|cluster", help="Where writes are written down, as --journal of 'kquota alter'.")
@click.option("--require-message/--no-require-message", default=None, help="Whether every write needs a reason (-m).")
@click.option("--comment", help="A remark for people.")
@click.option("--use", is_flag=True, help="Make the context the current one.")
def set_context(name: str, use: bool, **given: str | float | None) -> None:
    """Create a context, or change settings of one.

    Settings that are not given stay as they are. An empty value ('--comment ""') removes a setting. The file keeps its
    comments. A relative path is taken from the working directory, and stored as an absolute one.

    \b
    Examples:
      kquota config set-context staging --bootstrap-server broker1.staging:9092 --use
      kquota config set-context staging --command-config staging.properties
      kquota config set-context prod --journal cluster --require-message
    """
    settings: dict[str, str | float | None] = {}
    for option, value in given.items():
        if value is not None:
            key = option.replace("_", "-")
            is_file = key.endswith(("-config", "-file")) or (key == "journal" and value != str(CLUSTER))
            if value and option in contexts.ADDRESSES:
                value = _checked(option, str(value))
            settings[key] = os.path.abspath(os.path.expanduser(str(value))) if is_file and value else value or None
    seconds = settings.get("timeout")
    if isinstance(seconds, float) and seconds.is_integer():
        settings["timeout"] = int(seconds)
    path = config_path()
    new = file.set_context(path, name, settings, current=use)
    note(f"{'created' if new else 'changed'} context {name} in {path}")
    if use:
        _warn_of_the_environment(name)
    elif new:
        note(f"'kquota config use-context {name}' makes it the current one")


def _checked(option: str, address: str) -> str:
    """The address as the file keeps it, without kquota's own scheme. Raises InputError for a malformed one."""
    if option == "zookeeper":
        Address.parse(address)
        return without_scheme(address, "zookeeper")
    own = "kafka" if option == "bootstrap_server" else "controller"
    Servers.parse(address, own)
    return without_scheme(address, own)


@command.command("delete-context")
@click.argument("name", shell_complete=params.completed_by("context_names"))
def delete_context(name: str) -> None:
    """Remove a context from the file. The cluster itself is not touched."""
    path = _existing()
    was_current = file.delete_context(path, name)
    note(f"deleted context {name} from {path}")
    if was_current:
        warn(f"{name} was the current context: choose another with 'kquota config use-context NAME'")


def _existing() -> Path:
    """The path of the configuration file. Raises InputError where there is none."""
    path = config_path()
    if not path.exists():
        raise InputError(f"{path}: no such file", hint="'kquota config set-context' makes it")
    return path


def _warn_of_the_environment(name: str) -> None:
    """Says that the environment comes before the file, where it names another context, or an address."""
    shadowing = os.environ.get("KQUOTA_CONTEXT")
    if shadowing and shadowing != name:
        warn(f"KQUOTA_CONTEXT says {shadowing}, and comes before the file")
    for variable in (f"KQUOTA_{address.upper()}" for address in contexts.ADDRESSES):
        if os.environ.get(variable):
            warn(f"{variable} names a cluster, and comes before the file: unset it, or the context is left out")


@command.command("view")
@declared
@shown_as("table", "json")
def view(
    *, show_origin: bool = flag("Also where each setting comes from."), given: contexts.Given = params.GIVEN
) -> View:
    """Show the cluster's settings in effect, with the same options and environment as any other command."""
    context, effective = given.in_effect()
    place = load_config().path
    if not any(effective[address].value for address in contexts.ADDRESSES):
        note(f"no cluster is named{contexts.choices()}")
    settings = (*effective.values(), *contexts.of_writes(given.both()))
    shown = [(setting.name.replace("_", "-"), setting) for setting in settings if setting.value is not None]

    def origin(setting: contexts.Setting) -> str:
        words = [setting.origin, setting.where or "", f"in {place}" if setting.origin == "context" else ""]
        return " ".join(filter(None, words))

    def value(setting: contexts.Setting) -> str:
        if isinstance(setting.value, bool):
            return "yes" if setting.value else "no"
        return f"{setting.value:g} s" if isinstance(setting.value, float | int) else str(setting.value)

    table = table_of(
        shown,
        [
            (Column("SETTING", style="cyan", whole=True), lambda row: row[0]),
            (Column("VALUE"), lambda row: value(row[1])),
            show_origin and (Column("ORIGIN"), lambda row: origin(row[1])),
        ],
    )
    return View(
        screen=lambda: [table],
        document=lambda: file.settings_document(
            place,
            None if context is None else context.name,
            [(name, setting.value, setting.origin, setting.where) for name, setting in shown],
        ),
    )
