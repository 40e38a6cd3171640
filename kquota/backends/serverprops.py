"""A broker's server.properties → `BrokerSettings`."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kquota.backends.properties import read_properties
from kquota.core.change.broker import CALLBACK, RATE, is_rate
from kquota.core.enforcement.generation import BrokerSettings, QuotaWindows
from kquota.core.quotas.quota import INT_MAX, LONG_MAX
from kquota.core.quotas.snapshot import Problem
from kquota.core.quotas.static import STATIC_CONFIGS, StaticQuotas
from kquota.core.quotas.version import CONNECTION_RATES, CONTROLLER_WINDOWS, Version, format_version
from kquota.errors import InputError

_NEVER_SHIPPED: Final = {
    "quota.producer.override": ("KIP-13", "producer_byte_rate on each client-id"),
    "quota.consumer.override": ("KIP-13", "consumer_byte_rate on each client-id"),
    # In Kafka's source in the autumn of 2015; KAFKA-2209 took them out before 0.9.0.0.
    "quota.producer.bytes.per.second.overrides": ("KIP-13", "producer_byte_rate on each client-id"),
    "quota.consumer.bytes.per.second.overrides": ("KIP-13", "consumer_byte_rate on each client-id"),
    "max.connection.creation.rate.per.ip": ("KIP-612", "connection_creation_rate on the default ip"),
    "max.connection.creation.rate.per.ip.overrides": ("KIP-612", "connection_creation_rate on each ip"),
}
"""Configs of drafts: whose, and what to set instead."""


def read_server_properties(path: Path, version: Version) -> BrokerSettings:
    """What a server.properties says about quotas to a broker of that version.

    Only the configs named in `BrokerSettings` are looked at, and held against Kafka's own rules. Raises InputError when
    the file cannot be read or a broker would refuse a value.
    """
    return settings_of(read_properties(path), str(path), version)


def settings_of(properties: Mapping[str, str], where: str, version: Version) -> BrokerSettings:
    """The same of properties that are from elsewhere; `where` is for messages."""

    def number(name: str, default: int, least: int, most: int = INT_MAX) -> int:
        text = properties.get(name)
        if text is None:
            return default
        if not _NUMBER.fullmatch(text.strip()):
            what = f"{text.strip()!r} is not a whole number"
            raise InputError(f"{where}: {name}: {what}", hint="brokers know no units here")
        if not least <= int(text) <= most:
            raise InputError(f"{where}: {name}: {int(text)} is not between {least} and {most}")
        return int(text)

    def windows(prefix: str) -> QuotaWindows:
        return QuotaWindows(
            number(f"{prefix}quota.window.num", 11, 1), number(f"{prefix}quota.window.size.seconds", 1, 1)
        )

    configured = {key: number(name, LONG_MAX, 1, LONG_MAX) for key, name in STATIC_CONFIGS.items()}
    static = StaticQuotas.of(configured, version)
    listeners = listeners_of(properties)
    rates: dict[str, int | None] = {}
    for listener in listeners:
        prefixed = f"listener.name.{listener.lower()}.{RATE}"
        rates[listener] = _limit(number(prefixed, INT_MAX, 1))
    rate = _limit(number(RATE, INT_MAX, 0))
    limited = version >= CONNECTION_RATES
    inter_broker = inter_broker_of(properties)
    return BrokerSettings(
        windows=windows(""),
        controller_windows=windows("controller.") if version >= CONTROLLER_WINDOWS else QuotaWindows(),
        static=static,
        connection_rate=rate if limited else None,
        listeners=rates if limited else dict.fromkeys(listeners),
        inter_broker_listener=inter_broker if inter_broker in listeners else None,
        callback=properties.get(CALLBACK, "").strip() or None,
        problems=tuple(_problems(where, properties, static, version)),
    )


_NUMBER: Final = re.compile(r"[+-]?\d{1,30}", re.ASCII)
_LISTENER: Final = re.compile(r"\s*([^:,\s]+)://[^,]*")


def _limit(rate: int) -> int | None:
    return None if rate == INT_MAX else rate


def listeners_of(properties: Mapping[str, str]) -> tuple[str, ...]:
    """The names in `listeners`, in order and in upper case as Kafka has them."""
    names = [name.upper() for name in _LISTENER.findall(properties.get("listeners", ""))]
    return tuple(dict.fromkeys(names)) or ("PLAINTEXT",)


def inter_broker_of(properties: Mapping[str, str]) -> str:
    """`inter.broker.listener.name`, else the name of the protocol that brokers speak."""
    protocol = properties.get("security.inter.broker.protocol", "PLAINTEXT")
    return properties.get("inter.broker.listener.name", protocol).strip().upper()


def _problems(where: str, properties: Mapping[str, str], static: StaticQuotas, version: Version) -> list[Problem]:
    problems = [
        Problem(f"{where}: {name}", "ignored: brokers of this Kafka version do not read it (0.9 to 2.8 did)")
        for key, name in STATIC_CONFIGS.items()
        if name in properties and key not in static.values and properties[name].strip() != str(LONG_MAX)
    ]
    problems += [
        Problem(f"{where}: {name}", f"ignored: a draft of {kip} that no release reads; set {instead}")
        for name, (kip, instead) in _NEVER_SHIPPED.items()
        if name in properties
    ]
    if version < CONNECTION_RATES:
        problems += [
            Problem(f"{where}: {name}", f"ignored: brokers read it since {format_version(CONNECTION_RATES)} (KIP-612)")
            for name in properties
            if is_rate(name)
        ]
    return problems
