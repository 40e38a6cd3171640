"""The configuration file: what it says, what is wrong in it, and changing one line of it."""

import json
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kquota.documents.config import Context, read_config, use_context
from kquota.errors import InputError
from tests.support.data import data_text, wrong_documents

FULL = data_text("documents/config.yaml")


def written(folder: Path, text: str) -> Path:
    path = folder / "config.yaml"
    path.write_bytes(text.encode())
    return path


def test_reads_every_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative paths are those of the file's folder, ~ is the home directory."""
    monkeypatch.setenv("HOME", "/home/alice")

    config = read_config(written(tmp_path, FULL))

    assert config.current == "prod"
    assert list(config.contexts.values()) == [
        Context("prod", "b1:9092,b2:9092", command_config=tmp_path / "secrets/prod.properties", timeout=20),
        Context("legacy", "b1:9092", zookeeper="zk1:2181/kafka", zk_tls_config_file=Path("/home/alice/zk.properties")),
    ]


@pytest.mark.parametrize(("text", "says"), wrong_documents("documents/wrong_configs.yaml"))
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, text: str, says: str) -> None:
    """File, line and path of keys."""
    path = written(tmp_path, text)

    with pytest.raises(InputError) as raised:
        read_config(path)

    assert raised.value.message.startswith(str(path))
    assert says in raised.value.message


def test_a_near_miss_is_named_and_no_value_is_shown(tmp_path: Path) -> None:
    """A password in the wrong place does not reach the terminal."""
    with pytest.raises(InputError) as typo:
        read_config(written(tmp_path, "contexts: {prod: {comand-config: hunter2}}"))
    with pytest.raises(InputError) as shape:
        read_config(written(tmp_path, "contexts: {prod: {zookeeper: a, command-config: {password: hunter2}}}"))

    assert typo.value.hint == "did you mean command-config?"
    assert "hunter2" not in typo.value.message + shape.value.message


def test_using_a_context_changes_one_word(tmp_path: Path) -> None:
    """Comments, quotes, blank lines, the file's mode and a link to it stay."""
    path = written(tmp_path, FULL)
    path.chmod(0o640)
    link = tmp_path / "link.yaml"
    link.symlink_to(path)

    use_context(link, "legacy")

    assert path.read_text() == FULL.replace("current-context: prod #", "current-context: legacy #")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert link.is_symlink()
    assert sorted(tmp_path.iterdir()) == sorted([path, link])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("# mine\n\ncontexts: {b: {zookeeper: z}}\n", "# mine\n\ncontexts: {b: {zookeeper: z}}\ncurrent-context: b\n"),
        ("---\r\ncontexts:\r\n  b: {zookeeper: z}\r\n", None),
        ('{"contexts": {"b": {"zookeeper": "z"}}}', None),
        ('{contexts: {b: {zookeeper: z}}, current-context: "a"}', None),
        ("contexts: {b: {zookeeper: z}}\ncurrent-context:   'a' # was", None),
        ("  contexts: {b: {zookeeper: z}}\n  current-context: >-\n    a\n", None),
        ("  contexts: {b: {zookeeper: z}}\n", "  contexts: {b: {zookeeper: z}}\n  current-context: b\n"),
    ],
)
def test_using_a_context_knows_every_style(tmp_path: Path, before: str, after: str | None) -> None:
    """Block and flow style, JSON, Windows' line ends; with a current context and without."""
    path = written(tmp_path, before)

    use_context(path, "b")

    assert read_config(path).current == "b"
    if after is not None:
        assert path.read_bytes() == after.encode()


@settings(deadline=None, max_examples=50)  # it writes to a disk
@given(name=st.text(st.characters(exclude_categories=("C", "Z"), include_characters=" "), min_size=1))
def test_any_name_can_be_used(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Names that YAML would read as something else are quoted."""
    path = written(
        tmp_path_factory.mktemp("config"), f"contexts:\n  {json.dumps(name, ensure_ascii=False)}: {{zookeeper: z}}\n"
    )

    use_context(path, name)
    first = path.read_text()
    use_context(path, name)

    assert read_config(path).current == name
    assert path.read_text() == first


def test_what_cannot_be_used_changes_nothing(tmp_path: Path) -> None:
    """A context that is not there, and a folder that cannot be written."""
    path = written(tmp_path, FULL)

    with pytest.raises(InputError, match="no context 'prd'") as missing:
        use_context(path, "prd")

    assert missing.value.hint == "contexts: prod, legacy"
    assert path.read_text() == FULL
