"""A real Kafka broker from Maven artifacts: KRaft combined mode, loopback only, JSON request log on.

Since 4.4 Kafka's own quota tool, `org.apache.kafka.tools.ConfigCommand`, is in kafka-tools.
"""

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.brokers.maven import retrieve
from tests.brokers.nodes import SMALL, SMALL_TOPICS, Nodes, new_cluster_id, write_log4j2
from tests.support.data import data_text
from tests.support.processes import free_ports

VERSION = "4.4.0"
CONFIG_COMMAND = "org.apache.kafka.tools.ConfigCommand"
"""The main class of kafka-configs."""
NAME = f"kafka-{VERSION}"
"""The jars of that release, and the archive of their classes."""
COORDINATES = (
    f"org.apache.kafka:kafka_2.13:{VERSION}",
    f"org.apache.kafka:kafka-tools:{VERSION}",
    # The binding of slf4j 1.7 to the log4j-core that kafka-server brings; Kafka itself leaves it to its distribution.
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.5",
)
AT_ONCE = {"controller.quorum.append.linger.ms": "0"}
"""Settings of a broker that writes at once: a controller waits up to 25 ms for more to write."""
USERS = ("admin", "alice", "bob", "carol", "dave", "erin", "frank", "grace")
"""The users of the SASL listener; the password of each is made from the name (`password_of`)."""

BROKER = "broker"
"""The name of the process."""

_PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SERVER = data_text("brokers/combined.properties")


def password_of(user: str) -> str:
    """The made-up password of a user of the test broker."""
    return f"{user}-secret"


@dataclass(frozen=True)
class Listener:
    """A listener besides the usual ones: its settings are those of server.properties without `listener.name.….`."""

    name: str
    protocol: str
    settings: Mapping[str, str] = field(default_factory=dict)


_AS_SHIPPED = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)


class KafkaBroker(Nodes):
    """One broker with its controller, as a context manager; everything it writes is in a temporary folder.

    `settings` are added to server.properties (later lines win, so they also replace), `listeners` to the usual two,
    `jvm_flags` to the broker's command line. `log_time` is the pattern of the request log's times, `log_level` its
    level (None: the root's, which is WARN); `logging` replaces the settings of log4j 2. Raises RuntimeError with the
    tail of the broker's output when it does not start within `ready_seconds`.
    """

    version = VERSION
    coordinates: Sequence[str] = COORDINATES
    _patience_s = 15

    def __init__(
        self,
        *,
        settings: Mapping[str, str] | None = None,
        listeners: Sequence[Listener] = (),
        jvm_flags: Sequence[str] = (),
        heap: str = "512m",
        ready_seconds: float = 240,
        log_time: str = "%d",
        log_level: str | None = "debug",
        logging: Path | None = None,
    ) -> None:
        super().__init__("kafka")
        self._log_time = log_time
        self._log_level = log_level
        self._logging = logging
        self._settings = dict(settings or {})
        self._listeners = (Listener("PLAINTEXT", "PLAINTEXT"), Listener("SASL_PLAINTEXT", "SASL_PLAINTEXT"), *listeners)
        self._jvm_flags = tuple(jvm_flags)
        self._heap = heap
        self._ready_seconds = ready_seconds
        self._launched: tuple[Path, Sequence[str]] | None = None
        self.bootstrap = ""
        """host:port of the PLAINTEXT listener (principal User:ANONYMOUS)."""
        self.sasl_bootstrap = ""
        """host:port of the SASL_PLAINTEXT listener, mechanism PLAIN, users `USERS`."""
        self.controller = ""
        """host:port of the controller."""
        self.addresses: Mapping[str, str] = {}
        """host:port of each listener of the broker, by its name."""

    @property
    def request_log(self) -> Path:
        """The JSON request log, times in UTC; complete up to the last answered request."""
        return self.folder / "kafka-request.log"

    def client(self, user: str | None = None) -> dict[str, str | int | float | bool]:
        """Connection settings for confluent-kafka: as that user, or on the PLAINTEXT listener without one."""
        if user is None:
            return {"bootstrap.servers": self.bootstrap}
        return {
            "bootstrap.servers": self.sasl_bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": password_of(user),
        }

    def java_client(self, user: str) -> Mapping[str, str]:
        """The settings of a Java client for that user."""
        login = f'{_PLAIN_LOGIN} required username="{user}" password="{password_of(user)}";'
        return {
            "bootstrap.servers": self.sasl_bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": login,
        }

    def kafka_configs(
        self,
        *args: str,
        bootstrap: str | None = None,
        jvm_flags: tuple[str, ...] = (),
        as_shipped: bool = False,
        timeout: float = 240,
    ) -> subprocess.CompletedProcess[str]:
        """Runs Kafka's own kafka-configs against this broker; output is captured.

        `--bootstrap-server` is added: the PLAINTEXT listener, or that address. `as_shipped` starts the JVM as
        `kafka-run-class.sh` does, otherwise it starts quickly.
        """
        where = ("--bootstrap-server", bootstrap or self.bootstrap)
        base = _AS_SHIPPED if as_shipped else SMALL
        command = self.command(CONFIG_COMMAND, *where, *args, options=jvm_flags, base=base)
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)

    def kill(self) -> None:
        """Ends the broker without a warning; its files stay."""
        self._end(BROKER, patience_s=0)

    def start_again(self) -> None:
        """Starts a broker that was killed on what it left, at its old addresses, and waits until it answers."""
        assert self._launched is not None, "the broker was never started"
        assert BROKER not in self._running, "the broker runs"
        self._run(*self._launched)

    def _start(self) -> None:
        self._jars = retrieve(f"kafka-{self.version}", self.coordinates)
        controller, *ports = free_ports(1 + len(self._listeners))
        self.controller = f"127.0.0.1:{controller}"
        self.addresses = {each.name: f"127.0.0.1:{port}" for each, port in zip(self._listeners, ports, strict=True)}
        self.bootstrap, self.sasl_bootstrap = self.addresses["PLAINTEXT"], self.addresses["SASL_PLAINTEXT"]
        users = " ".join(f'user_{user}="{password_of(user)}"' for user in USERS)
        server = _SERVER.format(
            listeners=",".join(f"{name}://{address}" for name, address in self.addresses.items()),
            protocols=",".join(f"{each.name}:{each.protocol}" for each in self._listeners),
            controller=controller,
            data=self.folder / "data",
            jaas=f"{_PLAIN_LOGIN} required {users};",
        )
        extra = SMALL_TOPICS + "".join(f"{key}={value}\n" for key, value in self._settings.items())
        for each in self._listeners:
            prefix = f"listener.name.{each.name.lower()}."
            extra += "".join(f"{prefix}{key}={value}\n" for key, value in each.settings.items())
        properties = self.folder / "server.properties"
        properties.write_text(server + extra)
        logging = self._logging or write_log4j2(self.folder, time=self._log_time, level=self._log_level)
        self._format_storage(properties, new_cluster_id())
        options = (
            f"-Xmx{self._heap}",
            "-Duser.timezone=UTC",
            f"-Dlog4j2.configurationFile={logging}",
            f"-Dkafka.logs.dir={self.folder}",
            *self._jvm_flags,
        )
        self._run(properties, options)

    def _run(self, properties: Path, options: Sequence[str]) -> None:
        """Starts the broker's process and waits until it answers on both listeners."""
        self._launched = properties, options
        self._launch_node(BROKER, properties, options)
        for user in (None, "admin"):
            self._await_brokers("the broker", self.client(user), 1, self._ready_seconds)
