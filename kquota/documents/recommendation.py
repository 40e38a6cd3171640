"""Recommended quotas: as a report (schemas/recommendation.schema.json), and as a quotas file that says why."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kquota.core.findings.recommendation import Basis, Change, Recommendation, Recommendations
from kquota.core.quotas.quota import QuotaKey, amount_text, humanize, rate_text
from kquota.documents.audit import verdicts_document
from kquota.documents.derive import picked, plain
from kquota.documents.encoding import Document, headed, to_flow
from kquota.documents.quotas import FILE_HEAD, value_text

NOT_KNOWN: Final = "not known"
"""How much of the time a quota would throttle those whom another held back while they were recorded."""


def recommendation_document(
    recommendations: Recommendations,
    quality: Mapping[str, Any],
    brokers: Mapping[str, Any],
    engine: str,
    warned: Sequence[str],
) -> Document:
    """The recommendations, the account of the data and what was `warned` of, the enforcement assumed, what ran it."""
    return {
        **headed("recommendation"),
        "engine": engine,
        "enforcement": dict(brokers),
        "data": dict(quality),
        "warnings": [*warned],
        "for": recommendations.scope.value,
        "policy": plain(recommendations.policy),
        "undetermined": [key.value for key in QuotaKey if key in recommendations.undetermined],
        "quotas": verdicts_document(recommendations.verdicts),
        "left_out": verdicts_document(recommendations.left_out),
        "recommendations": [_recommendation(quota) for quota in recommendations.quotas],
    }


def _recommendation(quota: Recommendation) -> Document:
    usage = quota.usage
    document: Document = {
        **picked(quota, "entity key unit=key.unit current"),
        "own": quota.own and not quota.governed_by,
        **picked(quota, "governed_by value change basis"),
        "need": picked(quota, "value=usage.estimate.value at_least=usage.estimate.at_least low high"),
        "observed": picked(quota, _OBSERVED),
        "throttled": {"recorded": usage.throttled / usage.seconds, **picked(quota, "predicted held_back")},
    }
    if quota.entities is not None:
        document["default_for"] = picked(quota, "entities covered")
    return document


_OBSERVED: Final = """broker=usage.broker brokers requests=usage.requests seconds=usage.estimate.seconds
    censored_seconds=usage.estimate.held p50=usage.estimate.p50 p99=usage.estimate.p99 peak=usage.peak"""


def recommendation_text(recommendations: Recommendations, warned: Sequence[str]) -> str:
    """A quotas file in YAML: what is recommended, and the quotas that stay, each with its reason in a comment.

    A quota that stays because a default is enough needs no entry, and is named in a comment. What was `warned` of
    stands in comments as well.
    """
    kept: list[str] = []
    entries: dict[Any, list[Recommendation]] = {}
    for quota in recommendations.quotas:
        if quota.value != quota.current or (quota.own and quota.current is not None and not quota.governed_by):
            entries.setdefault(quota.entity, []).append(quota)
        else:
            by = to_flow(plain(quota.governed_by[0] if quota.governed_by else recommendations.scope.default))
            why = f"{quota.key.value}: {_change(quota)} (by {by})"
            kept.append(f"# No entry for {to_flow(plain(quota.entity))}: {why}")
    notes = [*(f"# Warning: {text}" for text in warned), *kept[:_MOST_KEPT]]
    if (more := len(kept) - _MOST_KEPT) > 0:
        notes.append(f"# No entry for {more} more that stay as they are.")
    if kept and not recommendations.policy.lower:
        notes.append("# --lower writes what they need, where that is known and less.")
    lines = [*FILE_HEAD, *_preface(recommendations), *notes, "kind: kquota.quotas", "version: 1"]
    lines.append("quotas:" if entries else "quotas: []")
    for entity, quotas in entries.items():
        for quota in quotas:
            lines += [f"  # {line}" for line in reasons(quota, recommendations)]
        values = {quota.key.value: value_text(quota.key, quota.value) for quota in quotas}
        lines += [f"  - entity: {to_flow(plain(entity))}", f"    values: {to_flow(values)}"]
    # A name with a line break must not end a comment.
    return "".join(f"{' '.join(line.splitlines())}\n" for line in lines)


_MOST_KEPT: Final = 50


def _preface(recommendations: Recommendations) -> list[str]:
    policy = recommendations.policy
    return [
        f"# Recommended for {recommendations.scope.value}: throttled in at most {percent(policy.max_throttled)} of the"
        " time that they are active, per broker,",
        f"# with {percent(policy.headroom)} headroom. Intervals are of {percent(policy.confidence)} confidence.",
    ]


def reasons(quota: Recommendation, recommendations: Recommendations) -> list[str]:
    """What was seen, what follows, and how sure it is; in lines for people."""
    key, usage, estimate = quota.key, quota.usage, quota.usage.estimate
    throttled = percent(usage.throttled / usage.seconds)
    where = f" on broker {to_flow(usage.broker)}" if usage.broker else ""
    where += f", the busiest of {quota.brokers}" if quota.brokers > 1 else ""
    lines = [f"{key.value}: {_change(quota)}"]
    if quota.entities is not None:
        lines.append(f"  enough for {quota.covered} of the {quota.entities} without a quota of their own")
    rates = {"p50": estimate.p50, "p99": estimate.p99, "peak": usage.peak}
    seen = ", ".join(f"{name} {rate_text(rate, key.unit)}" for name, rate in rates.items())
    who = "seen" if quota.entities is None else "the one that decides was seen"
    lines.append(f"  {who}{where}: {seen}; throttled {throttled} of {estimate.seconds} s")
    if quota.basis is Basis.CENSORED:
        lines.append(
            f"  wants at least {rate_text(estimate.at_least, key.unit)}: throttled each time it wanted more;"
            " the need is unknown, measure again"
        )
    else:
        lines.append(f"  needs {' '.join(needed(quota))}")
    if quota.predicted is not None:
        lines.append(f"  predicted: throttled {percent(quota.predicted)} of the same traffic")
    elif quota.held_back:
        lines.append(f"  predicted: {NOT_KNOWN}, wanted at least {rate_text(estimate.at_least, key.unit)}")
    return lines


def _change(quota: Recommendation) -> str:
    now = None if quota.current is None else humanize(quota.key, quota.current)
    if quota.governed_by and quota.value != quota.current:
        return f"{'new' if quota.change is Change.NEW else 'lower'}, in place of {now} by {governed_text(quota)}"
    match quota.change:
        case Change.KEEP:
            return f"{now} is enough"
        case Change.MEASURE:
            return f"{now} stays: measure again"
        case Change.NEW:
            return "new"
        case Change.RAISE:
            return f"raised, {now} is not enough"
        case Change.LOWER:
            return f"lowered, {now} is more than needed"


def governed_text(quota: Recommendation) -> str:
    """`client-id=feeder`: the quotas at other levels that limit it now."""
    first, *more = map(str, quota.governed_by)
    return f"{first} and {len(more)} more" if more else first


def percent(share: float) -> str:
    """`1 %`, `0.25 %`, `95 %`."""
    return amount_text(100 * share, "%")


def needed(quota: Recommendation) -> tuple[str, str]:
    """What is needed, and its confidence interval in parentheses: `7.85 MB/s` and `(7.5 MB/s to 8.1 MB/s)`.

    Where the data do not bound it, `(too little data: 66.9 kB/s or more)`.
    """
    need = quota.usage.estimate.value
    low, high = (None if end is None else rate_text(end, quota.key.unit) for end in (quota.low, quota.high))
    if low is None or high is None:
        known = f": {low} or more" if low else f": {high} or less" if high else " to be sure"
        sure = f"too little data{known}"
    else:
        sure = f"{low} to {high}"
    return "?" if need is None else rate_text(need, quota.key.unit), f"({sure})"


def predicted(quota: Recommendation) -> str:
    """The share of the time that is throttled under the recommendation; `not known` where no recording shows it.

    `as now` where a quota at another level stays.
    """
    if quota.predicted is not None:
        return percent(quota.predicted)
    return "as now" if quota.governed_by and quota.value == quota.current else NOT_KNOWN
