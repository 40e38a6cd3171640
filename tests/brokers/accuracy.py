"""How well a replay of a recorded request log predicts what the broker did: `python -m tests.brokers.accuracy FOLDER`.

FOLDER holds `kafka-request.log.gz` and `quotas.json` (see `record.py`). Every byte-rate counter that has a limit is
replayed with the enforcement kernel from the log's sizes and times, and compared with the broker's `throttleTimeMs`.
Counters of clients under a request quota are listed apart: the logged throttle time is the larger of both quotas, and
request time is not fully in the log.

A fetch counter is replayed twice. *Open loop*: the replay takes back what the replay throttles; it also answers what
other limits would do, but a retry arrives just when the rate is down to the limit, so an error of a millisecond can
turn a verdict, and then the counter holds other bytes than the broker's. *Following the log*: each verdict is predicted
as before, but the counter keeps or takes back what the broker kept or took back. That is the better answer to what the
limits in force did.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path

from kquota.audit.sources.request_line import UNKNOWN, UsageEvent, parse_line
from kquota.core.enforcement.generation import Generation, QuotaWindows
from kquota.core.enforcement.kernel import Mode, kernel
from kquota.core.enforcement.replay import FETCH, PRODUCE
from kquota.core.entity import DEFAULT, Entity, Name
from kquota.core.quota import QuotaKey
from kquota.core.resolver import Resolver, Sensor
from kquota.core.snapshot import QuotaSnapshot

KEYS = {"produce": QuotaKey.PRODUCER_BYTE_RATE, "fetch": QuotaKey.CONSUMER_BYTE_RATE}
NOTABLE_MS = 10
"""Throttles from here on are compared one by one; below, the log's millisecond resolution decides."""


@dataclass(frozen=True)
class Accuracy:
    """One counter: what the broker logged and what the replay says; times in ms."""

    api: str
    sensor: Sensor
    limit: float
    clients: tuple[str, ...]
    events: int
    logged_count: int
    logged_ms: int
    predicted_count: int
    predicted_ms: int
    recall: float
    precision: float
    notable: int
    """Logged throttles of at least NOTABLE_MS."""
    notable_recall: float
    """Of the logged notable throttles, how many the replay throttles too."""
    notable_precision: float
    """Of the predicted notable throttles, how many the broker threw too."""
    under_request_quota: bool
    open_loop: bool

    @property
    def ratio(self) -> float:
        """Predicted over logged throttle time."""
        return self.predicted_ms / self.logged_ms if self.logged_ms else float(self.predicted_ms == 0)


def read_quotas(path: Path) -> QuotaSnapshot:
    """The snapshot in a `kquota.quotas` document."""
    document = json.loads(path.read_text(encoding="utf-8"))
    assert (document["kind"], document["version"]) == ("kquota.quotas", 1)

    def name(of: str | dict[str, bool] | None) -> Name | None:
        return DEFAULT if isinstance(of, dict) else of

    return QuotaSnapshot.of(
        (
            Entity(user=name(quota["entity"].get("user")), client_id=name(quota["entity"].get("client-id"))),
            {QuotaKey.parse(key): value for key, value in quota["values"].items()},
        )
        for quota in document["quotas"]
    )


def read_events(path: Path) -> list[UsageEvent]:
    """All lines of a compressed request log, times in UTC."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [parse_line(line, None, UTC) for line in lines]


def estimate_fetches(events: Sequence[UsageEvent]) -> list[int]:
    """The bytes of each event of one sensor, in order of time.

    A throttled fetch gets the bytes of the next fetch that succeeded on its connection at the same position; without
    one, those of the next that succeeded there at all; without that, those of the one before. The client asks again for
    what it did not get, but clients rotate the partitions, and a full response holds the first ones only: the very next
    success is often that of another partition.
    """
    sizes = [event.bytes for event in events]
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


def predict(events: Sequence[UsageEvent], limit: float, open_loop: bool) -> list[int]:
    """The predicted delay in ms of each event of one sensor, in order of time; at least 0."""
    sizes = estimate_fetches(events)
    times: list[int] = []
    values: list[float] = []
    checked: list[bool] = []
    places: list[int] = []
    for event, size in zip(events, sizes, strict=True):
        places.append(len(times))
        times.append(event.time_ms)
        values.append(float(size))
        checked.append(True)
        if not open_loop and event.bytes == UNKNOWN:
            # What the broker took back: recorded without a check, as it does.
            times.append(event.time_ms)
            values.append(-float(size))
            checked.append(False)
    plain = kernel(Mode.PLAIN)
    delays = [0] * len(times)
    plain.replay_sensor(
        plain.new_rate(QuotaWindows(), Generation.N_PLUS_1_BY_LAST),
        0,
        len(times),
        times,
        values,
        FETCH if open_loop and events[0].api == "fetch" else PRODUCE,
        limit,
        checked,
        delays,
    )
    return [max(delays[place], 0) for place in places]


def measure(events: Iterable[UsageEvent], quotas: QuotaSnapshot) -> list[Accuracy]:
    """Replays every limited counter."""
    resolvers = {api: Resolver.of(quotas, key) for api, key in KEYS.items()}
    requests = Resolver.of(quotas, QuotaKey.REQUEST_PERCENTAGE)
    groups: dict[tuple[str, Sensor], list[UsageEvent]] = defaultdict(list)
    limits: dict[tuple[str, Sensor], float] = {}
    for event in events:
        if event.exempt or event.api not in resolvers:
            continue
        found = resolvers[event.api].resolve(event.user, event.client_id)
        if found.limit is not None:
            groups[event.api, found.sensor].append(event)
            limits[event.api, found.sensor] = float(found.limit)
    result = []
    for (api, sensor), mine in sorted(groups.items(), key=lambda item: (item[0][0], str(item[0][1]))):
        mine.sort(key=lambda event: event.time_ms)
        for open_loop in (False, True) if api == "fetch" else (True,):
            delays = predict(mine, limits[api, sensor], open_loop)
            result.append(_compare(api, sensor, limits[api, sensor], mine, delays, requests, open_loop))
    return result


def _compare(
    api: str,
    sensor: Sensor,
    limit: float,
    events: Sequence[UsageEvent],
    predicted: Sequence[int],
    requests: Resolver,
    open_loop: bool,
) -> Accuracy:
    logged = [event.throttle_ms or 0 for event in events]

    def share(of: Sequence[int], by: Sequence[int], least: int) -> float:
        chosen = [other > 0 for value, other in zip(of, by, strict=True) if value >= least]
        return sum(chosen) / len(chosen) if chosen else 1.0

    return Accuracy(
        api=api,
        sensor=sensor,
        limit=limit,
        clients=tuple(sorted({event.client_id for event in events})),
        events=len(events),
        logged_count=sum(value > 0 for value in logged),
        logged_ms=sum(logged),
        predicted_count=sum(value > 0 for value in predicted),
        predicted_ms=sum(predicted),
        recall=share(logged, predicted, 1),
        precision=share(predicted, logged, 1),
        notable=sum(value >= NOTABLE_MS for value in logged),
        notable_recall=share(logged, predicted, NOTABLE_MS),
        notable_precision=share(predicted, logged, NOTABLE_MS),
        under_request_quota=any(requests.resolve(event.user, event.client_id).limit is not None for event in events),
        open_loop=open_loop,
    )


def main(argv: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.brokers.accuracy", description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args(argv).folder
    table = measure(read_events(folder / "kafka-request.log.gz"), read_quotas(folder / "quotas.json"))
    names = ("broker", "ms", "replay", "ms", "ratio", "recall", "prec", ">=10ms", "recall", "prec")
    print(f"{'counter':34} {'events':>7} " + " ".join(f"{name:>8}" for name in names))
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
