"""`kquota describe`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import click

from kquota.backends import QuotaBackend
from kquota.cli import grammar, params, session
from kquota.cli.leases import leases_of, note_ends
from kquota.cli.streams import note
from kquota.cli.text import Column, entity_text, first_of, safe
from kquota.cli.views import Csv, Document, Note, Part, Table, View, show, shown_as
from kquota.core.quotas.entity import Entity, EntityType
from kquota.core.quotas.quota import QuotaKey, limit_text
from kquota.core.quotas.selector import ANY, NamePatterns, QuotaFilter

if TYPE_CHECKING:
    from kquota.core.quotas.snapshot import QuotaSnapshot


@grammar.command("describe")
@shown_as("table", "wide", "json", "yaml", "csv", "name", takes_output=True)
def command(
    *,
    selection: params.Selection = params.ENTITIES,
    strict: bool = params.STRICT,
    match: NamePatterns = params.MATCH,
    source: session.QuotaSource = params.SOURCE,
    output: str,
) -> View | None:
    """Show the quotas that are set.

    Without entity options, all of them. --user alice is exactly that user; a repeated --user, --client or --ip, also
    beside --user-defaults and the like, means all of them; --entity-type users is every user and the default;
    --entity-type users --entity-type clients is every <user, client-id> pair. On ZooKeeper -o wide also says which
    users have SCRAM credentials, by mechanism; keys are never shown.

    Of brokers (--broker 1, --broker-defaults, --entity-type brokers for all) it shows the limits of connections and the
    settings by which quotas are measured: what is in effect, the level that it is set at, and what it shadows. Through
    ZooKeeper only what is set dynamically is known.

    \b
    Examples:
      kquota describe --zookeeper localhost:2181/kafka
      kquota describe --user alice --no-strict
      kquota describe --entity-type clients -o csv
      kquota describe --match 'team-a-*'
      kquota describe -o yaml > quotas.yaml
      kquota describe --quotas quotas.yaml -o wide
      kquota describe --broker 1 --bootstrap-server localhost:9092
    """
    if selection.broker is not None:
        if match:
            raise click.UsageError("--match is for names of users, client-ids and ips, and brokers have none")
        from kquota.cli import brokers

        if source.file is not None:
            raise click.UsageError("--quotas FILE has no limits of brokers: ask them, by --bootstrap-server HOST:PORT")
        return brokers.described(None if selection.broker is ANY else selection.broker, source.cluster.access())
    from kquota.core.quotas.snapshot import merged

    filters = selection.filters(strict=strict)
    with session.open_quotas(source) as backend:
        parts = [backend.describe(wanted) for wanted in filters]
        mechanisms: dict[Entity, Sequence[str]] = {}
        if output == "wide":
            for wanted in filters:
                mechanisms.update(backend.scram_mechanisms(wanted))
        # Nothing was found: it may be a slip of the pen or have pairs, which only the names that are there can tell.
        missing = [
            wanted
            for wanted, part in zip(filters, parts, strict=True)
            if not part and not mechanisms and wanted.components
        ]
        others = backend.describe() if missing else None
        pairs = _pairs_of(backend, filters, parts) if output in ("table", "wide") else 0
        snapshot = merged(parts).part(match.matches)
        leases = leases_of(backend).shown_in(snapshot)
    mechanisms = {entity: names for entity, names in mechanisms.items() if match.matches(entity)}
    for wanted in filters:
        session.warn_misnomers(wanted.components)
    session.warn_problems(snapshot.problems)
    where = params.there(source.access) if source.file is None else f" --quotas {shlex.quote(str(source.file))}"
    without = f"no entity with quotas has a name like {match}" if match else _nothing(filters, where)
    view = described(snapshot, mechanisms, without)
    if others is None and not leases and not pairs:
        return view
    show(view, output)
    note_ends(leases)
    if pairs:
        _note_pairs_too(wanted, pairs, where)
    for wanted in missing:
        assert others is not None
        if snapshot or len(filters) > 1:
            asked = (f"{kind.value}={getattr(match, 'value', match)}" for kind, match in wanted.components.items())
            note(safe(f"no quotas are set on {', '.join(asked)}"))
        session.note_slips(others, wanted.components)
        named = [entity for entity in others if replace(wanted, strict=False).matches(entity)]
        pairs_of_it = [entity for entity in named if match.matches(entity)]
        if pairs_of_it:  # who asks for the one may mean those
            note(f"there are quotas of {first_of(pairs_of_it, entity_text, 1)}: --no-strict shows them")
    return None


def _pairs_of(backend: QuotaBackend, filters: Sequence[QuotaFilter], parts: Sequence[QuotaSnapshot]) -> int:
    """How many pairs of the one user that is described have quotas too.

    Asked for a single user only: in ZooKeeper, the pairs of a client-id are below every user.
    """
    if len(filters) > 1 or not parts[0]:
        return 0
    (wanted,) = filters
    exact = wanted.exact
    if exact is None or exact.types != {EntityType.USER} or not isinstance(exact.user, str):
        return 0
    return len(backend.describe(replace(wanted, strict=False))) - len(parts[0])


def _note_pairs_too(wanted: QuotaFilter, pairs: int, where: str) -> None:
    """Says that pairs of the user have quotas too, which come first for their clients."""
    user = shlex.quote(str(wanted.components[EntityType.USER]))
    have = "1 pair of this user has quotas" if pairs == 1 else f"{pairs:,} pairs of this user have quotas"
    note(safe(f"{have} too: --no-strict shows them; 'kquota resolve --user {user}{where}' shows what governs a client"))


def _nothing(filters: Sequence[QuotaFilter], where: str) -> str:
    """That no quotas are set, for whom, and which command shows the quota that governs a client of that name.

    `where` are the command's words for the cluster or the file.
    """
    components = filters[0].components
    names = [(kind, match) for kind, match in components.items() if isinstance(match, str)]
    if len(filters) > 1 or not names or len(names) < len(components):
        return "no quotas are set"
    entity = ",".join(f"{kind.value}={name}" for kind, name in names)
    options = " ".join(f"--{kind.value.removesuffix('-id')} {shlex.quote(name)}" for kind, name in names)
    return f"no quotas are set for {entity}; 'kquota resolve {options}{where}' shows the quota that governs it"


def described(
    snapshot: QuotaSnapshot,
    mechanisms: Mapping[Entity, Sequence[str]] = MappingProxyType({}),
    without: str = "no quotas are set",
) -> View:
    """A snapshot in describe's formats.

    `mechanisms` are the users' SCRAM credentials, for `wide`; `without` is the note of a snapshot without quotas.
    """

    def document() -> Document:
        from kquota.documents.quotas import quotas_document

        return quotas_document(snapshot)

    def csv() -> Csv:
        from kquota.documents.foreign.csv import HEADINGS, rows

        return Csv(HEADINGS, rows(snapshot))

    nothing = [Note(safe(without))]

    def table() -> Sequence[Part]:
        if not snapshot:
            return nothing
        columns = [Column("ENTITY", style="cyan"), Column("KEY", whole=True), Column("VALUE", number=True)]
        rows = (
            (name, key, limit_text(key, value))
            for entity, values in snapshot.items()
            for name in (entity_text(entity),)
            for key, value in values.items()
        )
        return [Table(columns, rows)]

    def wide() -> Sequence[Part]:
        if not snapshot and not mechanisms:
            return nothing
        keys = [key for key in QuotaKey if any(key in values for values in snapshot.values())]
        columns = [Column("ENTITY", style="cyan", whole=True)]
        columns += [Column(key.value.upper(), number=True) for key in keys]
        columns += [Column("SCRAM", whole=True)] if mechanisms else []

        def row(entity: Entity) -> list[str]:
            values = snapshot.get(entity, {})
            cells = [limit_text(key, values[key]) if key in values else "-" for key in keys]
            credentials = [",".join(mechanisms.get(entity, "-"))] if mechanisms else []
            return [entity_text(entity), *cells, *credentials]

        # A user with credentials may have no quotas.
        entities = sorted({*snapshot, *mechanisms}, key=lambda entity: entity.sort_key) if mechanisms else snapshot
        return [Table(columns, map(row, entities))]

    return View(screen=table, document=document, csv=csv, others={"wide": wide, "name": lambda: map(safe, snapshot)})
