"""The backend: a session at the first use, `describe` by the reader, `alter` by the writer."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from kquota.backends import QuotaBackend, znode
from kquota.backends.addresses import Address, without_scheme
from kquota.backends.znode import NodeConfig
from kquota.backends.zookeeper.journal import ZooKeeperJournal
from kquota.backends.zookeeper.requests import Node
from kquota.backends.zookeeper.security import ZooKeeperSecurity
from kquota.backends.zookeeper.session import Session
from kquota.backends.zookeeper.writer import Writer
from kquota.core.quotas.alteration import Alteration, AlterResult
from kquota.core.quotas.entity import Entity, EntityType, trusted_entity
from kquota.core.quotas.selector import ANY, EVERYTHING, QuotaFilter
from kquota.core.quotas.snapshot import Ignored, Problem, QuotaSnapshot, Values
from kquota.errors import InputError

_IDS = "/brokers/ids"
_AGAIN_S = 1.0
"""How long servers that did not answer in time just before may take to connect."""


class ZooKeeperBackend(QuotaBackend):
    """Reads and writes the quotas of a cluster in ZooKeeper mode; see `QuotaBackend` for the contract.

    `connect` is `host:port[,host:port][/chroot]`, as in the brokers' zookeeper.connect. Connects at the first use;
    connecting takes at most `timeout_s` seconds, and so does waiting for any answer of the servers. With `patient`,
    servers that are not up yet are waited for as long. Raises InputError for a malformed address; later also for a
    chroot that does not exist.
    """

    def __init__(
        self, connect: str, *, timeout_s: float = 10.0, security: ZooKeeperSecurity | None = None, patient: bool = False
    ) -> None:
        self._address = Address.parse(connect)
        self.cluster_address = f"zookeeper://{without_scheme(connect, 'zookeeper')}"
        self._timeout_s = timeout_s
        self._security = security or ZooKeeperSecurity()
        self._patient = patient
        self._session: Session | None = None

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def describe(self, filter: QuotaFilter = EVERYTHING) -> QuotaSnapshot:
        return _Reader(self._open, filter).describe()

    def scram_mechanisms(self, filter: QuotaFilter = EVERYTHING) -> Mapping[Entity, tuple[str, ...]]:
        return _Reader(self._open, filter).scram_mechanisms()

    def alter(self, alterations: Sequence[Alteration], *, validate_only: bool = False) -> tuple[AlterResult, ...]:
        return Writer(self._open, validate_only=validate_only).alter(alterations)

    def broker_count(self) -> int:
        (names,) = self._open().children([_IDS])
        return len(names or ())

    def elsewhere(self) -> str | None:
        ids, names = self._open().children([_IDS, "/"])
        if ids is not None or names is None:
            return None
        below = self._open().children(f"/{name}{_IDS}" for name in names)
        return next((f"/{name}" for name, ids in zip(names, below, strict=True) if ids is not None), None)

    def cluster_id(self) -> str | None:
        (node,) = self._open().nodes([znode.CLUSTER_ID])
        return znode.cluster_id(node.data) if node is not None else None

    def journal(self) -> ZooKeeperJournal:
        return ZooKeeperJournal(self._open)

    def _open(self) -> Session:
        within_s = self._timeout_s
        if self._session is not None and not self._session.is_open:
            if self._session.is_silent:
                within_s = min(within_s, _AGAIN_S)
            self.close()
        if self._session is None:
            session = Session(self._address, self._timeout_s, self._security, patient=self._patient)
            session.open(within_s)
            self._session = session
        return self._session


_USER_LEVEL = frozenset({EntityType.USER})
_CLIENT_LEVEL = frozenset({EntityType.CLIENT_ID})
_PAIR_LEVEL = frozenset({EntityType.USER, EntityType.CLIENT_ID})
_IP_LEVEL = frozenset({EntityType.IP})
_UNENCODED = "governs nobody, for the user's name in its znode is not URL-encoded as brokers expect it"
# Nodes of named users and client-ids whose names need no decoding.
_PLAIN = re.compile(r"/config/(?:users/([\w.-]+)(?:/clients/([\w.-]+))?|clients/([\w.-]+))\Z", re.ASCII)


class _Reader:
    """One describe: which nodes a filter needs, read in bulk, and what a broker makes of them.

    `connect` is asked for a session when something is to be read.
    """

    def __init__(self, connect: Callable[[], Session], filter: QuotaFilter) -> None:
        self._connect = connect
        self._filter = filter

    def describe(self) -> QuotaSnapshot:
        """The snapshot of what matches the filter, with what a broker could not use."""
        shapes = _shapes(self._filter)
        if not shapes:
            return QuotaSnapshot()
        session = self._connect()
        problems: list[Problem] = []
        quotas: dict[Entity, Values] = {}
        ignored: list[Ignored] = []
        # Thousands of entities have the same few values.
        known: dict[bytes | None, Values] = {}
        for path, node in self._nodes(session, shapes):
            plain = _PLAIN.match(path)
            if plain is not None:
                user, client_of_user, client = plain.groups()
                entity = trusted_entity((user, client_of_user or client, None))
            else:
                try:
                    entity = znode.entity_of(path)
                except InputError as error:
                    problems.append(
                        Problem(path, f"{error}: a ZooKeeper-mode broker that starts with this node stops at once")
                    )
                    continue
            if not self._filter.matches(entity):
                continue
            values = known.get(node.data) if entity.ip is None else None
            if values is None:
                values, unusable = NodeConfig.decode(node.data).describe(entity, path)
                problems.extend(unusable)
                if not unusable and entity.ip is None:
                    known[node.data] = values
            if plain is None and entity.ip is None and (own := znode.znode_path(entity)) != path:
                if isinstance(entity.user, str) and not path.startswith(znode.znode_path(Entity(entity.user))):
                    # Brokers decode the name of a client-id, and compare the user's with the encoded principal.
                    if values:
                        problems.append(Problem(path, f"{_UNENCODED}; the node of {entity} is {own}"))
                    ignored += [Ignored(entity, key, value, _UNENCODED) for key, value in values.items()]
                    continue
                goes = f"alterations go to {own}, which replaces it, and deletions do not reach it"
                problems.append(Problem(path, f"an older name of {entity}: {goes}"))
                quotas.setdefault(entity, values)
            elif values or entity in quotas:
                quotas[entity] = values
        return QuotaSnapshot(quotas, tuple(problems), tuple(ignored))

    def scram_mechanisms(self) -> dict[Entity, tuple[str, ...]]:
        """The mechanisms that each user who matches has credentials for; no user without any."""
        shapes = _shapes(self._filter) & {_USER_LEVEL}
        by_user: dict[Entity, tuple[str, ...]] = {}
        for path, node in self._nodes(self._connect(), shapes) if shapes else ():
            mechanisms = NodeConfig.decode(node.data).scram_mechanisms
            if mechanisms:
                with contextlib.suppress(InputError):  # a problem, which describe tells
                    entity = znode.entity_of(path)
                    if self._filter.matches(entity):
                        by_user[entity] = mechanisms
        return by_user

    def _nodes(self, session: Session, shapes: frozenset[frozenset[EntityType]]) -> Iterator[tuple[str, Node]]:
        """The nodes that can match, in bulk: names first, then data, then what is below users."""
        # A pair's node is found through its user's.
        roots = {next(kind for kind in EntityType if kind in shape) for shape in shapes}
        listed = [kind for kind in EntityType if kind in roots]
        names = {kind: _named(self._filter, kind) for kind in listed}
        unnamed = [kind for kind in listed if names[kind] is None]
        lists = session.children(znode.ENTITY_ROOTS[kind] for kind in unnamed) if unnamed else []
        for kind, answer in zip(unnamed, lists, strict=True):
            names[kind] = answer or []
        paths = {kind: [f"{znode.ENTITY_ROOTS[kind]}/{name}" for name in names[kind] or ()] for kind in listed}

        clients = _named(self._filter, EntityType.CLIENT_ID)
        by_name = _PAIR_LEVEL in shapes and clients is not None
        users = paths.get(EntityType.USER, [])
        skipped = EntityType.USER if by_name and _USER_LEVEL not in shapes else None
        wanted = [path for kind in listed if kind is not skipped for path in paths[kind]]
        if by_name:
            # A named client-id is looked up under every user at once; most have none, and that is an answer too.
            wanted += [f"{user}/{znode.CLIENTS}/{client}" for user in users for client in clients or ()]
        below_users = set(users)
        parents = []
        for path, node in zip(wanted, session.nodes(wanted), strict=True):
            if node is not None:
                if path in below_users and node.children:
                    parents.append(f"{path}/{znode.CLIENTS}")
                yield path, node
        if _PAIR_LEVEL not in shapes or by_name or not parents:
            return
        below = []
        for parent, answer in zip(parents, session.children(parents), strict=True):
            below += [f"{parent}/{name}" for name in answer or ()]
        for path, node in zip(below, session.nodes(below), strict=True):
            if node is not None:
                yield path, node


def _shapes(filter: QuotaFilter) -> frozenset[frozenset[EntityType]]:
    """The combinations of entity types that the filter can match."""
    asked = filter.components.keys()
    every = (_USER_LEVEL, _CLIENT_LEVEL, _PAIR_LEVEL, _IP_LEVEL)
    return frozenset(shape for shape in every if (asked == shape if filter.strict else asked <= shape))


def _named(filter: QuotaFilter, kind: EntityType) -> list[str] | None:
    """The node's name that the filter asks for, no name where none could be stored, None where it asks for any."""
    match = filter.components.get(kind, ANY)
    if match is ANY:
        return None
    try:
        return [znode.encode_name(kind, match)]
    except InputError:
        return []
