"""The law of following: whatever the cuts, restarts and rotations, the findings are those of the batch audit."""

import gzip
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kquota import DEFAULT, Entity, InputError, QuotaKey, QuotaSnapshot, Refused
from kquota.audit.batch import Tally
from kquota.audit.engines import local
from kquota.audit.follow import checkpoint, counters
from kquota.audit.follow.follow import SETTLE_MS, Follower, Live
from kquota.audit.result import AuditResult
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import ReadSettings, blocks, plan_splits
from kquota.core.change.history import QuotaHistory
from kquota.core.enforcement import Mode, kernel
from kquota.core.findings.finding import Episode, State
from kquota.documents.quotas import read_quotas
from tests.audit import oracle
from tests.audit.test_cuts import ALL_LIMITED, rows, write
from tests.audit.test_requests import QUOTAS, whole_log
from tests.support.compiled import modes
from tests.support.scheduling import examples


@pytest.fixture(autouse=True, scope="module")
def unsynced() -> Iterator[None]:
    """A kill of the process loses nothing that was written, so no test waits for the disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda number: None)
        yield


RECORDED = Path("tests/data/request_log")
TIGHT = QuotaHistory.of(QuotaSnapshot({Entity(user="alice"): {QuotaKey.PRODUCER_BYTE_RATE: 100}}))


def batch(paths: list[str], audit_settings: AuditSettings) -> AuditResult:
    return local.audit(plan_splits(paths, "auto"), audit_settings, "usage", processes=1)


def same(found: AuditResult, expected: AuditResult) -> None:
    assert found.findings.equals(expected.findings)
    assert (found.before is None) == (expected.before is None)
    assert found.before is None or found.before.equals(expected.before)
    assert found.quality == expected.quality
    assert found.quotas == expected.quotas
    assert found.predictions == expected.predictions


def row(time_ms: int, user: str = "alice", size: int = 500) -> dict[str, Any]:
    return {"time_ms": oracle.START_MS + time_ms, "broker": "1", "user": user, "client_id": "c", "api": "produce"} | {
        "bytes": size
    }


def lines(*made: dict[str, Any]) -> str:
    return "".join(json.dumps(each) + "\n" for each in made)


def append(log: Path, data: str | bytes) -> None:
    with open(log, "ab") as file:
        file.write(data.encode() if isinstance(data, str) else data)


def kept(episodes: list[Episode]) -> dict[tuple[str, State], Episode]:
    """By name and state: who goes on after a kill says some again."""
    found: dict[tuple[str, State], Episode] = {}
    for each in episodes:
        assert found.setdefault((each.name, each.state), each) == each
    return found


def followed_to_its_end(follower: Follower, episodes: list[Episode]) -> AuditResult:
    episodes += follower.turn().episodes
    episodes += follower.end().episodes
    episodes += follower.open_episodes()
    result = follower.result("usage")
    follower.close()
    return result


DEEDS = st.lists(
    st.tuples(st.integers(1, 600), st.sampled_from(["turn", "save", "kill", "save and kill"])), min_size=1, max_size=12
)


@given(made=rows(), deeds=DEEDS, quotas=oracle.quota_histories(), compared=st.booleans())
@settings(max_examples=examples(25), deadline=None)
def test_however_a_file_grows_and_the_follower_is_killed(
    made: list[dict[str, Any]], deeds: list[tuple[int, str]], quotas: QuotaHistory, compared: bool
) -> None:
    """The findings and the episodes; bytes come in any cut, and each kill goes back to the last checkpoint."""
    audit_settings = AuditSettings(
        quotas, against=QuotaHistory.of(ALL_LIMITED) if compared else None, read=ReadSettings(broker="1")
    )
    with tempfile.TemporaryDirectory() as name:
        whole, growing, kept_in = Path(name) / "a" / "usage.jsonl", Path(name) / "b" / "usage.jsonl", Path(name) / "c"
        whole.parent.mkdir()
        growing.parent.mkdir()
        write(made, whole, 1)
        uncut: list[Episode] = []
        followed_to_its_end(Follower([str(whole)], audit_settings), uncut)
        episodes: list[Episode] = []
        data, at = whole.read_bytes(), 0
        growing.touch()
        follower = Follower([str(growing)], audit_settings, checkpoint_folder=kept_in)
        for size, deed in deeds:
            append(growing, data[at : at + size])
            at += size
            episodes += follower.turn().episodes
            if "save" in deed:
                follower.save()
            if "kill" in deed:
                follower.close()  # saves nothing
                follower = Follower([str(growing)], audit_settings, checkpoint_folder=kept_in)
        append(growing, data[at:])
        found = followed_to_its_end(follower, episodes)

        same(found, batch([str(whole)], audit_settings))
        assert kept(episodes) == kept(uncut)


@pytest.mark.parametrize("how", ["whole", "twice", "bursts", "seconds", "dated", "cut", "late"])
def test_pieces_of_a_log_tell_together_what_none_of_them_tells(tmp_path: Path, how: str) -> None:
    """What is there twice, what is missing, which times are none: it went in silence. And of which zone times are."""
    made, log = whole_log(), tmp_path / "kafka-request.log"
    changed = {
        "twice": [line for start in range(0, len(made), 8) for line in made[start : start + 8] * 2],
        "bursts": [line for place, line in enumerate(made) if place % 60 < 30],
        "seconds": [f"{line[:20]}{line[24:]}" for line in made],
        "dated": [line.replace("DEBUG", "2026-05-04 09:00:00,123") for line in made],
        "cut": [
            f"{line[1:11]}T{line[12:20]}Z stdout {part}"
            for line in made
            for part in (f"P {line[:400]}", f"F {line[400:]}")
        ],
        "late": [f"2026-05-04T08:{20 + 15 * (number > 9)}:{line[18:20]}Z x {line}" for number, line in enumerate(made)],
    }.get(how, made)
    follower, audit_settings = Follower([str(log)], AuditSettings(QUOTAS)), AuditSettings(QUOTAS)
    for start in range(0, len(changed), 7):
        append(log, "".join(f"{line}\n" for line in changed[start : start + 7]))
        follower.turn()
    if how == "dated":
        with pytest.raises(InputError, match="many requests of a connection have one time"):
            followed_to_its_end(follower, [])
        follower.close()
        return
    same(followed_to_its_end(follower, []), batch([str(log)], audit_settings))


def test_an_episode_does_not_depend_on_what_was_read_with_it(tmp_path: Path) -> None:
    """A later request of unknown size makes the usage of a counter incomplete from then on, and not before."""
    fetches = [row(time_ms, size=100_000) | {"api": "fetch"} for time_ms in range(0, 5000, 1000)]
    unknown = row(400_000) | {"api": "share_fetch", "bytes": None}
    more = [each | {"time_ms": each["time_ms"] + 400_001} for each in fetches]
    quotas = QuotaHistory.of(QuotaSnapshot({Entity(user="alice"): {QuotaKey.CONSUMER_BYTE_RATE: 1000}}))
    found = []
    for name, parts in (("once", [[*fetches, unknown, *more]]), ("twice", [fetches, [unknown, *more]])):
        log, episodes = tmp_path / f"{name}.jsonl", list[Episode]()
        log.touch()
        follower = Follower([str(log)], AuditSettings(quotas, read=ReadSettings(broker="1")))
        for part in parts:
            append(log, lines(*part))
            episodes += follower.turn().episodes
        followed_to_its_end(follower, episodes)
        found.append(kept(episodes))

    assert found[0] == found[1]
    assert [each.complete for each in found[0].values() if each.state is State.BEGAN] == [True, False]


@given(made=rows(), cuts=st.lists(st.integers(1, 900), min_size=1, max_size=6), quotas=oracle.quota_histories())
@settings(max_examples=examples(15), deadline=None)
def test_however_quotas_change_meanwhile(made: list[dict[str, Any]], cuts: list[int], quotas: QuotaHistory) -> None:
    """The findings and the episodes are those under the history that was seen."""
    begun = AuditSettings(QuotaHistory.of(quotas.snapshots[0]), read=ReadSettings(broker="1"))
    later = [(time_ms, snapshot) for time_ms, snapshot in quotas if time_ms is not None]
    with tempfile.TemporaryDirectory() as name:
        whole, growing = Path(name) / "a" / "usage.jsonl", Path(name) / "b" / "usage.jsonl"
        whole.parent.mkdir()
        growing.parent.mkdir()
        write(made, whole, 1)
        data, at = whole.read_bytes(), 0
        live = Live(0, begun.quotas, lambda snapshot: snapshot)
        follower, episodes = Follower([str(growing.parent)], begun, live=live), list[Episode]()
        for size in cuts:
            append(growing, data[at : at + size])
            at += size
            episodes += follower.turn().episodes
            for time_ms, snapshot in later[:1]:
                changed = follower.change(snapshot, time_ms)
                assert changed is None or changed >= time_ms
                assert follower.change(snapshot, time_ms) is None
            later = later[1:]
        append(growing, data[at:])
        found = followed_to_its_end(follower, episodes)
        seen, uncut = follower.settings, list[Episode]()
        followed_to_its_end(Follower([str(whole)], seen), uncut)

        same(found, batch([str(whole)], seen))
        assert kept(episodes) == kept(uncut)


@given(made=rows(), order=st.randoms(use_true_random=False), settle_ms=st.sampled_from([0, 1000, 1_000_000]))
@settings(max_examples=examples(15), deadline=None)
def test_in_whatever_order_files_come(made: list[dict[str, Any]], order: Any, settle_ms: int) -> None:
    """Files of several forms and brokers; however late a line is, the findings have it."""
    audit_settings = AuditSettings(QuotaHistory.of(ALL_LIMITED))
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        places = [
            root / f"broker-{order.randint(1, 2)}" / f"{n}.{order.choice(('jsonl', 'parquet', 'csv'))}"
            for n in (3, 1, 2)
        ]
        follower = Follower([name], audit_settings, settle_ms=settle_ms)
        for number, place in enumerate(places):
            place.parent.mkdir(exist_ok=True)
            part = made[number * len(made) // 3 : (number + 1) * len(made) // 3]
            if part:
                write(part, place, 2)
            follower.turn()
        found = followed_to_its_end(follower, [])

        same(found, batch([name], audit_settings))


def test_a_connection_of_two_users_means_nothing(tmp_path: Path) -> None:
    """Its name came again. Which counters are replayed together must not matter, and a follower has one bucket."""
    fetch = {"api": "fetch", "connection": "c"}
    made = [
        row(0, "CN=c,O=x", 6530) | fetch | {"throttle_time_ms": 0},
        row(0, "alice", 6928) | fetch | {"request_time_ns": 1_682_096},
        row(1, "alice", 6928) | fetch | {"request_time_ns": 1_682_096, "throttle_time_ms": 25},
    ]
    append(tmp_path / "log.jsonl", lines(*made))
    audit_settings = AuditSettings(QuotaHistory.of(ALL_LIMITED))

    same(followed_to_its_end(Follower([str(tmp_path)], audit_settings), []), batch([str(tmp_path)], audit_settings))


def test_brokers_are_named_by_folders_that_come_later(tmp_path: Path) -> None:
    """What was read before has the names that all folders together give, as in a batch audit."""
    audit_settings = AuditSettings(TIGHT)
    follower = Follower([str(tmp_path)], audit_settings)
    names: list[set[str]] = []
    for place in ("broker-1/logs/a.jsonl", "broker-2/logs/b.jsonl", "broker-2/logs/old/c.jsonl", "broker-3/d.jsonl"):
        path = tmp_path / place
        path.parent.mkdir(parents=True)
        path.write_text(lines(*({**row(100 * n), "broker": None, "client_id": place} for n in range(40))))
        follower.turn()
        names.append(set(follower.result("usage").findings.column("broker").to_pylist()))
    found = followed_to_its_end(follower, [])

    assert names == [{""}, {"broker-1", "broker-2"}, {"broker-1", "broker-2"}, {"broker-1", "broker-2", "broker-3"}]
    same(found, batch([str(tmp_path)], audit_settings))


def renamed(log: Path) -> None:
    log.rename(log.with_suffix(".log.1"))


def copied_and_emptied(log: Path) -> None:
    shutil.copy(log, log.with_suffix(".log.1"))
    os.truncate(log, 0)


def packed(log: Path) -> None:
    log.rename(log.with_suffix(".log.1"))
    rotated = log.with_suffix(".log.1")
    rotated.with_suffix(".1.gz").write_bytes(gzip.compress(rotated.read_bytes()))
    rotated.unlink()


@pytest.fixture(scope="module")
def recorded() -> list[bytes]:
    """Some lines of a real broker's log, in which clients are throttled."""
    with gzip.open(RECORDED / "kafka-request.log.gz") as file:
        return list(islice(file, 3000, 6000))


@pytest.mark.parametrize("limited", [False, True])
def test_quotas_that_need_more_of_a_real_log(recorded: list[bytes], tmp_path: Path, limited: bool) -> None:
    """Sizes of fetches and connections: read from the beginning, and used only if a quota ever needs them."""
    begun = QuotaSnapshot({Entity(user="alice"): {QuotaKey.PRODUCER_BYTE_RATE: 300_000}})
    later = {**read_quotas(RECORDED / "quotas.json"), Entity(ip=DEFAULT): {QuotaKey.CONNECTION_CREATION_RATE: 1}}
    log = tmp_path / "kafka-request.log"
    log.write_bytes(b"".join(recorded[:1500]))
    live = Live(0, QuotaHistory.of(begun), lambda snapshot: snapshot)
    follower = Follower([str(log)], AuditSettings(live.history), live=live)
    follower.turn()
    if limited:
        assert follower.change(QuotaSnapshot(later), 0) is not None
    append(log, b"".join(recorded[1500:]))
    found = followed_to_its_end(follower, [])

    assert len(follower.settings.quotas.snapshots) == 1 + limited
    same(found, batch([str(log)], follower.settings))


@pytest.mark.parametrize("rotate", [renamed, copied_and_emptied, packed])
def test_a_real_log_through_a_rotation(rotate: Callable[[Path], None], recorded: list[bytes], tmp_path: Path) -> None:
    audit_settings = AuditSettings(QuotaHistory.of(read_quotas(RECORDED / "quotas.json")))
    log = tmp_path / "kafka-request.log"
    follower = Follower([str(tmp_path)], audit_settings)
    for first in (0, 1500):
        for start in range(first, first + 1500, 500):
            append(log, b"".join(recorded[start : start + 500]))
            follower.turn()
        if not first:
            rotate(log)
            follower.turn()
    found = followed_to_its_end(follower, [])

    assert found.quality.events > 2900
    assert found.throttled
    same(found, batch([str(tmp_path)], audit_settings))


def test_what_lines_say_of_later_ones_is_kept_over_a_restart(recorded: list[bytes], tmp_path: Path) -> None:
    """A request that a collector delivered again counted twice, and lines of a late collector were hours off."""
    log, audit_settings = tmp_path / "kafka-request.log", AuditSettings(TIGHT)
    wrapped = [b"2026-11-21T17:%02d:07.5Z stdout F " % (n // 50) + line for n, line in enumerate(recorded[:600])]
    for part in (wrapped[:400], wrapped[300:600]):
        append(log, b"".join(part))
        follower = Follower([str(log)], audit_settings, checkpoint_folder=tmp_path / ".state")
        follower.turn()
        follower.save()
        follower.close()
    follower = Follower([str(log)], audit_settings, checkpoint_folder=tmp_path / ".state")
    found = followed_to_its_end(follower, [])

    assert (found.quality.repeated, found.quality.events + found.quality.exempt) == (100, 600)
    same(found, batch([str(log)], audit_settings))


def test_what_comes_between_two_runs_is_followed(tmp_path: Path) -> None:
    """With `--since 1m`, each start has another time."""
    log = tmp_path / "usage.jsonl"
    log.write_text(lines(row(0), row(2000)))
    for since in (1000, 9000):
        read = ReadSettings(since_ms=oracle.START_MS + since)
        follower = Follower([str(log)], AuditSettings(TIGHT, read=read), checkpoint_folder=tmp_path / ".state")
        follower.turn()
        follower.save()
        follower.close()
        append(log, lines(row(since + 4000)))
    follower = Follower([str(log)], AuditSettings(TIGHT), checkpoint_folder=tmp_path / ".state")
    quality = followed_to_its_end(follower, []).quality
    assert (quality.outside, quality.events) == (1, 3)


def test_either_kernel_goes_on_from_what_the_other_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also from no counters at all."""
    audit_settings, none = AuditSettings(TIGHT), []
    found: dict[str, list[Episode]] = {"one": [], "both": []}
    for second, mode in enumerate([*modes(), *modes()]):
        for name, using in (("one", Mode.PLAIN), ("both", mode)):
            monkeypatch.setattr(counters, "kernel", lambda auto, using=using: kernel(using))
            none.append(counters.Counters(audit_settings, SETTLE_MS).kept())
            assert all(not counters.Counters.going_on(kept, audit_settings, SETTLE_MS).refs for kept in none)
            append(tmp_path / f"{name}.jsonl", lines(*(row(20_000 * second + 100 * number) for number in range(20))))
            follower = Follower([str(tmp_path / f"{name}.jsonl")], audit_settings, checkpoint_folder=tmp_path / name)
            found[name] += follower.turn().episodes
            follower.save()
            follower.close()
    assert found["one"] == found["both"] != []


def test_the_rest_of_a_log_that_is_renamed_out_of_the_paths(tmp_path: Path) -> None:
    log = tmp_path / "usage.jsonl"
    log.write_text(lines(row(0)))
    follower = Follower([str(log)], AuditSettings(TIGHT))
    follower.turn()
    append(log, lines(row(1)))
    log.rename(tmp_path / "usage.jsonl.1")
    log.write_text(lines(row(2)))
    found = followed_to_its_end(follower, [])
    assert found.quality.events == 3
    assert not found.quality.unread_files


@pytest.mark.parametrize(("gone", "is_named"), [("now.jsonl", True), ("old.jsonl", False)])
def test_a_file_that_goes_away_while_it_is_written_is_named(tmp_path: Path, gone: str, is_named: bool) -> None:
    """What came in it since the last look, nobody knows. Of older files there is nothing more to come."""
    for age, name in enumerate(("now.jsonl", "old.jsonl")):
        (tmp_path / name).write_text(lines(row(age)))
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    follower = Follower([str(tmp_path)], AuditSettings(TIGHT))
    follower.turn()
    append(tmp_path / gone, lines(row(2)))
    (tmp_path / gone).unlink()
    (tmp_path / "new.jsonl").write_text(lines(row(3)))
    found = followed_to_its_end(follower, [])
    assert found.quality.events == 3
    assert [file.reason.partition(" (")[0] for file in found.quality.unread_files] == (
        ["a file went away before it was read to its end"] if is_named else []
    )


def test_lines_that_come_while_a_file_is_read_for_the_first_time_count_once(tmp_path: Path) -> None:
    log = tmp_path / "usage.jsonl"
    log.write_text(lines(row(0), row(1)))
    [split] = plan_splits([str(log)], "auto")
    reading = blocks(split, Tally(), len(lines(row(0))))
    read = next(reading).text
    append(log, lines(row(2)))
    assert b"".join([read, *(block.text for block in reading)]).decode() == lines(row(0), row(1))


def test_a_table_that_is_written_anew_counts_once(tmp_path: Path) -> None:
    table = tmp_path / "usage.parquet"
    made = [row(time_ms) for time_ms in range(0, 9000, 100)]
    full = [{**each, "request_time_ns": None, "throttle_time_ms": None, "connection": None} for each in made]
    write(full[:40], table, 20)
    follower = Follower([str(table)], AuditSettings(TIGHT, read=ReadSettings(broker="1")))
    follower.turn()
    assert follower.turn().read_bytes > 0
    write(full, table, 20)
    found = followed_to_its_end(follower, [])
    assert found.quality.events == len(made) == pq.read_metadata(table).num_rows
    same(found, batch([str(table)], AuditSettings(TIGHT, read=ReadSettings(broker="1"))))


def test_what_a_file_that_cannot_be_read_may_hold_is_open(tmp_path: Path) -> None:
    """As a batch audit has it."""
    (tmp_path / "usage.jsonl").write_text(lines(row(0)))
    (tmp_path / "usage.parquet").write_bytes(b"PAR1 and no end")
    generous = AuditSettings(QuotaHistory.of(QuotaSnapshot({Entity(user="bob"): {QuotaKey.PRODUCER_BYTE_RATE: 100}})))
    paths = [str(tmp_path)]
    same(followed_to_its_end(Follower(paths, generous), []), batch(paths, generous))


def test_an_episode_says_who_and_what_would_be_enough(tmp_path: Path) -> None:
    log = tmp_path / "usage.jsonl"
    log.write_text(
        lines(*(row(time_ms) for time_ms in range(0, 10_000, 500)), row(150_000, size=1), row(200_000, size=1))
    )
    episodes: list[Episode] = []
    followed_to_its_end(Follower([str(log)], AuditSettings(TIGHT)), episodes)
    began, ended = episodes
    assert (began.state, ended.state) == (State.BEGAN, State.ENDED)
    assert began.name == ended.name
    assert ended.subject == "user alice"
    assert (ended.clients[0].user, ended.clients[0].client_id) == ("alice", "c")
    assert ended.throttled_events <= ended.events == ended.clients[0].events
    assert ended.begin_ms < ended.peak_ms <= ended.end_ms
    assert not ended.at_least
    raised = QuotaHistory.of(QuotaSnapshot({Entity(user="alice"): {QuotaKey.PRODUCER_BYTE_RATE: int(ended.enough)}}))
    assert not batch([str(log)], AuditSettings(raised)).throttled
    lower = QuotaHistory.of(QuotaSnapshot({Entity(user="alice"): {QuotaKey.PRODUCER_BYTE_RATE: int(ended.enough) - 1}}))
    assert batch([str(log)], AuditSettings(lower)).throttled


def test_late_lines_are_counted_and_in_the_findings(tmp_path: Path) -> None:
    log = tmp_path / "usage.jsonl"
    log.write_text(lines(row(0), row(60_000)))
    follower = Follower([str(log)], AuditSettings(TIGHT), settle_ms=1000)
    assert follower.turn().late == 0
    append(log, lines(row(58_999), row(59_500)))
    assert follower.turn().late == 1
    same(followed_to_its_end(follower, []), batch([str(log)], AuditSettings(TIGHT)))


def test_a_slow_broker_is_not_late_because_another_is_ahead(tmp_path: Path) -> None:
    log = tmp_path / "usage.jsonl"
    follower = Follower([str(log)], AuditSettings(TIGHT), settle_ms=100)
    for time_ms in range(0, 5000, 500):
        append(log, lines(row(time_ms + 100_000) | {"broker": "2"}, row(time_ms)))
        assert follower.turn().late == 0
    follower.close()


def test_a_checkpoint_of_something_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, folder = tmp_path / "usage.jsonl", tmp_path / "kept"
    log.write_text(lines(row(0)))
    follower = Follower([str(log)], AuditSettings(TIGHT), checkpoint_folder=folder)
    follower.turn()
    follower.save()
    follower.close()

    def again(audit_settings: AuditSettings, settle_ms: int = SETTLE_MS) -> None:
        Follower([str(log)], audit_settings, checkpoint_folder=folder, settle_ms=settle_ms).close()

    again(AuditSettings(TIGHT))
    other = Follower([str(log)], AuditSettings(TIGHT), checkpoint_folder=folder)
    with pytest.raises(Refused, match="another kquota follows"):
        again(AuditSettings(TIGHT))
    other.close()
    with pytest.raises(Refused, match="other quotas"):
        again(AuditSettings(QuotaHistory.of(ALL_LIMITED)))
    with pytest.raises(Refused, match="other settle time"):
        again(AuditSettings(TIGHT), 5)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "VERSION", checkpoint.VERSION + 1)
        with pytest.raises(Refused, match=f"version {checkpoint.VERSION - 1}; this kquota reads"):
            again(AuditSettings(TIGHT))
    saved = (folder / "checkpoint").read_bytes()
    (folder / "checkpoint").write_bytes(saved[: len(saved) // 2])
    with pytest.raises(InputError, match="damaged"):
        again(AuditSettings(TIGHT))
    (folder / "checkpoint").write_bytes(b"something\n")
    with pytest.raises(InputError, match="not written by kquota"):
        again(AuditSettings(TIGHT))
    folder.chmod(0o777)
    with pytest.raises(Refused, match="others can write"):
        again(AuditSettings(TIGHT))


def test_resting_counters_and_clients_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their state stays bounded; what comes again is known again."""
    monkeypatch.setattr(counters, "MOST_NAMES", 20)
    everybody = QuotaHistory.of(QuotaSnapshot({Entity(user=DEFAULT): {QuotaKey.PRODUCER_BYTE_RATE: 100}}))
    log = tmp_path / "usage.jsonl"
    follower = Follower([str(log)], AuditSettings(everybody))
    episodes: list[Episode] = []
    sizes = []
    for hour in range(12):
        with open(log, "a") as file:
            users = [f"u{hour}-{number}" for number in range(10)] + ["u"] * 10
            file.write(lines(*(row(hour * 4_000_000 + n, user, 5000) for n, user in enumerate(users))))
        episodes += follower.turn().episodes
        sizes.append(sum(len(state.refs) for state in follower._counters.values()))
    assert max(sizes) <= 40
    found = followed_to_its_end(follower, episodes)
    same(found, batch([str(log)], AuditSettings(everybody)))
    assert {each.subject for each in episodes if each.state is State.BEGAN} == {
        f"user {name}" for name in found.findings.column("sensor").to_pylist() for name in [name.removesuffix(":")]
    }


def test_a_full_spool_is_said(tmp_path: Path) -> None:
    log = tmp_path / "usage.jsonl"
    log.write_text(lines(row(0)))
    follower = Follower([str(log)], AuditSettings(TIGHT), spool_bytes=1)
    assert follower.turn().full
    append(log, lines(row(1000), row(2000)))
    assert follower.turn().newest_ms == oracle.START_MS + 2000
    found = followed_to_its_end(follower, [])
    assert found.quality.events == 1
    assert "full" in found.quality.unread_files[0].reason


def test_the_rates_of_counters_are_what_the_broker_would_measure(tmp_path: Path) -> None:
    log = tmp_path / "usage.jsonl"
    log.write_text(lines(*(row(time_ms, size=20) for time_ms in range(0, 30_000, 500))))
    follower = Follower([str(log)], AuditSettings(TIGHT))
    follower.turn()
    (observed,) = follower.observed()
    assert observed.counter == ("1", QuotaKey.PRODUCER_BYTE_RATE, "alice", "")
    assert observed.rate == pytest.approx(40, rel=0.1)
    assert observed.throttle_ms == 0
    assert follower.observed() == [observed]
    follower.close()
