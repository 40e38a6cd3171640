"""Each node of a cluster by itself: brokers, or KRaft controllers, on connections of their own.

A broker answers for its own configs and loggers only; DescribeCluster says where the nodes are (KIP-700, KIP-919).
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Final

from kquota.backends import wire
from kquota.backends.addresses import Server, Servers
from kquota.backends.kafka.codes import NONE, TOPIC_EXISTS, UNKNOWN_TOPIC, error_of, is_transient
from kquota.backends.kafka.connection import Deadline
from kquota.backends.kafka.security import KafkaSecurity
from kquota.backends.kafka.session import PAUSE_S, Session, Unanswered, of_first
from kquota.errors import InputError, Uncertain, Unreachable

_TOPIC_MS: Final = 10_000
"""How long a cluster may take to make or to delete a topic."""


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
        self.any = Session(Servers.parse(bootstrap), timeout_s, self._security)
        """A session with any node."""
        self._sessions: dict[int, Session] = {}

    @property
    def noun(self) -> str:
        """What a node is called: broker or controller."""
        return "controller" if self._kind == wire.CONTROLLERS else "broker"

    def close(self) -> None:
        """Drops all connections."""
        for session in (self.any, *self._sessions.values()):
            session.close()

    def addresses(self) -> dict[int, Server]:
        """Where the nodes are that are alive. Raises Unreachable, Unauthorized, Rejected."""
        return {node.broker_id: Server(node.host, node.port) for node in self.any.describe_cluster(self._kind).brokers}

    def cluster_id(self) -> str:
        """Kafka's cluster id. Raises as `addresses` does."""
        return str(self.any.describe_cluster(self._kind).cluster_id)

    def address_of(self, node: int) -> Server:
        """Where a node is. Raises InputError for one that is not alive in the cluster, and as `addresses` does."""
        addresses = self.addresses()
        if node not in addresses:
            alive = ", ".join(map(str, sorted(addresses)))
            raise InputError(f"there is no {self.noun} {node} alive in the cluster", hint=f"{self.noun}s: {alive}")
        return addresses[node]

    @contextmanager
    def asking(self, node: int | None) -> Iterator[Session]:
        """A session with that node, and errors that name it; None: with any. Raises InputError for one not alive."""
        if node is None:
            yield self.any
            return
        session = self._sessions.get(node)
        if session is None:
            session = Session(Servers((self.address_of(node),)), self._timeout_s, self._security)
            self._sessions[node] = session
        try:
            yield session
        except Unreachable as error:
            raise type(error)(f"{self.noun}={node}: {error.message}", hint=error.hint) from None

    # Configs

    def configs(self, kind: int, node: int | None, names: list[str] | None = None) -> Any:
        """The configs of a resource of that kind, from its node; None: the defaults of all nodes, from any one.

        `names` are whole names, None for all. Raises as `asking` does.
        """
        resource = wire.DescribeConfigsResource(kind, _resource(node), names)
        request = wire.DescribeConfigsRequest([resource], include_synonyms=True)
        with self.asking(node) as session:
            return session.answer(request, wire.DescribeConfigsResponse, of_first).results[0].configs

    def alter_configs(
        self, kind: int, node: int | None, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Sets configs of a resource; deletes each whose value is None. Raises Uncertain, and as `asking` does."""
        configs = [
            wire.AlterableConfig(name, wire.DELETE if value is None else wire.SET, value)
            for name, value in changes.items()
        ]
        resource = wire.AlterConfigsResource(kind, _resource(node), configs)
        request = wire.IncrementalAlterConfigsRequest([resource], validate_only)
        with self.asking(node) as session:
            try:
                session.answer(request, wire.IncrementalAlterConfigsResponse, of_first)
            except Unanswered as error:
                if validate_only:
                    raise
                raise Uncertain(f"may or may not have been altered: {error.message}", hint="describe it") from None

    # Topics

    def topic(self, name: str) -> Any | None:
        """What brokers know of a topic; None for a topic that is not there. Raises as `addresses` does."""
        (answer,) = self.any.ask([wire.MetadataRequest([name])], wire.MetadataResponse)
        (topic,) = answer.topics
        if topic.error_code == UNKNOWN_TOPIC:
            return None
        if topic.error_code != NONE and not is_transient(topic.error_code):
            raise error_of(topic.error_code, f"topic {name!r}")
        return topic

    def create_topic(self, name: str, configs: Mapping[str, str] = MappingProxyType({}), *, replicas: int = -1) -> bool:
        """Makes a topic of one partition, with at most so many replicas or the usual number; False where there is one.

        Raises as `addresses` does, InputError for what the cluster does not take.
        """
        replicas = min(replicas, len(self.addresses()))
        wanted = [wire.CreateTopicsConfig(*config) for config in configs.items()]
        topic = wire.CreatableTopic(name, 1, replicas, [], wanted)
        request = wire.CreateTopicsRequest([topic], _TOPIC_MS)
        return self._ask_controller(request, wire.CreateTopicsResponse, name, TOPIC_EXISTS)

    def delete_topic(self, name: str) -> bool:
        """Deletes a topic; False where there is none. Raises as `addresses` does."""
        request = wire.DeleteTopicsRequest([name], _TOPIC_MS)
        return self._ask_controller(request, wire.DeleteTopicsResponse, name, UNKNOWN_TOPIC)

    def _ask_controller(self, request: Any, kind: type, name: str, done_before: int) -> bool:
        """Whether the request was carried out. In ZooKeeper mode brokers do not pass it on to the controller."""
        deadline = self.any.deadline()
        while True:
            controller = self.any.describe_cluster(self._kind).controller_id
            if controller < 0:  # an election is under way
                if deadline.left < 2 * PAUSE_S:
                    raise Unreachable("the cluster has no controller now", hint="try again once one is elected")
                time.sleep(PAUSE_S)
                continue
            with self.asking(controller) as session:
                (answer,) = session.ask([request], kind)
            (result,) = answer.topics
            if result.error_code in (NONE, done_before):
                return bool(result.error_code == NONE)
            message = getattr(result, "error_message", None)
            pause_or_raise(result.error_code, f"topic {name!r}" + (f": {message}" if message else ""), deadline)


def _resource(node: int | None) -> str:
    return "" if node is None else str(node)


def pause_or_raise(code: int, message: str | None, deadline: Deadline) -> None:
    """Waits a moment for what may pass. Raises the error of the code otherwise."""
    if not is_transient(code) or deadline.left < 2 * PAUSE_S:
        raise error_of(code, message)
    time.sleep(PAUSE_S)
