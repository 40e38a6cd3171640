"""Records samples of a real broker's quota metrics: `python -m tools.recording.samples --out tests/data/samples`.

Starts a real broker with Prometheus's JMX exporter, sets the quotas below, drives clients against them for a minute and
a half, and keeps what the tools that people have say about it: JmxTool's CSV, the exporter's text with three sets of
rules, and, where `--prometheus` names its binary, a real Prometheus's answers. `quotas.json` holds the quotas.
"""

import argparse
import contextlib
import json
import random
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.brokers.kafka import COORDINATES, USERS, VERSION, KafkaBroker, password_of
from tests.brokers.maven import class_path, retrieve
from tests.support.processes import free_ports
from tools.recording.traffic import Traffic

EXPORTER = "1.0.1"
ODD_USER, ODD_CLIENT = "team a/ci*", 'ingest,"eu"'
"""What is encoded and quoted on its way through JMX."""

QUOTAS: tuple[tuple[dict[str, Any], dict[str, float]], ...] = (
    ({"client-id": {"default": True}}, {"producer_byte_rate": 40_000}),
    ({"user": "alice"}, {"producer_byte_rate": 60_000}),
    ({"user": "bob", "client-id": "etl"}, {"producer_byte_rate": 1_000_000}),
    ({"user": "carol"}, {"consumer_byte_rate": 100_000}),
    ({"user": "frank"}, {"request_percentage": 0.5}),
    ({"user": ODD_USER, "client-id": {"default": True}}, {"producer_byte_rate": 1_000_000}),
    ({"user": "admin"}, {"controller_mutation_rate": 10.0}),
)

_RULE = """\
- pattern: 'kafka.server<type=(Produce|Fetch|Request|ControllerMutation){tags}><>([a-z-]+)'
  name: {name}
  type: GAUGE
  labels: {{ {labels} }}
"""


def _rules(name: str, labels: tuple[str, str, str]) -> str:
    """A rule for each of the forms of a quota's MBean."""
    resource, user, client = labels
    first = f'{resource}: "$1", ' if resource else ""
    forms = (
        (", user=(.+), client-id=(.+)", 4, f'{first}{user}: "$2", {client}: "$3"'),
        (", user=(.+)", 3, f'{first}{user}: "$2"'),
        (", client-id=(.+)", 3, f'{first}{client}: "$2"'),
    )
    return "".join(_RULE.format(tags=tags, name=name.format(last=last), labels=text) for tags, last, text in forms)


CONFIGS = {
    # As in the exporter's own example for Kafka, in the order that works.
    "resource": "lowercaseOutputName: true\nrules:\n"
    + _rules("kafka_server_quota_${last}", ("resource", "user", "clientId")),
    # The same in the order that does not: the rule for client-ids takes the pairs, and users match nothing.
    "swallowed": "lowercaseOutputName: true\nrules:\n"
    "- pattern: kafka.server<type=(.+), client-id=(.+)><>([a-z-]+)\n"
    '  name: kafka_server_quota_$3\n  type: GAUGE\n  labels: { resource: "$1", clientId: "$2" }\n',
    # As in Confluent's stacks: the resource is in the name, everything in lower case.
    "named": "lowercaseOutputName: true\nlowercaseOutputLabelNames: true\nrules:\n"
    + _rules("kafka_server_$1_${last}", ("", "user", "client-id")),
}


def produce(traffic: Traffic, user: str, client_id: str, bytes_per_second: int, size: int = 2_000) -> None:
    """Records at a steady pace."""
    producer = traffic.producer(user, client_id, batch_size=20_000, linger_ms=5)
    rng = random.Random(user)
    while not traffic.stop.wait(size / bytes_per_second):
        traffic.send(producer, "history", size, rng)
    traffic.close(producer)


def consume(traffic: Traffic, user: str, client_id: str) -> None:
    """Reads a backlog as fast as it may."""
    consumer = traffic.consumer(user, client_id, fetch_message_max_bytes=50_000, queued_max_messages_kbytes=64)
    consumer.assign([TopicPartition("history", 0, 0)])
    while not traffic.stop.is_set():
        consumer.consume(100, 0.2)
    consumer.close()


def ask(traffic: Traffic, user: str, client_id: str) -> None:
    """Asks for offsets without pause."""
    consumer = traffic.consumer(user, client_id)
    while not traffic.stop.is_set():
        with contextlib.suppress(KafkaException):
            consumer.get_watermark_offsets(TopicPartition("history", 0), timeout=2)
    consumer.close()


def set_quotas(broker: KafkaBroker) -> None:
    """Sets QUOTAS by kquota itself."""
    from kquota.backends.kafka import KafkaBackend
    from kquota.core.quotas.alteration import Alteration
    from kquota.documents.quotas import read_quotas

    with tempfile.TemporaryDirectory() as folder, KafkaBackend(broker.bootstrap) as backend:
        file = Path(folder, "quotas.json")
        file.write_text(json.dumps(quotas_document()))
        for result in backend.alter([Alteration(entity, set=values) for entity, values in read_quotas(file).items()]):
            assert result.error is None, result


def quotas_document() -> dict[str, Any]:
    """QUOTAS as a quotas file."""
    return {
        "kind": "kquota.quotas",
        "version": 1,
        "quotas": [{"entity": entity, "values": values} for entity, values in QUOTAS],
    }


def settings() -> dict[str, str]:
    """Broker settings: the odd user beside the usual ones."""
    users = " ".join(f'user_{user}="{password_of(user)}"' for user in USERS)
    odd = f'"user_{ODD_USER}"="{password_of(ODD_USER)}"'
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return {"listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{module} required {users} {odd};"}


def jmx_flags(port: int) -> tuple[str, ...]:
    """Java flags that open JMX on the loopback address."""
    prefix = "-Dcom.sun.management.jmxremote"
    return (
        f"{prefix}.port={port}",
        f"{prefix}.rmi.port={port}",
        f"{prefix}.host=127.0.0.1",
        f"{prefix}.authenticate=false",
        f"{prefix}.ssl=false",
        "-Djava.rmi.server.hostname=127.0.0.1",
    )


def agent_flag(port: int, config: Path) -> str:
    """The Java flag that starts the exporter in the broker."""
    jars = retrieve(f"jmx-exporter-{EXPORTER}", (f"io.prometheus.jmx:jmx_prometheus_javaagent:{EXPORTER}",))
    return f"-javaagent:{jars}/jmx_prometheus_javaagent-{EXPORTER}.jar=127.0.0.1:{port}:{config}"


def jmx_tool(jmx_port: int, *arguments: str) -> list[str]:
    """The command line of Kafka's JmxTool, as `kafka-jmx.sh` starts it."""
    jars = retrieve(f"kafka-{VERSION}", COORDINATES)
    url = f"service:jmx:rmi:///jndi/rmi://127.0.0.1:{jmx_port}/jmxrmi"
    java = ["java", "-Xmx128m", "-XX:+UseSerialGC", "-cp", class_path(jars), "org.apache.kafka.tools.JmxTool"]
    return [*java, "--jmx-url", url, *arguments]


def get(url: str, accept: str = "*/*") -> str:
    """The body of an HTTP answer."""
    request = urllib.request.Request(url, headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return str(answer.read().decode())


@contextlib.contextmanager
def running(command: list[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is ended afterwards."""
    process = subprocess.Popen(command, **options)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(300)


def scrape_with(config: str, folder: Path, jmx_port: int) -> str:
    """One scrape through the exporter beside the broker, with other rules."""
    jars = retrieve(f"jmx-exporter-httpserver-{EXPORTER}", (f"io.prometheus.jmx:jmx_prometheus_httpserver:{EXPORTER}",))
    (port,) = free_ports(1)
    file = folder / "other.yaml"
    file.write_text(f"hostPort: 127.0.0.1:{jmx_port}\n{config}")
    jar = f"{jars}/jmx_prometheus_httpserver-{EXPORTER}.jar"
    with running(["java", "-Xmx128m", "-jar", jar, f"127.0.0.1:{port}", str(file)], stderr=subprocess.DEVNULL):
        for _ in range(100):
            with contextlib.suppress(OSError):
                return get(f"http://127.0.0.1:{port}/metrics")
            time.sleep(0.2)
    raise RuntimeError("the exporter did not start")


def quota_lines(text: str) -> str:
    """An exposition without the exporter's own and the JVM's metrics."""
    kept = [line for line in text.splitlines(keepends=True) if "kafka_server_" in line or line == "# EOF\n"]
    return "".join(kept)


def record(out: Path, seconds: int, prometheus: Path | None) -> None:
    """Everything, into a folder."""
    out.mkdir(parents=True, exist_ok=True)
    jmx_port, agent_port, prometheus_port = free_ports(3)
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        config = folder / "exporter.yaml"
        config.write_text(CONFIGS["resource"])
        flags = (*jmx_flags(jmx_port), agent_flag(agent_port, config))
        broker = stack.enter_context(KafkaBroker(settings=settings(), jvm_flags=flags))
        admin = AdminClient(broker.client("admin"))
        for future in admin.create_topics([NewTopic("history", 1, 1)]).values():
            future.result(20)
        set_quotas(broker)
        traffic = Traffic(broker)
        for user, client_id, rate in (
            ("alice", "billing-1", 50_000),
            ("alice", "billing-2", 60_000),
            ("bob", "etl", 50_000),
            ("dave", "web-edge", 30_000),
            ("erin", "sensor-gw", 100_000),
            (ODD_USER, ODD_CLIENT, 20_000),
        ):
            traffic.start(produce, user, client_id, rate)
        traffic.start(consume, "carol", "report-1")
        traffic.start(ask, "frank", "poller")
        time.sleep(15)
        if prometheus is not None:
            scraping = {
                "global": {"scrape_interval": "5s"},
                "scrape_configs": [
                    {"job_name": "kafka", "static_configs": [{"targets": [f"127.0.0.1:{agent_port}"]}]},
                ],
            }
            file = folder / "prometheus.yaml"
            file.write_text(json.dumps(scraping))
            address = f"--web.listen-address=127.0.0.1:{prometheus_port}"
            data = f"--storage.tsdb.path={folder / 'tsdb'}"
            command = [str(prometheus), f"--config.file={file}", address, data, "--log.level=error"]
            stack.enter_context(running(command))
        names = [f"--object-name=kafka.server:type={kind},*" for kind in ("Produce", "Fetch", "Request")]
        with (out / "kafka-jmx.csv").open("wb") as rows, (out / "kafka-jmx-lines.csv").open("wb") as lines:
            tool = jmx_tool(jmx_port, *names, "--reporting-interval", "5000")
            with running(tool, stdout=rows, stderr=subprocess.DEVNULL):
                with running([*tool, "--report-format", "csv"], stdout=lines, stderr=subprocess.DEVNULL):
                    time.sleep(seconds / 3)
                time.sleep(seconds * 2 / 3)
        for name_of_rules, rules in CONFIGS.items():
            text = quota_lines(scrape_with(rules, folder, jmx_port))
            (out / f"scrape-{name_of_rules}.prom").write_text(text)
        openmetrics = get(f"http://127.0.0.1:{agent_port}/metrics", "application/openmetrics-text; version=1.0.0")
        (out / "scrape-openmetrics.prom").write_text(quota_lines(openmetrics))
        if prometheus is not None:
            api = f"http://127.0.0.1:{prometheus_port}"
            now = int(time.time())
            selector = '{__name__=~"kafka_server_quota_.*"}'
            asked: dict[str, tuple[str, dict[str, Any]]] = {
                "prometheus-range.json": (
                    "query_range", {"query": selector, "start": now - seconds, "end": now, "step": 15}),
                "prometheus-raw.json": ("query", {"query": f"{selector}[{seconds}s]", "time": now}),
                "prometheus-instant.json": ("query", {"query": selector, "time": now}),
            }  # fmt: skip
            for file_name, (endpoint, parameters) in asked.items():
                answer = get(f"{api}/api/v1/{endpoint}?{urllib.parse.urlencode(parameters)}")
                (out / file_name).write_text(answer + "\n")
            matching = urllib.parse.urlencode({"match[]": selector})
            (out / "federate.prom").write_text(get(f"{api}/federate?{matching}"))
        traffic.finish()
    (out / "quotas.json").write_text(json.dumps(quotas_document(), indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=int, default=90)
    parser.add_argument("--prometheus", type=Path, help="the binary of a Prometheus 3")
    asked_for = parser.parse_args()
    record(asked_for.out, asked_for.seconds, asked_for.prometheus)
