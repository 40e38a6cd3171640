"""An episode of throttling as a line of JSON (schemas/episode.schema.json)."""

from __future__ import annotations

from kquota.core.findings.episode import Episode
from kquota.core.findings.finding import Client
from kquota.core.quotas.quota import QuotaKey
from kquota.documents.encoding import Document
from kquota.documents.quotas import entity_document, values_document


def episode_document(episode: Episode) -> Document:
    """One state of an episode; `id` is the same in all of them."""
    key = episode.key
    number = int(episode.limit) if key.value_type.integral else episode.limit
    return {
        "kind": "kquota.episode",
        "version": 1,
        "id": episode.name,
        "state": episode.state.value,
        "under": episode.under.value,
        "broker": episode.broker,
        "key": key.value,
        "unit": key.unit,
        "sensor": episode.sensor,
        "subject": episode.subject,
        "entity": entity_document(episode.entity),
        "level": int(episode.level),
        "level_name": episode.level.label,
        "limit": values_document({key: number})[key.value],
        "begin_ms": episode.begin_ms,
        "end_ms": episode.end_ms,
        "peak_rate": episode.peak_rate,
        "peak_ms": episode.peak_ms,
        "events": episode.events,
        "throttled_events": episode.throttled_events,
        "throttle_time_ms": episode.throttle_time_ms,
        "throttle_time_max_ms": episode.throttle_time_max_ms,
        "logged_throttled_events": episode.logged_throttled_events,
        "complete": episode.complete,
        "enough": {"limit": episode.enough, "at_least": episode.at_least},
        "client_count": episode.client_count,
        "clients": [_client(key, client) for client in episode.clients],
    }


def _client(key: QuotaKey, client: Client) -> Document:
    """Who a client is; of connections the ip."""
    is_ip = key is QuotaKey.CONNECTION_CREATION_RATE
    return {
        "user": None if is_ip else client.user,
        "client-id": None if is_ip else client.client_id,
        "ip": client.client_id if is_ip else None,
        "events": client.events,
        "value": client.value,
    }
