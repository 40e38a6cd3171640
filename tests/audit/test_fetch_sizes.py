"""What throttled fetches would have held, rebuilt from what was produced: the rules of a broker one by one."""

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kquota.audit.batch import Tally
from kquota.audit.ledger.fetch_sizes import ALIKE_US, sizes_of
from kquota.audit.sources import ReadSettings, plan_splits, read
from kquota.audit.sources.data_log import DataLog
from kquota.audit.sources.sizes import fetch_response_size
from tests.audit import recorded
from tests.audit.request_lines import compact, fields
from tools.accuracy.throttles import logs_of

PEARS, PLUMS = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"
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


def produced(at_ms: float, size: int, offset: int, *, topic: str = "pears", acks: int = 1, waits_ms: float = 0) -> Line:
    """One batch to partition 0, whose answer waited so long for followers."""
    data = [{"name": topic, "partitionData": [{"index": 0, "recordsSizeInBytes": size}]}]
    answer = [{"name": topic, "partitionResponses": [{"index": 0, "errorCode": 0, "baseOffset": offset}]}]
    request = {"transactionalId": None, "acks": acks, "timeoutMs": 1, "topicData": data}
    response = {"responses": answer, "throttleTimeMs": 0} if acks else {}
    return Line(at_ms, fields(request=request, response=response, **QUICK | {"remoteTimeMs": waits_ms}))


def known(at_ms: float, name: str, topic_id: str) -> Line:
    """The answer to METADATA that shows a topic's id."""
    topics = [{"errorCode": 0, "name": name, "topicId": topic_id}]
    return Line(at_ms, fields("METADATA", 3, 13, request={}, response={"topics": topics}, **QUICK))


def fetched(
    at_ms: float,
    asked: dict[str, int],
    delivered: dict[str, int] | None,
    *,
    epoch: int = -1,
    forgets: Sequence[str] = (),
    each: int = MOST,
) -> Line:
    """A fetch of partition 0 of topics by id; nothing is delivered of a throttled one (None)."""
    request = {
        "maxWaitMs": 500,
        "minBytes": 1,
        "maxBytes": MOST,
        "isolationLevel": 0,
        "sessionId": 7,
        "sessionEpoch": epoch,
        "topics": [
            {"topicId": topic, "partitions": [{"partition": 0, "fetchOffset": offset, "partitionMaxBytes": each}]}
            for topic, offset in asked.items()
        ],
        "forgottenTopicsData": [{"topicId": topic, "partitions": [0]} for topic in forgets],
    }
    part = {"partitionIndex": 0, "errorCode": 0, "abortedTransactions": None}
    responses = [
        {"topicId": topic, "partitions": [part | {"recordsSizeInBytes": size}]}
        for topic, size in (delivered or {}).items()
    ]
    response = {"throttleTimeMs": 0, "errorCode": 0, "sessionId": 7, "responses": responses}
    made = fields("FETCH", 1, 16, request=request, response=response, **QUICK)
    return Line(at_ms, made | {"throttleTimeMs": 0 if delivered is not None else 100})


def size_of(**delivered: int) -> int:
    """The bytes charged for a fetch that holds so many of each topic (`pears`, `plums`)."""
    ids = {"pears": PEARS, "plums": PLUMS}
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
    return [
        row for batch in sizes_of("1", logs) for row in zip(batch.time_ms.tolist(), batch.bytes.tolist(), strict=True)
    ]


START = [known(0, "pears", PEARS), known(0, "plums", PLUMS)]
# Where nothing was delivered, nothing shows that the rules hold there: each test delivers some of both topics.
SHOWN = [
    *START,
    produced(10, 500, 0),
    produced(20, 600, 10, topic="plums"),
    fetched(100, {PEARS: 0, PLUMS: 10}, {PEARS: 500, PLUMS: 600}),
]


def test_it_is_cut_anywhere_but_begins_with_a_whole_batch(tmp_path: Path) -> None:
    """At the largest response of the time, which such a client gets sooner or later."""

    def second(largest: int, each: int = MOST) -> dict[int, int]:
        asked = {PEARS: 30, PLUMS: 40}
        more = [produced(200, 1000, 30), produced(210, 1000, 31), produced(300, 2000, 40, topic="plums")]
        got = {PEARS: min(largest, 2000), PLUMS: max(largest - 2000, 0)}
        return rebuild(tmp_path, [*SHOWN, *more, fetched(400, asked, None, each=each), fetched(900, asked, got)])

    assert second(1500) == {399: size_of(pears=1500, plums=0)}  # no room for the first batch of plums
    assert second(4000) == {399: size_of(pears=2000, plums=2000)}
    assert second(1500, each=1200) == {399: size_of(pears=1200, plums=0)}
    assert second(1500, each=10) == {399: size_of(pears=1000, plums=0)}  # a batch is whole where it is the first data


def test_a_quota_that_changes_changes_where_responses_are_cut(tmp_path: Path) -> None:
    late = 3 * ALIKE_US / 1000
    lines = [
        *SHOWN,
        *(produced(200 + number, 1000, 30 + number) for number in range(9)),
        fetched(300, {PEARS: 30, PLUMS: 20}, {PEARS: 5000}),
        fetched(late, {PEARS: 35, PLUMS: 20}, None),
        fetched(late + 100, {PEARS: 35, PLUMS: 20}, {PEARS: 2300}),
    ]
    assert rebuild(tmp_path, lines) == {int(late) - 1: size_of(pears=2300, plums=0)}


def test_a_session_has_an_order_of_its_own(tmp_path: Path) -> None:
    """What was delivered moves to the end, and what is forgotten is not read."""
    lines = [
        *START,
        produced(10, 500, 0),
        produced(20, 600, 10, topic="plums"),
        fetched(100, {PEARS: 0, PLUMS: 10}, {PEARS: 500, PLUMS: 600}, epoch=0),
        produced(200, 700, 1),
        fetched(250, {PEARS: 1, PLUMS: 11}, {PEARS: 700}, epoch=1),
        produced(300, 1000, 2),
        produced(310, 1000, 11, topic="plums"),
        fetched(400, {PEARS: 2}, None, epoch=2),
        fetched(500, {}, {PLUMS: 1000, PEARS: 100}, epoch=3),
        fetched(600, {}, None, epoch=4, forgets=[PLUMS]),
    ]
    # In a session only what has data is answered.
    assert rebuild(tmp_path, lines[:-2]) == {399: size_of(plums=1000)}
    assert rebuild(tmp_path, [*lines[:-2], lines[-1]]) == {399: size_of(plums=1000), 599: size_of(pears=1000)}


def test_a_session_whose_begin_is_not_in_the_log_is_not_guessed(tmp_path: Path) -> None:
    lines = [line for line in SHOWN if line.value["requestHeader"]["requestApiKeyName"] != "FETCH"]
    shown = fetched(100, {PEARS: 0, PLUMS: 10}, {PEARS: 500, PLUMS: 600}, epoch=3)
    assert rebuild(tmp_path, [*lines, shown, fetched(400, {PEARS: 0}, None, epoch=5)]) == {}


@pytest.mark.parametrize("got", [700, 1500])
def test_nothing_is_used_where_delivered_fetches_do_not_come_out(tmp_path: Path, got: int) -> None:
    """Such as where the broker compresses anew, or where lines of producers are missing."""
    lines = [*SHOWN, produced(200, 1000, 30), fetched(300, {PEARS: 30, PLUMS: 20}, {PEARS: got})]
    assert rebuild(tmp_path, [*lines, fetched(400, {PEARS: 30, PLUMS: 20}, None)]) == {}


def test_nothing_is_used_of_batches_without_offsets(tmp_path: Path) -> None:
    """With acks=0 the log shows no offset."""
    lines = [
        *START,
        *(produced(10 * number, 100, 0, acks=0) for number in range(1, 11)),
        fetched(200, {PEARS: 0}, {PEARS: 1000}),
        fetched(400, {PEARS: 10}, None),
    ]
    assert rebuild(tmp_path, lines) == {}


def test_consumers_see_what_all_followers_have(tmp_path: Path) -> None:
    """The answer to a producer waits for the followers."""
    asked = {PEARS: 30, PLUMS: 20}
    lines = [*SHOWN, produced(200, 1000, 30), produced(400, 1000, 31, acks=-1, waits_ms=150), fetched(300, asked, None)]
    assert rebuild(tmp_path, [*lines, fetched(500, asked, {PEARS: 2000})]) == {299: size_of(pears=1000, plums=0)}


@pytest.mark.parametrize("recording", recorded.RECORDINGS, ids=lambda recording: recording.name)
def test_real_fetches_come_out(recording: recorded.Recording) -> None:
    """Of three recordings every size of a throttled fetch is known, and hardly a delivered one does not come out."""
    rows = [row for row in recorded.findings_of(recording).to_pylist() if row["estimated_events"]]
    assert len(rows) >= 2
    for row in rows:
        assert row["rebuilt_events"] == row["estimated_events"]
        assert row["rebuilt_share"] > 0.99


def test_it_does_not_matter_how_a_log_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Into splits, and into batches."""
    log = logs_of(recorded.RECORDINGS[1].folder)["broker-2"]
    text = gzip.decompress(log.read_bytes()).splitlines(keepends=True)
    whole, first, second = (tmp_path / name for name in ("whole.log", "first.log", "second.log"))
    whole.write_bytes(b"".join(text))
    first.write_bytes(b"".join(text[:6001]))
    second.write_bytes(b"".join(text[6001:]))

    expected = sorted(_rebuilt([whole]))

    assert len(expected) > 300
    assert sorted(_rebuilt([second, first])) == expected
    monkeypatch.setattr("kquota.audit.sources.request_log.BATCH_ROWS", 500)
    assert sorted(_rebuilt([first, second])) == expected
