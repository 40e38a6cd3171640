"""The compiled reading of usual lines: exactly what `request_line.parse` makes of them, or nothing."""

import gzip
import itertools
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from kquota.audit.batch import Batch, Tally
from kquota.audit.sources import ReadSettings, Split, request_log
from kquota.audit.sources.data_log import DATA_APIS, Appended, ConnectionLog, DataLog, Fetched, Part, table
from kquota.audit.sources.names import Names, row_of
from kquota.audit.sources.request_line import parse
from kquota.audit.sources.requests import Requests
from kquota.audit.sources.scanner import Scanner
from tests.audit import recorded
from tests.audit.mangled import WRAPPERS, Around
from tests.audit.mutated_lines import mutated
from tests.audit.request_lines import PARTITION, REFUSED, SHARED, asking, fetch, fields, line, share_fetch
from tests.support.scheduling import by_day

LINES = int(os.environ.get("KQUOTA_MUTATED_LINES", "1000" if by_day() else "3000"))
"""How many mutated lines are read both ways."""

USUAL = [
    *(fields(version=version) for version in range(9, 14)),
    *(fetch([dict(PARTITION)], version, request=asking((0, 5))) for version in range(13, 19)),
    fetch([], throttleTimeMs=300),
    fetch([], request=asking((3, 77))),
    fetch([{**PARTITION, "recordsSizeInBytes": size} for size in (0, 126, 127, 16382, 16383, 3_000_000)]),
    *(share_fetch([], version) for version in range(4)),
    share_fetch([SHARED]),
    share_fetch([], throttleTimeMs=300),
    share_fetch([], response=REFUSED),
    fetch([PARTITION], request={"topics": [], "replicaState": {"replicaId": 2, "replicaEpoch": 1}}),
    fetch([PARTITION], request={"topics": [], "replicaId": 2}),
    fields("SHARE_ACKNOWLEDGE", 79, 2, request={}, response={}),
    fields("LIST_OFFSETS", 2, 7, request={}, response={}),
    fields("HEARTBEAT", 12, 4, request={}, response={}, principal="User:CN=a,OU=b:c"),
]
OLD, NAMED, CARELESS, TRANSACTIONAL = (
    fields(version=3),
    fetch([dict(PARTITION)], 12, request=asking((0, 5))),
    fields(),
    fields(),
)
NAMED["response"]["responses"][0]["topic"] = "pears"
CARELESS["response"], CARELESS["request"]["acks"] = "", 0
TRANSACTIONAL["request"]["transactionalId"] = "tx"
USUAL += [OLD, NAMED, CARELESS, TRANSACTIONAL]


class Forgetful(Requests):
    """Takes each request for a new one."""

    def news(self, keys: Any, *_: Any) -> Any:
        return np.ones(len(keys), bool)


class Fast:
    """What the scanner makes of lines."""

    def __init__(self, zone: Any = UTC, *, data: bool = False) -> None:
        scanner = Scanner(zone)
        self.scanner, self.names = scanner, Names()
        self.data = DataLog("1") if data else None

    def __call__(self, lines: Sequence[bytes]) -> list[tuple[Any, ...] | None]:
        """A row with names for each of its codes; "follower" for one of those, None for what is left."""
        text = b"".join(lines)
        buffer = np.full(len(text) + 64, 10, np.uint8)
        buffer[: len(text)] = np.frombuffer(text, np.uint8)
        buffer.flags.writeable = False  # as the lines of a file: the code for it is compiled once
        at = 0
        rows: list[Any] = []
        self.scanner.begin(self.names, self.data, Forgetful(), ReadSettings().counts)
        while at < len(text):
            found = self.scanner.read(buffer, at, len(text))
            new: list[Any] = ["follower"] * found.count
            for number, row in zip(found.lines.tolist(), found.rows.tolist(), strict=True):
                new[number] = named(row, self.names)
            for number, begin in found.odd:
                new[number] = None
                assert text.startswith(lines[len(rows) + number], begin)
            assert new.count("follower") == found.followers
            rows += new
            at = found.stop
        assert len(rows) == len(lines)
        return rows


def named(row: Sequence[Any], names: Names) -> tuple[Any, ...]:
    return (*row[:2], names.users.names[row[2]], names.clients.names[row[3]], *row[4:])


def slow(text: bytes, zone: Any = UTC, data: DataLog | None = None) -> Any:
    """The same from the reading that knows everything; an error for what is no request."""
    names = Names()
    try:
        parsed = parse(text.decode(), zone)
    except ValueError as error:
        return error
    event = parsed.event
    if data is not None and parsed.fields and not parsed.fields["isForwarded"] and event.api.upper() in DATA_APIS:
        who = (event.user, event.client_id, names.connections[event.connection], event.time_ms)
        with suppress(KeyError, TypeError, AttributeError, ValueError, OverflowError):
            data.add(parsed.fields, parsed.moment, who)
    if event.exemption:
        return "follower" if event.exemption == "follower_fetch" else ValueError(event.exemption)
    row = np.frombuffer(row_of(event, names), np.int64)
    return named(row.tolist(), names)


def shown(log: DataLog) -> list[Any]:
    """What a log shows of the data, with names for codes."""
    topics, users, clients = ([*known] for known in (log.topics, log.users, log.clients))
    return [
        [(row[0], topics[row[1]], *row[2:]) for row in table(log.appended, Appended).tolist()],
        [(*row[:3], users[row[3]], clients[row[4]], *row[5:]) for row in table(log.fetched, Fetched).tolist()],
        [(topics[row[0]], *row[1:]) for row in table(log.parts, Part).tolist()],
    ]


def same(lines: Sequence[bytes], zone: Any = UTC, *, data: bool = False) -> int:
    """Holds both readings against each other; how many lines were left."""
    fast = Fast(zone, data=data)
    found, log = fast(lines), DataLog("1")
    for line_, row in zip(lines, found, strict=True):
        if row is not None:
            assert row == slow(line_, zone, log if data else None), line_
    if fast.data is not None:
        assert shown(fast.data) == shown(log)
    return found.count(None)


def test_what_clients_send_is_usual() -> None:
    assert same([line(value).encode() for value in USUAL]) == 0


@pytest.mark.parametrize("zone", [UTC, ZoneInfo("Asia/Kolkata")])
def test_a_real_log_is_usual_and_read_the_same(zone: Any) -> None:
    with gzip.open(recorded.LOG) as file:
        lines = list(itertools.islice(file, 0, None, 27 if by_day() else 9))
    assert same(lines, zone) < len(lines) / 100
    assert same(lines, zone, data=True) < len(lines) / 20


@pytest.mark.parametrize("data", [False, True])
def test_mutated_lines_are_read_the_same_or_left(data: bool) -> None:
    lines = [line(value).encode() for value in USUAL]
    with gzip.open(recorded.LOG) as file:
        lines += [
            text for text in itertools.islice(file, 0, None, 37) if b'{"isForwarded"' in text and len(text) < 6000
        ]
    for seed in range(0, LINES, 1000):
        left = same(list(mutated(lines, 1000, seed)), data=data)
        assert left < 900


@pytest.mark.parametrize("seed", [2000, 3000])
def test_what_is_left_spoils_no_other_line(seed: int) -> None:
    usual = [line(value).encode() for value in USUAL]
    assert None not in Fast()([*mutated(usual, 1000, seed), *usual])[1000:]


LAYOUTS = [
    "2026-05-04T12:50:30.456+02:30 Completed request:{}",
    "2026-05-04T12:50:31.456+05:30 Completed request:{}",
    "2026-05-04 10:20:30 {}",
    "[2026-05-04 10:20:31,000] [2026-05-04 10:20:30,456] Completed request:{}",
    "<135>May  4 10:20:31 host kafka[1]: [2026-05-04 10:20:30,456] {}",
    "2026-05-04T10:20:31.123456789Z stdout F [2026-05-04 10:20:30,456] DEBUG Completed request:{} (x)\r",
]


@pytest.mark.parametrize("zone", [UTC, ZoneInfo("Asia/Kolkata")])
def test_other_layouts_are_usual(zone: Any) -> None:
    """But for a local time that its collector's time moves into another zone."""
    text = line(USUAL[0])
    request = text[text.index("{") : text.rindex("}") + 1]
    assert same([f"{layout.format(request)}\n".encode() for layout in LAYOUTS], zone) == (zone is not UTC)


def test_a_line_with_another_request_behind_is_left() -> None:
    text = line(USUAL[0]).encode()
    assert same([text.rstrip(b"\n") + text, text]) == 1


def test_texts_that_fill_the_table_are_read_the_same() -> None:
    whole = line(fields(principal="User:0"))
    lines = [whole.replace('"User:0"', f'"User:{number}"').encode() for number in range(70_000)]
    rows = Fast()(lines)
    assert [row[2] for row in rows if row] == [str(number) for number in range(70_000)]


NEVER = 10**9
"""Of fewer lines, none is late."""


def in_envelopes(lines: Sequence[bytes], name: str, late: int) -> Iterator[bytes]:
    """The lines as a collector has them, which is late by an hour with one in so many; others come at once."""
    for number, text in enumerate(lines):
        whole = text.decode(errors="surrogateescape").rstrip("\n")
        stamp = re.match(r"\[(2026-1[0-2]-[0-3][0-9] [0-9:]{8}),([0-9]{3})\]", whole)
        at = datetime(2026, 5, 4, tzinfo=UTC)
        if stamp is not None and "99:99" not in whole:
            at = datetime.fromisoformat(f"{stamp[1]}.{stamp[2]}+00:00")
        at += timedelta(hours=number % late == late // 2, microseconds=number % 700)
        yield WRAPPERS[name](whole, Around(at, f"kafka-{number % 3}")).encode(errors="surrogateescape") + b"\n"


ENVELOPES = [
    ("", NEVER),
    *itertools.product(["docker", "loki", "elastic", "journald", "gelf", "element"], [1000, NEVER]),
]


@pytest.mark.parametrize(("name", "late"), ENVELOPES[: 2 if by_day() else None])
def test_a_file_is_read_the_same_with_and_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, late: int
) -> None:
    with gzip.open(recorded.LOG) as file:
        lines = list(itertools.islice(file, 0, (2500 if name else 6000) // (2 if by_day() else 1)))
    lines += [
        b"[2026-13-45 99:99:99,999]" + lines[0][25:],
        re.sub(rb'"principal":"User:', rb'"principal":"User:a\\tb', lines[0]),  # a tab, which collectors may have made
        b"\n",
        b" \r\n",
        *mutated(lines[:500], 500, 7),
        b"\n" * 3000,
        *lines[: len(lines) // 2],
        b"cut off",
    ]
    path = tmp_path / "request.log"
    path.write_bytes(b"".join(in_envelopes(lines, name, late) if name else lines))
    found = []
    for scanned in (True, False):
        monkeypatch.setattr(request_log, "is_worth", lambda *_, scanned=scanned: scanned)
        for end in (-1, path.stat().st_size // 2):
            tally = Tally()
            settings = ReadSettings(broker="1", data=True, addresses=True)
            pieces = list(request_log.read(Split("request-log", str(path), 0, end, 9000), settings, tally))
            batches = [piece for piece in pieces if isinstance(piece, Batch)]
            rows = [
                [batch.user.texts(), batch.client_id.texts(), *(getattr(batch, name).tolist() for name in NUMBERS)]
                for batch in batches
            ]
            logs = [piece for piece in pieces if isinstance(piece, ConnectionLog)]
            data = [
                [sorted(table, key=repr) for table in shown(piece)] for piece in pieces if isinstance(piece, DataLog)
            ]
            found.append((rows, logs, data, tally))
    assert found[:2] == found[2:]


NUMBERS = ("kind", "time_ms", "bytes", "request_ns", "bytes_complete", "throttle_ms", "connection", "detail")
