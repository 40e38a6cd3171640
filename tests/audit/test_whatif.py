"""What changes from one set of quotas to another, beside two plain replays."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings

from kquota import Entity, QuotaKey, QuotaSnapshot
from kquota.audit.answers.whatif import compare
from kquota.audit.batch import Tally
from kquota.audit.engines import local
from kquota.audit.result import AuditResult
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import plan_splits
from kquota.core.change.history import QuotaHistory
from kquota.core.findings.whatif import Comparison, Outcome, Standing
from tests.audit import oracle
from tests.audit.oracle import Event
from tests.audit.test_ledger import audit
from tests.audit.test_requests import QUOTAS, whole_log
from tests.support.scheduling import examples

PRODUCER, REQUEST = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE
NEWLY = Outcome.NEWLY_THROTTLED


def compared(events: list[Event], before: QuotaHistory, after: QuotaHistory) -> tuple[Comparison, AuditSettings]:
    """The comparison, with two buckets and the events in two batches."""
    asked = AuditSettings(after, against=before, top_clients=None, per_client=True)
    half = len(events) // 2
    findings, earlier = audit([part for part in (events[:half], events[half:]) if part], asked, 2)
    return compare(AuditResult(findings, Tally(), against=AuditResult(earlier, Tally())), asked), asked


@given(events=oracle.event_lists(), before=oracle.quota_histories(), after=oracle.quota_histories())
@settings(max_examples=examples(60), deadline=None)
def test_is_the_difference_of_two_replays(events: list[Event], before: QuotaHistory, after: QuotaHistory) -> None:
    """For every client: how often and how long it is throttled, where, and by what."""
    comparison, asked = compared(events, before, after)

    old, new = (
        oracle.client_throttles(events, replace(asked, quotas=quotas, against=None)) for quotas in (before, after)
    )
    expected = {}
    for client in old.keys() | new.keys():
        sides = [side.get(client, (0, 0, set())) for side in (old, new)]
        if sides[0][:2] != sides[1][:2]:
            expected[client] = sides
    found = {
        (change.key.value, change.user, change.client_id): [
            (side.throttled_events, side.throttle_time_ms, set(side.brokers)) for side in (change.before, change.after)
        ]
        for change in comparison.clients
    }
    assert found == expected
    assert comparison.same == len(old.keys() | new.keys()) - len(expected)
    newly = {client for client, change in zip(found, comparison.clients, strict=True) if change.outcome is NEWLY}
    assert newly == new.keys() - old.keys()


def test_a_client_is_matched_by_who_it_is() -> None:
    """A quota on another level gives it another counter; it is throttled as before, and its neighbour no longer."""
    events = [
        Event(oracle.START_MS + 100 * number, "1", "alice", f"app{number % 2}", "produce", 1000, 0, 0)
        for number in range(400)
    ]
    user = QuotaSnapshot({Entity(user="alice"): {PRODUCER: 2000}})
    pair = QuotaSnapshot({Entity(user="alice", client_id="app1"): {PRODUCER: 2000}})

    comparison, _ = compared(events, QuotaHistory.of(user), QuotaHistory.of(pair))

    outcomes = {change.client_id: change for change in comparison.clients}
    assert outcomes["app0"].outcome is Outcome.NO_LONGER_THROTTLED
    assert outcomes["app0"].after == Standing()
    assert outcomes["app1"].outcome is Outcome.LESS
    assert (outcomes["app1"].before.sensor, outcomes["app1"].after.sensor) == ("alice:", "alice:app1")
    assert (outcomes["app1"].before.limit, outcomes["app1"].after.limit) == (2000, 2000)


@pytest.mark.parametrize(
    ("before", "after", "outcomes"),
    [
        ({"alice": 5.0}, {"alice": 5.0}, {}),
        ({"alice": 5.0}, {"alice": 6.0}, {"app0": Outcome.UNDETERMINED, "app1": Outcome.UNDETERMINED}),
        ({}, {"alice": 5.0}, {"app0": Outcome.UNDETERMINED, "app1": Outcome.UNDETERMINED}),
        ({"alice": 5.0}, {}, {"app0": Outcome.UNDETERMINED, "app1": Outcome.UNDETERMINED}),
        # One of the two gets a counter of its own, and the other keeps one that the first has left.
        (
            {"alice": 5.0},
            {"alice": 5.0, "alice,client-id=app1": 5.0},
            {"app0": Outcome.UNDETERMINED, "app1": Outcome.UNDETERMINED},
        ),
        ({"alice": 5.0}, {"alice": 5.0, "bob": 5.0}, {"app9": Outcome.UNDETERMINED}),
    ],
)
def test_what_is_not_known_stays_so(
    tmp_path: Path, before: dict[str, float], after: dict[str, float], outcomes: dict[str, Outcome]
) -> None:
    """Without thread times nothing is said of request quotas but that the same ones leave all as it was."""
    rows = "".join(
        f"{oracle.START_MS + number},1,{user},{client},produce,10\n"
        for number, (user, client) in enumerate([("alice", "app0"), ("alice", "app1"), ("bob", "app9")])
    )
    (tmp_path / "usage.csv").write_text("time_ms,broker,user,client_id,api,bytes\n" + rows)
    old, new = (
        QuotaHistory.of(QuotaSnapshot({Entity.parse(f"user={name}"): {REQUEST: rate} for name, rate in rates.items()}))
        for rates in (before, after)
    )
    asked = AuditSettings(new, against=old, top_clients=None, per_client=True)

    comparison = compare(local.audit(plan_splits([str(tmp_path)], "auto"), asked, "usage"), asked)

    assert {change.client_id: change.outcome for change in comparison.clients} == outcomes
    assert comparison.same == (2 if before and "app0" not in outcomes else 0)


def test_nobody_is_no_longer_throttled_by_a_log_with_gaps(tmp_path: Path) -> None:
    """The clients of a counter that the replay lets pass have no names; what is missing may throttle them."""
    lines = [line for place, line in enumerate(whole_log()) if place % 60 < 30]
    (tmp_path / "kafka-request.log").write_text("".join(f"{line}\n" for line in lines))
    high = QuotaHistory.of(QuotaSnapshot({Entity(user="slow"): {PRODUCER: 10**7}}))
    asked = AuditSettings(high, against=QUOTAS, top_clients=None, per_client=True)

    comparison = compare(local.audit(plan_splits([str(tmp_path)], "auto"), asked, "usage"), asked)

    assert {change.outcome for change in comparison.clients if change.user == "slow"} == {Outcome.UNDETERMINED}


SAMPLES = Path(__file__).parents[1] / "data" / "samples" / "prometheus-raw.json"


@pytest.mark.parametrize(
    ("before", "after", "outcomes"),
    [
        # The same counters, with limits that no sample comes near, or that each is far above.
        ({"user=alice": 10**9}, {"user=alice": 9}, {("alice", None): Outcome.NEWLY_THROTTLED}),
        # (The samples show that alice was held back: she may want more.)
        ({"user=alice": 9}, {"user=alice": 10**9}, {("alice", None): Outcome.UNDETERMINED}),
        ({"user=alice": 9}, {}, {("alice", None): Outcome.NO_LONGER_THROTTLED}),
        ({}, {"user=alice": 9}, {("alice", None): Outcome.NEWLY_THROTTLED}),
        # How much more or less, samples do not tell.
        ({"user=alice": 9}, {"user=alice": 8}, {("alice", None): Outcome.UNDETERMINED}),
        # Undetermined alike, while the same clients meet the same limit.
        ({"client-id=<default>": 9}, {"client-id=<default>": 9}, {}),
        # Other counters: who of them was throttled before is not known.
        ({"user=alice": 9}, {"user=alice,client-id=<default>": 9}, {("alice", None): Outcome.UNDETERMINED}),
    ],
)
def test_samples_name_no_clients(
    before: dict[str, int], after: dict[str, int], outcomes: dict[tuple[str, str | None], Outcome]
) -> None:
    """A counter stands for those behind it; a change that it hides is undetermined, and never none."""
    old, new = (
        QuotaHistory.of(QuotaSnapshot({Entity.parse(name): {PRODUCER: rate} for name, rate in rates.items()}))
        for rates in (before, after)
    )
    asked = AuditSettings(new, against=old, top_clients=None, per_client=True)

    comparison = compare(local.audit(plan_splits([str(SAMPLES)], "auto"), asked, "samples"), asked)

    assert {(change.user, change.client_id): change.outcome for change in comparison.clients} == outcomes
    assert {change.requests for change in comparison.clients} <= {None}
