"""What `kquota doctor` found out: checks as values."""

import enum
from dataclasses import dataclass

from kquota.errors import KquotaError


class State(enum.IntEnum):
    """How a check ended; the worst is the highest."""

    OK = 0
    WARN = 1
    FAIL = 2

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Check:
    """One check: the area (`installation`, `settings` or `cluster`), its subject, and what was found.

    `remedy` is the next step, and empty where nothing has to be done. `extra` names an extra of kquota that is missing.
    `error` is the error that a command would end with; a failed check has one.
    """

    area: str
    subject: str
    state: State
    message: str
    remedy: str = ""
    extra: str | None = None
    error: KquotaError | None = None


def ok(area: str, subject: str, message: str) -> Check:
    """A check that found nothing wrong."""
    return Check(area, subject, State.OK, message)


def warning(area: str, subject: str, message: str, remedy: str) -> Check:
    """A check that found a limitation: kquota works, but not all of it."""
    return Check(area, subject, State.WARN, message, remedy)


def failure(area: str, subject: str, error: KquotaError, remedy: str = "") -> Check:
    """A check that failed with that error; its hint is the remedy unless another one is given."""
    extra = getattr(error, "extra", None)
    return Check(area, subject, State.FAIL, error.message, remedy or error.hint or "", extra, error)
