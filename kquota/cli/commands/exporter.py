"""`kquota exporter`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from kquota.backends.secrets import crosses_networks
from kquota.brokers import BrokerFacts
from kquota.cli import grammar, params, session
from kquota.cli import live as watched
from kquota.cli.exit_codes import ExitCode
from kquota.cli.options import count, flag, lasting, path, value, values
from kquota.cli.streams import note, stoppable, warn
from kquota.core.change.lint import Facts, lint
from kquota.core.change.plan import Plan, plan
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.documents.journal import Journal
from kquota.errors import InputError, KquotaError, Refused
from kquota.leases import Leases
from kquota.live.exporter import Exporter, exposition, serve
from kquota.live.watching import Watching
from kquota.reconcile import now


@grammar.command("exporter")
def command(
    *,
    live: watched.Asked = watched.ASKED,
    against: Path | None = path("A quotas file: exports the drift from it."),
    cluster: str | None = value("NAME", "The cluster of the overlays in the file of --against."),
    listen: str = value("HOST:PORT", "Where to serve /metrics.", default="127.0.0.1:9645"),
    public: bool = flag("Listen on an address that other hosts reach: there is no login."),
    once: bool = flag("Print the metrics once on stdout, and end."),
    interval: int = lasting("How often quotas and metrics are read.", default="15s"),
    max_series: int = count(
        "The most limits to export, those nearest to their limit first; the rest is summed.", default=10_000
    ),
    labels: tuple[str, ...] = values(
        "NAME=VALUE", "A label for every sample, such as cluster=prod; repeat it for several.", "--label"
    ),
    journal: Path = params.JOURNAL,
    facts: BrokerFacts = params.FACTS,
    source: session.QuotaSource = params.SOURCE,
) -> int:
    """Serve limits, drift, leases and findings to Prometheus.

    Brokers export how much each counter uses, and not which limit governs it. kquota_limit has the labels of the
    brokers' own series, whatever rules made them. So use divided by limit is one join, for defaults and shared counters
    too. Beside it are the time until a counter is throttled, drift from a quotas file, when 'kquota apply --for' ends,
    and findings of lint. 'kquota generate prometheus' writes rules and alerts for it.

    A cluster that is lost later leaves the metrics of before, with their age in kquota_age_seconds. Whoever reaches
    the address reads all names of users and clients: without --public it is one of this host only.

    \b
    Examples:
      kquota exporter --bootstrap-server localhost:9092 --metrics http://broker-1:7071/metrics
      kquota exporter --context prod --prometheus http://prometheus:9090 --label cluster=prod
      kquota exporter --quotas quotas.yaml --metrics page.prom --once
      kquota exporter --context prod --against quotas.yaml --listen 0.0.0.0:9645 --public
    """
    if cluster is not None and against is None:
        raise click.UsageError("--cluster is of the file of --against: give that, too")
    quotas = watched.quotas_reader(source, facts)
    watching = Watching(live.open(source.cluster.timeout_s), watched.enforcers(facts)) if live.is_named else None
    known = None if source.access is None else source.access.address
    book = Journal(journal) if source.access is None else session.journal(journal, source.access)
    exporter = Exporter(
        quotas,
        None if watching is None else watching.look,
        None if against is None else lambda snapshot: _drift(snapshot, against, cluster),
        None if known is None else lambda: _leases(book, known),
        lambda snapshot: lint(snapshot, Facts(version=facts.version if facts.is_named else None)),
        dict(map(watched.label, labels)),
        max_series,
    )
    if once:
        exporter.refresh(now(), KquotaError)
        click.echo(exposition(exporter.families(now()), exporter.labels), nl=False)
        return _missing(exporter)
    if interval < 1000:
        raise click.UsageError("--interval is at least 1s")
    address = _address(listen, public)
    exporter.refresh(now(), InputError)
    with stoppable() as stop:
        stop_serving, port = serve(exporter, *address, now)
        note(f"serving http://{address[0]}:{port}/metrics, renewed every {interval / 1000:g} s")
        try:
            reported: Mapping[str, str] = {}
            while True:
                reported = _say(exporter.errors, reported)
                stop.wait(interval / 1000)
                if stop():
                    return ExitCode.OK
                exporter.refresh(now())
        finally:
            stop_serving()


def _drift(snapshot: QuotaSnapshot, file: Path, cluster: str | None) -> Plan:
    """What a plan of the file would change, with all that the file does not name."""
    wanted = session.load_quota_file(file, cluster)
    return plan(snapshot, wanted.desired, prune=True, unmanaged=wanted.unmanaged)


def _leases(journal: Journal, cluster: str) -> Mapping[str, int]:
    """The writes of that cluster with values that have still to end, and the recordings that are not switched back."""
    pages = journal.read()
    entries = pages.of(cluster)
    ends: dict[str, int] = {}
    for lease in Leases.of(entries).on:
        ends[lease.entry.id] = min(lease.ends, ends.get(lease.entry.id, lease.ends))
    for entry in entries:
        if entry.levels and entry.expires is not None and pages.can_be_undone(entry):
            ends[entry.id] = entry.expires
    return ends


def _missing(exporter: Exporter) -> int:
    """Names the pages that did not answer; the exit code is 9 where there are any."""
    part = exporter.parts.get("metrics")
    missing = () if part is None or part.value is None else part.value.look.missing
    for place, why in missing:
        warn(f"{place} is left out: {why}")
    return ExitCode.PARTIAL if missing else ExitCode.OK


def _say(errors: Mapping[str, str], before: Mapping[str, str]) -> Mapping[str, str]:
    """Says which parts were lost and which came back since, a line each; returns the errors."""
    for name, error in errors.items():
        if before.get(name) != error:
            warn(f"{name}: {error}; the metrics of before stay, and kquota_age_seconds says how old they are")
    for name in before:
        if name not in errors:
            note(f"kquota: {name}: read again")
    return errors


def _address(listen: str, public: bool) -> tuple[str, int]:
    """Host and port. Raises click.UsageError for another text, Refused for an address that other hosts reach."""
    host, _, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise click.UsageError("--listen takes HOST:PORT, such as 127.0.0.1:9645")
    if not public and crosses_networks([host]):
        raise Refused(
            f"{host or 'every address'}:{port} can be reached from other hosts, and there is no login",
            hint="--public listens there all the same",
        )
    return host or "0.0.0.0", int(port)  # noqa: S104 - only with --public
