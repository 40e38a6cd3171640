"""A real broker with the JMX exporter, clients that it throttles, and a real Prometheus: limits, alerts and `top`."""

import contextlib
import functools
import json
import re
import subprocess
import time
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kquota import DEFAULT, Alteration, Entity, QuotaKey
from kquota.backends.kafka import KafkaBackend
from kquota.cli.main import run
from kquota.core.findings.use import Enforcers
from kquota.documents.foreign.prometheus import Thresholds, grafana_dashboard, prometheus_rules, shipped
from kquota.live.exporter import Exporter, serve
from kquota.live.sources import Page, Pages, metrics_of
from kquota.live.watching import Watching
from kquota.reconcile import now
from tests.brokers.kafka import AT_ONCE, KafkaBroker
from tests.support.processes import free_ports
from tests.support.scheduling import by_day
from tests.support.waiting import until
from tools.recording.samples import agent_flag, ask, consume, get, produce, running
from tools.recording.traffic import Traffic

PRODUCE = QuotaKey.PRODUCER_BYTE_RATE
FETCH, REQUEST = QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE
QUOTAS: dict[Entity, dict[QuotaKey, float]] = {
    Entity(user="alice"): {PRODUCE: 60_000, FETCH: 150_000},
    Entity(user="bob", client_id="etl"): {PRODUCE: 80_000, FETCH: 100_000},
    Entity(user="frank", client_id="batch"): {PRODUCE: 1_000_000},
    Entity(client_id="web"): {PRODUCE: 100_000, FETCH: 200_000},
    Entity(client_id=DEFAULT): {PRODUCE: 40_000, FETCH: 60_000},
    # Whoever is limited by these sends nothing else: any request is charged.
    Entity(user="admin"): {REQUEST: 1.0},
    Entity(user="erin", client_id="poll"): {REQUEST: 0.3},
    Entity(client_id="probe"): {REQUEST: 0.65},
    Entity(user="grace", client_id=DEFAULT): {REQUEST: 0.45},
}
CLIENTS = (
    # (user, client-id, bytes/s): a counter of a user with two clients, a pair, a client-id that two users share, an
    # inherited default, and a pair within its limit.
    ("alice", "billing-1", 60_000),
    ("alice", "billing-2", 60_000),
    ("bob", "etl", 160_000),
    ("carol", "web", 100_000),
    ("dave", "web", 100_000),
    ("erin", "sensor", 80_000),
    ("frank", "batch", 50_000),
)
CONSUMERS = (
    *(("alice", "billing-1"), ("alice", "billing-2"), ("bob", "etl")),
    *(("carol", "web"), ("dave", "web"), ("erin", "sensor")),
)
ASKING = (("admin", "one"), ("admin", "two"), ("erin", "poll"), ("carol", "probe"), ("dave", "probe"), ("grace", "any"))
ALL_LIMITS: dict[QuotaKey, dict[str, float]] = {
    PRODUCE: {
        "user=alice": 60_000,
        "user=bob,client-id=etl": 80_000,
        "client-id=web": 100_000,
        "client-id=sensor": 40_000,
        "user=frank,client-id=batch": 1_000_000,
    },
    FETCH: {
        "user=alice": 150_000,
        "user=bob,client-id=etl": 100_000,
        "client-id=web": 200_000,
        "client-id=sensor": 60_000,
    },
    REQUEST: {
        "user=admin": 1.0,
        "user=erin,client-id=poll": 0.3,
        "client-id=probe": 0.65,
        "user=grace,client-id=any": 0.45,
    },
}
"""By key, the counters that a limit governs: of a user, a pair, a client-id that users share, an inherited default."""
LIMITS = {PRODUCE: ALL_LIMITS[PRODUCE]} if by_day() else ALL_LIMITS
"""Each day producers alone are throttled: consumers and whoever asks take as long again."""
WITHIN = (PRODUCE, "user=frank,client-id=batch")
THROTTLED = {key: limits.keys() - ({WITHIN[1]} if key is WITHIN[0] else set()) for key, limits in LIMITS.items()}
RESOURCES = {PRODUCE: "Produce", FETCH: "Fetch", REQUEST: "Request"}
RECORD = 8_000
"""Bytes: threads that seldom run on a busy machine reach their rate by few large records."""
PAUSE_S = 1.0
"""Between two looks: what a broker tells costs it some of what the clients need."""
THRESHOLDS = Thresholds(Enforcers().near, Enforcers().proven, 1)


@dataclass(frozen=True)
class Live:
    """What runs: the broker, the page of its exporter, kquota's exporter behind a Prometheus."""

    broker: KafkaBroker
    page: str
    prometheus: str

    def ask(self, query: str) -> list[dict[str, Any]]:
        """What Prometheus answers to an instant query."""
        answer = json.loads(get(f"{self.prometheus}/api/v1/query?{urllib.parse.urlencode({'query': query})}"))
        assert answer["status"] == "success", answer
        result: list[dict[str, Any]] = answer["data"]["result"]
        return result

    def scraped_at(self) -> float:
        """When the broker was scraped last (s); waits for a scrape that works, as the series are gone after another."""
        query = 'min(timestamp(kafka_server_quota_throttle_time{resource="Produce"}))'
        found = until(lambda: self.ask(query), "no scrape works", PAUSE_S)
        return float(found[0]["value"][1])


@contextlib.contextmanager
def prometheus(folder: Path, page: str, exporter: int) -> Iterator[str]:
    """A real one, that scrapes both four times a minute and evaluates the generated rules without delay.

    A scrape that does not end within its interval takes all series away, and one took 10 s at a load of 13.
    """
    (port,) = free_ports(1)
    samples = Pages((Page(None, page),)).look().samples
    rules: Any = json.loads(json.dumps(prometheus_rules(metrics_of(samples), THRESHOLDS)))
    for rule in rules["groups"][1]["rules"]:
        rule.pop("for", None)
    (folder / "rules.json").write_text(json.dumps(rules))
    jobs = {"kafka": urllib.parse.urlsplit(page).netloc, "kquota": f"127.0.0.1:{exporter}"}
    settings = {
        "global": {"scrape_interval": "15s", "scrape_timeout": "15s", "evaluation_interval": "2s"},
        "rule_files": ["rules.json"],
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": [target]}]} for job, target in jobs.items()
        ],
    }
    (folder / "prometheus.json").write_text(json.dumps(settings))
    command = [
        "prometheus",
        f"--config.file={folder / 'prometheus.json'}",
        f"--web.listen-address=127.0.0.1:{port}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        "--log.level=error",
    ]
    with running(command, stderr=subprocess.DEVNULL):
        until(lambda: _is_ready(port), "Prometheus did not start", PAUSE_S)
        yield f"http://127.0.0.1:{port}"


def _is_ready(port: int) -> bool:
    with contextlib.suppress(OSError):
        return bool(get(f"http://127.0.0.1:{port}/-/ready"))
    return False


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("live")
    (port,) = free_ports(1)
    config = folder / "jmx-exporter.yaml"
    config.write_text(shipped("jmx-exporter.yaml"))
    page = f"http://127.0.0.1:{port}/metrics"
    with (
        KafkaBroker(settings=AT_ONCE, jvm_flags=(agent_flag(port, config),)) as broker,
        contextlib.ExitStack() as stack,
    ):
        admin = AdminClient(broker.client())
        (created,) = admin.create_topics([NewTopic("history", 1, 1)]).values()
        created.result(60)
        backend = stack.enter_context(KafkaBackend(broker.bootstrap))
        backend.alter([Alteration(entity, set=limits) for entity, limits in QUOTAS.items()])
        # Counters of the time before the quotas would have other tags.
        until(lambda: len(backend.describe()) == len(QUOTAS), "the quotas are not there", PAUSE_S)
        time.sleep(1)
        traffic = Traffic(broker)
        for user, client_id, rate in CLIENTS:
            traffic.start(produce, user, client_id, rate, RECORD)
        for user, client_id in CONSUMERS if FETCH in LIMITS else ():
            traffic.start(consume, user, client_id)
        for user, client_id in ASKING if REQUEST in LIMITS else ():
            traffic.start(ask, user, client_id)
        stack.callback(traffic.finish)
        exporter = Exporter(backend.describe, Watching(Pages((Page(None, page),))).look)
        for key, subjects in THROTTLED.items():
            until(functools.partial(_are_throttled, page, key, subjects), f"not all were throttled by {key}", PAUSE_S)
        exporter.refresh(now())
        stop, served = serve(exporter, "127.0.0.1", 0, now)
        stack.callback(stop)
        live = Live(broker, page, stack.enter_context(prometheus(folder, page, served)))
        scraped = 'kafka_server_quota_throttle_time{resource="Produce"} > 0'
        until(
            lambda: len(live.ask(scraped)) >= len(THROTTLED[PRODUCE]), "Prometheus has not scraped the broker", PAUSE_S
        )
        yield live


def _are_throttled(page: str, key: QuotaKey, subjects: set[str]) -> bool:
    return _throttled(page, key) >= subjects


def _throttled(page: str, key: QuotaKey) -> set[str]:
    """The counters of a key for which the broker reports a throttle time."""
    with contextlib.suppress(OSError):
        text = get(page)
        resource = RESOURCES[key]
        values = re.findall(rf'^kafka_server_quota_throttle_time\{{(.*resource="{resource}".*)\}} (\S+)$', text, re.M)
        return {_subject(dict(re.findall(r'(\w+)="([^"]*)"', labels))) for labels, value in values if float(value) > 0}
    return set()


def _subject(labels: dict[str, str]) -> str:
    return str(Entity(user=labels.get("user") or None, client_id=labels.get("clientId") or None))


@pytest.mark.parametrize("key", LIMITS, ids=str)
def test_use_divided_by_limit_is_what_the_broker_enforces(live: Live, key: QuotaKey) -> None:
    """By the recording rule in Prometheus: a throttled counter is at its limit, whatever kind of quota governs it."""
    query = f'avg_over_time(kquota:share{{key="{key.value}"}}[20s])'

    def shares() -> dict[str, float]:
        return {_subject(each["metric"]): float(each["value"][1]) for each in live.ask(query)}

    # Limits of one key differ by a factor of 1.25 at least, so that no share is right by another's limit.
    expected: dict[str, Any] = {subject: pytest.approx(1, abs=0.2) for subject in THROTTLED[key]}
    if key is WITHIN[0]:
        expected[WITHIN[1]] = pytest.approx(0.05, abs=0.02)
    # Rates of the time before the first throttle are above the limit.
    until(lambda: shares() == expected, lambda: f"the shares are others: {shares()}", PAUSE_S)

    def limits() -> dict[str, float]:
        found = live.ask(f'kquota_limit{{key="{key.value}"}}')
        return {_subject(each["metric"]): float(each["value"][1]) for each in found}

    until(lambda: limits() == LIMITS[key], lambda: f"the limits are others: {limits()}", PAUSE_S)


def test_the_alerts_fire_for_the_throttled_alone(live: Live) -> None:
    def firing() -> dict[str, set[str]]:
        answer = json.loads(get(f"{live.prometheus}/api/v1/alerts"))
        names: dict[str, set[str]] = {}
        for each in answer["data"]["alerts"]:
            labels = each["labels"]
            about = _subject(labels) if {"user", "clientId"} & labels.keys() else ""
            names.setdefault(labels["alertname"], set()).add(about)
        return names

    expected = set().union(*THROTTLED.values())

    def fired() -> bool:
        names = firing()
        return names.get("KafkaClientThrottled") == expected and "KquotaAbsent" not in names

    until(fired, lambda: f"others fire: {firing()}", PAUSE_S)


def test_every_panel_has_an_answer(live: Live) -> None:
    metrics = metrics_of(Pages((Page(None, live.page),)).look().samples)
    wanted = {
        "Throttled now",
        "Counters by state",
        "Use divided by limit, the 20 highest",
        "Time until throttled",
        "Age of quotas and metrics",
        "Not shown",
    }
    dashboard = grafana_dashboard(metrics, THRESHOLDS)
    expressions = {panel["title"]: panel["targets"][0]["expr"] for panel in dashboard["panels"]}
    for expression in expressions.values():
        live.ask(expression)  # Prometheus accepts each of them
    # No counter is over its limit at every moment, least of all where the machine is busy.
    for title in sorted(wanted):
        until(functools.partial(live.ask, expressions[title]), title, PAUSE_S)


@pytest.mark.parametrize("source", ["page", "prometheus"])
def test_top_shows_the_throttled_within_one_scrape(live: Live, source: str, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--metrics", f"b1={live.page}"] if source == "page" else ["--prometheus", live.prometheus]

    def looked() -> dict[str, dict[str, Any]] | None:
        """The throttled counters by their subjects; None where one of them had a pause at this look."""
        # Where the machine is busy, the last scrape may be old, or have failed; top says how old its samples are.
        last = time.time() if source == "page" else live.scraped_at()
        code = run(["top", "--bootstrap-server", live.broker.bootstrap, *where, "--once", "-o", "json"])
        out, err = capsys.readouterr()
        assert code == 0, err
        found = {
            str(Entity(user=each["tags"].get("user"), client_id=each["tags"].get("client-id"))): each
            for each in json.loads(out)["counters"]
            if each["key"] == "producer_byte_rate" and each["state"] == "throttled"
        }
        assert found.keys() <= THROTTLED[PRODUCE]
        assert all(0 <= each["age_s"] <= time.time() - last for each in found.values())
        return found if found.keys() == THROTTLED[PRODUCE] else None

    throttled = until(looked, "not all are throttled at once", PAUSE_S)
    assert throttled is not None
    limits = {subject: each["limit"] for subject, each in throttled.items()}
    assert limits == {subject: LIMITS[PRODUCE][subject] for subject in THROTTLED[PRODUCE]}
    assert throttled["client-id=sensor"]["entity"] == {"client-id": {"default": True}}


def test_top_explains_an_inherited_default(live: Live, capsys: pytest.CaptureFixture[str]) -> None:
    """And the commands that it names do what they promise."""
    server = ["--bootstrap-server", live.broker.bootstrap]
    explain = ["--explain", "client-id=sensor", "--key", "producer_byte_rate"]

    def explained() -> str:
        """What it says; nothing where the last scrape failed, or was between two throttles."""
        code = run(["top", *server, "--prometheus", live.prometheus, *explain])
        out = capsys.readouterr().out
        return out if code == 0 and re.search(r"since: .+ UTC or before", out) else ""

    out = until(explained, "it is not throttled", PAUSE_S)
    assert "client-id=sensor: producer_byte_rate on 127.0.0.1:" in out
    assert "rule: client-id=<default>, level 8, default client-id" in out
    (lift,) = re.findall(r"twice the limit for two hours: (.*)", out)
    assert "--client=sensor" in lift
    assert "=80kB " in lift
    assert f"--bootstrap-server {live.broker.bootstrap}" in lift
