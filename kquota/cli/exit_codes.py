"""The one table of exit codes: a promise to scripts. The README renders it and a test walks it."""

import enum
from typing import Self

from kquota import errors


class ExitCode(enum.IntEnum):
    """What a process of kquota ends with."""

    meaning: str
    """When a process ends with it, in a sentence."""

    def __new__(cls, code: int, meaning: str = "") -> Self:
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member

    OK = 0, "done, or nothing to do"
    DIFFERENT = 1, "an answer, only if asked for (`--fail-on …`, `--exit-code`): clients throttled, differences"
    USAGE = 2, "the command line is wrong"
    INPUT = 3, "a file, entity, key or value is wrong (INVALID_REQUEST included)"
    UNREACHABLE = 4, "no connection, a time-out, a session lost"
    UNAUTHORIZED = 5, "authentication or ACL"
    REJECTED = 6, "the cluster said no: unsupported version, migrating cluster, a node that must not be written"
    CONFLICT = 7, "the cluster changed since it was read"
    REFUSED = 8, "a safety guard of kquota, or a part of it that is not installed"
    PARTIAL = 9, "some entities altered or written, or some files read, and some not; each is listed"
    INTERNAL = 70, "a bug in kquota: run again with --debug"
    OUTPUT = 74, "done, but the output, or the journal's last word, could not be written"
    HANGUP = 129, "the terminal went away during a write: stopped as by Ctrl-C"
    INTERRUPTED = 130, "Ctrl-C; for a probe SIGTERM too"
    TERMINATED = 143, "SIGTERM: stopped as by Ctrl-C; exporter and follow end with 0"


SIGNALS = frozenset({ExitCode.HANGUP, ExitCode.INTERRUPTED, ExitCode.TERMINATED})
"""What ends with these was stopped by a signal, and so is what would come after it."""
_BY_ERROR: tuple[tuple[type[errors.KquotaError], ExitCode], ...] = (
    (errors.InputError, ExitCode.INPUT),
    (errors.Unreachable, ExitCode.UNREACHABLE),
    (errors.Unauthorized, ExitCode.UNAUTHORIZED),
    (errors.Rejected, ExitCode.REJECTED),
    (errors.Conflict, ExitCode.CONFLICT),
    (errors.Refused, ExitCode.REFUSED),
    (errors.MissingDependency, ExitCode.REFUSED),
)


def exit_code_of(error: errors.KquotaError) -> ExitCode:
    """The code that an error ends the process with."""
    for kind, code in _BY_ERROR:
        if isinstance(error, kind):
            return code
    return ExitCode.INTERNAL
