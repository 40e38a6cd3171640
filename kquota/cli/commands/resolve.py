"""`kquota resolve`."""

import functools
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import click

from kquota.backends.znode import znode_path
from kquota.brokers import BrokerFacts
from kquota.cli import grammar, params, session
from kquota.cli.leases import note_ends
from kquota.cli.options import count, flag, value
from kquota.cli.reach import CSV, Many, PathOf, counter, level, limit_of, on_brokers, origin, source, tag, with_path
from kquota.cli.streams import note, warn
from kquota.cli.text import Column, first_of, many
from kquota.cli.views import Branch, Note, Part, Table, View, csv_of, shown_as, table_of
from kquota.core.change.broker import callback_of
from kquota.core.change.misnomer import is_literal_default
from kquota.core.enforcement.generation import BrokerSettings
from kquota.core.findings.finding import subject
from kquota.core.quotas.entity import Entity, EntityType
from kquota.core.quotas.quota import QuotaKey, limit_text
from kquota.core.quotas.selector import NamePatterns
from kquota.core.quotas.static import NO_STATIC_QUOTAS, StaticQuotas
from kquota.core.resolve.caveat import Caveat, caveats
from kquota.core.resolve.resolver import Resolution, resolve, resolve_ip
from kquota.documents.limits import resolution_document
from kquota.errors import InputError


def _entity_text(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """The text as it is. Raises click.BadParameter for an option in its place: `--who --user alice`."""
    if value is not None and value.startswith("--"):
        raise click.BadParameter(f"{value} is no entity: --who user=NAME, client-id=NAME or ip=ADDRESS", ctx, param)
    return value


@grammar.command("resolve")
@shown_as("table", "wide", "tree", "json", "yaml", "csv", takes_output=True)
def command(
    *,
    user: str | None = params.named("user", "The user's principal name; connections without one are ANONYMOUS."),
    client: str | None = params.named("client", "The client-id. Default: the empty client-id."),
    ip: str | None = params.named("ip", "The ip address that the client connects from."),
    all_pairs: bool = flag("Every known user with every known client-id.", "--all"),
    who: str | None = value(
        "ENTITY", "Whom that entity governs, such as user=alice or client-id=<default>.", callback=_entity_text
    ),
    clients: Path | None = value(
        "FILE",
        "Observed clients, alone or with --who: CSV or JSON lines with the columns user, client_id and ip, such as a"
        " usage table of the audit; - is standard input.",
        type=click.Path(path_type=Path, allow_dash=True),
    ),
    brokers: int | None = count(
        "Also show the sum of each limit over N brokers: every broker grants it by itself (but for mutations, which"
        " one controller counts)."
    ),
    match: NamePatterns = params.MATCH,
    facts: BrokerFacts = params.FACTS,
    source: session.QuotaSource = params.SOURCE,
    output: str,
) -> View | None:
    """Explain which quota governs a client, or whom a quota governs.

    Prints for each quota key the limit that applies, and the entity and level that it comes from. Then come the counter
    that is charged, and the quotas that the limit shadows. All clients of user user1 share the counter of the user, and
    all users of client-id clientA the counter of the client-id. -o wide also has the tag of a counter, which is
    KIP-55's quota-id such as 'user1:'. A client with an empty client-id escapes every client-id default, as on a
    broker. The static defaults of a broker's server.properties (Kafka 0.9 to 2.8) are the ninth and last level.

    -o tree is the explanation in full. It also names what makes brokers behave differently: a custom callback class,
    which it asks live brokers for, and their age, where --kafka-version is given.

    --all resolves every user with every client-id that entities name, with any other client-id ('<other>'), and with
    the empty client-id. It lists the keys that are set; --user and --client narrow it. --who turns the question round:
    it lists the clients that an entity governs, among these clients or the observed clients of --clients. With
    -o json, both print a line for each client. --match limits both to clients with a name like a pattern. --clients
    alone resolves each of its clients.

    \b
    Examples:
      kquota resolve --user alice --client app1 --zookeeper localhost:2181
      kquota resolve --user alice --client app1 --ip 10.0.0.7 --quotas quotas.yaml
      kquota resolve --user alice --quotas quotas.yaml -o json
      kquota resolve --client app1 --quotas quotas.yaml --server-properties server.properties --kafka-version 2.8
      kquota resolve --user alice --client app1 --brokers 6 -o tree
      kquota resolve --all -o csv > resolved.csv
      kquota resolve --clients usage.csv
      kquota resolve --who 'user=<default>' --clients usage.csv
      kquota resolve --who 'user=<default>' --match 'team-a-*'
    """
    facts = session.with_release(facts, source.access)
    if match and who is None and clients is None and not all_pairs:
        raise click.UsageError("--match goes with --who, --clients or --all")
    if who is not None or clients is not None or all_pairs:
        _refuse_for_many(ip, brokers, output)
        named = "--who" if who is not None else "--clients" if clients is not None else ""
        if named and (all_pairs or user is not None or client is not None):
            raise click.UsageError(f"{named} goes with neither --all nor --user nor --client")
        entity = None if who is None else Entity.parse(who)
        _, static = _brokers(facts)
        snapshot = facts.enforced(session.load_quotas(source))
        session.warn_ignored(snapshot.ignored)
        many = Many(snapshot, static, match, output, _paths(source, output))
        if entity is not None:
            if entity not in snapshot:
                session.note_slips(snapshot, dict(entity.parts))
            many.governed(entity, clients)
        elif clients is not None:
            many.observed(clients)
        else:
            many.all(user, client)
        return None
    if user is None and client is None and ip is None:
        raise click.UsageError(
            "whom to resolve? Give --user NAME, --client NAME or --ip ADDRESS; or --all, --clients or --who"
        )
    if user == "" or ip == "":
        raise InputError("an empty name cannot be resolved", hint="connections without a user are ANONYMOUS")
    names: dict[EntityType, str | None]
    names = {EntityType.USER: user, EntityType.CLIENT_ID: client, EntityType.IP: ip}
    _warn_names(names)
    settings, static = _brokers(facts)
    loaded, leases = session.load_quotas_and_leases(source)
    snapshot = facts.enforced(loaded)
    resolutions: tuple[Resolution, ...]
    doubts: Sequence[Caveat] = ()
    if user is None and client is None:
        assert ip is not None
        resolutions = (resolve_ip(snapshot, ip),)
    else:
        user, client = user or "ANONYMOUS", client or ""
        names |= {EntityType.USER: user, EntityType.CLIENT_ID: client}
        resolutions = resolve(snapshot, user, client, ip, static)
        if output not in _WITHOUT_CAVEATS:
            callback = None if settings is None else settings.callback
            if callback is None and output == "tree":
                callback = callback_of(session.live_brokers(source.access))
            # What old brokers do is said only where somebody says that they are old.
            version = facts.version if facts.is_named else None
            doubts = caveats(snapshot, user, client, static=static, version=version, callback=callback)
        if output in _TABLES:  # the others say whom they are about
            if not params.on_command_line("user"):
                users = {entity.user for entity in snapshot if entity.client_id == client} - {user}
                pairs = _of_pairs("user", users, f"--client {shlex.quote(client)}")
                note(f"for user ANONYMOUS, a connection without authentication (--user NAME for another){pairs}")
            if not params.on_command_line("client"):
                client_ids = {entity.client_id for entity in snapshot if entity.user == user} - {client}
                pairs = _of_pairs("client-id", client_ids, f"--user {shlex.quote(user)}")
                note(f"for a client without a client-id (--client NAME for another){pairs}")
    governing = {(resolution.entity, resolution.key) for resolution in resolutions}
    note_ends([lease for lease in leases if (lease.entity, lease.key) in governing])
    # A name that only defaults govern may be a slip.
    if not any(isinstance(name, str) for entity, _ in governing if entity for _, name in entity.parts):
        session.note_slips(snapshot, names)
    if output in _WITHOUT_CAVEATS:
        session.warn_ignored(ignored for resolution in resolutions for ignored in resolution.ignored)
    return resolved(names, resolutions, brokers, doubts, _paths(source, output))


def _of_pairs(kind: str, names: Iterable[object], option: str) -> str:
    """Says which names have quotas together with the one that was asked for; they apply to others than the table."""
    named = sorted(name for name in names if isinstance(name, str))
    have = "has limits of its own" if len(named) == 1 else "have limits of their own"
    shows = f"'kquota resolve --all {option}' shows them"
    return f"; {many(len(named), kind)} {have}: {first_of(named)} ({shows})" if named else ""


def _warn_names(names: Mapping[EntityType, str | None]) -> None:
    """Says of names that hardly any client has what was meant; of a default how to ask for it here."""
    for kind, name in names.items():
        if name is not None and is_literal_default(name):
            warn(f"{kind.value}={name}: a client's name; whom that default governs shows --who '{kind.value}={name}'")
        else:
            session.warn_misnomers({kind: name})


_TABLES = ("table", "wide")
_WITHOUT_CAVEATS = (*_TABLES, "csv")
"""The formats that have no room for exceptions."""


def _paths(source: session.QuotaSource, output: str) -> PathOf:
    """The paths of znodes, for a ZooKeeper.

    A file can be of any cluster: programs get the paths that its quotas would have, people do not.
    """
    wanted = output not in _TABLES if source.access is None else source.access.is_zookeeper
    return znode_path if wanted else lambda _: None


def _brokers(facts: BrokerFacts) -> tuple[BrokerSettings | None, StaticQuotas]:
    settings = session.load_broker_settings(facts)
    return settings, NO_STATIC_QUOTAS if settings is None else settings.static


def _refuse_for_many(ip: str | None, brokers: int | None, output: str) -> None:
    if output in ("tree", "yaml") or brokers is not None:
        what = "--brokers is" if brokers is not None else f"-o {output} is"
        raise click.UsageError(f"{what} for one client")
    if ip is not None:
        raise click.UsageError("--ip is for one client")


def resolved(
    names: Mapping[EntityType, str | None],
    resolutions: Sequence[Resolution],
    brokers: int | None,
    caveats: Sequence[Caveat],
    path_of: PathOf,
) -> View:
    """What governs a client in resolve's formats; the caveats in those that have room for them.

    `path_of` gives the path of an entity's znode, None for a cluster without ZooKeeper.
    """

    def screen(*, wide: bool = False) -> Iterator[Part]:
        yield _table(resolutions, brokers, path_of, wide=wide)
        if all(item.limit is None for item in resolutions):
            yield Note("no quota limits this client")

    return View(
        screen=screen,
        document=lambda: resolution_document(names, resolutions, path_of, brokers=brokers, caveats=caveats),
        csv=lambda: csv_of([with_path(item, path_of) for item in resolutions], CSV),
        others={
            "tree": lambda: [_explanation(names, resolutions, brokers, caveats)],
            "wide": functools.partial(screen, wide=True),
        },
    )


def _table(resolutions: Sequence[Resolution], brokers: int | None, path_of: PathOf, *, wide: bool) -> Table:
    """A row for each key; `wide` also has the tag of each counter, and the path of each entity's znode."""

    def shadows(item: Resolution) -> str:
        texts = (f"{source(item.key, other.entity)} ({limit_text(item.key, other.value)})" for other in item.shadows)
        return ", ".join(texts) or "-"

    def path(item: Resolution) -> str:
        return (wide and item.entity is not None and path_of(item.entity)) or ""

    return table_of(
        resolutions,
        [
            (Column("KEY", whole=True), lambda item: item.key),
            (Column("LIMIT", number=True, style="bold"), limit_of),
            brokers is not None
            and (Column(f"ON {brokers} BROKERS", number=True), functools.partial(on_brokers, brokers=brokers)),
            (Column("LEVEL", spare=1), level),
            (Column("FROM", style="cyan"), lambda item: (origin(item), path(item))),
            (Column("COUNTER", spare=2), counter),
            wide and (Column("TAG"), tag),
            (Column("SHADOWS", style="dim", spare=3), shadows),
        ],
    )


def _explanation(
    names: Mapping[EntityType, str | None],
    resolutions: Sequence[Resolution],
    brokers: int | None,
    caveats: Sequence[Caveat],
) -> Branch:
    """The tree of one client: every key with its entity, counter, what it shadows, and what it comes to."""
    title = ", ".join(f"{kind.value} {name or '(empty)'}" for kind, name in names.items() if name is not None)
    below = [
        Branch(
            f"{item.key}: {limit_text(item.key, item.limit)}",
            list(_reasons(item, brokers)),
            "" if item.limit is None else "cyan",
        )
        for item in resolutions
    ]
    if caveats:
        below.append(Branch("but", [Branch(caveat.message) for caveat in caveats], "yellow"))
    return Branch(title, below, "bold")


def _reasons(item: Resolution, brokers: int | None) -> Iterator[Branch]:
    if item.level is not None and item.limit is not None:
        yield Branch(f"from {source(item.key, item.entity)}: level {item.level.number}, {item.level.label}")
        if item.key is QuotaKey.CONTROLLER_MUTATION_RATE:
            yield Branch("in the whole cluster: the active controller counts")
        else:
            total = "" if brokers is None else f", on {brokers} brokers {on_brokers(item, brokers)}"
            yield Branch(f"on each broker {limit_text(item.key, item.limit)}{total}")
    if item.limit is not None:
        yield Branch(f"counter of {subject(item.key, str(item.sensor))}, charged by {_sharers(item)}")
    if item.shadows:
        yield Branch(
            "shadows",
            [
                Branch(
                    f"{source(item.key, other.entity)}: {limit_text(item.key, other.value)}, level"
                    f" {other.level.number}, {other.level.label}"
                )
                for other in item.shadows
            ],
            "dim",
        )
    if item.ignored:
        yield Branch(
            "not enforced",
            [
                Branch(f"{source(item.key, other.entity)}: {limit_text(item.key, other.value)}, {other.reason}")
                for other in item.ignored
            ],
            "yellow",
        )


def _sharers(item: Resolution) -> str:
    """Who is charged to the counter (`ClientQuotaManager`'s metric tags)."""
    if item.key is QuotaKey.CONNECTION_CREATION_RATE:
        return "this ip alone"
    if item.sensor.user:
        return "this user with this client-id" if item.sensor.client_id else "all clients of this user"
    return "all users with this client-id" if item.sensor.client_id else "all who send no client-id"
