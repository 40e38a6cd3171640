"""Rules, alerts and dashboards: a real Prometheus evaluates them, and each alert is seen to fire and not to fire."""

import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kquota.core.findings.use import Enforcers
from kquota.documents.encoding import to_yaml
from kquota.documents.foreign.prometheus import USUAL, Metric, Thresholds, grafana_dashboard, prometheus_rules, shipped
from kquota.live.sources import Page, Pages, is_broken, metrics_of

SAMPLES = Path(__file__).parents[1] / "data" / "samples"
THRESHOLDS = Thresholds(Enforcers().near, Enforcers().proven)
LIMITS = [
    'kquota_limit{resource="Produce",user="alice",key="producer_byte_rate",level="user",entity="user=alice"}',
    'kquota_limit{resource="Produce",user="bob",clientId="etl",key="producer_byte_rate",level="<user, client-id>",'
    'entity="user=bob,client-id=etl"}',
    'kquota_limit{resource="ControllerMutation",user="carol",key="controller_mutation_rate",level="user",'
    'entity="user=carol"}',
]


def scraped(name: str) -> tuple[Metric, ...]:
    return metrics_of(Pages((Page(None, str(SAMPLES / f"scrape-{name}.prom")),)).look().samples)


def promtool(folder: Path, *arguments: str) -> str:
    command = ["promtool", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["usual", "resource", "named", "swallowed"])
@pytest.mark.parametrize("by", [(), ("cluster",)])
def test_prometheus_takes_the_rules_of_every_dialect(tmp_path: Path, name: str, by: Sequence[str]) -> None:
    metrics = USUAL if name == "usual" else scraped(name)
    (tmp_path / "rules.yaml").write_text(to_yaml(prometheus_rules(metrics, THRESHOLDS, by)))

    assert "SUCCESS" in promtool(tmp_path, "check", "rules", "rules.yaml")


def test_the_rules_for_redpanda(tmp_path: Path) -> None:
    """Its counters of bytes become rates of all shards; it has no throttle time by client."""
    page = tmp_path / "rp.prom"
    name = "redpanda_kafka_quotas_client_quota_throughput_by_entity_total"
    page.write_text(f'{name}{{redpanda_quota_type="produce_quota",redpanda_quota_user="alice",shard="0"}} 9\n')
    metrics = metrics_of(Pages((Page(None, str(page)),)).look().samples)
    rules = prometheus_rules(metrics, THRESHOLDS)
    (tmp_path / "rules.yaml").write_text(to_yaml(rules))

    assert "SUCCESS" in promtool(tmp_path, "check", "rules", "rules.yaml")
    (recorded,) = rules["groups"][0]["rules"]
    assert recorded["expr"].startswith(
        "sum by (clientId, client_id, redpanda_quota_type, redpanda_quota_user, instance) (rate("
    )


def test_the_dialect_is_found_by_looking() -> None:
    labels = {name: {metric.labels for metric in scraped(name)} for name in ("resource", "named", "swallowed")}
    broken = {
        name: is_broken(Pages((Page(None, str(SAMPLES / f"scrape-{name}.prom")),)).look().samples) for name in labels
    }

    # A label that no series has yet may come with the next quota.
    assert labels == {
        "resource": {("clientId", "resource", "user")},
        "named": {("client_id", "user")},
        "swallowed": {("clientId", "resource", "user")},
    }
    assert broken == {"resource": False, "named": False, "swallowed": True}


def series(name: str, values: str) -> dict[str, str]:
    return {"series": name, "values": values}


def alert(name: str, minute: int, *fires: dict[str, str]) -> dict[str, Any]:
    """What an alert does at that minute; the texts are compared for one alert below."""
    return {"alertname": name, "eval_time": f"{minute}m", "exp_alerts": [{"exp_labels": each} for each in fires]}


RATE = 'kafka_server_quota_byte_rate{resource="Produce",instance="b1",'
THROTTLE = 'kafka_server_quota_throttle_time{resource="Produce",instance="b1",'
ALICE = {"resource": "Produce", "user": "alice", "instance": "b1", "key": "producer_byte_rate"}
ALICES = {**ALICE, "level": "user", "entity": "user=alice", "severity": "warning"}
HEALTHY = [
    *(series(limit, "100x30") for limit in LIMITS),
    series(RATE + 'user="alice"}', "50x30"),
    series(THROTTLE + 'user="alice"}', " ".join(["NaN"] * 31)),
    series(RATE + 'user="nobody"}', "5000x30"),
    series(THROTTLE + 'user="nobody"}', "7x30"),
    series('kafka_server_quota_tokens{resource="ControllerMutation",instance="b1",user="carol"}', "40x30"),
    series('kquota_drift_entities{state="absent"}', "0x30"),
    series('kquota_lease_expires_timestamp_seconds{entry="e-1"}', "90000x30"),
    series('kquota_lint_findings{rule="unreachable",severity="warning"}', "3x30"),
    series('kquota_last_success_timestamp_seconds{part="quotas"}', "0+60x30"),
    series('kquota_build_info{version="1"}', "1x30"),
]
NAMES = [
    rule["alert"] for rule in prometheus_rules(USUAL, THRESHOLDS)["groups"][1]["rules"]
]  # so that no alert is without a test


def changed(*replaced: dict[str, str]) -> list[dict[str, str]]:
    """The healthy series with others in their places."""
    others = {each["series"]: each for each in replaced}
    assert others.keys() <= {each["series"] for each in HEALTHY}
    return [others.get(each["series"], each) for each in HEALTHY]


FIRES = {
    "KafkaClientThrottled": (
        changed(series(THROTTLE + 'user="alice"}', "120x30")), 3, [ALICES]),
    "KafkaQuotaExceeded": (
        changed(series(RATE + 'user="alice"}', "121x30")), 3, [ALICES]),
    "KafkaQuotaNear": (
        changed(series(RATE + 'user="alice"}', "95x30")), 7, [{**ALICES, "severity": "info"}]),
    "KafkaMutationsThrottled": (
        changed(series('kafka_server_quota_tokens{resource="ControllerMutation",instance="b1",user="carol"}', "-2x30")),
        3,
        [{"resource": "ControllerMutation", "user": "carol", "instance": "b1", "key": "controller_mutation_rate",
          "level": "user", "entity": "user=carol", "severity": "warning"}]),
    "KafkaQuotaDrift": (
        changed(series('kquota_drift_entities{state="absent"}', "2x30")), 20, [{"severity": "warning"}]),
    "KafkaQuotaLeaseOverdue": (
        changed(series('kquota_lease_expires_timestamp_seconds{entry="e-1"}', "0x30")), 12,
        [{"entry": "e-1", "severity": "warning"}]),
    "KafkaQuotaLint": (
        [*HEALTHY, series('kquota_lint_findings{rule="broken",severity="error"}', "1x30")], 20,
        [{"severity": "warning"}]),
    "KquotaStale": (
        changed(series('kquota_last_success_timestamp_seconds{part="quotas"}', "0x30")), 8,
        [{"part": "quotas", "severity": "warning"}]),
    "KquotaAbsent": ([], 8, [{"severity": "warning"}]),
}  # fmt: skip


def test_each_alert_fires_and_does_not_fire(tmp_path: Path) -> None:
    """By promtool, on series as brokers and kquota export them."""
    assert sorted(FIRES) == sorted(set(NAMES))
    rules: Any = json.loads(json.dumps(prometheus_rules(USUAL, THRESHOLDS)))
    for rule in rules["groups"][1]["rules"]:
        del rule["annotations"]
    (tmp_path / "rules.json").write_text(json.dumps(rules))
    cases = [
        {"interval": "1m", "input_series": given, "alert_rule_test": [alert(name, minute, *fires)]}
        for name, (given, minute, fires) in FIRES.items()
    ]
    quiet = [alert(name, minute) for name, (_, minute, _) in FIRES.items()]
    cases.append({"interval": "1m", "input_series": HEALTHY, "alert_rule_test": quiet})
    # A counter without a limit is neither near one nor throttled by one.
    (tmp_path / "test.json").write_text(json.dumps({"rule_files": ["rules.json"], "tests": cases}))

    assert "SUCCESS" in promtool(tmp_path, "test", "rules", "test.json")


def test_the_texts_of_an_alert(tmp_path: Path) -> None:
    """A runbook names the quota, and the command that explains it."""
    (tmp_path / "rules.yaml").write_text(to_yaml(prometheus_rules(USUAL, THRESHOLDS)))
    given, minute, _ = FIRES["KafkaClientThrottled"]
    expected = {
        "exp_labels": ALICES,
        "exp_annotations": {
            "summary": "user alice (producer_byte_rate) is throttled on b1, 120 ms a request",
            "description": (
                "The broker reports a throttle time of the last half minute or minute. The quota of user=alice (level"
                " user) governs this counter: 'kquota resolve --user \"alice\"' shows what it shadows. 'kquota top"
                " --explain SUBJECT' shows who is in the counter, and how to lift the limit for two hours. 'kquota"
                " audit' of the request log shows what would be enough."
            ),
        },
    }
    case = {"alertname": "KafkaClientThrottled", "eval_time": f"{minute}m", "exp_alerts": [expected]}
    test = {"interval": "1m", "input_series": given, "alert_rule_test": [case]}
    (tmp_path / "test.json").write_text(json.dumps({"rule_files": ["rules.yaml"], "tests": [test]}))

    assert "SUCCESS" in promtool(tmp_path, "test", "rules", "test.json")


def test_the_dashboard() -> None:
    """Panels beside and below one another, each with a question, in the model of Grafana's own library."""
    from grafana_foundation_sdk.models.dashboard import Dashboard

    document = grafana_dashboard(USUAL, THRESHOLDS)
    places = [each["gridPos"] for each in document["panels"]]
    cells = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    read = Dashboard.from_json(document)

    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) == 23
    assert read.panels is not None
    assert [each["title"] for each in document["panels"]] == [getattr(each, "title", None) for each in read.panels]


def test_the_rules_of_the_exporter_are_as_the_documentation_promises() -> None:
    """The rule of both tags comes first, or the rule of one tag takes its beans."""
    patterns = [re.compile(each) for each in re.findall(r"pattern: '(.+)'", shipped("jmx-exporter.yaml"))]
    beans = {
        "kafka.server<type=Produce, user=alice, client-id=app><>byte-rate": 0,
        "kafka.server<type=Request, user=alice><>throttle-time": 1,
        "kafka.server<type=Fetch, client-id=app><>byte-rate": 2,
        "kafka.server<type=socket-server-metrics, ip=10.0.0.1><>connection-accept-rate": 3,
    }
    assert {bean: next(n for n, pattern in enumerate(patterns) if pattern.match(bean)) for bean in beans} == beans
