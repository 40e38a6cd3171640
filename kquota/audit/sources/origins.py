"""Which broker wrote a line, as far as lines show it: quotas hold for each broker by itself.

A stream of several brokers shows it by the addresses of one listener. Where these are masked, or such as every host
has, it shows by a sign of what collectors put around each line: a word of a prefix or of a heading, a member beside the
message. No sign is known by its name.

What collectors make of the request, such as the country of a client, has one value for each connection as well. But
connections of one client do not differ in it, where they ask the same of the same topic. They differ in the broker,
because a client talks to several. A name of the connection itself is of one only. So a sign distinguishes brokers
where:

* each connection has one value of it;
* two values are of one time, and of one client;
* one of them is of several connections.

Without the last, nobody knows: then the audit warns.

A broker may have several listeners, and another address or pod after a restart.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations, pairwise
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from zlib import crc32

from kquota.audit.sources.event import UsageEvent
from kquota.audit.sources.files import UnreadableFile, name_of
from kquota.audit.sources.moments import STAMP

HINT: Final = (
    "give each broker's lines a file in a folder of its own ('kquota help request-log' has a command), or --broker NAME"
    " where it is one broker"
)
_ONE: Final = "give --broker NAME, or all lines of a broker in one folder"
NO_SIGNS: Final[Mapping[str, str]] = MappingProxyType({})
_LOCAL: Final = re.compile(r"(?P<host>[^-]+?):(?P<port>[0-9]+)-")
"""Where a connection ends at the broker; of a masked one (`INTERNAL_IP-`) that is not known."""
_LOOPBACK: Final = ("127.", "::1", "0:0:0:0:0:0:0:1", "/")
_OF_CONTAINERS: Final = ("172.", "10.88.")
"""The addresses that Docker and Podman give on every host."""
_PLAIN: Final = re.compile(r"\[[0-9 ,:-]+\] [A-Z]+ Completed request:")
"""Kafka's own layout, which has no sign."""
_WORD: Final = re.compile(r"[^\s\0-\x1f\[\]{}<>|,;=\"'\\:]+")
_NUMBER: Final = re.compile(r"(?<![^\s\[(])[0-9]+(?![^\s\])])")
_TAB: Final = re.compile(r"\\+t")
"""One that was escaped."""
_WORDS, _VALUES, _SOME = 32, 256, 16
"""How many words of a text are looked at, values of a sign, and connections and clients of a value."""
_AGAIN: Final = 10
"""From fewer requests of connections that were there before nothing follows: they may have one value by chance."""
_NO_SIGN: Final = re.compile(r"thread|\btid\b|\b[fp]\Z")
"""A connection has a network thread of its own, and containerd tells pieces of lines (P) from ends (F)."""
_MEMBER: Final = re.compile(r"""\W*?([\w.@-]+)["']?\s*(?::|=>?)(?=\W*(.*\w|))""")
_RECORD: Final = re.compile(r"\s*(?:\{\s*\Z|-\s)|---")
"""A member that has a line of its own, as JSON and YAML are printed, and how an object with such members begins."""
_REQUEST: Final = re.compile(
    "request|response|connection|client|principal|listener|api|correlation|partition", re.IGNORECASE
)
"""The names of members that tell of the request, in which clients differ."""


def headed(known: Mapping[str, str], line: str) -> tuple[Mapping[str, str], Mapping[str, str] | None]:
    """The signs of the lines before, with those in a line that is no request; and its signs of the request before it.

    Of a line that begins another record, the latter are None.
    """
    member, is_new = _MEMBER.match(line), _RECORD.match(line) is not None
    signs = origin_in({member[1]: member[2]}) if member and member[2] else origin_of(line, what="heading")
    if is_new or len(known) > _WORDS:  # members behind a request are not those of the next one
        known = {sign: word for sign, word in known.items() if not sign.startswith(".")}
    behind = {f"behind {sign}": word for sign, word in signs.items() if sign.startswith(".")}
    return {**known, **signs} if signs else known, None if is_new else behind


def origin_of(before: str, after: str = "", what: str = "word") -> Mapping[str, str]:
    """The signs of where a line is from, by the words before the request and behind it."""
    if _PLAIN.fullmatch(before) and after.strip() in ("", "(kafka.request.logger)"):
        return NO_SIGNS
    collected, stamp, layout = STAMP.sub("\v", before).rpartition("\v")
    if stamp:  # a number behind it is that of a thread
        before = f"{collected} {_NUMBER.sub('-', layout)}"
    return {
        f"{what} {side}{place}": word
        for side, text in (("", before), ("-", after))
        for place, word in zip(range(_WORDS), _WORD.findall(_TAB.sub(" ", STAMP.sub(" ", text))), strict=False)
        if any(map(str.isalnum, word)) and _NO_SIGN.search(word.lower()) is None
    }


def origin_in(value: Any) -> Mapping[str, str]:
    """The signs of where a line is from, by the members beside it."""
    return {name: text for name, text in _flat(value, "", 4) if _NO_SIGN.search(f"{name} {text}".lower()) is None}


def _flat(value: Any, path: str, depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(value, list):  # of attributes, each may have its key and its value
        pairs = [[*entry.values()] if isinstance(entry, dict) and len(entry) == 2 else (0, entry) for entry in value]
        value = {str(name or place): member for place, (name, member) in enumerate(pairs) if type(member) is not int}
    if isinstance(value, dict) and depth:
        for name, member in value.items():
            if _REQUEST.search(name) is None:
                yield from _flat(member, f"{path}.{name}", depth - 1)
    elif type(value) is int or (isinstance(value, str) and len(value) < 200):
        yield path, f"{value}"


class _Span(NamedTuple):
    """A value of a sign, or a local address."""

    first: int
    last: int
    connections: frozenset[int]
    """Some of those that have it: the smallest."""
    clients: frozenset[int]
    """Some of its clients, each with an API: the smallest numbers."""
    again: int
    """How many requests are of connections that had it before."""

    def with_(self, other: "_Span") -> "_Span":
        """Both."""
        again = self.again + other.again + len(self.connections & other.connections)
        first, last = min(self.first, other.first), max(self.last, other.last)
        return _Span(first, last, _some(self.connections, other.connections), _some(self.clients, other.clients), again)

    def beside(self, other: "_Span") -> bool:
        """Whether both are of one time, and not one that begins where the other ends."""
        common = min(self.last, other.last) - max(self.first, other.first)
        shorter = min(self.last - self.first, other.last - other.first)
        return min(self.again, other.again) > 0 and 2 * common >= shorter


def _some(one: frozenset[int], other: frozenset[int]) -> frozenset[int]:
    return frozenset(sorted(one | other)[:_SOME])


class Sign(NamedTuple):
    """Noted of the lines of a broker that have that value of a sign."""

    broker: str
    sign: str
    value: str
    span: _Span


class Connection(NamedTuple):
    """A connection of a log."""

    name: str
    number: int
    client: tuple[str, str, str, int]
    """Its user, its client-id, its host, and the kind of its requests that have bytes."""
    first_ms: int
    last_ms: int
    """When it sent requests."""
    again: int
    """How many after its first."""


def is_anywhere(connection: str) -> bool:
    """Whether a connection shows no address of its broker, or one that other brokers may have as well."""
    local = _LOCAL.match(connection)
    return local is None or local["host"].startswith(_LOOPBACK + _OF_CONTAINERS)


def user_of(user: str, connection: str) -> str:
    """The user without the connection, which is in it where MSK authenticates by IAM."""
    return user.partition(connection)[0]


class Origins:
    """Where the lines of one log are from, and when."""

    def __init__(self, broker: str) -> None:
        self._broker = broker
        self._signs: dict[str, dict[str, _Span]] = {}

    def add(self, signs: Mapping[str, str], event: UsageEvent, fields: Mapping[str, Any], connection: int) -> None:
        """Takes the signs of a request's line; what stands in the request as well is none."""
        if not is_anywhere(event.connection):
            return
        traits = [fields.get(name) for name in ("listener", "securityProtocol", "clientInformation")]
        asked = fields.get("request") if event.api in ("produce", "fetch") else None
        for topic in [*(asked or {}).get("topicData" if event.api == "produce" else "topics", ())][:1]:
            traits += [topic.get(name) for name in ("name", "topic", "topicId")]
        who = f"{event.api} User:{user_of(event.user, event.connection)} {event.client_id} {event.ip} {traits}".lower()
        about = f"{who} {event.user} {event.connection}".lower()
        span = _Span(event.time_ms, event.time_ms, frozenset({connection}), frozenset({crc32(who.encode())}), 0)
        for sign, value in signs.items():
            if len(value) < 3 or value.lower() not in about:
                self._span(sign, value, span)

    def connected(self, connection: Connection, path: str) -> None:
        """Takes a connection that is in a file."""
        client = frozenset({crc32(f"{connection.client}".encode())})
        span = _Span(connection.first_ms, connection.last_ms, frozenset({connection.number}), client, connection.again)
        local = _LOCAL.match(connection.name)
        if local is not None and not local["host"].startswith(_LOOPBACK):
            of = "in IPv6 " if ":" in local["host"] else ""
            self._span(f"port {local['port']} {of}is that of", local["host"], span._replace(again=_AGAIN))
        if is_anywhere(connection.name):
            self._span("file", path, span)
            for place, word in enumerate(_words_of(path), 1):  # a broker's parts have one
                self._span(f"word {place} of the file's name is", word, span)

    def _span(self, sign: str, value: str, span: _Span) -> None:
        spans = self._signs.setdefault(sign, {})
        known = spans.get(value)
        if known is not None:
            spans[value] = known.with_(span)
        elif len(spans) < _VALUES:
            spans[value] = span

    def notes(self) -> Iterator[Sign]:
        """What to note of them; of a sign of no brokers, only two values that show that."""
        for sign, whole in self._signs.items():
            owners: dict[int, str] = {}
            spans = whole
            for value, span in whole.items():
                if shared := [owners[connection] for connection in span.connections if connection in owners]:
                    spans = {value: span, shared[0]: whole[shared[0]]}
                    break
                owners |= dict.fromkeys(span.connections, value)
            yield from (Sign(self._broker, sign, value, span) for value, span in spans.items())


def check(source: str, noted: Iterable[object]) -> str | None:
    """What may show several brokers, but may also be of connections, or have come by chance; None for nothing.

    Raises UnreadableFile where the lines of one log were written by several brokers at a time. So it does where lines
    of one broker are in folders of several.
    """
    doubt = None
    for difference, is_sure in _mixed(source, noted):
        if is_sure:
            raise several(source, difference)
        doubt = doubt or difference
    return doubt


def difference(source: str, noted: Iterable[object]) -> str | None:
    """What may show several brokers, also where it is sure; None for nothing."""
    return next((difference for difference, _ in _mixed(source, noted)), None)


def _mixed(source: str, noted: Iterable[object]) -> Iterator[tuple[str, bool]]:
    """(what distinguishes brokers, whether it is sure)."""
    signs: dict[tuple[str, str], dict[str, _Span]] = {}
    for note in noted:
        if isinstance(note, Sign):
            broker, sign, value, span = note
            spans = signs.setdefault((broker, sign), {})
            spans[value] = spans[value].with_(span) if value in spans else span
    peers: dict[str, _Span] = {}
    for (broker, sign), spans in signs.items():
        for span in spans.values() if sign == "file" or sign.startswith("port ") else ():
            peers[broker] = peers[broker].with_(span) if broker in peers else span
    for (name, one), (other_name, other) in combinations(sorted(peers.items()), 2):
        if one.beside(other) and len(one.connections & other.connections) > 1:
            both = f"the folders {name} and {other_name} are of one broker: they have connections in common"
            raise UnreadableFile(f"{source}: {both}", hint=_ONE)
    for (broker, sign), spans in sorted(signs.items()):
        pairs = [*combinations(sorted(spans.items()), 2)]
        is_port = sign.startswith("port ")
        if not all(one.connections.isdisjoint(other.connections) for (_, one), (_, other) in pairs):
            continue
        if sign.endswith(" is") and not _side_by_side(int(sign.split()[1]), signs[broker, "file"]):
            continue
        sizes = [
            max(len(one.connections), len(other.connections))
            for (shorter, one), (longer, other) in pairs
            if one.beside(other)
            and not longer.startswith(shorter)  # where a line was cut off, so is a name behind it
            and (is_port or not one.clients.isdisjoint(other.clients))
        ]
        if sizes:
            names = [f"log 1 in {name}" if f"log 2 in {name}" in spans else name for name in sorted(spans)[:3]]
            what = sign if is_port or sign.endswith(" is") else "they are from"
            yield (
                f"{what} {', '.join(sorted(names))}",
                is_port or (max(sizes) > 1 and sum(span.again for span in spans.values()) >= _AGAIN),
            )


def _side_by_side(place: int, files: Mapping[str, _Span]) -> bool:
    """Whether files that differ in that word of their names are of one time.

    Words of one broker's parts do not: a minute comes again in the next hour.
    """
    spans = sorted((span.first, _words_of(path)[place - 1 : place], span) for path, span in files.items())
    return any(word != next_word and one.beside(other) for (_, word, one), (_, next_word, other) in pairwise(spans))


def _words_of(path: str) -> list[str]:
    return re.findall("[A-Za-z0-9]+", name_of(path))


def doubted(why: str) -> str:
    """The warning about what `check` found."""
    return f"the lines may be of several brokers, whose rates are added up: {why}; {HINT}"


def several(source: str, why: str) -> UnreadableFile:
    """The error for lines that several brokers wrote."""
    return UnreadableFile(f"{source}: lines of several brokers: {why}", hint=HINT)
