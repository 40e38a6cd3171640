"""The nodes as texts: what Kafka's own tool needs, which stores any value that it can parse, verbatim.

Everything of kquota's own goes through `ZooKeeperBackend`, which refuses values that a broker could not use.
"""

from collections.abc import Callable, Mapping, Sequence

from kquota.backends import Closable
from kquota.backends.addresses import Address
from kquota.backends.znode import NodeChange, NodeConfig, encode_config
from kquota.backends.zookeeper.requests import GET_CHILDREN, GET_DATA, Node
from kquota.backends.zookeeper.security import ZooKeeperSecurity
from kquota.backends.zookeeper.session import Session
from kquota.backends.zookeeper.writer import Writer
from kquota.core.quotas.alteration import AlterResult
from kquota.core.quotas.entity import Entity
from kquota.errors import InputError


class RawConfigs(Closable):
    """The config nodes of a cluster in ZooKeeper mode; a context manager that connects at once.

    Connecting takes at most `timeout_s` seconds, and so does waiting for any answer; with `patient`, servers that are
    not up yet are waited for as long. A chroot that does not exist reads as empty (`has_chroot` says so). Raises
    InputError for a malformed address, Unreachable and Unauthorized.
    """

    def __init__(
        self,
        connect: str | Address,
        *,
        timeout_s: float = 30.0,
        security: ZooKeeperSecurity | None = None,
        patient: bool = False,
    ) -> None:
        self._address = Address.parse(connect) if isinstance(connect, str) else connect
        self._patient = patient
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
                NodeConfig.decode(data).values(entity),
                NodeConfig(config).values(entity),
                encode_config(config),
            )

        if not self.has_chroot:
            changed(None)
            raise InputError(f"there is no chroot {self._address.chroot} in ZooKeeper at {self._address}")
        writer = Writer(lambda: self._session, self._timeout_s, validate_only=False)
        result = writer.change(entity, changed)
        if result.error is not None:
            raise result.error
        return result

    def _open(self) -> Session:
        session = Session(self._address, self._timeout_s, self._security, patient=self._patient)
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
