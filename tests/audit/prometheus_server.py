"""A Prometheus as far as the audit asks one: the recorded samples, over HTTP, on the loopback address."""

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from kquota.metrics.series import LIVE_SELECTOR, SELECTOR
from tests.support.listening import serving

RECORDED = Path(__file__).parents[1] / "data" / "samples" / "prometheus-raw.json"
LOOKBACK_S = 300


@dataclass
class FakePrometheus:
    """What it serves, and what it was asked."""

    url: str
    authorization: str | None = None
    """What a request must bring along."""
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)


def _result(endpoint: str, asked: dict[str, str], shift: float) -> list[dict[str, Any]]:
    """The recorded series, as if recorded `shift` seconds later."""
    series = json.loads(RECORDED.read_text())["data"]["result"]
    found = []
    for each in series:
        values = [(moment + shift, value) for moment, value in each["values"]]
        if endpoint == "query":
            length = re.search(r"\[(\d+)s\]$", asked["query"])
            assert length is not None, "only a range selector is answered"
            end = float(asked.get("time", time.time()))
            values = [pair for pair in values if end - int(length[1]) < pair[0] <= end]
        else:
            start, end, step = (float(asked[name]) for name in ("start", "end", "step"))
            steps = [start + number * step for number in range(int((end - start) // step) + 1)]
            latest = [(now, [pair for pair in values if now - LOOKBACK_S < pair[0] <= now]) for now in steps]
            values = [(now, pairs[-1][1]) for now, pairs in latest if pairs]
        if values:
            found.append({"metric": each["metric"], "values": values})
    return found


@contextmanager
def fake_prometheus(shift: Callable[[], float] = lambda: 0.0) -> Iterator[FakePrometheus]:
    """A running server; `shift` gives at each question by how many seconds the recording is moved."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            asked = {name: values[0] for name, values in parse_qs(body).items()}
            endpoint = self.path.rpartition("/")[2]
            fake.asked.append((endpoint, asked))
            if fake.authorization is not None and self.headers["Authorization"] != fake.authorization:
                self._answer(401, {"status": "error", "error": "who are you"})
            elif not asked["query"].startswith((SELECTOR[:-1], LIVE_SELECTOR[:-1], "kafka_server_quota_")):
                self._answer(400, {"status": "error", "errorType": "bad_data", "error": "parse error"})
            elif "elsewhere" in asked["query"]:
                self.send_response(302)
                self.send_header("Location", f"{fake.url}/stolen")
                self.end_headers()
            else:
                data = {"resultType": "matrix", "result": _result(endpoint, asked, shift())}
                self._answer(200, {"status": "success", "data": data})

        def _answer(self, code: int, document: dict[str, Any]) -> None:
            body = json.dumps(document).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with serving(Handler) as url:
        fake = FakePrometheus(url)
        yield fake
