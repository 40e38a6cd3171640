"""The request loggers of brokers and controllers, and the room for their lines (KIP-412, KIP-827, KIP-919)."""

from kquota.backends import BrokerLoggers, wire
from kquota.backends.kafka.codes import NONE
from kquota.backends.kafka.nodes import Nodes
from kquota.backends.kafka.security import KafkaSecurity
from kquota.backends.kafka.session import Unanswered, of_first
from kquota.core.change.plan import Cluster
from kquota.core.change.recording import ANCESTORS, LOGGER, Level, Space, level_of
from kquota.errors import Rejected, Uncertain


class KafkaLoggers(BrokerLoggers):
    """Reads and sets the level of the request logger, node by node; see `BrokerLoggers` for the contract.

    `bootstrap` is `host:port[,host:port]` of brokers (Kafka 2.8 and later), or with `controllers` of KRaft controllers
    (Kafka 3.7 and later). Raises InputError for a malformed address.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        timeout_s: float = 10.0,
        security: KafkaSecurity | None = None,
        controllers: bool = False,
    ) -> None:
        self._nodes = Nodes(bootstrap, timeout_s=timeout_s, security=security, controllers=controllers)
        self._address = f"{'controller' if controllers else 'kafka'}://{bootstrap}"

    @property
    def noun(self) -> str:
        return self._nodes.noun

    def close(self) -> None:
        self._nodes.close()

    def place(self) -> Cluster:
        return Cluster(self._address, self._nodes.cluster_id())

    def nodes(self) -> tuple[int, ...]:
        return tuple(sorted(self._nodes.addresses()))

    def level(self, node: int) -> Level:
        resource = wire.DescribeConfigsResource(wire.LOGGER_RESOURCE, str(node), [LOGGER, *ANCESTORS])
        request = wire.DescribeConfigsRequest([resource], include_synonyms=False)
        with self._nodes.asking(node) as session:
            answer = session.answer(request, wire.DescribeConfigsResponse, of_first)
        found = level_of({each.name: each.value for each in answer.results[0].configs if each.value is not None})
        if found is None:
            raise Rejected(
                f"{self.noun} {node} has no logger {LOGGER}", hint="its logging is not log4j, which Kafka changes"
            )
        return found

    def set_level(self, node: int, level: str | None) -> None:
        operation = wire.DELETE if level is None else wire.SET
        resource = wire.AlterConfigsResource(
            wire.LOGGER_RESOURCE, str(node), [wire.AlterableConfig(LOGGER, operation, level)]
        )
        request = wire.IncrementalAlterConfigsRequest([resource], validate_only=False)
        with self._nodes.asking(node) as session:
            try:
                session.answer(request, wire.IncrementalAlterConfigsResponse, of_first)
            except Unanswered as error:
                raise Uncertain(f"{self.noun} {node}: may or may not have been switched: {error.message}") from None

    def spaces(self, node: int) -> tuple[Space, ...]:
        request = wire.DescribeLogDirsRequest([])
        with self._nodes.asking(node) as session:
            (answer,) = session.ask([request], wire.DescribeLogDirsResponse)
        return tuple(
            Space(node, each.log_dir, _known(each.total_bytes), _known(each.usable_bytes))
            for each in answer.results
            if each.error_code == NONE
        )


def _known(size: int) -> int | None:
    return None if size < 0 else size
