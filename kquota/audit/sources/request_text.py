"""Kafka's request log in its text form, line by line: Kafka 0.10.2 to 2.7.

The logger is the same as for the JSON form, and so is what stands before a line; behind `Completed request:` come the
request's header and body, the response, the connection and the times (`RequestChannel.updateRequestMetrics`). What is
known:

* The size of a produce request: the bytes of its records are logged at TRACE only, its transactional id, part of the
  request from version 3 on, never. Only a request with acks=all can have one: its size is a lower bound.
* The size of a fetch response: from Kafka 2.0 on, at DEBUG too.
* The throttle time: from 2.6 on what the broker applied, a whole number (KAFKA-9652). Before, the field says how long
  the response was held back, in which nothing was charged: up to 1.1 that is the throttling, from 2.0 on the client
  waits (KIP-219). What was applied is in the response then; before 1.0 that is not logged.

Pure parsing: no files, no Spark.
"""

import math
import re
from collections.abc import Mapping
from typing import Any, Final

from kquota.audit.batch import UNKNOWN
from kquota.audit.sources.event import UsageEvent, check_moment, check_times, client_address, position_of, user_in
from kquota.audit.sources.sizes import fetch_response_size, produce_request_size
from kquota.core.enforcement.apis import APIS, CLUSTER_AUTHORIZATION_FAILED, is_spared

_LAST: Final = (2, 7, 0)
"""The last release line that writes this form; what is exempt there is taken to be exempt before."""

# Of 1.0 and later, and of what came before.
_HEADER: Final = re.compile(
    r"RequestHeader\(apiKey=(?P<api>[A-Z_]+), apiVersion=(?P<version>[0-9]+), clientId=(?P<client>.*?), "
    r"correlationId=(?P<number>-?[0-9]+)\) -- ",
    re.DOTALL,
)
_OLD_HEADER: Final = re.compile(
    r"\{api_key=(?P<api>[0-9]+),api_version=(?P<version>[0-9]+),correlation_id=(?P<number>-?[0-9]+),"
    r"client_id=(?P<client>.*?)\} -- ",
    re.DOTALL,
)
_PARTS: Final = re.compile(r"RequestHeader\(|\{api_key=[0-9]+,api_version=|,response:\{| from connection ")
_PAIRS: Final = ("()", "[]", "{}")
_TWICE: Final = re.compile(r"[{,](\w+=)[^{}\[\]]*,\1")
_OLD_APIS: Final = tuple(api.upper().replace("-", "_") for api in APIS[: APIS.index("alter-configs") + 1])
"""The APIs of 0.11 by their numbers: logs of 0.10 and 0.11 have no names."""

# Kafka 0.11 printed numbers as the JVM's locale has them.
_NUMBER: Final = r"[0-9]+(?:[.,][0-9]+(?:E-?[0-9]+)?)?"
_TAIL: Final = re.compile(
    rf" from connection (?P<connection>[^\s;]+);totalTime:(?P<total>{_NUMBER}),requestQueueTime:(?P<queue>{_NUMBER}),"
    rf"localTime:(?P<local>{_NUMBER}),remoteTime:(?P<remote>{_NUMBER}),(?:throttleTime:(?P<throttle>{_NUMBER}),)?"
    rf"responseQueueTime:(?P<answered>{_NUMBER}),sendTime:(?P<send>{_NUMBER}),securityProtocol:[A-Z_]+,"
    r"principal:(?P<principal>(?:(?!sendTime:).)*?)(?:,listener:(?:(?!sendTime:).)*| \(kafka\.request\.logger\))\s*",
    re.DOTALL,
)
_PRODUCE: Final = re.compile(
    r"\{acks=(?P<acks>-?[0-9]+),timeout=-?[0-9]+,"
    r"(?:numPartitions=[0-9]+|partitionSizes=\[(?P<sizes>[^\[\]]*)\])\}"
)
_PARTITION_SIZE: Final = re.compile(r"(?P<topic>[^=,]+)-[0-9]+=(?P<size>[0-9]+)(?:,|$)")
_FETCH: Final = re.compile(
    r"\{replica_id=(?P<replica>-?[0-9]+),"
    r"(?:[^\[\]]*?topics=\[\{topic=(?P<topic>[^=,{}\[\]]*),partitions=\[\{partition=(?P<partition>[0-9]+),"
    r"(?:current_leader_epoch=-?[0-9]+,)?fetch_offset=(?P<offset>-?[0-9]+))?"
)
_REFUSED: Final = re.compile(rf"[{{,]error_code={CLUSTER_AUTHORIZATION_FAILED}[,}}]")
_THROTTLE: Final = re.compile(r"[{,]throttle_time_ms=(?P<throttle>[0-9]+)[,}]")
_FETCHED_TOPIC: Final = re.compile(r"\{topic=(?P<topic>[^=,{}\[\]]*),partition_responses=\[")
# A partition with what its size depends on; a record set of another kind has no size, or not that which was charged.
_FETCHED: Final = re.compile(
    r"\{(?:partition_header=\{)?partition=[0-9]+,error_code=[^\[\]{}]*?"
    r"(?:aborted_transactions=(?:null|\[(?P<aborted>[^\[\]]*)\])[^\[\]{}]*?)?\}?,"
    r"record_set=(?:LazyDownConversionRecords\(size=[0-9]+, underlying=)?"
    r"(?:(?:FileRecords|MemoryRecords)\(size=(?P<size>[0-9]+), |(?P<none>null|\[\])"
    r"|FileRecords\(file= [^()]*, start=(?P<start>[0-9]+), end=(?P<end>[0-9]+)\))"
)
_UNBOUNDED: Final = 2**31 - 1
"""The end of file records that stand for a whole file."""


def parse_text(message: str, moment: float) -> UsageEvent:
    """Reads a line in the text form: `message` begins behind `Completed request:`, `moment` is its time in epoch ms.

    Raises ValueError with a short reason for what is not one, or is cut off.
    """
    header = _HEADER.match(message) or _OLD_HEADER.match(message)
    tail_start = message.rfind(" from connection ")
    tail = _TAIL.fullmatch(message, tail_start) if tail_start >= 0 else None
    if header is None or tail is None:
        raise ValueError("truncated or malformed request")
    if _is_torn(before := message[: tail.start("connection")], before[header.end() :]):
        raise ValueError("truncated or malformed request")
    took = {
        name: float(tail[name].replace(",", "."))
        for name in ("total", "queue", "local", "remote", "throttle", "answered", "send")
        if tail[name] is not None
    }
    check_times(took.values())
    user = user_in(tail["principal"])
    if header.re is _OLD_HEADER and int(header["api"]) >= len(_OLD_APIS):
        raise ValueError(f"API {header['api']} is not known")
    api = header["api"] if header.re is _HEADER else _OLD_APIS[int(header["api"])]
    version = int(header["version"])
    # A client-id that is missing is printed like one that is called null.
    client_id = "" if header["client"] == "null" else header["client"]
    request, _, response = message[header.end() : tail_start].partition(",response:")
    throttle_ms, held_ms = _throttled(tail["throttle"], took, response)
    charged, acks, exemption, position, sized = 0, None, None, 0, True
    if api == "PRODUCE":
        charged, acks, sized = _produce(request, version, client_id)
    elif api == "FETCH":
        asked = _FETCH.match(request)
        exemption = "follower_fetch" if asked is not None and int(asked["replica"]) >= 0 else None
        if asked is not None and asked["topic"] is not None:
            position = position_of(asked["topic"], int(asked["partition"]), int(asked["offset"]))
        if throttle_ms and ",responses=[]" in response:
            charged = UNKNOWN
        else:
            size = _fetch(response, version)
            charged, sized = (0, False) if size is None else (size, True)
    elif is_spared(api, _LAST) and _REFUSED.search(response) is None:
        exemption = "inter_broker"
    event = UsageEvent(
        time_ms=math.floor(moment - took["send"] - took["answered"] - held_ms),
        user=user,
        client_id=client_id,
        ip=client_address(tail["connection"]),
        connection=tail["connection"],
        api=api.lower(),
        bytes=charged,
        request_ns=round(took["local"] * 1e6),
        throttle_ms=throttle_ms,
        acks=acks,
        exemption=exemption,
        position=position,
        sized=sized,
        number=int(header["number"]),
    )
    return check_moment(event)


def _is_torn(before: str, body: str) -> bool:
    """Whether what is before the name of the connection begins in one request, and ends in another."""
    parts = _PARTS.findall(before)
    is_open = any(body.count(left) != body.count(right) for left, right in _PAIRS)
    return len({*parts}) < len(parts) or is_open or _TWICE.search(body) is not None


def _throttled(text: str | None, took: Mapping[str, float], response: str) -> tuple[int | None, float]:
    """(what the broker applied, in ms, None where the line does not say; how long it held the response back)."""
    if text is not None and text.isdigit():
        return int(text), 0.0
    if text is None:  # before 0.11: what the other times leave
        held = took["total"] - sum(took[name] for name in ("queue", "local", "remote", "answered", "send"))
        held = max(held, 0.0)
    else:
        held = took["throttle"]
    match = _THROTTLE.search(response)
    return None if match is None else int(match["throttle"]), held


def _produce(request: str, version: int, client_id: str) -> tuple[int, int, bool]:
    """(size, acks, whether the size is exact) of a produce request. Raises ValueError."""
    if (body := _PRODUCE.match(request)) is None:
        raise ValueError("truncated or malformed request")
    acks = int(body["acks"])
    if body["sizes"] is None:
        return 0, acks, False
    sizes = list(_PARTITION_SIZE.finditer(body["sizes"]))
    if sum(len(partition[0]) for partition in sizes) != len(body["sizes"]):
        return 0, acks, False
    topics: dict[str, list[int]] = {}
    for partition in sizes:
        topics.setdefault(partition["topic"], []).append(int(partition["size"]))
    data = [
        {"name": topic, "partitionData": [{"recordsSizeInBytes": size} for size in sizes]}
        for topic, sizes in topics.items()
    ]
    fields: dict[str, Any] = {"transactionalId": None, "topicData": data}
    size = produce_request_size({"requestApiVersion": version, "clientId": client_id}, fields)
    return size, acks, version < 3 or acks != -1


def _fetch(response: str, version: int) -> int | None:
    """The size of a fetch response; None where its records do not tell theirs. Raises ValueError."""
    starts = list(_FETCHED_TOPIC.finditer(response))
    if not starts and ",responses=[]" not in response and "{responses=[]" not in response:
        return None
    topics = []
    count = 0
    for number, start in enumerate(starts):
        end = starts[number + 1].start() if number + 1 < len(starts) else len(response)
        partitions = []
        for partition in _FETCHED.finditer(response, start.end(), end):
            if partition["end"] is not None and int(partition["end"]) == _UNBOUNDED:
                return None
            partitions.append(
                {
                    "recordsSizeInBytes": _records(partition),
                    "records": None,
                    "abortedTransactions": [None] * (partition["aborted"] or "").count("producer_id="),
                }
            )
        count += len(partitions)
        topics.append({"topic": start["topic"], "partitions": partitions})
    if count != response.count("record_set=") or "_tagged_fields={0=" in response:
        return None
    return fetch_response_size(version, {"responses": topics})


def _records(partition: re.Match[str]) -> int | None:
    """The bytes of a partition's records; None for null."""
    if partition["size"] is not None:
        return int(partition["size"])
    if partition["none"] is not None:
        return None if partition["none"] == "null" else 0
    return int(partition["end"]) - int(partition["start"])
