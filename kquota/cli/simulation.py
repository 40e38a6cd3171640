"""Simulations for people and for other programs: tables, CSV, JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kquota.cli.report.words import share
from kquota.cli.text import (
    Column,
    amount_text,
    clock,
    clocks,
    duration,
    entity_text,
    entity_words,
    many,
    range_text,
    rate_text,
    safe,
    short_unit,
)
from kquota.cli.views import Note, Part, Table, View, csv_of, table_of
from kquota.core.findings.finding import subject
from kquota.core.quotas.quota import QuotaKey
from kquota.core.simulation.result import CONTROLLER, ClientResult, CounterResult, Simulation
from kquota.core.simulation.workload import Client, Workload
from kquota.core.tabular import grouped
from kquota.documents.limits import simulation_document
from kquota.simulations import Ready


def simulated(result: Simulation, planned: Ready, *, top: int, calm: bool) -> View:
    """A simulation in its formats; with `calm`, its tables have the counters as well that throttled nobody."""
    workload = planned.workload
    several = len(workload.brokers.names) > 1

    def tables(*, wide: bool) -> Iterator[Part]:
        yield _clients(result, workload)
        jobs = list(_topics(result, workload))
        if jobs:
            yield ""
            yield from jobs
        counters = [counter for counter in result.counters if counter.bites or (calm and counter.events)]
        shown = alike(counters, every_name=wide)
        if shown:
            yield ""
            yield _counters(shown[:top], several=several, wide=wide)
        yield from _acceptors(result)
        if len(shown) > top:
            which = "first" if calm else "most throttled"
            yield Note(f"the {top} {which} counters are shown (--top N shows more, -o json all)")

    def screen(*, wide: bool = False) -> Iterator[Part]:
        yield Note(_answer(result))
        yield from tables(wide=wide)
        if result.ranges:
            yield Note("a range means that the exact value depends on unknowns ('kquota simulate --help')")
        if result.counters and not calm and not any(counter.bites for counter in result.counters):
            yield Note("next: --all shows how near the counters came to their limits")

    return View(
        screen=screen,
        document=lambda: simulation_document(result, workload.brokers, planned.generation),
        csv=lambda: csv_of(result.clients, _CSV, digits=3),
        others={"wide": lambda: screen(wide=True)},
    )


def _answer(result: Simulation) -> str:
    """How many counters throttled somebody, and which of them most."""
    throttled = [counter for counter in result.counters if counter.bites]
    counted = f"{len(throttled)} of {many(len(result.counters), 'counter')} throttled somebody"
    if not result.counters:
        counted = "no quota limits any of these clients"
    worst = ""
    if throttled:
        first = alike(throttled)[0]
        longest = duration(first.throttle_max_ms)
        where = f" on {safe(first.broker)}" if first.broker else ""
        worst = f"; worst: {safe(counter_subject(first))}{where}, {longest} at the longest"
    return f"{counted}{worst}; {many(result.events, 'request')}"


_CSV = """name broker user client_id ip api unit active_ms requests offered delivered rejected waiting offered_rate
    delivered_rate rejections throttled throttle_ms throttle_low_ms=throttle_range_ms.0
    throttle_high_ms=throttle_range_ms.1 throttle_longest_ms=throttle_max_ms throttle_mean_ms first_throttled_ms
    throttled_until_ms delivering_ms delivered_until_ms"""


def _clients(result: Simulation, workload: Workload) -> Table:
    planned = {client.name: client for client in workload.clients}
    return table_of(
        grouped(result.clients, lambda client: client.group).values(),
        [
            (Column("CLIENT", style="bold"), _called),
            (Column("OFFERED", number=True, spare=2), lambda some: _amount(some, planned[some[0].group], "offered")),
            (Column("DELIVERED", number=True), lambda some: _delivered(some, planned[some[0].group])),
            (Column("NOT DELIVERED", number=True, spare=1), _left),
            (Column("DELAYED", number=True), _delayed),
            (Column("MUTED", number=True), lambda some: _muted(some, planned[some[0].group])),
            (Column("THROTTLE TIME", number=True), _throttle_time),
        ],
        lambda some: "" if any(client.is_throttled for client in some) else "dim",
    )


def _called(clients: Sequence[ClientResult]) -> tuple[str, str]:
    copies = len({client.name for client in clients})
    return clients[0].group, clients[0].api if copies == 1 else f"{clients[0].api}, {copies} clients"


def _delivered(clients: Sequence[ClientResult], plan: Client) -> tuple[str, str]:
    least, most = (_amount(clients, plan, "delivered_range", side) for side in (0, 1))
    part = share(sum(client.delivered for client in clients), sum(client.offered for client in clients))
    if plan.requests is not None:
        until = max(client.delivered_until_ms or 0 for client in clients)
        part += f", done at {clock(until)}" if all(client.is_done for client in clients) else ", not done"
    return range_text(least, most), part


def _amount(clients: Sequence[ClientResult], plan: Client, name: str, side: int | None = None) -> str:
    """A rate; of a job, which has an end, the amount, which says more than a rate over the whole run."""
    amounts = [getattr(client, name) if side is None else getattr(client, name)[side] for client in clients]
    if plan.requests is not None:
        return amount_text(sum(amounts), clients[0].unit)
    lengths = (client.active_ms if side is None else client.delivering_ms for client in clients)
    rate = sum(amount * 1000 / length for amount, length in zip(amounts, lengths, strict=True))
    return rate_text(rate, f"{clients[0].unit}/s")


def _left(clients: Sequence[ClientResult]) -> tuple[str, ...]:
    """What waits and what was rejected for good; what was rejected and came through later is delivered."""
    counts = (
        (sum(client.waiting for client in clients), "waiting"),
        (sum(client.rejected for client in clients), "rejected"),
    )
    return tuple(f"{amount_text(count, clients[0].unit)} {what}" for count, what in counts if count) or ("-",)


def _delayed(clients: Sequence[ClientResult]) -> tuple[str, ...]:
    throttled, requests = sum(client.throttled for client in clients), sum(client.requests for client in clients)
    if not throttled:
        return ("-",)
    return f"{throttled:,} ({share(throttled, requests)})", f"of {requests:,}"


def _muted(clients: Sequence[ClientResult], plan: Client) -> str:
    """The share of the time for which a connection waited, on average, of a job until it was done; nobody waits in an
    open loop.
    """
    if not plan.closed or clients[0].unit == "connections" or not any(client.throttled for client in clients):
        return "-"
    whole = plan.connections * sum(client.delivering_ms for client in clients)
    least, most = (
        share(min(sum(client.throttle_range_ms[side] for client in clients), whole), whole) for side in (0, 1)
    )
    return range_text(least, most)


def _throttle_time(clients: Sequence[ClientResult]) -> tuple[str, ...]:
    throttled, total = (sum(getattr(client, name) for client in clients) for name in ("throttled", "throttle_ms"))
    ranges = tuple(sum(client.throttle_range_ms[side] for client in clients) for side in (0, 1))
    return _delays(throttled, total, max(client.throttle_max_ms for client in clients), ranges)


def _delays(throttled: int, total: int, longest: int, ranges: Sequence[int]) -> tuple[str, ...]:
    """The throttle times of delayed requests: on average, and the longest. `ranges` bounds their sum,
    where it depends on unknowns. No sum is shown: nobody waits for it.
    """
    if not throttled:
        return ("perhaps",) if any(ranges) else ("-",)
    sums = (total, total) if ranges[0] == ranges[1] else ranges
    least, most = (duration(round(bound / throttled)) for bound in sums)
    return f"mean {range_text(least, most)}", f"max {duration(longest)}"


_DONE = {"create-topics": "created", "create-partitions": "extended", "delete-topics": "deleted"}


def _topics(result: Simulation, workload: Workload) -> Iterator[str]:
    """What became of the topics of each client that changes some, a sentence each."""
    for client in workload.clients:
        members = [member for member in result.clients if member.group == client.name]
        if not client.mutates or client.given is not None or not members:
            continue
        names = ("offered", "delivered", "rejected", "waiting")
        partitions = [int(sum(getattr(member, name) for member in members)) for name in names]
        topics, done, failed, waiting = (count // client.partitions for count in partitions)
        until = max((member.delivered_until_ms or 0 for member in members), default=0) - client.start_ms
        # Of a client with one call it can be said when it was over.
        after = f" after {duration(until)}" if partitions[0] == client.units * len(members) and done else ""
        text = f"{done:,} of {many(topics, 'topic')} {_DONE[client.api]}{after}"
        text += f"; {failed:,} failed" if failed else ""
        text += f"; {waiting:,} still to do at the end" if waiting else ""
        yield f"{safe(client.name)}: {text}"


def counter_subject(counter: CounterResult) -> str:
    """Whose counter it is, as people say it: `user alice`."""
    return subject(counter.key, str(counter.sensor))


def alike(counters: Sequence[CounterResult], *, every_name: bool = False) -> list[CounterResult]:
    """The counters for people: where brokers differ at most in the times, one counter stands for theirs.

    Its broker is `all 3 brokers`, or their names; its times span all of them.
    """
    everywhere = {counter.broker for counter in counters} - {CONTROLLER}

    def cells(counter: CounterResult) -> tuple[object, ...]:
        shown = (_limits(counter), _throttled(counter), _when(counter, timed=False), _shared(counter))
        return str(counter.sensor), counter.key, *shown

    def merged(group: list[CounterResult]) -> CounterResult:
        if len(group) == 1:
            return group[0]
        names = sorted(counter.broker for counter in group)
        broker = ", ".join(names) if every_name or len(names) <= _NAMES else f"{len(names)} brokers"
        if len(names) == len(everywhere) and not every_name:
            broker = f"all {len(names)} brokers"
        begins = [counter.first_throttled_ms for counter in group if counter.first_throttled_ms is not None]
        ends = [counter.throttled_until_ms for counter in group if counter.throttled_until_ms is not None]
        recoveries = [counter.recovery_ms for counter in group if counter.recovery_ms is not None]
        return replace(
            group[0],
            broker=broker,
            first_throttled_ms=min(begins, default=None),
            throttled_until_ms=max(ends, default=None),
            recovery_ms=max(recoveries, default=None),
            recovered=all(counter.recovered for counter in group),
        )

    return [*map(merged, grouped(counters, cells).values())]


_NAMES = 3
"""So many brokers are named in a cell."""


def _limits(counter: CounterResult) -> tuple[str, ...]:
    """The limits one after the other, and the highest rate; of topics the largest debt."""
    unit = short_unit(counter.key.unit)
    limits = ["none" if limit is None else rate_text(limit, unit) for _, limit in counter.limits]
    limits[1:] = [f"→ {limit}" for limit in limits[1:]]
    topics = counter.key is QuotaKey.CONTROLLER_MUTATION_RATE
    return *limits, f"debt {counter.peak:.0f}" if topics else f"peak {rate_text(counter.peak, unit)}"


def _throttled(counter: CounterResult) -> tuple[str, ...]:
    return _delays(counter.throttled, counter.throttle_ms, counter.throttle_max_ms, counter.throttle_range_ms)


def _when(counter: CounterResult, *, timed: bool = True) -> tuple[str, ...]:
    """When it throttled; without the times of day, which may differ between brokers, unless `timed`."""
    topics = counter.key is QuotaKey.CONTROLLER_MUTATION_RATE
    over = (f"{counter.violated:,} of {counter.events:,} attempts over the limit",) if topics else ()
    if not counter.bites:
        return ("-",)
    if counter.first_throttled_ms is None or counter.throttled_until_ms is None:
        return "no delay of its own", *over
    times = clocks(counter.first_throttled_ms, counter.throttled_until_ms) if timed else ""
    if counter.recovery_ms is None:
        return times, *over
    calm = f"recovery {duration(counter.recovery_ms)}" if timed else ""
    return times, *over, calm if counter.recovered else "not recovered"


def _counters(counters: Sequence[CounterResult], *, several: bool, wide: bool) -> Table:
    def limited_by(counter: CounterResult) -> str:
        if counter.entity is None or entity_words(counter.entity) == safe(counter_subject(counter)):
            return ""
        return f"by {entity_text(counter.entity)}"

    return table_of(
        counters,
        [
            several and (Column("BROKER"), lambda counter: counter.broker),
            (Column("WHO", style="bold"), lambda counter: (counter_subject(counter), limited_by(counter), counter.key)),
            wide and (Column("TAG"), lambda counter: counter.sensor),
            (Column("LIMIT", number=True), _limits),
            (Column("THROTTLE TIME", number=True), _throttled),
            (Column("WHEN", spare=1), _when),
            (Column("SHARED BY", spare=2), _shared),
        ],
    )


_NAMED = 4


def _shared(counter: CounterResult) -> tuple[str, ...]:
    """The clients with their shares; of many clients their number, and the largest share."""
    total = counter.total or 1.0
    shares = [f"{share.client} {100 * share.value / total:.0f} %" for share in counter.clients[:_NAMED]]
    if counter.client_count > len(shares) and shares:
        largest = 100 * counter.clients[0].value / total
        return f"{counter.client_count:,} clients", f"{largest:.0f} % each at most"
    return tuple(shares)


def _acceptors(result: Simulation) -> Sequence[Part]:
    waited = [acceptor for acceptor in result.acceptors if acceptor.waited]
    if not waited:
        return []
    return [
        "",
        table_of(
            waited,
            [
                (Column("BROKER", spare=1), lambda acceptor: acceptor.broker),
                (Column("LISTENER", style="bold"), lambda acceptor: acceptor.listener),
                (Column("CONNECTIONS", number=True), lambda acceptor: acceptor.connections),
                (Column("WAITED", number=True), lambda acceptor: acceptor.waited),
                (
                    Column("TIME", number=True),
                    lambda acceptor: (duration(acceptor.wait_ms), f"max {duration(acceptor.wait_max_ms)}"),
                ),
            ],
        ),
    ]
