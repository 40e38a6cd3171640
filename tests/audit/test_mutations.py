"""What a controller's log tells of topics that are created and deleted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kquota.audit.batch import MUTATION, Batch, Tally
from kquota.audit.findings import ordered
from kquota.audit.pack import Packer
from kquota.audit.replay import find
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import ReadSettings, plan_splits, read
from kquota.audit.sources.mutations import UNKNOWN, Charge, TopicBook
from kquota.core.entity import Entity
from kquota.core.history import QuotaHistory
from kquota.core.quota import QuotaKey
from kquota.core.snapshot import QuotaSnapshot

KEYS = {"CREATE_TOPICS": 19, "DELETE_TOPICS": 20, "CREATE_PARTITIONS": 37, "BROKER_HEARTBEAT": 63}
NEWEST = {"CREATE_TOPICS": 7, "DELETE_TOPICS": 6, "CREATE_PARTITIONS": 3, "BROKER_HEARTBEAT": 1}
OK, EXISTS, INVALID_PARTITIONS, INVALID_REPLICAS, INVALID_ASSIGNMENT, REJECTED = 0, 36, 37, 38, 39, 89


def line(
    api: str,
    request: dict[str, Any],
    response: dict[str, Any],
    *,
    version: int | None = None,
    forwarded: bool = True,
    listener: str = "CONTROLLER",
) -> dict[str, Any]:
    """The fields of a line, as Kafka logs them."""
    return {
        "isForwarded": forwarded,
        "requestHeader": {
            "requestApiKey": KEYS[api],
            "requestApiVersion": NEWEST[api] if version is None else version,
            "correlationId": 7,
            "clientId": "deploy",
            "requestApiKeyName": api,
        },
        "request": {"timeoutMs": 30_000, **request},
        "response": {"throttleTimeMs": 0, **response},
        "connection": "127.0.0.1:9093-127.0.0.1:50000-0-1",
        "totalTimeMs": 10.0,
        "requestQueueTimeMs": 0.5,
        "localTimeMs": 1.5,
        "remoteTimeMs": 7.0,
        "throttleTimeMs": 0,
        "responseQueueTimeMs": 0.4,
        "sendTimeMs": 0.6,
        "securityProtocol": "PLAINTEXT",
        "principal": "User:ivan",
        "listener": listener,
        "clientInformation": {"softwareName": "unknown", "softwareVersion": "unknown"},
    }


def create(
    *topics: tuple[str, int, int],
    throttle_ms: int = 0,
    validate_only: bool = False,
    default: int = -1,
    **more: Any,
) -> dict[str, Any]:
    """CreateTopics; topics are (name, partitions, error)."""
    asked = [
        {"name": name, "numPartitions": count, "replicationFactor": 1, "assignments": [], "configs": []}
        for name, count, _ in topics
    ]
    answers = [
        {"name": name, "topicId": "AAAAAAAAAAAAAAAAAAAAAA", "errorCode": error, "numPartitions": default}
        for name, _, error in topics
    ]
    return line(
        "CREATE_TOPICS",
        {"topics": asked, "validateOnly": validate_only},
        {"topics": answers, "throttleTimeMs": throttle_ms},
        **more,
    )


def grow(*topics: tuple[str, int, int], message: str | None = None, placed: int | None = None) -> dict[str, Any]:
    """CreatePartitions; topics are (name, partitions from then on, error)."""
    assignments = None if placed is None else [{"brokerIds": [1]}] * placed
    return line(
        "CREATE_PARTITIONS",
        {
            "topics": [{"name": name, "count": count, "assignments": assignments} for name, count, _ in topics],
            "validateOnly": False,
        },
        {"results": [{"name": name, "errorCode": error, "errorMessage": message} for name, _, error in topics]},
    )


def delete(*topics: tuple[str, str, int], version: int = 6, throttle_ms: int = 0) -> dict[str, Any]:
    """DeleteTopics; topics are (name, id, error)."""
    named = [{"name": name, "topicId": "AAAAAAAAAAAAAAAAAAAAAA"} for name, _, _ in topics]
    answers: list[dict[str, Any]] = [
        {"name": name, "errorCode": error} | ({"topicId": topic_id} if version >= 6 else {})
        for name, topic_id, error in topics
    ]
    request: dict[str, Any] = {"topics": named} if version >= 6 else {"topicNames": [name for name, _, _ in topics]}
    return line("DELETE_TOPICS", request, {"responses": answers, "throttleTimeMs": throttle_ms}, version=version)


def charges(*lines: dict[str, Any], default_partitions: int = 1) -> list[list[Charge]]:
    book = TopicBook(default_partitions)
    return [book.read(each) for each in lines]


def sizes(charged: Sequence[Charge]) -> list[int]:
    return [charge.partitions for charge in charged]


def test_each_topic_is_charged_in_the_order_of_the_request() -> None:
    (found,) = charges(create(("b", 3, OK), ("a", 1, OK), ("c", 2, REJECTED), throttle_ms=640))

    assert found == [Charge(3, True, 0), Charge(1, True, 0), Charge(2, True, 640)]


def test_a_wait_that_rounds_to_nothing_is_a_rejection() -> None:
    (found,) = charges(create(("a", 1, REJECTED), throttle_ms=0))

    assert found == [Charge(1, True, 1)]


def test_a_topic_that_fails_before_is_not_charged() -> None:
    (found,) = charges(create(("a", 1, EXISTS), ("b", 2, OK)))

    assert sizes(found) == [2]


def test_an_old_version_is_charged_as_a_whole() -> None:
    (found,) = charges(create(("a", 3, OK), ("b", 2, OK), throttle_ms=1200, version=5))

    assert found == [Charge(5, False, 1200)]


def test_brokers_copies_are_not_charged() -> None:
    """The same request is in the log of the broker that forwarded it, where it came to a listener for clients."""
    assert charges(create(("a", 3, OK), forwarded=False, listener="CLIENTS")) == [[]]


def test_what_comes_straight_to_the_controller_is_charged() -> None:
    """That a listener is the controller's is told by what brokers send there."""
    straight = create(("__consumer_offsets", 50, OK), forwarded=False)

    first, _, second = charges(straight, line("BROKER_HEARTBEAT", {}, {}, forwarded=False), straight)

    assert first == []
    assert sizes(second) == [50]


def test_the_default_number_of_partitions() -> None:
    told, rejected = charges(
        create(("a", -1, OK), default=4), create(("b", -1, REJECTED), throttle_ms=9), default_partitions=3
    )

    assert sizes(told) == [4]
    assert sizes(rejected) == [3]


def test_assignments_count() -> None:
    fields = create(("a", -1, OK))
    fields["request"]["topics"][0]["assignments"] = [{"partitionIndex": 0, "brokerIds": [1]}] * 2

    assert sizes(TopicBook().read(fields)) == [2]


def test_added_partitions() -> None:
    *_, found, more = charges(create(("a", 2, OK)), grow(("a", 5, OK)), grow(("a", 6, REJECTED)))

    assert sizes(found) == [3]
    assert found[0].throttle_ms == 0
    assert sizes(more) == [1]
    assert more[0].throttle_ms > 0


def test_an_error_tells_how_many_there_are() -> None:
    message = "The topic a currently has 6 partition(s); 2 would not be an increase."

    none, found = charges(grow(("a", 2, INVALID_PARTITIONS), message=message), grow(("a", 7, OK)))

    assert none == []
    assert sizes(found) == [1]


@pytest.mark.parametrize(
    ("error", "placed", "expected"),
    [
        pytest.param(INVALID_REPLICAS, None, [3], id="no room for the replicas: after the charge"),
        pytest.param(INVALID_ASSIGNMENT, 3, [3], id="a wrong broker: after the charge"),
        pytest.param(INVALID_ASSIGNMENT, 2, [], id="too few assignments: before the charge"),
    ],
)
def test_faults_before_and_after_the_charge(error: int, placed: int | None, expected: list[int]) -> None:
    _, found = charges(create(("a", 2, OK)), grow(("a", 5, error), placed=placed))

    assert sizes(found) == expected


def test_a_topic_that_the_log_never_showed() -> None:
    grown, deleted = charges(grow(("a", 5, OK)), delete(("b", "FGXeWEnlSV6teGRfiLBiyA", OK)))

    assert sizes(grown) == sizes(deleted) == [UNKNOWN]


def test_a_rehearsal_is_charged_and_creates_nothing() -> None:
    rehearsed, deleted = charges(create(("a", 2, OK), validate_only=True), delete(("a", "FGXeWEnlSV6teGRfiLBiyA", OK)))

    assert sizes(rehearsed) == [2]
    assert sizes(deleted) == [UNKNOWN]


def test_deleted_topics_are_charged_in_the_order_of_a_map_of_ids() -> None:
    """As Kafka 4.4 did it: of the three topics it deleted the last one, with the bucket then empty for the others."""
    ids = {"ci-9-3": "dNg2SzRMTy2QRGP9eFixHA", "ci-11-2": "gUG5DGulR7qbuIgpG99Mvg", "ci-0-2": "yFtFJBqkTamD4pbxTXNsIA"}
    errors = {"ci-9-3": REJECTED, "ci-11-2": REJECTED, "ci-0-2": OK}
    made = create(*((name, count, OK) for count, name in enumerate(ids, 1)))

    _, found = charges(made, delete(*((name, ids[name], errors[name]) for name in ids), throttle_ms=70))

    assert found == [Charge(3, True, 0), Charge(2, True, 70), Charge(1, True, 70)]


def test_a_deleted_topic_is_forgotten() -> None:
    *_, again = charges(
        create(("a", 2, OK)),
        delete(("a", "FGXeWEnlSV6teGRfiLBiyA", OK)),
        delete(("a", "FGXeWEnlSV6teGRfiLBiyA", OK)),
    )

    assert sizes(again) == [UNKNOWN]


def test_topics_by_name_alone() -> None:
    _, found = charges(create(("a", 2, OK), ("b", 3, OK)), delete(("b", "", OK), ("a", "", OK), version=4))

    assert found == [Charge(5, False, 0)]


@pytest.mark.parametrize(
    "damage",
    [{"response": {}}, {"response": None}, {"request": {"topics": [1]}}, {"request": {}}],
)
def test_foreign_fields(damage: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="field"):
        TopicBook().read(create(("a", 1, OK)) | damage)


IVAN = QuotaSnapshot.of([(Entity("ivan"), {QuotaKey.CONTROLLER_MUTATION_RATE: 1})])


def audit(folder: Path, *lines: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """The findings of a log with those lines, (time of day, fields), under a quota of one partition per second."""
    log = folder / "controller" / "kafka-request.log"
    log.parent.mkdir()
    text = (
        f"[2026-05-04 {time}] DEBUG Completed request:{json.dumps(each, separators=(',', ':'))}" for time, each in lines
    )
    log.write_text("\n".join(text) + "\n")
    settings = AuditSettings(QuotaHistory.of(IVAN), read=ReadSettings())
    packer, tally = Packer(settings.quotas, 1), Tally()
    splits = plan_splits([str(log)], "auto")
    batches = [each for split in splits for each in read(split, settings.read, tally) if isinstance(each, Batch)]
    assert all((batch.kind == MUTATION).all() for batch in batches)
    segments = [segment for part, batch in enumerate(batches) for _, segment in packer.pack(batch, (0, part))]
    (table,) = find(segments, settings)
    assert tally.exempt == len(lines)  # the controller's copies are no requests of their own
    rows: list[dict[str, Any]] = ordered([table]).to_pylist()
    return rows


def test_the_audit_of_a_controllers_log(tmp_path: Path) -> None:
    """The accepted request is answered after the rejected one, which came later."""
    accepted = create(("a", 13, OK)) | {"remoteTimeMs": 500.0}

    (found,) = audit(
        tmp_path,
        ("10:20:30,400000", create(("b", 1, REJECTED), throttle_ms=1700)),
        ("10:20:30,500000", accepted),
        ("10:20:32,500000", create(("b", 1, OK))),
    )

    assert (found["key"], found["broker"], found["sensor"]) == ("controller_mutation_rate", "controller", "ivan:")
    assert (found["verdict"], found["events"]) == ("throttled", 3)
    assert (found["throttled_events"], found["logged_throttled_events"]) == (1, 1)
    assert found["throttle_time_ms"] == pytest.approx(1600, abs=10)


def test_of_two_that_came_together_the_accepted_one_was_first(tmp_path: Path) -> None:
    """They began 0.4 ms apart, less than a controller may take to charge: it is the answers that tell the order."""
    (found,) = audit(
        tmp_path,
        ("10:20:30,391000", create(("a", 12, OK))),
        ("10:20:32,400100", create(("b", 1, REJECTED), throttle_ms=1000)),
        ("10:20:32,400500", create(("c", 2, OK))),
    )

    # 12 of 11 tokens, refilled by 2 in the meantime: one of the two is accepted, and leaves 1 owed.
    assert (found["events"], found["throttled_events"], found["throttle_time_ms"]) == (3, 1, 991)


def test_a_size_that_is_not_known_leaves_a_counter_undetermined(tmp_path: Path) -> None:
    (found,) = audit(
        tmp_path,
        ("10:20:30,400000", create(("a", 3, OK))),
        ("10:20:31,400000", delete(("old", "FGXeWEnlSV6teGRfiLBiyA", OK))),
    )

    assert (found["verdict"], found["events"]) == ("undetermined", 2)
    assert found["throttled_events"] is None
