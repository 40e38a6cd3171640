"""What a controller's log tells of topics that are created and deleted."""

import gzip
import json
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kquota import Entity, QuotaKey, QuotaSnapshot
from kquota.audit.batch import UNKNOWN
from kquota.audit.engines import local, spark
from kquota.audit.result import AuditResult
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import ReadSettings, plan_splits
from kquota.audit.sources.mutations import Charge, TopicLog, mutations
from kquota.core.change.history import QuotaHistory
from kquota.documents.history import read_history
from tests.audit import recorded
from tests.audit.request_lines import fields
from tests.support.scheduling import examples
from tools.accuracy import throttles

KEYS = {"CREATE_TOPICS": 19, "DELETE_TOPICS": 20, "CREATE_PARTITIONS": 37, "BROKER_HEARTBEAT": 63}
NEWEST = {"CREATE_TOPICS": 7, "DELETE_TOPICS": 6, "CREATE_PARTITIONS": 3, "BROKER_HEARTBEAT": 1}
TIMES = {
    "totalTimeMs": 10.0, "requestQueueTimeMs": 0.5, "localTimeMs": 1.5, "remoteTimeMs": 7.0, "throttleTimeMs": 0,
    "responseQueueTimeMs": 0.4, "sendTimeMs": 0.6,
}  # fmt: skip
OK, EXISTS, INVALID_PARTITIONS, INVALID_REPLICAS, INVALID_ASSIGNMENT, REJECTED = 0, 36, 37, 38, 39, 89


def line(
    api: str, request: dict[str, Any], response: dict[str, Any], *, version: int | None = None, **changes: Any
) -> dict[str, Any]:
    """The fields of a line, as Kafka logs them: of a forwarded request, on the controller's listener."""
    made = fields(
        api,
        KEYS[api],
        NEWEST[api] if version is None else version,
        request={"timeoutMs": 30_000, **request},
        response={"throttleTimeMs": 0, **response},
        connection="127.0.0.1:9093-127.0.0.1:50000-0-1",
        principal="User:ivan",
        **{"isForwarded": True, "listener": "CONTROLLER"} | TIMES | changes,
    )
    made["requestHeader"]["clientId"] = "deploy"
    return made


def create(
    *topics: tuple[str, int, int], throttle_ms: int = 0, validate_only: bool = False, default: int = -1, **more: Any
) -> dict[str, Any]:
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
    named = [{"name": name, "topicId": "AAAAAAAAAAAAAAAAAAAAAA"} for name, _, _ in topics]
    answers: list[dict[str, Any]] = [
        {"name": name, "errorCode": error} | ({"topicId": topic_id} if version >= 6 else {})
        for name, topic_id, error in topics
    ]
    request: dict[str, Any] = {"topics": named} if version >= 6 else {"topicNames": [name for name, _, _ in topics]}
    return line("DELETE_TOPICS", request, {"responses": answers, "throttleTimeMs": throttle_ms}, version=version)


def charges(*lines: dict[str, Any], default_partitions: int = 3) -> list[list[Charge]]:
    """What each line was charged, the lines being a minute apart."""
    log = TopicLog("controller")
    for number, each in enumerate(lines):
        log.add(each, 60_000.0 * number, "ivan", "deploy")
    charged = {each.time_ms: each.charges for each in mutations([log], default_partitions)}
    return [charged.get(60_000.0 * number, []) for number in range(len(lines))]


TOPIC_ID = "FGXeWEnlSV6teGRfiLBiyA"
STRAIGHT = create(("__consumer_offsets", 50, OK), isForwarded=False)
PLACED = create(("a", -1, OK))
PLACED["request"]["topics"][0]["assignments"] = [{"partitionIndex": 0, "brokerIds": [1]}] * 2
# As Kafka 4.4 did it: of the three topics it deleted the last one, with the bucket then empty for the others.
IDS = {"ci-9-3": "dNg2SzRMTy2QRGP9eFixHA", "ci-11-2": "gUG5DGulR7qbuIgpG99Mvg", "ci-0-2": "yFtFJBqkTamD4pbxTXNsIA"}
ERRORS = {"ci-9-3": REJECTED, "ci-11-2": REJECTED, "ci-0-2": OK}
CHARGED: dict[str, tuple[list[dict[str, Any]], list[list[Charge]]]] = {
    "each topic in the order of the request": (
        [create(("b", 3, OK), ("a", 1, OK), ("c", 2, REJECTED), throttle_ms=640)],
        [[Charge(3, True, 0), Charge(1, True, 0), Charge(2, True, 640)]],
    ),
    "a wait that rounds to nothing is a rejection": (
        [create(("a", 1, REJECTED), throttle_ms=0)],
        [[Charge(1, True, 1)]],
    ),
    "no topic that fails before": ([create(("a", 1, EXISTS), ("b", 2, OK))], [[Charge(2, True, 0)]]),
    "an old version as a whole": (
        [create(("a", 3, OK), ("b", 2, OK), throttle_ms=1200, version=5)],
        [[Charge(5, False, 1200)]],
    ),
    # The same request is in the log of the broker that forwarded it, where it came to a listener for clients.
    "no copies of brokers": ([create(("a", 3, OK), isForwarded=False, listener="CLIENTS")], [[]]),
    # That a listener is the controller's is told by what brokers send there.
    "nothing straight to a broker": ([STRAIGHT], [[]]),
    "what comes straight to the controller": (
        [STRAIGHT, line("BROKER_HEARTBEAT", {}, {}, isForwarded=False), STRAIGHT],
        [[Charge(50, True, 0)], [], [Charge(50, True, 0)]],
    ),
    "the default number of partitions": (
        [create(("a", -1, OK), default=4), create(("b", -1, REJECTED), throttle_ms=9)],
        [[Charge(4, True, 0)], [Charge(3, True, 9)]],
    ),
    "assignments": ([PLACED], [[Charge(2, True, 0)]]),
    "added partitions": (
        [create(("a", 2, OK)), grow(("a", 5, OK)), grow(("a", 6, REJECTED))],
        [[Charge(2, True, 0)], [Charge(3, True, 0)], [Charge(1, True, 1)]],
    ),
    "an error tells how many there are": (
        [
            grow(
                ("a", 2, INVALID_PARTITIONS),
                message="The topic a currently has 6 partition(s); 2 would not be an increase.",
            ),
            grow(("a", 7, OK)),
        ],
        [[], [Charge(1, True, 0)]],
    ),
    "no room for the replicas: after the charge": (
        [create(("a", 2, OK)), grow(("a", 5, INVALID_REPLICAS))],
        [[Charge(2, True, 0)], [Charge(3, True, 0)]],
    ),
    "a wrong broker: after the charge": (
        [create(("a", 2, OK)), grow(("a", 5, INVALID_ASSIGNMENT), placed=3)],
        [[Charge(2, True, 0)], [Charge(3, True, 0)]],
    ),
    "too few assignments: before the charge": (
        [create(("a", 2, OK)), grow(("a", 5, INVALID_ASSIGNMENT), placed=2)],
        [[Charge(2, True, 0)], []],
    ),
    "a topic that the log never showed": (
        [grow(("a", 5, OK)), delete(("b", TOPIC_ID, OK))],
        [[Charge(UNKNOWN, True, 0)]] * 2,
    ),
    "a rehearsal, which creates nothing": (
        [create(("a", 2, OK), validate_only=True), delete(("a", TOPIC_ID, OK))],
        [[Charge(2, True, 0)], [Charge(UNKNOWN, True, 0)]],
    ),
    "deleted topics in the order of a map of ids": (
        [
            create(*((name, count, OK) for count, name in enumerate(IDS, 1))),
            delete(*((name, IDS[name], ERRORS[name]) for name in IDS), throttle_ms=70),
        ],
        [
            [Charge(1, True, 0), Charge(2, True, 0), Charge(3, True, 0)],
            [Charge(3, True, 0), Charge(2, True, 70), Charge(1, True, 70)],
        ],
    ),
    "a deleted topic is forgotten": (
        [create(("a", 2, OK)), delete(("a", TOPIC_ID, OK)), delete(("a", TOPIC_ID, OK))],
        [[Charge(2, True, 0)], [Charge(2, True, 0)], [Charge(UNKNOWN, True, 0)]],
    ),
    "topics by name alone": (
        [create(("a", 2, OK), ("b", 3, OK)), delete(("b", "", OK), ("a", "", OK), version=4)],
        [[Charge(2, True, 0), Charge(3, True, 0)], [Charge(5, False, 0)]],
    ),
}


@pytest.mark.parametrize("name", CHARGED)
def test_what_is_charged(name: str) -> None:
    lines, expected = CHARGED[name]
    assert charges(*lines) == expected


@pytest.mark.parametrize(
    "damage", [{"response": {}}, {"response": None}, {"request": {"topics": [1]}}, {"request": {}}]
)
def test_foreign_fields(damage: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="field"):
        charges(create(("a", 1, OK)) | damage)


IVAN = QuotaSnapshot({Entity("ivan"): {QuotaKey.CONTROLLER_MUTATION_RATE: 1}})


def audit(folder: Path, *lines: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """The findings of a log with those lines, (time of day, fields), under a quota of one partition per second."""
    log = folder / "controller" / "kafka-request.log"
    log.parent.mkdir()
    text = (
        f"[2026-05-04 {time}] DEBUG Completed request:{json.dumps(each, separators=(',', ':'))}" for time, each in lines
    )
    log.write_text("\n".join(text) + "\n")
    result = local.audit(plan_splits([str(log)], "auto"), AuditSettings(QuotaHistory.of(IVAN)), "the log", processes=1)
    assert result.quality.exempt == len(lines)  # the controller's copies are no requests of their own
    assert result.quality.events == 0
    rows: list[dict[str, Any]] = result.findings.to_pylist()
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

    assert (found["key"], found["broker"], found["sensor"]) == ("controller_mutation_rate", "", "ivan:")
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


RECORDING = recorded.DATA / "cluster_log" / "4.4.0"
RECORDED = AuditSettings(
    read_history(RECORDING / "quotas.json"), read=ReadSettings(num_partitions=throttles.NUM_PARTITIONS)
)


def rotate(lines: Sequence[bytes], cuts: Sequence[int], folder: Path) -> Path:
    """A controller's log as log4j rotates it: the oldest lines are in the file with the highest number."""
    folder = folder / "controller-1"
    folder.mkdir()
    edges = [0, *cuts, len(lines)]
    for age, (start, end) in enumerate(reversed([*pairwise(edges)])):
        content = b"".join(lines[start:end])
        if age == 0:
            (folder / "kafka-request.log").write_bytes(content)
        elif age % 2:
            (folder / f"kafka-request.log.{age}.gz").write_bytes(gzip.compress(content, 1))
        else:
            (folder / f"kafka-request.log.{age}").write_bytes(content)
    return folder


@pytest.fixture(scope="module")
def lines() -> list[bytes]:
    with gzip.open(RECORDING / "controller-1" / "kafka-request.log.gz") as file:
        return file.readlines()


@pytest.fixture(scope="module")
def whole(lines: list[bytes], tmp_path_factory: pytest.TempPathFactory) -> AuditResult:
    splits = plan_splits([str(rotate(lines, [], tmp_path_factory.mktemp("whole")))], "auto")
    result = local.audit(splits, RECORDED, "the log", processes=1)
    rows = result.findings.to_pylist()
    assert {row["verdict"] for row in rows} == {"throttled", "not throttled"}
    assert sum(row["events"] for row in rows) > 200
    return result


CUTS = [100, 350, 351, 600, 601, 1000]


@pytest.mark.parametrize("engine", ["two processes", pytest.param("spark", marks=pytest.mark.server)])
def test_a_rotated_log_tells_what_a_whole_one_does(
    lines: list[bytes], whole: AuditResult, tmp_path: Path, engine: str, request: pytest.FixtureRequest
) -> None:
    """Topics are deleted in other files than they were created in."""
    paths = [str(rotate(lines, CUTS, tmp_path))]
    splits = plan_splits(paths, "auto")
    assert len(splits) == 7

    if engine == "spark":
        result = spark.audit(request.getfixturevalue("spark"), splits, RECORDED, "the log")
    else:
        result = local.audit(splits, RECORDED, "the log", processes=2)

    assert result.findings.to_pylist() == whole.findings.to_pylist()
    assert result.quality == whole.quality


@example(CUTS)
@given(cuts=st.lists(st.integers(1, 1098), max_size=8, unique=True).map(sorted))
@settings(max_examples=examples(15), deadline=None)
def test_it_does_not_matter_where_a_log_was_cut(lines: list[bytes], whole: AuditResult, cuts: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        splits = plan_splits([str(rotate(lines, cuts, Path(folder)))], "auto")
        result = local.audit(splits, RECORDED, "the log", processes=1)

    assert result.findings.to_pylist() == whole.findings.to_pylist()
    assert result.quality == whole.quality


def test_the_pieces_of_a_large_file(
    lines: list[bytes], whole: AuditResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kquota.audit.sources.LINE_SPLIT_BYTES", 200_000)

    splits = plan_splits([str(rotate(lines, [], tmp_path))], "auto")

    assert len(splits) > 5
    result = local.audit(splits, RECORDED, "the log", processes=1)
    assert result.findings.to_pylist() == whole.findings.to_pylist()
