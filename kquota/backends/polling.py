"""Following the changes of quotas: describe, and compare."""

import time

from kquota.backends import QuotaBackend
from kquota.core.change.plan import Change, plan
from kquota.core.quotas.snapshot import QuotaSnapshot


class QuotaWatch:
    """Describes everything every `interval_s` seconds. It remembers what it read last, through any error.

    What comes and goes in between is not seen.
    """

    def __init__(self, backend: QuotaBackend, interval_s: float) -> None:
        self._backend = backend
        self._interval_s = interval_s
        self._snapshot = QuotaSnapshot()
        self._due_s = 0.0

    def start(self) -> QuotaSnapshot:
        """Reads everything: later changes are compared with it. Raises what `QuotaBackend.describe` raises."""
        self._read()
        return self._snapshot

    def wait(self, timeout_s: float) -> tuple[Change, ...]:
        """What changed since the last call, once it is time to look; nothing where that is not within `timeout_s`.

        Raises what `QuotaBackend.describe` raises.
        """
        early_s = self._due_s - time.monotonic()
        time.sleep(max(0.0, min(early_s, timeout_s)))
        return () if timeout_s < early_s else self._read()

    def _read(self) -> tuple[Change, ...]:
        began_s = time.monotonic()
        after = self._backend.describe()
        changes = plan(self._snapshot, after, prune=True).changes
        self._snapshot, self._due_s = after, began_s + self._interval_s
        return changes
