"""The names of the brokers' metrics in a cluster, found by looking at them."""

from collections.abc import Iterable
from typing import Final

from kquota.core.quotas.quota import QuotaKey
from kquota.documents.foreign.prometheus import Metric
from kquota.live.sources import Sample
from kquota.metrics.series import IDENTITY, Nature

_CONNECTIONS: Final = QuotaKey.CONNECTION_CREATION_RATE
_CLIENTS: Final = {"client_id", "clientId", "clientid", "client", "redpanda_quota_client_id"}


def found(samples: Iterable[Sample]) -> tuple[Metric, ...]:
    """The metrics among the samples, each with the labels that identify a counter in this dialect."""
    labels: dict[tuple[str, QuotaKey, Nature], set[str]] = {}
    for sample in samples:
        names = {name for name in IDENTITY if sample.labels.get(name)}
        place = sample.labels["__name__"], sample.series.key, sample.series.nature
        labels.setdefault(place, set()).update(names)
    # A counter with the other tag may appear at any time. A label that a series lacks is empty, and harms no join.
    tags = set[str]().union(*(names for (_, key, _), names in labels.items() if key is not _CONNECTIONS))
    if not tags & _CLIENTS:
        tags |= {"client_id", "clientId"}
    if "redpanda_quota_user" not in tags:
        tags.add("user")
    order = list(QuotaKey)
    return tuple(
        Metric(name, key, nature.value, ("ip",) if key is _CONNECTIONS else tuple(sorted(tags)))
        for name, key, nature in sorted(labels, key=lambda place: (order.index(place[1]), place[2].value, place[0]))
    )


def is_broken(samples: Iterable[Sample]) -> bool:
    """Whether the exporter's rules swallow labels: a resource that holds the user as well."""
    return any(", user=" in sample.labels.get("resource", "") for sample in samples)
