"""A KRaft cluster for recordings: a controller and brokers, each a process of its own that writes a JSON request log.

Clients come in over SASL/PLAIN on TLS. Two releases: 3.9.1, with log4j 2 (and its bridge) in the place of the log4j 1
that it ships with, because only log4j 2 prints microseconds; and 4.4.0. Of 4.4.0 two modules, `kafka-tools` and
`kafka-tools-api`, are not on Maven Central. The broker's pom names them, but nothing that runs here needs them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.brokers.kafka import USERS, password_of
from tests.brokers.maven import retrieve
from tests.brokers.nodes import MICROSECONDS, SMALL_TOPICS, Nodes, new_cluster_id, write_log4j2
from tests.support import certificates
from tests.support.processes import free_ports

STORE_PASSWORD = "made-up-secret"
CONTROLLER = 1
"""The node that is the controller; brokers are numbered from 2."""

_QUOTA_LOGGER = """\
logger.quotas.name = {name}
logger.quotas.level = info
"""
_BINDING = "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4"
"""What binds slf4j to log4j 2; Kafka itself leaves it to its distribution."""


@dataclass(frozen=True)
class Release:
    """A release of Kafka, from Maven."""

    version: str
    logger: str
    """The logger that tells when quotas change."""
    more: tuple[str, ...] = (_BINDING,)
    without: tuple[str, ...] = ()

    def jars(self) -> Path:
        """Its jars."""
        coordinates = (f"org.apache.kafka:kafka_2.13:{self.version}", *self.more)
        return retrieve(f"cluster-{self.version}", coordinates, self.without)


RELEASES = {
    each.version: each
    for each in (
        Release(
            "3.9.1",
            "kafka.server",
            more=(_BINDING, "org.apache.logging.log4j:log4j-1.2-api:2.25.4"),
            without=("ch.qos.reload4j:reload4j", "org.slf4j:slf4j-reload4j"),
        ),
        Release(
            "4.4.0",
            "org.apache.kafka.server.quota",
            without=("org.apache.kafka:kafka-tools", "org.apache.kafka:kafka-tools-api"),
        ),
    )
}

_NODE = """\
node.id={node}
process.roles={role}
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners={listeners}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,INTERNAL:PLAINTEXT,CLIENTS:SASL_SSL
log.dirs={folder}/data
num.partitions=3
log.cleaner.dedupe.buffer.size=2097152
"""
_BROKER = """\
inter.broker.listener.name=INTERNAL
sasl.enabled.mechanisms=PLAIN
listener.name.clients.plain.sasl.jaas.config={jaas}
listener.name.clients.ssl.keystore.type=PKCS12
listener.name.clients.ssl.keystore.location={folder}/broker.p12
listener.name.clients.ssl.keystore.password={password}
listener.name.clients.ssl.key.password={password}
"""
_PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


class KafkaCluster(Nodes):
    """A controller, node 1, and `brokers` brokers, nodes 2 and up, as a context manager; loopback only.

    Everything is in a temporary folder, a folder for each node in it. Raises RuntimeError with the tail of a node's
    output when the brokers do not answer within `ready_seconds`.
    """

    def __init__(self, release: Release, *, brokers: int = 2, heap: str = "768m", ready_seconds: float = 240) -> None:
        super().__init__("cluster")
        self.release = release
        self._brokers = range(CONTROLLER + 1, CONTROLLER + 1 + brokers)
        self._heap = heap
        self._ready_seconds = ready_seconds
        self.bootstrap = ""
        """host:port of the first broker's listener for clients."""
        self.inside = ""
        """host:port of the first broker's listener for brokers, which has neither TLS nor passwords."""

    @property
    def nodes(self) -> tuple[int, ...]:
        """The controller and the brokers."""
        return CONTROLLER, *self._brokers

    def node_folder(self, node: int) -> Path:
        """Where a node keeps its files while the cluster runs."""
        return self.folder / str(node)

    def request_log(self, node: int) -> Path:
        """A node's JSON request log, times in UTC; complete up to the last answered request."""
        return self.node_folder(node) / "kafka-request.log"

    @property
    def authority(self) -> Path:
        """The certificate, in PEM, that clients are to trust."""
        return self.folder / "authority.pem"

    def client(self, user: str) -> dict[str, str | int | float | bool]:
        """Connection settings of that user for confluent-kafka."""
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.authority),
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": password_of(user),
        }

    def java_client(self, user: str) -> Mapping[str, str]:
        """The same as the settings of a Java client."""
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority),
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{_PLAIN_LOGIN} required username="{user}" password="{password_of(user)}";',
        }

    def quota_changes(self, since_ms: int) -> dict[int, int]:
        """When each node's quota managers were done with a change, in epoch ms; without nodes that logged none.

        The change is the last one after `since_ms`.
        """
        found: dict[int, int] = {}
        for node in self.nodes:
            log = (self.node_folder(node) / "server.log").read_text(errors="replace")
            for stamp in re.findall(r"^\[([^]]+)\] INFO .*(?:(?:Changing|Removing|Setting) .*quota )", log, re.M):
                moment = datetime.strptime(stamp, "%Y-%m-%d %H:%M:%S,%f").replace(tzinfo=UTC).timestamp()
                if moment * 1000 >= since_ms:
                    found[node] = round(moment * 1000)
        return found

    def _start(self) -> None:
        self._jars = self.release.jars()
        authority = certificates.authority("recordings")
        self.authority.write_text(authority.pem)
        controller, *ports = free_ports(1 + 2 * len(self._brokers))
        cluster_id = new_cluster_id()
        users = " ".join(f'user_{user}="{password_of(user)}"' for user in (*USERS, *MORE_USERS))
        for node in self.nodes:
            folder = self.node_folder(node)
            folder.mkdir()
            is_broker = node != CONTROLLER
            if is_broker:
                inside, outside = ports[:2]
                del ports[:2]
                listeners = f"INTERNAL://127.0.0.1:{inside},CLIENTS://127.0.0.1:{outside}"
                self.bootstrap = self.bootstrap or f"127.0.0.1:{outside}"
                self.inside = self.inside or f"127.0.0.1:{inside}"
                keystore = authority.sign(f"broker-{node}", hosts=["127.0.0.1"]).pkcs12(STORE_PASSWORD)
                (folder / "broker.p12").write_bytes(keystore)
            else:
                listeners = f"CONTROLLER://127.0.0.1:{controller}"
            role = "broker" if is_broker else "controller"
            text = _NODE.format(node=node, role=role, controller=controller, listeners=listeners, folder=folder)
            if is_broker:
                jaas = f"{_PLAIN_LOGIN} required {users};"
                text += _BROKER.format(jaas=jaas, folder=folder, password=STORE_PASSWORD) + SMALL_TOPICS
            properties = folder / "server.properties"
            properties.write_text(text)
            logging = write_log4j2(folder, time=MICROSECONDS, more=_QUOTA_LOGGER.format(name=self.release.logger))
            heap = self._heap if is_broker else "256m"
            options = (
                f"-Xmx{heap}",
                f"-Xms{heap}",
                "-Duser.timezone=UTC",
                f"-Dlog4j2.configurationFile={logging}",
                f"-Dkafka.logs.dir={folder}",
            )
            self._format_storage(properties, cluster_id, options)
            self._launch_node(str(node), properties, options)
        self._await_brokers("the cluster", self.client("admin"), len(self._brokers), self._ready_seconds)


MORE_USERS = ("heidi", "ivan", "judy")
"""Users besides those of `tests.brokers.kafka`."""
