"""Rows of a request log as numbers, and the numbers of the names in them."""

import re
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from struct import Struct
from struct import error as StructError
from typing import Any, Final
from zlib import crc32

from kquota.audit.batch import API_KINDS
from kquota.audit.sources.event import UsageEvent, client_address, user_in
from kquota.audit.sources.requests import ALL_BITS, identity
from kquota.core.enforcement.kind import REQUEST

ROW: Final = Struct("=10q")
"""A row: time_ms, kind (and UNSIZED), user and client-id (codes of `Names`), bytes, request_ns, throttle_ms,
connection, position, as in a `Batch`; and the ns of thread time that are exempt, or NOT_EXEMPT."""
UNSIZED: Final = 4
"""Is added to the kind where the line does not hold the size (share fetches, old logs)."""
NOT_EXEMPT: Final = -1
WIDTH: Final = 32
"""How many bytes a scanner may read behind the end of a text."""


class Names:
    """Numbers for the names of one batch."""

    def __init__(self) -> None:
        self.users = _Numbers(user_in)
        self.clients = _Numbers(lambda client_id: client_id or "")
        self.connections = _Connections()


_ESCAPED: Final = re.compile(
    r"&(?:amp|lt|gt|quot|apos|#[0-9]+|#x[0-9a-fA-F]+);|[#\\][23][0-7]{2}[#\\]2[0-7]{2}|<[CDE][0-9A-F]><[89AB][0-9A-F]>"
    r"|[?\ufffd\xa0\u200b\u2060\ufeff]|\*\*|redacted|\A[\[<{]\w+[\]>}]\Z|\\\\",
    re.IGNORECASE,
)
"""Letters as web pages, rsyslog and less escape them, blanks of web pages, backslashes that are there twice, and what
stands for what is gone."""


class _Numbers(dict[Any, int]):
    """Numbers for texts, and in `names` what is made of them. Raises ValueError for a text that is no name."""

    def __init__(self, make: Callable[[Any], str]) -> None:
        super().__init__()
        self._make = make
        self.names: list[str] = []

    def __missing__(self, text: Any) -> int:
        name = self._make(text)
        if _ESCAPED.search(name) or _is_read_twice(name):
            raise ValueError(f"the name {name[:60]!r} may have lost or escaped letters: export the log as UTF-8 text")
        self.names.append(name)
        self[text] = len(self.names) - 1
        return self[text]


def _is_read_twice(name: str) -> bool:
    """Whether a name is UTF-8 that was read as Latin-1, or in the code page of a console, as PowerShell does."""
    for page in () if name.isascii() else ("latin-1", "cp1252", "cp437", "cp850"):
        with suppress(ValueError):
            return bool(name.encode(page).decode())
    return False


class _Connections(dict[str, int]):
    """An id for each connection, the same in every process: a retry may be in a file that another one reads."""

    def __missing__(self, connection: str) -> int:
        client_address(connection)
        self[connection] = connection_id(connection)
        return self[connection]


def connection_id(connection: str) -> int:
    """The number of a connection in a batch."""
    return int.from_bytes(blake2b(connection.encode(), digest_size=8).digest(), "little", signed=True)


def identity_of(event: UsageEvent, names: Names) -> int:
    """As `requests.identity` of a column of them. Raises ValueError for a text that names no connection."""
    connection, api = names.connections[event.connection], crc32(event.api.upper().encode())
    parts = (connection, event.number, api, event.time_ms, event.request_ns)
    return int(identity(*(part & ALL_BITS for part in parts)))


def row_of(event: UsageEvent, names: Names) -> bytes:
    """The ROW of a request. Raises ValueError for a number that is out of range, or a text that is no name."""
    try:
        return ROW.pack(
            event.time_ms,
            API_KINDS.get(event.api, REQUEST) + (0 if event.sized else UNSIZED),
            names.users[f":{event.user}"],
            names.clients[event.client_id],
            event.bytes,
            # acks=0: the broker counts the thread time as exempt, the bytes as any other.
            0 if event.acks == 0 else event.request_ns,
            -1 if event.throttle_ms is None else event.throttle_ms,
            names.connections[event.connection],
            event.position,
            event.request_ns if event.acks == 0 else NOT_EXEMPT,
        )
    except StructError:
        raise ValueError("a number is out of range") from None
