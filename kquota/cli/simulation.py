"""Simulations for people and for other programs: tables, charts, CSV, JSON."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kquota.cli.chart import ASCII, UNICODE, chart
from kquota.cli.text import (
    Column,
    amount_text,
    cell_lines,
    clock,
    counter_title,
    duration,
    entity_text,
    entity_words,
    many,
    range_text,
    rate_text,
    safe,
    short_unit,
)
from kquota.cli.views import Csv, Document, Drawn, Note, Part, Table, View
from kquota.core.enforcement import Generation
from kquota.core.findings.finding import subject
from kquota.core.quotas.quota import QuotaKey, humanize
from kquota.core.simulation import Client, ClientResult, CounterResult, Simulation, Workload
from kquota.core.simulation.result import CONTROLLER
from kquota.documents.simulation import simulation_document
from kquota.simulations import Needed

if TYPE_CHECKING:
    from rich.text import Text


def simulated(
    result: Simulation,
    workload: Workload,
    generation: Generation,
    *,
    top: int,
    charts: int | None,
    code: int,
    calm: bool = False,
    enough: Callable[[], Sequence[Needed]] = tuple,
) -> View:
    """A simulation in its formats; with `calm`, its tables have the counters as well that throttled nobody.

    `enough` finds the quotas that would be enough for clients without any.
    """
    several = len(workload.brokers.names) > 1

    def document() -> Document:
        return simulation_document(result, workload.brokers, generation)

    def tables(*, wide: bool) -> Iterator[Part]:
        yield _clients(result, workload)
        jobs = list(_topics(result, workload))
        if jobs:
            yield ""
            yield from jobs
        shown = alike([each for each in result.counters if each.bites or (calm and each.events)], every_name=wide)
        if shown:
            yield ""
            yield _counters(shown[:top], several=several, wide=wide)
        lacking = enough()
        if lacking:
            yield ""
            yield _enough(lacking[:top])
        yield from _acceptors(result)
        if len(shown) > top:
            which = "first" if calm else "most throttled"
            yield Note(f"the {top} {which} counters are shown (--top N shows more, -o json all)")

    def screen(*, wide: bool = False) -> Iterator[Part]:
        yield Note(_answer(result))
        yield from tables(wide=wide)
        wanted = (1 if sys.stdout.isatty() else 0) if charts is None else charts
        for counter in alike([counter for counter in result.counters if counter.timeline is not None])[:wanted]:
            yield _chart(counter)
        if result.ranges:
            yield Note("a range means that the exact value depends on unknowns ('kquota simulate --help')")
        if any(counter.bites for counter in result.counters):
            yield Note("next: --plot FILE.html draws who is throttled when; a run with other --quotas compares")
        elif result.counters and not calm:
            yield Note("next: --all shows how near the counters came to their limits")

    def markdown() -> Iterator[Part]:
        from kquota.cli.text import markdown, markdown_table

        yield f"**{markdown(_answer(result))}**"
        yield ""
        for part in tables(wide=True):
            if isinstance(part, Table):
                numbers = frozenset(column.heading for column in part.columns if column.number)
                yield markdown_table([column.heading for column in part.columns], map(_lines, part.rows), numbers)
            else:
                yield f"* {markdown(part)}" if isinstance(part, str) and part else part

    return View(
        screen=screen,
        document=document,
        csv=lambda: Csv(_CSV, _csv_rows(result)),
        others={"wide": lambda: screen(wide=True), "markdown": markdown},
        code=code,
    )


def _lines(row: Sequence[object]) -> list[str]:
    """The cells of a row, each in one line."""
    return [", ".join(cell_lines(cell)) for cell in row]


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


_CSV = (
    "name", "broker", "user", "client_id", "ip", "api", "unit", "active_ms", "requests", "offered", "delivered",
    "rejected", "waiting", "offered_rate", "delivered_rate", "rejections", "throttled", "throttle_ms",
    "throttle_low_ms", "throttle_high_ms", "throttle_longest_ms", "throttle_mean_ms", "first_throttled_ms",
    "throttled_until_ms", "delivering_ms",
)  # fmt: skip


def _csv_rows(result: Simulation) -> Iterator[Sequence[object]]:
    for client in result.clients:
        yield (
            client.name, client.broker, client.user, client.client_id, client.ip, client.api, client.unit,
            client.active_ms, client.requests, client.offered, client.delivered, client.rejected, client.waiting,
            round(client.offered_rate, 3), round(client.delivered_rate, 3), client.rejections, client.throttled,
            client.throttle_ms, *client.throttle_range_ms, client.throttle_max_ms,
            None if client.throttle_mean_ms is None else round(client.throttle_mean_ms, 3),
            client.first_throttled_ms, client.throttled_until_ms, client.delivering_ms,
        )  # fmt: skip


def _clients(result: Simulation, workload: Workload) -> Table:
    planned = {client.name: client for client in workload.clients}
    groups: dict[str, list[ClientResult]] = {}
    for client in result.clients:
        groups.setdefault(client.group, []).append(client)
    rows = []
    for name, clients in groups.items():
        plan = planned[name]
        copies = len({client.name for client in clients})
        unit = clients[0].unit
        total = sum(client.offered for client in clients)
        share = _share(sum(client.delivered for client in clients), total)
        if plan.requests is None:
            offered = rate_text(sum(client.offered_rate for client in clients), f"{unit}/s")
            least, most = (
                rate_text(
                    sum(client.delivered_range[side] * 1000 / client.delivering_ms for client in clients), f"{unit}/s"
                )
                for side in (0, 1)
            )
        else:  # a job has an end: its amount says more than a rate over the whole run
            offered = amount_text(total, unit)
            least, most = (
                amount_text(sum(client.delivered_range[side] for client in clients), unit) for side in (0, 1)
            )
        rows.append(
            (
                (name, clients[0].api if copies == 1 else f"{clients[0].api}, {copies} clients"),
                offered,
                (range_text(least, most), share),
                _left(clients),
                _delayed(clients),
                _muted(clients, plan),
                _throttle_time(clients),
            )
        )
    return Table(
        [
            Column("CLIENT", style="bold"),
            Column("OFFERED", number=True, spare=2),
            Column("DELIVERED", number=True),
            Column("NOT DELIVERED", number=True, spare=1),
            Column("DELAYED", number=True),
            Column("MUTED", number=True),
            Column("THROTTLE TIME", number=True),
        ],
        rows,
        ["" if any(client.is_throttled for client in clients) else "dim" for clients in groups.values()],
    )


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "-"


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
    return f"{throttled:,} ({_share(throttled, requests)})", f"of {requests:,}"


def _muted(clients: Sequence[ClientResult], plan: Client) -> str:
    """The share of the time for which a connection waited, on average; nobody waits in an open loop."""
    if not plan.closed or clients[0].unit == "connections" or not any(client.throttled for client in clients):
        return "-"
    whole = plan.connections * sum(client.delivering_ms for client in clients)
    least, most = (
        _share(min(sum(client.throttle_range_ms[side] for client in clients), whole), whole) for side in (0, 1)
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
    least, most = (duration(round(each / throttled)) for each in sums)
    return f"mean {range_text(least, most)}", f"max {duration(longest)}"


_DONE = {"create-topics": "created", "create-partitions": "extended", "delete-topics": "deleted"}


def _topics(result: Simulation, workload: Workload) -> Iterator[str]:
    """What became of the topics of each client that changes some, a sentence each."""
    for client in workload.clients:
        found = [each for each in result.clients if each.group == client.name]
        offered = sum(each.offered for each in found)
        if not client.mutates or client.given is not None or not offered:
            continue
        done = _DONE[client.api]

        def topics(name: str, found: list[ClientResult] = found, client: Client = client) -> int:
            return int(sum(getattr(each, name) for each in found)) // client.partitions

        delivered, failed, waiting = topics("delivered"), topics("rejected"), topics("waiting")
        all_topics = many(offered // client.partitions, "topic")
        until = max((each.delivered_until_ms or 0 for each in found), default=0) - client.start_ms
        # A client with one call: when it was over can be said.
        once = offered == client.units * len(found)
        after = f" after {duration(until)}" if once else ""
        calls = (
            f", in {many(sum(each.requests for each in found), 'request')}"
            if any(each.rejections for each in found)
            else ""
        )
        if not failed and not waiting:
            yield f"{safe(client.name)}: all {all_topics} {done}{after}{calls}"
            continue
        parts = [f"{delivered:,} of {all_topics} {done}{f', the last{after}' if delivered and after else ''}"]
        if failed:
            ended = max((each.throttled_until_ms or 0 for each in found), default=0) - client.start_ms
            gave_up = client.retry and client.closed
            when = f" after {duration(ended)}" if once and gave_up else ""
            parts.append(f"{failed:,} failed{when} ({'default.api.timeout.ms' if gave_up else 'sent once'})")
        if waiting:
            parts.append(f"{waiting:,} still to do at the end")
        yield f"{safe(client.name)}: {'; '.join(parts)}{calls}"


def counter_subject(counter: CounterResult) -> str:
    """Whose counter it is, as people say it: `user alice`."""
    return subject(counter.key, str(counter.sensor))


def alike(counters: Sequence[CounterResult], *, every_name: bool = False) -> list[CounterResult]:
    """The counters for people: where brokers differ at most in the times, one counter stands for theirs.

    Its broker is `all 3 brokers`, or their names; its times span all of them.
    """
    everywhere = {counter.broker for counter in counters} - {CONTROLLER}
    groups: dict[tuple[object, ...], list[CounterResult]] = {}
    for counter in counters:
        groups.setdefault((str(counter.sensor), *_cells(counter, timed=False)), []).append(counter)

    def merged(group: list[CounterResult]) -> CounterResult:
        if len(group) == 1:
            return group[0]
        names = sorted(counter.broker for counter in group)
        said = ", ".join(names) if every_name or len(names) <= _NAMES else f"{len(names)} brokers"
        if len(names) == len(everywhere) and not every_name:
            said = f"all {len(names)} brokers"
        begins = [counter.first_throttled_ms for counter in group if counter.first_throttled_ms is not None]
        ends = [counter.throttled_until_ms for counter in group if counter.throttled_until_ms is not None]
        recoveries = [counter.recovery_ms for counter in group if counter.recovery_ms is not None]
        return replace(
            group[0],
            broker=said,
            first_throttled_ms=min(begins, default=None),
            throttled_until_ms=max(ends, default=None),
            recovery_ms=max(recoveries, default=None),
            recovered=all(counter.recovered for counter in group),
        )

    return [merged(group) for group in groups.values()]


_NAMES = 3
"""So many brokers are named in a cell."""


def _cells(counter: CounterResult, *, timed: bool = True) -> tuple[object, ...]:
    """The cells of a counter's row, from its key on; without the times of day, which may differ between brokers."""
    topics = counter.key is QuotaKey.CONTROLLER_MUTATION_RATE

    def limit() -> tuple[str, ...]:
        unit = short_unit(counter.key.unit)
        limits = ["none" if limit is None else rate_text(limit, unit) for _, limit in counter.limits]
        limits[1:] = [f"→ {limit}" for limit in limits[1:]]
        return *limits, f"debt {counter.peak:.0f}" if topics else f"peak {rate_text(counter.peak, unit)}"

    def when() -> tuple[str, ...]:
        over = (f"{counter.violated:,} of {counter.events:,} attempts over the limit",) if topics else ()
        if not counter.bites:
            return ("-",)
        if counter.first_throttled_ms is None or counter.throttled_until_ms is None:
            return "no delay of its own", *over
        times = f"{clock(counter.first_throttled_ms)} to {clock(counter.throttled_until_ms)}" if timed else ""
        if counter.recovery_ms is None:
            return times, *over
        calm = f"recovery {duration(counter.recovery_ms)}" if timed else ""
        return times, *over, calm if counter.recovered else "not recovered"

    delays = _delays(counter.throttled, counter.throttle_ms, counter.throttle_max_ms, counter.throttle_range_ms)
    return counter.key, limit(), delays, when(), _shared(counter)


def _counters(counters: Sequence[CounterResult], *, several: bool, wide: bool) -> Table:
    def limited_by(counter: CounterResult) -> str:
        if counter.entity is None or entity_words(counter.entity) == safe(counter_subject(counter)):
            return ""
        return f"by {entity_text(counter.entity)}"

    return Table(
        [
            *([Column("BROKER")] if several else []),
            Column("WHO", style="bold"),
            *([Column("TAG")] if wide else []),
            Column("LIMIT", number=True),
            Column("THROTTLE TIME", number=True),
            Column("WHEN", spare=1),
            Column("SHARED BY", spare=2),
        ],
        [
            (
                *([counter.broker] if several else []),
                (counter_subject(counter), limited_by(counter), cells[0]),
                *([counter.sensor] if wide else []),
                *cells[1:],
            )
            for counter, cells in ((counter, _cells(counter)) for counter in counters)
        ],
    )


def _enough(lacking: Sequence[Needed]) -> Table:
    """The clients without a quota, with what would not throttle them."""
    return Table(
        [
            Column("WITHOUT A QUOTA", style="bold"),
            Column("QUOTA", style="cyan", whole=True),
            Column("PEAK", number=True),
            Column("ENOUGH", number=True),
        ],
        [
            (
                entity_words(each.entity),
                each.key,
                rate_text(each.peak, short_unit(each.key.unit)),
                (humanize(each.key, each.enough), "per broker"),
            )
            for each in lacking
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
    columns = [
        Column("BROKER", spare=1),
        Column("LISTENER", style="bold"),
        Column("CONNECTIONS", number=True),
        Column("WAITED", number=True),
        Column("TIME", number=True),
    ]
    rows = [
        (
            acceptor.broker,
            acceptor.listener,
            acceptor.connections,
            acceptor.waited,
            (duration(acceptor.wait_ms), f"max {duration(acceptor.wait_max_ms)}"),
        )
        for acceptor in waited
    ]
    return ["", Table(columns, rows)] if waited else []


def _chart(counter: CounterResult) -> Drawn:
    """The counter over time, with its title."""

    def draw(width: int) -> Iterator[Text]:
        from rich.text import Text

        yield Text("")
        yield Text(counter_title(counter), style="bold")
        yield from chart(counter, width, UNICODE if "utf" in (sys.stdout.encoding or "").lower() else ASCII)

    return Drawn(draw)
