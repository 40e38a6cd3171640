"""The figures of the pairs are what they are called, on counters made by hand."""

from dataclasses import replace
from typing import Any

import pytest

from tools.accuracy.pairs.tables import Counter, Figures, Promise, Question, Recommended, brief_page, page, summary


def counter(
    total: float | None, real: float, *, low: float | None = None, high: float | None = None, **more: Any
) -> Counter:
    """A counter with a predicted total and a real one; `total` None is undetermined."""
    told = {
        "client_kind": "paced",
        "verdict": "undetermined" if total is None else "throttled" if total else "not throttled",
        "throttle_time_ms": {
            "low": total if low is None else low,
            "estimate": total,
            "high": total if high is None else high,
        },
        "throttle_time_max_ms": {"low": 10, "estimate": 10, "high": 10},
        "delivered_per_s": {"low": 100, "estimate": 100, "high": 100},
    }
    given: dict[str, Any] = {
        "broker": "broker-1",
        "key": "producer_byte_rate",
        "sensor": ":a",
        "limit": 1.0,
        "predicted": told,
        "open_ms": 0,
        "total_ms": real,
        "longest_ms": 10,
        "throttled": int(real > 0),
        "delivered_per_s": 100,
        "done_ms": 1,
        "end_ms": 2,
        "again": None,
    }
    return Counter(**{**given, **more})


def test_shares_are_of_the_counters_that_can_be_compared() -> None:
    """One within 10 %, one twice as much, one at rest in both, one not decided."""
    figures = summary([counter(105, 100), counter(200, 100), counter(0, 0), counter(None, 100)])
    assert (figures.counters, figures.undetermined) == (4, 1)
    assert (figures.total, figures.verdicts, figures.longest) == (0.5, 1.0, 1.0)
    assert figures.factor == pytest.approx(1.525)


def test_a_throttle_out_of_nothing_is_wrong_however_long() -> None:
    figures = summary([counter(5, 0)])
    assert (figures.verdicts, figures.total, figures.factor) == (0.0, 0.0, float("inf"))


@pytest.mark.parametrize(
    ("low", "high", "held"), [(50, 95, True), (50, 90, False), (111, 120, True), (112, 120, False)]
)
def test_an_interval_holds_the_truth_with_a_slack(low: float, high: float, held: bool) -> None:
    assert summary([counter(100, 100, low=low, high=high)]).coverage == held


def test_a_total_is_cut_to_a_run_that_ended_too_early() -> None:
    """Of 200 s that are predicted until all is done, the run saw half."""
    asked = counter(200, 100, done_ms=None, end_ms=50)
    assert asked.predicted is not None
    early = replace(asked, predicted={**asked.predicted, "done_ms": {"low": 100, "estimate": 100, "high": 100}})
    assert (early.value("throttle_time_ms"), summary([early]).total) == (100, 1.0)
    assert replace(early, done_ms=90).value("throttle_time_ms") == 200
    simulated = replace(early, cut_ms={"low": 80, "estimate": 120, "high": None})
    assert (simulated.value("throttle_time_ms"), simulated.value("throttle_time_ms", "high")) == (120, None)
    assert replace(simulated, done_ms=90).value("throttle_time_ms") == 200


def test_the_page_shows_all_of_them() -> None:
    question = Question("lowering", "none", "tight", (counter(105, 100, sensor="alice:app"),))
    text = page(Figures((question,), (Recommended("none", (Promise("u", "c", "k", 1, 0.0, 0, 100),)),)))
    assert "| none → tight | 1 | 0 | 100 % | 100 % | 1.05 |" in text
    assert "`alice:app`" in text
    assert "1 of 1 limits promise something. 1 promises came true." in text


def test_the_brief_page_has_the_counters_of_one_question() -> None:
    """Of three brokers there are three times as many counters."""
    asked = [Question("lowering", "none", after, (counter(105, 100, sensor=after),)) for after in ("moderate", "tight")]
    text = brief_page(Figures(tuple(asked), (Recommended("none", (Promise("u", "c", "k", 1, 0.0, 0, 100),)),)))
    assert "| none → moderate | 1 |" in text
    assert "`tight`" in text
    assert "`moderate`" not in text
    assert "1 of 1 limits promise something. 1 promises came true." in text
    assert "| u | c |" not in text
