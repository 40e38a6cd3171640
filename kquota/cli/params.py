"""Options that several commands share, with kafka-configs' own words, and what they mean in the domain."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import click
from click.core import ParameterSource

from kquota import state
from kquota.access import Access
from kquota.brokers import BrokerFacts
from kquota.cli import grammar, session
from kquota.cli.contexts import Given, requiring_reason
from kquota.cli.leases import cluster_words
from kquota.cli.options import Seconds, by, choice, flag, group, lasting, option, path, value, values
from kquota.cli.views import shown_as
from kquota.core.quotas.entity import DEFAULT, Entity, EntityType, Name
from kquota.core.quotas.selector import ANY, Match, NamePatterns, QuotaFilter
from kquota.core.quotas.selector import Any as AnyName

if TYPE_CHECKING:
    from kquota.core.change.broker import Broker
    from kquota.documents.journal import Journal

_BROKERS = "brokers"
_TYPES = (*grammar.TYPES, _BROKERS)
_FILE = click.Path(path_type=Path)


def completed_by(name: str) -> Callable[[click.Context, click.Parameter, str], list[Any]]:
    """Completion by that function of `kquota.cli.completion.candidates`, which is imported when Tab is pressed."""

    def complete(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[Any]:
        from kquota.cli.completion import candidates

        items: list[Any] = getattr(candidates, name)(ctx, incomplete)
        return items

    return complete


def on_command_line(name: str) -> bool:
    """Whether that option was given by hand, and not by the environment or a default."""
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def there(access: Access | None, journal: Path | None = None) -> str:
    """The cluster for a command to type next, as ` --context prod`, unless it was not named by hand; and a journal."""
    words = [] if access is None or not any(map(on_command_line, _CLUSTER)) else cluster_words(access)
    words += [] if journal is None else ["--journal", str(journal)]
    return "".join(f" {shlex.quote(word)}" for word in words)


def way_back(entry: str, access: Access | None, journal: Journal) -> str:
    """The command that takes the entry of that name back, as `'kquota undo 2 --journal cluster'`."""
    return f"'kquota undo {entry}{there(access, journal.folder if on_command_line('journal') else None)}'"


# --- Which entity ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Selection:
    """What the entity options name: per entity type the names, the default or any; or brokers."""

    matches: Mapping[EntityType, tuple[Match, ...]]
    broker: Broker | Literal[AnyName.ANY] | None = None
    """The broker, the default or all brokers; None where no broker is named."""
    named: tuple[Entity, ...] = ()
    """The entities that are named as texts, beside the others."""

    def __bool__(self) -> bool:
        return bool(self.matches or self.named) or self.broker is not None

    def entities(self) -> list[Entity]:
        """The entities to alter.

        Raises click.UsageError for a missing name and for brokers, InvalidRequest for an ip with others.
        """
        if not self:
            raise click.UsageError("name the entity: --user NAME, --user-defaults, --client NAME, --ip ADDRESS …")
        for kind, matches in self.matches.items():
            if DEFAULT in matches and len(matches) > 1:
                raise _twice(kind)
        entities = list(self.named)
        for parts in self._combined():
            names = {kind: match for kind, match in parts.items() if match is not ANY}
            if len(names) < len(parts):
                raise click.UsageError(
                    "--entity-name or --entity-default must be specified with each --entity-type (KIP-55 leaves "
                    "the name out for the default, which Kafka never took: give --entity-default)"
                )
            entities.append(Entity(*map(names.get, EntityType)))
        return entities

    def filters(self, *, strict: bool) -> tuple[QuotaFilter, ...]:
        """The filters that are described, one for each name that is repeated; of nothing, everything.

        Raises click.UsageError for brokers.
        """
        parts: list[Mapping[EntityType, Match]] = [*(dict(entity.parts) for entity in self.named), *self._combined()]
        return tuple(QuotaFilter(part, strict=strict) for part in parts) if self else (QuotaFilter(),)

    def filter(self, *, strict: bool) -> QuotaFilter:
        """As `filters`, for a command that takes one name of a type. Raises click.UsageError for several."""
        filters = self.filters(strict=strict)
        if len(filters) > 1:
            raise click.UsageError("this command takes one entity at a time: repeat no option that names one")
        return filters[0]

    def covers(self, entity: Entity) -> bool:
        """Whether the entity has all the parts of one that is named, and maybe others; without any, every entity."""
        return any(filter.matches(entity) for filter in self.filters(strict=False))

    def _combined(self) -> list[dict[EntityType, Match]]:
        """One choice per entity type: of several names of one type, each in turn."""
        if self.broker is not None:
            raise click.UsageError("brokers have no quotas: only describe and alter know them")
        choices = product(*self.matches.values()) if self.matches else ()
        return [dict(zip(self.matches, names, strict=True)) for names in choices]


def named(kind: Literal["user", "client", "ip"], about: str, **how: Any) -> Any:
    """`--user`, `--client` or `--ip`. `--client-id` is understood as `--client`."""
    names = ("--client", "--client-id") if kind == "client" else (f"--{kind}",)
    metavar = "ADDRESS" if kind == "ip" else "NAME"
    return option(about, *names, metavar=metavar, shell_complete=completed_by(f"{kind}s"), **how)


def _selection(
    user: tuple[str, ...] = named(
        "user", "The user's principal name, such as alice or CN=alice,O=acme; repeat it for several.", multiple=True
    ),
    user_defaults: bool = flag("The default of users."),
    client: tuple[str, ...] = named("client", "The client-id; repeat it for several.", multiple=True),
    client_defaults: bool = flag("The default of client-ids."),
    ip: tuple[str, ...] = named("ip", "The ip address; repeat it for several.", multiple=True),
    ip_defaults: bool = flag("The default of ips."),
    broker: str | None = value("ID", "A broker: its limits of connections."),
    broker_defaults: bool = flag("The cluster-wide default of brokers."),
    entity_types: tuple[str, ...] = choice(
        _TYPES, "The long form of the above; repeat it for a pair.", "--entity-type", multiple=True
    ),
    entity_names: tuple[str, ...] = values(
        "NAME",
        "The name that goes with an --entity-type.",
        "--entity-name",
        callback=grammar.keep_name,
        shell_complete=completed_by("entity_names"),
    ),
    entity_default: int = option(
        "The default that goes with an --entity-type.", count=True, callback=grammar.keep_name
    ),
    entities: tuple[str, ...] = values(
        "TYPE=NAME[,…]",
        "An entity as text, such as user=alice,client-id=app1 or user=<default>; repeat it.",
        "--entity",
        shell_complete=completed_by("entities"),
    ),
) -> Selection:
    """What the entity options name.

    Raises click.UsageError where the words cannot be meant (a type twice, a name without a type, both forms mixed,
    several users with several clients), InputError for a broker's id that is none.
    """
    by_type = zip(EntityType, (user, client, ip), (user_defaults, client_defaults, ip_defaults), strict=True)
    short: list[tuple[EntityType, tuple[Match, ...]]] = [
        (kind, (*names, *(DEFAULT,) * default)) for kind, names, default in by_type if names or default
    ]
    ordered = grammar.names_given(click.get_current_context())
    if broker is not None or broker_defaults or _BROKERS in entity_types:
        return Selection({}, _broker(broker, broker_defaults, entity_types, ordered, beside=bool(short or entities)))
    if (entity_types or ordered) and short:
        raise click.UsageError(_MIXED)
    if len(ordered) > len(entity_types):
        raise click.UsageError("More entity names specified than entity types")
    long: list[tuple[EntityType, tuple[Match, ...]]] = [
        (grammar.TYPES[plural], (ordered[number] if number < len(ordered) else ANY,))
        for number, plural in enumerate(entity_types)
    ]
    chosen: dict[EntityType, tuple[Match, ...]] = {}
    for kind, matches in (*short, *long):
        if kind in chosen:
            raise _twice(kind)
        chosen[kind] = tuple(dict.fromkeys(matches))
    if sum(len(matches) > 1 for matches in chosen.values()) > 1:
        raise click.UsageError(
            "several users with several clients: which pairs are meant? Name each: --entity user=NAME,client-id=NAME"
        )
    return Selection(chosen, named=tuple(map(Entity.parse, entities)))


def _twice(kind: EntityType) -> click.UsageError:
    way = f"name each by --entity TYPE=NAME, such as {kind.value}=<default>"
    return click.UsageError(f"Duplicate entity type(s) specified: {kind.plural} ({way})")


_MIXED = "--entity-{type,name,default} should not be used in conjunction with specific entity flags"


def _broker(
    broker: str | None, broker_defaults: bool, types: tuple[str, ...], names: list[Name], *, beside: bool
) -> Broker | Literal[AnyName.ANY]:
    """The broker, the default or all brokers that are named; `beside`: beside another entity."""
    from kquota.core.change.broker import parse_broker

    if types.count(_BROKERS) + (broker is not None) + broker_defaults > 1:
        raise click.UsageError(f"Duplicate entity type(s) specified: {_BROKERS}")
    if len(types) > 1 or beside:
        raise click.UsageError("Only 'users' and 'clients' entity types may be specified together")
    if _BROKERS not in types:
        if types or names:
            raise click.UsageError(_MIXED)
        return DEFAULT if broker is None else parse_broker(broker)
    if len(names) > 1:
        raise click.UsageError("More entity names specified than entity types")
    if not names:
        return ANY
    return DEFAULT if names[0] is DEFAULT else parse_broker(names[0])


ENTITIES: Any = group(_selection)
"""`--user … --entity-default`: which entity, in the words of kafka-configs."""


MATCH: Any = group(
    NamePatterns,
    patterns=values(
        "PATTERN",
        "Only entities with a name like that, such as 'team-a-*' or 'client-id=etl-*'; repeat it for more.",
        "--match",
    ),
)
"""`--match PATTERN`: shell patterns of names."""
STRICT: Any = option(
    "--no-strict also matches the entities that have a second part, such as the clients of a user.",
    "--strict/--no-strict",
    default=True,
)
"""`--strict`: the entities that have just the parts that were asked for."""


# --- Which cluster --------------------------------------------------------------------------------------------------


class ClusterOption(click.Option):
    """An option of nearly every command: `kquota help connection` explains it, and the command's own help does not.

    Click completes it, which it does not do for a hidden option.
    """

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        return None


def _of_cluster(metavar: str, about: str, **how: Any) -> Any:
    return value(metavar, about, cls=ClusterOption, show_envvar="envvar" in how, **how)


_CLUSTER: Final = {
    "context": _of_cluster(
        "NAME",
        "A cluster by the name that the configuration file gives it; see 'kquota config'.",
        envvar="KQUOTA_CONTEXT",
        shell_complete=completed_by("context_names"),
    ),
    "bootstrap_server": _of_cluster(
        "HOST:PORT[,…]", "Brokers of the cluster (Kafka 2.6 and later).", envvar="KQUOTA_BOOTSTRAP_SERVER"
    ),
    "bootstrap_controller": _of_cluster(
        "HOST:PORT[,…]", "KRaft controllers, where no broker serves: they alter quotas and do not show them."
    ),
    "command_config": _of_cluster(
        "FILE",
        "A client.properties with security settings, as for Kafka's tools.",
        envvar="KQUOTA_COMMAND_CONFIG",
        type=_FILE,
    ),
    "zookeeper": _of_cluster(
        "HOST:PORT[,…][/CHROOT]",
        "The ZooKeeper ensemble of a cluster that keeps its quotas there.",
        envvar="KQUOTA_ZOOKEEPER",
    ),
    "zk_tls_config_file": _of_cluster("FILE", "Kafka's ZooKeeper TLS properties (zookeeper.ssl.*).", type=_FILE),
    "zk_jaas_file": _of_cluster(
        "FILE",
        "How to log in to ZooKeeper: a JAAS file with Kafka's context Client. Or set "
        "KQUOTA_ZOOKEEPER_USERNAME, and KQUOTA_ZOOKEEPER_PASSWORD or KQUOTA_ZOOKEEPER_PASSWORD_FILE.",
        envvar="KQUOTA_ZOOKEEPER_JAAS_FILE",
        type=_FILE,
    ),
    "timeout": _of_cluster(
        "SECONDS",
        "How long to wait for the connection, and then for each answer. Where it is given, also for a cluster "
        "that is not up yet.",
        type=Seconds(min=0.1),
        default=10.0,
    ),
}
GIVEN: Any = group(Given.of, **_CLUSTER)
"""`--zookeeper` or `--bootstrap-server`, and how to get there; for a command that may do without a cluster or needs two
addresses.
"""
ACCESS: Any = group(lambda **given: Given.of(**given).access(), **_CLUSTER)
"""The same options, for a command that needs one cluster."""
QUOTAS: Any = path("Quotas from a file (what 'kquota describe -o json|yaml' prints) instead of the live cluster.")
"""`--quotas`, of a parameter of that name."""


def _source(quotas: Path | None = QUOTAS, given: Given = GIVEN) -> session.QuotaSource:
    return session.QuotaSource(quotas, given)


SOURCE: Any = group(_source)
"""`--quotas FILE` and the cluster options: where quotas are read from."""


# --- How to write ---------------------------------------------------------------------------------------------------

PRUNE: Any = flag("Delete the entities and keys that the file does not name.")
CLUSTER: Any = value("NAME", "The cluster of the file's overlays that this one is.")
"""How a quotas file is meant."""


def _columns(
    ignored: tuple[str, ...] = values(
        "HEADING", "A column of a table that is no quota; repeat it for several.", "--ignore-column"
    ),
    columns: tuple[str, ...] = values(
        "NAME=HEADING", "A column of a table that has another word, such as user=Tenant; repeat it.", "--column"
    ),
) -> Mapping[str, str]:
    """What each heading stands for; "" of those that are left out. Raises click.UsageError."""
    pairs = [re.fullmatch(r"([\w-]+)=(.+)", text) for text in columns]
    if None in pairs:
        raise click.UsageError(f"--column {columns[pairs.index(None)]!r} is not NAME=HEADING, such as user=Tenant")
    meant = {pair[2]: pair[1] for pair in pairs if pair}
    if both := meant.keys() & {*ignored}:
        heading = min(both)
        raise click.UsageError(f"--ignore-column {heading!r} leaves out what --column {meant[heading]}={heading} reads")
    return dict.fromkeys(ignored, "") | meant


COLUMNS: Any = group(_columns)
"""`--ignore-column` and `--column`: how the headings of a table are meant."""
DRY_RUN: Any = flag("Show what would change and write nothing.")
DRY_UNDO: Any = flag("Show what would be reverted and write nothing.")
YES: Any = flag("Do not ask; needed where there is no terminal.")
"""`--yes` of a command that always asks."""
FORCE: Any = flag("Apply in spite of the review: 'kquota help review' lists what it lifts.")
JOURNAL: Any = path(
    "Where every change is written down before it is made: a folder, or 'cluster' for a journal that the cluster keeps"
    " and all hosts share.",
    metavar="DIR",
    default=state.journal_folder,
    envvar="KQUOTA_JOURNAL",
    show_envvar=True,
    show_default="~/.local/state/kquota/journal",
)
"""`--journal`, of a parameter of that name; `session.journal` opens it."""
_LONGEST_MESSAGE = 1000


def _checked_message(ctx: click.Context, param: click.Parameter, message: str | None) -> str | None:
    if message is not None and not 0 < len(message.strip()) <= _LONGEST_MESSAGE:
        raise click.BadParameter(f"a message has 1 to {_LONGEST_MESSAGE} characters", ctx, param)
    return message and message.strip()


MESSAGE: Any = value(
    "TEXT",
    "Why, such as a ticket: plans keep it, and 'kquota history' shows it.",
    "-m",
    "--message",
    callback=_checked_message,
)


@dataclass(frozen=True)
class Writing:
    """How a command writes, where, and what it prints: each field is an option, or several."""

    yes: bool = YES
    force: bool = FORCE
    dry_run: bool = DRY_RUN
    wait: bool = flag("Fail when a describe does not show the change in time.")
    lasts_ms: int | None = lasting(
        "Only for this long, such as 2h or 30m. 'kquota reconcile' takes it back when it next runs after that:"
        " run it from cron.",
        "--for",
    )
    message: str | None = MESSAGE
    journal: Path = JOURNAL
    given: Given = GIVEN
    output: str = by(shown_as("table", "json", takes_output=True))

    @cached_property
    def access(self) -> Access:
        """The cluster that is meant. Raises as `Given.access` does."""
        return self.given.access()

    def open_journal(
        self, file: Path | None = None, planned: str | None = None, *, needs_reason: bool = True
    ) -> Journal:
        """The journal for a write: with the message of the command line, and the quotas file with its commit.

        Without a message there, the message of the kept plan counts (`planned`).

        Raises click.UsageError where the cluster's context wants a message, the write `needs_reason`, and none was
        given.
        """
        why, access = self.message or planned, self.access
        if needs_reason and why is None and (context := requiring_reason(access)) is not None:
            whose = " (its rule is the cluster's, also by the address of a server)" if access.context is None else ""
            raise click.UsageError(f"the context {context} requires a reason: give -m TEXT, such as a ticket{whose}")
        book = session.journal(self.journal, access)
        return replace(book, message=why, file=None if file is None else _with_commit(file))


def _with_commit(file: Path) -> str:
    """The file, and the commit that has it as it is, where git knows one."""
    import subprocess

    git = ["git", "-c", "core.fsmonitor=false", "-C", str(file.absolute().parent)]
    try:
        for rest in (["diff", "--no-ext-diff", "--no-textconv", "--quiet", "HEAD"], ["log", "-1", "--format=%h"]):
            done = subprocess.run(
                [*git, *rest, "--", file.name], capture_output=True, text=True, timeout=2, check=True, errors="replace"
            )
    except (OSError, ValueError, subprocess.SubprocessError):
        return str(file)
    commit = done.stdout.strip()
    return f"{file} ({commit})" if commit else str(file)


def writing(**instead: Any) -> Any:
    """The options of `Writing`; `instead` has other ones, or None for fields without any."""
    return group(Writing, **instead)


ALTERING: Any = writing(
    yes=flag("Do not ask where the review has a question; needed without a terminal."),
    force=flag("Write in spite of the review: 'kquota help review' lists what it lifts."),
    output=by(shown_as("table", "json", "yaml", "csv", takes_output=True)),
)
"""How alter and delete write."""


# --- What the brokers are -------------------------------------------------------------------------------------------


SERVER_PROPERTIES: Any = path("A broker's server.properties, for what it says about quotas.")
KAFKA_VERSION: Any = value("VERSION", "The brokers' Kafka version.", default="4.0")
"""Options of parameters of these names."""


def _facts(server_properties: Path | None = SERVER_PROPERTIES, kafka_version: str = KAFKA_VERSION) -> BrokerFacts:
    return BrokerFacts(kafka_version, server_properties, on_command_line("kafka_version"))


FACTS: Any = group(_facts)
"""`--server-properties FILE` and `--kafka-version VERSION`: what the brokers are."""
