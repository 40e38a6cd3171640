"""What Kafka's AdminClient makes of `--bootstrap-server` and `--command-config` before it connects.

Sources: `org.apache.kafka.clients.admin.AdminClientConfig` of 4.3.1 (names, types and ranges), `ConfigDef`,
`KafkaAdminClient.createInternal`, `ClientUtils.parseAndValidateAddresses` and `Utils.getHost`. Whether a class that is
named can be found is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from kquota.cli.kafka_configs import java
from kquota.cli.kafka_configs.failures import Failure

if TYPE_CHECKING:
    from kquota.backends.kafka.address import Servers

_CONFIG_EXCEPTION = "org.apache.kafka.common.config.ConfigException"
_MAXIMA = {"SHORT": 2**15 - 1, "INT": 2**31 - 1, "LONG": 2**63 - 1}
_DNS_LOOKUPS = ("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only")
_REQUEST, _API = "request.timeout.ms", "default.api.timeout.ms"
_REQUEST_MS, _API_MS = 30_000, 60_000
_ADDRESS = re.compile(r"(?:[0-9a-zA-Z\-%._]*://)?\[?([0-9a-zA-Z\-%._:]*)\]?:([0-9]+)", re.ASCII)


class _Number(NamedTuple):
    """A setting that is a number, with its range, both ends included."""

    type: str
    least: float | None = None
    most: float | None = None


class _Choice(NamedTuple):
    """A setting that is one of a few words."""

    words: tuple[str, ...]
    any_case: bool = True


_BOOLEAN = "BOOLEAN"
_CLASS = "CLASS"
_SETTINGS: Mapping[str, _Number | _Choice | str] = {
    "metadata.max.age.ms": _Number("LONG", 0),
    "send.buffer.bytes": _Number("INT", -1),
    "receive.buffer.bytes": _Number("INT", -1),
    "reconnect.backoff.ms": _Number("LONG", 0),
    "reconnect.backoff.max.ms": _Number("LONG", 0),
    "retry.backoff.ms": _Number("LONG", 0),
    "retry.backoff.max.ms": _Number("LONG", 0),
    "enable.metrics.push": _BOOLEAN,
    _REQUEST: _Number("INT", 0),
    "socket.connection.setup.timeout.ms": _Number("LONG"),
    "socket.connection.setup.timeout.max.ms": _Number("LONG"),
    "connections.max.idle.ms": _Number("LONG"),
    "retries": _Number("INT", 0),
    _API: _Number("INT", 0),
    "metrics.sample.window.ms": _Number("LONG", 0),
    "metrics.num.samples": _Number("INT", 1),
    "metrics.recording.level": _Choice(("INFO", "DEBUG", "TRACE"), any_case=False),
    "client.dns.lookup": _Choice(_DNS_LOOKUPS, any_case=False),
    "security.protocol": _Choice(("SASL_SSL", "PLAINTEXT", "SSL", "SASL_PLAINTEXT")),
    "ssl.engine.factory.class": _CLASS,
    "sasl.kerberos.ticket.renew.window.factor": _Number("DOUBLE"),
    "sasl.kerberos.ticket.renew.jitter": _Number("DOUBLE"),
    "sasl.kerberos.min.time.before.relogin": _Number("LONG"),
    "sasl.login.refresh.window.factor": _Number("DOUBLE", 0.5, 1.0),
    "sasl.login.refresh.window.jitter": _Number("DOUBLE", 0.0, 0.25),
    "sasl.login.refresh.min.period.seconds": _Number("SHORT", 0, 900),
    "sasl.login.refresh.buffer.seconds": _Number("SHORT", 0, 3600),
    "sasl.client.callback.handler.class": _CLASS,
    "sasl.login.callback.handler.class": _CLASS,
    "sasl.login.class": _CLASS,
    "sasl.login.connect.timeout.ms": _Number("INT"),
    "sasl.login.read.timeout.ms": _Number("INT"),
    "sasl.login.retry.backoff.max.ms": _Number("LONG"),
    "sasl.login.retry.backoff.ms": _Number("LONG"),
    "sasl.oauthbearer.jwt.retriever.class": _CLASS,
    "sasl.oauthbearer.jwt.validator.class": _CLASS,
    "sasl.oauthbearer.assertion.algorithm": _Choice(("ES256", "RS256")),
    "sasl.oauthbearer.assertion.claim.exp.seconds": _Number("INT", 0, 86_400),
    "sasl.oauthbearer.assertion.claim.jti.include": _BOOLEAN,
    "sasl.oauthbearer.assertion.claim.nbf.seconds": _Number("INT", 0, 3_600),
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": _Number("LONG"),
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": _Number("LONG"),
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": _Number("LONG"),
    "sasl.oauthbearer.clock.skew.seconds": _Number("INT"),
    "sasl.oauthbearer.header.urlencode": _BOOLEAN,
    "metadata.recovery.strategy": _Choice(("REBOOTSTRAP", "NONE")),
    "metadata.recovery.rebootstrap.trigger.ms": _Number("LONG", 0),
}
"""The settings whose value Kafka checks, in the order in which it does."""


def not_created(note: str | None = None) -> Failure:
    """What Kafka throws where it cannot make a client of settings that are right one by one."""
    return Failure("org.apache.kafka.common.KafkaException", "Failed to create new KafkaAdminClient", note=note)


def check_settings(properties: Mapping[str, str]) -> None:
    """Raises Failure for the first setting with a value that Kafka refuses; one with a variable is not looked at."""
    for name, kind in _SETTINGS.items():
        text = properties.get(name)
        if text is not None and "${" not in text:
            _check(name, text, kind)


def _check(name: str, text: str, kind: _Number | _Choice | str) -> None:
    trimmed = java.trim(text)
    if isinstance(kind, _Number):
        _check_number(name, text, kind)
    elif isinstance(kind, _Choice):
        if trimmed not in kind.words and not (kind.any_case and trimmed.upper() in kind.words):
            how = " (case insensitive)" if kind.any_case else ""
            raise _wrong(name, trimmed, f"String must be one of{how}: {', '.join(kind.words)}")
    elif kind == _BOOLEAN:
        if trimmed.lower() not in ("true", "false"):
            raise _wrong(name, text, "Expected value to be either true or false")
    elif not trimmed:
        raise _wrong(name, text, f"Class {text} could not be found.")


def _check_number(name: str, text: str, kind: _Number) -> None:
    trimmed = java.trim(text)
    maximum = _MAXIMA.get(kind.type)
    number = java.parse_double(trimmed) if maximum is None else java.parse_integer(trimmed, maximum)
    if number is None:
        raise _wrong(name, text, f"Not a number of type {kind.type}")
    shown = java.double_text(number) if maximum is None else str(number)
    if kind.least is not None and number < kind.least:
        raise _wrong(name, shown, f"Value must be at least {kind.least}")
    if kind.most is not None and number > kind.most:
        raise _wrong(name, shown, f"Value must be no more than {kind.most}")


def _wrong(name: str, value: str, why: str) -> Failure:
    return Failure(_CONFIG_EXCEPTION, f"Invalid value {value} for configuration {name}: {why}")


def api_timeout_ms(properties: Mapping[str, str]) -> int:
    """How long Kafka's client waits for anything at all. Raises Failure where that is less than for one request."""
    request, api = (
        int(java.trim(text)) if (text := properties.get(name)) is not None and "${" not in text else default
        for name, default in ((_REQUEST, _REQUEST_MS), (_API, _API_MS))
    )
    if api < request and _API in properties:
        raise not_created(f"{_API} must be no smaller than {_REQUEST}")
    return max(api, request)


def check_list(bootstrap: str) -> list[str]:
    """The items of a list of addresses. Raises Failure for an empty one, as Kafka does since 4.2 (KIP-1161)."""
    items = _items(bootstrap)
    if "" in items:
        raise Failure(_CONFIG_EXCEPTION, "Configuration 'bootstrap.servers' values must not be empty.")
    return items


def _items(bootstrap: str) -> list[str]:
    trimmed = java.trim(bootstrap)
    return re.split(r"\s*,\s*", trimmed, flags=re.ASCII) if trimmed else []


def servers(bootstrap: str) -> Servers:
    """The brokers of a list as Kafka reads it: a protocol before an address counts for nothing, no host is this one.

    Raises Failure where an item is no address.
    """
    from kquota.backends.kafka.address import Server, Servers

    found = []
    for item in filter(None, _items(bootstrap)):
        match = _ADDRESS.fullmatch(item)
        if match is None:
            raise not_created(f"malformed bootstrap server {item!r}")
        host, digits = match.groups()
        port = java.parse_integer(digits, _MAXIMA["INT"])
        if port is None or port > 65_535:
            raise not_created(f"malformed bootstrap server {item!r}: a port is at most 65535")
        # A closing bracket is optional to Kafka, so it may be part of the host here.
        found.append(Server(host or "localhost", port))
    if not found:
        raise not_created("no bootstrap server is given")
    return Servers(tuple(dict.fromkeys(found)))
