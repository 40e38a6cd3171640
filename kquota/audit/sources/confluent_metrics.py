"""Totals of Confluent Cloud's Metrics API, by principal and minute.

    POST https://api.telemetry.confluent.cloud/v2/metrics/cloud/query
    {"aggregations": [{"metric": "io.confluent.kafka.server/request_bytes"}], "granularity": "PT1M",
     "filter": {"op": "AND", "filters": [{"field": "resource.kafka.id", "op": "EQ", "value": "lkc-…"},
                                         {"field": "metric.type", "op": "EQ", "value": "Produce"}]},
     "group_by": ["metric.principal_id", "metric.type"], "intervals": ["…/…"], "limit": 1000}

and the same with `response_bytes` and `Fetch`. The answer does not say what was asked, so it is put in, with jq:

    curl … | jq '. + {metric: "io.confluent.kafka.server/request_bytes", granularity: "PT1M"}' > produce.json

`data` holds `{"timestamp": "…Z", "value": 123.0, "metric.principal_id": "sa-…", "metric.type": "Produce"}`; the
timestamp is the beginning of the interval. Without `metric.type` a total holds other requests, too, and without
`--broker` it is the total of all brokers. Either total says only that no more was charged. `sa-…` is the user's name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from kquota.audit.batch import Tally
from kquota.audit.samples import Reading, Samples, gather
from kquota.audit.sources import SAMPLED_SIGHT, ReadSettings, Split
from kquota.audit.sources.documents import documents
from kquota.audit.sources.files import File
from kquota.core.quotas.quota import QuotaKey
from kquota.metrics.series import Nature, Series, checked

DIALECT: Final = "confluent-metrics"
SIGHT: Final = SAMPLED_SIGHT
_METRICS: Final = {
    "io.confluent.kafka.server/request_bytes": ("produce", QuotaKey.PRODUCER_BYTE_RATE),
    "io.confluent.kafka.server/response_bytes": ("fetch", QuotaKey.CONSUMER_BYTE_RATE),
}
_GRANULARITY: Final = re.compile(r"P(?:(?P<d>\d+)D)?(?:T(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?)?")


def splits(file: File) -> list[Split]:
    """The file as one piece."""
    return [Split(DIALECT, file.path, 0, -1, file.size // 100)]


def read(split: Split, settings: ReadSettings, tally: Tally) -> Iterator[Samples]:
    """The totals of all answers in the file."""
    exact: list[Reading] = []
    at_most: list[Reading] = []
    for place, answer in documents(split.path, tally):
        try:
            wanted, key, interval_ms, records = _answer(answer)
        except ValueError as error:
            tally.reject(split.path, place, str(error), str(answer))
            continue
        for number, record in enumerate(records):
            try:
                kind, reading = _reading(record, key, interval_ms, settings.broker)
            except ValueError as error:
                tally.reject(split.path, f"{place}, record {number + 1}", str(error), str(record))
                continue
            if reading is not None and kind in (None, wanted):
                (exact if kind == wanted and settings.broker is not None else at_most).append(reading)
    yield from gather(exact)
    yield from gather(at_most, floor=False)


def _answer(answer: Any) -> tuple[str, QuotaKey, int, list[Any]]:
    """(the requests that count, the quota key, the length of an interval, the records)."""
    if not isinstance(answer, dict) or not isinstance(answer.get("data"), list):
        raise ValueError("not an answer of the Metrics API")
    metric = answer.get("metric")
    if not isinstance(metric, str) or metric not in _METRICS:
        raise ValueError(f'"metric" is not one of {", ".join(_METRICS)}: put in which one was asked for')
    granularity = answer.get("granularity")
    match = _GRANULARITY.fullmatch(granularity) if isinstance(granularity, str) else None
    minutes = 0 if match is None else 1440 * int(match["d"] or 0) + 60 * int(match["h"] or 0) + int(match["m"] or 0)
    if minutes == 0:
        raise ValueError('"granularity" is not one such as PT1M: put in which one was asked for')
    return *_METRICS[metric], minutes * 60_000, answer["data"]


def _reading(record: Any, key: QuotaKey, interval_ms: int, broker: str | None) -> tuple[str | None, Reading | None]:
    if not isinstance(record, dict):
        raise ValueError("not a record")
    principal = record.get("metric.principal_id")
    if not isinstance(principal, str) or not principal:
        raise ValueError("no metric.principal_id: group by it")
    try:
        moment = datetime.fromisoformat(record["timestamp"])
        value = float(record["value"])
    except (KeyError, TypeError, ValueError):
        raise ValueError("timestamp or value is missing or malformed") from None
    if moment.tzinfo is None:
        raise ValueError("the timestamp has no zone")
    kind = record.get("metric.type")
    where = broker if broker is not None else str(record.get("resource.kafka.id", "all brokers"))
    end_ms = int(moment.timestamp() * 1000) + interval_ms
    known = ("metric.principal_id", "metric.principal_name", "metric.type")
    others = [f"{name}={record[name]}" for name in sorted(record) if name.startswith("metric.") and name not in known]
    series = Series(where, key, Nature.TOTAL, principal, None, ",".join(others))
    counted = checked(Nature.TOTAL, end_ms, value)
    reading = None if counted is None else Reading(series, end_ms, counted, interval_ms)
    return (kind.lower() if isinstance(kind, str) else None), reading
