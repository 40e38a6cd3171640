"""What came of applying a plan."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from kquota.core.change.plan import Change
from kquota.core.quotas.entity import Entity
from kquota.errors import KquotaError

Outcome: TypeAlias = Literal["applied", "rolled back", "incomplete"]


@dataclass(frozen=True)
class ApplyReport:
    """What came of a plan.

    `applied` are the changes that the cluster has now; `already` were there before; `failed` has each change that could
    not be made with its error; `skipped` were not tried any more; `rolled_back` were made and taken back; `unknown` are
    entities of which it could not be found out. `unverified` were written, but a describe shows other values.
    `interrupted`: the run was stopped before its end. `unfinished` is why the journal does not know what came of it.
    """

    applied: tuple[Change, ...] = ()
    already: tuple[Entity, ...] = ()
    failed: tuple[tuple[Entity, KquotaError], ...] = ()
    skipped: tuple[Entity, ...] = ()
    rolled_back: tuple[Entity, ...] = ()
    unknown: tuple[Entity, ...] = ()
    unverified: tuple[Entity, ...] = ()
    entry: str | None = None
    interrupted: bool = False
    unfinished: str | None = None

    @property
    def outcome(self) -> Outcome:
        """`applied` when all was done, `rolled back` when nothing remains, else `incomplete`."""
        if not (self.failed or self.skipped or self.rolled_back or self.unknown or self.unverified or self.interrupted):
            return "applied"
        return "incomplete" if self.applied or self.unknown or self.unverified else "rolled back"
