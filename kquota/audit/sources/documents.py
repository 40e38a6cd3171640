"""JSON documents in a file: one, or several one after the other, as a loop around curl leaves them."""

import json
from collections.abc import Iterator
from typing import Any

from kquota.audit.batch import Tally
from kquota.audit.sources.files import open_text
from kquota.audit.sources.unpacked import damage_of
from kquota.errors import InputError

_DECODER = json.JSONDecoder()


def documents(path: str, tally: Tally) -> Iterator[tuple[str, Any]]:
    """(place, document) of each; what is not JSON goes to the tally, up to the next line that begins with `{` or `[`.

    Raises InputError for a file that cannot be read; what is before the damage of a gzip file is.
    """
    try:
        with open_text(path) as stream:
            text = stream.read().decode(errors="replace")
            damage = damage_of(stream)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    if damage is not None:
        tally.leave(path, "file", damage.reason)
    position = _next(text, 0)
    while position < len(text):
        place = f"line {text.count(chr(10), 0, position) + 1}"
        try:
            document, position = _DECODER.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            reason = "nested too deeply"
            if isinstance(error, ValueError):
                reason = error.msg if isinstance(error, json.JSONDecodeError) else "a number has too many digits"
            tally.reject(path, place, f"not JSON: {reason}", text[position : position + 500])
            position = _resume(text, position)
        else:
            yield place, document
        position = _next(text, position)


def _next(text: str, position: int) -> int:
    """Where the next text begins."""
    while position < len(text) and text[position] in " \t\r\n":
        position += 1
    return position


def _resume(text: str, position: int) -> int:
    """The next line after a position that can begin a document."""
    while True:
        position = text.find("\n", position) + 1
        if position == 0:
            return len(text)
        if text[position : position + 1] in ("{", "["):
            return position
