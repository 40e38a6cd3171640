"""An audit without Spark: the same two halves in this process, or in a few of them on this machine.

Starting Spark takes longer than auditing some ten million rows.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import get_context
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

from kquota.audit.engines import stages
from kquota.audit.engines.portable import decode, encode
from kquota.audit.evidence.whole import Output, result
from kquota.audit.ledger.charge import Charger
from kquota.audit.ledger.rows import Ledger
from kquota.audit.result import AuditResult
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import Split
from kquota.core.tabular import grouped
from kquota.errors import InputError, Unreachable
from kquota.garbage import look_seldom, looking_seldom

ROWS_PER_PROCESS = 32_000_000
"""Another process is worth its cost when there is so much more to do: two take half as much processor time again, and
with 20 million rows they end hardly sooner."""
TASKS_PER_PROCESS = 8
"""So the processes end at about the same time, and the progress is seen."""
ROWS_PER_LINE = 10
"""How many rows of Parquet take as long as a line of a text file."""
BYTES_PER_BUCKET = 256 << 20
"""Of what a follower kept so much is in memory at a time."""
_LENGTH = 8
"""The bytes of the length that stands before each value of a store."""
_M_TRIM_THRESHOLD, _M_MMAP_MAX, _NEVER = -1, -4, (1 << 31) - 1
"""What glibc's `mallopt` takes."""

Progress = Callable[[int, int], None]
"""Is told (tasks done, tasks known)."""


T = TypeVar("T")


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
    when an input cannot be read, and when the disk has no room for the ledger; Unreachable when one of the
    processes was killed.
    """
    if processes is None:
        rows = sum(split.rows * (1 if split.path.endswith((".parquet", ".orc")) else ROWS_PER_LINE) for split in splits)
        processes = max(1, min(_cores(), len(splits), rows // ROWS_PER_PROCESS))
    charging = stages.rebuilding(splits, settings)
    buckets = stages.bucket_count(splits, processes)
    run = _in_this_process if processes == 1 else _in_processes
    try:
        with tempfile.TemporaryDirectory(prefix="kquota-audit-") as folder:
            outputs = run(splits, charging, Path(folder), buckets, processes, progress)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        hint = "TMPDIR names another folder for the ledger of an audit, some forty bytes a request"
        raise InputError(f"{tempfile.gettempdir()}: {reason}", hint=hint) from None
    return result(outputs, settings, what, "local")


def keep_freed() -> None:
    """From now on this process, which is kquota's own and ends with its audit, keeps the memory that it frees.

    glibc gives each large array back to the system, which clears the pages of the next one: a quarter of an audit.
    """
    with suppress(AttributeError, OSError, TypeError):  # another C library
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_TRIM_THRESHOLD, _NEVER)
        libc.mallopt(_M_MMAP_MAX, 0)


def _in_this_process(
    splits: Sequence[Split], settings: AuditSettings, folder: Path, buckets: int, _processes: int, progress: Progress
) -> list[Output]:
    known = len(splits) + buckets

    def told() -> Iterator[tuple[int, Split]]:
        for number, split in enumerate(splits):
            progress(number, known)
            yield number, split

    parcels = stages.charged(told(), Charger(settings), buckets)
    outputs = list(_on_disk(parcels, settings, folder, lambda done: progress(len(splits) + done, known)))
    progress(known, known)
    return outputs


def in_buckets(parcels: Iterable[stages.Parcel], settings: AuditSettings, size: int) -> Iterator[Output]:
    """The second half of parcels in any order, of that many bytes: on the disk, in buckets that fit into the memory."""
    buckets = -(-size // BYTES_PER_BUCKET) or 1
    if buckets == 1:
        yield from stages.found(parcels, settings)
        return
    placed = (
        pair for parcel in parcels for pair in (parcel.parted(buckets) if isinstance(parcel, Ledger) else [(0, parcel)])
    )
    with tempfile.TemporaryDirectory(prefix="kquota-audit-") as folder:
        yield from _on_disk(placed, settings, Path(folder))


def _on_disk(
    parcels: Iterable[tuple[int, stages.Parcel]],
    settings: AuditSettings,
    folder: Path,
    begins: Callable[[int], None] = lambda done: None,
) -> Iterator[Output]:
    """The second half of (bucket, parcel), a bucket at a time; `begins` is called with how many buckets are done."""
    with Store(folder / "ledger") as store:
        places = [store.add(parcel, bucket) for bucket, parcel in parcels]
        for done, together in enumerate(by_bucket(places)):
            begins(done)
            yield from stages.found(values_at(together), settings)


def _in_processes(
    splits: Sequence[Split], settings: AuditSettings, folder: Path, buckets: int, processes: int, progress: Progress
) -> list[Output]:
    tasks = stages.deal(splits, TASKS_PER_PROCESS * processes)
    progress(0, len(tasks) + buckets)
    # Not forked: threads of this process (a progress bar, Arrow's) would be copied in the middle of something.
    with ProcessPoolExecutor(processes, get_context("spawn"), _begin, (settings,)) as pool:
        try:
            with _main_hidden():
                charging = [
                    pool.submit(_charge, task, buckets, folder / f"{number}.ledger")
                    for number, task in enumerate(tasks)
                ]
            charged = _finished(charging, lambda done: progress(done, len(tasks) + buckets))
            contents = by_bucket(place for places in charged for place in places)
            with _main_hidden():
                finding = [pool.submit(_find, places) for places in contents]
            finished = _finished(finding, lambda done: progress(len(tasks) + done, len(tasks) + len(contents)))
            return [decode(output) for outputs in finished for output in outputs]
        except BrokenProcessPool:
            hint = "out of memory? --engine spark with more machines, or fewer files at a time, need less of it here"
            raise Unreachable("a process of the audit was killed", hint=hint) from None
        finally:
            # This waits: a process that still writes would keep the folder, and that error would hide the first.
            pool.shutdown(cancel_futures=True)


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


def _finished(futures: Sequence[Future[T]], progress: Callable[[int], None]) -> Iterator[T]:
    """The results as they come; `progress` is called with their number so far."""
    for done, future in enumerate(as_completed(futures), 1):
        yield future.result()
        progress(done)


_chargers: list[Charger] = []
"""In a process of an audit its one charger: who the clients are is found once in a process."""


def _begin(settings: AuditSettings) -> None:
    look_seldom()
    keep_freed()
    _chargers.append(Charger(settings))


def _charge(task: list[tuple[int, Split]], buckets: int, path: Path) -> list[Place]:
    """The first half of a task; its parcels go into a file."""
    with Store(path) as store:
        return [store.add(parcel, bucket) for bucket, parcel in stages.charged(task, _chargers[0], buckets)]


def _find(places: list[Place]) -> list[bytes]:
    """The second half of one bucket."""
    return [encode(output) for output in stages.found(values_at(places), _chargers[0].settings)]


class Place(NamedTuple):
    """Where a value is in a store, and for which bucket it is."""

    bucket: int
    path: Path
    offset: int
    length: int


class Store:
    """A file of values, one behind the other: each is its length (8 bytes) and its bytes by `portable`.

    One of an earlier run goes on after its first `size` bytes.
    """

    def __init__(self, path: Path, size: int = 0) -> None:
        self.size = size
        self._path = path
        # Without a buffer: what an old process still holds must not come behind what a new one wrote.
        self._file = open(path, "a+b", buffering=0)  # noqa: SIM115 - `close` closes it
        # ext4 writes a file to the disk at its first close after it was truncated; a ledger is deleted soon.
        if self._file.tell() > size:
            self._file.truncate(size)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Any]:
        """All values, in their order."""
        with open(self._path, "rb") as file:
            while file.tell() < self.size:
                yield decode(file.read(int.from_bytes(file.read(_LENGTH), "little")))

    def add(self, value: Any, bucket: int = 0) -> Place:
        """Appends a value."""
        data = encode(value)
        place = Place(bucket, self._path, self.size + _LENGTH, len(data))
        for written in (len(data).to_bytes(_LENGTH, "little"), data):
            left = memoryview(written)
            while left:
                left = left[self._file.write(left) :]
        self.size = place.offset + len(data)
        return place

    def sync(self) -> None:
        """Writes everything to the disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def values_at(places: Iterable[Place]) -> Iterator[Any]:
    """The values at these places of stores."""
    with ExitStack() as opened:
        files: dict[Path, IO[bytes]] = {}
        for place in places:
            if place.path not in files:
                files[place.path] = opened.enter_context(open(place.path, "rb"))
            files[place.path].seek(place.offset)
            yield decode(files[place.path].read(place.length))


def by_bucket(places: Iterable[Place]) -> list[list[Place]]:
    """The places of each bucket."""
    return [*grouped(places, lambda place: place.bucket).values()]
