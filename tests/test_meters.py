"""How much a request log has grown: by the file, across rotations, and by the counters of metrics pages."""

import socket
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from kquota.core.change.recording import Reading
from kquota.errors import InputError, Unreachable
from kquota.metrics.meters import LogMeter, PageMeter, requests_of
from tests.support.data import data_text
from tests.support.listening import serving

RULES = data_text("metrics/request_rules.prom")


@pytest.mark.parametrize(
    ("page", "total"),
    [
        (RULES, 150.0),
        ('kafka_network_RequestMetrics_RequestsPerSec_Count{request="Metadata"} 7 1700000000000', 7.0),
        (
            'kafka_network_RequestMetrics_Count{name="RequestsPerSec",request="Produce",version="9"} 4\n'
            'kafka_network_RequestMetrics_Count{name="ErrorsPerSec",request="Produce"} 9',
            4.0,
        ),
        ("kafka_network_requestmetrics_requests_total NaN", 0.0),
        ("up 1\n", None),
        ("", None),
    ],
)
def test_requests_are_counted_once(page: str, total: float | None) -> None:
    assert requests_of(page) == total


def test_a_counter_that_falls_was_reset() -> None:
    values = iter([100, 130, 10, 25])
    meter = PageMeter("http://b", fetch=lambda url: f"kafka_network_requestmetrics_requests_total {next(values)}")
    meter.start()
    assert [meter.read().requests for _ in range(3)] == [30, 40, 55]


def test_a_page_is_read_over_http() -> None:
    class Rules(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(RULES.encode())

    with serving(Rules) as url:
        meter = PageMeter(url)
        meter.start()
        assert meter.read() == Reading(0, 0, exact=False)
    with pytest.raises(Unreachable, match="cannot read"):
        meter.read()


def test_a_server_that_is_silent_once_it_is_connected() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/metrics"
        with pytest.raises(Unreachable, match="metrics: timed out"):
            PageMeter(url, timeout_s=0.1).start()


def test_pages_that_are_none() -> None:
    with pytest.raises(InputError, match="no metrics page"):
        PageMeter("b1:7071")
    with pytest.raises(InputError, match="no count of requests"):
        PageMeter("http://b", fetch=lambda url: "up 1").start()


def test_a_log_is_counted_from_its_start_on_and_across_rotations(tmp_path: Path) -> None:
    log = tmp_path / "kafka-request.log"
    log.write_bytes(b"before\n")
    meter = LogMeter(log)
    meter.start()
    assert meter.read() == Reading(0, 0, exact=True)
    with log.open("ab") as stream:
        stream.write(b"one\ntwo\n")
    assert meter.read() == Reading(2, 8, exact=True)
    with log.open("ab") as stream:
        stream.write(b"three\n")
    log.rename(tmp_path / "kafka-request.log.1")
    log.write_bytes(b"four\n")
    assert meter.read() == Reading(4, 19, exact=True)
    log.write_bytes(b"5\n")  # truncated in place
    assert meter.read() == Reading(5, 21, exact=True)
    meter.start()
    assert meter.read() == Reading(0, 0, exact=True)
