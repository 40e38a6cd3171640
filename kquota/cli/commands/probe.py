"""`kquota probe`."""

import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click

from kquota.access import Access
from kquota.brokers import BrokerFacts
from kquota.cli import consent, grammar, params, session
from kquota.cli.exit_codes import ExitCode
from kquota.cli.options import argument, count, flag, lasting, option, path, value
from kquota.cli.progress import progress
from kquota.cli.streams import ask, interrupted_by_sigterm, warn
from kquota.cli.text import Column, amount_text, duration, range_text, rate_text, safe
from kquota.cli.views import Part, Table, View, csv_of, show, shown_as
from kquota.core.findings.finding import subject
from kquota.core.findings.probe import Agreement, Load, Probe
from kquota.core.quotas.quota import limit_text
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.documents.limits import probe_document
from kquota.errors import Refused, placed
from kquota.probe.run import USUAL, Listener, ProbeRequest, ProbeResult, amount, run

PROBES = ("produce", "fetch", "request")


@grammar.command("probe")
@shown_as("table", "json", "csv", takes_output=True)
def command(
    *,
    probe: str = argument(type=click.Choice(PROBES), metavar="|".join(PROBES)),
    topic: str | None = value("NAME", "The topic to produce to, fetch from or ask for; it has to exist."),
    partition: int = option("Which of its partitions.", type=click.IntRange(min=0), default=0),
    create_topic: bool = flag("Create the topic, with one partition, and delete it in the end."),
    rate: str | None = value("RATE", "What to offer per second: bytes such as 500kB (1MB), or requests (20)."),
    size: str | None = value("SIZE", "Bytes of a record (10kB) or of a fetch at most (50kB)."),
    duration: int = lasting("How long, such as 90s or 2m.", default="30s"),
    client: str | None = params.named("client", "The client-id to say. Default: kquota-probe."),
    user: str | None = params.named("user", "Who the broker takes us for, where the login does not say."),
    max_bytes: str = value("SIZE", "Never produce or fetch more.", default="100MB"),
    max_count: int = count("Never more requests.", default=10_000, metavar=None),
    max_duration: int = lasting("Never take longer.", default="5m"),
    quotas: Path | None = path("The quotas, where the probe's login may not read the cluster's."),
    admin_config: Path | None = path(
        "The client.properties of an administrator, who reads the quotas; the probe uses --command-config."
    ),
    yes: bool = flag("Do not ask before anything is sent."),
    facts: BrokerFacts = params.FACTS,
    access: Access = params.ACCESS,
    output: str,
) -> int:
    """Load a live broker a little, and check how it throttles.

    Sends requests of one kind, one at a time, and waits out every throttle as clients do. Prints the throttle times in
    the broker's answers beside what the same client would meet alone under the quotas that are set. The requests go
    to one partition, so to one broker. Its window settings are read from it, or from --server-properties.

    The prediction takes the counter to be idle at the start, and nobody else's: wait for quota.window.num windows
    between two probes. What it takes of the run are sizes, and how long the client and the answers took; not the
    broker's throttle times. Only the broker knows what thread time a request took; a request probe predicts a range,
    from nothing to the time until the answer.

    Topics whose names begin with __ are never touched. The topic of --create-topic is deleted, also after Ctrl-C or
    SIGTERM, which still print what was seen. A fetch probe reads from the beginning and again from there; it joins no
    group and commits nothing.

    \b
    Examples:
      kquota probe produce --topic load --rate 500kB --duration 1m --bootstrap-server localhost:9092
      kquota probe fetch --topic load --command-config alice.properties --admin-config admin.properties
      kquota probe request --topic load --rate 100
    """
    kind = Probe(probe)
    if duration > max_duration:
        raise Refused(f"--duration is longer than {max_duration / 1000:g} s", hint="--max-duration is the bound")
    load = _load(kind, rate, size, duration / 1000, max_bytes, max_count)
    _check(kind)
    if not topic:
        raise click.UsageError(f"which topic? A {probe} probe needs --topic NAME")
    if create_topic and partition:
        raise click.UsageError("a topic of --create-topic has partition 0 only")
    bootstrap, security = session.open_brokers(access)
    facts = session.with_release(facts, access)
    request = ProbeRequest(
        kind,
        load,
        topic,
        "kquota-probe" if client is None else client,
        user,
        partition,
        create_topic,
        facts,
        access.timeout_s,
        None if quotas is None else session.load_quotas_file(quotas),
        None if admin_config is None else session.open_brokers(replace(access, command_config=admin_config))[1],
    )
    if not yes:
        _ask(request, bootstrap)
    consent.name_cluster(session.label(access))
    with interrupted_by_sigterm():
        with progress("probing") as bar:
            begun = time.monotonic()
            bar.watch(lambda: (min(time.monotonic() - begun, load.duration_s), load.duration_s))
            result = run(request, bootstrap, security, _Listening())
        show(_view(result), output)
    if result.ended_by == "bound":
        warn(f"ended by --max-{'bytes' if kind.unit == 'bytes' else 'count'}")
    return ExitCode.INTERRUPTED if result.ended_by == "interrupt" else ExitCode.OK


class _Listening(Listener):
    """Warns on stderr."""

    def warn(self, text: str) -> None:
        warn(text)

    def read(self, snapshot: QuotaSnapshot) -> None:
        session.warn_problems(snapshot.problems)
        session.warn_ignored(snapshot.ignored)

    def ending(self) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it ends anyway


def _check(kind: Probe) -> None:
    """Raises click.UsageError for options that do not go together."""
    for name, allowed in {
        "create_topic": ("produce", "request"),
        "size": ("produce", "fetch"),
        "max_bytes": ("produce", "fetch"),
        "max_count": ("request",),
    }.items():
        if params.on_command_line(name) and kind.value not in allowed:
            raise click.UsageError(f"--{name.replace('_', '-')} is for {' and '.join(allowed)} probes")


def _load(kind: Probe, rate: str | None, size: str | None, duration_s: float, max_bytes: str, max_count: int) -> Load:
    usual, most = USUAL[kind], max_count
    with placed("--size"):
        of_each = usual.size if size is None else int(amount(kind, size))
    if kind.unit == "bytes":
        with placed("--max-bytes"):
            most = int(amount(kind, max_bytes))
        if of_each > most:
            raise Refused(f"--size is more than {most} bytes", hint="--max-bytes is the bound")
    with placed("--rate"):
        speed = usual.rate if rate is None else amount(kind, rate)
    return Load(rate=speed, size=of_each, duration_s=duration_s, most=most)


def _ask(request: ProbeRequest, bootstrap: str) -> None:
    kind, load = request.kind, request.load
    ask(
        f"{kind.value.capitalize()} on {safe(f'{request.topic} of kafka://{bootstrap}')}: "
        f"{rate_text(load.rate, f'{kind.unit}/s')} for {load.duration_s:g} s, "
        f"never more than {amount_text(load.most, kind.unit)}?",
        done="sent",
        yes="sends",
    )


def _view(probe: ProbeResult) -> View:
    """What the broker did beside the prediction, and the verdict."""

    def screen() -> Iterator[Part]:
        yield _table(probe)
        yield _VERDICTS[probe.comparison.agreement.value]

    return View(screen=screen, document=lambda: probe_document(probe), csv=lambda: csv_of([probe], _CSV))


_CSV = """probe=kind broker sensor=resolution.sensor limit=resolution.limit events=comparison.events
    charged=comparison.charged duration_ms=comparison.duration_ms observed_ms=comparison.observed.total_ms
    observed_count=comparison.observed.count least_ms=comparison.least.total_ms least_count=comparison.least.count
    most_ms=comparison.most.total_ms most_count=comparison.most.count"""
_COLUMNS = ("WHO", "LIMIT", "SENT", "DELAYED", "THROTTLE TIME", "LONGEST")


def _table(probe: ProbeResult) -> Table:
    kind, result = probe.kind, probe.comparison
    seen, least, most = result.observed, result.least, result.most
    sent = f"{result.events:,} requests in {duration(result.duration_ms)}"
    charged = amount_text(result.charged, kind.unit) if kind.unit == "bytes" else ""
    # Of noise there is no ratio.
    known = result.ratio if result.agreement is not Agreement.NOT_THROTTLED else None
    ratio = "-" if known is None else range_text(*(f"{bound:.3f}" for bound in known))
    styles = {"WHO": "cyan", "LIMIT": "bold"}
    return Table(
        [
            Column(name, number=name != "WHO", style=styles.get(name, ""), spare=1 if name == "SENT" else 0)
            for name in _COLUMNS
        ],
        [
            (
                (f"observed on broker {probe.broker}", subject(kind.key, str(probe.resolution.sensor))),
                limit_text(kind.key, probe.resolution.limit),
                (sent, charged),
                seen.count,
                duration(seen.total_ms),
                duration(seen.longest_ms),
            ),
            (
                "predicted",
                "",
                "",
                range_text(f"{least.count:,}", f"{most.count:,}"),
                range_text(duration(least.total_ms), duration(most.total_ms)),
                range_text(duration(least.longest_ms), duration(most.longest_ms)),
            ),
            ("predicted / observed", "", "", "", ratio, ""),
        ],
    )


_VERDICTS = {
    "not throttled": "Verdict: not throttled, as predicted. Waits below 1 % of the run are noise.",
    "as predicted": "Verdict: throttled as predicted.",
    "more than predicted": "Verdict: throttled more than predicted: does another quota throttle it, does another client"
    " share its counter, was it in use before, or is the quota lower?",
    "less than predicted": "Verdict: throttled less than predicted: has the quota changed, or does another one apply?",
}
