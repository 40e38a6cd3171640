"""Where episodes go besides the output of the command: JSON lines, Parquet, a Kafka topic, or Alertmanager.

`put` is called in every turn, also without episodes. A file, a folder and a topic have what they were given when
`confirm` returns, which comes before each checkpoint: a follower that is killed sends it again, and loses nothing.
Alertmanager is sent again what it did not take; `say` gets a line when that begins.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from kquota.audit.stream import TOPIC
from kquota.backends.http import TooLarge, post
from kquota.backends.kafka import librdkafka
from kquota.core.findings.episode import Episode, State
from kquota.core.quotas.quota import humanize
from kquota.documents.encoding import to_json_line
from kquota.documents.episode import episode_document
from kquota.documents.watch import utc
from kquota.errors import InputError, KquotaError, MissingDependency, Unreachable
from kquota.files import replacing

Say = Callable[[str], None]

_EVERY_S: Final = 60.0
"""How often an alert that goes on is sent to Alertmanager again, which forgets it after five minutes.

Parquet files are written as often.
"""
_MOST: Final = 1000
"""So many episodes are one Parquet file at most."""
_TIMEOUT_S: Final = 5.0
_DELIVERY_S: Final = 30.0
"""So long a record of an episode may wait for the acknowledgement of the brokers."""
_REPORTED: Final = 100
"""So many errors of connections are kept, the last ones: in an outage there are some each second."""


class Sink(Protocol):
    """Takes episodes as they come."""

    forgets: ClassVar[bool] = False
    """Whether the target forgets an episode that goes on, unless it is sent again."""

    def put(self, episodes: Sequence[Episode]) -> None:
        """Takes the episodes of a turn, or none."""

    def confirm(self) -> None:
        """Returns when a kill cannot lose any more of the episodes that were put. Raises what the target refuses."""

    def close(self) -> None:
        """Passes on what still waits."""


def open_sink(target: str, say: Say, kafka: Mapping[str, Any] | None = None, timeout_s: float = 10.0) -> Sink:
    """The sink that a text names: `topic:NAME`, an http address, a folder (it ends with /), else a file.

    `kafka` are the settings of a librdkafka client of the topic's cluster, which has `timeout_s` to answer.
    Raises InputError for a target that cannot be used; of a topic also Unreachable, Unauthorized, Rejected and
    MissingDependency.
    """
    if target.startswith(TOPIC):
        return Topic(target.removeprefix(TOPIC), kafka or {}, timeout_s)
    if target.startswith(("http://", "https://")):
        return Alertmanager(target, say)
    if target.endswith("/") or Path(target).is_dir():
        return Parquet(Path(target))
    return JsonLines(target)


@contextlib.contextmanager
def _written(place: str | Path) -> Iterator[None]:
    """Raises an error of the operating system inside as InputError."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{place}: {error.strerror or error}: cannot write episodes there") from None


@contextlib.contextmanager
def _after_all() -> Iterator[None]:
    """Raises a KquotaError inside, unless something is raised already: that is the error that counts."""
    raised = sys.exception()
    try:
        yield
    except KquotaError:
        if raised is None:
            raise


class JsonLines(Sink):
    """A file with a line of JSON for each state of an episode; lines are appended."""

    def __init__(self, path: str) -> None:
        self._path = path
        with _written(path):
            self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115 - `close` closes it

    def put(self, episodes: Sequence[Episode]) -> None:
        """Appends a line each; they are in the file when this returns. Raises InputError."""
        with _written(self._path):
            for episode in episodes:
                self._file.write(to_json_line(episode_document(episode)) + "\n")
            self._file.flush()

    def confirm(self) -> None:
        """Nothing waits: a line that was put is with the operating system."""

    def close(self) -> None:
        """Closes the file."""
        with _after_all(), _written(self._path):
            self._file.close()


_COLUMNS: Final = pa.schema(
    [
        *((name, pa.string()) for name in ("id", "state", "under", "broker", "key", "sensor", "subject", "entity")),
        ("limit", pa.float64()),
        *((name, pa.timestamp("ms", "UTC")) for name in ("begin", "end", "peak")),
        *((name, pa.float64()) for name in ("peak_rate", "enough")),
        ("enough_at_least", pa.bool_()),
        *((name, pa.int64()) for name in ("events", "throttled_events", "throttle_time_ms", "throttle_time_max_ms")),
        *((name, pa.int64()) for name in ("logged_throttled_events", "client_count")),
        ("clients", pa.list_(pa.struct([("user", pa.string()), ("client_id", pa.string()), ("value", pa.int64())]))),
    ]
)
"""The columns of the Parquet files; `clients` are the loudest first."""


class Parquet(Sink):
    """A folder of Parquet files, one a minute, for 1,000 episodes or before a checkpoint, each written whole."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._rows, self._written = folder, list[dict[str, Any]](), 0
        self._since = time.monotonic()
        with _written(folder):
            folder.mkdir(parents=True, exist_ok=True)

    def put(self, episodes: Sequence[Episode]) -> None:
        """Keeps the episodes for the next file."""
        self._rows += map(_row, episodes)
        if len(self._rows) >= _MOST or (self._rows and time.monotonic() - self._since >= _EVERY_S):
            self._write()

    def confirm(self) -> None:
        """Writes what is kept."""
        if self._rows:
            self._write()

    def close(self) -> None:
        """Writes what is kept."""
        with _after_all():
            self.confirm()

    def _write(self) -> None:
        name = f"episodes-{time.time_ns()}-{self._written:06d}.parquet"
        with _written(self._folder), replacing(self._folder / name) as aside:
            pq.write_table(pa.Table.from_pylist(self._rows, _COLUMNS), aside)
        self._rows, self._written, self._since = [], self._written + 1, time.monotonic()


def _row(episode: Episode) -> dict[str, Any]:
    return {
        **{name: getattr(episode, name) for name in ("broker", "sensor", "subject", "limit", "peak_rate", "enough")},
        **{"id": episode.name, "state": episode.state.value, "under": episode.under.value, "key": episode.key.value},
        **{"entity": str(episode.entity), "enough_at_least": episode.at_least},
        **{"begin": episode.begin_ms, "end": episode.end_ms, "peak": episode.peak_ms},
        **{name: getattr(episode, name) for name in ("events", "throttled_events", "throttle_time_ms")},
        **{name: getattr(episode, name) for name in ("throttle_time_max_ms", "logged_throttled_events")},
        "client_count": episode.client_count,
        "clients": [{"user": each.user, "client_id": each.client_id, "value": each.value} for each in episode.clients],
    }


class Topic(Sink):
    """A Kafka topic: a record for each state of an episode, the id of the episode as its key, and JSON as its value.

    The states of one episode are in one partition, in their order. All in-sync replicas acknowledge a record.
    """

    def __init__(self, name: str, settings: Mapping[str, Any], timeout_s: float = 10.0) -> None:
        try:
            from confluent_kafka import Producer, TopicCollection
            from confluent_kafka.admin import AdminClient
        except ImportError:
            raise MissingDependency("writing to a topic needs confluent-kafka", extra="audit,probe") from None
        if not name:
            raise InputError("--episodes topic: without a name", hint="topic:NAME")
        self._name, self._where = name, f"topic {name}"
        self._reported: deque[Any] = deque(maxlen=_REPORTED)
        self._failure: KquotaError | None = None
        quiet = librdkafka.quiet(dict(settings), self._reported)
        # A look at the topic that does not create it.
        with librdkafka.errors(self._where, self._reported):
            admin = AdminClient(quiet)
            (future,) = admin.describe_topics(TopicCollection([name]), request_timeout=timeout_s).values()
            while not future.done():
                admin.poll(0.1)
                # librdkafka tries a login that is refused again and again.
                if (refusal := librdkafka.refusal(self._reported)) is not None:
                    raise librdkafka.error_of(refusal, self._where)
            future.result()
        # By Java's partitioner: whatever else writes to the topic finds the same partition for a key.
        own = {"enable.idempotence": True, "delivery.timeout.ms": int(1000 * _DELIVERY_S)}
        self._producer = Producer({**quiet, **own, "partitioner": "murmur2_random"})

    def put(self, episodes: Sequence[Episode]) -> None:
        """Sends a record each, and waits for none. Raises what became of the records before."""
        for episode in episodes:
            key = episode.name.encode(errors="backslashreplace")
            self._send(key, to_json_line(episode_document(episode)).encode())
        self._producer.poll(0)
        self._check()

    def confirm(self) -> None:
        """Returns when all records are acknowledged. Raises Unreachable, Unauthorized, InputError or Rejected."""
        end = time.monotonic() + 2 * _DELIVERY_S
        # In parts: a signal is handled between two of them.
        while (left := self._producer.flush(0.5)) and self._failure is None:
            if time.monotonic() > end:
                self._failure = Unreachable(f"{self._where}: {left:,} records of episodes are not acknowledged")
        self._check()
        self._reported.clear()  # all is well, so what came before explains nothing later

    def close(self) -> None:
        """Waits for what still waits, unless something failed before or a second signal says not to wait."""
        raised = sys.exception()
        if self._failure is not None or (raised is not None and not isinstance(raised, Exception)):
            return
        with _after_all():
            self.confirm()

    def _send(self, key: bytes, value: bytes) -> None:
        while True:
            try:
                with librdkafka.errors(self._where, self._reported):
                    self._producer.produce(self._name, value, key, on_delivery=self._on_delivery)
                return
            except BufferError:
                self._producer.poll(0.5)
                self._check()

    def _on_delivery(self, error: Any, _record: object) -> None:
        if error is not None and self._failure is None:
            self._failure = librdkafka.error_of(error, self._where, self._reported)

    def _check(self) -> None:
        if self._failure is not None:
            self._failure.hint = "episodes are missing there; with --checkpoint, the same command writes them again"
            raise self._failure


class Alertmanager(Sink):
    """An Alertmanager, by its API v2: an alert for each episode, which is resolved when the episode ends."""

    forgets = True

    def __init__(self, url: str, say: Say) -> None:
        if urlsplit(url).hostname is None:
            raise InputError(f"{url}: not the address of an Alertmanager", hint="http://HOST:9093")
        self._url, self._say = f"{url.rstrip('/')}/api/v2/alerts", say
        self._alerts: dict[str, dict[str, Any]] = {}
        self._sent_at: float | None = None
        self._changed = self._failed = False

    def put(self, episodes: Sequence[Episode]) -> None:
        """Sends what changed, and once a minute the alerts that go on."""
        for episode in episodes:
            self._alerts[episode.name] = _alert(episode)
            self._changed = True
        now = time.monotonic()
        wait_s = _EVERY_S
        if self._changed:
            wait_s = _TIMEOUT_S if self._failed else 0.0
        if self._alerts and (self._sent_at is None or now - self._sent_at >= wait_s):
            self._send(now)

    def confirm(self) -> None:
        """Nothing to wait for: alerts are sent again until Alertmanager takes them, and end by themselves."""

    def close(self) -> None:
        """Sends what still waits. Alerts of episodes that go on end by themselves, after Alertmanager's own time."""
        if self._changed:
            self._send(time.monotonic())
            if self._failed:
                self._say(f"{len(self._alerts)} alerts were not sent")

    def _send(self, now: float) -> None:
        self._sent_at = now
        try:
            body = json.dumps(list(self._alerts.values())).encode()
            post(
                self._url, body, {"Content-Type": "application/json"}, io.BytesIO(), timeout_s=_TIMEOUT_S, most=1 << 20
            )
        except (OSError, http.client.HTTPException, ValueError, TooLarge) as error:
            if not self._failed:
                self._say(f"{self._url}: {error}: alerts wait there until it answers")
            self._failed = True
            return
        self._changed = self._failed = False
        self._alerts = {name: alert for name, alert in self._alerts.items() if "endsAt" not in alert}


def _alert(episode: Episode) -> dict[str, Any]:
    key = episode.key

    def amount(value: float) -> str:
        return humanize(key, int(value) if key.value_type.integral else value)

    least = "at least " if episode.at_least else ""
    loudest = ", ".join(each.client_id or each.user for each in episode.clients)
    summary = f"{episode.subject} is throttled by {key.value} {amount(episode.limit)} of {episode.entity}"
    alert: dict[str, Any] = {
        "labels": {
            **{"alertname": "KafkaQuotaThrottled", "broker": episode.broker, "quota": key.value},
            **{"counter": episode.sensor, "entity": str(episode.entity), "under": episode.under.value},
        },
        "annotations": {
            **{"summary": summary, "peak": amount(episode.peak_rate), "loudest": loudest},
            "enough": f"{least}{amount(episode.enough)}",
        },
        "startsAt": utc(episode.begin_ms),
    }
    return alert | ({"endsAt": utc(episode.end_ms)} if episode.state is State.ENDED else {})
