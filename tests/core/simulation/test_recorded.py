"""Recorded clients, run under other limits."""

from collections.abc import Sequence

import pytest

from kquota.core.enforcement import Generation, Mode, kernel
from kquota.core.simulation.recorded import Charged, Counted, Ran, run_recorded
from kquota.core.simulation.workload import FETCH_API, PRODUCE_API, Brokers, Client, Events, Workload
from tests.support.compiled import modes


def run(
    client: Client,
    rows: Sequence[tuple[int, int, int]],
    limit: float,
    mode: Mode,
    recorded_ms: int = 60_000,
    think_ms: int = -1,
) -> Ran:
    """Runs one client with (ms, bytes, partition) under a limit; it thinks before all but the first."""
    times, sizes, partitions = zip(*rows, strict=True)
    nothing, thinks = [0] * len(rows), [-1, *[think_ms] * (len(rows) - 1)]
    workload = Workload(
        recorded_ms,
        (client,),
        Brokers(),
        origin_ms=0,
        events=Events(times, sizes, nothing, range(len(rows)), thinks, partitions),
    )
    counter = Counted([(0, limit)], 0, recorded_ms + 1)
    return run_recorded(workload, [counter], [Charged(0)], generation=Generation.N_PLUS_1_BY_LAST, using=kernel(mode))


@pytest.mark.parametrize("mode", modes())
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


@pytest.mark.parametrize("mode", modes())
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


@pytest.mark.parametrize("mode", modes())
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


@pytest.mark.parametrize("mode", modes())
@pytest.mark.parametrize(("in_flight", "sizes"), [(5, [1, 20, 10, 5]), (1, [1, 20, 15])])
def test_a_request_holds_what_was_there_when_it_was_sent(mode: Mode, in_flight: int, sizes: Sequence[int]) -> None:
    """With several in flight it is sent before the broker reads it, and does not know what comes until then."""
    # A batch holds 20 of those that wait for the first; five more come while the second is paid for.
    rows = [(0, 20_000, 0), *((100 + n, 900, 0) for n in range(30)), *((20_000 + n, 900, 0) for n in range(5))]
    client = Client(
        "c", PRODUCE_API, given=(0, len(rows)), merge=16_100, merge_saves=100, batch=16_100, in_flight=in_flight
    )
    charged = list(run(client, rows, 1000, mode).charged_ms)
    assert [charged.count(moment) for moment in sorted(set(charged))] == sizes


@pytest.mark.parametrize("mode", modes())
def test_a_consumer_has_one_response_in_store(mode: Mode) -> None:
    """Ten responses of which each takes 500 ms: it asks for the second at once, and for the last after the eighth."""
    client = Client("c", FETCH_API, size=1, given=(0, 10), max_wait_ms=1 << 40, max_bytes=1 << 20, round_trip_ms=0)
    (met,) = run(client, [(0, 1000, 0)] * 10, 1e9, mode, think_ms=500).met
    assert met.done_ms is not None
    assert 8 * 500 <= met.done_ms < 8 * 500 + 50


@pytest.mark.parametrize("mode", modes())
def test_a_busy_consumer_reads_a_throttle_time_late(mode: Mode) -> None:
    """It polls when it has processed what it got; then it waits for all of the throttle time."""
    client = Client("c", FETCH_API, size=1, given=(0, 2), max_wait_ms=1 << 40, max_bytes=1 << 20, round_trip_ms=0)
    rows = [(0, 9000, 0)] * 2
    done = [run(client, rows, 1000, mode, think_ms=think).met[0].done_ms for think in (0, 3000)]
    assert None not in done
    idle, busy = (moment or 0 for moment in done)
    assert idle >= 8000
    assert busy >= 3000 + 8000
