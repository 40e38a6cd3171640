"""What answers in the place of ZooKeeper and is none, or is broken: an error in time, never a bug of ours."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable

import pytest

from kquota.backends.addresses import Address
from kquota.backends.zookeeper.requests import GET_DATA
from kquota.backends.zookeeper.security import ZooKeeperSecurity
from kquota.backends.zookeeper.session import Session
from kquota.cli.main import run
from kquota.errors import Unreachable
from tests.support.listening import Listening

GREETING = struct.pack(">iiqi16s?", 0, 10_000, 1, 16, b"p" * 16, False)
HEAD = struct.Struct(">iqi")


class Peer(Listening):
    """A server that shakes hands as ZooKeeper does; `answer` makes what follows the length, or None for silence."""

    def __init__(self, answer: Callable[[int, bytes], bytes | None]) -> None:
        super().__init__()
        self._answer = answer

    def _serve(self, connected: socket.socket) -> None:
        with contextlib.suppress(OSError), connected, connected.makefile("rb") as stream:
            first = True
            while size := stream.read(4):
                body = stream.read(int.from_bytes(size, "big"))
                reply = GREETING if first else self._answer(struct.unpack_from(">i", body)[0], body)
                first = False
                if reply is not None:
                    connected.sendall(struct.pack(">i", len(reply)) + reply)


class LatePeer(Peer):
    """A peer that shakes hands late, and then says nothing."""

    def __init__(self, late_s: float) -> None:
        super().__init__(self._hear)
        self._late_s = late_s
        self.asked: list[bytes] = []

    def _hear(self, xid: int, body: bytes) -> None:
        if xid > 0:  # no ping
            self.asked.append(body[4:])

    def _serve(self, connected: socket.socket) -> None:
        time.sleep(self._late_s)
        super()._serve(connected)


def op(code: int, done: bool = False) -> bytes:
    return struct.pack(">i?i", code, done, -1)


STAT = struct.pack(">qqqqiiiqiiq", *([1] * 11))
DONE = op(-1, True)
ANSWERS: dict[str, Callable[[int], bytes | None]] = {
    "nothing": lambda xid: HEAD.pack(xid, 1, 0),
    "too few": lambda xid: HEAD.pack(xid, 1, 0) + DONE,
    "too many": lambda xid: HEAD.pack(xid, 1, 0) + (op(4) + struct.pack(">i", -1) + STAT) * 9 + DONE,
    "cut": lambda xid: HEAD.pack(xid, 1, 0) + op(4) + b"\0\0",
    "a length beyond the end": lambda xid: HEAD.pack(xid, 1, 0) + op(4) + struct.pack(">i", 2**31 - 1),
    "a negative count": lambda xid: HEAD.pack(xid, 1, 0) + op(8) + struct.pack(">i", -5) + DONE,
    "an absurd count": lambda xid: HEAD.pack(xid, 1, 0) + op(8) + struct.pack(">i", 2**31 - 1) + b"\0" * 100_000,
    "names that are no text": lambda xid: HEAD.pack(xid, 1, 0) + op(8) + struct.pack(">ii", 1, 2) + b"\xff\xfe" + DONE,
    "an error that nobody knows": lambda xid: HEAD.pack(xid, 1, 0) + op(-1) + struct.pack(">i", 12_345) + DONE,
    "an error in the head": lambda xid: HEAD.pack(xid, 1, -12_345),
    "another answer": lambda xid: HEAD.pack(xid + 7, 1, 0) + DONE,
    "half a head": lambda xid: b"\0\0",
    "none": lambda xid: None,
}


@pytest.mark.parametrize("kind", ANSWERS)
@pytest.mark.parametrize("command", ["describe", "alter"])
def test_a_malformed_answer_is_named(kind: str, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--user", "a", "--add-config", "producer_byte_rate=1"] if command == "alter" else []
    started = time.monotonic()
    with Peer(lambda xid, body: ANSWERS[kind](xid)) as peer:
        code = run([command, "--zookeeper", peer.address, "--timeout", "1", *arguments])

    err = capsys.readouterr().err
    assert code in (4, 6), err
    assert len(err.splitlines()) == 1
    assert time.monotonic() - started < 60


@pytest.mark.parametrize("command", ["describe", "alter"])
def test_the_time_out_is_for_the_connection_and_for_an_answer(command: str) -> None:
    """One of each, as its help says: what did not answer in time is not asked again."""
    arguments = ["--user", "a", "--add-config", "producer_byte_rate=1"] if command == "alter" else []
    with LatePeer(1) as peer:
        assert run([command, "--zookeeper", peer.address, "--timeout", "5", *arguments]) == 4
    assert peer.asked
    assert len(peer.asked) == len(set(peer.asked))


def test_a_server_that_does_not_answer_is_not_waited_for_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kquota.backends.zookeeper.session._CLOSE_TIMEOUT_S", 60.0)
    with Peer(lambda xid, body: None) as peer:
        session = Session(Address.parse(peer.address), 0.5, ZooKeeperSecurity())
        session.open()
        with pytest.raises(Unreachable):
            session.read([(GET_DATA, "/config")])
        client, ended = session._client, threading.Event()
        assert client is not None
        stop = client.stop
        monkeypatch.setattr(client, "stop", lambda: (ended.wait(60), stop()))
        started = time.monotonic()
        session.close()
    assert time.monotonic() - started < 55
    ended.set()
