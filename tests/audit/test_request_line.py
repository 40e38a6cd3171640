"""Lines of Kafka's request log: every form that is known to occur, and garbage."""

import json
import math
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kquota.audit.batch import JAVA, OTHER_LIBRARY, UNKNOWN
from kquota.audit.sources.event import UsageEvent
from kquota.audit.sources.request_line import repeated_hours
from tests.audit.request_lines import (
    ANY_JSON,
    JSON,
    MOMENT,
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
    parse_line,
    replaced,
    share_fetch,
)


def parse(value: dict[str, Any]) -> UsageEvent:
    return parse_line(line(value), UTC)


def test_a_produce_request() -> None:
    # header 8 + 2 + 3 + 1, acks and time-out 6, tags 1, transactional id 1, topics 1, name 6, partitions 1 + 1,
    # partition 4 + 1 + 1 + 100
    expected = UsageEvent(
        time_ms=MOMENT - 2,
        user="ann",
        client_id="app",
        ip="10.0.0.2",
        connection="10.0.0.1:9092-10.0.0.2:50000-0-3",
        api="produce",
        bytes=137,
        request_ns=1_250_000,
        throttle_ms=0,
        acks=-1,
        exemption=None,
        position=OTHER_LIBRARY + 4 * 1,
        number=7,
    )
    made = fields()
    made["requestHeader"]["correlationId"] = 7
    assert parse(made) == expected


LAYOUT = {"level": "DEBUG", "loggerName": "kafka.request.logger", "message": "Completed request:" + JSON}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(line(fields()), id="Kafka's pattern"),
        pytest.param(f"[{STAMP}] DEBUG Completed request:{JSON} (kafka.request.logger)\r\n", id="CR LF"),
        pytest.param(f"2026-05-04T10:20:30.456Z DEBUG [thread-3] k.r.l - Completed request:{JSON}", id="ISO, Z"),
        pytest.param(f"2026-05-04T12:50:30.456+02:30 Completed request:{JSON}", id="ISO, offset"),
        pytest.param(f"2026-05-04T06:20:30,456-0400 Completed request:{JSON}", id="ISO, offset without colon"),
        pytest.param(f"2026-05-04 10:20:30.456789 Completed request:{JSON}", id="microseconds"),
        pytest.param(f"2026-05-04T10:20:31.000111222Z stdout F {line(fields())}", id="CRI"),
        pytest.param(f"[2026-05-04 10:20:31,000] [{STAMP}] Completed request:{JSON}", id="two in brackets"),
        pytest.param(f"<135>May  4 10:20:31 host kafka[1]: {line(fields())}", id="syslog"),
        pytest.param(compact({"timestamp": {"seconds": 1777890030, "nanos": 456000000}, **LAYOUT}), id="Cloud"),
        pytest.param(
            compact({"instant": {"epochSecond": 1777890030, "nanoOfSecond": 456000000}, **LAYOUT}), id="log4j2"
        ),
        pytest.param(json.dumps({"timeMillis": MOMENT, **LAYOUT}), id="log4j2, timeMillis"),
        pytest.param(compact({"@timestamp": "2026-05-04T10:20:30.456Z", **LAYOUT}), id="ECS"),
        pytest.param(
            compact({"log": line(fields()), "stream": "stdout", "time": "2026-05-04T10:20:31.1Z"}), id="docker"
        ),
    ],
)
def test_every_form_of_a_line(text: str) -> None:
    event = parse_line(text, UTC)
    assert event == parse(fields())._replace(time_ms=MOMENT - 2)


def test_seconds_alone_are_taken_from_their_middle() -> None:
    # less what the line tells, and what it does not
    assert parse_line(f"2026-05-04 10:20:30 {JSON}", UTC).time_ms == math.floor(MOMENT - 456 + 500 - 2 - 0.2)


def test_a_time_without_zone_is_in_the_given_one() -> None:
    elsewhere = parse_line(line(fields()), OTHER_ZONE)
    assert elsewhere.time_ms - parse(fields()).time_ms == 3.5 * 3600 * 1000
    own = parse_line(f"2026-05-04T10:20:30.456Z {JSON}", OTHER_ZONE)
    assert own.time_ms == MOMENT - 2


@pytest.mark.parametrize(
    ("zone", "first", "last", "hours"),
    [
        ("Europe/Berlin", "2026-10-24T00:00", "2026-10-26T00:00", ["2026-10-25 02:00 03:00"]),
        ("Europe/Berlin", "2026-10-25T00:30", "2026-10-25T00:31", ["2026-10-25 02:00 03:00"]),
        ("Europe/Berlin", "2026-10-24T00:00", "2026-10-24T23:59", []),
        ("Europe/Berlin", "2026-10-25T01:00", "2026-10-26T00:00", []),
        ("Europe/Berlin", "2026-03-01T00:00", "2026-04-01T00:00", []),
        ("Europe/Berlin", "2025-01-01T00:00", "2026-12-01T00:00", ["2025-10-26 02:00 03:00", "2026-10-25 02:00 03:00"]),
        ("Australia/Lord_Howe", "2026-04-04T00:00", "2026-04-06T00:00", ["2026-04-05 01:30 02:00"]),
        ("UTC", "2025-01-01T00:00", "2026-12-01T00:00", []),
    ],
)
def test_the_hours_that_clocks_show_twice(zone: str, first: str, last: str, hours: list[str]) -> None:
    """The end of summer time; a log that is over before it, or begins after it, has no line of it."""
    times = [int(datetime.fromisoformat(time).replace(tzinfo=UTC).timestamp() * 1000) for time in (first, last)]

    found = repeated_hours(ZoneInfo(zone), *times)

    assert [f"{begin:%Y-%m-%d %H:%M} {end:%H:%M}" for begin, end in found] == hours


ACKS_0 = fields()["request"] | {"acks": 0}


def named(client_id: str | None, **changes: Any) -> dict[str, Any]:
    """A produce request of a client with that id."""
    made = fields(**changes)
    made["requestHeader"]["clientId"] = client_id
    return made


def fetching(**request: Any) -> dict[str, Any]:
    """A fetch request with those fields, of one partition."""
    return fetch([PARTITION], request={"topics": []} | request)


HIDDEN = {"api": "share_fetch", "bytes": 0, "sized": False, "throttle_ms": 0}
SHARING = {"bytes": 0, "sized": True, "exemption": None, "request_ns": 1_250_000}


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        # The charge is before the queue and the sending.
        (fields(responseQueueTimeMs=10.5, sendTimeMs=89.75), {"time_ms": MOMENT - 100}),
        *(
            (fields(connection=connection), {"ip": ip})
            for connection, ip in (
                ("10.0.0.1:9092-10.0.0.2:50000-3", "10.0.0.2"),
                ("10.0.0.1:9092-10.0.0.2:50000-0-3", "10.0.0.2"),
                ("2001:db8:0:0:0:0:0:1:9092-2001:db8:0:0:0:0:0:2:50000-0-3", "2001:db8:0:0:0:0:0:2"),
                ("2001:db8:0:0:0:0:0:1:9092-2001:db8:0:0:0:0:0:2:50000-3", "2001:db8:0:0:0:0:0:2"),
                ("broker-1.example:9092-client-7.example:50000-1-2", "client-7.example"),
            )
        ),
        (fields(principal="User:CN=ann,OU=a:b"), {"user": "CN=ann,OU=a:b"}),
        (fields(principal="User:ANONYMOUS"), {"user": "ANONYMOUS"}),
        (fields(principal="User:größe"), {"user": "größe"}),
        (fields(principal="Role:"), {"user": ""}),
        (named(None), {"client_id": "", "bytes": 134}),
        (named('a"é日'), {"client_id": 'a"é日', "bytes": 137 - 3 + 7}),
        (fields(response="", throttleTimeMs=300, request=ACKS_0), {"acks": 0, "throttle_ms": 300, "bytes": 137}),
        # 4, throttle time 4, error and session 6, tags 1, topics 1; id 16, partitions 1, tags 1; 4 + 2 + 8 + 8 + 8,
        # aborted 1, replica 4, records 2 + 1000, tags 1
        (fetch([PARTITION]), {"api": "fetch", "bytes": 1072, "acks": None}),
        (fetch([], throttleTimeMs=1500), {"bytes": UNKNOWN}),
        (fetch([]), {"bytes": 16, "time_ms": MOMENT - 2}),
        (fetching(replicaId=-1), {"exemption": None}),
        (fetching(replicaId=2), {"exemption": "follower_fetch"}),
        (fetching(replicaState={"replicaId": 2, "replicaEpoch": 1}), {"exemption": "follower_fetch"}),
        (fetching(replicaState={"replicaId": -1, "replicaEpoch": -1}), {"exemption": None}),
        (fetching(), {"exemption": None}),
        # 4, throttle time 4, error code 2, message 1, lock time-out 4 (not in version 0), topics 1, endpoints 1, tags 1
        *(
            (
                share_fetch([], version),
                HIDDEN | {"bytes": size, "sized": True, "exemption": None, "time_ms": MOMENT - 2},
            )
            for version, size in ((0, 14), (1, 18), (2, 18))
        ),
        (share_fetch([SHARED]), HIDDEN),
        (share_fetch([], throttleTimeMs=1500), HIDDEN | {"throttle_ms": 1500}),
        (share_fetch([SHARED | {"acquiredRecords": []}], throttleTimeMs=1500), HIDDEN | {"throttle_ms": 1500}),
        (share_fetch([], response=REFUSED), HIDDEN),
        (share_fetch([], version=3), HIDDEN),  # a version to come
        *(
            (fields(api, key, 1, request={}, response={"errorCode": 0}), SHARING)
            for api, key in (("SHARE_GROUP_HEARTBEAT", 76), ("SHARE_ACKNOWLEDGE", 79), ("READ_SHARE_GROUP_STATE", 84))
        ),
        *(
            (
                fields(api, 99, 3, request={}, response={}, isForwarded=forwarded),
                {"api": api.lower(), "bytes": 0, "acks": None, "exemption": exemption},
            )
            for api, forwarded, exemption in (
                ("LIST_OFFSETS", False, None),
                ("CREATE_TOPICS", False, None),
                ("CREATE_TOPICS", True, "forwarded"),
                ("WRITE_TXN_MARKERS", False, "inter_broker"),
                ("ALTER_PARTITION", False, "inter_broker"),
                ("CONTROLLED_SHUTDOWN", False, "inter_broker"),
                ("DESCRIBE_QUORUM", False, None),
                ("BROKER_HEARTBEAT", False, None),
            )
        ),
    ],
)
def test_what_a_request_tells(made: dict[str, Any], expected: dict[str, Any]) -> None:
    """Whom it charges, with what, and when; a share fetch hides its bytes, and a fetch that was throttled."""
    event = parse(made)
    assert {name: getattr(event, name) for name in expected} == expected


def test_the_position_is_that_of_the_first_partition() -> None:
    def position(*partitions: tuple[int, int]) -> int:
        return parse(fetch([PARTITION], request=asking(*partitions))).position

    assert position((0, 5), (1, 7)) == position((0, 5), (1, 9)) == position((0, 5)) != 0
    assert len({position((0, 5)), position((1, 5)), position((0, 6)), position()}) == 4
    assert position() == 0


def test_the_position_of_a_produce_request_is_its_sender() -> None:
    """The library of the client, and the first partition: Java merges waiting records, and others do not."""

    def sender(**changes: Any) -> int:
        return parse(fields(**changes)).position

    java = {"softwareName": "apache-kafka-java", "softwareVersion": "4.3.1"}
    assert sender(clientInformation=java) % 4 == JAVA
    assert sender() % 4 == OTHER_LIBRARY
    assert sender(clientInformation=None) % 4 == sender(clientInformation={"softwareName": "unknown"}) % 4 == 0
    assert sender() // 4 == 1


def test_the_position_is_the_same_in_every_process() -> None:
    assert parse(fetch([PARTITION], request=asking((3, 77)))).position == 833828314


def test_a_request_among_brokers_that_is_refused_is_charged() -> None:
    refused = fields("ALTER_PARTITION", 56, 3, request={}, response={"throttleTimeMs": 0, "errorCode": 31})
    assert not parse(refused).exemption
    assert parse(refused | {"response": {"throttleTimeMs": 0, "errorCode": 0}}).exemption
    for error, exemption in ((31, None), (0, "inter_broker")):
        # Each of its partitions has the error code, the whole has none.
        partitions = [{"partitionIndex": 0, "errorCode": error}]
        markers = {"markers": [{"producerId": 1, "topics": [{"name": "t", "partitions": partitions}]}]}
        assert parse(fields("WRITE_TXN_MARKERS", 27, 1, request={}, response=markers)).exemption == exemption


def test_fields_that_newer_brokers_add_are_ignored() -> None:
    value = fields(temporaryMemoryBytes=5, messageConversionsTime=0.5, somethingNew={"a": [1]})
    value["requestHeader"]["requestApiVersionDeprecated"] = True
    assert parse(value)._replace(number=0) == parse(fields())._replace(number=0)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not a line of a request log"),
        ("\n", "not a line of a request log"),
        (f"[{STAMP}] INFO [BrokerServer id=1] Transition from STARTING to STARTED", "not a line of a request log"),
        (f"[{STAMP}] DEBUG Completed request:{{", "printed over several lines"),
        (JSON, "no timestamp before the request"),
        (f"DEBUG Completed request:{JSON}", "no timestamp before the request"),
        (compact(LAYOUT), "no timestamp before the request"),
        (line(fields())[:200], "a request that is cut off"),
        (line(fields())[: line(fields()).index('"sendTimeMs":') + 15] + "\n", "a request that is cut off"),
        (line(fields()).replace('"sendTimeMs"', "sendTimeMs"), "malformed JSON: Expecting property name"),
        (line(fields()).replace("softwareVersion", 'x":"1"}} (kafka.request.lo"sendTimeMs'), "several requests in one"),
        (line(fields()).replace("2026-05", "2026-13"), "is not a time"),
        (line(fields(principal="ann")), "the principal has no type"),
        (line(fields(connection="nowhere")), "the connection is not one"),
        (line(fields(version=14)), "produce version 14 is not known"),
        (line(fetch([PARTITION], version=19)), "fetch version 19 is not known"),
        (line(fields(request={})), "field 'topicData' is missing|field 'transactionalId' is missing"),
        (line(fields(request=[])), "a field is not of the type that Kafka logs"),
        (line(fields(throttleTimeMs="1")), "a field is not of the type that Kafka logs"),
        (line(fields()).replace('Bytes":100', 'Bytes":1.5'), "a field is not of the type that Kafka logs"),
        (line(fields()).replace('Bytes":100', 'Bytes":-999'), "a field is not of the type that Kafka logs"),
        (line(fields()).replace('"correlationId":', '"correlationId":5000000'), "the request's number is out of range"),
        (line(fields(sendTimeMs=None)), "a field is not of the type that Kafka logs"),
        (line(fields(sendTimeMs=float("inf"))), "a field is not of the type that Kafka logs"),
        (f'[{STAMP}] {{"isForwarded":false}}', "field 'requestHeader' is missing"),
        (f'[{STAMP}] {{"isForwarded":' + "[" * 100_000, "malformed JSON"),
    ],
)
def test_what_cannot_be_read_says_why(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_line(text, UTC)


def only_value_errors(text: str) -> None:
    try:
        event = parse_line(text, UTC)
    except ValueError:
        return
    kinds: tuple[Any, ...] = (int, *[str] * 5, int, int, int, (int, type(None)), (str, type(None)), int, bool)
    assert all(isinstance(value, kind) for value, kind in zip(event[: len(kinds)], kinds, strict=True)), event


@given(st.text())
@example('{"isForwarded"')
@example('0000-00-00 00:00:00 {"isForwarded":1}')
def test_any_text_is_read_or_a_value_error(text: str) -> None:
    only_value_errors(text)
    only_value_errors(f'[{STAMP}] Completed request:{{"isForwarded"{text}')
    only_value_errors(f"{text}{JSON}")


@pytest.mark.parametrize("behind", ['","softwareVersion', '"}} (kafka'])
def test_a_user_with_a_hole_is_read_as_none(behind: str) -> None:
    """A collector lost the bytes from a name on: what was left was JSON, and the name another one."""
    whole = line(fields())
    with pytest.raises(ValueError, match="field 'listener' is missing"):
        parse_line(whole[: whole.index("ann") + 1] + whole[whole.rindex(behind) :], UTC)


@given(st.text(max_size=20), st.integers(0, 2000))
def test_a_line_cut_anywhere_is_read_or_a_value_error(middle: str, place: int) -> None:
    whole = line(fields())
    only_value_errors(whole[:place] + middle)
    only_value_errors(whole[:place] + middle + whole[place:])


@given(
    st.sampled_from(PATHS),
    ANY_JSON,
    st.sampled_from([0, 2, 9, 12, 13, 16, 99]),
    st.sampled_from(["PRODUCE", "FETCH", "SHARE_FETCH"]),
)
def test_any_value_in_any_field_is_read_or_a_value_error(
    path: tuple[str | int, ...], value: Any, version: int, api: str
) -> None:
    made: Any = fields(version=version)
    if api == "FETCH":
        made = fetch([dict(PARTITION)], version, request=asking((0, 5)))
    elif api == "SHARE_FETCH":
        made = share_fetch([], version)
    changed = replaced(made, path, value)
    if changed is not None:
        only_value_errors(line(changed))
