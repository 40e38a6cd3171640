"""From options to a backend or a snapshot: the only place that decides where quotas come from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from kquota.backends import QuotaBackend
    from kquota.core.snapshot import QuotaSnapshot


def open_backend(options: dict[str, Any]) -> QuotaBackend:
    """The backend that the cluster options name. Raises click.UsageError when they name none."""
    zookeeper: str | None = options["zookeeper"]
    if not zookeeper:
        raise click.UsageError("no cluster: give --zookeeper HOST:PORT[/CHROOT] or set KQUOTA_ZOOKEEPER")
    from kquota.backends import connect

    security = _security(options["zk_tls_config_file"])
    return connect(zookeeper=zookeeper, timeout_s=options["timeout"], security=security)


def load_quotas(options: dict[str, Any]) -> QuotaSnapshot:
    """The quotas of `--quotas FILE`, else of the live cluster; its problems become warnings on stderr."""
    file: Path | None = options["quotas"]
    if file is not None:
        source = click.get_current_context().get_parameter_source("zookeeper")
        if source is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError("--quotas and --zookeeper both name quotas: give one of them")
        from kquota.documents.quotas import read_quotas

        return read_quotas(file)
    if not options["zookeeper"]:
        raise click.UsageError("no quotas: give --quotas FILE, --zookeeper HOST:PORT[/CHROOT] or set KQUOTA_ZOOKEEPER")
    with open_backend(options) as backend:
        snapshot = backend.describe()
    warn_problems(snapshot)
    return snapshot


def warn_problems(snapshot: QuotaSnapshot) -> None:
    """What is stored but unusable, a line each on stderr."""
    for problem in snapshot.problems:
        click.echo(f"kquota: warning: {problem.where}: {problem.message}", err=True)


def _security(tls_file: Path | None) -> Any:
    username = os.environ.get("KQUOTA_ZOOKEEPER_USERNAME")
    if tls_file is None and username is None:
        return None
    from kquota.backends.clientprops import zookeeper_security

    return zookeeper_security(tls_file, username, os.environ.get("KQUOTA_ZOOKEEPER_PASSWORD"))
