"""Simulations for people and for other programs: tables, charts, CSV, JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kquota.cli.views import Csv, Document, Drawn, Note, Part, Table, View

if TYPE_CHECKING:
    from rich.text import Text

    from kquota.core.enforcement import Generation
    from kquota.core.simulation import ClientResult, CounterResult, Simulation, Workload


def simulated(
    result: Simulation, workload: Workload, generation: Generation, *, top: int, charts: int | None, code: int
) -> View:
    """A simulation in its formats."""

    def document() -> Document:
        from kquota.documents.simulation import simulation_document

        return simulation_document(result, workload.brokers, generation)

    def screen(*, wide: bool = False) -> Iterator[Part]:
        yield Note(_answer(result))
        yield _clients(result)
        throttled = alike([counter for counter in result.counters if counter.bites], every_name=wide)
        if throttled:
            yield ""
            yield _counters(throttled[:top], several=len(workload.brokers.names) > 1, wide=wide)
        yield from _acceptors(result)
        wanted = (1 if sys.stdout.isatty() else 0) if charts is None else charts
        for counter in alike([counter for counter in result.counters if counter.timeline is not None])[:wanted]:
            yield _chart(counter)
        if len(throttled) > top:
            yield Note(f"the {top} most throttled counters are shown (--top N shows more, -o json all)")
        if result.ranges:
            yield Note("a range means that the exact value depends on unknowns ('kquota simulate --help')")
        if throttled:
            yield Note("next: --plot FILE.html draws who is throttled when; a run with other --quotas compares")

    return View(
        screen=screen,
        document=document,
        csv=lambda: Csv(_CSV, _csv_rows(result)),
        others={"wide": lambda: screen(wide=True)},
        code=code,
    )


def _answer(result: Simulation) -> str:
    """How many counters throttled somebody, and which of them most."""
    from kquota.cli.text import duration, many, safe

    throttled = [counter for counter in result.counters if counter.bites]
    counted = f"{len(throttled)} of {many(len(result.counters), 'counter')} throttled somebody"
    worst = ""
    if throttled:
        first = alike(throttled)[0]
        longest = duration(first.throttle_max_ms)
        worst = f"; worst: {safe(counter_subject(first))} on {safe(first.broker)}, {longest} at the longest"
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


def _clients(result: Simulation) -> Table:
    from kquota.cli.text import Column, range_text, rate_text

    groups: dict[str, list[ClientResult]] = {}
    for client in result.clients:
        groups.setdefault(client.group, []).append(client)
    rows = []
    for name, clients in groups.items():
        copies = len({client.name for client in clients})
        unit = "bytes/s" if clients[0].unit == "bytes" else "/s"
        offered = sum(client.offered_rate for client in clients)
        share = _share(sum(client.delivered for client in clients), sum(client.offered for client in clients))
        least = sum(client.delivered_range[0] * 1000 / client.delivering_ms for client in clients)
        most = sum(client.delivered_range[1] * 1000 / client.delivering_ms for client in clients)
        got = range_text(rate_text(least, unit), rate_text(most, unit))
        rows.append(
            (
                (name, clients[0].api if copies == 1 else f"{clients[0].api}, {copies} clients"),
                rate_text(offered, unit),
                (got, share),
                _left(clients),
                _delayed(clients),
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
            Column("THROTTLE TIME", number=True),
        ],
        rows,
        ["" if any(client.throttled for client in clients) else "dim" for clients in groups.values()],
    )


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "-"


def _left(clients: Sequence[ClientResult]) -> tuple[str, ...]:
    """What waits and what was rejected."""
    from kquota.cli.text import amount_text, many

    unit = "bytes" if clients[0].unit == "bytes" else ""
    counts = (
        (sum(client.waiting for client in clients), "waiting"),
        (sum(client.rejected for client in clients), "rejected"),
    )
    parts = [f"{amount_text(count, unit)} {what}" for count, what in counts if count]
    retried = sum(client.rejections for client in clients)
    if retried:
        parts.append(many(retried, "rejection"))
    return tuple(parts) or ("-",)


def _delayed(clients: Sequence[ClientResult]) -> tuple[str, ...]:
    throttled, requests = sum(client.throttled for client in clients), sum(client.requests for client in clients)
    if not throttled:
        return ("-",)
    return f"{throttled:,} ({_share(throttled, requests)})", f"of {requests:,}"


def _throttle_time(clients: Sequence[ClientResult]) -> tuple[str, ...]:
    from kquota.cli.text import duration, range_text

    least, most = (sum(client.throttle_range_ms[side] for client in clients) for side in (0, 1))
    if most == 0:
        return ("-",)
    total = range_text(duration(least), duration(most))
    return total, f"max {duration(max(client.throttle_max_ms for client in clients))}"


def counter_subject(counter: CounterResult) -> str:
    """Whose counter it is, as people say it: `user alice`."""
    from kquota.core.findings.finding import subject

    return subject(counter.key, str(counter.sensor))


def alike(counters: Sequence[CounterResult], *, every_name: bool = False) -> list[CounterResult]:
    """The counters for people: where a row would be the same at several brokers, one counter stands for them.

    Its broker is `each of 3 brokers`, or their names.
    """
    groups: dict[tuple[object, ...], list[CounterResult]] = {}
    for counter in counters:
        groups.setdefault((str(counter.sensor), *_cells(counter)), []).append(counter)

    def merged(group: list[CounterResult]) -> CounterResult:
        names = [counter.broker for counter in group]
        if len(group) == 1:
            return group[0]
        return replace(group[0], broker=", ".join(names) if every_name else f"{_EACH}{len(names)} brokers")

    return [merged(group) for group in groups.values()]


_EACH = "each of "


def _broker(counter: CounterResult) -> str:
    """The cell below the heading BROKER."""
    return counter.broker.removesuffix(" brokers") if counter.broker.startswith(_EACH) else counter.broker


def _cells(counter: CounterResult) -> tuple[object, ...]:
    """The cells of a counter's row, from its limit on; the names of the broker and of the counter come before them."""
    from kquota.cli.text import clock, duration, range_text, rate_text, short_unit
    from kquota.core.quotas.quota import QuotaKey

    topics = counter.key is QuotaKey.CONTROLLER_MUTATION_RATE

    def limit() -> tuple[str, ...]:
        unit = short_unit(counter.key.unit)
        limits = ["none" if limit is None else rate_text(limit, unit) for _, limit in counter.limits]
        limits[1:] = [f"→ {limit}" for limit in limits[1:]]
        return *limits, f"debt {counter.peak:.0f}" if topics else f"peak {rate_text(counter.peak, unit)}"

    def when() -> tuple[str, ...]:
        over = (f"{counter.violated:,} of {counter.events:,} topics over the limit",) if topics else ()
        if counter.first_throttled_ms is None or counter.throttled_until_ms is None:
            return "delayed by another quota", *over
        times = f"{clock(counter.first_throttled_ms)} to {clock(counter.throttled_until_ms)}"
        if counter.recovery_ms is None:
            return times, *over
        return times, *over, f"recovery {duration(counter.recovery_ms)}" if counter.recovered else "not recovered"

    least, most = counter.throttle_range_ms
    total = range_text(duration(least), duration(most))
    return counter.key, limit(), (total, f"max {duration(counter.throttle_max_ms)}"), when(), _shared(counter)


def _counters(counters: Sequence[CounterResult], *, several: bool, wide: bool) -> Table:
    from kquota.cli.text import Column, entity_text, entity_words, safe

    def limited_by(counter: CounterResult) -> str:
        if counter.entity is None or entity_words(counter.entity) == safe(counter_subject(counter)):
            return ""
        return f"by {entity_text(counter.entity)}"

    return Table(
        [
            *([Column("BROKER", spare=1)] if several else []),
            Column("WHO", style="bold"),
            *([Column("TAG")] if wide else []),
            Column("QUOTA", style="cyan", whole=True),
            Column("LIMIT", number=True),
            Column("THROTTLE TIME", number=True),
            Column("WHEN", spare=2),
            Column("SHARED BY", spare=3),
        ],
        [
            (
                *([_broker(counter)] if several else []),
                (counter_subject(counter), limited_by(counter)),
                *([counter.sensor] if wide else []),
                *_cells(counter),
            )
            for counter in counters
        ],
    )


_NAMED = 4


def _shared(counter: CounterResult) -> tuple[str, ...]:
    from kquota.cli.text import duration

    total = counter.total or 1.0
    names = [
        f"{share.client} {100 * share.value / total:.0f} %, throttled {duration(share.throttle_ms)}"
        for share in counter.clients[:_NAMED]
    ]
    more = counter.client_count - len(names)
    return (*names, f"and {more} more") if more > 0 else tuple(names)


def _acceptors(result: Simulation) -> Sequence[Part]:
    from kquota.cli.text import Column, duration

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

        from kquota.cli.chart import ASCII, UNICODE, chart
        from kquota.cli.text import counter_title

        yield Text("")
        yield Text(counter_title(counter), style="bold")
        yield from chart(counter, width, UNICODE if "utf" in (sys.stdout.encoding or "").lower() else ASCII)

    return Drawn(draw)
