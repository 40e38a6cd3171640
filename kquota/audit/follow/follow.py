"""The follower: reads what came, turn by turn, and gives episodes at once and the findings at the end."""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import numpy as np

from kquota.audit.batch import MAX_REJECTS_PER_SPLIT, Batch, Tally, UnreadFile
from kquota.audit.engines import local, stages
from kquota.audit.evidence.whole import result
from kquota.audit.follow import checkpoint
from kquota.audit.follow.counters import Counters
from kquota.audit.follow.tail import Followed, Increment, Tail, TopicTail
from kquota.audit.ledger.charge import Charger
from kquota.audit.ledger.rows import Ledger
from kquota.audit.result import AuditResult
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import Piece, ReadSettings, read, usage_topic
from kquota.audit.sources.data_log import ConnectionLog, DataLog
from kquota.audit.sources.requests import REQUESTS, Kept, Requests
from kquota.core.change.history import QuotaHistory
from kquota.core.findings.finding import Episode
from kquota.core.findings.use import Observed
from kquota.core.quotas.snapshot import QuotaSnapshot

SETTLE_MS: Final = 500
"""How far behind the newest line of its broker a line may come and still be in its place.

A broker's threads log requests as they complete them. In the recorded logs no line is 200 ms behind an earlier one.
"""
SPOOL_BYTES: Final = 20 << 30
"""So much is kept for the findings at the end."""

_Waiting = tuple[int, local.Place | Ledger]
"""The time of the first request of a ledger, and where it is: in the spool, or here where nothing is kept."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What one turn gave."""

    read_bytes: int
    """What was read; of a whole file its size."""
    unread_bytes: int
    """What came meanwhile, and is read in the next turn."""
    episodes: tuple[Episode, ...]
    """Those that began or ended."""
    late: int
    """Events that came after the settle time of their broker, of all turns: no episode has them."""
    newest_ms: int | None
    """The time of the newest event."""
    full: bool
    """Whether the spool is full: the findings at the end lack what came since."""


@dataclass(frozen=True, slots=True)
class Live:
    """Quotas of a cluster, which may change while usage is followed."""

    variant: int
    """Which quotas of the settings they are."""
    history: QuotaHistory
    """How they begin, as the cluster holds them."""
    enforced: Callable[[QuotaSnapshot], QuotaSnapshot]
    """The part of quotas that the brokers enforce."""


@dataclass(slots=True)
class Known:
    """What a follower knows, as a checkpoint keeps it; `save` fills in what others hold while it runs."""

    files: list[Followed] = field(default_factory=list)
    order: list[int] = field(default_factory=list)
    lost_bytes: int = 0
    ledger_bytes: int = 0
    counters: dict[str, Any] = field(default_factory=dict)
    """Broker → what is kept of its counters."""
    history: QuotaHistory | None = None
    """The history of the live quotas that was seen, as the cluster held them."""
    reading: ReadSettings | None = None
    """How the files were read; without passwords."""
    brokers: list[str] = field(default_factory=list)
    """The broker of each file."""
    tallies: dict[int, Tally] = field(default_factory=dict)
    """What was read of each file."""
    void: set[int] = field(default_factory=set)
    """Files that were replaced after they had been read."""
    full: bool = False
    """Whether the spool is full: nothing more is kept for the findings."""
    newest_ms: int | None = None
    """The time of the newest event that was read, of anybody."""
    requests: Kept | None = None


class Follower:
    """Follows the files of some paths; with `topic`, the topic of usage records of that name.

    `turn` reads what came and waits for nothing; the caller decides when. `result` gives the findings so far, as the
    batch audit of the same files gives them. With a `checkpoint` folder, `save` writes a state from which another
    follower of the same paths and settings goes on. Without `spool_bytes` nothing is kept for findings. With `watched`,
    `observed` names the clients of each counter. `live` are the quotas that `change` may change; their
    history so far is in a checkpoint. Raises Refused for a checkpoint of another version or of other settings.
    """

    def __init__(
        self,
        paths: Sequence[str],
        settings: AuditSettings,
        *,
        dialect: str = "auto",
        checkpoint_folder: Path | None = None,
        settle_ms: int = SETTLE_MS,
        spool_bytes: int = SPOOL_BYTES,
        watched: bool = False,
        live: Live | None = None,
        topic: bool = False,
    ) -> None:
        self.settings, self._live = settings, live
        self._paths, self._dialect, self._settle_ms, self._spool_bytes = tuple(paths), dialect, settle_ms, spool_bytes
        self._folder, self._watched, self._topic = checkpoint_folder, watched, topic
        self._own = Path(tempfile.mkdtemp(prefix="kquota-follow-")) if checkpoint_folder is None else None
        self._held = ExitStack() if checkpoint_folder is None else checkpoint.claim(checkpoint_folder)
        try:
            if topic:
                self._held.enter_context(usage_topic.consuming(settings.read.kafka or {}, keep=True))
            self._about = checkpoint.about(settings, settle_ms, None if live is None else live.variant)
            saved: Known | None = None if checkpoint_folder is None else checkpoint.load(checkpoint_folder, self._about)
            if saved is not None and saved.reading is not None:
                # What came between two runs is not before either of them.
                read = replace(settings.read, since_ms=saved.reading.since_ms)
                self.settings = settings = replace(settings, read=read)
            self.restarted = saved is not None
            """Whether it goes on from a checkpoint."""
            known = saved or Known()
            if live is not None:
                known.history = known.history or live.history
                self.settings = settings.under(live.variant, known.history.each(live.enforced))
            self._begin(known)
        except BaseException:
            self._held.close()
            raise

    def _begin(self, known: Known) -> None:
        """Goes on from what is known."""
        # What is kept of counters is as large as the counters.
        self._known = replace(known, counters={}, requests=None)
        kafka, timeout_s = dict(self.settings.read.kafka or {}), self.settings.read.timeout_s
        place = known.files, known.order, known.lost_bytes
        self.tail: Tail = (
            TopicTail(self._paths, usage_topic.DIALECT, *place, kafka=kafka, timeout_s=timeout_s)
            if self._topic
            else Tail(self._paths, self._dialect, *place)
        )
        self._spool = local.Store((self._folder or self._own or Path()) / "ledger", known.ledger_bytes)
        self._counters = {
            broker: Counters.going_on(kept, self.settings, self._settle_ms) for broker, kept in known.counters.items()
        }
        self._charger = Charger(replace(self.settings, per_client=True))
        self._requests = self._of_requests(known.requests)

    def _of_requests(self, kept: Kept | None = None) -> Requests:
        return Requests({file.path for file in self._known.files}, kept)

    def turn(self, *, last: bool = False) -> Turn:
        """Reads what came; with `last` also what is read only when nothing more is waited for: half a line, say."""
        increments = self.tail.look(last=last)
        for file in self.tail.broken_up():
            self._requests = self._of_requests()  # what is void was not there before
            self._known.void.add(file.number)
            self._known.tallies.pop(file.number, None)
        known, reading, brokers = self._known, self._reading_settings(), self.tail.brokers()
        kept = replace(reading, kafka=None)  # a checkpoint holds no password
        otherwise = kept != known.reading or brokers[: len(known.brokers)] != known.brokers
        if known.reading is not None and otherwise:
            # What all files together say has changed: what was read of them meant something else.
            self._spool.close()
            self._begin(Known(history=known.history))
            return self.turn(last=last)
        known.reading, known.brokers = kept, brokers
        pending: dict[str, list[_Waiting]] = {}
        newest: dict[str, int] = {}
        read_bytes = 0
        for increment in increments:
            self._read(increment, reading, pending, newest)
            read_bytes += increment.split.size
        for broker, waiting in pending.items():
            self._advance(broker, waiting)
        for broker in newest.keys() & self._counters.keys():
            self._counters[broker].pass_to(newest[broker])
        episodes = [episode for _, counters in sorted(self._counters.items()) for episode in counters.episodes()]
        for broker in pending:
            self._counters[broker].forget()
        return Turn(
            read_bytes,
            self.tail.unread,
            tuple(episodes),
            sum(counters.late for counters in self._counters.values()),
            max((counters.newest_ms for counters in self._counters.values()), default=None),
            known.full,
        )

    def end(self) -> Turn:
        """The last turn: reads half a line and files that still change, and replays all that is held.

        A checkpoint is saved before it: whoever goes on from there reads these again.
        """
        turn = self.turn(last=True)
        for counters in self._counters.values():
            counters.end()
        more = [episode for _, counters in sorted(self._counters.items()) for episode in counters.episodes()]
        return replace(turn, episodes=(*turn.episodes, *more))

    def change(self, quotas: QuotaSnapshot, time_ms: int) -> int | None:
        """Has other live quotas hold from that time on, or from behind the newest event that was read if that is later.

        Returns the time (epoch ms); None where these quotas hold already. `settings` then has the longer history, and
        the findings are the findings of a batch audit under it.
        """
        live, history = self._live, self.history
        if live is None or history is None:
            raise ValueError("no quotas are live")
        if quotas == history.latest:
            return None
        # What was read was charged under the quotas of before.
        times = [time_ms, *(time + 1 for time in (self._known.newest_ms, *history.changes_ms[-1:]) if time is not None)]
        self._known.history = history.then(quotas, max(times))
        longer = self.settings.variants[live.variant].then(live.enforced(quotas), max(times))
        self.settings = self.settings.under(live.variant, longer)
        self._charger.change(self.settings)
        for counters in self._counters.values():
            counters.change(self.settings)
        return max(times)

    @property
    def quality(self) -> Tally:
        """What was read so far, and what was not."""
        quality = Tally.total([*self._known.tallies.values()])
        for dialect, shown in (("request-log", {*self._requests.left()}), (REQUESTS, self._requests.sketch())):
            if shown:
                quality.note(dialect, *shown)
        unread = [UnreadFile(path, "no such file or folder") for path in self.tail.missing]
        if self.tail.lost is not None:
            unread.append(UnreadFile(self._paths[0], self.tail.lost))
        if self._known.full:
            unread.append(UnreadFile(str(self._paths[0]), "the spool is full: what came afterwards is not in it"))
        quality.unread = {file.path: file for file in unread} | quality.unread
        return quality

    @property
    def history(self) -> QuotaHistory | None:
        """The history of the live quotas that was seen, as the cluster held them."""
        return self._known.history

    def observed(self) -> list[Observed]:
        """What is known of each counter under the quotas now, as far as its broker's log is settled: exact rates."""
        return [observed for _, counters in sorted(self._counters.items()) for observed in counters.observed()]

    def open_episodes(self) -> list[Episode]:
        """The episodes that may go on."""
        return [episode for _, counters in sorted(self._counters.items()) for episode in counters.open_episodes()]

    def result(self, what: str) -> AuditResult:
        """The findings so far; errors call the usage `what`. Raises InputError where nothing was read."""
        if not self.tail.files:
            self.tail.check()
        settings = replace(self.settings, read=self._known.reading or self.settings.read)
        ranks = self.tail.ranks()

        def parcels() -> Iterator[stages.Parcel]:
            self._requests.end()
            yield self.quality
            for (file, part), parcel in self._spool:
                if file in self._known.void:
                    continue
                # The order of a batch audit of the files.
                ordinal = (ranks[file] + len(ranks), part)
                if isinstance(parcel, Ledger):
                    yield replace(parcel, ordinal=ordinal)
                elif isinstance(parcel, stages.Placed):
                    if not isinstance(parcel.log, DataLog) or settings.sizes_fetches:
                        yield parcel._replace(ordinal=ordinal)
                elif not isinstance(parcel, ConnectionLog) or settings.limits_ips:
                    yield parcel

        return result(local.in_buckets(parcels(), settings, self._spool.size), settings, what, "local")

    def save(self) -> None:
        """Writes a checkpoint, where there is a folder for it. Raises InputError."""
        if self._folder is None:
            return
        self._spool.sync()
        state = replace(
            self._known,
            order=self.tail.order,
            lost_bytes=self.tail.lost_bytes,
            ledger_bytes=self._spool.size,
            counters={broker: counters.kept() for broker, counters in self._counters.items()},
            requests=self._requests.kept(),
        )
        checkpoint.save(self._folder, self._about, state)

    def close(self) -> None:
        """Closes the spool; one without a checkpoint is removed."""
        self._spool.close()
        self._held.close()
        if self._own is not None:
            shutil.rmtree(self._own, ignore_errors=True)

    # --- reading ---

    def _reading_settings(self) -> ReadSettings:
        """How files are read: as a batch audit of the same files reads them, or more."""
        settings, kept, live = self.settings, self._spool_bytes > 0, self._live is not None
        return replace(
            settings.read,
            # They are for the findings alone. Quotas that may change may need them one day.
            addresses=kept and (live or settings.limits_ips),
            data=kept and (live or settings.sizes_fetches),
        )

    def _read(
        self, increment: Increment, reading: ReadSettings, pending: dict[str, list[_Waiting]], newest: dict[str, int]
    ) -> None:
        followed, known = increment.file, self._known
        split = replace(increment.split, broker=known.brokers[followed.number])
        tally = Tally(requests=self._requests)
        before = self._charger.ungoverned
        for piece, broker in by_broker(read(split, reading, tally)):
            ordinal = (followed.number, followed.parts)
            followed.parts += 1
            if broker is not None and isinstance(piece, Batch) and len(piece):
                newest[broker] = max(int(piece.time_ms.max()), newest.get(broker, 0))
            for parcel in self._parcels(piece, ordinal):
                place = self._spool.add((ordinal, parcel)) if self._spool_bytes and not known.full else None
                if broker is not None and isinstance(parcel, Ledger):
                    pending.setdefault(broker, []).append((int(parcel.time.min()), place or parcel))
        tally.ungoverned = self._charger.ungoverned - before
        self.tail.took(increment)
        if not known.full:
            total = known.tallies[followed.number] = Tally.total([known.tallies.get(followed.number, Tally()), tally])
            del total.rejects[MAX_REJECTS_PER_SPLIT:]
            known.full = 0 < self._spool_bytes < self._spool.size

    def _parcels(self, piece: Piece, ordinal: tuple[int, int]) -> Iterator[stages.Parcel]:
        if not isinstance(piece, Batch):
            yield from (parcel for _, parcel in stages.placed(piece, ordinal, 1))
            return
        if len(piece):
            self._known.newest_ms = max(int(piece.time_ms.max()), self._known.newest_ms or 0)
        self._charger.charge(piece)
        yield from self._charger.take(ordinal)

    def _advance(self, broker: str, waiting: list[_Waiting]) -> None:
        """Replays what came of a broker."""
        counters = self._counters.get(broker)
        if counters is None:
            counters = self._counters[broker] = Counters(self.settings, self._settle_ms, watched=self._watched)
        waiting.sort(key=itemgetter(0))
        counters.take(piece if isinstance(piece, Ledger) else next(local.values_at([piece]))[1] for _, piece in waiting)


def by_broker(pieces: Iterator[Piece]) -> Iterator[tuple[Piece, str | None]]:
    """The pieces, each with its broker where it holds requests: their time is the broker's own."""
    for piece in pieces:
        if not isinstance(piece, Batch):
            yield piece, None
            continue
        codes = np.unique(piece.broker.codes).tolist()
        names: dict[str, list[int]] = {}
        for code in codes:
            names.setdefault(piece.broker.values[code], []).append(code)
        if len(names) == 1:
            yield piece, next(iter(names))
            continue
        for name, own in names.items():
            yield piece.take(np.isin(piece.broker.codes, own)), name
