"""A real ZooKeeper or a real broker on the loopback address: for demos, tests and first steps.

`start`, `status` and `stop` keep a detached server in a folder of its own. `ZooKeeper` runs from the jars of PySpark's
wheel, and `kquota.sandbox.broker.Broker` from Kafka's jars.
"""

import contextlib
import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from kquota.documents.encoding import write_text
from kquota.errors import InputError, KquotaError, MissingDependency, Refused, Unreachable
from kquota.files import java_program

HOST = "127.0.0.1"
STATE_FILE = "sandbox.json"

# What a plain ZooKeeper needs of PySpark's 280 jars: it starts in a third of the time that all of them take.
JARS = (
    r"zookeeper-\d.*\.jar",
    r"zookeeper-jute-.*\.jar",
    r"slf4j-api-.*\.jar",
    r"metrics-core-.*\.jar",
    r"snappy-java-.*\.jar",
)
JVM_FLAGS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:+ExitOnOutOfMemoryError")
_MARKER = "-Dkquota.sandbox="
_CONFIG_HEAD = "# Written by kquota's sandbox; starting it again writes it anew.\n"
_STOP_TIMEOUT_S = 10.0
_PORT_TIMEOUT_S = 2.0
_PORT_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class SandboxState:
    """A running sandbox: its process, its port on the loopback address, its folder."""

    pid: int
    port: int
    directory: str
    token: str
    """Marks the process's command line, so that a recycled pid is not taken for it."""
    metrics: str | None = None
    """The page of a broker's metrics."""
    login: str | None = None
    """The address where a broker's users log in."""

    @property
    def connect(self) -> str:
        """The address that clients connect to."""
        return f"{HOST}:{self.port}"


class Server(Protocol):
    """What a sandbox runs: one JVM with a port on the loopback address."""

    title: str
    config_file: str
    """In the sandbox's folder; its first line marks the folder as a sandbox's."""
    port_line: str
    """The pattern of the line there that names the port."""
    log_file: str
    request_log: str | None = None
    patience_s: float = 90.0
    """How long a start may take."""
    metrics: str | None = None
    login: str | None = None

    def prepare(self, folder: Path, port: int, java: str) -> Sequence[str]:
        """Writes what the server reads, and returns the JVM's arguments. Raises MissingDependency."""

    def serves(self, folder: Path, port: int) -> bool:
        """Whether the server of that folder answers on the port; another one may have taken the port first."""


class ZooKeeper(Server):
    """A ZooKeeper; its attributes may be replaced before it is started."""

    title = "ZooKeeper"
    config_file = "zoo.cfg"
    port_line = r"^clientPort=(\d{1,5})$"
    log_file = "zookeeper.log"
    config: Mapping[str, str] = MappingProxyType({})
    """More lines of zoo.cfg."""
    # A hundred thousand entities, and the requests that write them at once, do not fit into 256 MiB.
    jvm_flags: Sequence[str] = (*JVM_FLAGS, "-Xmx1g")
    jars: Sequence[str] = JARS

    def prepare(self, folder: Path, port: int, java: str) -> Sequence[str]:
        # ZooKeeper reads a backslash as an escape, hence the POSIX form.
        settings = {
            "dataDir": (folder / "data").as_posix(),
            "clientPortAddress": HOST,
            "clientPort": str(port),
            "tickTime": "500",
            "maxClientCnxns": "0",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
            **self.config,
        }
        write_config(folder / self.config_file, settings)
        classpath = os.pathsep.join(str(jar) for jar in pyspark_jars(self.jars))
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        return [*self.jvm_flags, "-cp", classpath, main, str(folder / self.config_file)]

    def serves(self, folder: Path, port: int) -> bool:
        try:
            with socket.create_connection((HOST, port), timeout=1.0) as connection:
                connection.sendall(b"conf")
                answer = b""
                while chunk := connection.recv(4096):
                    answer += chunk
        except OSError:
            return False
        # The JVM's locale decides what becomes of other characters.
        data = (folder / "data").as_posix()
        return f"dataDir={data if data.isascii() else ''}".encode() in answer


def start(directory: Path, port: int | None = None, server: Server | None = None) -> SandboxState:
    """Starts a detached server, else a ZooKeeper, that keeps its data in the folder, and waits until it serves.

    A missing folder is created. Without a port, the folder's last port is taken again, so that addresses stay what they
    were. Where somebody else has that port now, a free one is taken. Raises InputError for a folder that holds
    something else or a port that is taken; Refused when its sandbox runs already; MissingDependency without PySpark or
    Java; Unreachable when it does not start.
    """
    directory, chosen = directory.absolute(), server or ZooKeeper()
    if port is not None and not 0 < port < 65536:
        raise InputError(f"{port} is not a port")
    running = status(directory)
    if running is not None:
        raise Refused(f"the sandbox in {directory} runs already at {running.connect}", hint="stop it first")
    _claim(directory, chosen)
    if port is not None and _is_taken(port):
        raise InputError(f"port {port} is taken", hint="choose another, or none for a free one")
    token = uuid.uuid4().hex
    last = last_port(directory, chosen)
    if port is None and last is not None and not _is_taken(last):
        port = last
    process, port = launch(chosen, directory, port, token, True)
    state = SandboxState(process.pid, port, str(directory), token, chosen.metrics, chosen.login)
    try:
        write_text(directory / STATE_FILE, json.dumps(asdict(state)) + "\n")
    except BaseException:
        end(process)
        raise
    # From here on nobody waits for the child: it outlives this process on purpose.
    process.returncode = 0
    return state


def last_port(directory: Path, server: Server | None = None) -> int | None:
    """The port that the folder's sandbox serves or served on; None where there was none."""
    server = server or ZooKeeper()
    try:
        config = (directory / server.config_file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    named = re.search(server.port_line, config, re.MULTILINE) if config.startswith(_CONFIG_HEAD) else None
    return int(named[1]) if named else None


def status(directory: Path) -> SandboxState | None:
    """The sandbox that runs in the folder, or None. A stale or broken state file counts as none."""
    try:
        document = json.loads((directory.absolute() / STATE_FILE).read_text(encoding="utf-8"))
        state = SandboxState(int(document["pid"]), int(document["port"]), str(directory.absolute()), document["token"])
        state = replace(state, metrics=document.get("metrics"), login=document.get("login"))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return state if _is_ours(state.pid, state.token) else None


def stop(directory: Path) -> bool:
    """Ends the sandbox of the folder and keeps its data; False when none runs. Raises Unreachable if it stays."""
    state = status(directory)
    if state is not None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.kill(state.pid, number)
            if _wait_until(lambda: not _is_ours(state.pid, state.token), _STOP_TIMEOUT_S):
                break
        else:
            raise Unreachable(f"the sandbox in {state.directory} (process {state.pid}) does not end")
        # A dying process loses its command line a moment before its sockets: the port is free when this returns.
        port = state.port
        _wait_until(lambda: not _is_taken(port), _PORT_TIMEOUT_S)
    (directory.absolute() / STATE_FILE).unlink(missing_ok=True)
    return state is not None


def pyspark_jars(patterns: Sequence[str]) -> list[Path]:
    """PySpark's jars whose file names match. Raises MissingDependency without PySpark or one of the jars."""
    # Found, not imported: importing pyspark takes longer than starting ZooKeeper.
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise MissingDependency("the sandbox needs PySpark's jars, and PySpark is not installed", extra="sandbox")
    folder = Path(spec.origin).parent / "jars"
    names = sorted(path.name for path in folder.glob("*.jar"))
    jars: list[Path] = []
    for pattern in patterns:
        matching = [name for name in names if re.fullmatch(pattern, name)]
        if not matching:
            raise MissingDependency(
                f"the installed PySpark has no jar {pattern}", hint="kquota needs PySpark 4.0 or later"
            )
        jars.extend(folder / name for name in matching)
    return jars


def _claim(directory: Path, server: Server) -> None:
    """Makes the folder, or recognizes it as a sandbox's; raises InputError for any other folder that is not empty."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        config = directory / server.config_file
        own = config.is_file() and config.read_text(encoding="utf-8", errors="replace").startswith(_CONFIG_HEAD)
        if not own and any(directory.iterdir()):
            raise InputError(f"{directory} holds something else", hint="a sandbox needs a folder of its own")
    except OSError as error:
        raise InputError(f"{directory} cannot hold a sandbox: {error.strerror or error}") from None


def launch(
    server: Server, folder: Path, port: int | None, token: str, detached: bool
) -> tuple[subprocess.Popen[bytes], int]:
    """Starts a server and waits until it serves; returns its process and its port, a free one unless one is given.

    Raises MissingDependency without Java, and Unreachable when it does not start.
    """
    # A free port can be lost to someone else, hence another attempt.
    java = java_program()
    if java is None:
        raise MissingDependency(
            "the sandbox needs Java, and there is no java on the PATH", hint="install Java 17 or later"
        )
    for attempt in range(1, _PORT_ATTEMPTS + 1):
        chosen = port if port is not None else free_port()
        arguments = server.prepare(folder, chosen, java)
        with (folder / server.log_file).open("wb") as log:
            try:
                process = subprocess.Popen(
                    [java, f"{_MARKER}{token}", *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=folder,
                    start_new_session=detached,
                )
            except OSError as error:
                raise MissingDependency(f"java cannot be started: {error.strerror or error}") from None
        try:
            if _wait_until(partial(_settled, server, process, folder, chosen), server.patience_s):
                if process.poll() is None:
                    return process, chosen
                if port is None and attempt < _PORT_ATTEMPTS and _is_taken(chosen):
                    continue
                raise _start_failure(server, folder, f"ended with code {process.returncode}")
            raise _start_failure(server, folder, f"does not serve after {server.patience_s:g} s")
        except BaseException:
            end(process)
            raise
    raise AssertionError("unreachable")


def write_config(file: Path, settings: Mapping[str, str]) -> None:
    """Writes a server's settings, marked as a sandbox's."""
    lines = "".join(f"{name}={value}\n" for name, value in settings.items())
    file.write_text(_CONFIG_HEAD + lines, encoding="utf-8")


def _start_failure(server: Server, folder: Path, what: str) -> KquotaError:
    try:
        log = (folder / server.log_file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        log = ""
    if "UnsupportedClassVersionError" in log or "Unrecognized VM option" in log:
        return MissingDependency("the java on the PATH is too old for the sandbox", hint="install Java 17 or later")
    # The first line that is not about the missing log binding says most.
    lines = [line.strip() for line in log.splitlines() if line.strip() and not line.startswith("SLF4J")]
    return Unreachable(f"the sandbox's {server.title} {what}" + (f": {lines[0]}" if lines else ""))


def _settled(server: Server, process: subprocess.Popen[bytes], folder: Path, port: int) -> bool:
    return process.poll() is not None or server.serves(folder, port)


def free_port() -> int:
    """A port of the loopback address that nobody has now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _is_taken(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return True
    return False


def _is_ours(pid: int, token: str) -> bool:
    """Whether that process lives and its command line carries the token."""
    if pid <= 1:
        return False
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        if Path("/proc/self").exists():
            return False
        listing = subprocess.run(["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, check=False)
        command = listing.stdout
    return f"{_MARKER}{token}".encode() in command


def end(process: subprocess.Popen[bytes]) -> None:
    """Ends a server that was launched, and waits for that."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()


def _wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
