"""What a broker's static configuration says about quotas."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kquota.core.enforcement.generation import QuotaWindows
from kquota.core.quotas.snapshot import Problem
from kquota.core.quotas.static import NO_STATIC_QUOTAS, StaticQuotas


@dataclass(frozen=True)
class BrokerSettings:
    """The part of a `server.properties` that decides about quotas; by default Kafka's own defaults."""

    windows: QuotaWindows = field(default_factory=QuotaWindows)
    """`quota.window.*`: of the byte, request and connection quotas."""
    controller_windows: QuotaWindows = field(default_factory=QuotaWindows)
    """`controller.quota.window.*`: of the mutation quota; with KRaft those of the controller count."""
    static: StaticQuotas = NO_STATIC_QUOTAS
    io_threads: int = 8
    """`num.io.threads`; 100 % of request quota for each."""
    network_threads: int = 3
    """`num.network.threads`; of each listener."""
    connection_rate: int | None = None
    """`max.connection.creation.rate`, connections per second; None for no limit."""
    listeners: Mapping[str, int | None] = field(default_factory=lambda: {"PLAINTEXT": None})
    """The names of the listeners, in order, and the limit of each."""
    inter_broker_listener: str | None = None
    """One of them, or None where it is none of them (as on a controller)."""
    callback: str | None = None
    """`client.quota.callback.class`, which decides quotas in the place of Kafka's own."""
    problems: tuple[Problem, ...] = ()
    """What is in the file and means nothing to the brokers that read it."""
