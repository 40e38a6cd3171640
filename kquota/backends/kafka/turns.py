"""Taking turns: kquota's own writers of one cluster on one host wait for each other, as no broker compares and sets."""

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from kquota.core.quotas.entity import DEFAULT, Entity
from kquota.core.quotas.quota import QuotaKey, Value, differ
from kquota.errors import InputError
from kquota.lock import locked
from kquota.state import state_folder


class Wrote(NamedTuple):
    """What brokers acknowledged of a key: its value, and the one before; None is for none.

    `blind` is what a controller acknowledged, which does not show the one before.
    """

    value: Value | None
    before: Value | None
    blind: bool = False

    def is_covered(self, shown: Value | None) -> bool:
        """Whether what a broker shows is a later write of somebody else."""
        return not self.blind and differ(shown, self.value) and differ(shown, self.before)


Written = Mapping[Entity, Mapping[QuotaKey, Wrote]]
"""What brokers acknowledged, by entity and key."""

_WAIT_S: Final = 60.0
_FRESH_S: Final = 10.0
"""How long a broker may lag behind what the writer before has written, generously."""
_MOST_REMEMBERED: Final = 10_000
_FOLDER = "KQUOTA_LOCKS"


def locks_folder() -> Path:
    """`$KQUOTA_LOCKS`, else `kquota/locks` below `$XDG_STATE_HOME` or `~/.local/state`: a file for each cluster."""
    if given := os.environ.get(_FOLDER):
        return Path(given)
    return state_folder("locks", _FOLDER)


class Turns:
    """The turns of one writer. The cluster's id is the same by every address, of brokers and of controllers.

    Without an id (brokers before Kafka 2.8, controllers before 3.7), writers by one address take turns.
    """

    def __init__(self, cluster_id: Callable[[], str | None], address: str) -> None:
        self._cluster_id, self._address = cluster_id, address
        self._name: str | None = None
        self._depth = 0
        self._descriptor: int | None = None
        self._wrote: dict[Entity, Mapping[QuotaKey, Wrote]] = {}

    @contextlib.contextmanager
    def alone(
        self, heed: Callable[[Written], None] = lambda written: None, stop: Callable[[], bool] = lambda: False
    ) -> Iterator[None]:
        """Holds the turn; its holder may enter again. `heed` gets what the previous writer wrote moments ago.

        A broker that answers from its own copy of the metadata may not show that yet. Raises Locked when another
        writer does not end within a minute; Stopped once `stop`, which is asked while it waits, says so; InputError
        where KQUOTA_LOCKS names a folder that cannot be used. Where the folder of the state cannot be used, nobody
        waits.
        """
        if self._depth:
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
            return
        with contextlib.ExitStack() as stack:
            descriptor = self._enter(stack, stop)
            if descriptor is not None and (written := _remembered(descriptor)):
                heed(written)
            self._depth, self._descriptor, self._wrote = 1, descriptor, {}
            try:
                yield
            finally:
                self._depth, self._descriptor = 0, None
                if descriptor is not None and self._wrote:
                    _remember(descriptor, self._wrote)

    def writes(self) -> None:
        """Forgets what the writer before wrote, as this writer is about to write over it.

        If this writer is killed, the next one waits for no value that will never be shown again.
        """
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, 0)

    def wrote(self, written: Written) -> None:
        """Has the next writer look for it, where this one has the turn."""
        if self._depth:
            self._wrote.update(written)

    def _enter(self, stack: contextlib.ExitStack, stop: Callable[[], bool]) -> int | None:
        self._name = self._name or f"the cluster {self._cluster_id() or f'at {self._address}'}"
        import hashlib

        digest = hashlib.sha256(self._name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        try:
            folder = locks_folder()
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            shared = bool(os.environ.get(_FOLDER))
            return stack.enter_context(
                locked(folder / f"{digest}.lock", wait_s=_WAIT_S, what=self._name, shared=shared, stop=stop)
            )
        except (OSError, ImportError, InputError) as error:  # InputError: nobody's home
            if given := os.environ.get(_FOLDER):
                raise InputError(
                    f"{given}: the lock of writers cannot be held there: {getattr(error, 'strerror', None) or error}",
                    hint=f"{_FOLDER} names a folder that all writers can write",
                ) from None
            return None


def _remembered(descriptor: int) -> Written:
    """What the writer before noted, if that was a moment ago; nothing where it cannot be read."""
    try:
        note: Any = json.loads(os.pread(descriptor, os.fstat(descriptor).st_size, 0) or b"{}")
        if not 0 <= time.time() - note.get("time_s", 0) < _FRESH_S:
            return {}
        return {
            Entity(*(DEFAULT if name is True else name for name in names)): {
                QuotaKey(key): Wrote(*wrote) for key, wrote in values.items()
            }
            for names, values in note["wrote"]
        }
    except Exception:  # a note that somebody else made of it is none
        return {}


def _remember(descriptor: int, written: Written) -> None:
    rows = [
        [
            [True if name is DEFAULT else name for name in entity],
            {key.value: wrote for key, wrote in values.items()},
        ]
        for entity, values in written.items()
    ]
    note = {"pid": os.getpid(), "time_s": time.time(), "wrote": rows if len(rows) <= _MOST_REMEMBERED else []}
    with contextlib.suppress(OSError, ValueError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(note).encode("utf-8", "surrogatepass"), 0)
