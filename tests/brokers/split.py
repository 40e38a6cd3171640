"""A KRaft cluster whose controllers are processes of their own: two of them, of which one is active, and a broker."""

from __future__ import annotations

import base64
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from pathlib import Path
from types import TracebackType

from kquota.backends.kafka import KafkaBackend
from kquota.errors import KquotaError
from tests.brokers.kafka import COORDINATES, VERSION, free_ports, java
from tests.brokers.maven import retrieve

_READY_S = 90

_NODE = """\
process.roles={role}
node.id={node}
controller.quorum.voters={voters}
listeners={listener}://127.0.0.1:{port}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={data}
log.cleaner.dedupe.buffer.size=2097152
"""
_LOG4J2 = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
rootLogger.level = error
rootLogger.appenderRef.out.ref = out
"""


class SplitCluster:
    """Controllers 1 and 2 and broker 3, as a context manager; loopback only, files in a temporary folder.

    Raises RuntimeError with the tail of a node's output when the broker does not serve quotas in time.
    """

    def __init__(self) -> None:
        ports = free_ports(3)
        self._ports = dict(zip((1, 2, 3), ports, strict=True))
        self.controllers = tuple(f"127.0.0.1:{port}" for port in ports[:2])
        """host:port of each controller."""
        self.broker = f"127.0.0.1:{ports[2]}"
        """host:port of the broker."""
        self._processes: list[subprocess.Popen[bytes]] = []
        self._folder: Path | None = None

    def __enter__(self) -> SplitCluster:
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

    def stop(self) -> None:
        """Ends the nodes that were started here, the broker first, and removes their files."""
        processes, self._processes = self._processes[::-1], []
        for process in processes:
            process.send_signal(signal.SIGKILL)
            process.wait(15)
        folder, self._folder = self._folder, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    def _start(self) -> None:
        jars = retrieve(f"kafka-{VERSION}", COORDINATES)
        folder = self._folder = Path(tempfile.mkdtemp(prefix="kquota-split-"))
        (folder / "log4j2.properties").write_text(_LOG4J2)
        small = ("-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
        launcher = [java(), *small, f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}", "-cp", f"{jars}/*"]
        voters = ",".join(f"{node}@127.0.0.1:{self._ports[node]}" for node in (1, 2))
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        for node, port in self._ports.items():
            is_broker = node == 3
            properties = folder / f"{node}.properties"
            properties.write_text(
                _NODE.format(
                    role="broker" if is_broker else "controller",
                    listener="PLAINTEXT" if is_broker else "CONTROLLER",
                    node=node,
                    voters=voters,
                    port=port,
                    data=folder / f"data-{node}",
                )
            )
            done = subprocess.run(
                [*launcher, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties)],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            if done.returncode != 0:
                raise RuntimeError(f"formatting the storage failed: {done.stdout}{done.stderr}")
            with (folder / f"{node}.log").open("wb") as output:
                command = [*launcher, "kafka.Kafka", str(properties)]
                process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=folder)
            self._processes.append(process)
        self._await_ready(folder)

    def _await_ready(self, folder: Path) -> None:
        """Returns once the broker serves quotas."""
        deadline = time.monotonic() + _READY_S
        while True:
            try:
                with KafkaBackend(self.broker, timeout_s=2) as backend:
                    backend.describe()
                return
            except KquotaError as error:
                if time.monotonic() > deadline or any(process.poll() is not None for process in self._processes):
                    logs = "\n".join((folder / f"{node}.log").read_text()[-2000:] for node in self._ports)
                    raise RuntimeError(f"the cluster did not start: {error}\n{logs}") from None
                time.sleep(0.1)
