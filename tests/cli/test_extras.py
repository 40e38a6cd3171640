"""The command that adds a missing extra, by how kquota was installed."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from pytest_mock import MockerFixture

from kquota.cli import extras
from kquota.errors import MissingDependency

CLONE = {"url": "file:///home/me/my%20clone", "dir_info": {"editable": True}}
WHEEL = {"url": "file:///tmp/kquota-1.0-py3-none-any.whl", "archive_info": {}}
WHENCE = "; without internet, with --no-index --find-links DIR of its wheels"
GIT = {"url": "https://me:secret@git.example/kquota.git", "vcs_info": {"vcs": "git", "commit_id": "1"}}


def install(mocker: MockerFixture, place: Path, record: dict[str, Any] | None) -> None:
    """Makes kquota look as if pip had installed it there, with that direct_url.json."""
    installed = mocker.Mock()
    installed.locate_file.return_value = place
    installed.read_text.return_value = None if record is None else json.dumps(record)
    mocker.patch.object(extras, "distribution", return_value=installed)


@pytest.mark.parametrize(
    ("record", "marker", "command"),
    [
        (None, None, f"pip install 'kquota[audit]'{WHENCE}"),
        (CLONE, None, "pip install -e '/home/me/my clone[audit]'"),
        (WHEEL, None, "pip install '/tmp/kquota-1.0-py3-none-any.whl[audit]'"),
        (GIT, None, "pip install 'kquota[audit] @ git+https://git.example/kquota.git'"),
        (WHEEL, "pipx_metadata.json", "pipx install --force '/tmp/kquota-1.0-py3-none-any.whl[audit]'"),
        (None, "uv-receipt.toml", f"uv tool install --force 'kquota[audit]'{WHENCE}"),
    ],
    ids=["index", "clone", "wheel", "git", "pipx", "uv"],
)
def test_the_command_names_the_source_of_this_kquota(
    mocker: MockerFixture,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    record: dict[str, Any] | None,
    marker: str | None,
    command: str,
) -> None:
    install(mocker, tmp_path, record)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    if marker is not None:
        (tmp_path / marker).touch()

    assert extras.remedy(MissingDependency("the audit needs PySpark", extra="audit")) == command


def test_a_zipapp_cannot_grow(mocker: MockerFixture, tmp_path: Path) -> None:
    install(mocker, tmp_path / "kquota.pyz", None)

    assert "in a clone of kquota, pip install '.[probe]'" in extras.install_command("probe")


def test_another_missing_thing_keeps_its_hint() -> None:
    assert extras.remedy(MissingDependency("no Java", hint="install a JDK")) == "install a JDK"
