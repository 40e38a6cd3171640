"""`kquota resolve --all` and `--who`: many clients, a row for each key."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import click

from kquota.cli.limits import limit_text, source
from kquota.cli.streams import note
from kquota.cli.text import entity_text
from kquota.core.quotas.entity import Entity, EntityType
from kquota.core.quotas.pattern import NamePatterns
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.core.quotas.static import StaticQuotas
from kquota.core.resolve.reach import OTHER, Client, ClientName, Reach
from kquota.core.resolve.resolver import Resolution
from kquota.errors import InputError, Refused

Resolved = tuple[Client, tuple[Resolution, ...]]
PathOf = Callable[[Entity], str | None]
"""The path of an entity's znode; None for a cluster without ZooKeeper."""


def print_all(
    snapshot: QuotaSnapshot,
    static: StaticQuotas,
    user: str | None,
    client_id: str | None,
    match: NamePatterns,
    most: int,
    output: str,
    path_of: PathOf,
) -> None:
    """Prints what governs every known client, or those with that user or client-id. Raises Refused beyond `most`."""
    reach = Reach(snapshot, static)
    count, clients = reach.pairs(user, client_id)
    _check(count, most, "narrow it by --user or --client, or raise --max-clients")
    wanted = (client for client in clients if _has_name(client, match))
    _print(((client, reach.resolve(client)) for client in wanted), output, path_of, with_ip=False)
    if not reach.keys:
        note("no quotas of users and client-ids are set")


def print_governed(
    snapshot: QuotaSnapshot,
    static: StaticQuotas,
    entity: Entity,
    file: Path | None,
    match: NamePatterns,
    most: int,
    output: str,
    path_of: PathOf,
) -> None:
    """Prints whom the entity governs, of the clients in the file or else of the known ones; the counts on stderr.

    Raises Refused beyond `most` known clients, InputError for what is wrong with the file.
    """
    reach = Reach(snapshot, static)
    seen = governed = 0

    def counted(clients: Iterable[Client]) -> Iterator[Client]:
        nonlocal seen
        for client in clients:
            if _has_name(client, match):
                seen += 1
                yield client

    def governing(clients: Iterable[Client]) -> Iterator[Resolved]:
        nonlocal governed
        for found in reach.governed(entity, counted(clients)):
            governed += 1
            yield found

    with_ip = entity.ip is not None
    if file is None:
        count, clients = reach.candidates(entity)
        _check(count, most, "give the observed ones by --clients, or raise --max-clients")
        _print(governing(clients), output, path_of, with_ip=with_ip)
    else:
        from kquota.documents.clients import read_clients

        with _opened(file) as lines:
            _print(governing(read_clients(lines, file)), output, path_of, with_ip=with_ip)
    what = "observed" if file is not None else "known"
    nothing = "" if entity in snapshot else " has no quotas;"
    like = f" with a name like {match}" if match else ""
    note(f"{entity_text(entity)}{nothing} governs {governed} of {seen} {what} clients{like}")


def _has_name(client: Client, match: NamePatterns) -> bool:
    """Whether a name of the client matches; clients of any other name have none."""
    return match.matches_names(zip((EntityType.USER, EntityType.CLIENT_ID, EntityType.IP), client, strict=True))


@contextmanager
def _opened(file: Path) -> Iterator[TextIO]:
    """The lines of a file, or of standard input for `-`. Raises InputError for what cannot be read as text."""
    path = Path("/dev/stdin") if str(file) == "-" else file
    try:
        opened = path.open(encoding="utf-8-sig", newline="")
    except OSError as error:
        raise InputError(f"{file}: {(error.strerror or str(error)).lower()}") from None
    with opened:
        try:
            yield opened
        except UnicodeDecodeError:
            raise InputError(f"{file}: not UTF-8 text") from None


def _check(count: int, most: int, hint: str) -> None:
    if count > most:
        raise Refused(f"there are {count} known clients, more than {most}", hint=hint)


def _print(found: Iterable[Resolved], output: str, path_of: PathOf, *, with_ip: bool) -> None:
    """Prints each client's resolutions in one of the formats; CSV and JSON as they come."""
    if output == "json":
        from kquota.documents.encoding import to_json_line
        from kquota.documents.resolution import resolution_document

        for client, resolutions in found:
            click.echo(to_json_line(resolution_document(*client, resolutions, path_of)))
        return
    rows = ((client, each) for client, resolutions in found for each in resolutions)
    if output == "csv":
        import csv

        from kquota.cli.text import safe

        writer = csv.writer(sys.stdout, lineterminator="\n")
        ip_heading = ["ip"] if with_ip else []
        writer.writerow(["user", "client_id", *ip_heading, "key", "limit", "level", "entity", "znode", "sensor"])
        for client, each in rows:
            level = None if each.level is None else each.level.label
            znode = None if each.entity is None else path_of(each.entity)
            names = map(safe, _names(client, with_ip))
            entity = None if each.entity is None else safe(each.entity)
            writer.writerow([*names, each.key, each.limit, level, entity, znode, safe(each.sensor)])
        return
    from kquota.cli.text import Column, print_table

    shown = list(rows)
    if not shown:
        return
    print_table(
        [
            *map(Column, ["USER", "CLIENT-ID", *(["IP"] if with_ip else [])]),
            Column("KEY", whole=True),
            Column("LIMIT", number=True, style="bold"),
            Column("LEVEL"),
            Column("FROM", style="cyan"),
            Column("COUNTER"),
        ],
        [
            (
                *(name or '""' for name in _names(client, with_ip)),
                each.key,
                limit_text(each.key, each.limit),
                "-" if each.level is None else f"{each.level.number} {each.level.label}",
                "-" if each.level is None else source(each.key, each.entity),
                "-" if each.limit is None else each.sensor,
            )
            for client, each in shown
        ],
    )


def _names(client: Client, with_ip: bool) -> list[str]:
    names: tuple[ClientName | None, ...] = client if with_ip else client[:2]
    return [OTHER.value if name is OTHER else name or "" for name in names]
