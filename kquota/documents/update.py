"""Brings a quotas file to what a cluster has, and leaves the rest as people wrote it (`kquota export --update`)."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import DRAFT_BURST, DRAFT_RATE, QuotaKey
from kquota.core.quotas.selector import selected
from kquota.core.quotas.snapshot import Problem, QuotaSnapshot, Values
from kquota.documents.derive import plain
from kquota.documents.edits import REMOVED, Steps, edited
from kquota.documents.encoding import Document, read_document, read_raw_text
from kquota.documents.quotas import Overlays, read_entity, read_quota_file, value_text, writable


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


def updated(
    path: Path,
    snapshot: QuotaSnapshot,
    *,
    cluster: str | None = None,
    keep: bool = False,
    asked: Callable[[Entity], bool] = lambda entity: True,
) -> Update:
    """The file as it has to be so that a plan with prune has nothing to change.

    Values that mean the right number already keep their text. With a cluster, changes go into its overlay. With `keep`,
    entities that the cluster has not stay in the file. Entities that are unmanaged, or not `asked` for, stay as they
    are, and so does what a file cannot say. Raises InputError naming the file and the place in it.
    """
    quota_file = read_quota_file(path, cluster)
    document = read_document(path, "quotas")

    def is_ours(entity: Entity) -> bool:
        return asked(entity) and selected(entity, quota_file.unmanaged) is None

    snapshot = QuotaSnapshot({entity: values for entity, values in snapshot.items() if is_ours(entity)})
    quotas, unsaid = writable(snapshot)
    merger = _Merger(document, cluster)
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
            merger.change(number, present, wanted)
            changed.append(entity)
        elif not keep:
            merger.remove(number)
            removed.append(entity)
    merger.append(added, quotas)
    text = edited(path, read_raw_text(path), merger.edits)
    return Update(text, tuple(added), tuple(changed), tuple(removed), unsaid)


class _Merger:
    """The edits of a document."""

    def __init__(self, document: Document, cluster: str | None) -> None:
        self._entries: list[Document] = document["quotas"]
        self._overlays = Overlays.of(document, cluster)
        self._cluster = cluster
        self.edits: dict[Steps, Any] = {}

    def append(self, entities: list[Entity], snapshot: QuotaSnapshot) -> None:
        """Adds entities at the end."""
        ordered = sorted(entities, key=lambda entity: entity.sort_key)
        for index, entity in enumerate(ordered, len(self._entries)):
            values = {key.value: value_text(key, value) for key, value in snapshot[entity].items()}
            entry: Document = {"entity": plain(entity), "values": values if self._cluster is None else {}}
            if self._cluster is not None:
                entry["clusters"] = {self._cluster: values}
            self.edits["quotas", index] = entry

    def remove(self, number: int) -> None:
        """Takes an entity out: of that cluster only, or of all that have no values of their own."""
        entry = self._entries[number]
        if self._cluster is not None:
            self._set_overlay(number, None)
        elif entry.get("clusters"):
            self.edits["quotas", number, "values"] = {}
        else:
            self.edits["quotas", number] = REMOVED

    def change(self, number: int, present: Values, wanted: Values) -> None:
        """Gives an entity those values."""
        entry = self._entries[number]
        if self._cluster is None:
            for name, value in self._differences(entry["values"], present, wanted).items():
                if value is not None:
                    self.edits["quotas", number, "values", name] = value
                elif name in entry["values"]:
                    self.edits["quotas", number, "values", name] = REMOVED
            return
        # A burst may count on a rate that only the overlay has; it means nothing anyway.
        base, _ = self._overlays.values(
            {"values": {name: raw for name, raw in entry["values"].items() if name != DRAFT_BURST}},
            read_entity(entry["entity"]),
        )
        assert base is not None
        overlay, rate = entry.get("clusters", {}).get(self._cluster) or {}, QuotaKey.CONTROLLER_MUTATION_RATE
        both = {**entry["values"], **{name: raw for name, raw in overlay.items() if raw is not None}}
        # Everything that differs from the base stands in the overlay, in the words that are there where they fit.
        kept = {
            name: raw
            for name, raw in overlay.items()
            if raw is not None
            and name != DRAFT_BURST
            and (key := rate if name == DRAFT_RATE else QuotaKey(name)) in wanted
            and present.get(key) == wanted[key]
        }
        differences = self._differences(both, base, wanted)
        self._set_overlay(number, {name: kept.get(name, value) for name, value in differences.items()})

    def _differences(self, raws: Document, present: Values, wanted: Values) -> dict[str, Any]:
        """By the name that is written there: the new value, None for one that is to go."""
        differences: dict[str, Any] = {}
        for key in QuotaKey:
            if present.get(key) == wanted.get(key):
                continue
            draft = key is QuotaKey.CONTROLLER_MUTATION_RATE and DRAFT_RATE in raws
            name = DRAFT_RATE if draft else key.value
            differences[name] = value_text(key, wanted[key]) if key in wanted else None
            if key is QuotaKey.CONTROLLER_MUTATION_RATE and key not in wanted and DRAFT_BURST in raws:
                differences[DRAFT_BURST] = None  # without the rate it is an error
        return differences

    def _set_overlay(self, number: int, overlay: Document | None) -> None:
        assert self._cluster is not None
        clusters = self._entries[number].get("clusters", {})
        place: Steps = ("quotas", number, "clusters")
        present = clusters.get(self._cluster)
        if not clusters:
            self.edits[place] = {self._cluster: overlay}
        elif overlay == {}:
            self.edits[place if len(clusters) == 1 else (*place, self._cluster)] = REMOVED
        elif overlay and present:
            # Key by key, for the sake of comments between them.
            for name in {**present, **overlay}:
                if name not in overlay:
                    self.edits[*place, self._cluster, name] = REMOVED
                elif name not in present or present[name] != overlay[name]:
                    self.edits[*place, self._cluster, name] = overlay[name]
        else:
            self.edits[*place, self._cluster] = overlay
