"""Brings a quotas file to what a cluster has, and leaves the rest as people wrote it (`kquota export --update`)."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey
from kquota.core.quotas.selector import selected
from kquota.core.quotas.snapshot import Problem, QuotaSnapshot
from kquota.documents.derive import plain
from kquota.documents.edits import REMOVED, Steps, edited
from kquota.documents.encoding import Document, read_document, read_raw_text
from kquota.documents.quotas import read_quota_file, value_text, writable


@dataclass(frozen=True)
class Update:
    """A quotas file after an update: its text, the entities that were added to it, changed in it and removed."""

    text: str
    added: tuple[Entity, ...]
    changed: tuple[Entity, ...]
    removed: tuple[Entity, ...]
    unsaid: tuple[Problem, ...]

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)


def updated(path: Path, snapshot: QuotaSnapshot, asked: Callable[[Entity], bool] = lambda entity: True) -> Update:
    """The file as it has to be so that a plan with prune has nothing to change.

    Values that mean the right number already keep their text. Entities that are unmanaged, or not `asked` for, stay as
    they are, and so do overlays and what a file cannot say. Raises InputError naming the file and the place in it.
    """
    quota_file = read_quota_file(path)
    entries: list[Document] = read_document(path, "quotas")["quotas"]

    def is_ours(entity: Entity) -> bool:
        return asked(entity) and selected(entity, quota_file.unmanaged) is None

    snapshot = QuotaSnapshot({entity: values for entity, values in snapshot.items() if is_ours(entity)})
    quotas, unsaid = writable(snapshot)
    edits: dict[Steps, Any] = {}
    added, changed, removed = [], [], []
    for entity in filter(is_ours, {**quota_file.entries, **snapshot}):
        number = quota_file.entries.get(entity)
        wanted = quotas.get(entity, {})
        if number is None:
            if wanted:
                added.append(entity)
            continue
        present = quota_file.desired.get(entity, {})
        for key in present.keys() & (snapshot.get(entity, {}).keys() - wanted.keys()):
            wanted = {**wanted, key: present[key]}  # it has a value that no file can say: not ours to decide
        if dict(present) == dict(wanted):
            continue
        if wanted:
            for key in QuotaKey:
                if present.get(key) != wanted.get(key):
                    text = value_text(key, wanted[key]) if key in wanted else REMOVED
                    edits["quotas", number, "values", key.value] = text
            changed.append(entity)
        elif entries[number].get("clusters"):  # it may have values of its own there
            edits["quotas", number, "values"] = {}
            removed.append(entity)
        else:
            edits["quotas", number] = REMOVED
            removed.append(entity)
    for number, entity in enumerate(sorted(added, key=lambda entity: entity.sort_key), len(entries)):
        values = {key.value: value_text(key, value) for key, value in quotas[entity].items()}
        edits["quotas", number] = {"entity": plain(entity), "values": values}
    return Update(edited(path, read_raw_text(path), edits), tuple(added), tuple(changed), tuple(removed), unsaid)
