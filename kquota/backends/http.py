"""GET and POST over HTTP to a server that may be slow or endless: every answer ends, in time and in size.

Redirects are not followed: credentials go to the address that was given and nowhere else.
"""

import io
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, BinaryIO, Final

_SLOWEST: Final = 1_000_000
"""Bytes per second: who sends faster is not cut off, however long it takes."""
_PIECE: Final = 1 << 16


class TooLarge(Exception):
    """An answer of more bytes than are wanted."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


def fetch(
    url: str,
    headers: Mapping[str, str],
    out: BinaryIO,
    *,
    timeout_s: float,
    most: int,
    body: bytes | None = None,
    context: ssl.SSLContext | None = None,
) -> None:
    """Writes the answer to a GET, or to a POST of `body`, to `out`; `context` is for https.

    Each silence may last `timeout_s`, and so may all of the answer; each megabyte that comes adds a second. Raises
    urllib.error.HTTPError, with its body, for an answer of another kind than success; OSError,
    http.client.HTTPException, ValueError (a header that cannot be sent) and TooLarge.
    """
    end = time.monotonic() + timeout_s

    def keep(answer: Any, out: BinaryIO) -> None:
        size = 0
        while piece := answer.read1(_PIECE):
            size += len(piece)
            if size > most:
                raise TooLarge
            if time.monotonic() > end + size / _SLOWEST:
                raise TimeoutError("timed out")
            out.write(piece)

    request = urllib.request.Request(url, body, dict(headers))  # noqa: S310 - the callers know http and https only
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _NoRedirect())
    try:
        with opener.open(request, timeout=timeout_s) as response:
            keep(response, out)
    except urllib.error.HTTPError as error:
        with error:
            said = io.BytesIO()
            keep(error, said)
        said.seek(0)
        raise urllib.error.HTTPError(error.url, error.code, error.reason, error.headers, said) from None
