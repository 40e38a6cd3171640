"""The pairs of recordings in `tests/data/pairs`, whose schedules are of 30 s: their logs agree with their clients."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.brokers.pairs.measure import Recording

DATA = Path(__file__).parents[2] / "data" / "pairs"


@cache
def recording(name: str) -> Recording:
    return Recording(DATA / name)


@pytest.mark.parametrize("name", ["none", "moderate", "tight"])
def test_the_log_and_the_clients_agree(name: str) -> None:
    """The longest throttle time in the log is the one that the client's library reports."""
    run = recording(name)
    met = run.met(run.quotas)
    told = {each["client_id"]: each for each in run.facts["clients"].values() if each["throttle_max_ms"]}
    mine = [
        (each["throttle_max_ms"], met[name].longest_ms)
        for name in met
        if (each := told.get(name[2].partition(":")[2])) and each["client_id"] != "team"
    ]
    assert mine
    assert [client for client, _ in mine] == [log for _, log in mine]
