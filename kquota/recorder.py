"""Recording requests: the request logger of brokers is switched on, watched, and always switched back.

The lease is in the journal before the first switch. Whatever ends the process, `take_back` leads back: `kquota undo`
and `kquota reconcile` call it. Each switch compares first, and a level that somebody else has set meanwhile stays.
"""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from kquota.backends.addresses import option_of, scheme_of
from kquota.backends.kafka.brokers import KafkaLoggers
from kquota.core.change.plan import Plan
from kquota.core.change.recording import (
    Bounds,
    Draft,
    Estimate,
    Fate,
    LevelChange,
    Reading,
    Settled,
    Space,
    objections,
    turns,
)
from kquota.documents.journal import Command, Entry, Journal
from kquota.errors import Conflict, InputError, KquotaError, Rejected, Unreachable
from kquota.metrics.meters import Meter

GRACE_MS = 60_000
"""How long after its end a lease stands: the recording itself switches back, and `reconcile` only when it did not."""
_TICK_S = 0.2
_SPACE_S = 10.0
_NOTHING = Reading(0, 0, exact=True)
Ended: TypeAlias = Literal["time", "requests", "size", "space", "signal", "error", "nothing to do"]


@dataclass(frozen=True)
class Recorded:
    """What came of a recording. Times are ms since the epoch; `readings` are per node, where a meter counted.

    `error` is why it ended early; `unfinished` why the journal does not know what came of it.
    """

    ended_by: Ended
    started: int
    finished: int
    settled: tuple[Settled, ...]
    readings: Mapping[int, Reading] = field(default_factory=dict)
    entry: str | None = None
    error: KquotaError | None = None
    unfinished: str | None = None

    @property
    def total(self) -> Reading | None:
        """What all nodes wrote; None where no meter counted."""
        return sum(self.readings.values(), _NOTHING) if self.readings else None


def draft(
    loggers: KafkaLoggers,
    nodes: Sequence[int] | None,
    bounds: Bounds,
    meters: Mapping[int, Meter] | None = None,
    *,
    probe_s: float = 2.0,
) -> Draft:
    """Looks at the nodes (None: all that are alive), and estimates what a recording would write; writes nothing.

    Meters that count while the logger is off (metrics pages) are read twice, `probe_s` seconds apart. Raises InputError
    for a node that is not alive, Unreachable, Unauthorized, Rejected.
    """
    chosen = tuple(dict.fromkeys(nodes)) if nodes is not None else loggers.nodes()
    levels = {node: loggers.level(node) for node in chosen}
    changes = tuple(LevelChange(node, level) for node, level in levels.items() if not level.records)
    off = [change.node for change in changes]
    rates = _rates({node: meter for node, meter in (meters or {}).items() if node in off}, probe_s)
    lengths = bounds.on_ms(off) if off else {}
    estimates = tuple(Estimate(node, rates.get(node), lengths[node]) for node in off)
    spaces = tuple(space for node in off for space in _spaces(loggers, node))
    return Draft(
        chosen, levels, changes, bounds, estimates, spaces, objections(changes, estimates, spaces, bounds, loggers.noun)
    )


def _rates(meters: Mapping[int, Meter], probe_s: float) -> dict[int, float]:
    """Requests per second by node, of the meters that count requests which are not logged."""
    counting = {node: meter for node, meter in meters.items() if meter.counts_unlogged}
    if not counting:
        return {}
    begun: dict[int, float] = {}
    for node, meter in counting.items():
        meter.start()
        begun[node] = time.monotonic()
    time.sleep(probe_s)
    return {
        node: meter.read().requests / max(time.monotonic() - begun[node], 0.001) for node, meter in counting.items()
    }


def _spaces(loggers: KafkaLoggers, node: int) -> tuple[Space, ...]:
    try:
        return loggers.spaces(node)
    except Rejected:  # a controller has no log dirs to describe
        return ()


@dataclass
class _Recording:
    """One run: which nodes are on, since when, and what their meters have counted."""

    loggers: KafkaLoggers
    meters: Mapping[int, Meter]
    bounds: Bounds
    said: Callable[[str], None]
    on_since: dict[int, float] = field(default_factory=dict)
    on_ms: dict[int, int] = field(default_factory=dict)
    before: dict[int, Reading] = field(default_factory=dict)
    """What was counted in the turns that are over."""
    now: dict[int, Reading] = field(default_factory=dict)
    due_s: dict[int, float] = field(default_factory=dict)

    def switch_on(self, change: LevelChange) -> None:
        """Raises Conflict where somebody else has changed the level, and what the node raises."""
        node = change.node
        shown = self.loggers.level(node)
        if shown.name != change.before.name:
            raise Conflict(
                f"{self.loggers.noun} {node}: the logger was set to {shown.name} by somebody else meanwhile",
                hint="plan the recording anew",
            )
        meter = self.meters.get(node)
        if meter is not None:
            meter.start()
        self.on_since[node] = time.monotonic()
        self.due_s[node] = 0.0
        self.loggers.set_level(node, change.after)
        shown = self.loggers.level(node)
        if shown.name != change.after:
            raise Rejected(f"{self.loggers.noun} {node}: the logger was set to {change.after}, and is {shown.name}")

    def switch_off(self, change: LevelChange) -> Settled:
        """Never raises a KquotaError: what cannot be done is said in the outcome."""
        settled = switch_back(self.loggers, change)
        since = self.on_since.pop(change.node, None)
        if since is not None:
            self.on_ms[change.node] = self.on_ms.get(change.node, 0) + round(1000 * (time.monotonic() - since))
            with contextlib.suppress(KquotaError):
                self._read(change.node)
            if change.node in self.now:
                self.before[change.node] = self.before.get(change.node, _NOTHING) + self.now.pop(change.node)
        return replace(settled, on_ms=self.on_ms.get(change.node, 0))

    @property
    def readings(self) -> dict[int, Reading]:
        """What was counted so far, by node."""
        return {
            node: self.before.get(node, _NOTHING) + self.now.get(node, _NOTHING)
            for node in self.meters
            if node in self.before or node in self.now
        }

    def look(self) -> Ended | None:
        """Reads the meters that are due, and says which bound is reached. Raises what a meter raises."""
        for node in self.on_since:
            if node in self.meters and time.monotonic() >= self.due_s.get(node, 0.0):
                self._read(node)
                self.due_s[node] = time.monotonic() + self._pause_s(node)
        total = sum(self.readings.values(), _NOTHING)
        if self.bounds.requests is not None and total.requests >= self.bounds.requests:
            return "requests"
        if self.bounds.size is not None and total.bytes >= self.bounds.size:
            return "size"
        return None

    def is_full(self) -> bool:
        """Whether a log dir of a node that is on has no room left beside the reserve."""
        return any(space.left == 0 for node in self.on_since for space in _spaces(self.loggers, node))

    def _read(self, node: int) -> None:
        meter = self.meters.get(node)
        if meter is not None:
            self.now[node] = meter.read()

    def _pause_s(self, node: int) -> float:
        """Until the next look: sooner where a bound would be reached before, at the rate so far."""
        pause = self.meters[node].interval_s
        seconds = time.monotonic() - self.on_since[node]
        total = sum(self.readings.values(), _NOTHING)
        own = self.now[node]
        for bound, counted, grown in (
            (self.bounds.requests, total.requests, own.requests),
            (self.bounds.size, total.bytes, own.bytes),
        ):
            if bound is not None and grown and seconds > 0:
                pause = min(pause, max(0.0, (bound - counted) / (grown / seconds)))
        return max(pause, _TICK_S)


def record(
    draft: Draft,
    loggers: KafkaLoggers,
    *,
    journal: Journal,
    clock: Callable[[], int],
    meters: Mapping[int, Meter] | None = None,
    stop: Callable[[], bool] = lambda: False,
    said: Callable[[str], None] = lambda line: None,
    begun: Callable[[Entry], None] = lambda entry: None,
) -> Recorded:
    """Switches the loggers on as the draft says, until a bound is reached, and back again.

    `clock` gives ms since the epoch; `stop` is asked several times a second; `begun` gets the journal's entry before
    the first switch, and `said` a line for each switch. Raises what the journal raises before the first switch. What
    happens afterwards is in the result and in the journal. KeyboardInterrupt goes through: the journal leads back.
    """
    bounds = draft.bounds
    already = [Settled(node, draft.levels[node].name, Fate.ALREADY_ON, draft.levels[node].name) for node in draft.on]
    started = clock()
    if not draft.changes:
        return Recorded("nothing to do", started, started, tuple(already))
    place = loggers.place()
    lease = Entry("", place.address, "record", started, Plan((), cluster=place), levels=draft.changes)
    entry = journal.begin(replace(lease, expires=started + bounds.for_ms + GRACE_MS))
    begun(entry)
    run = _Recording(loggers, meters or {}, bounds, said)
    changes = {change.node: change for change in draft.changes}
    settled: dict[int, Settled] = {}
    ended: Ended = "time"
    error: KquotaError | None = None
    with contextlib.ExitStack() as stack:
        stack.callback(journal.release, entry)
        try:
            ended = _run(run, changes, settled, stop)
        except KquotaError as problem:
            ended, error = "error", problem
        for change in draft.changes:
            if change.node in run.on_since or change.node not in settled:
                settled[change.node] = run.switch_off(change)
                said(_line(loggers, settled[change.node]))
        outcomes = (*already, *(settled[change.node] for change in draft.changes))
        finished = clock()
        unfinished = None
        over = all(logger.fate.is_settled for logger in outcomes)
        why = next((logger.error for logger in outcomes if logger.error is not None), error.message if error else None)
        try:
            journal.finish(entry, "rolled back" if over else "incomplete", now=finished, error=why)
        except KquotaError as problem:
            unfinished = problem.message
    return Recorded(ended, started, finished, outcomes, run.readings, entry.id, error, unfinished)


def _run(
    run: _Recording, changes: Mapping[int, LevelChange], settled: dict[int, Settled], stop: Callable[[], bool]
) -> Ended:
    """Turn after turn, until a bound is reached. The nodes of the last turn are still on then."""
    begin = time.monotonic()
    for turn in turns(tuple(changes), run.bounds.for_ms, run.bounds.rotate):
        ended = _wait(run, begin + turn.start_ms / 1000, stop)
        if ended is not None:
            return ended
        for node in turn.nodes:
            run.switch_on(changes[node])
            run.said(f"{run.loggers.noun} {node}: on")
        ended = _wait(run, begin + turn.end_ms / 1000, stop)
        if ended is not None:
            return ended
        if run.bounds.rotate is not None:
            for node in turn.nodes:
                settled[node] = run.switch_off(changes[node])
                run.said(_line(run.loggers, settled[node]))
                if not settled[node].fate.is_settled:
                    # No second broker is burdened while the first may still be on.
                    raise Unreachable(settled[node].error or f"{run.loggers.noun} {node}: not known to be off")
    return "time"


def _wait(run: _Recording, until: float, stop: Callable[[], bool]) -> Ended | None:
    """Waits, and looks at the meters and the room meanwhile; None when the time has come."""
    looked = time.monotonic()
    while True:
        if stop():
            return "signal"
        ended = run.look()
        if ended is not None:
            return ended
        now = time.monotonic()
        if now - looked >= _SPACE_S and run.on_since:
            looked = now
            if run.is_full():
                return "space"
        if now >= until:
            return None
        time.sleep(min(_TICK_S, until - now))


def switch_back(loggers: KafkaLoggers, change: LevelChange) -> Settled:
    """Takes one change back as far as it is kquota's own, and verifies it. Errors are in the outcome, never raised."""
    node, before = change.node, change.before.name
    try:
        shown = loggers.level(node).name
        if shown in (before, change.restored):
            return Settled(node, before, Fate.AS_BEFORE, shown)
        if shown != change.after:
            return Settled(node, before, Fate.FOREIGN, shown)
        inherited = change.before.inherited
        loggers.set_level(node, None if inherited else change.restored)
        shown = loggers.level(node).name
        if shown != change.restored and inherited:
            # The ancestor's level has changed since: the logger gets its old level as its own.
            loggers.set_level(node, change.restored)
            shown = loggers.level(node).name
        return Settled(node, before, Fate.RESTORED if shown == change.restored else Fate.UNVERIFIED, shown)
    except KquotaError as error:
        return Settled(node, before, Fate.UNKNOWN, None, error.message)


def take_back(
    entry: Entry, loggers: KafkaLoggers, *, journal: Journal, clock: Callable[[], int], command: Command
) -> tuple[Settled, ...]:
    """Switches back what a recording left on: the end of undo and reconcile. The journal gets an entry of its own.

    Raises InputError for an entry of controllers where brokers are asked, and the other way round.
    """
    place = loggers.place()
    if scheme_of(entry.cluster) != scheme_of(place.address):
        raise InputError(f"{entry.id} switched loggers at {entry.cluster}", hint=f"give {option_of(entry.cluster)}")
    own = journal.begin(Entry("", entry.cluster, command, clock(), Plan((), cluster=place), undoes=entry.id))
    settled = tuple(switch_back(loggers, change) for change in entry.levels)
    over = all(logger.fate.is_settled for logger in settled)
    why = next((logger.error for logger in settled if logger.error is not None), None)
    journal.finish(own, "applied" if over else "incomplete", now=clock(), error=why)
    return settled


def _line(loggers: KafkaLoggers, settled: Settled) -> str:
    return f"{loggers.noun} {settled.node}: {settled.fate.value}" + (f", {settled.now}" if settled.now else "")


def is_due(entry: Entry, journal: Journal, now: int) -> bool:
    """Whether a lease is over: its time has come, or its recorder died on this host or could not switch all back."""
    if entry.expires is not None and entry.expires <= now:
        return True
    return bool(entry.levels) and (entry.outcome == "incomplete" or journal.is_abandoned(entry))
