"""The predictions of an audit: a mapping that holds each of them as some hundred bytes, and not as objects.

An audit of a million clients has a million predictions, which would take more than a gigabyte as objects.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final

from kquota.core.findings.prediction import (
    LOGGED,
    UNDELAYED,
    UNKNOWN,
    CounterName,
    Interval,
    Prediction,
    RecordedUnder,
    Source,
)
from kquota.core.findings.verdicts import Verdict

AS_RECORDED: Final = "as recorded"
"""The kind of clients that nobody delays."""
NO_DELAY: Final = "no request is throttled, so that all come as they were recorded"
"""The basis of a prediction for such clients."""
_CALM: Final = "="
"""How the text of a prediction for such clients begins: most counters have one, and it is made of four values."""

_FIELDS: Final = tuple(field.name for field in fields(Prediction))
_values_of: Final = attrgetter(*_FIELDS)
_VERDICT: Final = _FIELDS.index("verdict")
_COMMON: Final = (
    *(Interval.exactly(0), UNKNOWN, RecordedUnder(), AS_RECORDED, NO_DELAY),
    *(verdict.value for verdict in Verdict),
)
"""Values of most predictions, which are packed as their numbers: a million counters have ten million intervals."""
_ZERO, _UNKNOWN = (0, None), (1, None)
_NUMBERS: Final = {value: (number, None) for number, value in enumerate(_COMMON) if number > 1}


@dataclass(eq=False)
class Predictions(Mapping[CounterName, Prediction]):
    """The prediction of each counter; a prediction is made when it is asked for."""

    _packed: dict[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._packed)

    def __iter__(self) -> Iterator[CounterName]:
        return map(_name, self._packed)

    def __getitem__(self, name: CounterName) -> Prediction:
        return _unpack(self._packed[_text(name)])

    def add_calm(self, counters: Iterable[tuple[CounterName, int, float, str]], recorded_under: RecordedUnder) -> None:
        """Adds (counter, length in ms, units per second, basis) of counters whose clients nobody delays."""
        ends = {basis: json.dumps([_short(basis), _short(recorded_under)])[1:] for basis in (NO_DELAY, LOGGED)}
        self._packed.update(
            (_text(name), f"{_CALM}{length},{rate!r},{ends[basis]}") for name, length, rate, basis in counters
        )

    def verdict(self, name: CounterName) -> str | None:
        """The verdict in the prediction of a counter, without making the prediction; None where there is none."""
        packed = self._packed.get(_text(name))
        return None if packed is None else _verdict(packed)

    def update(self, others: Mapping[CounterName, Prediction]) -> None:
        """Sets the predictions of some counters. Many share the prediction of those before them, and then its text."""
        if isinstance(others, Predictions):
            self._packed.update(others._packed)
            return
        last, packed = None, ""
        for name, prediction in others.items():
            if prediction is not last:
                last = prediction
                packed = json.dumps([_short(value) for value in _values_of(prediction)], separators=(",", ":"))
            self._packed[_text(name)] = packed


def _text(name: CounterName) -> str:
    broker, key, sensor = name
    return f"{key} {len(broker)} {broker}{sensor}"


def _name(text: str) -> CounterName:
    key, length, rest = text.split(" ", 2)
    return rest[: int(length)], key, rest[int(length) :]


def as_recorded(length: int, rate: float, basis: str, recorded_under: RecordedUnder) -> Prediction:
    """The prediction for clients that nobody delays, who send so many units per second in so many ms."""
    units = Interval.exactly(rate)
    return Prediction(
        client_kind=AS_RECORDED,
        basis=basis,
        verdict=Verdict.NOT_THROTTLED.value,
        **UNDELAYED,
        delivered_per_s=units,
        wanted_per_s=units,
        done_ms=Interval.exactly(length),
        left_units=Interval.exactly(0),
        recorded_ms=length,
        recorded_under=recorded_under,
    )


@lru_cache
def _unpack(packed: str) -> Prediction:
    """The prediction of that text, which many counters share."""
    if packed.startswith(_CALM):
        return as_recorded(*(_whole(part) if type(part) is list else part for part in json.loads(f"[{packed[1:]}")))
    return Prediction(*[_whole(part) if type(part) is list else part for part in json.loads(packed)])


@lru_cache
def _verdict(packed: str) -> Any:
    if packed.startswith(_CALM):
        return Verdict.NOT_THROTTLED.value
    value = json.loads(packed)[_VERDICT]
    return _whole(value) if type(value) is list else value


def _short(value: Any) -> Any:
    """A value in a short text. The length of a tuple says what it stands for."""
    kind = type(value)
    if kind is Interval:
        low, estimate, high = value.low, value.estimate, value.high
        # Equal numbers of two types would be two numbers in a document.
        if low is not estimate or low is not high:
            return low, estimate, high
        if low is None:
            return _UNKNOWN
        return _ZERO if low == 0 and type(low) is int else (low,)
    if kind is str:
        return _NUMBERS.get(value, value)
    if kind is RecordedUnder:
        return _NUMBERS.get(value) or (value.source.value, value.limit, value.held_back, None)
    return value


def _whole(value: list[Any]) -> Any:
    match value:
        case [number, None]:
            return _COMMON[number]
        case [low]:
            return Interval(low, low, low)
        case [low, estimate, high]:
            return Interval(low, estimate, high)
    return RecordedUnder(Source(value[0]), *value[1:3])
