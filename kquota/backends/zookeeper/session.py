"""The connection: one kazoo client, its requests in bulk, its errors as ours; every wait ends."""

import contextlib
import importlib.util
import logging
import socket
import ssl
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from kazoo import exceptions as kazoo
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.serialization import Create, Sync, Transaction
from kazoo.protocol.states import KeeperState
from kazoo.retry import KazooRetry
from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, Id

from kquota.backends import znode
from kquota.backends.addresses import Address, Server
from kquota.backends.greeting import reason_of, speaks_kafka
from kquota.backends.tls import client_context
from kquota.backends.zookeeper.requests import (
    GET_CHILDREN,
    GET_DATA,
    SINGLE_WINDOW,
    WINDOW,
    Acl,
    Answer,
    MultiRead,
    Node,
    Read,
    requests_of,
)
from kquota.backends.zookeeper.security import ZooKeeperSecurity, check_tls
from kquota.errors import InputError, KquotaError, MissingDependency, Rejected, Unauthorized, Unreachable

_READ_ATTEMPTS = 3
_CLOSE_TIMEOUT_S = 2.0
_USUAL_S = 1.0
"""A ZooKeeper that serves nearly always answers sooner."""
_LOST_ERRORS = (
    kazoo.ConnectionLoss,
    kazoo.SessionExpiredError,  # and its subclass ConnectionClosedError
    kazoo.OperationTimeoutError,
    kazoo.RequestTimeoutError,
    kazoo.SessionMovedError,
    kazoo.CancelledError,
)

# kazoo's thread workers have a logger that cannot be replaced; without a handler it would print warnings on stderr.
logging.getLogger("kazoo").addHandler(logging.NullHandler())


@dataclass
class _Trouble:
    """Why a client has no connection, as its threads report."""

    wake: threading.Event = field(default_factory=threading.Event)
    """Set whenever something happened."""
    failures: Counter[object] = field(default_factory=Counter)
    """How often connecting to each address failed."""
    cause: str = ""
    """The reason of the last failure."""


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """Tells why connections fail, and lets no thread die on the terminal."""

    def __init__(self, trouble: _Trouble, tls_context: ssl.SSLContext | None) -> None:
        super().__init__()
        self._trouble = trouble
        self._tls_context = tls_context

    def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        try:
            if kwargs.get("use_ssl") and self._tls_context is not None:
                # kazoo's own TLS reads files, and does not trust what Java would.
                plain = super().create_connection(address=kwargs["address"], timeout=kwargs["timeout"])
                return self._tls_context.wrap_socket(plain, server_hostname=kwargs["hostname"])
            return super().create_connection(*args, **kwargs)
        except Exception as error:
            self._trouble.cause = reason_of(error)
            self._trouble.failures[kwargs.get("address") or (args[0] if args else None)] += 1
            self._trouble.wake.set()
            raise

    def spawn(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        def quiet() -> None:
            try:
                func(*args, **kwargs)
            except Exception as error:
                self._trouble.cause = self._trouble.cause or reason_of(error)
            self._trouble.wake.set()

        return super().spawn(quiet)


class Lost(Exception):
    """A request whose answer never came: it may have been executed, or not."""


class NotSent(Lost):
    """A request that never left, because the server had stopped answering."""


class Outcome(list[Any]):
    """The result of each operation of a transaction; `zxid` is the transaction's own, as in all that it wrote."""

    def __init__(self, results: Iterable[Any], zxid: int = 0) -> None:
        super().__init__(results)
        self.zxid = zxid

    @property
    def blame(self) -> tuple[int, BaseException] | None:
        """The number of the operation that failed, not of one that only followed, and why; None where none did."""
        errors = [(index, result) for index, result in enumerate(self) if isinstance(result, BaseException)]
        followers = (kazoo.RolledBackError, kazoo.RuntimeInconsistency)
        return min(errors, key=lambda error: isinstance(error[1], followers), default=None)


class NoQuorum(Unreachable):
    """A server that has lost the others: it answers, and writes nothing for anybody."""


class Session:
    """One kazoo client, quiet, with waits that end.

    Connecting takes at most `timeout_s` seconds, and so does waiting for any answer. When the connection is lost,
    waiting for another one and asking again are part of that. Once an answer did not come in time, the session is over.
    Nothing more is sent then, and nothing more is waited for. With `patient`, connecting waits that long also for
    servers that are not up yet; without, each has one try.
    """

    def __init__(
        self, address: Address, timeout_s: float, security: ZooKeeperSecurity, *, patient: bool = False
    ) -> None:
        if not 0 < timeout_s <= 1e6:
            raise InputError(f"a time-out of {timeout_s:g} s is not between 0 and 1,000,000 s")
        self.address = address
        self._timeout_s = timeout_s
        self._security = security
        self._patient = patient
        self._trouble = _Trouble()
        self._auth_failed = False
        self.is_silent = False
        """Whether it is over as the servers did not answer in time."""
        self._waiting_since: float | None = None
        """Since when for an answer that the loss of the connection left open."""
        self._multi_read: bool | None = None
        self._client: Any = None
        self._tls_context: ssl.SSLContext | None = None
        self._acls: dict[str, list[Acl] | None] = {}

    # Connecting

    def open(self, within_s: float | None = None, *, any_chroot: bool = False) -> None:
        """Connects within that time, or else within the session's own.

        Raises Unreachable, Unauthorized, InputError (TLS files; unless `any_chroot`, a chroot that is not there).
        """
        security = self._security
        if security.uses_sasl and importlib.util.find_spec("puresasl") is None:
            raise MissingDependency("SASL to ZooKeeper needs the package pure-sasl", extra="sasl")
        deadline = time.monotonic() + (self._timeout_s if within_s is None else within_s)
        if security.tls is not None:
            self._tls_context = client_context(security.tls)
            check_tls(self.address, security.tls, self._tls_context, deadline, patient=self._patient)
        self._check_names()
        self._client = self._quiet_client()
        self._client.add_listener(self._on_state)
        try:
            self._client.start_async()
            self._await_first_connection(deadline)
            if self.address.chroot and not any_chroot and self.nodes(["/"]) == [None]:
                raise InputError(
                    f"there is no chroot {self.address.chroot} in ZooKeeper at {self.address}",
                    hint="the chroot is that of the brokers' zookeeper.connect",
                )
        except BaseException as error:
            self.is_silent = self.is_silent or isinstance(error, Unreachable)
            self.close()
            raise

    def _quiet_client(self) -> KazooClient:
        """A client that is not started; its threads report why they fail, and print nothing."""
        security = self._security
        # kazoo logs requests with their data, which may hold credentials: not even a root handler shall see them.
        silent = logging.Logger("kquota.zookeeper")
        silent.disabled = True
        sasl = {"mechanism": "DIGEST-MD5", "username": security.username, "password": security.password}
        return KazooClient(
            hosts=str(self.address) + self.address.chroot,
            # The time-out of the session is also that of connecting to one host: each must get its turn.
            timeout=self._timeout_s / len(self.address.hosts),
            handler=_Handler(self._trouble, self._tls_context),
            logger=silent,
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, backoff=2, max_delay=0.5),
            read_only=True,
            randomize_hosts=True,
            sasl_options=sasl if security.uses_sasl else None,
            auth_data=None if security.digest is None else [("digest", security.digest)],
            use_ssl=security.tls is not None,
        )

    def _check_names(self) -> None:
        """Fails at once where kazoo would retry in silence: no host has an address."""
        for host, port in self.address.hosts:
            try:
                socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            except (OSError, UnicodeError) as error:
                self._trouble.cause = reason_of(error)
            else:
                return
        raise self.unreachable()

    def _on_state(self, _state: object) -> None:
        if self._client is not None and self._client.client_state == KeeperState.AUTH_FAILED:
            self._auth_failed = True
        self._trouble.wake.set()

    def _await_first_connection(self, deadline: float) -> None:
        """As `_await_connection`; a broker in the place of a ZooKeeper is named soon, rather than tried to the end."""
        try:
            self._await_connection(min(deadline, time.monotonic() + _USUAL_S), patient=self._patient)
        except Unreachable:
            failed = bool(self._trouble.cause) and not self._patient
            if failed or time.monotonic() >= deadline:
                raise
            for host, port in self.address.hosts:
                if self._security.tls is None and speaks_kafka(host, port, deadline - time.monotonic()):
                    raise Unreachable(
                        f"cannot reach ZooKeeper at {self.address}: a broker answers there",
                        hint=f"port {port} speaks Kafka: use --bootstrap-server {Server(host, port)}",
                    ) from None
            self._await_connection(deadline, patient=self._patient)

    def _await_connection(self, deadline: float, *, patient: bool = True) -> None:
        """Waits until requests can be sent. Without patience, a round of all hosts that fail is enough."""
        self._trouble.failures.clear()
        while not self._client.connected:
            self._trouble.wake.clear()
            remaining = deadline - time.monotonic()
            if self._auth_failed:
                raise self._unauthorized()
            # kazoo tries every host before it tries one again.
            if remaining <= 0 or (not patient and any(count > 1 for count in self._trouble.failures.values())):
                raise self.unreachable()
            if not self._client.connected:
                self._trouble.wake.wait(remaining)

    @property
    def is_open(self) -> bool:
        """Whether the session can still be used."""
        closed = (KeeperState.CLOSED, KeeperState.AUTH_FAILED)
        usable = self._client is not None and not self._auth_failed and not self.is_silent
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
        if not self.is_silent:
            closer.join(_CLOSE_TIMEOUT_S)

    # Errors

    def unreachable(self) -> Unreachable:
        """The error where there is no connection, with the reason."""
        why = self._trouble.cause or f"no answer within {self._timeout_s:g} s"
        hint = "check the address, and that ZooKeeper runs there"
        if not self._trouble.cause and self._security.tls is None:
            hint = "check the address: it may be a TLS port (--zk-tls-config-file), or no ZooKeeper"
        return Unreachable(f"cannot reach ZooKeeper at {self.address}: {why}", hint=hint)

    def _unauthorized(self) -> Unauthorized:
        return Unauthorized(
            f"ZooKeeper at {self.address} refused the authentication", hint="check the username and the password"
        )

    def _lost(self) -> KquotaError:
        return self._unauthorized() if self._auth_failed else self.unreachable()

    def translate(self, error: BaseException, path: str | None = None) -> KquotaError:
        """The error of kazoo's as one of ours."""
        where = f" at {path}" if path else ""
        if isinstance(error, KquotaError):
            return error
        if self._auth_failed or isinstance(error, kazoo.AuthFailedError | kazoo.SASLException):
            return self._unauthorized()
        if isinstance(error, kazoo.SessionClosedRequireSaslError):
            return Unauthorized(f"ZooKeeper at {self.address} requires authentication", hint="SASL: give a username")
        if isinstance(error, kazoo.NoAuthError):
            return Unauthorized(
                f"ZooKeeper's ACLs forbid this{where or f' at {self.address}'}", hint="authenticate as the brokers do"
            )
        if isinstance(error, kazoo.NotReadOnlyCallError):
            return NoQuorum(f"ZooKeeper at {self.address} has no quorum: it can only be read")
        if isinstance(error, kazoo.ZookeeperError) and not isinstance(error, _LOST_ERRORS):
            name = type(error).__name__.removesuffix("Error")
            return Rejected(f"ZooKeeper at {self.address} refused{where}: {name}")
        return self.unreachable()

    # Requests

    def _call(self, request: object) -> Any:
        handle = self._client.handler.async_result()
        if self.is_silent:
            handle.set_exception(NotSent())
        else:
            self._client._call(request, handle)
        return handle

    def _result(self, handle: Any) -> Any:
        """The answer. Raises Lost when there is none, kazoo's own error for a definite no, Unreachable for garbage."""
        began = self._waiting_since or time.monotonic()
        try:
            answer = handle.get(timeout=0 if self.is_silent else max(began + self._timeout_s - time.monotonic(), 0))
        except KazooTimeoutError as error:
            self.is_silent = True
            raise Lost(str(error)) from error
        except _LOST_ERRORS as error:
            self._waiting_since = began
            raise Lost(str(error)) from error
        except kazoo.KazooException:  # a definite no is an answer
            self._waiting_since = None
            raise
        except Lost:
            raise
        except Exception as error:
            # Whatever a parser stumbles over; kazoo hands it out as it is.
            raise self._malformed() from error
        self._waiting_since = None
        return answer

    def _malformed(self) -> Unreachable:
        return Unreachable(
            f"ZooKeeper at {self.address} answers what cannot be read", hint="is that the address of a ZooKeeper?"
        )

    def read(self, reads: Sequence[Read], *, fresh: bool = False) -> list[Answer]:
        """The answers in order; `fresh` sees all that any client wrote before. Raises Unreachable or Unauthorized."""
        for attempt in range(1, _READ_ATTEMPTS + 1):
            try:
                # What is sent without a connection would wait in a queue for as long as an answer may take.
                if self.is_open:
                    self.settle()
                if fresh:
                    # The server catches up with its leader; nobody waits for the answer, later reads queue behind it.
                    self._call(Sync(self.address.chroot or "/"))
                return self._read_once(reads)
            except Lost:
                if attempt == _READ_ATTEMPTS or not self.is_open:
                    break
            except kazoo.KazooException as error:
                raise self.translate(error) from None
        raise self._lost()

    def nodes(self, paths: Iterable[str], *, fresh: bool = False) -> list[Node | None]:
        """The nodes, None for each that is not there. As `read`."""
        return cast("list[Node | None]", self.read([(GET_DATA, path) for path in paths], fresh=fresh))

    def children(self, paths: Iterable[str], *, fresh: bool = False) -> list[list[str] | None]:
        """The names below each node, None for one that is not there. As `read`."""
        return cast("list[list[str] | None]", self.read([(GET_CHILDREN, path) for path in paths], fresh=fresh))

    def _read_once(self, reads: Sequence[Read]) -> list[Answer]:
        requests = list(requests_of(reads, self.address.chroot))
        answers: list[Answer] = []
        if self._multi_read is None and requests:
            # Servers before 3.6 do not know the request and cut the connection: one of them settles it.
            try:
                answers += self._checked(requests[0], self._result(self._call_multi(requests[0])))
            except kazoo.UnimplementedError:
                self._multi_read = False
                self.settle()
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

    def _call_multi(self, reads: Sequence[Read]) -> Any:
        return self._call(MultiRead(reads, self.address.chroot))

    def _call_single(self, read: Read) -> Any:
        opcode, path = read
        return self._client.get_async(path) if opcode == GET_DATA else self._client.get_children_async(path)

    def _single_answer(self, read: Read, handle: Any) -> Answer:
        try:
            result = self._result(handle)
        except kazoo.NoNodeError:
            return None
        except kazoo.NoAuthError as error:
            raise self.translate(error, read[1]) from None
        if read[0] == GET_CHILDREN:
            names: list[str] = result
            return names
        data, stat = result
        return Node(data, stat.version, stat.numChildren, stat.mzxid)

    def _checked(self, reads: Sequence[Read], answers: list[Answer | int]) -> Sequence[Answer]:
        """The answers. Raises the first error that is more than a missing node."""
        if len(answers) != len(reads):
            raise self._malformed()
        for (_, path), answer in zip(reads, answers, strict=True) if int in set(map(type, answers)) else ():
            if isinstance(answer, int):
                error = kazoo.EXCEPTIONS.get(answer)
                raise self._malformed() if error is None else self.translate(error(), path)
        return cast("list[Answer]", answers)

    @staticmethod
    def _pipeline(items: Iterable[Any], send: Callable[[Any], Any], window: int) -> Iterator[Any]:
        """Sends every item and hands out the handles in order, with a bounded number unanswered."""
        handles: deque[Any] = deque()
        for item in items:
            if len(handles) >= window:
                yield handles.popleft()
            handles.append(send(item))
        yield from handles

    def acls(self, paths: Sequence[str]) -> list[list[Acl] | None]:
        """The ACL of each node, None where there is none. Raises Unreachable or Unauthorized."""
        answers: list[list[Acl] | None] = []
        for path, handle in zip(paths, self._pipeline(paths, self._client.get_acls_async, SINGLE_WINDOW), strict=True):
            try:
                acl, _ = self._result(handle)
            except kazoo.NoNodeError:
                answers.append(None)
            except Lost:
                raise self._lost() from None
            except kazoo.KazooException as error:
                raise self.translate(error, path) from None
            else:
                answers.append([Acl(entry.id.scheme, entry.id.id, entry.perms) for entry in acl])
        return answers

    def create(self, path: str, data: bytes | None, *, sequence: bool = False, ephemeral: bool = False) -> Create:
        """The operation that makes a node with the ACL that Kafka gives it (`ZkData.defaultAcls`).

        Raises Unreachable and Unauthorized where that ACL has to be read first.
        """
        return Create(path, data, self._acl(path), 2 * sequence + ephemeral)

    def _acl(self, path: str) -> list[Any]:
        if self._security.digest is not None:
            return self._acl_above(path)
        if not self._security.creates_as_kafka:
            return [*OPEN_ACL_UNSAFE]
        return [*CREATOR_ALL_ACL, *([] if znode.is_sensitive(path) else READ_ACL_UNSAFE)]

    def _acl_above(self, path: str) -> list[Any]:
        """What Kafka gave the nodes above: of a node that is owned by a digest the brokers could not read.

        Raises Unreachable and Unauthorized.
        """
        top = "/".join(path.split("/")[:3])
        for above in dict.fromkeys((top, znode.CONFIG, "/")):
            if above not in self._acls:
                (self._acls[above],) = self.acls([above])
            acl = self._acls[above] if above != path else None
            if acl is None:
                continue
            if any(entry.scheme == "digest" and entry.id.endswith(":x") for entry in acl):
                raise Unauthorized(
                    f"ZooKeeper hides the ACL of {above}, which {path} is to have", hint="authenticate as its owner"
                )
            owners = [entry for entry in acl if entry.scheme != "world"]
            chosen = owners if owners and znode.is_sensitive(path) else acl
            return [ACL(entry.permissions, Id(entry.scheme, entry.id)) for entry in chosen]
        raise self.unreachable()

    def commit(self, transactions: Sequence[Sequence[Any]], window: int) -> Iterator[Outcome | Lost]:
        """Executes transactions of kazoo's operations in order; each one's result per operation, or Lost."""
        client = self._client

        class Commit(Transaction):  # type: ignore[misc,unused-ignore]
            """A transaction that remembers its zxid: the client knows the zxid of the answer that it reads."""

            zxid = 0

            def deserialize(self, reply: bytes, offset: int) -> Any:
                self.zxid = client.last_zxid
                return Transaction.deserialize(reply, offset)

        def send(operations: Sequence[Any]) -> tuple[Commit, Any]:
            commit = Commit([operation._replace(path=self.address.chroot + operation.path) for operation in operations])
            return commit, self._call(commit)

        for operations, (commit, handle) in zip(transactions, self._pipeline(transactions, send, window), strict=True):
            try:
                yield Outcome(self._result(handle), commit.zxid)
            except Lost as lost:
                yield lost
            except kazoo.KazooException as error:
                yield Outcome([error] * len(operations))

    def settle(self) -> None:
        """Waits for the connection after a loss. Raises Unreachable or Unauthorized."""
        if not self.is_open:
            raise self._lost()
        try:
            self._await_connection((self._waiting_since or time.monotonic()) + self._timeout_s)
        except Unreachable:
            self.is_silent = True
            raise
