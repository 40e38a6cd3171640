"""The journal of a cluster in its ZooKeeper: a node of each entry, and below it the ephemeral node of its writer.

An entry is added in one transaction with its parent, whose version gives the numbers: of two writers at once, one looks
again. Brokers never read below /kquota.
"""

import random
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kazoo import exceptions as kazoo
from kazoo.protocol.serialization import Delete, SetData

from kquota.backends.zookeeper.requests import GET_CHILDREN, GET_DATA, MAX_CONFLICTS, NODE_BYTES, SINGLE_WINDOW, Node
from kquota.backends.zookeeper.session import Lost, Outcome, Session
from kquota.core.change.journal_store import Draft, packed, unpacked
from kquota.errors import InputError, KquotaError, Unreachable

_ABOVE = "/kquota"
_ROOT = "/kquota/journal"
_WRITER = "writer"
_READS = 100
_RACED = (kazoo.BadVersionError, kazoo.NodeExistsError, kazoo.NoNodeError)
"""Another writer came before."""


class ZooKeeperJournal:
    """The entries below /kquota/journal; see `JournalStore`."""

    sees_all_hosts = True

    def __init__(self, open: Callable[[], Session]) -> None:
        self._open = open

    def names(self) -> list[str]:
        (names,) = self._open().read([(GET_CHILDREN, _ROOT)], fresh=True)
        return names if isinstance(names, list) else []

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, bytes | InputError]]:
        wanted = list(names)
        for some in (wanted[at : at + _READS] for at in range(0, len(wanted), _READS)):
            nodes = self._open().read([(GET_DATA, f"{_ROOT}/{name}") for name in some], fresh=True)
            for name, node in zip(some, nodes, strict=True):
                if isinstance(node, Node):
                    yield name, unpacked(node.data or b"")

    def create(self, draft: Draft) -> None:
        token = secrets.token_bytes(16)
        for attempt in range(MAX_CONFLICTS):
            parent = self._parent()
            name, data, most = draft(self.names())
            data, path = packed(data, most, NODE_BYTES), f"{_ROOT}/{name}"
            session = self._open()
            failure = self._commit(
                SetData(_ROOT, parent.data, parent.version),
                session.create(path, data),
                session.create(f"{path}/{_WRITER}", token, ephemeral=True),
            )
            if failure is None:
                return
            if isinstance(failure, Lost):
                entry, writer = self._open().read([(GET_DATA, path), (GET_DATA, f"{path}/{_WRITER}")], fresh=True)
                if isinstance(writer, Node) and writer.data == token:
                    return
                if isinstance(entry, Node) and entry.data == data:
                    raise self._open().unreachable()  # it may be this one, without its writer: nothing hangs on it yet
            elif not isinstance(failure, _RACED):
                raise session.translate(failure, path)
            time.sleep(random.uniform(0, 0.001 * 2.0 ** min(attempt, 7)))  # noqa: S311
        raise Unreachable(f"too many others write to the journal of {self._open().address}")

    def replace(self, name: str, data: bytes) -> None:
        path, data = f"{_ROOT}/{name}", packed(data, len(data), NODE_BYTES)
        for _ in range(MAX_CONFLICTS):
            session = self._open()
            (node,) = session.read([(GET_DATA, path)], fresh=True)
            if not isinstance(node, Node):
                raise InputError(f"the entry {name} is gone from the journal of {session.address}")
            if node.data == data:
                break
            failure = self._commit(SetData(path, data, node.version))
            if failure is not None and not isinstance(failure, (Lost, *_RACED)):
                raise session.translate(failure, path)
        self.release(name)

    def release(self, name: str) -> None:
        try:
            self._commit(Delete(f"{_ROOT}/{name}/{_WRITER}", -1))
        except KquotaError:
            return  # it goes with the session

    def is_held(self, name: str) -> bool:
        (children,) = self._open().read([(GET_CHILDREN, f"{_ROOT}/{name}")], fresh=True)
        return bool(children)

    def remove(self, names: Iterable[str]) -> None:
        session, wanted = self._open(), [f"{_ROOT}/{name}" for name in names]
        for paths in (wanted[at : at + _READS] for at in range(0, len(wanted), _READS)):
            # A writer that was killed is there until its session ends.
            below = session.read([(GET_CHILDREN, path) for path in paths], fresh=True)
            nodes = [
                [*(f"{path}/{one}" for one in found), path] if isinstance(found, list) else [path]
                for path, found in zip(paths, below, strict=True)
            ]
            deletions = [[Delete(node, -1) for node in each] for each in nodes]
            for failure in map(_failure, session.commit(deletions, SINGLE_WINDOW)):
                if failure is not None and not isinstance(failure, kazoo.NoNodeError):
                    raise session.translate(failure)

    @property
    def mark(self) -> bytes:
        (node,) = self._open().read([(GET_DATA, _ROOT)])
        return (node.data or b"") if isinstance(node, Node) else b""

    @mark.setter
    def mark(self, mark: bytes) -> None:
        self._commit(SetData(_ROOT, mark, self._parent().version))

    def _parent(self) -> Node:
        """The node above the entries, which is made where there is none."""
        for _ in range(2):
            session = self._open()
            (node,) = session.read([(GET_DATA, _ROOT)], fresh=True)
            if isinstance(node, Node):
                return node
            failure = [self._commit(session.create(path, b"")) for path in (_ABOVE, _ROOT)][-1]
        if failure is not None and not isinstance(failure, Lost):
            raise session.translate(failure, _ROOT)
        raise session.unreachable()

    def _commit(self, *operations: Any) -> BaseException | None:
        """Why a transaction failed; Lost where its answer was."""
        (outcome,) = self._open().commit([operations], 1)
        return _failure(outcome)


def _failure(outcome: Outcome | Lost) -> BaseException | None:
    if isinstance(outcome, Lost):
        return outcome
    return None if outcome.blame is None else outcome.blame[1]
