"""Runs a workload: clients that share no counter have nothing to do with each other, so each group runs by itself.

That keeps the working set small, whatever the number of clients: the cost of an event does not depend on it, and only
the results of a group outlive its run.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Final, TypeAlias

from kquota.core.enforcement import UNLIMITED, Generation, Kernel, Mode, kernel
from kquota.core.enforcement.apis import CONNECT_API
from kquota.core.enforcement.kernel import as_list, as_rows, set_field
from kquota.core.enforcement.kind import MUTATION, REQUEST
from kquota.core.enforcement.replay import NEVER
from kquota.core.enforcement.traffic.state import BEGIN, NONE, Account, Connection, Traffic
from kquota.core.quotas.quota import QuotaKey, format_number
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.core.simulation.connections import Accepting
from kquota.core.simulation.members import (
    Counter,
    Member,
    batches_of,
    counters_of,
    epochs_of,
    expected_of,
    groups_of,
    resolve_members,
)
from kquota.core.simulation.result import (
    Acceptor,
    ClientResult,
    CounterResult,
    Queue,
    Share,
    Simulation,
    Timeline,
    limits_by_bucket,
    recovery,
)
from kquota.core.simulation.rows import Rows
from kquota.core.simulation.workload import Workload
from kquota.errors import InputError

Progress = Callable[[float], None]
"""Called with the part that is done, 0 to 1."""

SCRAPES_MS: Final = (1_000, 10_000, 60_000)
"""How often metrics may be read where nobody knows."""
TOP_TIMELINES: Final = 12
TOP_CLIENTS: Final = 10
_HAIR: Final = 1e-6
"""So much of an arrival may be missing in a sum of doubles."""


def simulate(
    workload: Workload,
    quotas: QuotaSnapshot,
    *,
    generation: Generation,
    using: Kernel,
    progress: Progress | None = None,
) -> Simulation:
    """What the workload meets under the quotas, which hold from its start until its changes.

    Raises InputError for a stored value that is no number (NaN or infinite): a broker's answer to it means nothing.
    """
    for entity, values in quotas.items():
        for key, value in values.items():
            if not math.isfinite(value):
                raise InputError(f"{entity}: {key} is {format_number(value)}, which cannot be simulated")
    report = progress if progress is not None else _silent
    members = resolve_members(workload, quotas)
    sending = [member for member in members if member.client.api != CONNECT_API]
    run = _Run(workload, generation, using)
    total = sum(member.weight for member in sending) or 1.0
    done = 0.0
    for batch in batches_of(groups_of(sending)):
        part = sum(member.weight for group in batch for member in group)
        run.batch(batch, lambda share, done=done, part=part: report((done + share * part) / total))  # type: ignore[misc]
        done += part
    accepted = _Run(workload, generation, kernel(Mode.PLAIN))
    for broker in workload.brokers.names:
        connecting = [member for member in members if member.broker == broker and member.client.api == CONNECT_API]
        if connecting:
            accepted.batch([connecting], _silent)
    everyone = [*run.clients, *accepted.clients]
    governed = {member.client.name for member in sending if any(any(charged) for charged in member.counters.values())}
    order = {client.name: number for number, client in enumerate(workload.clients)}
    topics = {client.name for client in workload.clients if client.mutates and client.given is not None}
    return Simulation(
        workload.duration_ms,
        sum(client.requests for client in everyone if client.group not in topics),
        tuple(sorted(everyone, key=lambda client: order[client.group])),
        tuple(
            sorted([*run.results(), *accepted.results()], key=lambda counter: (-counter.throttle_ms, -counter.violated))
        ),
        tuple(accepted.acceptors),
        tuple(
            Queue(broker, key, size)
            for (broker, key), size in sorted(run.queues.items(), key=lambda item: (item[0][0], item[0][1].value))
        ),
        run.ranges,
        unlimited=tuple(
            client.name for client in workload.clients if client.api != CONNECT_API and client.name not in governed
        ),
    )


def expected_events(workload: Workload) -> int:
    """About how many events a simulation will have."""
    return int(sum(expected_of(workload, client) * client.count for client in workload.clients))


def _silent(_share: float) -> None:
    return


def part_of(report: Progress, number: int, of: int) -> Progress:
    """Reports the progress of one run as a part of several runs."""
    return lambda share: report((number + share) / of)


# --- a batch ---


_Outcome: TypeAlias = Mapping[tuple[object, ...], int]
"""What a run came to, as far as the ranges need it.

By ("delivered", client, broker), ("throttle_ms", client, broker) and ("counter", number).
"""


def _outcome(members: Sequence[Member], counters: Sequence[Counter], traffic: Traffic) -> _Outcome:
    """The outcome of a run of these members."""
    amounts: dict[tuple[object, ...], int] = {}
    for member, connections in _with_connections(members, traffic):
        amounts["delivered", member.name, member.broker] = sum(connection.delivered_units for connection in connections)
        amounts["throttle_ms", member.name, member.broker] = sum(connection.throttle_ms for connection in connections)
    for counter, account in zip(counters, traffic.sensors.accounts, strict=False):
        amounts["counter", counter.number] = account.throttle_ms
    return amounts


def _with_connections(members: Iterable[Member], traffic: Traffic) -> Iterator[tuple[Member, Sequence[Connection]]]:
    """The members with their connections."""
    connections = iter(traffic.connections)
    for member in members:
        yield member, [*islice(connections, member.client.connections)]


def _range(outcomes: Sequence[_Outcome], *name: object) -> tuple[int, int]:
    """The least and the most of one number in several outcomes, of which the first has everybody."""
    values = [outcome[name] for outcome in outcomes if name in outcome]
    return min(values), max(values)


@dataclass(slots=True)
class _Played:
    """A run of a batch: the rows, whose connection each is, and what was charged to whom."""

    traffic: Traffic
    owners: list[Member]
    shares: list[dict[str, list[float]]]
    """Per counter, by client: (what it was charged, throttle time in ms)."""
    throttle_by: dict[int, dict[QuotaKey, int]]
    """By the number of the member: the throttle time by its reason."""

    def share_out(self) -> None:
        """Moves what each connection was charged to the counters that it has now."""
        numbers: dict[int, int] = {}
        connections = as_rows(Connection, self.traffic.connections)
        for member, one in zip(self.owners, connections, strict=True):
            number = numbers.setdefault(id(member), len(numbers))
            charges = (
                (member.client.key, one.load_sensor, one.load_charged, one.load_ms, 1.0),
                (QuotaKey.REQUEST_PERCENTAGE, one.request_sensor, one.nanos_charged, one.request_ms, 1e-9),
            )
            for key, sensor, value, delay, scale in charges:
                if sensor == NONE or (value == 0 and delay == 0) or key is None:
                    continue
                share = self.shares[sensor].setdefault(member.name, [0.0, 0.0])
                share[0] += value * scale
                share[1] += delay
                if delay:
                    reasons = self.throttle_by.setdefault(number, {})
                    reasons[key] = reasons.get(key, 0) + delay
        for name in ("load_charged", "load_ms", "nanos_charged", "request_ms"):
            set_field(self.traffic.connections, name, [0] * len(connections))


class _Run:
    """Runs batches and keeps their results."""

    def __init__(self, workload: Workload, generation: Generation, using: Kernel) -> None:
        self._workload = workload
        self._generation, self._using = generation, using
        self._epochs = epochs_of(workload)
        self._rows = Rows(workload, generation, using)
        self._timelines: list[tuple[tuple[float, float], int, Timeline]] = []
        self._counters: dict[int, CounterResult] = {}
        self.clients: list[ClientResult] = []
        self.acceptors: list[Acceptor] = []
        self.queues: dict[tuple[str, QuotaKey], int] = {}
        self.ranges = False

    def results(self) -> list[CounterResult]:
        """All counters that were charged; the busiest with their timelines."""
        timelines = {number: timeline for _, number, timeline in self._timelines}
        return [replace(result, timeline=timelines.get(number)) for number, result in self._counters.items()]

    def batch(self, groups: Sequence[Sequence[Member]], report: Progress) -> None:
        """Runs some groups; those for which it can matter when metrics are read, again for each way to read them."""
        members = [member for group in groups for member in group]
        counters = counters_of(members)
        runs = 1 if self._workload.scrape_ms is not None else 1 + len(SCRAPES_MS)
        played = self._play(members, counters, self._workload.scrape_ms or 0, part_of(report, 0, runs))
        outcomes = [_outcome(members, counters, played.traffic)]
        if self._workload.scrape_ms is None:
            open_ = self._open(counters, played.traffic)
            members_again = [
                member
                for group in groups
                if any(counter.number in open_ for counter in counters_of(group))
                for member in group
            ]
            if members_again:
                counters_again = counters_of(members_again)
                for number, scrape_ms in enumerate(SCRAPES_MS, 1):
                    again = self._play(members_again, counters_again, scrape_ms, part_of(report, number, runs))
                    outcomes.append(_outcome(members_again, counters_again, again.traffic))
        ranges = [_range(outcomes, *name) for name in outcomes[-1] if name[0] != "counter"]
        self.ranges |= any(least != most for least, most in ranges)
        self._keep_clients(members, played, outcomes)
        self._keep_queues(counters, played.traffic)
        for row, account in enumerate(played.traffic.sensors.accounts):
            if account.events > 0:
                self._keep_counter(row, account, counters[row], played, outcomes)

    def _open(self, counters: Sequence[Counter], traffic: Traffic) -> set[int]:
        """The counters for which a reading could fall into a silence longer than a sample, near the limit."""
        return {
            counter.number
            for counter, account in zip(counters, traffic.sensors.accounts, strict=False)
            if account.gap_ms > traffic.sensors.counters.window_ms
            and account.peak > 0.5 * min(float(limit) for limit in counter.limits if limit is not None)
        }

    def _play(
        self, members: Sequence[Member], counters: Sequence[Counter], scrape_ms: int, report: Progress
    ) -> _Played:
        """One run from start to end; its connections and accounts are those of the plain kernel then."""
        workload, using = self._workload, self._using
        played = _Played(
            self._rows.traffic(members, len(counters), scrape_ms),
            [member for member in members for _ in range(member.client.connections)],
            [{} for _ in counters],
            {},
        )
        accepting = None
        run: Callable[[int], object] = partial(using.run_traffic, played.traffic)
        if members[0].client.api == CONNECT_API:
            accepting = Accepting(workload.brokers, self._generation, played.traffic, members, counters)
            run = accepting.run
        rows = {counter.number: row for row, counter in enumerate(counters)}
        weight = sum(member.weight for member in members)
        slices = min(1000, 1 + int(weight // (500_000 if using.mode is Mode.COMPILED else 20_000)))
        stops = [workload.duration_ms * (number + 1) // slices for number in range(slices)]
        for epoch, since in enumerate(self._epochs):
            until = self._epochs[epoch + 1] if epoch + 1 < len(self._epochs) else workload.duration_ms
            self._change(played, counters, rows, epoch)
            if epoch == 0:
                run(BEGIN)
            for stop in [*(stop for stop in stops if since < stop < until), until]:
                run(workload.origin_ms + stop)
                report(stop / workload.duration_ms)
            played.share_out()
        if accepting is None:
            using.end_traffic(played.traffic)
        else:
            self.acceptors += accepting.end(workload.origin_ms + workload.duration_ms)
        traffic, sensors = played.traffic, played.traffic.sensors
        played.traffic = traffic._replace(
            sensors=sensors._replace(accounts=as_rows(Account, sensors.accounts)),
            connections=as_rows(Connection, traffic.connections),
        )
        return played

    def _change(self, played: _Played, counters: Sequence[Counter], rows: Mapping[int, int], epoch: int) -> None:
        """Sets the limits and the counters of each connection for an epoch."""
        for row, counter in enumerate(counters):
            limit = counter.limits[epoch]
            played.traffic.sensors.accounts[row].bound = UNLIMITED if limit is None else float(limit)

        def row_of(member: Member, key: QuotaKey | None) -> int:
            charged = member.counters.get(key) if key is not None else None
            counter = charged[epoch] if charged else None
            return NONE if counter is None else rows[counter.number]

        connections, owners = played.traffic.connections, played.owners
        set_field(connections, "load_sensor", [row_of(member, member.client.key) for member in owners])
        set_field(connections, "request_sensor", [row_of(member, QuotaKey.REQUEST_PERCENTAGE) for member in owners])

    # --- results ---

    def _keep_clients(self, members: Sequence[Member], played: _Played, outcomes: Sequence[_Outcome]) -> None:
        workload = self._workload
        origin = workload.origin_ms
        for number, (member, connections) in enumerate(_with_connections(members, played.traffic)):
            client = member.client

            def total(name: str, connections: Sequence[Connection] = connections) -> int:
                return sum(map(attrgetter(name), connections))

            starts = [one.first_ms for one in connections if one.first_ms != NEVER]
            delivered = max(one.delivered_ms for one in connections)
            most = math.inf if client.requests is None else client.requests - _HAIR
            is_done = all(one.target >= most and one.delivered_units == one.offered_units for one in connections)
            active = (delivered - origin if is_done else workload.stop_of(client)) - client.start_ms
            self.clients.append(
                ClientResult(
                    name=member.name,
                    group=client.name,
                    broker=member.broker,
                    user=member.user,
                    client_id=member.client_id,
                    ip=member.ip,
                    api=client.api,
                    unit=client.unit,
                    active_ms=max(active, 1),
                    requests=total("sent"),
                    offered=total("offered_units"),
                    delivered=total("delivered_units"),
                    rejected=total("rejected_units"),
                    waiting=total("waiting_units"),
                    rejections=total("rejections"),
                    throttled=total("throttled"),
                    throttle_ms=total("throttle_ms"),
                    throttle_max_ms=max(one.max_ms for one in connections),
                    first_throttled_ms=min(starts) - origin if starts else None,
                    throttled_until_ms=max(one.until_ms for one in connections) - origin if starts else None,
                    throttle_by=played.throttle_by.get(number, {}),
                    throttle_range_ms=_range(outcomes, "throttle_ms", member.name, member.broker),
                    delivered_range=_range(outcomes, "delivered", member.name, member.broker),
                    delivering_ms=max(active, delivered - origin - client.start_ms, 1),
                    exempt_ns=total("exempt_nanos"),
                    delivered_until_ms=None if delivered == NEVER else delivered - origin,
                    is_done=is_done,
                )
            )

    def _keep_queues(self, counters: Sequence[Counter], traffic: Traffic) -> None:
        """Counts the channels that are muted at the end, each in the queue of the manager that muted it."""
        end = self._workload.origin_ms + self._workload.duration_ms
        for one in traffic.connections:
            if one.muted_by != NONE and one.muted > end:
                counter = counters[one.muted_by]
                place = counter.place, counter.key
                self.queues[place] = self.queues.get(place, 0) + 1

    def _keep_counter(
        self, row: int, account: Account, counter: Counter, played: _Played, outcomes: Sequence[_Outcome]
    ) -> None:
        shares, workload, sensors = played.shares[row], self._workload, played.traffic.sensors
        origin, end = workload.origin_ms, workload.origin_ms + workload.duration_ms

        def when(time_ms: int) -> int | None:
            return None if time_ms == NEVER else time_ms - origin

        mutation_rate: float | None = None
        if counter.key is QuotaKey.CONTROLLER_MUTATION_RATE:
            bucket = self._using.counter_of(sensors.counters, row, MUTATION)
            rate = self._using.measure_tokens(bucket, end, account.bound)
            meter = self._using.counter_of(sensors.meters, row, MUTATION)
            mutation_rate = float(self._using.measure(meter, end))
        else:
            rate = self._using.measure(self._using.counter_of(sensors.counters, row, REQUEST), end)
        limits = [(since, counter.limits[epoch]) for epoch, since in enumerate(self._epochs)]
        limit = max((float(limit) for _, limit in limits if limit is not None), default=1.0)
        rank = (float(account.throttle_ms), account.peak / limit if limit else 0.0)
        by_bucket = limits_by_bucket(limits, self._rows.bucket_ms, self._rows.buckets)
        recovery_ms, recovered = None, True
        if account.throttled > 0:
            scale = _scale(counter.key)
            offered = [value * scale for value in as_list(sensors.offered[row])]
            ends = as_list(sensors.ends[row])
            recovery_ms, recovered = recovery(offered, by_bucket, ends, self._rows.bucket_ms, workload.duration_ms)
        if rank > (0.0, 0.0) and (len(self._timelines) < TOP_TIMELINES or rank > self._timelines[0][0]):
            series = (sensors.offered, sensors.delivered, sensors.throttling)
            rates = Timeline.of(
                self._rows.bucket_ms,
                workload.duration_ms,
                by_bucket,
                *(as_list(one[row]) for one in series),
                scale=_scale(counter.key),
            )
            heapq.heappush(self._timelines, (rank, counter.number, rates))
            if len(self._timelines) > TOP_TIMELINES:
                heapq.heappop(self._timelines)
        result = CounterResult(
            broker=counter.place,
            key=counter.key,
            sensor=counter.sensor,
            entity=counter.entity,
            level=counter.level,
            limits=tuple(
                limit for number, limit in enumerate(limits) if number == 0 or limit[1] != limits[number - 1][1]
            ),
            events=account.events,
            violated=account.violated,
            throttled=account.throttled,
            throttle_ms=account.throttle_ms,
            throttle_max_ms=account.max_ms,
            first_throttled_ms=when(account.first_ms),
            throttled_until_ms=when(account.until_ms),
            recovery_ms=recovery_ms,
            recovered=recovered,
            rate=float(rate),
            peak=account.peak,
            peak_ms=when(account.peak_ms),
            clients=tuple(
                Share(name, value, int(milliseconds))
                for name, (value, milliseconds) in heapq.nlargest(TOP_CLIENTS, shares.items(), key=lambda item: item[1])
            ),
            client_count=len(shares),
            total=math.fsum(value for value, _ in shares.values()),
            throttle_range_ms=_range(outcomes, "counter", counter.number),
            mutation_rate=mutation_rate,
        )
        self._counters[counter.number] = result


def _scale(key: QuotaKey) -> float:
    """What the series of a key are multiplied with: thread time is in ns, its quota in percent of one thread."""
    return 1e-7 if key is QuotaKey.REQUEST_PERCENTAGE else 1.0
