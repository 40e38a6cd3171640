"""What a probe saw beside what was predicted (schemas/probe.schema.json)."""

from __future__ import annotations

from kquota.core.findings.probe import Comparison, Limits, Probe, Throttling
from kquota.core.resolve.resolver import Resolution
from kquota.documents.encoding import Document
from kquota.documents.quotas import entity_document, value_document


def probe_document(
    probe: Probe,
    user: str,
    client_id: str,
    broker: int,
    resolution: Resolution,
    limits: Limits,
    result: Comparison,
    ended_by: str,
) -> Document:
    """`ended_by` says what ended the run."""
    return {
        "kind": "kquota.probe",
        "version": 1,
        "probe": probe.value,
        "client": {"user": user, "client-id": client_id},
        "broker": broker,
        "key": resolution.key.value,
        "limit": None if resolution.limit is None else value_document(resolution.limit),
        "entity": None if resolution.entity is None else entity_document(resolution.entity),
        "sensor": str(resolution.sensor),
        "enforcement": {
            "generation": limits.generation.value,
            "window_num": limits.windows.samples,
            "window_size_seconds": limits.windows.window_seconds,
        },
        "ended_by": ended_by,
        "events": result.events,
        "charged": result.charged,
        "unit": probe.unit,
        "duration_ms": result.duration_ms,
        "observed": _throttling(result.observed),
        "predicted": {"least": _throttling(result.least), "most": _throttling(result.most)},
        "verdict": result.agreement.value,
        "ratio": None if result.ratio is None else list(result.ratio),
    }


def _throttling(throttling: Throttling) -> Document:
    return {
        "throttle_time_ms": throttling.total_ms,
        "throttled_requests": throttling.count,
        "throttle_time_max_ms": throttling.longest_ms,
    }
