"""The answer of `resolve` (schemas/resolution.schema.json)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import Value
from kquota.core.resolve.caveat import Caveat
from kquota.core.resolve.reach import OTHER, ClientName
from kquota.core.resolve.resolver import Resolution
from kquota.documents.encoding import Document
from kquota.documents.quotas import entity_document, value_document


def resolution_document(
    user: ClientName | None,
    client_id: ClientName | None,
    ip: ClientName | None,
    resolutions: Sequence[Resolution],
    znode: Callable[[Entity], str | None],
    *,
    brokers: int | None = None,
    caveats: Sequence[Caveat] | None = None,
) -> Document:
    """Per quota key the limit, where it comes from, whose counter it is, what it shadows.

    `znode` gives the path of an entity, None where there is no ZooKeeper. With `brokers`, also what the limit comes to
    on all of them; with `caveats`, the exceptions that apply.
    """
    document: Document = {
        "kind": "kquota.resolution",
        "version": 1,
        "client": {"user": _name(user), "client-id": _name(client_id), "ip": _name(ip)},
        "resolutions": [
            {
                "key": resolution.key.value,
                "unit": resolution.key.unit,
                "limit": _number(resolution.limit),
                **({} if brokers is None else {"limit_on_brokers": _on_brokers(resolution, brokers)}),
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
                        "value": value_document(shadowed.value),
                    }
                    for shadowed in resolution.shadows
                ],
                "not_enforced": [
                    {"entity": entity_document(each.entity), "value": value_document(each.value), "reason": each.reason}
                    for each in resolution.ignored
                ],
            }
            for resolution in resolutions
        ],
    }
    if brokers is not None:
        document["brokers"] = brokers
    if caveats is not None:
        document["caveats"] = [{"name": caveat.name, "message": caveat.message} for caveat in caveats]
    return document


def _name(name: ClientName | None) -> Any:
    return {"other": True} if name is OTHER else name


def _on_brokers(resolution: Resolution, brokers: int) -> float | str | None:
    return _number(None if resolution.limit is None else resolution.key.on_brokers(resolution.limit, brokers))


def _number(limit: Value | None) -> float | str | None:
    return None if limit is None else value_document(limit)
