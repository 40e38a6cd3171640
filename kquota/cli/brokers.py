"""What `kquota describe` and `kquota alter` do to brokers (`--broker`, `--entity-type brokers`)."""

from collections.abc import Mapping, Sequence

from kquota.access import Access
from kquota.cli import consent, session
from kquota.cli.params import Writing
from kquota.cli.streams import note
from kquota.cli.text import Column
from kquota.cli.views import Csv, Note, Part, Table, View, changes_table, csv_of, show, table_of
from kquota.core.change.broker import (
    Broker,
    BrokerAlteration,
    BrokerAlterResult,
    BrokerConfig,
    BrokerSnapshot,
    beside,
    broker_text,
    check_name,
    humanize,
    parse_rate,
    rank,
)
from kquota.core.change.plan import Cluster
from kquota.documents.clusters import broker_alter_document, brokers_document
from kquota.errors import Conflict


def described(broker: Broker | None, access: Access) -> View:
    """One broker, or the cluster-wide default and all of them, in describe's formats."""
    session.note_cluster(access)
    with session.open_broker_configs(access) as configs:
        snapshot = configs.describe(broker)

    shown = [
        (broker_text(broker), config, setting, setting is config)
        for broker, configs in snapshot.items()
        for config in configs
        for setting in (config, *config.hidden)
    ]

    def screen() -> Sequence[Part]:
        return [_table(snapshot) if any(snapshot.values()) else Note("no configs are set")]

    return View(
        screen=screen,
        document=lambda: brokers_document(snapshot),
        csv=lambda: csv_of(shown, _CSV),
        others={"wide": screen, "name": lambda: map(broker_text, snapshot)},
    )


def alter(
    broker: Broker, additions: Mapping[str, str], deletions: list[str], writing: Writing, *, strict_delete: bool
) -> None:
    """Sets and deletes the limits of one broker, or the cluster-wide default of them."""
    rates = {name: parse_rate(check_name(name), text) for name, text in additions.items()}
    alteration = BrokerAlteration(broker, rates, frozenset(map(check_name, deletions)), strict_delete)
    access, dry_run = writing.access, writing.dry_run
    writing.open_journal(needs_reason=not dry_run)  # a context may require a reason of every write
    named = session.label(access)
    with session.open_broker_configs(access) as configs:
        consent.name_cluster(named)
        result = configs.alter(alteration, validate_only=dry_run)
        late = writing.wait and not dry_run and not configs.wait_visible(result, timeout_s=access.timeout_s)
    show(_altered(result, Cluster(session.cluster_name(access)), dry_run=dry_run), writing.output)
    if not dry_run and dict(result.before) != dict(result.after):
        note("limits of brokers are not in the journal: 'kquota undo' does not take this back")
    if late:
        raise Conflict(
            f"written, but not shown by the broker within {access.timeout_s:g} s: {broker_text(broker)}",
            hint="the broker lags behind, or somebody else altered it meanwhile: describe it",
        )


_CSV = "broker=0 config=1.name value=2.value source=2.source effective=3 set_as=2.name"


def _table(snapshot: BrokerSnapshot) -> Table:
    """A row for each config of each broker."""

    def hidden(config: BrokerConfig) -> str:
        settings = (f"{humanize(setting.name, setting.value)} ({setting.source.value})" for setting in config.hidden)
        return ", ".join(settings) or "-"

    return table_of(
        [(broker, config) for broker, configs in snapshot.items() for config in configs],
        [
            (Column("BROKER", style="cyan", whole=True), lambda row: broker_text(row[0])),
            (Column("CONFIG", whole=True), lambda row: row[1].name),
            (Column("VALUE", number=True), lambda row: humanize(row[1].name, row[1].value)),
            (Column("SOURCE"), lambda row: row[1].source.value),
            (Column("HOLDS TOO"), lambda row: _beside(row[1], snapshot[row[0]])),
            (Column("SHADOWS", style="dim"), lambda row: hidden(row[1])),
        ],
    )


def _beside(config: BrokerConfig, configs: Sequence[BrokerConfig]) -> str:
    """The broker-wide rate that a listener's connections must keep as well."""
    other = beside(config, configs)
    if other is None:
        return "-"
    unless = ", unless inter-broker" if config.is_protected is None else ""
    return f"{other.name} {humanize(other.name, other.value)}{unless}"


_COLUMNS = ("BROKER", "CONFIG", "BEFORE", "AFTER")


def _altered(result: BrokerAlterResult, cluster: Cluster, *, dry_run: bool) -> View:
    """What changed of a broker, per config."""

    names = sorted({*result.before, *result.after}, key=rank)
    changes = [(name, result.before.get(name), result.after.get(name)) for name in names]
    broker = broker_text(result.broker)
    rows = [
        (broker, name, humanize(name, before), humanize(name, after), before, after)
        for name, before, after in changes
        if before != after
    ]
    return View(
        screen=lambda: changes_table(_COLUMNS, rows, dry_run=dry_run),
        document=lambda: broker_alter_document(result, cluster, dry_run=dry_run),
        csv=lambda: Csv([*map(str.lower, _COLUMNS)], [(broker, *change) for change in changes]),
    )
