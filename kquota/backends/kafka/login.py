"""The login of a client.properties file: sasl.mechanism and sasl.jaas.config → a `Sasl`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from kquota.backends import jaas
from kquota.backends.kafka.sasl import MECHANISMS, Plain, Sasl, Scram
from kquota.errors import InputError

_SECURITY = "org.apache.kafka.common.security."
_MODULES = {
    f"{_SECURITY}plain.PlainLoginModule",
    f"{_SECURITY}scram.ScramLoginModule",
}
_HINT = f'for example: {_SECURITY}plain.PlainLoginModule required username="…" password="…";'


def sasl_of(properties: Mapping[str, str], file: Path, ask: Callable[[str], str]) -> Sasl:
    """The login; `ask` is for a password that is not there. Raises InputError; no message shows what is in the JAAS."""
    mechanism = properties.get("sasl.mechanism", "GSSAPI").strip()
    if mechanism not in MECHANISMS:
        default = "" if "sasl.mechanism" in properties else " (Kafka's default)"
        raise InputError(
            f"{file}: sasl.mechanism {mechanism}{default} is not supported",
            hint=f"supported: {', '.join(MECHANISMS)}",
        )
    login = _login(properties.get("sasl.jaas.config"), file)
    username = login.options.get("username")
    if username is None:
        raise InputError(f"{file}: sasl.jaas.config gives no username", hint=_HINT)
    password = login.options.get("password")
    if password is None:
        password = ask(f"password of {username}")
    return Plain(username, password) if mechanism == "PLAIN" else Scram(mechanism, username, password)


def _login(text: str | None, file: Path) -> jaas.Login:
    if text is None:
        raise InputError(f"{file}: sasl.jaas.config is missing", hint=_HINT)
    try:
        login = jaas.parse_login(text)
    except ValueError:
        raise InputError(f"{file}: sasl.jaas.config cannot be read", hint=_HINT) from None
    if login.module not in _MODULES:
        raise InputError(f"{file}: login module {login.module} is not supported", hint=_HINT)
    return login
