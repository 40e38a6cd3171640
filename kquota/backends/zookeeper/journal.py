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

from kquota.backends.zookeeper.requests import MAX_CONFLICTS, NODE_BYTES, SINGLE_WINDOW, Node
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
        (names,) = self._open().children([_ROOT], fresh=True)
        return names or []

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, bytes | InputError]]:
        wanted = list(names)
        for some in (wanted[at : at + _READS] for at in range(0, len(wanted), _READS)):
            nodes = self._open().nodes((f"{_ROOT}/{name}" for name in some), fresh=True)
            for name, node in zip(some, nodes, strict=True):
                if node is not None:
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
                entry, writer = self._open().nodes([path, f"{path}/{_WRITER}"], fresh=True)
                if writer is not None and writer.data == token:
                    return
                if entry is not None and entry.data == data:
                    raise self._open().unreachable()  # it may be this one, without its writer: nothing hangs on it yet
            elif not isinstance(failure, _RACED):
                raise session.translate(failure, path)
            time.sleep(random.uniform(0, 0.001 * 2.0 ** min(attempt, 7)))  # noqa: S311
        raise Unreachable(f"too many others write to the journal of {self._open().address}")

    def replace(self, name: str, data: bytes) -> None:
        path, data = f"{_ROOT}/{name}", packed(data, len(data), NODE_BYTES)
        for _ in range(MAX_CONFLICTS):
            session = self._open()
            (node,) = session.nodes([path], fresh=True)
            if node is None:
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
        (children,) = self._open().children([f"{_ROOT}/{name}"], fresh=True)
        return bool(children)

    def remove(self, names: Iterable[str]) -> None:
        session, wanted = self._open(), [f"{_ROOT}/{name}" for name in names]
        for paths in (wanted[at : at + _READS] for at in range(0, len(wanted), _READS)):
            # A writer that was killed is there until its session ends.
            below = zip(paths, session.children(paths, fresh=True), strict=True)
            nodes = [[*(f"{path}/{one}" for one in children or ()), path] for path, children in below]
            deletions = [[Delete(node, -1) for node in branch] for branch in nodes]
            for failure in map(_failure, session.commit(deletions, SINGLE_WINDOW)):
                if failure is not None and not isinstance(failure, kazoo.NoNodeError):
                    raise session.translate(failure)

    @property
    def mark(self) -> bytes:
        (node,) = self._open().nodes([_ROOT])
        return b"" if node is None else node.data or b""

    @mark.setter
    def mark(self, mark: bytes) -> None:
        self._commit(SetData(_ROOT, mark, self._parent().version))

    def _parent(self) -> Node:
        """The node above the entries, which is made where there is none."""
        for _ in range(2):
            session = self._open()
            (node,) = session.nodes([_ROOT], fresh=True)
            if node is not None:
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
