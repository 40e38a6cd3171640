"""Secrets: how to ask for a missing one, and how to keep secrets out of messages."""

import difflib
import re
from collections.abc import Callable, Iterable

from kquota.errors import InputError

Ask = Callable[[str], str]
"""Asks for a secret, such as "password of alice". Raises InputError when nobody answers."""

_CLASS = re.compile(r"(?:[a-z][a-z0-9_]*\.){2,}[A-Z][A-Za-z0-9_$]*\Z", re.ASCII)
_LONG = 8
"""Shorter secrets may be a part of ordinary words."""


def nobody(what: str) -> str:
    """Answers no question: the secret is missing."""
    raise InputError(f"the {what} is missing")


def nearly(value: str, known: Iterable[str]) -> str:
    """A blank and the value, where it is a slip of a known word; nothing for others: it may be a secret, misplaced."""
    return f" {value}" if difflib.get_close_matches(value.upper(), [*known], n=1, cutoff=0.7) else ""


def java_class(value: str) -> str:
    """A blank and the value, where it looks like the name of a Java class; nothing for others, as above."""
    return f" {value}" if _CLASS.match(value) and len(value) <= 200 else ""


def crosses_networks(hosts: Iterable[str]) -> bool:
    """Whether one of the hosts is another machine than this one, as far as its name says."""
    return not all(re.fullmatch(r"localhost|127(\.\d{1,3}){3}|::1", host.lower(), re.ASCII) for host in hosts)


def without(text: str, *secrets: str | None) -> str:
    """The text of a server or a library, with asterisks for the secrets in it."""
    for secret in secrets:
        if secret:
            pattern = re.escape(secret) if len(secret) >= _LONG else rf"(?<!\w){re.escape(secret)}(?!\w)"
            text = re.sub(pattern, "********", text)
    return text


def address(text: str) -> str:
    """An address for a message, without the credentials that it should not have: what is before an at sign."""
    return re.sub(r"[^/,\s]*@", "…@", text)
