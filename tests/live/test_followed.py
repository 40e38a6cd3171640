"""`kquota top --log`: counters from each request that a broker logged, as the broker computes them."""

import gzip
import json
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from kquota import Entity, InputError, QuotaKey, QuotaSnapshot
from kquota.audit.follow import counters
from kquota.audit.settings import AuditSettings
from kquota.core.change.history import QuotaHistory
from kquota.core.findings.use import Enforcers, State, Use
from kquota.documents.quotas import read_quotas
from kquota.live.explain import explain
from kquota.live.followed import Logs
from kquota.live.watching import View, Watching
from tests.audit import oracle
from tests.audit.test_requests import whole_log

RECORDED = Path("tests/data/request_log")
PRODUCE, REQUEST = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE
SETTINGS = AuditSettings(QuotaHistory.of(QuotaSnapshot({})))
Watch = Callable[..., Watching]


def alice(**values: float) -> QuotaSnapshot:
    return QuotaSnapshot({Entity(user="alice"): {QuotaKey(key): value for key, value in values.items()}})


@pytest.fixture
def watch() -> Iterator[Watch]:
    """Watches logs whose brokers' clock stands at `at_ms` after the start."""
    made: list[Logs] = []

    def open_logs(*logs: str | Path, at_ms: int = 0) -> Watching:
        made.append(Logs([str(log) for log in logs], SETTINGS, clock=lambda: oracle.START_MS + at_ms))
        return Watching(made[-1])

    yield open_logs
    for each in made:
        each.close()


def write(log: Path, *times: int, size: int = 500, mode: str = "a", **more: Any) -> None:
    """Adds a request of alice's at each of the times (ms since the start)."""
    row = {"broker": "1", "user": "alice", "client_id": "c", "api": "produce", "bytes": size} | more
    with open(log, mode, encoding="utf-8") as file:
        file.writelines(json.dumps(row | {"time_ms": oracle.START_MS + time_ms}) + "\n" for time_ms in times)


def of_key(view: View, key: QuotaKey = PRODUCE) -> Use:
    (use,) = (use for use in view.uses if use.counter.key is key)
    return use


def moment(line: str) -> datetime:
    return datetime.fromisoformat(line[1:24].replace(",", "."))


def test_the_throttled_are_those_whom_the_broker_throttled(watch: Watch, tmp_path: Path) -> None:
    """A real broker's log: its own throttle times are the oracle, those of the request quota included."""
    log = tmp_path / "kafka-request.log"
    with gzip.open(RECORDED / "kafka-request.log.gz", "rt") as file:
        lines = list(islice(file, 12_000))
    log.write_text("".join(lines))
    throttled = set()
    for line in lines:
        request = json.loads(line[line.index("{") : line.rindex("}") + 1])
        last = moment(lines[-1]) - moment(line) < timedelta(seconds=30)
        if last and "throttleTimeMs" in request["response"] and request["response"]["throttleTimeMs"] > 0:
            throttled.add(request["requestHeader"]["clientId"])

    view = watch(f"7={log}").look(read_quotas(RECORDED / "quotas.json"))
    hot = [use for use in view.uses if use.state in (State.THROTTLED, State.WAS_THROTTLED)]
    # Answers to acks=0, in which a throttle time could stand, do not exist.
    assert {client.client_id for use in hot for client in use.clients} == throttled | {"sensor-gw"}
    assert {use.counter.broker for use in view.uses} == {"7"}
    assert {use.counter.key for use in hot} == {PRODUCE, QuotaKey.CONSUMER_BYTE_RATE, REQUEST}
    assert not [use.unknown for use in view.uses if use.counter.key is not REQUEST and use.unknown]


def test_a_log_that_grows(watch: Watch, tmp_path: Path) -> None:
    """The rate, the trend, the clients by their parts, and the delay's beginning."""
    log = tmp_path / "usage.jsonl"
    watching = watch(log)
    write(log, *range(0, 20_000, 500), size=20)
    before = of_key(watching.look(alice(producer_byte_rate=100)))
    write(log, *range(20_000, 30_000, 500), size=100, client_id="loud")
    view = watching.look(alice(producer_byte_rate=100))
    now = of_key(view)
    explained = explain([now], view, watching.source, Enforcers())

    assert (before.state, [str(client) for client in before.clients]) == (State.WITHIN, ["alice:c"])
    assert before.observed.rate == pytest.approx(40, rel=0.1)
    assert (now.state, [str(client) for client in now.clients]) == (State.THROTTLED, ["alice:loud", "alice:c"])
    assert now.observed.at_ms == oracle.START_MS + 29_500 - 500 - 1
    assert now.trend is not None
    assert now.trend > 0
    assert sum(loud.rate for loud in explained.loudest) == pytest.approx(now.observed.rate)
    assert explained.since_ms is not None
    assert 20_000 < explained.since_ms - oracle.START_MS < 30_000
    assert explained.enough is not None
    assert 100 < explained.enough < 210
    assert explained.loudest[0].key is PRODUCE


def test_a_log_goes_on_by_requests_that_no_quota_counts(watch: Watch, tmp_path: Path) -> None:
    """The only client that has a quota stops: heartbeats and others show that it is throttled no longer."""
    log = tmp_path / "usage.jsonl"
    write(log, *range(0, 20_000, 100))
    watching = watch(log, at_ms=20_000)
    assert of_key(watching.look(alice(producer_byte_rate=1000))).state is State.THROTTLED
    write(log, 90_000, user="bob")
    assert of_key(watching.look(alice(producer_byte_rate=1000))).state is State.WITHIN


def test_changed_quotas_count_from_then_on(watch: Watch, tmp_path: Path) -> None:
    """The counter keeps its past, as a broker's does; a look at the same quotas changes nothing."""
    log = tmp_path / "usage.jsonl"
    watching = watch(log, at_ms=5000)
    write(log, *range(0, 5000, 500))
    first = of_key(watching.look(alice(producer_byte_rate=100)))
    write(log, *range(5000, 40_000, 500))
    raised = of_key(watching.look(alice(producer_byte_rate=10_000)))
    write(log, *range(40_000, 50_000, 500))
    lowered = of_key(watching.look(alice(producer_byte_rate=100)))

    assert (first.state, first.limit) == (State.THROTTLED, 100)
    assert (raised.state, raised.limit, raised.observed.throttle_ms) == (State.WITHIN, 10_000, 0)
    assert (lowered.state, lowered.limit) == (State.THROTTLED, 100)
    assert raised.observed.rate == pytest.approx(1000, rel=0.1)


def test_a_request_quota_is_known_by_what_the_broker_did(watch: Watch, tmp_path: Path) -> None:
    """Without thread times, only throttle times prove anything; those that no quota explains are named."""
    quotas = alice(producer_byte_rate=10_000, request_percentage=1)
    quiet, throttled, other = tmp_path / "quiet.jsonl", tmp_path / "throttled.jsonl", tmp_path / "other.jsonl"
    write(quiet, *range(0, 9000, 500), throttle_time_ms=0)
    write(throttled, *range(0, 9000, 500), throttle_time_ms=50)
    write(other, *range(0, 9000, 500), throttle_time_ms=50)
    unproven, proven = of_key(watch(quiet).look(quotas), REQUEST), of_key(watch(throttled).look(quotas), REQUEST)
    unexplained = of_key(watch(other).look(alice(producer_byte_rate=10_000)))

    assert (unproven.state, unproven.observed.throttle_ms) == (State.UNKNOWN, None)
    assert (proven.state, proven.observed.throttle_ms) == (State.THROTTLED, 50)
    for use in (unproven, proven):
        assert any("network threads" in each for each in use.unknown)
    assert unexplained.state is State.WITHIN
    assert unexplained.unknown == ("which quota throttled 16 of its requests: by the given quotas, none",)


def test_throttle_times_are_the_brokers_own(watch: Watch, tmp_path: Path) -> None:
    """In the last half minute, as far as the log has them; else they are computed."""
    told, silent = tmp_path / "told.jsonl", tmp_path / "silent.jsonl"
    write(told, *range(0, 30_000, 500), throttle_time_ms=700)
    write(told, *range(30_000, 70_000, 500), throttle_time_ms=50)
    write(silent, *range(0, 70_000, 500))
    quotas = alice(producer_byte_rate=900)

    assert of_key(watch(told).look(quotas)).observed.throttle_ms == 50
    assert (of_key(watch(silent).look(quotas)).observed.throttle_ms or 0) > 200


def test_what_cannot_be_read_is_named(watch: Watch, tmp_path: Path) -> None:
    log = tmp_path / "usage.jsonl"
    with pytest.raises(InputError, match=r"gone\.jsonl: no such file"):
        watch(tmp_path / "gone.jsonl").look(alice(producer_byte_rate=100))
    write(log, *range(0, 9000, 500))
    with open(log, "a", encoding="utf-8") as file:
        file.write("{\n")
    watching = watch(log, tmp_path / "gone.jsonl")
    first = watching.look(alice(producer_byte_rate=100))
    write(log, 9000, 2000)
    second = watching.look(alice(producer_byte_rate=100))
    (tmp_path / "gone.jsonl").touch()
    third = watching.look(alice(producer_byte_rate=100))

    assert [missing.place for missing in first.look.missing] == [str(tmp_path / "gone.jsonl")]
    assert len(first.look.unread) == 1
    assert [missing.why for missing in second.look.missing][1:] == ["1 line came too late to be counted"]
    assert third.look.missing == ()


def test_what_a_request_log_lacks_is_said(watch: Watch, tmp_path: Path) -> None:
    """By the numbers of its requests, however few come at a time."""
    log = tmp_path / "kafka-request.log"
    log.touch()
    watching = watch(log)
    for start in range(0, 240, 60):
        with open(log, "a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in whole_log()[start : start + 30])
        view = watching.look(alice(producer_byte_rate=100))

    assert [missing.why for missing in view.look.missing] == [
        "about 90 of 210 requests are not in the log, by their numbers"
    ]


def test_clients_of_the_last_half_minute(watch: Watch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when resting counters and clients are forgotten, since so many are known."""
    monkeypatch.setattr(counters, "MOST_NAMES", 1)
    log = tmp_path / "usage.jsonl"
    watching, quotas = (
        watch(log),
        QuotaSnapshot({Entity(user="alice"): {PRODUCE: 100}, Entity(user="bob"): {PRODUCE: 1}}),
    )
    write(log, *range(0, 5000, 500), user="bob")
    watching.look(quotas)
    hour = 4_000_000
    write(log, *range(hour, hour + 5000, 500), client_id="old")
    watching.look(quotas)
    write(log, *range(hour + 60_000, hour + 65_000, 500), client_id="new")
    (use,) = watching.look(quotas).uses

    assert [str(client) for client in use.clients] == ["alice:new"]
