"""The report of an audit and its parts (schemas/audit.schema.json); a line of JSON for each episode of throttling
(schemas/episode.schema.json).
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from kquota.core.findings.answers import Answered, Answers, AnswersOf, by_harm
from kquota.core.findings.finding import Episode, Finding, undelivered
from kquota.core.findings.prediction import Prediction, RecordedUnder, Source
from kquota.core.findings.verdicts import QuotaVerdict, Verdict
from kquota.core.findings.whatif import ClientChange, Comparison, Outcome, Standing
from kquota.core.quotas.quota import QuotaKey
from kquota.documents.derive import derived, picked, plain
from kquota.documents.encoding import Document, Each, headed


def audit_document(
    findings: Sequence[Finding],
    quality: Mapping[str, Any],
    brokers: Mapping[str, Any],
    engine: str,
    comparison: Comparison | None = None,
    quotas: Sequence[QuotaVerdict] = (),
    recorded_under: Mapping[str, Any] | None = None,
    answers: AnswersOf = MappingProxyType({}),
    *,
    counted: bool = False,
    warned: Sequence[str] = (),
) -> Document:
    """The findings, the account of the data and what was `warned` of, the enforcement assumed, and what ran it.

    Also what changes, where other quotas were audited beside these; what became of each of the `quotas` that are set;
    and which quotas were in force while the usage was recorded, as far as that is known. `answers` are what the brokers
    themselves answered; `counted` says that they count all requests, and not only throttled ones. The document of a
    finding is made when it is written.
    """
    recorded = {"source": "unknown", "quotas": None, "throttled": None} if recorded_under is None else recorded_under
    source = Source(recorded["source"])

    def document(finding: Finding) -> Document:
        return {**_finding(finding), "recorded_under": plain(_recorded_under(finding, source))}

    return {
        **headed("audit"),
        "engine": engine,
        "enforcement": dict(brokers),
        "data": dict(quality),
        "warnings": [*warned],
        "recorded_under": dict(recorded),
        "quotas": verdicts_document(quotas),
        "findings": Each(findings, document),
        "logged": [_answered(name, answer, counted=counted) for name, answer in by_harm(answers)],
        **({} if comparison is None else {"comparison": comparison_document(comparison)}),
    }


def _answered(name: Answered, answers: Answers, *, counted: bool) -> Document:
    return {
        **picked(name, "broker user client-id=client_id requests"),
        "events": answers.events if counted else None,
        "throttled_events": answers.throttled_events,
        "throttled_share": answers.throttled_events / max(answers.events, 1) if counted else None,
        **picked(answers, "throttle_time_max_ms first_throttled_ms last_throttled_ms"),
    }


def _finding(finding: Finding) -> Document:
    key = finding.key
    made = {
        "limit": _limit(key, finding.limit),
        "predicted": None if finding.prediction is None else prediction_document(finding.prediction),
        "sizes_from": _sizes_from(finding),
        "clients": [{**_who(key, client.user, client.client_id), **derived(client)} for client in finding.clients],
    }
    return derived(finding, made)


def _who(key: QuotaKey, user: str, client_id: str) -> Document:
    """A client of a counter; of connections, which have no user and no client-id, the ip."""
    if key is QuotaKey.CONNECTION_CREATION_RATE:
        return {"user": None, "client-id": None, "ip": client_id}
    return {"user": user, "client-id": client_id, "ip": None}


def _limit(key: QuotaKey, limit: float) -> Any:
    """The limit of a counter, which is a double, as the value that is set."""
    return plain(int(limit) if key.value_type.integral else limit)


def _recorded_under(finding: Finding, source: Source) -> RecordedUnder:
    """What held the clients of a counter back while they were recorded, also where nothing is predicted."""
    if finding.prediction is not None:
        return finding.prediction.recorded_under
    return RecordedUnder(
        source, None, finding.held_back or (finding.logged is not None and finding.logged.throttled_events > 0)
    )


def _sizes_from(finding: Finding) -> Document | None:
    """Where the sizes of throttled fetches come from; None where there were none."""
    if not finding.estimated_events:
        return None
    retry = finding.estimated_events - finding.rebuilt_events
    return {"batches": finding.rebuilt_events, "retry": retry, "reproduced_share": finding.rebuilt_share}


def prediction_document(prediction: Prediction) -> Document:
    """What the clients of a counter will meet; numbers are null where nothing is known of them."""
    return {
        **picked(prediction, _PREDICTION),
        "undelivered_share": undelivered(prediction),
        **picked(prediction, "done_ms left_units times_out"),
    }


_PREDICTION: Final = """client_kind basis verdict reason throttle_time_ms throttle_time_max_ms muted_share
    delivered_per_s wanted_per_s"""


def verdicts_document(quotas: Iterable[QuotaVerdict]) -> list[Document]:
    """What became of each value that is set, with the counters that it governed (`$defs/quota_verdicts`)."""
    counted = [verdict for verdict in Verdict if verdict is not Verdict.NOBODY_SEEN]
    return [
        {
            **picked(quota, "entity key unit=key.unit value verdict reason"),
            "counters": {verdict.name.lower(): quota.counters.get(verdict, 0) for verdict in counted},
        }
        for quota in quotas
    ]


def comparison_document(comparison: Comparison) -> Document:
    """What other quotas would change: a part of the documents of audit and plan.

    It has how many clients each outcome is true of, and the clients for whom something changes or may.
    """
    return {
        "summary": {outcome.name.lower(): comparison.count(outcome) for outcome in Outcome},
        "clients": [*map(_change, comparison.clients)],
        "quotas": verdicts_document(comparison.quotas),
        "unjudged": verdicts_document(comparison.unjudged),
    }


def _change(change: ClientChange) -> Document:
    sides = {"before": _standing(change.key, change.before), "after": _standing(change.key, change.after)}
    return picked(change, "outcome key unit=key.unit user client-id=client_id ip requests") | sides


def _standing(key: QuotaKey, standing: Standing) -> Document:
    return {
        **picked(standing, "verdict throttled_events throttle_time_ms brokers sensor entity"),
        "limit": None if standing.limit is None else _limit(key, standing.limit),
        "wanted_at_least": standing.wanted,
        "predicted": None if standing.predicted is None else prediction_document(standing.predicted),
    }


def episode_document(episode: Episode) -> Document:
    """One state of an episode; `id` is the same in all of them."""
    return {
        **headed("episode"),
        **picked(episode, _EPISODE),
        "limit": _limit(episode.key, episode.limit),
        **picked(episode, _THROTTLING),
        "enough": picked(episode, "limit=enough at_least"),
        "client_count": episode.client_count,
        "clients": [
            {**_who(episode.key, client.user, client.client_id), **picked(client, "events value")}
            for client in episode.clients
        ],
    }


_EPISODE: Final = """id=name state under broker key unit=key.unit sensor subject entity level=level.value
    level_name=level.label"""
_THROTTLING: Final = """begin_ms end_ms peak_rate peak_ms events throttled_events throttle_time_ms throttle_time_max_ms
    logged_throttled_events complete"""
