"""GET and POST over HTTP to a server that may be slow or endless: every answer ends, in time and in size.

Redirects are not followed: credentials go to the address that was given and nowhere else.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, BinaryIO, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import ssl

_SLOWEST: Final = 1_000_000
"""Bytes per second: who sends faster is not cut off, however long it takes."""
_PIECE: Final = 1 << 16


class NoAnswer(Exception):
    """Why there is no answer of success, in a few words; `code` and `body` are what a server answered instead."""

    def __init__(self, why: str, code: int | None = None, body: bytes = b"") -> None:
        super().__init__(why)
        self.code = code
        self.body = body

    def said(self, *names: str) -> str:
        """A colon, and what the body says under those names of a JSON object; nothing where it says nothing."""
        try:
            answer = json.loads(self.body)
            words = [str(answer[name]) for name in names if answer.get(name)]
        except (ValueError, AttributeError, RecursionError):
            return ""
        return ": " + " ".join(": ".join(words).split())[:300] if words else ""


class TooLarge(NoAnswer):
    """The answer has more bytes than are wanted."""


def is_url(text: str) -> bool:
    """Whether it is an http or https URL that can be sent."""
    try:
        parts = urlsplit(text)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return known and text.isprintable() and " " not in text


def fetch(
    url: str,
    headers: Mapping[str, str],
    out: BinaryIO | None = None,
    *,
    timeout_s: float,
    most: int,
    body: bytes | None = None,
    context: ssl.SSLContext | None = None,
) -> bytes:
    """The answer to a GET, or to a POST of `body`; with `out` it is written there. `context` is for https.

    Each silence may last `timeout_s`, and so may all of the answer; each megabyte that comes adds a second. Raises
    NoAnswer (TooLarge beyond `most` bytes), and ValueError for what cannot be sent.
    """
    import http.client
    import urllib.error
    import urllib.request

    class NoRedirect(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: object) -> None:
            return None

    end = time.monotonic() + timeout_s
    kept = io.BytesIO()

    def keep(answer: Any, out: BinaryIO) -> None:
        size = 0
        while piece := answer.read1(_PIECE):
            size += len(piece)
            if size > most:
                raise TooLarge(f"it answers with more than {most >> 20} MiB")
            if time.monotonic() > end + size / _SLOWEST:
                raise TimeoutError("timed out")
            out.write(piece)

    request = urllib.request.Request(url, body, dict(headers))  # noqa: S310 - the callers know http and https only
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), NoRedirect())
    try:
        try:
            with opener.open(request, timeout=timeout_s) as response:
                keep(response, kept if out is None else out)
        except urllib.error.HTTPError as error:
            with error:
                keep(error, kept)
            raise NoAnswer(f"it answers {error.code}", error.code, kept.getvalue()) from None
    except (OSError, http.client.HTTPException) as error:
        from kquota.backends.greeting import reason_of

        reason = getattr(error, "reason", error)
        raise NoAnswer(reason_of(reason) if isinstance(reason, Exception) else str(reason)) from None
    return kept.getvalue()
