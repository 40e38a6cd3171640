"""`kquota recommend`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import click

from kquota.cli import auditing, grammar, usage
from kquota.cli.exit_codes import ExitCode
from kquota.cli.options import choice, flag, option, value, values
from kquota.cli.report.words import quota_names, verdict_lines
from kquota.cli.streams import safe, warn, warned
from kquota.cli.text import Column, entity_text, entity_words, first_of, many
from kquota.cli.views import Document, Note, Part, Raw, Table, View, shown_as, table_of
from kquota.core.findings.recommendation import Basis, Change, Policy, Recommendation, Recommendations, Scope
from kquota.core.findings.verdicts import Verdict
from kquota.core.quotas.quota import QuotaKey, humanize, rate_text
from kquota.documents.encoding import to_json
from kquota.documents.recommendation import (
    governed_text,
    needed,
    percent,
    predicted,
    recommendation_document,
    recommendation_text,
)

_SCOPES = {
    "users": ("users", False),
    "clients": ("clients", False),
    "user-clients": ("user-clients", False),
    "default-user": ("users", True),
    "default-client": ("clients", True),
    "default-user-client": ("user-clients", True),
}
"""What `--entities` says: for whom, and whether by a default."""

_KEYS = (QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE)


def _share(most: float = 100.0) -> Callable[[str], float]:
    """Reads a share such as 1% or 0.5%, up to so many percent; as a number between 0 and 1."""

    def share(text: str) -> float:
        match = re.fullmatch(r"(\d{1,4}(?:\.\d{1,6})?) ?%", text, re.ASCII)
        if match is None:
            hint = f"; did you mean {text}%?" if re.fullmatch(r"\d{1,4}(?:\.\d{1,6})?", text, re.ASCII) else ""
            raise click.BadParameter(f"{text!r} is not a share, such as 1% or 0.5%{hint}")
        if not 0 <= float(match[1]) <= most:
            raise click.BadParameter(f"{text} is not between 0% and {most:g}%")
        return float(match[1]) / 100

    return share


@grammar.command("recommend")
@shown_as("table", "wide", "yaml", "json")
def command(
    *,
    asked: usage.Asked = usage.ASKED_OF_EVENTS,
    scope: str = choice(
        _SCOPES,
        "The entities to recommend for; default-… is one value for the default, and others where entities need more.",
        "--entities",
        default="users",
    ),
    only: tuple[str, ...] = values("PATTERN", "Only for names that match, such as 'team-*'."),
    keys: tuple[str, ...] = choice(
        [key.value for key in _KEYS],
        "Only this quota key; may be repeated.",
        "--key",
        multiple=True,
        show_default="all",
    ),
    max_throttled: float = value(
        "SHARE",
        "How much of its active time an entity may be throttled, on its busiest broker.",
        type=_share(50),
        default="1%",
    ),
    headroom: float = option("The margin above a need that is known.", type=_share(900), default="20%"),
    raise_by: float = option(
        "How much to raise a quota whose clients were throttled each time they wanted more; in place of --headroom.",
        type=_share(900),
        default="50%",
    ),
    covers: float = option(
        "The share of the entities for whom a default has to be enough.", type=_share(), default="90%"
    ),
    confidence: float = option("The confidence of the intervals.", type=_share(99.9), default="95%"),
    lower: bool = flag("Also lower quotas that are higher than needed."),
) -> View:
    """Recommend quotas from recorded usage.

    Reads what 'kquota audit' reads. Each value is the smallest at which an entity is throttled for a small share of the
    time only, plus headroom. The quotas that were in force are the cluster's own, or --quotas. They show when clients
    were held back: such clients wanted more than they got, and no quota goes down for it. A quota that suffices stays,
    at another level, too: a user whose client-id has a quota keeps that one. With -o yaml, it is a file that
    'kquota plan' reads, with the reasons for each quota.

    \b
    Examples:
      kquota recommend kafka-request.log --quotas quotas.yaml
      kquota recommend logs/broker-1/ logs/broker-2/ --zookeeper localhost:2181 --entities default-user
      kquota recommend usage.parquet --quotas quotas.yaml --max-throttled 0.5% -o json
      kquota recommend usage.parquet --quotas quotas.yaml -o yaml | kquota plan - --quotas quotas.yaml
      kquota recommend usage.parquet --quotas quotas.yaml --only alice -o yaml | sed 's/alice/newteam/'
    """
    settings = asked.settings()
    from kquota.audit.answers.recommend import Wanted, recommendations

    name, default = _SCOPES[scope]
    wanted = Wanted(
        Scope(name),
        default,
        tuple(key for key in _KEYS if not keys or key.value in keys),
        only,
        Policy(max_throttled, confidence, headroom, raise_by, covers, lower),
    )
    with auditing.auditor(asked.usage, settings, "a recommendation") as run:
        recommended, measured = recommendations(run, settings, wanted)
    auditing.keep_rejects(measured, asked.quarantine)
    auditing.warn_of_log(measured.quality, settings.read.zone)

    def left_open() -> Iterator[Part]:
        of_default = {quota.key.value for quota in recommended.quotas if quota.entities is not None}
        for key in sorted({quota.key.value for quota in recommended.quotas if default} - of_default):
            why = "all that were looked at have quotas of their own"
            hint = "--quotas FILE with 'quotas: []' recommends as if nothing was set"
            yield Note(f"no {key} for {entity_text(recommended.scope.default)}: {why} ({hint})", by=warn)
        yield from _left_open(recommended)

    def screen() -> Iterator[Part]:
        yield Note(_answer(recommended))
        yield _table(recommended)
        yield from left_open()
        yield Note("next: -o yaml writes a quotas file, with the reason for each value; 'kquota plan' reads it")

    def warnings() -> list[str]:
        return [*warned(), *(safe(part.text) for part in left_open() if isinstance(part, Note) and part.by is warn)]

    def document() -> Document:
        data, enforcement = auditing.data_of(measured.quality), auditing.enforcement_of(settings)
        return recommendation_document(recommended, data, enforcement, measured.engine, warnings())

    def counted(text: str) -> Sequence[Part]:
        return [Raw(text), Note(_answer(recommended)), *left_open()]

    return View(
        screen=screen,
        others={
            "json": lambda: counted(to_json(document())),
            "yaml": lambda: counted(recommendation_text(recommended, warnings())),
        },
        code=ExitCode.PARTIAL if measured.quality.unread_files else ExitCode.OK,
    )


_STAYS = {Change.KEEP: "keep", Change.MEASURE: "measure again"}


def _table(recommended: Recommendations) -> Table:
    styles = {Change.KEEP: "dim", Change.MEASURE: "", Change.NEW: "green", Change.RAISE: "", Change.LOWER: "cyan"}
    return table_of(
        recommended.quotas,
        [
            (Column("WHO", style="bold"), _who),
            (Column("QUOTA", style="cyan", whole=True), lambda quota: quota.key.value),
            (Column("NOW", number=True), _now),
            (
                Column("RECOMMENDED", number=True),
                lambda quota: _STAYS.get(quota.change) or humanize(quota.key, quota.value),
            ),
            (
                Column("NEEDS", spare=1),
                lambda quota: (
                    needed(quota)
                    if quota.basis is not Basis.CENSORED
                    else ("at least", rate_text(quota.usage.estimate.at_least, quota.key.unit))
                ),
            ),
            (Column("P99", number=True, spare=4), lambda quota: rate_text(quota.usage.estimate.p99, quota.key.unit)),
            (Column("PEAK", number=True, spare=3), lambda quota: rate_text(quota.usage.peak, quota.key.unit)),
            (
                Column("TIME THROTTLED", number=True, spare=2),
                lambda quota: percent(quota.usage.throttled / quota.usage.seconds),
            ),
            (Column("PREDICTED", number=True, spare=2), predicted),
        ],
        lambda quota: "yellow" if quota.basis is Basis.CENSORED else styles[quota.change],
    )


def _who(quota: Recommendation) -> tuple[str, ...]:
    covered = () if quota.entities is None else (f"enough for {quota.covered} of {quota.entities}",)
    return (entity_words(quota.entity), *covered)


def _now(quota: Recommendation) -> tuple[str, ...]:
    governed = (f"by {governed_text(quota)}",) if quota.governed_by else ()
    return ("-",) if quota.current is None else (humanize(quota.key, quota.current), *governed)


def _answer(recommended: Recommendations) -> str:
    """How many quotas become what."""
    counts = {change: sum(quota.change is change for quota in recommended.quotas) for change in Change}
    words = {Change.NEW: "new", Change.RAISE: "raised", Change.LOWER: "lowered", Change.KEEP: "kept"}
    words[Change.MEASURE] = "to measure again"
    summary = ", ".join(f"{counts[change]} {word}" for change, word in words.items() if counts[change])
    return f"{many(len(recommended.quotas), 'quota')}: {summary}; every value holds per broker"


def _left_open(recommended: Recommendations) -> Iterator[Part]:
    """What the recommendations leave open."""
    hidden = [quota for quota in recommended.quotas if quota.basis is Basis.CENSORED]
    kept = [quota for quota in hidden if quota.change is Change.MEASURE]
    for unknown, remedy in (
        ([quota for quota in hidden if quota not in kept], "raise the quota and measure again"),
        (kept, "its limit stays, as it may be enough: measure again under it"),
    ):
        if unknown:
            named = first_of(unknown, lambda quota: f"{entity_text(quota.entity)} {quota.key.value}")
            why = "throttled each time it wanted more, so the need is unknown"
            yield Note(f"{named}: {why}: {remedy}", by=warn)
    if left_out := recommended.left_out:
        throttled = sum(quota.counters[Verdict.THROTTLED] for quota in left_out)
        what = f"{many(throttled, 'throttled counter')} of {quota_names(left_out)}"
        others = [
            scope.option for scope in Scope.of(quota.entity for quota in left_out) if scope is not recommended.scope
        ]
        yield Note(f"left out: {what} ({', '.join([*others, '--key and --only choose'])})", by=warn)
    throttling = {quota.entity for quota in left_out}
    if charged := [entity for entity in recommended.charged if entity not in throttling]:
        how = " or ".join(scope.option for scope in Scope.of(charged))
        yield Note(f"nothing is recommended for what other quotas count: {first_of(charged, entity_text)} ({how})")
    for line in verdict_lines(recommended.verdicts, counts=False):
        yield Note(line)
    for key, counters in recommended.undetermined.items():
        missing = "thread time" if key is QuotaKey.REQUEST_PERCENTAGE else "that is charged"
        text = f"nothing is recommended for {many(counters, 'counter')}: the usage does not record all {missing}"
        yield Note(f"{key.value}: {text}", by=warn)
