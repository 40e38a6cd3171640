"""`kquota top` as people and scripts run it, on recorded pages of metrics."""

import json
import shlex
import sys
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from kquota.cli.commands.top import _COLUMNS
from kquota.documents.encoding import read_document
from kquota.live.explain import last_run
from tests.audit.prometheus_server import RECORDED, fake_prometheus
from tests.cli.conftest import Kquota
from tests.cli.terminal import on_terminal
from tests.support.data import data_text
from tests.support.listening import serving
from tests.support.processes import ran

SAMPLES = Path(__file__).parents[1] / "data" / "samples"
PAGE = str(SAMPLES / "scrape-resource.prom")
QUOTAS = str(SAMPLES / "quotas.json")
LIVE = ("--metrics", f"b1={PAGE}", "--quotas", QUOTAS)


def test_a_page_is_an_address_of_metrics(kquota: Kquota) -> None:
    """Not one without a scheme, nor the page for people beside it."""

    class Front(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html><h1>Exporter</h1></html>")

    with serving(Front) as url:
        refused = kquota("top", "--metrics", url, "--quotas", QUOTAS, "--once").err
    assert "a page for people, and none of metrics: their path is often /metrics" in refused
    refused = kquota("top", "--metrics", "127.0.0.1:7071", "--quotas", QUOTAS, "--once").err
    assert "a URL such as http://broker-1:7071/metrics" in refused


def test_the_throttled_come_first(kquota: Kquota) -> None:
    done = kquota("top", *LIVE, "--once")
    heading, *rows = done.out.splitlines()

    assert done.code == 0
    assert heading.split()[:3] == ["STATE", "COUNTER", "KEY"]
    assert [row.split()[:2] for row in rows] == [
        ["THROTTLED", "user=carol"],
        ["THROTTLED", "user=frank"],
        ["THROTTLED", "client-id=sensor-gw"],
        ["THROTTLED", "user=alice"],
    ]
    assert rows[2].split()[3:][:1] == ["client-id=<default>"]
    assert "now" in rows[0].split()  # UNTIL
    assert "4 throttled, 3 within the limit, 10 unlimited" in done.err
    assert "1 page of metrics, samples " in done.err


def test_filters_and_sorting(kquota: Kquota, tmp_path: Path) -> None:
    everything = kquota("top", *LIVE, "--once", "--all", "--key", "producer_byte_rate", "--sort-by", "counter")
    (tmp_path / "now.prom").write_text(Path(PAGE).read_text())
    nobody = kquota("top", "--metrics", "b1=now.prom", "--quotas", QUOTAS, "--once", "--user", "bob")

    counters = [row.split()[1] for row in everything.out.splitlines()[1:]]
    assert len(counters) == 5
    assert counters == sorted(counters)
    assert nobody.out == ""
    assert "none of these is throttled or near it on the one broker that was read: a slow client has an" in nobody.err


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


def test_a_narrow_screen_has_until_rather_than_the_age() -> None:
    """The age is above the table as well."""
    names = [column.heading for column in _COLUMNS]
    assert _COLUMNS[names.index("UNTIL")].spare < _COLUMNS[names.index("AGE")].spare
    assert _COLUMNS[names.index("SHARE")].spare, "a name of a client is not cut off for it"


def test_explain(kquota: Kquota, tmp_path: Path) -> None:
    done = kquota("top", *LIVE, "--explain", "client-id=sensor-gw")

    assert done.code == 0
    assert "  rule: client-id=<default>, level 8, default client-id\n" in done.out
    assert "since: unknown (a metrics page has no history; use --prometheus)" in done.out
    assert "gets a quota of its own, as its limit is inherited" in done.out
    possible = kquota("top", *LIVE, "--explain", "erin").out
    assert "  client-id=sensor-gw (producer_byte_rate, THROTTLED)\n  next: --explain with one of them" in possible
    nobody = kquota("top", *LIVE, "--explain", "ip=10.0.0.1")
    assert nobody.complaint.startswith("kquota: no counter that was read holds ip=10.0.0.1 (")
    nowhere = ("--explain", "client-id=nowhere", "--key")
    of_user = kquota("top", *LIVE, *nowhere, "connection_creation_rate").complaint
    assert "the user's counter is charged: 'kquota resolve --all --client nowhere' shows where" in of_user
    (tmp_path / "page.prom").write_text('kafka_server_quota_byte_rate{resource="Produce",user="alice"} 1\n')
    calm = kquota("top", "--metrics", "page.prom", "--quotas", QUOTAS, *nowhere, "producer_byte_rate").out
    assert "  user=alice (producer_byte_rate, " in calm


THREE = """kafka_server_quota_byte_rate{{resource="Produce",user="alice",clientId="loader"}} {pair}
kafka_server_quota_throttle_time{{resource="Produce",user="alice",clientId="loader"}} {delay}
kafka_server_quota_request_time{{resource="Request",user="alice"}} 3
kafka_server_quota_throttle_time{{resource="Request",user="alice"}} 0
kafka_server_quota_byte_rate{{resource="Fetch",user="bob"}} {bob}
kafka_server_quota_throttle_time{{resource="Fetch",user="bob"}} 2003
"""
THREE_QUOTAS = data_text("cli/three_quotas.yaml")


@pytest.fixture
def three(tmp_path: Path) -> tuple[str, ...]:
    """Three brokers that throttle a pair, and throttled bob within the last minute."""
    (tmp_path / "q.yaml").write_text(THREE_QUOTAS)
    for broker in "123":
        (tmp_path / f"b{broker}.prom").write_text(THREE.format(pair=199_000, delay=140, bob=0))
    return (*(word for broker in "123" for word in ("--metrics", f"{broker}=b{broker}.prom")), "--quotas", "q.yaml")


@pytest.mark.parametrize(
    "subject", ["user=alice", "client-id=loader", "user=alice,client-id=loader", "client-id=loader,user=alice"]
)
def test_a_subject_is_explained_by_every_counter_that_it_is_charged_to(
    kquota: Kquota, three: tuple[str, ...], subject: str
) -> None:
    """The throttled one first, over all brokers, with one remedy that can be typed."""
    done = kquota("top", *three, "--explain", subject)
    heads = [line for line in done.out.splitlines() if not line.startswith(" ") and ": " in line]

    assert done.code == 0
    assert heads[0] == "user=alice,client-id=loader: producer_byte_rate on 3 of 3 brokers: THROTTLED"
    assert "user=alice: request_percentage on 3 of 3 brokers: WITHIN" in heads
    assert done.out.count("twice the limit for two hours: ") == 1
    assert "kquota alter --user=alice --client=loader --add-config producer_byte_rate=400kB --for 2h" in done.out


def test_a_client_that_stopped_was_throttled(kquota: Kquota, three: tuple[str, ...]) -> None:
    """Brokers report the mean throttle time of the last minute; without use nobody is throttled."""
    shown = kquota("top", *three, "--once")
    explained = kquota("top", *three, "--explain", "user=bob")

    assert "3 throttled, 3 was throttled, 3 within the limit" in shown.err
    assert "consumer_byte_rate on 3 of 3 brokers: WAS THROTTLED" in explained.out
    assert "; was throttled until " in explained.out
    assert "twice the limit" not in explained.out


def test_a_client_that_waits_at_0_is_throttled_and_the_screen_says_why(
    kquota: Kquota, three: tuple[str, ...], tmp_path: Path
) -> None:
    for broker in "123":
        page = THREE.format(pair=199_000, delay=140, bob=0).replace("2003", "9000")
        (tmp_path / f"b{broker}.prom").write_text(page)
    waits = kquota("top", *three, "--once")
    stopped = kquota("top", *three, "--once", "--user", "alice")

    assert "6 throttled" in waits.err
    assert "at 0 and throttled: it waits" in waits.err
    assert "it waits" not in stopped.err


def test_a_calm_subject_is_told_about_itself(kquota: Kquota, three: tuple[str, ...], tmp_path: Path) -> None:
    """Others are throttled meanwhile, and so was a counter on another broker."""
    page = THREE.format(pair=199_000, delay=140, bob=10_000).replace("2003", "0")
    for broker in "13":
        (tmp_path / f"b{broker}.prom").write_text(page)
    calm = kquota("top", *three, "--explain", "user=bob", "--broker", "1")
    partly = kquota("top", *three, "--explain", "user=bob")
    nobody = kquota("top", *three, "--once", "--user", "zoe")

    assert "consumer_byte_rate on 1: WITHIN\n" in calm.out
    assert (
        "no counter of user=bob is throttled or near it on the 3 brokers that were read: where user=bob is" in calm.err
    )
    assert "consumer_byte_rate on 1 of 3 brokers: WAS THROTTLED, WITHIN on 2\n" in partly.out
    assert "none of 9 counters was asked for" in nobody.err
    assert "did you mean 'bob'?" in kquota("top", *three, "--once", "--user", "bobb").err
    for broker in "123":
        (tmp_path / f"b{broker}.prom").write_text(THREE.format(pair=0, delay=0, bob=0))
    assert "enough: 0" not in kquota("top", *three, "--explain", "user=bob").out


def test_what_would_be_enough_is_a_command_away(kquota: Kquota, three: tuple[str, ...]) -> None:
    done = kquota("top", *three, "--explain", "user=alice")

    assert "enough: more than the limit; how much more, no metric tells of clients that are held back\n" in done.out
    assert "tell: kquota record --for 2m --bootstrap-server HOST:PORT\n" in done.out


def test_nobody_is_throttled_only_where_all_is_known(kquota: Kquota, three: tuple[str, ...], tmp_path: Path) -> None:
    for broker in "123":
        page = THREE.format(pair=9, delay=0, bob=9).replace("2003", "0")
        (tmp_path / f"b{broker}.prom").write_text(page)
    everything = kquota("top", *three, "--once")
    (tmp_path / "b3.prom").unlink()
    partly = kquota("top", *three, "--once")

    assert "nobody is throttled or near it on the 3 brokers that were read" in everything.err
    assert partly.code == 9
    assert "nobody is seen throttled, but 1 source did not answer: a quota may still be the reason" in partly.err


def test_old_numbers_say_nothing_of_now(kquota: Kquota, tmp_path: Path) -> None:
    """A request log that was switched off, or the page of an exporter that hangs."""
    row = {"user": "alice", "client_id": "app", "api": "produce", "bytes": 9}
    lines = [json.dumps(row | {"time_ms": 1_793_523_600_000 + at}) + "\n" for at in range(0, 30_000, 500)]
    (tmp_path / "usage.jsonl").write_text("".join(lines))
    shown = kquota("top", "--log", "7=usage.jsonl", "--quotas", QUOTAS, "--once")

    assert "nobody is seen throttled, but nothing is newer than " in shown.err
    assert " on 1 broker ('kquota record' shows now): a quota may still be the reason" in shown.err


def test_quotas_of_another_cluster(kquota: Kquota, three: tuple[str, ...], tmp_path: Path) -> None:
    """A broker that throttles a counter has a limit for it."""
    (tmp_path / "q.yaml").write_text(THREE_QUOTAS.partition("quotas:\n")[0] + "quotas: []\n")
    done = kquota("top", *three, "--once")

    assert "brokers throttle user=bob, user=alice,client-id=loader, which these quotas do not limit" in done.err
    assert "nobody is throttled or near it" not in done.err


def test_the_command_that_lifts_a_limit_is_one_that_works(kquota: Kquota) -> None:
    """It names the counter's entity, for two hours; what a shell makes of it is what alter takes."""
    done = kquota("top", *LIVE, "--explain", "user=alice")
    (line,) = (line for line in done.out.splitlines() if "for two hours" in line)
    words = shlex.split(line.partition("for two hours: ")[2])

    assert words == ["kquota", "alter", "--user=alice", "--add-config", "producer_byte_rate=120kB", "--for", "2h"]


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
    assert "UTC or before" in explained.out


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


def test_it_ends_with_its_reader(tmp_path: Path) -> None:
    line = f"{sys.executable} -m kquota top --metrics {PAGE} --quotas {QUOTAS} --interval 1s | head -n 1"
    done = ran(["bash", "-c", line], tmp_path)

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


def test_a_narrow_screen_tells_the_counters_of_two_brokers_apart(tmp_path: Path) -> None:
    asked = (*LIVE, "--metrics", f"b2={PAGE}", "--once")
    lines = on_terminal(["top", *asked], tmp_path, COLUMNS="80", NO_COLOR="1").splitlines()
    alice = [line.split() for line in lines if "user=alice" in line]
    assert [row[-1] for row in alice] == ["b1", "b2"], lines
