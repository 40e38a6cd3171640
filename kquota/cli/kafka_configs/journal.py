"""The journal of the drop-in: what it alters can be found by `kquota history` and taken back by `kquota undo`.

Kafka's tool knows no journal, so nothing of it shows: not in the output, nor in the exit code, nor where it cannot be
written. KQUOTA_KAFKA_CONFIGS_JOURNAL=off turns it off. Credentials are never in it.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator

from kquota.core.change.plan import Change, Plan
from kquota.core.change.report import Outcome
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.snapshot import Values
from kquota.documents.journal import Entry, Journal
from kquota.errors import Uncertain
from kquota.state import CLUSTER, journal_folder, state_folder

_SETTING = "KQUOTA_KAFKA_CONFIGS_JOURNAL"
Begin = Callable[[Entity, Values, Values], None]
"""To be called before each try of a write, with the entity's values before and after."""


def is_on() -> bool:
    """Whether a journal is to be kept."""
    return os.environ.get(_SETTING, "").strip().lower() not in ("off", "0", "false", "no")


@contextlib.contextmanager
def recording(cluster: str) -> Iterator[Begin]:
    """Writes down what the block alters on the cluster, and what came of it by how the block ends."""
    record = _Record(cluster)
    try:
        yield record.begin
    except BaseException as error:
        # Of an error nothing remains, unless an answer was lost; of an interruption nobody knows.
        known = isinstance(error, Exception) and not isinstance(error, Uncertain)
        record.finish("rolled back" if known else "incomplete", str(error) or type(error).__name__)
        raise
    record.finish("applied")


class _Record:
    """The entry of one command, if there is one."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._journal: Journal | None = None
        self._entry: Entry | None = None

    def begin(self, entity: Entity, before: Values, after: Values) -> None:
        # A second try finds other values: the first one has written nothing.
        self.finish("rolled back")
        if not is_on() or dict(before) == dict(after):
            return
        # Whatever is wrong with the journal: Kafka's tool would make the change.
        with contextlib.suppress(Exception):
            folder = journal_folder()
            # Its login is that of Kafka's tool: an entry of it stays on this host.
            self._journal = Journal(state_folder("journal", "KQUOTA_JOURNAL") if folder == CLUSTER else folder)
            plan = Plan((Change(entity, before, after, relative=True),))
            self._entry = self._journal.begin(plan, cluster=self._cluster, command="kafka-configs", now=_now())

    def finish(self, outcome: Outcome, error: str | None = None) -> None:
        entry, self._entry = self._entry, None
        if entry is not None and self._journal is not None:
            with contextlib.suppress(Exception):
                self._journal.finish(entry, outcome, now=_now(), error=error)


def _now() -> int:
    return time.time_ns() // 1_000_000
