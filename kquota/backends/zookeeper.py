"""Quotas in ZooKeeper, where brokers without KRaft keep them; the only module that knows kazoo.

Reads are pipelined in bulk (`MultiRead`, opcode 22, ZooKeeper 3.6 and later, else single reads). Every write is a
compare-and-set of the node together with its change notification in one transaction: both or neither, and never over
what was not read. Sources: `kafka.zk.KafkaZkClient`, `kafka.zk.AdminZkClient` and `kafka.zk.ZkData` of Kafka 2.8.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import random
import re
import socket
import struct
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

from kquota.backends import znode
from kquota.backends.znode import NodeConfig
from kquota.core.alteration import Alteration, AlterResult, merge
from kquota.core.entity import Entity, EntityType
from kquota.core.filter import ANY, EVERYTHING, QuotaFilter
from kquota.core.snapshot import Problem, QuotaSnapshot, Values
from kquota.errors import (
    Conflict,
    InputError,
    InvalidRequest,
    KquotaError,
    MissingDependency,
    Rejected,
    Unauthorized,
    Unreachable,
)

if TYPE_CHECKING:
    import ssl

# kazoo's thread workers have a logger that cannot be replaced; without a handler it would print warnings on stderr.
logging.getLogger("kazoo").addHandler(logging.NullHandler())

DEFAULT_PORT: Final = 2181

# A server drops the session on a request beyond jute.maxbuffer (1 MB by default) and says nothing but "connection
# lost": requests are counted before they are sent.
REQUEST_BYTES: Final = 512 * 1024
NODE_BYTES: Final = 1_000_000
READS_PER_REQUEST: Final = 1000
ENTITIES_PER_TRANSACTION: Final = 500
WINDOW: Final = 4
"""Bulk requests in flight."""
SINGLE_WINDOW: Final = 500
"""Requests about one node in flight."""
MAX_CONFLICTS: Final = 100
"""How often an entity may lose the race to another writer."""
NAMES_BYTES_WARNING: Final = 900_000
"""Java clients, brokers among them, cannot list children whose names take more than 1 MB."""

# What a transaction of many entities shrinks to after each failure, so that one hot entity does not hold up the rest.
_TRANSACTION_SIZES = (ENTITIES_PER_TRANSACTION, 60, 8, 1)
_READ_ATTEMPTS = 3
_RESOLVER_THREADS = 16
_CLOSE_TIMEOUT_S = 2.0


@dataclass(frozen=True)
class ZooKeeperSecurity:
    """How to authenticate: SASL DIGEST-MD5 (username and password), TLS (PEM files), or both.

    `ca` is trusted in addition to the system's authorities; `key` defaults to the file of `cert`. With `verify` the
    server's certificate and host name are checked. TLS is used when `tls` is set or one of its files is given. Raises
    InputError for half a pair or a file that cannot be read.
    """

    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    verify: bool = True

    def __post_init__(self) -> None:
        if (self.username is None) != (self.password is None):
            raise InputError("SASL to ZooKeeper needs a username and a password")
        if self.key is not None and self.cert is None:
            raise InputError("a TLS key to ZooKeeper needs its certificate")
        for path in (self.ca, self.cert, self.key):
            if path is not None and not path.is_file():
                raise InputError(f"TLS file {path} does not exist")

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.tls or self.ca is not None or self.cert is not None

    @property
    def is_authenticated(self) -> bool:
        """Whether created nodes belong to someone (`JaasUtils.isZkSaslEnabled`, or a client certificate)."""
        return self.username is not None or self.cert is not None


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed connect string: hosts with ports, and the chroot, empty or with a leading slash."""

    hosts: tuple[tuple[str, int], ...]
    chroot: str

    @classmethod
    def parse(cls, connect: str) -> Address:
        """Reads `host:port[,host:port][/chroot]`; the port defaults to 2181. Raises InputError for anything else."""
        text, slash, chroot = connect.strip().partition("/")
        hosts = []
        for part in text.split(","):
            match = _HOST.match(part.strip())
            port = int(match["port"] or DEFAULT_PORT) if match else 0
            if match is None or not 0 < port < 65536:
                raise InputError(f"malformed ZooKeeper address {connect!r}", hint="host:port[,host:port][/chroot]")
            hosts.append((match["host"].strip("[]"), port))
        if "," in chroot:
            raise InputError(
                f"malformed ZooKeeper address {connect!r}", hint="the chroot comes once, after the last host"
            )
        names = chroot.rstrip("/").split("/") if chroot.strip("/") else []
        if any(name in ("", ".", "..") or not name.isprintable() for name in names):
            raise InputError(f"malformed chroot {slash + chroot!r} in the ZooKeeper address")
        return cls(tuple(hosts), "".join(f"/{name}" for name in names))

    def __str__(self) -> str:
        """The hosts as they are written in a connect string, without the chroot."""
        return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)


_HOST = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s,/:@\[\]]+)(?::(?P<port>\d{1,5}))?\Z", re.ASCII)


# --- Requests ----------------------------------------------------------------------------------------------------

_GET_DATA, _GET_CHILDREN, _MULTI_READ = 4, 8, 22
_ERROR, _NO_NODE = -1, -101
_OP_HEADER = struct.Struct("!iBi")
_INT = struct.Struct("!i")
# czxid mzxid ctime mtime version cversion aversion ephemeralOwner dataLength numChildren pzxid
_STAT = struct.Struct("!32xi20xi8x")
# What an operation of a transaction takes beside path and data, ACL included; generous.
_OP_OVERHEAD = 160

_Read: TypeAlias = tuple[int, str]


class _Node:
    """A node as read. Its data may be secret and is in no repr."""

    __slots__ = ("children", "data", "version")

    def __init__(self, data: bytes | None, version: int, children: int) -> None:
        self.data, self.version, self.children = data, version, children


_Answer: TypeAlias = _Node | list[str] | None
"""A node or the names of its children; None where there is no such node."""


class _MultiRead:
    """Many reads in one request (ZOOKEEPER-1295). Quacks like a request class of kazoo's."""

    type = _MULTI_READ

    def __init__(self, reads: Sequence[_Read], chroot: str) -> None:
        self._reads = reads
        self._chroot = chroot

    def serialize(self) -> bytes:
        parts: list[bytes] = []
        for opcode, path in self._reads:
            full = ((self._chroot + path).rstrip("/") or "/").encode()
            parts += (_OP_HEADER.pack(opcode, 0, -1), _INT.pack(len(full)), full, b"\0")
        parts.append(_OP_HEADER.pack(-1, 1, -1))
        return b"".join(parts)

    @staticmethod
    def deserialize(reply: bytes, offset: int) -> list[_Answer | int]:
        """The answers in order; an int is ZooKeeper's error code."""
        answers: list[_Answer | int] = []
        while True:
            opcode, done, _ = _OP_HEADER.unpack_from(reply, offset)
            offset += _OP_HEADER.size
            if done:
                return answers
            if opcode == _GET_DATA:
                data, offset = _read_buffer(reply, offset)
                version, children = _STAT.unpack_from(reply, offset)
                offset += _STAT.size
                answers.append(_Node(data, version, children))
            elif opcode == _GET_CHILDREN:
                (count,) = _INT.unpack_from(reply, offset)
                offset += _INT.size
                names = []
                for _ in range(count):
                    name, offset = _read_buffer(reply, offset)
                    names.append((name or b"").decode())
                answers.append(names)
            else:
                (code,) = _INT.unpack_from(reply, offset)
                offset += _INT.size
                answers.append(None if code == _NO_NODE else int(code))


def _read_buffer(reply: bytes, offset: int) -> tuple[bytes | None, int]:
    (length,) = _INT.unpack_from(reply, offset)
    start = offset + _INT.size
    return (None, start) if length < 0 else (reply[start : start + length], start + length)


def _requests(reads: Sequence[_Read], chroot: str) -> Iterator[Sequence[_Read]]:
    """Cuts reads into requests of bounded count and bytes."""
    start = size = 0
    for index, (_, path) in enumerate(reads):
        cost = 3 * len(chroot + path) + 14  # at most three bytes of UTF-8 a character of a path
        if index > start and (index - start >= READS_PER_REQUEST or size + cost > REQUEST_BYTES):
            yield reads[start:index]
            start, size = index, 0
        size += cost
    if start < len(reads):
        yield reads[start:]


# --- Session -----------------------------------------------------------------------------------------------------


class _Lost(Exception):
    """A request whose answer never came: it may have been executed, or not."""


class _NotSent(_Lost):
    """A request that never left, because the server had stopped answering."""


class _Session:
    """One kazoo client, quiet, with waits that end.

    Connecting takes at most `timeout_s` seconds, and so does waiting for any answer. Once one did not come in time the
    session is over: nothing more is sent, and nothing more is waited for.
    """

    def __init__(self, address: Address, timeout_s: float, security: ZooKeeperSecurity) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._security = security
        self._wake = threading.Event()
        self._failures: Counter[object] = Counter()
        self._cause = ""
        self._auth_failed = False
        self._silent = False
        self._multi_read: bool | None = None
        self._client: Any = None

    # Connecting

    def open(self) -> None:
        """Connects. Raises Unreachable, Unauthorized, InputError (TLS files, a chroot that is not there)."""
        security = self._security
        if security.username is not None and importlib.util.find_spec("puresasl") is None:
            raise MissingDependency("SASL to ZooKeeper needs the package pure-sasl", hint="pip install 'kquota[sasl]'")
        deadline = time.monotonic() + self._timeout_s
        if security.uses_tls:
            _check_tls(self._address, security, deadline)
        self._check_names()
        self._client = self._new_client()
        self._client.add_listener(self._on_state)
        try:
            self._client.start_async()
            self._await_connection(deadline, patient=False)
            if self._address.chroot and self.read([(_GET_DATA, "/")]) == [None]:
                raise InputError(
                    f"there is no chroot {self._address.chroot} in ZooKeeper at {self._address}",
                    hint="the chroot is that of the brokers' zookeeper.connect",
                )
        except BaseException:
            self.close()
            raise

    def _check_names(self) -> None:
        """Fails at once where kazoo would retry in silence: no host has an address."""
        for host, port in self._address.hosts:
            try:
                socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            except (OSError, UnicodeError) as error:
                self._cause = _reason(error)
            else:
                return
        raise self._unreachable()

    def _new_client(self) -> Any:
        from kazoo.client import KazooClient
        from kazoo.handlers.threading import SequentialThreadingHandler
        from kazoo.retry import KazooRetry

        session = self

        class Handler(SequentialThreadingHandler):  # type: ignore[misc]
            """Tells why connections fail, and lets no thread die on the terminal."""

            def create_connection(self, *args: Any, **kwargs: Any) -> Any:
                try:
                    return super().create_connection(*args, **kwargs)
                except Exception as error:
                    address = kwargs.get("address") or (args[0] if args else None)
                    session._cause = _reason(error)
                    session._failures[address] += 1
                    session._wake.set()
                    raise

            def spawn(self, func: Any, *args: Any, **kwargs: Any) -> Any:
                def quiet() -> None:
                    try:
                        func(*args, **kwargs)
                    except Exception as error:
                        session._cause = session._cause or _reason(error)
                    session._wake.set()

                return super().spawn(quiet)

        # kazoo logs requests with their data, which may hold credentials: not even a root handler shall see them.
        silent = logging.Logger("kquota.zookeeper")
        silent.disabled = True
        security = self._security
        sasl = {"mechanism": "DIGEST-MD5", "username": security.username, "password": security.password}
        return KazooClient(
            hosts=str(self._address) + self._address.chroot,
            # The time-out of the session is also that of connecting to one host: each must get its turn.
            timeout=self._timeout_s / len(self._address.hosts),
            handler=Handler(),
            logger=silent,
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, backoff=2, max_delay=0.5),
            read_only=True,
            randomize_hosts=True,
            sasl_options=None if security.username is None else sasl,
            use_ssl=security.uses_tls,
            verify_certs=security.verify,
            check_hostname=security.verify,
            ca=None if security.ca is None else str(security.ca),
            certfile=None if security.cert is None else str(security.cert),
            keyfile=None if security.cert is None else str(security.key or security.cert),
        )

    def _on_state(self, _state: object) -> None:
        from kazoo.protocol.states import KeeperState

        if self._client is not None and self._client.client_state == KeeperState.AUTH_FAILED:
            self._auth_failed = True
        self._wake.set()

    def _await_connection(self, deadline: float, *, patient: bool = True) -> None:
        """Waits until requests can be sent. Without patience, a round of all hosts that fail is enough."""
        self._failures.clear()
        while not self._client.connected:
            self._wake.clear()
            remaining = deadline - time.monotonic()
            if self._auth_failed:
                raise self._unauthorized()
            # kazoo tries every host before it tries one again.
            if remaining <= 0 or (not patient and any(count > 1 for count in self._failures.values())):
                raise self._unreachable()
            if not self._client.connected:
                self._wake.wait(remaining)

    @property
    def is_open(self) -> bool:
        """Whether the session can still be used."""
        from kazoo.protocol.states import KeeperState

        closed = (KeeperState.CLOSED, KeeperState.AUTH_FAILED)
        usable = self._client is not None and not self._auth_failed and not self._silent
        return usable and self._client.client_state not in closed

    def close(self) -> None:
        """Ends the session; a server that does not answer is not waited for."""
        client, self._client = self._client, None
        if client is None:
            return

        def shut() -> None:
            with contextlib.suppress(Exception):
                client.stop()
            with contextlib.suppress(Exception):
                client.close()

        closer = threading.Thread(target=shut, daemon=True)
        closer.start()
        closer.join(_CLOSE_TIMEOUT_S)

    # Errors

    def _unreachable(self) -> Unreachable:
        why = self._cause or f"no answer within {self._timeout_s:g} s"
        hint = "check the address, and that ZooKeeper runs there"
        if not self._cause and not self._security.uses_tls:
            hint = "check the address, and that it is neither a TLS port nor something else than ZooKeeper"
        return Unreachable(f"cannot reach ZooKeeper at {self._address}: {why}", hint=hint)

    def _unauthorized(self) -> Unauthorized:
        return Unauthorized(
            f"ZooKeeper at {self._address} refused the authentication", hint="check the username and the password"
        )

    def translate(self, error: BaseException, path: str | None = None) -> KquotaError:
        """The error of kazoo's as one of ours."""
        from kazoo import exceptions as kazoo

        where = f" at {path}" if path else ""
        if isinstance(error, KquotaError):
            return error
        if self._auth_failed or isinstance(error, kazoo.AuthFailedError | kazoo.SASLException):
            return self._unauthorized()
        if isinstance(error, kazoo.SessionClosedRequireSaslError):
            return Unauthorized(f"ZooKeeper at {self._address} requires authentication", hint="SASL: give a username")
        if isinstance(error, kazoo.NoAuthError):
            return Unauthorized(
                f"ZooKeeper's ACLs forbid this{where or f' at {self._address}'}", hint="authenticate as the brokers do"
            )
        if isinstance(error, kazoo.NotReadOnlyCallError):
            return Unreachable(f"ZooKeeper at {self._address} has no quorum: it can only be read")
        if isinstance(error, kazoo.ZookeeperError) and not isinstance(error, kazoo.ConnectionLoss | _lost_errors()):
            name = type(error).__name__.removesuffix("Error")
            return Rejected(f"ZooKeeper at {self._address} refused{where}: {name}")
        return self._unreachable()

    # Requests

    def _call(self, request: object) -> Any:
        handle = self._client.handler.async_result()
        if self._silent:
            handle.set_exception(_NotSent())
        else:
            self._client._call(request, handle)
        return handle

    def _result(self, handle: Any) -> Any:
        """The answer. Raises _Lost when there is none, or kazoo's own error for a definite no."""
        from kazoo.handlers.threading import KazooTimeoutError

        try:
            return handle.get(timeout=0 if self._silent else self._timeout_s)
        except KazooTimeoutError as error:
            self._silent = True
            raise _Lost(str(error)) from error
        except _lost_errors() as error:
            raise _Lost(str(error)) from error

    def read(self, reads: Sequence[_Read], *, fresh: bool = False) -> list[_Answer]:
        """The answers in order; `fresh` sees all that any client wrote before. Raises Unreachable or Unauthorized."""
        from kazoo.exceptions import KazooException

        for attempt in range(1, _READ_ATTEMPTS + 1):
            try:
                # What is sent without a connection would wait in a queue for as long as an answer may take.
                if self.is_open:
                    self._await_connection(time.monotonic() + self._timeout_s)
                if fresh:
                    self._sync()
                return self._read_once(reads)
            except _Lost:
                if attempt == _READ_ATTEMPTS or not self.is_open:
                    break
            except KazooException as error:
                raise self.translate(error) from None
        raise self._unauthorized() if self._auth_failed else self._unreachable()

    def _sync(self) -> None:
        """Has the server catch up with its leader; nobody waits for the answer, later reads queue behind it."""
        from kazoo.protocol.serialization import Sync

        self._call(Sync(self._address.chroot or "/"))

    def _read_once(self, reads: Sequence[_Read]) -> list[_Answer]:
        from kazoo.exceptions import UnimplementedError

        requests = list(_requests(reads, self._address.chroot))
        answers: list[_Answer] = []
        if self._multi_read is None and requests:
            # Servers before 3.6 do not know the request and cut the connection: one of them settles it.
            try:
                answers += self._checked(requests[0], self._result(self._call_multi(requests[0])))
            except UnimplementedError:
                self._multi_read = False
                self._await_connection(time.monotonic() + self._timeout_s)
            else:
                self._multi_read = True
                requests = requests[1:]
        if self._multi_read:
            for request, reply in zip(requests, self._pipeline(requests, self._call_multi, WINDOW), strict=True):
                answers += self._checked(request, self._result(reply))
            return answers
        for read, reply in zip(reads, self._pipeline(reads, self._call_single, SINGLE_WINDOW), strict=True):
            answers.append(self._single_answer(read, reply))
        return answers

    def _call_multi(self, reads: Sequence[_Read]) -> Any:
        return self._call(_MultiRead(reads, self._address.chroot))

    def _call_single(self, read: _Read) -> Any:
        opcode, path = read
        return self._client.get_async(path) if opcode == _GET_DATA else self._client.get_children_async(path)

    def _single_answer(self, read: _Read, handle: Any) -> _Answer:
        from kazoo.exceptions import NoAuthError, NoNodeError

        try:
            result = self._result(handle)
        except NoNodeError:
            return None
        except NoAuthError as error:
            raise self.translate(error, read[1]) from None
        if read[0] == _GET_CHILDREN:
            names: list[str] = result
            return names
        data, stat = result
        return _Node(data, stat.version, stat.numChildren)

    def _checked(self, reads: Sequence[_Read], answers: Sequence[_Answer | int]) -> list[_Answer]:
        """The answers. Raises the first error that is more than a missing node."""
        from kazoo.exceptions import EXCEPTIONS

        good: list[_Answer] = []
        for (_, path), answer in zip(reads, answers, strict=True):
            if isinstance(answer, int):
                raise self.translate(EXCEPTIONS[answer](), path)
            good.append(answer)
        return good

    @staticmethod
    def _pipeline(items: Iterable[Any], send: Callable[[Any], Any], window: int) -> Iterator[Any]:
        """Sends every item and hands out the handles in order, with a bounded number unanswered."""
        handles: deque[Any] = deque()
        for item in items:
            if len(handles) >= window:
                yield handles.popleft()
            handles.append(send(item))
        yield from handles

    def commit(self, transactions: Sequence[Sequence[Any]], window: int) -> Iterator[list[Any] | _Lost]:
        """Executes transactions in order; each one's result per operation, or _Lost."""
        from kazoo.exceptions import KazooException
        from kazoo.protocol.serialization import Transaction

        def send(operations: Sequence[Any]) -> Any:
            return self._call(Transaction(operations))

        for operations, handle in zip(transactions, self._pipeline(transactions, send, window), strict=True):
            try:
                yield self._result(handle)
            except _Lost as lost:
                yield lost
            except KazooException as error:
                yield [error] * len(operations)

    def settle(self) -> None:
        """Waits for the connection after a loss. Raises Unreachable or Unauthorized."""
        if not self.is_open:
            raise self._unauthorized() if self._auth_failed else self._unreachable()
        self._await_connection(time.monotonic() + self._timeout_s)

    # Operations of a transaction

    def create(self, path: str, data: bytes | None, *, sequence: bool = False) -> Any:
        """A persistent node with the ACL that Kafka gives it (`ZkData.defaultAcls`)."""
        from kazoo.protocol.serialization import Create
        from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

        if not self._security.is_authenticated:
            acl = OPEN_ACL_UNSAFE
        elif znode.is_sensitive(path):
            acl = CREATOR_ALL_ACL
        else:
            acl = CREATOR_ALL_ACL + READ_ACL_UNSAFE
        return Create(self._address.chroot + path, data, acl, 2 if sequence else 0)

    def set_data(self, path: str, data: bytes, version: int) -> Any:
        """A write that fails unless the node still has that version; 0 is a version like any other."""
        from kazoo.protocol.serialization import SetData

        return SetData(self._address.chroot + path, data, version)


def _lost_errors() -> tuple[type[BaseException], ...]:
    from kazoo import exceptions as kazoo

    return (
        kazoo.ConnectionLoss,
        kazoo.SessionExpiredError,  # and its subclass ConnectionClosedError
        kazoo.OperationTimeoutError,
        kazoo.RequestTimeoutError,
        kazoo.SessionMovedError,
        kazoo.CancelledError,
    )


def _reason(error: BaseException) -> str:
    """The error in a few words, on one line."""
    import ssl

    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {(error.reason or str(error)).replace('_', ' ').lower()}"
    if isinstance(error, TimeoutError):
        return "connecting timed out"
    text = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
    return text.splitlines()[0][:1].lower() + text.splitlines()[0][1:]


# --- TLS ---------------------------------------------------------------------------------------------------------


def _tls_context(security: ZooKeeperSecurity) -> ssl.SSLContext:
    import ssl

    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
    context.check_hostname = security.verify
    context.verify_mode = ssl.CERT_REQUIRED if security.verify else ssl.CERT_NONE
    if security.ca is not None:
        try:
            context.load_verify_locations(security.ca)
        except (OSError, ValueError) as error:
            raise InputError(f"TLS file {security.ca} holds no PEM certificates: {_reason(error)}") from None
    if security.cert is not None:
        try:
            # With a password at hand OpenSSL does not ask for one on the terminal.
            context.load_cert_chain(security.cert, security.key or security.cert, password="")
        except (OSError, ValueError) as error:
            raise InputError(
                f"TLS certificate {security.cert} and its key cannot be used: {_reason(error)}",
                hint="PEM files, the key without a password",
            ) from None
    return context


def _check_tls(address: Address, security: ZooKeeperSecurity, deadline: float) -> None:
    """Shakes hands with one of the hosts, because kazoo reports every TLS failure as a time-out."""
    import ssl

    context = _tls_context(security)
    cause: BaseException | None = None
    for index, (host, port) in enumerate(address.hosts):
        share = max(deadline - time.monotonic(), 0.1) / (len(address.hosts) - index)
        try:
            with (
                socket.create_connection((host, port), timeout=share) as plain,
                context.wrap_socket(plain, server_hostname=host) as connection,
            ):
                # In TLS 1.3 a server refuses a client's certificate only after the handshake; any answer to a
                # four-letter command, a refusal included, says that it did not.
                connection.sendall(b"ruok")
                connection.recv(64)
                return
        except ssl.SSLCertVerificationError as error:
            cause = error
        except (OSError, UnicodeError) as error:
            cause = error
    assert cause is not None
    message = f"cannot reach ZooKeeper at {address}: {_reason(cause)}"
    if isinstance(cause, ssl.SSLCertVerificationError):
        raise Unreachable(message, hint="trust its authority (ca), or check the host name in its certificate") from None
    if isinstance(cause, ssl.SSLError) and re.search("CERTIFICATE|HANDSHAKE_FAILURE|UNKNOWN_CA", cause.reason or ""):
        hint = (
            "the server wants a client certificate" if security.cert is None else "the server refuses the certificate"
        )
        raise Unauthorized(message, hint=hint) from None
    if isinstance(cause, ssl.SSLError | ConnectionResetError):
        raise Unreachable(message, hint="is that the TLS port (secureClientPort)?") from None
    raise Unreachable(message, hint="check the address, and that ZooKeeper runs there") from None


# --- Backend -----------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Task:
    """One entity on its way through an alter."""

    alteration: Alteration
    path: str
    conflicts: int = 0
    version: int | None = None
    """The version that was read; None where there is no node."""
    before: Values = field(default_factory=dict)
    after: Values = field(default_factory=dict)
    data: bytes = field(default=b"", repr=False)

    @property
    def entity(self) -> Entity:
        return self.alteration.entity

    def done(self) -> AlterResult:
        return AlterResult(self.entity, self.before, self.after)

    def failed(self, error: KquotaError) -> AlterResult:
        return AlterResult(self.entity, self.before, self.before, error)


@dataclass(slots=True, eq=False)
class _Batch:
    """The tasks of one transaction; `owners` names the task of each operation."""

    tasks: list[_Task] = field(default_factory=list)
    operations: list[Any] = field(default_factory=list)
    owners: list[_Task] = field(default_factory=list)
    size: int = 0

    def add(self, task: _Task, operations: Sequence[Any], size: int) -> None:
        self.tasks.append(task)
        self.operations.extend(operations)
        self.owners.extend([task] * len(operations))
        self.size += size


_Results: TypeAlias = dict[Entity, AlterResult]


class ZooKeeperBackend:
    """Reads and writes the quotas of a cluster in ZooKeeper mode; see `QuotaBackend` for the contract.

    `connect` is `host:port[,host:port][/chroot]`, as in the brokers' zookeeper.connect. Connects at the first use;
    connecting takes at most `timeout_s` seconds, and so does waiting for any answer of the servers. Raises InputError
    for a malformed address; later also for a chroot that does not exist.
    """

    def __init__(self, connect: str, *, timeout_s: float = 10.0, security: ZooKeeperSecurity | None = None) -> None:
        if not timeout_s > 0:
            raise InputError(f"a time-out of {timeout_s:g} s is not positive")
        self._address = Address.parse(connect)
        self._timeout_s = timeout_s
        self._security = security or ZooKeeperSecurity()
        self._session: _Session | None = None

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _open(self) -> _Session:
        if self._session is not None and not self._session.is_open:
            self.close()
        if self._session is None:
            session = _Session(self._address, self._timeout_s, self._security)
            session.open()
            self._session = session
        return self._session

    # Describe

    def describe(self, filter: QuotaFilter = EVERYTHING) -> QuotaSnapshot:
        shapes = _shapes(filter)
        if not shapes:
            return QuotaSnapshot()
        session = self._open()
        problems: list[Problem] = []
        quotas: dict[Entity, Values] = {}
        for path, node in self._nodes(session, filter, shapes, problems):
            try:
                entity = znode.entity_of(path)
            except InputError as error:
                problems.append(
                    Problem(path, f"{error}: a ZooKeeper-mode broker that starts with this node stops at once")
                )
                continue
            if not filter.matches(entity):
                continue
            values, found = NodeConfig.decode(node.data).describe(entity, path)
            problems.extend(found)
            if not _CANONICAL.match(path) and entity.ip is None and (own := znode.znode_path(entity)) != path:
                problems.append(Problem(path, f"an older name of {entity}: alterations go to {own}, which replaces it"))
                quotas.setdefault(entity, values)
            elif values or entity in quotas:
                quotas[entity] = values
        return QuotaSnapshot.of(quotas.items(), problems)

    def _nodes(
        self, session: _Session, filter: QuotaFilter, shapes: frozenset[frozenset[EntityType]], problems: list[Problem]
    ) -> Iterator[tuple[str, _Node]]:
        """The nodes that can match, in bulk: names first, then data, then what is below users."""
        # A pair's node is found through its user's.
        roots = {next(kind for kind in EntityType if kind in shape) for shape in shapes}
        listed = [kind for kind in EntityType if kind in roots]
        names = {kind: _named(filter, kind) for kind in listed}
        unnamed = [kind for kind in listed if names[kind] is None]
        lists = session.read([(_GET_CHILDREN, znode.ENTITY_ROOTS[kind]) for kind in unnamed]) if unnamed else []
        for kind, answer in zip(unnamed, lists, strict=True):
            found = answer if isinstance(answer, list) else []
            names[kind] = found
            if (size := sum(len(name) + 4 for name in found)) > NAMES_BYTES_WARNING:
                problems.append(Problem(znode.ENTITY_ROOTS[kind], _too_many_names(len(found), size)))
        paths = {kind: [f"{znode.ENTITY_ROOTS[kind]}/{name}" for name in names[kind] or ()] for kind in listed}

        clients = _named(filter, EntityType.CLIENT_ID)
        by_name = _PAIR_LEVEL in shapes and clients is not None
        users = paths.get(EntityType.USER, [])
        skipped = EntityType.USER if by_name and _USER_LEVEL not in shapes else None
        wanted = [path for kind in listed if kind is not skipped for path in paths[kind]]
        if by_name:
            # A named client-id is looked up under every user at once; most have none, and that is an answer too.
            wanted += [f"{user}/{znode.CLIENTS}/{client}" for user in users for client in clients or ()]
        below_users = set(users)
        parents = []
        for path, answer in zip(wanted, session.read([(_GET_DATA, path) for path in wanted]), strict=True):
            if isinstance(answer, _Node):
                if path in below_users and answer.children:
                    parents.append(f"{path}/{znode.CLIENTS}")
                yield path, answer
        if _PAIR_LEVEL not in shapes or by_name or not parents:
            return
        below = []
        for parent, answer in zip(parents, session.read([(_GET_CHILDREN, path) for path in parents]), strict=True):
            below += [f"{parent}/{name}" for name in (answer if isinstance(answer, list) else ())]
        for path, answer in zip(below, session.read([(_GET_DATA, path) for path in below]), strict=True):
            if isinstance(answer, _Node):
                yield path, answer

    # Alter

    def alter(self, alterations: Sequence[Alteration], *, validate_only: bool = False) -> tuple[AlterResult, ...]:
        merged = merge(alterations)
        results: _Results = {}
        pending = self._tasks(merged, results)
        if pending:
            try:
                self._alter(self._open(), pending, validate_only, results)
            except (Unreachable, Unauthorized, Rejected) as error:
                if not any(
                    result.error is None or isinstance(result.error, Unreachable) for result in results.values()
                ):
                    raise
                for task in pending:
                    results.setdefault(task.entity, task.failed(error))
        ordered = tuple(results[alteration.entity] for alteration in merged)
        errors = [result.error for result in ordered]
        if errors and all(isinstance(error, Unauthorized) for error in errors) and errors[0] is not None:
            raise errors[0]
        return ordered

    def _tasks(self, alterations: Sequence[Alteration], results: _Results) -> list[_Task]:
        """The alterations that ZooKeeper and the brokers can take; the others get their error."""
        hosts = {
            alteration.entity.ip
            for alteration in alterations
            if alteration.set
            and isinstance(alteration.entity.ip, str)
            and not znode.is_ip_literal(alteration.entity.ip)
        }
        unresolved = _unresolvable(hosts, self._timeout_s)
        tasks = []
        for alteration in alterations:
            entity = alteration.entity
            try:
                path = znode.znode_path(entity)
                if entity.ip in unresolved and alteration.set:
                    raise InvalidRequest(
                        f"INVALID_REQUEST: {entity.ip} is not a valid IP or resolvable host",
                        hint="a ZooKeeper-mode broker that cannot resolve the name does not start",
                    )
                # The path is in the request twice: as the node's and in the notification.
                if 2 * len(path) > REQUEST_BYTES:
                    raise InputError(f"{entity.parts[0][0].value} of {len(path)} characters is too long for ZooKeeper")
            except KquotaError as error:
                results[entity] = AlterResult(entity, {}, {}, error)
                continue
            tasks.append(_Task(alteration, path))
        # Users before pairs: where both are new, the user's node is created with its data, not as an empty parent.
        return sorted(tasks, key=lambda task: len(task.entity.parts))

    def _alter(self, session: _Session, pending: list[_Task], validate_only: bool, results: _Results) -> None:
        """Read, change, commit; what lost a race is read again."""
        for attempt in range(len(_TRANSACTION_SIZES) + len(pending) * (MAX_CONFLICTS + 1)):
            existing = self._read_tasks(session, pending)
            writes = self._changes(pending, existing, validate_only, results)
            size = _TRANSACTION_SIZES[min(attempt, len(_TRANSACTION_SIZES) - 1)]
            batches = list(_batches(session, writes, set(existing), size))
            lost = []
            window = WINDOW if size > 1 else SINGLE_WINDOW
            outcomes = session.commit([batch.operations for batch in batches], window)
            for batch, outcome in zip(batches, outcomes, strict=True):
                if isinstance(outcome, _Lost):
                    # What was not sent stays pending, and fails with the next read.
                    if not isinstance(outcome, _NotSent):
                        lost.append(batch)
                else:
                    self._conclude(session, batch, outcome, results)
            if lost:
                self._settle(session, lost, results)
            pending = [task for task in writes if task.entity not in results]
            if not pending:
                return
            _back_off(max(task.conflicts for task in pending))
        raise AssertionError("every conflict is counted")

    def _read_tasks(self, session: _Session, tasks: Sequence[_Task]) -> dict[str, _Node]:
        """The nodes of the tasks, and which parents of the missing ones there are. Raises Rejected while migrating."""
        fixed = [znode.CONFIG, znode.CHANGES, *znode.ENTITY_ROOTS.values()]
        nodes = self._read_nodes(session, [znode.CONTROLLER, *fixed, *(task.path for task in tasks)], fresh=True)
        controller = nodes.pop(znode.CONTROLLER, None)
        if controller is not None and (epoch := znode.kraft_controller_epoch(controller.data)) > 0:
            raise Rejected(
                f"the cluster at {self._address}{self._address.chroot} is migrating to KRaft"
                f" (kraftControllerEpoch {epoch}): quotas written to ZooKeeper would be lost",
                hint="alter quotas over --bootstrap-server",
            )
        above = dict.fromkeys(parent for task in tasks if task.path not in nodes for parent in znode.parents(task.path))
        missing = [path for path in above if path not in nodes and path not in fixed]
        return {**nodes, **self._read_nodes(session, missing)} if missing else nodes

    @staticmethod
    def _read_nodes(session: _Session, paths: Sequence[str], *, fresh: bool = False) -> dict[str, _Node]:
        answers = session.read([(_GET_DATA, path) for path in paths], fresh=fresh)
        return {path: answer for path, answer in zip(paths, answers, strict=True) if isinstance(answer, _Node)}

    @staticmethod
    def _changes(
        tasks: Sequence[_Task], nodes: dict[str, _Node], validate_only: bool, results: _Results
    ) -> list[_Task]:
        """The tasks that have something to write; the others are finished here."""
        writes = []
        for task in tasks:
            node = nodes.get(task.path)
            config = NodeConfig.decode(None if node is None else node.data)
            task.before = task.after = config.values(task.entity)
            try:
                change = config.change(task.alteration)
                if change.data is not None and len(change.data) + 3 * len(task.path) > NODE_BYTES:
                    raise Rejected(
                        f"{task.entity}: its znode would have {len(change.data)} bytes, too many for ZooKeeper"
                    )
            except KquotaError as error:
                results[task.entity] = task.failed(error)
                continue
            task.after = change.after
            if change.data is None or validate_only:
                results[task.entity] = task.done()
                continue
            task.version, task.data = None if node is None else node.version, change.data
            writes.append(task)
        return writes

    @staticmethod
    def _conclude(session: _Session, batch: _Batch, outcome: Sequence[Any], results: _Results) -> None:
        """Takes over a transaction's result: all of it, or nothing but the operation to blame."""
        from kazoo import exceptions as kazoo

        followers = (kazoo.RolledBackError, kazoo.RuntimeInconsistency)
        errors = [(index, error) for index, error in enumerate(outcome) if isinstance(error, BaseException)]
        if not errors:
            for task in batch.tasks:
                results[task.entity] = task.done()
            return
        index, error = next((pair for pair in errors if not isinstance(pair[1], followers)), errors[0])
        task = batch.owners[index]
        if isinstance(error, kazoo.BadVersionError | kazoo.NoNodeError | kazoo.NodeExistsError):
            task.conflicts += 1
            if task.conflicts > MAX_CONFLICTS:
                results[task.entity] = task.failed(
                    Conflict(
                        f"{task.entity}: other writers changed its znode {task.conflicts} times while it was altered",
                        hint="try again when they are done",
                    )
                )
        else:
            results[task.entity] = task.failed(session.translate(error, batch.operations[index].path))

    def _settle(self, session: _Session, batches: Sequence[_Batch], results: _Results) -> None:
        """Finds out whether transactions were executed whose answers were lost with the connection.

        A transaction is all or nothing, so one node tells about all: unchanged means no, and our data at the very next
        version means yes. Tasks that are known to be unaltered are left for another attempt.
        """
        try:
            session.settle()
            # Behind a sync nothing of the old connection can still arrive.
            paths = [task.path for batch in batches for task in batch.tasks]
            nodes = self._read_nodes(session, paths, fresh=True)
        except KquotaError as error:
            for batch in batches:
                for task in batch.tasks:
                    results[task.entity] = task.failed(self._uncertain(task, error.message))
            return
        for batch in batches:
            verdicts = {_verdict(task, nodes.get(task.path)) for task in batch.tasks}
            if False in verdicts:
                continue
            for task in batch.tasks:
                results[task.entity] = (
                    task.done()
                    if True in verdicts
                    else task.failed(self._uncertain(task, "another writer altered it since"))
                )

    def _uncertain(self, task: _Task, why: str) -> Unreachable:
        return Unreachable(
            f"{task.entity} may or may not have been altered: the connection to ZooKeeper at {self._address} was lost"
            f" while it was written, and {why}",
            hint="describe it to see",
        )


_USER_LEVEL = frozenset({EntityType.USER})
_CLIENT_LEVEL = frozenset({EntityType.CLIENT_ID})
_PAIR_LEVEL = frozenset({EntityType.USER, EntityType.CLIENT_ID})
_IP_LEVEL = frozenset({EntityType.IP})
# Paths whose names need no decoding, which tells canonical from older ones without encoding every name again.
_CANONICAL = re.compile(r"/config/[A-Za-z0-9._/<>-]*\Z")


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


def _too_many_names(count: int, size: int) -> str:
    return (
        f"{count} names take {size} bytes; beyond 1 MB Java clients, brokers among them, cannot list them"
        " unless jute.maxbuffer is raised"
    )


def _batches(session: _Session, tasks: Iterable[_Task], existing: set[str], size: int) -> Iterator[_Batch]:
    """Transactions of bounded count and bytes. `existing` are the nodes there are; it grows by those to be created."""
    batch = _Batch()
    for task in tasks:
        operations = []
        notification = znode.change_notification(task.entity)
        cost = 3 * len(task.path) + len(task.data) + len(notification) + 2 * _OP_OVERHEAD
        ancestors = [*znode.parents(task.path)] if task.version is None else []
        for path in [*ancestors, znode.CONFIG, znode.CHANGES]:
            if path not in existing:
                existing.add(path)
                operations.append(session.create(path, None))
                cost += len(path) + _OP_OVERHEAD
        if task.version is None:
            existing.add(task.path)
            operations.append(session.create(task.path, task.data))
        else:
            operations.append(session.set_data(task.path, task.data, task.version))
        operations.append(session.create(znode.CHANGE_PREFIX, notification, sequence=True))
        if batch.tasks and (len(batch.tasks) >= size or batch.size + cost > REQUEST_BYTES):
            yield batch
            batch = _Batch()
        batch.add(task, operations, cost)
    if batch.tasks:
        yield batch


def _verdict(task: _Task, node: _Node | None) -> bool | None:
    """Whether a write was executed, by the node as it is now; None where another writer has covered the trace."""
    if node is None:
        return False if task.version is None else None
    if node.version == task.version:
        return False
    expected = 0 if task.version is None else task.version + 1
    return True if node.version == expected and node.data == task.data else None


def _back_off(conflicts: int) -> None:
    """Lets rival writers get out of each other's step: up to 0.1 s, at random."""
    if conflicts:
        time.sleep(random.uniform(0.0, min(0.1, 0.001 * 2.0 ** min(conflicts, 10))))  # noqa: S311


def _unresolvable(hosts: Iterable[str], timeout_s: float) -> frozenset[str]:
    """The names that no name service knows, or not within the time-out: `InetAddress.getByName` would fail on them."""
    names = frozenset(hosts)
    waiting = deque(names)
    resolved: set[str] = set()

    def resolve() -> None:
        while True:
            try:
                name = waiting.popleft()
            except IndexError:
                return
            with contextlib.suppress(OSError, UnicodeError, ValueError):
                # A zone is of one machine only; blanks would be cut off by some resolvers.
                if "%" not in name and not any(character.isspace() for character in name):
                    socket.getaddrinfo(name, None)
                    resolved.add(name)

    threads = [threading.Thread(target=resolve, daemon=True) for _ in range(min(len(names), _RESOLVER_THREADS))]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + timeout_s
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return names - resolved
