"""Brokers: the limits of connections to them, and the settings by which they measure quotas.

Two configs are limits and can be altered: `max.connection.creation.rate`, and the same of one listener. The others are
shown because a quota means nothing without them. Sources: KIP-612, KIP-226;
`org.apache.kafka.network.SocketServerConfigs`, `org.apache.kafka.server.config.QuotaConfig` and
`kafka.server.DynamicBrokerConfig`.
"""

import enum
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from kquota.core.quotas.entity import DEFAULT, Default
from kquota.core.quotas.quota import INT_MAX
from kquota.errors import InputError

Broker: TypeAlias = int | Literal[Default.DEFAULT]
"""A broker's id, or the cluster-wide default of all brokers."""

RATE: Final = "max.connection.creation.rate"
UNLIMITED: Final = INT_MAX
"""The value of a rate that limits nothing, and its default."""

_LISTENER_RATE = re.compile(rf"listener\.name\.(?P<listener>[^=,\s]+)\.{re.escape(RATE)}\Z")
CALLBACK: Final = "client.quota.callback.class"
"""The config of a class that decides quotas in the place of Kafka's own (KIP-257)."""
_SHOWN: Final = (
    RATE,
    "quota.window.num",
    "quota.window.size.seconds",
    "controller.quota.window.num",
    "controller.quota.window.size.seconds",
    "num.io.threads",
    "num.network.threads",
    CALLBACK,
)
_RANKS = {name: rank for rank, name in enumerate(_SHOWN)}


class Source(enum.Enum):
    """The levels at which a config can be set, the strongest first, in the words of DescribeConfigs."""

    DYNAMIC_BROKER_CONFIG = "DYNAMIC_BROKER_CONFIG"
    DYNAMIC_DEFAULT_BROKER_CONFIG = "DYNAMIC_DEFAULT_BROKER_CONFIG"
    STATIC_BROKER_CONFIG = "STATIC_BROKER_CONFIG"
    DEFAULT_CONFIG = "DEFAULT_CONFIG"

    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class Setting:
    """A config's value at one level, and the name that it is set under there."""

    name: str
    value: int | str | None
    source: Source


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """A config as it is in effect, and the weaker settings that it hides, the strongest first.

    A listener's rate has the broker-wide one among its `shadows`, as `DescribeConfigs` does; but it is not hidden, both
    hold at once (`beside`).
    """

    name: str
    value: int | str | None
    source: Source
    shadows: tuple[Setting, ...] = ()
    is_protected: bool | None = None
    """Of a listener's rate: whether the broker-wide rate does not hold for that listener, as it is the inter-broker
    listener and not the only one. None where that is not known: of the default of all brokers.
    """

    @property
    def is_alterable(self) -> bool:
        return is_rate(self.name)

    @property
    def hidden(self) -> tuple[Setting, ...]:
        """The weaker settings of the same config, which this one hides."""
        return tuple(setting for setting in self.shadows if setting.name == self.name)

    def value_at(self, source: Source) -> int | str | None:
        """What is set under this very name at that level, else None."""
        if self.source is source:
            return self.value
        return next((setting.value for setting in self.hidden if setting.source is source), None)


def beside(config: BrokerConfig, configs: Iterable[BrokerConfig]) -> BrokerConfig | None:
    """The broker-wide rate that holds beside the rate of a listener (KIP-612), out of the broker's configs.

    None for other configs, where it limits nothing, and for the inter-broker listener, unless that is the only one.
    Where nobody knows which listener that is, the rate is returned: it holds unless it is this one.
    """
    if listener_of(config.name) is None or config.is_protected:
        return None
    return next((other for other in configs if other.name == RATE and other.value != UNLIMITED), None)


BrokerSnapshot: TypeAlias = Mapping[Broker, tuple[BrokerConfig, ...]]
"""The configs by broker, the default first. Of the default only what is set."""


def callback_of(brokers: BrokerSnapshot) -> str | None:
    """The class that decides quotas on one of the brokers in the place of Kafka's own; None where none has one."""
    values = (config.value for configs in brokers.values() for config in configs if config.name == CALLBACK)
    return next((str(value) for value in values if value), None)


def threads_of(brokers: BrokerSnapshot) -> int | None:
    """`num.io.threads` and `num.network.threads` of a broker together, of the one with most; None if none says."""
    counts = []
    for configs in brokers.values():
        values = [config.value for config in configs if config.name in ("num.io.threads", "num.network.threads")]
        numbers = [value for value in values if isinstance(value, int)]
        if len(numbers) == 2:
            counts.append(sum(numbers))
    return max(counts, default=None)


def level_of(broker: Broker) -> Source:
    """The level at which an alteration of that broker sets its values."""
    return Source.DYNAMIC_DEFAULT_BROKER_CONFIG if broker is DEFAULT else Source.DYNAMIC_BROKER_CONFIG


def broker_text(broker: Broker) -> str:
    """`broker=1`, `broker=<default>`."""
    return f"broker={broker.value if broker is DEFAULT else broker}"


def parse_broker(text: str) -> int:
    """A broker's id. Raises InputError for anything but a whole number from 0."""
    if re.fullmatch(r"\d{1,10}", text, re.ASCII) and int(text) <= INT_MAX:
        return int(text)
    raise InputError(f"{text!r} is not a broker's id", hint="a whole number, as node.id or broker.id has it")


def is_rate(name: str) -> bool:
    """Whether the config is one of the limits."""
    return name == RATE or _LISTENER_RATE.match(name) is not None


def listener_of(name: str) -> str | None:
    """The listener whose rate that is, in lower case as in the config's name; None for the broker-wide rate."""
    match = _LISTENER_RATE.match(name)
    return None if match is None else match["listener"]


def is_shown(name: str) -> bool:
    """Whether the config has to do with quotas."""
    return name in _RANKS or is_rate(name)


def rank(name: str) -> tuple[int, str]:
    """The place of a config among those shown: the rates, then the settings."""
    return (0, name) if is_rate(name) and name != RATE else (_RANKS[name], "")


def check_name(name: str) -> str:
    """The name of a config that can be altered. Raises InputError for any other."""
    listener = listener_of(name)
    if listener is not None and listener != listener.lower():
        raise InputError(
            f"no listener is called {listener!r} in the name of a config",
            hint=f"lower case: listener.name.{listener.lower()}.{RATE}",
        )
    if is_rate(name):
        return name
    known = "is shown, but not altered, by kquota" if name in _RANKS else "is no limit of a broker"
    raise InputError(f"{name!r} {known}", hint=f"limits of brokers: {RATE}, listener.name.NAME.{RATE}")


def parse_rate(name: str, text: str) -> int:
    """The value of a rate: `100`, `100/s`, or `unlimited` for Integer.MAX_VALUE.

    Raises InputError for anything but a positive INT. Kafka's own check lets 0 pass for the broker-wide rate, which
    would keep out every client, even a client that could lift it.
    """
    stripped = text.strip()
    if stripped == "unlimited":
        return UNLIMITED
    match = re.fullmatch(r"([+-]?\d{1,100})\s*(?:/s)?", stripped, re.ASCII)
    if match is None:
        what = f"{text!r}" if stripped else "empty"
        raise InputError(f"{name}: {what} is not a whole number of connections/s", hint="such as 100, or unlimited")
    return check_rate(name, int(match[1]))


def check_rate(name: str, value: int) -> int:
    """The value of a rate. Raises InputError unless it is a positive INT."""
    if value <= 0:
        raise InputError(f"{name}: {value} must be greater than 0", hint="to lift a limit, delete the config")
    if value > INT_MAX:
        raise InputError(f"{name}: {value} is too large for an INT", hint=f"at most {INT_MAX}, which is unlimited")
    return value


def read_value(name: str, text: str | None) -> int | str | None:
    """A value as a broker reports it: a number where it is one."""
    if text is None or name == CALLBACK or not re.fullmatch(r"-?\d{1,19}", text, re.ASCII):
        return text
    return int(text)


def humanize(name: str, value: int | str | None) -> str:
    """The value with its unit for people: `100 connections/s`, `unlimited`, `1 s`; `-` where there is none."""
    if value is None:
        return "-"
    if is_rate(name):
        return "unlimited" if value == UNLIMITED else f"{value} connections/s"
    if name.endswith(".seconds"):
        return f"{value} s"
    return str(value)


@dataclass(frozen=True)
class BrokerAlteration:
    """Rates to set and to remove on one broker, or on the cluster-wide default of all.

    With `strict_remove`, removing one that is not set there is an error. Raises InputError for a config that is no
    limit, an invalid value, one both set and removed, or nothing to do.
    """

    broker: Broker
    set: Mapping[str, int] = field(default_factory=dict)
    remove: frozenset[str] = frozenset()
    strict_remove: bool = False

    def __post_init__(self) -> None:
        if not self.set and not self.remove:
            raise InputError(f"{broker_text(self.broker)}: nothing to set and nothing to delete")
        for name in [*self.set, *sorted(self.remove)]:
            check_name(name)
        both = sorted(self.set.keys() & self.remove)
        if both:
            raise InputError(f"{broker_text(self.broker)}: {', '.join(both)} is both added and deleted")
        checked = {name: check_rate(name, self.set[name]) for name in sorted(self.set, key=rank)}
        object.__setattr__(self, "set", MappingProxyType(checked))

    def applied_to(self, rates: Mapping[str, int]) -> dict[str, int]:
        """What is set there after the change. Raises InputError for a strict removal of what is not set."""
        missing = sorted(name for name in self.remove if name not in rates)
        if self.strict_remove and missing:
            raise InputError(f"{broker_text(self.broker)}: cannot delete {', '.join(missing)}: not set")
        merged = {**rates, **self.set}
        return {name: merged[name] for name in sorted(merged, key=rank) if name not in self.remove}


@dataclass(frozen=True, slots=True)
class BrokerAlterResult:
    """The rates that are set at the level of the alteration, before and after it."""

    broker: Broker
    before: Mapping[str, int]
    after: Mapping[str, int]

    @property
    def changed(self) -> bool:
        return dict(self.before) != dict(self.after)
