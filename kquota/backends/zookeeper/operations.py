"""What transactions consist of: creations with the ACL that Kafka gives a node, and changes of what was read."""

from collections.abc import Sequence
from typing import Any, Protocol

from kquota.backends import znode
from kquota.backends.zookeeper.address import Address
from kquota.backends.zookeeper.multiread import Acl
from kquota.backends.zookeeper.security import ZooKeeperSecurity
from kquota.errors import Unauthorized, Unreachable


class Session(Protocol):
    """What is asked of the session (`kquota.backends.zookeeper.session`)."""

    @property
    def address(self) -> Address: ...

    def acls(self, paths: Sequence[str]) -> list[list[Acl] | None]: ...

    def unreachable(self) -> Unreachable: ...


class Operations:
    """Makes kazoo's operations for transactions of one session; paths are below its chroot."""

    def __init__(self, session: Session, security: ZooKeeperSecurity) -> None:
        self._session = session
        self._security = security
        self._acls: dict[str, list[Acl] | None] = {}

    def create(self, path: str, data: bytes | None, *, sequence: bool = False, ephemeral: bool = False) -> Any:
        """A node with the ACL that Kafka gives it (`ZkData.defaultAcls`).

        Raises Unreachable and Unauthorized where that ACL has to be read first.
        """
        from kazoo.protocol.serialization import Create

        return Create(self._session.address.chroot + path, data, self._acl(path), 2 * sequence + ephemeral)

    def _acl(self, path: str) -> list[Any]:
        from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

        if self._security.digest is not None:
            return self._acl_above(path)
        acl: list[Any]
        if not self._security.creates_as_kafka:
            acl = OPEN_ACL_UNSAFE
        elif znode.is_sensitive(path):
            acl = CREATOR_ALL_ACL
        else:
            acl = CREATOR_ALL_ACL + READ_ACL_UNSAFE
        return acl

    def _acl_above(self, path: str) -> list[Any]:
        """What Kafka gave the nodes above: of a node that is owned by a digest the brokers could not read.

        Raises Unreachable and Unauthorized.
        """
        from kazoo.security import ACL, Id

        top = "/".join(path.split("/")[:3])
        for above in dict.fromkeys((top, znode.CONFIG, "/")):
            if above not in self._acls:
                (self._acls[above],) = self._session.acls([above])
            acl = self._acls[above] if above != path else None
            if acl is None:
                continue
            if any(each.scheme == "digest" and each.id.endswith(":x") for each in acl):
                raise Unauthorized(
                    f"ZooKeeper hides the ACL of {above}, which {path} is to have", hint="authenticate as its owner"
                )
            owners = [each for each in acl if each.scheme != "world"]
            chosen = owners if owners and znode.is_sensitive(path) else acl
            return [ACL(each.permissions, Id(each.scheme, each.id)) for each in chosen]
        raise self._session.unreachable()

    def set_data(self, path: str, data: bytes | None, version: int) -> Any:
        """A write that fails unless the node still has that version; 0 is a version like any other."""
        from kazoo.protocol.serialization import SetData

        return SetData(self._session.address.chroot + path, data, version)

    def check(self, path: str, version: int) -> Any:
        """Has the transaction fail unless the node still has that version."""
        from kazoo.protocol.serialization import CheckVersion

        return CheckVersion(self._session.address.chroot + path, version)

    def delete(self, path: str, version: int) -> Any:
        """A deletion that fails unless the node still has that version."""
        from kazoo.protocol.serialization import Delete

        return Delete(self._session.address.chroot + path, version)
