"""The store of a journal that is a folder: a file for each entry, written by one run and locked for as long as it runs.

A file gets its name when it is whole, with room for all that its run may have to say about the end. In that room the
entry is written once more at the end, before blanks take the place of what it was: a reader takes the last line that is
whole. So a kill leaves whole entries, and nothing else; and a file is always JSON.
"""

import contextlib
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from kquota.core.change.journal_store import Draft
from kquota.documents.encoding import write_bytes
from kquota.errors import Conflict, InputError
from kquota.files import keep_name
from kquota.lock import is_locked, locked

_LOCK_WAIT_S = 5.0
_LEFT = re.compile(r"\.new-[0-9a-f]+")
"""What a kill leaves of an entry that was not begun yet."""
_MARK = ".ended"
_held: dict[Path, int] = {}
"""The files of the entries that this process writes, with their descriptors: each has a lock."""


class FolderStore:
    """The entries of a folder, which is made for the first one; see `JournalStore`."""

    sees_all_hosts = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self) -> list[str]:
        with self._complaints("read"):
            names = os.listdir(self._folder) if self._folder.is_dir() else []
        return [name for name in names if name.endswith(".json") and not name.startswith(".")]

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, bytes | InputError]]:
        for name in names:
            try:
                yield name, _content(self._folder / name)
            except FileNotFoundError:
                continue
            except InputError as error:
                yield name, error

    def create(self, draft: Draft) -> None:
        with self._complaints():
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with self._alone() as alone:
                names = os.listdir(self._folder)
                for name in filter(_LEFT.fullmatch, names) if alone else ():
                    (self._folder / name).unlink(missing_ok=True)
                while True:
                    name, data, most = draft(names)
                    try:
                        _held[self._folder / name] = self._new(name, (data + b"\n").ljust(most + 2))
                        return
                    except FileExistsError:
                        names.append(name)

    def replace(self, name: str, data: bytes) -> None:
        file = self._folder / name
        with self._complaints():
            try:
                descriptor = _held[file]
                begun = _read(descriptor).rstrip()
                os.lseek(descriptor, len(begun), os.SEEK_SET)
                _write(descriptor, b"\n" + data + b"\n")
                os.ftruncate(descriptor, len(begun) + len(data) + 2)
                os.fsync(descriptor)
                with contextlib.suppress(OSError):
                    os.lseek(descriptor, 0, os.SEEK_SET)
                    _write(descriptor, b" " * len(begun))
            finally:
                self.release(name)

    def release(self, name: str) -> None:
        descriptor = _held.pop(self._folder / name, None)
        if descriptor is not None:
            os.close(descriptor)

    def is_held(self, name: str) -> bool:
        return is_locked(self._folder / name)

    def remove(self, names: Iterable[str]) -> None:
        with self._complaints():
            for name in names:
                (self._folder / name).unlink(missing_ok=True)

    @property
    def mark(self) -> bytes:
        with contextlib.suppress(OSError):
            return (self._folder / _MARK).read_bytes()
        return b""

    @mark.setter
    def mark(self, mark: bytes) -> None:
        with contextlib.suppress(InputError):
            write_bytes(self._folder / _MARK, mark, mode=0o600)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[bool]:
        """Alone in giving numbers. Where nothing can be locked two may get the same: their ids differ all the same."""
        with contextlib.ExitStack() as stack:
            alone = False
            with contextlib.suppress(OSError, Conflict):
                stack.enter_context(locked(self._folder / ".lock", wait_s=_LOCK_WAIT_S, what="the journal"))
                alone = True
            yield alone

    def _new(self, name: str, data: bytes) -> int:
        """The descriptor of a file that is whole, locked and on the disk before it has its name.

        Raises FileExistsError where there is such a file.
        """
        import fcntl

        unnamed = self._folder / f".new-{secrets.token_hex(8)}"
        descriptor = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            _write(descriptor, data)
            os.fsync(descriptor)
            with contextlib.suppress(OSError):  # where nothing can be locked, nobody sees who writes
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.link(unnamed, self._folder / name)
            keep_name(self._folder)
        except BaseException:
            os.close(descriptor)
            raise
        finally:
            unnamed.unlink(missing_ok=True)
        return descriptor

    @contextlib.contextmanager
    def _complaints(self, what: str = "written") -> Iterator[None]:
        """An error of the file system as one that says what to do."""
        try:
            yield
        except OSError as error:
            raise InputError(
                f"the journal cannot be {what} in {self._folder}: {error.strerror or error}",
                hint="set KQUOTA_JOURNAL, or --journal, to a folder that can",
            ) from None


def _content(file: Path) -> bytes:
    """The bytes of a plain file.

    A pipe or a device is refused, and never waited for. Raises InputError, and FileNotFoundError when the file is gone.
    """
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise InputError("not a plain file")
            return _read(descriptor)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise InputError(f"{error.strerror or error}") from None


def _read(descriptor: int) -> bytes:
    with open(descriptor, "rb", closefd=False) as stream:
        stream.seek(0)
        return stream.read()


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
