"""The requests of Kafka by name, and which requests the request quota does not charge.

The thread time of these goes to the broker's one `exempt-request-time`.

KIP-124 exempts fetches of followers, and SaslHandshake while it authenticates. It exempts four requests that brokers
send each other, unless their authorization for ClusterAction fails. Shipped, since 0.11.0: all of these, a table of
APIs that grew with Kafka, and produce requests with acks=0. It is the API that counts, not the listener: heartbeats and
registrations of brokers need the same authorization and are charged like any other request. Timing-sensitive requests
of consumers are not exempt either; the KIP considered and rejected that. Nor is anything of share groups (KIP-932):
brokers that write their state to the share coordinator are charged for it as clients, with client-ids such as
`Persister-client-1`.

Sources: the callers of `sendResponseExemptThrottle` and `sendNoOpResponseExemptThrottle` in `KafkaApis` and
`ControllerApis`; read in the tags 0.11.0.0 to 3.7.0, in trunk, and in the classes of 4.3.1 and 4.4.0. The
names are from `ApiKeys` of Kafka 4.3.1, and from earlier releases.
"""

import difflib
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from kquota.core.quotas.version import Version
from kquota.errors import InputError


@dataclass(frozen=True, slots=True)
class Exemption:
    """An API whose requests are exempt, unless their authorization fails."""

    api: str
    """Its name in Kafka's `ApiKeys`, and in request logs."""
    since: Version
    """The first release in which it is."""
    until: Version | None = None
    """The first release in which it is charged, or gone; None for still exempt."""
    gone: bool = False
    """Whether brokers do not know the API from `until` on; else they charge it from then on."""


_KRAFT: Final = (4, 0, 0)
"""Gone with ZooKeeper."""

EXEMPTIONS: Final = (
    # KIP-124's own list.
    Exemption("STOP_REPLICA", (0, 11, 0), _KRAFT, gone=True),
    Exemption("CONTROLLED_SHUTDOWN", (0, 11, 0), _KRAFT, gone=True),
    Exemption("LEADER_AND_ISR", (0, 11, 0), _KRAFT, gone=True),
    Exemption("UPDATE_METADATA", (0, 11, 0), _KRAFT, gone=True),
    # What came with transactions, and what consumers were allowed to ask from 2.1 on (KIP-320).
    Exemption("WRITE_TXN_MARKERS", (0, 11, 0)),
    Exemption("OFFSET_FOR_LEADER_EPOCH", (0, 11, 0), (2, 1, 0)),
    # KIP-497; renamed in 3.2.
    Exemption("ALTER_ISR", (2, 7, 0), (3, 2, 0), gone=True),
    Exemption("ALTER_PARTITION", (3, 2, 0)),
    # An envelope (KIP-590) is not charged itself: the request in it is, on the controller.
    Exemption("ENVELOPE", (2, 8, 0)),
    # KRaft: `ControllerApis.handleRaftRequest`. A broker charges its client for what it forwards to a controller: for
    # describing the quorum, and for adding and removing voters.
    Exemption("VOTE", (2, 8, 0)),
    Exemption("BEGIN_QUORUM_EPOCH", (2, 8, 0)),
    Exemption("END_QUORUM_EPOCH", (2, 8, 0)),
    Exemption("FETCH_SNAPSHOT", (3, 0, 0)),
    Exemption("UPDATE_RAFT_VOTER", (3, 9, 0)),
)


def exempt_apis(since: Version) -> frozenset[str]:
    """The APIs that are exempt on brokers of that release or of any later one."""
    return frozenset(exemption.api for exemption in EXEMPTIONS if exemption.until is None or exemption.until > since)


CLUSTER_AUTHORIZATION_FAILED: Final = 31
"""The error code of a request whose authorization for ClusterAction failed: it is charged as anybody's."""

_NOT_LETTERS: Final = re.compile(r"[^A-Za-z]")


@lru_cache(maxsize=4096)
def spelled(api: str) -> str:
    """An API's name without regard to its spelling: `STOPREPLICA` for `STOP_REPLICA`, `stop-replica`, `StopReplica`."""
    return _NOT_LETTERS.sub("", api).upper()


@lru_cache(maxsize=4096)
def is_spared(api: str, version: Version) -> bool:
    """Whether brokers of that version charge nobody for the thread time of a request, by its API in any spelling.

    An API that they do not know any more counts as in the last release that knew it: the request was recorded there.
    Produce requests with acks=0 and fetches of followers are exempt as well; who reads requests sees these by their
    fields, and a failed authorization for ClusterAction by the answer.
    """
    return any(
        spelled(exemption.api) == spelled(api)
        and (exemption.gone or (exemption.since <= version and (exemption.until is None or version < exemption.until)))
        for exemption in EXEMPTIONS
    )


CONNECT_API: Final = "connect"
"""Not a request: connections that are opened, and closed again."""

# fmt: off
APIS: Final = (
    "produce", "fetch", "list-offsets", "metadata", "leader-and-isr", "stop-replica", "update-metadata",
    "controlled-shutdown", "offset-commit", "offset-fetch", "find-coordinator", "join-group", "heartbeat",
    "leave-group", "sync-group", "describe-groups", "list-groups", "sasl-handshake", "api-versions",
    "create-topics", "delete-topics", "delete-records", "init-producer-id", "offset-for-leader-epoch",
    "add-partitions-to-txn", "add-offsets-to-txn", "end-txn", "write-txn-markers", "txn-offset-commit",
    "describe-acls", "create-acls", "delete-acls", "describe-configs", "alter-configs", "alter-replica-log-dirs",
    "describe-log-dirs", "sasl-authenticate", "create-partitions", "create-delegation-token",
    "renew-delegation-token", "expire-delegation-token", "describe-delegation-token", "delete-groups",
    "elect-leaders", "incremental-alter-configs", "alter-partition-reassignments", "list-partition-reassignments",
    "offset-delete", "describe-client-quotas", "alter-client-quotas", "describe-user-scram-credentials",
    "alter-user-scram-credentials", "vote", "begin-quorum-epoch", "end-quorum-epoch", "describe-quorum",
    "alter-partition", "update-features", "envelope", "fetch-snapshot", "describe-cluster", "describe-producers",
    "broker-registration", "broker-heartbeat", "unregister-broker", "describe-transactions", "list-transactions",
    "allocate-producer-ids", "consumer-group-heartbeat", "consumer-group-describe", "controller-registration",
    "get-telemetry-subscriptions", "push-telemetry", "assign-replicas-to-dirs", "list-config-resources",
    "describe-topic-partitions", "share-group-heartbeat", "share-group-describe", "share-fetch", "share-acknowledge",
    "add-raft-voter", "remove-raft-voter", "update-raft-voter", "initialize-share-group-state",
    "read-share-group-state", "write-share-group-state", "delete-share-group-state", "read-share-group-state-summary",
    "streams-group-heartbeat", "streams-group-describe", "describe-share-group-offsets", "alter-share-group-offsets",
    "delete-share-group-offsets",
    # Of earlier releases, by another name.
    "alter-isr", "list-client-metrics-resources",
)
# fmt: on
"""As a workload spells them; the first ones are in the order of their numbers."""
_BY_SPELLING: Final = {spelled(api): api for api in (*APIS, CONNECT_API)}


def api_named(text: str) -> str:
    """The name of an API in any spelling, as `CreateTopics`. Raises InputError for one that Kafka does not have."""
    known = _BY_SPELLING.get(spelled(text))
    if known is not None:
        return known
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", text).lower()
    close = difflib.get_close_matches(words, _BY_SPELLING.values(), n=1)
    hint = f"did you mean {close[0]}?" if close else "a request of Kafka, such as produce, metadata or create-topics"
    raise InputError(f"api: Kafka has no request {text!r}", hint=hint)
