"""How commands log in: from files and the environment; a secret that is in neither is asked for on the terminal."""

from __future__ import annotations

import contextlib
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from kquota.access import Access
from kquota.backends.secrets import crosses_networks
from kquota.cli.streams import once, warn
from kquota.errors import InputError

if TYPE_CHECKING:
    from kquota.backends.kafka import KafkaSecurity
    from kquota.backends.kafka.security import Sasl
    from kquota.backends.zookeeper import ZooKeeperSecurity
    from kquota.metrics.prometheus import Credentials

_JVM_JAAS_FILE = "-Djava.security.auth.login.config="


def ask(what: str) -> str:
    """Asks for a secret on the terminal of the process, without echo. Raises InputError where there is none."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        raise InputError(
            f"the {what} is missing, and there is no terminal to ask for it",
            hint="put it into the file of the login, which only you can read",
        ) from None
    import getpass

    try:
        return getpass.getpass(f"kquota: {what}: ")
    except EOFError:
        raise click.Abort from None


def login(access: Access) -> KafkaSecurity | ZooKeeperSecurity | None:
    """How to log in to the one who answers. Raises InputError, MissingDependency."""
    return zookeeper_login(access) if access.is_zookeeper else kafka_login(access)


def kafka_login(access: Access) -> KafkaSecurity | None:
    """How to log in to brokers. Warns of a password or a token that goes over a network as it is."""
    security = access.kafka_security(ask)
    if access.command_config is not None:
        from kquota.backends.clientprops import left_as_is

        for left in left_as_is(access.command_config):
            once(f"{access.command_config}: {left}", warn)
    if security is not None and security.sasl is not None:
        _warn_of_clear_text(security, security.sasl, access.bootstrap_controller or access.bootstrap_server or "")
    return security


def _warn_of_clear_text(security: KafkaSecurity, sasl: Sasl, servers: str) -> None:
    from kquota.backends.addresses import Servers
    from kquota.backends.kafka.oauth import ClientCredentials, OAuthBearer

    with contextlib.suppress(InputError):
        hosts = [server.host for server in Servers.parse(servers).servers]
        if security.tls is None and sasl.mechanism in ("PLAIN", "OAUTHBEARER") and crosses_networks(hosts):
            what = "the password" if sasl.mechanism == "PLAIN" else "the token"
            once(f"{what} goes to the brokers without TLS, and whoever listens reads it: use SASL_SSL", warn)
    source = sasl.source if isinstance(sasl, OAuthBearer) else None
    if isinstance(source, ClientCredentials) and is_clear(source.url):
        once("the secret goes to the token endpoint over http, and whoever listens reads it: use https", warn)


def zookeeper_login(access: Access) -> ZooKeeperSecurity | None:
    """How to log in to ZooKeeper. Warns of a password that it gets as it is: by its digest scheme, but not by SASL."""
    security = access.zookeeper_security(ask)
    if security is None or security.digest is None or security.tls is not None:
        return security
    from kquota.backends.addresses import Address

    with contextlib.suppress(InputError):  # whatever is wrong with the address comes later
        if crosses_networks([host for host, _ in Address.parse(access.zookeeper or "").hosts]):
            once("the password goes to ZooKeeper without TLS, and whoever listens reads it: use TLS or SASL", warn)
    return security


def prometheus_credentials(url: str) -> Credentials:
    """The credentials for a Prometheus, from the environment. Warns where they go over a network as they are."""
    from kquota.metrics.prometheus import Credentials

    credentials = Credentials.of(os.environ)
    if credentials.header and is_clear(url):
        once("the credentials for Prometheus go over http, and whoever listens reads them: use https", warn)
    return credentials


def is_clear(url: str) -> bool:
    """Whether what is sent to that URL crosses a network unencrypted."""
    parts = urlsplit(url)
    return parts.scheme.lower() == "http" and crosses_networks([parts.hostname or ""])


def jvm_jaas_file() -> Path | None:
    """The JAAS file that KAFKA_OPTS gives Kafka's own tools, where it says something about ZooKeeper."""
    from kquota.backends import clientprops

    try:
        words = shlex.split(os.environ.get("KAFKA_OPTS", ""))
    except ValueError:
        return None
    files = [Path(word.removeprefix(_JVM_JAAS_FILE)) for word in words if word.startswith(_JVM_JAAS_FILE)]
    return files[-1] if files and clientprops.has_zookeeper_login(files[-1]) else None
