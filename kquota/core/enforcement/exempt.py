"""Which requests the request quota does not charge: their thread time goes to the broker's one `exempt-request-time`.

KIP-124 exempts fetches of followers, and SaslHandshake while it authenticates. It exempts four requests that brokers
send each other, unless their authorization for ClusterAction fails. Shipped, since 0.11.0: all of these, a table of
APIs that grew with Kafka, and produce requests with acks=0. It is the API that counts, not the listener: heartbeats and
registrations of brokers need the same authorization and are charged like any other request. Timing-sensitive requests
of consumers are not exempt either; the KIP considered and rejected that. Nor is anything of share groups (KIP-932):
brokers that write their state to the share coordinator are charged for it as clients, with client-ids such as
`Persister-client-1`.

Sources: the callers of `sendResponseExemptThrottle` and `sendNoOpResponseExemptThrottle` in `KafkaApis` and
`ControllerApis`; read in the tags 0.11.0.0 to 3.7.0, in trunk, and in the classes of 4.3.1 and 4.4.0.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from kquota.core.quotas.version import Version


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
