"""Lines of Kafka's request log as the tests of its readers make them."""

import json
from collections.abc import Sequence
from datetime import timedelta, timezone, tzinfo
from typing import Any
from zlib import crc32

from hypothesis import strategies as st

from kquota.audit.sources.event import UsageEvent
from kquota.audit.sources.request_line import parse

STAMP = "2026-05-04 10:20:30,456"
MOMENT = 1777890030456
"""`STAMP` in UTC, epoch ms."""
OTHER_ZONE = timezone(timedelta(hours=-3, minutes=-30))


def parse_line(text: str, zone: tzinfo) -> UsageEvent:
    """The event of one line of a request log."""
    return parse(text, zone).event


def fields(api: str = "PRODUCE", key: int = 0, version: int = 11, **changes: Any) -> dict[str, Any]:
    """A request's fields as Kafka logs them; times that round the moment of the charge down by 2 ms."""
    made: dict[str, Any] = {
        "isForwarded": False,
        "requestHeader": {
            "requestApiKey": key,
            "requestApiVersion": version,
            # A request that is in a log twice counts once: others have other numbers.
            "correlationId": crc32(repr((api, key, version, changes)).encode()) % 10_000,
            "clientId": "app",
            "requestApiKeyName": api,
        },
        "request": {
            "transactionalId": None,
            "acks": -1,
            "timeoutMs": 1000,
            "topicData": [{"name": "pears", "partitionData": [{"index": 0, "recordsSizeInBytes": 100}]}],
        },
        "response": {"responses": [], "throttleTimeMs": 0},
        "connection": "10.0.0.1:9092-10.0.0.2:50000-0-3",
        "totalTimeMs": 3.5,
        "requestQueueTimeMs": 0.1,
        "localTimeMs": 1.25,
        "remoteTimeMs": 0.0,
        "throttleTimeMs": 0,
        "responseQueueTimeMs": 0.7,
        "sendTimeMs": 1.3,
        "securityProtocol": "SASL_SSL",
        "principal": "User:ann",
        "listener": "SASL_SSL",
        "clientInformation": {"softwareName": "a", "softwareVersion": "1"},
    }
    return made | changes


PARTITION = {"partitionIndex": 0, "errorCode": 0, "abortedTransactions": None, "recordsSizeInBytes": 1000}


def fetch(partitions: list[dict[str, Any]], version: int = 16, **changes: Any) -> dict[str, Any]:
    """The fields of a fetch that got those partitions; `changes` replace fields of the whole."""
    responses = [{"topicId": "AAAAAAAAAAAAAAAAAAAAAQ", "partitions": partitions}] if partitions else []
    response = {"throttleTimeMs": 0, "errorCode": 0, "sessionId": 0, "responses": responses}
    request = {"maxWaitMs": 500, "minBytes": 1, "maxBytes": 100, "isolationLevel": 0, "topics": []}
    return fields("FETCH", 1, version, **({"request": request, "response": response} | changes))


SHARED = {
    "partitionIndex": 0,
    "errorCode": 0,
    "acknowledgeErrorCode": 0,
    "currentLeader": {"leaderId": 0, "leaderEpoch": 0},
    "records": "",
    "acquiredRecords": [{"firstOffset": 0, "lastOffset": 503, "deliveryCount": 1}],
}


def share_fetch(partitions: list[dict[str, Any]], version: int = 2, **changes: Any) -> dict[str, Any]:
    """The fields of a share fetch (KIP-932) that got those partitions, such as `SHARED`."""
    responses = [{"topicId": "AAAAAAAAAAAAAAAAAAAAAQ", "partitions": partitions}] if partitions else []
    response = {"throttleTimeMs": 0, "errorCode": 0, "errorMessage": None, "acquisitionLockTimeoutMs": 30000}
    request = {"groupId": "g", "shareSessionEpoch": 3, "maxBytes": 100, "topics": [], "forgottenTopicsData": []}
    whole = {"request": request, "response": response | {"responses": responses, "nodeEndpoints": []}}
    return fields("SHARE_FETCH", 78, version, **(whole | changes))


REFUSED = share_fetch([])["response"] | {"errorCode": 122}
"""A share fetch that was answered with an error and no more."""


def asking(*partitions: tuple[int, int]) -> dict[str, Any]:
    """A fetch request for (partition, offset) pairs of one topic."""
    asked = [{"partition": partition, "fetchOffset": offset} for partition, offset in partitions]
    return {"topics": [{"topicId": "AAAAAAAAAAAAAAAAAAAAAQ", "partitions": asked}] if partitions else []}


def compact(value: Any) -> str:
    """JSON as Kafka writes it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def line(value: dict[str, Any]) -> str:
    """The line that Kafka's own pattern makes of it."""
    return f"[{STAMP}] DEBUG Completed request:{compact(value)} (kafka.request.logger)\n"


JSON = compact(fields())
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
"""Any value that a field might hold instead."""
PATHS = [
    (),
    *((name,) for name in fields()),
    *(("requestHeader", name) for name in fields()["requestHeader"]),
    *(("request", name) for name in fields()["request"]),
    ("request", "topics"),
    ("request", "topics", 0, "partitions"),
    ("request", "topics", 0, "partitions", 0, "fetchOffset"),
    ("request", "topicData", 0),
    ("request", "topicData", 0, "partitionData"),
    ("request", "topicData", 0, "partitionData", 0),
    ("request", "topicData", 0, "partitionData", 0, "recordsSizeInBytes"),
    ("response", "errorCode"),
    ("response", "responses"),
    ("response", "responses", 0, "partitions"),
    ("response", "responses", 0, "partitions", 0, "recordsSizeInBytes"),
    ("response", "responses", 0, "partitions", 0, "abortedTransactions"),
]
"""Where the fields of a produce, a fetch or a share fetch request are; the empty path is the whole of them."""


def replaced(whole: Any, path: Sequence[str | int], value: Any) -> Any:
    """The fields with that value at that path, changed in place; None where they have no such path."""
    if not path:
        return {"isForwarded": value}
    at = whole
    for step in path[:-1]:
        try:
            at = at[step]
        except (KeyError, IndexError):  # a path of the other API
            return None
    at[path[-1]] = value
    return whole
