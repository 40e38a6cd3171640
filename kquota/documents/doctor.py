"""What `kquota doctor` found out (schemas/doctor.schema.json)."""

from collections.abc import Callable, Sequence

from kquota.core.check import Check, State
from kquota.documents.derive import picked
from kquota.documents.encoding import Document


def doctor_document(
    checks: Sequence[Check], cluster: str | None, context: str | None, remedy: Callable[[Check], str]
) -> Document:
    """The checks in their order; `remedy` gives the next step of each, empty for none."""
    return {
        "kind": "kquota.doctor",
        "version": 1,
        "cluster": cluster,
        "context": context,
        "summary": {str(state): sum(check.state is state for check in checks) for state in State},
        "checks": [
            picked(check, "area subject state message") | {"state": str(check.state), "remedy": remedy(check) or None}
            for check in checks
        ],
    }
