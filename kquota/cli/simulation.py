"""Simulations for people and for other programs: tables, charts, CSV, JSON."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from kquota.cli.streams import console, note

if TYPE_CHECKING:
    from kquota.core.enforcement import Generation
    from kquota.core.simulation import ClientResult, CounterResult, Simulation, Workload


def print_result(
    result: Simulation, workload: Workload, generation: Generation, output: str, *, top: int, charts: int | None
) -> None:
    """Prints a simulation in one of its formats."""
    if output == "json":
        from kquota.documents.encoding import to_json
        from kquota.documents.simulation import simulation_document

        click.echo(to_json(simulation_document(result, workload.brokers, generation)), nl=False)
        return
    if output == "csv":
        _print_csv(result)
        return
    _print_clients(result)
    throttled = [counter for counter in result.counters if counter.bites]
    if throttled:
        click.echo()
        _print_counters(throttled[:top], several=len(workload.brokers.names) > 1)
    _print_acceptors(result)
    wanted = (1 if sys.stdout.isatty() else 0) if charts is None else charts
    drawn = [counter for counter in result.counters if counter.timeline is not None][:wanted]
    if drawn:
        _print_charts(drawn)
    shown = f" ({top} shown)" if len(throttled) > top else ""
    ranges = "; ranges hold what cannot be known" if result.ranges else ""
    counted = f"{len(throttled)} of {len(result.counters)} counters throttled{shown}; {result.events} requests"
    note(f"{counted}{ranges}")


_CSV = (
    "name", "broker", "user", "client_id", "ip", "api", "unit", "active_ms", "requests", "offered", "delivered",
    "rejected", "waiting", "offered_rate", "delivered_rate", "rejections", "throttled", "throttle_ms",
    "throttle_low_ms", "throttle_high_ms", "throttle_longest_ms", "throttle_mean_ms", "first_throttled_ms",
    "throttled_until_ms", "delivering_ms",
)  # fmt: skip


def _print_csv(result: Simulation) -> None:
    from kquota.cli.text import print_csv

    print_csv(
        _CSV,
        [
            (
                client.name, client.broker, client.user, client.client_id, client.ip, client.api, client.unit,
                client.active_ms, client.requests, client.offered, client.delivered, client.rejected, client.waiting,
                round(client.offered_rate, 3), round(client.delivered_rate, 3), client.rejections, client.throttled,
                client.throttle_ms, *client.throttle_range_ms, client.throttle_max_ms,
                None if client.throttle_mean_ms is None else round(client.throttle_mean_ms, 3),
                client.first_throttled_ms, client.throttled_until_ms, client.delivering_ms,
            )
            for client in result.clients
        ],
    )  # fmt: skip


def _print_clients(result: Simulation) -> None:
    from kquota.cli.text import Column, print_table, range_text, rate_text

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
                _throttled(clients),
                _throttle_time(clients),
            )
        )
    print_table(
        [
            Column("CLIENT", style="bold"),
            Column("OFFERED", number=True),
            Column("DELIVERED", number=True),
            Column("NOT DELIVERED", number=True),
            Column("THROTTLED", number=True),
            Column("THROTTLE TIME", number=True),
        ],
        rows,
        styles=["red" if any(client.throttled for client in clients) else "" for clients in groups.values()],
    )


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f}%" if whole else "-"


def _left(clients: Sequence[ClientResult]) -> tuple[str, ...]:
    """What waits and what was rejected."""
    from kquota.cli.text import amount_text

    unit = "bytes" if clients[0].unit == "bytes" else ""
    counts = (
        (sum(client.waiting for client in clients), "waiting"),
        (sum(client.rejected for client in clients), "rejected"),
    )
    parts = [f"{amount_text(count, unit)} {what}" for count, what in counts if count]
    retried = sum(client.rejections for client in clients)
    if retried:
        parts.append(f"{retried} rejection{'' if retried == 1 else 's'}")
    return tuple(parts) or ("-",)


def _throttled(clients: Sequence[ClientResult]) -> tuple[str, ...]:
    throttled, requests = sum(client.throttled for client in clients), sum(client.requests for client in clients)
    if not throttled:
        return ("-",)
    return f"{throttled} ({100 * throttled / requests:.0f}%)", f"of {requests}"


def _throttle_time(clients: Sequence[ClientResult]) -> tuple[str, ...]:
    from kquota.cli.text import duration, range_text

    least, most = (sum(client.throttle_range_ms[side] for client in clients) for side in (0, 1))
    if most == 0:
        return ("-",)
    total = range_text(duration(least), duration(most))
    return total, f"max {duration(max(client.throttle_max_ms for client in clients))}"


def _print_counters(counters: Sequence[CounterResult], *, several: bool) -> None:
    from kquota.cli.text import Column, clock, duration, print_table, range_text, rate_text, short_unit
    from kquota.core.quotas.quota import QuotaKey

    def limit_of(counter: CounterResult) -> tuple[str, ...]:
        unit = short_unit(counter.key.unit)
        limits = ["none" if limit is None else rate_text(limit, unit) for _, limit in counter.limits]
        debt = counter.key is QuotaKey.CONTROLLER_MUTATION_RATE
        limits[1:] = [f"→ {limit}" for limit in limits[1:]]
        return *limits, f"debt {counter.peak:.0f}" if debt else f"peak {rate_text(counter.peak, unit)}"

    def bites(counter: CounterResult) -> tuple[str, ...]:
        if counter.first_throttled_ms is None or counter.throttled_until_ms is None:
            return ("delayed by another quota",)
        when = f"{clock(counter.first_throttled_ms)} to {clock(counter.throttled_until_ms)}"
        if counter.recovery_ms is None:
            return (when,)
        return when, f"recovery {duration(counter.recovery_ms)}" if counter.recovered else "no recovery yet"

    def time_of(counter: CounterResult) -> tuple[str, ...]:
        least, most = counter.throttle_range_ms
        total = range_text(duration(least), duration(most))
        longest = f"max {duration(counter.throttle_max_ms)}"
        if counter.key is QuotaKey.CONTROLLER_MUTATION_RATE:
            return total, longest, f"{counter.violated} of {counter.events} topics over the limit"
        return total, longest

    print_table(
        [
            *([Column("BROKER")] if several else []),
            Column("COUNTER", style="cyan"),
            Column("LIMIT", number=True),
            Column("THROTTLE TIME", number=True),
            Column("BITES"),
            Column("SHARED BY"),
        ],
        [
            (
                *([counter.broker] if several else []),
                (
                    counter.sensor.client_id if counter.key is QuotaKey.CONNECTION_CREATION_RATE else counter.sensor,
                    counter.key,
                    counter.entity,
                ),
                limit_of(counter),
                time_of(counter),
                bites(counter),
                _shared(counter),
            )
            for counter in counters
        ],
    )


_NAMED = 4


def _shared(counter: CounterResult) -> tuple[str, ...]:
    from kquota.cli.text import duration

    total = counter.total or 1.0
    names = [
        f"{share.client} {100 * share.value / total:.0f}%, throttled {duration(share.throttle_ms)}"
        for share in counter.clients[:_NAMED]
    ]
    more = counter.client_count - len(names)
    return (*names, f"and {more} more") if more > 0 else tuple(names)


def _print_acceptors(result: Simulation) -> None:
    from kquota.cli.text import Column, duration, print_table

    waited = [acceptor for acceptor in result.acceptors if acceptor.waited]
    if waited:
        click.echo()
        print_table(
            [
                Column("BROKER"),
                Column("LISTENER", style="bold"),
                Column("CONNECTIONS", number=True),
                Column("WAITED", number=True),
                Column("TIME", number=True),
            ],
            [
                (
                    acceptor.broker,
                    acceptor.listener,
                    acceptor.connections,
                    acceptor.waited,
                    (duration(acceptor.wait_ms), f"max {duration(acceptor.wait_max_ms)}"),
                )
                for acceptor in waited
            ],
        )


def _print_charts(counters: Sequence[CounterResult]) -> None:
    from kquota.cli.chart import ASCII, UNICODE, chart
    from kquota.cli.text import counter_title

    screen = console(sys.stdout, width=None if sys.stdout.isatty() else 100)
    glyphs = UNICODE if "utf" in (sys.stdout.encoding or "").lower() else ASCII
    for counter in counters:
        screen.print()
        screen.print(counter_title(counter), style="bold", markup=False, soft_wrap=True)
        for line in chart(counter, screen.width, glyphs):
            screen.print(line, soft_wrap=True)
