"""Quotas over time: the document that names periods (schemas/quota-history.schema.json), and what a journal shows."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from kquota.core.change.history import EARLIEST_MS, LATEST_MS, QuotaHistory, Step
from kquota.core.quotas.quota import humanize
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.documents.derive import utc
from kquota.documents.encoding import Document, headed, read_document, read_text
from kquota.documents.journal import Entry
from kquota.documents.quotas import quotas_document, quotas_of, read_quotas
from kquota.errors import InputError, placed

_IS_HISTORY = re.compile(r"""\bkind["']?\s*:\s*["']?kquota\.quota-history\b""")


def history_document(history: QuotaHistory) -> Document:
    """The history as a document, its times in UTC."""
    periods: list[Document] = []
    for since, snapshot in history:
        quotas = {"quotas": quotas_document(snapshot)["quotas"]}
        periods.append(quotas if since is None else {"from": utc(since), **quotas})
    return {**headed("quota-history"), "periods": periods}


def read_history(path: Path) -> QuotaHistory:
    """The quotas of a history, or of a quotas document, which hold at all times.

    Raises InputError naming the file and the period.
    """
    if not _IS_HISTORY.search(read_text(path)):
        return QuotaHistory.of(read_quotas(path))
    document = read_document(path, "quota-history")
    times: list[int] = []
    snapshots: list[QuotaSnapshot] = []
    for number, period in enumerate(document["periods"]):
        with placed(f"{path}: periods[{number}]"):
            if number == 0 and "from" in period:
                raise InputError("the first one has no from: it holds from ever")
            if number > 0:
                times.append(_time_ms(period))
                if not EARLIEST_MS <= times[-1] < LATEST_MS:
                    raise InputError("from: not a time between 2001 and 2100", hint="a number is of ms, not of seconds")
            if times[-2:] != sorted(set(times[-2:])):
                raise InputError("it begins before the one before it")
            snapshots.append(read_quotas(path.parent / period["file"]) if "file" in period else quotas_of(period))
    return QuotaHistory(tuple(snapshots), tuple(times))


def _time_ms(period: Document) -> int:
    since = period.get("from")
    if since is None:
        raise InputError("from is missing: when does it begin?")
    if isinstance(since, int):
        return since
    try:
        moment = datetime.fromisoformat(since)
    except ValueError:
        raise InputError(f"from: {since!r} is not a time", hint="ISO 8601 as in 2026-03-11T09:00:00Z, or ms") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def journal_history(entries: Iterable[Entry], current: QuotaSnapshot) -> QuotaHistory:
    """What was in force before and between the changes of one cluster's journal that led to the quotas of today.

    Raises InputError where they do not lead there, and for entries of several clusters.
    """
    made = [entry for entry in entries if entry.may_have_changed]
    if any(not entry.is_of(made[0].place) for entry in made):
        clusters = sorted({entry.cluster for entry in made})
        raise InputError(
            f"the journal has changes of several clusters: {', '.join(clusters)}",
            hint="name the cluster, so that its own are taken",
        )
    steps = (
        Step(
            entry.started,
            entry.made.changes,
            f"entry {entry.id} of the journal",
            certain=entry.outcome == "applied",
            reason=_reason(entry),
        )
        for entry in made
    )
    return QuotaHistory.leading_to(current, steps)


def _reason(entry: Entry) -> str:
    """What it changed, why, by whom: `user=bob producer_byte_rate 1 MB/s → no quota, +2 more: INC-77 (ops@host)`."""
    made = [(change, key) for change in entry.made.changes for key in change.keys]
    text: str = entry.command
    if made:
        change, key = made[0]
        limits = (
            humanize(key, limit) if (limit := values.get(key)) is not None else "no quota"
            for values in (change.before, change.after)
        )
        text = f"{change.entity} {key} {' → '.join(limits)}" + (f", +{len(made) - 1} more" if made[1:] else "")
    return text + (f": {entry.message}" if entry.message else "") + (f" ({entry.by})" if entry.by else "")
