"""How commands log in: from files and the environment; a secret that is in neither is asked for on the terminal."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from kquota import access
from kquota.backends.secrets import crosses_networks
from kquota.cli.streams import once, warn
from kquota.errors import InputError

if TYPE_CHECKING:
    from kquota.backends.kafka import KafkaSecurity
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


def kafka_security(file: Path) -> KafkaSecurity:
    """What a client.properties says. Raises InputError, MissingDependency."""
    from kquota.backends import clientprops

    return clientprops.kafka_security(file, ask)


def warn_of_clear_text(security: KafkaSecurity, servers: str) -> None:
    """Warns of a password or a token that goes over a network as it is; whatever else is wrong comes later."""
    from kquota.backends.kafka.address import Servers
    from kquota.backends.kafka.oauth import ClientCredentials, OAuthBearer

    sasl = security.sasl
    if sasl is None:
        return
    with contextlib.suppress(InputError):
        hosts = [server.host for server in Servers.parse(servers).servers]
        if security.tls is None and sasl.mechanism in ("PLAIN", "OAUTHBEARER") and crosses_networks(hosts):
            what = "the password" if sasl.mechanism == "PLAIN" else "the token"
            once(f"{what} goes to the brokers without TLS, and whoever listens reads it: use SASL_SSL", warn)
    source = sasl.source if isinstance(sasl, OAuthBearer) else None
    if isinstance(source, ClientCredentials) and is_clear(source.url):
        once("the secret goes to the token endpoint over http, and whoever listens reads it: use https", warn)


def warn_of_digest(security: ZooKeeperSecurity, connect: str) -> None:
    """Warns of a password that goes to ZooKeeper as it is: its digest scheme sends it so, SASL does not."""
    from kquota.backends.zookeeper.address import Address

    with contextlib.suppress(InputError):
        hosts = [host for host, _ in Address.parse(connect).hosts]
        if security.digest is not None and security.tls is None and crosses_networks(hosts):
            once("the password goes to ZooKeeper without TLS, and whoever listens reads it: use TLS or SASL", warn)


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


def zookeeper_security(
    tls_file: Path | None, jaas_file: Path | None, environment: Mapping[str, str]
) -> ZooKeeperSecurity:
    """What those files and KQUOTA_ZOOKEEPER_* of that environment say. Raises InputError, MissingDependency."""
    return access.zookeeper_security(tls_file, jaas_file, environment, ask)


def jvm_jaas_file() -> Path | None:
    """The JAAS file that KAFKA_OPTS gives Kafka's own tools, where it says something about ZooKeeper."""
    from kquota.backends import clientprops

    try:
        words = shlex.split(os.environ.get("KAFKA_OPTS", ""))
    except ValueError:
        return None
    files = [Path(word.removeprefix(_JVM_JAAS_FILE)) for word in words if word.startswith(_JVM_JAAS_FILE)]
    return files[-1] if files and clientprops.has_zookeeper_login(files[-1]) else None
