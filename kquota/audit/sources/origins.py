"""Which broker wrote a line, as far as lines show it: quotas hold for each broker by itself.

A stream of several brokers shows it by the addresses of one listener, or by what collectors put around each line: a
prefix, the name of a pod, a host. A broker may have several listeners, and another address after a restart. Addresses
are of several brokers only where they overlap in time, and each has connections of its own.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

from kquota.audit.sources.files import UnreadableFile
from kquota.audit.sources.moments import MILLIS, STAMP

HINT: Final = "give each broker's lines a file in a folder of its own, or --broker NAME where it is one broker"
_LOCAL: Final = re.compile(r"(?P<host>[^-]+?):(?P<port>[0-9]+)-")
"""Where a connection ends at the broker; of a masked one (`INTERNAL_IP-`) that is not known."""
_LOOPBACK: Final = ("127.", "::1", "0:0:0:0:0:0:0:1", "/")
_NOTE: Final = "broker"
_FROM, _MIXED = "they are from", "mixed"
_NAMED: Final = tuple(
    re.compile(rf"(?:^|[._])_?{name}$", re.IGNORECASE)
    for name in (
        "pod(?:[._]?name)?",
        "broker(?:[._]?(?:id|name))?",
        "host(?:[._]?name)?",
        "log_?stream(?:_?name)?",
        "instance",
        "container[._]?name",
    )
)
"""The members that name where a line is from; the first that there is counts."""
_PAIR: Final = re.compile(r'\b(pod|host|instance)=\\*"?([\w.-]+)')
_NO_NAME: Final = re.compile(
    r"[A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d|<\d+>\d?|\[\d+\]:?|\bstd(?:out|err) [PF]\b"
    r"|(?<![^\s\['\"])(?:[A-Za-z]+:(?=\d{10}))?[\d.:,]+(?!\S)"
    r"|\\+t?|[\[\]|\"'{}\x00-\x1f]"
)
"""What differs between the lines of one broker: times, priorities, processes, numbers; and what is no name."""
_FILE: Final = re.compile(r"(\S*/)?[^/\s]+\.log\S*:$")


def origin_of(before: str, after: str = "") -> str:
    """Where a line is from, by the text before its last time and behind the request; else empty."""
    if pair := _PAIR.search(before) or _PAIR.search(after):
        return pair[2]
    if before[:1] == "[" and before[1:5].isdigit() and len(before) < 64:  # Kafka's own layout
        return ""
    end = before.find("Completed request:")
    if end >= 0:  # behind the time of the broker's own layout are its levels, loggers and threads
        stamps = [stamp.start() for layout in (STAMP, MILLIS) for stamp in layout.finditer(before)]
        before = before[: max(stamps, default=end)]
    words = _NO_NAME.sub(" ", STAMP.sub(" ", before)).split()
    # grep names files; those of one folder are of one broker. Its threads differ, too.
    named = (found[1] or "" if (found := _FILE.fullmatch(word)) else word for word in words if "thread" not in word)
    return " ".join(named)[:200]


def origin_in(value: Mapping[str, Any]) -> str:
    """Where a line is from, by the members beside it."""
    named = dict(_flat(value, "", 3))
    for pattern in _NAMED:
        for name, text in named.items():
            if pattern.search(name):
                return text
    return ""


def _plain(value: Any) -> Any:
    """A value without its type."""
    return next(iter(value.values())) if isinstance(value, dict) and len(value) == 1 else value


def _flat(value: Mapping[str, Any], path: str, depth: int) -> Iterator[tuple[str, str]]:
    for name, member in value.items():
        if isinstance(member, list):  # of OpenTelemetry's attributes, each with its key and its value
            pairs = [[*each.values()] for each in member if isinstance(each, dict) and len(each) == 2]
            yield from _flat({key: _plain(each) for key, each in pairs if isinstance(key, str)}, path, depth)
        elif isinstance(member, dict) and depth:
            yield from _flat(member, f"{path}{name}.", depth - 1)
        elif isinstance(member, str) and len(member) < 200:
            yield f"{path}{name}", member


class Origins:
    """Where the lines of one log are from, and when."""

    def __init__(self, broker: str) -> None:
        self._broker = broker
        self._spans: dict[tuple[str, str], tuple[int, int]] = {}
        self._connections: dict[int, str] = {}
        self._mixed = False

    def add(self, origin: str, connection: int, time_ms: int) -> None:
        """Takes where a line is from."""
        if origin:
            self._mixed |= self._connections.setdefault(connection, origin) != origin
            self._span(_FROM, origin, time_ms, time_ms)

    def connected(self, connection: str, first_ms: int, last_ms: int) -> None:
        """Takes a connection, and when it sent requests."""
        local = _LOCAL.match(connection)
        if local is not None and not local["host"].startswith(_LOOPBACK):
            of = "in IPv6 " if ":" in local["host"] else ""
            self._span(f"port {local['port']} {of}is that of", local["host"], first_ms, last_ms)

    def _span(self, what: str, where: str, first_ms: int, last_ms: int) -> None:
        where = where.replace("\0", " ")
        first, last = self._spans.get((what, where), (first_ms, last_ms))
        self._spans[what, where] = min(first, first_ms), max(last, last_ms)

    def notes(self) -> Iterator[str]:
        """What to note of them."""
        for (what, where), (first, last) in self._spans.items():
            yield "\0".join((_NOTE, self._broker, what, where, str(first), str(last)))
        if self._mixed:
            yield "\0".join((_NOTE, self._broker, _MIXED, "", "0", "0"))


def check(source: str, noted: Iterable[str]) -> None:
    """Raises UnreadableFile where the lines of one log were written by several brokers at a time."""
    spans: dict[tuple[str, str], dict[str, tuple[int, int]]] = {}
    for note in sorted(noted):
        if note.startswith(f"{_NOTE}\0"):
            _, broker, what, where, first, last = note.split("\0")
            mine = spans.setdefault((broker, what), {})
            known = mine.get(where, (int(first), int(last)))
            mine[where] = min(known[0], int(first)), max(known[1], int(last))
    for (broker, what), mine in spans.items():
        if what == _FROM and (broker, _MIXED) in spans:
            continue
        told = sorted(mine.items(), key=lambda each: each[1])
        if any(last >= begun for (_, (_, last)), (_, (begun, _)) in pairwise(told)):
            some = ", ".join(sorted(mine)[:3])
            raise UnreadableFile(f"{source}: lines of several brokers: {what} {some}", hint=HINT)
