"""Each rule with a case for it and one against it, and proofs by asking the resolver about every kind of client."""

import itertools
import math
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given

from kquota.core.change.lint import RULES, Facts, Finding, Severity, concerning, lint
from kquota.core.quotas.entity import DEFAULT, Default, Entity
from kquota.core.quotas.quota import QuotaKey, Value
from kquota.core.quotas.snapshot import Ignored, QuotaSnapshot
from kquota.core.resolve.resolver import Resolver
from tests.core.strategies import snapshots

PRODUCER, CONSUMER = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
REQUEST, MUTATION = QuotaKey.REQUEST_PERCENTAGE, QuotaKey.CONTROLLER_MUTATION_RATE
ALICE, USERS = Entity(user="alice"), Entity(user=DEFAULT)
APP, CLIENTS = Entity(client_id="app"), Entity(client_id=DEFAULT)
FIRST, CONNECTION = Entity(ip="10.0.0.1"), QuotaKey.CONNECTION_CREATION_RATE
MB = 10**6

# Rule, a snapshot with the entity to blame first, and one without anything to find.
Quotas = Mapping[Entity, Mapping[QuotaKey, Value]]
CASES: dict[str, tuple[Quotas, Quotas]] = {
    "unreachable": ({APP: {PRODUCER: MB}, USERS: {PRODUCER: MB}}, {APP: {PRODUCER: MB}, USERS: {REQUEST: 1.0}}),
    "shadowed": (
        {ALICE: {PRODUCER: MB}, Entity(user="alice", client_id=DEFAULT): {PRODUCER: MB}},
        {ALICE: {PRODUCER: MB}, Entity(user="bob", client_id=DEFAULT): {PRODUCER: MB}},
    ),
    "empty-client-id": ({CLIENTS: {PRODUCER: MB}}, {APP: {PRODUCER: MB}}),
    "encoded-name": (
        {Entity(user="CN%3Dx"): {PRODUCER: MB}},
        {Entity(user="CN=x"): {PRODUCER: MB}, Entity(user="100%"): {PRODUCER: MB}, Entity(user="a%2g"): {PRODUCER: MB}},
    ),
    "user-prefix": ({Entity(user="User:a"): {PRODUCER: MB}}, {Entity(client_id="User:a"): {PRODUCER: MB}}),
    "literal-default": ({Entity(user="<default>"): {PRODUCER: MB}}, {USERS: {PRODUCER: MB}}),
    "consumer-below-fetch": ({ALICE: {CONSUMER: 104_857}}, {ALICE: {CONSUMER: 104_858, PRODUCER: 1}}),
    "request-above-capacity": ({ALICE: {REQUEST: 400.0}}, {ALICE: {REQUEST: 399.0}}),
    "mutation-below-one": ({ALICE: {MUTATION: 0.9}}, {ALICE: {MUTATION: 1.0}}),
    "doubtful-name": (
        {Entity(user="alice "): {PRODUCER: MB}},
        {Entity(user="CN=a,OU=b"): {PRODUCER: MB}, Entity(client_id="app 1"): {PRODUCER: MB}, USERS: {PRODUCER: MB}},
    ),
    "blocking-default": (
        {USERS: {PRODUCER: 1500}},
        {USERS: {PRODUCER: 2000}, CLIENTS: {CONSUMER: 999}, ALICE: {PRODUCER: 1500}},
    ),
    "low-request-percentage": ({Entity(user="alice", client_id="a"): {REQUEST: 0.5}}, {ALICE: {REQUEST: 1.0}}),
    "similar-name": (
        {Entity(user="alcie"): {PRODUCER: MB}, ALICE: {PRODUCER: MB}},
        {
            Entity(user="tenant-1"): {PRODUCER: MB},
            Entity(user="tenant-2"): {PRODUCER: MB},
            Entity(client_id="tenatn"): {},
        },
    ),
    "suspiciously-low": ({ALICE: {PRODUCER: 999}}, {ALICE: {PRODUCER: 1000, REQUEST: 10.0}}),
    "internal-principal": ({USERS: {PRODUCER: MB}}, {USERS: {PRODUCER: MB}, Entity(user="connect"): {PRODUCER: MB}}),
    "rejected-value": ({ALICE: {REQUEST: math.nan}}, {ALICE: {REQUEST: 0.1}}),
    "oversubscribed": (
        {ALICE: {PRODUCER: 2 * MB}, APP: {PRODUCER: 2 * MB}},
        {ALICE: {PRODUCER: 2 * MB}, USERS: {PRODUCER: 2 * MB}},
    ),
    "one-address": (
        {Entity(ip="::ffff:10.0.0.1"): {CONNECTION: 5}, FIRST: {CONNECTION: 5}},
        {FIRST: {CONNECTION: 5}, Entity(ip="10.0.0.2"): {CONNECTION: 5}},
    ),
    "not-enforced": ({ALICE: {REQUEST: 50.0}}, {ALICE: {PRODUCER: MB}}),
    "not-encoded": (
        QuotaSnapshot({ALICE: {PRODUCER: MB}}, (), (Ignored(ALICE, PRODUCER, MB, "governs nobody"),)),
        {ALICE: {PRODUCER: MB}},
    ),
    "custom-callback": ({ALICE: {PRODUCER: MB}}, {}),
}

FACTS = {
    "request-above-capacity": Facts(threads=4),
    "internal-principal": Facts(internal=("connect",)),
    "oversubscribed": Facts(capacity=3 * MB),
    "not-enforced": Facts(version=(0, 10, 2)),
    "custom-callback": Facts(callback="acme.Quotas"),
}
"""The facts of the rules that need any."""


def found(name: str, quotas: Quotas, facts: Facts) -> list[Finding]:
    snapshot = quotas if isinstance(quotas, QuotaSnapshot) else QuotaSnapshot(quotas)
    return [finding for finding in lint(snapshot, facts) if finding.rule.name == name]


def test_every_rule_has_its_cases() -> None:
    assert set(CASES) == {rule.name for rule in RULES}


@pytest.mark.parametrize("name", CASES)
def test_the_rule_finds_its_case_and_nothing_else(name: str) -> None:
    (bad, good), facts = CASES[name], FACTS.get(name, Facts())
    (finding,) = found(name, bad, facts)
    assert finding.entity in (None, next(iter(bad)))
    for text in (finding.message, finding.proof, finding.hint):
        assert text
        assert "\n" not in text
    assert found(name, good, facts) == []


def governed(snapshot: QuotaSnapshot, key: QuotaKey) -> dict[Entity, set[str]]:
    """Which entities govern somebody, and with which client-ids: everybody who is named, strangers, and the nameless.

    Two clients that no entity names are alike, so these are all the kinds of clients there are.
    """
    users = {entity.user for entity in snapshot if isinstance(entity.user, str)} | {"a stranger"}
    clients = {entity.client_id for entity in snapshot if isinstance(entity.client_id, str)} | {"a stranger", ""}
    resolver = Resolver.of(snapshot, key)
    governing: dict[Entity, set[str]] = {}
    for user, client_id in itertools.product(users, clients):
        entity = resolver.resolve(user, client_id).entity
        if entity is not None:
            governing.setdefault(entity, set()).add(client_id)
    return governing


@given(snapshots)
def test_unreachable_is_proved_by_asking_about_everybody(snapshot: QuotaSnapshot) -> None:
    """A value is found if and only if it governs nobody."""
    findings = {(finding.entity, finding.key) for finding in lint(snapshot) if finding.rule.name == "unreachable"}
    for key in (PRODUCER, CONSUMER, REQUEST, MUTATION):
        governing = governed(snapshot, key)
        for entity, values in snapshot.items():
            if key in values:
                assert ((entity, key) in findings) == (entity not in governing), entity


@given(snapshots)
def test_what_is_unreachable_before_the_empty_client_id_was_an_exception(snapshot: QuotaSnapshot) -> None:
    """Brokers before 2.0 have client-id defaults for an empty client-id: such a pair hides a user's own quota."""
    before = replace(snapshot, empty_client_id=True)
    found = [finding for finding in lint(before) if finding.rule.name in ("unreachable", "shadowed")]
    for key in (PRODUCER, CONSUMER, REQUEST, MUTATION):
        governing = governed(before, key)
        hidden = {each.entity for each in found if each.rule.name == "unreachable" and each.key is key}
        assert hidden == {entity for entity, values in before.items() if key in values and entity not in governing}


@given(snapshots)
def test_what_shadows_is_the_reason(snapshot: QuotaSnapshot) -> None:
    """Without the entity to blame (and its like) the value governs somebody; what is left of a user is nameless."""
    for finding in lint(snapshot):
        if finding.rule.name == "unreachable":
            assert finding.key is not None
            rest = {
                entity: values
                for entity, values in snapshot.items()
                if entity == finding.entity or not (entity.user is DEFAULT and entity.ip is None)
            }
            assert finding.entity in governed(QuotaSnapshot(rest), finding.key)
        elif finding.rule.name == "shadowed" and finding.by is not None:
            assert finding.key is not None
            assert finding.entity is not None
            assert governed(snapshot, finding.key).get(finding.entity, set()) <= {""}


@pytest.mark.parametrize("user", [None, DEFAULT])
def test_a_user_takes_the_place_of_the_quotas_below(user: Default | None) -> None:
    """A quota of a client-id, and of a client-id of all users, limits nobody who has a quota of their own."""
    below = Entity(user=user, client_id="app")
    (found,) = (each for each in lint(QuotaSnapshot({ALICE: {PRODUCER: MB}, below: {PRODUCER: 2000}})))
    assert (found.rule.name, found.entity, found.key) == ("shadowed", below, PRODUCER)
    assert found.proof.endswith(f"users with {PRODUCER}: {ALICE}")
    assert "'kquota resolve --all --client app' shows" in found.hint


def test_the_worst_comes_first() -> None:
    quotas: dict[Entity, dict[QuotaKey, Value]] = {
        USERS: {PRODUCER: MB},
        APP: {PRODUCER: MB},
        Entity(user="User:a"): {CONSUMER: MB},
        CLIENTS: {REQUEST: 1.0},
    }
    severities = [finding.severity for finding in lint(QuotaSnapshot(quotas))]
    assert severities == sorted(severities, reverse=True)
    assert severities[0] is Severity.ERROR
    assert severities[-1] is Severity.NOTE


def test_what_concerns_an_entity() -> None:
    """Errors and warnings about it or by it, and about all; no notes, and nothing of others."""
    users, app, other = Entity(user=DEFAULT), Entity(client_id="app"), Entity(user="User:x")
    key = QuotaKey.PRODUCER_BYTE_RATE
    snapshot = QuotaSnapshot({users: {key: MB}, app: {key: MB}, other: {key: MB}})
    findings = lint(snapshot, Facts(capacity=1))

    assert [found.rule.name for found in concerning(findings, {users})] == ["oversubscribed", "unreachable"]
    assert concerning(findings, {users}) == concerning(findings, {app})
    assert {found.rule.name for found in concerning(findings, {other})} == {"user-prefix", "oversubscribed"}
