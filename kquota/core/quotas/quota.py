"""Quota keys: what can be limited, in which unit, for which entities.

Sources: `org.apache.kafka.server.config.QuotaConfig` and `QuotaConfigs` (types and ranges), KIP-13, 55, 124, 599, 612.
"""

from __future__ import annotations

import contextlib
import enum
import math
import re
import sys
from collections.abc import Sequence
from decimal import Context, Decimal
from typing import NamedTuple, TypeAlias

from kquota.core.quotas.entity import Entity, EntityType
from kquota.errors import InputError

Value: TypeAlias = int | float

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1
_EXACT_MAX = 2**53


class ValueType(enum.Enum):
    """The config type that Kafka declares for a key; it decides what text a broker can parse."""

    LONG = "LONG"
    INT = "INT"
    DOUBLE = "DOUBLE"

    # Members are singletons: their identity is a hash as good as that of their names, and much cheaper.
    __hash__ = object.__hash__

    @property
    def integral(self) -> bool:
        return self is not ValueType.DOUBLE

    @property
    def maximum(self) -> int | None:
        """The largest value of an integral type; a double has none here."""
        return _MAXIMA.get(self)


_MAXIMA = {ValueType.LONG: LONG_MAX, ValueType.INT: INT_MAX}


class QuotaKey(enum.Enum):
    """The five quota keys; the value is Kafka's config name."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    REQUEST_PERCENTAGE = "request_percentage"
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
    CONNECTION_CREATION_RATE = "connection_creation_rate"

    __hash__ = object.__hash__

    @property
    def value_type(self) -> ValueType:
        """LONG, INT or DOUBLE."""
        return _SPECS[self].value_type

    @property
    def unit(self) -> str:
        """What a value counts, per broker."""
        return _SPECS[self].unit

    @property
    def entity_types(self) -> frozenset[EntityType]:
        """An entity may carry the key when all its parts are of these types."""
        return _SPECS[self].entity_types

    def __str__(self) -> str:
        return self.value

    def allowed_for(self, entity: Entity) -> bool:
        """Whether Kafka accepts this key on that entity."""
        return entity.types <= self.entity_types

    def check_for(self, entity: Entity) -> None:
        """Raises InputError where Kafka does not accept this key on that entity."""
        if not self.allowed_for(entity):
            allowed = ", ".join(key.value for key in QuotaKey if key.allowed_for(entity))
            raise InputError(f"{self} cannot be set on {entity}", hint=f"its quota keys: {allowed}")

    def on_brokers(self, value: Value, brokers: int) -> Value:
        """What a value comes to on that many brokers: each grants it by itself, but mutations go by one controller."""
        return value if self is QuotaKey.CONTROLLER_MUTATION_RATE else brokers * value

    @classmethod
    def parse(cls, name: str) -> QuotaKey:
        """The key of that name. Raises InputError naming the keys there are (and the shipped name of a draft's)."""
        try:
            return cls(name)
        except ValueError:
            import difflib

            keys = [key.value for key in cls]
            close = difflib.get_close_matches(str(name), keys, n=1)  # YAML has keys of other types
            hint = f"did you mean {close[0]!r}?" if close else f"quota keys: {', '.join(keys)}"
            raise InputError(f"unknown quota key {name!r}", hint=_RENAMED.get(name) or hint) from None


class _Spec(NamedTuple):
    value_type: ValueType
    unit: str
    entity_types: frozenset[EntityType]


_USER_CLIENT = frozenset({EntityType.USER, EntityType.CLIENT_ID})
_IP = frozenset({EntityType.IP})
_SPECS = {
    QuotaKey.PRODUCER_BYTE_RATE: _Spec(ValueType.LONG, "bytes/s", _USER_CLIENT),
    QuotaKey.CONSUMER_BYTE_RATE: _Spec(ValueType.LONG, "bytes/s", _USER_CLIENT),
    QuotaKey.REQUEST_PERCENTAGE: _Spec(ValueType.DOUBLE, "% of one thread", _USER_CLIENT),
    QuotaKey.CONTROLLER_MUTATION_RATE: _Spec(ValueType.DOUBLE, "partition mutations/s", _USER_CLIENT),
    QuotaKey.CONNECTION_CREATION_RATE: _Spec(ValueType.INT, "connections/s", _IP),
}

BYTE_RATES = (QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE)
CLIENT_KEYS = (*BYTE_RATES, QuotaKey.REQUEST_PERCENTAGE, QuotaKey.CONTROLLER_MUTATION_RATE)
"""The keys of users and client-ids."""
# Names looked up here spare a loop over all keys for each entity.
KEYS_OF_IPS = {key.value: key for key in QuotaKey if EntityType.IP in key.entity_types}
KEYS_OF_USERS = {key.value: key for key in QuotaKey if EntityType.USER in key.entity_types}

# Names from KIP drafts that people copy from the mailing list.
_RENAMED = {
    "controller_mutations_rate": "a draft of KIP-599 called it so; Kafka shipped controller_mutation_rate",
    "controller_mutations_burst": "never shipped: the burst is controller.quota.window.num full windows of the rate",
}

# An exponent of three digits reaches beyond every double; more would only make numbers too large to handle.
_NUMBER = re.compile(
    r"\s*(?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3}(?!\d))?)\s*(?P<unit>\S.*?)?\s*\Z", re.ASCII
)
_LONGEST_NUMBER = 400
_LARGEST_DOUBLE = sys.float_info.max
_EXACT = Context(prec=500)
"""Room for the longest number times the largest unit without rounding."""

_BYTE_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12} | {
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}


def _multiplier(key: QuotaKey, unit: str | None, text: str) -> int:
    """The factor that a unit stands for under a key. Raises InputError for a unit that does not measure the key."""
    if not unit:
        return 1
    if key.unit == "bytes/s":
        match = re.fullmatch(r"(?P<prefix>[kKMGT]?|[KMGT]i)B(?: ?/ ?s|ps)?", unit)
        if match:
            prefix = match["prefix"]
            return _BYTE_UNITS["k" if prefix == "K" else prefix]
        hint = _meant(text, unit) or "bytes per second, such as 1048576, 10MB (10^6) or 10MiB (2^20)"
        raise InputError(f"{key}: unknown unit {unit!r} in {text!r}", hint=hint)
    if key is QuotaKey.REQUEST_PERCENTAGE and unit == "%":
        return 1
    # `humanize` prints the whole unit, and kquota reads the values that it prints.
    if key.unit.endswith("/s") and unit in ("/s", key.unit):
        return 1
    hint = f"{key} is a number of {key.unit}"
    raise InputError(f"{key}: unknown unit {unit!r} in {text!r}", hint=hint)


_NEARLY_BYTES = re.compile(r"(?P<prefix>[kmgt])(?P<binary>i?)(?:b|bytes?)?(?:/s(?:ec)?|ps)?", re.ASCII | re.I)
_BITS = re.compile(r"[kKMGT]i?b(?!y)|[mgt]b(?:ps|/s)", re.ASCII)
"""`Mb`, `kb` and `mbps` are how people write bits, which may be meant."""


def _meant(text: str, unit: str) -> str | None:
    """A question that names the unit which an almost correct unit of bytes stands for; None where none is near."""
    match = _NEARLY_BYTES.fullmatch(unit)
    if _BITS.match(unit):
        return "it may mean bits: write bytes, such as 10MB or 10MiB"
    if match is None:
        return None
    prefix = match["prefix"].upper() if match["binary"] or match["prefix"] not in "kK" else "k"
    meant = f"{prefix}{'i' if match['binary'] else ''}B"
    return f"did you mean {text.strip()[: -len(unit)].rstrip()}{meant}?"


_GROUPED = re.compile(r"\s*\d{1,3}([_,' ])\d{3}(?:\1\d{3})*\s*", re.ASCII)
"""A number whose thousands are set apart."""
_NO_LIMIT = ("unlimited", "none", "off")
_LIFTED = "unlimited lifts a limit of bytes or connections; deleting the key gives the default, if there is one"
"""What people write for no limit, which is no value."""


def parse_value(key: QuotaKey, text: str) -> Value:
    """Reads a value as people write it: `1024`, `1.5MB`, `10MiB/s`, `50%`.

    Returns an int for LONG and INT keys, a float for DOUBLE. Raises InputError unless the value is a positive finite
    number within the key's type: what KRaft rejects, and what a ZooKeeper-mode broker cannot parse at start-up, stops
    at the door.
    """
    if not text.strip():
        raise InputError(f"{key}: no value is given", hint=f"a positive number of {key.unit}")
    if _GROUPED.fullmatch(text):
        raise InputError(f"{key}: {text!r} is not a number", hint=f"did you mean {re.sub('[^0-9]', '', text)}?")
    match = _NUMBER.match(text)
    no_limit = text.strip().lower() in _NO_LIMIT
    if no_limit and key.value_type.maximum is not None:
        return key.value_type.maximum
    if match is None:
        what = repr(text)
        lifts = ", so large that no client reaches it; deleting the key gives the default" if no_limit else ""
        raise InputError(f"{key}: {what} is not a number", hint=f"a positive number of {key.unit}{lifts}")
    if len(match["number"]) > _LONGEST_NUMBER:
        raise InputError(f"{key}: a number of {len(match['number'])} characters is not a quota")
    number = _EXACT.multiply(Decimal(match["number"]), Decimal(_multiplier(key, match["unit"], text)))
    return check_value(key, number, text.strip())


def without_unit(key: QuotaKey | str, text: str) -> str | None:
    """What to write for a value with a unit, which Kafka's tool does not read; None for another text."""
    with contextlib.suppress(InputError):
        quota = QuotaKey.parse(str(key))
        return f"kafka-configs reads no units: write {quota}={format_value(quota, parse_value(quota, text))}"
    return None


def check_value(key: QuotaKey, number: Decimal | int | float, typed: str = "") -> Value:
    """The number as a valid value of the key. Raises InputError with the reason, which repeats what was `typed`."""
    maximum = key.value_type.maximum
    # What nearly every value is, in a tenth of the time.
    largest = _LARGEST_DOUBLE if maximum is None else min(maximum, _EXACT_MAX)
    if type(number) is (float if maximum is None else int) and 0 < number <= largest:
        return number
    exact = Decimal(number)
    if not exact.is_finite():
        raise InputError(f"{key}: {format_number(number)} is not a finite number", hint=_LIFTED)
    # :g keeps absurd magnitudes (1e300) from being spelled out in the message.
    plain = exact == 0 or Decimal("1e-6") <= abs(exact) < 10**19
    shown = typed or (format_number(number) if plain else f"{exact:g}")
    if exact <= 0:
        raise InputError(
            f"{key}: {shown} must be greater than 0", hint=f"{_LIFTED}; Kafka cannot forbid traffic by a quota of 0"
        )
    if maximum is None:
        value = float(exact)
        if value == math.inf or value == 0.0:
            raise InputError(f"{key}: {shown} is out of range for a {key.value_type.value}")
        return value
    if exact > maximum:
        article = "an" if key.value_type is ValueType.INT else "a"
        raise InputError(f"{key}: {shown} is too large for {article} {key.value_type.value}", hint=f"at most {maximum}")
    if exact != int(exact):
        hint = "a unit makes it one, as in 1.5MB" if key in BYTE_RATES else None
        raise InputError(f"{key}: {shown} must be a whole number of {key.unit}", hint=hint)
    return held(int(exact))


def held(number: int) -> int:
    """The whole number as brokers hold it: in a double, which rounds beyond 2^53; 2^63 is Java's Long.MAX_VALUE."""
    return number if abs(number) <= _EXACT_MAX else min(int(float(number)), LONG_MAX)


def format_number(number: Decimal | int | float) -> str:
    """Plain decimal text without exponent or trailing zeros: `50`, `12.3`, `10485760`."""
    if isinstance(number, float) and not math.isfinite(number):
        return "NaN" if number != number else "Infinity" if number > 0 else "-Infinity"
    if isinstance(number, int):
        return str(number)
    text = format(Decimal(repr(number)) if isinstance(number, float) else number, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def format_value(key: QuotaKey, value: Value) -> str:
    """The exact text that is stored and printed for machines; every type that Kafka declares can parse it."""
    return format_number(int(value) if key.value_type.integral and math.isfinite(value) else value)


def humanize(key: QuotaKey, value: Value) -> str:
    """The value with a unit for people, and exact: `10 MiB/s`, `1500 B/s`, `50 %`.

    A byte rate is shown in a larger unit only where at most two decimals say it without rounding. Three digits suffice
    for kB, MB and so on. Whole KiB are shown in KiB, MiB and so on where that is shorter.
    """
    if key.unit == "bytes/s" and math.isfinite(value):
        number = int(value)
        forms = [form for prefixes in _SYSTEMS if (form := _scaled(number, prefixes)) is not None]
        # Decimal units come first, and win where they are as short.
        _, text = min(forms, key=lambda form: max(form[0], _SHORT), default=(0, f"{number} B"))
        return f"{text}/s"
    unit = "%" if key is QuotaKey.REQUEST_PERCENTAGE else key.unit
    return f"{format_value(key, value)} {unit}"


def amount_text(value: float, unit: str) -> str:
    """A measured amount with three digits and a unit: `48.8 MB`, `1.2k requests`, `3.4 %`."""
    shown = {"bytes": "B", "% of one thread": "%"}.get(unit, unit)
    scales = () if shown == "%" else (("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 10**3))
    prefix, size = next((scale for scale in scales if abs(value) >= 0.9995 * scale[1]), ("", 1))
    number = format(Decimal(f"{value / size:.3g}"), "f")
    return f"{number}{prefix} {shown}".rstrip() if shown not in ("B", "%") else f"{number} {prefix}{shown}"


def rate_text(value: float, unit: str) -> str:
    """A measured rate likewise: `48.8 MB/s`, `20 requests/s`."""
    text = amount_text(value, unit.removesuffix("/s"))
    return f"{text}/s" if unit.endswith("/s") else text


def limit_text(key: QuotaKey, value: Value | None) -> str:
    """The limit for people; the largest value of a key's type is Kafka's own word for no limit."""
    if value is None:
        return "unlimited"
    if value == key.value_type.maximum:
        return f"unlimited ({'Integer' if key.value_type is ValueType.INT else 'Long'}.MAX_VALUE)"
    return humanize(key, value)


_SYSTEMS = (("T", "G", "M", "k"), ("Ti", "Gi", "Mi", "Ki"))
_SHORT = 3
"""People read so many digits at a glance: 160 kB is better than 156.25 KiB, and 10 KiB better than 10.24 kB."""


def _scaled(number: int, prefixes: Sequence[str]) -> tuple[int, str] | None:
    """(significant digits, text) in the largest unit that at most two decimals say exactly; None where there is none.

    A number that is not a whole one of the smallest binary unit has no binary form.
    """
    if prefixes[-1] == "Ki" and number % _BYTE_UNITS["Ki"]:
        return None
    for prefix in prefixes:
        scaled = Decimal(number) / _BYTE_UNITS[prefix]
        if abs(scaled) >= 1 and scaled == round(scaled, 2):
            text = format_number(scaled)
            return len(text.replace(".", "").strip("-0")), f"{text} {prefix}B"
    return None


def share_of_limit(rate: float, limit: Value) -> float | None:
    """The rate over the limit; None for a limit that no rate can be near: a stored 0, a negative number, NaN."""
    return rate / limit if limit > 0 else None


# Java's grammar for Double.parseDouble, without the hexadecimal form that no quota was ever written in. No underscores
# and no `inf`: Python's float() would take both, a broker would not.
_JAVA_DOUBLE = re.compile(r"[+-]?(?:NaN|Infinity|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[dDfF]?)\Z", re.ASCII)
_JAVA_LONG = re.compile(r"[+-]?\d+\Z", re.ASCII)
# What `String.trim` cuts off, and so does Double.parseDouble; str.strip knows other blanks.
JAVA_BLANKS = "".join(map(chr, range(0x21)))


def parse_stored(key: QuotaKey, text: str) -> Value | None:
    """A stored value as a broker reads it, or None where a broker could not.

    LONG and INT follow `Long.parseLong` and `Integer.parseInt` (no blanks, no fractions); DOUBLE follows
    `Double.parseDouble`. Zero, negative and NaN are read as they are: the cluster may hold them.
    """
    maximum = key.value_type.maximum
    if maximum is not None:
        if not _JAVA_LONG.match(text):
            return None
        digits = text.lstrip("+-0")
        if len(digits) > 19:  # beyond every LONG; int() refuses texts of thousands of digits
            return None
        number = -int(digits or "0") if text.startswith("-") else int(digits or "0")
        return held(number) if -maximum - 1 <= number <= maximum else None
    stripped = text.strip(JAVA_BLANKS)
    if not _JAVA_DOUBLE.match(stripped):
        return None
    return canonical(float(stripped.rstrip("dDfF") if not stripped.endswith(("NaN", "Infinity")) else stripped))


def canonical(number: float) -> float:
    """The number; every NaN as one and the same object, so that mappings which hold it can be equal."""
    return number if number == number else math.nan


def differ(one: Value | None, other: Value | None) -> bool:
    """Whether two values are not the same; None is no value, and NaN (see `canonical`) the same as itself."""
    return one is not other and one != other
