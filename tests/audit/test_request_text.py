"""The request log in its text form: lines that real brokers of many releases wrote, and one real log."""

from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.audit.batch import UNKNOWN
from kquota.audit.sources.event import UsageEvent
from kquota.core.enforcement.generation import Generation
from tests.audit import recorded
from tests.audit.request_lines import parse_line
from tests.support.data import data_rows

STAMP = "2026-11-21 12:00:00,500"
MOMENT = 1795262400500
TIMES = "responseQueueTime:0.052,sendTime:0.053,securityProtocol:SASL_PLAINTEXT,principal:User:ann,listener:L"
CONNECTION = "10.0.0.1:9092-10.0.0.2:5000-4"
OLD = "10.0.0.1:9092-10.0.0.2:5000"


def line(request: str, tail: str) -> str:
    """A line in Kafka's own layout."""
    return f"[{STAMP}] DEBUG Completed request:{request} from connection {tail} (kafka.request.logger)\n"


def times(throttle: str, answer: str = "responseQueueTime:0.5,sendTime:1.25") -> str:
    """The times of a line of 0.11 and later: half a ms in the queue and 1.25 ms to send."""
    return (
        f"{CONNECTION};totalTime:4.0,requestQueueTime:0.1,localTime:0.75,remoteTime:1.0,throttleTime:{throttle},"
        f"{answer},securityProtocol:SASL_PLAINTEXT,principal:User:ann,listener:SASL_PLAINTEXT"
    )


PRODUCE = (
    "RequestHeader(apiKey=PRODUCE, apiVersion={version}, clientId=app, correlationId=5) -- {body},response:{response}"
)
FETCH = "RequestHeader(apiKey=FETCH, apiVersion={version}, clientId=app, correlationId=6) -- {body},response:{response}"
ASKED = (
    "{{replica_id={replica},max_wait_ms=500,min_bytes=1,max_bytes=60000,isolation_level=1,session_id=0,session_epoch=-1,"
    "topics=[{{topic=orders,partitions=[{{partition=0,current_leader_epoch=0,fetch_offset=184,log_start_offset=-1,"
    "partition_max_bytes=20000}}]}}],forgotten_topics_data=[],rack_id=}}"
)
SIZES = "{acks=1,timeout=30000,partitionSizes=[orders-0=3597]}"
ANSWERED = "{responses=[{topic=orders,partition_responses=[{partition=0,error_code=0}]}],throttle_time_ms=21}"


def produce(body: str = SIZES, version: int = 8, throttle: str = "21", response: str = ANSWERED) -> UsageEvent:
    request = PRODUCE.format(version=version, body=body, response=response)
    return parse_line(line(request, times(throttle)), UTC)


def fetch(response: str, version: int = 11, throttle: str = "0", replica: int = -1) -> UsageEvent:
    request = FETCH.format(version=version, body=ASKED.format(replica=replica), response=response)
    return parse_line(line(request, times(throttle)), UTC)


def test_a_produce_request() -> None:
    # header 8 + 2 + 3, transactional id 2, acks and time-out 6, topics 4, name 2 + 6, partitions 4, partition 8 + 3597
    assert produce() == UsageEvent(
        time_ms=MOMENT - 2,
        user="ann",
        client_id="app",
        ip="10.0.0.2",
        connection=CONNECTION,
        api="produce",
        bytes=3642,
        request_ns=750_000,
        throttle_ms=21,
        acks=1,
        exemption=None,
        number=5,
    )


@pytest.mark.parametrize(
    ("body", "version", "size", "sized"),
    [
        (
            "{acks=1,timeout=30000,partitionSizes=[a-0=10,a.b-c-1=20]}",
            8,
            13 + 2 + 6 + 4 + (2 + 1 + 4 + 8 + 10) + (2 + 5 + 4 + 8 + 20),
            True,
        ),
        ("{acks=1,timeout=30000,partitionSizes=[orders-0=3597]}", 2, 3640, True),
        ("{acks=0,timeout=30000,partitionSizes=[orders-0=3597]}", 3, 3642, True),
        ("{acks=-1,timeout=30000,partitionSizes=[orders-0=3597]}", 2, 3640, True),
        # There may be a transactional id, which is not logged.
        ("{acks=-1,timeout=30000,partitionSizes=[orders-0=3597]}", 3, 3642, False),
        ("{acks=1,timeout=30000,numPartitions=1}", 8, 0, False),
        ("{acks=1,timeout=30000,partitionSizes=[strange=3597]}", 8, 0, False),
    ],
)
def test_the_size_of_a_produce_request(body: str, version: int, size: int, sized: bool) -> None:
    event = produce(body, version)
    assert (event.bytes, event.sized) == (size, sized)


FILE = "FileRecords(size=20000, file=/data/orders-0/0.log, start=0, end=20000)"
HEADER = "error_code=0,high_watermark=9,last_stable_offset=9,log_start_offset=0,"


def response(records: str, aborted: str = "null", tags: str = "") -> str:
    """As Kafka 2.7 prints it."""
    return (
        "{throttle_time_ms=0,error_code=0,session_id=0,responses=[{topic=orders,partition_responses=[{partition=0,"
        f"{HEADER}aborted_transactions={aborted},preferred_read_replica=-1,record_set={records}{tags}}}]}}]}}"
    )


NESTED = (
    "{throttle_time_ms=0,error_code=0,session_id=0,responses=[{topic=orders,partition_responses=[{partition_header="
    f"{{partition=0,{HEADER}aborted_transactions=null,preferred_read_replica=-1}},record_set="
)
# 4 + throttle 4, error and session 6, topics 4; name 2 + 6, partitions 4; 4 + 2 + 8 + 8 + 8, aborted 4, replica 4, 4
EMPTY = 4 + 4 + 6 + 4 + 8 + 4 + 4 + 2 + 8 + 8 + 8 + 4 + 4 + 4


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (response(FILE), EMPTY + 20000),
        (response(FILE, "[{producer_id=1,first_offset=2},{producer_id=3,first_offset=4}]"), EMPTY + 20000 + 32),
        (response("MemoryRecords(size=7, buffer=java.nio.HeapByteBuffer[pos=0 lim=7 cap=7])"), EMPTY + 7),
        (response("[]"), EMPTY),
        (response("null"), EMPTY),
        # Charged is what was read, not what it was converted to.
        (response(f"LazyDownConversionRecords(size=100, underlying={FILE}, toMagic=1, firstOffset=0)"), EMPTY + 20000),
        # As 2.0 to 2.3 print it, and 1.x.
        (f"{NESTED}FileRecords(file= /data/orders-0/0.log, start=100, end=400)}}]}}]}}", EMPTY + 300),
        (f"{NESTED}FileRecords(file= /data/orders-0/0.log, start=0, end=2147483647)}}]}}]}}", None),
        (f"{NESTED}org.apache.kafka.common.record.FileRecords@64f94de}}]}}]}}", None),
        (f"{NESTED}[(record=DefaultRecord(offset=0, timestamp=1))]}}]}}]}}", None),
        ("{throttle_time_ms=0,error_code=0,session_id=0,responses=[]}", 18),
        ("something else", None),
    ],
)
def test_the_size_of_a_fetch_response(text: str, size: int | None) -> None:
    event = fetch(text)
    assert (event.bytes, event.sized) == ((0, False) if size is None else (size, True))


def test_tagged_fields_make_a_response_larger_than_can_be_told() -> None:
    assert not fetch(response(FILE, tags=",_tagged_fields={0={epoch=1,end_offset=2}}"), version=12).sized
    assert fetch(response(FILE, tags=",_tagged_fields={}"), version=12).sized


def test_a_throttled_fetch_hides_its_bytes() -> None:
    event = fetch("{throttle_time_ms=364,error_code=0,session_id=0,responses=[]}", throttle="364")
    assert (event.bytes, event.sized, event.throttle_ms) == (UNKNOWN, True, 364)
    assert event.position == fetch(response(FILE)).position != 0


def test_fetches_of_followers_are_exempt() -> None:
    assert fetch(response(FILE), replica=2).exemption
    assert not fetch(response(FILE)).exemption


@pytest.mark.parametrize(
    ("throttle", "answer", "told", "held"),
    [
        # From 2.6 on what was applied; the client waits.
        ("21", "{responses=[],throttle_time_ms=21}", 21, 0),
        ("21", "", 21, 0),
        # Before, how long the response was held back; what was applied is in the response, if it has the field.
        ("21.25", "{responses=[],throttle_time_ms=21}", 21, 21.25),
        ("0.031", "{responses=[],throttle_time_ms=300}", 300, 0),
        ("1.0E-3", "{responses=[]}", None, 0),
        ("1125.677", "", None, 1125.677),
    ],
)
def test_the_throttle_time(throttle: str, answer: str, told: int | None, held: float) -> None:
    event = produce(throttle=throttle, response=answer)
    assert event.throttle_ms == told
    assert event.time_ms == int(MOMENT + 0.5 - 1.75 - held)


LINES = {release: f"{text}\n" for release, text in data_rows("request_log_text/releases.txt")}
"""As real brokers wrote them."""


@pytest.mark.parametrize("version", LINES)
def test_every_release(version: str) -> None:
    event = parse_line(LINES[version], UTC)
    assert (event.user, event.client_id, event.ip, event.api, event.acks) == ("ann", "app", "10.0.0.2", "produce", 1)
    assert (event.bytes, event.sized) == (5331 if version == "0.10.2.2" else 5333, True)
    assert event.throttle_ms == (0 if version >= "1" else None)
    assert event.time_ms == MOMENT - (1 if version == "0.10.2.2" else 0)


def test_other_apis() -> None:
    text = line("RequestHeader(apiKey=UPDATE_METADATA, apiVersion=6, clientId=0, correlationId=0) -- {}", times("0"))
    event = parse_line(text, UTC)
    assert (event.api, event.exemption, event.bytes, event.sized) == ("update_metadata", "inter_broker", 0, True)
    assert not parse_line(text.replace("UPDATE_METADATA", "METADATA"), UTC).exemption
    for refused in (
        "{error_code=31}",
        "{error_code=31,partition_errors=[]}",
        "{markers=[{producer_id=1,error_code=31}]}",
    ):
        said = line(
            "RequestHeader(apiKey=STOP_REPLICA, apiVersion=1, clientId=0, correlationId=0) -- {x=1},response:"
            + refused,
            times("0"),
        )
        assert not parse_line(said, UTC).exemption
        assert parse_line(said.replace("error_code=31", "error_code=3"), UTC).exemption
    old = line("{api_key=6,api_version=6,correlation_id=0,client_id=0} -- {}", times("0"))
    assert parse_line(old, UTC).api == "update_metadata"


def test_names_with_commas_and_a_missing_client_id() -> None:
    text = LINES["2.7.2"].replace("User:ann", "User:CN=ann,OU=a b").replace("clientId=app", "clientId=null")
    event = parse_line(text, UTC)
    assert (event.user, event.client_id) == ("CN=ann,OU=a b", "")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (LINES["2.7.2"].replace(f"[{STAMP}]", ""), "no timestamp"),
        (LINES["2.7.2"].replace("User:ann", "ann"), "the principal has no type"),
        (LINES["2.7.2"].replace("acks=1", "acks=one"), "truncated or malformed request"),
        (LINES["2.7.2"].replace(CONNECTION, "nowhere"), "the connection is not one"),
        (LINES["2.7.2"].replace("apiVersion=8", "apiVersion=99"), "produce version 99 is not known"),
        (LINES["0.11.0.3"].replace("api_key=0", "api_key=99"), "API 99 is not known"),
        (LINES["2.7.2"][:300], "truncated or malformed request"),
    ],
)
def test_what_cannot_be_read_says_why(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_line(text, UTC)


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        ("responses=[", "base_offset="),
        ("totalTime", ",response:{"),
        ("requestQueueTime", "correlationId"),
        ("log_append_time", "error_code="),
        ("listener", "5000-4;"),
        ("clientInformation", "sendTime:"),
    ],
)
def test_a_line_of_two_requests_is_none(begin: str, end: str) -> None:
    """Where a log has a hole: the first one had the user and the times of the other."""
    other = LINES["1.1.1"].replace("ann", "bob")
    with pytest.raises(ValueError, match="truncated or malformed request"):
        parse_line(LINES["2.7.2"].partition(begin)[0] + other[other.index(end) :], UTC)


@given(st.sampled_from([*LINES.values()]), st.text(max_size=20), st.integers(0, 700))
def test_a_damaged_line_is_read_or_a_value_error(whole: str, middle: str, place: int) -> None:
    for text in (whole[:place] + middle, whole[:place] + middle + whole[place:], whole[:place] + whole[place + 1 :]):
        try:
            event = parse_line(text, UTC)
        except ValueError:
            continue
        assert isinstance(event.bytes, int)
        assert event.bytes >= 0


FOLDER = Path(__file__).parents[1] / "data" / "request_log_text"


def findings(name: str) -> dict[str, dict[str, Any]]:
    """What the audit finds in a recorded log, by counter."""
    table = recorded.audit(FOLDER / name, FOLDER / "quotas.json", Generation.N_BY_START)
    return {row["sensor"]: row for row in table.to_pylist()}


@pytest.mark.parametrize(
    ("name", "sensors"), [("trace.log.gz", ("alice:", "alice:careful", "admin:")), ("debug.log.gz", ("admin:",))]
)
def test_the_replay_of_a_real_log_is_what_the_broker_did(name: str, sensors: tuple[str, ...]) -> None:
    """Kafka 2.7.2: where all sizes are logged, within 2 % of the throttle time that the broker answered."""
    rows = findings(name)
    for sensor in sensors:
        row = rows.pop(sensor)
        assert row["verdict"] == "throttled"
        assert row["throttle_time_ms"] == pytest.approx(row["logged_throttle_time_ms"], rel=0.02)
        assert row["throttled_events"] == pytest.approx(row["logged_throttled_events"], abs=1)
    assert rows


def test_sizes_that_are_not_logged_leave_a_counter_undetermined() -> None:
    """At DEBUG all of produce; at TRACE the requests that may be transactional. What the broker answered is known."""
    debug, trace = findings("debug.log.gz"), findings("trace.log.gz")

    for row in (
        debug["alice:"],
        debug["alice:careful"],
        debug["alice:sure"],
        trace["alice:sure"],
        trace["alice:exact"],
    ):
        assert row["verdict"] == "undetermined"
        assert row["throttled_events"] is row["throttle_time_ms"] is None
        assert row["events"] > 100
    assert debug["alice:"]["logged_throttled_events"] > 20
    assert 0 < trace["alice:sure"]["peak_rate"] < 30_000
