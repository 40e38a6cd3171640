"""Both sides of a migration: what is damaged is found and named, what is right is not."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota import DEFAULT, Alteration, Entity, EntityType, QuotaFilter, QuotaKey, QuotaSnapshot
from kquota.core.change.migration import Damage, Finding, Parts, compare, parts_of
from kquota.core.quotas.snapshot import Ignored, Values
from kquota.core.resolve.resolver import encode_user
from tests.core.strategies import entities

PRODUCER, CONSUMER, REQUEST = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE
DN = Entity(user="CN=a")
UNDECODED = Entity(user="CN%3Da")
DEFAULT_USER = Entity(user=DEFAULT)
EMPTY_USER: Parts = ((EntityType.USER, ""),)


def check(
    zookeeper: Mapping[Entity, Values],
    kraft: Mapping[Entity, Values],
    nameless: Mapping[Parts, Values] | None = None,
    filter: QuotaFilter | None = None,
) -> tuple[Finding, ...]:
    return compare(QuotaSnapshot(zookeeper), QuotaSnapshot(kraft), nameless or {}, filter=filter or QuotaFilter())


def test_an_undecoded_name() -> None:
    """Set under the right name, and deleted under the wrong one."""
    (finding,) = check({DN: {PRODUCER: 5}}, {UNDECODED: {PRODUCER: 5}})

    assert (finding.damage, finding.entity, finding.where) == (Damage.UNDECODED_NAME, DN, "KRaft user=CN%3Da")
    assert finding.mend == (Alteration(DN, {PRODUCER: 5}), Alteration(UNDECODED, remove=frozenset({PRODUCER})))
    assert "KAFKA-16222" in (finding.damage.cause or "")


def test_a_znode_that_is_not_encoded() -> None:
    """The dual write of Kafka 3.7 leaves one for a name that was mended: its quota on KRaft is not one too many."""
    ignored = (Ignored(DN, PRODUCER, 5, "not encoded"), Ignored(DN, CONSUMER, 6, "not encoded"))
    zookeeper = QuotaSnapshot({}, ignored=ignored)

    assert compare(zookeeper, QuotaSnapshot({DN: {PRODUCER: 5, CONSUMER: 6}}), {}) == ()


def test_a_copy_beside_the_right_one() -> None:
    """Only the copy is deleted; where the right one differs that is told as well."""
    (copy,) = check({DN: {PRODUCER: 5}}, {DN: {PRODUCER: 5}, UNDECODED: {PRODUCER: 7}})
    both = check({DN: {PRODUCER: 5}}, {DN: {PRODUCER: 6}, UNDECODED: {PRODUCER: 5}})

    assert copy.mend == (Alteration(UNDECODED, remove=frozenset({PRODUCER})),)
    assert "beside the right one" in copy.proof
    assert {each.damage for each in both} == {Damage.UNDECODED_NAME, Damage.DIFFERENT}


@pytest.mark.parametrize("found", ["", "<default>"])
def test_a_default_with_a_name(found: str) -> None:
    """The empty name cannot be deleted, which is said; the default is set in any case."""
    nameless = {EMPTY_USER: {PRODUCER: 5}} if found == "" else {}
    kraft = {} if found == "" else {Entity(user=found): {PRODUCER: 5}}

    (finding,) = check({DEFAULT_USER: {PRODUCER: 5}}, kraft, nameless)

    assert (finding.damage, finding.entity) == (Damage.NAMED_DEFAULT, DEFAULT_USER)
    assert finding.mend[0] == Alteration(DEFAULT_USER, {PRODUCER: 5})
    if found:
        assert finding.mend[1:] == (Alteration(Entity(user=found), remove=frozenset({PRODUCER})),)
    else:
        assert finding.where == 'KRaft user=""'
        assert "refuse to delete it" in (finding.note or "")


def test_a_pair_with_both_damages() -> None:
    pair = Entity(user="CN=a", client_id=DEFAULT)
    nameless: dict[Parts, Values] = {((EntityType.USER, "CN%3Da"), (EntityType.CLIENT_ID, "")): {REQUEST: 5.0}}

    (finding,) = check({pair: {REQUEST: 5.0}}, {}, nameless)

    assert (finding.damage, finding.entity) == (Damage.NAMED_DEFAULT, pair)
    assert finding.where == 'KRaft user=CN%3Da,client-id=""'
    assert finding.mend == (Alteration(pair, {REQUEST: 5.0}),)


def test_missing_extra_different() -> None:
    """The ordinary kinds, ips among them."""
    ip = Entity(ip="10.0.0.7")
    rate = QuotaKey.CONNECTION_CREATION_RATE
    findings = check(
        {ip: {rate: 5}, Entity(user="a"): {PRODUCER: 1, REQUEST: 2.0}},
        {Entity(ip=DEFAULT): {rate: 7}, Entity(user="a"): {PRODUCER: 1, CONSUMER: 3}},
    )

    assert [(each.damage, str(each.entity)) for each in findings] == [
        (Damage.DIFFERENT, "user=a"),
        (Damage.EXTRA, "ip=<default>"),
        (Damage.MISSING, "ip=10.0.0.7"),
    ]
    assert findings[0].mend == (Alteration(Entity(user="a"), {REQUEST: 2.0}, frozenset({CONSUMER})),)
    assert findings[2].mend == (Alteration(ip, {rate: 5}),)


def test_what_kraft_does_not_take() -> None:
    """ZooKeeper may hold a 0: nothing can set it, and that is said."""
    (finding,) = check({DN: {PRODUCER: 0, REQUEST: 5.0}}, {})

    assert finding.mend == (Alteration(DN, {REQUEST: 5.0}),)
    assert finding.note == "KRaft does not take producer_byte_rate=0"


def test_the_filter_is_of_what_was_meant() -> None:
    """The damaged name is found under the right one."""
    wanted = QuotaFilter({EntityType.USER: "CN=a"}, strict=True)
    kraft: dict[Entity, Values] = {UNDECODED: {PRODUCER: 5}, Entity(user="b"): {PRODUCER: 1}}

    assert [each.damage for each in check({DN: {PRODUCER: 5}}, kraft, filter=wanted)] == [Damage.UNDECODED_NAME]


ENTITIES = entities().filter(lambda entity: entity.ip is None)
quotas = st.dictionaries(
    ENTITIES, st.dictionaries(st.sampled_from([PRODUCER, CONSUMER]), st.integers(1, 1000), min_size=1), max_size=6
)


def undecoded(entity: Entity) -> Entity:
    """As the migration named it."""
    names = {
        kind: "<default>" if name is DEFAULT else encode_user(name) for kind, name in entity.parts if name is not None
    }
    return Entity(names.get(EntityType.USER), names.get(EntityType.CLIENT_ID))


@given(quotas, st.data())
def test_what_is_mended_is_right(meant: dict[Entity, Values], data: st.DataObject) -> None:
    """Whatever was damaged: after the commands both sides are the same, and nothing is found in what is."""
    assert check(meant, meant) == ()
    kraft: dict[Entity, Values] = {}
    for entity, values in meant.items():
        match data.draw(st.sampled_from(["right", "undecoded", "missing", "different"])):
            case "right":
                kraft[entity] = values
            case "undecoded" if undecoded(entity) not in meant:
                kraft[undecoded(entity)] = values
            case "different":
                kraft[entity] = {PRODUCER: 5000}
    for entity in data.draw(st.lists(ENTITIES, max_size=2)):
        kraft.setdefault(entity, {CONSUMER: 7000})

    findings = check(meant, kraft)

    for finding in findings:
        for alteration in finding.mend:
            kraft[alteration.entity] = alteration.applied_to(kraft.get(alteration.entity, {}))
    assert QuotaSnapshot(kraft) == QuotaSnapshot(meant)
    assert check(meant, kraft) == ()
    assert all(parts_of(finding.entity) for finding in findings)
