"""Where episodes go besides the output of the command: a file of JSON lines, or Alertmanager.

`put` is called in every turn, also without episodes. A file has what it was given when `put` returns. So a follower
that is killed writes again what came after its checkpoint, and loses nothing. Alertmanager is sent again what it did
not take; `say` gets a line when that begins.
"""

import contextlib
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol
from urllib.parse import urlsplit

from kquota.backends.http import NoAnswer, fetch
from kquota.core.findings.finding import Episode, State
from kquota.core.findings.recommendation import rounded_up
from kquota.core.quotas.quota import humanize
from kquota.documents.audit import episode_document
from kquota.documents.derive import utc
from kquota.documents.encoding import to_json_line
from kquota.errors import InputError

Say = Callable[[str], None]

_EVERY_S: Final = 60.0
"""How often an alert that goes on is sent to Alertmanager again, which forgets it after five minutes."""
_QUIET_S: Final = 120.0
"""After so long without a line of the log nobody knows whether an alert goes on."""
_TIMEOUT_S: Final = 5.0


class Sink(Protocol):
    """Takes episodes as they come."""

    forgets: ClassVar[bool] = False
    """Whether the target forgets an episode that goes on, unless it is sent again."""

    def put(self, episodes: Sequence[Episode], idle_s: float = 0.0) -> None:
        """Takes the episodes of a turn, or none; no line of the log came for so long."""

    def close(self) -> None:
        """Passes on what still waits."""


def open_sink(target: str, say: Say) -> Sink:
    """The sink that a text names: an http address, else a file. Raises InputError for one that cannot be used."""
    if target.startswith(("http://", "https://")):
        return Alertmanager(target, say)
    if re.fullmatch(r"[\w.-]+:\d+(?:/.*)?|topic:.*|.*/", target) or Path(target).is_dir():
        raise InputError(
            f"--episodes {target}: episodes go to a file of JSON lines or to an Alertmanager",
            hint="an Alertmanager is http://HOST:9093; 'tail -F FILE' passes the lines of a file on, such as to a"
            " producer of Kafka",
        )
    return JsonLines(target)


@contextlib.contextmanager
def _written(place: str) -> Iterator[None]:
    """Raises an error of the operating system inside as InputError."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{place}: {error.strerror or error}: cannot write episodes there") from None


class JsonLines(Sink):
    """A file with a line of JSON for each state of an episode; lines are appended."""

    def __init__(self, path: str) -> None:
        self._path = path
        with _written(path):
            self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115 - `close` closes it

    def put(self, episodes: Sequence[Episode], idle_s: float = 0.0) -> None:
        """Appends a line each; they are in the file when this returns. Raises InputError."""
        with _written(self._path):
            for episode in episodes:
                self._file.write(to_json_line(episode_document(episode)) + "\n")
            self._file.flush()

    def close(self) -> None:
        """Closes the file: lines that it could not take are an error unless another one ends the command already."""
        raised = sys.exception()
        try:
            with _written(self._path):
                self._file.close()
        except InputError:
            if raised is None:
                raise


class Alertmanager(Sink):
    """An Alertmanager, by its API v2: an alert for each episode, which is resolved when the episode ends."""

    forgets = True

    def __init__(self, url: str, say: Say) -> None:
        if urlsplit(url).hostname is None:
            raise InputError(f"{url}: not the address of an Alertmanager", hint="http://HOST:9093")
        self._url, self._say = f"{url.rstrip('/')}/api/v2/alerts", say
        self._alerts: dict[str, dict[str, Any]] = {}
        self._sent_at: float | None = None
        self._changed = self._failed = self._quiet = False

    def put(self, episodes: Sequence[Episode], idle_s: float = 0.0) -> None:
        """Sends what changed, and once a minute the alerts that go on; none without lines."""
        for episode in episodes:
            if self._quiet and episode.state is State.OPEN:
                continue  # nothing new: it is said again as the command ends
            self._alerts[episode.name] = _alert(episode)
            self._changed = True
        was_quiet, self._quiet = self._quiet, idle_s >= _QUIET_S and not self._changed
        if self._quiet:
            if self._alerts and not was_quiet:
                self._say(f"no lines for {_QUIET_S:.0f} s: alerts that go on are not sent again, and end by themselves")
            return
        now = time.monotonic()
        wait_s = _EVERY_S
        if self._changed:
            wait_s = _TIMEOUT_S if self._failed else 0.0
        if self._alerts and (self._sent_at is None or now - self._sent_at >= wait_s):
            self._send(now)

    def close(self) -> None:
        """Sends what still waits. Alerts of episodes that go on end by themselves, after Alertmanager's own time."""
        if self._changed:
            self._send(time.monotonic())
            if self._failed:
                self._say(f"alerts that were not sent: {len(self._alerts)}")

    def _send(self, now: float) -> None:
        self._sent_at = now
        try:
            body = json.dumps(list(self._alerts.values())).encode()
            headers = {"Content-Type": "application/json"}
            fetch(self._url, headers, body=body, timeout_s=_TIMEOUT_S, most=1 << 20)
        except (NoAnswer, ValueError) as error:
            if not self._failed:
                self._say(f"{self._url}: {error}: alerts wait there until it answers")
            self._failed = True
            return
        self._changed = self._failed = False
        self._alerts = {name: alert for name, alert in self._alerts.items() if "endsAt" not in alert}


def _alert(episode: Episode) -> dict[str, Any]:
    key = episode.key

    def amount(value: float) -> str:
        """A rate by three digits, not less: for a person, who may set it."""
        return humanize(key, rounded_up(key, value, 3))

    least = "at least " if episode.at_least else ""
    loudest = ", ".join(client.client_id or client.user for client in episode.clients)
    summary = f"{episode.subject} is throttled by {key.value} {humanize(key, episode.limit)} of {episode.entity}"
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
