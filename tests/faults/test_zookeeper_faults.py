"""Writers that die, connections that break, writers that race: on a real ZooKeeper, at every step.

Run as a module with a file of jobs, it is the process that forks the writers: the test's own process has threads, and a
fork per writer is cheaper than an interpreter.
"""

import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kquota import Alteration, Entity, KquotaError, QuotaKey, Unreachable
from kquota.backends import znode
from kquota.backends.zookeeper import ZooKeeperBackend
from kquota.backends.zookeeper.session import Session
from kquota.core.quotas.quota import Value
from tests.support.processes import ran, stand_still
from tests.support.sandbox import Sandbox, kazoo
from tests.support.scheduling import examples
from tests.support.waiting import until

KEYS = [key for key in QuotaKey if key is not QuotaKey.CONNECTION_CREATION_RATE]
OLD = b'{"version":1,"config":{"SCRAM-SHA-256":"x","producer_byte_rate":"1"}}'

# --- The writers -------------------------------------------------------------------------------------------------


def die_at(step: int, how: str) -> None:
    """Has this process kill itself at its n-th message to ZooKeeper: before, in the middle of, or right after it."""
    from kazoo.protocol.connection import ConnectionHandler

    write = ConnectionHandler._write
    sent = 0

    def mortal(self: Any, message: bytes, timeout: float) -> None:
        nonlocal sent
        sent += 1
        if sent == step:
            if how == "within":
                write(self, message[: len(message) // 2], timeout)
            elif how == "after":
                write(self, message, timeout)
            os.kill(os.getpid(), signal.SIGKILL)
        write(self, message, timeout)

    ConnectionHandler._write = mortal


def alter_and_die(connect: str, entity: str, step: int, how: str) -> None:
    die_at(step, how)
    with ZooKeeperBackend(connect) as backend:
        (result,) = backend.alter([Alteration(Entity.parse(entity), {QuotaKey.PRODUCER_BYTE_RATE: 2})])
        assert result.error is None


def alter_in_turn(connect: str, writer: int, rounds: int, writers: int) -> None:
    """Writes cells (entity, key) of its own on nodes that all writers share, and checks each time what was there.

    Two writers never share a cell, so a value that is not the one written last is a lost update.
    """
    entities = [
        Entity(user="shared"),
        Entity(user="shared", client_id="app"),
        Entity(client_id="app"),
        Entity(user="CN=x"),
    ]
    cells = [(entity, key) for entity in entities for key in KEYS][writer::writers]
    written: dict[tuple[Entity, QuotaKey], float] = {}
    with ZooKeeperBackend(connect, timeout_s=30) as backend:
        for number in range(1, rounds + 1):
            entity, key = cells[number % len(cells)]
            (result,) = backend.alter([Alteration(entity, {key: number})])
            assert result.error is None, result.error
            assert result.before.get(key) == written.get((entity, key)), "a write of mine was lost"
            written[entity, key] = number


JOBS: dict[str, Callable[..., None]] = {"alter_and_die": alter_and_die, "alter_in_turn": alter_in_turn}


def main(jobs: list[list[Any]], at_once: int) -> list[int]:
    """Forks one process per job; returns their wait statuses as exit codes, negative for a signal."""
    import kazoo.client  # noqa: F401  (loaded once, before the forks)

    codes = dict.fromkeys(range(len(jobs)), 0)
    running: dict[int, int] = {}
    waiting = list(enumerate(jobs))
    while waiting or running:
        if waiting and len(running) < at_once:
            index, (name, *arguments) = waiting.pop(0)
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    JOBS[name](*arguments)
                    code = 0
                except BaseException as error:
                    print(f"{name}{arguments}: {error!r}", file=sys.stderr, flush=True)
                finally:
                    os._exit(code)
            running[pid] = index
        else:
            pid, status = os.wait()
            codes[running.pop(pid)] = os.waitstatus_to_exitcode(status)
    return [codes[index] for index in sorted(codes)]


def run(jobs: list[list[Any]], folder: Path, at_once: int) -> tuple[list[int], str]:
    """The exit codes of the jobs, and what they said on stderr."""
    file = folder / "jobs.json"
    file.write_text(json.dumps(jobs))
    done = ran([sys.executable, "-m", "tests.faults.test_zookeeper_faults", file, at_once])
    assert done.returncode == 0, done.stderr
    codes: list[int] = json.loads(done.stdout)
    return codes, done.stderr


if __name__ == "__main__":
    print(json.dumps(main(json.loads(Path(sys.argv[1]).read_text()), int(sys.argv[2]))))


# --- The tests ---------------------------------------------------------------------------------------------------

STEPS = 12
HOWS = ("before", "within", "after")
SCENARIOS = {
    "existing node": ("user=u", ["/config/users/u"]),
    "new node, missing parents": ("user=u", []),
    "new pair, missing parents": ("user=u,client-id=c", []),
    "new pair below a user": ("user=u,client-id=c", ["/config/users/u"]),
}


@pytest.fixture
def client(zookeeper: Sandbox) -> Any:
    with kazoo(zookeeper.connect) as client:
        yield client


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_writer_killed_at_any_step_leaves_both_or_neither(
    zookeeper: Sandbox, client: Any, tmp_path: Path, scenario: str
) -> None:
    text, prepared = SCENARIOS[scenario]
    entity = Entity.parse(text)
    path = znode.znode_path(entity)
    cases = [(step, how) for step in range(1, STEPS + 1) for how in HOWS]
    roots = {case: f"/kill-{tmp_path.name}-{case[0]}-{case[1]}" for case in cases}
    for root in roots.values():
        client.create(root)
        for node in prepared:
            client.create(root + node, OLD, makepath=True)
    jobs = [["alter_and_die", zookeeper.connect + roots[case], text, *case] for case in cases]
    codes, errors = run(jobs, tmp_path, at_once=2)
    assert set(codes) <= {0, -signal.SIGKILL}, errors

    outcomes: dict[tuple[int, str], bool] = {}
    for case, root in roots.items():
        outcome = look(client, root, path, prepared)
        outcomes[case] = outcome
    killed = {case for case, code in zip(cases, codes, strict=True) if code == -signal.SIGKILL}
    # The last step is known to be covered because writers survive a death that is planned for later.
    assert (STEPS, "before") not in killed
    for case in cases:
        assert outcomes[case] or case in killed, f"{case} ended well and wrote nothing"
    assert {outcomes[case] for case in killed} == {True, False}
    # Half a message is no message.
    assert all(outcomes[step, "within"] == outcomes[step, "before"] for step in range(1, STEPS + 1))


def look(client: Any, root: str, path: str, prepared: list[str]) -> bool:
    """Whether the alter took place. Fails unless node, parents and notification agree."""
    client.sync(root)
    there = client.exists(f"{root}{path}")
    data = client.get(f"{root}{path}")[0] if there else None
    changes = f"{root}/config/changes"
    told = client.get_children(changes) if client.exists(changes) else None
    if path in prepared and data == OLD:
        assert told is None
        return False
    if data is None:
        assert told is None
        assert client.exists(f"{root}/config") is not None or not prepared
        assert prepared or client.get_children(root) == []
        for node in prepared:
            assert client.get(f"{root}{node}")[0] == OLD
            assert client.get_children(f"{root}{node}") == []
        return False
    expected = OLD.replace(b'"1"}', b'"2"}') if path in prepared else znode.encode_config({"producer_byte_rate": "2"})
    assert data == expected
    assert told == ["config_change_0000000000"]
    assert client.get(f"{changes}/{told[0]}")[0] == znode.change_notification(znode.entity_of(path))
    for parent in znode.parents(path):
        if parent in prepared:
            assert client.get(f"{root}{parent}")[0] == OLD
        elif not prepared:
            assert client.get(f"{root}{parent}")[0] is None
    return True


def test_concurrent_writers_lose_no_update(zookeeper: Sandbox, chroot: str, znodes: Any, tmp_path: Path) -> None:
    writers, rounds = 8, examples(125)
    jobs = [["alter_in_turn", chroot, writer, rounds, writers] for writer in range(writers)]
    codes, errors = run(jobs, tmp_path, at_once=writers)
    assert codes == [0] * writers, errors
    # Every alter wrote its node once and told it once.
    assert len(znodes.get_children("/config/changes")) == writers * rounds
    paths = ["users/shared", "users/shared/clients/app", "clients/app", "users/CN%3Dx"]
    told = [json.loads(znodes.get(f"/config/changes/{name}")[0]) for name in znodes.get_children("/config/changes")]
    versions = {path: znodes.get(f"/config/{path}")[1].version for path in paths}
    for path in paths:
        notified = sum(document["entity_path"] == path for document in told)
        # A user's node that was created as a parent without data has one version more to it.
        assert versions[path] - notified in ((-1, 0) if path == "users/shared" else (-1,)), path
    with ZooKeeperBackend(chroot) as backend:
        snapshot = backend.describe()
    final = {value for values in snapshot.values() for value in values.values()}
    assert final == {rounds, rounds - 1}
    assert sum(len(values) for values in snapshot.values()) == 16


# --- Connections that break in the middle ------------------------------------------------------------------------


def break_connection(
    monkeypatch: pytest.MonkeyPatch, how: str, then: Callable[[], None] = lambda: None, *, after: int = 0
) -> None:
    """Cuts the connection at the first transaction after so many: before it is sent, or before its answer is read."""
    from kazoo.protocol.connection import ConnectionHandler
    from kazoo.protocol.serialization import Transaction

    submit = ConnectionHandler._submit
    left = after

    def fragile(self: Any, request: Any, timeout: float, xid: int | None = None) -> None:
        nonlocal left
        if isinstance(request, Transaction):
            left -= 1
        if left != -1 or not isinstance(request, Transaction):
            submit(self, request, timeout, xid)
            return
        if how == "after":
            submit(self, request, timeout, xid)
            # Once the answer has begun to arrive, the transaction is history; it is never read.
            self.handler.select([self._socket], [], [], timeout)
        self._socket.shutdown(socket.SHUT_RDWR)
        then()
        if how == "before":
            raise self.handler.timeout_exception("cut")
        submit(self, request, timeout, xid)

    monkeypatch.setattr(ConnectionHandler, "_submit", fragile)


def changes_of(znodes: Any) -> int:
    return len(znodes.get_children("/config/changes")) if znodes.exists("/config/changes") else 0


@pytest.mark.parametrize("how", ["before", "after"])
@pytest.mark.parametrize("exists", [True, False])
def test_a_lost_answer_is_settled_by_looking(
    chroot: str, znodes: Any, monkeypatch: pytest.MonkeyPatch, how: str, exists: bool
) -> None:
    entities = [Entity(user=f"u{number}") for number in range(20)]
    if exists:
        for entity in entities:
            znodes.create(znode.znode_path(entity), OLD, makepath=True)
    with ZooKeeperBackend(chroot) as backend:
        backend.describe()
        break_connection(monkeypatch, how)
        results = backend.alter([Alteration(entity, {QuotaKey.PRODUCER_BYTE_RATE: 2}) for entity in entities])
        assert [result.error for result in results] == [None] * 20
        assert {values[QuotaKey.PRODUCER_BYTE_RATE] for values in backend.describe().values()} == {2}
    assert changes_of(znodes) == 20
    assert {znodes.get(znode.znode_path(entity))[1].version for entity in entities} == {1 if exists else 0}


@pytest.mark.parametrize("how", ["before", "after"])
def test_a_lost_answer_leaves_no_doubt_about_a_node_that_was_emptied_and_deleted(
    chroot: str, znodes: Any, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """What the writer says about the node holds: a write that expects it is no conflict."""
    both = [Entity(user="u"), Entity(user="u", client_id="c")]
    wishes = [Alteration(entity, {QuotaKey.PRODUCER_BYTE_RATE: 2}) for entity in both]
    gone = [Alteration(entity, remove=frozenset(KEYS)) for entity in both]
    with ZooKeeperBackend(chroot) as backend:
        forms = [result.form for result in backend.alter(wishes, validate_only=True)]
        backend.alter(wishes)
        # The values go first, then the folder of the pairs, and then the user's node.
        break_connection(monkeypatch, how, after=2)
        written = backend.alter([replace(each, form=form) for each, form in zip(gone, forms, strict=True)])
        assert (znodes.exists("/config/users/u") is None) == (how == "after")
        again = backend.alter(
            [replace(each, expect_revision=result.revision) for each, result in zip(wishes, written, strict=True)]
        )
        assert [result.error for result in (*written, *again)] == [None] * 4


def test_a_server_that_never_comes_back_is_uncertain(monkeypatch: pytest.MonkeyPatch) -> None:
    with Sandbox() as server, ZooKeeperBackend(server.connect, timeout_s=5) as backend:
        backend.describe()
        break_connection(monkeypatch, "after", then=server.stop)
        (result,) = backend.alter([Alteration(Entity(user="u"), {QuotaKey.PRODUCER_BYTE_RATE: 2})])
        assert isinstance(result.error, Unreachable)
        assert "may or may not" in result.error.message
        with pytest.raises(Unreachable):
            backend.describe()


def test_a_restarted_server_is_found_again(tmp_path: Path) -> None:
    from kquota import sandbox

    state = sandbox.start(tmp_path)
    try:
        with ZooKeeperBackend(state.connect, timeout_s=10) as backend:
            backend.alter([Alteration(Entity(user="u"), {QuotaKey.PRODUCER_BYTE_RATE: 2})])
            sandbox.stop(tmp_path)
            with pytest.raises(KquotaError):
                backend.describe()
            sandbox.start(tmp_path, state.port)

            def found() -> Mapping[QuotaKey, Value]:
                """Nothing where a server that has just started takes long to open a session."""
                with contextlib.suppress(Unreachable):
                    return backend.describe()[Entity(user="u")]
                return {}

            assert until(found) == {QuotaKey.PRODUCER_BYTE_RATE: 2}
    finally:
        sandbox.stop(tmp_path)


@pytest.mark.parametrize("when", ["before the read", "before the commit"])
def test_a_server_that_falls_silent_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    entities = [Entity(user=f"u{number}") for number in range(5000)]
    alterations = [Alteration(entity, {QuotaKey.PRODUCER_BYTE_RATE: 2}) for entity in entities]
    with Sandbox() as server, ZooKeeperBackend(server.connect, timeout_s=10) as backend:
        backend.describe()
        pid = server.pid
        assert pid is not None
        commit = Session.commit

        stopped: list[float] = []

        def stop() -> None:
            stand_still(pid)
            stopped.append(time.monotonic())

        def stop_before(self: Session, *arguments: Any) -> Any:
            stop()
            return commit(self, *arguments)

        if when == "before the commit":
            monkeypatch.setattr(Session, "commit", stop_before)
        else:
            stop()
        try:
            if when == "before the read":
                with pytest.raises(Unreachable):
                    backend.alter(alterations)
            else:
                results = backend.alter(alterations)
                assert all(isinstance(result.error, Unreachable) for result in results)
                uncertain = sum("may or may not" in str(result.error) for result in results)
                assert 0 < uncertain < len(results)
            backend.close()
            assert time.monotonic() - stopped[0] < 18, "the time-out, and the rest is work"
        finally:
            os.kill(pid, signal.SIGCONT)


def test_a_server_that_answers_again_has_all_its_time() -> None:
    """Only connecting is hurried after a silence: an answer may take as long as before it."""
    with Sandbox() as server, ZooKeeperBackend(server.connect, timeout_s=10) as backend:
        pid = server.pid
        assert pid is not None
        backend.describe()
        stand_still(pid)
        try:
            with pytest.raises(Unreachable):
                backend.describe()
        finally:
            os.kill(pid, signal.SIGCONT)

        def answers() -> bool:
            with contextlib.suppress(Unreachable):
                return backend.describe() is not None
            return False

        until(answers)
        stand_still(pid)
        threading.Timer(2, os.kill, (pid, signal.SIGCONT)).start()
        assert dict(backend.describe()) == {}
