"""Limits as people read them, and where they are set."""

from collections.abc import Callable

from kquota.cli.text import entity_text
from kquota.core.findings.finding import subject
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey, limit_text
from kquota.core.quotas.static import STATIC_CONFIGS
from kquota.core.resolve.resolver import Resolution

CSV = "key=0.key limit=0.limit level=0.level.label entity=0.entity znode=1 sensor=0.sensor"
"""The columns in CSV of a resolution and the path of its entity's znode."""
PathOf = Callable[[Entity], str | None]
"""The path of an entity's znode; None for a cluster without ZooKeeper."""


def with_path(item: Resolution, path_of: PathOf) -> tuple[Resolution, str | None]:
    """A resolution, and the path of its entity's znode."""
    return item, None if item.entity is None else path_of(item.entity)


def limit_of(item: Resolution) -> str:
    """The limit of a client for people; not determined where several entities spell one address."""
    return limit_text(item.key, item.limit) if item.is_determined else "not determined"


def source(key: QuotaKey, entity: Entity | None) -> str:
    """Where a value comes from: its entity, or the static default's config."""
    return STATIC_CONFIGS[key] if entity is None else entity_text(entity)


def level(item: Resolution) -> str:
    """The level of the limit, by its number and its name; `-` where nothing is limited."""
    return "-" if item.level is None else f"{item.level.number} {item.level.label}"


def origin(item: Resolution) -> str:
    """Where the limit comes from; `-` where nothing is limited."""
    return "-" if item.level is None else source(item.key, item.entity)


def tag(item: Resolution) -> str:
    """The tag of the counter that is charged; `-` where nothing is limited."""
    return "-" if item.limit is None else str(item.sensor)


def on_brokers(item: Resolution, brokers: int) -> str:
    """What the limit comes to on that many brokers, for people."""
    return limit_text(item.key, None if item.limit is None else item.key.on_brokers(item.limit, brokers))


def counter(item: Resolution) -> str:
    """Whose counter is charged, as people say it: `user alice`; `-` where nothing is limited."""
    return "-" if item.limit is None else subject(item.key, str(item.sensor))
