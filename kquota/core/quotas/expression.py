"""Regular expressions of quota files: Python's own, with a cap on their length."""

import re
import warnings

from kquota.errors import InputError

_LONGEST = 1_000
"""Characters of an expression."""


class Expression:
    """An expression that matches a whole name. Raises InputError for a malformed or a very long expression."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        if len(pattern) > _LONGEST:
            raise InputError(f"a regular expression of {len(pattern)} characters: at most {_LONGEST} are read")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._compiled = re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            raise InputError(f"{pattern!r} is not a regular expression: {error}") from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and other.pattern == self.pattern

    def __hash__(self) -> int:
        return hash(self.pattern)

    def fullmatch(self, name: str) -> bool:
        """Whether the expression matches the name from its first to its last character."""
        return self._compiled.fullmatch(name) is not None
