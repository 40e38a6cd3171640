"""What a probe saw beside what was predicted (schemas/probe.schema.json)."""

from kquota.core.findings.probe import Comparison, Limits, Probe
from kquota.core.resolve.resolver import Resolution
from kquota.documents.derive import picked
from kquota.documents.encoding import Document


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
        **picked(resolution, "key limit entity sensor"),
        "enforcement": picked(
            limits, "generation window_num=windows.samples window_size_seconds=windows.window_seconds"
        ),
        "ended_by": ended_by,
        **picked(result, "events charged"),
        "unit": probe.unit,
        "duration_ms": result.duration_ms,
        "observed": picked(result.observed, _THROTTLING),
        "predicted": {side: picked(getattr(result, side), _THROTTLING) for side in ("least", "most")},
        **picked(result, "verdict=agreement ratio"),
    }


_THROTTLING = "throttle_time_ms=total_ms throttled_requests=count throttle_time_max_ms=longest_ms"
