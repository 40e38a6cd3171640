"""Alter: read, compare and set in transactions, and find out what became of lost ones."""

import ipaddress
import random
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kazoo import exceptions as kazoo
from kazoo.protocol.serialization import CheckVersion, Delete, SetData

from kquota.backends import znode
from kquota.backends.addresses import is_host
from kquota.backends.znode import NodeChange, NodeConfig
from kquota.backends.zookeeper.requests import (
    ENTITIES_PER_TRANSACTION,
    MAX_CONFLICTS,
    NODE_BYTES,
    REQUEST_BYTES,
    SINGLE_WINDOW,
    WINDOW,
    Node,
)
from kquota.backends.zookeeper.session import Lost, NoQuorum, NotSent, Outcome, Session
from kquota.core.quotas.alteration import Alteration, AlterResult, merge
from kquota.core.quotas.entity import Entity
from kquota.errors import (
    Conflict,
    InputError,
    InvalidRequest,
    KquotaError,
    Rejected,
    Unauthorized,
    Uncertain,
    Unreachable,
)

# What a transaction of many entities shrinks to after each failure, so that one hot entity does not hold up the rest.
_TRANSACTION_SIZES = (ENTITIES_PER_TRANSACTION, 60, 8, 1)
# What an operation of a transaction takes beside path and data, ACL included; generous.
_OP_OVERHEAD = 160


Change = Callable[[bytes | None], NodeChange]
"""What a write makes of a node's data, None for no node. It may be asked again, after another writer came first."""

_UNREAD = NodeChange({}, {}, None)


@dataclass(slots=True, eq=False)
class _Task:
    """One entity on its way through an alter."""

    entity: Entity
    path: str
    change: Change
    check: Callable[[int], None] = lambda _revision: None
    """Raises Conflict where the node's revision is not the one that is expected."""
    conflicts: int = 0
    version: int | None = None
    """The version that was read; None where there is no node."""
    made: NodeChange = _UNREAD
    """What `change` made of the node that was read."""
    deletes: bool = False
    form: str | None = None

    @property
    def data(self) -> bytes:
        return self.made.data or b""

    def done(self, zxid: int | None = None) -> AlterResult:
        """`zxid` names the transaction that wrote it, None where nothing was written."""
        made, revision = self.made, 0 if zxid is not None and self.deletes else zxid
        return AlterResult(
            self.entity, made.before, made.after, unusable=made.unusable, revision=revision, form=self.form
        )

    def failed(self, error: KquotaError) -> AlterResult:
        return AlterResult(self.entity, self.made.before, self.made.before, error)


@dataclass(slots=True, eq=False)
class _Batch:
    """The tasks of one transaction; `owners` names the task of each operation."""

    tasks: list[_Task] = field(default_factory=list)
    operations: list[Any] = field(default_factory=list)
    owners: list[_Task] = field(default_factory=list)
    size: int = 0

    def add(self, task: _Task, operations: Sequence[Any], size: int) -> None:
        self.tasks.append(task)
        self.operations.extend(operations)
        self.owners.extend([task] * len(operations))
        self.size += size


class Writer:
    """One alter. `connect` is asked for a session when something is to be read or written."""

    def __init__(self, connect: Callable[[], Session], *, validate_only: bool) -> None:
        self._connect = connect
        self._validate_only = validate_only
        self._results: dict[Entity, AlterResult] = {}
        self._tidied: dict[Entity, tuple[str, ...]] = {}
        self._emptied: dict[str, _Task] = {}
        """The tasks that emptied nodes that are to go, but had others below them."""

    def alter(self, alterations: Sequence[Alteration]) -> tuple[AlterResult, ...]:
        """The result of every entity, in the order of mention; see `QuotaBackend.alter`."""
        merged = merge(alterations)
        return self._run([alteration.entity for alteration in merged], self._tasks(merged))

    def change(self, entity: Entity, change: Change) -> AlterResult:
        """The result of writing what `change` makes of the entity's node, without a look at the entity's name.

        Raises what `change` raises beside errors of kquota's own, and what `alter` raises.
        """
        (result,) = self._run([entity], [_Task(entity, znode.znode_path(entity), change)])
        return result

    def _run(self, entities: Sequence[Entity], pending: list[_Task]) -> tuple[AlterResult, ...]:
        results = self._results
        if pending:
            try:
                self._write(self._connect(), pending)
            except (Unreachable, Unauthorized, Rejected) as error:
                if not any(
                    result.error is None or isinstance(result.error, Unreachable) for result in results.values()
                ):
                    raise
                for task in pending:
                    results.setdefault(task.entity, task.failed(error))
        ordered = tuple(results[entity] for entity in entities)
        errors = [result.error for result in ordered]
        if errors and all(isinstance(error, Unauthorized | NoQuorum) for error in errors) and errors[0] is not None:
            raise errors[0]
        return ordered

    def _tasks(self, alterations: Sequence[Alteration]) -> list[_Task]:
        """The alterations that ZooKeeper and the brokers can take; the others get their error."""
        tasks = []
        for alteration in alterations:
            entity = alteration.entity
            try:
                path = znode.znode_path(entity)
                if isinstance(entity.ip, str) and alteration.set and not _has_address(entity.ip):
                    raise InvalidRequest(
                        f"INVALID_REQUEST: {entity.ip} is not a valid IP or resolvable host",
                        hint="a ZooKeeper-mode broker that cannot resolve the name does not start",
                    )
                # The path is in the request twice: as the node's and in the notification.
                if 2 * len(path) > REQUEST_BYTES:
                    raise InputError(f"{entity.parts[0][0].value} of {len(path)} characters is too long for ZooKeeper")
            except KquotaError as error:
                self._results[entity] = AlterResult(entity, {}, {}, error)
                continue
            tasks.append(_Task(entity, path, _changing(alteration), alteration.check_revision))
        # Users before pairs: where both are new, the user's node is created with its data, not as an empty parent.
        return sorted(tasks, key=lambda task: len(task.entity.parts))

    def _write(self, session: Session, pending: list[_Task]) -> None:
        """Read, change, commit; what lost a race is read again."""
        for attempt in range(len(_TRANSACTION_SIZES) + len(pending) * (MAX_CONFLICTS + 1)):
            existing = self._read_tasks(session, pending)
            writes = self._changes(pending, existing)
            size = _TRANSACTION_SIZES[min(attempt, len(_TRANSACTION_SIZES) - 1)]
            batches = list(_batches(session, writes, existing, size))
            lost = []
            window = WINDOW if size > 1 else SINGLE_WINDOW
            outcomes = session.commit([batch.operations for batch in batches], window)
            for batch, outcome in zip(batches, outcomes, strict=True):
                if isinstance(outcome, Lost):
                    # What was not sent stays pending, and fails with the next read.
                    if not isinstance(outcome, NotSent):
                        lost.append(batch)
                else:
                    self._conclude(session, batch, outcome)
            if lost:
                self._settle(session, lost)
            pending = [task for task in writes if task.entity not in self._results]
            if not pending:
                self._tidy(session)
                return
            _back_off(max(task.conflicts for task in pending))
        raise AssertionError("every conflict is counted")

    def _read_tasks(self, session: Session, tasks: Sequence[_Task]) -> dict[str, Node]:
        """The nodes of the tasks, and which parents of the missing ones there are. Raises Rejected while migrating."""
        fixed = [znode.CONFIG, znode.CHANGES, *znode.ENTITY_ROOTS.values()]
        fixed += [znode.CONTROLLER_EPOCH, znode.CONTROLLER]
        nodes = self._read_nodes(session, [*fixed, *(task.path for task in tasks)], fresh=True)
        controller = nodes.get(znode.CONTROLLER)
        if controller is not None and (epoch := znode.kraft_controller_epoch(controller.data)) > 0:
            raise Rejected(
                f"the cluster at {session.address}{session.address.chroot} is migrating to KRaft"
                f" (kraftControllerEpoch {epoch}): quotas written to ZooKeeper would be lost",
                hint="alter them through a broker: --bootstrap-server",
            )
        above = dict.fromkeys(parent for task in tasks if task.path not in nodes for parent in znode.parents(task.path))
        missing = [path for path in above if path not in nodes and path not in fixed]
        return {**nodes, **self._read_nodes(session, missing)} if missing else nodes

    @staticmethod
    def _read_nodes(session: Session, paths: Sequence[str], *, fresh: bool = False) -> dict[str, Node]:
        nodes = zip(paths, session.nodes(paths, fresh=fresh), strict=True)
        return {path: node for path, node in nodes if node is not None}

    def _changes(self, tasks: Sequence[_Task], nodes: dict[str, Node]) -> list[_Task]:
        """The tasks that have something to write; the others are finished here."""
        writes = []
        for task in tasks:
            node = nodes.get(task.path)
            data = None if node is None else node.data
            try:
                task.check(0 if node is None else node.mzxid)
                change = task.change(data)
                if change.data is not None and len(change.data) + 3 * len(task.path) > NODE_BYTES:
                    raise Rejected(
                        f"{task.entity}: its znode would have {len(change.data)} bytes, too many for ZooKeeper"
                    )
            except KquotaError as error:
                unchanged = NodeConfig.decode(data).values(task.entity)
                self._results[task.entity] = AlterResult(task.entity, unchanged, unchanged, error)
                continue
            task.made = change
            if self._validate_only:
                above = [ancestor for ancestor in znode.parents(task.path) if ancestor not in nodes]
                task.form = znode.absent_form(above) if node is None else znode.form_of(node.data)
            if change.data is None or self._validate_only:
                self._results[task.entity] = task.done()
                continue
            task.version = None if node is None else node.version
            # A user's node stays for the sake of the pairs below it.
            task.deletes = change.deletes and (node is None or not node.children)
            if task.deletes and change.tidy:
                self._tidied[task.entity] = change.tidy
            elif change.deletes and node is not None and node.children:
                # The pairs below it may go in the same run.
                self._tidied[task.entity] = (task.path, *change.tidy)
                self._emptied[task.path] = task
            writes.append(task)
        return writes

    def _tidy(self, session: Session) -> None:
        """Takes away the ancestors of deleted nodes that were made for them, as long as nothing else is in them.

        So it does with the nodes that this run emptied; no node is then what the run has left of them.
        """
        paths = {path for entity, tidy in self._tidied.items() if self._results[entity].error is None for path in tidy}
        for path in sorted(paths, key=len, reverse=True):
            try:
                node = self._read_nodes(session, [path], fresh=True).get(path)
                if node is None or node.children:
                    continue
                own = self._emptied.get(path)
                if own is not None and not _verdict(own, node):
                    own = None  # another writer altered it since
                gone = (own is not None or not node.data) and self._deleted(session, path, node.version)
            except KquotaError:
                return  # they harm nobody
            if gone and own is not None:
                self._results[own.entity] = replace(self._results[own.entity], revision=0)

    def _deleted(self, session: Session, path: str, version: int) -> bool:
        """Deletes a node of that version; whether it is gone. Raises Unreachable where nobody knows."""
        (outcome,) = session.commit([[Delete(path, version)]], 1)
        if isinstance(outcome, Lost):
            session.settle()
            return path not in self._read_nodes(session, [path], fresh=True)
        return outcome.blame is None

    def _conclude(self, session: Session, batch: _Batch, outcome: Outcome) -> None:
        """Takes over a transaction's result: all of it, or nothing but the operation to blame."""
        if outcome.blame is None:
            for task in batch.tasks:
                self._results[task.entity] = task.done(outcome.zxid)
            return
        index, error = outcome.blame
        task = batch.owners[index]
        if isinstance(error, kazoo.BadVersionError | kazoo.NoNodeError | kazoo.NodeExistsError | kazoo.NotEmptyError):
            task.conflicts += 1
            if task.conflicts > MAX_CONFLICTS:
                self._results[task.entity] = task.failed(
                    Conflict(
                        f"{task.entity}: other writers changed its znode {task.conflicts} times while it was altered",
                        hint="try again when they are done",
                    )
                )
        else:
            path = session.address.chroot + batch.operations[index].path
            self._results[task.entity] = task.failed(session.translate(error, path))

    def _settle(self, session: Session, batches: Sequence[_Batch]) -> None:
        """Finds out whether transactions were executed whose answers were lost with the connection.

        A transaction is all or nothing, so one node tells about all: unchanged means no, and our data at the very next
        version means yes. Tasks that are known to be unaltered are left for another attempt.
        """
        try:
            session.settle()
            # Behind a sync nothing of the old connection can still arrive.
            paths = [task.path for batch in batches for task in batch.tasks]
            nodes = self._read_nodes(session, paths, fresh=True)
        except KquotaError as error:
            for batch in batches:
                for task in batch.tasks:
                    self._results[task.entity] = task.failed(_uncertain(session, task, error.message))
            return
        for batch in batches:
            judged = [(_verdict(task, node), node) for task in batch.tasks for node in [nodes.get(task.path)]]
            verdicts = {verdict for verdict, _ in judged}
            zxid = next((node.mzxid for verdict, node in judged if verdict and node is not None), 0)
            if False in verdicts:
                continue
            for task in batch.tasks:
                self._results[task.entity] = (
                    task.done(zxid)
                    # Whoever else deleted the node told the brokers.
                    if True in verdicts or (task.deletes and task.path not in nodes)
                    else task.failed(_uncertain(session, task, "another writer altered it since"))
                )


def _changing(alteration: Alteration) -> Change:
    return lambda data: NodeConfig.decode(data).change(alteration)


def _batches(session: Session, tasks: Iterable[_Task], nodes: Mapping[str, Node], size: int) -> Iterator[_Batch]:
    """Transactions of bounded count and bytes; `nodes` are those there are.

    Each fails when there is another controller by then: it may be one of KRaft (brokers since 3.7.1 look, too).
    """
    existing = set(nodes)
    epoch = nodes.get(znode.CONTROLLER_EPOCH)
    batch = _Batch()
    for task in tasks:
        operations = []
        notification = znode.change_notification(task.entity)
        cost = 3 * len(task.path) + len(task.data) + len(notification) + 2 * _OP_OVERHEAD
        creates = task.version is None and not task.deletes
        ancestors = [*znode.parents(task.path)] if creates else []
        for path in [*ancestors, znode.CONFIG, znode.CHANGES]:
            if path not in existing:
                existing.add(path)
                operations.append(session.create(path, None))
                cost += len(path) + _OP_OVERHEAD
        if creates:
            existing.add(task.path)
            operations.append(session.create(task.path, task.data))
        elif task.version is None:
            pass  # nothing is to go: as from Kafka's tool, the notification is all
        elif task.deletes:
            operations.append(Delete(task.path, task.version))
        else:
            operations.append(SetData(task.path, None if task.made.null else task.data, task.version))
        operations.append(session.create(znode.CHANGE_PREFIX, notification, sequence=True))
        if batch.tasks and (len(batch.tasks) >= size or batch.size + cost > REQUEST_BYTES):
            yield batch
            batch = _Batch()
        if not batch.tasks and epoch is not None:
            operations.insert(0, CheckVersion(znode.CONTROLLER_EPOCH, epoch.version))
        batch.add(task, operations, cost)
    if batch.tasks:
        yield batch


def _verdict(task: _Task, node: Node | None) -> bool | None:
    """Whether a write was executed, by the node as it is now; None where another writer has covered the trace."""
    if node is None:
        return False if task.version is None else None
    if node.version == task.version:
        return False
    expected = 0 if task.version is None else task.version + 1
    return True if node.version == expected and (node.data or b"") == task.data else None


def _uncertain(session: Session, task: _Task, why: str) -> Uncertain:
    return Uncertain(
        f"{task.entity} may or may not have been altered: the connection to ZooKeeper at {session.address} was lost"
        f" while it was written, and {why}",
        hint="describe it to see",
    )


def _back_off(conflicts: int) -> None:
    """Lets rival writers get out of each other's step: up to 0.1 s, at random."""
    if conflicts:
        time.sleep(random.uniform(0.0, min(0.1, 0.001 * 2.0 ** min(conflicts, 10))))  # noqa: S311


_NAME = re.compile(r"[A-Za-z][A-Za-z0-9.-]*", re.ASCII)


def _has_address(ip: str) -> bool:
    """Whether every broker reads the text as the same address, or it is a plain name that has an address here.

    `InetAddress.getByName` reads some other texts as well, each release in its own way.
    """
    if _NAME.fullmatch(ip):
        return is_host(ip)
    try:
        ipaddress.ip_address(ip)
    except ValueError:
        return False
    return "%" not in ip  # a zone is of one machine only
