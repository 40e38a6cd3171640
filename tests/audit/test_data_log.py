"""What a request log shows of the data: batches, followers, fetches, ids of topics, ends of transactions."""

import gzip
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kquota.audit.batch import Tally
from kquota.audit.sources import ReadSettings, Split, plan_splits, read
from kquota.audit.sources.data_log import NO_TRANSACTION, UNKNOWN_OFFSET, DataLog
from tests.audit.recorded import LOG
from tests.audit.request_lines import MOMENT, fetch, fields, line

TOPIC = "AAAAAAAAAAAAAAAAAAAAAQ"


def logs_of(splits: Iterable[Split]) -> list[DataLog]:
    """What the splits show."""
    settings = ReadSettings("1", data=True)
    return [piece for split in splits for piece in read(split, settings, Tally()) if isinstance(piece, DataLog)]


def shown(folder: Path, *values: dict[str, Any]) -> DataLog:
    """What those lines show."""
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


def test_a_batch_has_its_size_its_offset_and_its_times(tmp_path: Path) -> None:
    log = shown(tmp_path, fields(response=answered(41, name="pears")))
    begun_us, done_us, topic, partition, size, offset, transaction = (int(column[0]) for column in log.appended)
    # The line's time, and half a millisecond that is not printed, less 2 ms until all was sent, less 1.25 ms of work.
    assert (begun_us, done_us) == (MOMENT * 1000 - 2750, MOMENT * 1000 - 1500)
    assert (list(log.topics)[topic], partition, size, offset) == ("pears", 0, 100, 41)
    assert transaction == NO_TRANSACTION


@pytest.mark.parametrize("version", [8, 11])
def test_a_batch_without_an_answer_has_no_offset(tmp_path: Path, version: int) -> None:
    request = fields()["request"] | {"acks": 0}
    log = shown(tmp_path, fields(version=version, request=request, response={}))
    assert log.appended.first_offset.tolist() == [UNKNOWN_OFFSET]


def test_a_refused_batch_is_none(tmp_path: Path) -> None:
    log = shown(tmp_path, fields(response=answered(-1, 87, name="pears")), fields(response=answered(7, name="pears")))
    assert log.appended.first_offset.tolist() == [7]


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
    assert log.appended.topic.tolist() == [0, 1]
    assert log.ids == {("pears", TOPIC): MOMENT * 1000 - 1500}


def test_a_fetch_has_its_partitions(tmp_path: Path) -> None:
    value = fetch([{"partitionIndex": 3, "errorCode": 0, "abortedTransactions": None, "recordsSizeInBytes": 1000}])
    value["request"] |= {
        "sessionId": 5,
        "sessionEpoch": 2,
        "topics": [
            {
                "topicId": TOPIC,
                "partitions": [{"partition": 3, "fetchOffset": 70, "partitionMaxBytes": 1 << 20}],
            }
        ],
        "forgottenTopicsData": [{"topicId": TOPIC, "partitions": [1]}],
    }
    log = shown(tmp_path, value)
    fetched, parts = log.fetched, log.parts
    assert [int(column[0]) for column in (fetched.session, fetched.epoch, fetched.layout)] == [5, 2, 16]
    assert [int(column[0]) for column in (fetched.asked, fetched.forgotten, fetched.delivered)] == [1, 1, 1]
    assert np.column_stack(parts).tolist() == [[0, 3, 70, 1 << 20], [0, 1, 0, 0], [0, 3, 1000, 0]]


def test_a_throttled_fetch_and_a_follower(tmp_path: Path) -> None:
    empty = fetch([], throttleTimeMs=12)
    copying = fetch([])
    copying["request"] |= {
        "replicaState": {"replicaId": 2, "replicaEpoch": 1},
        "topics": [{"topicId": TOPIC, "partitions": [{"partition": 0, "fetchOffset": 9, "partitionMaxBytes": 1}]}],
    }
    ended = fields("END_TXN", 26, 4, request={"transactionalId": "t"}, response={"errorCode": 0})
    log = shown(tmp_path, empty, copying, ended)
    assert log.fetched.layout.tolist() == [~16]
    assert log.copied.replica.tolist() == [2]
    assert log.copied.offset.tolist() == [9]
    assert log.ended == [("t", MOMENT * 1000 - 2750)]


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
    path.write_bytes(b"".join(gzip.decompress(LOG.read_bytes()).splitlines(keepends=True)[8000:14000]))
    (whole,) = plan_splits([str(path)], "request-log")
    cut = path.stat().st_size // 2
    halves = [replace(whole, end=cut), replace(whole, start=cut, end=path.stat().st_size)]
    one, two = logs_of([whole]), logs_of(halves)
    assert len(two) == 2
    for name in ("appended", "fetched", "parts"):
        uncut, joined = (np.concatenate([np.column_stack(_named(log, name)) for log in logs]) for logs in (one, two))
        np.testing.assert_array_equal(uncut, joined)
    assert len(one[0].fetched.session) > 500


def _named(log: DataLog, name: str) -> list[Any]:
    """The columns of a table, with names in place of codes."""
    columns = getattr(log, name)._asdict()
    texts = {"topic": log.topics, "user": log.users, "client": log.clients}
    return [
        np.array(list(texts[column]))[values].astype(str) if column in texts and len(values) else values
        for column, values in columns.items()
    ]
