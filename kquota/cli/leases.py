"""What people read about leases: which values end and when, what ended, and how cron ends them."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kquota.access import FILES, Access
from kquota.backends import QuotaBackend, cluster_of
from kquota.cli.contexts import journal_folder
from kquota.cli.streams import note, once, warn
from kquota.cli.text import entity_text, many, moment, safe
from kquota.core.quotas.quota import QuotaKey, Value, limit_text
from kquota.errors import InputError, KquotaError
from kquota.state import CLUSTER

if TYPE_CHECKING:
    from kquota.core.change.plan import Cluster
    from kquota.documents.journal import Journal, Unreadable
    from kquota.leases import Lease, Leases

_PATH_OF_CRON = "/usr/bin:/bin"
_MOST = 5
"""More lines would bury the answer; `kquota history --leases` has all."""


def shown(key: QuotaKey, value: Value | None) -> str:
    """A value of a lease in words."""
    return "no quota" if value is None else limit_text(key, value)


def named(lease: Lease) -> str:
    """Which value: the entity and the key."""
    return f"{entity_text(lease.entity)} {lease.key}"


def end_of(lease: Lease, now: int) -> str:
    """When a lease that is on ends, and what follows."""
    follows = ": 'kquota reconcile' sets" if lease.is_overdue(now) else ", then"
    return f"{_until(lease, now)}{follows} {shown(lease.key, lease.then)} again (entry {lease.entry.name})"


def known_leases(journal: Journal, cluster: Callable[[], Cluster | None]) -> Leases:
    """The leases of a cluster, to be shown. What cannot be read is a warning, as no answer depends on it.

    The cluster is asked who it is only where the journal has leases.
    """
    from kquota.leases import Leases, read_entries

    try:
        pages = read_entries(journal)
    except KquotaError as error:
        warn(f"{safe(error.message)}: it is not known which values end")
        return Leases()
    warn_unread(pages.unreadable, journal)
    here = cluster() if any(entry.expires is not None for entry in pages.entries) else None
    return Leases() if here is None else Leases.of(pages.of(here))


def warn_unread(unreadable: Sequence[Unreadable], journal: Journal) -> None:
    """Says on stderr that leases may be missing, where files of the journal cannot be read."""
    if unreadable:
        count = many(len(unreadable), "file")
        warn(
            f"{count} of the journal {safe(journal.folder)} cannot be read, so that values may end which nothing shows:"
            " 'kquota history' says why"
        )


def leases_of(backend: QuotaBackend, where: Cluster | None = None) -> Leases:
    """The leases of a live cluster in the journal that no option names; none where nothing has an end."""
    from kquota.leases import Leases

    try:
        folder = journal_folder()
        if folder != CLUSTER:
            folder.stat()
    except FileNotFoundError:
        return Leases()
    except InputError as error:  # without a home folder, or where the contexts cannot be read
        once(f"which values end is not known: {error.message}", warn)
        return Leases()
    except OSError:
        pass  # the reading says why it cannot be read
    from kquota.changes import journal_of

    return known_leases(journal_of(backend, folder), lambda: where or cluster_of(backend))


def few(lines: Iterable[str]) -> Iterator[str]:
    """The first of many lines, and how many more there are."""
    texts = list(lines)
    yield from texts[:_MOST]
    if len(texts) > _MOST:
        yield f"and {len(texts) - _MOST} more: 'kquota history --leases' lists them"


def ends_of(leases: Sequence[Lease]) -> list[str]:
    """When each lease ends, in words."""
    if not leases:
        return []
    from kquota.reconcile import now

    time = now()
    return [end_of(lease, time) for lease in leases]


def note_ends(leases: Sequence[Lease]) -> None:
    """Says on stderr which of the values that were shown end, and when."""
    for line in few(ends_of(leases)):
        note(line)


def note_changed(kept: Sequence[Lease], ended: Sequence[Lease], expires: int | None, permanent: str = "") -> None:
    """Says on stderr what a write, or a plan, means for the leases that are on, and when their values end."""
    from kquota.reconcile import now

    def then(lease: Lease) -> str:
        if expires is None:
            return permanent or "this makes it permanent"
        return f"with this it ends {moment(expires)} UTC, then {shown(lease.key, lease.back)} again"

    for line in few(f"{_until(lease, now())} (entry {lease.entry.name}); {then(lease)}" for lease in kept):
        note(line)
    for line in few(f"this ends the lease of entry {lease.entry.name}: {_until(lease, now())}" for lease in ended):
        note(line)


def _until(lease: Lease, now: int) -> str:
    when = "is overdue since" if lease.is_overdue(now) else "until"
    return f"{named(lease)}: {shown(lease.key, lease.value)} {when} {moment(lease.ends)} UTC"


def note_end(expires: int, then: Sequence[str], access: Access | None, journal: Path, *, dry_run: bool) -> None:
    """Says when a write ends, in ms since the epoch, what follows, and how cron makes it end."""
    what = f", then {then[0]}" if len(then) == 1 else ""
    if dry_run:
        note(f"would end {moment(expires)} UTC{what}")
        return
    note(f"ends {moment(expires)} UTC{what}, if 'kquota reconcile' runs; nothing else ends it. A line for cron:")
    note(crontab_line(access, journal))


def crontab_line(access: Access | None, journal: Path) -> str:
    """What cron runs every five minutes for that cluster and that journal."""
    # Cron looks for programs in few folders.
    program = "kquota" if shutil.which("kquota", path=_PATH_OF_CRON) else shutil.which("kquota") or "kquota"
    words = [program, "reconcile", "--quiet", *cluster_words(access)]
    # Also the usual journal: a context may name another one before the lease is over.
    words += ["--journal", str(journal if journal == CLUSTER else journal.absolute())]
    # Cron takes an unescaped % for the end of the line.
    return safe(f"*/5 * * * * {shlex.join(words)}".replace("%", "\\%"))


def cluster_words(access: Access | None) -> list[str]:
    """The options that name a cluster, and how to log in there."""
    if access is None:
        return []
    if access.context is not None:
        return ["--context", access.context]
    words = []
    for name in ("zookeeper" if access.is_zookeeper else "bootstrap_server", *FILES):
        if value := getattr(access, name):
            words += [f"--{name.replace('_', '-')}", str(value.absolute() if isinstance(value, Path) else value)]
    return words
