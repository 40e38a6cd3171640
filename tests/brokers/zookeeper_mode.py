"""A real Kafka broker in ZooKeeper mode, from Maven artifacts: the last release line that has it, loopback only."""

import base64
import contextlib
import hashlib
import hmac
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence

from tests.brokers.kafka import BROKER, KafkaBroker, password_of
from tests.brokers.maven import retrieve
from tests.brokers.nodes import SMALL_TOPICS
from tests.support.data import data_text
from tests.support.processes import free_ports
from tests.support.sandbox import kazoo

VERSION = "3.9.1"
COORDINATES = (
    f"org.apache.kafka:kafka_2.13:{VERSION}",
    # The binding of slf4j to the log4j that Kafka brings; Kafka itself leaves it to its distribution.
    "org.slf4j:slf4j-reload4j:1.7.36",
)
USERS = ("admin", "alice")
"""Who has SCRAM credentials from the start; the password of each is made from the name (`password_of`)."""

_LOG4J = data_text("brokers/zookeeper_mode_log4j.properties")

_SERVER = data_text("brokers/zookeeper_mode.properties")
_CONTROLLER = data_text("brokers/migration_controller.properties")
# What the controller and a broker that takes part in a migration have in common.
_QUORUM = data_text("brokers/migration_quorum.properties")
_JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


class ZooKeeperModeBroker(KafkaBroker):
    """One broker on a ZooKeeper that is there: `zookeeper` is its connect string, where a missing chroot is created.

    The SASL_PLAINTEXT listener has the mechanism SCRAM-SHA-256; the credentials of `USERS` are in ZooKeeper before the
    broker starts. A context manager like `KafkaBroker`; `restart` starts it again on what it left.
    """

    version = VERSION
    coordinates: Sequence[str] = COORDINATES

    def __init__(
        self,
        zookeeper: str,
        *,
        settings: Mapping[str, str] | None = None,
        jvm_flags: Sequence[str] = (),
        heap: str = "512m",
        ready_seconds: float = 240,
    ) -> None:
        super().__init__(settings=settings, jvm_flags=jvm_flags, heap=heap, ready_seconds=ready_seconds)
        self.zookeeper = zookeeper
        self._quorum = ""

    def client(self, user: str | None = None) -> dict[str, str | int | float | bool]:
        settings = super().client(user)
        return settings if user is None else {**settings, "sasl.mechanism": "SCRAM-SHA-256"}

    def restart(self) -> None:
        """Ends the broker and starts it again, with the same ports and files. Raises RuntimeError as starting does."""
        self._end(BROKER)
        self._start_broker()

    @contextlib.contextmanager
    def migration_controller(self) -> Iterator[None]:
        """Runs a KRaft controller that the cluster can migrate to (KIP-866); it waits until the broker takes part.

        Both end with the context.
        """
        (port,) = free_ports(1)
        folder = self.folder / "controller"
        folder.mkdir()
        self._quorum = _QUORUM.format(controller=port)
        properties = folder / "controller.properties"
        properties.write_text(_CONTROLLER.format(controller=port, zookeeper=self.zookeeper, data=folder) + self._quorum)
        with kazoo(self.zookeeper) as client:
            cluster = json.loads(client.get("/cluster/id")[0])["id"]
        self._format_storage(properties, cluster)
        self._launch_node("controller", properties, self._options())
        try:
            yield
        finally:
            self._end(BROKER)  # before the controller, without which it would not end
            self._end("controller", patience_s=0)

    def migrate(self) -> None:
        """Starts the broker again as one that takes part: the controller copies ZooKeeper and takes it over."""
        properties = self.folder / "server.properties"
        properties.write_text(properties.read_text() + self._quorum)
        self.restart()

    def errors(self) -> list[str]:
        """What it has logged as an error since it was started for the first time."""
        log = (self.folder / "server.log").read_text(errors="replace")
        return [line for line in log.splitlines() if re.match(r"\[[^]]*\] (?:ERROR|FATAL) ", line)]

    def _start(self) -> None:
        self._jars = retrieve(f"kafka-{self.version}-zookeeper", self.coordinates)
        plain, sasl = free_ports(2)
        self.bootstrap, self.sasl_bootstrap = f"127.0.0.1:{plain}", f"127.0.0.1:{sasl}"
        server = _SERVER.format(zookeeper=self.zookeeper, plain=plain, sasl=sasl, data=self.folder / "data", jaas=_JAAS)
        extra = SMALL_TOPICS + "".join(f"{key}={value}\n" for key, value in self._settings.items())
        (self.folder / "server.properties").write_text(server + extra)
        (self.folder / "log4j.properties").write_text(_LOG4J.format(server_log=self.folder / "server.log"))
        self._add_credentials()
        self._start_broker()

    def _add_credentials(self) -> None:
        """What administrators do before the first broker starts ("Creating SCRAM Credentials" of the documentation)."""
        hosts, slash, chroot = self.zookeeper.partition("/")
        with kazoo(hosts) as client:
            client.ensure_path(slash + chroot)
        with kazoo(self.zookeeper) as client:
            for user in USERS:
                config = {"version": 1, "config": {"SCRAM-SHA-256": scram_credential(password_of(user))}}
                client.ensure_path("/config/users")
                client.create(f"/config/users/{user}", json.dumps(config, separators=(",", ":")).encode())

    def _start_broker(self) -> None:
        self._run(self.folder / "server.properties", self._options())

    def _options(self) -> tuple[str, ...]:
        return (f"-Xmx{self._heap}", f"-Dlog4j.configuration=file:{self.folder / 'log4j.properties'}", *self._jvm_flags)


def scram_credential(password: str, iterations: int = 4096) -> str:
    """A SCRAM-SHA-256 credential as Kafka's tool stores it (RFC 5802, `ScramCredentialUtils.credentialToString`)."""
    salt = os.urandom(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    parts = {"salt": salt, "stored_key": stored, "server_key": hmac.digest(salted, b"Server Key", "sha256")}
    texts = [f"{name}={base64.b64encode(part).decode()}" for name, part in parts.items()]
    return ",".join([*texts, f"iterations={iterations}"])
