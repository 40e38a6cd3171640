"""What kquota record is about to do, and what came of it (schemas/record.schema.json)."""

from collections.abc import Iterable, Mapping

from kquota.core.change.plan import Cluster, Objection
from kquota.core.change.recording import LOGGER, RECORDING, Bounds, Estimate, Level, Reading, Settled, Space
from kquota.documents.derive import picked, plain
from kquota.documents.encoding import Document
from kquota.documents.journal import Entry
from kquota.documents.plan import objection_document


def record_document(
    cluster: Cluster,
    noun: str,
    levels: Mapping[int, Level],
    bounds: Bounds,
    estimates: Iterable[Estimate],
    spaces: Iterable[Space],
    objections: Iterable[Objection],
    recorded: Document | None,
    settled: Iterable[Settled] = (),
) -> Document:
    """A recording; `recorded` is null for a dry run, and `settled` what became of each node's logger."""
    became = {each.node: each for each in settled}
    return {
        "kind": "kquota.record",
        "version": 1,
        "cluster": plain(cluster),
        "node_type": noun,
        "logger": LOGGER,
        "level": RECORDING,
        "bounds": picked(bounds, "for_ms requests size rotate_ms=rotate"),
        "estimates": [picked(each, "node on_ms requests_per_second bytes_per_second bytes") for each in estimates],
        "log_dirs": [picked(each, "node log_dir total_bytes=total usable_bytes=usable") for each in spaces],
        "objections": [objection_document(each) for each in objections],
        "recorded": recorded,
        "nodes": [
            settled_document(became[node])
            if node in became
            else {"node": node, "before": level.name, "outcome": None, "now": level.name, "on_ms": 0, "error": None}
            for node, level in levels.items()
        ],
    }


def recorded_document(
    entry: str | None, started: int, finished: int, ended_by: str, error: str | None, total: Reading | None
) -> Document:
    """The part of a recording that was made. Times are ms since the epoch."""
    return {
        "journal": entry,
        "started": started,
        "finished": finished,
        "ended_by": ended_by,
        "error": error,
        **picked(total, "requests bytes exact"),
    }


def taken_back_document(entry: Entry, settled: Iterable[Settled]) -> Document:
    """What `undo` made of a recording that had not switched everything back."""
    return {
        "kind": "kquota.record",
        "version": 1,
        "cluster": plain(entry.place),
        "node_type": "controller" if entry.cluster.startswith("controller://") else "broker",
        "logger": LOGGER,
        "level": RECORDING,
        "bounds": None,
        "estimates": [],
        "log_dirs": [],
        "objections": [],
        "recorded": recorded_document(entry.id, entry.started, entry.finished or entry.started, "undo", None, None),
        "nodes": [settled_document(each) for each in settled],
    }


def settled_document(settled: Settled) -> Document:
    """What became of the logger of a node."""
    return picked(settled, "node before outcome=fate now on_ms error")
