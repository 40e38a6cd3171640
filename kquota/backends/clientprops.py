"""Java properties files of Kafka's own tools → connection settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from kquota.backends.kafka.security import MECHANISMS, KafkaSecurity
from kquota.backends.zookeeper import ZooKeeperSecurity
from kquota.errors import InputError

_STORES = {"keystore": "the client's certificate and key", "truststore": "the authorities to trust"}


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


def zookeeper_security(tls_file: Path | None, username: str | None, password: str | None) -> ZooKeeperSecurity:
    """What `--zk-tls-config-file` and the SASL credentials of the environment say.

    Of the file, as in Kafka, only the `zookeeper.ssl.*` and `zookeeper.clientCnxnSocket` names count. Stores are PEM
    files; raises InputError for another type.
    """
    if tls_file is None:
        return ZooKeeperSecurity(username=username, password=password)
    properties = read_properties(tls_file)
    stores: dict[str, Path | None] = {}
    for store, what in _STORES.items():
        location = properties.get(f"zookeeper.ssl.{store}.location")
        kind = properties.get(f"zookeeper.ssl.{store}.type", "PEM" if (location or "").endswith(".pem") else "JKS")
        if location is not None and kind.upper() != "PEM":
            raise InputError(
                f"{tls_file}: zookeeper.ssl.{store} is a {kind} store, which cannot be read yet",
                hint=f"export {what} as PEM and set zookeeper.ssl.{store}.type=PEM",
            )
        stores[store] = Path(location) if location is not None else None
    return ZooKeeperSecurity(
        username=username,
        password=password,
        tls=properties.get("zookeeper.ssl.client.enable", "false").lower() == "true",
        ca=stores["truststore"],
        cert=stores["keystore"],
        key_password=properties.get("zookeeper.ssl.keystore.password"),
        verify_host=properties.get("zookeeper.ssl.endpoint.identification.algorithm", "HTTPS").strip() != "",
    )


def kafka_security(file: Path) -> KafkaSecurity:
    """What a client.properties file (`--command-config` of Kafka's tools) says about security.

    Read are security.protocol, sasl.mechanism, sasl.jaas.config (PlainLoginModule or ScramLoginModule with username and
    password) and, where the protocol is SSL or SASL_SSL, ssl.truststore.*, ssl.keystore.*, ssl.key.password and
    ssl.endpoint.identification.algorithm (empty: host names are not compared). Stores are PEM files; PEM text inside
    the properties (ssl.keystore.key and the like) is refused. Relative paths are those of the working directory, as in
    Kafka. Raises InputError for what cannot be used.
    """
    properties = read_properties(file)
    protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in _PROTOCOLS:
        raise InputError(
            f"{file}: unknown security.protocol {protocol}", hint=f"security protocols: {', '.join(_PROTOCOLS)}"
        )
    mechanism = username = password = None
    if protocol.startswith("SASL_"):
        mechanism = properties.get("sasl.mechanism", "GSSAPI").strip()
        if mechanism not in MECHANISMS:
            default = "" if "sasl.mechanism" in properties else " (Kafka's default)"
            raise InputError(
                f"{file}: sasl.mechanism {mechanism}{default} is not supported",
                hint=f"supported: {', '.join(MECHANISMS)}",
            )
        username, password = _login(file, properties.get("sasl.jaas.config"))
    if not protocol.endswith("SSL"):
        return KafkaSecurity(mechanism=mechanism, username=username, password=password)
    inline = sorted(_INLINE & properties.keys())
    if inline:
        raise InputError(
            f"{file}: {inline[0]} is not supported",
            hint="put the PEM text in a file and name it as the store's location",
        )
    return KafkaSecurity(
        tls=True,
        ca=_pem_store(file, properties, "ssl.truststore"),
        cert=_pem_store(file, properties, "ssl.keystore"),
        key_password=properties.get("ssl.key.password"),
        verify_host=properties.get("ssl.endpoint.identification.algorithm", "https").strip() != "",
        mechanism=mechanism,
        username=username,
        password=password,
    )


_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_INLINE = {"ssl.truststore.certificates", "ssl.keystore.certificate.chain", "ssl.keystore.key"}
_LOGIN_MODULES = {
    "org.apache.kafka.common.security.plain.PlainLoginModule",
    "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_TEXT = r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s=;"']+)"""
_JAAS = re.compile(rf"\s*([\w.$]+)\s+[A-Za-z]+((?:\s+{_TEXT}\s*=\s*{_TEXT})*)\s*;\s*\Z", re.DOTALL)
_JAAS_OPTION = re.compile(rf"({_TEXT})\s*=\s*({_TEXT})", re.DOTALL)
_JAAS_HINT = 'for example: org.apache.kafka.common.security.plain.PlainLoginModule required username="…" password="…";'


def _login(file: Path, jaas: str | None) -> tuple[str, str]:
    """The username and password of a sasl.jaas.config (read as `JaasConfig` does); no message shows any of it."""
    if jaas is None:
        raise InputError(f"{file}: sasl.jaas.config is missing", hint=_JAAS_HINT)
    match = _JAAS.match(jaas)
    if match is None:
        raise InputError(f"{file}: sasl.jaas.config cannot be read", hint=_JAAS_HINT)
    if match[1] not in _LOGIN_MODULES:
        raise InputError(f"{file}: login module {match[1]} is not supported", hint=_JAAS_HINT)
    options = {_unquoted(name): _unquoted(value) for name, value in _JAAS_OPTION.findall(match[2])}
    if "username" not in options or "password" not in options:
        raise InputError(f"{file}: sasl.jaas.config gives no username and password", hint=_JAAS_HINT)
    return options["username"], options["password"]


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}


def _unquoted(text: str) -> str:
    """A text without its quotes; a backslash inside them is as in Java's `StreamTokenizer`, but for octal numbers."""
    if text[:1] not in "\"'":
        return text
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), text[1:-1], flags=re.DOTALL)


def _pem_store(file: Path, properties: Mapping[str, str], store: str) -> Path | None:
    """The location of a store, which must be PEM: by its type or, where none is given, by its name."""
    location = properties.get(f"{store}.location")
    if location is None:
        return None
    kind = properties.get(f"{store}.type", "PEM" if location.endswith(".pem") else "JKS")
    if kind.upper() != "PEM":
        raise InputError(
            f"{file}: {store} is a {kind} store, which cannot be read yet",
            hint=f"export {_STORES[store.removeprefix('ssl.')]} as PEM and set {store}.type=PEM",
        )
    return Path(location)
