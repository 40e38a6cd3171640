"""Event sequences with Kafka's own answers: replaying one, and comparing the answers.

A sequence ("vector") is `{id, type, t0_ms, config, events, expected, debug_readout?}`, or, for the resolution of
entities, has `cases` in place of a type; the header keys of a file explain its types.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from kquota.core.enforcement import ConnectionManager, Generation, Kernel, MutationSensor, QuotaWindows, Verdict
from kquota.core.enforcement.broker import NOBODY, Throttle
from kquota.core.enforcement.kind import REQUEST
from kquota.core.enforcement.sensors import MutationResponse
from kquota.core.quotas.entity import DEFAULT, Entity, Name
from kquota.core.quotas.quota import QuotaKey
from tests.support.enforcement import (
    Arrival,
    ClientQuotaManager,
    FetchSensor,
    ProduceSensor,
    RequestSensor,
    accept,
    fetch_with_request,
    produce_with_request,
)

Vector = Mapping[str, Any]
Outcome = Mapping[str, Any]
"""What kquota answers: the keys of `expected` and `debug_readout`, a list with one entry an event, or one value."""

E = TypeVar("E")


@dataclass(frozen=True)
class Broker:
    """What the sequence ran on."""

    windows: QuotaWindows
    generation: Generation
    using: Kernel

    def sensor(self, vector: Vector) -> Mapping[str, Any]:
        """How to make a rate sensor of that sequence."""
        expires = vector["config"].get("sensor_expiry", False)
        return {"windows": self.windows, "generation": self.generation, "using": self.using, "expires": expires}


@dataclass(frozen=True)
class Replay:
    """How to replay one type, and the config keys that it understands."""

    run: Callable[[Vector, Broker], Outcome]
    config: frozenset[str]


@dataclass(frozen=True)
class Difference:
    """The first place where the answers differ; `index` is the event's, None for a value of the whole sequence."""

    where: str
    index: int | None
    expected: Any
    got: Any

    def __str__(self) -> str:
        event = "" if self.index is None else f" event {self.index}:"
        return f"{self.where}:{event} expected {self.expected!r}, got {self.got!r}"


class Mismatch(Exception):
    """A sequence that cannot be replayed as it is."""


# --- the types ---


def events_with_changes(vector: Vector, apply: Callable[[Any], None]) -> Iterator[tuple[int, Sequence[Any]]]:
    """(epoch ms, event) in order; a change is applied before the first event at or after its time."""
    t0 = vector["t0_ms"]
    changes = list(vector["config"].get("quota_changes") or [])
    for event in vector["events"]:
        while changes and changes[0][0] <= event[0]:
            apply(changes.pop(0)[1])
        yield t0 + event[0], event


def replay_produce(vector: Vector, broker: Broker) -> Outcome:
    """Produced bytes of one counter."""
    sensor = ProduceSensor(vector["config"].get("quota"), **broker.sensor(vector))
    events = events_with_changes(vector, lambda limit: setattr(sensor, "limit", limit))
    return verdicts([sensor.produce(now, size) for now, (_, size) in events])


def replay_fetch(vector: Vector, broker: Broker) -> Outcome:
    """Fetched bytes of one counter."""
    sensor = FetchSensor(vector["config"].get("quota"), **broker.sensor(vector))
    max_fetch_bytes = sensor.max_fetch_bytes
    events = events_with_changes(vector, lambda limit: setattr(sensor, "limit", limit))
    return {**verdicts([sensor.fetch(now, size) for now, (_, size) in events]), "max_fetch_bytes": max_fetch_bytes}


def replay_request(vector: Vector, broker: Broker) -> Outcome:
    """Thread time of one counter: request, network and exempt."""
    sensor = RequestSensor(vector["config"].get("quota"), **broker.sensor(vector))
    outcomes: list[Verdict | None] = []
    for now, (_, kind, nanos) in events_with_changes(vector, lambda limit: setattr(sensor, "limit", limit)):
        match kind:
            case "request":
                outcomes.append(sensor.request(now, nanos))
            case "network":
                sensor.network(now, nanos)
                outcomes.append(None)
            case "exempt":
                outcomes.append(None)
            case _:
                raise Mismatch(f"unknown kind of request event {kind!r}")
    return verdicts(outcomes)


def replay_produce_with_request(vector: Vector, broker: Broker) -> Outcome:
    """Produce requests under both quotas."""
    bandwidth, requests = both_sensors(ProduceSensor, vector, broker)
    t0 = vector["t0_ms"]
    throttles = [
        produce_with_request(bandwidth, requests, t0 + t, size, nanos, acks)
        for t, size, nanos, acks in vector["events"]
    ]
    return combined(throttles, "produce")


def replay_fetch_with_request(vector: Vector, broker: Broker) -> Outcome:
    """Fetches under both quotas."""
    bandwidth, requests = both_sensors(FetchSensor, vector, broker)
    max_fetch_bytes = bandwidth.max_fetch_bytes
    t0 = vector["t0_ms"]
    throttles = [fetch_with_request(bandwidth, requests, t0 + t, size, nanos) for t, size, nanos in vector["events"]]
    return {**combined(throttles, "fetch"), "max_fetch_bytes": max_fetch_bytes}


def replay_e2e(vector: Vector, broker: Broker) -> Outcome:
    """Produce requests of many clients under quotas on all levels."""
    manager = ClientQuotaManager(QuotaKey.PRODUCER_BYTE_RATE, lambda: ProduceSensor(**broker.sensor(vector)))

    def apply(quota: Vector) -> None:
        manager.update(entity_of(quota), quota["value"])

    for quota in vector["config"]["quotas"]:
        apply(quota)
    outcomes: list[Verdict | None] = []
    sensors: list[str | None] = []
    for now, (_, user, client_id, size) in events_with_changes(vector, apply):
        charge = manager.charge(user or "", client_id or "")
        outcomes.append(None if charge is None else charge.sensor.produce(now, size))
        sensors.append(None if charge is None else f"Produce-{charge.identity}")
    delays = [0 if outcome is None else outcome.throttle_ms for outcome in outcomes]
    return {**verdicts(outcomes), "throttle_ms": delays, "sensor": sensors}


def replay_mutation(vector: Vector, broker: Broker, *, strict: bool) -> Outcome:
    """Topic requests: strict are those of versions that know THROTTLING_QUOTA_EXCEEDED."""
    config = vector["config"]
    expires = config.get("sensor_expiry", False)
    sensor = MutationSensor(config.get("quota"), windows=broker.windows, using=broker.using, expires=expires)
    responses: list[MutationResponse] = []
    tokens: list[float] = []
    for now, (_, topics, *waited) in events_with_changes(vector, lambda limit: setattr(sensor, "limit", limit)):
        waited_ms = (waited[0] or 0) if waited else 0
        responses.append(sensor.request(now, topics, strict=strict, waited_ms=waited_ms))
        tokens.append(sensor.measure(now))
    return {
        "accepted": [[topic.accepted for topic in response.topics] for response in responses],
        "error_throttle_ms": [
            [None if topic.accepted else topic.throttle_ms for topic in response.topics] for response in responses
        ],
        "throttle_ms": [response.throttle_ms for response in responses],
        "tokens_after": tokens,
    }


def replay_connection(vector: Vector, broker: Broker) -> Outcome:
    """Connections to the listeners of one broker."""
    config = vector["config"]
    t0 = vector["t0_ms"]
    inter_broker = config.get("inter_broker_listener")
    manager = ConnectionManager(
        config["listeners"],
        broker=config.get("broker_rate"),
        inter_broker=inter_broker if inter_broker in config["listeners"] else None,
        default_ip=config.get("default_ip_rate"),
        ips=config.get("ip_rates"),
        windows=broker.windows,
        generation=broker.generation,
        using=broker.using,
        expires=config.get("sensor_expiry", False),
    )
    connections = accept(manager, [Arrival(t0 + t, listener, ip) for t, listener, ip in vector["events"]])
    return {
        "accept_start_ms": [connection.start_ms - t0 for connection in connections],
        "broker_throttle_ms": [connection.wait.broker_ms for connection in connections],
        "listener_throttle_ms": [connection.wait.listener_ms for connection in connections],
        "delay_ms": [connection.wait.delay_ms for connection in connections],
        "done_ms": [connection.done_ms - t0 for connection in connections],
        "decision": ["accept" if connection.accepted else "reject" for connection in connections],
        "ip_throttle_ms": [connection.ip_ms for connection in connections],
    }


SINGLE = frozenset({"window_num", "window_size_s", "quota", "quota_changes", "sensor_expiry"})
BOTH = frozenset({"window_num", "window_size_s", "byte_quota", "request_quota", "sensor_expiry"})
CONNECTION = frozenset(
    {
        "window_num",
        "window_size_s",
        "broker_rate",
        "listeners",
        "inter_broker_listener",
        "default_ip_rate",
        "ip_rates",
        "sensor_expiry",
    }
)
# sensor_expiry drops a sensor after an idle hour. Token buckets show it; windowed rates only where their windows add up
# to more than that.
REPLAYS: Mapping[str, Replay] = {
    "produce": Replay(replay_produce, SINGLE),
    "fetch": Replay(replay_fetch, SINGLE),
    "request": Replay(replay_request, SINGLE),
    "produce+request": Replay(replay_produce_with_request, BOTH),
    "fetch+request": Replay(replay_fetch_with_request, BOTH),
    "mutation_strict": Replay(partial(replay_mutation, strict=True), SINGLE),
    "mutation_permissive": Replay(partial(replay_mutation, strict=False), SINGLE),
    "connection": Replay(replay_connection, CONNECTION),
    "e2e": Replay(replay_e2e, frozenset({"window_num", "window_size_s", "quotas", "quota_changes", "sensor_expiry"})),
}
RESOLUTION = "resolution"


def verdicts(outcomes: Sequence[Verdict | None]) -> Outcome:
    """The columns of checked events; None where nothing was checked."""
    return {
        "throttle_ms": [outcome.throttle_ms if outcome else None for outcome in outcomes],
        "observed_rate": [outcome.rate if outcome else None for outcome in outcomes],
        "window_ms": [outcome.window_ms if outcome else None for outcome in outcomes],
    }


B = TypeVar("B", ProduceSensor, FetchSensor)


def both_sensors(kind: type[B], vector: Vector, broker: Broker) -> tuple[B, RequestSensor]:
    """The sensors of a combined type."""
    config = vector["config"]
    return (
        kind(config.get("byte_quota"), **broker.sensor(vector)),
        RequestSensor(config.get("request_quota"), **broker.sensor(vector)),
    )


def combined(throttles: Sequence[Throttle], bandwidth: str) -> Outcome:
    """The columns of requests under two quotas."""
    names = {NOBODY: None, REQUEST: "request"}
    return {
        "bandwidth_throttle_ms": [throttle.bandwidth_ms for throttle in throttles],
        "request_throttle_ms": [throttle.request_ms for throttle in throttles],
        "throttle_ms": [throttle.throttle_ms for throttle in throttles],
        "throttled_by": [names.get(throttle.muted_by, bandwidth) for throttle in throttles],
    }


def entity_of(quota: Vector) -> Entity:
    """The entity of a quota as the files write it; a null name that is not the default is a part that is not there."""

    def name(part: str) -> Name | None:
        given: Name | None = DEFAULT if quota[f"{part}_default"] else quota[part]
        return given

    return Entity(user=name("user"), client_id=name("client_id"))


# --- comparing ---


def outcome_of(vector: Vector, generation: Generation, using: Kernel) -> Outcome:
    """What kquota answers to one event sequence. Raises Mismatch for a setting that it does not know."""
    replay = REPLAYS[vector["type"]]
    config = vector["config"]
    unknown = sorted(config.keys() - replay.config)
    if unknown:
        raise Mismatch(f"config of {vector['type']} has {', '.join(unknown)}, which the replay does not know")
    broker = Broker(QuotaWindows(config["window_num"], config["window_size_s"]), generation, using)
    return replay.run(vector, broker)


def compare(vector: Vector, generation: Generation, using: Kernel) -> Difference | None:
    """The first difference of one event sequence."""
    outcome = outcome_of(vector, generation, using)
    answers = {**vector["expected"], **(vector.get("debug_readout") or {})}
    found = [difference for key, answer in answers.items() if (difference := first_difference(key, answer, outcome))]
    return min(found, key=lambda difference: -1 if difference.index is None else difference.index, default=None)


def first_difference(key: str, expected: Any, outcome: Outcome) -> Difference | None:
    """The first difference under one key."""
    if key not in outcome:
        return Difference(key, None, expected, "nothing: the replay does not compute it")
    got = outcome[key]
    if not isinstance(expected, list):
        return None if expected == got else Difference(key, None, expected, got)
    if len(expected) != len(got):
        return Difference(f"{key} (entries)", None, len(expected), len(got))
    pairs = enumerate(zip(expected, got, strict=True))
    return next((Difference(key, index, left, right) for index, (left, right) in pairs if left != right), None)


def compare_resolution(vector: Vector, _generation: Generation, using: Kernel) -> Difference | None:
    """The first difference of one set of quotas; `naive_level` only explains, it is no answer of a broker."""
    windows = QuotaWindows(vector["window_num"], vector["window_size_s"])
    manager = ClientQuotaManager(QuotaKey.PRODUCER_BYTE_RATE, lambda: FetchSensor(windows=windows, using=using))
    for quota in vector["quotas"]:
        manager.update(entity_of(quota), quota["value"])
    enabled = vector.get("quota_types_enabled", manager.mask)
    if enabled != manager.mask:
        return Difference("quota_types_enabled", None, enabled, manager.mask)
    for index, case in enumerate(vector["cases"]):
        resolution = manager.resolve(case["user"] or "", case["client_id"] or "")
        sensor = FetchSensor(resolution.limit, windows=windows, using=using)
        got = {
            "level": resolution.level,
            "quota": resolution.limit,
            "tags": {"user": resolution.sensor.user, "client-id": resolution.sensor.client_id},
            "sensor_suffix": str(resolution.sensor),
            # `getMaxValueInQuotaWindow`: what N-1 windows let through at the limit.
            "max_value_in_window": None
            if sensor.limit is None
            else sensor.bound * (windows.samples - 1) * windows.window_seconds,
        }
        for key, answer in case.items():
            if key in ("user", "client_id", "naive_level"):
                continue
            difference = first_difference(key, answer, got)
            if difference is not None:
                return Difference(key, index, difference.expected, difference.got)
    return None


def type_of(vector: Vector) -> str:
    """The type of a sequence; RESOLUTION for a set of cases."""
    return RESOLUTION if "cases" in vector and "type" not in vector else str(vector["type"])


def generation_of(document: Mapping[str, Any]) -> Generation:
    """Whose answers a file holds; 3.8 and later unless it says so."""
    return Generation(document.get("algorithm", Generation.N_PLUS_1_BY_LAST.value))
