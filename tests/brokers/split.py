"""A KRaft cluster whose controllers are processes of their own: two of them, of which one is active, and a broker."""

from kquota.backends.kafka import KafkaBackend
from kquota.errors import KquotaError
from tests.brokers.kafka import COORDINATES, VERSION
from tests.brokers.maven import retrieve
from tests.brokers.nodes import Nodes, new_cluster_id
from tests.support.data import data_text
from tests.support.processes import free_ports

_READY_S = 240

_NODE = data_text("brokers/split_node.properties")
_LOG4J2 = data_text("brokers/split_log4j2.properties")


class SplitCluster(Nodes):
    """Controllers 1 and 2 and broker 3, as a context manager; loopback only, files in a temporary folder.

    Raises RuntimeError with the tail of a node's output when the broker does not serve quotas in time.
    """

    def __init__(self) -> None:
        super().__init__("split")
        ports = free_ports(3)
        self._ports = dict(zip((1, 2, 3), ports, strict=True))
        self.controllers = tuple(f"127.0.0.1:{port}" for port in ports[:2])
        """host:port of each controller."""
        self.broker = f"127.0.0.1:{ports[2]}"
        """host:port of the broker."""

    def _start(self) -> None:
        self._jars = retrieve(f"kafka-{VERSION}", COORDINATES)
        logging = self.folder / "log4j2.properties"
        logging.write_text(_LOG4J2)
        options = ("-Xmx192m", f"-Dlog4j2.configurationFile={logging}")
        voters = ",".join(f"{node}@127.0.0.1:{self._ports[node]}" for node in (1, 2))
        cluster_id = new_cluster_id()
        for node, port in self._ports.items():
            is_broker = node == 3
            properties = self.folder / f"{node}.properties"
            properties.write_text(
                _NODE.format(
                    role="broker" if is_broker else "controller",
                    listener="PLAINTEXT" if is_broker else "CONTROLLER",
                    node=node,
                    voters=voters,
                    port=port,
                    data=self.folder / f"data-{node}",
                )
            )
            self._format_storage(properties, cluster_id, options)
            self._launch_node(str(node), properties, options)
        self._await("the cluster", self._serves_quotas, _READY_S, KquotaError)

    def _serves_quotas(self) -> bool:
        with KafkaBackend(self.broker, timeout_s=10) as backend:
            backend.describe()
        return True
