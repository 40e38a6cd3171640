"""One connection to one broker: TCP, TLS, the broker's versions, SASL, then requests and answers; every wait ends."""

from __future__ import annotations

import contextlib
import itertools
import re
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Final, Literal, NamedTuple, Self, TypeAlias

from kquota import __version__
from kquota.backends import wire
from kquota.backends.addresses import Server
from kquota.backends.greeting import reason_of
from kquota.backends.kafka.codes import NONE, UNSUPPORTED_SASL_MECHANISM, error_of
from kquota.backends.kafka.security import KafkaSecurity, Sasl
from kquota.backends.secrets import without
from kquota.backends.tls import Tls, certificate_remedy, client_context
from kquota.errors import KquotaError, Rejected, Unauthorized

CLIENT_ID: Final = "kquota"
_LARGEST_FRAME = 256 << 20
"""A million entities are 94 MB. The first bytes of a TLS or HTTP answer, read as a length, are beyond this."""
_UNANSWERED_BYTES = 32 << 10
"""A broker reads a connection's next request only once its answer is on the way: more could block both ends."""
_RECEIVE_BYTES = 256 << 10
_BEARER = re.compile("Bearer ([^\x01]+)")
_TURNED_AWAY_S = 0.05
"""A listener of another kind closes a connection at once; the limit of an ip first makes it wait."""

_SINCE = {
    wire.ApiKey.DESCRIBE_CLIENT_QUOTAS: "brokers of Kafka 2.6 and later do, KRaft controllers do not",
    wire.ApiKey.ALTER_CLIENT_QUOTAS: "Kafka does since 2.6",
    wire.ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: "Kafka does since 2.7",
    wire.ApiKey.DESCRIBE_CLUSTER: "brokers of Kafka 2.8 and later do, KRaft controllers of 3.7 and later",
    wire.ApiKey.DESCRIBE_CONFIGS: "Kafka does since 1.1",
    wire.ApiKey.DESCRIBE_LOG_DIRS: "brokers of Kafka 1.0 and later do, KRaft controllers do not",
    wire.ApiKey.INCREMENTAL_ALTER_CONFIGS: "Kafka does since 2.3",
}
Step: TypeAlias = Literal["connect", "TLS", "versions", "login"]
"""What opening a connection does, in this order; TLS and login where they are configured."""


class Deadline:
    """The end of a wait, on the clock that nobody sets."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds, not below 0."""
        return max(self._end - time.monotonic(), 0.0)

    def share(self, count: int) -> Deadline:
        """The first of `count` equal parts of what is left."""
        return Deadline(self.left / count)


@dataclass(eq=False)
class Lost(Exception):
    """The connection failed, or never was: why, in a few words, and what to do about it."""

    why: str
    hint: str | None = None
    _: KW_ONLY
    timed_out: bool = False
    closed: bool = False
    """Whether the other end closed it, however soon."""
    turned_away: bool = False
    """Whether the broker kept it waiting and closed it unheard, as it does with one connection too many from an ip
    (KIP-612): another one may be let in."""
    refused: bool = False
    """Whether nobody takes connections (yet)."""


class Measured(NamedTuple):
    """An answer, and what a probe measures: the bytes of both frames, and ms since the epoch."""

    answer: Any
    sent_bytes: int
    received_bytes: int
    sent_ms: float
    answered_ms: float


class Connection:
    """Requests on one socket. A failure of it raises Lost; the connection is of no use after that."""

    def __init__(self, server: Server, security: KafkaSecurity) -> None:
        self.server = server
        self.security = security
        self.client_id = CLIENT_ID
        self._socket: socket.socket | None = None
        self._correlation_ids = itertools.count(1)
        self._versions = {wire.ApiKey.API_VERSIONS: 3}
        self.offered: Mapping[int, wire.ApiVersion] = {}
        """The versions of each message that the broker said it serves, by the number of the message."""
        self._is_encrypted = False
        """Whether the TLS handshake is over."""
        self._is_fresh = True
        """Whether nothing but opening has worked so far: how a listener of another kind behaves."""
        self._connected_at = 0.0

    @classmethod
    def open(
        cls,
        server: Server,
        security: KafkaSecurity,
        deadline: Deadline,
        begins: Callable[[Step], None] = lambda step: None,
    ) -> Self:
        """Connects and authenticates; `begins` is called with each step before it is taken.

        Raises Lost; Unauthorized with the broker's own words; Rejected by what does not serve quotas; InputError for
        unusable TLS stores; and what the SASL mechanism needs and does not get: Unreachable, MissingDependency.
        """
        connection = cls(server, security)
        try:
            begins("connect")
            connection._socket = _connect(server, deadline)
            connection._connected_at = time.monotonic()
            if security.tls is not None:
                begins("TLS")
                connection._encrypt(security.tls, deadline)
            begins("versions")
            connection._negotiate(deadline)
            if security.sasl is not None:
                begins("login")
                connection._authenticate(security.sasl, deadline)
        except BaseException:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        """Drops the connection; a second call does nothing."""
        connected, self._socket = self._socket, None
        if connected is not None:
            with contextlib.suppress(OSError):
                connected.close()

    def speaks(self, key: int) -> bool:
        """Whether the broker said that it serves a message."""
        return key in self.offered

    def ask(self, requests: Sequence[wire.Request], kind: type, deadline: Deadline) -> list[Any]:
        """Sends the requests in a row and returns their answers in the same order. Raises Lost."""
        answers: list[Any] = []
        waiting: deque[tuple[int, int, int]] = deque()
        unanswered = 0

        def receive() -> None:
            nonlocal unanswered
            correlation_id, version, size = waiting.popleft()
            unanswered -= size
            answers.append(self._receive(kind, version, correlation_id, deadline)[0])

        for request in requests:
            version = self._version_for(request)
            correlation_id = next(self._correlation_ids)
            frame = wire.encode_request(request, version, correlation_id, self.client_id)
            while waiting and unanswered + len(frame) > _UNANSWERED_BYTES:
                receive()
            self._send(frame, deadline)
            waiting.append((correlation_id, version, len(frame)))
            unanswered += len(frame)
        while waiting:
            receive()
        self._is_fresh = False
        return answers

    def measured(self, request: wire.Request, kind: type, deadline: Deadline) -> Measured:
        """The answer to one request, with what it took. Raises Lost."""
        version, correlation_id = self._version_for(request), next(self._correlation_ids)
        frame = wire.encode_request(request, version, correlation_id, self.client_id)
        sent_s = time.time()
        self._send(frame, deadline)
        answer, size = self._receive(kind, version, correlation_id, deadline)
        return Measured(answer, len(frame), size, sent_s * 1000, time.time() * 1000)

    # Opening

    def _encrypt(self, tls: Tls, deadline: Deadline) -> None:
        import ssl

        context = client_context(tls)
        assert self._socket is not None
        try:
            self._socket.settimeout(_positive(deadline))
            self._socket = context.wrap_socket(self._socket, server_hostname=self.server.host)
            self._is_encrypted = True
        except ssl.SSLCertVerificationError as error:
            raise Lost(
                f"certificate verify failed: {error.verify_message}",
                certificate_remedy(error.verify_code, "put its authority into ssl.truststore.location"),
            ) from None
        except (OSError, ValueError) as error:
            raise self._failure(error, deadline) from None

    def _negotiate(self, deadline: Deadline) -> None:
        """Learns the broker's versions; one that does not know ours of ApiVersions says so in v0 (KIP-35, KIP-511)."""
        request = wire.ApiVersionsRequest("kquota", __version__)
        (answer,) = self.ask([request], wire.ApiVersionsResponse, deadline)
        if answer.error_code == wire.UNSUPPORTED_VERSION:
            known = {api.api_key: api.max_version for api in answer.api_keys}
            self._versions[wire.ApiKey.API_VERSIONS] = max(0, min(known.get(wire.ApiKey.API_VERSIONS, 0), 2))
            (answer,) = self.ask([request], wire.ApiVersionsResponse, deadline)
        if answer.error_code != NONE:
            raise Rejected(f"Kafka at {self.server} does not report its versions: {error_of(answer.error_code, None)}")
        self.offered = {api.api_key: api for api in answer.api_keys}
        for api in wire.APIS:
            offered = self.offered.get(api.key)
            if (
                offered is not None
                and offered.min_version <= api.max_version
                and api.min_version <= offered.max_version
            ):
                self._versions[api.key] = min(api.max_version, offered.max_version)
        self._is_fresh = True

    def _authenticate(self, sasl: Sasl, deadline: Deadline) -> None:
        who = f"cannot authenticate to Kafka at {self.server} {sasl.who}: "
        conversation = sasl.converse(self.server.host, deadline.left)
        try:
            # What the mechanism needs of others comes first, as Kafka's clients log in before they connect.
            token = next(conversation)
            secrets = [getattr(sasl, "password", None), *_BEARER.findall(token.decode("utf-8", "replace"))]
            self._shake_hands(sasl.mechanism, deadline)
            while True:
                (reply,) = self.ask([wire.SaslAuthenticateRequest(token)], wire.SaslAuthenticateResponse, deadline)
                if reply.error_code != NONE:
                    # The broker's own words come first: "Authentication failed: Invalid username or password".
                    message = reply.error_message or error_of(reply.error_code, None).message
                    raise Unauthorized(without(message, *secrets), hint=_refused(sasl))
                token = conversation.send(reply.auth_bytes)
        except StopIteration:
            self._is_fresh = True
        except Unauthorized as error:
            if error.message.startswith("cannot authenticate"):
                raise  # from the layer below, which knows better
            raise Unauthorized(who + error.message, hint=error.hint) from None

    def _shake_hands(self, mechanism: str, deadline: Deadline) -> None:
        (shake,) = self.ask([wire.SaslHandshakeRequest(mechanism)], wire.SaslHandshakeResponse, deadline)
        if shake.error_code == UNSUPPORTED_SASL_MECHANISM:
            offered = ", ".join(shake.mechanisms)
            raise Unauthorized(f"{mechanism} is not enabled there", hint=f"the listener offers {offered}")
        if shake.error_code != NONE:
            raise Unauthorized(error_of(shake.error_code, None).message, hint="is that the listener for SASL?")

    def _version_for(self, request: wire.Request) -> int:
        key = wire.api_of(request).key
        version = self._versions.get(key)
        if version is None:
            raise Rejected(f"Kafka at {self.server} does not serve {key.name}", hint=_SINCE.get(key))
        return version

    # Frames

    def _send(self, frame: bytes, deadline: Deadline) -> None:
        connected = self._connected()
        try:
            connected.settimeout(_positive(deadline))
            connected.sendall(struct.pack(">i", len(frame)) + frame)
        except OSError as error:
            # A broker that refuses us may have said why before it closed.
            raise self._failure(error, deadline) from None

    def _receive(self, kind: type, version: int, correlation_id: int, deadline: Deadline) -> tuple[Any, int]:
        """The answer, and the bytes of its frame."""
        head = self._read(4, deadline)
        (size,) = struct.unpack(">i", head)
        if not 4 <= size <= _LARGEST_FRAME:
            hint = None
            if head[:1] == b"\x15" and self.security.tls is None:
                hint = "it speaks TLS: security.protocol is SSL or SASL_SSL there"
            raise Lost("what answers there is not Kafka", hint)
        try:
            answered, message = wire.decode_response(kind, version, self._read(size, deadline))
        except wire.FrameError as error:
            raise Lost(f"its answer is malformed: {error}") from None
        if answered != correlation_id:
            raise Lost("its answer belongs to another request")
        return message, size

    def _read(self, size: int, deadline: Deadline) -> bytes:
        connected = self._connected()
        parts = []
        while size:
            try:
                connected.settimeout(_positive(deadline))
                part = connected.recv(min(size, _RECEIVE_BYTES))
            except OSError as error:
                raise self._failure(error, deadline) from None
            if not part:
                raise self._failure(ConnectionResetError("the connection was closed"), deadline)
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _connected(self) -> socket.socket:
        if self._socket is None:
            raise Lost("the connection is closed")
        return self._socket

    def _failure(self, error: Exception, deadline: Deadline) -> Lost | Unauthorized:
        """The error in a few words, with the usual cause where one is known."""
        security = self.security
        if isinstance(error, TimeoutError):
            hint = None if self.offered else "check the address, and that it is a Kafka broker"
            return Lost(f"no answer within {round(deadline.seconds, 1):g} s", hint, timed_out=True)
        if security.tls is not None:
            import ssl

            # Without an alert, the end of the connection says no more than that of a plain one.
            if isinstance(error, ssl.SSLEOFError):
                error = ConnectionResetError("the connection was closed")
            elif isinstance(error, ssl.SSLError):
                why = reason_of(error)
                if any(word in (error.reason or "") for word in ("CERTIFICATE", "HANDSHAKE_FAILURE", "UNKNOWN_CA")):
                    blame = "the broker wants a client certificate (ssl.keystore.location)"
                    if security.tls.identity is not None:
                        blame = "the broker refuses the client certificate"
                    return Unauthorized(f"cannot authenticate to Kafka at {self.server}: {why}", hint=blame)
                return Lost(why, None if self._is_encrypted else self._usual_cause())
        if isinstance(error, ConnectionError):
            waited = time.monotonic() - self._connected_at > _TURNED_AWAY_S
            if self._is_fresh and self.offered and security.sasl is None:
                wanted = login_wanted(self.server, security, deadline)
                if wanted is not None:
                    return Unauthorized(f"Kafka at {self.server}: {wanted.message}", hint=wanted.hint)
            hint = self._usual_cause() if self._is_fresh else None
            return Lost("the connection was closed", hint, closed=True, turned_away=self._is_fresh and waited)
        return Lost(reason_of(error))

    def _usual_cause(self) -> str | None:
        """Why a listener usually closes a connection at that point of the opening, and what to set then."""
        security = self.security
        login = "SASL_" if security.sasl is not None else ""
        certificate = security.tls is not None and security.tls.identity is None
        missing = "a client certificate is missing (ssl.keystore.location)"
        if security.tls is not None and not self._is_encrypted:
            wrong = f"is that a TLS port? For a plain one set security.protocol={login}PLAINTEXT"
            return f"{wrong}; or {missing}" if certificate else wrong
        if self.offered:  # it speaks Kafka
            return None
        if security.tls is not None:
            return f"perhaps {missing}" if certificate else None
        if security.sasl is None:
            return "perhaps a TLS port (security.protocol=SSL or SASL_SSL)"
        return "perhaps a TLS port (security.protocol=SASL_SSL)"


def login_wanted(server: Server, security: KafkaSecurity, deadline: Deadline) -> Unauthorized | None:
    """The error of a listener for SASL that nobody logs in to; None for a listener without SASL.

    Brokers of all versions answer ApiVersions before a login, and a handshake of SASL on a listener for SASL only.
    """
    plain = replace(security, sasl=None)
    try:
        connection = Connection.open(server, plain, deadline)
    except (Lost, KquotaError):
        return None
    connection._is_fresh = False  # it is asked already why it may be closed
    try:
        (shake,) = connection.ask([wire.SaslHandshakeRequest("?")], wire.SaslHandshakeResponse, deadline)
    except (Lost, KquotaError):
        return None
    finally:
        connection.close()
    if shake.error_code != UNSUPPORTED_SASL_MECHANISM or not shake.mechanisms:
        return None
    return Unauthorized(
        f"the listener asks for a login, by {' or '.join(sorted(shake.mechanisms))}",
        hint=f"set security.protocol=SASL_{plain.protocol}, sasl.mechanism and sasl.jaas.config in the file of"
        " --command-config",
    )


def _refused(sasl: Sasl) -> str | None:
    """What to check after a login that was refused."""
    user = getattr(sasl, "username", None)
    if user is None:
        return None
    return f"check the password in the file of --command-config, and that the cluster knows the user {user}"


def _connect(server: Server, deadline: Deadline) -> socket.socket:
    """A TCP connection to the first address of the host that takes one."""
    try:
        addresses = socket.getaddrinfo(server.host, server.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Lost(reason_of(error), "check the host name") from None
    failure: OSError = TimeoutError()
    for index, (family, kind, protocol, _, address) in enumerate(addresses):
        connected = socket.socket(family, kind, protocol)
        try:
            connected.settimeout(_positive(deadline.share(len(addresses) - index)))
            connected.connect(address)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            connected.close()
            failure = error
        except BaseException:
            connected.close()
            raise
        else:
            return connected
    if isinstance(failure, TimeoutError):
        raise Lost(f"no connection within {round(deadline.seconds, 1):g} s", "check the address", timed_out=True)
    raise Lost(reason_of(failure), "check the address, and that a broker listens there", refused=True)


def _positive(deadline: Deadline) -> float:
    """What is left as a socket's time-out, where 0 would mean something else."""
    left = deadline.left
    if left <= 0:
        raise TimeoutError
    return left
