"""A real Kafka broker, with its controller, in one JVM: jars by Maven, or of the Kafka that KAFKA_HOME names."""

import base64
import os
import re
import subprocess
import uuid
from collections.abc import Collection, Sequence
from importlib.resources import files
from pathlib import Path

from kquota.access import Access
from kquota.backends import cluster_of
from kquota.documents.encoding import write_text
from kquota.documents.foreign.prometheus import shipped
from kquota.errors import InputError, KquotaError, MissingDependency, Unreachable
from kquota.sandbox import HOST, JVM_FLAGS, Server, free_port, maven, write_config
from kquota.state import own_folder

KAFKA = "4.4.0"
"""The release whose jars Maven retrieves."""
_EXPORTER = "1.0.1"
_FORMAT_TIMEOUT_S = 60
_LISTENERS = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", "SASL_PLAINTEXT": "SASL_PLAINTEXT"}
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_CLIENTS = "clients"
_CLIENT = """\
bootstrap.servers={login}
security.protocol=SASL_PLAINTEXT
sasl.mechanism=PLAIN
sasl.jaas.config={plain} required username="{user}" password="{user}";
"""


class Broker(Server):
    """A broker that keeps all in the folder: `data`, `broker.log`, `kafka-request.log`, `clients`.

    The logger of requests is on WARN, as Kafka ships it: `kquota record` switches it on. `metrics` is the page of the
    JMX exporter with the rules of `kquota generate jmx-exporter`; None where there is no Maven to get it. At `login`
    alice, bob and `users` log in, and whoever an earlier start named. `logins` finds their files.
    """

    title = "broker"
    config_file = "server.properties"
    port_line = r"^listeners=PLAINTEXT://[0-9.]+:(\d{1,5}),"
    log_file = "broker.log"
    request_log = "kafka-request.log"

    def __init__(self, users: Collection[str] = ()) -> None:
        self._users = users

    def prepare(self, folder: Path, port: int, java: str) -> Sequence[str]:
        """As `Server` says; also Unreachable where Maven or the formatting fails, InputError for a user's name."""
        controller = free_port()
        self.login = f"{HOST}:{free_port()}"
        data = folder / "data"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{HOST}:{controller}",
            "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller},SASL_PLAINTEXT://{self.login}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in _LISTENERS.items()),
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": self._jaas(folder),
            "log.dirs": data.as_posix(),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
        }
        properties = folder / self.config_file
        write_config(properties, settings)
        logging = (files("kquota.sandbox") / "log4j2.properties").read_text(encoding="utf-8")
        (folder / "log4j2.properties").write_text(logging.replace("{folder}", folder.as_posix()), encoding="utf-8")
        jvm = [*JVM_FLAGS, "-Xmx512m", f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}", "-cp", _jars()]
        if _cluster_id(folder) is None:
            # Kafka's tools take an id with a leading hyphen for an option.
            id = "k" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]
            _run([java, *jvm, "kafka.tools.StorageTool", "format", "-t", id, "-c", str(properties)])
        return [*self._exporter(folder), *jvm, "kafka.Kafka", str(properties)]

    def serves(self, folder: Path, port: int) -> bool:
        try:
            with Access(bootstrap_server=f"{HOST}:{port}", timeout_s=2.0).open() as backend:
                answers = cluster_of(backend)
                return answers is not None and answers.id == _cluster_id(folder)
        except KquotaError:
            return False

    def _jaas(self, folder: Path) -> str:
        """Who may log in; each has the settings of a client, for --command-config, in a file."""
        users = {"alice", "bob", *logins(folder), *self._users}
        for user in users:  # all of them before the first file, which would make the folder look like somebody else's
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", user):
                raise InputError(f"{user!r} cannot be a user of the sandbox", hint="letters, digits, '.', '_' and '-'")
        for user in users:
            file = folder / _CLIENTS / f"{user}.properties"
            file.parent.mkdir(exist_ok=True)
            write_text(file, _CLIENT.format(login=self.login, plain=_PLAIN, user=user), mode=0o600)
        passwords = " ".join(f'user_{user}="{user}"' for user in sorted(users))
        return f"{_PLAIN} required {passwords};"

    def _exporter(self, folder: Path) -> list[str]:
        """The flag that opens the page of metrics."""
        name = f"jmx_prometheus_javaagent-{_EXPORTER}"
        try:
            jars = maven.retrieve(_cache() / name, [f"io.prometheus.jmx:jmx_prometheus_javaagent:{_EXPORTER}"])
        except (MissingDependency, Unreachable):
            return []
        rules, port = folder / "jmx-exporter.yaml", free_port()
        rules.write_text(shipped(rules.name), encoding="utf-8")
        self.metrics = f"http://{HOST}:{port}/metrics"
        return [f"-javaagent:{jars / name}.jar={HOST}:{port}:{rules}"]


def logins(folder: Path) -> dict[str, str]:
    """The users of a sandbox's broker, each with its file for --command-config."""
    return {file.stem: str(file) for file in sorted((folder / _CLIENTS).glob("*.properties"))}


def _jars() -> str:
    """The class path of Kafka."""
    home = os.environ.get("KAFKA_HOME")
    if home:
        jars = Path(home) / "libs"
        if not list(jars.glob("kafka_*.jar")):
            raise MissingDependency(f"KAFKA_HOME is {home}, and {jars} has no kafka_*.jar", hint="unset it for Maven's")
        return f"{jars}/*"
    # The binding of slf4j 1.7 to log4j 2: Kafka leaves it to its distribution.
    wanted = [f"org.apache.kafka:kafka_2.13:{KAFKA}", "org.apache.logging.log4j:log4j-slf4j-impl:2.25.5"]
    try:
        return f"{maven.retrieve(_cache() / f'kafka-{KAFKA}', wanted)}/*"
    except MissingDependency as error:
        hint = f"{error.hint}; without --broker, the sandbox is a ZooKeeper, and needs no Maven"
        raise MissingDependency(error.message, hint=hint) from None


def _cache() -> Path:
    return own_folder("cache", "XDG_CACHE_HOME")


def _cluster_id(folder: Path) -> str | None:
    """The id with which the folder's storage was formatted; None where it was not."""
    try:
        text = (folder / "data" / "meta.properties").read_text(encoding="utf-8")
    except OSError:
        return None
    match = re.search(r"^cluster\.id=(.+)$", text, re.MULTILINE)
    return match[1] if match else None


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_FORMAT_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise Unreachable(
            f"the storage of the sandbox's broker was not formatted: {done.stderr or done.stdout}".strip()
        )
