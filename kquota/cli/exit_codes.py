"""The one table of exit codes: a promise to scripts. The README renders it and a test walks it."""

import enum

from kquota import errors


class ExitCode(enum.IntEnum):
    """What a process of kquota ends with."""

    OK = 0
    DIFFERENT = 1
    USAGE = 2
    INPUT = 3
    UNREACHABLE = 4
    UNAUTHORIZED = 5
    REJECTED = 6
    CONFLICT = 7
    REFUSED = 8
    PARTIAL = 9
    INTERNAL = 70
    OUTPUT = 74
    HANGUP = 129
    INTERRUPTED = 130
    TERMINATED = 143

    @property
    def meaning(self) -> str:
        """When a process ends with it, in a sentence."""
        return _MEANINGS[self]


SIGNALS = frozenset({ExitCode.HANGUP, ExitCode.INTERRUPTED, ExitCode.TERMINATED})
"""What ends with these was stopped by a signal, and so is what would come after it."""

_MEANINGS = {
    ExitCode.OK: "done, or nothing to do",
    ExitCode.DIFFERENT: "an answer, only if asked for (`--fail-on …`, `--exit-code`): clients throttled, differences",
    ExitCode.USAGE: "the command line is wrong",
    ExitCode.INPUT: "a file, entity, key or value is wrong (INVALID_REQUEST included)",
    ExitCode.UNREACHABLE: "no connection, a time-out, a session lost",
    ExitCode.UNAUTHORIZED: "authentication or ACL",
    ExitCode.REJECTED: "the cluster said no: unsupported version, migrating cluster, a node that must not be written",
    ExitCode.CONFLICT: "the cluster changed since it was read",
    ExitCode.REFUSED: "a safety guard of kquota, or a part of it that is not installed",
    ExitCode.PARTIAL: "some entities altered or written, or some files read, and some not; each is listed",
    ExitCode.INTERNAL: "a bug in kquota: run again with --debug",
    ExitCode.OUTPUT: "done, but the output, or the journal's last word, could not be written",
    ExitCode.HANGUP: "the terminal went away during a write: stopped as by Ctrl-C",
    ExitCode.INTERRUPTED: "Ctrl-C; for a probe SIGTERM too",
    ExitCode.TERMINATED: "SIGTERM during a write: stopped as by Ctrl-C",
}

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
