"""JSON documents in a file: one, or several one after the other, as a loop around curl leaves them."""

import json
import re
from collections.abc import Iterator
from typing import Any

from kquota.audit.batch import Tally
from kquota.audit.sources.files import open_text
from kquota.audit.sources.unpacked import damage_of
from kquota.errors import InputError

_DECODER = json.JSONDecoder()
_BEGIN = re.compile(r"[^ \t\r\n]")
_RESUMED = re.compile(r"\n(?=[{\[])")
"""Before the next line that can begin a document."""


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
    position = 0
    while match := _BEGIN.search(text, position):
        position = match.start()
        place = f"line {text.count(chr(10), 0, position) + 1}"
        try:
            document, position = _DECODER.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            reason = "nested too deeply"
            if isinstance(error, ValueError):
                reason = error.msg if isinstance(error, json.JSONDecodeError) else "a number has too many digits"
            tally.reject(path, place, f"not JSON: {reason}", text[position : position + 500])
            resumed = _RESUMED.search(text, position)
            position = len(text) if resumed is None else resumed.end()
        else:
            yield place, document
