"""Request logs that are followed, as a source of live metrics: exact, as each request is in them.

A log knows more than any metric: who is in a counter, since when it is throttled, and which limit would have been
enough. It shows only what quotas charge: a client without a quota is in no counter.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from kquota.audit.follow.counters import counter_of
from kquota.audit.follow.follow import Follower, Live
from kquota.audit.settings import AuditSettings
from kquota.audit.sources.lost import Lost
from kquota.audit.sources.origins import check
from kquota.core.change.history import QuotaHistory
from kquota.core.findings.finding import Under
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.errors import InputError
from kquota.live.sources import Look, Missing, named
from kquota.reconcile import now


class Logs:
    """Some logs by `[BROKER=]PATH`, a file or a folder each; `settings` say how brokers enforce, and how to read.

    Each look reads what came since. The first look reads the logs from their beginnings. Quotas hold from the look on
    that is given them. `close` removes what is kept on the disk.
    """

    def __init__(self, logs: Sequence[str], settings: AuditSettings, *, clock: Callable[[], int] = now) -> None:
        self._settings, self._clock = settings, clock
        self._paths: dict[str | None, list[str]] = {}
        for broker, path in map(named, logs):
            self._paths.setdefault(broker, []).append(path)
        self._followers: list[Follower] = []
        self._late = self._bytes = 0

    @property
    def name(self) -> str:
        """The logs as people call them."""
        paths = [path for logs in self._paths.values() for path in logs]
        return f"log {paths[0]}" if len(paths) == 1 else f"{len(paths)} logs"

    def look(self, quotas: QuotaSnapshot | None = None) -> Look:
        """Reads what came, and gives each counter as of the newest settled line of its broker.

        Raises InputError for a path that cannot be followed, for a log of several brokers, and where no path is there
        at the first look.
        """
        snapshot = QuotaSnapshot({}) if quotas is None else quotas
        if not self._followers:
            self._begin(snapshot)
        late = 0
        for follower in self._followers:
            follower.change(snapshot, self._clock())
            turn = follower.turn()
            if not turn.read_bytes and turn.unread_bytes:
                turn = follower.turn()  # files that are read whole are read once they stopped growing
            late += turn.late
            self._bytes += turn.read_bytes
        missing = [
            Missing(file.path, file.reason) for follower in self._followers for file in follower.quality.unread_files
        ]
        if late > self._late:
            new = late - self._late
            missing.append(Missing(self.name, f"{new:,} line{'' if new == 1 else 's'} came too late to be counted"))
        self._late = late
        for follower in self._followers:
            noted = follower.quality.noted
            check(self.name, (note for shown in noted.values() for note in shown))
            if lacks := Lost(noted).lacks:
                missing.append(Missing(self.name, lacks))
        if not self._bytes:
            missing.append(Missing(self.name, "no request is logged yet: 'kquota record' switches the request log on"))
        return Look(
            (),
            tuple(missing),
            tuple(
                Missing(f"{reject.source}, {reject.place}", reject.reason)
                for follower in self._followers
                for reject in follower.quality.rejects
            ),
            tuple(observed for follower in self._followers for observed in follower.observed()),
            {
                counter_of(episode): episode
                for follower in self._followers
                for episode in follower.open_episodes()
                if episode.under is Under.TESTED
            },
            unread_are=("line", "lines"),
        )

    def _begin(self, quotas: QuotaSnapshot) -> None:
        """Opens the logs. Raises InputError where none is there."""
        paths = [path for logs in self._paths.values() for path in logs]
        if not any(Path(path).exists() for path in paths):
            raise InputError(f"{paths[0]}: no such file or folder")
        settings, live = self._settings, Live(0, QuotaHistory.of(quotas), lambda enforced: enforced)
        for broker, logs in self._paths.items():
            read = replace(settings.read, broker=broker)
            self._followers.append(Follower(logs, replace(settings, read=read), spool_bytes=0, watched=True, live=live))

    def close(self) -> None:
        """Ends it."""
        for follower in self._followers:
            follower.close()
        self._followers = []
