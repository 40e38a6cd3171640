"""Levels of the request logger, the way back, turns, and what speaks against a recording."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.core.change.plan import Severity
from kquota.core.change.recording import (
    LINE_BYTES,
    LOGGER,
    Bounds,
    Estimate,
    Level,
    LevelChange,
    Reading,
    Space,
    level_of,
    objections,
    turns,
)

WARN = LevelChange(1, Level("WARN"))
OFF = LevelChange(1, Level("OFF"))


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        ({LOGGER: "WARN", "root": "INFO"}, Level("WARN")),
        ({LOGGER: "INFO", "root": "INFO"}, Level("INFO", inherited=True)),
        # The nearest ancestor counts, and not the root.
        ({LOGGER: "WARN", "kafka": "INFO", "root": "WARN"}, Level("WARN")),
        ({LOGGER: "INFO", "kafka": "INFO", "root": "WARN"}, Level("INFO", inherited=True)),
        ({LOGGER: "INFO", "kafka.request": "ERROR", "kafka": "INFO", "root": "INFO"}, Level("INFO")),
        ({LOGGER: "INFO"}, Level("INFO")),
        ({"root": "INFO"}, None),
    ],
)
def test_a_level_like_the_nearest_ancestors_is_taken_for_inherited(
    levels: dict[str, str], expected: Level | None
) -> None:
    assert level_of(levels) == expected


def test_off_cannot_be_set_and_becomes_fatal() -> None:
    assert (OFF.restored, LevelChange(1, Level("OFF", inherited=True)).restored, WARN.restored) == (
        "FATAL",
        "OFF",
        "WARN",
    )


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True),
    st.integers(1, 2000),
    st.integers(1, 300),
    st.integers(0, 300),
)
def test_a_rotation_burdens_one_node_at_a_time(nodes: list[int], for_ms: int, on: int, off: int) -> None:
    made = list(turns(nodes, for_ms, (on, on + off)))
    assert all(len(turn.nodes) == 1 and turn.end_ms - turn.start_ms <= on for turn in made)
    assert all(earlier.end_ms <= later.start_ms for earlier, later in itertools.pairwise(made))
    assert made[-1].end_ms <= for_ms
    assert [turn.nodes[0] for turn in made] == [nodes[n % len(nodes)] for n in range(len(made))]
    lengths = Bounds(for_ms, rotate=(on, on + off)).on_ms(nodes)
    assert sum(lengths.values()) == sum(turn.end_ms - turn.start_ms for turn in made)


def names(*estimates: Estimate, bounds: Bounds, usable: int | None = None) -> list[str]:
    spaces = [Space(1, "/big", 10**12, 10**12), Space(1, "/d", 10**9, usable)]
    return [each.name for each in objections([WARN], estimates, spaces, bounds)]


def test_what_does_not_fit_is_refused() -> None:
    """10,000 requests a second for 2 min are 1.38 GB; a tenth of the volume is kept free."""
    estimate, long = Estimate(1, 1000.0, 120_000), Bounds(120_000)
    size = round(LINE_BYTES * 1000 * 120)
    assert names(estimate, bounds=long, usable=size + 10**8 + 1) == []
    assert names(estimate, bounds=long, usable=size + 10**8 - 1) == ["log-space"]
    assert names(estimate, bounds=long, usable=None) == []
    assert names(estimate, bounds=Bounds(120_000, size=1000), usable=10**8 + 1000) == []
    assert names(estimate, bounds=Bounds(120_000, requests=10), usable=2 * 10**8) == []
    (found,) = objections([WARN], [estimate], [Space(1, "/d", 10**9, 10**8 + 5000)], long)
    assert found.severity is Severity.REFUSAL
    assert "broker 1: about 138 MB would be written, and /d has room for 5 kB" in found.message


def test_a_level_that_cannot_come_back_is_refused() -> None:
    (found,) = objections([OFF], [Estimate(1, 1.0, 1)], [], Bounds(1))
    assert (found.name, found.severity) == ("level-off", Severity.REFUSAL)


def test_readings_add_up_and_stay_honest() -> None:
    assert Reading(1, 10, exact=True) + Reading(2, 30, exact=False) == Reading(3, 40, exact=False)
