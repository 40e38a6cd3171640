"""Files that somebody names: read never without an end, and written as a whole."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from kquota.errors import InputError

LARGEST = 256 << 20
"""Bytes of a document; a million entities are 100 MB."""


def read_bytes(path: Path, most: int = LARGEST) -> bytes:
    """What is in the file. Raises OSError; InputError for more bytes than `most`."""
    if "\0" in str(path):
        raise InputError(f"{str(path)!r} is no name of a file")
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise InputError(f"{path}: is larger than {most >> 20} MiB" if most >> 20 else f"{path}: is too large")
    return content


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to, which takes its name at the end: nobody ever reads half a file.

    After an error the file is as it was, and nothing is beside it. Raises OSError.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield aside
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
