"""Formats of other tools: what is exported is what their own readers read, and comes back as the same quotas."""

import json
import math
import re
import unicodedata
from pathlib import Path
from typing import Any

import hcl2
import pytest
import yaml
from hypothesis import given
from jsonschema import Draft202012Validator

from kquota import DEFAULT, Entity, InputError, QuotaKey, QuotaSnapshot
from kquota.core.quotas.quota import INT_MAX
from kquota.documents.foreign import jikkou, kafka_configs, rpk, strimzi, terraform
from tests.documents.snapshots import snapshots
from tests.support.data import data_rows, data_text, wrong_documents

PRODUCER, CONSUMER, REQUEST = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE
MUTATION, CONNECTION = QuotaKey.CONTROLLER_MUTATION_RATE, QuotaKey.CONNECTION_CREATION_RATE
CRD = Path(__file__).parents[1] / "data" / "strimzi" / "kafkauser.json"


def sayable(snapshot: QuotaSnapshot, entities: Any, keys: Any = lambda key, value: True) -> QuotaSnapshot:
    """What of the quotas a format can say; no tool takes more digits of a whole number than a double has."""
    return QuotaSnapshot(
        {
            entity: {
                key: value
                for key, value in values.items()
                if (not key.value_type.integral or int(float(value)) == value) and keys(key, value)
            }
            for entity, values in snapshot.items()
            if entities(entity)
        }
    )


def names_of(entity: Entity) -> list[str]:
    return [name for _, name in entity.parts if isinstance(name, str)]


@given(snapshots())
def test_kafka_configs_reads_back(snapshot: QuotaSnapshot) -> None:
    exported = kafka_configs.export(snapshot)
    expected = sayable(snapshot, lambda entity: all(map(str.isprintable, names_of(entity))))
    assert kafka_configs.read("quotas.sh", exported.text) == expected
    assert (expected == snapshot) == (not exported.unsaid)


@given(snapshots())
def test_rpk_reads_back(snapshot: QuotaSnapshot) -> None:
    exported = rpk.export(snapshot)
    expected = sayable(snapshot, lambda entity: DEFAULT not in entity and "<default>" not in entity)
    assert rpk.read("rpk.yaml", exported.text) == expected
    assert (expected == snapshot) == (not exported.unsaid)
    # What `rpk cluster quotas describe` makes of it.
    document = yaml.safe_load(exported.text)
    assert rpk.read("rpk.json", json.dumps(document)) == expected


THREE = (PRODUCER, CONSUMER, REQUEST)


@given(snapshots())
def test_jikkou_reads_back(snapshot: QuotaSnapshot) -> None:
    def has_type(entity: Entity) -> bool:
        if entity.ip is not None or any(re.search(r"\{[{%#]", name) for name in names_of(entity)):
            return False
        default_user = entity.user is DEFAULT and entity.client_id is not None
        return not default_user

    exported = jikkou.export(snapshot)
    expected = sayable(snapshot, has_type, lambda key, value: key in THREE)
    assert jikkou.read("jikkou.yaml", exported.text) == expected
    assert (expected == snapshot) == (not exported.unsaid)
    # Nothing that Jinja would take for its own.
    assert not re.search(r"\{[{%#]", exported.text)


@given(snapshots())
def test_strimzi_reads_back(snapshot: QuotaSnapshot) -> None:
    def fits(key: QuotaKey, value: float) -> bool:
        return key is MUTATION or (value == int(value) and value <= INT_MAX)

    exported = strimzi.export(snapshot)
    expected = sayable(snapshot, lambda entity: isinstance(entity.user, str) and entity.client_id is None, fits)
    validator = Draft202012Validator(json.loads(CRD.read_text())["schema"])
    keys = {"producerByteRate": PRODUCER, "consumerByteRate": CONSUMER}
    keys |= {"requestPercentage": REQUEST, "controllerMutationRate": MUTATION}
    read = {}
    resources = [each for each in yaml.safe_load_all(exported.text) if each is not None]
    for resource in resources:
        validator.validate(resource)
        spec, name = resource["spec"], resource["metadata"]["name"]
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", name)
        # Strimzi's KafkaUserModel: the name of the resource unless the spec has one; certificates are CN=name.
        user = spec.get("userName", f"CN={name}" if "authentication" in spec else name)
        read[Entity(user=user)] = {keys[written]: float(number) for written, number in spec["quotas"].items()}
    assert QuotaSnapshot(read) == expected == strimzi.read("users.yaml", exported.text)
    assert len({resource["metadata"]["name"] for resource in resources}) == len(resources)
    assert (expected == snapshot) == (not exported.unsaid)


def from_hcl(raw: str) -> str:
    """A quoted string of HCL without templates."""
    assert not re.search(r"(?<!\\)[$%]\{", raw)
    return re.sub(r"\\(?:u([0-9a-f]{4})|U([0-9a-f]{8})|(.))", unescaped, raw[1:-1])


def unescaped(match: re.Match[str]) -> str:
    code = match[1] or match[2]
    return chr(int(code, 16)) if code else match[3]


@given(snapshots())
def test_terraform_reads_back(snapshot: QuotaSnapshot) -> None:
    def has_resource(entity: Entity) -> bool:
        # Terraform brings every string into this form.
        composed = all(unicodedata.normalize("NFC", name) == name for name in names_of(entity))
        return len(entity.parts) == 1 and composed

    exported = terraform.export(snapshot)
    expected = sayable(snapshot, has_resource)
    read = {}
    for block in hcl2.loads(exported.text).get("resource", []):
        ((kind, resources),) = ((key, value) for key, value in block.items() if not key.startswith("__"))
        assert kind == '"kafka_quota"'
        ((address, body),) = ((key, value) for key, value in resources.items() if not key.startswith("__"))
        assert re.fullmatch(r'"[a-z][a-z0-9_-]*"', address)
        part = from_hcl(body["entity_type"]).replace("-", "_")
        name = from_hcl(body["entity_name"]) if "entity_name" in body else DEFAULT
        read[Entity(**{part: name})] = {QuotaKey(from_hcl(key)): float(value) for key, value in body["config"].items()}
    assert QuotaSnapshot(read) == expected == terraform.read("quotas.tf", exported.text)
    addresses = re.findall(r'^resource "kafka_quota" (.*) \{$', exported.text, re.MULTILINE)
    assert len(set(addresses)) == len(addresses)
    assert (expected == snapshot) == (not exported.unsaid)


def test_what_no_tool_sets_is_named() -> None:
    snapshot = QuotaSnapshot({Entity(user="a"): {PRODUCER: 0, CONSUMER: 2**63 - 1, REQUEST: math.nan, MUTATION: 2.5}})
    for module in (kafka_configs, rpk, jikkou, strimzi, terraform):
        unsaid = module.export(snapshot).unsaid
        assert [problem.where.split()[-1] for problem in unsaid][:3] == [PRODUCER.value, CONSUMER.value, REQUEST.value]


@pytest.mark.parametrize(
    ("lines", "quotas"), [*data_rows("foreign/printed.txt"), ("Configs for user-principal 'alice' are ", "")]
)
def test_what_kafka_configs_prints(lines: str, quotas: str) -> None:
    entity, _, values = quotas.partition(": ")
    expected = {QuotaKey(key): float(value) for key, value in (each.split("=") for each in values.split(", ") if each)}
    assert kafka_configs.read("file", lines) == QuotaSnapshot({Entity.parse(entity): expected} if quotas else {})


SCRIPT = data_text("foreign/script.sh").splitlines(keepends=True)


def test_scripts_of_kafka_configs() -> None:
    assert kafka_configs.read("quotas.sh", "".join(SCRIPT[:-1])) == QuotaSnapshot(
        {
            Entity(user="alice smith"): {PRODUCER: 1024},
            Entity(user="bob", client_id=DEFAULT): {REQUEST: 5.0},
            Entity(user=DEFAULT, client_id='a"#b'): {CONSUMER: 5, PRODUCER: 6},
            Entity(ip="10.0.0.1"): {CONNECTION: 7},
        }
    )
    later = "".join(SCRIPT)
    with pytest.raises(InputError, match=r"quotas.sh, line 11: unknown quota key 'x'"):
        kafka_configs.read("quotas.sh", later)
    other = kafka_configs.read(
        "quotas.sh", "\nkafka-configs --alter --entity-type topics --entity-name t --add-config a=b"
    )
    assert [problem.where for problem in other.problems] == ["quotas.sh, line 2"]
    mixed = kafka_configs.read(
        "quotas.sh", "kafka-configs --alter --user a --entity-type topics --entity-name t --add-config a=b"
    )
    assert [problem.message for problem in mixed.problems] == ["not about users, clients or ips"]
    command = "kafka-configs --alter --user never --add-config producer_byte_rate"
    branch = kafka_configs.read("quotas.sh", f"if false; then {command}=5\nfi\n{command}=6\n")
    within = [(problem.where, problem.message) for problem in branch.problems]
    assert within == [("quotas.sh, line 1", "read as if it ran: it is within a branch or a loop")]
    for outside in ("{ if true; then :; fi; }", "select one in a; do :; done", "! while false; do :; done"):
        assert kafka_configs.read("quotas.sh", f"{outside}\n{command}=6\n").problems == ()
    units = "kafka-configs reads no units: write producer_byte_rate=10000000"
    for wrong, hint in (("=10MB", units), ("=$RATE", "run it against 'kquota sandbox start --broker'")):
        with pytest.raises(InputError) as raised:
            kafka_configs.read("quotas.sh", command + wrong)
        assert (raised.value.hint or "").startswith(hint)


@pytest.mark.parametrize(
    "line",
    [
        "KC=/opt/kafka-configs.sh; $KC --alter --user 'a b' --add-config producer_byte_rate=5",
        """docker exec kafka bash -c "kafka-configs.sh --alter --user 'a b' --add-config producer_byte_rate=5" """,
        """ssh host 'cd /opt && bin/kafka-configs.sh --alter --user "a b" --add-config producer_byte_rate=5'""",
        "kafka-configs.sh -alter -user 'a b' -add-config producer_byte_rate=5",
        "kafka-configs.sh $CONNECTION --alter --user 'a b' --add-config=producer_byte_rate=5",
    ],
)
def test_no_command_of_a_script_is_passed_over(line: str) -> None:
    """The tool in a variable, in a word for another shell, and with one dash, as Kafka's tool takes it."""
    assert kafka_configs.read("quotas.sh", line) == QuotaSnapshot({Entity(user="a b"): {PRODUCER: 5}})


WRONG = {
    kafka_configs: "wrong_kafka_configs.txt",
    rpk: "wrong_rpk.yaml",
    jikkou: "wrong_jikkou.yaml",
    strimzi: "wrong_strimzi.yaml",
    terraform: "wrong_terraform.tf",
}


@pytest.mark.parametrize(
    ("module", "text", "message"),
    [(module, *wrong) for module, file in WRONG.items() for wrong in wrong_documents(f"foreign/{file}")],
)
def test_a_mistake_is_named_with_its_line(module: Any, text: str, message: str) -> None:
    with pytest.raises(InputError) as raised:
        module.read("f", text)
    assert raised.value.message.startswith(message)


def test_a_template_is_no_user() -> None:
    """`${USER}` would have had the quotas, and the user who is meant none."""
    text = "apiVersion: kafka.strimzi.io/v1\nkind: KafkaUser\nmetadata: {name: '${USER}'}\nspec: {quotas: {}}"
    snapshot = strimzi.read("f", text)
    assert not dict(snapshot)
    assert "may be a template's" in snapshot.problems[0].message


def test_what_only_others_have_becomes_a_problem() -> None:
    values = "    values: [{key: producer_byte_rate, values: '1'}]\n"
    prefix = f"quotas:\n  - entity: [{{type: client-id-prefix, name: a}}]\n{values}"
    snapshot = rpk.read(
        "f",
        prefix + "  - entity: [{type: user, name: <default>}]\n    values: [{key: producer_byte_rate, values: '1'}]",
    )
    assert dict(snapshot) == {Entity(user=DEFAULT): {PRODUCER: 1}}
    assert [(problem.where, problem.message) for problem in snapshot.problems] == [
        ("f, line 2", "Kafka has no quotas by client-id-prefix")
    ]
    stream = data_text("foreign/jikkou.yaml")
    snapshot = jikkou.read("f", stream)
    assert dict(snapshot) == {Entity(client_id=DEFAULT): {PRODUCER: 10**7}}
    assert [problem.where for problem in snapshot.problems] == ["f, line 1", "f, line 7"]


def test_other_lines_of_a_pasted_text_are_named() -> None:
    pasted = data_text("foreign/pasted.txt")
    snapshot = kafka_configs.read("f", pasted)
    assert dict(snapshot) == {Entity(client_id="old one"): {PRODUCER: 1}, Entity(client_id="web"): {CONSUMER: 2}}
    assert [problem.where for problem in snapshot.problems] == ["f, line 1", "f, line 2", "f, line 6"]


def test_resources_of_kubernetes_and_terraform() -> None:
    users = data_text("foreign/strimzi.yaml")
    snapshot = strimzi.read("f", users)
    assert dict(snapshot) == {Entity(user="CN=web"): {PRODUCER: 1, REQUEST: 5}}
    assert [problem.where for problem in snapshot.problems] == ["f, line 4"]
    hcl = data_text("foreign/kafka_quota.tf")
    snapshot = terraform.read("f", hcl)
    assert dict(snapshot) == {Entity(client_id=DEFAULT): {PRODUCER: 1, CONSUMER: 2}, Entity(user="${a}"): {REQUEST: 5}}
    assert [problem.where for problem in snapshot.problems] == ["f, line 16", "f, line 21"]
    assert snapshot.problems[0].message.endswith("is known to Terraform only, so the resource is left out")
