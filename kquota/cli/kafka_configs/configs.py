"""`--add-config`, `--add-config-file` and `--delete-config`: what is to be set and deleted, as texts."""

import re
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path

from kquota.backends.properties import read_properties
from kquota.cli.kafka_configs.options import Options, Refusal
from kquota.core.java import hash_order, string_hash
from kquota.core.quotas.quota import QuotaKey, parse_stored, without_unit

_OUTSIDE = r"(?=[^\]]*(?:\[|\Z))"
"""A separator counts where the next bracket, if there is any, opens."""
_COMMA = re.compile("," + _OUTSIDE)
_EQUALS = re.compile(r"\s*=\s*" + _OUTSIDE, re.ASCII)
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
NO_QUOTAS = "kquota: SCRAM credentials are no quotas: alter them with Kafka's own kafka-configs"


def to_add(options: Options) -> dict[str, str]:
    """What is to be set, in Kafka's order. Raises Refusal and InputError."""
    file, text = options.value("add-config-file"), options.value("add-config")
    pairs = {} if file is None else read_properties(Path(file or "."))
    pairs |= {} if text is None else parse_pairs(text)
    for key in pairs:
        if not re.fullmatch(r"[$a-zA-Z0-9._-]*", key):
            raise Refusal(f"Invalid character found for config key: {key}")
    return {key: pairs[key] for key in ordered(pairs)}


def ordered(keys: Iterable[str]) -> list[str]:
    """The keys in the order in which Kafka's tool stores and prints them: Java's hash table's."""
    return hash_order(list(keys), string_hash)


def parse_pairs(text: str) -> dict[str, str]:
    """Reads `k=v,k=[v,v]` as Kafka does; brackets vanish from values. Raises Refusal for anything else."""
    pieces = _COMMA.split(text)
    while len(pieces) > 1 and not pieces[-1]:
        pieces.pop()
    pairs = [_EQUALS.split(piece) for piece in pieces if piece or text.strip(",") or not text]
    if any(len(pair) != 2 for pair in pairs):
        raise Refusal('Invalid entity config: all configs to be added must be in the format "key=val".')
    return {key.strip(): value.replace("[", "").replace("]", "").strip() for key, value in pairs}


def to_delete(options: Options) -> list[str]:
    """The keys to delete, in the order given, repetitions included."""
    return [key.strip() for key in options.values("delete-config")]


def parse_double(text: str) -> float | None:
    """The number of a text as Java reads it, or None."""
    return parse_stored(QuotaKey.REQUEST_PERCENTAGE, text)  # a key of that type


def advice(key: str, text: str) -> str:
    """What to write for a value with a unit, which Kafka's tool does not read; nothing for another text."""
    hint = without_unit(key, text)
    return "" if hint is None else f" ({hint})"


def double_text(number: float) -> str:
    """A number as Kafka prints it: `1024.0`, `1.0E7`, `NaN`."""
    if number != number:
        return "NaN"
    if abs(number) == float("inf"):
        return "Infinity" if number > 0 else "-Infinity"
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        text = format(Decimal(repr(number)), "f")
        return text if "." in text else f"{text}.0"
    sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    assert isinstance(exponent, int)
    first, *rest = map(str, digits)
    return f"{'-' if sign else ''}{first}.{''.join(rest) or '0'}E{exponent + len(rest)}"
