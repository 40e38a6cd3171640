"""Each node of a cluster by itself: brokers, or KRaft controllers, on connections of their own.

A broker answers for its own configs and loggers only; DescribeCluster says where the nodes are (KIP-700, KIP-919).
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from kquota.backends import wire
from kquota.backends.kafka.address import Server, Servers
from kquota.backends.kafka.codes import NONE, error_of, is_transient
from kquota.backends.kafka.connection import Deadline
from kquota.backends.kafka.security import KafkaSecurity
from kquota.backends.kafka.session import Session
from kquota.errors import InputError, Rejected, Unreachable

_PAUSE_S: Final = 0.1


class Nodes:
    """The nodes of a cluster behind bootstrap addresses, `host:port[,host:port]`.

    With `controllers` these are addresses of controllers, and the nodes are controllers. Every node must be reachable
    where it says that clients find it. Each wait is at most `timeout_s` seconds. Raises InputError for a malformed
    address.
    """

    def __init__(
        self, bootstrap: str, *, timeout_s: float, security: KafkaSecurity | None = None, controllers: bool = False
    ) -> None:
        self._timeout_s = timeout_s
        self._security = security or KafkaSecurity()
        self._kind = wire.CONTROLLERS if controllers else wire.BROKERS
        self._session = Session(Servers.parse(bootstrap), timeout_s, self._security)
        self._sessions: dict[int, Session] = {}

    @property
    def noun(self) -> str:
        """What a node is called: broker or controller."""
        return "controller" if self._kind == wire.CONTROLLERS else "broker"

    def close(self) -> None:
        """Drops all connections."""
        for session in (self._session, *self._sessions.values()):
            session.close()

    def addresses(self) -> dict[int, Server]:
        """Where the nodes are that are alive. Raises Unreachable, Unauthorized, Rejected."""
        return {node.broker_id: Server(node.host, node.port) for node in self._described().brokers}

    def cluster_id(self) -> str:
        """Kafka's cluster id. Raises as `addresses` does."""
        return str(self._described().cluster_id)

    def address_of(self, node: int) -> Server:
        """Where a node is. Raises InputError for one that is not alive in the cluster, and as `addresses` does."""
        addresses = self.addresses()
        if node not in addresses:
            alive = ", ".join(map(str, sorted(addresses)))
            raise InputError(f"there is no {self.noun} {node} alive in the cluster", hint=f"{self.noun}s: {alive}")
        return addresses[node]

    @contextmanager
    def any(self) -> Iterator[tuple[Session, Deadline]]:
        """A session with any node."""
        yield self._session, self._session.deadline()

    @contextmanager
    def asking(self, node: int) -> Iterator[tuple[Session, Deadline]]:
        """A session with that node, and errors that name it. Raises InputError for one that is not alive."""
        session = self._sessions.get(node)
        if session is None:
            session = Session(Servers((self.address_of(node),)), self._timeout_s, self._security)
            self._sessions[node] = session
        try:
            yield session, session.deadline()
        except Unreachable as error:
            raise Unreachable(f"{self.noun}={node}: {error.message}", hint=error.hint) from None

    def _described(self) -> wire.DescribeClusterResponse:
        deadline = self._session.deadline()
        while True:
            answer = self._session.describe_cluster(self._kind, deadline)
            if answer.error_code == NONE:
                return answer
            pause_or_raise(answer.error_code, answer.error_message, deadline)


def result_of(session: Session, request: wire.Request, kind: type, deadline: Deadline) -> Any:
    """The only result in the answer, once there is one without an error that may pass. Raises the error of its code."""
    while True:
        (answer,) = session.ask([request], kind, deadline)
        if not answer[-1]:
            raise Rejected("the broker's answer is empty")
        (result, *_) = answer[-1]
        if result.error_code == NONE:
            return result
        pause_or_raise(result.error_code, result.error_message, deadline)


def pause_or_raise(code: int, message: str | None, deadline: Deadline) -> None:
    """Waits a moment for what may pass. Raises the error of the code otherwise."""
    if not is_transient(code) or deadline.left < 2 * _PAUSE_S:
        raise error_of(code, message)
    time.sleep(_PAUSE_S)
