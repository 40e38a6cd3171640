"""The answer of `resolve` (schemas/resolution.schema.json)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kquota.core.entity import Entity
from kquota.core.resolver import Resolution
from kquota.documents.encoding import Document
from kquota.documents.quotas import entity_document


def resolution_document(
    user: str | None,
    client_id: str | None,
    ip: str | None,
    resolutions: Sequence[Resolution],
    znode: Callable[[Entity], str],
) -> Document:
    """Per quota key the limit, where it comes from (`znode` gives its path), whose counter it is, what it shadows."""
    return {
        "kind": "kquota.resolution",
        "version": 1,
        "client": {"user": user, "client-id": client_id, "ip": ip},
        "resolutions": [
            {
                "key": resolution.key.value,
                "unit": resolution.key.unit,
                "limit": resolution.limit,
                "level": None if resolution.level is None else resolution.level.number,
                "level_name": None if resolution.level is None else resolution.level.label,
                "entity": None if resolution.entity is None else entity_document(resolution.entity),
                "znode": None if resolution.entity is None else znode(resolution.entity),
                "sensor": str(resolution.sensor),
                "shadows": [
                    {
                        "level": shadowed.level.number,
                        "level_name": shadowed.level.label,
                        "entity": None if shadowed.entity is None else entity_document(shadowed.entity),
                        "znode": None if shadowed.entity is None else znode(shadowed.entity),
                        "value": shadowed.value,
                    }
                    for shadowed in resolution.shadows
                ],
            }
            for resolution in resolutions
        ],
    }
