"""Options that several commands share, with kafka-configs' own words, and what they mean in the domain."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import click

from kquota.core.quotas.entity import DEFAULT, Entity, EntityType, Name
from kquota.core.quotas.filter import ANY, Match, QuotaFilter
from kquota.core.quotas.filter import Any as AnyName

if TYPE_CHECKING:
    from kquota.core.change.broker import Broker

F = TypeVar("F", bound=Callable[..., Any])

_ORDER = "kquota.entity_names"
_TYPES = {kind.plural: kind for kind in EntityType}
_BROKERS = "brokers"


def completed_by(name: str) -> Callable[[click.Context, click.Parameter, str], list[Any]]:
    """Completion by that function of `kquota.cli.completion.candidates`, which is imported when Tab is pressed."""

    def complete(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[Any]:
        from kquota.cli.completion import candidates

        found: list[Any] = getattr(candidates, name)(ctx, incomplete)
        return found

    return complete


def _stack(*decorators: Callable[[F], F]) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


def _names_in_order(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    # --entity-name and --entity-default are paired with --entity-type by their place on the command line. Click calls
    # back in the order of the command line.
    names: list[Name] = ctx.meta.setdefault(_ORDER, [])
    names.extend(value if isinstance(value, tuple) else [DEFAULT] * value)
    return value


def entity_options(function: F) -> F:
    """`--user … --entity-default`: which entity, in the words of kafka-configs."""
    return _stack(
        click.option(
            "--user",
            multiple=True,
            metavar="NAME",
            shell_complete=completed_by("users"),
            help="The user's principal name, such as alice or CN=alice,O=acme; repeat it for several.",
        ),
        click.option("--user-defaults", is_flag=True, help="The default of users."),
        click.option(
            "--client",
            multiple=True,
            metavar="NAME",
            shell_complete=completed_by("clients"),
            help="The client-id; repeat it for several.",
        ),
        click.option("--client-defaults", is_flag=True, help="The default of client-ids."),
        click.option(
            "--ip",
            multiple=True,
            metavar="ADDRESS",
            shell_complete=completed_by("ips"),
            help="The ip address; repeat it for several.",
        ),
        click.option("--ip-defaults", is_flag=True, help="The default of ips."),
        click.option("--broker", metavar="ID", help="A broker: its limits of connections."),
        click.option("--broker-defaults", is_flag=True, help="The cluster-wide default of brokers."),
        click.option(
            "--entity-type",
            "entity_types",
            multiple=True,
            type=click.Choice([*_TYPES, _BROKERS]),
            help="The long form of the above; repeat it for a pair.",
        ),
        click.option(
            "--entity-name",
            "entity_names",
            multiple=True,
            metavar="NAME",
            shell_complete=completed_by("entity_names"),
            callback=_names_in_order,
            expose_value=False,
            help="The name that goes with an --entity-type.",
        ),
        click.option(
            "--entity-default",
            count=True,
            callback=_names_in_order,
            expose_value=False,
            help="The default that goes with an --entity-type.",
        ),
    )(function)


Selection = dict[EntityType, tuple[Match, ...]]
"""Per entity type the names that were given, the default, or any."""


def selection(options: dict[str, Any]) -> Selection:
    """What the entity options name: names, the default or any per entity type.

    Raises click.UsageError where the words cannot be meant (a type twice, a name without a type, both forms mixed,
    several users with several clients).
    """
    if _names_brokers(options):
        raise click.UsageError("brokers have no quotas: only describe and alter know them")
    chosen: Selection = {}

    def choose(kind: EntityType, *matches: Match) -> None:
        if kind in chosen:
            raise click.UsageError(f"Duplicate entity type(s) specified: {kind.plural}")
        chosen[kind] = tuple(dict.fromkeys(matches))

    for kind, names, defaults in (
        (EntityType.USER, options["user"], options["user_defaults"]),
        (EntityType.CLIENT_ID, options["client"], options["client_defaults"]),
        (EntityType.IP, options["ip"], options["ip_defaults"]),
    ):
        if names:
            choose(kind, *names)
        if defaults:
            choose(kind, DEFAULT)
    types: tuple[str, ...] = options["entity_types"]
    ordered: list[Name] = click.get_current_context().meta.get(_ORDER, [])
    if (types or ordered) and chosen:
        raise click.UsageError(
            "--entity-{type,name,default} should not be used in conjunction with specific entity flags"
        )
    if len(ordered) > len(types):
        raise click.UsageError("More entity names specified than entity types")
    for number, plural in enumerate(types):
        choose(_TYPES[plural], ordered[number] if number < len(ordered) else ANY)
    if sum(len(matches) > 1 for matches in chosen.values()) > 1:
        raise click.UsageError(
            "several users with several clients: which pairs are meant? Name each: --entity user=NAME,client-id=NAME"
        )
    return chosen


def _combined(chosen: Selection) -> list[dict[EntityType, Match]]:
    """One choice per entity type: of several names of one type, each in turn."""
    combined: list[dict[EntityType, Match]] = [{}]
    for kind, matches in chosen.items():
        combined = [{**known, kind: match} for known in combined for match in matches]
    return combined


def _names_brokers(options: dict[str, Any]) -> bool:
    return options["broker"] is not None or options["broker_defaults"] or _BROKERS in options["entity_types"]


def selected_broker(options: dict[str, Any]) -> Broker | Literal[AnyName.ANY] | None:
    """The broker, the default or all brokers that the options name; None where they name no broker.

    Raises click.UsageError where the words cannot be meant, InputError for an id that is none.
    """
    if not _names_brokers(options):
        return None
    from kquota.core.change.broker import parse_broker

    types: tuple[str, ...] = options["entity_types"]
    names: list[Name] = click.get_current_context().meta.get(_ORDER, [])
    broker: str | None = options["broker"]
    if types.count(_BROKERS) + (broker is not None) + options["broker_defaults"] > 1:
        raise click.UsageError(f"Duplicate entity type(s) specified: {_BROKERS}")
    others = ("user", "client", "ip")
    if len(types) > 1 or any(options[kind] or options[f"{kind}_defaults"] for kind in others):
        raise click.UsageError("Only 'users' and 'clients' entity types may be specified together")
    if _BROKERS not in types:
        if types or names:
            raise click.UsageError(
                "--entity-{type,name,default} should not be used in conjunction with specific entity flags"
            )
        return DEFAULT if broker is None else parse_broker(broker)
    if len(names) > 1:
        raise click.UsageError("More entity names specified than entity types")
    if not names:
        return ANY
    return DEFAULT if names[0] is DEFAULT else parse_broker(names[0])


def next_entity_type(ctx: click.Context) -> EntityType | None:
    """The type that one more --entity-name would go with, or None."""
    types: tuple[str, ...] = ctx.params.get("entity_types") or ()
    names: list[Name] = ctx.meta.get(_ORDER, [])
    return _TYPES.get(types[len(names)]) if len(names) < len(types) else None


def selected_entities(options: dict[str, Any]) -> list[Entity]:
    """The entities to alter. Raises click.UsageError for a missing name, InvalidRequest for an ip with others."""
    chosen = selection(options)
    if not chosen:
        raise click.UsageError("name the entity to alter: --user NAME, --user-defaults, --client NAME, --ip ADDRESS …")
    entities = []
    for parts in _combined(chosen):
        names: dict[EntityType, Name] = {}
        for kind, match in parts.items():
            if match is ANY:
                raise click.UsageError(
                    "--entity-name or --entity-default must be specified with each --entity-type (KIP-55 leaves the "
                    "name out for the default, which Kafka never took: give --entity-default)"
                )
            names[kind] = match
        entities.append(Entity(names.get(EntityType.USER), names.get(EntityType.CLIENT_ID), names.get(EntityType.IP)))
    return entities


def selected_filters(options: dict[str, Any], *, strict: bool) -> tuple[QuotaFilter, ...]:
    """The filters that the entity options describe, one for each name that is repeated; without any, everything."""
    chosen = selection(options)
    return tuple(QuotaFilter(parts, strict=strict) for parts in _combined(chosen)) if chosen else (QuotaFilter(),)


def selected_filter(options: dict[str, Any], *, strict: bool) -> QuotaFilter:
    """As `selected_filters`, for a command that takes one name of a type. Raises click.UsageError for several."""
    filters = selected_filters(options, strict=strict)
    if len(filters) > 1:
        raise click.UsageError("this command takes one entity at a time: repeat no --user, --client or --ip")
    return filters[0]


def once(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> str | None:
    """The one value of an option with `multiple`: click itself would silently take the last of several.

    Raises click.UsageError for several.
    """
    if len(value) > 1:
        raise click.UsageError(f"Found multiple arguments for option {param.name}, but you asked for only one", ctx)
    return value[0] if value else None


def strict_option(function: F) -> F:
    """`--strict`: the entities that have just the parts that were asked for."""
    return click.option(
        "--strict/--no-strict",
        default=True,
        show_default=True,
        help="--no-strict also matches the entities that have a second part, such as the clients of a user.",
    )(function)


def cluster_options(function: F) -> F:
    """`--zookeeper` or `--bootstrap-server`, and how to get there."""
    return _stack(
        click.option(
            "--context",
            metavar="NAME",
            envvar="KQUOTA_CONTEXT",
            show_envvar=True,
            shell_complete=completed_by("context_names"),
            help="A cluster by the name that the configuration file gives it; see 'kquota config'.",
        ),
        click.option(
            "--bootstrap-server",
            metavar="HOST:PORT[,…]",
            envvar="KQUOTA_BOOTSTRAP_SERVER",
            show_envvar=True,
            help="Brokers of the cluster (Kafka 2.6 and later).",
        ),
        click.option(
            "--bootstrap-controller",
            metavar="HOST:PORT[,…]",
            help="KRaft controllers, where no broker serves: they alter quotas and do not show them.",
        ),
        click.option(
            "--command-config",
            type=click.Path(path_type=Path),
            metavar="FILE",
            envvar="KQUOTA_COMMAND_CONFIG",
            show_envvar=True,
            help="How to log in to the brokers: a client.properties of Kafka's own tools.",
        ),
        click.option(
            "--zookeeper",
            metavar="HOST:PORT[,…][/CHROOT]",
            envvar="KQUOTA_ZOOKEEPER",
            show_envvar=True,
            help="The ZooKeeper ensemble of a cluster that keeps its quotas there.",
        ),
        click.option(
            "--zk-tls-config-file",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Kafka's ZooKeeper TLS properties (zookeeper.ssl.*).",
        ),
        click.option(
            "--zk-jaas-file",
            type=click.Path(path_type=Path),
            metavar="FILE",
            envvar="KQUOTA_ZOOKEEPER_JAAS_FILE",
            show_envvar=True,
            help="How to log in to ZooKeeper: a JAAS file with Kafka's context Client. Or set "
            "KQUOTA_ZOOKEEPER_USERNAME, and KQUOTA_ZOOKEEPER_PASSWORD or KQUOTA_ZOOKEEPER_PASSWORD_FILE.",
        ),
        click.option(
            "--timeout",
            type=click.FloatRange(min=0.1),
            default=10.0,
            show_default=True,
            metavar="SECONDS",
            help="How long to wait for the cluster; where it is given, also for one that is not up yet.",
        ),
    )(function)


def quota_file_options(function: F) -> F:
    """`--prune` and `--cluster`: how a quotas file is meant."""
    return _stack(
        click.option("--prune", is_flag=True, help="Delete the entities and keys that the file does not name."),
        click.option("--cluster", metavar="NAME", help="The cluster of the file's overlays that this one is."),
    )(function)


def journal_option(function: F) -> F:
    """`--journal DIR`: where apply keeps the way back."""
    return click.option(
        "--journal",
        type=click.Path(path_type=Path, file_okay=False),
        default=journal_folder,
        envvar="KQUOTA_JOURNAL",
        show_envvar=True,
        show_default="~/.local/state/kquota/journal",
        metavar="DIR",
        help="Where every change is written down before it is made.",
    )(function)


def journal_folder() -> Path:
    """Beside the state of other programs (XDG base directories). Raises InputError without a home folder."""
    from kquota import state

    return state.journal_folder()


class _Duration(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A length of time such as 90s, 30m, 2h or 1d12h, in milliseconds."""

    name = "time"
    _UNITS: ClassVar = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        parts = re.findall(r"(\d{1,9})([dhms])", value)
        if not parts or "".join(map("".join, parts)) != value:
            self.fail(f"{value!r} is not a length of time, such as 90s, 30m, 2h or 1d12h", param, ctx)
        return sum(int(number) * self._UNITS[unit] for number, unit in parts)


DURATION = _Duration()


def quotas_option(function: F) -> F:
    """`--quotas FILE`: a quotas document instead of the live cluster."""
    return click.option(
        "--quotas",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Quotas from a file (what 'kquota describe -o json|yaml' prints) instead of the live cluster.",
    )(function)


def server_properties_option(function: F) -> F:
    """`--server-properties FILE`: a broker's static configuration."""
    return click.option(
        "--server-properties",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="A broker's server.properties, for what it says about quotas.",
    )(function)


def kafka_version_option(function: F) -> F:
    """`--kafka-version VERSION`."""
    return click.option(
        "--kafka-version", default="4.0", show_default=True, metavar="VERSION", help="The brokers' Kafka version."
    )(function)


def output_option(*formats: str) -> Callable[[F], F]:
    """`-o FORMAT`; the first is the default."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(formats),
        default=formats[0],
        show_default=True,
        help="The format of what is printed on stdout.",
    )


def entity_text_option(function: F) -> F:
    """`--entity`: entities as text, for alter and delete."""
    return click.option(
        "--entity",
        "entities",
        multiple=True,
        metavar="TYPE=NAME[,…]",
        shell_complete=completed_by("entities"),
        help="An entity as text, such as user=alice,client-id=app1 or user=<default>; repeat it for several.",
    )(function)


def alter_options(function: F) -> F:
    """How alter and delete write, where, and what they print."""
    return _stack(
        click.option(
            "--yes", is_flag=True, help="Do not ask where the review has a question; needed without a terminal."
        ),
        click.option(
            "--force", is_flag=True, help="Write in spite of the review: 'kquota help review' lists what it lifts."
        ),
        click.option("--dry-run", is_flag=True, help="Show what would change and write nothing."),
        click.option("--wait", is_flag=True, help="Fail when a describe does not show the change in time."),
        journal_option,
        cluster_options,
        output_option("table", "json", "yaml", "csv"),
    )(function)
