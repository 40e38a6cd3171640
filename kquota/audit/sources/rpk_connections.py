"""What `rpk cluster connections list` says about Redpanda's connections, once or again and again.

    while sleep 60; do rpk cluster connections list --format json; done > connections.json

Each connection has its broker (`node_id`), user, client-id and the bytes since it was opened, in
`request_statistics_all`; the names of Redpanda's Admin API (`totalRequestStatistics`, `authenticationInfo`) are read,
too. What a connection sent until it was first seen is a total since it was opened. What it sent from one snapshot to
the next is another total. Connections that open and close between two snapshots are unseen, so nothing is ever
excluded. The statistics of the last minute are not read: which minute it was is not said.

The time of a snapshot is when its open connections were opened and how long that was ago, which rpk rounds to seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from kquota.audit.batch import Tally
from kquota.audit.samples import Reading, Samples, gather
from kquota.audit.sources import SAMPLED_SIGHT, ReadSettings, Split
from kquota.audit.sources.documents import documents
from kquota.audit.sources.files import File
from kquota.core.quotas.quota import QuotaKey
from kquota.metrics.series import Nature, Series, checked

DIALECT: Final = "rpk-connections"
SIGHT: Final = SAMPLED_SIGHT
_KEYS: Final = {
    QuotaKey.PRODUCER_BYTE_RATE: ("produce_bytes", "produceBytes"),
    QuotaKey.CONSUMER_BYTE_RATE: ("fetch_bytes", "fetchBytes"),
}
_DURATION: Final = re.compile(r"(?:(?P<h>\d+)h)?(?:(?P<m>\d+)m(?!s))?(?:(?P<s>\d+(?:\.\d+)?)s)?")


def splits(file: File) -> list[Split]:
    """The file as one piece."""
    return [Split(DIALECT, file.path, 0, -1, file.size // 500)]


def read(split: Split, settings: ReadSettings, tally: Tally) -> Iterator[Samples]:
    """The counters of all connections in the file."""
    readings: list[Reading] = []
    for place, document in documents(split.path, tally):
        connections = document.get("connections") if isinstance(document, dict) else document
        if not isinstance(connections, list):
            tally.reject(split.path, place, "not a list of connections", str(document))
            continue
        known: list[tuple[str, Any]] = [
            (f"{place}, connection {number + 1}", connection) for number, connection in enumerate(connections)
        ]
        now = max((time for _, connection in known if (time := _seen(connection)) is not None), default=None)
        for where, connection in known:
            try:
                readings += _readings(connection, now, settings.broker)
            except ValueError as error:
                tally.reject(split.path, where, str(error), str(connection))
    yield from gather(readings, ceiling=False)


def _readings(connection: Any, now: int | None, broker: str | None) -> list[Reading]:
    if not isinstance(connection, dict):
        raise ValueError("not a connection")
    statistics = _first(connection, "request_statistics_all", "totalRequestStatistics", "total_request_statistics")
    if not isinstance(statistics, dict):
        raise ValueError("no statistics since the connection was opened")
    opened = _time(_first(connection, "open_time", "openTime"))
    closed = _first(connection, "close_time", "closeTime")
    end = now if closed is None else _time(closed)
    if end is None:
        raise ValueError("when the snapshot was taken is not known: no open connection says how long it is open")
    client, who = _object(connection, "client"), _object(connection, "authentication", "authenticationInfo")
    client_id = _text(client.get("id")) or _text(_first(connection, "clientId", "client_id"))
    user = _text(_first(who, "user_principal", "userPrincipal"))
    node = _first(connection, "node_id", "nodeId")
    where = broker if broker is not None else str(0 if node is None else node)  # protobuf leaves zeros out
    readings = []
    for key, names in _KEYS.items():
        count = _first(statistics, *names)
        try:
            value = float(0 if count is None else count)  # protobuf: 64-bit numbers are strings in JSON
        except (TypeError, ValueError):
            raise ValueError(f"{names[0]} is not a number") from None
        series = Series(where, key, Nature.COUNTER, user, client_id, _text(connection.get("uid")))
        counted = checked(Nature.COUNTER, end, value)
        if counted is not None:
            readings.append(Reading(series, end, counted, max(end - opened, 0)))
    return readings


def _seen(connection: Any) -> int | None:
    """When an open connection was seen, in epoch ms; None where it does not say."""
    if not isinstance(connection, dict) or _first(connection, "close_time", "closeTime") is not None:
        return None
    duration = connection.get("connection_duration")
    match = _DURATION.fullmatch(duration) if isinstance(duration, str) and duration else None
    if match is None:
        return None
    seconds = 3600 * int(match["h"] or 0) + 60 * int(match["m"] or 0) + float(match["s"] or 0)
    try:
        return _time(connection.get("open_time")) + round(1000 * seconds)
    except ValueError:
        return None


def _time(text: Any) -> int:
    """RFC 3339 as epoch ms. Raises ValueError."""
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        raise ValueError("the time of opening or closing is missing or not RFC 3339") from None
    if moment.tzinfo is None:
        raise ValueError("the time of opening or closing has no zone")
    return int(moment.timestamp() * 1000)


def _first(fields: Mapping[str, Any], *names: str) -> Any:
    return next((fields[name] for name in names if name in fields), None)


def _object(fields: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    found = _first(fields, *names)
    return found if isinstance(found, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
