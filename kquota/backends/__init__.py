"""The seam to a cluster: three methods that speak the domain.

Every backend gives the same answers (`tests/backends/contract.py` runs once per backend); `memory` is the reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from kquota.core.alteration import Alteration, AlterResult
from kquota.core.filter import EVERYTHING, QuotaFilter
from kquota.core.snapshot import QuotaSnapshot

if TYPE_CHECKING:
    from kquota.backends.zookeeper import ZooKeeperSecurity


class QuotaBackend(Protocol):
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

    def close(self) -> None:
        """Releases the connection; a second call does nothing."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


def connect(*, zookeeper: str, timeout_s: float = 10.0, security: ZooKeeperSecurity | None = None) -> QuotaBackend:
    """The backend of a cluster, by the connect string of its ZooKeeper: `host:port[,host:port][/chroot]`.

    The connection is made when it is first needed; each wait for the cluster is at most `timeout_s` seconds. Raises
    InputError for a malformed connect string.
    """
    from kquota.backends.zookeeper import ZooKeeperBackend

    return ZooKeeperBackend(zookeeper, timeout_s=timeout_s, security=security)
