"""Where episodes go: JSON lines, and a small Alertmanager."""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from kquota import Entity, InputError, QuotaKey, Unreachable
from kquota.audit.follow import sinks
from kquota.cli.commands.follow import line
from kquota.core.findings.finding import Client, Episode, State, Under
from kquota.core.resolve.resolver import Level
from kquota.documents.audit import episode_document
from tests.cli.conftest import Kquota, quotas
from tests.support.listening import serving


def episode(state: State) -> Episode:
    clients = (Client("alice", "app", 30, 5_000_000),)
    return Episode(
        state, Under.TESTED, "1", QuotaKey.PRODUCER_BYTE_RATE, "alice:", Entity(user="alice"), Level.USER, 1e6,
        1_700_000_000_000, 1_700_000_060_000, 1_234_567.5, 1_700_000_030_000, 30, 20, 9000,
        700, 3, True, True, 1, clients,
    )  # fmt: skip


def test_a_line_says_where_the_log_itself_has_no_delay() -> None:
    """The quotas of now were not those of then."""
    ended = episode(State.ENDED)
    assert line(ended).endswith("enough: at least 1.23 MB/s")
    said = "enough: at least 1.23 MB/s  the log itself: no delay"
    assert line(replace(ended, logged_throttled_events=0)).endswith(said)


class Alertmanager:
    """A server that keeps what it gets, and answers with `status`."""

    status = 200

    def __init__(self) -> None:
        self.got: list[tuple[str, Any]] = []
        self.url = ""


@pytest.fixture
def alertmanager() -> Iterator[Alertmanager]:
    manager = Alertmanager()

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            manager.got.append((self.path, json.loads(body)))
            self.send_response(manager.status)
            self.end_headers()

    with serving(Answers) as manager.url:
        yield manager


def test_an_alert_begins_goes_on_and_is_resolved(alertmanager: Alertmanager, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    sink = sinks.open_sink(f"{alertmanager.url}/", pytest.fail)
    sink.put([episode(State.BEGAN)])
    sink.put([])
    assert len(alertmanager.got) == 1
    now[0] = 61.0
    sink.put([])
    assert len(alertmanager.got) == 2
    sink.put([episode(State.ENDED)])
    now[0] = 200.0
    sink.put([])
    sink.close()
    assert len(alertmanager.got) == 3
    (path, (began,)), _, (_, (ended,)) = alertmanager.got
    assert path == "/api/v2/alerts"
    assert began["labels"] == ended["labels"]
    assert began["labels"]["alertname"] == "KafkaQuotaThrottled"
    assert (began["labels"]["broker"], began["labels"]["counter"]) == ("1", "alice:")
    assert began["startsAt"] == ended["startsAt"] == "2023-11-14T22:13:20.000Z"
    assert "endsAt" not in began
    assert ended["endsAt"] == "2023-11-14T22:14:20.000Z"
    assert ended["annotations"]["loudest"] == "app"
    assert ended["annotations"]["enough"].startswith("at least 1")
    assert ended["annotations"]["peak"] == "1.24 MB/s"


def test_an_alert_of_a_silent_log_is_left_to_end(alertmanager: Alertmanager, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would be sent for ever after a recording that is over."""
    now, said = [0.0], list[str]()
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    sink = sinks.open_sink(alertmanager.url, said.append)
    sink.put([episode(State.BEGAN)], 500.0)
    for now[0], idle_s in ((100.0, 100.0), (200.0, 200.0), (300.0, 300.0)):
        sink.put([], idle_s)
    sink.put([episode(State.OPEN)], 300.0)
    assert (len(alertmanager.got), len(said)) == (2, 1)
    now[0] = 400.0
    sink.put([])
    assert len(alertmanager.got) == 3, "lines come again, and the episode goes on"


def test_alerts_wait_while_nobody_takes_them(alertmanager: Alertmanager, monkeypatch: pytest.MonkeyPatch) -> None:
    now, said = [0.0], list[str]()
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    alertmanager.status = 503
    sink = sinks.open_sink(alertmanager.url, said.append)
    sink.put([episode(State.BEGAN)])
    sink.put([])
    now[0] = 6.0
    sink.put([])
    assert (len(alertmanager.got), len(said)) == (2, 1)
    sink.close()
    assert said[-1] == "alerts that were not sent: 1"
    alertmanager.status = 200
    now[0] = 12.0
    sink.put([episode(State.ENDED)])
    sink.close()
    assert (len(alertmanager.got), len(said)) == (4, 2)
    assert "endsAt" in alertmanager.got[-1][1][0]


def test_alerts_go_on_after_a_restart(alertmanager: Alertmanager, kquota: Kquota, tmp_path: Path) -> None:
    """Alertmanager would resolve the alert of an episode that began before the checkpoint, though it goes on."""
    row = {"broker": "1", "user": "alice", "client_id": "c", "api": "produce", "bytes": 9000}
    rows = (json.dumps(row | {"time_ms": 1_793_523_600_000 + at}) + "\n" for at in range(0, 20_000, 500))
    (tmp_path / "usage.jsonl").write_text("".join(rows))
    (tmp_path / "quotas.json").write_text(quotas(alice=10_000))
    words = ["follow", "usage.jsonl", "--quotas", "quotas.json", "--checkpoint", "kept"]
    words += ["--until-idle", "1s", "--episodes", alertmanager.url]
    assert kquota(*words).code == 0
    before = len(alertmanager.got)
    again = kquota(*words)

    assert "going on from the checkpoint" in again.err
    # At the beginning, and at the end as all that goes on.
    assert len(alertmanager.got) >= before + 2
    (_, (alert,)) = alertmanager.got[before]
    assert alert["labels"]["counter"] == "alice:"
    assert "endsAt" not in alert


def test_json_lines_are_appended(tmp_path: Path) -> None:
    for state in (State.BEGAN, State.ENDED):
        sink = sinks.open_sink(str(tmp_path / "episodes.jsonl"), pytest.fail)
        sink.put([episode(state)])
        sink.close()
    lines = (tmp_path / "episodes.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [episode_document(episode(s)) for s in (State.BEGAN, State.ENDED)]


@pytest.mark.parametrize("target", ["127.0.0.1:9093", "alertmanager:9093/api", "topic:x", "folder/"])
def test_an_address_without_http_is_no_file(target: str) -> None:
    with pytest.raises(InputError) as refused:
        sinks.open_sink(target, pytest.fail)
    assert "http://HOST:9093" in str(refused.value.hint)


def test_a_disk_that_is_full() -> None:
    """Said as for any other target, also when the file is closed with what could not be written."""
    sink = sinks.open_sink("/dev/full", pytest.fail)
    with pytest.raises(InputError, match="/dev/full: No space left on device: cannot write episodes there"):
        sink.put([episode(State.BEGAN)])
    with pytest.raises(InputError, match="No space left"):
        sink.close()


def test_what_is_raised_before_a_sink_closes() -> None:
    """A target that cannot take what is left when it is closed does not hide the error that ended the command."""

    def follow(*, fails: bool) -> None:
        with contextlib.ExitStack() as stack:
            sink = sinks.open_sink("/dev/full", pytest.fail)
            stack.callback(sink.close)
            with contextlib.suppress(InputError):
                sink.put([episode(State.BEGAN)])
            if fails:
                raise Unreachable("the brokers are gone")

    with pytest.raises(Unreachable, match="the brokers are gone"):
        follow(fails=True)
    with pytest.raises(InputError, match="cannot write episodes there"):
        follow(fails=False)
