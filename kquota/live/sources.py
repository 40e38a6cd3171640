"""Where live metrics come from: exporters' pages, or a Prometheus. Each look has its time and what is missing.

`kquota.live.followed` is a third source: the request logs themselves.
"""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import urlsplit

from kquota.backends.http import NoAnswer, fetch, is_url
from kquota.core.findings.finding import Episode
from kquota.core.findings.use import Counter, Observed
from kquota.core.quotas.quota import QuotaKey
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.documents.foreign.prometheus import CLIENTS, Metric
from kquota.errors import InputError, Unreachable
from kquota.metrics.exposition import labels_of, parse
from kquota.metrics.prometheus import Server, selector
from kquota.metrics.series import IDENTITY, LIVE_SELECTOR, Nature, Series, checked, of_live_labels

LARGEST_PAGE: Final = 256 << 20
_PAST_S: Final = 6 * 3600
"""How far back the beginning of a throttle is looked for."""
_RANGE_S: Final = 180
"""How far back a Prometheus is asked: two readings at an interval of a minute, with room."""


class Sample(NamedTuple):
    """One value of one series, with the labels that its source gives it."""

    labels: Mapping[str, str]
    """`__name__` included."""
    series: Series
    at_ms: int
    value: float


class Missing(NamedTuple):
    """A place that did not answer, or a series that nobody understands."""

    place: str
    why: str


@dataclass(frozen=True)
class Look:
    """All samples of one look; `missing` is what could not be read."""

    samples: tuple[Sample, ...]
    missing: tuple[Missing, ...] = ()
    """Places without an answer: brokers whose counters are not among the samples."""
    unread: tuple[Missing, ...] = ()
    """Series about a quota whose labels no known rule makes; of a log, lines that could not be read."""
    readings: tuple[Observed, ...] = ()
    """What the source itself knows about whole counters, without samples."""
    episodes: Mapping[Counter, Episode] = field(default_factory=dict)
    """The delays that go on, where the source knows each request."""
    unread_are: tuple[str, str] = ("series", "series")
    """One and several of `unread`, as people call them."""


class LiveSource(Protocol):
    """Something that can be looked at again and again."""

    @property
    def name(self) -> str:
        """The source as people call it."""

    def look(self, quotas: QuotaSnapshot | None = None) -> Look:
        """The present samples; a range of the last minutes where the source keeps one.

        `quotas` hold now, for a source that charges clients to counters itself.

        Raises Unreachable when no part of it answers, Unauthorized and InputError.
        """


class Page(NamedTuple):
    """One page of metrics: the broker's name where somebody gave it, and the URL or the file."""

    broker: str | None
    place: str

    @classmethod
    def parse(cls, text: str) -> Page:
        """Reads `[BROKER=]URL` or `[BROKER=]FILE`. Raises InputError for a URL that is not http, or has a login."""
        page = cls(*named(text))
        is_address = re.fullmatch(r"[\w.-]+:\d+(?:/.*)?", page.place) is not None
        if is_address or ("://" in page.place and ("@" in page.place or not is_url(page.place))):
            raise InputError(
                "--metrics takes a file, or a URL such as http://broker-1:7071/metrics without a login in it",
                hint="for pages behind a login, ask the Prometheus that reads them: --prometheus URL",
            )
        return page

    @property
    def is_url(self) -> bool:
        """Whether it is asked over HTTP."""
        return "://" in self.place

    @property
    def where(self) -> str:
        """The broker where no label says it: the host and port, or the file's name."""
        return urlsplit(self.place).netloc if self.is_url else Path(self.place).stem


def named(text: str) -> tuple[str | None, str]:
    """(broker, place) of `[BROKER=]PLACE`."""
    name, equals, place = text.partition("=")
    # A URL may hold an equals sign itself, in its query.
    return (name, place) if equals and name and "/" not in name and ":" not in name else (None, text)


@dataclass(frozen=True)
class Pages:
    """The exporters' own pages, read directly."""

    pages: tuple[Page, ...]
    timeout_s: float = 10.0

    @property
    def name(self) -> str:
        """How many pages they are."""
        return f"{len(self.pages)} page{'' if len(self.pages) == 1 else 's'} of metrics"

    def look(self, quotas: QuotaSnapshot | None = None) -> Look:
        """One reading of each page; all pages at the same time."""
        samples: list[Sample] = []
        missing: list[Missing] = []
        unread: list[Missing] = []
        with ThreadPoolExecutor(min(len(self.pages), 16)) as pool:
            for page, answer in zip(self.pages, pool.map(self._text, self.pages), strict=True):
                if isinstance(answer, Missing):
                    missing.append(answer)
                    continue
                text, at_ms = answer
                samples += _of_page(text, page, at_ms, unread)
        if len(missing) == len(self.pages):
            raise Unreachable(f"no page of metrics could be read: {missing[0].place}: {missing[0].why}")
        return Look(tuple(samples), tuple(missing), tuple(unread))

    def _text(self, page: Page) -> tuple[str, int] | Missing:
        """The text of a page and when it was current, or why there is none."""
        try:
            if not page.is_url:
                file = Path(page.place)
                return file.read_text(encoding="utf-8"), int(file.stat().st_mtime * 1000)
            text = fetch(page.place, {"Accept": "text/plain"}, timeout_s=self.timeout_s, most=LARGEST_PAGE)
            if text.lstrip().startswith(b"<"):
                return Missing(page.place, "a page for people, and none of metrics: their path is often /metrics")
            return text.decode(), time.time_ns() // 1_000_000
        except UnicodeDecodeError:
            return Missing(page.place, "not UTF-8 text")
        except OSError as error:
            return Missing(page.place, error.strerror or str(error))
        except NoAnswer as error:
            return Missing(page.place, str(error))


def _of_page(text: str, page: Page, at_ms: int, unread: list[Missing]) -> Iterator[Sample]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith(("kafka_", "redpanda_", "vectorized_")):
            continue
        try:
            parts = parse(line)
            if parts is None:
                continue
            labels = {**labels_of(parts.labels), "__name__": parts.name}
            value, time_ms = parts.numbers()
            sample = _sample(labels, page.broker, page.where, at_ms if time_ms is None else time_ms, value)
        except ValueError as error:
            unread.append(Missing(f"{page.place}, line {number}", str(error)))
            continue
        if sample is not None:
            yield sample


def _sample(labels: Mapping[str, str], broker: str | None, where: str, at_ms: int, value: float) -> Sample | None:
    series = of_live_labels(labels, broker)
    if series is None:
        return None
    counted = checked(series.nature, at_ms, value)
    if counted is None:
        return None
    return Sample(labels, series if series.broker else series._replace(broker=where), at_ms, counted)


@dataclass(frozen=True)
class Prometheus:
    """A server of Prometheus, or of what answers as it does."""

    server: Server
    matchers: str | None = None

    @property
    def name(self) -> str:
        """Its address."""
        return f"Prometheus at {self.server.shown_url}"

    def look(self, quotas: QuotaSnapshot | None = None) -> Look:
        """The readings of the last minutes, with the times at which the brokers were scraped.

        A range selector is asked for: an instant query would repeat readings of up to five minutes ago as of now.
        """
        unread: list[Missing] = []
        samples = self._ask(selector(self.matchers, LIVE_SELECTOR), _RANGE_S, unread)
        return Look(samples, unread=tuple(unread))

    def past(self, selected: str, series: Series) -> list[tuple[int, float]]:
        """(epoch ms, value) of one series in the last hours, in order. Raises what `look` raises."""
        samples = self._ask(selected, _PAST_S, [])
        return sorted((sample.at_ms, sample.value) for sample in samples if sample.series == series)

    def _ask(self, selected: str, seconds: int, unread: list[Missing]) -> tuple[Sample, ...]:
        with tempfile.TemporaryDirectory(prefix="kquota-") as folder:
            file = Path(folder, "answer.json")
            self.server.ask("query", {"query": f"{selected}[{seconds}s]"}, file)
            data = file.read_bytes()
        try:
            return tuple(_of_answer(json.loads(data)["data"]["result"], unread))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise Unreachable(f"{self.name} does not answer as Prometheus does") from None


def _of_answer(result: Iterable[Mapping[str, Any]], unread: list[Missing]) -> Iterator[Sample]:
    for series in result:
        labels = {str(name): str(value) for name, value in series["metric"].items()}
        for seconds, text in series["values"]:
            try:
                sample = _sample(labels, None, "", round(float(seconds) * 1000), float(text))
            except (ValueError, OverflowError) as error:
                unread.append(Missing(str(labels.get("__name__")), str(error)))
                break
            if sample is not None:
                yield sample


def open_source(pages: Sequence[str], prometheus: Server | None, matchers: str | None, timeout_s: float) -> LiveSource:
    """The source that was asked for. Raises InputError where there is none, or both."""
    if bool(pages) == (prometheus is not None):
        raise InputError(
            "live metrics come from one source" if pages else "live metrics need a source",
            hint="--metrics URL for each broker, which is the page of its JMX exporter, or --prometheus URL; top also"
            " takes --log FILE; without any of these, 'kquota record' and 'kquota audit' tell who is throttled",
        )
    if prometheus is not None:
        return Prometheus(prometheus, matchers)
    return Pages(tuple(map(Page.parse, pages)), timeout_s)


# --- What rules and dashboards need --------------------------------------------------------------------------------


def metrics_of(samples: Iterable[Sample]) -> tuple[Metric, ...]:
    """The metrics among the samples, each with the labels that identify a counter in this dialect."""
    connections = QuotaKey.CONNECTION_CREATION_RATE
    labels: dict[tuple[str, QuotaKey, Nature], set[str]] = {}
    for sample in samples:
        names = {name for name in IDENTITY if sample.labels.get(name)}
        place = sample.labels["__name__"], sample.series.key, sample.series.nature
        labels.setdefault(place, set()).update(names)
    # A counter with the other tag may appear at any time. A label that a series lacks is empty, and harms no join.
    tags = set[str]().union(*(names for (_, key, _), names in labels.items() if key is not connections))
    if tags.isdisjoint(CLIENTS):
        tags |= {"client_id", "clientId"}
    if "redpanda_quota_user" not in tags:
        tags.add("user")
    order = list(QuotaKey)
    return tuple(
        Metric(name, key, nature.value, ("ip",) if key is connections else tuple(sorted(tags)))
        for name, key, nature in sorted(labels, key=lambda place: (order.index(place[1]), place[2].value, place[0]))
    )


def is_broken(samples: Iterable[Sample]) -> bool:
    """Whether the exporter's rules swallow labels: a resource that holds the user as well."""
    return any(", user=" in sample.labels.get("resource", "") for sample in samples)
