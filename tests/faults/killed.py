"""An apply or an alter that kills itself at one of its steps, in a process of its own: `test_kills.py` starts it."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kquota import Alteration, Entity, QuotaBackend, QuotaKey, changes, reconcile
from kquota.access import connect
from kquota.core.change.plan import plan
from kquota.reconcile import Terms

KEY = QuotaKey.PRODUCER_BYTE_RATE
OLD = {Entity(user=f"u{number:02}"): {KEY: 1000} for number in range(0, 12, 2)}
NEW = {Entity(user=f"u{number:02}"): {KEY: 2000} for number in range(12)}
"""Half of the entities are created, half are updated."""
BATCH = 5
_steps = 0


def opened(settings: dict[str, str]) -> QuotaBackend:
    return connect(timeout_s=30, **settings)  # type: ignore[arg-type]


def clock() -> int:
    return time.time_ns() // 1_000_000


def around(owner: Any, name: str, stepping: Callable[[], None]) -> Callable[..., Any]:
    """Has it called before and behind each call of that function, which is returned."""
    original: Callable[..., Any] = getattr(owner, name)

    def stepped(*arguments: Any, **options: Any) -> Any:
        stepping()
        result = original(*arguments, **options)
        stepping()
        return result

    setattr(owner, name, stepped)
    return original


def write_and_die(command: str, settings: dict[str, str], journal: str, step: int) -> None:
    """Writes `NEW` as that command does, and is killed at the step of that number; ends as usual where there is none.

    `command` is `apply` or `alter`; `journal` is a folder, or `cluster`.
    """

    def stepping() -> None:
        global _steps
        _steps += 1
        if _steps == step:
            os.kill(os.getpid(), signal.SIGKILL)

    def commit(self: Any, transactions: Any, window: int) -> Iterator[Any]:
        stepping()
        for outcome in committed(self, transactions, window):
            stepping()
            yield outcome

    from kquota.backends.kafka.session import Session as KafkaSession
    from kquota.backends.zookeeper.session import Session
    from kquota.documents import folder as module

    with opened(settings) as backend:
        planned = plan(backend.describe(), NEW)
        # Connecting and planning write nothing: the steps begin here.
        for owner, name in ((os, "link"), (os, "fsync"), (os, "unlink"), (os, "ftruncate"), (module, "_write")):
            around(owner, name, stepping)
        committed = Session.commit
        Session.commit = commit  # type: ignore[method-assign]
        around(KafkaSession, "ask", stepping)
        reconcile._BATCH = BATCH
        book = changes.journal_of(backend, Path(journal))
        if command == "alter":
            wishes = [Alteration(entity, values) for entity, values in NEW.items()]
            changes.alter(
                backend, wishes, Terms(journal=book, cluster="killed", command="alter"), consent=lambda rehearsal: None
            )
        else:
            reconcile.apply(planned, backend, Terms(journal=book, cluster="killed", clock=clock))
