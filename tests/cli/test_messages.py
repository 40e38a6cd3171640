"""Why somebody writes: `-m`, the quotas file and its commit, in the journal and in the history."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Kquota

FILE = "kind: kquota.quotas\nversion: 1\nquotas:\n  - entity: {user: alice}\n    values: {consumer_byte_rate: 5}\n"


@pytest.fixture
def there(chroot: str, tmp_path: Path) -> dict[str, str]:
    """The environment of a cluster with a journal of its own."""
    return {"KQUOTA_JOURNAL": str(tmp_path / "journal"), "KQUOTA_ZOOKEEPER": chroot}


def entries(kquota: Kquota, there: dict[str, str], *options: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(kquota("history", "-o", "json", *options, **there).out)["entries"]
    return found


def test_every_write_takes_a_reason(kquota: Kquota, there: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "quotas.yaml"
    file.write_text(FILE)
    alice = ("--user", "alice")
    assert kquota("alter", *alice, "--add-config", "producer_byte_rate=1MB", "-m", "OPS-1", **there).code == 0
    assert kquota("apply", str(file), "--yes", "-m", "OPS-2", **there).code == 0
    assert kquota("undo", "--yes", "--message", "OPS-3", **there).code == 0
    assert kquota("delete", *alice, "-m", "OPS-4", **there).code == 0
    assert [entry["message"] for entry in entries(kquota, there)] == ["OPS-1", "OPS-2", "OPS-3", "OPS-4"]
    assert [entry["message"] for entry in entries(kquota, there, "-n", "2")] == ["OPS-3", "OPS-4"]
    shown = kquota("history", COLUMNS="300", **there).out
    assert "MESSAGE" in shown
    assert "OPS-2" in shown
    assert str(file) in shown


def test_a_reason_with_apply_replaces_that_of_the_plan(kquota: Kquota, there: dict[str, str], tmp_path: Path) -> None:
    """In the review as in the journal."""
    (tmp_path / "quotas.yaml").write_text(FILE)
    assert kquota("plan", "quotas.yaml", "--out", "plan.json", "-m", "OPS-1", **there).code == 0
    shown = kquota("apply", "plan.json", "--dry-run", **there).err
    assert "why: OPS-1\n" in shown
    shown = kquota("apply", "plan.json", "--yes", "-m", "OPS-2", **there).err
    assert ("why: OPS-2\n" in shown, "OPS-1" in shown) == (True, False)
    assert [entry["message"] for entry in entries(kquota, there)] == ["OPS-2"]


def test_the_file_has_its_commit(kquota: Kquota, there: dict[str, str], tmp_path: Path) -> None:
    """A file that was changed since the commit has none."""
    folder = tmp_path / "repository"
    folder.mkdir()
    file = folder / "quotas.yaml"
    file.write_text(FILE)
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for words in (["init", "-q"], ["add", "."], [*identity, "commit", "-q", "-m", "x"], ["log", "-1", "--format=%h"]):
        done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=True)
    assert kquota("apply", str(file), "--yes", **there).code == 0
    file.write_text(FILE.replace("5", "6"))
    assert kquota("alter", "--file", str(file), **there).code == 0
    assert [entry["file"] for entry in entries(kquota, there)] == [f"{file} ({done.stdout.strip()})", str(file)]


def test_a_context_can_require_a_reason(kquota: Kquota, there: dict[str, str], tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    address = there.pop("KQUOTA_ZOOKEEPER")
    config.write_text(f"contexts:\n  prod: {{zookeeper: {address}, require-message: true}}\n")
    alter = ("alter", "--context", "prod", "--user", "a", "--add-config", "producer_byte_rate=1MB")
    refused = kquota(*alter, KQUOTA_CONFIG=str(config), **there)
    assert refused.code == 2
    assert "requires a reason: give -m" in refused.err
    # Whoever names the cluster by the address of one of its servers is asked as well.
    server, _, chroot = address.partition("/")
    config.write_text(config.read_text().replace(address, f"'gone.invalid:2181,{address}'"))
    for same in (address, f"{server.replace('127.0.0.1', 'LOCALHOST')}/{chroot}/"):
        by_address = (*alter[:1], "--zookeeper", same, *alter[3:])
        refused = kquota(*by_address, KQUOTA_CONFIG=str(config), **there)
        assert (refused.code, "the context prod requires a reason: give -m" in refused.err) == (2, True)
        assert "its rule is the cluster's" in refused.err
    config.write_text(config.read_text().replace("gone.invalid:2181,", ""))
    # A recording says so before it connects and asks.
    config.write_text(config.read_text() + "  brokers: {bootstrap-server: '127.0.0.1:1', require-message: true}\n")
    assert kquota("record", "--context", "brokers", KQUOTA_CONFIG=str(config), **there).code == 2
    assert kquota(*alter, "--dry-run", KQUOTA_CONFIG=str(config), **there).code == 0
    assert kquota(*alter, "-m", "OPS-5", KQUOTA_CONFIG=str(config), **there).code == 0


def test_old_entries_can_be_pruned_up_to_a_lease(kquota: Kquota, there: dict[str, str]) -> None:
    for number, more in enumerate(((), ("--for", "1h"), ())):
        change = ("--user", f"u{number}", "--add-config", "producer_byte_rate=1MB")
        assert kquota("alter", *change, *more, **there).code == 0
    assert kquota("history", "--prune", "1h", **there).err == "0 entries deleted\n"
    assert len(entries(kquota, there)) == 3
    assert kquota("history", "--prune", "0s", **there).err == "1 entry deleted\n"
    assert len(entries(kquota, there)) == 2
