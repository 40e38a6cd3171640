"""The nodes as texts: what Kafka's own tool needs, which stores any value that it can parse, verbatim.

Everything of kquota's own goes through `ZooKeeperBackend`, which refuses values that a broker could not use.
"""

from collections.abc import Callable, Mapping, Sequence

from kquota.backends import Closable
from kquota.backends.addresses import Address
from kquota.backends.znode import NodeChange, NodeConfig, encode_config
from kquota.backends.zookeeper.security import ZooKeeperSecurity
from kquota.backends.zookeeper.session import Session
from kquota.backends.zookeeper.writer import Writer
from kquota.core.quotas.alteration import AlterResult
from kquota.core.quotas.entity import Entity
from kquota.errors import InputError


class RawConfigs(Closable):
    """The config nodes of a cluster in ZooKeeper mode; a context manager that connects at once.

    Connecting takes at most `timeout_s` seconds, and so does waiting for any answer; with `patient`, servers that are
    not up yet are waited for as long. A chroot that does not exist reads as empty. Raises InputError for a
    malformed address, Unreachable and Unauthorized.
    """

    def __init__(
        self, connect: str, *, timeout_s: float = 30.0, security: ZooKeeperSecurity | None = None, patient: bool = False
    ) -> None:
        self._session = Session(Address.parse(connect), timeout_s, security or ZooKeeperSecurity(), patient=patient)
        self._session.open(any_chroot=True)

    def close(self) -> None:
        """Ends the session; a second call does nothing."""
        self._session.close()

    def children(self, paths: Sequence[str]) -> list[list[str]]:
        """The names below each path in the order of the server; none where there is no such node."""
        return [names or [] for names in self._session.children(paths, fresh=True)]

    def data(self, paths: Sequence[str]) -> list[bytes | None]:
        """The data of each node, None where there is none."""
        return [None if node is None else node.data for node in self._session.nodes(paths, fresh=True)]

    def change(self, entity: Entity, change: Callable[[bytes | None], Mapping[str, str]]) -> AlterResult:
        """Writes what `change` makes of the entity's data, with the change notification in one transaction.

        The node must still have the version that was read: where another writer came first it is read again, and
        `change` is asked again. Nothing else stops the write, not even a result equal to what is there: brokers read
        the entity again, as after a write of Kafka's tool. Raises what `change` raises; InputError for a name that no
        node can have, and where there is no chroot; Rejected for a cluster on its way to KRaft; Conflict, Unreachable
        (Uncertain where the write may have been made), Unauthorized.
        """

        def changed(data: bytes | None) -> NodeChange:
            config = change(data)
            return NodeChange(
                NodeConfig.decode(data).values(entity), NodeConfig(config).values(entity), encode_config(config)
            )

        if self.data(["/"]) == [None]:
            changed(None)
            address = self._session.address
            raise InputError(f"there is no chroot {address.chroot} in ZooKeeper at {address}")
        writer = Writer(lambda: self._session, validate_only=False)
        result = writer.change(entity, changed)
        if result.error is not None:
            raise result.error
        return result
