"""Properties files of Kafka's own tools → how connections are secured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kquota.backends import jaas, stores
from kquota.backends.addresses import PROTOCOLS
from kquota.backends.kafka import KafkaSecurity
from kquota.backends.kafka.login import sasl_of
from kquota.backends.properties import LARGEST, read_properties, resolved
from kquota.backends.secrets import Ask, java_class, nearly, nobody
from kquota.errors import InputError
from kquota.files import read_bytes

if TYPE_CHECKING:
    from kquota.backends.zookeeper import ZooKeeperSecurity

_BLANKS = "".join(map(chr, range(0x21)))
"""What Java trims."""
_DIGEST_LOGIN = "org.apache.zookeeper.server.auth.DigestLoginModule"
_JAAS_HINT = f'for example: Client {{ {_DIGEST_LOGIN} required username="…" password="…"; }};'


def kafka_security(file: Path, ask: Ask = nobody) -> KafkaSecurity:
    """What a client.properties file (`--command-config` of Kafka's tools) says about security.

    Read are security.protocol; sasl.mechanism, sasl.jaas.config and what else the mechanism knows
    (`kquota.backends.kafka.login`); and, where the protocol is SSL or SASL_SSL, ssl.truststore.*, ssl.keystore.*,
    ssl.key.password and ssl.endpoint.identification.algorithm (empty: host names are not compared). Stores are PEM,
    PKCS12 or JKS files, or PEM text. Relative paths start at the working directory, as in Kafka. Variables of
    configuration providers are replaced. Raises InputError for what cannot be used, MissingDependency.
    """
    # As `ConfigDef.parseType` does, with passwords too: a blank at the end of a line is no part of it.
    properties = {name: value.strip(_BLANKS) for name, value in resolved(read_properties(file), file).items()}
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise InputError(
            f"{file}: unknown security.protocol{nearly(protocol, (*PROTOCOLS, 'TLS', 'SASL'))}",
            hint=f"security protocols: {', '.join(PROTOCOLS)}",
        )
    sasl = None
    if protocol.startswith("SASL_"):
        sasl = sasl_of(properties, file, ask)
    tls = stores.tls_of(properties, "ssl.", str(file), ask) if protocol.endswith("SSL") else None
    return KafkaSecurity(tls, sasl)


def without_effect(file: Path) -> list[str]:
    """What a client.properties sets in vain, a sentence each. Raises InputError for a file that cannot be read."""
    properties = read_properties(file)
    protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
    if not any(name.startswith(("security.", "sasl.", "ssl.", "config.providers")) for name in properties):
        return ["there is no security.protocol, sasl.* or ssl.* in it: it changes nothing"]
    unused = []
    for prefix, holds in (("sasl.", protocol.startswith("SASL_")), ("ssl.", protocol.endswith("SSL"))):
        names = sorted(name for name in properties if name.startswith(prefix))
        if names and not holds:
            are = "have" if len(names) > 1 else "has"
            unused.append(f"{', '.join(names)} {are} no effect: security.protocol is {protocol}")
    return unused


def zookeeper_security(
    tls_file: Path | None = None,
    username: str | None = None,
    password: str | None = None,
    *,
    scheme: str = "sasl",
    jaas_file: Path | None = None,
    ask: Ask = nobody,
) -> ZooKeeperSecurity:
    """What `--zk-tls-config-file`, a username with its password, or a JAAS file say.

    Of the TLS file, as in Kafka, only the `zookeeper.ssl.*` and `zookeeper.clientCnxnSocket` names count. Of the JAAS
    file it is the DigestLoginModule of the context Client; a username that is given comes before it. Raises InputError
    for what cannot be used, MissingDependency.
    """
    from kquota.backends.zookeeper import ZooKeeperSecurity

    if username is None and password is None and jaas_file is not None:
        username, password = _zookeeper_login(jaas_file)
    if username is not None and password is None:
        password = ask(f"password of {username} for ZooKeeper")
    tls = None
    if tls_file is not None:
        properties = read_properties(tls_file)
        locations = [f"zookeeper.ssl.{store}.location" for store in ("truststore", "keystore")]
        # Kafka would go on in the clear where this is missing; whoever names a store does not mean that.
        default = "true" if any(map(properties.get, locations)) else "false"
        if properties.get("zookeeper.ssl.client.enable", default).strip().lower() == "true":
            tls = stores.tls_of(properties, "zookeeper.ssl.", str(tls_file), ask)
    return ZooKeeperSecurity(username=username, password=password, scheme=scheme, tls=tls)


def has_zookeeper_login(file: Path) -> bool:
    """Whether a JAAS file has the context Client, which is for ZooKeeper. Raises InputError for no JAAS file."""
    return "Client" in _contexts(file)


def _zookeeper_login(file: Path) -> tuple[str, str | None]:
    """The username and the password, where there is one, in the context Client of a JAAS file."""
    logins = _contexts(file).get("Client")
    if not logins:
        raise InputError(f"{file}: there is no context Client in it", hint=_JAAS_HINT)
    login = logins[0]
    if login.module != _DIGEST_LOGIN:
        raise InputError(
            f"{file}: login module{java_class(login.module)} is not supported for ZooKeeper", hint=_JAAS_HINT
        )
    if "username" not in login.options:
        raise InputError(f"{file}: the context Client gives no username", hint=_JAAS_HINT)
    return login.options["username"], login.options.get("password")


def _contexts(file: Path) -> dict[str, list[jaas.Login]]:
    try:
        return jaas.parse_file(read_bytes(file, LARGEST).decode())
    except OSError as error:
        raise InputError(f"{file}: {error.strerror or error}") from None
    except ValueError:
        raise InputError(f"{file}: not a JAAS configuration", hint=_JAAS_HINT) from None
