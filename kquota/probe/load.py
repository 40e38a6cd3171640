"""How much a probe sends, and when it is over."""

import time
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Load:
    """One client's workload."""

    rate: float
    """Bytes or requests per second."""
    size: int
    """Bytes of a record, of a fetch response at most."""
    duration_s: float
    most: int
    """Bytes or requests that are never exceeded."""


@dataclass
class Pace:
    """When the next request of a load is due; the clock starts with the first."""

    load: Load
    spent: int = 0
    exhausted: bool = False
    """Whether the bound ended the run."""
    _start: float = field(default_factory=time.monotonic)

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() >= self._start + self.load.duration_s

    def allows(self, amount: int) -> bool:
        """Whether so much more may be sent."""
        if self.spent + amount > self.load.most:
            self.exhausted = True
        return not self.exhausted and not self.is_over

    def spend(self, amount: int) -> None:
        """Counts what was sent."""
        self.spent += amount

    def wait_s(self) -> float:
        """Seconds until the next request is due, at most until the end; not above 0 when it is."""
        now = time.monotonic()
        return min(self._start + self.spent / self.load.rate, self._start + self.load.duration_s) - now

    def left_s(self) -> float:
        """Seconds until the end."""
        return max(self._start + self.load.duration_s - time.monotonic(), 0.0)
