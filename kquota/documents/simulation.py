"""The result of a simulation (schemas/simulation.schema.json)."""

from typing import Final

from kquota.core.enforcement import Generation
from kquota.core.quotas.quota import QuotaKey
from kquota.core.simulation.result import METRICS, CounterResult, Simulation
from kquota.core.simulation.workload import Brokers
from kquota.documents.derive import picked
from kquota.documents.encoding import Document

CONNECTION: Final = QuotaKey.CONNECTION_CREATION_RATE


def simulation_document(result: Simulation, brokers: Brokers, generation: Generation) -> Document:
    """The clients, the counters, and the enforcement that was assumed; metrics carry Kafka's own names."""
    return {
        "kind": "kquota.simulation",
        "version": 1,
        "duration_ms": result.duration_ms,
        "requests": result.events,
        "enforcement": {
            "generation": generation.value,
            "quota.window.num": brokers.windows.samples,
            "quota.window.size.seconds": brokers.windows.window_seconds,
            "controller.quota.window.num": brokers.controller_windows.samples,
            "controller.quota.window.size.seconds": brokers.controller_windows.window_seconds,
        },
        "ranges": result.ranges,
        **({"notes": [*result.notes]} if result.notes else {}),
        **({"unlimited": [*result.unlimited]} if result.unlimited else {}),
        "clients": [picked(client, _CLIENT) for client in result.clients],
        "counters": [_counter(counter) for counter in result.counters],
        "acceptors": [
            {
                **picked(acceptor, "broker listener connections waited wait_ms wait_max_ms"),
                "metrics": picked(acceptor, _ACCEPTOR),
                "broker_metrics": {
                    "mbean": "kafka.server:type=socket-server-metrics",
                    "broker-connection-accept-rate": acceptor.broker_rate,
                },
                "acceptor_metrics": {
                    "mbean": acceptor.blocked_mbean,
                    "AcceptorBlockedPercent": acceptor.blocked_percent(result.duration_ms),
                },
            }
            for acceptor in result.acceptors
        ],
        "queues": [
            {"broker": queue.broker, "metrics": picked(queue, "mbean queue-size=size")} for queue in result.queues
        ],
        "exempt": [
            {
                "broker": broker,
                "request_time_ns": nanos,
                "metrics": {
                    "mbean": "kafka.server:type=Request",
                    "exempt-request-time": nanos / (result.duration_ms * 10_000),
                },
            }
            for broker, nanos in result.exempt_ns.items()
        ],
    }


_CLIENT: Final = """name group broker user client-id=client_id ip api unit active_ms requests offered delivered rejected
    waiting offered_rate delivered_rate delivering_ms delivered_range delivered_until_ms rejections
    throttled_requests=throttled throttle_time_ms=throttle_ms throttle_time_range_ms=throttle_range_ms
    throttle_time_max_ms=throttle_max_ms throttle-time=throttle_mean_ms throttle-time-avg=client_throttle_mean_ms
    throttle_time_by=throttle_by first_throttled_ms throttled_until_ms"""
_ACCEPTOR: Final = """mbean connection-accept-rate=rate connection-accept-throttle-time=wait_mean_ms
    ip-connection-accept-throttle-time=closed_mean_ms"""
_COUNTER: Final = """events violated throttled_requests=throttled throttle_time_ms=throttle_ms
    throttle_time_range_ms=throttle_range_ms throttle_time_max_ms=throttle_max_ms first_throttled_ms throttled_until_ms
    recovery_ms recovered peak peak_ms total client_count"""


def _counter(counter: CounterResult) -> Document:
    return {
        **picked(counter, "broker key unit=key.unit sensor entity level=level.number level_name=level.label"),
        "limits": [{"since_ms": since, "limit": limit} for since, limit in counter.limits],
        "metrics": {
            "mbean": counter.mbean,
            METRICS[counter.key]: counter.rate,
            **({} if counter.mutation_rate is None else {"mutation-rate": counter.mutation_rate}),
            # Kafka averages the delays of ips by listener only: `ip-connection-accept-throttle-time`.
            **({"throttle-time": counter.throttle_mean_ms} if counter.key is not CONNECTION else {}),
        },
        **picked(counter, _COUNTER),
        "clients": [
            {
                "name": share.client,
                "value": share.value,
                "share": share.value / counter.total if counter.total else 0.0,
                "throttle_time_ms": share.throttle_ms,
            }
            for share in counter.clients
        ],
        "timeline": None
        if counter.timeline is None
        else picked(counter.timeline, "bucket_ms offered delivered limit throttle_time_ms=throttle_ms"),
    }
