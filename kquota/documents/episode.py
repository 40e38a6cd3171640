"""An episode of throttling as a line of JSON (schemas/episode.schema.json)."""

from kquota.core.findings.episode import Episode
from kquota.documents.derive import picked
from kquota.documents.encoding import Document
from kquota.documents.quotas import limit_document, who_document


def episode_document(episode: Episode) -> Document:
    """One state of an episode; `id` is the same in all of them."""
    key = episode.key
    before = (
        "id=name state under broker key unit=key.unit sensor subject entity level=level.value level_name=level.label"
    )
    after = """begin_ms end_ms peak_rate peak_ms events throttled_events throttle_time_ms throttle_time_max_ms
        logged_throttled_events complete"""
    return {
        "kind": "kquota.episode",
        "version": 1,
        **picked(episode, before),
        "limit": limit_document(key, episode.limit),
        **picked(episode, after),
        "enough": {"limit": episode.enough, "at_least": episode.at_least},
        "client_count": episode.client_count,
        "clients": [
            {**who_document(key, client.user, client.client_id), **picked(client, "events value")}
            for client in episode.clients
        ],
    }
