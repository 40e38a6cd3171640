"""What brokers do with a quota: the statistics, the checks and the delays, to the rounding of a half millisecond.

- `arithmetic`: Java's number conversions.
- `generation`: the ways of dropping samples and of cutting delays, by release, and `quota.window.*`.
- `kind`: the kinds of counters and requests.
- `counter`: the state of a counter, a row of a table; written to bytes and read back.
- `rate`: the windowed rate.
- `token_bucket`: the statistic of the controller mutation quota.
- `broker`: what a broker does to one request, whatever its kind: expire, record, check, delay, take back.
- `replay`: recorded usage of many counters in one pass.
- `traffic`: clients that send, open and closed loop, as an event loop over rows of columns.
- `compilable`: the mark of what `kernel` compiles.
- `kernel`: runs all of the above compiled or plain, with identical results.
- `sensors`, `mutation`, `connection`: the same as objects, with limits that change, the managers that find a client's
  sensor, and the acceptor threads.

Importing this package loads neither numpy nor numba.
"""

from __future__ import annotations

from kquota.core.enforcement.broker import NOBODY, UNLIMITED, Throttle, Verdict
from kquota.core.enforcement.connection import (
    UNLIMITED_IP,
    Acceptors,
    Arrival,
    Connection,
    ConnectionManager,
    ConnectionSensor,
    Wait,
    accept,
)
from kquota.core.enforcement.counter import Counter, Counters, from_bytes, to_bytes
from kquota.core.enforcement.generation import Generation, QuotaWindows
from kquota.core.enforcement.kernel import Kernel, Mode, kernel
from kquota.core.enforcement.kind import REQUEST, Kind
from kquota.core.enforcement.mutation import Mutation, MutationQuota, MutationResponse, MutationSensor
from kquota.core.enforcement.replay import Events, Summaries, Summary
from kquota.core.enforcement.sensors import (
    ClientQuotaManager,
    FetchSensor,
    ProduceSensor,
    RequestSensor,
    fetch_with_request,
    produce_with_request,
    replay_counter,
)

__all__ = [
    "NOBODY",
    "REQUEST",
    "UNLIMITED",
    "UNLIMITED_IP",
    "Acceptors",
    "Arrival",
    "ClientQuotaManager",
    "Connection",
    "ConnectionManager",
    "ConnectionSensor",
    "Counter",
    "Counters",
    "Events",
    "FetchSensor",
    "Generation",
    "Kernel",
    "Kind",
    "Mode",
    "Mutation",
    "MutationQuota",
    "MutationResponse",
    "MutationSensor",
    "ProduceSensor",
    "QuotaWindows",
    "RequestSensor",
    "Summaries",
    "Summary",
    "Throttle",
    "Verdict",
    "Wait",
    "accept",
    "fetch_with_request",
    "from_bytes",
    "kernel",
    "produce_with_request",
    "replay_counter",
    "to_bytes",
]
