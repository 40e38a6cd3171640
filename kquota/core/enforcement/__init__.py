"""What brokers do with a quota: the statistics, the checks and the delays, to the rounding of a half millisecond.

- `arithmetic`: Java's number conversions.
- `generation`: the two ways of dropping samples (3.7 and older, 3.8 and later), and `quota.window.*`.
- `rate`: the windowed rate.
- `check`: record, check and delay, for the produce, fetch and request quotas of one sensor.
- `combined`: one request under two quotas.
- `token_bucket`: the statistic of the controller mutation quota.
- `mutation`: that quota, strict and permissive.
- `connection`: the connection creation quotas of broker, listener and ip, and the acceptor threads.
- `replay`: recorded usage of many sensors in one pass.
- `traffic`: clients that send, open and closed loop, as an event loop over rows of columns.
- `vectors`: sequences with Kafka's own answers.
- `sensors`: the same as objects, with limits that change and the managers that find a client's sensor.
- `kind`: the kinds of counters and requests.
- `compilable`: the mark of what `kernel` compiles.
- `kernel`: runs all of it compiled or plain, with identical results.

Importing this package loads neither numpy nor numba.
"""

from __future__ import annotations

from kquota.core.enforcement.check import UNLIMITED, Verdict
from kquota.core.enforcement.combined import BANDWIDTH, NOBODY, Throttle
from kquota.core.enforcement.connection import (
    UNLIMITED_IP,
    Arrival,
    Connection,
    ConnectionManager,
    ConnectionSensor,
    Wait,
    accept,
)
from kquota.core.enforcement.generation import Generation, QuotaWindows
from kquota.core.enforcement.kernel import Kernel, Mode, kernel
from kquota.core.enforcement.kind import REQUEST, Kind
from kquota.core.enforcement.mutation import Mutation, MutationQuota, MutationResponse, MutationSensor
from kquota.core.enforcement.replay import Summaries, Summary, replay_bytes, replay_requests
from kquota.core.enforcement.sensors import (
    ClientQuotaManager,
    FetchSensor,
    ProduceSensor,
    RequestSensor,
    fetch_with_request,
    produce_with_request,
)

__all__ = [
    "BANDWIDTH",
    "NOBODY",
    "REQUEST",
    "UNLIMITED",
    "UNLIMITED_IP",
    "Arrival",
    "ClientQuotaManager",
    "Connection",
    "ConnectionManager",
    "ConnectionSensor",
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
    "kernel",
    "produce_with_request",
    "replay_bytes",
    "replay_requests",
]
