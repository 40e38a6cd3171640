"""From options to a backend or a snapshot: the only place that decides where quotas come from."""

from __future__ import annotations

import contextlib
import functools
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click
from click.core import ParameterSource

from kquota.access import Access
from kquota.backends import QuotaBackend, cluster_of
from kquota.brokers import BrokerFacts
from kquota.cli.contexts import Given, choices, journal_folder
from kquota.cli.leases import leases_of
from kquota.cli.security import kafka_login, login
from kquota.cli.streams import note, once, warn
from kquota.cli.text import entity_text, first_of, moment
from kquota.core.quotas.entity import Entity, EntityType
from kquota.core.quotas.selector import QuotaFilter
from kquota.core.quotas.version import approximations, format_version, parse_version
from kquota.core.tabular import grouped
from kquota.errors import InputError, KquotaError
from kquota.state import CLUSTER

if TYPE_CHECKING:
    from kquota.backends.kafka import KafkaBackend, KafkaSecurity
    from kquota.backends.kafka.brokers import KafkaBrokerConfigs, KafkaLoggers
    from kquota.core.change.broker import BrokerSnapshot
    from kquota.core.change.history import QuotaHistory
    from kquota.core.change.plan import Cluster
    from kquota.core.enforcement.generation import BrokerSettings
    from kquota.core.quotas.snapshot import Ignored, Problem, QuotaSnapshot, Values
    from kquota.documents.journal import Journal, Pages
    from kquota.documents.quotas import QuotaFile
    from kquota.leases import Lease, Leases


def open_backend(access: Access) -> QuotaBackend:
    """The quotas of a cluster. Raises click.UsageError without an address, InputError for an unusable login."""
    cluster_name(access)
    return access.open(login(access))


def journal(folder: Path, access: Access) -> Journal:
    """The journal that `--journal` names, or its default: a folder, or the cluster itself.

    Raises as `open_backend` does for the cluster's.
    """
    from kquota.changes import journal_of
    from kquota.documents.journal import Journal

    ctx = click.get_current_context()
    if ctx.get_parameter_source("journal") is ParameterSource.DEFAULT:
        folder = journal_folder()
    if folder != CLUSTER:
        return Journal(folder)
    backend = open_backend(access)
    ctx.call_on_close(backend.close)
    return journal_of(backend, folder)


_NO_CLUSTER = (
    "no cluster: give --bootstrap-server HOST:PORT or --zookeeper HOST:PORT[/CHROOT], set KQUOTA_BOOTSTRAP_SERVER or"
    " KQUOTA_ZOOKEEPER, or name a context ('kquota config set-context')"
)
NO_QUOTAS = (
    "no cluster given: use --bootstrap-server, --zookeeper, --context, or --quotas FILE"
    " (KQUOTA_BOOTSTRAP_SERVER and KQUOTA_ZOOKEEPER name a cluster, too)"
)


def open_broker_configs(access: Access) -> KafkaBrokerConfigs:
    """The brokers of a cluster. Raises click.UsageError without an address that they answer at."""
    from kquota.backends.kafka.brokers import KafkaBrokerConfigs

    servers, security = open_brokers(access)
    return KafkaBrokerConfigs(servers, timeout_s=access.timeout_s, security=security)


def open_broker_loggers(access: Access) -> KafkaLoggers:
    """The request loggers of the brokers, or of the controllers. Raises click.UsageError where neither can be asked."""
    from kquota.backends.kafka.brokers import KafkaLoggers

    controllers = access.bootstrap_controller
    servers, security = (controllers, kafka_login(access)) if controllers else open_brokers(access)
    return KafkaLoggers(servers, timeout_s=access.timeout_s, security=security, controllers=bool(controllers))


def open_brokers(access: Access) -> tuple[str, KafkaSecurity]:
    """The bootstrap servers of a cluster, and how to log in. Raises click.UsageError where there are none."""
    from kquota.backends.kafka import KafkaSecurity

    if access.bootstrap_controller or access.is_zookeeper or not access.bootstrap_server:
        raise click.UsageError("no brokers: give --bootstrap-server HOST:PORT, or set KQUOTA_BOOTSTRAP_SERVER")
    return access.bootstrap_server, kafka_login(access) or KafkaSecurity()


def open_migration(bootstrap_server: str, access: Access) -> tuple[QuotaBackend, KafkaBackend]:
    """Both sides of a migration, with the logins and the time-out of `access`."""
    from kquota.backends.kafka import KafkaBackend

    source = open_backend(replace(access, bootstrap_server=None))
    return source, KafkaBackend(bootstrap_server, timeout_s=access.timeout_s, security=kafka_login(access))


def cluster_name(access: Access) -> str:
    """The cluster's address as the journal names it. Raises click.UsageError without one."""
    if access.address is None:
        raise click.UsageError(_NO_CLUSTER + choices())
    return access.address


def label(access: Access) -> str:
    """A cluster for people: its address, and the context. Raises click.UsageError without an address."""
    address = cluster_name(access)
    return address if access.context is None else f"{access.context} (context), {address}"


def note_cluster(access: Access, side: str = "cluster") -> None:
    """Names the cluster that is about to be read, to people at a terminal; scripts know which one they asked for."""
    if sys.stderr.isatty():
        once(f"{side}: {label(access)}", note)


@dataclass(frozen=True)
class QuotaSource:
    """Where quotas are read from: the file of `--quotas`, else the live cluster that the cluster options name."""

    file: Path | None
    cluster: Given

    @functools.cached_property
    def access(self) -> Access | None:
        """The live cluster; None for a file, and where no cluster is named. Raises as `Given.access` does."""
        if self.file is not None:
            return None
        access = self.cluster.access()
        return None if access.address is None else access

    @property
    def is_named(self) -> bool:
        """Whether the options, the environment or a context say where quotas are."""
        return self.file is not None or self.access is not None

    @property
    def live(self) -> QuotaSource:
        """The live cluster, whatever the file."""
        return QuotaSource(None, self.cluster)


def load_quotas(source: QuotaSource) -> QuotaSnapshot:
    """The quotas of a file, else of the live cluster; their problems become warnings on stderr."""
    return _load_quotas(source)[0]


def load_quotas_and_leases(
    source: QuotaSource, wanted: QuotaFilter | None = None
) -> tuple[QuotaSnapshot, tuple[Lease, ...]]:
    """As `load_quotas`, and which of the values end, as far as this user's journal knows.

    A filter is the cluster's to apply; a file is read as a whole.
    """
    snapshot, leases = _load_quotas(source, wanted, leases_of)
    return snapshot, () if leases is None else leases.shown_in(snapshot)


_T = TypeVar("_T")


def _load_quotas(
    source: QuotaSource, wanted: QuotaFilter | None = None, ask: Callable[[QuotaBackend], _T | None] = lambda _: None
) -> tuple[QuotaSnapshot, _T | None]:
    """The quotas, and what `ask` finds out about a live cluster beside them."""
    if source.file is not None:
        _only_a_file(source)
        return load_quotas_file(source.file), None
    with _open_live(source) as backend:
        snapshot = backend.describe() if wanted is None else backend.describe(wanted)
        answer = ask(backend)
    warn_problems(snapshot.problems)
    return snapshot, answer


def _only_a_file(source: QuotaSource) -> None:
    """Raises click.UsageError when the command line names a cluster too."""
    if source.cluster.names_a_cluster:
        raise click.UsageError("--quotas and a cluster both name quotas: give one of them")


def load_quotas_file(file: Path) -> QuotaSnapshot:
    """The quotas of a file; of a large one in YAML it is said that JSON is faster."""
    from kquota.documents.quotas import read_quotas

    snapshot = read_quotas(file)
    _note_size(file, len(snapshot))
    return snapshot


def load_history(source: QuotaSource, folder: Path | None, *, only_a_file: bool = True) -> QuotaHistory:
    """As `load_quotas`, but the file may be a history, and a journal's folder leads back from what is given.

    `only_a_file`: whether a cluster must not be given beside the file.
    """
    from kquota.core.change.history import QuotaHistory
    from kquota.documents.history import journal_history, read_history

    here = None
    if source.file is None:
        snapshot, live = (load_quotas(source), Live()) if folder is None else load_quotas_and_live(source, leases=False)
        here = live.cluster
        history = QuotaHistory.of(snapshot)
    else:
        if only_a_file:
            _only_a_file(source)
        history = read_history(source.file)
    if folder is None:
        return history
    if history.changes_ms:
        raise click.UsageError("--quotas-journal leads back from the quotas of today: --quotas must not be a history")
    from kquota.documents.journal import Journal

    pages = (Journal(folder) if source.access is None else journal(folder, source.access)).read()
    warn_unreadable(pages)
    entries = pages.entries if here is None else pages.of(here)
    if not entries:
        raise InputError(f"{folder}: no changes of this cluster in the journal", hint="'kquota history' lists them")
    return journal_history(entries, history.latest)


def warn_unreadable(pages: Pages) -> None:
    """The files of the journal that are no entries, a line each on stderr."""
    for name, why in pages.unreadable:
        warn(f"{pages.folder / name} is no entry of the journal: {why}")


@dataclass(frozen=True)
class Live:
    """What a plan needs of the live cluster beside its quotas; of a file nothing of it is known.

    An ensemble that no broker is registered at does not say how many there are.
    """

    brokers: int | None = None
    cluster: Cluster | None = None
    leases: Leases | None = None


def load_quotas_and_live(source: QuotaSource, *, leases: bool = True) -> tuple[QuotaSnapshot, Live]:
    """What `load_quotas` reads, and what is known of the live cluster; `leases`: by this user's journal, too."""

    def ask(backend: QuotaBackend) -> Live:
        here = cluster_of(backend)
        return Live(_brokers_of(backend), here, leases_of(backend, here) if leases and here is not None else None)

    snapshot, live = _load_quotas(source, ask=ask)
    return snapshot, live or Live()


def warn_of_changes(source: QuotaSource, first_ms: int) -> None:
    """Warns where the journal has changes of the live quotas since that time (epoch ms), or cannot be read."""
    from kquota.changes import journal_of

    try:
        with _open_live(source) as backend:
            book, here = journal_of(backend, journal_folder()), cluster_of(backend)
            first = f"{datetime.fromtimestamp(first_ms / 1000, UTC):%Y%m%dT%H%M%SZ}"
            pages = book.read(name for name in book.names() if name >= first)
    except KquotaError as error:
        warn(f"whether quotas changed since this was recorded is not known: {error.message}")
        return
    warn_unreadable(pages)
    made = [entry for entry in pages.of(here) if entry.may_have_changed and entry.plan.changes] if here else []
    if changes := [moment(entry.started) for entry in made]:  # a recording that goes on is none
        message = (
            f"quotas changed during or since the recording ({first_of(changes)} UTC), and these are the quotas of now"
        )
        warn(f"{message}: --quotas-journal {book.folder} counts the changes")


def count_brokers(source: QuotaSource) -> int | None:
    """How many brokers the live cluster has; None for a file, and where the cluster does not say."""
    if source.access is None:
        return None
    with contextlib.suppress(KquotaError), _open_live(source) as backend:
        return _brokers_of(backend)
    return None


def _brokers_of(backend: QuotaBackend) -> int | None:
    with contextlib.suppress(KquotaError):
        return backend.broker_count() or None
    return None


def open_quotas(source: QuotaSource) -> QuotaBackend:
    """The quotas of a file as if a cluster had them, else the live cluster. Raises as `load_quotas` does."""
    if source.file is None:
        return _open_live(source)
    _only_a_file(source)
    from kquota.backends.memory import MemoryBackend
    from kquota.documents.quotas import read_quotas

    return MemoryBackend(read_quotas(source.file))


def _open_live(source: QuotaSource) -> QuotaBackend:
    access = source.access
    if access is None:
        raise click.UsageError(NO_QUOTAS + choices())
    note_cluster(access)
    return open_backend(access)


def with_release(facts: BrokerFacts, access: Access | None) -> BrokerFacts:
    """The facts with the release of a live cluster's brokers, unless somebody gave one.

    It is named on stderr where it is older than the facts have it.
    """
    if facts.is_named or access is None or access.bootstrap_controller or not access.bootstrap_server:
        return facts
    try:
        with open_backend(access) as backend:
            version = backend.release()
    except KquotaError:  # whoever reads the quotas says so
        return facts
    if version is None:
        warn(f"the release of the brokers is not known, and taken for {facts.kafka_version}: give --kafka-version")
        return facts
    usual, facts = facts.version, replace(facts, kafka_version=format_version(version))
    if version < usual:
        once(f"Kafka {facts.kafka_version}, by what the brokers serve (--kafka-version takes another)", note)
    return facts


def load_broker_settings(brokers: BrokerFacts) -> BrokerSettings | None:
    """What `--server-properties FILE` says to brokers of `--kafka-version`; None without a file.

    Its problems become warnings on stderr.
    """
    settings = brokers.settings()
    if settings is not None:
        warn_problems(settings.problems)
    return settings


def warn_approximations(kafka_version: str) -> None:
    """Says what brokers of that version do otherwise than is computed here, a line each on stderr."""
    version = parse_version(kafka_version)
    for text in approximations(version):
        warn(f"Kafka {format_version(version)} is approximated: {text}")


def warn_ignored(ignored: Iterable[Ignored]) -> None:
    """Says which quotas the brokers do not enforce, a line on stderr for each key and reason."""
    for (key, reason), group in grouped(ignored, lambda quota: (quota.key, quota.reason)).items():
        entities = dict.fromkeys(quota.entity for quota in group)
        warn(f"{key} of {first_of([*entities], entity_text)}: {reason}")


def live_brokers(access: Access | None) -> BrokerSnapshot:
    """The configs of the live cluster's brokers; empty for ZooKeeper, which does not know the configs in their files.

    What keeps the brokers from answering becomes a warning on stderr.
    """
    if access is None or access.bootstrap_controller or not access.bootstrap_server:
        return {}
    try:
        with open_broker_configs(access) as configs:
            return configs.describe()
    except KquotaError as error:
        warn(f"the configs of the brokers are not known: {error.message}")
        return {}


def load_quota_file(file: Path, cluster: str | None, meant: Mapping[str, str] | None = None) -> QuotaFile:
    """A quotas file as it is meant for one cluster, with headings as they are `meant`; with notes on it."""
    from kquota.documents.quotas import read_quota_file

    quota_file = read_quota_file(file, cluster, meant)
    if cluster is None and quota_file.clusters and "cluster" in click.get_current_context().params:
        names = first_of(sorted(quota_file.clusters))
        note(f"{file}: no overlay of its clusters is used: --cluster NAME chooses one of {names}")
    note_empty_rows(file, quota_file.desired, quota_file.lines)
    _note_size(file, len(quota_file.desired))
    return quota_file


def note_empty_rows(name: object, quotas: Mapping[Entity, Values], lines: Mapping[Entity, int]) -> None:
    """Says which rows of a table name an entity and no value; `lines` are the first lines of the entities."""
    empty = [line for entity, line in lines.items() if not quotas[entity]]
    if empty:
        what, at = ("row without a value sets", "line") if len(empty) == 1 else ("rows without a value set", "lines")
        note(f"{name}: {len(empty):,} {what} no quota: {at} {first_of(empty)}")


def _note_size(file: Path, entities: int) -> None:
    """Says that JSON is faster, where that can be felt."""
    if entities > _MANY_IN_YAML and file.suffix in (".yaml", ".yml"):
        note(f"{file}: {entities:,} entities are read several times as fast from JSON")


_MANY_IN_YAML = 10_000


def warn_problems(problems: Iterable[Problem]) -> None:
    """What is stored but unusable, a line each on stderr."""
    for problem in problems:
        warn(f"{problem.where}: {problem.message}")


def warn_misnomers(names: Mapping[EntityType, object]) -> None:
    """Names that hardly any client has, a line each on stderr."""
    from kquota.core.change.misnomer import doubt, misnomer

    for entity_type, name in names.items():
        reason = misnomer(entity_type, name) or doubt(entity_type, name) if isinstance(name, str) else None
        if reason is not None:
            warn(f"{entity_type.value}={name}: {reason}")


_MOST_NAMES = 10_000
"""Comparing with more would take its time."""


def note_slips(snapshot: QuotaSnapshot, asked: Mapping[EntityType, object]) -> None:
    """Suggests a similar name that has quotas where the asked name has none, a line each on stderr.

    Names that differ in digits alone are neighbours, and no slips.
    """
    import difflib

    for entity_type, name in asked.items():
        known = {part for entity in snapshot for kind, part in entity.parts if kind is entity_type}
        if not isinstance(name, str) or name in known or len(known) > _MOST_NAMES:
            continue
        names = [candidate for candidate in known if isinstance(candidate, str)]
        close = [candidate for candidate in names if candidate.casefold() == name.casefold()]
        if not close and re.search(r"[*?]", name):
            note(f"{name!r} is taken as a name; 'kquota describe --match' takes patterns")
            continue
        close += difflib.get_close_matches(name, names, n=1, cutoff=0.75)
        if close and re.sub(r"\d", "", close[0]) != re.sub(r"\d", "", name):
            note(f"no quota is set for {entity_type.value}={name}; did you mean {close[0]!r}?")


_MOST_SLIPS = 5
"""More lines would bury the others."""


def note_new_names(known: Iterable[Entity], entities: Collection[Entity]) -> None:
    """Suggests a known name for each new name of the entities that is nearly one, a line each on stderr."""
    from kquota.core.change.misnomer import slips

    known = tuple(known)
    for kind in (EntityType.USER, EntityType.CLIENT_ID):
        there, named = (
            {name for entity in some if isinstance(name := entity.name_of(kind), str)} for some in (known, entities)
        )
        alike = slips(sorted(there | named)) if named - there else {}
        # Of two new names that are nearly each other, the second one.
        second = {name for name, other in alike.items() if alike.get(other) != name or other in there or other < name}
        new = sorted(second - there)
        for name in new[:_MOST_SLIPS]:
            once(f"{kind.value}={name} is a new name; did you mean {alike[name]!r}?", note)
        if len(new) > _MOST_SLIPS:
            note(f"and {len(new) - _MOST_SLIPS} more new names are nearly others: 'kquota lint' shows them")
