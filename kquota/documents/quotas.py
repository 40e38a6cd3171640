"""The quotas document: what `describe -o json|yaml` and `export` write, and what plan, apply, lint and `--quotas FILE`
read (schemas/quotas.schema.json). Overlays and variables are resolved at the door: inside, there are only values.
"""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from kquota.core.change.review import Guards
from kquota.core.quotas.entity import DEFAULT, Entity, EntityType, Name
from kquota.core.quotas.quota import LONG_MAX, QuotaKey, Value, canonical, check_value, humanize, parse_value
from kquota.core.quotas.selector import Pattern, Selector, expression
from kquota.core.quotas.snapshot import Problem, QuotaSnapshot, Values
from kquota.documents.derive import plain
from kquota.documents.encoding import Document, headed, line_of, mistakes_in, parse, read_text, to_flow
from kquota.documents.foreign import csv, divided, refuse_others, stored_only
from kquota.documents.validation import MOST, Mistake, refuse
from kquota.errors import InputError, placed, together


@dataclass(frozen=True)
class QuotaFile:
    """A quotas document as it is meant for one cluster.

    `desired` has every entity of the file that exists there, also one without values (which a prune empties); `entries`
    says at which place of the document's `quotas` an entity stands; `clusters` are the clusters that it has overlays
    for.
    """

    desired: Mapping[Entity, Values]
    unmanaged: tuple[Selector, ...] = ()
    protected: tuple[Selector, ...] = ()
    internal: tuple[str, ...] = ()
    labels: Mapping[Entity, Mapping[str, str]] = field(default_factory=dict)
    entries: Mapping[Entity, int] = field(default_factory=dict)
    clusters: frozenset[str] = frozenset()
    lines: Mapping[Entity, int] = field(default_factory=dict)
    """The lines at which entities stand in a table; of a document, `entry_lines` knows them."""

    @property
    def snapshot(self) -> QuotaSnapshot:
        """The quotas as a cluster would have them."""
        return QuotaSnapshot(self.desired)

    @property
    def guards(self) -> Guards:
        """The guards that the file asks for, with the usual shares."""
        return Guards(protected=self.protected, internal=self.internal)


def quotas_document(snapshot: QuotaSnapshot) -> Document:
    """The snapshot as a document."""
    return {
        **headed("quotas"),
        "quotas": [{"entity": plain(entity), "values": plain(values)} for entity, values in snapshot.items()],
    }


def value_text(key: QuotaKey, value: Value) -> str | int | float:
    """A value as people write it in a file, exactly: `10 MiB/s`, `50 %`, and a number where the key has no unit."""
    if value == key.value_type.maximum:
        return "unlimited"
    if key.unit == "bytes/s" or key is QuotaKey.REQUEST_PERCENTAGE:
        return humanize(key, value)
    return int(value) if value == int(value) and value < 10**15 else value


def writable(snapshot: QuotaSnapshot) -> tuple[QuotaSnapshot, tuple[Problem, ...]]:
    """What a file can say of the quotas, and a problem for what a cluster may hold and kquota does not write."""
    return divided(snapshot, lambda entity: None, stored_only)


def quotas_text(snapshot: QuotaSnapshot) -> str:
    """A quotas file in YAML for people, with the comment by which editors find the schema.

    All values must be `writable`.
    """
    lines = [*FILE_HEAD, "kind: kquota.quotas", "version: 1", "quotas:" if snapshot else "quotas: []"]
    for entity, values in snapshot.items():
        lines.append(f"  - entity: {to_flow(plain(entity))}")
        lines.append(f"    values: {to_flow({key.value: value_text(key, value) for key, value in values.items()})}")
    return "".join(f"{line}\n" for line in lines)


FILE_HEAD = (
    "# yaml-language-server: $schema=quotas.schema.json",
    "# Editors help with that schema beside this file: kquota schema quotas > quotas.schema.json",
)


def read_quotas(path: Path) -> QuotaSnapshot:
    """The quotas of a document; see `read_quota_file`."""
    return read_quota_file(path).snapshot


def read_quota_file(path: Path, cluster: str | None = None, meant: Mapping[str, str] | None = None) -> QuotaFile:
    """Reads a quotas document, or a spreadsheet's table; values are numbers or texts with human units and variables.

    `meant` says of other headings of a table for which they stand, "" for none. Without a cluster, overlays and the
    variables of clusters are left out. Raises InputError naming the file, the line and the entry, also for a cluster
    that the file does not name among its `clusters`.
    """
    text = read_text(path)
    if csv.is_table(path, text):
        overlays = Overlays.of({}, cluster)
        values, lines = csv.read(path, text, meant)
        places = {entity: number for number, entity in enumerate(values)}
        return QuotaFile(values, entries=places, clusters=overlays.clusters, lines=lines)
    try:
        document = parse(path, text)
        if document.get("kind") != "kquota.quotas":
            refuse_others(path, text)
    except InputError:
        refuse_others(path, text)
        raise
    mistakes = mistakes_in(path, document, "quotas")
    misfits = {mistake.steps[:2] for mistake in mistakes}
    if len(mistakes) <= MOST and all(len(steps) == 2 and steps[0] == "quotas" for steps in misfits):
        # All entries of a wrong shape are known: the others can be read, and may have mistakes of another kind.
        with placed(path):
            file = _quota_file(document, cluster, mistakes, {int(number) for _, number in misfits})
        if not mistakes:
            return file
    refuse(path, document, mistakes, lambda steps: line_of(text, steps))


def quotas_of(document: Document) -> QuotaSnapshot:
    """The quotas of a document that has them beside other things. Raises InputError naming the entry."""
    mistakes: list[Mistake] = []
    file = _quota_file({"quotas": document["quotas"]}, None, mistakes)
    for steps, message, hint in mistakes:
        raise InputError(f"{steps[0]}[{steps[1]}]: {message}", hint=hint)
    return file.snapshot


def _quota_file(
    document: Document, cluster: str | None, mistakes: list[Mistake], skipped: Collection[int] = ()
) -> QuotaFile:
    """The document as it is meant for that cluster. Mistakes in its lists are added to `mistakes`; entries with such
    mistakes, and the `skipped` ones, are left out. Raises InputError for a cluster that it does not name.
    """
    overlays = Overlays.of(document, cluster)
    desired: dict[Entity, dict[QuotaKey, Value]] = {}
    labels: dict[Entity, Mapping[str, str]] = {}
    entries: dict[Entity, int] = {}
    for number, entry in enumerate(document["quotas"]):
        if number in skipped:
            continue
        with _place(mistakes, "quotas", number):
            entity = read_entity(entry["entity"])
            if entity in entries:
                raise InputError(f"{entity} is given twice: quotas[{entries[entity]}] has it, too")
            entries[entity] = number
            values = overlays.values(entry, entity)
            if values is None:
                continue
            desired[entity] = values
            labels[entity] = entry.get("labels", {})
    return QuotaFile(
        desired,
        _selectors(document, "unmanaged", mistakes),
        _selectors(document, "protected", mistakes),
        tuple(document.get("internal", ())),
        labels,
        entries,
        overlays.clusters,
    )


@contextlib.contextmanager
def _place(mistakes: list[Mistake], name: str, number: int) -> Iterator[None]:
    """Makes mistakes of an InputError, at that item of one of the document's lists."""
    try:
        yield
    except InputError as error:
        mistakes.append(Mistake((name, number), error.message, error.hint))
        mistakes += (Mistake((name, number), other) for other in error.others)


_parsed = lru_cache(10_000)(parse_value)
"""Thousands of entities have the same few values."""
_VARIABLE = re.compile(r"\$\{([^}]*)\}")


@dataclass(frozen=True)
class Overlays:
    """What the chosen cluster changes in a document: it reads the values of an entry as they are meant there."""

    cluster: str | None
    clusters: frozenset[str]
    variables: Mapping[str, str]

    @classmethod
    def of(cls, document: Document, cluster: str | None) -> Overlays:
        clusters = {str(name): own for name, own in document.get("clusters", {}).items()}
        if cluster is not None and cluster not in clusters:
            raise InputError(f"no cluster {cluster!r} in it", hint=_choices(cluster, clusters, "clusters"))
        chosen = {} if cluster is None else clusters[cluster].get("variables", {})
        variables = {**document.get("variables", {}), **chosen}
        return cls(cluster, frozenset(clusters), {str(name): str(value) for name, value in variables.items()})

    def values(self, entry: Document, entity: Entity) -> dict[QuotaKey, Value] | None:
        """The values of an entry, None where the entity is not for this cluster.

        Raises InputError with all its mistakes.
        """
        raws: Document = dict(entry["values"])
        for cluster, overlay in ((str(name), own) for name, own in entry.get("clusters", {}).items()):
            if cluster not in self.clusters:
                raise InputError(f"unknown cluster {cluster!r}", hint=_choices(cluster, self.clusters, "clusters"))
            if cluster != self.cluster:
                continue
            if overlay is None:
                return None
            raws |= overlay
        values: dict[QuotaKey, Value] = {}
        wrong: list[InputError] = []
        for name, raw in raws.items():
            if raw is None:
                continue
            try:
                key = QuotaKey.parse(name)
                key.check_for(entity)
                values[key] = self._value(key, raw)
            except InputError as error:
                wrong.append(error)
        if wrong:
            raise together(wrong)
        return values

    def _value(self, key: QuotaKey, raw: Any) -> Value:
        if not isinstance(raw, str):
            return check_value(key, raw)
        return _parsed(key, _VARIABLE.sub(self._variable, raw) if "$" in raw else raw)

    def _variable(self, match: re.Match[str]) -> str:
        name = match[1]
        if name not in self.variables:
            raise InputError(f"unknown variable {name!r}", hint=_choices(name, self.variables, "variables"))
        return self.variables[name]


def _choices(name: str, known: Iterable[str], what: str) -> str:
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"its {what}: {', '.join(names)}" if names else f"it declares no {what}"


def _selectors(document: Document, name: str, mistakes: list[Mistake]) -> tuple[Selector, ...]:
    selectors = []
    for number, parts in enumerate(document.get(name, ())):
        with _place(mistakes, name, number):
            selectors.append(
                Selector({kind: _pattern(parts[kind.value]) for kind in EntityType if kind.value in parts})
            )
    return tuple(selectors)


def _pattern(raw: Any) -> Pattern:
    return DEFAULT if isinstance(raw, dict) else expression(raw)


def read_entity(parts: Document) -> Entity:
    """The inverse of `plain`. Raises InputError."""

    def name(kind: EntityType) -> Name | None:
        raw = parts.get(kind.value)
        if raw is not None and not isinstance(raw, str | dict):
            raise InputError(f"the {kind.value} of an entity is no name")
        return DEFAULT if isinstance(raw, dict) else raw

    return Entity(*map(name, EntityType))


def read_values(values: Document) -> dict[QuotaKey, Value]:
    """The inverse of `plain`, as stored: also what kquota would not write. Raises InputError."""
    return {(key := QuotaKey.parse(name)): _stored(key, raw) for name, raw in values.items()}


def _stored(key: QuotaKey, raw: Any) -> Value:
    """A number of a document; what JSON has no number for is a text. Raises InputError for what Kafka cannot hold."""
    if isinstance(raw, float) or (type(raw) is int and abs(raw) <= LONG_MAX + 1):
        return canonical(raw) if isinstance(raw, float) else raw
    if isinstance(raw, str) and raw in ("NaN", "Infinity", "-Infinity"):
        return canonical(float(raw))
    raise InputError(f"{key}: it is not a number that can be stored")
