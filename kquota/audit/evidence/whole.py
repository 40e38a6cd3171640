"""The whole of an audit: what was found in all buckets, put together, and one verdict for each counter."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from kquota.audit.batch import Tally
from kquota.audit.evidence.prediction_store import Predictions
from kquota.audit.evidence.verdict import settled
from kquota.audit.findings import NAME, SCHEMA, cells_of, ordered
from kquota.audit.ledger.rows import CounterRef
from kquota.audit.ledger.timeline import Timeline, in_step
from kquota.audit.result import AuditResult
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import hidden, origins
from kquota.audit.sources.envelope import NOT_A_LINE
from kquota.audit.sources.lost import Lost
from kquota.audit.sources.requests import REQUESTS, check
from kquota.core.findings.demand import Measured
from kquota.core.findings.prediction import CounterName
from kquota.core.findings.verdicts import Governing, Verdict, gather, verdicts
from kquota.errors import InputError


@dataclass(frozen=True)
class Found:
    """What a reduce task finds of some counters: tables and governing for each of the settings' variants."""

    tables: Sequence[pa.Table]
    governing: Sequence[Governing]
    predictions: Sequence[Predictions] = ()
    timelines: dict[CounterName, Timeline] = field(default_factory=dict)
    measured: dict[CounterRef, Measured] = field(default_factory=dict)


Output = Tally | Found
"""What a reduce task gives."""


def result(outputs: Iterable[Output], settings: AuditSettings, what: str, engine: str) -> AuditResult:
    """Puts the outputs of all reduce tasks together; errors call the input `what`.

    Raises InputError when there was nothing to audit: not one record, or not one that can be read.
    """
    tallies: list[Tally] = []
    measured: dict[CounterRef, Measured] = {}
    tables: list[list[pa.Table]] = [[] for _ in settings.variants]
    timelines: dict[CounterName, Timeline] = {}
    governing: list[list[Governing]] = [[] for _ in settings.variants]
    predictions = [Predictions() for _ in settings.variants]
    for output in outputs:
        if isinstance(output, Tally):
            tallies.append(output)
            continue
        for variant, (table, part) in enumerate(zip(output.tables, output.governing, strict=True)):
            tables[variant].append(table)
            governing[variant].append(part)
        for known, new in zip(predictions, output.predictions, strict=bool(output.predictions)):
            known.update(new)
        timelines |= output.timelines
        measured |= output.measured
    sketches = [tally.noted.pop(REQUESTS, set()) for tally in tallies]
    quality = Tally.total(tallies)
    quality.rejects.sort(key=lambda reject: (reject.source, len(reject.place), reject.place))
    noted = quality.noted
    # A log of exempt requests is usage, too: nobody is charged for it.
    if quality.events == quality.exempt == 0 and not any(map(len, tables[0])):
        if quality.outside:
            raise InputError(
                f"{what}: none of {quality.outside} records is of the time that is asked about",
                hint="'kquota audit' with the files alone shows of which time they are",
            )
        if quality.rejected:
            first = next((reject for reject in quality.rejects if reject.reason != NOT_A_LINE), quality.rejects[0])
            raise InputError(
                f"{what}: none of {quality.rejected} records can be read; the first: {first.reason}",
                hint="expected Kafka's request log, a usage table, or samples; see --source",
            )
        raise InputError(f"{what}: no usage events or samples in it")
    findings, *before = (pa.concat_tables([SCHEMA.empty_table(), *pieces]) for pieces in tables)
    if timelines:
        assert quality.first_ms is not None
        assert quality.last_ms is not None
        judged = throttled_still(findings, predictions[0])
        timelines = in_step(timelines, judged, settings.timelines, quality.first_ms, quality.last_ms)
    check(sketches)
    differs = origins.check(what, (note for shown in noted.values() for note in shown))
    quality.several_brokers = differs or quality.several_brokers
    for shown in noted.values():
        shown -= {note for note in shown if isinstance(note, origins.Sign)}
    reasons = hidden(noted)
    # Usage tables may lack the thread time of a request; logs have the handlers' time of each.
    handlers = "request-log" in noted and noted.keys().isdisjoint(("usage", "usage-topic"))
    first_ms, last_ms = quality.first_ms, quality.last_ms
    if first_ms is not None:
        settings.check_known(first_ms)
    quotas = (
        verdicts(
            history if first_ms is None or last_ms is None else history.within(first_ms, last_ms),
            gather(parts),
            reasons,
        )
        for history, parts in zip(settings.variants, governing, strict=True)
    )
    tested, *others = (
        AuditResult(table, quality, engine, quotas=known, predictions=predicted)
        for table, known, predicted in zip([findings, *before], quotas, predictions, strict=True)
    )
    audited = replace(tested, timelines=timelines, measured=measured, against=others[0] if others else None)
    lost = Lost(noted)
    if settings.question is not None:
        # What is held back is a part of the measure.
        against = audited.against
        if against is not None:
            doubted = lost.doubted(against.findings) if lost else against.findings
            against = replace(against, findings=ordered([doubted]))
        return replace(audited, findings=ordered([findings]), against=against)
    return settled(audited, settings, handlers=handlers, lost=lost)


def throttled_still(findings: pa.Table, predictions: Predictions) -> pa.Table:
    """The findings without counters that the replay throttles and the prediction does not."""
    throttled = (None, Verdict.THROTTLED.value)
    still = [predictions.verdict((*name,)) in throttled for name in cells_of(findings, *NAME)]
    return findings.filter(pa.array(still, pa.bool_()))
