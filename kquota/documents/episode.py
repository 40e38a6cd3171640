"""An episode of throttling as a line of JSON (schemas/episode.schema.json)."""

from __future__ import annotations

from kquota.core.findings.episode import Episode
from kquota.documents.encoding import Document
from kquota.documents.quotas import entity_document, limit_document, who_document


def episode_document(episode: Episode) -> Document:
    """One state of an episode; `id` is the same in all of them."""
    key = episode.key
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
        "limit": limit_document(key, episode.limit),
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
        "clients": [
            {**who_document(key, client.user, client.client_id), "events": client.events, "value": client.value}
            for client in episode.clients
        ],
    }
