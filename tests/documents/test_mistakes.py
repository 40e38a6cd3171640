"""All mistakes of a file are named at once: each with its line, in their order, and not without end."""

from pathlib import Path

import pytest

from kquota.cli import main
from kquota.documents.quotas import read_quota_file
from kquota.documents.validation import MOST
from kquota.errors import InputError

HEAD = "kind: kquota.quotas\nversion: 1\nquotas:\n"
ENTRIES = """\
  - entity: {user: alice}
    values: {producer_byte_rat: 10MB}
  - entity: {user: bob}
    value: {producer_byte_rate: 10MB}
  - entity: {usr: carol}
    values: {producer_byte_rate: 10M}
  - entity: {user: dave}
    values: {producer_byte_rate: null, consumer_byte_rate: [1]}
  - entity: {user: eve}
    values: {producer_byte_rate: 10M, consumer_byte_rat: 1MB, connection_creation_rate: 5}
  - entity: {user: frank}
    values: {producer_byte_rate: 1MB}
  - entity: {user: frank}
    values: {producer_byte_rate: 1MB}
  - {user: grace, request_percentage: 10}
  - entity: {user: heidi}
    values: {producer_byte_rate: 1,5MB}
"""
WRONG = [
    "line 4: quotas[0]: unknown quota key 'producer_byte_rat' (did you mean 'producer_byte_rate'?)",
    "line 7: quotas[1].value: unknown key (did you mean values?)",
    "line 8: quotas[2].entity.usr: unknown key (did you mean user?)",
    "line 11: quotas[3].values.producer_byte_rate: expected number or string, found null",
    "line 11: quotas[3].values.consumer_byte_rate: expected number or string, found array",
    "line 12: quotas[4]: producer_byte_rate: unknown unit 'M' in '10M' (did you mean 10MB?)",
    "line 12: quotas[4]: unknown quota key 'consumer_byte_rat' (did you mean 'consumer_byte_rate'?)",
    "line 12: quotas[4]: connection_creation_rate cannot be set on user=eve (its quota keys: producer_byte_rate,"
    " consumer_byte_rate, request_percentage, controller_mutation_rate)",
    "line 16: quotas[6]: user=frank is given twice: quotas[5] has it, too",
    "line 18: quotas[7]: 'entity' is a required property",
    "line 18: quotas[7]: 'values' is a required property",
    "line 18: quotas[7].user: unknown key (write entity: {user: …})",
    "line 18: quotas[7].request_percentage: unknown key (write values: {request_percentage: …})",
    "line 20: quotas[8].values.5MB: expected number or string, found null (a number has no commas: 1500000, or 1.5MB)",
]


def test_mistakes_of_all_kinds_are_named_in_their_order(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Wrong shapes and wrong values, on a line of stderr each."""
    file = tmp_path / "quotas.yaml"
    file.write_text(HEAD + ENTRIES)
    assert main.run(["lint", str(file)]) == 3
    assert capfd.readouterr().err.splitlines() == [f"kquota: {file}, {each}" for each in WRONG]


def test_a_tab_in_yaml_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "quotas.yaml"
    file.write_text(HEAD + "\t- entity: {user: a}\n")
    assert main.run(["lint", str(file)]) == 3
    assert "line 4: it begins with a tab, and YAML is indented by blanks" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("entity", "wrong"),
    [
        ("{user: null}", "user: expected string or {default: true}, found null"),
        ("{user: true}", "user: expected string or {default: true}, found boolean"),
        ("{user: {default: false}}", "user.default: expected true"),
    ],
)
def test_a_name_of_another_type_in_the_words_of_the_file(tmp_path: Path, entity: str, wrong: str) -> None:
    """The words are not Python's, and the default entity is among what is expected."""
    file = tmp_path / "quotas.yaml"
    file.write_text(f"{HEAD}  - entity: {entity}\n    values: {{producer_byte_rate: 1MB}}\n")
    with pytest.raises(InputError) as raised:
        read_quota_file(file)
    assert raised.value.message == f"{file}, line 4: quotas[0].entity.{wrong}"


def test_many_mistakes_are_counted(tmp_path: Path) -> None:
    """Of a list of thousands, too, and whether it is their shape or their value."""
    file = tmp_path / "quotas.yaml"
    for wrong, count in (("10M", MOST + 5), ("10M", 1500), ("[1]", 1500)):
        file.write_text(
            HEAD
            + "".join(
                f"  - {{entity: {{user: u{n}}}, values: {{producer_byte_rate: {wrong}}}}}\n" for n in range(count)
            )
        )
        with pytest.raises(InputError, match=", line 4: quotas") as raised:
            read_quota_file(file)
        assert len(raised.value.others) == MOST
        assert raised.value.others[0].startswith(f"{file}, line 5: quotas[1]")
        assert raised.value.others[-1].endswith(" more mistakes")


def test_many_mistakes_of_a_table_are_counted(tmp_path: Path) -> None:
    """Nobody takes the first ones for all."""
    file = tmp_path / "quotas.csv"
    file.write_text("user,key,value\n" + "".join(f"alice,{'x' * n},10M\n" for n in range(1, MOST + 6)))
    with pytest.raises(InputError, match="line 2, column 2") as raised:
        read_quota_file(file)
    assert len(raised.value.others) == MOST
    assert raised.value.others[-1] == f"{file}: and 5 more mistakes"
