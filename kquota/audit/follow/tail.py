"""Files that grow, are rotated and come anew: what came in each since the last look.

A file is known by its inode and by its first bytes, so it is followed through a rename. Another file with the same
inode is another file. A copy of a file whose original was emptied (copytruncate), or packed with gzip, goes on
where the original was read to. Request logs and JSON lines are read up to their last line end; other files are read
whole, once they stopped growing. A topic of usage records is followed in the same way, by its partitions.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from kquota.audit.sources import Split, detect, faulty, module, own_document, plan_splits, usage_topic
from kquota.audit.sources.envelope import Pieces
from kquota.audit.sources.files import MAGIC, File, UnreadableFile, brokers_of, find, is_remote, open_text
from kquota.errors import InputError, KquotaError

HEAD_BYTES: Final = 1024
"""So many of the first bytes of a file tell it from others."""
_TAIL_BYTES: Final = 256
_BLOCK_BYTES: Final = 1 << 20
_WHOLE: Final = (".parquet", ".orc", ".csv", ".csv.gz")


@dataclass
class Followed:
    """A file that is followed, and how far."""

    number: int
    """Its place in the order in which files were met."""
    path: str
    identity: tuple[int, int]
    dialect: str
    grows: bool
    """Whether it is read line by line as it grows; else whole."""
    head: bytes = b""
    offset: int = 0
    """How many bytes were read."""
    size: int = 0
    before: bytes = b""
    """The last bytes that were read."""
    parts: int = 0
    """How many pieces its usage came in."""
    state: tuple[int, int] = (-1, -1)
    """Its size, and when it was changed, at the last look."""
    done: bool = False
    """A whole file that was read, or a growing one that has ended."""
    gone: bool = False
    """It is no longer there, by any name."""


class Increment(NamedTuple):
    """What came in a file, to be read."""

    file: Followed
    split: Split


@dataclass
class Tail:
    """The files of some paths, from look to look."""

    paths: Sequence[str]
    dialect: str
    files: list[Followed] = field(default_factory=list)
    order: list[int] = field(default_factory=list)
    """The numbers of the files that are there, in the order in which a batch audit reads them."""
    lost_bytes: int = 0
    """Records of a topic that were deleted before they were read."""
    missing: list[str] = field(default_factory=list)
    """Paths that were not there at the last look, and never before."""
    replaced: list[Followed] = field(default_factory=list)
    """Files that were read whole and changed afterwards, since somebody took them: what was read of them is void."""
    _seen: set[str] = field(default_factory=set)

    def look(self, *, last: bool = False) -> list[Increment]:
        """What came since the last look; with `last` also what is read when nothing more is waited for.

        Older files come first, as a log goes on in the newest.
        """
        present = self._find()
        claimed, newest = set(), dict[Path, int]()
        for followed in self.files:
            folder = Path(followed.path).parent
            newest[folder] = max(newest.get(folder, 0), 0 if followed.gone else followed.state[1])
        for followed in self.files:
            if not followed.gone and self._is_still(followed, present, newest):
                claimed.add(followed.identity)
        for identity, file in present.items():
            if identity not in claimed:
                self._meet(file, last=last)
        at = {followed.identity: followed.number for followed in self.files if not followed.gone}
        self.order = [at[identity] for identity in present if identity in at]
        increments = [
            (followed.state[1], followed.path, increment)
            for followed in self.files
            if not followed.gone
            for increment in self._increments(followed, last=last)
        ]
        return [increment for *_, increment in sorted(increments, key=lambda entry: entry[:2])]

    @property
    def unread(self) -> int:
        """The bytes that are there and were not read at the last look."""
        return sum(file.size - file.offset for file in self.files if not file.gone and not file.done)

    def ranks(self) -> list[int]:
        """The place of each file in the order of a batch audit; files that are gone come before all others."""
        places = {number: place for place, number in enumerate(self.order)}
        return [places.get(file.number, file.number - len(self.files)) for file in self.files]

    def brokers(self) -> list[str]:
        """The broker of each file, by its folder; empty where the folders do not distinguish brokers."""
        brokers = brokers_of(file.path for file in self.files)
        return [brokers[file.path] for file in self.files]

    @property
    def lost(self) -> str | None:
        """What went away before it was read."""
        lost_bytes = sum(max(file.size - file.offset, 0) for file in self.files if file.gone and file.grows)
        if not lost_bytes:
            return None
        return f"a file went away before it was read to its end (bytes: {lost_bytes:,} or more)"

    def check(self) -> None:
        """Raises InputError that says what is wrong with the paths, if anything is."""
        plan_splits(self.paths, self.dialect)

    def _find(self) -> dict[tuple[int, int], File]:
        present: dict[tuple[int, int], File] = {}
        known = {followed.identity for followed in self.files}
        for path in self.paths:
            if is_remote(path):
                raise InputError(f"{path}: kquota follow reads files of this machine, by their paths")
            if not os.path.exists(path):
                continue
            self._seen.add(path)
            try:
                files = find(path)
            except InputError:
                if os.path.isdir(path):
                    continue  # nothing is in it yet
                raise
            for file in files:
                if _identity(file) in known or own_document(file) is None:
                    present.setdefault(_identity(file), file)
        self.missing = [path for path in dict.fromkeys(self.paths) if path not in self._seen]
        return present

    def _is_still(self, followed: Followed, present: dict[tuple[int, int], File], newest: dict[Path, int]) -> bool:
        """Whether a file is still there; it gets its present path and size.

        `newest` is when a file of each folder was last written before the last look: what came in that one since then,
        nobody knows where it is gone.
        """
        unseen = int(followed.state[1] >= newest[Path(followed.path).parent])
        file = present.get(followed.identity) or _under_another_name(followed)
        if file is None:
            followed.gone, followed.size = True, max(followed.size, followed.offset + unseen)
            return False
        state = _state_of(file)
        if state == followed.state and file.path == followed.path:
            return True
        rewritten = not followed.grows and followed.done and state != followed.state
        if rewritten or file.size < followed.offset or not _head(file.path, raw=True).startswith(followed.head):
            followed.gone, followed.size = True, max(followed.size, followed.offset + unseen)
            if not followed.grows:
                self.replaced.append(followed)
            return False
        followed.path, followed.size = file.path, file.size
        if len(followed.head) < HEAD_BYTES:
            followed.head = _head(file.path, raw=True)
        return True

    def _meet(self, file: File, *, last: bool) -> None:
        """Follows a file that was not known."""
        if not file.size and not last:
            return
        try:
            raw = _head(file.path, raw=True)
            head = _head(file.path)
        except (OSError, KquotaError, EOFError):
            return  # gone meanwhile, or packed only in part
        for followed in self.files:
            if len(followed.head) < _TAIL_BYTES or not followed.grows or not head.startswith(followed.head):
                continue
            if followed.gone:
                if self._goes_on(followed, file, packed=raw.startswith(MAGIC)):
                    return
            elif not last:
                return  # a copy, or what its original is being packed into: the next look shows which
        dialect = detect(file) if self.dialect == "auto" else self.dialect
        name = file.name
        lines = dialect == "request-log" or (dialect == "usage" and not name.endswith(_WHOLE))
        grows = lines and not raw.startswith(MAGIC)
        self.files.append(Followed(len(self.files), file.path, _identity(file), dialect, grows, raw, size=file.size))

    @staticmethod
    def _goes_on(followed: Followed, file: File, *, packed: bool) -> bool:
        """Makes a file that is gone go on in a copy of it, if this is one."""
        start = max(followed.offset - len(followed.before), 0)
        try:
            with open_text(file.path) as stream:
                left = start
                while left and (block := stream.read(min(left, _BLOCK_BYTES))):
                    left -= len(block)
                if left or stream.read(len(followed.before)) != followed.before:
                    return False
                if packed and stream.read(1):
                    return False  # there is more in it: it is read as a file of its own
        except (OSError, KquotaError, EOFError):
            return False
        followed.path, followed.identity, followed.gone = file.path, _identity(file), False
        followed.size, followed.head = file.size, _head(file.path, raw=True)
        followed.done = packed
        followed.state = _state_of(file) if packed else (-1, -1)
        return True

    def _increments(self, file: Followed, *, last: bool) -> Iterator[Increment]:
        try:
            status = os.stat(file.path)
        except OSError:
            return
        state = (status.st_size, status.st_mtime_ns)
        unchanged, file.state, file.size = state == file.state, state, status.st_size
        if file.done:
            return
        if file.grows:
            end = file.size if last else _whole_lines_end(file.path, file.offset, file.size)
            if end > file.offset:
                yield Increment(file, Split(file.dialect, file.path, file.offset, end, size=end - file.offset))
            return
        if not (unchanged or last):
            return
        try:
            splits = module(file.dialect).splits(File(file.path, file.size, file.identity))
        except UnreadableFile:
            raise
        except InputError as error:
            if not last:
                return  # it is being written
            splits = [faulty(file.dialect, file.path, error)]
        file.done, file.offset = True, file.size
        for split in splits:
            yield Increment(file, replace(split, size=max(file.size // len(splits), 1)))

    def took(self, increment: Increment) -> None:
        """Notes that an increment was read."""
        followed = increment.file
        if followed.grows:
            with open(increment.split.path, "rb") as file:
                file.seek(max(increment.split.end - _TAIL_BYTES, 0))
                followed.before = file.read(increment.split.end - file.tell())
            followed.offset = increment.split.end

    def broken_up(self) -> list[Followed]:
        """The files that were void since the last call."""
        replaced, self.replaced = self.replaced, []
        return replaced


@dataclass
class TopicTail(Tail):
    """The partitions of the topic `paths[0]`, from look to look, by a client of these librdkafka settings.

    A partition is a file of records: it grows, and its offsets count in records. Transactions show when they end.
    The first look waits at most `timeout_s` for each answer. Later looks are more patient: a broker may restart.
    """

    kafka: dict[str, Any] = field(default_factory=dict, repr=False)
    timeout_s: float = 10.0
    _met: bool = False

    def look(self, *, last: bool = False) -> list[Increment]:
        """What came since the last look. Raises InputError for a topic that is not there, Unreachable."""
        (topic,) = self.paths
        known = {file.path: file for file in self.files}
        with usage_topic.consuming(self.kafka) as (consumer, kafka):
            patience_s = max(self.timeout_s, usage_topic.PATIENCE_S) if self._met else self.timeout_s
            ends = usage_topic.ends(topic, consumer, kafka, patience_s)
        self._met = True
        increments = []
        for partition, (first, end) in ends.items():
            file = known.get(f"{topic}/{partition}")
            if file is None:
                if first == end:
                    continue
                path = f"{topic}/{partition}"
                file = Followed(len(self.files), path, (0, partition), usage_topic.DIALECT, True, offset=first)
                self.files.append(file)
            self.lost_bytes += max(first - file.offset, 0)
            file.offset = max(file.offset, first)
            file.size = max(end, file.offset)
            splits = usage_topic.pieces(topic, partition, file.offset, file.size)
            increments += [Increment(file, split) for split in splits]
        self.order = [file.number for file in sorted(self.files, key=lambda other: other.identity)]
        return increments

    def brokers(self) -> list[str]:
        """Empty names: the records name their brokers."""
        return [""] * len(self.files)

    @property
    def lost(self) -> str | None:
        """What was deleted before it was read."""
        return f"{self.lost_bytes:,} records were deleted before they were read" if self.lost_bytes else None

    def check(self) -> None:
        """Raises InputError where the topic is not there or empty, and Unreachable."""
        usage_topic.plan_topic(self.paths[0], self.kafka, self.timeout_s)

    def took(self, increment: Increment) -> None:
        """Notes that an increment was read."""
        increment.file.offset = increment.split.end


def _identity(file: File) -> tuple[int, int]:
    if file.identity is None:
        raise InputError(f"{file.path}: kquota follow reads files of this machine")
    return file.identity


def _state_of(file: File) -> tuple[int, int]:
    try:
        return file.size, os.stat(file.path).st_mtime_ns
    except OSError:
        return file.size, -1


def _head(path: str, *, raw: bool = False) -> bytes:
    """The first bytes of a file, unpacked unless `raw`."""
    if raw:
        with open(path, "rb") as file:
            return file.read(HEAD_BYTES)
    with open_text(path) as stream:
        return stream.read(HEAD_BYTES)


def _under_another_name(file: Followed) -> File | None:
    """A file that was renamed in its folder, to a name that is none of the paths."""
    try:
        for entry in os.scandir(Path(file.path).parent):
            if entry.inode() == file.identity[1] and entry.is_file():
                status = entry.stat()
                return File(entry.path, status.st_size, (status.st_dev, status.st_ino))
    except OSError:
        pass
    return None


def _whole_lines_end(path: str, start: int, end: int) -> int:
    """Where the last line between two places ends that is no piece of a longer one, as runtimes of containers cut."""
    while (end := _last_line_end(path, start, end)) > start:
        begin = _last_line_end(path, start, end - 1)
        try:
            with open(path, "rb") as file:
                file.seek(begin)
                if Pieces().whole(file.read(end - begin).decode(errors="replace")) is not None:
                    break
        except OSError:
            return start
        end = begin
    return end


def _last_line_end(path: str, start: int, end: int) -> int:
    """Where the last whole line between two places ends; `start` where there is none."""
    try:
        with open(path, "rb") as file:
            while end > start:
                begin = max(start, end - _BLOCK_BYTES)
                file.seek(begin)
                place = file.read(end - begin).rfind(b"\n")
                if place >= 0:
                    return begin + place + 1
                end = begin
    except OSError:
        pass
    return start
