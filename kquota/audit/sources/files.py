"""Files wherever they lie: on this machine, or in a file system that Arrow knows (S3, GCS, Azure, HDFS).

Gzip files are read up to whatever is wrong with them: no byte that can be unpacked is lost.

A path is one of this machine, or a URI. Credentials come from the environment of whichever process reads (AWS_*,
GOOGLE_APPLICATION_CREDENTIALS, …), never from a URI: those are in messages and in the quarantine.
"""

from __future__ import annotations

import io
import re
import zlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path, PurePath, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, NamedTuple
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit, urlunsplit

from kquota.errors import InputError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MAGIC = b"\x1f\x8b"
_PACKED_BYTES = 64 << 10
_AROUND_DATA = ("header", "compression method", "data check", "length check")
"""What zlib finds wrong before or behind the data of a member."""
_ALIASES = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}
"""What Hadoop calls them."""
_KNOWN = ("s3", "gs", "abfs", "abfss", "hdfs", "viewfs")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://|file:/")
_SECRET = re.compile("key|secret|token|password|signature", re.IGNORECASE)
_TIME = re.compile(
    r"/(?:(?:year|month|day|hour|minute|date|time|dt|ds|hr)=[^/]*"
    r"|20\d\d(?:-[01]\d|(?:/\d\d)+|([-_]?)[01]\d\1[0-3]\d(?:[T_-]?\d\d(?:[:.-]?\d\d){0,2}Z?)?))(?=/|$)",
    re.IGNORECASE,
)
"""Folders that hold what is of one time: partitions of a table, or dates, also with a folder for each part of one."""
_HEAD_BYTES = 1 << 16
_REMOTE_BYTES = 4 << 20
"""What one request to a remote file system asks for."""


@dataclass(frozen=True)
class File:
    """A file of an export."""

    path: str
    """Absolute: executors have another working directory."""
    size: int
    """In bytes."""
    identity: tuple[int, int] | None = None
    """Device and inode of a file of this machine: links to it have the same."""

    @property
    def name(self) -> str:
        """The last part of its path."""
        return name_of(self.path)

    @cached_property
    def beginning(self) -> bytes:
        """Its first 64 KiB, unpacked, by which it is known; nothing where the dialect's own reader has a complaint."""
        try:
            with open_text(self.path) as stream:
                return stream.read(_HEAD_BYTES)
        except (InputError, OSError):
            return b""

    def __str__(self) -> str:
        return self.path


class UnreadableFile(InputError):
    """A file that cannot be opened. Without it an audit would not be of what was asked for."""


class ClosedFile(InputError):
    """A file, such as an archive, that may hold usage and is not read. Beside others it does not end an audit."""


def find(path: str) -> list[File]:
    """The file at a path, or all files below a folder in the order of their names.

    Hidden files, the markers of Spark and Hadoop (_SUCCESS), and the topics of a broker, which are below its
    meta.properties, are not data. Raises InputError for what is not there or cannot be read, for a folder without
    files, and for a file system that is not known.
    """
    if path.startswith("file:/"):
        path = unquote(urlsplit(path).path)
    files = _find_remote(_parse(path)) if is_remote(path) else _find_local(Path(path))
    # The topics may lie beside the logs that are meant, and their segments end in .log, too.
    topics = {_plain(file.path).parent for file in files if name_of(file.path) == "meta.properties"}
    files = [file for file in files if topics.isdisjoint(_plain(file.path).parents)]
    if not files:
        raise InputError(f"{path}: a folder without files", hint="give a log file, or a folder of log files")
    return sorted(files, key=lambda file: file.path)


def name_of(path: str) -> str:
    """The last part of a path."""
    return _plain(path).name


def brokers_of(paths: Iterable[str]) -> dict[str, str]:
    """The broker that wrote each file, by its path; empty where the folders do not distinguish brokers.

    Of folders side by side, each is another broker. A single folder in a folder belongs to it, unless both hold a file
    of the same name; a folder that is named by a time belongs to the folder above. A broker has the name of its topmost
    folder with files. Where two brokers would have the same name, each is called by the folders at which the ways to
    all of them part.
    """
    folders = {path: PurePosixPath("/", _TIME.sub("", _plain(path).parent.as_posix())).parts for path in paths}
    held: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for path, folder in folders.items():
        held[folder].add(name_of(path))
    inside: dict[tuple[str, ...], set[str]] = defaultdict(set)
    parting = set()
    for folder, names in held.items():
        for depth, name in enumerate(folder):
            above = folder[:depth]
            inside[above].add(name)
            # Rotated logs have other names: the same one twice is of two brokers.
            if len(inside[above]) > 1 or not names.isdisjoint(held.get(above, ())):
                parting.add(above)
    ways = {folder: tuple(name for depth, name in enumerate(folder) if folder[:depth] in parting) for folder in held}
    topmost: dict[tuple[str, ...], str] = {}
    for folder in sorted(ways, key=len):
        topmost.setdefault(ways[folder], folder[-1])
    if len(topmost) == 1:
        return dict.fromkeys(folders, "")
    if len(set(topmost.values())) < len(topmost):
        topmost = {way: str(PurePosixPath(*way)) for way in topmost}
    return {path: topmost[ways[folder]] for path, folder in folders.items()}


def _plain(path: str) -> PurePath:
    if not is_remote(path):
        return PurePath(path)
    uri = urlsplit(path)
    return PurePath("/", uri.netloc, unquote(uri.path).lstrip("/"))


def open_binary(path: str) -> IO[bytes]:
    """The bytes of a file, seekable. Raises UnreadableFile."""
    if is_remote(path):
        return io.BufferedReader(open_for_arrow(path), _REMOTE_BYTES)
    try:
        return open(path, "rb")
    except OSError as error:
        raise UnreadableFile(f"{path}: {error.strerror or error}") from None


def is_packed(path: str) -> bool:
    """Whether a file is gzip. Raises UnreadableFile."""
    with open_binary(path) as stream:
        try:
            return stream.read(2) == MAGIC
        except OSError as error:  # a bad disk, or a share that is gone
            raise UnreadableFile(f"{path}: {error.strerror}") from None


def open_text(path: str) -> IO[bytes]:
    """The bytes of a file, unpacked when it is gzip (then `damage_of` says how it ended). Raises UnreadableFile."""
    stream: Any = open_binary(path)
    if stream.peek(2)[:2] == MAGIC:
        return io.BufferedReader(Unpacked(stream))
    return stream  # type: ignore[no-any-return]


def open_for_arrow(path: str) -> Any:
    """What Arrow's readers take: a path of this machine as it is, else an open file. Raises UnreadableFile."""
    if not is_remote(path):
        return path
    uri = _parse(path)
    try:
        system, base = _system(_root(uri))
        return system.open_input_file(base + unquote(uri.path))
    except OSError as error:
        raise UnreadableFile(f"{path}: {first_line(error)}") from None


def is_remote(path: str) -> bool:
    """Whether a path is a URI."""
    return _URI.match(path) is not None


def _is_data(relative: str) -> bool:
    return not any(part.startswith((".", "_")) for part in relative.split("/"))


def _find_local(path: Path) -> list[File]:
    if not path.exists() and str(path) != "-":
        raise InputError(f"{path}: no such file or folder")
    try:
        if not path.is_dir():
            if not path.is_file():
                # A pipe would be waited for, and cannot be read in pieces, nor by executors.
                raise InputError(f"{path}: not a file or a folder", hint="write what comes from a pipe to a file first")
            return [_local_file(path)]
        files = [file for file in path.rglob("*") if file.is_file() and _is_data(file.relative_to(path).as_posix())]
        return [_local_file(file) for file in files]
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None


def _local_file(path: Path) -> File:
    status = path.stat()
    return File(str(path.resolve()), status.st_size, (status.st_dev, status.st_ino))


def _find_remote(uri: SplitResult) -> list[File]:
    from pyarrow import fs

    shown = urlunsplit(uri)
    try:
        system, base = _system(_root(uri))
        top = system.get_file_info(base + unquote(uri.path).rstrip("/"))
        if top.type == fs.FileType.NotFound:
            raise InputError(f"{shown}: no such file or folder")
        if top.type == fs.FileType.File:
            return [File(shown, top.size)]
        infos = system.get_file_info(fs.FileSelector(top.path, recursive=True))
    except OSError as error:
        raise InputError(f"{shown}: {first_line(error)}") from None
    return [
        File(urlunsplit(uri._replace(path=quote(info.path[len(base) :]))), info.size)
        for info in infos
        if info.type == fs.FileType.File and _is_data(info.path[len(top.path) :].strip("/"))
    ]


def _parse(path: str) -> SplitResult:
    """A URI as Arrow takes it. Raises InputError for one that holds a secret, or whose file system is not known."""
    uri = urlsplit(path)
    if ":" in uri.netloc.rpartition("@")[0] or any(_SECRET.search(name) for name, _ in parse_qsl(uri.query)):
        raise InputError(
            f"{uri.scheme}://…: a URI must not hold credentials", hint="set them in the environment, as for Spark"
        )
    scheme = _ALIASES.get(uri.scheme, uri.scheme)
    if scheme not in _KNOWN:
        raise InputError(
            f"{path}: the file system {uri.scheme}: is not known, only file, {', '.join(_KNOWN)}",
            hint="copy the files, or mount it, or give Spark a table over them (--table)",
        )
    return uri._replace(scheme=scheme)


def _root(uri: SplitResult) -> str:
    return urlunsplit(uri._replace(path="/" if uri.scheme in ("hdfs", "viewfs") else "", fragment=""))


@cache
def _system(root: str) -> tuple[Any, str]:
    """(file system, what its paths begin with) of a URI without its path. Raises InputError, OSError."""
    import pyarrow as pa
    from pyarrow import fs

    try:
        system, base = fs.FileSystem.from_uri(root)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(f"{root}: {first_line(error)}") from None
    return system, base.rstrip("/")


def first_line(error: Exception) -> str:
    """What an error says, without its details."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__


class Damage(NamedTuple):
    """What is wrong with a gzip file."""

    reason: str
    inside: bool
    """Whether it is in the data of a member: then the last line that was read may be half a line."""


class Unpacked(io.RawIOBase):
    """The text of a gzip file. It ends where the file is damaged; then `damage` says how.

    `gzip.GzipFile` raises an error there, and what it had unpacked since the read before is lost.
    """

    def __init__(self, packed: IO[bytes]) -> None:
        self.damage: Damage | None = None
        self._packed = packed
        self._ahead = b""
        self._member: Any = None
        self._is_first, self._has_data = True, False

    def readable(self) -> bool:
        """It is."""
        return True

    def close(self) -> None:
        """Closes the packed file, too."""
        self._packed.close()
        super().close()

    def readinto(self, buffer: WriteableBuffer) -> int:
        """As `io.RawIOBase` has it. Raises OSError where the file itself cannot be read."""
        target = memoryview(buffer).cast("B")
        data = self._next(len(target))
        target[: len(data)] = data
        return len(data)

    def _next(self, size: int) -> bytes:
        """Up to that many bytes; nothing at the end."""
        while self.damage is None:
            self._ahead = self._ahead or self._packed.read(_PACKED_BYTES)
            if self._member is None and not self._is_first:
                self._ahead = self._ahead.lstrip(b"\0")  # tapes and blocks are filled up with zeros
            if not self._ahead:
                if self._member is not None:
                    self._fail("it is cut off", inside=self._has_data)
                elif self._packed.peek(1):  # type: ignore[attr-defined]
                    continue
                break
            if self._member is None:
                if not MAGIC.startswith(self._ahead[:2]):
                    self._fail("something follows the data", inside=False)
                    break
                self._member, self._has_data = zlib.decompressobj(zlib.MAX_WBITS | 16), False
            if data := self._unpack(size):
                return data
        return b""

    def _unpack(self, size: int) -> bytes:
        before = self._member.copy()
        try:
            data: bytes = self._member.decompress(self._ahead, size)
        except zlib.error as error:
            data = _up_to_the_damage(before, self._ahead, size)
            reason = str(error).rpartition(": ")[2]
            self._fail(reason, inside=not any(part in reason for part in _AROUND_DATA))
            return data
        self._has_data |= bool(data)
        self._ahead = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
        if self._member.eof:
            self._member, self._is_first = None, False
        return data

    def _fail(self, reason: str, *, inside: bool) -> None:
        self.damage = Damage(f"damaged gzip data: {reason}", inside)


def _up_to_the_damage(member: Any, packed: bytes, size: int) -> bytes:
    """What comes of the most of the packed bytes that can be unpacked."""
    good, bad, unpacked = 0, len(packed), b""
    while good < bad - 1:
        middle = (good + bad) // 2
        try:
            unpacked = member.copy().decompress(packed[:middle], size)
            good = middle
        except zlib.error:
            bad = middle
    return unpacked


def damage_of(stream: IO[bytes]) -> Damage | None:
    """What is wrong with the gzip file behind a stream that was read to its end; None where nothing is."""
    raw = getattr(stream, "raw", None)
    return raw.damage if isinstance(raw, Unpacked) else None
