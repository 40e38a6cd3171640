"""`--add-config`, `--add-config-file` and `--delete-config`: what is to be set and deleted, as texts."""

from __future__ import annotations

import re

from kquota.cli.kafka_configs import java
from kquota.cli.kafka_configs.failures import Failure, Refusal, without_secrets
from kquota.cli.kafka_configs.options import Options

# A separator counts where the next bracket, if there is any, opens.
_OUTSIDE = r"(?=[^\]]*(?:\[|\Z))"
_COMMA = re.compile("," + _OUTSIDE)
_EQUALS = re.compile(r"\s*=\s*" + _OUTSIDE, re.ASCII)
_KEY = re.compile(r"[$a-zA-Z0-9._-]*")
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")


def to_add(options: Options) -> dict[str, str]:
    """What is to be set, in the order in which Java's Properties hand it out. Raises Refusal and Failure."""
    pairs: dict[str, str] = {}
    file = options.value("add-config-file")
    if file is not None:
        pairs = load_properties(file)
    text = options.value("add-config")
    if text is not None:
        pairs |= parse_pairs(text)
    ordered = {key: pairs[key] for key in java.properties_order(pairs)}
    if options.tool.checks_keys:
        for key in ordered:
            if not _KEY.fullmatch(key):
                raise Refusal(f"Invalid character found for config key: {key}")
    return ordered


def parse_pairs(text: str) -> dict[str, str]:
    """Reads `k=v,k=[v,v]` as Kafka does; brackets vanish from values. Raises Refusal for anything else."""
    pieces = java.split(text, _COMMA, keep_trailing=False)
    pairs = [java.split(piece, _EQUALS, keep_trailing=True) for piece in pieces]
    if any(len(pair) != 2 for pair in pairs):
        raise Refusal(
            'requirement failed: Invalid entity config: all configs to be added must be in the format "key=val".'
        )
    return {java.trim(key): java.trim(value.replace("[", "").replace("]", "")) for key, value in pairs}


def to_delete(options: Options) -> list[str]:
    """The keys to delete, in the order given, repetitions included."""
    return [java.trim(key) for key in options.values("delete-config")]


def load_properties(path: str) -> dict[str, str]:
    """Reads a file in `java.util.Properties` syntax. Raises Failure or Refusal as `Utils.loadProps` fails."""
    import javaproperties

    try:
        with open(path, "rb") as file:
            properties: dict[str, str] = javaproperties.load(file)
    except FileNotFoundError:
        raise Failure("java.nio.file.NoSuchFileException", path) from None
    except PermissionError:
        raise Failure("java.nio.file.AccessDeniedException", path) from None
    except OSError as error:
        raise Failure("java.io.IOException", error.strerror) from None
    except javaproperties.InvalidUEscapeError:
        raise Refusal("Malformed \\uxxxx encoding.") from None
    return properties


def shown(pairs: dict[str, str]) -> str:
    """`Properties.toString`, without passwords: `{k=v, k=v}`."""
    return "{" + ", ".join(f"{key}={without_secrets(value)}" for key, value in pairs.items()) + "}"


def shown_keys(keys: list[str]) -> str:
    """How Scala prints the keys to delete."""
    return f"ArrayBuffer({', '.join(keys)})" if keys else "List()"
