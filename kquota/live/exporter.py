"""What the exporter serves: the limit of every live counter with the labels of the brokers' own series, and the rest.

`kquota_limit` has the labels that identify the counter in the dialect that was found, so that use divided by limit is
one join. The state is a value that is renewed at intervals; what cannot be renewed stays, with its age beside it.
"""

from collections import Counter as Counts
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

from kquota import __version__
from kquota.core.change.lint import Finding
from kquota.core.change.plan import Action, Plan
from kquota.core.findings.use import Use
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.errors import InputError, KquotaError, MissingDependency
from kquota.live.watching import View
from kquota.metrics.series import IDENTITY, Nature

MOST_SERIES: Final = 10_000
_PREFIX: Final = "kquota_"
Labels = Mapping[str, str]


class Family(NamedTuple):
    """A metric by its name, with all its samples."""

    name: str
    help: str
    samples: Sequence[tuple[Labels, float]]


@dataclass
class Part:
    """One thing that is read again and again: what it was last, when that was, and why it failed since."""

    name: str
    value: Any = None
    at_ms: int | None = None
    error: str | None = None

    def renew(self, read: Callable[[], Any], now_ms: int, fatal: type[KquotaError] | None = None) -> Any:
        """Reads it. A failure leaves the value of before, with its age; None where there never was one.

        Raises the errors that are `fatal`.
        """
        try:
            self.value, self.at_ms, self.error = read(), now_ms, None
        except KquotaError as error:
            if fatal is not None and isinstance(error, fatal):
                raise
            self.error = error.message
        return self.value


@dataclass
class Exporter:
    """The state of the exporter: its parts. A part without a reader is left out."""

    read_quotas: Callable[[], QuotaSnapshot]
    look: Callable[[QuotaSnapshot], View] | None = None
    """Reads live metrics; None where only the quotas themselves are exported."""
    read_drift: Callable[[QuotaSnapshot], Plan] | None = None
    read_leases: Callable[[], Mapping[str, int]] | None = None
    """When each write ends that ends by itself (`kquota apply --for`), in epoch ms by the entry of the journal."""
    lint: Callable[[QuotaSnapshot], Sequence[Finding]] | None = None
    labels: Labels = field(default_factory=dict)
    """Labels that every sample bears, such as the cluster."""
    most_series: int = MOST_SERIES
    parts: dict[str, Part] = field(default_factory=dict)

    def refresh(self, now_ms: int, fatal: type[KquotaError] | None = None) -> None:
        """Reads all parts again; a part that fails keeps its value. Raises the errors that are `fatal`."""
        quotas = self._part("quotas").renew(self.read_quotas, now_ms, fatal)
        if self.read_leases is not None:
            self._part("journal").renew(self.read_leases, now_ms, fatal)
        if quotas is None:
            return
        readers: dict[str, Callable[[QuotaSnapshot], object] | None]
        readers = {"metrics": self.look, "drift": self.read_drift, "lint": self.lint}
        for name, read in readers.items():
            if read is not None:
                self._part(name).renew(partial(read, quotas), now_ms, fatal)

    @property
    def errors(self) -> Mapping[str, str]:
        """Why parts could not be read at the last refresh."""
        return {name: part.error for name, part in self.parts.items() if part.error is not None}

    def _part(self, name: str) -> Part:
        return self.parts.setdefault(name, Part(name))

    def families(self, now_ms: int) -> list[Family]:
        """All metrics as they are at that moment: ages count from the moment of the question."""
        families = [*self._health(now_ms)]
        value = {name: part.value for name, part in self.parts.items() if part.value is not None}
        if "quotas" in value:
            families.append(Family("entities", "Entities that have a quota.", [({}, len(value["quotas"]))]))
        if "metrics" in value:
            families += use_families(value["metrics"], self.most_series)
        if "drift" in value:
            help = "Entities whose quotas are not those of the file: absent, different, or unexpected."
            drift = [({"state": state}, value["drift"].count(action)) for action, state in _DRIFT.items()]
            families.append(Family("drift_entities", help, drift))
        if "journal" in value:
            help = "When 'kquota apply --for' ends, by the entry of the journal."
            leases = [({"entry": entry}, ends_ms / 1000) for entry, ends_ms in value["journal"].items()]
            families.append(Family("lease_expires_timestamp_seconds", help, leases))
        if "lint" in value:
            families.append(_lint_family(value["lint"]))
        return families

    def _health(self, now_ms: int) -> Iterator[Family]:
        parts = list(self.parts.values())
        yield Family("build_info", "The version of kquota.", [({"version": __version__}, 1)])
        up = [({"part": part.name}, float(part.error is None)) for part in parts]
        yield Family("part_up", "Whether the last attempt to read a part was successful.", up)
        known = [(part, part.at_ms) for part in parts if part.at_ms is not None]
        last = [({"part": part.name}, at_ms / 1000) for part, at_ms in known]
        yield Family("last_success_timestamp_seconds", "When a part was read; its metrics are of that time.", last)
        ages = [({"part": part.name}, max(now_ms - at_ms, 0) / 1000) for part, at_ms in known]
        yield Family("age_seconds", "How old the metrics of a part are.", ages)


def use_families(view: View, most: int) -> Iterator[Family]:
    """The metrics of all counters. The limits are at most that many series; what is left out is summed by key."""
    limits, left_out = _limits(view, most)
    help = "The limit that governs a counter, with the labels of the brokers' own series; units of the key per second."
    yield Family("limit", help, [(labels, float(use.limit or 0)) for labels, use in limits.values()])
    until = []
    for use in view.uses:
        kept = limits.get(use.counter[1:])
        if kept is not None and use.until_throttled_s is not None:
            until.append(({**kept[0], "broker": use.counter.broker}, use.until_throttled_s))
    help = "Seconds until a counter is over its limit at the present rate; without a sample it never is."
    yield Family("until_throttled_seconds", help, until)
    states = Counts((use.counter.key, use.state) for use in view.uses)
    yield Family(
        "counters",
        "Live counters of all brokers, by how near they are to their limit.",
        [({"key": key.value, "state": state.value}, number) for (key, state), number in states.items()],
    )
    rest = [use for use in view.uses if use.counter[1:] in left_out]
    keys = sorted({use.counter.key.value for use in rest})
    by_key = {key: [use for use in rest if use.counter.key.value == key] for key in keys}
    yield Family(
        "left_out_counters",
        "Counters of brokers whose limit is not exported, because there are more than --max-series.",
        [({"key": key}, len(by_key[key])) for key in keys],
    )
    yield Family(
        "left_out_rate",
        "The rates of the counters that were left out, added up.",
        [({"key": key}, sum(use.observed.rate or 0 for use in by_key[key])) for key in keys],
    )
    yield Family(
        "left_out_limit",
        "The limits of the counters that were left out, added up.",
        [({"key": key}, float(sum(use.limit or 0 for use in by_key[key]))) for key in keys],
    )
    newest = [(dict[str, str](), max(use.observed.at_ms for use in view.uses) / 1000)] if view.uses else []
    yield Family("newest_sample_timestamp_seconds", "When the newest sample of a counter was taken.", newest)
    yield Family("brokers_missing", "Pages of metrics without an answer.", [({}, len(view.look.missing))])
    yield Family("series_unread", "Series of quotas whose labels no known rule makes.", [({}, len(view.look.unread))])


_Tags = tuple[Any, ...]
"""(key, user, client-id): a counter of any broker. The limit is the same on all brokers."""


def _limits(view: View, most: int) -> tuple[dict[_Tags, tuple[Labels, Use]], set[_Tags]]:
    """The labels of each counter that is exported, and the counters that are left out: those far from their limits."""
    identities = _identities(view)
    chosen: dict[_Tags, tuple[Labels, Use]] = {}
    left_out: set[_Tags] = set()
    for use in view.uses:  # the worst first
        tags = use.counter[1:]
        if use.limit is None or use.level is None or tags in chosen:
            continue
        if len(chosen) >= most:
            left_out.add(tags)
            continue
        level = {
            "key": use.counter.key.value,
            "level": use.level.label,
            "entity": "static default" if use.entity is None else str(use.entity),
        }
        chosen[tags] = {**identities[tags], **level}, use
    return chosen, left_out


def _identities(view: View) -> dict[_Tags, Labels]:
    """By counter, the labels that identify it in the brokers' own series: those of the rate, where there is one."""
    identities: dict[_Tags, Labels] = {}
    for sample in sorted(view.look.samples, key=lambda sample: sample.series.nature in (Nature.RATE, Nature.COUNTER)):
        identity = {name: sample.labels[name] for name in IDENTITY if sample.labels.get(name)}
        identities[sample.series.counter[1:]] = identity
    return identities


_DRIFT: Final = {Action.CREATE: "absent", Action.UPDATE: "different", Action.DELETE: "unexpected"}


def _lint_family(findings: Sequence[Finding]) -> Family:
    counts = Counts((finding.rule.name, str(finding.severity)) for finding in findings)
    samples = [({"rule": rule, "severity": severity}, number) for (rule, severity), number in sorted(counts.items())]
    return Family("lint_findings", "Findings of 'kquota lint' on the live quotas, by rule.", samples)


# --- Prometheus's own library ---------------------------------------------------------------------------------------


def exposition(families: Iterable[Family], labels: Labels) -> str:
    """The text format, every sample with these labels as well. Raises MissingDependency without prometheus-client."""
    client, registry = _registered(lambda: families, labels)
    text: bytes = client.generate_latest(registry)
    return text.decode()


def serve(exporter: Exporter, host: str, port: int, clock: Callable[[], int]) -> tuple[Callable[[], None], int]:
    """Serves the exporter's metrics; returns how to stop, and the port.

    Raises MissingDependency without prometheus-client, InputError for an address that cannot be taken.
    """
    client, registry = _registered(lambda: exporter.families(clock()), exporter.labels)
    try:
        server, thread = client.start_http_server(port, addr=host, registry=registry)
    except (OSError, OverflowError) as error:
        raise InputError(f"cannot listen on {host}:{port}: {getattr(error, 'strerror', None) or error}") from None

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return stop, int(server.server_port)


def _registered(families: Callable[[], Iterable[Family]], labels: Labels) -> tuple[Any, Any]:
    """The library, and a registry that collects these families."""
    try:
        import prometheus_client
    except ImportError:
        raise MissingDependency("the exporter needs prometheus-client", extra="exporter") from None
    registry = prometheus_client.CollectorRegistry()
    registry.register(_Collector(families, labels))
    return prometheus_client, registry


@dataclass(eq=False)
class _Collector:
    """Families as prometheus-client collects them."""

    families: Callable[[], Iterable[Family]]
    labels: Labels

    def collect(self) -> Iterator[Any]:
        """The families with the samples of this moment."""
        from prometheus_client.core import GaugeMetricFamily

        for family in self.families():
            metric = GaugeMetricFamily(_PREFIX + family.name, family.help)
            for labels, value in family.samples:
                metric.add_sample(_PREFIX + family.name, {**labels, **self.labels}, value)
            yield metric
