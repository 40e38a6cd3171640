"""An audit from its input to its findings: which files, which engine, and what was asked."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kquota.brokers import BrokerFacts
from kquota.core.change.history import QuotaHistory
from kquota.core.enforcement.generation import QuotaWindows
from kquota.errors import InputError, MissingDependency
from kquota.inputs import Quotas, history_of

if TYPE_CHECKING:
    from kquota.audit.answers.recommend import Wanted
    from kquota.audit.follow.frames import AuditStream
    from kquota.audit.result import AuditResult
    from kquota.audit.settings import AuditSettings
    from kquota.audit.sources import Split
    from kquota.core.enforcement.generation import BrokerSettings
    from kquota.core.findings.finding import Episode
    from kquota.core.findings.recommendation import Recommendations

Audit = Callable[["AuditSettings"], "AuditResult"]
"""Audits one input on one engine, as often as it is asked to."""
Poll = Callable[[], tuple[int, int]]
"""How far an audit is: what is done, and what is known so far."""
Progress = Callable[[str], AbstractContextManager[Callable[[Poll], None]]]
"""Shows a text, and from then on what the poll that it is given answers."""
Engine = Literal["auto", "local", "spark"]

LAST_MS = 3_600_000
"""How much of a Prometheus is audited unless somebody says."""


@contextlib.contextmanager
def silent(_first: str) -> Iterator[Callable[[Poll], None]]:
    """Shows no progress."""
    yield lambda poll: None


@dataclass(frozen=True, slots=True)
class Prometheus:
    """Which samples to ask a Prometheus for; `match` are the matchers of the series besides their names.

    `step_ms` asks for one value in each step, and for every sample without it.
    """

    url: str
    match: str | None = None
    last_ms: int = LAST_MS
    step_ms: int | None = None
    timeout_s: float = 10.0

    def fetch(self, folder: Path) -> tuple[str, ...]:
        """Writes the answers of the last `last_ms` to files in that folder. Raises InputError, Unreachable."""
        from kquota.metrics import prometheus

        now = int(time.time())
        server = prometheus.Server(self.url, prometheus.Credentials.of(os.environ), self.timeout_s)
        step = self.step_ms and self.step_ms // 1000
        selector = prometheus.selector(self.match)
        return tuple(map(str, prometheus.fetch(server, selector, now - self.last_ms // 1000, now, step, folder)))


@dataclass(frozen=True, slots=True)
class Usage:
    """Recorded usage, and what runs over it.

    The usage is files or folders by their paths or URIs, beside them what a Prometheus answers; or a table of Spark's
    catalogue; or a topic of usage records. `dialect` is what the files are (`kquota.audit.sources.DIALECTS`), `auto`
    looks. `master` is the Spark master.
    """

    paths: tuple[str, ...] = ()
    table: str | None = None
    topic: str | None = None
    prometheus: Prometheus | None = None
    dialect: str = "auto"
    engine: Engine = "auto"
    master: str | None = None


class _NoPandas:
    """Arrow imports pandas for the first array of a process, a quarter of a small audit. No command needs it."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ImportError


def own_process() -> None:
    """Prepares a process that audits and ends: Arrow finds no pandas in it, and it keeps the memory that it frees."""
    import pyarrow as pa

    from kquota.audit.engines.local import keep_freed

    keep_freed()
    sys.meta_path.insert(0, _NoPandas)
    try:
        pa.array(())
    finally:
        sys.meta_path.remove(_NoPandas)


@contextlib.contextmanager
def auditor(
    usage: Usage,
    settings: AuditSettings,
    needs: str | None = None,
    *,
    progress: Progress = silent,
    left_out: Callable[[str, str], None] = lambda path, why: None,
) -> Iterator[Audit]:
    """Finds the input and the engine; yields the audit of the one on the other.

    `needs` names an analysis that cannot be made without each request. `left_out` is called with a file that is not
    read, or read once although it is given twice, and why. Raises InputError for an unusable input, and for samples
    where each request is needed.
    """
    run: AbstractContextManager[Audit]
    with contextlib.ExitStack() as stack:
        if usage.table is not None:
            from kquota.audit.engines import spark

            table = usage.table
            run = _on_spark(usage.master, lambda session, under: spark.audit_table(session, table, under), progress)
        elif usage.topic is not None:
            from kquota.audit.sources.usage_topic import plan_topic

            splits = plan_topic(usage.topic, settings.read.kafka or {}, settings.read.timeout_s)
            run = _audits(splits, f"topic {usage.topic}", usage, progress)
        else:
            from kquota.audit.sources import SAMPLED, plan_splits

            paths, what = usage.paths, ", ".join(usage.paths)
            if usage.prometheus is not None:
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="kquota-audit-"))
                paths = (*paths, *usage.prometheus.fetch(Path(folder)))
                what = ", ".join((*usage.paths, usage.prometheus.url))
            # What is wrong with the input is said at once, not after ten seconds of starting Spark.
            splits = plan_splits(paths, usage.dialect, left_out)
            if needs is not None and any(split.dialect in SAMPLED for split in splits):
                raise InputError(f"{what}: there are samples, and {needs} needs each request")
            run = _audits(splits, what, usage, progress)
        yield stack.enter_context(run)


def _audits(splits: Sequence[Split], what: str, usage: Usage, progress: Progress) -> AbstractContextManager[Audit]:
    """Audits of these splits, which errors call `what`."""
    from kquota.audit import engines

    if engines.choose(usage.engine, splits, usage.master) == "local":
        from kquota.audit.engines import local

        def run(settings: AuditSettings) -> AuditResult:
            with progress("auditing") as show:
                counts = [(0, 0)]
                show(lambda: counts[-1])
                return local.audit(splits, settings, what, progress=lambda done, known: counts.append((done, known)))

        return contextlib.nullcontext(run)
    from kquota.audit.engines import spark

    return _on_spark(usage.master, lambda session, under: spark.audit(session, splits, under, what), progress)


@contextlib.contextmanager
def _on_spark(
    master: str | None, audit: Callable[[Any, AuditSettings], AuditResult], progress: Progress
) -> Iterator[Audit]:
    """Audits on one session, which is started for the first of them and stopped at the end."""
    from kquota.audit.engines import spark

    session = None

    def run(settings: AuditSettings) -> AuditResult:
        nonlocal session
        with progress("starting Spark") as show:
            if session is None:
                session = spark.open_session(master)
            show(lambda: spark.progress(session))
            return audit(session, settings)

    try:
        yield run
    finally:
        if session is not None:
            session.stop()


def audit(
    usage: str | Path | Sequence[str | Path] | Usage,
    quotas: Quotas | QuotaHistory,
    *,
    against: Quotas | QuotaHistory | None = None,
    kafka_version: str = "4.0",
    server_properties: Path | str | None = None,
    quota_window_num: int | None = None,
    quota_window_size_seconds: int | None = None,
    broker: str | None = None,
    log_timezone: str = "UTC",
    since_ms: float = -math.inf,
    until_ms: float = math.inf,
    num_partitions: int = 1,
    in_force: bool = False,
    recorded_under: Quotas | QuotaHistory | None = None,
    top: int | None = 5,
) -> AuditResult:
    """Who would be throttled, when, by which quota and how long: recorded usage replayed as brokers enforce quotas.

    `usage` are files or folders (request logs, usage tables, samples of metrics; URIs too), or a `Usage` for tables,
    topics, Prometheus and the engine. `quotas` are the quotas to try, a file of them may be a history; `against` others
    to replay in the same pass. `kafka_version`, `server_properties` and the two windows describe the brokers; `broker`
    names the broker that wrote the files. Only requests from `since_ms` on and before `until_ms` count (ms since the
    epoch). With `in_force`, the quotas count as the quotas that were in force.
    `recorded_under` are the quotas that were in force instead (`{}`: none), for usage without throttle times: clients
    that they held back may want more than they got, and are undetermined under a higher limit.

    The result has `findings`, a row per counter in a pyarrow Table (times in ms, rates in the unit of the key per
    broker); `quotas`, one verdict for each quota that is set; `quality`, what was read; and `rejects`, the records that
    could not be. Raises InputError for a wrong input, and MissingDependency without the libraries of the audit.

        result = audit("kafka-request.log", {"user=alice": {"producer_byte_rate": "10MB"}})
        print(result.throttled, result.findings.to_pandas())
    """
    asked = usage if isinstance(usage, Usage) else Usage(_paths(usage))
    given = (quota_window_num, quota_window_size_seconds)
    settings = settings_of(quotas, BrokerFacts(kafka_version, server_properties), given, against=against)
    read = replace(settings.read, broker=broker, zone=log_timezone, num_partitions=num_partitions)
    settings = replace(
        settings,
        top_clients=top,
        in_force=in_force,
        recorded_under=None if recorded_under is None else history_of(recorded_under),
        read=replace(read, since_ms=since_ms, until_ms=until_ms),
    )
    from kquota.audit.evidence.verdict import audited

    with auditor(asked, settings) as run:
        return audited(run, settings)


def audit_stream(
    frame: Any,
    quotas: Quotas | QuotaHistory,
    checkpoint: Path | str,
    *,
    against: Quotas | QuotaHistory | None = None,
    kafka_version: str = "4.0",
    server_properties: Path | str | None = None,
    quota_window_num: int | None = None,
    quota_window_size_seconds: int | None = None,
    broker: str | None = None,
    in_force: bool = False,
    top: int | None = 5,
    settle_ms: int = 1000,
    on_episodes: Callable[[Sequence[Episode]], None] | None = None,
    trigger: dict[str, Any] | None = None,
) -> AuditStream:
    """Audits a streaming DataFrame of Spark with the columns of a usage table, batch by batch.

    `checkpoint` is a folder that the driver and all executors share. It holds Spark's checkpoint, the packed usage
    (some 40 bytes for each request and quota, without a bound) and the counters. A stream that is started again with
    the same folder goes on from there. `on_episodes` gets the episodes of each batch on the driver: when throttling
    began or ended; after a restart some come again, with the same names. Rows may come up to `settle_ms` behind the
    newest row of their broker. `trigger` is Spark's own (`{"availableNow": True}`), by default a batch a second. The
    other arguments are as for `audit`.

    The result has `query`, Spark's StreamingQuery, and `findings()`: the findings of `audit` of the same rows. Raises
    InputError for a missing column, and Refused for a checkpoint of other quotas or settings.

        stream = audit_stream(frame, "quotas.yaml", "/mnt/shared/audit", on_episodes=print)
        stream.query.awaitTermination()
    """
    from kquota.audit.follow.frames import audit_frames

    given = (quota_window_num, quota_window_size_seconds)
    settings = settings_of(quotas, BrokerFacts(kafka_version, server_properties), given, against=against)
    read = replace(settings.read, broker=broker)
    settings = replace(settings, top_clients=top, in_force=in_force, read=read)
    return audit_frames(
        frame, settings, Path(checkpoint), settle_ms=settle_ms, on_episodes=on_episodes, trigger=trigger
    )


def recommend(
    usage: str | Path | Sequence[str | Path] | Usage,
    quotas: Quotas | QuotaHistory,
    wanted: Wanted | None = None,
    *,
    kafka_version: str = "4.0",
    server_properties: Path | str | None = None,
    quota_window_num: int | None = None,
    quota_window_size_seconds: int | None = None,
) -> Recommendations:
    """The smallest quotas under which clients are rarely throttled, with headroom, by recorded usage.

    `usage` and the brokers' settings are as for `audit`; samples are not enough. `quotas` are the quotas that were in
    force. `wanted` (a `Wanted` of `answers.recommend`) says for whom, which keys and what is acceptable; by default all
    users, throttled for at most 1 % of their active time, with 20 % headroom.

    The result has `quotas`, a Recommendation each: `value` in the unit of its key, per broker, and its interval. It
    names what was left out, and why. Raises InputError for a wrong input, and MissingDependency without the libraries
    of the audit.

        for quota in recommend("kafka-request.log", "quotas.yaml").quotas:
            print(quota.entity, quota.key, quota.value)
    """
    given = (quota_window_num, quota_window_size_seconds)
    settings = settings_of(quotas, BrokerFacts(kafka_version, server_properties), given)
    from kquota.audit.answers.recommend import Wanted, recommendations

    asked = usage if isinstance(usage, Usage) else Usage(_paths(usage))
    with auditor(asked, settings, "a recommendation") as run:
        recommended, _ = recommendations(run, settings, wanted or Wanted())
    return recommended


def settings_of(
    quotas: Quotas | QuotaHistory,
    facts: BrokerFacts,
    windows: tuple[int | None, int | None] = (None, None),
    *,
    against: Quotas | QuotaHistory | None = None,
    broker: BrokerSettings | None = None,
) -> AuditSettings:
    """An audit of quotas as brokers of these facts enforce them.

    `windows` are quota.window.num and quota.window.size.seconds, where they differ from the server.properties; `broker`
    is the content of that file, where it is read already. Raises InputError, MissingDependency.
    """
    try:
        from kquota.audit.settings import AuditSettings
        from kquota.audit.sources import ReadSettings
    except ImportError as error:
        raise MissingDependency(f"the audit needs {error.name}", extra="audit") from None
    known = facts.settings() if broker is None else broker
    own = QuotaWindows() if known is None else known.windows
    samples, seconds = windows

    def enforced(given: Quotas | QuotaHistory) -> QuotaHistory:
        return history_of(given).each(lambda snapshot: facts.enforced(snapshot, known))

    return AuditSettings(
        quotas=enforced(quotas),
        generation=facts.generation,
        windows=QuotaWindows(samples or own.samples, seconds or own.window_seconds),
        controller_windows=QuotaWindows() if known is None else known.controller_windows,
        against=None if against is None else enforced(against),
        read=ReadSettings(version=facts.version),
    )


def _paths(usage: str | Path | Sequence[str | Path]) -> tuple[str, ...]:
    if hasattr(usage, "columns"):
        hint = "write it to Parquet or CSV; kquota.audit.engines.spark.audit_dataframe takes a DataFrame of Spark"
        raise InputError("usage is a table in memory: give the path of its file", hint=hint)
    return (str(usage),) if isinstance(usage, str | Path) else tuple(map(str, usage))
