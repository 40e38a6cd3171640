"""What a migration to KRaft started from, and left behind: the quotas, and the nodes of users beside them."""

from collections.abc import Sequence

from kquota.backends import znode
from kquota.backends.znode import NodeConfig
from kquota.backends.zookeeper.backend import ZooKeeperBackend
from kquota.backends.zookeeper.multiread import GET_CHILDREN, GET_DATA, Acl, Node
from kquota.backends.zookeeper.session import Session
from kquota.core.change.migration import UserNode
from kquota.core.quotas.entity import EntityType
from kquota.errors import InputError

_USERS = znode.ENTITY_ROOTS[EntityType.USER]
_PERMISSIONS = ((4, "c"), (8, "d"), (1, "r"), (2, "w"), (16, "a"))


class MigrationSource(ZooKeeperBackend):
    """The quotas in ZooKeeper, with a look at the nodes of users."""

    def user_nodes(self) -> tuple[UserNode, ...]:
        """The nodes of users, and of the clients of users, with which something is wrong. No credential is in them."""
        session = self._open()
        users = [f"{_USERS}/{name}" for name in _children(session, [_USERS])[0]]
        answers = session.read([(GET_DATA, path) for path in users])
        data = [answer.data if isinstance(answer, Node) else None for answer in answers]
        incomplete = {path: _incomplete(each) for path, each in zip(users, data, strict=True)}
        parents = [f"{path}/{znode.CLIENTS}" for path in users]
        pairs = [
            f"{parent}/{name}"
            for parent, names in zip(parents, _children(session, parents), strict=True)
            for name in names
        ]
        paths = users + pairs
        nodes = []
        for path, acl in zip(paths, session.acls(paths), strict=True):
            try:
                node = UserNode(path, znode.entity_of(path), _private(acl or ()), incomplete.get(path, ()))
            except InputError:
                continue  # a bad escape in the name: the snapshot has it among its problems
            if node.private_acl is not None or node.incomplete:
                nodes.append(node)
        return tuple(nodes)


def _children(session: Session, paths: Sequence[str]) -> list[list[str]]:
    answers = session.read([(GET_CHILDREN, path) for path in paths])
    return [answer if isinstance(answer, list) else [] for answer in answers]


def _incomplete(data: bytes | None) -> tuple[str, ...]:
    """The mechanisms whose credential `ScramCredentialUtils.credentialFromString` would refuse."""
    entries = NodeConfig.decode(data).entries
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
