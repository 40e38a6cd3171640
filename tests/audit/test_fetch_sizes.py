"""What throttled fetches would have held, rebuilt from what was produced: the rules of a broker one by one."""

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kquota.audit.batch import Batch, Tally
from kquota.audit.ledger import fetch_sizes
from kquota.audit.ledger.fetch_sizes import MARKER_BYTES, Rebuilder, first_us
from kquota.audit.sources import ReadSettings, plan_splits, read
from kquota.audit.sources.data_log import DataLog
from kquota.audit.sources.sizes import fetch_response_size
from tests.audit import recorded
from tests.audit.request_lines import compact, fields
from tools.accuracy.throttles import logs_of

PEARS, PLUMS, OTHER_PEARS = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg", "AAAAAAAAAAAAAAAAAAAAAw"
MOST = 1 << 20


class Line(NamedTuple):
    """A line, and its time in ms from the first second."""

    at_ms: float
    value: dict[str, Any]

    def text(self) -> str:
        """As Kafka writes it, with microseconds."""
        seconds, ms = divmod(self.at_ms, 1000)
        stamp = f"2026-05-04 10:{int(seconds) // 60:02}:{int(seconds) % 60:02},{int(ms * 1000):06}"
        return f"[{stamp}] DEBUG Completed request:{compact(self.value)} (kafka.request.logger)\n"


QUICK: dict[str, Any] = {"localTimeMs": 0.0, "responseQueueTimeMs": 0.0, "sendTimeMs": 0.0}


def produced(
    at_ms: float, size: int, offset: int, *, topic: str = "pears", acks: int = 1, transaction: str | None = None
) -> Line:
    """One batch to partition 0."""
    data = [{"name": topic, "partitionData": [{"index": 0, "recordsSizeInBytes": size}]}]
    answer = [{"name": topic, "partitionResponses": [{"index": 0, "errorCode": 0, "baseOffset": offset}]}]
    request = {"transactionalId": transaction, "acks": acks, "timeoutMs": 1, "topicData": data}
    response = {"responses": answer, "throttleTimeMs": 0} if acks else {}
    return Line(at_ms, fields(request=request, response=response, **QUICK))


def known(at_ms: float, name: str, topic_id: str) -> Line:
    """The answer to METADATA that shows a topic's id."""
    topics = [{"errorCode": 0, "name": name, "topicId": topic_id}]
    return Line(at_ms, fields("METADATA", 3, 13, request={}, response={"topics": topics}, **QUICK))


def fetched(
    at_ms: float,
    asked: dict[str, int],
    delivered: dict[str, int] | None,
    *,
    session: tuple[int, int] = (0, -1),
    opens: int = 0,
    most: int = MOST,
    each: int = MOST,
    committed: int = 0,
    client: str = "app",
) -> Line:
    """A fetch of partition 0 of topics by id; nothing is delivered of a throttled one (None)."""
    request = {
        "maxWaitMs": 500,
        "minBytes": 1,
        "maxBytes": most,
        "isolationLevel": committed,
        "sessionId": session[0],
        "sessionEpoch": session[1],
        "topics": [
            {"topicId": topic, "partitions": [{"partition": 0, "fetchOffset": offset, "partitionMaxBytes": each}]}
            for topic, offset in asked.items()
        ],
        "forgottenTopicsData": [],
    }
    part = {"partitionIndex": 0, "errorCode": 0, "abortedTransactions": None}
    responses = [
        {"topicId": topic, "partitions": [part | {"recordsSizeInBytes": size}]}
        for topic, size in (delivered or {}).items()
    ]
    response = {"throttleTimeMs": 0, "errorCode": 0, "sessionId": opens or session[0], "responses": responses}
    made = fields("FETCH", 1, 16, request=request, response=response, **QUICK)
    made["requestHeader"]["clientId"] = client
    return Line(at_ms, made | {"throttleTimeMs": 0 if delivered is not None else 100})


def size_of(**delivered: int) -> int:
    """The bytes charged for a fetch that holds so many of each topic (`pears`, `plums`)."""
    ids = {"pears": PEARS, "plums": PLUMS, "again": OTHER_PEARS}
    asked: dict[str, int] = dict.fromkeys((ids[name] for name in delivered), 0)
    line = fetched(0, asked, {ids[name]: size for name, size in delivered.items()})
    return fetch_response_size(16, line.value["response"])


def rebuild(folder: Path, lines: Sequence[Line]) -> dict[int, int]:
    """The sizes of throttled fetches by their times (ms from the first second)."""
    path = folder / "request.log"
    path.write_text("".join(line.text() for line in lines), encoding="utf-8")
    return {time_ms % 3_600_000: size for time_ms, size in _rebuilt([path])}


def _rebuilt(paths: Sequence[Path]) -> list[tuple[int, int]]:
    logs = [
        piece
        for split in plan_splits([str(path) for path in paths], "request-log")
        for piece in read(split, ReadSettings("1", data=True), Tally())
        if isinstance(piece, DataLog)
    ]
    rebuilder = Rebuilder("1", [log.shared for log in logs])
    for log in sorted(logs, key=first_us):
        rebuilder.add(log, first_us(log))
    found: list[Batch] = list(rebuilder.finish())
    return [row for batch in found for row in zip(batch.time_ms.tolist(), batch.bytes.tolist(), strict=True)]


START = [known(0, "pears", PEARS), known(0, "plums", PLUMS)]
# Where nothing was delivered, nothing shows that the rules hold there: each test delivers some of both topics.
SHOWN = [
    *START,
    produced(10, 500, 0),
    produced(20, 600, 10, topic="plums"),
    fetched(100, {PEARS: 0, PLUMS: 10}, {PEARS: 500, PLUMS: 600}),
]


def test_it_holds_what_was_there_at_its_time(tmp_path: Path) -> None:
    lines = [
        *SHOWN,
        produced(200, 1000, 30),
        produced(300, 2000, 40),
        fetched(400, {PEARS: 30, PLUMS: 20}, None),
        produced(500, 4000, 50),
        fetched(600, {PEARS: 30, PLUMS: 20}, None),
        fetched(700, {PEARS: 30, PLUMS: 20}, {PEARS: 7000}),
    ]
    # A fetch without a session is answered for all its partitions.
    assert rebuild(tmp_path, lines) == {399: size_of(pears=3000, plums=0), 599: size_of(pears=7000, plums=0)}


def test_it_is_cut_anywhere_but_begins_with_a_whole_batch(tmp_path: Path) -> None:
    def second(most: int, each: int = MOST) -> dict[int, int]:
        asked = {PEARS: 30, PLUMS: 40}
        more = [produced(200, 1000, 30), produced(210, 1000, 31), produced(300, 2000, 40, topic="plums")]
        return rebuild(tmp_path, [*SHOWN, *more, fetched(400, asked, None, most=most, each=each)])

    assert second(1500) == {399: size_of(pears=1500, plums=0)}  # no room for the first batch of plums
    assert second(4100) == {399: size_of(pears=2000, plums=2000)}
    assert second(3999) == {399: size_of(pears=2000, plums=0)}
    assert second(10) == {399: size_of(pears=1000, plums=0)}  # a batch is whole where it is the first data
    assert second(MOST, each=1200) == {399: size_of(pears=1200, plums=0)}


def test_a_session_has_an_order_of_its_own(tmp_path: Path) -> None:
    """What was delivered moves to the end."""
    lines = [
        *START,
        produced(10, 500, 0),
        produced(20, 600, 10, topic="plums"),
        fetched(100, {PEARS: 0, PLUMS: 10}, {PEARS: 500, PLUMS: 600}, session=(0, 0), opens=7),
        produced(200, 700, 1),
        fetched(250, {PEARS: 1, PLUMS: 11}, {PEARS: 700}, session=(7, 1)),
        produced(300, 1000, 2),
        produced(310, 1000, 11, topic="plums"),
        fetched(400, {PEARS: 2}, None, session=(7, 2), most=1500),
        fetched(500, {}, {PLUMS: 1000}, session=(7, 3), most=1500),
    ]
    assert rebuild(tmp_path, lines) == {399: size_of(plums=1000)}  # in a session only what has data is answered


def test_a_session_whose_begin_is_not_in_the_log_is_not_guessed(tmp_path: Path) -> None:
    assert rebuild(tmp_path, [*SHOWN, fetched(400, {PEARS: 0}, None, session=(7, 5))]) == {}


def test_the_quota_caps_a_response_and_the_log_shows_at_what(tmp_path: Path) -> None:
    """Ten seconds' worth: also of fetches that were throttled before the first response of that size."""
    lines = [
        *SHOWN,
        *(produced(200 + number, 1000, 30 + number) for number in range(9)),
        fetched(400, {PEARS: 30, PLUMS: 20}, None),
        fetched(500, {PEARS: 30, PLUMS: 20}, {PEARS: 3300}),
        fetched(600, {PEARS: 33, PLUMS: 20}, None),
    ]
    assert rebuild(tmp_path, lines) == {399: size_of(pears=3300, plums=0), 599: size_of(pears=3300, plums=0)}


def test_nothing_is_used_where_delivered_fetches_do_not_come_out(tmp_path: Path) -> None:
    """Such as where the broker compresses anew, or where lines of producers are missing."""
    lines = [*SHOWN, produced(200, 1000, 30), fetched(300, {PEARS: 30, PLUMS: 20}, {PEARS: 700})]
    assert rebuild(tmp_path, [*lines, fetched(400, {PEARS: 30, PLUMS: 20}, None)]) == {}


def test_nothing_is_used_where_nothing_was_delivered(tmp_path: Path) -> None:
    lines = [*START, produced(10, 500, 0), fetched(400, {PEARS: 0}, None)]
    assert rebuild(tmp_path, lines) == {}


def test_batches_without_offsets_are_placed_by_time(tmp_path: Path) -> None:
    """With acks=0 the log shows no offset: how far a consumer is follows from what it got."""
    lines = [
        *START,
        *(produced(10 * number, 100 + number, 0, acks=0) for number in range(1, 11)),
        fetched(200, {PEARS: 0}, {PEARS: sum(range(101, 111))}),
        produced(300, 70, 0, acks=0),
        produced(310, 80, 0, acks=0),
        fetched(400, {PEARS: 10}, None),
        fetched(500, {PEARS: 10}, {PEARS: 150}),
    ]
    assert rebuild(tmp_path, lines) == {399: size_of(pears=150)}


def test_a_transaction_ends_with_a_marker_and_hides_what_is_behind(tmp_path: Path) -> None:
    ended = fields("END_TXN", 26, 4, request={"transactionalId": "t"}, response={"errorCode": 0}, **QUICK)
    lines = [
        *SHOWN,
        produced(200, 1000, 30, transaction="t"),
        produced(210, 300, 31),
        fetched(300, {PEARS: 30, PLUMS: 20}, None, committed=1),
        fetched(310, {PEARS: 30, PLUMS: 20}, None),
        Line(400, ended),
        fetched(500, {PEARS: 30, PLUMS: 20}, None, committed=1),
    ]
    assert rebuild(tmp_path, lines) == {
        299: size_of(pears=0, plums=0),
        309: size_of(pears=1300, plums=0),
        499: size_of(pears=1300 + MARKER_BYTES, plums=0),
    }


def test_a_topic_may_be_made_anew(tmp_path: Path) -> None:
    """Under the same name and with another id: what was in the old one is not in the new one."""
    lines = [
        *SHOWN,
        known(1000, "pears", OTHER_PEARS),
        produced(1010, 50, 0),
        fetched(1100, {OTHER_PEARS: 0}, {OTHER_PEARS: 50}),
        produced(1200, 60, 1),
        fetched(1300, {OTHER_PEARS: 1}, None),
    ]
    assert rebuild(tmp_path, lines) == {1299: size_of(again=60)}


def test_consumers_see_what_all_followers_have(tmp_path: Path) -> None:
    def copied(at_ms: float, offset: int) -> Line:
        line = fetched(at_ms, {PEARS: offset}, {})
        line.value["request"]["replicaState"] = {"replicaId": 2, "replicaEpoch": 1}
        return line

    lines = [
        *START,
        copied(5, 0),
        produced(10, 500, 0),
        copied(20, 1),
        fetched(100, {PEARS: 0}, {PEARS: 500}),
        produced(200, 1000, 1),
        produced(210, 1000, 2),
        copied(220, 2),
        fetched(300, {PEARS: 1}, None),
    ]
    assert rebuild(tmp_path, lines) == {299: size_of(pears=1000)}


@pytest.mark.parametrize("forget", [2, 3])
def test_old_batches_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forget: int) -> None:
    """A response that what is left fills is known all the same."""
    monkeypatch.setattr(fetch_sizes, "KEPT_BATCHES", forget)
    lines = [
        *SHOWN,
        *(produced(200 + number, 1000, 30 + number) for number in range(2 * forget)),
        fetched(400, {PEARS: 30, PLUMS: 20}, None, most=1500),
        fetched(500, {PEARS: 30, PLUMS: 20}, None, most=1_000_000),
    ]
    assert rebuild(tmp_path, lines) == {399: size_of(pears=1500, plums=0)}


@pytest.mark.parametrize("recording", recorded.RECORDINGS, ids=lambda recording: recording.name)
def test_real_fetches_come_out(recording: recorded.Recording) -> None:
    """Of three recordings every size of a throttled fetch is known, and with µs all delivered ones come out."""
    rows = [row for row in recorded.findings_of(recording).to_pylist() if row["estimated_events"]]
    assert len(rows) >= 2
    for row in rows:
        assert row["rebuilt_events"] == row["estimated_events"]
        assert row["rebuilt_share"] == 1.0


def test_it_does_not_matter_how_a_log_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Into splits, into batches, and into the pieces that are looked at together."""
    log = logs_of(recorded.RECORDINGS[1].folder)["broker-2"]
    text = gzip.decompress(log.read_bytes()).splitlines(keepends=True)
    whole, first, second = (tmp_path / name for name in ("whole.log", "first.log", "second.log"))
    whole.write_bytes(b"".join(text))
    first.write_bytes(b"".join(text[:6001]))
    second.write_bytes(b"".join(text[6001:]))

    expected = sorted(_rebuilt([whole]))

    assert len(expected) > 300
    assert sorted(_rebuilt([second, first])) == expected
    monkeypatch.setattr(fetch_sizes, "SETTLE_ROWS", 100)
    monkeypatch.setattr("kquota.audit.sources.request_log.BATCH_ROWS", 500)
    assert sorted(_rebuilt([first, second])) == expected
