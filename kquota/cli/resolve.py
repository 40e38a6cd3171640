"""`kquota resolve`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from kquota.cli import params, session
from kquota.core.entity import Entity, EntityType
from kquota.core.quota import QuotaKey, Value, humanize
from kquota.core.resolver import Resolution, Shadowed, resolve, resolve_ip
from kquota.core.static import NO_STATIC_QUOTAS, STATIC_CONFIGS
from kquota.errors import InputError


@click.command("resolve")
@click.option(
    "--user",
    metavar="NAME",
    shell_complete=params.completed_by("users"),
    help="The user's principal name; connections without one are ANONYMOUS.",
)
@click.option(
    "--client",
    metavar="NAME",
    shell_complete=params.completed_by("clients"),
    help="The client-id; left out, the empty one.",
)
@click.option(
    "--ip",
    metavar="ADDRESS",
    shell_complete=params.completed_by("ips"),
    help="The ip address that the client connects from.",
)
@params.quotas_option
@params.server_properties_option
@params.kafka_version_option
@params.cluster_options
@params.output_option("table", "json", "yaml", "csv")
def command(user: str | None, client: str | None, ip: str | None, output: str, **options: Any) -> None:
    """Explain which quota governs a client.

    For each quota key: the limit that applies, the entity and level that it comes from, whose counter is charged
    (KIP-55's quota-id: 'user1:' is shared by all clients of the user, ':clientA' by all users of the client-id), and
    the quotas that it shadows. A client with an empty client-id escapes every client-id default, as on a broker. The
    static defaults of a broker's server.properties (Kafka 0.9 to 2.8) are the ninth and last level.

    \b
    Examples:
      kquota resolve --user alice --client app1 --zookeeper localhost:2181
      kquota resolve --user alice --client app1 --ip 10.0.0.7 --quotas quotas.yaml
      kquota resolve --user alice --quotas quotas.yaml -o json
      kquota resolve --client app1 --quotas quotas.yaml --server-properties server.properties --kafka-version 2.8
    """
    if user is None and client is None and ip is None:
        raise click.UsageError("whom to resolve? Give --user NAME, --client NAME or --ip ADDRESS")
    if user == "" or ip == "":
        raise InputError("an empty name cannot be resolved", hint="connections without a user are ANONYMOUS")
    session.warn_misnomers({EntityType.USER: user, EntityType.CLIENT_ID: client})
    settings = session.load_broker_settings(options)
    static = NO_STATIC_QUOTAS if settings is None else settings.static
    snapshot = session.load_quotas(options)
    resolutions: tuple[Resolution, ...]
    if user is None and client is None:
        assert ip is not None
        resolutions = (resolve_ip(snapshot, ip),)
    else:
        user, client = user or "ANONYMOUS", client or ""
        resolutions = resolve(snapshot, user, client, ip, static)
    print_resolutions(user, client, ip, resolutions, output)


def print_resolutions(
    user: str | None, client: str | None, ip: str | None, resolutions: Sequence[Resolution], output: str
) -> None:
    """Prints what governs a client in one of resolve's formats."""
    from kquota.backends.znode import znode_path

    if output in ("json", "yaml"):
        from kquota.documents.encoding import to_json, to_yaml
        from kquota.documents.resolution import resolution_document

        document = resolution_document(user, client, ip, resolutions, znode_path)
        click.echo(to_json(document) if output == "json" else to_yaml(document), nl=False)
        return
    from kquota.cli.text import Column, entity_text, print_csv, print_table

    if output == "csv":
        print_csv(
            ("key", "limit", "level", "entity", "znode", "sensor"),
            [
                (
                    item.key,
                    item.limit,
                    None if item.level is None else item.level.label,
                    item.entity,
                    None if item.entity is None else znode_path(item.entity),
                    item.sensor,
                )
                for item in resolutions
            ],
        )
        return

    def source(key: QuotaKey, entity: Entity | None) -> str:
        return STATIC_CONFIGS[key] if entity is None else entity_text(entity)

    def shadowed(key: QuotaKey, other: Shadowed) -> str:
        return f"{source(key, other.entity)} ({_limit(key, other.value)})"

    print_table(
        [
            Column("KEY", whole=True),
            Column("LIMIT", number=True, style="bold"),
            Column("LEVEL"),
            Column("FROM", style="cyan", whole=True),
            Column("COUNTER"),
            Column("SHADOWS", style="dim"),
        ],
        [
            (
                item.key,
                _limit(item.key, item.limit),
                "-" if item.level is None else f"{item.level.number} {item.level.label}",
                "-"
                if item.level is None
                else (source(item.key, item.entity), "" if item.entity is None else znode_path(item.entity)),
                item.sensor,
                ", ".join(shadowed(item.key, other) for other in item.shadows) or "-",
            )
            for item in resolutions
        ],
    )


def _limit(key: QuotaKey, value: Value | None) -> str:
    return "unlimited" if value is None else humanize(key, value)
