"""Secrets that are needed and not there."""

from __future__ import annotations

from collections.abc import Callable

from kquota.errors import InputError

Ask = Callable[[str], str]
"""Asks for a secret, such as "password of alice". Raises InputError when nobody answers."""


def nobody(what: str) -> str:
    """Answers no question: the secret is missing."""
    raise InputError(f"the {what} is missing")
