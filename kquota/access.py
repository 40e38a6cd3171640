"""How a cluster is reached: its address, the files to log in with, the time-out, and the context that says so."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kquota.backends import QuotaBackend
from kquota.backends.secrets import Ask, nobody
from kquota.errors import InputError
from kquota.state import own_folder

if TYPE_CHECKING:
    from kquota.backends.kafka import KafkaSecurity
    from kquota.backends.zookeeper import ZooKeeperSecurity
    from kquota.documents.config import Config, Context

_SCHEMES = {"bootstrap_controller": "controller", "bootstrap_server": "kafka", "zookeeper": "zookeeper"}
"""kquota's own schemes of the addresses, which count in this order."""
FILES = ("command_config", "zk_tls_config_file", "zk_jaas_file")
"""The files to log in with, as contexts and options are called."""


@dataclass(frozen=True, slots=True)
class Access:
    """How one cluster is reached. Of several addresses the controllers come first, then the brokers.

    An address may have kquota's own scheme before it, as `address` has it; another scheme raises InputError.
    Paths name files that Kafka's own tools read. `patient` waits for servers that are not up yet. `isolated` takes no
    credentials from the environment, as a context does that was chosen by its name.
    """

    bootstrap_server: str | None = None
    bootstrap_controller: str | None = None
    zookeeper: str | None = None
    command_config: Path | None = None
    zk_tls_config_file: Path | None = None
    zk_jaas_file: Path | None = None
    timeout_s: float = 10.0
    patient: bool = False
    context: str | None = None
    """The name of the context that the settings are from."""
    isolated: bool = False

    def __post_init__(self) -> None:
        for name, own in _SCHEMES.items():
            address = getattr(self, name)
            if address is not None and "://" in address:
                from kquota.backends.addresses import without_scheme

                object.__setattr__(self, name, without_scheme(address, own))

    @classmethod
    def of_context(cls, context: Context, timeout_s: float = 10.0) -> Access:
        """What a context stands for; its own time-out comes before `timeout_s`."""
        settings: dict[str, Any] = {name: getattr(context, name) for name in (*_SCHEMES, *FILES)}
        timeout_s = timeout_s if context.timeout is None else context.timeout
        return cls(**settings, timeout_s=timeout_s, context=context.name, isolated=True)

    @property
    def address(self) -> str | None:
        """The address as the journal knows it, such as `kafka://HOST:PORT`; None where there is none."""
        given = ((own, getattr(self, name)) for name, own in _SCHEMES.items())
        return next((f"{own}://{address}" for own, address in given if address), None)

    @property
    def is_zookeeper(self) -> bool:
        """Whether a ZooKeeper answers."""
        return bool(self.zookeeper) and not self.bootstrap_controller and not self.bootstrap_server

    def kafka_security(self, ask: Ask = nobody) -> KafkaSecurity | None:
        """How to log in to brokers; None without a `command_config`. Raises InputError, MissingDependency."""
        if self.command_config is None:
            return None
        from kquota.backends import clientprops

        return clientprops.kafka_security(self.command_config, ask)

    def zookeeper_security(self, ask: Ask = nobody) -> ZooKeeperSecurity | None:
        """How to log in to ZooKeeper, by the files or KQUOTA_ZOOKEEPER_*; None where neither says.

        Raises InputError, MissingDependency.
        """
        environment: Mapping[str, str] = {} if self.isolated else os.environ
        if not (self.zk_tls_config_file or self.zk_jaas_file or environment.get("KQUOTA_ZOOKEEPER_USERNAME")):
            return None
        from kquota.backends import clientprops

        return clientprops.zookeeper_security(self.zk_tls_config_file, self.zk_jaas_file, environment, ask)

    def security(self, ask: Ask = nobody) -> KafkaSecurity | ZooKeeperSecurity | None:
        """How to log in to whoever answers."""
        return self.zookeeper_security(ask) if self.is_zookeeper else self.kafka_security(ask)

    def open(self, security: KafkaSecurity | ZooKeeperSecurity | None = None) -> QuotaBackend:
        """The quotas of the cluster. Raises InputError for an address that is malformed, or missing."""
        settings: Any = {"timeout_s": self.timeout_s, "security": security, "patient": self.patient}
        if self.bootstrap_controller:
            from kquota.backends.kafka.controller import ControllerBackend

            return ControllerBackend(self.bootstrap_controller, **settings)
        if self.bootstrap_server:
            from kquota.backends.kafka import KafkaBackend

            return KafkaBackend(self.bootstrap_server, **settings)
        if self.zookeeper:
            from kquota.backends.zookeeper import ZooKeeperBackend

            return ZooKeeperBackend(self.zookeeper, **settings)
        raise InputError("give either zookeeper or bootstrap_server")


def config_path() -> Path:
    """Where the configuration file is, or would be. Raises InputError where the user has no home folder."""
    named = os.environ.get("KQUOTA_CONFIG")
    if named:
        return Path(os.path.expanduser(named))
    return own_folder("config", "KQUOTA_CONFIG") / "config.yaml"


def load_config() -> Config:
    """The configuration; without a file an empty one. Raises InputError for what is wrong in it."""
    from kquota.documents.config import Config, read_config

    try:
        path = config_path()
    except InputError:  # who has no home folder has no file in it
        return Config(Path("~/.config/kquota/config.yaml"))
    if not os.environ.get("KQUOTA_CONFIG") and not path.exists():
        return Config(path)
    return read_config(path)


def connect(
    *,
    bootstrap_server: str | None = None,
    zookeeper: str | None = None,
    context: str | None = None,
    command_config: Path | str | None = None,
    zk_tls_config_file: Path | str | None = None,
    zk_jaas_file: Path | str | None = None,
    security: ZooKeeperSecurity | KafkaSecurity | None = None,
    timeout_s: float | None = None,
    patient: bool = False,
) -> QuotaBackend:
    """The quotas of a cluster, as a context manager with `describe`, `alter` and `close`.

    Exactly one of these names the cluster:

    - `bootstrap_server`: its brokers, `host:port[,host:port]`, Kafka 2.6 and later.
    - `zookeeper`: its ZooKeeper, `host:port[,host:port][/chroot]`.
    - `context`: a name in kquota's configuration file (`kquota config get-contexts`), login and time-out included.

    `command_config` is a client.properties of Kafka's own tools, `zk_tls_config_file` and `zk_jaas_file` are their
    files for ZooKeeper; `security` replaces them. Of the environment nothing is used but KQUOTA_CONFIG, which names the
    configuration file.

    The connection is made when it is first needed. Each wait for the cluster is at most `timeout_s` seconds (10, or the
    time-out of the context). A server that refuses connections is an error at once; `patient` waits for one that comes
    up. Raises InputError for a malformed address, an unknown context or an unusable file.

        with connect(context="prod") as cluster:
            print(cluster.describe())
    """
    if sum(given is not None for given in (bootstrap_server, zookeeper, context)) != 1:
        raise InputError("give exactly one of bootstrap_server, zookeeper and context")
    access = Access(bootstrap_server, zookeeper=zookeeper, isolated=True)
    if context is not None:
        access = Access.of_context(load_config().context(context))
        if access.zookeeper and access.bootstrap_server:
            raise InputError(f"context {context!r} has two addresses", hint="give one of them instead of the context")
    files = zip(FILES, (command_config, zk_tls_config_file, zk_jaas_file), strict=True)
    given: dict[str, Any] = {name: Path(path) for name, path in files if path is not None}
    access = replace(access, timeout_s=access.timeout_s if timeout_s is None else timeout_s, patient=patient, **given)
    return access.open(access.security() if security is None else security)
