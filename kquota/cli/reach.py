"""What governs clients, as people read it; and `kquota resolve --all` and `--who`: many clients, a row for each key."""

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

from kquota.cli.streams import note
from kquota.cli.text import Column, entity_text, safe
from kquota.cli.views import Csv, Document, Part, View, csv_of, show, table_of
from kquota.core.findings.finding import subject
from kquota.core.quotas.entity import Entity, EntityType
from kquota.core.quotas.quota import QuotaKey, limit_text
from kquota.core.quotas.selector import NamePatterns
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.core.quotas.static import STATIC_CONFIGS, StaticQuotas
from kquota.core.resolve.reach import OTHER, Client, ClientName, Reach
from kquota.core.resolve.resolver import Resolution
from kquota.documents.clients import read_clients
from kquota.documents.limits import resolution_document
from kquota.errors import InputError, Refused

CSV = "key=0.key limit=0.limit level=0.level.label entity=0.entity znode=1 sensor=0.sensor"
"""The columns in CSV of a resolution and the path of its entity's znode."""
PathOf = Callable[[Entity], str | None]
"""The path of an entity's znode; None for a cluster without ZooKeeper."""


def with_path(item: Resolution, path_of: PathOf) -> tuple[Resolution, str | None]:
    """A resolution, and the path of its entity's znode."""
    return item, None if item.entity is None else path_of(item.entity)


def limit_of(item: Resolution) -> str:
    """The limit of a client for people; not determined where several entities spell one address."""
    return limit_text(item.key, item.limit) if item.is_determined else "not determined"


def source(key: QuotaKey, entity: Entity | None) -> str:
    """Where a value comes from: its entity, or the static default's config."""
    return STATIC_CONFIGS[key] if entity is None else entity_text(entity)


def level(item: Resolution) -> str:
    """The level of the limit, by its number and its name; `-` where nothing is limited."""
    return "-" if item.level is None else f"{item.level.number} {item.level.label}"


def origin(item: Resolution) -> str:
    """Where the limit comes from; `-` where nothing is limited."""
    return "-" if item.level is None else source(item.key, item.entity)


def tag(item: Resolution) -> str:
    """The tag of the counter that is charged; `-` where nothing is limited."""
    return "-" if item.limit is None else str(item.sensor)


def on_brokers(item: Resolution, brokers: int) -> str:
    """What the limit comes to on that many brokers, for people."""
    return limit_text(item.key, None if item.limit is None else item.key.on_brokers(item.limit, brokers))


def counter(item: Resolution) -> str:
    """Whose counter is charged, as people say it: `user alice`; `-` where nothing is limited."""
    return "-" if item.limit is None else subject(item.key, str(item.sensor))


Resolved = tuple[Client, tuple[Resolution, ...]]
MOST: Final = 100_000
"""A table of more known clients fills the memory; CSV and JSON are printed as they come."""


@dataclass(frozen=True)
class Many:
    """Shows what governs many clients, in the format `output`."""

    snapshot: QuotaSnapshot
    static: StaticQuotas
    match: NamePatterns
    output: str
    path_of: PathOf

    def all(self, user: str | None, client_id: str | None) -> None:
        """Every known client, or those with that user or client-id. Raises Refused beyond MOST."""
        reach = Reach(self.snapshot, self.static)
        count, clients = reach.pairs(user, client_id)
        self._check(count, "narrow it by --user or --client")
        self._each(reach, clients, with_ip=False)
        if not reach.keys:
            note("no quotas of users and client-ids are set")

    def observed(self, file: Path) -> None:
        """Each client in the file. Raises InputError for what is wrong with the file."""
        with _opened(file) as lines:
            with_ip = any(entity.ip is not None for entity in self.snapshot)
            self._each(Reach(self.snapshot, self.static), read_clients(lines, file), with_ip=with_ip)

    def _each(self, reach: Reach, clients: Iterable[Client], *, with_ip: bool) -> None:
        wanted = (client for client in clients if self._has_name(client))
        self._show(((client, reach.resolve(client)) for client in wanted), with_ip=with_ip)

    def governed(self, entity: Entity, file: Path | None) -> None:
        """Whom the entity governs, of the clients in the file or else of the known ones; the counts on stderr.

        Raises Refused beyond MOST known clients, InputError for what is wrong with the file.
        """
        reach = Reach(self.snapshot, self.static)
        counts = Counter[str]()

        def counted(clients: Iterable[Client]) -> Iterator[Client]:
            for client in filter(self._has_name, clients):
                counts["seen"] += 1
                yield client

        def governing(clients: Iterable[Client]) -> Iterator[Resolved]:
            for resolved in reach.governed(entity, counted(clients)):
                counts["governed"] += 1
                yield resolved

        with_ip = entity.ip is not None
        if file is None:
            count, clients = reach.candidates(entity)
            self._check(count, "give the observed ones by --clients")
            self._show(governing(clients), with_ip=with_ip)
        else:
            with _opened(file) as lines:
                self._show(governing(read_clients(lines, file)), with_ip=with_ip)
        what = "observed" if file is not None else "known"
        nothing = "" if entity in self.snapshot else " has no quotas;"
        like = f" with a name like {self.match}" if self.match else ""
        names = {"user": entity.user, "client": entity.client_id}
        named = [f" --{option} {shlex.quote(name)}" for option, name in names.items() if isinstance(name, str)]
        others = not (file or with_ip or self.match) and counts["governed"] < counts["seen"]
        shows = f" ('kquota resolve --all{''.join(named)}' shows the others)" if others else ""
        whom = f"{counts['governed']} of {counts['seen']} {what} clients{like}"
        note(safe(f"{entity_text(entity)}{nothing} governs {whom}{shows}"))

    def _has_name(self, client: Client) -> bool:
        """Whether a name of the client matches; clients of any other name have none."""
        return self.match.matches_names(
            zip((EntityType.USER, EntityType.CLIENT_ID, EntityType.IP), client, strict=True)
        )

    def _check(self, count: int, hint: str) -> None:
        if count > MOST and self.output not in ("csv", "json"):
            raise Refused(f"there are {count} known clients, more than {MOST}", hint=f"{hint}, or -o csv")

    def _show(self, resolved: Iterable[Resolved], *, with_ip: bool) -> None:
        """Each client's resolutions; CSV and JSON as they come."""

        def document() -> Iterator[Document]:
            for client, resolutions in resolved:
                yield resolution_document(dict(zip(EntityType, client, strict=True)), resolutions, self.path_of)

        def csv() -> Csv:
            rows = (
                (*with_path(resolution, self.path_of), *_names(client, with_ip))
                for client, resolutions in resolved
                for resolution in resolutions
            )
            return csv_of(rows, f"user=2 client_id=3 {'ip=4 ' if with_ip else ''}{CSV}")

        view = View(
            screen=lambda: _table(resolved, with_ip=with_ip, wide=False),
            document=document,
            csv=csv,
            others={"wide": lambda: _table(resolved, with_ip=with_ip, wide=True)},
        )
        show(view, self.output)


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


def _table(resolved: Iterable[Resolved], *, with_ip: bool, wide: bool) -> Sequence[Part]:
    """A row for each client and key; `wide` also has the tag of each counter."""
    shown = [(client, resolution) for client, resolutions in resolved for resolution in resolutions]
    if not shown:
        return []
    names = [Column(heading) for heading in ("USER", "CLIENT-ID", *(["IP"] if with_ip else []))]
    table = table_of(
        shown,
        [
            *((column, lambda row, at=at: _names(row[0], with_ip)[at] or '""') for at, column in enumerate(names)),
            (Column("KEY", whole=True), lambda row: row[1].key),
            (Column("LIMIT", number=True, style="bold"), lambda row: limit_text(row[1].key, row[1].limit)),
            (Column("LEVEL", spare=3), lambda row: level(row[1])),
            (Column("FROM", style="cyan", spare=1), lambda row: origin(row[1])),
            (Column("COUNTER", spare=2), lambda row: counter(row[1])),
            wide and (Column("TAG"), lambda row: tag(row[1])),
        ],
    )
    return [table]


def _names(client: Client, with_ip: bool) -> list[str]:
    names: tuple[ClientName | None, ...] = client if with_ip else client[:2]
    return [OTHER.value if name is OTHER else name or "" for name in names]
