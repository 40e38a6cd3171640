"""`kquota follow`: reads usage as it comes, says what happens at once, and gives the findings at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import click

from kquota.access import Access
from kquota.audit.run import Usage
from kquota.cli import audited, auditing, grammar, usage
from kquota.cli.options import count, fine_duration, group, lasting, path, values
from kquota.cli.session import open_backend
from kquota.cli.streams import aside, note, safe, stoppable, warn
from kquota.cli.text import entity_text, many, moment, rate_text
from kquota.cli.views import View, shown_as
from kquota.core.change.history import QuotaHistory
from kquota.core.findings.finding import Episode, State, Under
from kquota.core.quotas.quota import limit_text
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.documents.audit import episode_document
from kquota.documents.derive import utc
from kquota.documents.encoding import to_json, to_json_line, write_text
from kquota.documents.history import history_document
from kquota.documents.quotas import writable
from kquota.errors import KquotaError, Unauthorized, Unreachable
from kquota.reconcile import now

if TYPE_CHECKING:
    from kquota.audit.follow.follow import Follower, Live, Turn
    from kquota.audit.result import AuditResult
    from kquota.audit.settings import AuditSettings


_PAUSE_S: Final = 0.2
"""The wait between two looks at the files."""
_SAVE_S: Final = 5.0
"""How often a checkpoint is written."""
_QUOTAS_S: Final = 5.0
"""How often brokers are asked for their quotas."""
HISTORY: Final = "quotas.json"
"""The file beside a checkpoint with the history of the quotas that was seen."""
_BEHIND_S: Final = 10.0
"""A turn that takes so long, with more to read after it, is behind."""


@dataclass(frozen=True, slots=True)
class Following:
    """How usage is followed. Lengths of time are in ms."""

    until_idle: int | None = lasting("End when nothing came for so long. Only the findings are printed then.")
    checkpoint: Path | None = path(
        "A folder for what is read; after an end or a kill the same command goes on from there.", metavar="DIR"
    )
    settle: int | None = lasting(
        "How far behind the newest line of its broker a line may come and count in an episode.",
        type=fine_duration,
        show_default="500ms",
    )
    episodes: tuple[str, ...] = values(
        "TARGET",
        "Where episodes go besides: a file of JSON lines, or the address of an Alertmanager (http://HOST:9093)."
        " May be given several times.",
    )
    keep: int = count(
        "The most to keep on the disk for the findings at the end, some 40 bytes a request.", metavar="GB", default=20
    )

    def check(self, usage: Usage) -> None:
        """Raises UsageError where the usage cannot be followed."""
        if usage.table is not None or usage.prometheus is not None:
            raise click.UsageError("kquota follow reads files or a topic; --table and --prometheus are read once")
        if "-" in usage.paths:
            raise click.UsageError("kquota follow reads files: write what comes from a pipe to a file first")
        if usage.engine == "spark" or usage.master is not None:
            raise click.UsageError(
                "kquota follow runs on this machine; on Spark, kquota.audit_stream follows a DataFrame"
            )


@grammar.command("follow")
@shown_as("table", "wide", "json", "csv", "markdown", takes_output=True)
def command(
    *,
    asked: usage.Asked = usage.ASKED_TO_FOLLOW,
    wanted: audited.Wanted = audited.WANTED,
    follow: Following = group(Following),
    output: str,
) -> View:
    """Follow a log or a topic: when throttling begins and ends.

    Files are read from their beginning, as they grow, are rotated and come anew; --since leaves out what was before. A
    line is printed when a counter begins to throttle its clients, and when it ended: the peak, the loudest clients, and
    the limit that would have been enough. Topic changes and connections of a request log are judged at the end only.

    Ctrl-C or SIGTERM ends it. At the end it shows what 'kquota audit' finds in the same files. For them the
    requests are kept on the disk, up to --keep. With --until-idle nothing but the findings is printed. With
    --checkpoint the same command goes on where it stopped, or was killed. The quotas of a live cluster are followed
    too: a change counts from the moment on when it is seen. 'kquota audit --help' explains the findings.

    \b
    Examples:
      kquota follow logs/broker-1/ --quotas quotas.yaml --checkpoint kept/
      kquota follow kafka-request.log --bootstrap-server host:9092 --since 1m
      kquota follow kafka-request.log --quotas quotas.yaml --until-idle 5s -o json
      kquota follow logs/ --bootstrap-server host:9092 --checkpoint kept/ --episodes http://alertmanager:9093
      kquota follow --topic usage --bootstrap-server host:9092 --episodes episodes.jsonl
    """
    settings = audited.settings_for(asked, wanted, output, "kquota follow")
    follow.check(asked.usage)
    settings.check_known(settings.read.since_ms)
    lines = follow.until_idle is None
    show = {"json": show_json, "table": show_text, "wide": show_text}.get(output)
    live = _live(asked, wanted.against)
    followed, seen = _follow(asked.usage, settings, follow, show if lines else None, live)

    def run(given: AuditSettings) -> AuditResult:
        """Other settings than those that were followed are audited on the files that are there in the end."""
        if given == seen:
            return followed
        with auditing.auditor(asked.usage, given) as batch:
            return batch(given)

    return audited.answered(asked, wanted, seen, run, output, in_a_line=lines)


def _live(asked: usage.Asked, against: str | None) -> _Watched | None:
    """The quotas whose changes count while files are followed: those of a cluster, unless a journal leads to them."""
    variant = 1 if against == "live" else 0
    access = asked.named.live.access if variant else asked.named.access
    if access is None or asked.quotas_journal is not None:
        return None
    known = asked.facts.settings()
    return _Watched(variant, access, lambda snapshot: asked.facts.enforced(snapshot, known))


class _Watched:
    """The quotas of a cluster, asked for aside again and again: no slow answer holds up the log.

    `variant` says which quotas of the settings they are. `enforced` gives the part of quotas that the brokers enforce.
    """

    def __init__(self, variant: int, access: Access, enforced: Callable[[QuotaSnapshot], QuotaSnapshot]) -> None:
        self._variant, self._access, self._enforced = variant, access, enforced
        self._asked: Future[tuple[QuotaSnapshot, int]] | None = None
        self._due_s, self._lost = 0.0, False
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._backend = stack.enter_context(open_backend(self._access))
            # What cannot be read of the quotas was said when they were read first.
            self._latest = replace(self._backend.describe(), problems=())
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        if self._asked is not None:
            wait([self._asked], _QUOTAS_S)
        self._stack.close()

    def live(self) -> Live:
        """The quotas as they begin, for a follower."""
        from kquota.audit.follow.follow import Live

        return Live(self._variant, QuotaHistory.of(self._latest), self._enforced)

    def begin(self, follower: Follower, folder: Path | None) -> None:
        """Has the present quotas count, where a checkpoint ended with others."""
        self._take(follower, folder, now())
        _keep(follower, folder)

    def changes(self, follower: Follower, folder: Path | None) -> None:
        """Has the quotas count that came since the last call, and asks again when it is time.

        Raises Unauthorized, and what nobody expected of a describe.
        """
        if self._asked is None and time.monotonic() >= self._due_s:
            self._due_s = time.monotonic() + _QUOTAS_S
            self._asked = aside(lambda: (self._backend.describe(), now()))
        if self._asked is None or not self._asked.done():
            return
        answered, self._asked = self._asked, None
        try:
            quotas, time_ms = answered.result()
        except Unauthorized:
            raise
        except KquotaError as error:
            if not self._lost or not isinstance(error, Unreachable):
                warn(f"{error.message}; the quotas of before count until they can be read again")
            self._lost = True
            return
        if self._lost:
            note("the quotas can be read again")
        self._lost, self._latest = False, replace(quotas, problems=())
        self._take(follower, folder, time_ms)

    def _take(self, follower: Follower, folder: Path | None, time_ms: int) -> None:
        since = follower.change(self._latest, time_ms)
        if since is not None:
            _keep(follower, folder)
            note(f"the quotas have changed: others count from {utc(since)} on")


def _keep(follower: Follower, folder: Path | None) -> None:
    """Writes the history of the quotas beside a checkpoint, for an audit of the same files later."""
    if folder is None or follower.history is None:
        return
    write_text(folder / HISTORY, to_json(history_document(follower.history.each(lambda quotas: writable(quotas)[0]))))


def _follow(
    usage: Usage,
    settings: AuditSettings,
    following: Following,
    show: Callable[[Episode], None] | None,
    live: _Watched | None,
) -> tuple[AuditResult, AuditSettings]:
    """Follows the files until it is stopped or nothing comes; `show` gets each episode.

    Returns the findings, and the settings with the history of the live quotas that was seen. Raises InputError where
    nothing was read, Refused for a checkpoint of other settings, and what reading live quotas, and a target of
    episodes, raises.
    """
    from kquota.audit.follow import sinks
    from kquota.audit.follow.follow import SETTLE_MS, Follower

    with stoppable() as stop, ExitStack() as opened, nullcontext() if live is None else live as quotas:
        paths = usage.paths if usage.topic is None else (usage.topic,)
        follower = Follower(
            paths,
            settings,
            dialect=usage.dialect,
            checkpoint_folder=following.checkpoint,
            settle_ms=SETTLE_MS if following.settle is None else following.settle,
            spool_bytes=following.keep * 10**9,
            live=None if quotas is None else quotas.live(),
            topic=usage.topic is not None,
        )
        opened.callback(follower.close)
        targets = []
        for target in following.episodes:
            targets.append(sinks.open_sink(target, warn))
            opened.callback(targets[-1].close)
            if targets[-1].forgets and follower.restarted:
                targets[-1].put(follower.open_episodes())
        troubles = _Troubles()
        for name in usage.paths:
            if not Path(name).exists():
                warn(f"{name}: no such file or folder yet; waiting for it", kept=False)
        if follower.restarted:
            kept = follower.settings.read.since_ms != settings.read.since_ms
            note(f"going on from the checkpoint{', with the --since of its first start' if kept else ''}")
        if quotas is not None:
            quotas.begin(follower, following.checkpoint)

        def report(episodes: Sequence[Episode], idle_s: float = 0.0) -> None:
            if show is not None:
                for episode in episodes:
                    show(episode)
            for target in targets:
                target.put(episodes, idle_s)

        def save() -> None:
            if following.checkpoint is not None:
                follower.save()

        saved = idle_since = time.monotonic()
        unread = -1
        while not stop():
            begun = time.monotonic()
            if quotas is not None:
                quotas.changes(follower, following.checkpoint)
            turn = follower.turn()
            report(turn.episodes, begun - idle_since)
            now = time.monotonic()
            troubles.turn(turn, now - begun)
            if turn.read_bytes or turn.unread_bytes != unread:
                idle_since, unread = now, turn.unread_bytes
            if following.until_idle is not None and 1000 * (now - idle_since) >= following.until_idle:
                break
            if now - saved >= _SAVE_S:
                save()
                saved = time.monotonic()
            if not turn.read_bytes:
                time.sleep(_PAUSE_S)
        save()
        idle_s = time.monotonic() - idle_since
        report(follower.end().episodes, idle_s)
        report(follower.open_episodes(), idle_s)
        what = ", ".join(paths) if usage.topic is None else f"topic {usage.topic}"
        return follower.result(what), follower.settings


class _Troubles:
    """The troubles of the turns so far: each is reported when it begins, and not in every turn."""

    def __init__(self) -> None:
        self._late = 0
        self._full = self._caught_up = False

    def turn(self, turn: Turn, took_s: float) -> None:
        """Warns of the new troubles of a turn that took so many seconds."""
        if self._caught_up and took_s >= _BEHIND_S and turn.unread_bytes:
            newest = "" if turn.newest_ms is None else f"; the newest line is of {moment(turn.newest_ms)}"
            warn(
                f"falling behind: {turn.unread_bytes:,} bytes came while {took_s:.0f} s were spent{newest}", kept=False
            )
        self._caught_up |= not turn.read_bytes
        if turn.late > self._late:
            many = f"{turn.late - self._late:,} requests came later than the settle time allows"
            warn(f"{many}: no episode has them, the findings do (a longer --settle waits for them)", kept=False)
            self._late = turn.late
        if turn.full and not self._full:
            warn("what --keep allows is full: episodes go on, the findings at the end lack what comes from now on")
            self._full = True


def show_json(episode: Episode) -> None:
    """Prints an episode as a line of JSON, at once."""
    click.echo(to_json_line(episode_document(episode)))


def show_text(episode: Episode) -> None:
    """Prints an episode as a line for people, at once."""
    click.echo(click.style(line(episode), fg="yellow" if episode.state.value == "began" else None))


def line(episode: Episode) -> str:
    """An episode in a line."""
    key = episode.key
    value = int(episode.limit) if key.value_type.integral else episode.limit
    began = episode.state is State.BEGAN
    parts = [
        utc(episode.begin_ms if began else episode.end_ms),
        f"{episode.state.value:<5}",
        f"{episode.subject}{f' on broker {episode.broker}' if episode.broker else ''}",
        f"{key} {limit_text(key, value)} of {entity_text(episode.entity)}",
    ]
    if episode.under is Under.AGAINST:
        parts.append("(under --against)")
    loudest = next((client.client_id or client.user for client in episode.clients), "")
    if began:
        parts.append(f"at {rate_text(episode.peak_rate, key.unit)}")
        parts += [f"by {loudest}"] if loudest else []
    else:
        least = "at least " if episode.at_least else ""
        parts += [
            f"for {(episode.end_ms - episode.begin_ms) / 1000:,.1f} s",
            f"peak {rate_text(episode.peak_rate, key.unit)}",
            f"{episode.throttled_events:,} of {many(episode.events, 'request')} delayed,"
            f" {episode.throttle_time_max_ms:,} ms at most",
            f"loudest {loudest} of {episode.client_count:,}" if loudest else "",
            f"enough: {least}{rate_text(episode.enough, key.unit)}",
            "the log itself: no delay" if episode.logged_throttled_events == 0 else "",
        ]
    return safe("  ".join(part for part in parts if part))
