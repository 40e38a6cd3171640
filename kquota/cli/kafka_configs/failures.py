"""The two ways in which kafka-configs fails; its exit code is 1 for both."""

from __future__ import annotations

import re
from collections.abc import Sequence

_PASSWORD = re.compile(r"(password=)(?!\*{8}).*?(?=\](?:,|\Z)|\Z)", re.IGNORECASE | re.DOTALL)


class Refusal(Exception):
    """A message of its own on stderr: a wrong command line, or what Kafka throws as IllegalArgumentException.

    With `usage` the options are listed after it.
    """

    def __init__(self, message: str, *, usage: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.usage = usage


class Failure(Exception):
    """Anything else: the command line on stderr, and then what Java would throw, class and message.

    `note` is a line of kquota's own after that: where the trouble is, which Java's message does not say. With
    `uncertain` a change may have been made all the same.
    """

    def __init__(
        self, exception: str, message: str | None = None, *, note: str | None = None, uncertain: bool = False
    ) -> None:
        super().__init__(exception if message is None else f"{exception}: {message}")
        self.exception = exception
        self.message = message
        self.note = note
        self.uncertain = uncertain

    @property
    def line(self) -> str:
        """The first line of Java's stack trace."""
        return self.exception if self.message is None else f"{self.exception}: {self.message}"


def without_secrets(text: str) -> str:
    """The text with every password replaced by asterisks."""
    return _PASSWORD.sub(r"\1********", text)


def shown_arguments(argv: Sequence[str]) -> str:
    """The command line as Kafka prints it when it fails, joined by blanks, but without passwords."""
    return " ".join(map(without_secrets, argv))
