"""The quotas document: what `describe -o json|yaml` prints and `--quotas FILE` reads (schemas/quotas.schema.json)."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from kquota.core.alteration import Alteration
from kquota.core.entity import DEFAULT, Entity, EntityType, Name
from kquota.core.quota import DRAFT_BURST, DRAFT_RATE, QuotaKey, Value, check_value, format_number, parse_value
from kquota.core.snapshot import Problem, QuotaSnapshot, Values
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

    The names of KIP-599's drafts are understood and become problems of the snapshot: the rate is read under its shipped
    name, the burst is no quota and left out. Raises InputError naming the file and the entry.
    """
    document = read_document(path, "quotas")
    quotas: dict[Entity, dict[QuotaKey, Value]] = {}
    problems: list[Problem] = []
    for number, entry in enumerate(document["quotas"]):
        place = f"{path}: quotas[{number}]"
        try:
            entity = _read_entity(entry["entity"])
            if entity in quotas:
                raise InputError(f"{entity} is given twice")
            values, remarks = _read_values(entry["values"])
            if values:
                Alteration(entity, values)  # the rules of what an entity may carry live there
        except InputError as error:
            raise type(error)(f"{place}: {error.message}", hint=error.hint) from None
        quotas[entity] = values
        problems.extend(Problem(place, remark) for remark in remarks)
    return QuotaSnapshot(quotas, tuple(problems))


def _read_values(raw: Document) -> tuple[dict[QuotaKey, Value], list[str]]:
    """(the values, what is to be said about the names of drafts)."""
    rate = QuotaKey.CONTROLLER_MUTATION_RATE
    remarks = []
    shipped = dict(raw)
    burst = shipped.pop(DRAFT_BURST, None)
    if DRAFT_RATE in shipped:
        if rate.value in shipped:
            raise InputError(f"{rate} is given twice, once as {DRAFT_RATE}")
        shipped[rate.value] = shipped.pop(DRAFT_RATE)
        remarks.append(f"{DRAFT_RATE}: a name of KIP-599's drafts, read as {rate}")
    values = {
        key: _read_value(key, value) for key, value in ((QuotaKey.parse(name), shipped[name]) for name in shipped)
    }
    if DRAFT_BURST in raw:
        remarks.append(_about_burst(burst, values.get(rate)))
    return values, remarks


def _about_burst(burst: Any, rate: Value | None) -> str:
    """What has to be set in place of a burst. Raises InputError for a burst that is none, or has no rate."""
    if isinstance(burst, str) or not 0 < burst < math.inf:
        raise InputError(f"{DRAFT_BURST}: {burst!r} is not a number of partition mutations greater than 0")
    if rate is None:
        raise InputError(
            f"{DRAFT_BURST} without a rate",
            hint="it never shipped: a burst is controller_mutation_rate times the controllers' quota windows",
        )
    takes = f"takes controller.quota.window.num x controller.quota.window.size.seconds = {burst / rate:g}"
    return (
        f"{DRAFT_BURST}: ignored, it never shipped; a burst of {burst:g} at {rate:g}/s {takes} "
        f"(11 by default: a burst of {11 * rate:g})"
    )


def _read_entity(parts: Document) -> Entity:
    def name(kind: EntityType) -> Name | None:
        raw = parts.get(kind.value)
        return DEFAULT if isinstance(raw, dict) else raw

    return Entity(user=name(EntityType.USER), client_id=name(EntityType.CLIENT_ID), ip=name(EntityType.IP))


def _read_value(key: QuotaKey, raw: Any) -> Value:
    return parse_value(key, raw) if isinstance(raw, str) else check_value(key, raw)
