"""The backend: a session at the first use, `describe` by the reader, `alter` by the writer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from kquota.backends import QuotaBackend, znode
from kquota.backends.addresses import Address, without_scheme
from kquota.backends.zookeeper.journal import ZooKeeperJournal
from kquota.backends.zookeeper.reader import Reader
from kquota.backends.zookeeper.requests import Acl
from kquota.backends.zookeeper.security import ZooKeeperSecurity
from kquota.backends.zookeeper.session import Session
from kquota.backends.zookeeper.writer import Writer
from kquota.core.quotas.alteration import Alteration, AlterResult
from kquota.core.quotas.entity import Entity, EntityType
from kquota.core.quotas.filter import EVERYTHING, QuotaFilter
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.errors import InputError

if TYPE_CHECKING:
    from kquota.core.change.migration import UserNode

_IDS = "/brokers/ids"
_USERS = znode.ENTITY_ROOTS[EntityType.USER]
_PERMISSIONS = ((4, "c"), (8, "d"), (1, "r"), (2, "w"), (16, "a"))
_AGAIN_S = 1.0
"""How long servers that did not answer in time just before may take to connect."""


class ZooKeeperBackend(QuotaBackend):
    """Reads and writes the quotas of a cluster in ZooKeeper mode; see `QuotaBackend` for the contract.

    `connect` is `host:port[,host:port][/chroot]`, as in the brokers' zookeeper.connect. Connects at the first use;
    connecting takes at most `timeout_s` seconds, and so does waiting for any answer of the servers. With `patient`,
    servers that are not up yet are waited for as long. Raises InputError for a malformed address; later also for a
    chroot that does not exist.
    """

    def __init__(
        self,
        connect: str,
        *,
        timeout_s: float = 10.0,
        security: ZooKeeperSecurity | None = None,
        patient: bool = False,
    ) -> None:
        self._address = Address.parse(connect)
        self.cluster_address = f"zookeeper://{without_scheme(connect, 'zookeeper')}"
        self._timeout_s = timeout_s
        self._security = security or ZooKeeperSecurity()
        self._patient = patient
        self._session: Session | None = None

    def wait_visible(self, results: Iterable[AlterResult], *, timeout_s: float = 10.0) -> tuple[Entity, ...]:
        return ()

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def describe(self, filter: QuotaFilter = EVERYTHING) -> QuotaSnapshot:
        return Reader(self._open, filter).describe()

    def scram_mechanisms(self, filter: QuotaFilter = EVERYTHING) -> Mapping[Entity, tuple[str, ...]]:
        return Reader(self._open, filter).scram_mechanisms()

    def alter(self, alterations: Sequence[Alteration], *, validate_only: bool = False) -> tuple[AlterResult, ...]:
        return Writer(self._open, self._timeout_s, validate_only=validate_only).alter(alterations)

    def broker_count(self) -> int:
        (names,) = self._open().children([_IDS])
        return len(names or ())

    def elsewhere(self) -> str | None:
        ids, names = self._open().children([_IDS, "/"])
        if ids is not None or names is None:
            return None
        below = self._open().children(f"/{name}{_IDS}" for name in names)
        return next((f"/{name}" for name, ids in zip(names, below, strict=True) if ids is not None), None)

    def cluster_id(self) -> str | None:
        (node,) = self._open().nodes([znode.CLUSTER_ID])
        return znode.cluster_id(node.data) if node is not None else None

    def user_nodes(self) -> tuple[UserNode, ...]:
        """The nodes of users, and of the clients of users, with which something is wrong. No credential is in them."""
        from kquota.core.change.migration import UserNode

        session = self._open()
        users = [f"{_USERS}/{name}" for name in session.children([_USERS])[0] or ()]
        nodes = zip(users, session.nodes(users), strict=True)
        incomplete = {path: _incomplete(None if node is None else node.data) for path, node in nodes}
        parents = [f"{path}/{znode.CLIENTS}" for path in users]
        pairs = [
            f"{parent}/{name}"
            for parent, names in zip(parents, session.children(parents), strict=True)
            for name in names or ()
        ]
        paths = users + pairs
        found = []
        for path, acl in zip(paths, session.acls(paths), strict=True):
            try:
                node = UserNode(path, znode.entity_of(path), _private(acl or ()), incomplete.get(path, ()))
            except InputError:
                continue  # a bad escape in the name: the snapshot has it among its problems
            if node.private_acl is not None or node.incomplete:
                found.append(node)
        return tuple(found)

    def journal(self) -> ZooKeeperJournal:
        return ZooKeeperJournal(self._open)

    def _open(self) -> Session:
        within_s = self._timeout_s
        if self._session is not None and not self._session.is_open:
            if self._session.is_silent:
                within_s = min(within_s, _AGAIN_S)
            self.close()
        if self._session is None:
            session = Session(self._address, self._timeout_s, self._security, patient=self._patient)
            session.open(within_s)
            self._session = session
        return self._session


def _incomplete(data: bytes | None) -> tuple[str, ...]:
    """The mechanisms whose credential `ScramCredentialUtils.credentialFromString` would refuse."""
    entries = znode.NodeConfig.decode(data).entries
    return tuple(
        mechanism
        for mechanism in znode.SCRAM_MECHANISMS
        if mechanism in entries and not znode.is_credential(str(entries[mechanism]))
    )


def _private(acl: Sequence[Acl]) -> str | None:
    """The ACL without the world, of a node that others than the world own; None where that is how it is."""
    owners = [each for each in acl if each.scheme != "world"]
    if not owners or len(owners) == len(acl):
        return None
    return ",".join(_acl_text(each) for each in owners)


def _acl_text(acl: Acl) -> str:
    """As ZooKeeper's shell takes it. A digest would show the hash of a password: whoever is logged in, instead."""
    permissions = "".join(letter for bit, letter in _PERMISSIONS if acl.permissions & bit)
    return f"auth::{permissions}" if acl.scheme == "digest" else f"{acl.scheme}:{acl.id}:{permissions}"
