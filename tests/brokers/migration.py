"""A real migration from ZooKeeper to KRaft by Kafka 3.7.0, which damaged quotas: loopback only."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

from kazoo.client import KazooClient

from kquota.backends.kafka.migrated import MigratedQuotas
from kquota.errors import KquotaError
from tests.brokers.kafka import free_ports, java
from tests.brokers.maven import retrieve

VERSION = "3.7.0"
COORDINATES = (
    f"org.apache.kafka:kafka_2.13:{VERSION}",
    # The binding of slf4j to the log4j that Kafka brings; Kafka itself leaves it to its distribution.
    "org.slf4j:slf4j-reload4j:1.7.36",
)
_READY_S = 120
_LOG4J = """\
log4j.rootLogger=WARN, out
log4j.logger.org.apache.kafka.metadata.migration=INFO
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


class Migration:
    """A broker in ZooKeeper mode and a KRaft controller that has taken over its metadata, as a context manager.

    `zookeeper` is the connect string of the ensemble, whose quotas are there before. At first the broker still runs
    with ZooKeeper; `finish` starts it again with KRaft. Changes go to both sides all the time. Raises RuntimeError with
    the tail of a node's output when something does not come about in time.
    """

    def __init__(self, zookeeper: str) -> None:
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
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._folder: Path | None = None
        self._jars: Path | None = None

    def __enter__(self) -> Migration:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def finish(self) -> None:
        """Starts the broker again, with KRaft."""
        broker = self._processes.pop("broker")
        broker.terminate()
        broker.wait(30)
        listeners = {"listeners": f"PLAINTEXT://{self.bootstrap}", "log.dirs": str(self.folder / "broker")}
        self._run("kraft-broker", {"process.roles": "broker", "node.id": "0", **listeners, **self._common})

        def serves() -> bool:
            with MigratedQuotas(self.bootstrap, timeout_s=2) as quotas:
                return bool(quotas.read())

        self._await("a broker with KRaft", serves)

    def stop(self) -> None:
        """Ends the nodes that were started here, and removes their files."""
        processes, self._processes = list(self._processes.values())[::-1], {}
        for process in processes:
            process.kill()
            process.wait(15)
        folder, self._folder = self._folder, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    @property
    def folder(self) -> Path:
        """Where the nodes keep their files while they run."""
        assert self._folder is not None, "the cluster is not started"
        return self._folder

    def _start(self) -> None:
        self._jars = retrieve(f"kafka-{VERSION}", COORDINATES)
        self._folder = Path(tempfile.mkdtemp(prefix="kquota-migration-"))
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
        client = KazooClient(self._zookeeper["zookeeper.connect"])
        client.start()
        try:
            self._run("broker", {**broker, **self._zookeeper, **self._common})
            self._await("a broker with ZooKeeper", lambda: client.exists("/brokers/ids/0") is not None)
            cluster = json.loads(client.get("/cluster/id")[0])["id"]
        finally:
            client.stop()
            client.close()
        properties = self._properties("controller", {**controller, **self._zookeeper, **self._common})
        command = self._java("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties))
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"formatting the storage failed: {done.stdout}{done.stderr}")
        self._run("controller", {**controller, **self._zookeeper, **self._common})
        completed = "Completed migration of metadata"
        self._await("the migration", lambda: completed in (self.folder / "controller.log").read_text())

    def _java(self, main: str, *arguments: str) -> list[str]:
        small = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
        logging = f"-Dlog4j.configuration=file:{self.folder / 'log4j.properties'}"
        return [java(), *small, logging, "-cp", f"{self._jars}/*", main, *arguments]

    def _properties(self, name: str, settings: Mapping[str, str]) -> Path:
        path = self.folder / f"{name}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return path

    def _run(self, name: str, settings: Mapping[str, str]) -> None:
        command = self._java("kafka.Kafka", str(self._properties(name, settings)))
        with (self.folder / f"{name}.log").open("wb") as output:
            self._processes[name] = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=self.folder)

    def _await(self, what: str, is_there: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _READY_S
        while True:
            try:
                if is_there():
                    return
            except KquotaError:
                pass  # not yet reachable, or still in the other mode
            if time.monotonic() > deadline or any(each.poll() is not None for each in self._processes.values()):
                tails = "\n".join((self.folder / f"{name}.log").read_text()[-2000:] for name in self._processes)
                raise RuntimeError(f"{what} did not come about:\n{tails}")
            time.sleep(0.1)
