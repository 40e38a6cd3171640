"""The limits that clients meet: documents of `resolve`, `simulate`, `probe` and `top`, whose schemas have such names.

Metrics carry Kafka's own names.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from kquota.core.enforcement import Generation
from kquota.core.findings.use import Use
from kquota.core.quotas.entity import Entity, EntityType
from kquota.core.quotas.quota import QuotaKey
from kquota.core.resolve.caveat import Caveat
from kquota.core.resolve.reach import OTHER, ClientName
from kquota.core.resolve.resolver import Resolution
from kquota.core.simulation.result import METRICS, CounterResult, Simulation
from kquota.core.simulation.workload import Brokers
from kquota.documents.derive import each, picked, plain, present, utc
from kquota.documents.encoding import Document, headed

_CONNECTION: Final = QuotaKey.CONNECTION_CREATION_RATE
_LEVEL: Final = "level=level.number level_name=level.label entity"


def resolution_document(
    client: Mapping[EntityType, ClientName | None],
    resolutions: Sequence[Resolution],
    znode: Callable[[Entity], str | None],
    *,
    brokers: int | None = None,
    caveats: Sequence[Caveat] | None = None,
) -> Document:
    """Per quota key the limit, where it comes from, whose counter it is, what it shadows.

    `znode` gives the path of an entity, None where there is no ZooKeeper. With `brokers`, also what the limit comes to
    on all of them; with `caveats`, the exceptions that apply.
    """

    def path(entity: Entity | None) -> Document:
        return {"znode": None if entity is None else znode(entity)}

    return {
        **headed("resolution"),
        "client": {kind.value: {"other": True} if name is OTHER else name for kind, name in client.items()},
        "resolutions": [
            {
                **picked(resolution, "key unit=key.unit limit"),
                **({} if brokers is None else {"limit_on_brokers": _on_brokers(resolution, brokers)}),
                **picked(resolution, _LEVEL),
                **path(resolution.entity),
                "sensor": str(resolution.sensor),
                "shadows": [
                    {**picked(shadowed, _LEVEL), **path(shadowed.entity), "value": plain(shadowed.value)}
                    for shadowed in resolution.shadows
                ],
                "not_enforced": each(resolution.ignored, "entity value reason"),
            }
            for resolution in resolutions
        ],
        **present(brokers=brokers, caveats=plain(caveats)),
    }


def _on_brokers(resolution: Resolution, brokers: int) -> Any:
    return None if resolution.limit is None else plain(resolution.key.on_brokers(resolution.limit, brokers))


def simulation_document(result: Simulation, brokers: Brokers, generation: Generation) -> Document:
    """The clients, the counters, and the enforcement that was assumed."""
    return {
        **headed("simulation"),
        "duration_ms": result.duration_ms,
        "requests": result.events,
        "enforcement": {"generation": generation.value, **picked(brokers, _WINDOWS)},
        "ranges": result.ranges,
        **present(notes=plain(result.notes) or None, unlimited=plain(result.unlimited) or None),
        "clients": each(result.clients, _CLIENT),
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


_WINDOWS: Final = """quota.window.num=windows.samples quota.window.size.seconds=windows.window_seconds
    controller.quota.window.num=controller_windows.samples
    controller.quota.window.size.seconds=controller_windows.window_seconds"""
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
            **({"throttle-time": counter.throttle_mean_ms} if counter.key is not _CONNECTION else {}),
        },
        **picked(counter, _COUNTER),
        "clients": [
            {
                **picked(share, "name=client value"),
                "share": share.value / counter.total if counter.total else 0.0,
                "throttle_time_ms": share.throttle_ms,
            }
            for share in counter.clients
        ],
        "timeline": None
        if counter.timeline is None
        else picked(counter.timeline, "bucket_ms offered delivered limit throttle_time_ms=throttle_ms"),
    }


def probe_document(probe: Any) -> Document:
    """What a probe saw beside what was predicted; `probe` is a `kquota.probe.run.ProbeResult`."""
    result = probe.comparison
    return {
        **headed("probe"),
        "probe": probe.kind.value,
        "client": picked(probe, "user client-id=client_id"),
        "broker": probe.broker,
        **picked(probe.resolution, "key limit entity sensor"),
        "enforcement": picked(
            probe.limits, "generation window_num=windows.samples window_size_seconds=windows.window_seconds"
        ),
        **picked(probe, "ended_by events=comparison.events charged=comparison.charged unit=kind.unit"),
        "duration_ms": result.duration_ms,
        "observed": picked(result.observed, _THROTTLING),
        "predicted": {side: picked(getattr(result, side), _THROTTLING) for side in ("least", "most")},
        **picked(result, "verdict=agreement ratio"),
    }


_THROTTLING: Final = "throttle_time_ms=total_ms throttled_requests=count throttle_time_max_ms=longest_ms"


def top_document(
    uses: Sequence[Use], *, source: str, now_ms: int, quotas_ms: int, missing: Iterable[tuple[str, str]], unread: int
) -> Document:
    """One refresh. `quotas_ms` is when the quotas were read; ages are in seconds, rates in the key's unit."""
    newest = max((use.observed.at_ms for use in uses), default=None)
    return {
        **headed("top"),
        "time": utc(now_ms),
        "source": source,
        "quotas_read": utc(quotas_ms),
        "newest_sample": None if newest is None else utc(newest),
        "missing": each(missing, "place=0 reason=1"),
        "unread_series": unread,
        "counters": [_use(use, now_ms) for use in uses],
    }


def _use(use: Use, now_ms: int) -> Document:
    """One counter; what the source does not know is null, and named in `unknown`."""
    return {
        **picked(use, "broker=counter.broker key=counter.key unit=counter.key.unit"),
        "tags": _tags(use),
        **picked(use, _USE),
        "read": utc(use.observed.at_ms),
        "age_s": use.age_s(now_ms),
        "unknown": list(use.unknown),
    }


_USE: Final = """state limit level=level.number level_name=level.label entity rate=observed.rate share
    throttle_time_ms=observed.throttle_ms tokens=observed.tokens trend until_throttled_s clients"""


def _tags(use: Use) -> Document:
    counter = use.counter
    if counter.key is _CONNECTION:
        return {"ip": counter.client_id}
    tags = {"user": counter.user, "client-id": counter.client_id}
    return {name: value for name, value in tags.items() if value}
