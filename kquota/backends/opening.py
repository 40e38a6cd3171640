"""Opens the backend of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kquota.backends import QuotaBackend
from kquota.errors import InputError

if TYPE_CHECKING:
    from kquota.backends.kafka import KafkaSecurity
    from kquota.backends.zookeeper import ZooKeeperSecurity


def connect(
    *,
    zookeeper: str | None = None,
    bootstrap_server: str | None = None,
    timeout_s: float = 10.0,
    security: ZooKeeperSecurity | KafkaSecurity | None = None,
    patient: bool = False,
) -> QuotaBackend:
    """The backend of a cluster, by its ZooKeeper (`host:port[,host:port][/chroot]`) or by its brokers.

    Exactly one of `zookeeper` and `bootstrap_server` (`host:port[,host:port]`, Kafka 2.6 and later) is given. The
    connection is made when it is first needed; each wait for the cluster is at most `timeout_s` seconds. A server that
    refuses connections is an error at once; with `patient` it is waited for, as one that comes up. Raises InputError
    for a malformed address.
    """
    if bool(zookeeper) == bool(bootstrap_server):
        raise InputError("give either zookeeper or bootstrap_server")
    if zookeeper:
        from kquota.backends.zookeeper import ZooKeeperBackend, ZooKeeperSecurity

        assert security is None or isinstance(security, ZooKeeperSecurity)
        return ZooKeeperBackend(zookeeper, timeout_s=timeout_s, security=security, patient=patient)
    from kquota.backends.kafka import KafkaBackend, KafkaSecurity

    assert bootstrap_server is not None
    assert security is None or isinstance(security, KafkaSecurity)
    return KafkaBackend(bootstrap_server, timeout_s=timeout_s, security=security, patient=patient)
