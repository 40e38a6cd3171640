"""Findings and verdicts in words, for tables, Markdown and the page: who, which quota, when, how bad."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from kquota.cli.text import amount_text, duration, entity_text, first_of, many, markdown, period, range_text, rate_text
from kquota.core.enforcement.generation import QuotaWindows
from kquota.core.findings.answers import Answered, AnswersOf, by_harm
from kquota.core.findings.finding import Basis, Finding, of_concern
from kquota.core.findings.prediction import UNKNOWN, Interval, Prediction
from kquota.core.findings.recommendation import Scope
from kquota.core.findings.verdicts import QuotaVerdict, Verdict, of
from kquota.core.findings.whatif import ClientChange, Comparison, Outcome, Standing
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey, humanize
from kquota.core.resolve.resolver import encode_user
from kquota.core.tabular import grouped

_DOING: Final = {
    QuotaKey.PRODUCER_BYTE_RATE: "producing",
    QuotaKey.CONSUMER_BYTE_RATE: "fetching",
    QuotaKey.REQUEST_PERCENTAGE: "time of request threads",
    QuotaKey.CONTROLLER_MUTATION_RATE: "creating and deleting partitions",
    QuotaKey.CONNECTION_CREATION_RATE: "connecting",
}

_WINDOW_MS: Final = QuotaWindows().span_ms
"""Over so long brokers measure, unless their settings say otherwise."""

TIMES_OUT: Final = "time out, and lose records or send them again"
"""What producers do with records that wait longer than their library allows by default."""

EXEMPTIONS: Final = {
    "acks_0": "with acks=0",
    "follower_fetch": "of followers",
    "forwarded": "forwarded",
    "in_flight": "begun before the log",
    "inter_broker": "among brokers",
}
"""Why the thread time of requests is exempt."""


def doing(finding: Finding) -> str:
    """What the quota limits: `producing`."""
    return _DOING[finding.key]


def requests(finding: Finding) -> str:
    """What the counter's events are called."""
    if finding.key is QuotaKey.CONNECTION_CREATION_RATE:
        return "connections"
    if finding.basis is not Basis.REQUESTS:
        return "samples"
    return "topics" if finding.key is QuotaKey.CONTROLLER_MUTATION_RATE else "requests"


def limit(finding: Finding) -> str:
    """The limit, exactly: `300 kB/s`."""
    return _partitions(humanize(finding.key, finding.limit))


def limit_parts(finding: Finding, changes: int) -> tuple[str, ...]:
    """The limit, and how often it changed while the usage was recorded, in parts."""
    return (limit(finding), f"changed {many(changes, 'time')}") if changes else (limit(finding),)


def _partitions(text: str) -> str:
    """A rate of mutations in fewer letters, as charts have it."""
    return text.replace("partition mutations", "partitions")


def rate(finding: Finding, value: float) -> str:
    """A measured rate: `359 kB/s`."""
    return _partitions(rate_text(value, finding.key.unit))


def used(key: QuotaKey, value: float) -> str:
    """An amount of what the quota counts: bytes, thread time, partitions."""
    match key:
        case QuotaKey.REQUEST_PERCENTAGE:
            return length(round(value / 1e6))
        case QuotaKey.CONTROLLER_MUTATION_RATE:
            return f"{value:,.0f} partitions"
        case QuotaKey.CONNECTION_CREATION_RATE:
            return f"{value:,.0f} connections"
        case _:
            return amount_text(value, "bytes")


def interval(value: Interval, show: Callable[[float], str]) -> str:
    """A number with its bounds: `42 %`, `30 % to 45 %`, `≥ 220 kB/s`; empty where nothing is known of it.

    No number is below 0: 0 as the only bound says nothing, and a bound that rounds to nothing says `> 0`.
    """
    low, high = (None if end is None else show(end) for end in (value.low, value.high))
    if low is not None and high is None:
        if low.startswith("<"):
            return "> 0"
        low = low if value.low else None
    if low is not None and high is not None:
        return range_text(low, high)
    if low is None and high is None:
        return "" if value.estimate is None else f"about {show(value.estimate)}"
    return f"≥ {low}" if high is None else f"≤ {high}"


def probable(value: Interval, show: Callable[[float], str]) -> str:
    """The same for a sentence, a most probable value between its bounds first: `about 42 % (30 % to 45 %)`."""
    bounds = interval(value, show)
    if value.estimate is None or value.low is value.high is None:
        return bounds
    most = show(value.estimate)
    at_an_end = most in bounds.removeprefix("≥ ").removeprefix("≤ ").split(" to ")
    return bounds if at_an_end else f"about {most} ({bounds})"


_SAID: Final[Mapping[str, Callable[[float], str]]] = {
    "muted_share": lambda part: share(min(part, 1.0), 1.0),
    "throttle_time_max_ms": lambda ms: length(round(ms)),
}
"""How a number of a prediction is said."""
Tell: TypeAlias = Callable[[Interval, Callable[[float], str]], str]


def _told(predicted: Prediction | None, name: str, tell: Tell = interval) -> str:
    return "" if predicted is None else tell(getattr(predicted, name), _SAID[name])


def muted(finding: Finding, tell: Tell = interval) -> str:
    """The share of the time in which the busiest connection is muted; `-` where it is not known."""
    return _told(finding.prediction, "muted_share", tell) or "-"


def longest(finding: Finding, tell: Tell = interval) -> str:
    """The longest wait for one answer, without a prediction the longest of the replay; `-` where it is not known.

    Of an undetermined counter it is the longest that the log itself shows: `logged 1.0 s`.
    """
    wait = _told(finding.prediction, "throttle_time_max_ms", tell)
    if wait:
        return wait
    if finding.throttle_time_max_ms is not None and not (finding.prediction and finding.prediction.says_delays):
        return length(finding.throttle_time_max_ms)
    shown = finding.logged if finding.undetermined else None
    # Samples have only means.
    if shown is None or shown.throttle_time_ms is None or not shown.throttled_events:
        return "-"
    return f"{LOGGED} {length(shown.throttle_time_max_ms)}"


LOGGED: Final = "logged"
"""Before a number that the log itself shows."""


def predicted_parts(name: str, standing: Standing) -> tuple[str, ...]:
    """A number of the prediction by its field; `-` where nobody is throttled, `?` if not known. A range has two parts.

    The share of the time muted is `muted_share`, the longest wait `throttle_time_max_ms`.
    """
    return _parts(_told(standing.predicted, name)) or ("-" if standing.verdict == "not throttled" else "?",)


def delivered_of(key: QuotaKey, standing: Standing) -> tuple[str, ...]:
    """What the clients of its counter get likewise; `?` where it is not known."""
    got = standing.delivered
    parts = _parts("" if got is None else interval(got, lambda value: rate_text(_scaled(key, value), key.unit)))
    return (*parts, *_in_short(standing.predicted)) if parts else ("?",)


def _in_short(predicted: Prediction | None) -> tuple[str, ...]:
    """`in 1.3 s` of clients that were seen for less than a window: a limit is a mean over a window."""
    if predicted is None or predicted.recorded_ms is None or predicted.recorded_ms >= _WINDOW_MS:
        return ()
    return (f"in {length(max(predicted.recorded_ms, 1000))}",)


def _parts(text: str) -> tuple[str, ...]:
    """A number with its bounds; the second bound of a range is a part of its own."""
    least, to, most = text.partition(" to ")
    return tuple(filter(None, (least, f"to {most}" if to else "")))


def _scaled(key: QuotaKey, value: float) -> float:
    """Thread time is counted in seconds, and its quota is a percentage."""
    return 100 * value if key is QuotaKey.REQUEST_PERCENTAGE else value


def delivered(finding: Finding) -> str:
    """What clients get of what they want: `180 kB/s of 220 kB/s`; else the least that they want, where it is known.

    `1.79 MB/s of 94.5 MB/s in 1.3 s` of clients that were seen for a moment.
    """
    return " ".join(delivered_parts(finding)) or "-"


def delivered_parts(finding: Finding) -> tuple[str, ...]:
    """The same in parts that can stand in lines of their own."""
    predicted = finding.prediction
    sides = (UNKNOWN, UNKNOWN) if predicted is None else (predicted.delivered_per_s, predicted.wanted_per_s)
    got, wanted = (interval(side, lambda value: rate(finding, _scaled(finding.key, value))) for side in sides)
    if not wanted and finding.wanted_at_least is not None:
        wanted = f"≥ {rate(finding, finding.wanted_at_least)}"
    if not got:
        return ("wanted", wanted) if wanted else ()
    if wanted == f"≥ {got}":  # as it was held back: how much more it wants is not known
        return (f"{got},", f"wanted {wanted}", *_in_short(predicted))
    return (got, *([] if wanted in ("", got) else [f"of {wanted}"]), *_in_short(predicted))


def behind(finding: Finding) -> str:
    """In brackets what is left over at the end of the recorded time, and when it is gone; empty where nothing is."""
    left, *gone = ("",) if finding.prediction is None else behind_parts(finding.key, finding.prediction) or ("",)
    return f"({', '.join([f'{left} behind', *gone])})" if left else ""


def behind_parts(key: QuotaKey, predicted: Prediction) -> tuple[str, ...]:
    """`65.4 MB` and `done after 23.3 s`; nothing where nothing is left over."""
    if not (predicted.left_units.high or predicted.left_units.estimate):
        return ()
    scale = 1e9 if key is QuotaKey.REQUEST_PERCENTAGE else 1
    left = interval(predicted.left_units, lambda value: used(key, scale * value))
    gone = interval(predicted.done_ms, lambda ms: length(round(ms)))
    return (left, f"done after {gone}") if gone else (left,)


def times_out(finding: Finding) -> str:
    """A warning where clients give up waiting; else empty."""
    gives_up = finding.prediction is not None and finding.prediction.times_out
    return f"may {TIMES_OUT}" if gives_up else ""


def suffering(finding: Finding) -> str:
    """What the clients of a throttled counter meet, in one breath: `muted 42 % of the time, 2.0 s at the longest`.

    Where the recording cannot say how long they are muted, the share of the delayed requests stands instead.
    """
    muting = muted(finding, probable)
    most = longest(finding, probable)
    delayed = "over its limit"  # samples do not say how many
    if finding.throttled_events is not None:
        delayed = f"{share(finding.throttled_events, finding.events)} of its {requests(finding)} delayed"
    parts = (
        delayed if muting == "-" else f"muted {muting} of the time",
        "" if most == "-" else f"{most} at the longest",
        times_out(finding),
    )
    return ", ".join(filter(None, parts))


def answer(
    findings: Sequence[Finding], answers: AnswersOf = MappingProxyType({}), quotas: Sequence[QuotaVerdict] = ()
) -> str:
    """What an audit found, in one sentence: how many counters throttled somebody, and who fares worst.

    The findings are in the order of `AuditResult.found`. `answers` are what the brokers themselves answered: where no
    counter throttles for certain, and they say that somebody was throttled, they come first. Else the undetermined
    counters do. `quotas` are counted beside the counters.
    """
    throttled, undetermined = of_concern(findings)
    count = len(findings)
    text = f"{len(throttled):,} of {many(count, 'counter')} throttled somebody"
    rest = f", {len(undetermined):,} undetermined" if undetermined else ""
    if not throttled:
        logged = throttled_clients(answers)
        text = f"nobody throttled by {many(count, 'counter')}" if count else "nobody throttled: no client has a limit"
        if logged:
            text = f"in the log itself, the brokers throttled {logged}; under these quotas:"
            text += f" none of {many(count, 'counter')} for certain" if count else " no client has a limit"
        elif undetermined:
            text = f"{len(undetermined):,} of {many(count, 'counter')} undetermined"
            rest = ", nobody throttled by the rest" if count > len(undetermined) else ""
    text += rest
    if quotas:
        text += f" ({count_text(quotas)})"
    if throttled:
        broker = throttled[0].broker
        on = broker and f" on {'broker ' * broker.isdigit()}{broker}"
        text += f"; worst: {throttled[0].subject}{on}, {suffering(throttled[0])}"
    return text


def next_step(
    entities: Iterable[Entity], bases: Iterable[str], *, reported: bool, recommend: str = "kquota recommend"
) -> str | None:
    """What to do about throttled counters, given whose quotas limit them and what their findings rest on, if anything.

    `reported`: the page exists already. `recommend` is the command that proposes limits.
    """
    limiting = [*entities]
    if not limiting:
        return None
    steps = [] if reported else ["--report FILE.html shows when and who"]
    scopes = Scope.of(limiting)
    if scopes and Scope.USERS not in scopes:  # which are the entities that it looks at by default
        recommend += f" {scopes[0].option}"
    if {Basis.RATES.value, Basis.TOTALS.value}.isdisjoint(bases):
        steps.append(f"'{recommend}' proposes limits that are enough")
    return "; ".join(steps) or None


def throttled_clients(answers: AnswersOf) -> str:
    """`3 clients: user alice with client-id app up to 2.0 s, …`: whom brokers throttled; empty where it was nobody."""
    longest: dict[tuple[str, str], int] = {}
    for name, counts in by_harm(answers):
        if counts.throttled_events:
            longest.setdefault(name.client, counts.throttle_time_max_ms)
    if not longest:
        return ""

    def named(client: tuple[tuple[str, str], int]) -> str:
        (user, client_id), wait_ms = client
        return f"user {user}{client_id and f' with client-id {client_id}'} up to {duration(wait_ms)}"

    return f"{many(len(longest), 'client')}: {first_of([*longest.items()], named)}"


def ungoverned(counters: AbstractSet[tuple[str, str]], answers: AnswersOf) -> AnswersOf:
    """The brokers' answers to clients that are in none of the counters, which are (broker, sensor)."""

    def governed(name: Answered) -> bool:
        user, client_id = encode_user(name.user), name.client_id
        tags = (f"{user}:{client_id}", f"{user}:", f":{client_id}")
        return any((name.broker, tag) in counters for tag in tags)

    return {name: counts for name, counts in answers.items() if not governed(name)}


def length(milliseconds: int) -> str:
    """A length of time: `398 ms`, `12.5 s`, `18 min 10 s`, `4 min`, `29 days 3 h`."""
    if milliseconds >= 2 * 86_400_000:
        days, hours = divmod(round(milliseconds / 3_600_000), 24)
        return f"{days} days {hours} h".removesuffix(" 0 h")
    return duration(milliseconds).removesuffix(" 0 s").removesuffix(" 0 min")


def share(part: float, whole: float) -> str:
    """A share in percent, with a digit behind the point where it is small: `42 %`, `0.3 %`."""
    percent = 100 * part / whole if whole else 0.0
    if 0 < percent < 0.05:
        return "< 0.1 %"
    return f"{percent:.0f} %" if percent >= 10 or percent == 0 else f"{percent:.1f} %"


def peak(finding: Finding) -> str:
    """The highest observed rate, and its share of the limit: `359 kB/s, 120 % of the limit`."""
    measured, of_limit = peak_parts(finding)
    return f"{measured}, {of_limit} of the limit" if of_limit else measured


def peak_parts(finding: Finding) -> tuple[str, str]:
    """The highest observed rate, and its share of the limit; lower bounds, or ranges, where no more is known.

    The share is empty where the limit changed, or is not above 0, as a cluster may hold it.
    """

    def bounded(show: Callable[[float], str]) -> str:
        least = show(finding.peak_rate)
        return f"≥ {least}" if finding.peak_rate_max is None else range_text(least, show(finding.peak_rate_max))

    comparable = finding.limit > 0 and not finding.limit_changes
    return bounded(lambda value: rate(finding, value)), (
        bounded(lambda value: share(value, finding.limit)) if comparable else ""
    )


def when(finding: Finding) -> str:
    """The first and the last throttle; empty where there was none."""
    first, last = finding.first_throttled_ms, finding.last_throttled_ms
    return "" if first is None or last is None else times(first, last)


def times(first_ms: int, last_ms: int) -> str:
    """Two moments in UTC to the second, the day once where it is the same."""
    return " ".join(period(first_ms, last_ms))


def moment(start_ms: int, width_ms: int) -> str:
    """When a bin begins, in UTC and no more exactly than it is wide."""
    begin = datetime.fromtimestamp(start_ms / 1000, UTC)
    if width_ms >= 86_400_000:
        return f"{begin:%Y-%m-%d}"
    return f"{begin:%Y-%m-%d %H:%M:%S}" if width_ms < 60_000 else f"{begin:%Y-%m-%d %H:%M}"


def totals(findings: Sequence[Finding]) -> dict[str, Any]:
    """How many counters ended in which verdict; the delayed requests, and the longest delay, as predicted."""
    known = [finding for finding in findings if finding.throttled_events is not None]
    return {
        "counters": len(findings),
        "throttled": sum(finding.throttled for finding in findings),
        "undetermined": sum(finding.undetermined for finding in findings),
        "told": all(finding.throttled_events is not None for finding in findings if finding.throttled),
        "delayed": sum(finding.throttled_events or 0 for finding in known),
        "longest": _longest_of(findings),
    }


def _longest_of(findings: Sequence[Finding]) -> str:
    """The longest delay of all, in words; empty where it is not known."""

    def likely(finding: Finding) -> float:
        wait = None if finding.prediction is None else finding.prediction.throttle_time_max_ms.likely
        return float(finding.throttle_time_max_ms or 0) if wait is None else wait

    known = [finding for finding in findings if finding.prediction is not None or finding.throttled_events is not None]
    return longest(max(known, key=likely), probable) if known else ""


_NAMED_QUOTAS = 5
"""Quotas that a line names."""


def verdict_lines(quotas: Sequence[QuotaVerdict], *, counts: bool = True) -> list[str]:
    """How many quotas ended in each verdict; then quotas that cannot be judged, by the reason, and quotas of nobody.

    Without `counts` the numbers are left out: where everything else is about what changes.
    """
    if not quotas:
        return []
    lines = [count_text(quotas)] if counts else []
    reasons = grouped(of(Verdict.UNDETERMINED, quotas), lambda quota: quota.reason or "")
    lines += [f"undetermined ({reason}): {quota_names(group)}" for reason, group in reasons.items()]
    ignored = [quota for quota in of(Verdict.NOT_THROTTLED, quotas) if quota.reason is not None]
    remarks = grouped(ignored, lambda quota: quota.reason)
    lines += [f"{reason}: {quota_names(group)}" for reason, group in remarks.items()]
    nobody = of(Verdict.NOBODY_SEEN, quotas)
    if nobody:
        lines.append(f"nobody seen whom these govern: {quota_names(nobody)}")
    return lines


def by_outcome(changes: Sequence[ClientChange]) -> dict[str, list[ClientChange]]:
    """The changes by their outcome in words."""
    return grouped(changes, outcome)


def changes(comparison: Comparison) -> str:
    """`2 clients newly throttled, 1 client throttled more, 5 clients as before`; newly throttled in any case."""
    parts = [f"{many(len(some), 'client')} {words}" for words, some in by_outcome(comparison.clients).items()]
    if comparison.same:
        parts.append(f"{many(comparison.same, 'client')} {Outcome.SAME.value}")
    if not comparison.count(Outcome.NEWLY_THROTTLED):
        parts.insert(0, f"no client {Outcome.NEWLY_THROTTLED.value}")
    if comparison.unjudged:
        parts.append(f"{many(len(comparison.unjudged), 'changed quota')} undetermined")
    return ", ".join(parts)


def outcome(change: ClientChange) -> str:
    """`newly throttled`, or `throttled (unknown before)` where the usage does not say what was before."""
    unknown = change.outcome is Outcome.NEWLY_THROTTLED and change.before.verdict == "undetermined"
    return "throttled (unknown before)" if unknown else change.outcome.value


def count_text(quotas: Sequence[QuotaVerdict]) -> str:
    """`7 quotas set: 5 throttled, 2 not throttled`."""
    by_verdict = [(verdict, len(of(verdict, quotas))) for verdict in Verdict]
    summary = ", ".join(f"{count:,} {verdict.value}" for verdict, count in by_verdict if count)
    return f"{many(len(quotas), 'quota')} set: {summary}"


def quota_names(quotas: Sequence[QuotaVerdict]) -> str:
    """The first of these quotas by name, and how many more there are."""
    return first_of(quotas, lambda quota: f"{entity_text(quota.entity)} {quota.key.value}", _NAMED_QUOTAS)


def counter_names(findings: Iterable[Finding]) -> str:
    """The first of the counters' clients and keys, and how many more there are."""
    names = dict.fromkeys(f"{finding.subject} {finding.key.value}" for finding in findings)  # on each broker the same
    return first_of([*names], most=_NAMED_QUOTAS)


def markdown_lines(quotas: Sequence[QuotaVerdict], *, counts: bool = True, warned: Iterable[str] = ()) -> list[str]:
    """What was `warned` of, and how the quotas fared (`verdict_lines`), as a paragraph of Markdown each."""
    lines = [*(f"warning: {text}" for text in warned), *verdict_lines(quotas, counts=counts)]
    return [f"{text[0].upper()}{text[1:]}." for text in map(markdown, lines)]
