"""The review of a plan: what speaks against it, how gravely, and what lifts it."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota import DEFAULT, Change, Entity, EntityType, Guards, Objection, Plan, QuotaKey, QuotaSnapshot
from kquota.core.change.lint import lint
from kquota.core.change.plan import Cluster, Severity, plan
from kquota.core.change.review import related, review, standing, with_review
from kquota.core.quotas.quota import LONG_MAX
from kquota.core.quotas.selector import Selector
from kquota.core.resolve.resolver import resolve_ip
from tests.core.strategies import snapshots

PRODUCER, CONSUMER = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
ALICE, BOB, USERS = Entity(user="alice"), Entity(user="bob"), Entity(user=DEFAULT)
CLIENTS = Entity(client_id=DEFAULT)
MB = 1_000_000


def messages(planned: Plan, current: QuotaSnapshot, guards: Guards | None = None) -> tuple[str, ...]:
    """The messages of everything that stops the plan."""
    return tuple(each.message for each in standing(review(planned, current, guards)))


def names(planned: Plan, current: QuotaSnapshot) -> list[str]:
    return [each.name for each in review(planned, current)]


def users(count: int, start: int = 0) -> dict[Entity, dict[QuotaKey, int]]:
    return {Entity(user=f"u{number}"): {PRODUCER: 1} for number in range(start, start + count)}


def test_a_users_first_quota_takes_the_place_of_a_client_ids() -> None:
    """Not where a pair of the user's stays, nor where the client-id's governed nobody; many users are one line."""
    etl, pair = Entity(user=DEFAULT, client_id="etl"), Entity(user="bob", client_id="etl")
    current = QuotaSnapshot({etl: {PRODUCER: 500_000}, Entity(client_id="idle"): {PRODUCER: 1}, USERS: {PRODUCER: MB}})
    wanted = {BOB: {PRODUCER: 7 * MB}, ALICE: {PRODUCER: MB}}
    (found,) = [each for each in review(plan(current, wanted), current) if each.name == "takes-over"]
    assert found.message == (
        "user=<default>,client-id=etl: producer_byte_rate 500 kB/s will not govern the clients of user=alice and 1 more"
    )
    lifted = QuotaSnapshot({etl: {PRODUCER: LONG_MAX}})
    assert "producer_byte_rate unlimited (Long.MAX_VALUE) will not" in str(review(plan(lifted, wanted), lifted))
    assert "takes-over" not in names(plan(current, {BOB: {CONSUMER: MB}}), current)
    known = QuotaSnapshot({**current, pair: {PRODUCER: MB}})
    assert "takes-over" not in names(plan(known, {BOB: {PRODUCER: MB}}), known)
    first = QuotaSnapshot({**current, Entity(user="alice", client_id="etl"): {PRODUCER: MB}})
    (found,) = [each for each in review(plan(first, wanted), first) if each.name == "takes-over"]
    assert found.message.endswith("will not govern the clients of user=bob"), "though alice's pair stays"


def test_a_new_default_of_users_takes_the_place_of_client_ids() -> None:
    """But not of a pair with the default user, which goes before it."""
    pair = Entity(user=DEFAULT, client_id="etl")
    current = QuotaSnapshot({pair: {PRODUCER: 500_000}, Entity(client_id="app"): {PRODUCER: MB}})
    (found,) = [
        each for each in review(plan(current, {USERS: {PRODUCER: 2 * MB}}), current) if each.name == "takes-over"
    ]
    assert found.message == "client-id=app: producer_byte_rate 1 MB/s will not govern the clients of user=<default>"


@pytest.mark.parametrize(
    ("deleted", "updated", "guards", "objection"),
    [
        (2, 0, Guards(), None),
        (3, 0, Guards(), "delete 3 of 10 entities (30 %, at most 20 %)"),
        (3, 0, Guards(most_deleted=0.3), None),
        (0, 5, Guards(), None),
        (0, 6, Guards(), "change 6 of 10 entities (60 %, at most 50 %)"),
        (2, 4, Guards(), "change 6 of 10 entities"),
    ],
)
def test_a_large_share_is_objected_to(deleted: int, updated: int, guards: Guards, objection: str | None) -> None:
    current = QuotaSnapshot(users(10))
    desired = {entity: values for number, (entity, values) in enumerate(current.items()) if number >= deleted}
    desired |= {entity: {PRODUCER: 2} for entity in list(desired)[:updated]}
    found = messages(plan(current, desired, prune=True), current, guards)
    assert [objection in text for text in found] == [True] if objection else found == ()


@pytest.mark.parametrize(
    ("entity", "key", "value", "kind"),
    [
        (ALICE, QuotaKey.REQUEST_PERCENTAGE, 0.5, "low-request-percentage"),
        (USERS, QuotaKey.REQUEST_PERCENTAGE, 0.01, "low-request-percentage"),
        (Entity(user="alice", client_id="a"), QuotaKey.REQUEST_PERCENTAGE, 0.5, "low-request-percentage"),
        (USERS, PRODUCER, 1000, "blocking-default"),
        (CLIENTS, CONSUMER, 1500, "blocking-default"),
        (Entity(ip=DEFAULT), QuotaKey.CONNECTION_CREATION_RATE, 1, "blocking-default"),
        (USERS, PRODUCER, 2000, None),
        (Entity(ip=DEFAULT), QuotaKey.CONNECTION_CREATION_RATE, 10, None),
        (ALICE, QuotaKey.REQUEST_PERCENTAGE, 1.0, None),
    ],
)
def test_values_that_are_most_likely_slips(entity: Entity, key: QuotaKey, value: float, kind: str | None) -> None:
    """KIP-124's commonest slip, and a first default that lacks its unit."""
    questions = standing(review(plan(QuotaSnapshot(), {entity: {key: value}}), QuotaSnapshot()))

    assert [each.name for each in questions] == ([kind] if kind else [])


@given(snapshots, st.sampled_from([0.3, 1, 500, MB]))
def test_lint_finds_all_that_a_review_sees_in_the_file_alone(drawn: QuotaSnapshot, scale: float) -> None:
    """Whoever lints a file is not asked anything new about it on a cluster without quotas."""
    share = QuotaKey.REQUEST_PERCENTAGE
    wanted = QuotaSnapshot(
        {
            entity: {
                key: value * scale if key is share else max(1, int(value * scale)) for key, value in values.items()
            }
            for entity, values in drawn.items()
        }
    )
    objections = set(names(plan(QuotaSnapshot(), wanted), QuotaSnapshot()))
    assert objections - {"low-default"} <= {finding.rule.name for finding in lint(wanted)}


@pytest.mark.parametrize(
    ("entity", "key", "low", "lower", "usual", "kind"),
    [
        (Entity(user="alice", client_id="a"), QuotaKey.REQUEST_PERCENTAGE, 0.7, 0.5, 50.0, "low-request-percentage"),
        (Entity(client_id="poll"), QuotaKey.REQUEST_PERCENTAGE, 0.7, 0.5, 50.0, "low-request-percentage"),
        (USERS, PRODUCER, 1600, 1500, MB, "blocking-default"),
        (Entity(ip=DEFAULT), QuotaKey.CONNECTION_CREATION_RATE, 1, 0.5, 9, "blocking-default"),
    ],
)
def test_what_was_so_low_before_is_no_slip(
    entity: Entity, key: QuotaKey, low: float, lower: float, usual: float, kind: str
) -> None:
    for before, asked in ((low, False), (usual, True)):
        current = QuotaSnapshot({entity: {key: before}})
        assert (kind in names(plan(current, {entity: {key: lower}}), current)) == asked


def test_a_default_does_not_go_unasked() -> None:
    current = QuotaSnapshot({USERS: {PRODUCER: MB}, ALICE: {PRODUCER: MB}})
    pruned = plan(current, {ALICE: {PRODUCER: MB}}, prune=True)

    assert names(pruned, current) == ["deleted-default"]


def test_unlimited_was_nobodys_rate() -> None:
    """A client under the largest value has some rate, and not that one."""
    current = QuotaSnapshot({ALICE: {PRODUCER: 2**63 - 1}})

    assert messages(plan(current, {ALICE: {PRODUCER: MB}}), current) == ()


def test_two_spellings_of_one_address_are_asked_about() -> None:
    """Case 09: the last write decides for both, and deleting one lifts the other."""
    one, other = Entity(ip="10.0.0.1"), Entity(ip="::ffff:10.0.0.1")
    key = QuotaKey.CONNECTION_CREATION_RATE
    current = QuotaSnapshot({one: {key: 6}})

    assert names(plan(current, {other: {key: 5}}), current) == ["one-address"]
    both = QuotaSnapshot({one: {key: 6}, other: {key: 5}})
    assert not resolve_ip(both, "10.0.0.1").is_determined
    assert resolve_ip(QuotaSnapshot({one: {key: 6}, other: {key: 6}}), "10.0.0.1").is_determined


def test_a_short_address_is_asked_about_with_the_whole_one() -> None:
    short, whole = Entity(ip="10.7"), Entity(ip="10.0.0.7")
    key = QuotaKey.CONNECTION_CREATION_RATE
    (why,) = messages(plan(QuotaSnapshot(), {short: {key: 5}}), QuotaSnapshot())
    assert why == "ip=10.7: '10.7' is 10.0.0.7 to brokers: write the whole address"
    held = QuotaSnapshot({short: {key: 5}})
    assert names(plan(held, {short: {key: 5}, whole: {key: 5}}), held) == ["one-address"]
    assert names(plan(held, {}, prune=True), held) == []


def test_the_deletion_of_one_spelling_is_asked_about_where_another_stays() -> None:
    """A plan that gives an address another spelling deletes one and sets one: brokers may do that last."""
    short, whole = Entity(ip="10.7"), Entity(ip="10.0.0.7")
    key = QuotaKey.CONNECTION_CREATION_RATE
    for before in ({short: {key: 5}}, {short: {key: 5}, whole: {key: 5}}):
        current = QuotaSnapshot(before)
        (why,) = messages(plan(current, {whole: {key: 5}}, prune=True), current)
        assert why.startswith("ip=10.7: deleting it may lift the limit of ip=10.0.0.7 too")
    both = QuotaSnapshot({short: {key: 5}, whole: {key: 5}})
    assert names(plan(both, {}, prune=True), both) == []


def test_protected_entities_and_internal_principals_are_guarded() -> None:
    guards = Guards(protected=(Selector({EntityType.USER: re.compile("ali.*")}),), internal=("connect",))
    current = QuotaSnapshot({ALICE: {PRODUCER: 1}})
    assert messages(plan(current, {BOB: {PRODUCER: 1}}), current, guards) == ()
    (protected,) = messages(plan(current, {ALICE: {PRODUCER: 2}}), current, guards)
    assert protected == "it would update user=alice, which is protected by user=/ali.*/"
    (internal,) = messages(plan(current, {USERS: {CONSUMER: MB}}), current, guards)
    assert internal == "consumer_byte_rate of user=<default> would limit the internal principal connect"
    # One that has a quota of its own is not hit, and neither is one that the default limited before.
    own = {Entity(user="connect"): {CONSUMER: 9}, USERS: {CONSUMER: MB}}
    assert messages(plan(current, own), current, guards) == ()
    before = QuotaSnapshot({USERS: {CONSUMER: MB}})
    assert messages(plan(before, {USERS: {CONSUMER: MB, PRODUCER: MB}}), before, Guards(internal=("x",)))
    assert not messages(plan(before, {ALICE: {CONSUMER: MB}}), before, Guards(internal=("x",)))


FAST, SLOW = {PRODUCER: 10 * MB}, {PRODUCER: MB // 100}


@pytest.mark.parametrize(
    ("before", "after", "name", "text"),
    [
        ({ALICE: FAST}, {ALICE: {PRODUCER: 3 * MB}}, None, ""),
        ({ALICE: FAST}, {ALICE: {PRODUCER: MB}}, "short-freeze", "up to 99.0 s"),
        ({ALICE: FAST}, {ALICE: SLOW}, "freeze", "up to 3 h 3 min"),
        ({USERS: {CONSUMER: 5 * MB}}, {USERS: {CONSUMER: 10}}, "freeze", "up to 64 days"),
        ({ALICE: FAST, USERS: SLOW}, {USERS: SLOW}, "freeze", "user=alice"),
        ({USERS: FAST}, {USERS: FAST, ALICE: SLOW}, "freeze", "user=alice"),
        ({CLIENTS: FAST}, {CLIENTS: SLOW}, "freeze", "client-id=<default>"),
        ({}, {ALICE: {PRODUCER: MB}}, None, ""),
        ({ALICE: {PRODUCER: MB}}, {ALICE: FAST}, None, ""),
        ({ALICE: FAST}, {}, None, ""),
        # Another counter has counted nothing yet.
        ({ALICE: FAST}, {ALICE: FAST, Entity(user="alice", client_id=DEFAULT): SLOW}, None, ""),
        # What comes first for the clients decides.
        ({USERS: FAST, CLIENTS: FAST}, {USERS: FAST, CLIENTS: SLOW}, None, ""),
    ],
)
def test_a_freeze_is_foretold(
    before: dict[Entity, dict[QuotaKey, int]], after: dict[Entity, dict[QuotaKey, int]], name: str | None, text: str
) -> None:
    """By the limits that clients have, not by the values of the entity alone."""
    current = QuotaSnapshot(before)
    found = [each for each in review(plan(current, after, prune=True), current) if "freeze" in each.name]
    assert [each.name for each in found] == ([] if name is None else [name])
    assert all(text in each.message for each in found)


@pytest.mark.parametrize("user", ["User:alice", "<default>", "alice ", "*", "default", "bob,carol"])
def test_a_name_that_nobody_has_is_refused_where_it_is_set(user: str) -> None:
    entity, current = Entity(user=user), QuotaSnapshot({Entity(user=user): {PRODUCER: MB, CONSUMER: MB}})
    (objection,) = standing(review(plan(current, {entity: {PRODUCER: 2 * MB}}), current), yes=True)
    assert (objection.severity, objection.lifted_by) == (Severity.REFUSAL, ("--force",))
    assert not standing((objection,), force=True)
    # Deleting it mends it, and what another plan does is no concern of it.
    assert messages(plan(current, {}, prune=True), current) == ()
    assert messages(plan(current, {ALICE: {PRODUCER: MB}}), current) == ()


def test_what_was_wrong_before_is_not_held_against_a_plan() -> None:
    """A stored 0 that the plan leaves alone."""
    current = QuotaSnapshot({ALICE: {PRODUCER: 0, CONSUMER: MB}})
    assert messages(plan(current, {ALICE: {CONSUMER: 2 * MB}}), current) == ()


def test_a_number_without_its_unit_is_a_warning() -> None:
    current = QuotaSnapshot()
    assert "suspiciously-low" in names(plan(current, {ALICE: {PRODUCER: 10}}), current)
    assert "suspiciously-low" not in names(plan(current, {ALICE: {PRODUCER: 1000}}), current)


@pytest.mark.parametrize("entity", [Entity(user=DEFAULT), Entity(client_id=DEFAULT), Entity("alice", DEFAULT)])
def test_a_number_without_its_unit_for_everybody_is_a_question(entity: Entity) -> None:
    """10 instead of 10MB stops all clients that have no quota of their own."""
    current = QuotaSnapshot()
    (question,) = standing(review(plan(current, {entity: {PRODUCER: 10}}), current))
    assert (question.name, question.lifted_by) == ("low-default", ("--yes", "--force"))
    assert "10 B/s" in question.message
    assert not standing(review(plan(current, {entity: {PRODUCER: 2000}}), current))
    # A value that was there before is not asked about.
    there = QuotaSnapshot({entity: {PRODUCER: 10}})
    assert not standing(review(plan(there, {entity: {PRODUCER: 10, CONSUMER: MB}}), there))


def test_yes_answers_questions_and_force_lifts_refusals() -> None:
    objections = [Objection(str(severity), severity, "", ()) for severity in Severity]
    assert [each.name for each in standing(objections)] == ["question", "refusal"]
    assert [each.name for each in standing(objections, yes=True)] == ["refusal"]
    assert standing(objections, force=True) == ()


def test_a_saved_review_stays_but_for_shares() -> None:
    protected = Objection("protected", Severity.REFUSAL, "it would", ("--force",))
    share = Objection("deleted-share", Severity.REFUSAL, "it would delete", ("--force",))
    saved = Plan((Change(ALICE, {}, {PRODUCER: MB}),), objections=(protected, share), cluster=Cluster("kafka://a:1"))
    again = with_review(saved, QuotaSnapshot())
    assert again.objections == (protected,)
    assert with_review(again, QuotaSnapshot()).objections == (protected,)
    assert again.cluster == saved.cluster


def test_a_part_of_the_cluster_is_enough_for_a_review() -> None:
    """Of each entity, what `related` names."""
    everything = {
        **{Entity(user=f"u{number}"): {PRODUCER: 1000 * number} for number in range(1, 10)},
        Entity(user="alice", client_id=DEFAULT): {PRODUCER: 3 * MB},
        ALICE: {PRODUCER: 50 * MB},
        USERS: {PRODUCER: MB // 10},
    }
    current = QuotaSnapshot(everything)
    planned = replace(plan(current, {ALICE: {PRODUCER: MB}, BOB: {PRODUCER: MB // 1000}}), existing=0)
    around = {each for change in planned.changes for each in related(change.entity)}
    part = QuotaSnapshot({entity: values for entity, values in everything.items() if entity in around})
    assert len(part) < len(current)
    assert review(planned, part) == review(planned, current) != ()


def test_a_value_that_governs_no_client_is_asked_about() -> None:
    """With what governs them instead, and who has a value of their own; what was hidden before is no news."""
    etl, pair = Entity(client_id="etl"), Entity(user=DEFAULT, client_id="etl")
    current = QuotaSnapshot({ALICE: {PRODUCER: MB}, BOB: {CONSUMER: MB}, USERS: {PRODUCER: 5 * MB}})
    (question,) = messages(plan(current, {etl: {PRODUCER: 50_000}}), current)
    assert question.startswith("client-id=etl producer_byte_rate: governs no client: user=<default> comes first")
    assert question.endswith("--user-defaults --client etl, which does not reach user=alice)")
    with_etl = QuotaSnapshot({**current, etl: {PRODUCER: 50_000}})
    assert review(plan(with_etl, {pair: {PRODUCER: 50_000}}), with_etl) == ()
    assert len(messages(plan(with_etl, {etl: {PRODUCER: 40_000}}), with_etl)) == 1
    first = QuotaSnapshot({etl: {PRODUCER: 50_000}})
    assert len(messages(plan(first, {USERS: {PRODUCER: MB}}), first)) == 1


def test_a_second_review_changes_neither_order_nor_fingerprint() -> None:
    current = QuotaSnapshot(users(10))
    desired = {entity: values for number, (entity, values) in enumerate(current.items()) if number >= 3}
    guards = Guards(protected=(Selector({EntityType.USER: re.compile("u0")}),))
    once = with_review(plan(current, desired, prune=True), current, guards)
    again = with_review(once, current, guards)
    assert [each.name for each in once.objections] == ["deleted-share", "protected"]
    assert (again.objections, again.fingerprint) == (once.objections, once.fingerprint)
