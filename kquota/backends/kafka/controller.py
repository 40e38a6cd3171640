"""Quotas through the KRaft controllers themselves (`--bootstrap-controller`, KIP-919): altered without being seen.

A controller serves AlterClientQuotas and not DescribeClientQuotas (Kafka up to 4.3), so it takes a change and does not
show what was set before. Only the active one takes it; the others answer NOT_CONTROLLER and name the active one.
"""

import time
from collections.abc import Iterable, Sequence
from typing import Any, Final, NoReturn

from kquota.backends import QuotaBackend, wire
from kquota.backends.addresses import Server, Servers, without_scheme
from kquota.backends.kafka.codes import NONE, NOT_CONTROLLER
from kquota.backends.kafka.connection import Connection, Deadline, Lost
from kquota.backends.kafka.security import KafkaSecurity
from kquota.backends.kafka.session import PAUSE_S, Session
from kquota.backends.kafka.turns import Turns
from kquota.backends.kafka.writer import Writer
from kquota.core.quotas.alteration import Alteration, AlterResult
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.selector import EVERYTHING, QuotaFilter
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.errors import Rejected, Unauthorized, Unreachable

_BROKERS: Final = "brokers are asked with --bootstrap-server HOST:PORT"
_ALTERED: Final = wire.AlterClientQuotasResponse


class ControllerBackend(QuotaBackend):
    """Writes quotas through a controller; see `QuotaBackend`, of which `describe` and `wait_visible` raise Rejected.

    `bootstrap` is `host:port[,host:port]` of controllers, active or not. Each wait is at most `timeout_s` seconds; with
    `patient`, controllers that are not up yet are waited for as long. Raises InputError for a malformed address.
    """

    def __init__(
        self, bootstrap: str, *, timeout_s: float = 10.0, security: KafkaSecurity | None = None, patient: bool = False
    ) -> None:
        self._session = _ControllerSession(
            Servers.parse(bootstrap, "controller"), timeout_s, security or KafkaSecurity(), patient=patient
        )
        self._bootstrap = without_scheme(bootstrap, "controller")
        self.cluster_address = f"controller://{self._bootstrap}"
        self._turns = Turns(self.cluster_id, self._bootstrap)

    def close(self) -> None:
        self._session.close()

    def describe(self, filter: QuotaFilter = EVERYTHING) -> QuotaSnapshot:
        _refuse("quotas cannot be read there")

    def alter(self, alterations: Sequence[Alteration], *, validate_only: bool = False) -> tuple[AlterResult, ...]:
        """As `QuotaBackend.alter`, but for `AlterResult.blind`. Raises Rejected for a strict removal."""
        if any(alteration.strict_remove or alteration.strict_any for alteration in alterations):
            _refuse("whether a key is set before it is deleted cannot be checked there")
        writer = Writer(self._session, None, validate_only=validate_only)
        if validate_only:
            return writer.alter(alterations)
        with self._turns.alone():
            try:
                return writer.alter(alterations)
            finally:
                self._turns.wrote(writer.written)

    def cluster_id(self) -> str | None:
        try:
            return self._session.describe_cluster(wire.CONTROLLERS).cluster_id or None
        except (Rejected, Unauthorized):  # a controller before 3.7
            return None

    def wait_visible(self, results: Iterable[AlterResult], *, timeout_s: float = 10.0) -> tuple[Entity, ...]:
        _refuse("whether brokers show a change cannot be seen there")


def _refuse(what: str) -> NoReturn:
    raise Rejected(f"controllers do not serve DescribeClientQuotas: {what}", hint=_BROKERS)


class _ControllerSession(Session):
    """Requests to the active controller, which any controller knows."""

    def ask(
        self, requests: Sequence[wire.Request], kind: type, deadline: Deadline | None = None, *, once: bool = False
    ) -> list[Any]:
        answers = super().ask(requests, kind, deadline, once=once)
        entries = [entry for answer in answers if isinstance(answer, _ALTERED) for entry in answer.entries]
        if any(entry.error_code == NOT_CONTROLLER for entry in entries):
            # Another one has become active: the next request looks for it.
            self.close()
        return answers

    def _open(self, deadline: Deadline) -> Connection:
        if self._connection is not None:
            return self._connection
        connection = super()._open(deadline)
        if connection.speaks(wire.ApiKey.DESCRIBE_CLIENT_QUOTAS):
            self.close()
            raise Rejected(f"Kafka at {connection.server} is a broker, not a controller", hint=_BROKERS)
        active = self._active(connection, deadline)
        if active is None or active == connection.server:
            return connection
        self.close()
        try:
            self._connection = Connection.open(active, self._security, deadline)
        except Lost as lost:
            raise Unreachable(f"cannot reach the active controller at {active}: {lost.why}", hint=lost.hint) from None
        return self._connection

    @staticmethod
    def _active(connection: Connection, deadline: Deadline) -> Server | None:
        """Where the active controller is; None where it is not told, to those without ALTER on the cluster.

        Raises Lost.
        """
        request = wire.DescribeClusterRequest(False, wire.CONTROLLERS)
        while True:
            try:
                (answer,) = connection.ask([request], wire.DescribeClusterResponse, deadline)
            except Rejected:  # a controller before 3.7
                return None
            if answer.error_code != NONE:
                return None
            for node in answer.brokers:
                if node.broker_id == answer.controller_id:
                    return Server(node.host, node.port)
            # An election is under way.
            if deadline.left < 2 * PAUSE_S:
                return None
            time.sleep(PAUSE_S)
