"""All mistakes of a file are named at once: each with its line, in their order, and not without end."""

from pathlib import Path

import pytest

from kquota.cli import main
from kquota.documents.quotas import read_quota_file
from kquota.documents.validation import MOST
from kquota.errors import InputError
from tests.support.data import data_text

HEAD = "kind: kquota.quotas\nversion: 1\nquotas:\n"
ENTRIES = data_text("documents/mistakes.yaml")
WRONG = data_text("documents/mistakes.txt").splitlines()


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
