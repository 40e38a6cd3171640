"""The nodes as texts: what Kafka's own tool needs, which stores any value that it can parse, verbatim.

Everything of kquota's own goes through `ZooKeeperBackend`, which refuses values that a broker could not use.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kquota.backends import ClosesOnExit, znode
from kquota.backends.zookeeper.address import Address
from kquota.backends.zookeeper.limits import MAX_CONFLICTS, NODE_BYTES
from kquota.backends.zookeeper.multiread import GET_CHILDREN, GET_DATA, Node
from kquota.backends.zookeeper.security import ZooKeeperSecurity
from kquota.backends.zookeeper.session import Lost, Session
from kquota.core.entity import Entity
from kquota.errors import Conflict, InputError, Rejected, Unreachable


class RawConfigs(ClosesOnExit):
    """The config nodes of a cluster in ZooKeeper mode; a context manager that connects at once.

    Connecting takes at most `timeout_s` seconds, and so does waiting for any answer. A chroot that does not exist reads
    as empty (`has_chroot` tells). Raises InputError for a malformed address, Unreachable and Unauthorized.
    """

    def __init__(self, connect: str, *, timeout_s: float = 30.0, security: ZooKeeperSecurity | None = None) -> None:
        self._address = Address.parse(connect)
        self._timeout_s = timeout_s
        self._security = security or ZooKeeperSecurity()
        self.has_chroot = True
        self._session = self._open()

    def close(self) -> None:
        """Ends the session; a second call does nothing."""
        self._session.close()

    def children(self, paths: Sequence[str]) -> list[list[str]]:
        """The names below each path in the order of the server; none where there is no such node."""
        answers = self._read(GET_CHILDREN, paths)
        return [answer if isinstance(answer, list) else [] for answer in answers]

    def data(self, paths: Sequence[str]) -> list[bytes | None]:
        """The data of each node, None where there is none."""
        answers = self._read(GET_DATA, paths)
        return [answer.data if isinstance(answer, Node) else None for answer in answers]

    def change(self, entity: Entity, change: Callable[[bytes | None], Mapping[str, str]]) -> None:
        """Writes what `change` makes of the entity's data, with the change notification in one transaction.

        The node must still have the version that was read: where another writer came first it is read again, and
        `change` is asked again. Nothing else stops the write, not even a result equal to what is there: brokers read
        the entity again, as after a write of Kafka's tool. Raises what `change` raises; InputError for a name that no
        node can have; Rejected for a cluster on its way to KRaft; Conflict, Unreachable, Unauthorized.
        """
        path = znode.znode_path(entity)
        for attempt in range(MAX_CONFLICTS):
            nodes = self._nodes(path)
            node = nodes.get(path)
            data = znode.encode_config(change(None if node is None else node.data))
            if len(data) + 3 * len(path) > NODE_BYTES:
                raise Rejected(f"{entity}: its znode would have {len(data)} bytes, too many for ZooKeeper")
            if self._commit(entity, path, data, nodes):
                return
            time.sleep(random.uniform(0.0, min(0.1, 0.001 * 2.0 ** min(attempt, 10))))  # noqa: S311
        raise Conflict(f"{entity}: other writers changed its znode {MAX_CONFLICTS} times while it was altered")

    def _open(self) -> Session:
        session = Session(self._address, self._timeout_s, self._security)
        try:
            session.open()
            return session
        except InputError:
            # For a chroot that is not there kquota has an error, Kafka's tool has not; any other error stays one.
            above = Session(Address(self._address.hosts, ""), self._timeout_s, self._security)
            if not self._address.chroot:
                raise
            try:
                above.open()
                if above.read([(GET_DATA, self._address.chroot)]) != [None]:
                    raise
            except BaseException:
                above.close()
                raise
            self.has_chroot = False
            return above

    def _read(self, opcode: int, paths: Sequence[str]) -> Sequence[object]:
        if not self.has_chroot:
            return [None] * len(paths)
        return self._session.read([(opcode, path) for path in paths], fresh=True)

    def _nodes(self, path: str) -> dict[str, Node]:
        """The entity's node and those it needs, as far as they are there. Raises Rejected while migrating."""
        fixed = (znode.CONFIG, znode.CHANGES, znode.CONTROLLER_EPOCH, znode.CONTROLLER)
        needed = dict.fromkeys([path, *znode.parents(path), *fixed])
        answers = self._read(GET_DATA, list(needed))
        nodes = {path: answer for path, answer in zip(needed, answers, strict=True) if isinstance(answer, Node)}
        controller = nodes.get(znode.CONTROLLER)
        if controller is not None and (epoch := znode.kraft_controller_epoch(controller.data)) > 0:
            raise Rejected(
                f"the cluster is migrating to KRaft (kraftControllerEpoch {epoch}): what is written to ZooKeeper would"
                " be lost"
            )
        return nodes

    def _commit(self, entity: Entity, path: str, data: bytes, nodes: Mapping[str, Node]) -> bool:
        """Whether the write was done; False when another writer came first."""
        from kazoo import exceptions as kazoo

        session = self._session
        node = nodes.get(path)
        missing = dict.fromkeys(
            parent for parent in [*znode.parents(path), znode.CONFIG, znode.CHANGES] if parent not in nodes
        )
        make = session.operations
        operations: list[Any] = [make.create(parent, None) for parent in missing]
        operations.append(make.create(path, data) if node is None else make.set_data(path, data, node.version))
        operations.append(make.create(znode.CHANGE_PREFIX, znode.change_notification(entity), sequence=True))
        if (epoch := nodes.get(znode.CONTROLLER_EPOCH)) is not None:
            operations.append(make.check(znode.CONTROLLER_EPOCH, epoch.version))
        (outcome,) = session.commit([operations], 1)
        if isinstance(outcome, Lost):
            return self._was_done(entity, path, data, None if node is None else node.version)
        followers = (kazoo.RolledBackError, kazoo.RuntimeInconsistency)
        errors = [(index, error) for index, error in enumerate(outcome) if isinstance(error, BaseException)]
        if not errors:
            return True
        index, error = next((pair for pair in errors if not isinstance(pair[1], followers)), errors[0])
        if isinstance(error, kazoo.BadVersionError | kazoo.NoNodeError | kazoo.NodeExistsError):
            return False
        raise session.translate(error, operations[index].path)

    def _was_done(self, entity: Entity, path: str, data: bytes, version: int | None) -> bool:
        """Whether a write whose answer was lost was executed: a transaction is all or nothing, and the node tells."""
        self._session.settle()
        (now,) = self._session.read([(GET_DATA, path)], fresh=True)
        after = now.version if isinstance(now, Node) else None
        if after == version:
            return False
        if isinstance(now, Node) and after == (0 if version is None else version + 1) and now.data == data:
            return True
        raise Unreachable(f"{entity} may or may not have been altered: the connection to ZooKeeper was lost")
