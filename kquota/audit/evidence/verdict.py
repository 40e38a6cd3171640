"""The one verdict on each counter, also where a quota held its clients back while they were recorded.

A recording under a limit shows what clients got, and not what they would have sent under a higher one. The verdict of
the replay does not stand then. Clients that all runs of the simulator throttle are throttled. Clients whose queue
drained are not throttled where no run throttles them. Else the counter is undetermined: the rate that was observed is
only the least that they wanted.

The export itself usually says it: the throttle times in a broker's answers. For a counter without throttle times,
`AuditSettings.recorded_under` says which quotas were in force, and their replay says whom they held back. A counter of
which only some requests have throttle times, all of them 0, counts as one without: the others may have been throttled.

The verdict of the replay stands where another quota still holds the same clients back as much as they were: then there
is no more traffic than there was. Where the quotas in question were in force, the throttle times of the brokers decide
(`evidence.in_force`). Finding, prediction and quota get the same verdict.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kquota.audit.evidence.in_force import ENOUGH_HITS, are_in_force
from kquota.audit.evidence.prediction import BELOW, CALM
from kquota.audit.evidence.prediction_store import Predictions
from kquota.audit.findings import NAME, SCHEMA, cells_of, ordered
from kquota.audit.result import AuditResult
from kquota.audit.settings import AuditSettings
from kquota.audit.sources.lost import NONE_LOST, Lost
from kquota.core.findings.answers import Answers
from kquota.core.findings.prediction import REPLAYED, CounterName, Prediction
from kquota.core.findings.verdicts import HELD_BACK, InTurn, QuotaVerdict, Verdict
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey
from kquota.core.resolve.resolver import Sensors, encode_user, tags
from kquota.core.simulation.recorded import NEAR

AS_MUCH: Final = 0.9
"""The share of the logged throttle time that another quota must cause to hold the clients back as much; and no more."""

_OTHERS: Final = "the log does not say which of their quotas throttled the clients"
_OPEN_LOOP: Final = ("throttled_events", "throttle_time_ms", "throttle_time_max_ms")
_TIMES: Final = ("first_throttled_ms", "last_throttled_ms")
_COUNTERS_OF_THEIR_OWN = frozenset({QuotaKey.CONTROLLER_MUTATION_RATE.value, QuotaKey.CONNECTION_CREATION_RATE.value})
"""Quotas that hold back other requests than those of bytes and thread time."""
_TIME: Final = QuotaKey.REQUEST_PERCENTAGE.value
_REQUESTS: Final = {QuotaKey.PRODUCER_BYTE_RATE.value: "produce", QuotaKey.CONSUMER_BYTE_RATE.value: "fetch"}
"""The requests that are charged, as `Answered.requests` has them; thread time is of all."""


def audited(run: Callable[[AuditSettings], AuditResult], settings: AuditSettings) -> AuditResult:
    """The audit; of counters without throttle times, those held back are found by what was in force.

    `run` audits the export under given settings, once or twice.
    """
    result = run(settings)
    recorded = settings.recorded_under
    tables = [table for table in (result.findings, result.before) if table is not None]
    silent = any(table.column("logged_throttled_events").null_count for table in tables)
    if not recorded or not any(recorded.snapshots) or not silent:
        return result
    again = replace(settings, quotas=recorded, against=None, top_clients=1, per_client=False, timelines=0)
    # Who may have been held back may want more than it got, too.
    return settled(result, settings, _named(run(again).findings, Verdict.THROTTLED, Verdict.UNDETERMINED))


def shows_throttling(result: AuditResult) -> bool | None:
    """Whether brokers throttled anybody while the export was recorded; None where it does not say."""
    logged = result.findings.column("logged_throttled_events")
    most = pc.max(logged).as_py() if len(logged) else None
    return None if most is None else bool(most > 0)


def settled(
    result: AuditResult,
    settings: AuditSettings,
    held: Sequence[CounterName] = (),
    *,
    handlers: bool = False,
    lost: Lost = NONE_LOST,
) -> AuditResult:
    """The result in which each counter has one verdict: in its finding, its prediction and its quota.

    `held` are counters whose clients were held back, known beside what the export says. `handlers` says that the export
    has the handlers' time of every request: twice that bounds its thread time. No counter is called not throttled that
    a request of `lost` may belong to. A result that is settled already stays as it is.
    """
    sensors: dict[tuple[str, str], Sensors] = defaultdict(Sensors)
    for broker, key, sensor in held:
        sensors[broker, _group(key)].add(sensor)
    known = sensors, handlers, lost
    tested, against = _Settling(result, *known, are_in_force(settings, 0), settings.in_force).settle(), result.against
    if against is not None:
        against = _Settling(against, *known, are_in_force(settings, 1)).settle()
    throttled = set(_named(tested.findings, Verdict.THROTTLED)) if result.timelines else ()
    timelines = {name: timeline for name, timeline in result.timelines.items() if name in throttled}
    return replace(tested, timelines=timelines, against=against)


def _named(table: pa.Table, *verdicts: Verdict) -> list[CounterName]:
    """The counters with one of these verdicts."""
    rows = table.filter(pc.is_in(table.column("verdict"), pa.array([verdict.value for verdict in verdicts])))
    return [*cells_of(rows, *NAME)]


class _Settled(NamedTuple):
    """The one verdict on a counter."""

    verdict: Verdict
    reason: str | None
    prediction: Prediction | None
    answers: Answers | None = None
    """What the brokers answered to the requests of the counter, where that is the verdict."""
    is_part: bool = False
    """Whether the recording may lack requests of it."""


@dataclass(frozen=True)
class _Settling:
    """The verdicts on the counters of one findings table."""

    result: AuditResult
    held: Mapping[tuple[str, str], Sensors]
    """By broker and group of keys, the counters whose clients were held back."""
    handlers: bool
    lost: Lost
    in_force: bool
    claimed: bool = False
    """Whether somebody says that these quotas were in force: then the answers count, and the replay checks them."""

    @cached_property
    def _counters(self) -> _Counters:
        return _Counters.of(self.result.findings)

    def settle(self) -> AuditResult:
        """The findings, the verdicts on the quotas, and the predictions, which agree."""
        table, predictions = self.result.findings, Predictions()
        predictions.update(self.result.predictions)
        changed: dict[int, dict[str, Any]] = {}
        """The rows with another verdict, by their numbers in the table."""
        moves: dict[tuple[Entity, QuotaKey], _Moves] = defaultdict(Counter)
        in_turn: dict[CounterName, list[tuple[Entity, InTurn]]] = defaultdict(list)
        for quota in self.result.quotas:
            for counter, turn in quota.in_turn.items():
                in_turn[counter].append((quota.entity, turn))
        for number, row in self._open(predictions):
            name: CounterName = row["broker"], row["key"], row["sensor"]
            before = Verdict(row["verdict"])
            prediction = predictions.get(name)
            outcome = self._known(row, self._one(row, before, prediction))
            if not self.in_force and _leaves_open(row):
                changed[number] = row
            if outcome.prediction is not None and outcome.prediction is not prediction:
                predictions.update({name: outcome.prediction})
            if outcome.verdict is not before or outcome.answers is not None or outcome.reason != row["reason"]:
                changed[number] = _with_verdict(row, outcome)
            if outcome.verdict is not before:
                governing = in_turn.get(name) or [(Entity.parse(row["entity"]), InTurn(before, True))]
                for entity, turn in governing:
                    # Of quotas that took turns, those throttled somebody in whose time the brokers say so.
                    spared = outcome.verdict is Verdict.THROTTLED and not turn.answered
                    after = Verdict.NOT_THROTTLED if spared else outcome.verdict
                    moves[entity, QuotaKey(row["key"])][turn.verdict, after, outcome.reason] += 1
        quotas = tuple(
            _moved(quota, moves.get((quota.entity, quota.key))) for quota in map(self._seen, self.result.quotas)
        )
        tables = [table]
        if changed:
            kept = np.ones(len(table), bool)
            kept[[*changed]] = False
            tables = [table.filter(pa.array(kept)), pa.Table.from_pylist([*changed.values()], SCHEMA)]
        return replace(self.result, findings=ordered(tables), quotas=quotas, predictions=predictions)

    def _open(self, predictions: Predictions) -> list[tuple[int, dict[str, Any]]]:
        """The counters that somebody held back, and those whose prediction has another verdict than the replay."""
        table = self.result.findings
        rows = cells_of(table, "verdict", *NAME)
        apart = [predictions.verdict((*name,)) not in (None, verdict) for verdict, *name in rows]
        logged = pc.fill_null(pc.greater(table.column("logged_throttled_events"), 0), False)
        mask = pc.or_(logged, pa.array(apart, pa.bool_()))
        if self.held or self.lost:
            mask = pc.or_(mask, pc.not_equal(table.column("verdict"), Verdict.UNDETERMINED.value))
        if self.handlers:
            mask = pc.or_(mask, pc.equal(table.column("key"), _TIME))
        return list(zip(pc.indices_nonzero(mask).to_pylist(), table.filter(mask).to_pylist(), strict=True))

    def _seen(self, quota: QuotaVerdict) -> QuotaVerdict:
        """The verdict on a quota, but of nobody seen where a request that could not be read may be of somebody."""
        if quota.verdict is Verdict.NOBODY_SEEN and self.lost.may_be_governed(quota.entity, quota.key):
            return quota._replace(verdict=Verdict.UNDETERMINED, reason=self.lost.reason)
        return quota

    def _known(self, row: Mapping[str, Any], outcome: _Settled) -> _Settled:
        """The verdict, but where a request that could not be read may be of the counter."""
        verdict, prediction = outcome.verdict, outcome.prediction
        if verdict is Verdict.UNDETERMINED or not self.lost.may_be_of(row["key"], row["sensor"]):
            return outcome
        reason = self.lost.reason
        if verdict is Verdict.NOT_THROTTLED:
            return _Settled(Verdict.UNDETERMINED, reason, _agreeing(prediction, Verdict.UNDETERMINED, reason))
        least = prediction and prediction.open_ended(is_part=True)
        return outcome._replace(prediction=least, reason=reason, is_part=True)

    def _one(self, row: Mapping[str, Any], verdict: Verdict, prediction: Prediction | None) -> _Settled:
        if prediction is not None and prediction.is_record:
            return self._happened(row, verdict, prediction)
        logged = row["logged_throttled_events"]
        held = self._was_held(row) if logged is None else logged > 0
        reason = row["reason"]
        if held and not self.in_force and verdict is not Verdict.UNDETERMINED:
            shown = _shown(prediction, verdict)
            if verdict is Verdict.NOT_THROTTLED and self._counters.hold(row):
                shown = verdict
            reason = HELD_BACK if shown is Verdict.UNDETERMINED else None
            verdict = shown
            if prediction is not None:
                under = replace(prediction.recorded_under, held_back=True)
                prediction = replace(prediction, recorded_under=under)
        elif verdict is Verdict.UNDETERMINED and self.handlers and not held and prediction and prediction.basis == CALM:
            verdict, reason = Verdict.NOT_THROTTLED, None
        elif prediction is not None and verdict is not Verdict.UNDETERMINED:
            # The replay knows one quota; the simulation knows what else slows the clients down.
            verdict, reason = Verdict(prediction.verdict), prediction.reason
        return _Settled(verdict, reason, _agreeing(prediction, verdict, reason))

    def _was_held(self, row: Mapping[str, Any]) -> bool:
        """Whether a client of the counter in a row can be one that was held back."""
        held = self.held.get((row["broker"], _group(row["key"])), _NO_SENSORS)
        return held.meet(*tags(row["sensor"]))

    def _happened(self, row: Mapping[str, Any], verdict: Verdict, prediction: Prediction) -> _Settled:
        """The verdict on a counter whose quotas were in force: the broker's, where it can only be of this counter."""
        recorded, denial = Verdict(prediction.verdict), _denial(row) if self.claimed else None
        if recorded is not Verdict.THROTTLED or prediction.basis == REPLAYED:
            return _Settled(recorded, denial, prediction)
        # A counter that never came near its limit throttled nobody: it was another quota, or the brokers had another.
        far = row["peak_rate_max"] is not None and row["peak_rate_max"] < NEAR * row["limit"]
        if not far and not self._counters.shared(row):
            counts = self.claimed or recorded is not verdict
            return _Settled(recorded, denial, prediction, self._answered(row) if counts else None)
        # The broker answers the longest of several throttle times, and does not say of which quota it is.
        if verdict is Verdict.UNDETERMINED:
            return _Settled(verdict, row["reason"], prediction.bounded(0, None, verdict.value, _OTHERS))
        if verdict is Verdict.NOT_THROTTLED:
            return _Settled(verdict, denial, prediction.not_throttled())
        total, longest = row["throttle_time_ms"], row["throttle_time_max_ms"]
        return _Settled(verdict, denial, prediction.bounded(total, longest, verdict.value, None))

    def _answered(self, row: Mapping[str, Any]) -> Answers | None:
        """What the brokers answered to the requests of a counter; None where they are not told from others."""
        requests = _REQUESTS.get(row["key"], "")
        answers = self._answers_by_sensor.get((row["broker"], requests, row["sensor"]))
        return answers if answers is not None and answers.throttled_events == row["logged_throttled_events"] else None

    @cached_property
    def _answers_by_sensor(self) -> Mapping[tuple[str, str, str], Answers]:
        """The brokers' answers to requests of a kind, or of all (""), by the sensors that these may be charged to."""
        by_sensor: dict[tuple[str, str, str], Answers] = {}
        for name, answers in self.result.quality.answers.items():
            user = encode_user(name.user)
            for sensor in {f"{user}:{name.client_id}", f"{user}:", f":{name.client_id}"}:
                for requests in (name.requests, ""):
                    place = (name.broker, requests, sensor)
                    by_sensor[place] = by_sensor[place] + answers if place in by_sensor else answers
        return by_sensor


def _denial(row: Mapping[str, Any]) -> str | None:
    """Where the log denies that quotas were in force: of those that were, the replay is within 5 % of it."""
    logged, replayed = row["logged_throttled_events"], row["throttled_events"]
    if logged is None or replayed is None or max(logged, replayed) < max(ENOUGH_HITS, 2 * min(logged, replayed) + 1):
        return None
    why = "other quotas were in force" + (", the log begins under load" if logged > replayed else "")
    why += " or the log's times lack microseconds"
    journal = "--quotas-journal DIR knows when quotas changed"
    return f"these quotas delay {replayed:,} requests and the log shows {logged:,} ({why}; {journal})"


def _shown(prediction: Prediction | None, verdict: Verdict) -> Verdict:
    """What a recording shows of clients that were held back: by simulation, else by the replay of what they got."""
    if prediction is not None and prediction.client_kind != "unknown" and prediction.recorded_under.held_back:
        return Verdict(prediction.verdict)
    after_mutes = prediction is not None and prediction.basis == BELOW
    return Verdict.THROTTLED if verdict is Verdict.THROTTLED and not after_mutes else Verdict.UNDETERMINED


def _agreeing(prediction: Prediction | None, verdict: Verdict, reason: str | None) -> Prediction | None:
    """The prediction with that verdict."""
    if prediction is None or prediction.verdict == verdict.value:
        return prediction
    if verdict is Verdict.NOT_THROTTLED:
        return prediction.not_throttled()
    if verdict is Verdict.UNDETERMINED:
        return prediction.undetermined(reason or "")
    return prediction.open_ended()


def _leaves_open(row: Mapping[str, Any]) -> bool:
    """Whether a throttled counter has clients that were held back and are not throttled: then they lose their counts.

    They may want more than they got, and their neighbours are throttled.
    """
    is_shared = row["verdict"] == Verdict.THROTTLED.value and row["client_count"] > 1
    clients = row["clients"] if is_shared else ()
    held = [client for client in clients if client["logged_throttled_events"] and client["throttled_events"] == 0]
    for client in held:
        client |= {"throttled_events": None, "throttle_time_ms": None}
    return bool(held)


def _with_verdict(row: Mapping[str, Any], outcome: _Settled) -> dict[str, Any]:
    """The row with this verdict. The replay's counts go where they say something else than the verdict."""
    verdict, answers = outcome.verdict, outcome.answers
    cells: dict[str, Any] = {"reason": outcome.reason}
    if outcome.is_part:
        cells["peak_rate_max"] = None
    if answers is None and verdict.value == row["verdict"]:
        return {**row, **cells}
    times = 0 if verdict is Verdict.NOT_THROTTLED else None
    cells |= {"verdict": verdict.value, **dict.fromkeys(_OPEN_LOOP, times)}
    if verdict is not Verdict.THROTTLED:
        cells |= dict.fromkeys(_TIMES)
    if verdict is Verdict.UNDETERMINED:
        cells["peak_rate_max"] = None
    if answers is not None:
        cells |= {name: getattr(answers, name) for name in ("throttled_events", "throttle_time_max_ms", *_TIMES)}
        cells["throttle_time_ms"] = row["logged_throttle_time_ms"]
    if outcome.prediction is not None and outcome.prediction.peak_rate.low is not None:
        peak = outcome.prediction.peak_rate
        cells |= {"peak_rate": peak.low, "peak_rate_max": peak.high}
    counts = {"throttled_events": times, "throttle_time_ms": times}
    clients = [client if client["throttled_events"] is None else client | counts for client in row["clients"]]
    if answers is not None:
        clients = [client | {"throttled_events": client["logged_throttled_events"]} for client in clients]
    return {**row, **cells, "clients": clients}


_Moves: TypeAlias = Counter[tuple[Verdict, Verdict, str | None]]
"""How many counters went from one verdict to another, and why."""


def _moved(quota: QuotaVerdict, moves: _Moves | None) -> QuotaVerdict:
    """The verdict on a quota whose counters went to other verdicts."""
    if not moves:
        return quota
    counters = Counter(quota.counters)
    for (before, after, _), count in moves.items():
        counters[before] -= count
        counters[after] += count
    left = {verdict: counters[verdict] for verdict in Verdict if counters[verdict] > 0}
    verdict = next(iter(left), quota.verdict)
    if verdict is not Verdict.UNDETERMINED:
        hidden = quota.verdict is Verdict.UNDETERMINED and verdict is Verdict.NOT_THROTTLED and not quota.counters
        return quota if hidden else quota._replace(verdict=verdict, reason=None, counters=left)
    known = [quota.reason] if quota.verdict is Verdict.UNDETERMINED and quota.reason is not None else []
    reasons = sorted({reason for *_, reason in moves if reason is not None})
    added = [reason for reason in reasons if not any(reason in text for text in known)]
    return quota._replace(verdict=verdict, reason="; ".join([*known, *added]), counters=left)


def _group(key: str) -> str:
    """The same for keys whose counters are charged for the same requests."""
    return key if key in _COUNTERS_OF_THEIR_OWN else ""


_NO_SENSORS: Final = Sensors()


class _Counters(NamedTuple):
    """The counters of a table that throttle, but those of their own."""

    strict: Mapping[str, Sensors]
    """By broker, those that throttle their clients as much as these were throttled."""
    possible: Mapping[tuple[str, bool], Sensors]
    """By broker, and whether they count thread time, those that throttle, or may."""

    @classmethod
    def of(cls, table: pa.Table) -> _Counters:
        strict: dict[str, Sensors] = defaultdict(Sensors)
        possible: dict[tuple[str, bool], Sensors] = defaultdict(Sensors)
        open_ = table.filter(pc.not_equal(table.column("verdict"), Verdict.NOT_THROTTLED.value))
        names = (*NAME, "verdict", "throttle_time_ms", "logged_throttle_time_ms")
        for broker, key, sensor, verdict, predicted, logged in cells_of(open_, *names):
            if key in _COUNTERS_OF_THEIR_OWN:
                continue
            possible[broker, key == _TIME].add(sensor)
            throttled = verdict == Verdict.THROTTLED.value
            if throttled and logged and predicted and AS_MUCH <= predicted / logged <= 1 / AS_MUCH:
                strict[broker].add(sensor)
        return cls(strict, possible)

    def hold(self, row: Mapping[str, Any]) -> bool:
        """Whether one of the strict counters is that of all clients of the row."""
        strict = self.strict.get(row["broker"], _NO_SENSORS)
        return row["key"] not in _COUNTERS_OF_THEIR_OWN and strict.hold(*tags(row["sensor"]))

    def shared(self, row: Mapping[str, Any]) -> bool:
        """Whether another counter that throttles, or may, is charged for the same requests: one of bytes and time."""
        if row["key"] in _COUNTERS_OF_THEIR_OWN:
            return False
        whose = [tags(row["sensor"])]
        if len(row["clients"]) == row["client_count"]:
            whose = [(encode_user(client["user"]), client["client_id"]) for client in row["clients"]]
        others = self.possible.get((row["broker"], row["key"] != _TIME), _NO_SENSORS)
        return any(others.meet(*tags) for tags in whose)
