"""An audit without Spark: the same stages in this process, or in a few of them on this machine.

Starting Spark takes longer than auditing some ten million rows.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple, TypeVar

from kquota.audit import stages
from kquota.audit.findings import AuditResult
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import Split

ROWS_PER_PROCESS = 2_000_000
"""Another process is worth its start when there is so much more to do; a line of text counts as some rows."""

Progress = Callable[[int, int], None]
"""Is told (tasks done, tasks known)."""


T = TypeVar("T")


class _Place(NamedTuple):
    """Where a blob lies."""

    bucket: int
    start_ms: int
    path: str
    offset: int
    length: int


def audit(
    splits: Sequence[Split],
    settings: AuditSettings,
    what: str,
    *,
    processes: int | None = None,
    progress: Progress = lambda done, known: None,
) -> AuditResult:
    """Audits the usage exports in these splits on this machine; errors call them `what`.

    `processes` is by default as many as there are cores, and one for what is small. Raises InputError when there is
    nothing to audit.
    """
    if processes is None:
        rows = sum(split.rows for split in splits)
        processes = max(1, min(_cores(), len(splits), rows // ROWS_PER_PROCESS))
    buckets = stages.bucket_count(splits, processes)
    if processes == 1:
        tasks = stages.deal(splits, 1)
        blobs: dict[int, list[stages.Blob]] = {}
        for blob in stages.pack_splits(tasks[0], settings, buckets):
            blobs.setdefault(blob.bucket, []).append(blob)
        outputs = []
        for mine in blobs.values():
            mine.sort(key=lambda blob: blob.start_ms)
            outputs += list(stages.replay_blobs((blob.data for blob in mine), settings))
        return stages.result(outputs, settings, what, "local")
    tasks = stages.deal(splits, 4 * processes)
    with (
        tempfile.TemporaryDirectory(prefix="kquota-audit-") as folder,
        # Not forked: threads of this process (a progress bar, Arrow's) would be copied in the middle of something.
        ProcessPoolExecutor(processes, get_context("spawn")) as pool,
    ):
        packed = [
            pool.submit(_pack, task, settings, buckets, str(Path(folder) / f"{number}.blobs"))
            for number, task in enumerate(tasks)
        ]
        by_bucket: dict[int, list[_Place]] = {}
        for places in _finished(packed, progress, 0, buckets):
            for place in places:
                by_bucket.setdefault(place.bucket, []).append(place)
        replayed = [pool.submit(_replay, sorted(mine, key=_start), settings) for mine in by_bucket.values()]
        outputs = [output for some in _finished(replayed, progress, len(tasks), 0) for output in some]
    return stages.result(outputs, settings, what, "local")


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _start(place: _Place) -> int:
    return place.start_ms


def _finished(futures: Sequence[Future[T]], progress: Progress, before: int, after: int) -> Iterator[T]:
    """The results as they come; so many tasks were done before them and come after them."""
    for done, future in enumerate(as_completed(futures), before + 1):
        yield future.result()
        progress(done, before + len(futures) + after)


def _pack(task: list[tuple[int, Split]], settings: AuditSettings, buckets: int, path: str) -> list[_Place]:
    """One map task; its blobs go into a file."""
    places = []
    with open(path, "wb") as file:
        for blob in stages.pack_splits(task, settings, buckets):
            places.append(_Place(blob.bucket, blob.start_ms, path, file.tell(), len(blob.data)))
            file.write(blob.data)
    return places


def _replay(places: list[_Place], settings: AuditSettings) -> list[bytes]:
    """One reduce task."""
    return list(stages.replay_blobs(_read(places), settings))


def _read(places: list[_Place]) -> Iterator[bytes]:
    for place in places:
        with open(place.path, "rb") as file:
            file.seek(place.offset)
            yield file.read(place.length)
