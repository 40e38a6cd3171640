"""`kquota simulate`."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click

from kquota.brokers import BrokerFacts
from kquota.cli import auditing, grammar, params, session
from kquota.cli.contexts import Given
from kquota.cli.exit_codes import ExitCode
from kquota.cli.options import argument, choice, count, flag, value, values
from kquota.cli.progress import progress
from kquota.cli.simulation import simulated
from kquota.cli.streams import note, warn
from kquota.cli.text import amount_text, first_of, rate_text
from kquota.cli.views import View, shown_as
from kquota.core.enforcement.apis import CONNECT_API
from kquota.core.quotas.quota import BYTE_RATES, QuotaKey
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.core.resolve.resolver import Resolver
from kquota.core.simulation.result import Simulation
from kquota.core.simulation.workload import FETCH_API, PRODUCE_API, Workload
from kquota.core.tabular import grouped
from kquota.documents.workload import BATCH_SIZE
from kquota.simulations import Traffic, planned_traffic, ready, recorded_traffic


@grammar.command("simulate")
@shown_as("table", "wide", "json", "csv")
def command(
    *,
    workload_file: Path | None = argument(type=click.Path(path_type=Path), metavar="[WORKLOAD]", required=False),
    event_files: tuple[str, ...] = values(
        "FILE", "Replay recorded requests in place of a workload: usage tables or request logs.", "--events"
    ),
    quotas: Path | None = params.QUOTAS,
    server_properties: Path | None = params.SERVER_PROPERTIES,
    kafka_version: str | None = value(
        "VERSION", "The brokers' Kafka version; else what the workload says, else 4.0. 3.8 changed the windows."
    ),
    quota_window_num: int | None = count("The brokers' quota.window.num, else the workload's."),
    quota_window_size_seconds: int | None = count("The brokers' quota.window.size.seconds, else the workload's."),
    top: int = count("In the table, the N most throttled counters; JSON has all.", default=20),
    calm: bool = flag("In tables, counters that throttled nobody as well, with their peaks.", "--all"),
    fail_on: tuple[str, ...] = choice(
        ["throttled", "undetermined"],
        "Exit with 1 when a client would be throttled, or when --events do not show the usage of a quota that is set."
        " May be given twice.",
        multiple=True,
    ),
    given: Given = params.GIVEN,
) -> View:
    """Show what brokers would do to a workload.

    Runs clients (producers, consumers, topic and other requests, connections) against the quotas, exactly as brokers
    enforce them: who gets how much, who is throttled for how long, who shares a counter with whom, when a quota bites
    and how long recovery takes. schemas/workload.schema.json describes the file.

    What a simulation cannot know: when somebody reads the brokers' metrics, which changes their windows after a silence
    of more than quota.window.size.seconds. Results that depend on it are ranges, over no reading and one every 1, 10
    and 60 s; 'metrics_read' in the workload settles it. Thread time is what the workload says (request_time), and the
    brokers' own load, the network and the disks are not simulated: a response takes 'latency' and 'round_trip'.
    Clients wait with an unlimited memory. Requests of one connection are charged when they are answered. Numbers of
    connections (max.connections and the like) are not limited. Before Kafka 2.0 brokers held back responses: for such
    --kafka-version results are approximations, and say so.

    A million requests and more run compiled, where numba is installed (kquota[kernel]): half a minute of compiling, the
    first time, and then about a million requests a second. Results are the same.

    --events is an open loop: recorded requests come as they came. An export of bins as long as a sample or longer is
    replayed twice: as it is, the most that its clients can have been throttled, and spread evenly over each bin, the
    least. The results are ranges. A request without its size, such as a throttled fetch, is left out. Topics and
    connections are replayed as well; a quota whose usage the recording does not show is undetermined, and named.

    \b
    Examples:
      kquota simulate workload.yaml --quotas quotas.yaml
      kquota simulate workload.yaml --zookeeper localhost:2181 --kafka-version 3.7
      kquota simulate workload.yaml --quotas proposed.yaml --fail-on throttled -o json
      kquota simulate workload.yaml --quotas quotas.yaml --server-properties server.properties
      kquota simulate --events usage.csv --quotas quotas.yaml
    """
    if (workload_file is None) == (not event_files):
        raise click.UsageError(
            "give a WORKLOAD file ('kquota help workload' shows one to copy), or recorded requests with --events FILE"
        )
    source = session.QuotaSource(quotas, given)
    facts = BrokerFacts(kafka_version or "4.0", server_properties, kafka_version is not None)
    if source.file is None:
        facts = session.with_release(facts, source.access)
    if workload_file is not None:
        traffic = planned_traffic(workload_file, facts)
        snapshot = _quotas(traffic, source)
    else:
        snapshot = session.load_quotas(source)
        seconds = quota_window_size_seconds or 1
        traffic = recorded_traffic(
            event_files, facts, snapshot, window_seconds=seconds, left_out=auditing.warn_left_out
        )
    if traffic.settings is not None:
        session.warn_problems(traffic.settings.problems)
    auditing.warn_unread(traffic.unread)
    planned = ready(traffic, snapshot, quota_window_num, quota_window_size_seconds)
    for text in planned.notes:
        warn(text)
    session.warn_ignored(planned.ignored)
    with progress("simulating") as bar:
        result = planned.run(lambda share: bar(share, 1.0))
    _warn(planned.workload, planned.quotas)
    is_sized = workload_file is not None and any(counter.key in BYTE_RATES for counter in result.counters)
    clients = planned.workload.clients if is_sized else ()
    if usual := [client.name for client in clients if client.unit == "bytes" and client.size == BATCH_SIZE]:
        note(f"requests of {BATCH_SIZE} bytes ('size' in the workload changes it): {first_of(usual, repr, 5)}")
    unlimited = () if workload_file is None else result.unlimited
    if unlimited and result.counters:
        them = "it" if len(unlimited) == 1 else "them"
        warn(f"no quota limits {first_of(unlimited, repr, 5)}: nothing can throttle {them}")
    for text in _slow(result, planned.workload):
        warn(text)
    code = ExitCode.PARTIAL if traffic.unread else ExitCode.OK
    throttled = any(client.is_throttled for client in result.clients)
    true = [name for name, holds in (("throttled", throttled), ("undetermined", traffic.unseen)) if holds]
    asked = ", ".join(name for name in true if name in fail_on)
    view = simulated(result, planned, top=top, calm=calm)
    return replace(view, code=code, asked=f"--fail-on {asked}" if asked else "")


def _quotas(traffic: Traffic, source: session.QuotaSource) -> QuotaSnapshot:
    """The quotas of the workload's own file, unless the command line names others.

    Connections to brokers that limit them need none.
    """
    named = source.file is not None or source.cluster.names_a_cluster
    if traffic.quotas is not None and not named:
        return traffic.quotas
    if traffic.needs_no_quotas and not source.is_named:
        return QuotaSnapshot()
    return session.load_quotas(source)


def _slow(result: Simulation, workload: Workload) -> Iterator[str]:
    """Says of which clients something would wait without quotas as well: their own loop is too slow for their load."""
    planned = {client.name: client for client in workload.clients}
    for name, some in grouped(result.clients, lambda client: client.group).items():
        client, offered = planned[name], sum(one.offered for one in some)
        most = len(some) * client.most_per_s
        left = offered - client.most_per_s * sum(one.active_ms for one in some) / 1000
        # Of any load a little waits at the end, as it has just arrived.
        if left < offered / 100 or not any(one.waiting for one in some):
            continue
        of_each = "max_bytes" if client.api == FETCH_API else {"bytes": "size", "partitions": "topics"}.get(client.unit)
        waits = client.cycle_ms > client.latency_ms
        piped = waits and client.api == PRODUCE_API and not client.think_ms
        more = ["connections", of_each, "in_flight" if piped else None]
        yield (
            f"{name!r} does {rate_text(most, f'{client.unit}/s')} at most, whatever the quotas: of what waits,"
            f" {amount_text(left, client.unit)} would wait without any (to raise it: more"
            f" {' or '.join(filter(None, more))}, less latency{' or round_trip or think' if waits else ''})"
        )


def _warn(workload: Workload, quotas: QuotaSnapshot) -> None:
    """Says where a request quota meets clients whose thread time nobody gave."""
    resolver = Resolver.of(quotas, QuotaKey.REQUEST_PERCENTAGE)
    timeless = []
    for client in workload.clients:
        known = client.has_thread_time or client.exempt
        if client.given is None and client.api != CONNECT_API and not known:
            user, client_id = client.user.replace("{n}", "0"), client.client_id.replace("{n}", "0")
            if resolver.resolve(user, client_id).limit is not None:
                timeless.append(client.name)
    if timeless:
        warn(f"no request_time in the workload: request_percentage cannot throttle {first_of(timeless, repr, 5)}")
