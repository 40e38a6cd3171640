"""A real migration from ZooKeeper to KRaft by Kafka 3.7.0, which damaged quotas: loopback only."""

import json
from collections.abc import Mapping
from pathlib import Path

from kquota.backends.kafka import KafkaBackend
from kquota.errors import KquotaError
from tests.brokers.maven import retrieve
from tests.brokers.nodes import Nodes
from tests.support.data import data_text
from tests.support.processes import free_ports
from tests.support.sandbox import kazoo

VERSION = "3.7.0"
COORDINATES = (
    f"org.apache.kafka:kafka_2.13:{VERSION}",
    # The binding of slf4j to the log4j that Kafka brings; Kafka itself leaves it to its distribution.
    "org.slf4j:slf4j-reload4j:1.7.36",
)
_READY_S = 240
_LOG4J = data_text("brokers/migration_log4j.properties")


class Migration(Nodes):
    """A broker in ZooKeeper mode and a KRaft controller that has taken over its metadata, as a context manager.

    `zookeeper` is the connect string of the ensemble, whose quotas are there before. At first the broker still runs
    with ZooKeeper; `finish` starts it again with KRaft. Changes go to both sides all the time. Raises RuntimeError with
    the tail of a node's output when something does not come about in time.
    """

    def __init__(self, zookeeper: str) -> None:
        super().__init__("migration")
        plain, controller = free_ports(2)
        self.bootstrap = f"127.0.0.1:{plain}"
        """host:port of the broker, in either mode."""
        self._zookeeper = {"zookeeper.connect": zookeeper, "zookeeper.metadata.migration.enable": "true"}
        self._common = {
            "controller.quorum.voters": f"3000@127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "offsets.topic.replication.factor": "1",
            "log.cleaner.dedupe.buffer.size": "2097152",
        }
        self._controller = f"CONTROLLER://127.0.0.1:{controller}"

    def finish(self) -> None:
        """Starts the broker again, with KRaft."""
        self._end("broker", patience_s=30)
        listeners = {"listeners": f"PLAINTEXT://{self.bootstrap}", "log.dirs": str(self.folder / "broker")}
        self._run("kraft-broker", {"process.roles": "broker", "node.id": "0", **listeners, **self._common})

        def serves() -> bool:
            with KafkaBackend(self.bootstrap, timeout_s=10) as quotas:
                return bool(quotas.migrated())

        self._await("a broker with KRaft", serves, _READY_S, KquotaError)

    def _start(self) -> None:
        self._jars = retrieve(f"kafka-{VERSION}", COORDINATES)
        (self.folder / "log4j.properties").write_text(_LOG4J)
        broker = {
            "broker.id": "0",
            "inter.broker.protocol.version": VERSION.rpartition(".")[0],
            "listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dirs": str(self.folder / "broker"),
        }
        controller = {
            "process.roles": "controller",
            "node.id": "3000",
            "listeners": self._controller,
            "log.dirs": str(self.folder / "controller"),
        }
        with kazoo(self._zookeeper["zookeeper.connect"]) as client:
            self._run("broker", {**broker, **self._zookeeper, **self._common})
            there = "/brokers/ids/0"
            self._await("a broker with ZooKeeper", lambda: client.exists(there) is not None, _READY_S)
            cluster = json.loads(client.get("/cluster/id")[0])["id"]
        properties = self._properties("controller", {**controller, **self._zookeeper, **self._common})
        self._format_storage(properties, cluster, self._options())
        self._run("controller", {**controller, **self._zookeeper, **self._common})
        completed = "Completed migration of metadata"
        log = self.folder / "controller.log"
        self._await("the migration", lambda: completed in log.read_text(), _READY_S)

    def _options(self) -> tuple[str, ...]:
        return (f"-Dlog4j.configuration=file:{self.folder / 'log4j.properties'}",)

    def _properties(self, name: str, settings: Mapping[str, str]) -> Path:
        path = self.folder / f"{name}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return path

    def _run(self, name: str, settings: Mapping[str, str]) -> None:
        self._launch_node(name, self._properties(name, settings), self._options())
