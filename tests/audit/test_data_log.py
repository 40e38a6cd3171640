"""What a request log shows of the data: batches, fetches, ids of topics."""

import gzip
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kquota.audit.batch import Tally
from kquota.audit.sources import ReadSettings, Split, plan_splits, read
from kquota.audit.sources.data_log import FORGOTTEN, Appended, DataLog, Fetched, Part, table
from tests.audit.recorded import LOG
from tests.audit.request_lines import MOMENT, fetch, fields, line
from tests.support.scheduling import by_day

TOPIC = "AAAAAAAAAAAAAAAAAAAAAQ"


def logs_of(splits: Iterable[Split]) -> list[DataLog]:
    settings = ReadSettings("1", data=True)
    return [piece for split in splits for piece in read(split, settings, Tally()) if isinstance(piece, DataLog)]


def shown(folder: Path, *values: dict[str, Any]) -> DataLog:
    path = folder / "request.log"
    path.write_text("".join(map(line, values)), encoding="utf-8")
    (log,) = logs_of(plan_splits([str(path)], "request-log"))
    return log


def answered(offset: int, error: int = 0, **names: str) -> dict[str, Any]:
    """The answer to a produce request for partition 0 of one topic."""
    return {
        "responses": [{**names, "partitionResponses": [{"index": 0, "errorCode": error, "baseOffset": offset}]}],
        "throttleTimeMs": 0,
    }


def appended(log: DataLog) -> list[Appended]:
    return [Appended(*row) for row in table(log.appended, Appended).tolist()]


def test_a_batch_has_its_size_its_offset_and_its_time(tmp_path: Path) -> None:
    """It is there since its answer waited for followers, before the 1.25 ms of work."""
    log = shown(tmp_path, fields(response=answered(41, name="pears"), remoteTimeMs=20.0))
    # The line's time, and half a millisecond that is not printed, less 2 ms until all was sent.
    assert appended(log) == [Appended(MOMENT * 1000 - 1500 - 1250, 0, 0, 100, 41)]
    assert [*log.topics] == ["pears"]


@pytest.mark.parametrize("version", [8, 11])
def test_a_batch_without_an_answer_has_no_offset(tmp_path: Path, version: int) -> None:
    request = fields()["request"] | {"acks": 0}
    kept = fields(response=answered(7, name="pears"))
    log = shown(tmp_path, fields(version=version, request=request, response={}), kept)
    assert [each.offset for each in appended(log)] == [7]


def test_a_refused_batch_is_none(tmp_path: Path) -> None:
    log = shown(tmp_path, fields(response=answered(-1, 87, name="pears")), fields(response=answered(7, name="pears")))
    assert [each.offset for each in appended(log)] == [7]


def test_topics_go_by_name_and_by_id(tmp_path: Path) -> None:
    by_id = fields()["request"] | {
        "topicData": [{"topicId": TOPIC, "partitionData": [{"index": 0, "recordsSizeInBytes": 9}]}]
    }
    named = {"errorCode": 0, "name": "pears", "topicId": TOPIC}
    failed = {"errorCode": 3, "name": "plums", "topicId": "AAAAAAAAAAAAAAAAAAAAAA"}
    log = shown(
        tmp_path,
        fields(response=answered(0, name="pears")),
        fields(version=13, request=by_id, response=answered(0, topicId=TOPIC)),
        fields("METADATA", 3, 13, request={}, response={"topics": [named, failed]}),
    )
    assert list(log.topics) == ["pears", f"#{TOPIC}"]
    assert [each.topic for each in appended(log)] == [0, 1]
    assert log.ids == {TOPIC: "pears"}


def test_a_fetch_has_its_partitions(tmp_path: Path) -> None:
    value = fetch([{"partitionIndex": 3, "errorCode": 0, "abortedTransactions": None, "recordsSizeInBytes": 1000}])
    value["request"] |= {
        "sessionId": 5,
        "sessionEpoch": 2,
        "topics": [
            {"topicId": TOPIC, "partitions": [{"partition": 3, "fetchOffset": 70, "partitionMaxBytes": 1 << 20}]}
        ],
        "forgottenTopicsData": [{"topicId": TOPIC, "partitions": [1]}],
    }
    log = shown(tmp_path, value, fetch([], throttleTimeMs=12))
    first, throttled = (Fetched(*row) for row in table(log.fetched, Fetched).tolist())
    assert (first.whole, first.layout, first.asked, first.delivered) == (0, 16, 2, 1)
    assert (throttled.whole, throttled.layout, throttled.asked) == (1, ~16, 0)
    assert table(log.parts, Part).tolist() == [[0, 3, 70, 1 << 20], [0, 1, FORGOTTEN, 0], [0, 3, 1000, 0]]


def test_followers_show_nothing(tmp_path: Path) -> None:
    copying = fetch([])
    copying["request"] |= {
        "replicaState": {"replicaId": 2, "replicaEpoch": 1},
        "topics": [{"topicId": TOPIC, "partitions": [{"partition": 0, "fetchOffset": 9, "partitionMaxBytes": 1}]}],
    }
    (tmp_path / "request.log").write_text(line(copying), encoding="utf-8")
    assert logs_of(plan_splits([str(tmp_path / "request.log")], "request-log")) == []


def test_damaged_data_is_no_damaged_line(tmp_path: Path) -> None:
    """What is charged is known, so the line counts; its data is not."""
    path = tmp_path / "request.log"
    path.write_text(line(fields(response=answered("x", name="pears"))), encoding="utf-8")  # type: ignore[arg-type]
    tally = Tally()
    (split,) = plan_splits([str(path)], "request-log")
    pieces = list(read(split, ReadSettings("1", data=True), tally))
    assert (tally.events, tally.rejected) == (1, 0)
    assert not any(isinstance(piece, DataLog) for piece in pieces)


def test_it_does_not_matter_how_a_log_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "request.log"
    lines = gzip.decompress(LOG.read_bytes()).splitlines(keepends=True)
    path.write_bytes(b"".join(lines[8000 : 10000 if by_day() else 14000]))
    (whole,) = plan_splits([str(path)], "request-log")
    cut = path.stat().st_size // 2
    halves = [replace(whole, end=cut), replace(whole, start=cut, end=path.stat().st_size)]
    one, two = logs_of([whole]), logs_of(halves)
    assert len(two) == 2
    for name, kind in (("appended", Appended), ("fetched", Fetched), ("parts", Part)):
        uncut, joined = ([row for log in logs for row in _named(log, name, kind)] for logs in (one, two))
        assert uncut == joined
    assert one[0].rows > 500


def _named(log: DataLog, name: str, kind: Any) -> list[list[Any]]:
    """The rows of a table, with names in place of codes."""
    texts = {"topic": [*log.topics], "user": [*log.users], "client": [*log.clients]}
    return [
        [texts[column][value] if column in texts else value for column, value in zip(kind._fields, row, strict=True)]
        for row in table(getattr(log, name), kind).tolist()
    ]
