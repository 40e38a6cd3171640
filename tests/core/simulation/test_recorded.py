"""Recorded clients, run under other limits."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kquota.core.enforcement import Generation, Mode, kernel
from kquota.core.simulation.recorded import Charged, Counted, Ran, run_recorded
from kquota.core.simulation.workload import FETCH_API, PRODUCE_API, Brokers, Client, Events, Workload

MODES = (Mode.PLAIN, Mode.COMPILED)


def run(
    client: Client, rows: Sequence[tuple[int, int, int]], limit: float, mode: Mode, recorded_ms: int = 60_000
) -> Ran:
    """Runs one client with (ms, bytes, partition) under a limit."""
    times, sizes, partitions = zip(*rows, strict=True)
    nothing, never = [0] * len(rows), [-1] * len(rows)
    workload = Workload(
        recorded_ms,
        (client,),
        Brokers(),
        origin_ms=0,
        events=Events(times, sizes, nothing, range(len(rows)), never, partitions),
    )
    counter = Counted([(0, limit)], 0, recorded_ms + 1)
    return run_recorded(workload, [counter], [Charged(0)], generation=Generation.N_PLUS_1_BY_LAST, using=kernel(mode))


@pytest.mark.parametrize("mode", MODES)
def test_a_request_holds_one_batch_of_each_partition(mode: Mode) -> None:
    """Those of a full partition wait for the next request, and those of others overtake them (RecordAccumulator)."""
    # The first takes ten seconds to pay; the others have come by then.
    rows = [(0, 20_000, 0), *((100 + 10 * n, 900, n // 20 % 2) for n in range(60))]
    client = Client("c", PRODUCE_API, given=(0, len(rows)), merge=32_200, merge_saves=100, batch=16_100)
    charged = run(client, rows, 1000, mode).charged_ms
    assert len(set(charged)) == 3
    first, *later = list(charged)
    second, third = sorted(set(later))
    assert first < second < third
    # 40 records of partition 0 and 20 of partition 1 wait: 20 of either fill a batch, and the last 20 are left.
    assert later == [second] * 20 + [second] * 20 + [third] * 20


@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_lost_or_counted_twice_in_a_joined_request(mode: Mode) -> None:
    """All bytes are delivered, less the headers of requests that went out with another one."""
    rows = [(100 * n, 1000, n % 3) for n in range(300)]
    client = Client("c", PRODUCE_API, given=(0, 300), merge=48_000, merge_saves=100, batch=16_000)
    ran = run(client, rows, 5000, mode)
    (met,) = ran.met
    joined = 300 - len(set(ran.charged_ms))
    assert joined > 100
    assert met.done_ms is not None
    (again,) = run(client, rows, 5000, mode, recorded_ms=met.done_ms + 1).met
    assert (again.delivered, again.left) == (300_000 - 100 * joined, 0)
    (begun,) = run(client, rows, 5000, mode, recorded_ms=20_000).met
    assert begun.left > 0


@pytest.mark.parametrize("mode", MODES)
def test_a_response_has_a_header_beside_the_records_that_a_quota_caps(mode: Mode) -> None:
    """Records for ten seconds and a header are more than the quota of ten seconds: such a fetch is throttled."""
    client = Client("c", FETCH_API, size=1, given=(0, 1), max_wait_ms=1 << 40, max_bytes=1 << 20, round_trip_ms=0)
    rows = [(0, 100_000, 0)]
    (met,) = run(client, rows, 10_000, mode).met
    assert (met.throttled, met.delivered) == (0, 100_000)
    with_header = Client(
        "c", FETCH_API, size=1, given=(0, 1), max_wait_ms=1 << 40, max_bytes=1 << 20, round_trip_ms=0, overhead=73
    )
    (met,) = run(with_header, rows, 10_000, mode).met
    assert met.throttled > 0
    assert (met.delivered, met.left) == (100_073, 0)
