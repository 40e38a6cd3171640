"""What brokers would do to a workload, or to recorded requests: from the files to the result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kquota.brokers import BrokerFacts
from kquota.core.enforcement import Generation, QuotaWindows
from kquota.core.enforcement.apis import CONNECT_API
from kquota.core.enforcement.generation import BrokerSettings
from kquota.core.enforcement.kernel import kernel_for
from kquota.core.quotas.quota import QuotaKey
from kquota.core.quotas.snapshot import Ignored, QuotaSnapshot
from kquota.core.quotas.version import CONNECTION_RATES, approximations, format_version
from kquota.core.simulation.engine import expected_events, part_of
from kquota.core.simulation.engine import simulate as simulate_workload
from kquota.core.simulation.result import Simulation, widened
from kquota.core.simulation.workload import Brokers, Workload, enforced_workload
from kquota.documents.workload import read_workload
from kquota.errors import InputError, MissingDependency
from kquota.inputs import Quotas, snapshot_of

if TYPE_CHECKING:
    from kquota.audit.batch import UnreadFile

EVENT_S = 20e-6
"""How long a request takes with the plain kernel."""


@dataclass(frozen=True)
class Traffic:
    """What is to be simulated: a workload, and of a coarse recording the same spread evenly over its bins."""

    workload: Workload
    facts: BrokerFacts
    settings: BrokerSettings | None = None
    """What the server.properties says."""
    quotas: QuotaSnapshot | None = None
    """The quotas in the workload's own file, where it has any."""
    spread: Workload | None = None
    notes: tuple[str, ...] = ()
    """What a recording lacks."""
    unread: tuple[UnreadFile, ...] = ()
    """Files that were not read to their ends."""
    unseen: tuple[QuotaKey, ...] = ()
    """Keys that have quotas, and whose usage a recording does not show."""

    @property
    def needs_no_quotas(self) -> bool:
        """Whether only connections come, to brokers that limit them by themselves."""
        brokers = self.workload.brokers
        limited = any((brokers.connection_rate, *brokers.listeners.values()))
        return limited and all(client.api == CONNECT_API for client in self.workload.clients)


def planned_traffic(path: Path, facts: BrokerFacts) -> Traffic:
    """The workload of a file; its Kafka version counts unless `facts` name one. Raises InputError."""
    settings: BrokerSettings | None = None

    def configured(brokers: Brokers, version: str | None) -> Brokers:
        nonlocal facts, settings
        facts = facts if facts.is_named else replace(facts, kafka_version=version or facts.kafka_version)
        settings = facts.settings()
        return _configured(brokers, settings)

    file = read_workload(path, configured)
    return Traffic(file.workload, facts, settings, file.quotas)


def recorded_traffic(
    paths: Sequence[str],
    facts: BrokerFacts,
    quotas: QuotaSnapshot,
    *,
    window_seconds: int = 1,
    left_out: Callable[[str, str], None] = lambda path, why: None,
) -> Traffic:
    """Recorded requests of any dialect, as they came. Raises InputError, and MissingDependency without pyarrow."""
    try:
        from kquota.audit.sources import ReadSettings
        from kquota.audit.sources.events import read_events, spread_events
        from kquota.audit.sources.origins import doubted
    except ImportError as error:
        raise MissingDependency(f"--events needs {error.name}", extra="audit") from None
    recording = read_events(paths, ReadSettings(version=facts.version), left_out)
    notes = []
    if recording.rejected:
        notes.append(f"records that cannot be read, and are left out: {recording.rejected}")
    if recording.unsized:
        notes.append(f"requests of unknown size, left out: {recording.unsized}")
    if recording.several_brokers is not None:
        notes.append(doubted(recording.several_brokers))
    asked = {key for values in quotas.values() for key in values}
    unseen = {key: reason for key, reason in recording.hidden.items() if key in asked}
    notes += (f"{key} is undetermined: {reason}" for key, reason in unseen.items())
    if not recording.complete and any(QuotaKey.REQUEST_PERCENTAGE in values for values in quotas.values()):
        notes.append(
            "the usage lacks thread time (a request log that of network threads): what comes of a "
            "request_percentage is a lower bound"
        )
    spread = None
    if recording.grid_ms >= 1000 * window_seconds:
        notes.append(f"a coarse export, in bins of {recording.grid_ms / 1000:g} s: results are ranges")
        spread = spread_events(recording.workload, recording.grid_ms, window_seconds)
    settings = facts.settings()
    brokers = _configured(recording.workload.brokers, settings)
    if any((brokers.connection_rate, *brokers.listeners.values())):
        notes.append("max.connection.creation.rate is not replayed: recorded connections have waited for it already")
        brokers = replace(brokers, connection_rate=None, listeners=Brokers().listeners)
    workload = replace(recording.workload, brokers=brokers)
    return Traffic(workload, facts, settings, None, spread, tuple(notes), recording.unread_files, tuple(unseen))


def _configured(brokers: Brokers, settings: BrokerSettings | None) -> Brokers:
    """The brokers with what their server.properties says."""
    return brokers if settings is None else Brokers(**vars(settings), names=brokers.names)


@dataclass(frozen=True)
class Ready:
    """A simulation that can be run: the traffic and the quotas as brokers of the version enforce them."""

    workload: Workload
    quotas: QuotaSnapshot
    generation: Generation
    spread: Workload | None = None
    ignored: tuple[Ignored, ...] = ()
    """What brokers of the version do not enforce."""
    notes: tuple[str, ...] = ()
    """What the traffic lacks, and what the brokers do not enforce or do otherwise."""
    unread: tuple[UnreadFile, ...] = ()

    @property
    def omissions(self) -> tuple[str, ...]:
        """All that the result leaves out, a sentence each."""
        unread = (f"not read to its end: {file.path}: {file.reason}" for file in self.unread)
        ignored = (f"{quota.key} of {quota.entity}: {quota.reason}" for quota in self.ignored)
        return (*self.notes, *unread, *ignored)

    def run(self, progress: Callable[[float], None] | None = None) -> Simulation:
        """Runs it; `progress` gets the share that is done, from 0 to 1. Raises InputError for an unusable value."""
        using = kernel_for("run_traffic", EVENT_S * expected_events(self.workload))
        plays = [self.workload] if self.spread is None else [self.workload, self.spread]
        result, *spread = (
            simulate_workload(
                play,
                self.quotas,
                generation=self.generation,
                using=using,
                progress=progress and part_of(progress, number, len(plays)),
            )
            for number, play in enumerate(plays)
        )
        result = replace(result, notes=self.omissions)
        return widened(result, *spread) if spread else result


def ready(traffic: Traffic, quotas: QuotaSnapshot, samples: int | None = None, seconds: int | None = None) -> Ready:
    """What is simulated of the traffic under these quotas.

    `samples` and `seconds` are quota.window.num and quota.window.size.seconds, where they differ from the settings of
    the traffic's brokers.
    """
    facts, brokers = traffic.facts, traffic.workload.brokers
    version = format_version(facts.version)
    notes = [*traffic.notes, *(f"Kafka {version} is approximated: {text}" for text in approximations(facts.version))]
    if facts.version < CONNECTION_RATES and any((brokers.connection_rate, *brokers.listeners.values())):
        notes.append(
            f"max.connection.creation.rate: not enforced by Kafka {version}: since "
            f"{format_version(CONNECTION_RATES)} (KIP-612)"
        )
    enforced = facts.enforced(quotas, traffic.settings)
    workload, left_out = enforced_workload(traffic.workload, facts.version)
    own = workload.brokers.windows
    windows = QuotaWindows(samples or own.samples, seconds or own.window_seconds)
    workload = replace(workload, brokers=replace(workload.brokers, windows=windows))
    spread = None if traffic.spread is None else replace(traffic.spread, brokers=workload.brokers)
    ignored = (*enforced.ignored, *left_out)
    return Ready(workload, enforced, facts.generation, spread, ignored, tuple(notes), traffic.unread)


def simulate(
    workload: Path | str | Workload | None = None,
    quotas: Quotas | None = None,
    *,
    events: Iterable[str | Path] = (),
    kafka_version: str | None = None,
    server_properties: Path | str | None = None,
    quota_window_num: int | None = None,
    quota_window_size_seconds: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> Simulation:
    """What brokers would do to a workload: who gets how much, and who is throttled for how long.

    The workload is a file (`kquota schema workload`) or a value, or in its place `events` are recorded requests: usage
    tables and request logs, replayed as they came. `quotas` come from the workload's file unless they are given. The
    brokers' version, 4.0 unless the file says, their server.properties and their windows may be given as well.

    The result has `clients`, `counters`, `acceptors` and `queues`; times are ms, rates are per second and broker, and
    what depends on unknown readings of metrics is a range. `notes` are the records, files and quotas that were left
    out. Raises InputError, and MissingDependency where `events` are
    given and the libraries of the audit are missing.

        result = simulate("workload.yaml", {"user=alice": {"producer_byte_rate": "10MB"}})
        print([client.name for client in result.clients if client.is_throttled])
    """
    paths = tuple(map(str, events))
    if (workload is None) == (not paths):
        raise InputError("give either a workload or events")
    facts = BrokerFacts(kafka_version or "4.0", server_properties, kafka_version is not None)
    given = None if quotas is None else snapshot_of(quotas)
    if workload is None:
        if given is None:
            raise InputError("events need quotas")
        traffic = recorded_traffic(paths, facts, given, window_seconds=quota_window_size_seconds or 1)
    elif isinstance(workload, Workload):
        settings = facts.settings()
        traffic = Traffic(replace(workload, brokers=_configured(workload.brokers, settings)), facts, settings)
    else:
        traffic = planned_traffic(Path(workload), facts)
    given = traffic.quotas if given is None else given
    if given is None and not traffic.needs_no_quotas:
        raise InputError("no quotas: neither the workload nor the call has any")
    return ready(traffic, given or QuotaSnapshot(), quota_window_num, quota_window_size_seconds).run(progress)
