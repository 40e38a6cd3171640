"""Following changes: a watch on the notifications that brokers follow, and the nodes that these name, read again.

A notification says which entity was written and not what; what differs is found by comparing with what was read before.
So nothing is lost where the connection is: everything is read again, and compared. Source: `kafka.server.
DynamicConfigManager` and `kafka.common.ZkNodeChangeNotificationListener` of Kafka 2.8.
"""

import threading
from collections.abc import Callable, Iterable
from typing import Final

from kquota.backends import znode
from kquota.backends.zookeeper.reader import Reader
from kquota.backends.zookeeper.requests import GET_DATA, Node
from kquota.backends.zookeeper.session import Session
from kquota.core.change.plan import Change, plan
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.filter import EVERYTHING, QuotaFilter
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.errors import InputError, Unreachable

_MANY: Final = 16
"""Beyond so many notifications at once it is as well to read everything."""
_QUOTAS: Final = tuple(f"{root}/" for root in znode.ENTITY_ROOTS.values())


class _Alarm:
    """Rings once: when there are notifications, or when a session will tell of no more."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.rung = threading.Event()
        self.lost = False

    def ring(self, told: bool) -> None:
        """Called by the session."""
        self.lost = self.lost or not told
        self.rung.set()


class ZooKeeperWatch:
    """Follows the notifications of a cluster; see `QuotaWatch`. `connect` is asked for a session before each reading.

    What is written without a notification, by no tool of Kafka's, shows when everything is read again: brokers, too, do
    not see it before they start anew.
    """

    def __init__(self, connect: Callable[[], Session]) -> None:
        self._connect = connect
        self._snapshot = QuotaSnapshot()
        self._seen: frozenset[str] = frozenset()
        self._alarm: _Alarm | None = None

    def start(self) -> QuotaSnapshot:
        self._read_everything(self._listen())
        return self._snapshot

    def wait(self, timeout_s: float) -> tuple[Change, ...]:
        # Without an alarm the next call reads everything: so it does after any error from here on.
        alarm, self._alarm = self._alarm, None
        if alarm is None:
            return self._read_everything(self._listen())
        rung = alarm.rung.wait(timeout_s)
        if alarm.lost or not alarm.session.is_open:
            raise Unreachable(f"lost ZooKeeper at {alarm.session.address}")
        if not rung:
            self._alarm = alarm
            return ()
        return self._read_news(self._listen())

    def _listen(self) -> tuple[_Alarm, frozenset[str]]:
        """Asks to be told of the next notification; the alarm, and the notifications that there are already."""
        session = self._connect()
        alarm = _Alarm(session)
        return alarm, frozenset(session.watch_children(znode.CHANGES, alarm.ring) or ())

    def _read_everything(self, listening: tuple[_Alarm, frozenset[str]]) -> tuple[Change, ...]:
        # The notifications are listed first: one that comes while the nodes are read rings, and changes nothing.
        after = Reader(self._connect, EVERYTHING).describe()
        changes = plan(self._snapshot, after, prune=True).changes
        self._snapshot = after
        self._alarm, self._seen = listening
        return changes

    def _read_news(self, listening: tuple[_Alarm, frozenset[str]]) -> tuple[Change, ...]:
        alarm, names = listening
        news = sorted(names - self._seen)
        last = max(self._seen, default="")
        # Their numbers begin anew where somebody deleted the node above them. (Brokers delete each after 15 minutes.)
        continued = news and news[0] > last and (not last or last in names)
        entities = self._entities(alarm.session, news) if continued else None
        if entities is None:
            return self._read_everything(listening)
        after = dict(self._snapshot)
        for entity in entities:
            exact = QuotaFilter(dict(entity.parts), strict=True)
            after[entity] = Reader(self._connect, exact).describe().get(entity, {})
        named = {entity: after[entity] for entity in entities}
        before = QuotaSnapshot({entity: self._snapshot.get(entity, {}) for entity in entities})
        changes = plan(before, named, prune=True).changes
        self._snapshot = QuotaSnapshot(after)
        self._alarm, self._seen = listening
        return changes

    def _entities(self, session: Session, news: list[str]) -> set[Entity] | None:
        """Whose quotas those notifications are about; None where everything has to be read."""
        # An entity with a problem may have a second node, of an older name.
        if len(news) > _MANY or self._snapshot.problems:
            return None
        answers = session.read([(GET_DATA, f"{znode.CHANGES}/{name}") for name in news])
        if not all(isinstance(answer, Node) for answer in answers):
            return None
        try:
            return set(_quota_entities(answer.data for answer in answers if isinstance(answer, Node)))
        except InputError:
            return None


def _quota_entities(notifications: Iterable[bytes | None]) -> Iterable[Entity]:
    """The entities that have quotas among those that are named; others are topics, brokers and the like.

    Raises InputError for a notification that names no one entity, or one under an older name of its node.
    """
    for data in notifications:
        path = znode.notified_path(data)
        if path.startswith(_QUOTAS):
            entity = znode.entity_of(path)
            if znode.znode_path(entity) != path:
                raise InputError(f"{path} is an older name of {entity}")
            yield entity
