"""`kquota top` as people and scripts run it, on recorded pages of metrics."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kquota.documents.encoding import parse, read_document
from kquota.documents.quotas import read_quotas
from kquota.live.explain import last_run
from tests.audit.prometheus_server import RECORDED, fake_prometheus
from tests.cli.conftest import Kquota

SAMPLES = Path(__file__).parents[1] / "data" / "samples"
PAGE = str(SAMPLES / "scrape-resource.prom")
QUOTAS = str(SAMPLES / "quotas.json")
LIVE = ("--metrics", f"b1={PAGE}", "--quotas", QUOTAS)


def test_the_throttled_come_first(kquota: Kquota) -> None:
    done = kquota("top", *LIVE, "--once")
    heading, *rows = done.out.splitlines()

    assert done.code == 0
    assert heading.split()[:3] == ["STATE", "COUNTER", "KEY"]
    assert [row.split()[:2] for row in rows] == [
        ["THROTTLED", "client-id=sensor-gw"],
        ["THROTTLED", "user=alice"],
        ["THROTTLED", "user=frank"],
        ["THROTTLED", "user=carol"],
    ]
    assert rows[0].split()[3:][:1] == ["client-id=<default>"]
    assert "4 throttled, 3 within, 10 unlimited" in done.err
    assert "1 page of metrics, samples " in done.err


def test_filters_and_sorting(kquota: Kquota) -> None:
    everything = kquota("top", *LIVE, "--once", "--all", "--key", "producer_byte_rate", "--sort-by", "counter")
    nobody = kquota("top", *LIVE, "--once", "--user", "bob")

    counters = [row.split()[1] for row in everything.out.splitlines()[1:]]
    assert len(counters) == 5
    assert counters == sorted(counters)
    assert nobody.out == ""
    assert "nobody is throttled or near it: a slow client has another reason" in nobody.err


def test_documents(kquota: Kquota, tmp_path: Path) -> None:
    done = kquota("top", *LIVE, "--count", "2", "--interval", "1s", "-o", "json", "--all")
    documents = [json.loads(line) for line in done.out.splitlines()]

    assert done.code == 0
    assert len(documents) == 2
    for line in done.out.splitlines():
        (tmp_path / "top.json").write_text(line)

        assert read_document(tmp_path / "top.json", "top")["kind"] == "kquota.top"
    alice = next(each for each in documents[0]["counters"] if each["tags"] == {"user": "alice"} and each["limit"])
    assert (alice["limit"], alice["level"], alice["state"], alice["broker"]) == (60_000, 3, "throttled", "b1")


def test_explain(kquota: Kquota) -> None:
    done = kquota("top", *LIVE, "--explain", "client-id=sensor-gw")

    assert done.code == 0
    assert "  rule: client-id=<default>, level 8, default client-id\n" in done.out
    assert "pages of metrics have no past" in done.out
    assert "gets a quota of its own, as its limit is inherited" in done.out
    assert kquota("top", *LIVE, "--explain", "user=nobody").complaint.startswith(
        "kquota: no live counter is user=nobody ("
    )


def test_the_command_that_lifts_a_limit_is_one_that_works(kquota: Kquota, tmp_path: Path) -> None:
    """A quotas file of its own: what `echo` prints is read by apply."""
    done = kquota("top", *LIVE, "--explain", "user=alice")
    (line,) = (line for line in done.out.splitlines() if "for two hours" in line)
    script = line.partition("for two hours: ")[2].partition(" | kquota apply")[0]
    printed = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout
    file = tmp_path / "lift.yaml"
    file.write_text(printed)

    assert [(str(entity), dict(values)) for entity, values in read_quotas(file).items()] == [
        ("user=alice", dict.fromkeys(next(iter(read_quotas(file).values())), 120_000))
    ]
    assert parse(file, printed)["kind"] == "kquota.quotas"


def test_from_prometheus_with_its_age_and_since_when(kquota: Kquota) -> None:
    last = json.loads(RECORDED.read_text())["data"]["result"][0]["values"][-1][0]
    with fake_prometheus(lambda: time.time() - 20 - last) as server:
        live = ("--prometheus", server.url, "--quotas", QUOTAS)
        shown = kquota("top", *live, "--once", "-o", "json")
        explained = kquota("top", *live, "--explain", "user=alice", "--key", "producer_byte_rate")
    document = json.loads(shown.out)

    assert 15 < min(each["age_s"] for each in document["counters"]) < 120
    assert any(each["trend"] is not None for each in document["counters"])
    assert explained.code == 0, explained.err
    assert "since: " in explained.out
    assert "UTC at least" in explained.out


def test_from_a_followed_log(kquota: Kquota, tmp_path: Path) -> None:
    """Exact, and so with the clients, since when, and what would have been enough."""
    rows = [
        {"time_ms": 1_793_523_600_000 + at, "user": user, "client_id": client, "api": "produce", "bytes": size}
        for at in range(0, 30_000, 500)
        for user, client, size in (("alice", "loud", 60_000), ("alice", "quiet", 1000), ("bob", "free", 9))
    ]
    (tmp_path / "usage.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    live = ("--log", "7=usage.jsonl", "--quotas", QUOTAS)
    shown = kquota("top", *live, "--once", "-o", "json")
    explained = kquota("top", *live, "--explain", "user=alice", "--key", "producer_byte_rate")
    (tmp_path / "top.json").write_text(shown.out)
    document = read_document(tmp_path / "top.json", "top")
    (alice,) = (each for each in document["counters"] if each["key"] == "producer_byte_rate")

    assert (shown.code, explained.code) == (0, 0), explained.err
    assert document["source"] == "log usage.jsonl"
    assert (alice["broker"], alice["state"], alice["limit"]) == ("7", "throttled", 60_000)
    assert alice["clients"] == ["alice:loud", "alice:quiet"]
    assert alice["age_s"] > 0
    assert "    alice:loud: producer_byte_rate " in explained.out
    assert "  since: 2026-11-01 " in explained.out
    assert "  enough: 1" in explained.out


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (("--log", "gone.log", "--quotas", QUOTAS), 3, "gone.log: no such file or folder"),
        (("--log", PAGE, "--log-timezone", "Mars/Olympus", "--quotas", QUOTAS), 3, "unknown time zone"),
    ],
)
def test_a_log_that_cannot_be_followed(kquota: Kquota, arguments: tuple[str, ...], code: int, complaint: str) -> None:
    done = kquota("top", *arguments, "--once")

    assert done.code == code
    assert complaint in done.complaint


def test_one_source_at_a_time(kquota: Kquota) -> None:
    done = kquota("top", *LIVE, "--log", PAGE, "--once")

    assert done.code == 2
    assert "one source" in done.err


def test_hostile_names(kquota: Kquota, tmp_path: Path) -> None:
    """A name on a page drives no terminal, and the command that lifts its limit still means it."""
    (tmp_path / "page.prom").write_text(
        'kafka_server_quota_byte_rate{resource="Produce",clientId="a\x1b[31m\u202eb"} 50000\n', encoding="utf-8"
    )
    live = ("--metrics", "page.prom", "--quotas", QUOTAS)
    shown = kquota("top", *live, "--once", "--all")
    explained = kquota("top", *live, "--explain", "client-id=a\x1b[31m\u202eb")

    for text in (shown.out, shown.err, explained.out):
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert "NEAR" not in explained.out
    assert r"a\u001b[31m\u202eb" in explained.out


def test_it_ends_with_its_reader(tmp_path: Path) -> None:
    line = f"{sys.executable} -m kquota top --metrics {PAGE} --quotas {QUOTAS} --interval 1s | head -n 1"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        ["bash", "-c", line], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout.startswith("STATE")


@pytest.mark.parametrize(
    ("readings", "begin"),
    [
        ([], None),
        ([(1, 0.0), (2, 5.0), (3, 5.0)], 2),
        ([(1, 5.0), (2, 0.0)], None),
        ([(1, 5.0), (2, 0.0), (3, 1.0)], 3),
    ],
)
def test_the_last_run_of_a_throttle(readings: list[tuple[int, float]], begin: int | None) -> None:
    assert last_run(readings) == begin


def test_a_missing_page(kquota: Kquota) -> None:
    done = kquota("top", *LIVE, "--metrics", "gone.prom", "--once")

    assert done.code == 9
    assert "gone.prom is left out" in done.err


def test_a_screen(tmp_path: Path) -> None:
    """On a terminal it is drawn on the second screen, anew at each look; afterwards the first screen is back."""
    outer, inner = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-m", "kquota", "top", *LIVE, "--count", "2", "--interval", "1s"]
    with subprocess.Popen(command, stdout=inner, stderr=subprocess.PIPE, cwd=tmp_path, env=environment) as process:
        os.close(inner)
        heard = b""
        with contextlib.suppress(OSError):  # the end of a terminal
            while part := os.read(outer, 65536):
                heard += part
        process.communicate(timeout=60)
    os.close(outer)
    text = heard.decode()

    assert process.returncode == 0
    assert text.count("client-id=sensor-gw") == 2
    assert text.index("\x1b[?1049h") < text.index("client-id=sensor-gw")
    assert text.rindex("client-id=sensor-gw") < text.rindex("\x1b[?1049l")
