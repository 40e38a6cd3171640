"""Predictions that are kept as bytes, and findings that are made from a table when they are asked for."""

import math
import string
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kquota.audit.evidence.prediction_store import AS_RECORDED, NO_DELAY, Predictions
from kquota.audit.findings import SCHEMA, Findings
from kquota.core.findings.finding import ORDER, Finding
from kquota.core.findings.prediction import CounterName, Interval, Prediction, RecordedUnder, Source
from kquota.core.findings.verdicts import Verdict
from kquota.documents.audit import prediction_document
from kquota.documents.derive import plain
from kquota.documents.encoding import to_json
from tests.support.scheduling import examples

NUMBERS = st.one_of(st.none(), st.integers(0, 1 << 60), st.floats(1, 1e12), st.floats(1, 9).map(np.float64))
INTERVALS = st.one_of(st.builds(Interval, NUMBERS, NUMBERS, NUMBERS), NUMBERS.map(lambda value: Interval(*[value] * 3)))
TEXTS = st.sampled_from([AS_RECORDED, NO_DELAY, "throttled", "paced", ""])
PREDICTIONS = st.builds(
    Prediction, TEXTS, TEXTS, TEXTS, *[INTERVALS] * 7, recorded_ms=st.one_of(st.none(), st.integers(0, 1 << 40)),
    times_out=st.booleans(), reason=st.one_of(st.none(), TEXTS),
    recorded_under=st.builds(RecordedUnder, st.sampled_from(Source), NUMBERS, st.booleans()),
)  # fmt: skip
NAMES = st.tuples(st.text(" :0a\0", max_size=4), st.sampled_from(["producer_byte_rate"]), st.text(" :0a\0", max_size=4))


def written(prediction: Prediction) -> str:
    """Everything that documents say of a prediction."""
    return to_json(prediction_document(prediction) | {"recorded_under": plain(prediction.recorded_under)})


def test_counters_of_which_the_same_is_said_share_its_bytes() -> None:
    """A million clients without connections in the recording would take some 200 MB otherwise."""
    none = Interval.exactly(0)
    basis = "the recording has no connections"
    same = Prediction("unknown", basis, "throttled", none, none, none, none, none, none, none)
    kept = Predictions()
    kept.update({("b", "producer_byte_rate", f":{number}"): same for number in range(3)})

    assert len({id(packed) for packed in kept._packed.values()}) == 1
    assert {kept.verdict(name) for name in kept} == {"throttled"}
    assert set(kept.values()) == {same}


@settings(max_examples=examples(60))
@given(st.dictionaries(NAMES, PREDICTIONS, max_size=4), NAMES, PREDICTIONS)
def test_predictions_come_back_as_they_were(
    given: dict[CounterName, Prediction], name: CounterName, other: Prediction
) -> None:
    """Equal, and with the same text: 5 is not 5.0 in a document. A copy changes alone."""
    kept, changed = Predictions(), Predictions()
    kept.update(given)
    changed.update(kept)
    changed.update({name: other})

    assert kept == given
    assert [written(each) for each in kept.values()] == [written(each) for each in given.values()]
    assert changed == given | {name: other}
    assert [changed.verdict(each) for each in changed] == [each.verdict for each in changed.values()]


def test_a_prediction_of_nobody_is_missing() -> None:
    """A counter without a prediction is not in the mapping."""
    with pytest.raises(KeyError):
        Predictions()["1", "producer_byte_rate", "alice:"]


def test_a_usual_prediction_takes_few_bytes() -> None:
    """A million of them must fit in a few hundred MB."""
    nothing, rate = Interval.exactly(0), Interval.exactly(1234.5)
    usual = Prediction(
        AS_RECORDED,
        NO_DELAY,
        "not throttled",
        nothing,
        nothing,
        nothing,
        rate,
        rate,
        Interval.exactly(3_600_000),
        nothing,
    )

    kept = Predictions()
    kept.update({("1", "producer_byte_rate", "alice:"): usual})
    assert len(kept._packed.popitem()[1]) < 200


def row(verdict: Verdict, peak: float, limit: float, sensor: str, longest: int | None) -> dict[str, Any]:
    empty: dict[str, Any] = {
        field.name: None if field.nullable else 0 if pa.types.is_integer(field.type) else "" for field in SCHEMA
    }
    return empty | {
        "broker": "1", "key": "producer_byte_rate", "sensor": sensor, "entity": "user=<default>", "level": 6,
        "limit": limit, "verdict": verdict.value, "basis": "requests", "peak_rate": peak, "clients": [],
        "throttle_time_max_ms": longest,
    }  # fmt: skip


ROWS = st.builds(
    row,
    st.sampled_from([Verdict.THROTTLED, Verdict.UNDETERMINED, Verdict.NOT_THROTTLED]),
    st.sampled_from([0.0, 1.0, 5.0]),
    st.sampled_from([0.0, 2.0, 5.0, -1.0, math.nan]),
    st.text(string.ascii_letters + "é:", max_size=3),
    st.sampled_from([None, 0, 7, 20]),
)


def rank(found: Finding) -> tuple[object, ...]:
    """What the order of findings goes by."""
    harm = (-part for part in found.harm)
    return ORDER.index(found.verdict), *harm, -(found.peak_share or 0.0), found.name


@settings(max_examples=examples(60))
@given(st.lists(ROWS, max_size=8, unique_by=lambda each: each["sensor"]), st.lists(PREDICTIONS, max_size=4))
def test_findings_are_ranked_by_harm(rows: list[dict[str, Any]], predictions: list[Prediction]) -> None:
    """The table is ranked as the values are, and gives each of them by its place."""
    table = pa.Table.from_pylist(rows, SCHEMA)
    names = [("1", "producer_byte_rate", each["sensor"]) for each in rows]
    findings = Findings(table, dict(zip(names, predictions, strict=False)))
    expected = [repr(each) for each in sorted(findings, key=rank)]

    found = findings.ranked()

    assert [repr(each) for each in found] == expected
    assert [repr(found[place]) for place in range(len(found))] == expected
    assert [repr(each) for each in found[1:3]] == expected[1:3]
    with pytest.raises(IndexError):
        found[len(rows)]
