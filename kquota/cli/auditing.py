"""Running an audit from a command: the input, the engine, the progress bar, and what cannot be read."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from kquota.audit import run
from kquota.audit.run import Audit, Usage
from kquota.cli import params, security
from kquota.cli.progress import progress
from kquota.cli.report.words import counter_names
from kquota.cli.streams import interrupted_by_sigterm, note, warn
from kquota.cli.text import first_of, many, moment
from kquota.core.enforcement.kernel import is_compiling
from kquota.core.tabular import grouped
from kquota.documents.derive import picked
from kquota.documents.encoding import to_json_line
from kquota.documents.quotas import quotas_document
from kquota.errors import InputError

if TYPE_CHECKING:
    from kquota.audit.batch import Reject, Tally, UnreadFile
    from kquota.audit.result import AuditResult
    from kquota.audit.settings import AuditSettings


@contextlib.contextmanager
def auditor(usage: Usage, settings: AuditSettings, needs: str | None = None) -> Iterator[Audit]:
    """As `kquota.audit.run.auditor`, with a progress bar and warnings on stderr; SIGTERM is Ctrl-C meanwhile."""
    if usage.prometheus is not None:
        security.prometheus_credentials(usage.prometheus.url)  # for its warning
    run.own_process()
    with (
        interrupted_by_sigterm(),
        run.auditor(usage, settings, needs, progress=_progress, left_out=warn_left_out) as audit,
    ):
        yield audit


def audit_files(paths: Sequence[str], settings: AuditSettings) -> AuditResult:
    """Audits files of any dialect on the engine that their size asks for. Raises InputError."""
    with auditor(Usage(tuple(paths)), settings) as audit:
        result = audit(settings)
    warn_of_log(result.quality, settings.read.zone)
    return result


@contextlib.contextmanager
def _progress(first: str) -> Iterator[Callable[[Callable[[], tuple[int, int]]], None]]:
    """A progress bar; what it yields takes the function that tells how far the audit is."""
    with progress(first) as bar:
        yield lambda poll: bar.watch(poll, lambda: "compiling, once on this machine" if is_compiling() else "auditing")


def fails(fail_on: Collection[str], answers: Collection[str]) -> bool:
    """Whether something is true that `--fail-on` names; says what, and what else it could have named."""
    true = [answer for answer in fail_on if answer in answers]
    if fail_on and not true and "undetermined" in answers:
        note("some limits are undetermined: --fail-on undetermined counts these as well")
    if true:
        note(f"exit code 1, as --fail-on asks: {', '.join(true)}")
    return bool(true)


def warn_left_out(path: str, why: str) -> None:
    """Says that a file was not read, or not twice."""
    warn(f"{path}: {why}")


_MOST_NAMED = 5


def warn_unread(files: Sequence[UnreadFile]) -> None:
    """Names the files that were not read to their ends."""
    for file in files[:_MOST_NAMED]:
        warn(f"not read to its end: {file.path}: {file.reason}")
    if len(files) > _MOST_NAMED:
        warn(f"and {many(len(files) - _MOST_NAMED, 'other file')} (all: -o json)")


def keep_rejects(result: AuditResult, quarantine: Path) -> None:
    """Writes the records that cannot be read into that file, and says so; nothing where there are none."""
    warn_unread(result.quality.unread_files)
    rejected = result.quality.rejected
    if not rejected:
        return
    try:
        if not params.on_command_line("quarantine"):
            quarantine.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            quarantine.unlink(missing_ok=True)  # one of before may be open to others
        with open(quarantine, "w", encoding="utf-8", opener=lambda path, how: os.open(path, how, 0o600)) as file:
            for reject in result.rejects:
                file.write(to_json_line(asdict(reject)) + "\n")
    except OSError as error:
        raise InputError(f"{quarantine}: {error.strerror}: cannot keep the records that cannot be read") from None
    message = f"{many(rejected, 'record')} cannot be read, quarantined in {quarantine}: {why(result.rejects)}"
    where = Counter(reject.source for reject in result.rejects).most_common()
    warn(f"{message} ({first_of([source for source, _ in where])})")


def warn_of_log(quality: Tally, zone: str) -> None:
    """Warns of what makes the verdicts on a log doubtful."""
    for doubt in doubts_of(quality, zone):
        warn(doubt)


def doubts_of(quality: Tally, zone: str) -> Iterator[str]:
    """What may be brokers, times without ms, a clock that was set back, and hours that a zone had twice."""
    from kquota.audit.sources import SET_BACK, WHOLE_SECONDS
    from kquota.audit.sources.origins import doubted
    from kquota.audit.sources.request_line import repeated_hours

    if quality.several_brokers is not None:
        yield doubted(quality.several_brokers)
    if any(WHOLE_SECONDS in shown for shown in quality.noted.values()):
        yield (
            "times of the log are whole seconds: rates and throttle times near a limit are rough, and a verdict there"
            " may be wrong (log4j's %d writes ms)"
        )
    tuples = (shown for notes in quality.noted.values() for shown in notes if isinstance(shown, tuple))
    for at_ms in sorted(shown[1] for shown in tuples if shown[0] == SET_BACK):
        yield (
            f"the broker's clock was set back at {moment(at_ms)} UTC: requests of after stand among those of before,"
            " and a verdict may be wrong (cut the log behind the last line of that time, and audit each part)"
        )
    if quality.first_ms is None or quality.last_ms is None:
        return
    for begin, end in repeated_hours(ZoneInfo(zone), quality.first_ms, quality.last_ms):
        yield (
            f"clocks in {zone} showed {begin:%Y-%m-%d %H:%M} to {end:%H:%M} twice: times without an offset do not say"
            " which, so that the rates of two hours may be added up there"
        )


def why(rejects: Sequence[Reject]) -> str:
    """`3 × not JSON; 1 × time_ms is missing`: the most frequent reasons."""
    reasons = Counter(reject.reason for reject in rejects).most_common(3)
    return "; ".join(f"{count} × {reason}" for reason, count in reasons)


def enforcement_of(settings: AuditSettings) -> dict[str, Any]:
    """How brokers are taken to enforce, as documents say it."""
    return picked(
        settings, "generation quota_window_num=windows.samples quota_window_size_seconds=windows.window_seconds"
    )


def data_of(quality: Tally) -> dict[str, Any]:
    """The account of the data, as documents have it; the brokers' answers are a part of their own."""
    return picked(
        quality,
        """events ungoverned exempt rejected repeated outside first_ms last_ms several_brokers unread_files
        exemptions""",
    )


def recorded_under_of(result: AuditResult, settings: AuditSettings) -> dict[str, Any]:
    """The quotas that were in force while the usage was recorded, as documents say it."""
    from kquota.audit.evidence.verdict import shows_throttling

    recorded, shown = settings.recorded_under, shows_throttling(result)
    source = "unknown" if shown is None else "log"
    if recorded is not None:
        source = "file" if any(recorded.snapshots) else "none"
    quotas = None if recorded is None else quotas_document(recorded.latest)["quotas"]
    return {"source": source, "quotas": quotas, "throttled": shown}


def say_recorded_under(result: AuditResult, settings: AuditSettings) -> None:
    """Warns where the usage contradicts what is said to have been in force, or nothing says whom a quota held back."""
    from kquota.audit.evidence.in_force import are_in_force
    from kquota.audit.evidence.verdict import shows_throttling
    from kquota.audit.findings import Findings, free_and_silent

    denied = grouped(Findings(result.findings, result.predictions).doubtful(), lambda finding: finding.reason)
    for doubt, findings in [*denied.items()][:_MOST_NAMED]:
        warn(f"{counter_names(findings)}: {doubt}")
    if (more := len(denied) - _MOST_NAMED) > 0:
        warn(f"and {many(more, 'other reason')} to doubt a verdict (all: -o json)")
    recorded = settings.recorded_under
    if recorded is not None and not any(recorded.snapshots) and shows_throttling(result):
        warn("--recorded-under none, but the usage shows throttling: these clients count as held back")
    if recorded is not None or are_in_force(settings, 0):
        return
    if count := free_and_silent(result.findings):
        warn(
            f"{many(count, 'counter')} without throttle times: if a quota held their clients back, these may want more,"
            " and be throttled (--recorded-under FILE names the quotas that were in force, or none)"
        )
