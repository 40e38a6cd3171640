"""`kquota audit --closed-loop`: throttle times as clients would see them, beside those of the open loop."""

import json
from pathlib import Path

import pytest

from kquota.cli.text import duration
from tests.audit.recorded import LOG
from tests.audit.recorded import QUOTAS as IN_FORCE
from tests.cli.conftest import Kquota, quotas, validated

START_MS = 1_700_000_000_000
HEADER = "time_ms,user,client_id,api,bytes,throttle_time_ms,connection\n"


@pytest.fixture(autouse=True)
def files(tmp_path: Path) -> None:
    """Alice sends 3 kB every second for a minute, on one connection, on two, and on nobody knows which."""
    rows = [(START_MS + 1000 * n, n) for n in range(60)]
    for name, connections in (("one", "a"), ("two", "ab"), ("none", ("",))):
        text = "".join(f"{ms},alice,app,produce,3000,0,{connections[n % len(connections)]}\n" for ms, n in rows)
        (tmp_path / f"{name}.csv").write_text(HEADER + text)
    for name, limit in (("low", 1000), ("high", 1_000_000)):
        (tmp_path / f"{name}.json").write_text(quotas(alice=limit))


def test_a_recorded_log_from_end_to_end(kquota: Kquota) -> None:
    """It was a closed loop under these quotas: about what a broker logged comes out."""
    arguments = ["audit", str(LOG), "--broker", "1", "--quotas", str(IN_FORCE), "--closed-loop"]
    done = kquota(*arguments, "-o", "json")

    assert done.code == 0, done.err
    document = validated(done.out, "audit")
    sums = dict.fromkeys(("closed_loop", "logged"), 0)
    for finding in document["findings"]:
        assert (finding["closed_loop"] is None) == (finding["key"] == "request_percentage")
        if finding["closed_loop"] is not None and finding["logged"] is not None:
            for name in sums:
                sums[name] += finding[name]["throttle_time_ms"]
    # Where connections of alice's and carol's share a counter, one is through with its recorded requests after 160 s of
    # 240: a client that never pauses would go on, and be throttled.
    assert 0.99 < sums["closed_loop"] / sums["logged"] < 1.01
    assert document["closed_loop"]["throttle_time_ms"] == sums["closed_loop"]
    delays = {client["user"]: client["delay_ms"] for client in document["closed_loop"]["clients"]}
    assert abs(delays["dave"]) < 1000, "its queue is short when the recording ends"
    assert "frank" not in delays, "half of the thread time that limits frank is not in the log"


@pytest.mark.parametrize("output", ["table", "markdown"])
def test_who_comes_later_is_shown(kquota: Kquota, output: str) -> None:
    """A connection that waits falls behind, and no longer asks for more than it gets."""
    done = kquota("audit", "one.csv", "--quotas", "low.json", "--closed-loop", "-o", output)

    assert done.code == 0, done.err
    said = done.err if output == "table" else done.out
    document = json.loads(kquota("audit", "one.csv", "--quotas", "low.json", "--closed-loop", "-o", "json").out)
    (finding,) = document["findings"]
    # A sum of waits is shown nowhere as if a client had waited it.
    for sum_of_waits in (finding["throttle_time_ms"], finding["closed_loop"]["throttle_time_ms"]):
        assert duration(sum_of_waits) not in done.out + done.err
    # 180 kB at 1 kB/s, less what the first windows let through: the queue is served without a pause.
    assert 160_000 < finding["closed_loop"]["throttle_time_ms"] < 182_000
    assert "the last request comes later: `alice:app` by " in said
    assert ("closed loop" in done.out.splitlines()[1]) == (output == "table")
