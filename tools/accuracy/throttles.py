"""How well a replay of recorded logs predicts what the brokers did: `python -m tools.accuracy.throttles FOLDER`.

FOLDER holds `quotas.json` and the logs: `kafka-request.log.gz`, or one in a folder for each node
(see `tools.recording`). Every counter that has a limit is replayed with the enforcement kernel from the log's sizes and
times, and compared with the broker's `throttleTimeMs`, or with the topics that the controller rejected. Counters of
clients under a request quota are listed apart: the logged throttle time is the larger of both quotas, and request time
is not fully in the log.

A fetch counter is replayed twice. *Open loop*: the replay takes back what the replay throttles; it also answers what
other limits would do, but a retry arrives just when the rate is down to the limit, so an error of a millisecond can
turn a verdict, and then the counter holds other bytes than the broker's. *Following the log*: each verdict is predicted
as before, but the counter keeps or takes back what the broker kept or took back. That is the better answer to what the
limits in force did.
"""

import argparse
import gzip
import itertools
import math
import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from types import MappingProxyType

from kquota.audit.batch import UNKNOWN, Tally
from kquota.audit.ledger.fetch_sizes import sizes_of
from kquota.audit.sources import ReadSettings, plan_splits, read
from kquota.audit.sources.data_log import DataLog
from kquota.audit.sources.event import UsageEvent
from kquota.audit.sources.mutations import TopicLog, TopicRequest, mutations
from kquota.audit.sources.names import connection_id
from kquota.audit.sources.request_line import parse
from kquota.core.change.history import QuotaHistory
from kquota.core.enforcement.generation import Generation, QuotaWindows
from kquota.core.enforcement.kernel import Mode, kernel
from kquota.core.enforcement.kind import FETCH, PRODUCE
from kquota.core.enforcement.sensors import MutationSensor
from kquota.core.quotas.quota import QuotaKey
from kquota.core.resolve.resolver import Resolver, Sensor
from kquota.documents.history import read_history
from tests.support.enforcement import replay_counter

KEYS = {"produce": QuotaKey.PRODUCER_BYTE_RATE, "fetch": QuotaKey.CONSUMER_BYTE_RATE}
MUTATION = "mutation"
NOTABLE_MS = 10
"""Throttles from here on are compared one by one; below, the log's millisecond resolution decides."""
NUM_PARTITIONS = 3
"""`num.partitions` of the recorded clusters."""
LOG = "kafka-request.log.gz"


@dataclass(frozen=True)
class Accuracy:
    """One counter: what the broker logged and what the replay says; times in ms."""

    api: str
    """`produce`, `fetch` or `mutation`."""
    sensor: Sensor
    limits: tuple[float, ...]
    """In the order of time."""
    clients: tuple[str, ...]
    events: int
    """Requests; topics, where mutations are rejected one by one."""
    logged_count: int
    logged_ms: int
    predicted_count: int
    predicted_ms: int
    recall: float
    precision: float
    notable: int
    """Logged throttles of at least NOTABLE_MS; of mutations, all."""
    notable_recall: float
    """Of the logged notable throttles, how many the replay throttles too."""
    notable_precision: float
    """Of the predicted notable throttles, how many the broker threw too."""
    under_request_quota: bool
    open_loop: bool

    @property
    def key(self) -> QuotaKey:
        """The quota."""
        return KEYS.get(self.api, QuotaKey.CONTROLLER_MUTATION_RATE)

    @property
    def ratio(self) -> float:
        """Predicted over logged throttle time."""
        return self.predicted_ms / self.logged_ms if self.logged_ms else float(self.predicted_ms == 0)


def logs_of(folder: Path) -> dict[str, Path]:
    """The logs of a recording by the names of their brokers; a single one is that of broker 1."""
    if (folder / LOG).exists():
        return {"1": folder / LOG}
    return {path.parent.name: path for path in sorted(folder.glob(f"*/{LOG}"))}


def read_events(path: Path) -> list[UsageEvent]:
    """All lines of a compressed request log, times in UTC."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [parse(line, UTC).event for line in lines]


class Limits:
    """Which counter a client is charged to, and its limit, over time."""

    def __init__(self, history: QuotaHistory, key: QuotaKey) -> None:
        self._changes = history.changes_ms
        self._resolvers = [Resolver.of(snapshot, key) for snapshot in history.snapshots]

    def of(self, event: UsageEvent | TopicRequest, time_ms: float) -> tuple[Sensor, float] | None:
        """The counter of an event at that time; None without a limit."""
        found = self._resolvers[bisect_right(self._changes, math.floor(time_ms))].resolve(event.user, event.client_id)
        return None if found.limit is None else (found.sensor, float(found.limit))


Sizes = Mapping[tuple[int, int], int]
"""The bytes of throttled fetches by (connection, time)."""


def rebuilt_sizes(logs: Mapping[str, Path]) -> dict[str, Sizes]:
    """What follows from the data that was produced, by broker."""
    found: list[DataLog] = []
    for broker, path in logs.items():
        for split in plan_splits([str(path)], "request-log"):
            pieces = read(split, ReadSettings(broker, data=True), Tally())
            found += [piece for piece in pieces if isinstance(piece, DataLog)]
    sizes: dict[str, Sizes] = {}
    for broker in logs:
        sizes[broker] = {
            (connection, time_ms): size
            for batch in sizes_of(broker, found)
            if batch.connection is not None
            for connection, time_ms, size in zip(
                batch.connection.tolist(), batch.time_ms.tolist(), batch.bytes.tolist(), strict=True
            )
        }
    return sizes


def estimate_fetches(events: Sequence[UsageEvent], known: Sizes = MappingProxyType({})) -> list[int]:
    """The bytes of each event of one sensor, in order of time.

    A throttled fetch whose size is not known gets the bytes of the next fetch that succeeded on its connection at the
    same position; without one, those of the next that succeeded there at all; without that, those of the one before.
    The client asks again for what it did not get, but clients rotate the partitions, and a full response holds the
    first ones only: the very next success is often that of another partition.
    """
    sizes = [
        known.get((connection_id(event.connection), event.time_ms), UNKNOWN) if event.bytes == UNKNOWN else event.bytes
        for event in events
    ]
    following: dict[str, int] = {}
    same: dict[tuple[str, int], int] = {}
    for index in range(len(events) - 1, -1, -1):
        connection, position = events[index].connection, events[index].position
        if sizes[index] == UNKNOWN:
            sizes[index] = same.get((connection, position), following.get(connection, UNKNOWN))
        else:
            following[connection] = sizes[index]
            if position:
                same[connection, position] = sizes[index]
    before: dict[str, int] = {}
    for index, event in enumerate(events):
        if sizes[index] == UNKNOWN:
            sizes[index] = before.get(event.connection, 0)
        else:
            before[event.connection] = sizes[index]
    return sizes


def predict(
    events: Sequence[UsageEvent], limits: Sequence[float], open_loop: bool, known: Sizes = MappingProxyType({})
) -> list[int]:
    """The predicted delay in ms of each event of one sensor under its own limit, in order of time; at least 0."""
    sizes = estimate_fetches(events, known)
    times: list[int] = []
    values: list[float] = []
    checked: list[bool] = []
    bounds: list[float] = []
    places: list[int] = []
    for event, size, limit in zip(events, sizes, limits, strict=True):
        places.append(len(times))
        # What the broker took back: recorded without a check, as it does.
        rows = [(size, True)] if open_loop or event.bytes != UNKNOWN else [(size, True), (-size, False)]
        for value, check in rows:
            times.append(event.time_ms)
            values.append(float(value))
            checked.append(check)
            bounds.append(limit)
    kind = FETCH if open_loop and events[0].api == "fetch" else PRODUCE
    delays = [0] * len(times)
    replay_counter(
        kind,
        times,
        values,
        None,
        windows=QuotaWindows(),
        generation=Generation.N_PLUS_1_BY_LAST,
        checked=checked,
        event_limits=bounds,
        delays=delays,
        using=kernel(Mode.PLAIN),
    )
    return [max(delays[place], 0) for place in places]


def measure(events: Iterable[UsageEvent], history: QuotaHistory, known: Sizes = MappingProxyType({})) -> list[Accuracy]:
    """Replays every limited counter of a log; `known` are sizes of throttled fetches."""
    events = list(events)
    limits = {api: Limits(history, key) for api, key in KEYS.items()}
    requests = Limits(history, QuotaKey.REQUEST_PERCENTAGE)
    groups: dict[tuple[str, Sensor], list[tuple[UsageEvent, float]]] = defaultdict(list)
    for event in events:
        if event.exemption or event.api not in limits:
            continue
        found = limits[event.api].of(event, event.time_ms)
        if found is not None:
            groups[event.api, found[0]].append((event, found[1]))
    result = []
    for (api, sensor), mine in sorted(groups.items(), key=lambda item: (item[0][0], str(item[0][1]))):
        mine.sort(key=lambda item: item[0].time_ms)
        charged, bounds = [event for event, _ in mine], [limit for _, limit in mine]
        logged = [event.throttle_ms or 0 for event in charged]
        also = any(requests.of(event, event.time_ms) is not None for event in charged)
        for open_loop in (False, True) if api == "fetch" else (True,):
            delays = predict(charged, bounds, open_loop, known)
            result.append(_compare(api, sensor, bounds, charged, logged, delays, NOTABLE_MS, also, open_loop))
    return result + measure_mutations(events, history)


def measure_mutations(events: Iterable[UsageEvent], history: QuotaHistory) -> list[Accuracy]:
    """Replays the topics of a controller's log, with the token bucket of each counter."""
    limits = Limits(history, QuotaKey.CONTROLLER_MUTATION_RATE)
    log = TopicLog("")
    for event in events:
        if event.controller is not None:
            log.add(event.controller.fields, event.controller.begun_ms, event.user, event.client_id)
    sensors: dict[Sensor, MutationSensor] = defaultdict(MutationSensor)
    rows: dict[Sensor, list[tuple[TopicRequest, float, int, int]]] = defaultdict(list)
    for begun_ms, request, charges in mutations([log], NUM_PARTITIONS):
        found = limits.of(request, begun_ms)
        if found is None:
            continue
        sensor, limit = found
        sensors[sensor].limit = limit
        sizes = [charge.partitions for charge in charges]
        assert min(sizes) >= 0, "a topic of unknown size"
        outcomes = sensors[sensor].request(math.floor(begun_ms), sizes, strict=charges[0].strict).topics
        for charge, outcome in zip(charges, outcomes, strict=True):
            delay = outcome.throttle_ms if outcome.accepted else max(outcome.throttle_ms, 1)
            rows[sensor].append((request, limit, charge.throttle_ms, delay))
    result = []
    for sensor, mine in sorted(rows.items(), key=lambda item: str(item[0])):
        charged, bounds, logged, delays = zip(*mine, strict=True)
        result.append(_compare(MUTATION, sensor, bounds, charged, logged, delays, 1, False, True))
    return result


def _compare(
    api: str,
    sensor: Sensor,
    limits: Sequence[float],
    events: Sequence[UsageEvent | TopicRequest],
    logged: Sequence[int],
    predicted: Sequence[int],
    notable_ms: int,
    under_request_quota: bool,
    open_loop: bool,
) -> Accuracy:
    def share(of: Sequence[int], by: Sequence[int], least: int) -> float:
        chosen = [other > 0 for value, other in zip(of, by, strict=True) if value >= least]
        return sum(chosen) / len(chosen) if chosen else 1.0

    return Accuracy(
        api=api,
        sensor=sensor,
        limits=tuple(limit for limit, _ in itertools.groupby(limits)),
        clients=tuple(sorted({event.client_id for event in events})),
        events=len(events),
        logged_count=sum(value > 0 for value in logged),
        logged_ms=sum(logged),
        predicted_count=sum(value > 0 for value in predicted),
        predicted_ms=sum(predicted),
        recall=share(logged, predicted, 1),
        precision=share(predicted, logged, 1),
        notable=sum(value >= notable_ms for value in logged),
        notable_recall=share(logged, predicted, notable_ms),
        notable_precision=share(predicted, logged, notable_ms),
        under_request_quota=under_request_quota,
        open_loop=open_loop,
    )


def measure_all(folder: Path) -> Mapping[str, list[Accuracy]]:
    """The counters of each broker of a recording."""
    history = read_history(folder / "quotas.json")
    logs = logs_of(folder)
    sizes = rebuilt_sizes(logs)
    return {broker: measure(read_events(log), history, sizes[broker]) for broker, log in logs.items()}


def main(argv: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.accuracy.throttles", description=__doc__)
    parser.add_argument("folder", type=Path)
    names = ("broker", "ms", "replay", "ms", "ratio", "recall", "prec", "notable", "recall", "prec")
    for broker, table in measure_all(parser.parse_args(argv).folder).items():
        print(f"{'broker ' + broker:34} {'events':>7} " + " ".join(f"{name:>8}" for name in names))
        for row in sorted(table, key=lambda row: row.under_request_quota):
            shares = f"{row.ratio:8.4f} {row.recall:8.2%} {row.precision:8.2%}"
            notable = f"{row.notable:8} {row.notable_recall:8.2%} {row.notable_precision:8.2%}"
            counts = f"{row.logged_count:8} {row.logged_ms:8} {row.predicted_count:8} {row.predicted_ms:8}"
            mark = "  (request quota)" if row.under_request_quota else ""
            mark += "  (open loop)" if row.open_loop and row.api == "fetch" else ""
            print(f"{row.api + ' ' + str(row.sensor):34} {row.events:7} {counts} {shares} {notable}{mark}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
