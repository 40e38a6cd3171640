"""`kquota resolve --all` and `--who`: many clients, a row for each key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from kquota.cli.limits import counter, source
from kquota.cli.streams import note
from kquota.cli.text import Column, entity_text
from kquota.cli.views import Csv, Document, Part, Table, View, show
from kquota.core.quotas.entity import Entity, EntityType
from kquota.core.quotas.pattern import NamePatterns
from kquota.core.quotas.quota import limit_text
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.core.quotas.static import StaticQuotas
from kquota.core.resolve.reach import OTHER, Client, ClientName, Reach
from kquota.core.resolve.resolver import Resolution
from kquota.documents.clients import read_clients
from kquota.documents.resolution import resolution_document
from kquota.errors import InputError, Refused

Resolved = tuple[Client, tuple[Resolution, ...]]
PathOf = Callable[[Entity], str | None]
"""The path of an entity's znode; None for a cluster without ZooKeeper."""


def show_all(
    snapshot: QuotaSnapshot,
    static: StaticQuotas,
    user: str | None,
    client_id: str | None,
    match: NamePatterns,
    most: int,
    output: str,
    path_of: PathOf,
) -> None:
    """Shows what governs every known client, or those with that user or client-id. Raises Refused beyond `most`."""
    reach = Reach(snapshot, static)
    count, clients = reach.pairs(user, client_id)
    _check(count, most, "narrow it by --user or --client, or raise --max-clients")
    wanted = (client for client in clients if _has_name(client, match))
    _show(((client, reach.resolve(client)) for client in wanted), output, path_of, with_ip=False)
    if not reach.keys:
        note("no quotas of users and client-ids are set")


def show_governed(
    snapshot: QuotaSnapshot,
    static: StaticQuotas,
    entity: Entity,
    file: Path | None,
    match: NamePatterns,
    most: int,
    output: str,
    path_of: PathOf,
) -> None:
    """Shows whom the entity governs, of the clients in the file or else of the known ones; the counts on stderr.

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
        _show(governing(clients), output, path_of, with_ip=with_ip)
    else:
        with _opened(file) as lines:
            _show(governing(read_clients(lines, file)), output, path_of, with_ip=with_ip)
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


def _show(found: Iterable[Resolved], output: str, path_of: PathOf, *, with_ip: bool) -> None:
    """Shows each client's resolutions in one of the formats; CSV and JSON as they come."""

    def document() -> Iterator[Document]:
        for client, resolutions in found:
            yield resolution_document(*client, resolutions, path_of)

    ip_heading = ["ip"] if with_ip else []
    headings = ["user", "client_id", *ip_heading, "key", "limit", "level", "entity", "znode", "sensor"]
    view = View(
        screen=lambda: _table(found, with_ip=with_ip, wide=False),
        document=document,
        csv=lambda: Csv(headings, _csv_rows(found, path_of, with_ip=with_ip)),
        others={"wide": lambda: _table(found, with_ip=with_ip, wide=True)},
    )
    show(view, output)


def _csv_rows(found: Iterable[Resolved], path_of: PathOf, *, with_ip: bool) -> Iterator[Sequence[object]]:
    for client, resolutions in found:
        for each in resolutions:
            level = None if each.level is None else each.level.label
            znode = None if each.entity is None else path_of(each.entity)
            yield (*_names(client, with_ip), each.key, each.limit, level, each.entity, znode, each.sensor)


def _table(found: Iterable[Resolved], *, with_ip: bool, wide: bool) -> Sequence[Part]:
    """A row for each client and key; `wide` also has the tag of each counter."""
    shown = [(client, each) for client, resolutions in found for each in resolutions]
    if not shown:
        return []
    columns = [
        *map(Column, ["USER", "CLIENT-ID", *(["IP"] if with_ip else [])]),
        Column("KEY", whole=True),
        Column("LIMIT", number=True, style="bold"),
        Column("LEVEL", spare=2),
        Column("FROM", style="cyan", spare=1),
        Column("COUNTER", spare=3),
        *([Column("TAG")] if wide else []),
    ]
    rows = [
        (
            *(name or '""' for name in _names(client, with_ip)),
            each.key,
            limit_text(each.key, each.limit),
            "-" if each.level is None else f"{each.level.number} {each.level.label}",
            "-" if each.level is None else source(each.key, each.entity),
            counter(each),
            *(["-" if each.limit is None else each.sensor] if wide else []),
        )
        for client, each in shown
    ]
    return [Table(columns, rows)]


def _names(client: Client, with_ip: bool) -> list[str]:
    names: tuple[ClientName | None, ...] = client if with_ip else client[:2]
    return [OTHER.value if name is OTHER else name or "" for name in names]
