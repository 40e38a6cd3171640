"""What Prometheus answers, as JSON: a matrix or a vector, one or several after the other in a file.

    curl -G http://prometheus:9090/api/v1/query --data-urlencode 'query={__name__=~"kafka_server_quota_.*"}[1h]' > FILE
    curl -G http://prometheus:9090/api/v1/query_range --data-urlencode 'query=…' -d start=… -d end=… -d step=15 > FILE

`{"status": "success", "data": {"resultType": "matrix", "result": [{"metric": {label: value},
"values": [[seconds, "value"], …]}]}}`, or `"vector"` with one `"value"`; the first form is the better one. A query
over a range in steps repeats the last reading before each step, whatever its age: it shows rates, but not that nothing
lay between them. Its times are all on one grid; a matrix whose times are not holds the readings themselves.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from kquota.audit.batch import Tally
from kquota.audit.sources import SAMPLED_SIGHT, ReadSettings, Split
from kquota.audit.sources.files import File
from kquota.audit.sources.samples import Reading, Samples, documents, gather, reading, reject
from kquota.metrics.series import of_labels

DIALECT: Final = "prometheus"
SIGHT: Final = SAMPLED_SIGHT
LOOKBACK_MS: Final = 300_000
"""How old a value can be that a step repeats (`--query.lookback-delta`)."""


def splits(file: File) -> list[Split]:
    """The file as one piece."""
    return [Split(DIALECT, file.path, 0, -1, file.size // 40)]


def read(split: Split, settings: ReadSettings, tally: Tally) -> Iterator[Samples]:
    """The series of all answers in the file."""
    for place, answer in documents(split.path, tally):
        try:
            kind, result = _result(answer)
        except ValueError as error:
            tally.reject(split.path, place, str(error), str(answer))
            continue
        readings: list[Reading] = []
        for number, entry in enumerate(result):
            readings += _readings(entry, settings.broker, tally, split.path, f"{place}, series {number + 1}")
        if kind == "matrix" and not _on_a_grid(readings):
            yield from gather(readings)
        else:
            yield from gather(readings, ceiling=False, slack_ms=LOOKBACK_MS)


def _result(answer: Any) -> tuple[str, list[Any]]:
    if not isinstance(answer, dict):
        raise ValueError("not an answer of Prometheus")
    if answer.get("status") == "error":
        raise ValueError(f"Prometheus answered with an error: {answer.get('error')}")
    if isinstance(answer.get("timestamps"), list) and isinstance(answer.get("values"), list):
        # A line of VictoriaMetrics' /api/v1/export: times are in ms.
        if len(answer["timestamps"]) != len(answer["values"]):
            raise ValueError(f"{len(answer['timestamps'])} timestamps for {len(answer['values'])} values")
        seconds = [time / 1000 if isinstance(time, int) else time for time in answer["timestamps"]]
        pairs = [list(pair) for pair in zip(seconds, answer["values"], strict=True) if pair[1] is not None]
        return "matrix", [{"metric": answer.get("metric"), "values": pairs}]
    data = answer.get("data", answer)
    kind, result = (data.get("resultType"), data.get("result")) if isinstance(data, dict) else (None, None)
    if kind not in ("matrix", "vector") or not isinstance(result, list):
        raise ValueError("not an answer of Prometheus with a matrix or a vector")
    return kind, result


def _readings(entry: Any, broker: str | None, tally: Tally, path: str, place: str) -> Iterator[Reading]:
    try:
        labels, values = entry["metric"], entry["values"] if "values" in entry else [entry["value"]]
        if not isinstance(labels, Mapping) or not isinstance(values, list):
            raise TypeError
        series = of_labels({str(name): str(value) for name, value in labels.items()}, broker)
    except (KeyError, TypeError):
        tally.reject(path, place, "not a series with a metric and its values", str(entry))
        return
    except ValueError as error:
        reject(tally, DIALECT, path, place, error, str(labels))
        return
    if series is None:
        return
    for pair in values:
        try:
            yield from reading(series, *_numbers(pair))
        except ValueError as error:
            tally.reject(path, place, str(error), str(pair))


def _numbers(pair: Any) -> tuple[int, float]:
    try:
        seconds, text = pair
        return round(float(seconds) * 1000), float(text)
    except (TypeError, ValueError, OverflowError):
        raise ValueError("not a time and a number") from None


def _on_a_grid(readings: list[Reading]) -> bool:
    """Whether all times are the first one and multiples of one step after it."""
    times = np.unique(np.array([reading.end_ms for reading in readings], np.int64))
    if len(times) < 2:
        return True
    return bool(((times - times[0]) % np.diff(times).min() == 0).all())
