"""Runs recorded clients of one counter through the simulator: what they meet under other limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kquota.core.enforcement import UNLIMITED, Generation, Kernel
from kquota.core.enforcement.traffic import Traffic
from kquota.core.simulation.members import Member
from kquota.core.simulation.rows import Rows
from kquota.core.simulation.workload import Workload

LONGEST_MS: Final = 86_400_000
"""What is not delivered by then counts as never delivered."""


@dataclass(frozen=True, slots=True)
class Met:
    """What the recorded clients of one counter met in one run."""

    throttled: int
    """Requests with a throttle time."""
    throttle_ms: int
    """The sum of their throttle times, until everything was delivered."""
    throttle_max_ms: int
    early_ms: int
    """The sum of those in the recorded time."""
    muted_ms: int
    """How long the busiest connection was muted in the recorded time."""
    delivered: int
    """Units delivered in the recorded time."""
    left: int
    """Units that waited at the end of the recorded time."""
    done_ms: int | None
    """When the last unit was delivered, ms since the start; None where some never were."""
    waited_ms: tuple[int, ...]
    """The longest wait of a request from its arrival to its charge, of each client."""


def run_recorded(
    workload: Workload, limits: Sequence[tuple[int, float | None]], *, generation: Generation, using: Kernel
) -> Met:
    """Runs clients with given requests, all of one counter for bytes, until everything is delivered.

    `limits` are (since, limit) in order, epoch ms and units per second; None is no limit. The workload's duration is
    the recorded time, and its first client comes first.
    """
    members = [
        Member(client, client.name, client.user, client.client_id, 0, workload.brokers.names[0], 0, 1.0)
        for client in workload.clients
    ]
    traffic = Rows(workload, generation, using).traffic(members, 1, 0)
    sensors, connections = traffic.sensors, traffic.connections
    for connection in range(len(members)):
        connections.bytes_sensor[connection] = 0
    assert workload.events is not None
    end = workload.origin_ms + workload.duration_ms
    total = int(sum(workload.events.sizes))
    least = min((limit for _, limit in limits if limit is not None and limit > 0), default=1.0)
    horizon = end + min(60_000 + int(3000 * total / least), LONGEST_MS)
    stops = sorted({end, horizon, *(since for since, _ in limits if workload.origin_ms < since < horizon)})
    delivered = left = muted_ms = early_ms = 0
    sensors.bounds[0] = _limit_at(limits, workload.origin_ms)
    using.begin_traffic(traffic)
    for since, until in zip([workload.origin_ms, *stops], stops, strict=False):
        sensors.bounds[0] = _limit_at(limits, since)
        using.run_traffic(traffic, until)
        if until == end:
            delivered = sum(map(int, connections.delivered_units))
            left, early_ms = _left(workload, traffic), int(sensors.throttle_ms[0])
            muted_ms = max(
                int(total_ms) - max(int(muted) - end, 0)
                for total_ms, muted in zip(connections.throttle_ms, connections.muted, strict=True)
            )
    using.end_traffic(traffic)
    waits = any(waiting > 0 for waiting in connections.waiting_units)
    return Met(
        int(sensors.throttled[0]),
        int(sensors.throttle_ms[0]),
        int(sensors.max_ms[0]),
        early_ms,
        muted_ms,
        delivered,
        left,
        None if waits else max(max(map(int, connections.delivered_ms)) - workload.origin_ms, 0),
        tuple(map(int, connections.waited)),
    )


def _limit_at(limits: Sequence[tuple[int, float | None]], time_ms: int) -> float:
    """The limit that holds at a time; the first one before that."""
    found = limits[0][1]
    for since, limit in limits:
        if since <= time_ms:
            found = limit
    return UNLIMITED if found is None else found


def _left(workload: Workload, traffic: Traffic) -> int:
    """The units that have arrived and are not delivered; a client that waits for its answers leaves none."""
    connections, given = traffic.connections, traffic.given
    left = 0
    for connection in range(len(workload.clients)):
        start, end = int(connections.given_next[connection]), int(connections.given_end[connection])
        if given.thinks[end - 1] < 0:
            more = int(connections.offered_units[connection]) - int(connections.delivered_units[connection])
            left += more + int(sum(given.sizes[start:end]))
    return left
