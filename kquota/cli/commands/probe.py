"""`kquota probe`."""

from __future__ import annotations

import secrets
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kquota.cli import params, session
from kquota.cli.contexts import settled
from kquota.cli.exit_codes import ExitCode
from kquota.cli.streams import ask, warn
from kquota.errors import InputError, Refused, Unauthorized

if TYPE_CHECKING:
    from kquota.backends.kafka import KafkaSecurity
    from kquota.backends.kafka.brokers import Endpoint
    from kquota.core.findings.probe import Comparison, Exchange, Limits, Opening, Probe
    from kquota.core.quotas.snapshot import QuotaSnapshot
    from kquota.core.resolve.resolver import Resolution
    from kquota.probe.client import Partition
    from kquota.probe.load import Load, Pace

PROBES = ("produce", "fetch", "request", "mutation", "connection")
_RATES = {"produce": "1MB", "fetch": "1MB", "request": "20", "mutation": "2", "connection": "5"}
_SIZES = {"produce": 10_000, "fetch": 50_000, "mutation": 1}
_ON_TOPIC = PROBES[:3]
_PARTITIONS_OF_A_TOPIC = 100
"""More than this would be a mistake."""


@click.command("probe")
@click.argument("probe", type=click.Choice(PROBES), metavar="|".join(PROBES))
@click.option("--topic", metavar="NAME", help="The topic to produce to, fetch from or ask for; it has to exist.")
@click.option("--partition", type=click.IntRange(min=0), default=0, show_default=True, help="Which of its partitions.")
@click.option("--create-topic", is_flag=True, help="Create the topic, with one partition, and delete it in the end.")
@click.option("--prefix", metavar="NAME", help="How the names of the topics begin that a mutation probe creates.")
@click.option("--broker", type=click.IntRange(min=0), metavar="ID", help="The broker to open connections to.")
@click.option(
    "--rate",
    metavar="RATE",
    help="What to offer per second: bytes such as 500kB (1MB), requests (20), partitions (2) or connections (5).",
)
@click.option(
    "--size",
    metavar="SIZE",
    help="Bytes of a record (10kB) or of a fetch at most (50kB); partitions of a topic (1).",
)
@click.option("--duration", type=params.DURATION, default="30s", show_default=True, help="How long, such as 90s or 2m.")
@click.option("--client-id", default="kquota-probe", show_default=True, help="The client-id to say.")
@click.option("--user", metavar="NAME", help="Who the broker takes us for, where the login does not say.")
@click.option("--max-bytes", default="100MB", show_default=True, metavar="SIZE", help="Never produce or fetch more.")
@click.option(
    "--max-count",
    type=click.IntRange(min=1),
    default=10_000,
    show_default=True,
    help="Never more requests, partitions or connections.",
)
@click.option("--max-duration", type=params.DURATION, default="5m", show_default=True, help="Never take longer.")
@click.option(
    "--request-log",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The broker's own JSON request log, for the thread time of a request probe.",
)
@click.option("--yes", is_flag=True, help="Do not ask before anything is sent.")
@params.server_properties_option
@params.kafka_version_option
@params.cluster_options
@params.output_option("table", "json", "csv")
def command(probe: str, output: str, **options: Any) -> int:
    """Load a live broker a little, and compare how it throttles with the prediction.

    Sends requests of one kind, one at a time, waits out every throttle as clients do, and prints the throttle times
    that the broker answered beside those that kquota computes from what was sent and the quotas that are set. What is
    sent goes to one partition, so to one broker. Its window settings are read from it, or from --server-properties.

    The prediction takes the counter to be idle at the start, and nobody else's: wait for quota.window.num windows
    between two probes. Only the broker knows what thread time a request took; a request probe predicts a range, from
    the handler time in --request-log (else from nothing) to the time until the answer.

    Topics whose names begin with __ are never touched. A mutation probe deletes the topics that it created, also after
    Ctrl-C or SIGTERM, which still print what was seen. A fetch probe reads from the beginning and again from there; it
    joins no group and commits nothing.

    \b
    Examples:
      kquota probe produce --topic load --rate 500kB --duration 1m --bootstrap-server localhost:9092
      kquota probe fetch --topic load --client-id app1 --command-config alice.properties
      kquota probe request --topic load --rate 100 --request-log kafka-request.log
      kquota probe mutation --prefix kquota-probe- --duration 20s
      kquota probe connection --rate 20 --broker 1
    """
    from kquota.core.findings.probe import Probe
    from kquota.probe import client as rdkafka

    if probe != "connection":
        rdkafka.require()
    kind = Probe(probe)
    load = _load(kind, options)
    _check(kind, options)
    options = settled(options)
    bootstrap, security = session.open_brokers(options)
    _ask(kind, load, bootstrap, options)
    run = _Run(kind, load, bootstrap, security, options)
    with _interrupted_by_sigterm():
        return run.report(run.execute(), output)


@contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """SIGTERM is Ctrl-C meanwhile, once: whatever sends more of them is not to disturb the cleaning up."""

    def interrupt(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _check(kind: Probe, options: dict[str, Any]) -> None:
    """Raises click.UsageError for options that do not go together, Refused for what is never touched."""
    topic, prefix = options["topic"], options["prefix"]
    if kind.value in _ON_TOPIC and not topic:
        raise click.UsageError(f"which topic? A {kind.value} probe needs --topic NAME")
    if kind.value == "mutation" and not prefix:
        raise click.UsageError("which topics? A mutation probe needs --prefix NAME")
    for name, allowed in {
        "topic": _ON_TOPIC,
        "partition": _ON_TOPIC,
        "create_topic": ("produce", "request"),
        "prefix": ("mutation",),
        "broker": ("connection",),
        "request_log": ("request",),
        "size": tuple(_SIZES),
        "max_bytes": ("produce", "fetch"),
        "max_count": ("request", "mutation", "connection"),
    }.items():
        if session.on_command_line(name) and kind.value not in allowed:
            raise click.UsageError(f"--{name.replace('_', '-')} is for {' and '.join(allowed)} probes")
    for name in (topic, prefix):
        if name is not None and name.startswith("__"):
            raise Refused(f"{name}: topics that begin with __ are Kafka's own")
    if options["create_topic"] and options["partition"]:
        raise click.UsageError("a topic of --create-topic has partition 0 only")


def _load(kind: Probe, options: dict[str, Any]) -> Load:
    from kquota.core.quotas.quota import QuotaKey, parse_value
    from kquota.probe.load import Load

    duration_ms, longest_ms = options["duration"], options["max_duration"]
    if duration_ms > longest_ms:
        raise Refused(f"--duration is longer than {longest_ms / 1000:g} s", hint="--max-duration is the bound")
    in_bytes = kind.unit == "bytes"

    def number(name: str, text: str, *, as_bytes: bool) -> float:
        try:
            if as_bytes:
                return float(parse_value(QuotaKey.PRODUCER_BYTE_RATE, text))
            value = float(text)
        except (InputError, ValueError):
            raise InputError(f"--{name}: {text!r} is not a number above 0") from None
        if not 0 < value < float("inf"):
            raise InputError(f"--{name}: {text!r} is not a number above 0")
        return value

    size = int(number("size", options["size"] or str(_SIZES.get(kind.value, 1)), as_bytes=True))
    most = int(number("max-bytes", options["max_bytes"], as_bytes=True)) if in_bytes else options["max_count"]
    if in_bytes and size > most:
        raise Refused(f"--size is more than {most} bytes", hint="--max-bytes is the bound")
    if kind.unit == "partitions" and size > _PARTITIONS_OF_A_TOPIC:
        raise Refused(f"a topic of {size} partitions", hint=f"--size is at most {_PARTITIONS_OF_A_TOPIC} there")
    rate = number("rate", options["rate"] or _RATES[kind.value], as_bytes=in_bytes)
    return Load(rate=rate, size=size, duration_s=duration_ms / 1000, most=most)


def _ask(kind: Probe, load: Load, bootstrap: str, options: dict[str, Any]) -> None:
    if options["yes"]:
        return
    from kquota.cli.text import amount_text, rate_text, safe

    where = options["topic"] or (f"topics {options['prefix']}…" if options["prefix"] else "")
    ask(
        f"{kind.value.capitalize()} on {safe(f'{where} of kafka://{bootstrap}'.removeprefix(' of '))}: "
        f"{rate_text(load.rate, f'{kind.unit}/s')} for {load.duration_s:g} s, "
        f"never more than {amount_text(load.most, kind.unit)}?",
        done="sent",
        yes="sends",
    )


@dataclass(frozen=True)
class _Target:
    """Where the load goes, and what governs it there."""

    broker: int
    partition: Partition | None
    endpoint: Endpoint | None
    resolution: Resolution
    limits: Limits


class _Run:
    """One probe: prepared, run, cleaned up, and printed whatever ended it."""

    def __init__(
        self, kind: Probe, load: Load, bootstrap: str, security: KafkaSecurity, options: dict[str, Any]
    ) -> None:
        self._kind, self._load, self._bootstrap, self._security = kind, load, bootstrap, security
        self._options = options
        self._exchanges: list[Exchange] = []
        self._openings: list[Opening] = []
        self._before: list[float] = []
        self._ip: str | None = None
        self._ended_by = "duration"
        self._is_named = kind.value != "connection"
        self._user = self._principal() if self._is_named else None

    def _principal(self) -> str:
        """The user that the broker takes us for."""
        user: str | None = self._options["user"]
        if user is not None:
            return user
        if self._security.sasl is not None:
            return str(getattr(self._security.sasl, "username", ""))
        if self._security.tls is not None and self._security.tls.identity is not None:
            raise InputError("the user of a certificate is the broker's to say", hint="--user NAME")
        return "ANONYMOUS"

    def execute(self) -> _Target:
        """Reads what governs the client, runs the load, and deletes what was created."""
        from kquota.probe import client as rdkafka

        timeout_s = self._options["timeout"]
        if not self._is_named:
            target = self._prepared(None)
            self._guarded(lambda pace: self._connect(target, pace))
            return target
        from kquota.backends.kafka.librdkafka import settings_of

        settings = settings_of(self._bootstrap, self._security, self._options["client_id"])
        control = rdkafka.Control(settings, timeout_s)
        created: list[str] = []
        try:
            topic: str | None = self._options["topic"]
            if self._options["create_topic"]:
                assert topic is not None
                control.create(topic, created)
            partition = None if topic is None else control.partition(topic, self._options["partition"])
            target = self._prepared(partition)
            self._guarded(lambda pace: self._drive(settings, partition, pace, created))
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it ends anyway
            left = control.delete(created) if created else []
            if left:
                warn(f"not deleted: {', '.join(left)}")
        return target

    def _prepared(self, partition: Partition | None) -> _Target:
        """Reads the quotas and the broker's settings."""
        from kquota.backends.kafka import KafkaBackend
        from kquota.backends.kafka.brokers import KafkaBrokerConfigs

        timeout_s = self._options["timeout"]
        self._before.append(time.time() * 1000)
        with KafkaBackend(self._bootstrap, timeout_s=timeout_s, security=self._security) as backend:
            snapshot = backend.describe()
        session.warn_problems(snapshot)
        with KafkaBrokerConfigs(self._bootstrap, timeout_s=timeout_s, security=self._security) as configs:
            self._before.append(time.time() * 1000)
            broker = partition.leader if partition is not None else self._options["broker"]
            if broker is None:
                broker = min(configs.addresses())
            endpoint = self._endpoint(configs, broker)
            self._before.append(time.time() * 1000)
        if not self._is_named:
            from kquota.probe.connections import local_ip

            assert endpoint is not None
            self._ip = local_ip(endpoint.server)
        resolution = self._resolution(snapshot)
        return _Target(broker, partition, endpoint, resolution, self._limits(endpoint, resolution))

    def _endpoint(self, configs: Any, broker: int) -> Endpoint | None:
        from kquota.core.quotas.version import parse_version

        try:
            endpoint: Endpoint = configs.endpoint(broker, parse_version(self._options["kafka_version"]))
        except Unauthorized as error:
            if not self._is_named:
                raise
            warn(f"broker {broker} does not tell its settings: {error.message}")
            return None
        return endpoint

    def _resolution(self, snapshot: QuotaSnapshot) -> Resolution:
        from kquota.core.quotas.quota import QuotaKey, humanize
        from kquota.core.resolve.resolver import resolve, resolve_ip

        snapshot = session.enforced_by_brokers(self._options)(snapshot)
        session.warn_ignored(snapshot.ignored)
        if not self._is_named:
            assert self._ip is not None
            return resolve_ip(snapshot, self._ip)
        assert self._user is not None
        found = {each.key: each for each in resolve(snapshot, self._user, self._options["client_id"])}
        other = found[QuotaKey.REQUEST_PERCENTAGE]
        if self._kind.key is not other.key and other.limit is not None:
            warn(
                f"{other.key} ({humanize(other.key, other.limit)}) throttles this client as well: "
                "what it does is observed and not predicted"
            )
        return found[self._kind.key]

    def _limits(self, endpoint: Endpoint | None, resolution: Resolution) -> Limits:
        from kquota.core.enforcement import Generation
        from kquota.core.enforcement.settings import BrokerSettings
        from kquota.core.findings.probe import Limits

        told = session.load_broker_settings(self._options) or (
            BrokerSettings() if endpoint is None else endpoint.settings
        )
        windows = told.controller_windows if self._kind.value == "mutation" else told.windows
        generation = Generation.for_version(self._options["kafka_version"])
        limits = Limits(resolution.limit, windows, generation)
        if self._is_named or endpoint is None:
            return limits
        live = endpoint.settings
        if endpoint.listener is None:
            raise InputError(f"broker {endpoint.server} does not tell which of its listeners that is")
        return replace(
            limits,
            listener=endpoint.listener,
            listeners=dict(live.listeners),
            inter_broker=live.inter_broker_listener,
            broker=live.connection_rate,
        )

    def _guarded(self, run: Callable[[Pace], None]) -> None:
        """Runs the load; Ctrl-C and SIGTERM end it."""
        from kquota.probe.load import Pace

        pace = Pace(self._load)
        try:
            run(pace)
        except KeyboardInterrupt:
            self._ended_by = "interrupt"
        else:
            self._ended_by = "bound" if pace.exhausted else "duration"

    def _connect(self, target: _Target, pace: Pace) -> None:
        from kquota.probe.connections import open_connections

        assert target.endpoint is not None
        server = target.endpoint.server
        open_connections(server, self._security, pace, self._options["timeout"], self._openings.append)

    def _drive(self, settings: dict[str, Any], partition: Partition | None, pace: Pace, created: list[str]) -> None:
        from kquota.probe import client as rdkafka

        if partition is None:
            prefix = f"{self._options['prefix']}{secrets.token_hex(4)}-"
            rdkafka.mutate(settings, prefix, pace, self._exchanges, created)
            return
        drive = {"produce": rdkafka.produce, "fetch": rdkafka.fetch, "request": rdkafka.request}[self._kind.value]
        drive(settings, partition, pace, self._exchanges)

    def _compared(self, target: _Target) -> Comparison:
        from kquota.core.findings.probe import compare, compare_connections

        if self._ip is not None:
            return compare_connections(self._openings, self._before, self._ip, target.limits)
        log: Path | None = self._options["request_log"]
        handled = None
        if log is not None:
            from kquota.probe.requestlog import handler_ms

            handled = handler_ms(log, self._options["client_id"], self._exchanges)
        return compare(self._kind, self._exchanges, target.limits, handled)

    def report(self, target: _Target, output: str) -> int:
        """Prints what was seen, and returns the exit code."""
        result = self._compared(target)
        client = (self._user, self._options["client_id"] if self._is_named else None, self._ip)
        if output == "json":
            from kquota.documents.encoding import to_json
            from kquota.documents.probe import probe_document

            document = probe_document(
                self._kind, client, target.broker, target.resolution, target.limits, result, self._ended_by
            )
            click.echo(to_json(document), nl=False)
        else:
            _print(self._kind, target, result, output)
        if self._ended_by == "bound":
            name = "bytes" if self._kind.unit == "bytes" else "count"
            warn(f"ended by --max-{name}")
        return ExitCode.INTERRUPTED if self._ended_by == "interrupt" else ExitCode.OK


def _print(kind: Probe, target: _Target, result: Comparison, output: str) -> None:
    from kquota.cli.text import Column, amount_text, duration, print_csv, print_table, range_text

    if output == "csv":
        print_csv(
            (
                *("probe", "broker", "sensor", "limit", "events", "charged", "duration_ms"),
                *("observed_ms", "observed_count", "least_ms", "least_count", "most_ms", "most_count"),
            ),
            [
                (
                    kind.value,
                    target.broker,
                    target.resolution.sensor,
                    target.resolution.limit,
                    result.events,
                    result.charged,
                    result.duration_ms,
                    result.observed.total_ms,
                    result.observed.count,
                    result.least.total_ms,
                    result.least.count,
                    result.most.total_ms,
                    result.most.count,
                )
            ],
        )
        return
    seen, least, most = result.observed, result.least, result.most
    events = {"connection": "connections"}.get(kind.value, "requests")
    sent = f"{result.events} {events} in {duration(result.duration_ms)}"
    charged = amount_text(result.charged, kind.unit) if kind.unit in ("bytes", "partitions") else ""
    ratio = "-" if result.ratio is None else range_text(*(f"{each:.3f}" for each in result.ratio))
    print_table(
        [
            Column("COUNTER", style="cyan"),
            Column("LIMIT", number=True, style="bold"),
            Column("SENT", number=True),
            Column("THROTTLED", number=True),
            Column("TIME", number=True),
            Column("LONGEST", number=True),
        ],
        [
            (
                (f"observed on broker {target.broker}", target.resolution.sensor),
                _limit_texts(kind, target),
                (sent, charged),
                seen.count,
                duration(seen.total_ms),
                duration(seen.longest_ms),
            ),
            (
                "predicted",
                "",
                "",
                range_text(str(least.count), str(most.count)),
                range_text(duration(least.total_ms), duration(most.total_ms)),
                range_text(duration(least.longest_ms), duration(most.longest_ms)),
            ),
            ("predicted / observed", "", "", "", ratio, ""),
        ],
    )
    click.echo(_VERDICTS[result.agreement.value])


_VERDICTS = {
    "not throttled": "Verdict: not throttled, as predicted. The load did not reach the limit.",
    "as predicted": "Verdict: throttled as predicted.",
    "more than predicted": "Verdict: throttled more than predicted: do others share its counter (kquota help sharing)?",
    "less than predicted": "Verdict: throttled less than predicted: has the quota changed, or does another one apply?",
}


def _limit_texts(kind: Probe, target: _Target) -> tuple[str, ...]:
    from kquota.core.quotas.quota import humanize

    limit = target.resolution.limit
    texts = ["unlimited" if limit is None else humanize(kind.key, limit)]
    limits = target.limits
    if limits.broker is not None:
        texts.append(f"broker {limits.broker}/s")
    of_listener = limits.listeners.get(limits.listener)
    if of_listener is not None:
        texts.append(f"listener {of_listener}/s")
    return tuple(texts)
