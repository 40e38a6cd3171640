"""The quotas document: what `describe -o json|yaml` prints and `--quotas FILE` reads (schemas/quotas.schema.json)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kquota.core.alteration import Alteration
from kquota.core.entity import DEFAULT, Entity, EntityType, Name
from kquota.core.quota import QuotaKey, Value, check_value, format_number, parse_value
from kquota.core.snapshot import QuotaSnapshot, Values
from kquota.documents.encoding import Document, read_document
from kquota.errors import InputError

KIND = "kquota.quotas"
VERSION = 1


def entity_document(entity: Entity) -> Document:
    """`{"user": "alice", "client-id": {"default": true}}`."""
    return {kind.value: {"default": True} if name is DEFAULT else name for kind, name in entity.parts}


def values_document(values: Values) -> Document:
    """Numbers by key. What JSON has no number for (a stored NaN or Infinity) is Java's word as a string."""
    return {key.value: value if math.isfinite(value) else format_number(value) for key, value in values.items()}


def quotas_document(snapshot: QuotaSnapshot) -> Document:
    """The snapshot as a document."""
    return {
        "kind": KIND,
        "version": VERSION,
        "quotas": [
            {"entity": entity_document(entity), "values": values_document(values)}
            for entity, values in snapshot.items()
        ],
    }


def read_quotas(path: Path) -> QuotaSnapshot:
    """Reads a quotas document; values are numbers or texts with human units.

    Raises InputError naming the file and the entry.
    """
    document = read_document(path, "quotas")
    try:
        return QuotaSnapshot(read_quotas_entries(document["quotas"]))
    except InputError as error:
        raise type(error)(f"{path}: {error.message}", hint=error.hint) from None


def read_quotas_entries(entries: Sequence[Document]) -> dict[Entity, dict[QuotaKey, Value]]:
    """The entries of a valid document. Raises InputError naming the entry."""
    quotas: dict[Entity, dict[QuotaKey, Value]] = {}
    for number, entry in enumerate(entries):
        try:
            entity = read_entity(entry["entity"])
            if entity in quotas:
                raise InputError(f"{entity} is given twice")
            values = {key: _read_value(key, raw) for key, raw in _keys(entry["values"])}
            if values:
                Alteration(entity, values)  # the rules of what an entity may carry live there
        except InputError as error:
            raise type(error)(f"quotas[{number}]: {error.message}", hint=error.hint) from None
        quotas[entity] = values
    return quotas


def _keys(values: Document) -> list[tuple[QuotaKey, Any]]:
    return [(QuotaKey.parse(name), raw) for name, raw in values.items()]


def read_entity(parts: Document) -> Entity:
    """The entity of `{"user": "alice", "client-id": {"default": true}}`. Raises InputError."""

    def name(kind: EntityType) -> Name | None:
        raw = parts.get(kind.value)
        return DEFAULT if isinstance(raw, dict) else raw

    return Entity(user=name(EntityType.USER), client_id=name(EntityType.CLIENT_ID), ip=name(EntityType.IP))


def _read_value(key: QuotaKey, raw: Any) -> Value:
    return parse_value(key, raw) if isinstance(raw, str) else check_value(key, raw)
