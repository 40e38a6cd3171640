"""The folder of the state, with a home and without one."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from kquota.access import Access
from kquota.backends.kafka.turns import Turns
from kquota.cli.commands import config, doctor, history
from kquota.cli.contexts import requiring_reason
from kquota.errors import InputError
from kquota.state import journal_folder, state_folder, usual_beside


def test_relative_folders_are_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As the XDG specification has it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for state, base in (("here", tmp_path / ".local/state"), ("/state", Path("/state"))):
        monkeypatch.setenv("XDG_STATE_HOME", state)
        assert state_folder("locks", "KQUOTA_LOCKS") == base / "kquota" / "locks"


def test_the_usual_journal_by_another_path_is_no_other_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A lease of it would be said to be left to another run. Who may not look into a home has none there."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    usual = tmp_path / "kquota" / "journal"
    usual.mkdir(parents=True)
    (tmp_path / "link").symlink_to(usual)
    for same in (usual, tmp_path / "link", tmp_path / "kquota" / ".." / "kquota" / "journal"):
        assert usual_beside(same) is None
    assert usual_beside(tmp_path / "other") == usual
    monkeypatch.setenv("XDG_STATE_HOME", f"/{'x' * 300}")  # an error to ask for, as a closed folder is
    assert usual_beside(usual) is None


def test_who_has_no_home_learns_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user of a container without an entry in its passwd file."""

    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("KQUOTA_CONFIG", "KQUOTA_JOURNAL", "KQUOTA_LOCKS", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", nobody)
    with pytest.raises(InputError) as refused:
        journal_folder()
    assert "KQUOTA_JOURNAL" in str(refused.value.hint)
    done = CliRunner().invoke(history.command, [])
    assert isinstance(done.exception, InputError)
    done = CliRunner().invoke(config.command, ["set-context", "prod", "--zookeeper", "localhost"])
    assert isinstance(done.exception, InputError)
    assert done.exception.hint == "set KQUOTA_CONFIG or HOME"
    assert requiring_reason(Access(zookeeper="localhost:2181")) is None
    with Turns(lambda: "it", "broker:9092").alone():
        pass
    monkeypatch.setenv("KQUOTA_JOURNAL", "/somewhere")
    assert journal_folder() == Path("/somewhere")
    view = (config.command, "view", "--zookeeper", "localhost")
    for command, *words in ((doctor.command,), view, (*view, "-o", "json")):
        done = CliRunner().invoke(command, words)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
