"""Why a login to ZooKeeper fails, or what it may do: one step after the other, and nothing is written."""

from collections.abc import Iterator, Sequence
from typing import Final

from kquota.backends import znode
from kquota.backends.addresses import Address
from kquota.backends.greeting import unreached
from kquota.backends.zookeeper.requests import Acl
from kquota.backends.zookeeper.security import ZooKeeperSecurity
from kquota.backends.zookeeper.session import Session
from kquota.core.check import Check, failure, ok, warning
from kquota.errors import KquotaError

AREA: Final = "cluster"
_WRITE, _CREATE, _DELETE, _ADMIN = 2, 4, 8, 16
_CHANGING: Final = _WRITE | _CREATE | _DELETE | _ADMIN
_BROKERS: Final = "/brokers/ids"
_ROOTS: Final = (znode.CHANGES, *znode.ENTITY_ROOTS.values())


def check_ensemble(connect: str, security: ZooKeeperSecurity, timeout_s: float) -> Iterator[Check]:
    """The checks of a cluster by its ZooKeeper, each as soon as it is known.

    Connecting has `timeout_s` seconds, and so has each answer. Raises InputError for a malformed address.
    """
    address = Address.parse(connect)
    failed = [
        failure(AREA, f"{host}:{port}", *why)
        for host, port in address.hosts
        if (why := unreached(host, port, timeout_s / len(address.hosts))) is not None
    ]
    if len(failed) == len(address.hosts):
        yield from failed
        return
    yield from (warning(check.area, check.subject, check.message, check.remedy) for check in failed)
    session = Session(address, timeout_s, security)
    try:
        session.open()
    except KquotaError as error:
        yield failure(AREA, str(address), error)
        return
    try:
        encrypted = "TLS" if security.tls is not None else "no TLS"
        who = f"logged in as {security.username!r} ({security.scheme})" if security.username else "no login"
        yield ok(AREA, f"{address}{address.chroot}", f"ZooKeeper, {encrypted}, {who}")
        yield from _cluster(session)
        yield from _permissions(session, security)
    except KquotaError as error:
        yield failure(AREA, "znodes", error)
    finally:
        session.close()


def _cluster(session: Session) -> Iterator[Check]:
    """The brokers that are registered, and whether the cluster is on its way to KRaft."""
    (ids,), (controller,) = session.children([_BROKERS]), session.nodes([znode.CONTROLLER])
    if ids:
        yield ok(AREA, "brokers", f"ZooKeeper mode, brokers {', '.join(sorted(ids, key=lambda id: (len(id), id)))}")
    else:
        yield warning(
            AREA,
            "brokers",
            "no broker is registered here",
            "check the chroot of the address, which is that of zookeeper.connect of the brokers",
        )
    epoch = znode.kraft_controller_epoch(controller.data) if controller is not None else 0
    if epoch > 0:
        yield warning(
            AREA,
            "migration",
            f"the cluster is migrating to KRaft (kraftControllerEpoch {epoch}): kquota writes nothing to ZooKeeper now",
            "alter quotas through a broker: --bootstrap-server",
        )


def _permissions(session: Session, security: ZooKeeperSecurity) -> Iterator[Check]:
    """Whether quotas can be read, who may write them, and whether everybody may."""
    session.children(_ROOTS)
    yield ok(AREA, "describe quotas", "allowed: the nodes of quotas can be read")
    acls = dict(zip(_ROOTS, session.acls(_ROOTS), strict=True))
    there = {path: acl for path, acl in acls.items() if acl is not None}
    if not there:
        yield warning(
            AREA,
            "alter quotas",
            f"there is no {znode.CONFIG}: no broker has used this chroot yet",
            "check the chroot of the address (zookeeper.connect of the brokers)",
        )
        return
    open_nodes = [path for path, acl in there.items() if _may(acl, {("world", "anyone")}, _CHANGING, some=True)]
    identities = {("world", "anyone")}
    if security.username is not None and security.uses_sasl:
        identities.add(("sasl", security.username))
    closed = [path for path, acl in there.items() if not _may(acl, identities, _CREATE)]
    if closed:
        owners = ", ".join(
            sorted({_owner(entry) for path in closed for entry in there[path] if entry.permissions & _CREATE})
        )
        yield warning(
            AREA,
            "alter quotas",
            f"{', '.join(closed)} belong to {owners or 'nobody'}, and whether this login is that owner is not known",
            "to write, log in as the brokers do: --zk-jaas-file, or --zk-tls-config-file with their certificate",
        )
    else:
        yield ok(AREA, "alter quotas", "allowed")
    if open_nodes:
        yield warning(
            AREA,
            "znodes",
            f"anybody who reaches ZooKeeper can change quotas: {', '.join(open_nodes)} are world-writable",
            "set zookeeper.set.acl=true on the brokers, and run zookeeper-security-migration.sh --zookeeper.acl=secure",
        )
    else:
        yield ok(AREA, "znodes", "not world-writable")


def _may(acl: Sequence[Acl], who: set[tuple[str, str]], permissions: int, *, some: bool = False) -> bool:
    """Whether one of these identities has those permissions, or with `some` one of them."""
    granted = 0
    for entry in acl:
        if (entry.scheme, entry.id) in who:
            granted |= entry.permissions
    return bool(granted & permissions) if some else granted & permissions == permissions


def _owner(acl: Acl) -> str:
    """An identity without secrets: the id of a digest holds a hash of a password."""
    return f"{acl.scheme}:{acl.id.partition(':')[0] if acl.scheme == 'digest' else acl.id}"
