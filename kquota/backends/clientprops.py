"""Properties files of Kafka's own tools → how connections are secured."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import unquote

from kquota.backends import jaas, stores
from kquota.backends.addresses import PROTOCOLS
from kquota.backends.kafka import KafkaSecurity
from kquota.backends.kafka.oauth import ClientCredentials, FileToken, MskIam, OAuthBearer
from kquota.backends.kafka.security import SCRAM_MECHANISMS, Kerberos, Plain, Sasl, Scram
from kquota.backends.properties import LARGEST, read_properties, resolved, unresolved
from kquota.backends.secrets import Ask, java_class, nearly, nobody
from kquota.core.quotas.quota import JAVA_BLANKS
from kquota.errors import InputError
from kquota.files import read_text

if TYPE_CHECKING:
    from kquota.backends.zookeeper import ZooKeeperSecurity

_DIGEST_LOGIN = "org.apache.zookeeper.server.auth.DigestLoginModule"
_ZOOKEEPER_TLS = "zookeeper.ssl."
_SWITCH = f"{_ZOOKEEPER_TLS}client.enable"
_JAAS_HINT = f'for example: Client {{ {_DIGEST_LOGIN} required username="…" password="…"; }};'


def kafka_security(file: Path, ask: Ask = nobody) -> KafkaSecurity:
    """What a client.properties file (`--command-config` of Kafka's tools) says about security.

    Read are security.protocol; sasl.mechanism, sasl.jaas.config and what else the mechanism knows; and, where the
    protocol is SSL or SASL_SSL, ssl.truststore.*, ssl.keystore.*, ssl.key.password and
    ssl.endpoint.identification.algorithm (empty: host names are not compared). Stores are PEM, PKCS12 or JKS files, or
    PEM text. Relative paths start at the working directory, as in Kafka. Variables of configuration providers are
    replaced. Raises InputError for what cannot be used, MissingDependency.
    """
    # As `ConfigDef.parseType` does, with passwords too: a blank at the end of a line is no part of it.
    properties = {name: value.strip(JAVA_BLANKS) for name, value in resolved(read_properties(file), file).items()}
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise InputError(
            f"{file}: unknown security.protocol{nearly(protocol, (*PROTOCOLS, 'TLS', 'SASL'))}",
            hint=f"security protocols: {', '.join(PROTOCOLS)}",
        )
    sasl = _sasl_of(properties, file, ask) if protocol.startswith("SASL_") else None
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


def left_as_is(file: Path) -> list[str]:
    """Which variables of a client.properties nothing replaces, a sentence each. Raises InputError as above."""
    names = unresolved(read_properties(file))
    return [f"{name} is sent as it is: config.providers has no {name[2:].split(':')[0]}" for name in names]


def zookeeper_security(
    tls_file: Path | None = None,
    jaas_file: Path | None = None,
    environment: Mapping[str, str] = MappingProxyType({}),
    ask: Ask = nobody,
    *,
    may_be_plain: bool = False,
) -> ZooKeeperSecurity:
    """What `--zk-tls-config-file`, a JAAS file and KQUOTA_ZOOKEEPER_* of that environment say.

    Of the TLS file, as in Kafka, only the `zookeeper.ssl.*` and `zookeeper.clientCnxnSocket` names count. Of the JAAS
    file it is the DigestLoginModule of the context Client; a username of the environment comes before it. With
    `may_be_plain` a TLS file that switches no TLS on has no effect, as in Kafka. Raises InputError for what cannot be
    used, MissingDependency.
    """
    from kquota.backends.zookeeper import ZooKeeperSecurity

    username, password, secret, scheme = (
        environment.get(f"KQUOTA_ZOOKEEPER_{name}") for name in ("USERNAME", "PASSWORD", "PASSWORD_FILE", "SCHEME")
    )
    username = username or None
    if password is None and secret:
        password = read_text(Path(secret), LARGEST).removesuffix("\n").removesuffix("\r")
    if username is None and password is None and jaas_file is not None:
        username, password = _zookeeper_login(jaas_file)
    if username is not None and password is None:
        password = ask(f"password of {username} for ZooKeeper")
    tls = None
    if tls_file is not None:
        properties = read_properties(tls_file)
        locations = [f"{_ZOOKEEPER_TLS}{store}.location" for store in ("truststore", "keystore")]
        # Kafka would go on in the clear where this is missing; whoever names a store, or this file, does not mean that.
        switch = properties.get(_SWITCH, "true" if any(map(properties.get, locations)) else None)
        if switch is None and not may_be_plain:
            raise InputError(f"{tls_file}: {_SWITCH} is missing", hint=f"{_SWITCH}=true switches TLS on")
        if switch is not None and switch.strip().lower() == "true":
            tls = stores.tls_of(properties, _ZOOKEEPER_TLS, str(tls_file), ask)
    return ZooKeeperSecurity(username, password, scheme or "sasl", tls)


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
        return jaas.parse_file(read_text(file, LARGEST))
    except ValueError:
        raise InputError(f"{file}: not a JAAS configuration", hint=_JAAS_HINT) from None


# Logins to brokers: sasl.mechanism, sasl.jaas.config and what belongs to them

_SECURITY = "org.apache.kafka.common.security."
_OAUTH = f"{_SECURITY}oauthbearer."
_PASSWORDS = (f"{_SECURITY}plain.PlainLoginModule", f"{_SECURITY}scram.ScramLoginModule")
_MODULES = {
    "PLAIN": _PASSWORDS,
    **dict.fromkeys(SCRAM_MECHANISMS, _PASSWORDS),
    "OAUTHBEARER": (f"{_OAUTH}OAuthBearerLoginModule",),
    "GSSAPI": ("com.sun.security.auth.module.Krb5LoginModule",),
    "AWS_MSK_IAM": ("software.amazon.msk.auth.iam.IAMLoginModule",),
}
"""The login modules of each mechanism; the first is that of the example in a hint."""

_OTHERS = ("ANONYMOUS", "CRAM-MD5", "DIGEST-MD5", "EXTERNAL", "KERBEROS", "NTLM", "SCRAM-SHA-1")
"""Mechanisms of SASL that Kafka has not."""

_HANDLER, _RETRIEVER = "sasl.login.callback.handler.class", "sasl.oauthbearer.jwt.retriever.class"
_HANDLERS = (
    f"{_OAUTH}OAuthBearerLoginCallbackHandler",
    f"{_OAUTH}secured.OAuthBearerLoginCallbackHandler",
)
_MSK_HANDLER = "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler"
_RETRIEVERS = tuple(f"{_OAUTH}{name}JwtRetriever" for name in ("Default", "ClientCredentials", "File"))
_CLIENT = "sasl.oauthbearer.client.credentials."


def _sasl_of(properties: Mapping[str, str], file: Path, ask: Ask) -> Sasl:
    """The login; `ask` is for a password that is not there. Raises InputError; no message shows what is in the JAAS."""
    mechanism = properties.get("sasl.mechanism", "GSSAPI")
    if mechanism not in _MODULES:
        raise InputError(
            f"{file}: sasl.mechanism{nearly(mechanism, (*_MODULES, *_OTHERS))} is not supported",
            hint=f"supported: {', '.join(_MODULES)}",
        )
    options = _login_options(mechanism, properties, file)
    if mechanism == "GSSAPI":
        return _kerberos(properties, options, file)
    if mechanism == "AWS_MSK_IAM":
        return _msk(options)
    if mechanism == "OAUTHBEARER":
        return _oauth(properties, options, file, ask)
    username = options.get("username")
    if username is None:
        raise InputError(f"{file}: sasl.jaas.config gives no username", hint=_login_hint(mechanism))
    password = options.get("password")
    if password is None:
        password = ask(f"password of {username}")
    return Plain(username, password) if mechanism == "PLAIN" else Scram(mechanism, username, password)


def _login_hint(mechanism: str) -> str:
    words = ' username="…" password="…"' if _MODULES[mechanism] is _PASSWORDS else ""
    return f"for example: {_MODULES[mechanism][0]} required{words};"


def _login_options(mechanism: str, properties: Mapping[str, str], file: Path) -> dict[str, str]:
    """The options of the login module."""
    text = properties.get("sasl.jaas.config")
    if text is None:
        if mechanism == "GSSAPI":
            return {}  # It is usually in a file of the JVM's then; the tickets are those of the system in any case.
        raise InputError(f"{file}: sasl.jaas.config is missing", hint=_login_hint(mechanism))
    try:
        login = jaas.parse_login(text)
    except ValueError:
        raise InputError(f"{file}: sasl.jaas.config cannot be read", hint=_login_hint(mechanism)) from None
    if login.module not in _MODULES[mechanism]:
        module = java_class(login.module)
        if "sasl.mechanism" not in properties:
            near = get_close_matches("sasl.mechanism", properties, n=1, cutoff=0.8)
            slip = f"did you mean sasl.mechanism by {near[0]}?" if near else f"for login module{module} set it"
            raise InputError(f"{file}: sasl.mechanism is not set, so {mechanism} holds", hint=slip)
        raise InputError(f"{file}: login module{module} is not supported for {mechanism}", hint=_login_hint(mechanism))
    return login.options


def _kerberos(properties: Mapping[str, str], options: Mapping[str, str], file: Path) -> Sasl:
    service = properties.get("sasl.kerberos.service.name") or options.get("serviceName")
    if not service:
        hint = "it is the brokers', often kafka"
        if "sasl.mechanism" not in properties:
            hint = f"sasl.mechanism is not set, so GSSAPI holds; set it, for example to PLAIN. For GSSAPI: {hint}"
        raise InputError(f"{file}: sasl.kerberos.service.name is missing", hint=hint)
    keytab = options.get("keyTab") if options.get("useKeyTab", "false").lower() == "true" else None
    return Kerberos(service, options.get("principal"), keytab)


def _msk(options: Mapping[str, str]) -> Sasl:
    return OAuthBearer(
        MskIam(options.get("awsProfileName"), options.get("awsRoleArn"), options.get("awsRoleSessionName"))
    )


def _oauth(properties: Mapping[str, str], options: Mapping[str, str], file: Path, ask: Ask) -> Sasl:
    handler = properties.get(_HANDLER, "")
    retriever = properties.get(_RETRIEVER, "")
    if handler == _MSK_HANDLER:
        return _msk(options)
    for name, what, known in ((_HANDLER, handler, _HANDLERS), (_RETRIEVER, retriever, _RETRIEVERS)):
        if what and what not in known:
            raise InputError(
                f"{file}: {java_class(what).strip() or name} is not supported", hint=f"supported: {', '.join(known)}"
            )
    url = properties.get("sasl.oauthbearer.token.endpoint.url", "")
    if not url:
        raise InputError(f"{file}: sasl.oauthbearer.token.endpoint.url is missing")
    prefix = "extension_"
    extensions = {name.removeprefix(prefix): value for name, value in options.items() if name.startswith(prefix)}
    if local := re.fullmatch(r"file:(?://[^/]*)?(/.*)", url, re.IGNORECASE):
        return OAuthBearer(FileToken(Path(unquote(local[1]))), extensions)
    return OAuthBearer(_client_credentials(url, properties, options, file, ask), extensions)


def _client_credentials(
    url: str, properties: Mapping[str, str], options: Mapping[str, str], file: Path, ask: Ask
) -> ClientCredentials:
    client_id = properties.get(f"{_CLIENT}client.id") or options.get("clientId")
    if not client_id:
        raise InputError(
            f"{file}: the client of the token endpoint is missing",
            hint=f"set {_CLIENT}client.id and {_CLIENT}client.secret",
        )
    secret = properties.get(f"{_CLIENT}client.secret") or options.get("clientSecret")
    return ClientCredentials(
        url,
        client_id,
        secret or ask(f"secret of the client {client_id}"),
        properties.get("sasl.oauthbearer.scope") or options.get("scope"),
        urlencode=properties.get("sasl.oauthbearer.header.urlencode", "false").lower() == "true",
        # As in Kafka, the stores for the endpoint are options of the login module, apart from those for brokers.
        tls=stores.tls_of(options, "ssl.", f"{file}: sasl.jaas.config", ask),
    )
