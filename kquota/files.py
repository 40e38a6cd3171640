"""Files that somebody names: read never without an end, and written as a whole."""

import contextlib
import os
import secrets
import shutil
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
def replacing(path: Path, mode: int | None = None) -> Iterator[Path]:
    """A path beside `path` to write to, which gets its name once it is on the disk: nobody reads half a file.

    With `mode` it has those permissions. After an error the file is as it was, and nothing is left beside it. Raises
    OSError.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666 if mode is None else 0o600)
    try:
        if mode is not None:
            os.fchmod(descriptor, mode)
        yield aside
        os.fsync(descriptor)
        aside.replace(path)
        keep_name(path.parent)
    finally:
        os.close(descriptor)
        aside.unlink(missing_ok=True)


def keep_name(folder: Path) -> None:
    """Has the names in a folder survive a loss of power, where the file system can do that."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def java_program() -> str | None:
    """The program of the Java that JAVA_HOME names, else of the one on the PATH; None where there is none."""
    home = os.environ.get("JAVA_HOME")
    return (shutil.which("java", path=os.path.join(home, "bin")) if home else None) or shutil.which("java")
