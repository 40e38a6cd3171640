"""What brokers would do to a workload: clients that send open or closed loop, under the quotas of a snapshot.

- `workload`: clients, brokers and changes as values; the plan of a client's arrivals.
- `engine`: finds who shares counters with whom, and runs each group by itself.
- `connections`: clients that open connections.
- `result`: what comes out.

The loop itself is `kquota.core.enforcement.traffic`, compiled or plain.
"""

from __future__ import annotations

from kquota.core.simulation.engine import expected_events, simulate
from kquota.core.simulation.result import (
    Acceptor,
    ClientResult,
    CounterResult,
    Queue,
    Share,
    Simulation,
    Timeline,
    widened,
)
from kquota.core.simulation.workload import Brokers, Burst, Change, Client, Events, Workload, enforced_workload

__all__ = [
    "Acceptor",
    "Brokers",
    "Burst",
    "Change",
    "Client",
    "ClientResult",
    "CounterResult",
    "Events",
    "Queue",
    "Share",
    "Simulation",
    "Timeline",
    "Workload",
    "enforced_workload",
    "expected_events",
    "simulate",
    "widened",
]
