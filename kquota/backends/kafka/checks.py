"""Why a login to brokers fails, or what it may do: one step after the other, and nothing is written.

Where a listener is of another kind than the properties say, a second connection without credentials finds out its kind.
"""

import socket
from collections.abc import Iterator
from typing import Final

from kquota.backends import wire
from kquota.backends.addresses import Server, Servers
from kquota.backends.greeting import unreached
from kquota.backends.kafka.codes import NONE, error_of
from kquota.backends.kafka.connection import Connection, Deadline, Lost, Step, login_wanted
from kquota.backends.kafka.security import KafkaSecurity
from kquota.backends.kafka.session import DESCRIBE_QUORUM, another_product, release_of
from kquota.backends.tls import Tls, client_context
from kquota.core.check import Check, failure, ok, warning
from kquota.errors import InputError, KquotaError, Unauthorized, Unreachable

AREA: Final = "cluster"
_MOST_BROKERS: Final = 20
"""Of more brokers the first are connected to."""
_TRIAL: Final = "kquota-doctor"
"""A user whose quota is removed for a trial, with validate_only: nothing is written."""
_ACLS: Final = "kafka-acls.sh --add --allow-principal User:{user} --operation {operation} --cluster"


def check_brokers(bootstrap: str, security: KafkaSecurity, timeout_s: float) -> Iterator[Check]:
    """The checks of a cluster by its bootstrap servers, each as soon as it is known.

    Each server has `timeout_s` seconds. Raises InputError for a malformed address.
    """
    connection = None
    failed = []
    servers = Servers.parse(bootstrap)
    servers.check(security.protocol)
    for server in servers.servers:
        opened, checks = _login(server, security, timeout_s)
        for check in checks:
            if check.error is None:
                yield check
            else:
                failed.append(check)
        if opened is not None and connection is None:
            connection = opened
        elif opened is not None:
            opened.close()
    # One server is enough for kquota: another one that fails is a warning then.
    for check in failed:
        yield check if connection is None else warning(check.area, check.subject, check.message, check.remedy)
    if connection is not None:
        try:
            yield from _permissions(connection, security, timeout_s)
        finally:
            connection.close()


def _login(server: Server, security: KafkaSecurity, timeout_s: float) -> tuple[Connection | None, list[Check]]:
    """A connection that is logged in, and the checks on the way to it."""
    subject = str(server)
    if (unreachable := unreached(server.host, server.port, timeout_s)) is not None:
        return None, [failure(AREA, subject, *unreachable)]
    steps: list[Step] = []
    deadline = Deadline(timeout_s)
    resolved = socket.getaddrinfo(server.host, server.port, type=socket.SOCK_STREAM)
    addresses = ", ".join(dict.fromkeys(str(address[0]) for *_, address in resolved))
    try:
        connection = Connection.open(server, security, deadline, steps.append)
    except Lost as lost:
        return None, [failure(AREA, subject, *_explained(server, security, steps[-1], lost, timeout_s))]
    except KquotaError as error:
        return None, [failure(AREA, subject, error, _login_remedy(server, security, steps[-1], error))]
    kind = "KRaft" if connection.speaks(DESCRIBE_QUORUM) else "ZooKeeper mode"
    encrypted = "TLS" if security.tls is not None else "no TLS"
    who = f"logged in {security.sasl.who} by {security.sasl.mechanism}" if security.sasl is not None else "no login"
    via = "" if addresses == server.host else f" ({addresses})"
    if security.sasl is None:
        wanted = login_wanted(server, security, deadline)
        if wanted is not None:
            connection.close()
            return None, [failure(AREA, subject, Unauthorized(wanted.message), wanted.hint or "")]
    return connection, [ok(AREA, subject, f"{release_of(connection.offered)}, {kind}, {encrypted}, {who}{via}")]


def _explained(
    server: Server, security: KafkaSecurity, step: Step, lost: Lost, timeout_s: float
) -> tuple[KquotaError, str]:
    """A connection that was lost in that step, and the next step of the user."""
    why = "the TLS handshake failed" if step == "TLS" else "nothing answered in Kafka's protocol"
    error = Unreachable(f"{why}: {lost.why}")
    if "certificate verify failed" in lost.why:
        return error, f"{lost.hint or ''} (openssl s_client -connect {server} -showcerts shows it)"
    if not lost.timed_out:  # who is silent would be silent again
        other = another_product(server, timeout_s) or _other_kind(server, security, timeout_s)
        if other:
            return error, other
    return error, lost.hint or "check that the address is that of a Kafka broker"


def _other_kind(server: Server, security: KafkaSecurity, timeout_s: float) -> str:
    """The security.protocol of a listener that is not as configured; empty where no other kind answers either.

    No credentials are sent.
    """
    trial = KafkaSecurity(tls=None if security.tls is not None else Tls(verify_host=False))
    if trial.tls is not None:
        if not _speaks_tls(server, timeout_s):
            return ""
        return f"port {server.port} speaks TLS: set security.protocol={_either('SSL', security)}"
    try:
        connection = Connection.open(server, trial, Deadline(timeout_s))
    except (Lost, KquotaError):
        return ""
    connection.close()
    return f"port {server.port} speaks Kafka without TLS: set security.protocol={_either('PLAINTEXT', security)}"


def _either(protocol: str, security: KafkaSecurity) -> str:
    """The protocol with a login or without one, first as the settings have it."""
    if security.sasl is not None:
        return f"SASL_{protocol}, or {protocol} where it takes no login"
    return f"{protocol}, or SASL_{protocol} where it asks for a login"


def _speaks_tls(server: Server, timeout_s: float) -> bool:
    """Whether a TLS handshake gets anywhere, whoever the server is."""
    import ssl

    context = client_context(Tls(verify_host=False))
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection((server.host, server.port), timeout=timeout_s) as plain,
            context.wrap_socket(plain, server_hostname=server.host),
        ):
            return True
    except ssl.SSLError as error:
        # An alert of the server is TLS; an answer of another protocol is a wrong version number.
        return "ALERT" in (error.reason or "")
    except OSError:
        return False


def _login_remedy(server: Server, security: KafkaSecurity, step: Step, error: KquotaError) -> str:
    """The next step after a login that was refused; empty where the error itself has it."""
    if isinstance(error, InputError) or security.sasl is None or step != "login":
        return ""
    if "not enabled" in error.message:
        return f"set sasl.mechanism in the file of --command-config: {error.hint}"
    if "listener for SASL" in (error.hint or ""):
        protocol = "PLAINTEXT" if security.tls is None else "SSL"
        return f"port {server.port} takes no login: set security.protocol={protocol}, or use the port for SASL"
    return ""


def _permissions(connection: Connection, security: KafkaSecurity, timeout_s: float) -> Iterator[Check]:
    """What the login may do on that cluster, and whether its other brokers can be reached."""
    user = getattr(security.sasl, "username", None) or "NAME"
    if not connection.speaks(wire.ApiKey.DESCRIBE_CLIENT_QUOTAS):
        yield failure(
            AREA,
            "describe quotas",
            Unauthorized("the brokers have no messages for quotas: they are older than Kafka 2.6"),
            "use --zookeeper: quotas of such clusters are in ZooKeeper",
        )
        return
    try:
        yield from _members(connection, timeout_s)
        yield _describe(connection, user, timeout_s)
        yield _alter(connection, user, timeout_s)
    except Lost as lost:
        yield failure(AREA, "permissions", Unreachable(f"the connection was lost: {lost.why}", hint=lost.hint))


def _members(connection: Connection, timeout_s: float) -> Iterator[Check]:
    """The brokers of the cluster, and those that cannot be reached from here."""
    if not connection.speaks(wire.ApiKey.DESCRIBE_CLUSTER):
        yield ok(AREA, "brokers", "not listed: they are older than Kafka 2.8")
        return
    request = wire.DescribeClusterRequest(include_cluster_authorized_operations=False)
    (answer,) = connection.ask([request], wire.DescribeClusterResponse, Deadline(timeout_s))
    if answer.error_code != NONE:
        yield failure(AREA, "brokers", error_of(answer.error_code, answer.error_message))
        return
    brokers = sorted(answer.brokers, key=lambda broker: broker.broker_id)
    names = ", ".join(f"{broker.broker_id} at {Server(broker.host, broker.port)}" for broker in brokers[:_MOST_BROKERS])
    more = f" and {len(brokers) - _MOST_BROKERS} more, which were not connected to" if brokers[_MOST_BROKERS:] else ""
    yield ok(AREA, "brokers", f"cluster {answer.cluster_id or 'without an id'}, brokers {names}{more}")
    deadline = Deadline(timeout_s)
    for number, broker in enumerate(brokers[:_MOST_BROKERS]):
        server = Server(broker.host, broker.port)
        share = deadline.share(min(len(brokers), _MOST_BROKERS) - number)
        if (unreachable := unreached(server.host, server.port, share.left)) is not None:
            yield warning(
                AREA,
                f"broker {broker.broker_id}",
                f"clients are sent to {server}, which cannot be reached from here: {unreachable[0].message}",
                "mend advertised.listeners of the broker, or the names and routes of this host; kquota needs it for"
                " 'describe --broker' and 'probe' only, clients need it always",
            )


def _describe(connection: Connection, user: str, timeout_s: float) -> Check:
    """Whether the login may describe quotas (`DESCRIBE_CONFIGS` on the cluster, KIP-546)."""
    component = wire.ComponentData("user", wire.MATCH_EXACT, _TRIAL)
    request = wire.DescribeClientQuotasRequest([component], strict=True)
    (answer,) = connection.ask([request], wire.DescribeClientQuotasResponse, Deadline(timeout_s))
    if answer.error_code == NONE:
        return ok(AREA, "describe quotas", "allowed")
    error = error_of(answer.error_code, answer.error_message)
    if not isinstance(error, Unauthorized):
        return failure(AREA, "describe quotas", error)
    remedy = f"an administrator allows it: {_ACLS.format(user=user, operation='DescribeConfigs')}"
    return failure(AREA, "describe quotas", Unauthorized(f"not allowed: {error.message}"), remedy)


def _alter(connection: Connection, user: str, timeout_s: float) -> Check:
    """Whether the login may alter quotas (`ALTER_CONFIGS` on the cluster, KIP-546): a trial that writes nothing."""
    entry = wire.AlterEntry([wire.EntityData("user", _TRIAL)], [wire.OpData("producer_byte_rate", 0.0, True)])
    request = wire.AlterClientQuotasRequest([entry], validate_only=True)
    (answer,) = connection.ask([request], wire.AlterClientQuotasResponse, Deadline(timeout_s))
    codes = [(result.error_code, result.error_message) for result in answer.entries if result.error_code]
    if not codes:
        return ok(AREA, "alter quotas", "allowed")
    error = error_of(*codes[0])
    remedy = f"to write, an administrator allows it: {_ACLS.format(user=user, operation='AlterConfigs')}"
    allowed = "not allowed" if isinstance(error, Unauthorized) else "not possible now"
    return warning(AREA, "alter quotas", f"{allowed}: {error.message}", remedy)
