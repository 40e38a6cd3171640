"""What kquota can do with brokers of each release: `python -m tools.releases [RELEASE...]`.

Starts a real broker of each release, with Prometheus's JMX exporter, runs the command lines below against it, and keeps
in `tests/data/releases.json` how each ended. `tools.generate` makes the table of `docs/reference/releases.md` from it.
"""

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from kquota.documents.foreign.prometheus import shipped
from tests.brokers.kafka import KafkaBroker
from tests.brokers.zookeeper_mode import ZooKeeperModeBroker
from tests.support.processes import free_ports
from tests.support.sandbox import Sandbox
from tools.recording.samples import agent_flag

RELEASES = ("4.4.0", "4.3.1", "3.9.2", "2.8.2", "2.6.3")
FOUND = Path(__file__).resolve().parents[1] / "tests" / "data" / "releases.json"
COMMANDS: Mapping[str, str] = {
    "describe": "describe",
    "alter users and client-ids": "alter --user alice --client app --add-config producer_byte_rate=1MB",
    "alter request_percentage": "alter --user alice --add-config request_percentage=50%",
    "alter controller_mutation_rate": "alter --user alice --add-config controller_mutation_rate=10",
    "alter an ip": "alter --ip 10.0.0.7 --add-config connection_creation_rate=10",
    "alter a broker's limit": "alter --broker BROKER --add-config max.connection.creation.rate=1000",
    "describe a broker's limit": "describe --broker BROKER",
    "resolve": "resolve --user alice --client app",
    "lint": "lint",
    "plan": "plan quotas.yaml",
    "apply": "apply quotas.yaml --yes",
    "undo": "undo --yes",
    "doctor": "doctor",
    "probe produce": "probe produce --topic load --duration 2s --rate 100kB --client p --yes",
    "probe fetch": "probe fetch --topic load --duration 2s --rate 20kB --client f --yes",
    "probe request": "probe request --topic load --duration 2s --rate 20 --client r --yes",
    "top": "top --metrics PAGE --once --all",
}
"""What each row of the table runs, in this order."""
QUOTAS = """\
kind: kquota.quotas
version: 1
quotas:
  - {entity: {client-id: web}, values: {consumer_byte_rate: 2MB}}
"""


def broker_of(release: str, zookeeper: str, page: Path, port: int) -> KafkaBroker:
    """A broker of that release, on that ZooKeeper where it still can; its metrics are served at the port."""
    flags = (agent_flag(port, page),)
    if release >= "4":
        kraft = KafkaBroker(jvm_flags=flags)
        kraft.version = release
        kraft.coordinates = (
            f"org.apache.kafka:kafka_2.13:{release}",
            *(each for each in KafkaBroker.coordinates if "kafka_2.13" not in each and "kafka-tools" not in each),
        )
        return kraft
    older = ZooKeeperModeBroker(zookeeper, jvm_flags=flags)
    older.version = release
    logging = "org.slf4j:slf4j-reload4j:1.7.36" if release >= "3" else "org.slf4j:slf4j-log4j12:1.7.30"
    older.coordinates = (f"org.apache.kafka:kafka_2.13:{release}", logging)
    return older


@contextlib.contextmanager
def started(release: str) -> Iterator[tuple[KafkaBroker, str]]:
    """A broker of that release with a topic, and the address of its metrics."""
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        page = Path(folder) / "rules.yaml"
        page.write_text(shipped("jmx-exporter.yaml"))
        zookeeper = "" if release >= "4" else stack.enter_context(Sandbox()).connect
        broker = stack.enter_context(broker_of(release, zookeeper, page, port))
        admin = AdminClient(broker.client())  # held until it is answered: what is collected gives up
        (topic,) = admin.create_topics([NewTopic("load", 1, 1)]).values()
        topic.result(30)
        yield broker, f"http://127.0.0.1:{port}/metrics"


def ended(release: str) -> dict[str, str]:
    """By row, "yes", or what the command said when it could not be done."""
    found = {}
    clean = {name: value for name, value in os.environ.items() if not name.startswith("KQUOTA_")}
    with started(release) as (broker, page), tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "quotas.yaml").write_text(QUOTAS)
        number = "1" if release >= "4" else "0"
        for row, line in COMMANDS.items():
            words = line.replace("PAGE", page).replace("BROKER", number).split()
            environment = {"KQUOTA_JOURNAL": f"{folder}/journal", "KQUOTA_BOOTSTRAP_SERVER": broker.bootstrap}
            done = subprocess.run(
                [sys.executable, "-m", "kquota", *words],
                cwd=folder,
                env={**clean, **environment, "PYTHONPATH": str(FOUND.parents[2])},
                capture_output=True,
                text=True,
                timeout=180,
                check=False,
            )
            found[row] = "yes" if done.returncode == 0 else said(done.stderr, broker.bootstrap)
            print(release, row, found[row], sep=": ", flush=True)
    return found


def said(stderr: str, bootstrap: str) -> str:
    """The error, without what is of this run."""
    lines = [line for line in stderr.splitlines() if not line.startswith(("cluster: ", "kquota: warning: "))]
    text = lines[-1].removeprefix("kquota: ") if lines else "no message"
    return re.sub(rf"\s*(?:of|at) (?:kafka://)?{re.escape(bootstrap)}", "", text)


def table() -> str:
    """The table of the documentation, from what was kept."""
    kept: dict[str, dict[str, str]] = json.loads(FOUND.read_text(encoding="utf-8"))
    notes: list[str] = []

    def cell(text: str) -> str:
        if text == "yes":
            return "yes"
        if text not in notes:
            notes.append(text)
        return f"no ({notes.index(text) + 1})"

    rows = [f"| {row} | {' | '.join(cell(kept[release][row]) for release in RELEASES)} |" for row in COMMANDS]
    head = [f"| | {' | '.join(RELEASES)} |", "|---" * (len(RELEASES) + 1) + "|"]
    said = [f"{number}. `{note}`" for number, note in enumerate(notes, start=1)]
    return "\n".join([*head, *rows, "", *said]) + "\n"


def main() -> None:
    """Runs the releases that are named, or all, and keeps what was found."""
    parser = argparse.ArgumentParser(prog="python -m tools.releases", description=__doc__)
    parser.add_argument("releases", nargs="*", help="those to run; without any, all")
    kept = json.loads(FOUND.read_text(encoding="utf-8")) if FOUND.exists() else {}
    for release in parser.parse_args().releases or RELEASES:
        kept[release] = ended(release)
        ordered = {release: kept[release] for release in RELEASES if release in kept}
        FOUND.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
