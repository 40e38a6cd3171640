"""Kafka's request log, line by line: what each request was charged, when, to whom, and what the broker answered.

The logger `kafka.request.logger` at DEBUG writes a line for each completed request: `Completed request:` and a JSON
object (KIP-673, Kafka 2.8 and later; `RequestConvertToJson.requestDescMetrics`). In front of it stands what the layout
of the logger and the collectors behind it put there; the last timestamp before the object counts. An object in a JSON
layout's `message` (log4j2's JsonLayout and JsonTemplateLayout, docker's json-file) is read too. The text form of older
releases is read by `request_text`.

Pure parsing: no files, no Spark.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, tzinfo
from typing import Any, Final, NamedTuple

from kquota.audit.batch import JAVA, OTHER_LIBRARY, UNANSWERED, UNKNOWN, is_text
from kquota.audit.sources.data_log import is_follower
from kquota.audit.sources.envelope import unwrap
from kquota.audit.sources.event import (
    ControllerLine,
    UsageEvent,
    check_moment,
    check_times,
    client_address,
    position_of,
    user_in,
)
from kquota.audit.sources.moments import FORMS
from kquota.audit.sources.mutations import TOLD_APIS
from kquota.audit.sources.request_text import parse_text
from kquota.audit.sources.sizes import SHARE_FETCH_EMPTY, fetch_response_size, produce_request_size
from kquota.core.enforcement.apis import CLUSTER_AUTHORIZATION_FAILED, exempt_apis

_DAY_S: Final = 86_400
_TOOK: Final = ("totalTimeMs", "localTimeMs", "throttleTimeMs", "responseQueueTimeMs", "sendTimeMs")


JSON_LOG: Final = (2, 8, 0)
"""The first release that writes this log (KIP-673)."""
EXEMPT_APIS: Final = exempt_apis(JSON_LOG)

# What a broker does between the charge and the line's time that the line does not tell: it turns the response into JSON
# before it queues it, and the whole line into text when all is sent. In logs with microseconds of Kafka 3.9 and 4.4
# this explained most of the brokers' throttle times, of 0 to 0.8 ms.
UNTOLD_MS: Final = 0.2
UNTOLD_FETCH_MS: Final = 0.25


class Line(NamedTuple):
    """A line of a request log."""

    event: UsageEvent
    moment: float
    """Its own time, epoch ms."""
    fields: Mapping[str, Any] | None
    """The whole JSON object; None of the text form."""
    origin: Mapping[str, str]
    """The signs of where it is from (`origins`)."""


def parse(line: str, zone: tzinfo) -> Line:
    """Reads one line of a request log (with or without its line end).

    `zone` is the broker's time zone: log4j's `%d` does not print it. A time that carries a zone of its own keeps it.

    Raises ValueError with a short reason for whatever is not a request-log line: no such line, no timestamp, a
    truncated or foreign JSON object, an API version whose sizes are not known.
    """
    try:
        fields, text, moment, origin = unwrap(line, zone)
        if moment is None:
            raise ValueError(f"no timestamp before the request; these are read: {FORMS}")
        if fields is None:
            return Line(parse_text(text, moment), moment, None, origin)
        event = _event(fields, moment)
        check_times([fields[name] for name in _TOOK])
    except KeyError as error:
        raise ValueError(f"field {error} is missing") from None
    except (TypeError, AttributeError, OverflowError, IndexError):
        raise ValueError("a field is not of the type that Kafka logs") from None
    except RecursionError:
        raise ValueError("malformed JSON: nested too deeply") from None
    return Line(check_moment(event), moment, fields, origin)


def _event(fields: Mapping[str, Any], moment: float) -> UsageEvent:
    header = fields["requestHeader"]
    api = header["requestApiKeyName"]
    throttle_ms = fields["throttleTimeMs"]
    if type(throttle_ms) is not int or type(fields["isForwarded"]) is not bool:
        raise TypeError
    exemption = "forwarded" if fields["isForwarded"] else None
    charged = position = 0
    acks, sized = None, True
    # Brokers keep what a request asks for only while the logger is on.
    in_flight = fields.get("request", header) in ("", None) and api in ("PRODUCE", "FETCH", *TOLD_APIS)
    if in_flight:  # when the logger was switched on
        exemption = "in_flight"
    elif api == "PRODUCE":
        request = fields["request"]
        charged = produce_request_size(header, request)
        acks = request["acks"]
        if type(acks) is not int:
            raise TypeError
        position = sender_of(fields, request["topicData"], acks)
    elif api == "FETCH":
        request = fields["request"]
        if is_follower(request):
            exemption = exemption or "follower_fetch"
        position = _position(request["topics"])
        response = fields["response"]
        if throttle_ms > 0 and not response["responses"]:
            charged = UNKNOWN
        else:
            charged = fetch_response_size(header["requestApiVersion"], response)
    elif api == "SHARE_FETCH":
        size = share_fetch_size(header["requestApiVersion"], throttle_ms, fields["response"])
        charged, sized = (0, False) if size is None else (size, True)
    elif api in EXEMPT_APIS and not _is_refused(fields["response"]):
        exemption = exemption or "inter_broker"
    # Besides sending and queueing, which the line tells.
    charged_ms = moment - fields["sendTimeMs"] - fields["responseQueueTimeMs"]
    charged_ms -= UNTOLD_FETCH_MS if api in ("FETCH", "SHARE_FETCH") else UNTOLD_MS
    controller = None
    if (api in TOLD_APIS or fields["isForwarded"]) and not in_flight:
        check_times([fields["remoteTimeMs"]])
        controller = ControllerLine(charged_ms - fields["remoteTimeMs"] - fields["localTimeMs"], fields)
    if type(charged) is not int or charged < UNKNOWN:
        raise TypeError
    user, _ = user_in(fields["principal"]), fields["listener"]  # behind a name that has a hole, it is missing
    connection = fields["connection"]
    client_id = header["clientId"]
    for name in (user, client_id or ""):
        if not name.isascii() and not is_text(name):
            raise ValueError("a name is not UTF-8 text")
    number = header.get("correlationId")
    return UsageEvent(
        # Floored: brokers charge at System.currentTimeMillis(), which is.
        math.floor(charged_ms),
        user,
        "" if client_id is None else client_id + "",
        client_address(connection),
        connection,
        api.lower(),
        charged,
        round(fields["localTimeMs"] * 1e6),
        throttle_ms,
        acks,
        exemption,
        position,
        sized,
        controller,
        number if type(number) is int else 0,
    )


def _position(topics: Sequence[Mapping[str, Any]]) -> int:
    for topic in topics:
        for partition in topic["partitions"]:
            return position_of(
                topic.get("topicId") or topic.get("topic"), partition["partition"], partition["fetchOffset"]
            )
    return 0


def sender_of(fields: Mapping[str, Any], topics: Sequence[Mapping[str, Any]], acks: int) -> int:
    """The library of a producer (`batch.JAVA`, `batch.OTHER_LIBRARY`; 0 where it is not known) and the partition.

    The library takes two bits; above it stands 1 + the index of the first partition, 31 at most, in five bits, and
    `batch.UNANSWERED` where acks is 0.
    """
    software = fields.get("clientInformation")
    name = software.get("softwareName") if isinstance(software, dict) else None
    library = JAVA if name == "apache-kafka-java" else OTHER_LIBRARY if name not in NO_NAMES else 0
    for topic in topics:
        for partition in topic["partitionData"]:
            library += 4 * int(min(partition["index"] + 1, 31))
            return library + (UNANSWERED if acks == 0 else 0)
    return library + (UNANSWERED if acks == 0 else 0)


NO_NAMES: Final = (None, "", "unknown")


def share_fetch_size(version: int, throttle_ms: int, response: Mapping[str, Any]) -> int | None:
    """The bytes charged for a share fetch (KIP-932), None where the line does not show them.

    Brokers charge a share fetch as they charge a fetch, and take back the bytes of a throttled one. But they log the
    records without their size, and nothing of a throttled one. No retry shows its size: what it tried to read stays
    acquired by the consumer that never got it, and the next share fetch reads what follows. Nor does the log
    distinguish an error before the charge from an error after it. So the size is known only for share fetches that
    found nothing.
    """
    is_hidden = throttle_ms > 0 or response["errorCode"] != 0 or len(response["responses"]) > 0
    return None if is_hidden else SHARE_FETCH_EMPTY.get(version)


def _is_refused(response: Any) -> bool:
    """Whether the authorization for ClusterAction failed: then a request is charged as anybody's.

    WriteTxnMarkers has no error code of its own: each of its partitions has that.
    """
    if isinstance(response, list):
        return any(map(_is_refused, response))
    if not isinstance(response, dict):
        return False
    return response.get("errorCode") == CLUSTER_AUTHORIZATION_FAILED or any(map(_is_refused, response.values()))


def repeated_hours(zone: tzinfo, first_ms: int, last_ms: int) -> list[tuple[datetime, datetime]]:
    """From when to when clocks of a zone showed the same times twice, where a log of that time (epoch ms) met it.

    A log without offsets does not say which of the two hours a line is of: `second_of` takes all for the first.
    """

    def offset(second: int) -> timedelta:
        return datetime.fromtimestamp(second, zone).utcoffset() or timedelta()

    hours = []
    first, last = first_ms // 1000, last_ms // 1000 + 1
    for day in range(first - _DAY_S, last + _DAY_S, _DAY_S):
        back = offset(day) - offset(day + _DAY_S)
        if back <= timedelta():
            continue
        change = bisect_left(range(day, day + _DAY_S), True, key=lambda second: offset(second) < offset(day))
        again = day + change
        if first < again and last > again - back.total_seconds():
            begin = datetime.fromtimestamp(again, zone).replace(tzinfo=None)
            hours.append((begin, begin + back))
    return hours
