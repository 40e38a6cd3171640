"""The result of a simulation (schemas/simulation.schema.json)."""

from __future__ import annotations

from typing import Final

from kquota.core.enforcement import Generation
from kquota.core.quotas.quota import QuotaKey
from kquota.core.simulation.result import METRICS, ClientResult, CounterResult, Simulation
from kquota.core.simulation.workload import Brokers
from kquota.documents.encoding import Document
from kquota.documents.quotas import entity_document

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
        "clients": [_client(client) for client in result.clients],
        "counters": [_counter(counter) for counter in result.counters],
        "acceptors": [
            {
                "broker": acceptor.broker,
                "listener": acceptor.listener,
                "connections": acceptor.connections,
                "waited": acceptor.waited,
                "wait_ms": acceptor.wait_ms,
                "wait_max_ms": acceptor.wait_max_ms,
                "metrics": {
                    "mbean": acceptor.mbean,
                    "connection-accept-rate": acceptor.rate,
                    "connection-accept-throttle-time": acceptor.wait_mean_ms,
                    "ip-connection-accept-throttle-time": acceptor.closed_mean_ms,
                },
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
            {"broker": queue.broker, "metrics": {"mbean": queue.mbean, "queue-size": queue.size}}
            for queue in result.queues
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


def _client(client: ClientResult) -> Document:
    return {
        "name": client.name,
        "group": client.group,
        "broker": client.broker,
        "user": client.user,
        "client-id": client.client_id,
        "ip": client.ip,
        "api": client.api,
        "unit": client.unit,
        "active_ms": client.active_ms,
        "requests": client.requests,
        "offered": client.offered,
        "delivered": client.delivered,
        "rejected": client.rejected,
        "waiting": client.waiting,
        "offered_rate": client.offered_rate,
        "delivered_rate": client.delivered_rate,
        "delivering_ms": client.delivering_ms,
        "delivered_range": list(client.delivered_range),
        "delivered_until_ms": client.delivered_until_ms,
        "rejections": client.rejections,
        "throttled_requests": client.throttled,
        "throttle_time_ms": client.throttle_ms,
        "throttle_time_range_ms": list(client.throttle_range_ms),
        "throttle_time_max_ms": client.throttle_max_ms,
        "throttle-time": client.throttle_mean_ms,
        "throttle-time-avg": client.client_throttle_mean_ms,
        "throttle_time_by": {key.value: value for key, value in client.throttle_by.items()},
        "first_throttled_ms": client.first_throttled_ms,
        "throttled_until_ms": client.throttled_until_ms,
    }


def _counter(counter: CounterResult) -> Document:
    timeline = counter.timeline
    return {
        "broker": counter.broker,
        "key": counter.key.value,
        "unit": counter.key.unit,
        "sensor": str(counter.sensor),
        "entity": entity_document(counter.entity),
        "level": counter.level.number,
        "level_name": counter.level.label,
        "limits": [{"since_ms": since, "limit": limit} for since, limit in counter.limits],
        "metrics": {
            "mbean": counter.mbean,
            METRICS[counter.key]: counter.rate,
            **({} if counter.mutation_rate is None else {"mutation-rate": counter.mutation_rate}),
            # Kafka averages the delays of ips by listener only: `ip-connection-accept-throttle-time`.
            **({"throttle-time": counter.throttle_mean_ms} if counter.key is not CONNECTION else {}),
        },
        "events": counter.events,
        "violated": counter.violated,
        "throttled_requests": counter.throttled,
        "throttle_time_ms": counter.throttle_ms,
        "throttle_time_range_ms": list(counter.throttle_range_ms),
        "throttle_time_max_ms": counter.throttle_max_ms,
        "first_throttled_ms": counter.first_throttled_ms,
        "throttled_until_ms": counter.throttled_until_ms,
        "recovery_ms": counter.recovery_ms,
        "recovered": counter.recovered,
        "peak": counter.peak,
        "peak_ms": counter.peak_ms,
        "total": counter.total,
        "client_count": counter.client_count,
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
        if timeline is None
        else {
            "bucket_ms": timeline.bucket_ms,
            "offered": list(timeline.offered),
            "delivered": list(timeline.delivered),
            "limit": list(timeline.limit),
            "throttle_time_ms": list(timeline.throttle_ms),
        },
    }
