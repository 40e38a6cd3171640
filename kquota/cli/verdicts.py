"""What became of each quota that is set, in lines for people."""

from collections.abc import Iterable, Sequence

from kquota.cli.text import entity_text, first_of, markdown
from kquota.core.findings.verdicts import QuotaVerdict, Verdict, of
from kquota.core.quotas.quota import QuotaKey

_NAMED = 5
"""Quotas that a line names."""


def lines(quotas: Sequence[QuotaVerdict], *, counts: bool = True) -> list[str]:
    """How many quotas ended in each verdict; then quotas that cannot be judged, by the reason, and quotas of nobody.

    Without `counts` the numbers are left out: where everything else is about what changes.
    """
    if not quotas:
        return []
    found = [count_text(quotas)] if counts else []
    reasons: dict[str, list[QuotaVerdict]] = {}
    for quota in of(Verdict.UNDETERMINED, quotas):
        reasons.setdefault(quota.reason or "", []).append(quota)
    found += [f"undetermined ({reason}): {names(mine)}" for reason, mine in reasons.items()]
    ignored = [quota for quota in of(Verdict.NOT_THROTTLED, quotas) if quota.reason is not None]
    for reason in dict.fromkeys(quota.reason for quota in ignored):
        found.append(f"{reason}: {names([quota for quota in ignored if quota.reason == reason])}")
    nobody = of(Verdict.NOBODY_SEEN, quotas)
    return [*found, f"nobody seen under: {names(nobody)}"] if nobody else found


def count_text(quotas: Sequence[QuotaVerdict]) -> str:
    """`7 quotas set: 5 throttled, 2 not throttled`."""
    by_verdict = [(verdict, len(of(verdict, quotas))) for verdict in Verdict]
    said = ", ".join(f"{count} {verdict.value}" for verdict, count in by_verdict if count)
    return f"{len(quotas)} {'quota' if len(quotas) == 1 else 'quotas'} set: {said}"


def names(quotas: Sequence[QuotaVerdict], most: int = _NAMED) -> str:
    """The first of these quotas by name, and how many more there are."""
    return first_of(quotas, lambda quota: f"{entity_text(quota.entity)} {quota.key.value}", most)


def markdown_lines(quotas: Sequence[QuotaVerdict], *, counts: bool = True) -> list[str]:
    """The same as a paragraph of Markdown each."""
    return [f"{text[0].upper()}{text[1:]}." for text in map(markdown, lines(quotas, counts=counts))]


def kinds(quotas: Iterable[QuotaVerdict]) -> dict[tuple[str, QuotaKey], list[QuotaVerdict]]:
    """The quotas by the kind of their entity, in words, and by their key."""
    found: dict[tuple[str, QuotaKey], list[QuotaVerdict]] = {}
    for quota in quotas:
        entity = quota.entity
        kind = "ip" if entity.ip is not None else "user" if entity.client_id is None else "client-id"
        kind = "user-and-client-id" if entity.user is not None and entity.client_id is not None else kind
        found.setdefault((kind, quota.key), []).append(quota)
    return found
