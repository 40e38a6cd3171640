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
    """What is in the file. Raises InputError where it cannot be read, and for more bytes than `most`."""
    if "\0" in str(path):
        raise InputError(f"{str(path)!r} is no name of a file")
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
    except IsADirectoryError:
        raise InputError(f"{path}: is a directory, not a file") from None
    except OSError as error:
        raise InputError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    if len(content) > most:
        raise InputError(f"{path}: is larger than {most >> 20} MiB" if most >> 20 else f"{path}: is too large")
    return content


def read_text(path: Path, most: int = LARGEST) -> str:
    """The text of the file. Raises InputError for what is not UTF-8, and as `read_bytes` does."""
    try:
        return read_bytes(path, most).decode()
    except UnicodeDecodeError:
        raise InputError(f"{path}: it is not text") from None


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
