"""What is written as a document reads back as the same snapshot."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from jsonschema import Draft202012Validator

from kquota import InputError, QuotaKey, QuotaSnapshot
from kquota.documents.derive import plain
from kquota.documents.encoding import schema, to_json, to_yaml
from kquota.documents.quotas import quotas_document, read_quotas
from tests.documents.snapshots import snapshots

ROOT = Path(__file__).parents[2]


@given(snapshots())
def test_reads_back(snapshot: QuotaSnapshot) -> None:
    """In JSON and in YAML, exactly; and the document validates."""
    document = quotas_document(snapshot)
    Draft202012Validator(schema("quotas")).validate(document)
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("q.json", to_json(document)), ("q.yaml", to_yaml(document))):
            path = Path(folder) / name
            path.write_text(text, encoding="utf-8")

            assert read_quotas(path) == snapshot


def test_numbers_that_json_does_not_have() -> None:
    """A cluster can hold NaN: it prints as Java's word, never as invalid JSON."""
    values = plain({QuotaKey.REQUEST_PERCENTAGE: float("nan"), QuotaKey.CONTROLLER_MUTATION_RATE: float("inf")})

    assert values == {"request_percentage": "NaN", "controller_mutation_rate": "Infinity"}
    json.dumps(values, allow_nan=False)


@pytest.mark.parametrize("path", sorted((ROOT / "schemas").iterdir()), ids=lambda path: str(path.name))
def test_schemas_are_schemas(path: Path) -> None:
    """Each is valid itself, and those that list the quota keys list all of them."""
    document = json.loads(path.read_text(encoding="utf-8"))

    Draft202012Validator.check_schema(document)
    text = json.dumps(document)
    if '"connection_creation_rate"' in text:
        assert all(key.value in text for key in QuotaKey)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("controller_mutations_rate", "Kafka shipped controller_mutation_rate"),
        ("controller_mutations_burst", "the burst is controller.quota.window.num full windows"),
    ],
)
def test_the_names_of_kip_599s_drafts(tmp_path: Path, name: str, hint: str) -> None:
    """The text: "The new quota manager will be configured by the new quota types: `controller_mutations_rate` and
    `controller_mutations_burst`." The rate shipped under another name; of the burst it is said what makes it.
    """
    path = tmp_path / "quotas.yaml"
    path.write_text(f"kind: kquota.quotas\nversion: 1\nquotas:\n- entity: {{user: alice}}\n  values: {{{name}: 5}}\n")
    with pytest.raises(InputError) as caught:
        read_quotas(path)
    assert f"quotas[0]: unknown quota key '{name}'" in caught.value.message
    assert hint in str(caught.value.hint)
