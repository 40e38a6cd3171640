"""The seam to a cluster: a few methods that speak the domain.

Every backend gives the same answers (`tests/backends/contract.py` runs once per backend); `memory` is the reference. A
backend is a subclass, so that `help` shows the docstrings here on the object that `connect` returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from kquota.core.quotas.selector import EVERYTHING, QuotaFilter

if TYPE_CHECKING:
    from kquota.core.change.journal_store import JournalStore
    from kquota.core.change.plan import Cluster
    from kquota.core.quotas.alteration import Alteration, AlterResult
    from kquota.core.quotas.entity import Entity
    from kquota.core.quotas.snapshot import QuotaSnapshot
    from kquota.core.quotas.version import Version


class Closable(Protocol):
    """What holds connections: a context manager that is closed at its end."""

    def close(self) -> None:
        """Releases the connections; a second call does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class QuotaBackend(Closable, Protocol):
    """A place where quotas are set. Use it as a context manager, or call `close` when done."""

    def describe(self, filter: QuotaFilter = EVERYTHING) -> QuotaSnapshot:
        """The quotas that match, as one snapshot.

        Raises Unreachable or Unauthorized. What is stored but unusable is in `QuotaSnapshot.problems`.
        """

    def alter(self, alterations: Sequence[Alteration], *, validate_only: bool = False) -> tuple[AlterResult, ...]:
        """Applies each alteration to its entity as a whole; one result per entity, in the order of first mention.

        Alterations of the same entity are merged first. An entity that cannot be altered has its error in its result
        and is unchanged; the others are altered all the same. With `validate_only` nothing is written and `after` is
        what would be. Raises Unreachable, Unauthorized or Rejected when nothing at all could be done.
        """

    def wait_visible(self, results: Iterable[AlterResult], *, timeout_s: float = 10.0) -> tuple[Entity, ...]:
        """Waits until a describe shows what the results changed; returns the entities that it does not show in time.

        An entity that another writer changes meanwhile is among them. Only KRaft has something to wait for: a broker
        answers from its own copy of the metadata. Raises Unreachable, Unauthorized or Rejected.
        """
        written = [result for result in results if result.changed]
        shown = describe_entities(self, [result.entity for result in written])
        return tuple(result.entity for result in written if not result.is_shown_by(shown.get(result.entity, {})))

    # What only some stores know; by default there is nothing to tell.

    cluster_address: str = ""
    """The address that it was opened with: `kafka://HOST:PORT[,…]` or `zookeeper://HOST:PORT[,…][/CHROOT]`."""

    def cluster_id(self) -> str | None:
        """Kafka's cluster id; None where the servers do not say. Raises Unreachable."""
        return None

    def broker_count(self) -> int:
        """How many brokers are alive, each of which grants a limit by itself; 0 where that is not known.

        Raises Unreachable, Unauthorized, and Rejected by brokers that do not say.
        """
        return 0

    def release(self) -> Version | None:
        """The release of the brokers, or the newest one that kquota knows; None before 2.6, and where it is not known.

        Raises Unreachable or Unauthorized.
        """
        return None

    def elsewhere(self) -> str | None:
        """The place where brokers are, where none ever was at this one. Raises Unreachable or Unauthorized."""
        return None

    def scram_mechanisms(self, filter: QuotaFilter = EVERYTHING) -> Mapping[Entity, tuple[str, ...]]:
        """The mechanisms (`SCRAM-SHA-256`) per user that matches and has credentials beside the quotas.

        Their content is not in it. Raises Unreachable or Unauthorized.
        """
        return {}

    def journal(self) -> JournalStore | None:
        """The journal that the cluster keeps for all hosts, made for its first entry; None where it keeps none."""
        return None

    def alone(self, stop: Callable[[], bool] = lambda: False) -> AbstractContextManager[object]:
        """Keeps other kquota writers of this cluster on this host waiting, where its store does not compare and set.

        A holder may enter it again. Raises Locked when another one does not end in time, and Stopped once `stop` says
        so while it waits.
        """
        return nullcontext()


_EXACT = 24
"""Beyond so many entities one look at everything is cheaper than a look at each."""


def describe_entities(backend: QuotaBackend, entities: Iterable[Entity]) -> QuotaSnapshot:
    """The quotas of these entities, and of others where that is cheaper. Raises what `QuotaBackend.describe` raises."""
    from kquota.core.quotas.snapshot import merged

    wanted = list(dict.fromkeys(entities))
    if len(wanted) > _EXACT:
        return backend.describe()
    return merged(backend.describe(QuotaFilter(dict(entity.parts), strict=True)) for entity in wanted)


def cluster_of(backend: QuotaBackend) -> Cluster | None:
    """Which cluster a backend works on; None for one that is in no place. Raises Unreachable."""
    from kquota.core.change.plan import Cluster

    return Cluster(backend.cluster_address, backend.cluster_id()) if backend.cluster_address else None
