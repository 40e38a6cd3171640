"""The workload of the pairs: who does what, and which limits each client meets under each set of quotas.

Limits are in bytes per second as one broker counts them. A cluster of several brokers
spreads each topic over all of them, so that each broker gets its part of the limit.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey
from kquota.core.quotas.snapshot import QuotaSnapshot

PRODUCE, FETCH, REQUEST, MUTATION, CONNECT = (
    QuotaKey.PRODUCER_BYTE_RATE,
    QuotaKey.CONSUMER_BYTE_RATE,
    QuotaKey.REQUEST_PERCENTAGE,
    QuotaKey.CONTROLLER_MUTATION_RATE,
    QuotaKey.CONNECTION_CREATION_RATE,
)
SETS = ("none", "moderate", "tight")
STORM_IP = "127.0.0.2"
"""The storm of connections comes from this address of the loopback interface."""

LIBRDKAFKA, JAVA, SOCKETS = "librdkafka", "java", "sockets"


@dataclass(frozen=True)
class Client:
    """One client of the workload."""

    name: str
    """Its client-id too."""
    library: str
    user: str
    does: str
    """The behaviour: a function of `clients.py`, or a word that `PairClients.java` knows."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """What the behaviour is given: seconds, bytes, counts."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of the library's client."""
    client_id: str = ""
    """Another client-id than its name."""

    @property
    def id(self) -> str:
        """The client-id."""
        return self.client_id or self.name


def _rdk(name: str, user: str, does: str, settings: Mapping[str, str] | None = None, **options: Any) -> Client:
    client_id = options.pop("client_id", "")
    return Client(name, LIBRDKAFKA, user, does, options, settings or {}, client_id)


def _java(name: str, user: str, does: str, settings: Mapping[str, str] | None = None, **options: Any) -> Client:
    return Client(name, JAVA, user, does, options, settings or {})


BACKLOG_RECORDS = 5_000
"""Records of 2 kB on `history`, before the clients start."""
FEED = {"per_s": 16, "size": 2_000}

CLIENTS: tuple[Client, ...] = (
    # Producers: a schedule by wall clock, whatever the broker does.
    _rdk("const", "alice", "paced", {"linger.ms": "5", "acks": "1"}, topic="const", per_s=20, size=2_000),
    _rdk("tiny", "alice", "paced", {"linger.ms": "0", "acks": "all"}, topic="load", per_s=40, size=100),
    _rdk("burst", "alice", "bursts", {"linger.ms": "20"}, topic="load", every=12, count=15, size=20_000),
    _rdk("shared-a", "dave", "paced", {"linger.ms": "5"}, topic="load", per_s=10, size=2_000, poisson=True),
    _rdk("shared-b", "dave", "paced", {"linger.ms": "5"}, topic="load", per_s=10, size=2_000),
    _rdk("careless", "alice", "paced", {"linger.ms": "5", "acks": "0"}, topic="load", per_s=15, size=2_000),
    _rdk(
        "zipped",
        "alice",
        "paced",
        {"linger.ms": "20", "compression.type": "gzip"},
        topic="load",
        per_s=15,
        size=4_000,
        text=True,
    ),
    _rdk("txn", "alice", "transactions", {"linger.ms": "5"}, topic="load", every=0.5, count=5, size=2_000),
    _rdk("loop", "alice", "synchronous", {"linger.ms": "0"}, topic="load", think=0.045, size=10_000),
    _rdk("job", "alice", "at_once", {}, topic="load", at=20 / 75, count=3_000, size=2_000),
    _rdk("sat", "alice", "saturating", {"linger.ms": "2", "batch.size": "12000"}, topic="load", size=4_000),
    _java("jconst", "carol", "paced", {"acks": "all", "linger.ms": "5"}, topic="load", per_s=20, size=2_000),
    _java("jtiny", "carol", "paced", {"acks": "1", "linger.ms": "0"}, topic="load", per_s=40, size=100),
    _java(
        "jblock",
        "carol",
        "paced",
        {"acks": "1", "linger.ms": "5", "buffer.memory": "100000", "max.block.ms": "600000"},
        topic="load",
        per_s=14,
        size=4_000,
    ),
    _java("jloop", "carol", "synchronous", {"acks": "all", "linger.ms": "0"}, topic="load", think=0.06, size=4_000),
    _java(
        "jzip",
        "carol",
        "paced",
        {"acks": "1", "linger.ms": "20", "compression.type": "gzip"},
        topic="load",
        per_s=15,
        size=4_000,
        text=True,
    ),
    # Feeders, which no quota limits.
    _rdk("feed", "grace", "paced", {"linger.ms": "5"}, topic="feed", **FEED),
    _rdk("feed4", "grace", "paced", {"linger.ms": "5"}, topic="feed4", **FEED),
    # Consumers: of fresh data, of a throttled producer's topic, of a backlog; two that share.
    _rdk("fresh", "bob", "consume", {}, topic="feed", expect="feed"),
    _rdk("freshok", "bob", "consume", {}, topic="feed", expect="feed"),
    _java("jfresh", "bob", "consume", {}, topic="feed", expect="feed"),
    _rdk("coupled", "bob", "consume", {}, topic="const", expect="const"),
    _rdk("team-a", "erin", "consume", {}, topic="feed4", expect="feed4", share=(0, 2), client_id="team"),
    _rdk("team-b", "erin", "consume", {}, topic="feed4", expect="feed4", share=(1, 2), client_id="team"),
    _rdk("backlog", "bob", "consume", {}, topic="history", expect="backlog"),
    _java("jback", "bob", "consume", {}, topic="history", expect="backlog"),
    _java(
        "jpaced",
        "bob",
        "consume",
        {"fetch.max.bytes": "80000", "max.partition.fetch.bytes": "40000"},
        topic="history",
        expect="backlog",
        think=0.02,
    ),
    # Requests without bytes.
    _rdk("poll", "frank", "ask", {}, topic="load", per_s=12),
    _rdk("mut", "frank", "mutate", {}, every=1.0, partitions=2),
    _java("jmut", "frank", "mutate", {}, every=1.0, partitions=2, retries=True),
    _java("jtry", "frank", "mutate", {}, every=1.0, partitions=2, retries=False),
    Client("storm", SOCKETS, "ANONYMOUS", "storm", {"per_s": 12}),
)

# Entity of the limit, key, limit when moderate, limit when tight.
LIMITS: tuple[tuple[Entity, QuotaKey, float, float], ...] = (
    (Entity(client_id="const"), PRODUCE, 40_000, 22_000),
    (Entity("alice", "tiny"), PRODUCE, 7_000, 4_000),
    (Entity(client_id="burst"), PRODUCE, 24_000, 14_000),
    (Entity(user="dave"), PRODUCE, 40_000, 23_000),
    (Entity(client_id="careless"), PRODUCE, 28_000, 17_000),
    (Entity(client_id="zipped"), PRODUCE, 33_000, 18_000),
    (Entity("alice", "txn"), PRODUCE, 19_000, 11_000),
    (Entity(client_id="loop"), PRODUCE, 150_000, 80_000),
    (Entity(client_id="job"), PRODUCE, 200_000, 100_000),
    (Entity(client_id="sat"), PRODUCE, 250_000, 120_000),
    (Entity(client_id="jconst"), PRODUCE, 44_000, 24_000),
    (Entity("carol", "jtiny"), PRODUCE, 6_500, 3_500),
    (Entity(client_id="jblock"), PRODUCE, 54_000, 33_000),
    (Entity(client_id="jloop"), PRODUCE, 52_000, 30_000),
    (Entity(client_id="jzip"), PRODUCE, 33_000, 18_000),
    (Entity(client_id="fresh"), FETCH, 29_500, 18_000),
    (Entity("bob", "freshok"), FETCH, 37_000, 29_500),
    (Entity(client_id="jfresh"), FETCH, 29_000, 18_000),
    (Entity(client_id="coupled"), FETCH, 38_500, 20_000),
    (Entity(user="erin"), FETCH, 31_000, 18_000),
    (Entity(client_id="backlog"), FETCH, 300_000, 150_000),
    (Entity(client_id="jback"), FETCH, 300_000, 150_000),
    (Entity(client_id="jpaced"), FETCH, 90_000, 50_000),
    (Entity(client_id="poll"), REQUEST, 0.5, 0.2),
    (Entity(client_id="mut"), MUTATION, 1.6, 0.9),
    (Entity(client_id="jmut"), MUTATION, 1.6, 0.9),
    (Entity(client_id="jtry"), MUTATION, 1.6, 0.9),
    (Entity(ip=STORM_IP), CONNECT, 10, 6),
)
UNLIMITED_SAT = 400_000
"""What a client that sends as fast as it can is held to where there are no quotas: it would take the machine."""

TOPICS = {"const": 1, "load": 3, "feed": 1, "feed4": 4, "history": 2, "warm": 1}
"""Partitions on one broker; on several, each topic has one on each at least."""


def topics(brokers: int = 1) -> dict[str, int]:
    """The partitions of each topic."""
    return {name: max(count, brokers) for name, count in TOPICS.items()}


def quotas(name: str, brokers: int = 1) -> QuotaSnapshot:
    """The quotas of a set."""
    if name == "none":
        return QuotaSnapshot({Entity(client_id="sat"): {PRODUCE: UNLIMITED_SAT // brokers}})
    column = SETS.index(name) - 1
    found = []
    for entity, key, *limits in LIMITS:
        limit = limits[column]
        found.append((entity, {key: round(limit / brokers) if key in (PRODUCE, FETCH) else limit}))
    return QuotaSnapshot(dict(found))
