"""`--add-config`, `--add-config-file` and `--delete-config`: what is to be set and deleted, as texts."""

from __future__ import annotations

import io
import re
from collections.abc import Callable

from kquota.backends.properties import LARGEST
from kquota.cli.kafka_configs import java
from kquota.cli.kafka_configs.failures import Failure, Refusal, without_secrets
from kquota.cli.kafka_configs.options import Options

# A separator counts where the next bracket, if there is any, opens.
_OUTSIDE = r"(?=[^\]]*(?:\[|\Z))"
_COMMA = re.compile("," + _OUTSIDE)
_EQUALS = re.compile(r"\s*=\s*" + _OUTSIDE, re.ASCII)
_FORMAT_VERSION = "message.format.version"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")


def to_add(options: Options, write: Callable[[str], None]) -> dict[str, str]:
    """What is to be set, in the order in which Java's Properties hand it out; `write` prints a warning.

    Raises Refusal and Failure.
    """
    pairs: dict[str, str] = {}
    file = options.value("add-config-file")
    if file is not None:
        pairs = load_properties(file)
    text = options.value("add-config")
    if text is not None:
        pairs |= parse_pairs(text, options.tool.pair_format)
    ordered = {key: pairs[key] for key in java.properties_order(pairs)}
    if options.tool.key_characters:
        for key in ordered:
            if not re.fullmatch(f"[{options.tool.key_characters}]*", key):
                raise Refusal(f"Invalid character found for config key: {key}")
    if _FORMAT_VERSION in ordered and options.tool.format_version_warning:
        write(options.tool.format_version_warning.format(ordered[_FORMAT_VERSION]))
    return ordered


def parse_pairs(text: str, form: str = '"key=val"') -> dict[str, str]:
    """Reads `k=v,k=[v,v]` as Kafka does; brackets vanish from values.

    Raises Refusal for anything else; `form` is how it describes the items.
    """
    pieces = java.split(text, _COMMA, keep_trailing=False)
    pairs = [java.split(piece, _EQUALS, keep_trailing=True) for piece in pieces]
    if any(len(pair) != 2 for pair in pairs):
        raise Refusal(
            f"requirement failed: Invalid entity config: all configs to be added must be in the format {form}."
        )
    return {java.trim(key): java.trim(value.replace("[", "").replace("]", "")) for key, value in pairs}


def to_delete(options: Options) -> list[str]:
    """The keys to delete, in the order given, repetitions included."""
    return [java.trim(key) for key in options.values("delete-config")]


def load_properties(path: str) -> dict[str, str]:
    """Reads a file in `java.util.Properties` syntax. Raises Failure or Refusal as `Utils.loadProps` fails."""
    import javaproperties

    try:
        with open(path or ".", "rb") as file:  # to Java an empty path is the folder that it works in
            content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise Failure("java.io.IOException", f"kquota: {path} is larger than {LARGEST >> 20} MiB")
        properties: dict[str, str] = javaproperties.load(io.BytesIO(content))
    except FileNotFoundError:
        raise Failure("java.nio.file.NoSuchFileException", re.sub("/+", "/", path).rstrip("/")) from None
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
