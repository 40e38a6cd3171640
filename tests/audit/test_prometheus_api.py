"""Asking a live Prometheus: what is asked, what is kept, and that credentials go nowhere else."""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from kquota.errors import InputError, Unauthorized, Unreachable
from kquota.live.sources import Prometheus
from kquota.metrics.prometheus import Credentials, Server, fetch, selector
from tests.audit.prometheus_server import RECORDED, FakePrometheus, fake_prometheus
from tests.support.listening import Listening

SERIES = json.loads(RECORDED.read_text())["data"]["result"]
TIMES = [time for time, _ in SERIES[0]["values"]]
START, END = int(TIMES[0]) - 1, int(TIMES[-1]) + 1
SECRET = "s3cr3t-token"


@pytest.fixture
def prometheus() -> Iterator[FakePrometheus]:
    """A running one."""
    with fake_prometheus() as running:
        yield running


def test_every_sample_by_default(prometheus: FakePrometheus, tmp_path: Path) -> None:
    """An hour at a time, none twice and none left out."""
    start = START - 5000

    files = fetch(Server(prometheus.url), selector(None), start, END, None, tmp_path)

    assert [endpoint for endpoint, _ in prometheus.asked] == ["query", "query"]
    assert [asked["time"] for _, asked in prometheus.asked] == [str(start + 3600), str(END)]
    answers = [json.loads(file.read_text())["data"]["result"] for file in files]
    assert sum(len(each["values"]) for answer in answers for each in answer) == sum(len(s["values"]) for s in SERIES)


def test_by_steps(prometheus: FakePrometheus, tmp_path: Path) -> None:
    """With the times of the steps."""
    (file,) = fetch(Server(prometheus.url), selector('job="kafka"'), START, START + 60, 15, tmp_path)

    ((endpoint, asked),) = prometheus.asked
    assert (endpoint, asked["step"]) == ("query_range", "15")
    assert asked["query"].endswith(',job="kafka"}')
    times = [time for time, _ in json.loads(file.read_text())["data"]["result"][0]["values"]]
    assert times == [START + 15 * n for n in range(1, 5)]


@pytest.mark.parametrize(
    ("environment", "authorization"),
    [
        ({"KQUOTA_PROMETHEUS_TOKEN": SECRET}, f"Bearer {SECRET}"),
        (
            {"KQUOTA_PROMETHEUS_USERNAME": "aladdin", "KQUOTA_PROMETHEUS_PASSWORD": "opensesame"},
            "Basic YWxhZGRpbjpvcGVuc2VzYW1l",
        ),
    ],
)
def test_credentials(
    prometheus: FakePrometheus, tmp_path: Path, environment: Mapping[str, str], authorization: str
) -> None:
    """From the environment; not shown."""
    prometheus.authorization = authorization
    credentials = Credentials.of(environment)

    assert fetch(Server(prometheus.url, credentials), selector(None), START, END, None, tmp_path)
    assert not any(value in repr(Server(prometheus.url, credentials)) for value in (SECRET, "opensesame"))
    with pytest.raises(Unauthorized, match="answers 401: who are you"):
        fetch(Server(prometheus.url), selector(None), START, END, None, tmp_path)


def test_redirects_are_not_followed(prometheus: FakePrometheus, tmp_path: Path) -> None:
    """Whoever they lead to would get the credentials."""
    with pytest.raises(Unreachable, match="answers 302"):
        fetch(Server(prometheus.url, Credentials(SECRET)), selector('x="elsewhere"'), START, END, None, tmp_path)

    assert len(prometheus.asked) == 1


class Hostile(Listening):
    """A server on the loopback address that answers as it is told, byte by byte or without an end."""

    def __init__(self, parts: Iterator[bytes], pause_s: float) -> None:
        super().__init__()
        self._parts = parts
        self._pause_s = pause_s
        self.url = f"http://{self.address}"

    def _serve(self, connected: socket.socket) -> None:
        with contextlib.suppress(OSError), connected:
            connected.recv(1 << 16)
            for part in self._parts:
                connected.sendall(part)
                time.sleep(self._pause_s)
            # To close before all of the question is read would take the answer back.
            connected.shutdown(socket.SHUT_WR)
            while connected.recv(1 << 16):
                pass


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"


@pytest.mark.parametrize(
    "parts",
    [
        itertools.chain([HEAD], itertools.repeat(b" ")),
        itertools.chain([b"HTTP/1.1 503 No\r\n\r\n"], itertools.repeat(b" ")),
    ],
)
def test_a_server_that_drips_is_left_in_time(parts: Iterator[bytes], tmp_path: Path) -> None:
    """A socket's own time-out begins anew at each byte."""
    started = time.monotonic()
    with Hostile(parts, 0.05) as hostile, pytest.raises(Unreachable):
        Server(hostile.url, timeout_s=1).ask("query", {}, tmp_path / "answer")
    assert time.monotonic() - started < 60


def test_an_answer_without_an_end_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Before it fills the disk, and never in memory."""
    monkeypatch.setattr("kquota.metrics.prometheus._LARGEST_ANSWER", 8 << 20)
    endless = itertools.chain([HEAD], itertools.repeat(b" " * (1 << 20)))

    with Hostile(endless, 0) as hostile, pytest.raises(InputError, match="answers with more than 8 MiB"):
        Server(hostile.url).ask("query", {}, tmp_path / "answer")
    assert (tmp_path / "answer").stat().st_size <= 8 << 20


DEEP = b'{"status": "success", "error": ' + b"[" * 50_000


@pytest.mark.parametrize(
    "answer",
    [
        DEEP,
        b'{"status": "success", "data": {"result": ' + b"1" * 5000 + b"}}",
        b'{"status": "success", "data": {"resultType":',
        b'{"status": "success", "data": {"result": 1}}',
    ],
    ids=["nested", "many digits", "cut", "no series"],
)
def test_a_live_answer_that_cannot_be_read(answer: bytes) -> None:
    with (
        Hostile(iter([HEAD + answer]), 0) as hostile,
        pytest.raises(Unreachable, match="does not answer as Prometheus"),
    ):
        Prometheus(Server(hostile.url)).look()


def test_a_live_series_with_a_time_beyond_all_times_is_left_out() -> None:
    """And counted; the others are read."""
    name = "kafka_server_quota_byte_rate"
    odd, good = ({"__name__": name, "resource": "Produce", "user": user} for user in ("odd", "good"))
    result = [{"metric": odd, "values": [[1e400, "1"]]}, {"metric": good, "values": [[1_700_000_000, "2"]]}]
    answer = json.dumps({"status": "success", "data": {"result": result}}).replace("Infinity", "1e400")
    with Hostile(iter([HEAD + answer.encode()]), 0) as hostile:
        look = Prometheus(Server(hostile.url)).look()
    assert [sample.labels["user"] for sample in look.samples] == ["good"]
    assert [missing.place for missing in look.unread] == [name]
