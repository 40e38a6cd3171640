"""Properties files of Kafka's own tools → how connections are secured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kquota.backends import jaas
from kquota.errors import InputError

if TYPE_CHECKING:
    from kquota.backends.kafka import KafkaSecurity
    from kquota.backends.tls import Pem, Tls
    from kquota.backends.zookeeper import ZooKeeperSecurity

Ask = Callable[[str], str]
"""Asks for a secret that is not there, such as "password of alice". Raises InputError when nobody answers."""

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_DIGEST_LOGIN = "org.apache.zookeeper.server.auth.DigestLoginModule"


def nobody(what: str) -> str:
    """Answers no question: the secret is missing."""
    raise InputError(f"the {what} is missing")


def read_properties(path: Path) -> dict[str, str]:
    """The properties of a file in `java.util.Properties` syntax. Raises InputError when it cannot be read."""
    import javaproperties

    try:
        with path.open("rb") as file:
            properties: dict[str, str] = javaproperties.load(file)
    except IsADirectoryError:
        raise InputError(f"{path}: is a directory, not a file") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except (ValueError, javaproperties.InvalidUEscapeError) as error:
        raise InputError(f"{path}: not a properties file: {error}") from None
    return properties


def kafka_security(file: Path, ask: Ask = nobody) -> KafkaSecurity:
    """What a client.properties file (`--command-config` of Kafka's tools) says about security.

    Read are security.protocol; sasl.mechanism, sasl.jaas.config and what else the mechanism knows
    (`kquota.backends.kafka.login`); and, where the protocol is SSL or SASL_SSL, ssl.truststore.*, ssl.keystore.*,
    ssl.key.password and ssl.endpoint.identification.algorithm (empty: host names are not compared). Stores are PEM,
    PKCS12 or JKS files, or PEM text. Relative paths are those of the working directory, as in Kafka. Variables of
    configuration providers are replaced. Raises InputError for what cannot be used, MissingDependency.
    """
    from kquota.backends import providers
    from kquota.backends.kafka import KafkaSecurity

    properties = providers.resolve(read_properties(file), file, read_properties)
    protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in _PROTOCOLS:
        raise InputError(
            f"{file}: unknown security.protocol {protocol}", hint=f"security protocols: {', '.join(_PROTOCOLS)}"
        )
    sasl = None
    if protocol.startswith("SASL_"):
        from kquota.backends.kafka.login import sasl_of

        sasl = sasl_of(properties, file, ask)
    return KafkaSecurity(tls=_tls(properties, "ssl.", file, ask) if protocol.endswith("SSL") else None, sasl=sasl)


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
        stores = [f"zookeeper.ssl.{store}.location" for store in ("truststore", "keystore")]
        # Kafka would go on in the clear where this is missing; whoever names a store does not mean that.
        default = "true" if any(properties.get(store) for store in stores) else "false"
        if properties.get("zookeeper.ssl.client.enable", default).strip().lower() == "true":
            tls = _tls(properties, "zookeeper.ssl.", tls_file, ask)
    return ZooKeeperSecurity(username=username, password=password, scheme=scheme, tls=tls)


def _zookeeper_login(file: Path) -> tuple[str, str | None]:
    """The username and the password, where there is one, in the context Client of a JAAS file."""
    hint = f'for example: Client {{ {_DIGEST_LOGIN} required username="…" password="…"; }};'
    try:
        contexts = jaas.parse_file(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{file}: {error.strerror or error}") from None
    except ValueError:
        raise InputError(f"{file}: not a JAAS configuration", hint=hint) from None
    logins = contexts.get("Client")
    if not logins:
        raise InputError(f"{file}: there is no context Client in it", hint=hint)
    login = logins[0]
    if login.module != _DIGEST_LOGIN:
        raise InputError(f"{file}: login module {login.module} is not supported for ZooKeeper", hint=hint)
    if "username" not in login.options:
        raise InputError(f"{file}: the context Client gives no username", hint=hint)
    return login.options["username"], login.options.get("password")


def _tls(properties: Mapping[str, str], prefix: str, file: Path, ask: Ask) -> Tls:
    """What the properties with that prefix say about TLS. Raises InputError, MissingDependency."""
    import dataclasses

    from kquota.backends import stores
    from kquota.backends.tls import Tls

    def value(name: str) -> str | None:
        return properties.get(prefix + name) or None

    def read(read: Callable[[Path, str | None], Pem], location: str, password: str | None) -> Pem:
        try:
            return read(Path(location), password)
        except stores.WrongPassword:
            if password is not None:
                raise
            return read(Path(location), ask(f"password of {location}"))

    for store, inline in (("truststore", ("certificates",)), ("keystore", ("key", "certificate.chain"))):
        for name in inline:
            if value(f"{store}.location") and value(f"{store}.{name}"):
                raise InputError(f"{file}: give either {prefix}{store}.location or {prefix}{store}.{name}")
    ca = identity = None
    if certificates := value("truststore.certificates"):
        ca = stores.trusted_text(certificates, f"{file}: {prefix}truststore.certificates")
    elif location := value("truststore.location"):
        ca = read(stores.trusted, location, value("truststore.password"))
    key_password, store_password = value("key.password"), value("keystore.password")
    if key := value("keystore.key"):
        identity = stores.identity_text(
            f"{key}\n{value('keystore.certificate.chain') or ''}", f"{file}: {prefix}keystore.key"
        )
    elif location := value("keystore.location"):
        identity = read(
            lambda path, password: stores.identity(path, password, key_password or password), location, store_password
        )
    algorithm = properties.get(f"{prefix}endpoint.identification.algorithm", "https")
    tls = Tls(ca, identity, key_password or store_password, verify_host=algorithm.strip() != "")
    if tls.needs_key_password:
        assert identity is not None
        tls = dataclasses.replace(tls, key_password=ask(f"password of the private key of {identity.origin}"))
    return tls
