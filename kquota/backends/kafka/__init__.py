"""Quotas through brokers, by DescribeClientQuotas and AlterClientQuotas (KIP-546, Kafka 2.6 and later).

An own blocking transport of the standard library: it names the exact cause of a failure, and costs 20 ms to start. An
alter carries operations on single keys, so nothing is read, modified and written back: no update of others can be lost.
Sources: `org.apache.kafka.clients.admin.KafkaAdminClient`, `kafka.server.KafkaApis` and
`org.apache.kafka.controller.ClientQuotaControlManager` of Kafka 4.3.
"""

from kquota.backends.addresses import Servers
from kquota.backends.kafka.backend import KafkaBackend
from kquota.backends.kafka.security import KafkaSecurity, Plain, Scram

__all__ = ["KafkaBackend", "KafkaSecurity", "Plain", "Scram", "Servers"]
