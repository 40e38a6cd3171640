"""The seam to a cluster: a few methods that speak the domain.

Every backend gives the same answers (`tests/backends/contract.py` runs once per backend); `memory` is the reference. A
backend is a subclass, so that `help` shows the docstrings here on the object that `connect` returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

from kquota.core.quotas.filter import EVERYTHING, QuotaFilter

if TYPE_CHECKING:
    from kquota.core.change.broker import Broker, BrokerAlteration, BrokerAlterResult, BrokerSnapshot
    from kquota.core.change.journal_store import JournalStore
    from kquota.core.change.plan import Cluster
    from kquota.core.change.recording import Level, Space
    from kquota.core.quotas.alteration import Alteration, AlterResult
    from kquota.core.quotas.entity import Entity
    from kquota.core.quotas.snapshot import QuotaSnapshot
    from kquota.core.quotas.version import Version


class Closable(Protocol):
    """What holds connections: a context manager that is closed at its end."""

    def close(self) -> None:
        """Releases the connections; a second call does nothing."""
        ...

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
        ...

    def alter(self, alterations: Sequence[Alteration], *, validate_only: bool = False) -> tuple[AlterResult, ...]:
        """Applies each alteration to its entity as a whole; one result per entity, in the order of first mention.

        Alterations of the same entity are merged first. An entity that cannot be altered has its error in its result
        and is unchanged; the others are altered all the same. With `validate_only` nothing is written and `after` is
        what would be. Raises Unreachable, Unauthorized or Rejected when nothing at all could be done.
        """
        ...

    def wait_visible(self, results: Iterable[AlterResult], *, timeout_s: float = 10.0) -> tuple[Entity, ...]:
        """Waits until a describe shows what the results changed; returns the entities that it does not show in time.

        Only KRaft has something to wait for: a broker answers from its own copy of the metadata.
        """
        ...


@runtime_checkable
class SeesCredentials(Protocol):
    """A backend whose store holds SCRAM credentials beside the quotas.

    It reports that they are there, never their content.
    """

    def scram_mechanisms(self, filter: QuotaFilter = EVERYTHING) -> Mapping[Entity, tuple[str, ...]]:
        """The mechanisms (`SCRAM-SHA-256`) per user that matches and has any. Raises Unreachable or Unauthorized."""
        ...


@runtime_checkable
class KnowsBrokers(Protocol):
    """A backend that knows how many brokers there are, each of which grants a limit by itself."""

    def broker_count(self) -> int:
        """How many brokers are alive. Raises Unreachable, Unauthorized, and Rejected by brokers that do not say."""
        ...


@runtime_checkable
class KnowsPlace(Protocol):
    """A backend whose store may have quotas at several places, of which brokers read one."""

    def elsewhere(self) -> str | None:
        """The place where brokers are, where none ever was at this one. Raises Unreachable or Unauthorized."""
        ...


@runtime_checkable
class KnowsRelease(Protocol):
    """A backend that knows which release of Kafka the brokers are."""

    def release(self) -> Version | None:
        """The release, or the newest one that kquota knows; None before 2.6. Raises Unreachable or Unauthorized."""
        ...


@runtime_checkable
class KnowsCluster(Protocol):
    """A backend that knows which cluster it works on."""

    @property
    def cluster_address(self) -> str:
        """The address that it was opened with: `kafka://HOST:PORT[,…]` or `zookeeper://HOST:PORT[,…][/CHROOT]`."""
        ...

    def cluster_id(self) -> str | None:
        """Kafka's cluster id; None where the servers do not say. Raises Unreachable."""
        ...


@runtime_checkable
class KeepsJournal(Protocol):
    """A backend whose cluster can keep a journal of its own, for all hosts."""

    def journal(self) -> JournalStore:
        """The journal that the cluster keeps; it is made for its first entry."""
        ...


@runtime_checkable
class WritesAlone(Protocol):
    """A backend whose store does not compare and set, so that kquota's own writers wait for each other."""

    def alone(self, stop: Callable[[], bool] = ...) -> AbstractContextManager[object]:
        """Keeps other kquota writers of this cluster on this host waiting; a holder may enter it again.

        Raises Locked when another one does not end in time, and Stopped once `stop` says so while it waits.
        """
        ...


_EXACT = 24
"""Beyond so many entities one look at everything is cheaper than a look at each."""


def describe_entities(backend: QuotaBackend, entities: Iterable[Entity]) -> QuotaSnapshot:
    """The quotas of these entities, and of others where that is cheaper. Raises what `QuotaBackend.describe` raises."""
    from kquota.core.quotas.snapshot import QuotaSnapshot

    wanted = list(dict.fromkeys(entities))
    if len(wanted) > _EXACT:
        return backend.describe()
    parts = [backend.describe(QuotaFilter(dict(entity.parts), strict=True)) for entity in wanted]
    return QuotaSnapshot(
        {entity: values for part in parts for entity, values in part.items()},
        tuple(dict.fromkeys(problem for part in parts for problem in part.problems)),
    )


def cluster_of(backend: QuotaBackend) -> Cluster | None:
    """Which cluster a backend works on; None for one that is in no place. Raises Unreachable."""
    from kquota.core.change.plan import Cluster

    return Cluster(backend.cluster_address, backend.cluster_id()) if isinstance(backend, KnowsCluster) else None


class BrokerConfigs(Closable, Protocol):
    """The limits of brokers, and the settings by which they measure quotas. A context manager, as a `QuotaBackend`."""

    def describe(self, broker: Broker | None = None) -> BrokerSnapshot:
        """The configs of one broker, or of the cluster-wide default and all brokers.

        Raises InputError for a broker that there is not; Unreachable, Unauthorized, Rejected.
        """
        ...

    def alter(self, alteration: BrokerAlteration, *, validate_only: bool = False) -> BrokerAlterResult:
        """Applies the alteration as a whole; with `validate_only` nothing is written and `after` is what would be.

        Raises InputError for what the broker does not take, and as `describe` does.
        """
        ...

    def wait_visible(self, result: BrokerAlterResult, *, timeout_s: float = 10.0) -> bool:
        """Waits until the broker shows what the result changed; returns whether it did in time."""
        ...


class BrokerLoggers(Closable, Protocol):
    """The request loggers of a cluster's brokers or controllers. A context manager, as a `QuotaBackend`."""

    @property
    def noun(self) -> str:
        """What a node is called: `broker` or `controller`."""
        ...

    def place(self) -> Cluster:
        """Which cluster it is. Raises Unreachable, Unauthorized, Rejected."""
        ...

    def nodes(self) -> tuple[int, ...]:
        """The ids of the nodes that are alive. Raises as `place` does."""
        ...

    def level(self, node: int) -> Level:
        """The level of a node's request logger. Raises InputError for a node that is not alive, and as `place` does."""
        ...

    def set_level(self, node: int, level: str | None) -> None:
        """Sets the level of a node's request logger; None takes its own level away, so that it has an ancestor's.

        Raises Uncertain where an answer was lost, and as `level` does.
        """
        ...

    def spaces(self, node: int) -> tuple[Space, ...]:
        """The volumes of a broker's log dirs. Raises Rejected where the node does not say, and as `level` does."""
        ...
