"""What all of Kafka's processes in the tests have in common: jars, command lines, storage, and when they are up."""

import base64
import hashlib
import shutil
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.data import data_text
from tests.support.processes import Processes, archived, java

SMALL = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
"""How a JVM starts quickly, and stays small."""
SMALL_TOPICS = data_text("brokers/small_topics.properties")
"""Settings of a broker whose own topics are small, and that makes no others by itself."""
MICROSECONDS = "%d{yyyy-MM-dd HH:mm:ss,SSSSSS}"
"""Times of the request log that log4j 2 can print and log4j 1 cannot."""
_META = "meta.properties"
"""The file that holds the ids of a node; beside it are the features that it begins with."""
_LOG4J2 = data_text("brokers/log4j2.properties")


def new_cluster_id() -> str:
    """A cluster's id, drawn as Kafka's `Uuid.randomUuid` does it: a random UUID in URL-safe Base64.

    Kafka's tools take an id with a leading `-` for an option, so such an id is drawn again. Kafka's reserved ids are
    no random UUIDs, which carry their version.
    """
    while (drawn := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return drawn


def write_log4j2(folder: Path, *, time: str = "%d", level: str | None = "debug", more: str = "") -> Path:
    """The settings of log4j 2 for a node in that folder: `kafka-request.log` and `server.log` there; `more` lines.

    Without a `level`, the request logger has that of the root.
    """
    file = folder / "log4j2.properties"
    request_level = "" if level is None else f"logger.request.level = {level}\n"
    file.write_text(_LOG4J2.format(folder=folder, time=time, request_level=request_level) + more)
    return file


def _settings_of(properties: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in properties.read_text().splitlines() if "=" in line)


class Nodes(Processes):
    """Brokers and controllers: processes of one release of Kafka, whose jars `_start` retrieves first of all."""

    _jars: Path | None = None

    def command(self, main: str, *args: str, options: Sequence[str] = (), base: Sequence[str] = SMALL) -> list[str]:
        """The command line that runs a class of this release; `options` of the JVM come last, so they win."""
        assert self._jars is not None, f"no {self._name} is started"
        shared = archived(self._jars.name) if base is SMALL else ()
        return [java(), "-Xmx256m", *base, *shared, *options, "-cp", f"{self._jars}/*", main, *args]

    def run_tool(self, main: str, *args: str, options: Sequence[str] = ()) -> None:
        """Runs one of Kafka's tools. Raises RuntimeError when it fails."""
        command = self.command(main, *args, options=options)
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{main} failed: {done.stdout}{done.stderr}")

    def _format_storage(self, properties: Path, cluster_id: str, options: Sequence[str] = ()) -> None:
        """Prepares the log directory of a KRaft node, as Kafka's StorageTool does.

        The tool itself runs once for each kind of node and release: a JVM of its own costs as much as a third of a
        broker's start. Later nodes get a copy of what it wrote, with ids of their own.
        """
        settings = _settings_of(properties)
        folder = Path(settings["log.dirs"])
        template = self._storage_template(properties)
        if not template.exists():
            # A cluster that began in ZooKeeper mode has drawn its id itself: it may begin with a hyphen.
            tool = ("format", f"--cluster-id={cluster_id}", "-c", str(properties))
            self.run_tool("kafka.tools.StorageTool", *tool, options=options)
            draft = template.with_name(f"{template.name}.{uuid.uuid4().hex}")
            shutil.copytree(folder, draft, ignore=shutil.ignore_patterns(_META))
            try:
                draft.rename(template)
            except OSError:  # another worker was first
                shutil.rmtree(draft)
            return
        shutil.copytree(template, folder, dirs_exist_ok=True)
        ids = {"node.id": settings["node.id"], "directory.id": new_cluster_id(), "cluster.id": cluster_id}
        (folder / _META).write_text("version=1\n" + "".join(f"{name}={value}\n" for name, value in ids.items()))

    def _storage_template(self, properties: Path) -> Path:
        """Where the features of such a node are kept; the settings of the quorum and of versions decide them."""
        kinds = ("process.roles", "controller.quorum.", "zookeeper.metadata.", "inter.broker.protocol.", "unstable.")
        chosen = sorted(
            f"{name}={'' if name.startswith('controller.quorum.') else value}"
            for name, value in _settings_of(properties).items()
            if name.startswith(kinds)
        )
        assert self._jars is not None, f"no {self._name} is started"
        return self._jars / f"{hashlib.sha256(repr(chosen).encode()).hexdigest()[:16]}.storage"

    def _launch_node(self, name: str, properties: Path, options: Sequence[str]) -> None:
        """Starts a node in the folder of its properties."""
        self._launch(name, self.command("kafka.Kafka", str(properties), options=options), properties.parent)

    def _await_brokers(
        self, what: str, client: Mapping[str, str | int | float | bool], count: int, seconds: float
    ) -> None:
        """Returns once so many brokers are members for that client of confluent-kafka."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        # Quiet: refused connections are what waiting looks like.
        admin = AdminClient({**client, "log_level": 0, "reconnect.backoff.max.ms": 200})
        self._await(what, lambda: len(admin.list_topics(timeout=5).brokers) >= count, seconds, KafkaException)

    def _logs(self) -> list[Path]:
        folders = {output.parent for output in self._outputs.values()}
        return [*super()._logs(), *sorted(folder / "server.log" for folder in folders)]
