"""The requests of Kafka by name, as a workload spells them: `create-topics` for CREATE_TOPICS.

The first ones are in the order of their numbers, also requests that only earlier releases had.

Source: `ApiKeys` and the request messages of Kafka 4.3.1, and the requests that earlier releases had.
"""

import difflib
import re
from typing import Final

from kquota.core.enforcement.exempt import spelled
from kquota.errors import InputError

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
