"""How much a broker's request log has grown: by the file itself, or by the request counters of the broker's metrics.

Brokers do not report over Kafka's protocol how many requests they serve. A file is exact and must be readable here; a
metrics page counts requests, and their bytes are estimated.
"""

import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import IO, Final, Protocol

from kquota.backends.http import NoAnswer, fetch
from kquota.core.change.recording import LINE_BYTES, Reading
from kquota.errors import InputError, Unreachable
from kquota.metrics.exposition import labels_of, parse

_LARGEST_PAGE: Final = 64 << 20
_CHUNK: Final = 1 << 20
_PREFIX: Final = "kafka_network_requestmetrics"
_COUNTER: Final = re.compile(r"kafka_network_requestmetrics_requests(?:_?per_?sec)?(?:_total|_count|_count_total)")
_GENERIC: Final = "kafka_network_requestmetrics_count"
"""The JMX exporter without rules; the label `name` says which meter it is."""
_PARTS: Final = re.compile(r"fetchconsumer|fetchfollower|.*verification", re.I)
"""Requests that `RequestMetrics` counts a second time, as a part of Fetch or AddPartitionsToTxn."""


class Meter(Protocol):
    """Counts what one broker records. `interval_s` seconds lie between two looks that cost little.

    `counts_unlogged`: it counts requests also while the logger is off, so that it can estimate beforehand.
    """

    interval_s: float
    counts_unlogged: bool

    def start(self) -> None:
        """Counts from now on. Raises Unreachable, InputError."""

    def read(self) -> Reading:
        """What came since the last start. Raises as `start` does."""


class LogMeter:
    """Counts the lines of a request log that is readable here, also across its rotation.

    A file that was renamed is read to its end, and then the new one. A file that comes and goes between two looks is
    missed: `interval_s` is short.
    """

    interval_s = 0.5
    counts_unlogged = False

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None
        self._lines = self._bytes = 0

    def start(self) -> None:
        self._close()
        self._lines = self._bytes = 0
        self._file = self._open()
        if self._file is not None:
            self._file.seek(0, os.SEEK_END)

    def read(self) -> Reading:
        if self._file is None:
            self._file = self._open()
        if self._file is not None:
            self._advance(self._file)
            if self._is_rotated(self._file):
                self._close()
                return self.read()
        return Reading(self._lines, self._bytes, exact=True)

    def _open(self) -> IO[bytes] | None:
        """The file; None where it is not there yet. Raises InputError."""
        try:
            return open(self._path, "rb", buffering=0)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InputError(f"{self._path}: {(error.strerror or str(error)).lower()}") from None

    def _advance(self, file: IO[bytes]) -> None:
        if os.fstat(file.fileno()).st_size < file.tell():  # truncated in place
            file.seek(0)
        while chunk := file.read(_CHUNK):
            self._bytes += len(chunk)
            self._lines += chunk.count(b"\n")

    def _is_rotated(self, file: IO[bytes]) -> bool:
        try:
            now = self._path.stat()
        except OSError:
            return False
        own = os.fstat(file.fileno())
        return (now.st_dev, now.st_ino) != (own.st_dev, own.st_ino)

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class PageMeter:
    """Counts the requests that a broker's metrics page reports (`kafka.network:type=RequestMetrics`).

    Bytes are estimated: lines of the usual length. A counter that falls was reset: the broker was started again.
    """

    interval_s = 5.0
    counts_unlogged = True

    def __init__(self, url: str, *, timeout_s: float = 10.0, fetch: Callable[[str], str] | None = None) -> None:
        if not re.match(r"https?://", url):
            raise InputError(f"{url!r} is no metrics page", hint="http://HOST:PORT/metrics")
        self._url = url
        self._fetch = fetch or (lambda address: _page(address, timeout_s))
        self._last = 0.0
        self._counted = 0.0

    def start(self) -> None:
        self._last, self._counted = self._total(), 0.0

    def read(self) -> Reading:
        total = self._total()
        self._counted += total - self._last if total >= self._last else total
        self._last = total
        requests = round(self._counted)
        return Reading(requests, requests * LINE_BYTES, exact=False)

    def _total(self) -> float:
        try:
            total = requests_of(self._fetch(self._url))
        except ValueError as error:
            raise InputError(f"{self._url}: {error}", hint="--metrics names a broker's metrics page") from None
        if total is None:
            raise InputError(
                f"{self._url} has no count of requests",
                hint="the exporter's rules leave out kafka.network:type=RequestMetrics,name=RequestsPerSec",
            )
        return total


def requests_of(page: str) -> float | None:
    """All requests that a metrics page in Prometheus's text format counts; None where it counts none.

    Known are `kafka_network_requestmetrics_requests_total` of the usual rules, `…_requestspersec_count`, and the JMX
    exporter's own names without rules. Raises ValueError for another page.
    """
    total, counts = 0.0, False
    for line in page.splitlines():
        if not line.lower().startswith(_PREFIX):
            continue
        parts = parse(line)
        name = "" if parts is None else parts.name.lower()
        if parts is None or not (_COUNTER.fullmatch(name) or name == _GENERIC):
            continue
        labels = labels_of(parts.labels)
        if name == _GENERIC and labels.get("name", "").lower() != "requestspersec":
            continue
        counts = True
        value, _ = parts.numbers()
        if math.isfinite(value) and not _PARTS.fullmatch(labels.get("request", "")):
            total += value
    return total if counts else None


def _page(url: str, timeout_s: float) -> str:
    try:
        page = fetch(url, {"Accept": "text/plain"}, timeout_s=timeout_s, most=_LARGEST_PAGE)
    except (NoAnswer, ValueError) as error:
        raise Unreachable(f"cannot read {url}: {error}", hint="--metrics names a broker's metrics page") from None
    return page.decode("utf-8", "replace")
