"""Ledgers become findings: each counter's rows in the order of time, through the enforcement kernel."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kquota.audit.batch import KEYS, UNKNOWN, Int64s
from kquota.audit.findings import SCHEMA, findings_table
from kquota.audit.ledger.part import Part, enforce
from kquota.audit.ledger.retries import fill_in, known_sizes
from kquota.audit.ledger.rows import CHARGES, NEVER, CounterRef, Governing, Judged, Ledger
from kquota.audit.settings import AuditSettings
from kquota.core.enforcement.kernel import kernel_for
from kquota.core.findings.finding import Basis, Logged
from kquota.core.findings.verdicts import Governed, InTurn, Verdict
from kquota.core.quotas.quota import QuotaKey

_ROW_S: Final = 8e-6
"""How long it takes to replay a row with the plain kernel."""
_LOGGED: Final = {
    "logged_throttled_events": "hits",
    "logged_throttle_time_ms": "logged",
    "logged_throttle_time_max_ms": "longest",
}
Periods: TypeAlias = Mapping[int, Governing]
"""What limits a counter, by the period of the quotas' history."""
_INCOMPLETE: Final = "the usage does not record everything that this quota counts"


class Replay:
    """The counters of some ledgers, replayed; `sizes` are throttled fetches with the sizes that are known of them."""

    def __init__(self, ledgers: Sequence[Ledger], settings: AuditSettings, sizes: Sequence[Ledger] = ()) -> None:
        self.settings = settings
        tables = [CHARGES.empty_table(), *(ledger.charges for ledger in ledgers)]
        charges = pa.concat_tables(tables).unify_dictionaries()
        ids, firsts, numbers = np.unique(charges.column("counter").to_numpy(), return_index=True, return_inverse=True)
        count = len(ids)
        self.refs = refs_of(charges.take(pa.array(firsts)))
        """Who the counters are, by number."""
        self._governing: list[Periods] = [{}] * count
        """What limits each counter."""
        limit(self._governing, charges, numbers, {})
        self._changes = changes_of(settings)
        """When quotas change under any of the variants."""
        self._has_periods = len(self._changes) > 0
        charges = charges.append_column("number", pa.array(numbers, pa.int64()))
        totals = (
            charges.group_by("number")
            .aggregate([("events", "sum"), ("incomplete_ms", "min"), ("silent", "any")])
            .sort_by("number")
        )
        self._totals: dict[str, Any] = {
            "events": totals.column("events_sum").to_numpy(),
            "incomplete": totals.column("incomplete_ms_min").to_numpy() != NEVER,
            "silent": totals.column("silent_any").to_numpy(),
            **{name: np.zeros(count, np.int64) for name in ("unsized", "rebuilt", "hits", "logged", "longest")},
        }
        edges = np.cumsum([0, *(len(ledger.charges) for ledger in ledgers)])
        self.part = Part.of(
            ledgers,
            [numbers[begin:end] for begin, end in pairwise(edges.tolist())],
            ordered=settings.ordered,
            members=settings.per_client,
            periods=self._has_periods,
        )
        retaken = self.part.values == UNKNOWN
        self._shares = np.full(count, NEVER)
        """Of counters with rebuilt sizes, the least share of delivered fetches that came out, in ppm."""
        if retaken.any():
            rows, shares = known_sizes(self.part, retaken, sizes, ids)
            owners = self.part.owners(rows)
            np.add.at(self._totals["rebuilt"], owners, 1)
            np.minimum.at(self._shares, owners, shares)
            fill_in(self.part)
            np.add.at(self._totals["unsized"], self.part.owners(np.flatnonzero(retaken)), 1)
        engine = kernel_for("replay_many", _ROW_S * len(self.part.times))
        state = engine.new_counters(count, settings.windows, settings.generation, settings.controller_windows)
        self._summaries: Any = engine.new_summaries(count)
        self.met = enforce(engine, state, self._summaries, self.part, retaken, np.full(count, NEVER))
        columns: dict[str, Any] = {name: np.asarray(column) for name, column in self._summaries._asdict().items()}
        self._summaries = self._summaries._replace(**columns)
        throttle_ms = self.part.throttle_ms
        self._answered = np.zeros(0, np.int64) if throttle_ms is None else np.flatnonzero(throttle_ms > 0)
        """The rows that the brokers throttled by their own answers."""
        if throttle_ms is not None:
            owners, delays = self.part.owners(self._answered), throttle_ms[self._answered]
            np.add.at(self._totals["hits"], owners, 1)
            np.add.at(self._totals["logged"], owners, delays)
            np.maximum.at(self._totals["longest"], owners, delays)
        # Where it says nothing of some of the events, a 0 for all others would be taken for the whole.
        self.is_logged = (self._totals["hits"] > 0) | ~self._totals["silent"]
        """Of each counter whether the export says what the broker answered: that it throttled, or that it did not."""
        throttles, alone = self._summaries.throttled > 0, ~self._totals["incomplete"] & (self._totals["hits"] == 0)
        self.is_calm, self.throttles = alone & ~throttles, alone & throttles
        """Of which counters all is known, and brokers throttled nobody: those that the replay spares, and others."""
        self.first_ms = np.where(throttles, self._summaries.first_ms, NEVER)
        """When the replay first throttles somebody."""
        self._members = _by_member(charges)
        self.governing: list[dict[tuple[str, str], Governed]] = [{} for _ in settings.variants]
        """The counters that each quota governed, under each of the variants."""
        self._verdicts = np.where(
            self._totals["incomplete"],
            Verdict.UNDETERMINED.value,
            np.where(self._summaries.throttled > 0, Verdict.THROTTLED.value, Verdict.NOT_THROTTLED.value),
        ).tolist()
        self._tell_governing()

    def _by_counter(self, rows: Int64s) -> dict[int, set[int]]:
        """Of the counters of those rows, how many changes of the quotas were before each."""
        between = np.searchsorted(self._changes, self.part.times[rows], side="right")
        changes: dict[int, set[int]] = {}
        for number, before in np.unique(np.column_stack([self.part.owners(rows), between]), axis=0).tolist():
            changes.setdefault(number, set()).add(before)
        return changes

    def tables(self) -> list[pa.Table]:
        """The findings (SCHEMA), a table for each of the settings' variants."""
        refs, totals, count = self.refs, self._totals, len(self.refs)
        summaries = self._summaries._asdict()
        governing = [periods[max(periods)] for periods in self._governing]
        known, throttled = ~totals["incomplete"], summaries["throttled"]
        happened = known & (throttled > 0)

        def whole(column: Any, mask: Any) -> pa.Array:
            return pa.array(np.asarray(column), pa.int64(), mask=~mask)

        # A recommendation asks what limits the clients of each measured counter.
        asked = np.array([ref.variant > 0 and self.settings.question is not None for ref in refs], bool)
        clients = self._clients((throttled > 0) | ~known | (totals["hits"] > 0) | asked)
        rebuilt = totals["rebuilt"] > 0
        logged = {name: whole(totals[key], self.is_logged) for name, key in _LOGGED.items()}
        columns = {
            "broker": [ref.broker for ref in refs],
            "key": [ref.key.value for ref in refs],
            "sensor": [ref.sensor for ref in refs],
            "entity": [quota.entity for quota in governing],
            "level": [quota.level for quota in governing],
            "limit": [quota.limit for quota in governing],
            "limit_changes": [_changes(periods) for periods in self._governing],
            "verdict": self._verdicts,
            "reason": [None if complete else _INCOMPLETE for complete in known.tolist()],
            "basis": [Basis.REQUESTS.value] * count,
            "events": totals["events"],
            "throttled_events": whole(throttled, known),
            "throttle_time_ms": whole(summaries["total_ms"], known),
            "throttle_time_max_ms": whole(summaries["max_ms"], known),
            "peak_rate": summaries["peak_rate"],
            "peak_rate_max": pa.array(summaries["peak_rate"], pa.float64(), mask=~known),
            "first_throttled_ms": whole(summaries["first_ms"], happened),
            "last_throttled_ms": whole(summaries["last_ms"], happened),
            **logged,
            "estimated_events": totals["unsized"],
            "rebuilt_events": totals["rebuilt"],
            "rebuilt_share": pa.array(np.where(rebuilt, self._shares, 0) / 1e6, mask=~rebuilt),
            "client_count": np.bincount(self._members.column("number").to_numpy(), minlength=count),
            "clients": clients.cast(SCHEMA.field("clients").type),
        }
        table = findings_table(columns, count)
        variants = np.array([ref.variant for ref in refs], np.int64)
        return [table.filter(pa.array(variants == variant)) for variant in range(len(self.settings.variants))]

    def _clients(self, named: Any) -> pa.Array:
        """The busiest clients of each counter that is `named`, nobody of the others."""
        members = self._members.filter(pa.array(named[self._members.column("number").to_numpy()]))
        numbers = members.column("number").to_numpy()
        counted = np.full(len(members), self.settings.per_client)
        known, logged = counted & ~self._totals["incomplete"][numbers], counted & self.is_logged[numbers]
        hits = np.flatnonzero(self.met.throttled)
        # There is no time where a rejection came without a delay.
        throttled, waited = self._of_members(members, hits, np.maximum(self.met.delays[hits], 0))
        answered, _ = self._of_members(members, self._answered, self._answered)
        values = {
            **{name: members.column(name) for name in ("user", "client_id", "events", "value")},
            "throttled_events": pa.array(throttled, mask=~known),
            "throttle_time_ms": pa.array(waited, mask=~known),
            "logged_throttled_events": pa.array(answered, mask=~logged),
        }
        order = pc.sort_indices(
            pa.table({"number": numbers, **values}),
            [("number", "ascending"), ("value", "descending"), ("events", "descending"), ("user", "ascending"),
             ("client_id", "ascending")],
        ).to_numpy()  # fmt: skip
        starts = np.searchsorted(numbers, np.arange(len(self.refs) + 1))  # the order of the counters stays
        if self.settings.top_clients is not None:
            order = order[np.arange(len(order)) - starts[numbers] < self.settings.top_clients]
            starts = np.searchsorted(numbers[order], np.arange(len(self.refs) + 1))
        rows = pa.table(values).take(pa.array(order)).combine_chunks().to_struct_array()
        rows = rows.combine_chunks() if isinstance(rows, pa.ChunkedArray) else rows
        return pa.ListArray.from_arrays(pa.array(starts, pa.int32()), rows)

    def _of_members(self, members: pa.Table, rows: Int64s, values: Int64s) -> tuple[Int64s, Int64s]:
        """Of each of those clients how many of the rows it has, and the sum of their values."""
        count, total = np.zeros(len(members), np.int64), np.zeros(len(members), np.int64)
        if self.part.member is None or not len(rows):
            return count, total
        sums = (
            pa.table({"number": self.part.owners(rows), "member": self.part.member[rows], "value": values})
            .group_by(["number", "member"])
            .aggregate([("value", "count"), ("value", "sum")])
        )
        place = members.select(["number", "member"]).append_column("place", pa.array(np.arange(len(members))))
        sums = sums.join(place, ["number", "member"], join_type="inner")
        at = sums.column("place").to_numpy()
        count[at], total[at] = sums.column("value_count").to_numpy(), sums.column("value_sum").to_numpy()
        return count, total

    def limits(self, number: int) -> list[tuple[int, float]]:
        """(since when, limit) of the counter of that number, epoch ms."""
        changes = self.settings.variants[self.refs[number].variant].changes_ms
        periods = sorted(self._governing[number].items())
        return [(int(changes[period - 1]) if period else -(1 << 62), governing.limit) for period, governing in periods]

    def judged(self, number: int) -> Judged:
        """What the replay found of the counter of that number, for its prediction."""
        totals, summaries, ref = self._totals, self._summaries, self.refs[number]
        logged = Logged(*(int(totals[name][number]) for name in ("hits", "logged", "longest")))
        return Judged(
            ref,
            Verdict(self._verdicts[number]),
            _INCOMPLETE if totals["incomplete"][number] else None,
            self.limits(number),
            int(summaries.throttled[number]),
            int(summaries.total_ms[number]),
            int(summaries.max_ms[number]),
            logged if self.is_logged[number] else None,
            int(self.first_ms[number]),
            float(summaries.peak_rate[number]),
            self._clients_of(number) if self.settings.recorded_under is not None else (),
        )

    def _clients_of(self, number: int) -> list[tuple[str, str]]:
        """(user, client-id) of each client of a counter."""
        first, end = np.searchsorted(self._members.column("number").to_numpy(), [number, number + 1]).tolist()
        rows = self._members.slice(first, end - first)
        return list(zip(rows.column("user").to_pylist(), rows.column("client_id").to_pylist(), strict=True))

    def _tell_governing(self) -> None:
        """Adds each counter to the quotas that governed it; one that was throttled to those that did it."""
        hits = self._by_counter(np.flatnonzero(self.met.throttled)) if self._has_periods else {}
        answers = self._by_counter(self._answered) if self._has_periods else {}
        alike = Counter[tuple[int, QuotaKey, str, Verdict]]()
        of_name = {verdict.value: verdict for verdict in Verdict}
        for number, (ref, name) in enumerate(zip(self.refs, self._verdicts, strict=True)):
            verdict = of_name[name]
            entities = {governing.entity for governing in self._governing[number].values()}
            if len(entities) == 1:
                alike[ref.variant, ref.key, entities.pop(), verdict] += 1
                continue
            guilty = self._governing_when(number, hits) if verdict is Verdict.THROTTLED else entities
            answered = self._governing_when(number, answers)
            for entity in sorted(entities):
                outcome = verdict if entity in guilty else Verdict.NOT_THROTTLED
                alike[ref.variant, ref.key, entity, outcome] += 1
                if self.is_logged[number]:
                    quota = self.governing[ref.variant].setdefault((ref.key.value, entity), Governed())
                    quota.in_turn[ref.name] = InTurn(outcome, entity in answered)
        for (variant, key, entity, verdict), count in alike.items():
            quota = self.governing[variant].setdefault((key.value, entity), Governed())
            quota.add(verdict, _INCOMPLETE if verdict is Verdict.UNDETERMINED else None, count)

    def _governing_when(self, number: int, hits: dict[int, set[int]]) -> set[str]:
        """The entities that governed a counter at its `hits`."""
        periods, changes = self._governing[number], self.settings.variants[self.refs[number].variant].changes_ms
        times = [int(self._changes[before - 1]) if before else -1 for before in hits.get(number, ())]
        return {periods[period].entity for t in times if (period := bisect_right(changes, t)) in periods}


def _by_member(charges: pa.Table) -> pa.Table:
    """The clients of each counter, in the order of the counters, with what they were charged."""
    rows = charges.select(["number", "member", "events", "value"]).append_column(
        "row", pa.array(np.arange(len(charges)))
    )
    clients = (
        rows.group_by(["number", "member"])
        .aggregate([("events", "sum"), ("value", "sum"), ("row", "min")])
        .rename_columns(["number", "member", "events", "value", "row"])
        .sort_by([("number", "ascending"), ("member", "ascending")])
    )
    for name in ("user", "client_id"):
        clients = clients.append_column(name, charges.column(name).take(clients.column("row")).cast(pa.string()))
    return clients


def refs_of(charges: pa.Table) -> list[CounterRef]:
    """The counters of some charges, one each."""
    # By way of numpy: Arrow makes a scalar of each cell of a dictionary.
    columns = (charges.column(name).to_numpy().tolist() for name in ("variant", "broker", "key", "sensor"))
    return [
        CounterRef(variant, broker, KEYS[key], sensor) for variant, broker, key, sensor in zip(*columns, strict=True)
    ]


def limit(
    counters: list[Periods], charges: pa.Table, numbers: Int64s, alike: dict[tuple[Governing, ...], Periods]
) -> None:
    """Tells counters what limits them in the periods of some charges, of which `numbers` are the numbers.

    Counters that are limited alike, such as all of a default, share what is in `alike`.
    """
    periods = charges.column("period").to_numpy()
    _, rows = np.unique(numbers * (periods.max(initial=0) + 1) + periods, return_index=True)
    charges = charges.select(["period", "entity", "level", "limit"]).take(pa.array(rows))
    limits = map(Governing._make, zip(*(column.to_numpy().tolist() for column in charges.columns), strict=True))
    for number, governing in zip(numbers[rows].tolist(), limits, strict=True):
        if governing.period not in counters[number]:
            known = {**counters[number], governing.period: governing}
            counters[number] = alike.setdefault(tuple(known.values()), known)


def changes_of(settings: AuditSettings) -> Int64s:
    """When quotas change under any of the variants (epoch ms), in order."""
    return np.unique(np.concatenate([np.array(history.changes_ms, np.int64) for history in settings.variants]))


def _changes(periods: Periods) -> int:
    """How often the limit of a counter changed, or what set it."""
    in_time = [periods[period] for period in sorted(periods)]
    return sum((later.entity, later.limit) != (earlier.entity, earlier.limit) for earlier, later in pairwise(in_time))
