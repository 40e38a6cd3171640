"""Quotas in ZooKeeper, where brokers without KRaft keep them; the only package that knows kazoo.

Reads are pipelined in bulk (`MultiRead`, opcode 22, ZooKeeper 3.6 and later, else single reads). Every write is a
compare-and-set of the node together with its change notification in one transaction: both or neither, and never over
what was not read. Sources: `kafka.zk.KafkaZkClient`, `kafka.zk.AdminZkClient` and `kafka.zk.ZkData` of Kafka 2.8.
"""

from kquota.backends.addresses import Address
from kquota.backends.zookeeper.backend import ZooKeeperBackend
from kquota.backends.zookeeper.security import ZooKeeperSecurity

__all__ = ["Address", "ZooKeeperBackend", "ZooKeeperSecurity"]
