"""From options to a backend or a snapshot: the only place that decides where quotas come from."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from kquota.cli.contexts import ADDRESSES, NAMED, settled
from kquota.cli.streams import note, warn

if TYPE_CHECKING:
    from kquota.backends import BrokerConfigs, QuotaBackend
    from kquota.backends.kafka import KafkaSecurity
    from kquota.backends.kafka.migrated import MigratedQuotas
    from kquota.backends.zookeeper import ZooKeeperSecurity
    from kquota.backends.zookeeper.source import MigrationSource
    from kquota.core.change.broker import BrokerSnapshot
    from kquota.core.change.history import QuotaHistory
    from kquota.core.change.plan import Cluster
    from kquota.core.enforcement.settings import BrokerSettings
    from kquota.core.quotas.entity import Entity, EntityType
    from kquota.core.quotas.filter import QuotaFilter
    from kquota.core.quotas.quota import QuotaKey
    from kquota.core.quotas.snapshot import Ignored, Problem, QuotaSnapshot
    from kquota.documents.quotas import QuotaFile


def open_backend(options: dict[str, Any]) -> QuotaBackend:
    """The backend that the cluster options or the context name.

    Raises click.UsageError when they name none, or two; InputError for what is wrong with the configuration file.
    """
    from kquota.backends import connect

    options = settled(options)
    controller = _controller(options)
    if controller:
        from kquota.backends.kafka.controller import ControllerBackend

        login = _kafka_security(options)
        return ControllerBackend(controller, timeout_s=options["timeout"], security=login, patient=_patient())
    zookeeper, bootstrap_server = _cluster(options)
    if bootstrap_server:
        return connect(
            bootstrap_server=bootstrap_server,
            timeout_s=options["timeout"],
            security=_kafka_security(options),
            patient=_patient(),
        )
    if zookeeper:
        security = _zookeeper_security(options)
        return connect(zookeeper=zookeeper, timeout_s=options["timeout"], security=security, patient=_patient())
    raise click.UsageError(_NO_CLUSTER)


def _patient() -> bool:
    """Whether a server that is not up yet is waited for: where the command line says how long.

    A person who mistypes a port wants the error at once; a script that gives a time-out wants the time.
    """
    context = click.get_current_context(silent=True)
    return context is not None and context.get_parameter_source("timeout") is ParameterSource.COMMANDLINE


_NO_CLUSTER = (
    "no cluster: give --bootstrap-server HOST:PORT or --zookeeper HOST:PORT[/CHROOT], "
    "set KQUOTA_BOOTSTRAP_SERVER or KQUOTA_ZOOKEEPER, or name a context (kquota config)"
)


def open_broker_configs(options: dict[str, Any]) -> BrokerConfigs:
    """The brokers of the cluster that the options name. Raises click.UsageError when they name none, or two."""
    options = settled(options)
    if _controller(options):
        raise click.UsageError("a broker tells its own configs: give --bootstrap-server")
    zookeeper, bootstrap_server = _cluster(options)
    timeout_s = options["timeout"]
    if bootstrap_server:
        from kquota.backends.kafka.brokers import KafkaBrokerConfigs

        return KafkaBrokerConfigs(bootstrap_server, timeout_s=timeout_s, security=_kafka_security(options))
    if zookeeper:
        from kquota.backends.zookeeper.brokers import ZooKeeperBrokerConfigs

        security = _zookeeper_security(options)
        return ZooKeeperBrokerConfigs(zookeeper, timeout_s=timeout_s, security=security)
    raise click.UsageError("no cluster: give --bootstrap-server HOST:PORT, or set KQUOTA_BOOTSTRAP_SERVER")


def open_brokers(options: dict[str, Any]) -> tuple[str, KafkaSecurity]:
    """The bootstrap servers that settled options name, and how to log in. Raises click.UsageError when they do not."""
    from kquota.backends.kafka import KafkaSecurity

    zookeeper, bootstrap_server = _cluster(options)
    if _controller(options) or zookeeper or not bootstrap_server:
        raise click.UsageError("no brokers: give --bootstrap-server HOST:PORT, or set KQUOTA_BOOTSTRAP_SERVER")
    return bootstrap_server, _kafka_security(options) or KafkaSecurity()


def open_migration(options: dict[str, Any]) -> tuple[MigrationSource, MigratedQuotas]:
    """Both sides of a migration: its settled options name each."""
    from kquota.backends.kafka.migrated import MigratedQuotas
    from kquota.backends.zookeeper.source import MigrationSource

    timeout_s = options["timeout"]
    source = MigrationSource(options["zookeeper"], timeout_s=timeout_s, security=_zookeeper_security(options))
    security = _kafka_security(options)
    return source, MigratedQuotas(options["bootstrap_server"], timeout_s=timeout_s, security=security)


def _controller(options: dict[str, Any]) -> str | None:
    """The controllers that the command line names; they win over what the environment names."""
    controller: str | None = options.get("bootstrap_controller")
    if controller and (on_command_line("zookeeper") or on_command_line("bootstrap_server")):
        raise click.UsageError(
            "Only one of --bootstrap-server, --bootstrap-controller or --zookeeper must be specified"
        )
    return controller


def _cluster(options: dict[str, Any]) -> tuple[str | None, str | None]:
    """(zookeeper, bootstrap server), of which at most one is given; the command line wins over the environment."""
    given = {name: options[name] or None for name in ("zookeeper", "bootstrap_server")}
    if all(given.values()):
        typed = {name for name in given if on_command_line(name)}
        if not typed:
            raise click.UsageError("two addresses are set: choose one by --bootstrap-server or --zookeeper")
        if len(typed) != 1:
            raise click.UsageError("Only one of --bootstrap-server or --zookeeper must be specified")
        given = {name: value if name in typed else None for name, value in given.items()}
    return given["zookeeper"], given["bootstrap_server"]


def cluster_name(options: dict[str, Any]) -> str:
    """The cluster's address as the journal names it."""
    options = settled(options)
    controller = _controller(options)
    if controller:
        return f"controller://{controller}"
    zookeeper, bootstrap_server = _cluster(options)
    if bootstrap_server:
        return f"kafka://{bootstrap_server}"
    if zookeeper:
        return f"zookeeper://{zookeeper}"
    raise click.UsageError(_NO_CLUSTER)


def names_quotas(options: dict[str, Any]) -> bool:
    """Whether the options, the environment or a context say where quotas are."""
    if options["quotas"] is not None:
        return True
    options = settled(options)
    return bool(_controller(options)) or any(_cluster(options))


def is_zookeeper(options: dict[str, Any]) -> bool:
    """Whether the quotas come from a live ZooKeeper."""
    if options.get("quotas") is not None:
        return False
    options = settled(options)
    return not _controller(options) and bool(_cluster(options)[0])


def on_command_line(name: str) -> bool:
    """Whether that option was given by hand, and not by the environment or a default."""
    source = click.get_current_context().get_parameter_source(name)
    return source is click.core.ParameterSource.COMMANDLINE


def load_quotas(options: dict[str, Any], wanted: QuotaFilter | None = None) -> QuotaSnapshot:
    """The quotas of `--quotas FILE`, else of the live cluster; its problems become warnings on stderr.

    A filter is the cluster's to apply; a file is read as a whole.
    """
    file: Path | None = options["quotas"]
    if file is not None:
        _only_a_file()
        from kquota.documents.quotas import read_quotas

        snapshot = read_quotas(file)
        warn_problems(snapshot)
        return snapshot
    with _open_live(options) as backend:
        snapshot = backend.describe() if wanted is None else backend.describe(wanted)
    warn_problems(snapshot)
    return snapshot


def _only_a_file() -> None:
    """Raises click.UsageError when the command line names a cluster too."""
    if any(map(on_command_line, ("context", *ADDRESSES))):
        raise click.UsageError("--quotas and a cluster both name quotas: give one of them")


def load_history(options: dict[str, Any], *, only_a_file: bool = True) -> QuotaHistory:
    """As `load_quotas`, but the file may be a history, and `--quotas-journal` leads back from what is given.

    `only_a_file`: whether a cluster must not be given beside the file.
    """
    from kquota.core.change.history import QuotaHistory

    file: Path | None = options["quotas"]
    folder: Path | None = options["quotas_journal"]
    here = None
    if file is None:
        snapshot, _, here = (load_quotas(options), None, None) if folder is None else load_quotas_and_brokers(options)
        history = QuotaHistory.of(snapshot)
    else:
        if only_a_file:
            _only_a_file()
        history = read_history_file(file)
    if folder is None:
        return history
    if history.changes_ms:
        raise click.UsageError("--quotas-journal leads back from the quotas of today: they cannot be a history")
    from kquota.documents.history import journal_history
    from kquota.documents.journal import Journal
    from kquota.errors import InputError

    pages = Journal(folder).read()
    for name, why in pages.unreadable:
        warn(f"{folder / name} is no entry of the journal: {why}")
    entries = pages.entries if here is None else pages.of(here)
    if not entries:
        raise InputError(f"{folder}: no changes of this cluster in the journal", hint="'kquota history' lists them")
    return journal_history(entries, history.latest)


def read_history_file(file: Path) -> QuotaHistory:
    """A history, or quotas that hold at all times; its problems become warnings on stderr."""
    from kquota.documents.history import problems_of, read_history

    history = read_history(file)
    _warn(problems_of(history))
    return history


def load_quotas_and_brokers(options: dict[str, Any]) -> tuple[QuotaSnapshot, int | None, Cluster | None]:
    """What `load_quotas` reads, how many brokers the live cluster has, and which cluster it is; None for a file.

    (An ensemble that no broker is registered at does not say how many there are.)
    """
    from kquota.backends import KnowsBrokers, cluster_of
    from kquota.errors import KquotaError

    if options["quotas"] is not None:
        return load_quotas(options), None, None
    brokers = None
    with _open_live(options) as backend:
        snapshot = backend.describe()
        cluster = cluster_of(backend)
        if isinstance(backend, KnowsBrokers):
            with contextlib.suppress(KquotaError):
                brokers = backend.broker_count() or None
    warn_problems(snapshot)
    return snapshot, brokers, cluster


def _open_live(options: dict[str, Any]) -> QuotaBackend:
    options = settled(options)
    if not _controller(options) and not any(_cluster(options)):
        raise click.UsageError("no quotas: give --quotas FILE, --bootstrap-server HOST:PORT or --zookeeper HOST:PORT")
    return open_backend(options)


def load_broker_settings(options: dict[str, Any]) -> BrokerSettings | None:
    """What `--server-properties FILE` says to brokers of `--kafka-version`; None without a file.

    Its problems become warnings on stderr.
    """
    from kquota.core.quotas.version import parse_version

    version = parse_version(options["kafka_version"])
    file: Path | None = options["server_properties"]
    if file is None:
        return None
    from kquota.backends.serverprops import read_server_properties

    settings = read_server_properties(file, version)
    warn_problems(settings)
    return settings


def enforced_by_brokers(
    options: dict[str, Any], settings: BrokerSettings | None = None
) -> Callable[[QuotaSnapshot], QuotaSnapshot]:
    """Makes of quotas the part that brokers of `--kafka-version` enforce; with settings, their static defaults too."""
    from kquota.core.quotas.enforced import enforced
    from kquota.core.quotas.static import NO_STATIC_QUOTAS
    from kquota.core.quotas.version import parse_version

    version = parse_version(options["kafka_version"])
    static = NO_STATIC_QUOTAS if settings is None else settings.static
    return lambda snapshot: enforced(snapshot, version, static)


def warn_approximations(kafka_version: str) -> None:
    """Says what brokers of that version do otherwise than is computed here, a line each on stderr."""
    from kquota.core.quotas.version import approximations, format_version, parse_version

    version = parse_version(kafka_version)
    for text in approximations(version):
        warn(f"Kafka {format_version(version)} is approximated: {text}")


def warn_ignored(ignored: Iterable[Ignored]) -> None:
    """Says which quotas the brokers do not enforce, a line on stderr for each key and reason."""
    from kquota.cli.text import entity_text

    found: dict[tuple[QuotaKey, str], dict[Entity, None]] = {}
    for each in ignored:
        found.setdefault((each.key, each.reason), {})[each.entity] = None
    for (key, reason), entities in found.items():
        names = [entity_text(entity) for entity in entities]
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        warn(f"{key} of {', '.join(names[:3])}{more}: {reason}")


def live_brokers(options: dict[str, Any]) -> BrokerSnapshot:
    """The configs of the live cluster's brokers; empty for ZooKeeper, which does not know those of their files.

    What keeps the brokers from answering becomes a warning on stderr.
    """
    from kquota.errors import KquotaError

    options = settled(options)
    if options.get("quotas") is not None or _controller(options) or not _cluster(options)[1]:
        return {}
    try:
        with open_broker_configs(options) as configs:
            return configs.describe()
    except KquotaError as error:
        warn(f"the configs of the brokers are not known: {error.message}")
        return {}


def load_quota_file(file: Path, cluster: str | None) -> QuotaFile:
    """A quotas file as it is meant for one cluster; its problems become warnings on stderr."""
    from kquota.documents.quotas import read_quota_file

    quota_file = read_quota_file(file, cluster)
    warn_problems(quota_file)
    return quota_file


def warn_problems(source: QuotaSnapshot | QuotaFile | BrokerSettings) -> None:
    """What is stored but unusable, a line each on stderr."""
    _warn(source.problems)


def _warn(problems: Iterable[Problem]) -> None:
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


def note_slips(snapshot: QuotaSnapshot, names: Mapping[EntityType, object]) -> None:
    """Says which name has quotas that is nearly the one that was asked for and has none, a line each on stderr.

    Names that differ in digits alone are neighbours, and no slips.
    """
    import difflib
    import re

    for entity_type, name in names.items():
        known = {part for entity in snapshot for kind, part in entity.parts if kind is entity_type}
        if not isinstance(name, str) or name in known or len(known) > _MOST_NAMES:
            continue
        close = difflib.get_close_matches(name, [each for each in known if isinstance(each, str)], n=1, cutoff=0.75)
        if close and re.sub(r"\d", "", close[0]) != re.sub(r"\d", "", name):
            note(f"no quota names {entity_type.value}={name}: did you mean {close[0]!r}?")


def _zookeeper_security(options: dict[str, Any]) -> ZooKeeperSecurity | None:
    tls_file: Path | None = options["zk_tls_config_file"]
    jaas_file: Path | None = options["zk_jaas_file"]
    environment: Mapping[str, str] = {} if options.get(NAMED) else os.environ
    if tls_file is None and jaas_file is None and not environment.get("KQUOTA_ZOOKEEPER_USERNAME"):
        return None
    from kquota.cli.security import warn_of_digest, zookeeper_security

    security = zookeeper_security(tls_file, jaas_file, environment)
    warn_of_digest(security, options["zookeeper"] or "")
    return security


def _kafka_security(options: dict[str, Any]) -> KafkaSecurity | None:
    file: Path | None = options["command_config"]
    if file is None:
        return None
    from kquota.cli.security import kafka_security, warn_of_clear_text

    security = kafka_security(file)
    warn_of_clear_text(security, options.get("bootstrap_controller") or options["bootstrap_server"] or "")
    return security
