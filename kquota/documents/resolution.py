"""The answer of `resolve` (schemas/resolution.schema.json)."""

from collections.abc import Callable, Sequence
from typing import Any

from kquota.core.quotas.entity import Entity
from kquota.core.resolve.caveat import Caveat
from kquota.core.resolve.reach import OTHER, ClientName
from kquota.core.resolve.resolver import Resolution
from kquota.documents.derive import picked, plain
from kquota.documents.encoding import Document
from kquota.documents.quotas import value_document


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
                **picked(resolution, "key unit=key.unit limit"),
                **({} if brokers is None else {"limit_on_brokers": _on_brokers(resolution, brokers)}),
                **picked(resolution, "level=level.number level_name=level.label entity"),
                "znode": None if resolution.entity is None else znode(resolution.entity),
                "sensor": str(resolution.sensor),
                "shadows": [
                    {
                        **picked(shadowed, "level=level.number level_name=level.label entity"),
                        "znode": None if shadowed.entity is None else znode(shadowed.entity),
                        "value": value_document(shadowed.value),
                    }
                    for shadowed in resolution.shadows
                ],
                "not_enforced": [picked(each, "entity value reason") for each in resolution.ignored],
            }
            for resolution in resolutions
        ],
    }
    if brokers is not None:
        document["brokers"] = brokers
    if caveats is not None:
        document["caveats"] = plain(caveats)
    return document


def _name(name: ClientName | None) -> Any:
    return {"other": True} if name is OTHER else name


def _on_brokers(resolution: Resolution, brokers: int) -> float | str | None:
    return None if resolution.limit is None else value_document(resolution.key.on_brokers(resolution.limit, brokers))
