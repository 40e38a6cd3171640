"""Quota files: overlays, variables, rules about entities, and what is said about mistakes."""

from pathlib import Path

import pytest

from kquota import DEFAULT, Entity, InputError, QuotaKey
from kquota.documents.encoding import entry_lines
from kquota.documents.quotas import QuotaFile, read_quota_file
from tests.support.data import data_rows, data_text

PRODUCER, CONSUMER, REQUEST = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE
ALICE, BOB = Entity(user="alice"), Entity(user="bob")
FILE = data_text("documents/team.yaml")


def read(tmp_path: Path, text: str, cluster: str | None = None) -> QuotaFile:
    file = tmp_path / "quotas.yaml"
    file.write_text(text, encoding="utf-8")
    return read_quota_file(file, cluster)


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        (None, {ALICE: {PRODUCER: 10 << 20, REQUEST: 50.0}, BOB: {PRODUCER: 1000}}),
        ("prod", {ALICE: {PRODUCER: 50 << 20, CONSUMER: 50 << 20}, BOB: {PRODUCER: 1000}}),
        ("dev", {ALICE: {PRODUCER: 10 << 20, REQUEST: 50.0}}),
    ],
)
def test_a_cluster_has_its_own_values(
    tmp_path: Path, cluster: str | None, expected: dict[Entity, dict[QuotaKey, float]]
) -> None:
    assert read(tmp_path, FILE, cluster).desired == expected


def test_rules_and_labels_are_read(tmp_path: Path) -> None:
    quota_file = read(tmp_path, FILE)
    assert [str(selector) for selector in quota_file.unmanaged] == ["user=/strimzi-.*/", "client-id=<default>"]
    assert quota_file.unmanaged[1].matches(Entity(user="x", client_id=DEFAULT))
    assert not quota_file.protected[0].matches(Entity(user="admin"))
    assert quota_file.protected[0].matches(Entity(user="admin", client_id="x"))
    assert quota_file.internal == ("connect",)
    assert quota_file.labels[ALICE] == {"owner": "team-a"}
    assert quota_file.entries == {ALICE: 0, BOB: 1}
    assert entry_lines(tmp_path / "quotas.yaml", "quotas") == (15, 21)


@pytest.mark.parametrize(("old", "new", "cluster", "message", "hint"), data_rows("documents/team_mistakes.txt"))
def test_a_mistake_is_named_with_its_place(
    tmp_path: Path, old: str, new: str, cluster: str, message: str, hint: str
) -> None:
    text = FILE.replace(old, new, 1)
    if not message:
        read(tmp_path, text, cluster or None)
        return
    with pytest.raises(InputError) as raised:
        read(tmp_path, text, cluster or None)
    assert raised.value.message.startswith(str(tmp_path / "quotas.yaml"))
    assert message in raised.value.message
    if hint:
        assert raised.value.hint == hint
