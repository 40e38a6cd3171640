"""The codec against what Kafka's own tool wrote and read."""

import json
import math
import re
from decimal import Decimal
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kquota import DEFAULT, Alteration, Entity, EntityType, InputError, QuotaKey, Rejected
from kquota.backends import znode
from kquota.backends.znode import NodeConfig
from kquota.core.quotas.quota import ValueType
from tests.support.data import data_rows

PRODUCER = QuotaKey.PRODUCER_BYTE_RATE
CONSUMER = QuotaKey.CONSUMER_BYTE_RATE
USER = Entity(user="u")
SCRAM = "salt=c2FsdA==,stored_key=a2V5,server_key=c2Vy,iterations=4096"


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(lambda name: name not in (".", ".."))
parts = st.one_of(names, st.just(DEFAULT))
entities = st.one_of(
    st.builds(lambda name: Entity(user=name), parts),
    st.builds(lambda name: Entity(client_id=name), parts),
    st.builds(lambda user, client: Entity(user=user, client_id=client), parts, parts),
    st.builds(lambda ip: Entity(ip=ip), st.one_of(st.ip_addresses().map(str), st.just(DEFAULT))),
)


@pytest.mark.parametrize(("name", "node"), [*data_rows("znodes/names.txt"), (" ", "%20"), ("\t", "%09")])
def test_names_are_sanitized_as_by_kafka(name: str, node: str) -> None:
    assert znode.encode_name(EntityType.USER, name) == node
    assert znode.decode_name(EntityType.CLIENT_ID, node) == name


@pytest.mark.parametrize(
    ("node", "name"),
    [("my client", "my client"), ("a+b", "a b"), ("%3d", "="), ("a*b~", "a*b~"), ("%FF", "\ufffd"), ("%2B+", "+ ")],
)
def test_older_names_are_decoded_as_by_java(node: str, name: str) -> None:
    assert znode.decode_name(EntityType.CLIENT_ID, node) == name


@pytest.mark.parametrize("node", ["50%", "a%2", "%zz", "%%41", "%+1x%"])
def test_bad_escapes_are_errors(node: str) -> None:
    with pytest.raises(InputError, match="bad escape"):
        znode.decode_name(EntityType.USER, node)


def test_an_ip_is_stored_as_typed() -> None:
    assert znode.entity_path(Entity(ip="::1")) == "ips/::1"
    assert znode.entity_of("/config/ips/a%20b") == Entity(ip="a%20b")


@pytest.mark.parametrize(
    "entity",
    [
        Entity(user="."),
        Entity(user="a", client_id=".."),
        Entity(client_id="."),
        Entity(ip=".."),
        Entity(ip="<default>"),
        Entity(ip="a/b"),
        Entity(ip="a\x00"),
    ],
)
def test_impossible_names_are_refused(entity: Entity) -> None:
    with pytest.raises(InputError):
        znode.znode_path(entity)


@pytest.mark.parametrize(
    ("entity", "path"),
    [
        (Entity(user=DEFAULT), "users/<default>"),
        (Entity(user="<default>"), "users/%3Cdefault%3E"),
        (Entity(user="CN=a", client_id="app1"), "users/CN%3Da/clients/app1"),
        (Entity(user=DEFAULT, client_id=DEFAULT), "users/<default>/clients/<default>"),
        (Entity(client_id="app1"), "clients/app1"),
        (Entity(ip=DEFAULT), "ips/<default>"),
    ],
)
def test_paths_and_notifications(entity: Entity, path: str) -> None:
    assert znode.znode_path(entity) == f"/config/{path}"
    assert znode.entity_of(f"/config/{path}") == entity
    assert znode.change_notification(entity) == f'{{"version":2,"entity_path":"{path}"}}'.encode()


@pytest.mark.parametrize("path", ["/config/topics/t", "/config/users/a/b", "/config/users/a/clients", "/config/users/"])
def test_other_paths_are_no_entities(path: str) -> None:
    with pytest.raises(InputError):
        znode.entity_of(path)


def test_parents() -> None:
    assert list(znode.parents("/config/users/u/clients/c")) == [
        "/config",
        "/config/users",
        "/config/users/u",
        "/config/users/u/clients",
    ]


@given(entities)
def test_paths_round_trip(entity: Entity) -> None:
    assert znode.entity_of(znode.znode_path(entity)) == entity


def test_keys_are_written_in_the_order_of_the_tool() -> None:
    stored = {
        "zebra": "1",
        "controller_mutation_rate": "10",
        "consumer_byte_rate": "2048",
        "aardvark": "2",
        "SCRAM-SHA-256": "b",
        "producer_byte_rate": "1024",
        "request_percentage": "50",
        "SCRAM-SHA-512": "a",
    }
    assert znode.encode_config(stored) == (
        b'{"version":1,"config":{"SCRAM-SHA-512":"a","SCRAM-SHA-256":"b","request_percentage":"50",'
        b'"producer_byte_rate":"1024","consumer_byte_rate":"2048","controller_mutation_rate":"10",'
        b'"zebra":"1","aardvark":"2"}}'
    )
    assert znode.encode_config({}) == b'{"version":1,"config":{}}'


@given(st.dictionaries(st.text(st.characters()), st.text(st.characters())))
def test_configs_round_trip(config: dict[str, str]) -> None:
    decoded = NodeConfig.decode(znode.encode_config(config))
    assert decoded.unreadable is None
    assert decoded.entries == config


@pytest.mark.parametrize(
    "data",
    [None, b"", b" \n", b"null", b"{}", b'{"version":1}', b'{"version":7,"config":{}} trailing', b'{"config":null}'],
)
def test_no_config_counts_as_empty_and_can_be_altered(data: bytes | None) -> None:
    config = NodeConfig.decode(data)
    assert dict(config.values(USER)) == {}
    assert config.describe(USER, "/config/users/u") == ({}, [])
    assert config.change(Alteration(USER, {PRODUCER: 1})).data == b'{"version":1,"config":{"producer_byte_rate":"1"}}'


@pytest.mark.parametrize(
    "data",
    [b"hello", b"\xff\xfe", b"[]", b"5", b'{"config":[]}', b'{"config":"x"}', b'{"config":{"a":NaN}}', b"[" * 99999],
)
def test_data_that_is_not_kafkas_is_a_problem_and_never_overwritten(data: bytes) -> None:
    config = NodeConfig.decode(data)
    assert dict(config.values(USER)) == {}
    (problem,) = config.describe(USER, "/config/users/u")[1]
    assert problem.where == "/config/users/u"
    with pytest.raises(Rejected, match="nothing was written"):
        config.change(Alteration(USER, {PRODUCER: 1}))


def test_the_last_of_duplicate_keys_wins() -> None:
    config = NodeConfig.decode(b'{"config":{"producer_byte_rate":"1","producer_byte_rate":"2"}}')
    assert dict(config.values(USER)) == {PRODUCER: 2}


@pytest.mark.parametrize("stored", ['"abc"', '"1.5"', '"2048  "', '""', "1024", "null", "{}"])
def test_a_value_that_bricks_brokers_must_go(stored: str) -> None:
    config = NodeConfig.decode(f'{{"config":{{"producer_byte_rate":{stored}}}}}'.encode())
    assert PRODUCER not in config.values(USER)
    assert [problem.where for problem in config.describe(USER, "here")[1]] == ["here"]
    with pytest.raises(Rejected) as caught:
        config.change(Alteration(USER, {CONSUMER: 1}))
    assert caught.value.hint == "set or delete producer_byte_rate in the same command"
    assert config.change(Alteration(USER, {PRODUCER: 7})).data == b'{"version":1,"config":{"producer_byte_rate":"7"}}'
    removed = config.change(Alteration(USER, remove=frozenset({PRODUCER}), strict_remove=True))
    assert removed.data == b'{"version":1,"config":{}}'
    assert dict(removed.after) == {}


def test_a_foreign_value_that_is_no_string_is_named_but_not_shown() -> None:
    config = NodeConfig.decode(b'{"config":{"SCRAM-SHA-256":{"secret":"xyzzy"},"producer_byte_rate":"1"}}')
    assert dict(config.values(USER)) == {PRODUCER: 1}
    with pytest.raises(Rejected, match="SCRAM-SHA-256 is not a JSON string") as caught:
        config.change(Alteration(USER, {PRODUCER: 2}))
    assert caught.value.hint == "remove SCRAM-SHA-256 from /config/users/u with a ZooKeeper client"
    assert "xyzzy" not in f"{caught.value} {config!r} {config.describe(USER, 'here')}"


def test_survivable_values_stay_as_they_are() -> None:
    data = b'{"version":1,"config":{"request_percentage":"50 ","producer_byte_rate":"+5","consumer_byte_rate":"-1"}}'
    config = NodeConfig.decode(data)
    assert dict(config.values(USER)) == {QuotaKey.REQUEST_PERCENTAGE: 50.0, PRODUCER: 5, CONSUMER: -1}
    changed = config.change(Alteration(USER, {QuotaKey.CONTROLLER_MUTATION_RATE: 2.0}))
    assert changed.data == data.replace(b"}}", b',"controller_mutation_rate":"2"}}')


def test_foreign_keys_survive_and_stay_hidden() -> None:
    config = NodeConfig.decode(f'{{"version":1,"config":{{"foo":"ü/","SCRAM-SHA-256":"{SCRAM}"}}}}'.encode())
    changed = config.change(Alteration(USER, {PRODUCER: 1}))
    expected = f'{{"version":1,"config":{{"SCRAM-SHA-256":"{SCRAM}","producer_byte_rate":"1","foo":"ü/"}}}}'
    assert changed.data == expected.encode()
    assert "stored_key" not in repr(config) + repr(changed)


def test_a_key_of_another_entity_type_is_kept_and_reported() -> None:
    config = NodeConfig.decode(b'{"version":1,"config":{"connection_creation_rate":"5"}}')
    assert dict(config.values(USER)) == {}
    assert [problem.message for problem in config.describe(USER, "here")[1]] == [
        "connection_creation_rate has no effect on user=u"
    ]
    assert b"connection_creation_rate" in (config.change(Alteration(USER, {PRODUCER: 1})).data or b"")


def test_removing_what_is_not_set_writes_nothing() -> None:
    assert NodeConfig().change(Alteration(USER, remove=frozenset({PRODUCER}))).data is None
    with pytest.raises(InputError, match="not set"):
        NodeConfig().change(Alteration(USER, remove=frozenset({PRODUCER}), strict_remove=True))


def test_setting_the_same_value_writes_as_the_tool_does() -> None:
    config = NodeConfig.decode(b'{"version":1,"config":{"producer_byte_rate":"1"}}')
    assert config.change(Alteration(USER, {PRODUCER: 1})).data == b'{"version":1,"config":{"producer_byte_rate":"1"}}'


# What Long.parseLong, Integer.parseInt and Double.parseDouble take on every JVM, and no more.
PARSABLE = {
    ValueType.LONG: re.compile(r"[1-9][0-9]{0,18}"),
    ValueType.INT: re.compile(r"[1-9][0-9]{0,9}"),
    ValueType.DOUBLE: re.compile(r"(?=.*[1-9])[0-9]+(\.[0-9]+)?"),
}
numbers = st.one_of(st.integers(), st.integers(1, 2**64), st.floats(), st.decimals())


@given(st.sampled_from(QuotaKey), numbers, entities)
@example(PRODUCER, Decimal("NaN"), USER)
def test_what_is_written_every_broker_can_parse(key: QuotaKey, number: float, entity: Entity) -> None:
    """Any number either never gets into an alteration, or into a node that brokers start with."""
    try:
        alteration = Alteration(entity, {key: number})
    except InputError:
        return
    data = NodeConfig().change(alteration).data
    assert data is not None
    ((name, text),) = json.loads(data)["config"].items()
    assert name == key.value
    assert PARSABLE[key.value_type].fullmatch(text), text
    maximum = key.value_type.maximum
    assert int(text) <= maximum if maximum is not None else 0 < float(text) < math.inf
    decoded = unquote(znode.znode_path(entity), errors="strict")
    assert decoded.endswith(str(DEFAULT.value if entity.parts[-1][1] is DEFAULT else entity.parts[-1][1]))


@pytest.mark.parametrize(
    ("path", "sensitive"),
    [
        ("/config/users", True),
        ("/config/users/u/clients/c", True),
        ("/config/brokers/1", True),
        ("/delegation_token/tokens", True),
        ("/config", False),
        ("/config/clients/c", False),
        ("/config/ips/1.2.3.4", False),
        ("/config/changes/config_change_", False),
    ],
)
def test_sensitive_paths(path: str, sensitive: bool) -> None:
    assert znode.is_sensitive(path) is sensitive


@pytest.mark.parametrize(
    ("data", "epoch"),
    [
        (None, 0),
        (b"junk", 0),
        (b'{"version":1,"brokerid":0,"timestamp":"1"}', 0),
        (b'{"version":2,"brokerid":0,"timestamp":"1","kraftControllerEpoch":-1}', -1),
        (b'{"version":2,"brokerid":3000,"timestamp":"1","kraftControllerEpoch":7}', 7),
        (b'{"kraftControllerEpoch":"7"}', 0),
    ],
)
def test_kraft_controller_epoch(data: bytes | None, epoch: int) -> None:
    assert znode.kraft_controller_epoch(data) == epoch
