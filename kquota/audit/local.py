"""An audit without Spark: the same stages in this process, or in a few of them on this machine.

Starting Spark takes longer than auditing some ten million rows.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, as_completed, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

from kquota.audit import stages
from kquota.audit.result import AuditResult
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import Split
from kquota.errors import InputError, Unreachable
from kquota.garbage import look_seldom, looking_seldom

ROWS_PER_PROCESS = 32_000_000
"""Another process is worth its cost when there is so much more to do: two take half as much processor time again, and
with 20 million rows they end hardly sooner."""
ROWS_PER_LINE = 10
"""How many rows of Parquet take as long as a line of a text file."""
ROWS_PER_BUCKET = 1_000_000
"""A bucket for so many rows, less than on Spark: the counters of one bucket at a time are in the memory of a machine
that may have little, and each few rows may have a counter of their own."""

Progress = Callable[[int, int], None]
"""Is told (tasks done, tasks known)."""


T = TypeVar("T")

SPOOL_BYTES = 256 << 20
"""So much of what is packed stays in memory where one process does it all; the rest goes to the disk."""


class _Place(NamedTuple):
    """Where a blob is: in memory, or in a file."""

    bucket: int
    start_ms: int
    path: str
    offset: int
    length: int
    data: bytes | None = None


@looking_seldom()
def audit(
    splits: Sequence[Split],
    settings: AuditSettings,
    what: str,
    *,
    processes: int | None = None,
    progress: Progress = lambda done, known: None,
) -> AuditResult:
    """Audits the usage exports in these splits on this machine; errors call them `what`.

    `processes` is by default as many as there are cores, and one for what is small. The script that calls this needs no
    `if __name__ == "__main__":` for them: they do not run it again. Raises InputError when there is nothing to audit,
    when an input cannot be read, and when the disk has no room for the packed events; Unreachable when one of the
    processes was killed.
    """
    if processes is None:
        rows = sum(split.rows * (1 if split.path.endswith((".parquet", ".orc")) else ROWS_PER_LINE) for split in splits)
        processes = max(1, min(_cores(), len(splits), rows // ROWS_PER_PROCESS))
    buckets = stages.bucket_count(splits, processes, ROWS_PER_BUCKET)
    try:
        if processes == 1:
            outputs = _in_this_process(splits, settings, buckets, progress)
        else:
            outputs = _in_processes(splits, settings, buckets, processes, progress)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        hint = "TMPDIR names another folder for what an audit packs, some ten bytes an event"
        raise InputError(f"{tempfile.gettempdir()}: {reason}", hint=hint) from None
    return stages.result(outputs, settings, what, "local")


def _in_this_process(
    splits: Sequence[Split], settings: AuditSettings, buckets: int, progress: Progress
) -> Iterable[stages.Output]:
    numbered = list(enumerate(splits))
    known = len(numbered) + buckets

    def told() -> Iterator[tuple[int, Split]]:
        for split in numbered:
            progress(split[0], known)
            yield split

    with tempfile.TemporaryFile(prefix="kquota-audit-") as file:
        packed = _by_bucket(_write(told(), settings, buckets, file, "", SPOOL_BYTES))
        known_sizes = [
            place
            for data in packed
            if data[0].bucket >= buckets
            for place in _rebuild((_read(file, place) for place in data), settings, buckets, file, "")
        ]
        by_bucket = _by_bucket(place for mine in (*packed, known_sizes) for place in mine if place.bucket < buckets)
        outputs = []
        for done, places in enumerate(by_bucket):
            progress(len(numbered) + done, known)
            outputs += list(stages.replay_blobs((_read(file, place) for place in places), settings))
    progress(known, known)
    return outputs


def _in_processes(
    splits: Sequence[Split], settings: AuditSettings, buckets: int, processes: int, progress: Progress
) -> Iterable[stages.Output]:
    with (
        tempfile.TemporaryDirectory(prefix="kquota-audit-") as folder,
        # Not forked: threads of this process (a progress bar, Arrow's) would be copied in the middle of something.
        ProcessPoolExecutor(processes, get_context("spawn"), look_seldom) as pool,
    ):
        packed = [_submit(pool, _pack, splits, settings, buckets, folder, number) for number in range(processes)]
        try:
            places = [place for some in _packed(packed, progress, folder, len(splits) + buckets) for place in some]
            rebuilt = [
                _submit(pool, _rebuild_from, mine, settings, buckets, str(Path(folder) / f"{mine[0].bucket}.sizes"))
                for mine in _by_bucket(place for place in places if place.bucket >= buckets)
            ]
            places = [place for place in places if place.bucket < buckets]
            places += [place for each in rebuilt for place in each.result()]
            replayed = [_submit(pool, _replay, mine, settings) for mine in _by_bucket(places)]
            outputs = [output for some in _finished(replayed, progress, len(splits)) for output in some]
            return stages.unpacked(outputs)
        except BrokenProcessPool:
            hint = "out of memory? --engine spark with more machines, or fewer files at a time, need less of it here"
            raise Unreachable("a process of the audit was killed", hint=hint) from None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _submit(pool: ProcessPoolExecutor, task: Callable[..., T], *arguments: Any) -> Future[T]:
    """As the pool's own, which starts a process where none is idle."""
    with _main_hidden():
        return pool.submit(task, *arguments)


_hiding = threading.Lock()


@contextmanager
def _main_hidden() -> Iterator[None]:
    """Processes that are spawned meanwhile do not import the main module.

    They need nothing of it, and a script that is not guarded would begin with its own audit in each of them.
    """
    with _hiding:
        main = vars(sys.modules["__main__"])
        # What `multiprocessing.spawn.get_preparation_data` tells a new process to import.
        names: dict[str, Any] = {name: main[name] for name in ("__file__", "__spec__") if name in main}
        main.update(dict.fromkeys(names))
        try:
            yield
        finally:
            main.update(names)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _packed(futures: Sequence[Future[T]], progress: Progress, folder: str, known: int) -> Iterator[T]:
    """The results of the map tasks; meanwhile the progress goes by the splits that were taken."""
    waiting = set(futures)
    while waiting:
        done, waiting = wait(waiting, timeout=_LOOK_S, return_when=FIRST_COMPLETED)
        yield from (future.result() for future in done)
        progress(max(0, len(list(Path(folder).glob(f"*{_TAKEN}"))) - len(waiting)), known)


def _finished(futures: Sequence[Future[T]], progress: Progress, before: int) -> Iterator[T]:
    """The results as they come; so many tasks were done before them."""
    for done, future in enumerate(as_completed(futures), before + 1):
        yield future.result()
        progress(done, before + len(futures))


_LOOK_S = 0.5
"""How often the progress is looked at."""
_TAKEN = ".taken"


def _taken(splits: Sequence[Split], folder: str) -> Iterator[tuple[int, Split]]:
    """The splits that this process takes, numbered in the order of the export: those that no other one took before.

    The process that makes a split's file takes the split. So the processes are busy for equally long, and each has one
    task: who the clients are is found once in a process.
    """
    for number, split in enumerate(splits):
        try:
            Path(folder, f"{number}{_TAKEN}").touch(exist_ok=False)
        except FileExistsError:
            continue
        yield number, split


def _by_bucket(places: Iterable[_Place]) -> list[list[_Place]]:
    """The places of each bucket, in the order of their times."""
    buckets: dict[int, list[_Place]] = {}
    for place in sorted(places, key=lambda place: place.start_ms):
        buckets.setdefault(place.bucket, []).append(place)
    return list(buckets.values())


def _pack(splits: Sequence[Split], settings: AuditSettings, buckets: int, folder: str, number: int) -> list[_Place]:
    """The map task of one process; its blobs go into a file."""
    path = str(Path(folder, f"{number}.blobs"))
    with open(path, "wb") as file:
        return _write(_taken(splits, folder), settings, buckets, file, path)


def _rebuild_from(places: list[_Place], settings: AuditSettings, buckets: int, path: str) -> list[_Place]:
    """The stage between, of some brokers' data; its blobs go into a file."""
    with open(path, "wb") as file:
        return _rebuild(_open_and_read(places), settings, buckets, file, path)


def _rebuild(blobs: Iterable[bytes], settings: AuditSettings, buckets: int, file: IO[bytes], path: str) -> list[_Place]:
    return _put(list(stages.rebuild_blobs(blobs, settings, buckets)), file, path)


def _put(blobs: Iterable[stages.Blob], file: IO[bytes], path: str, room: int = 0) -> list[_Place]:
    """Keeps blobs: so many bytes of them in memory, and the others at the end of a file."""
    places = []
    end = file.seek(0, os.SEEK_END)
    for blob in blobs:
        length = len(blob.data)
        if length <= room:
            room -= length
            places.append(_Place(blob.bucket, blob.start_ms, "", 0, length, blob.data))
            continue
        places.append(_Place(blob.bucket, blob.start_ms, path, end, length))
        end += file.write(blob.data)
    return places


def _write(
    task: Iterable[tuple[int, Split]], settings: AuditSettings, buckets: int, file: IO[bytes], path: str, room: int = 0
) -> list[_Place]:
    return _put(stages.pack_splits(task, stages.Packers(settings, buckets)), file, path, room)


def _replay(places: list[_Place], settings: AuditSettings) -> list[bytes]:
    """One reduce task."""
    return list(stages.packed_outputs(_open_and_read(places), settings))


def _open_and_read(places: list[_Place]) -> Iterator[bytes]:
    for place in places:
        with open(place.path, "rb") as file:
            yield _read(file, place)


def _read(file: IO[bytes], place: _Place) -> bytes:
    if place.data is not None:
        return place.data
    file.seek(place.offset)
    return file.read(place.length)
