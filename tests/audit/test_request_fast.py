"""The fast reading of usual lines: exactly what `parse_line` says of them, or nothing."""

from __future__ import annotations

import gzip
import itertools
import json
from datetime import UTC
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kquota.audit.batch import API_KINDS
from kquota.audit.sources import request_fast
from kquota.audit.sources.request_fast import ROW, UNSIZED, UNUSUAL, Names, reader
from kquota.audit.sources.request_line import parse_line
from kquota.core.enforcement.kind import REQUEST
from tests.audit import recorded
from tests.audit.request_lines import (
    ANY_JSON,
    JSON,
    OTHER_ZONE,
    PARTITION,
    PATHS,
    REFUSED,
    SHARED,
    STAMP,
    asking,
    compact,
    fetch,
    fields,
    line,
    replaced,
    share_fetch,
)


def fast(text: bytes, zone: Any = UTC) -> tuple[Any, ...] | None:
    """What is read of a line, with names for the codes; None for what is not usual."""
    names = Names()
    try:
        row = ROW.unpack(reader(zone, names)(text))
    except UNUSUAL:
        return None
    sized = row[1] < UNSIZED
    return (row[0], row[1] % UNSIZED, names.users.names[row[2]], names.clients.names[row[3]], *row[4:], sized)


def slow(text: bytes, zone: Any = UTC) -> tuple[Any, ...]:
    """The same from the reading that knows everything. Raises ValueError."""
    event = parse_line(text.decode(), None, zone)
    assert not event.exempt
    return (
        event.time_ms,
        API_KINDS.get(event.api, REQUEST),
        event.user,
        event.client_id,
        event.bytes,
        0 if event.acks == 0 else event.request_ns,
        event.throttle_ms,
        Names().connections[event.connection],
        event.position,
        event.request_ns if event.acks == 0 else request_fast.NOT_EXEMPT,
        event.sized,
    )


def same_or_refused(text: str) -> None:
    found = fast(text.encode())
    if found is not None:
        assert found == slow(text.encode())


USUAL = [
    *(fields(version=version) for version in range(9, 14)),
    *(fetch([dict(PARTITION)], version, request=asking((0, 5))) for version in range(13, 19)),
    fields(principal="User:größe"),
    fetch([], throttleTimeMs=300),
    fetch([], request=asking((3, 77))),
    fetch([{**PARTITION, "recordsSizeInBytes": size} for size in (0, 126, 127, 16382, 16383, 3_000_000)]),
    *(share_fetch([], version) for version in range(4)),
    share_fetch([SHARED]),
    share_fetch([], throttleTimeMs=300),
    share_fetch([], response=REFUSED),
    fields("SHARE_ACKNOWLEDGE", 79, 2, request={}, response={}),
    fields("SHARE_GROUP_HEARTBEAT", 76, 1, request={}, response={}),
    fields("WRITE_SHARE_GROUP_STATE", 85, 1, request={}, response={}),
    fields("METADATA", 3, 12, request={}, response={}),
    fields("HEARTBEAT", 12, 4, request={}, response={}, principal="User:CN=a,OU=b:c"),
]
NAMED = fetch([dict(PARTITION)], 12, request=asking((0, 5)))
NAMED["response"]["responses"][0]["topic"] = "pears"
CARELESS = fields(response="")
CARELESS["request"]["acks"] = 0
TRANSACTIONAL = fields()
TRANSACTIONAL["request"]["transactionalId"] = "tx-é"


@pytest.mark.parametrize("value", [*USUAL, NAMED, CARELESS, TRANSACTIONAL])
def test_what_clients_send_is_usual(value: dict[str, Any]) -> None:
    found = fast(line(value).encode())
    assert found is not None
    assert found == slow(line(value).encode())


@pytest.mark.parametrize(
    "text",
    [
        f"[{STAMP}] DEBUG Completed request:{JSON} (kafka.request.logger)\r\n",
        f"2026-05-04T12:50:30.456+02:30 Completed request:{JSON}",
        f"2026-05-04 10:20:30 {JSON}",
        f"[2026-05-04 10:20:31,000] [{STAMP}] Completed request:{JSON}",
        f"<135>May  4 10:20:31 host kafka[1]: {line(fields())}",
    ],
)
@pytest.mark.parametrize("zone", [UTC, OTHER_ZONE])
def test_other_layouts_are_usual(text: str, zone: Any) -> None:
    assert fast(text.encode(), zone) == slow(text.encode(), zone)


def test_the_standard_library_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [fast(line(value).encode()) for value in USUAL]
    monkeypatch.setattr(request_fast, "loads", json.loads)
    assert [fast(line(value).encode()) for value in USUAL] == expected


def test_a_real_log_is_usual_and_read_the_same() -> None:
    refused = 0
    with gzip.open(recorded.LOG) as file:
        lines = list(itertools.islice(file, 0, None, 9))
    for text in lines:
        found = fast(text)
        if found is None:
            refused += 1
        else:
            assert found == slow(text)
    assert refused < len(lines) / 100


@given(
    st.sampled_from(PATHS),
    ANY_JSON,
    st.sampled_from([0, 2, 9, 12, 13, 16, 99]),
    st.sampled_from(["PRODUCE", "FETCH", "SHARE_FETCH", "METADATA"]),
)
@example(("request", "topicData", 0, "partitionData", 0, "recordsSizeInBytes"), 2**63, 11, "PRODUCE")
@example(("request", "topicData", 0, "partitionData", 0, "recordsSizeInBytes"), -138, 11, "PRODUCE")
@example(("request", "topicData", 0, "partitionData", 0, "recordsSizeInBytes"), 1.0, 11, "PRODUCE")
@example(("localTimeMs",), 1e300, 11, "PRODUCE")
@example(("requestHeader", "clientId"), "\ud800", 11, "PRODUCE")
@example(("requestHeader", "clientId"), 0, 11, "PRODUCE")
@example(("throttleTimeMs",), True, 11, "METADATA")
@example(("throttleTimeMs",), True, 2, "SHARE_FETCH")
@example(("response", "responses"), 1, 2, "SHARE_FETCH")
@example(("response", "errorCode"), None, 2, "SHARE_FETCH")
@example(("requestHeader", "requestApiVersion"), [], 2, "SHARE_FETCH")
def test_any_value_in_any_field_is_read_the_same(
    path: tuple[str | int, ...], value: Any, version: int, api: str
) -> None:
    if api == "FETCH":
        whole: Any = fetch([dict(PARTITION)], version, request=asking((0, 5)))
    elif api == "SHARE_FETCH":
        whole = share_fetch([dict(SHARED)] if version == 0 else [], version)
    else:
        whole = fields(api, version=version)
    changed = replaced(whole, path, value)
    if changed is not None:
        # Escaped, so that a lone surrogate stays one.
        text = json.dumps(changed, separators=(",", ":"))
        same_or_refused(f"[{STAMP}] DEBUG Completed request:{text} (kafka.request.logger)\n")


@given(st.sampled_from([line(value) for value in USUAL]), st.text(max_size=20), st.integers(0, 1200))
def test_a_damaged_line_is_read_the_same(whole: str, middle: str, place: int) -> None:
    for text in (whole[:place] + middle, whole[:place] + middle + whole[place:], whole[:place] + whole[place + 1 :]):
        if text.isprintable() or text.endswith("\n"):
            same_or_refused(text)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\n",
        line(fields()).encode()[:-60],
        line(fields(isForwarded=True)).encode(),
        line(fields("CREATE_TOPICS", 19, 7, request={}, response={})).encode(),
        line(fields("ALTER_PARTITION", 56, 3, request={}, response={})).encode(),
        line(fetch([PARTITION], request={"topics": [], "replicaState": {"replicaId": 2, "replicaEpoch": 1}})).encode(),
        line(fetch([PARTITION], request={"topics": [], "replicaId": 2})).encode(),
        line(fields(version=3)).encode(),
        line(fields(principal="ann")).encode(),
        line(fields()).encode().replace(b"pears", b"\xff"),
        compact({"timeMillis": 1777890030456, "message": f"Completed request:{JSON}"}).encode(),
    ],
)
def test_what_is_not_usual_is_left_to_the_other(text: bytes) -> None:
    assert fast(text) is None
