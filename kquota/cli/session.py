"""From options to a backend or a snapshot: the only place that decides where quotas come from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kquota.cli.contexts import ADDRESSES, settled

if TYPE_CHECKING:
    from kquota.backends import QuotaBackend
    from kquota.backends.kafka import KafkaSecurity
    from kquota.backends.zookeeper import ZooKeeperSecurity
    from kquota.core.snapshot import QuotaSnapshot


def open_backend(options: dict[str, Any]) -> QuotaBackend:
    """The backend that the cluster options or the context name.

    Raises click.UsageError when they name none, or two; InputError for what is wrong with the configuration file.
    """
    from kquota.backends import connect

    options = settled(options)
    zookeeper, bootstrap_server = _cluster(options)
    if bootstrap_server:
        return connect(
            bootstrap_server=bootstrap_server,
            timeout_s=options["timeout"],
            security=_kafka_security(options["command_config"]),
        )
    if zookeeper:
        security = _zookeeper_security(options["zk_tls_config_file"])
        return connect(zookeeper=zookeeper, timeout_s=options["timeout"], security=security)
    raise click.UsageError(
        "no cluster: give --bootstrap-server HOST:PORT or --zookeeper HOST:PORT[/CHROOT], "
        "set KQUOTA_BOOTSTRAP_SERVER or KQUOTA_ZOOKEEPER, or name a context (kquota config)"
    )


def _cluster(options: dict[str, Any]) -> tuple[str | None, str | None]:
    """(zookeeper, bootstrap server), of which at most one is given; the command line wins over the environment."""
    given = {name: options[name] or None for name in ("zookeeper", "bootstrap_server")}
    if all(given.values()):
        typed = {name for name in given if _on_command_line(name)}
        if not typed:
            raise click.UsageError("two addresses are set: choose one by --bootstrap-server or --zookeeper")
        if len(typed) != 1:
            raise click.UsageError("Only one of --bootstrap-server or --zookeeper must be specified")
        given = {name: value if name in typed else None for name, value in given.items()}
    return given["zookeeper"], given["bootstrap_server"]


def _on_command_line(name: str) -> bool:
    source = click.get_current_context().get_parameter_source(name)
    return source is click.core.ParameterSource.COMMANDLINE


def load_quotas(options: dict[str, Any]) -> QuotaSnapshot:
    """The quotas of `--quotas FILE`, else of the live cluster; its problems become warnings on stderr."""
    file: Path | None = options["quotas"]
    if file is not None:
        if any(map(_on_command_line, ("context", *ADDRESSES))):
            raise click.UsageError("--quotas and a cluster both name quotas: give one of them")
        from kquota.documents.quotas import read_quotas

        return read_quotas(file)
    options = settled(options)
    if not any(_cluster(options)):
        raise click.UsageError("no quotas: give --quotas FILE, --bootstrap-server HOST:PORT or --zookeeper HOST:PORT")
    with open_backend(options) as backend:
        snapshot = backend.describe()
    warn_problems(snapshot)
    return snapshot


def warn_problems(snapshot: QuotaSnapshot) -> None:
    """What is stored but unusable, a line each on stderr."""
    for problem in snapshot.problems:
        click.echo(f"kquota: warning: {problem.where}: {problem.message}", err=True)


def _zookeeper_security(tls_file: Path | None) -> ZooKeeperSecurity | None:
    username = os.environ.get("KQUOTA_ZOOKEEPER_USERNAME")
    if tls_file is None and username is None:
        return None
    from kquota.backends.clientprops import zookeeper_security

    return zookeeper_security(tls_file, username, os.environ.get("KQUOTA_ZOOKEEPER_PASSWORD"))


def _kafka_security(file: Path | None) -> KafkaSecurity | None:
    if file is None:
        return None
    from kquota.backends.clientprops import kafka_security

    return kafka_security(file)
