"""The recorded request logs of real brokers, and the audit of them in one process."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from kquota.audit.batch import UNKNOWN, Batch, Tally
from kquota.audit.engines import local
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import ReadSettings, plan_splits, read
from kquota.core.change.history import QuotaHistory
from kquota.core.enforcement.generation import Generation
from kquota.core.enforcement.kind import FETCH, PRODUCE, REQUEST
from kquota.documents.history import read_history
from tools.accuracy import throttles

DATA = Path(__file__).parents[1] / "data"
FOLDER = DATA / "request_log"
LOG = FOLDER / "kafka-request.log.gz"
QUOTAS = FOLDER / "quotas.json"


@dataclass(frozen=True)
class Recording:
    """The logs of one recording, and what was in force while they were written."""

    name: str
    folder: Path
    title: str
    """What it is a recording of, as a heading."""

    @property
    def history(self) -> QuotaHistory:
        """The quotas."""
        return read_history(self.folder / "quotas.json")


ONE = Recording("one", FOLDER, "One broker of Kafka 4.3.1, times in ms")
RECORDINGS = (
    ONE,
    Recording("3.9.1", DATA / "cluster_log" / "3.9.1", "Two brokers and a controller of Kafka 3.9.1, times in µs"),
    Recording("4.4.0", DATA / "cluster_log" / "4.4.0", "Two brokers and a controller of Kafka 4.4.0, times in µs"),
)


def findings() -> pa.Table:
    """What the audit finds in the log of one broker, under the quotas that were in force."""
    return findings_of(ONE)


@cache
def findings_of(recording: Recording) -> pa.Table:
    """What the audit finds in a recording."""
    logs = throttles.logs_of(recording.folder)
    if len(logs) == 1:
        return audit(logs["1"], recording.folder / "quotas.json")
    read = ReadSettings(num_partitions=throttles.NUM_PARTITIONS)
    return _audit([*logs.values()], AuditSettings(recording.history, read=read))


def audit(log: Path, quotas: Path, generation: Generation = Generation.N_PLUS_1_BY_LAST) -> pa.Table:
    """What the audit finds in the request log of broker 1, in one process."""
    return _audit([log], AuditSettings(read_history(quotas), generation, read=ReadSettings("1")))


def usage_of(recording: Recording) -> pa.Table:
    """The requests of a recording as rows of a usage table, log by log, as the lines are."""
    names = {PRODUCE: "produce", FETCH: "fetch", REQUEST: "other"}
    logs = [str(log) for log in throttles.logs_of(recording.folder).values()]
    read_settings = ReadSettings("1" if len(logs) == 1 else None, num_partitions=throttles.NUM_PARTITIONS)
    tables = []
    for split in plan_splits(logs, "request-log"):
        for piece in read(split, read_settings, Tally()):
            if not isinstance(piece, Batch) or not len(piece) or piece.only is not None:
                continue
            assert piece.request_ns is not None
            assert piece.throttle_ms is not None
            assert piece.connection is not None
            table = {
                "time_ms": piece.time_ms,
                "broker": piece.broker.texts(),
                "user": piece.user.texts(),
                "client_id": piece.client_id.texts(),
                "api": [names[kind] for kind in piece.kind.tolist()],
                "bytes": pa.array(piece.bytes, mask=piece.bytes == UNKNOWN),
                "request_time_ns": piece.request_ns,
                "throttle_time_ms": pa.array(piece.throttle_ms, mask=piece.throttle_ms < 0),
                "connection": piece.connection.astype(str).tolist(),
            }
            tables.append(pa.table(table))
    return pa.concat_tables(tables)


def _audit(logs: Sequence[Path], settings: AuditSettings) -> pa.Table:
    splits = plan_splits([str(log) for log in logs], "request-log")
    return local.audit(splits, settings, "the recording", processes=1).findings


@cache
def by_throttle(recording: Recording) -> dict[tuple[str, str, str], throttles.Accuracy]:
    """Recall and precision of throttles by (broker, key, sensor), by the replay of `tools.accuracy.throttles`."""
    return {
        (broker, row.key.value, str(row.sensor)): row
        for broker, rows in throttles.measure_all(recording.folder).items()
        for row in rows
        if row.api != "fetch" or not row.open_loop
    }


def throttled(recording: Recording) -> list[dict[str, Any]]:
    """The findings of counters that brokers throttled, and that the audit can judge; the most throttle time first."""
    rows = findings_of(recording).to_pylist()
    judged = [row for row in rows if row["logged_throttled_events"] and row["verdict"] != "undetermined"]
    return sorted(judged, key=lambda row: (-row["throttle_time_ms"], row["broker"], row["key"], row["sensor"]))


def counters() -> list[tuple[str, str, str, str]]:
    """The name of the recording, the broker, the key and the sensor of each counter that was throttled."""
    return [
        (recording.name, row["broker"], row["key"], row["sensor"])
        for recording in RECORDINGS
        for row in throttled(recording)
    ]


def accuracy_table() -> str:
    """Per throttled counter of each recording, the audit beside the broker itself, as Markdown tables."""
    return "\n".join(f"{recording.title}:\n\n{_table(recording)}" for recording in RECORDINGS)


def _table(recording: Recording) -> str:
    lines = [
        "| broker | counter | quota | limit | requests | throttled: broker | audit | total ms: broker | audit "
        "| ratio | recall | precision |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in throttled(recording):
        single = by_throttle(recording)[row["broker"], row["key"], row["sensor"]]
        lines.append(
            f"| {row['broker']} | `{row['sensor']}` | {row['key']} | {', '.join(f'{each:g}' for each in single.limits)}"
            f" | {row['events']} | {row['logged_throttled_events']} | {row['throttled_events']}"
            f" | {row['logged_throttle_time_ms']} | {row['throttle_time_ms']}"
            f" | {row['throttle_time_ms'] / row['logged_throttle_time_ms']:.3f}"
            f" | {100 * single.notable_recall:.1f} % | {100 * single.notable_precision:.1f} % |"
        )
    return "\n".join(lines) + "\n"
