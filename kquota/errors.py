"""Everything that can go wrong, named for the situation.

The tree knows no exit codes and no output: the command line maps each class to its code in one table
(`kquota.cli.exit_codes`). A message is one line that says what is wrong; a hint, where there is one, says what to do
next.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class KquotaError(Exception):
    """Base of every error that kquota raises on purpose."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message

    @property
    def whole(self) -> str:
        """The message, and the hint behind it."""
        return f"{self.message} ({self.hint})" if self.hint else self.message


class InputError(KquotaError):
    """A file, an entity, a quota key or a value that cannot be used as given.

    `others` are the next mistakes in the same file, a line each.
    """

    def __init__(self, message: str, *, hint: str | None = None, others: Sequence[str] = ()) -> None:
        super().__init__(message, hint=hint)
        self.others = tuple(others)


def together(errors: Sequence[InputError]) -> InputError:
    """The first of some mistakes, with the next ones in its `others`."""
    first, *more = errors
    return InputError(first.message, hint=first.hint, others=[error.whole for error in more])


@contextmanager
def placed(place: object) -> Iterator[None]:
    """Puts a place in front of the message of an InputError: a file, a line, an entry."""
    try:
        yield
    except InputError as error:
        raise type(error)(f"{place}: {error.message}", hint=error.hint) from None


class InvalidRequest(InputError):
    """What Kafka answers with INVALID_REQUEST (42), such as an IP mixed with a user or a client-id."""


class Unreachable(KquotaError):
    """No connection, a time-out, or a session that was lost."""


class Uncertain(Unreachable):
    """The connection was lost while a change was under way: it may or may not have been made."""


class Unauthorized(KquotaError):
    """Authentication failed or an ACL forbids the operation."""


class Rejected(KquotaError):
    """The cluster said no: an unsupported version, a migration under way, a node that must not be written."""


class Conflict(KquotaError):
    """The cluster changed since it was read."""


class Locked(Conflict):
    """Another kquota on this host is writing, and did not end in time: to try again is to wait as long again."""


class Stopped(Locked):
    """The wait for another kquota was stopped by a signal; nothing was written."""


class Refused(KquotaError):
    """A safety guard of kquota itself said no."""


class MissingDependency(KquotaError):
    """An optional part of kquota is not installed: one of kquota's extras, or a program such as Java.

    `extra` names the extra, or several with commas. The command line turns it into the command that installs it.
    """

    def __init__(self, message: str, *, extra: str | None = None, hint: str | None = None) -> None:
        super().__init__(
            message, hint=hint or (extra and f"install kquota with the extra {extra}, as in kquota[{extra}]")
        )
        self.extra = extra
