"""Requests that a recording had and that could not be read: what they may belong to is not known to be unthrottled.

A line shows its API and its client-id at the beginning and its principal at the end, where a shipper cuts it off. So a
lost request may be of any user. A row of a usage table may show all three.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kquota.audit.sources.envelope import LEFT_OUT, MARK
from kquota.core.enforcement.apis import spelled
from kquota.core.findings.verdicts import Verdict
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey
from kquota.core.resolve.resolver import Sensors, encode_user, tags

_UNREAD: Final = "some requests in the recording cannot be read"
REASON: Final = f"{_UNREAD}, and may be of this counter"
_REQUEST: Final = re.compile(rf"{MARK}|Completed\W+(?:20)?request|requestHeader|requestApiKeyName", re.IGNORECASE)
_OTHERS: Final = re.compile(r"\A(?!.*Completed request:).*(?:Handling request:|: |\w )RequestHeader\(", re.DOTALL)
"""What other loggers of a broker say of requests, of which the request log has lines of its own."""
_API: Final = re.compile(r'(?:requestApiKeyName[\\"]*\s*:\s*[\\"]*|apiKey=)([A-Z_]+)')
_CLIENT: Final = re.compile(
    r'(\\*"+)clientId\1\s*:\s*\1(?P<name>[\w.@/: -]*)\1\s*[,}]'
    r"|clientId=(?P<old>[\w.@/: -]*), correlationId=(?!.*correlationId)",
    re.ASCII,
)
"""A client-id that stands there whole, and of letters that no collector escapes or loses."""
_CHARGED: Final = {
    "PRODUCE": QuotaKey.PRODUCER_BYTE_RATE,
    **dict.fromkeys(("FETCH", "SHAREFETCH"), QuotaKey.CONSUMER_BYTE_RATE),
    **dict.fromkeys(("CREATETOPICS", "DELETETOPICS", "CREATEPARTITIONS"), QuotaKey.CONTROLLER_MUTATION_RATE),
}
"""What a request is charged to besides thread time, by its API as `spelled` has it."""
_GONE: Final = r"(?:suppress|dropp|discard|los[st]|omitt|missed)"
_THINGS: Final = r"\d+\s+(?:log\s+)?(?:message|event|entr|line|record|callback)"
_SUPPRESSED: Final = re.compile(
    rf"(?i){_GONE}\w*\W+{_THINGS}|{_THINGS}\w*\W+(?:\w+\W+){{0,2}}{_GONE}"
    r"|\b(?:drop|skip)\w*\s(?:lo\w+\s)?(?:messages|events|lines|data)\b|(?:message|event|line)(?:s|\(s\))\s+dropped"
    r"|(?:\A|[\[(<])\W{0,8}[\w ,.]{0,40}\b(?:truncated|omitted)\b[\w ,.]{0,40}\W{0,8}\Z"
    r"|\bbinary file\b.{0,500}\bmatches\W*\Z"
)
"""What shippers, loggers and grep write where they leave lines out."""
SEQUENCE: Final = 6
"""Of the numbers of one connection, or one client: its number, the first, the last, how many there are and how many are
missing, and which percentage of them shows that none is."""


class LostRequest(NamedTuple):
    """Noted of a request that could not be read; empty is what nobody knows of it."""

    key: str
    client_id: str = ""
    user: str = ""


class Gap(NamedTuple):
    """Noted of so many requests of a broker, of whose sequences (SEQUENCE) one lacks some."""

    broker: str
    rows: int
    sequences: tuple[tuple[int, ...], ...]


ANY: Final = [LostRequest(key.value) for key in QuotaKey if key is not QuotaKey.CONNECTION_CREATION_RATE]
"""What to note where nobody knows whose requests are lost."""


def notes(text: str) -> Iterator[LostRequest]:
    """What to note of a line that could not be read; nothing of one that is no request."""
    text = text.replace("\0", "")  # of UTF-16 behind other text
    if _SUPPRESSED.search(text) or LEFT_OUT.search(text):
        yield from ANY
    if _OTHERS.match(text) or not _REQUEST.search(text):
        return
    apis, client = _API.findall(text), _CLIENT.search(text)
    if len(apis) > 1:  # several requests in one line
        yield from ANY
        return
    name = "" if client is None else client["name"] or client["old"] or ""
    yield from of(apis[0] if apis else "", name)


def of(api: str, client_id: str, user: str = "") -> Iterator[LostRequest]:
    """What to note of a request of that API, client-id and user; an empty text is one that is not known."""
    charged = [_CHARGED[spelled(api)]] if spelled(api) in _CHARGED else [] if api else _CHARGED.values()
    for key in {*charged, QuotaKey.REQUEST_PERCENTAGE}:
        yield LostRequest(key.value, client_id, user)


def gap(broker: str, rows: int, sequences: Collection[Sequence[int]]) -> Iterator[Gap]:
    """What to note of so many requests of a broker where one of their sequences (SEQUENCE) lacks some."""
    if any(sequence[4] for sequence in sequences):
        yield Gap(broker, rows, tuple(tuple(map(int, sequence)) for sequence in sequences))


def _missing(gaps: Iterable[Gap]) -> int:
    """How many requests are in no part of a log: a part of a stream lacks what another one has."""
    known: dict[tuple[str, int], list[list[int]]] = defaultdict(list)
    for broker, _, sequences in gaps:
        for number, *sequence in sequences:
            known[broker, number].append(sequence)
    missing = 0
    for parts in known.values():
        joined: list[list[int]] = []
        for part in sorted(parts):
            if joined and part[0] <= joined[-1][1]:
                _, last, count, lacking, share = joined[-1]
                joined[-1][1:] = max(last, part[1]), count + part[2], lacking + part[3], max(share, part[4])
            else:
                joined.append(part)
        for first, last, count, lacking, share in joined:
            span = last - first + 1
            missing += min(lacking, span - count) if 100 * count < share * span else 0
    return missing


class Lost:
    """The requests that could not be read, by what is known of them."""

    def __init__(self, noted: Mapping[str, Iterable[object]]) -> None:
        """From what the sources noted (`Tally.noted`)."""
        self._sensors: dict[str, Sensors] = defaultdict(Sensors)
        notes = [note for shown in noted.values() for note in shown]
        gaps = [note for note in notes if isinstance(note, Gap)]
        missing = _missing(gaps)
        of = missing + sum(gap.rows for gap in gaps)
        self.lacks = f"about {missing:,} of {of:,} requests are not in the log, by their numbers" if missing else ""
        """How many are missing, where their numbers say so."""
        self.reason = self.lacks or REASON
        """Why nobody knows."""
        self.of_anybody = self.lacks or _UNREAD
        for note in [*notes, *(ANY if missing else ())]:
            if isinstance(note, LostRequest):
                self._sensors[note.key].add(f"{encode_user(note.user)}:{note.client_id}")

    def __bool__(self) -> bool:
        return bool(self._sensors)

    def may_be_of(self, key: str, sensor: str) -> bool:
        """Whether one may be charged to a counter."""
        return key in self._sensors and self._sensors[key].meet(*tags(sensor))

    def doubted(self, findings: pa.Table) -> pa.Table:
        """The findings, without a verdict on any counter that one may be charged to."""
        keys, sensors = (findings.column(name).to_pylist() for name in ("key", "sensor"))
        doubtful = [self.may_be_of(key, sensor) for key, sensor in zip(keys, sensors, strict=True)]
        for name, doubt in (("verdict", Verdict.UNDETERMINED.value), ("reason", self.reason)):
            place = findings.schema.get_field_index(name)
            column = pc.if_else(pa.array(doubtful, pa.bool_()), doubt, findings.column(name))
            findings = findings.set_column(place, findings.schema.field(place), column)
        return findings

    def may_be_governed(self, entity: Entity, key: QuotaKey) -> bool:
        """Whether the quota of an entity may govern one."""
        user, client_id = (name if isinstance(name, str) else "" for name in (entity.user, entity.client_id))
        return self.may_be_of(key.value, f"{encode_user(user)}:{client_id}")


NONE_LOST: Final = Lost({})
