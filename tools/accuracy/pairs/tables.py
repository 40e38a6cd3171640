"""The figures of the pairs, and the tables that show them."""

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FIGURES = Path(__file__).parents[3] / "tests" / "data" / "pairs" / "measured.json"
"""The figures of full-length pairs on one broker, as `measure.py` wrote them."""
FIGURES_OF_THREE = FIGURES.with_name("measured-3.json")
"""The same of pairs on three brokers."""
KINDS = ("lowering", "raising", "in force")
WITHIN_TOTAL, WITHIN_LONGEST, WITHIN_DELIVERED, SLACK = 0.10, 0.15, 0.05, 0.10
PROMISED = 0.01
"""The share of seconds that `kquota recommend` aims at."""


@dataclass(frozen=True)
class Measured:
    """What a run met at one counter."""

    total_ms: float
    longest_ms: float
    delivered_per_s: float | None
    done_ms: float | None


@dataclass(frozen=True)
class Counter:
    """One counter: what the audit predicts, and what a real run under these quotas met."""

    broker: str
    key: str
    sensor: str
    limit: float
    predicted: Mapping[str, Any] | None
    """The finding's `predicted`; None where the audit gives none."""
    open_ms: float | None
    """The throttle time of the same requests at the same moments."""
    total_ms: float
    longest_ms: float
    throttled: int
    delivered_per_s: float | None
    done_ms: float | None
    """After the first request; None when the run ended before."""
    end_ms: float
    """The end of the run, on the same clock."""
    again: Measured | None
    """The second real run."""
    cut_ms: Mapping[str, float | None] | None = None
    """The predicted throttle time by the end of the real run, where that ended before its clients were done."""

    def value(self, name: str, side: str = "estimate") -> float | None:
        """A side of a predicted interval. The total is cut to the length of the real run if that ended too early."""
        if name == "throttle_time_ms" and self.cut_ms is not None and self.done_ms is None:
            return self.cut_ms[side]
        found = None if self.predicted is None else (self.predicted.get(name) or {}).get(side)
        if found is None:
            return None
        return float(found) * (self.seen(side) if name == "throttle_time_ms" else 1)

    def seen(self, side: str = "estimate") -> float:
        """The share of the predicted time that the real run lasted, when it ended before its clients were done.

        Without a simulation that was cut there, throttle times count as spread evenly. Where there is no estimate of
        that time, the `side` of its interval counts.
        """
        done = self.value("done_ms") or self.value("done_ms", side)
        return min(self.end_ms / done, 1.0) if self.done_ms is None and done else 1.0

    @property
    def verdict_is_right(self) -> bool | None:
        """None where the audit does not decide."""
        verdict = None if self.predicted is None else str(self.predicted["verdict"])
        if verdict in (None, "undetermined"):
            return None
        return (verdict == "throttled") == (self.throttled > 0)

    @property
    def covered(self) -> bool | None:
        """Whether the interval of the throttle time holds the real one, give or take SLACK."""
        if self.predicted is None:
            return None
        low, high = self.value("throttle_time_ms", "low"), self.value("throttle_time_ms", "high")
        return (low is None or low * (1 - SLACK) <= self.total_ms) and (
            high is None or self.total_ms <= high * (1 + SLACK)
        )


@dataclass(frozen=True)
class Question:
    """What one recording says about the quotas of another."""

    kind: str
    before: str
    after: str
    counters: tuple[Counter, ...]


@dataclass(frozen=True)
class Promise:
    """A recommended limit, and what became of it when it was really in force."""

    user: str
    client_id: str
    key: str
    limit: float
    promised: float | None
    """The share of seconds in which the client is said to be throttled; None where nothing is promised."""
    throttled_s: int
    """Seconds in which it really was."""
    active_s: int
    """Seconds in which it sent something."""

    @property
    def share(self) -> float:
        """Of its seconds, those in which it was throttled."""
        return self.throttled_s / max(self.active_s, 1)

    @property
    def kept(self) -> bool | None:
        """Whether it came true; None where nothing was promised."""
        return None if self.promised is None else self.share <= max(self.promised, PROMISED)


@dataclass(frozen=True)
class Recommended:
    """The limits that `kquota recommend` finds in one recording."""

    before: str
    promises: tuple[Promise, ...]


@dataclass(frozen=True)
class Figures:
    """All that was measured on one set of recordings."""

    questions: tuple[Question, ...]
    recommended: tuple[Recommended, ...] = ()


@dataclass(frozen=True)
class Summary:
    """The figures of a set of counters; shares from 0 to 1, None where nothing was compared."""

    counters: int
    undetermined: int
    verdicts: float | None
    total: float | None
    """Share with the total throttle time within WITHIN_TOTAL of the real run."""
    factor: float | None
    """The median factor between the predicted total and the real one, at least 1."""
    longest: float | None
    delivered: float | None
    rank: float | None
    """Spearman's correlation of the totals."""
    coverage: float | None


def factor(one: float, other: float) -> float:
    """How many times one is the other, at least 1; both zero are equal."""
    if one == other:
        return 1.0
    least, most = sorted((one, other))
    return most / least if least > 0 else math.inf


def within(value: float | None, real: float | None, share: float) -> bool:
    """Whether the value is that near to the real one."""
    if value is None or real is None:
        return False
    return value == real or abs(value - real) <= share * real


def rank_correlation(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Spearman's; None for fewer than three pairs."""
    if len(pairs) < 3:
        return None
    ranks = [_ranks([pair[side] for pair in pairs]) for side in (0, 1)]
    try:
        return statistics.correlation(*ranks)
    except statistics.StatisticsError:
        return None


def _ranks(values: Sequence[float]) -> list[float]:
    """The rank of each value; equal ones share the mean of theirs."""
    order = sorted(values)
    return [order.index(value) + (order.count(value) - 1) / 2 for value in values]


def summary(counters: Iterable[Counter], floor: bool = False) -> Summary:
    """The figures of the predictions, or with `floor` of the second real run, against the first."""
    mine = [each for each in counters if not floor or each.again is not None]

    def said(each: Counter, predicted: str, again: str) -> float | None:
        return getattr(each.again, again) if floor else each.value(predicted)

    total = {id(each): said(each, "throttle_time_ms", "total_ms") for each in mine}
    # A verdict without a number is wrong about the size.
    decided = [each for each in mine if floor or each.verdict_is_right is not None]
    # Counters that are throttled in neither are right about the verdict, and have no size to compare.
    sized = [each for each in decided if each.total_ms > 0 or (total[id(each)] or 0) > 0]
    longest = [
        within(said(each, "throttle_time_max_ms", "longest_ms"), each.longest_ms, WITHIN_LONGEST) for each in sized
    ]
    delivered = [
        within(value, each.delivered_per_s, WITHIN_DELIVERED)
        for each in mine
        if (value := said(each, "delivered_per_s", "delivered_per_s")) is not None and each.delivered_per_s is not None
    ]
    verdicts = [
        (each.again.total_ms > 0) == (each.total_ms > 0) if floor and each.again else each.verdict_is_right
        for each in mine
    ]
    pairs = [(value, each.total_ms) for each in decided if (value := total[id(each)]) is not None]
    return Summary(
        counters=len(mine),
        undetermined=sum(each is None for each in verdicts),
        verdicts=_share([each for each in verdicts if each is not None]),
        total=_share([within(total[id(each)], each.total_ms, WITHIN_TOTAL) for each in sized]),
        factor=statistics.median(_factor(total[id(each)], each.total_ms) for each in sized) if sized else None,
        longest=_share(longest),
        delivered=_share(delivered),
        rank=rank_correlation(pairs),
        coverage=None if floor else _share([each.covered for each in mine if each.covered is not None]),
    )


def _factor(value: float | None, real: float) -> float:
    return math.inf if value is None else factor(value, real)


def _share(held: Sequence[bool]) -> float | None:
    return sum(held) / len(held) if held else None


def figures_of(path: Path) -> Figures:
    """The figures that `measure.py` wrote."""
    document = json.loads(path.read_text(encoding="utf-8"))
    return Figures(
        tuple(
            Question(each["kind"], each["before"], each["after"], tuple(_counter_of(row) for row in each["counters"]))
            for each in document["questions"]
        ),
        tuple(
            Recommended(each["before"], tuple(Promise(**row) for row in each["promises"]))
            for each in document["recommended"]
        ),
    )


def _counter_of(row: Mapping[str, Any]) -> Counter:
    return Counter(**{**row, "again": None if row["again"] is None else Measured(**row["again"])})


def figures_document(figures: Figures) -> dict[str, Any]:
    """The figures as JSON, with four digits."""
    document = asdict(figures)
    rounded: dict[str, Any] = _rounded(document)
    return rounded


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(each) for each in value]
    return float(f"{value:.4g}") if isinstance(value, float) and math.isfinite(value) else value


def page(figures: Figures) -> str:
    """All tables, as Markdown."""
    parts = []
    for kind in KINDS:
        mine = [each for each in figures.questions if each.kind == kind]
        if mine:
            parts += [f"### {kind.capitalize()}", _summary_table(mine), *map(_counter_table, mine)]
    if figures.recommended:
        parts += ["### Recommended quotas", *map(_promise_table, figures.recommended)]
    return "\n\n".join(parts) + "\n"


def brief_page(figures: Figures) -> str:
    """All summaries, and the counters of one question: what the recording without quotas says of the tight ones."""
    parts = []
    for kind in KINDS:
        mine = [each for each in figures.questions if each.kind == kind]
        if mine:
            parts += [f"**{kind.capitalize()}, three brokers**", _summary_table(mine)]
    parts += [_promises(each) for each in figures.recommended]
    parts += [_counter_table(each) for each in figures.questions if (each.before, each.after) == ("none", "tight")]
    return "\n\n".join(parts) + "\n"


def _promise_table(recommended: Recommended) -> str:
    lines = [
        _promises(recommended),
        "",
        "| user | client-id | quota | recommended | promised | really throttled |",
        "|---|---|---|--:|--:|--:|",
    ]
    for each in recommended.promises:
        promise = "nothing" if each.promised is None else f"{each.promised:.1%} of seconds".replace("%", " %")
        really = f"{each.share:.1%} of {each.active_s} s".replace("%", " %")
        lines.append(f"| {each.user} | {each.client_id} | {each.key} | {each.limit:g} | {promise} | {really} |")
    return "\n".join(lines)


def _promises(recommended: Recommended) -> str:
    """How many limits promise something, and what became of them."""
    promised = [each for each in recommended.promises if each.kept is not None]
    kept = sum(bool(each.kept) for each in promised)
    silent = [each for each in recommended.promises if each.kept is None]
    enough = sum(each.share <= PROMISED for each in silent)
    lines = [
        f"`kquota recommend --entities user-clients`, from the recording {_under(recommended.before)}:",
        "",
        f"* {len(promised)} of {len(recommended.promises)} limits promise something. {kept} promises came true.",
        f"* {len(silent)} limits promise nothing. {enough} of them were enough.",
    ]
    return "\n".join(lines)


def _summary_table(questions: Sequence[Question]) -> str:
    """What holds of all counters of one kind of question."""
    head = (
        "| | counters | undetermined | verdict right | total within 10 % | median factor | longest within 15 % "
        "| delivered within 5 % | rank correlation | in the interval |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    )
    rows = []
    for question in questions:
        rows.append(_summary_row(f"{question.before} → {question.after}", summary(question.counters)))
        if any(each.again for each in question.counters):
            rows.append(_summary_row("second real run", summary(question.counters, floor=True)))
    return "\n".join([head, *rows])


def _summary_row(name: str, figures: Summary) -> str:
    cells = [
        name,
        str(figures.counters),
        str(figures.undetermined),
        _percent(figures.verdicts),
        _percent(figures.total),
        "-" if figures.factor is None else f"{figures.factor:.2f}",
        _percent(figures.longest),
        _percent(figures.delivered),
        "-" if figures.rank is None else f"{figures.rank:.2f}",
        _percent(figures.coverage),
    ]
    return f"| {' | '.join(cells)} |"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}".replace("%", " %")


def _counter_table(question: Question) -> str:
    """Each counter of one question."""
    head = (
        f"Recorded {_under(question.before)}, asked about the {question.after} quotas:\n\n"
        "| counter | quota | limit | client | verdict | total s: predicted | interval | real | again | longest s: "
        "predicted | real | delivered/s: predicted | real | done s: predicted | real |\n"
        "|---|---|--:|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    )
    return "\n".join([head, *map(_counter_row, question.counters)])


def _under(name: str) -> str:
    return "without quotas" if name == "none" else f"under the {name} quotas"


def _counter_row(counter: Counter) -> str:
    again = counter.again
    low, high = (counter.value("throttle_time_ms", side) for side in ("low", "high"))
    told = counter.predicted or {}
    cells = [
        f"`{counter.sensor}`" + (f" {counter.broker}" if counter.broker not in ("", "broker-1", "1") else ""),
        counter.key,
        f"{counter.limit:g}",
        str(told.get("client_kind") or "-"),
        str(told.get("verdict") or "-"),
        _seconds(counter.value("throttle_time_ms")),
        f"{_seconds(low)} to {_seconds(high)}" if low != high else "",
        _seconds(counter.total_ms),
        _seconds(None if again is None else again.total_ms),
        _seconds(counter.value("throttle_time_max_ms")),
        _seconds(counter.longest_ms),
        _number(counter.value("delivered_per_s")),
        _number(counter.delivered_per_s),
        _seconds(counter.value("done_ms")),
        f"over {_seconds(counter.end_ms)}" if counter.done_ms is None else _seconds(counter.done_ms),
    ]
    return f"| {' | '.join(cells)} |"


def _seconds(ms: float | None) -> str:
    return "-" if ms is None else f"{ms / 1000:.1f}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}" if value < 1000 else f"{value:.0f}"
