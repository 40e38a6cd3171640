"""The embedded ZooKeeper: it serves, it ends, and it touches nothing that is not its own."""

import json
import socket
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from kquota import InputError, MissingDependency, Refused, Unreachable, sandbox
from kquota.cli.commands.record import appender_text
from kquota.cli.commands.sandbox import command
from kquota.sandbox import broker
from tests.support.processes import ran
from tests.support.sandbox import Sandbox


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() != b""
    except OSError:
        return False


def test_it_lives_as_long_as_its_block() -> None:
    with Sandbox() as server:
        pid = server.pid
        assert pid is not None
        assert server.connect == f"127.0.0.1:{server.port}"
        folder = server._folder
        assert folder is not None
        assert sandbox.ZooKeeper().serves(folder, server.port)
        server.start()
        assert server.pid == pid
    assert not alive(pid)
    assert not folder.exists()
    server.stop()


def test_it_listens_on_the_loopback_address_only(zookeeper: Sandbox) -> None:
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.2", zookeeper.port), timeout=10)


def test_it_has_room_for_many_entities_and_ends_where_it_has_not(zookeeper: Sandbox) -> None:
    """100,000 did not fit into 256 MiB, and a server without memory answered nobody and said nothing."""
    flags = Path(f"/proc/{zookeeper.pid}/cmdline").read_bytes().split(b"\0")
    assert {b"-Xmx1g", b"-XX:+ExitOnOutOfMemoryError"} <= set(flags)


def test_start_status_stop(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "zk"
    assert sandbox.status(folder) is None
    assert sandbox.stop(folder) is False
    state = sandbox.start(folder)
    try:
        assert sandbox.status(folder) == state
        assert sandbox.ZooKeeper().serves(Path(state.directory), state.port)
        document = json.loads((folder / "sandbox.json").read_text())
        assert (document["pid"], document["port"], document["directory"]) == (state.pid, state.port, str(folder))
        with pytest.raises(Refused, match="runs already"):
            sandbox.start(folder)
    finally:
        assert sandbox.stop(folder) is True
    assert not alive(state.pid)
    assert sandbox.status(folder) is None
    assert sandbox.stop(folder) is False
    # Its own folder is recognized, and its port is taken again, unless somebody else has it.
    assert sandbox.last_port(folder) == state.port
    with socket.create_server(("127.0.0.1", state.port)):
        again = sandbox.start(folder)
        assert sandbox.stop(folder) is True
    assert again.port != state.port


def test_a_start_of_the_sandbox_that_runs_prints_where_it_serves(tmp_path: Path) -> None:
    """So that `export KQUOTA_ZOOKEEPER=$(kquota sandbox start)` works in a second shell."""
    folder = tmp_path / "zk"
    state = sandbox.start(folder)
    try:
        for arguments in ([], ["--port", str(state.port)]):
            again = CliRunner().invoke(command, ["start", "--dir", str(folder), *arguments])
            assert (again.exit_code, again.stdout) == (0, f"{state.connect}\n")
            assert "runs already" in again.stderr
        with pytest.raises(Refused, match="runs already"):
            CliRunner().invoke(
                command, ["start", "--dir", str(folder), "--port", "1"], catch_exceptions=False, standalone_mode=False
            )
        assert sandbox.status(folder) == state
    finally:
        sandbox.stop(folder)


def test_it_outlives_the_process_that_started_it(tmp_path: Path) -> None:
    code = "import sys, pathlib; from kquota import sandbox; print(sandbox.start(pathlib.Path(sys.argv[1])).pid)"
    done = ran([sys.executable, "-c", code, tmp_path])
    try:
        state = sandbox.status(tmp_path)
        assert state is not None
        assert state.pid == int(done.stdout)
    finally:
        assert sandbox.stop(tmp_path) is True
    assert done.stderr == ""


def test_only_their_owner_reads_the_files_with_passwords(tmp_path: Path) -> None:
    server = broker.Broker()
    server.login = "127.0.0.1:9093"
    server._jaas(tmp_path)
    assert {file.stat().st_mode & 0o777 for file in tmp_path.glob("clients/*.properties")} == {0o600}


def test_the_brokers_request_log_has_microseconds() -> None:
    """As `record --appender` advises: with milliseconds, an audit of the first probe contradicts the log."""
    times = "[%d{yyyy-MM-dd HH:mm:ss,SSSSSS}] %p %m (%c)%n"
    assert times in appender_text("log4j2")
    assert f"request.layout.pattern = {times}\n" in Path(broker.__file__).with_name("log4j2.properties").read_text()


def test_without_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(MissingDependency, match="needs Java") as error, Sandbox():
        pass
    assert "Java 17 or later" in str(error.value.hint)


def test_a_failed_start_is_told_and_cleaned_up() -> None:
    server = Sandbox(extra_config={"tickTime": "never"})
    with pytest.raises(Unreachable, match="ended with code"):
        server.start()
    assert server._folder is None
    assert server.pid is None


def test_a_wrong_name_of_a_user_leaves_the_folder_empty(tmp_path: Path) -> None:
    """So that the same folder serves the next start, with the right name."""
    with pytest.raises(InputError, match="'R&D' cannot be a user"):
        broker.Broker(["carol", "R&D"]).prepare(tmp_path, 1, "java")
    assert not [*tmp_path.iterdir()]
