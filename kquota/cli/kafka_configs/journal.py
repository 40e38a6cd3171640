"""The journal of the drop-in: what it alters can be found by `kquota history` and taken back by `kquota undo`.

Kafka's tool knows no journal, so nothing of it shows: not in the output, nor in the exit code, nor where it cannot be
written. KQUOTA_KAFKA_CONFIGS_JOURNAL=off turns it off. Credentials are never in it.
"""

import contextlib
import os
from collections.abc import Callable, Iterator

from kquota.core.change.plan import Change, Outcome, Plan
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.snapshot import Values
from kquota.documents.journal import Entry, Journal
from kquota.errors import Uncertain
from kquota.reconcile import now
from kquota.state import CLUSTER, journal_folder, state_folder

_SETTING = "KQUOTA_KAFKA_CONFIGS_JOURNAL"
Begin = Callable[[Entity, Values, Values], None]
"""To be called before each try of a write, with the entity's values before and after."""


@contextlib.contextmanager
def recording(cluster: str) -> Iterator[Begin]:
    """Writes down what the block alters on the cluster, and what came of it by how the block ends."""
    begun: list[tuple[Journal, Entry]] = []

    def begin(entity: Entity, before: Values, after: Values) -> None:
        # A second try finds other values: the first one has written nothing.
        finish("rolled back")
        is_off = os.environ.get(_SETTING, "").strip().lower() in ("off", "0", "false", "no")
        if is_off or dict(before) == dict(after):
            return
        # Whatever is wrong with the journal: Kafka's tool would make the change.
        with contextlib.suppress(Exception):
            folder = journal_folder()
            # Its login is that of Kafka's tool: an entry of it stays on this host.
            book = Journal(state_folder("journal", "KQUOTA_JOURNAL") if folder == CLUSTER else folder)
            plan = Plan((Change(entity, before, after, relative=True),))
            begun.append((book, book.begin(Entry("", cluster, "kafka-configs", now(), plan))))

    def finish(outcome: Outcome, error: str | None = None) -> None:
        while begun:
            book, entry = begun.pop()
            with contextlib.suppress(Exception):
                book.finish(entry, outcome, now=now(), error=error)

    try:
        yield begin
    except BaseException as error:
        # Of an error nothing remains, unless an answer was lost; of an interruption nobody knows.
        known = isinstance(error, Exception) and not isinstance(error, Uncertain)
        finish("rolled back" if known else "incomplete", str(error) or type(error).__name__)
        raise
    finish("applied")
