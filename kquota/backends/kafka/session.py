"""The cluster as one peer: servers tried in turn, lost connections opened again, within a deadline."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from kquota.backends import wire
from kquota.backends.addresses import Server, Servers
from kquota.backends.greeting import speaks_zookeeper
from kquota.backends.kafka.codes import NONE, error_of, is_transient
from kquota.backends.kafka.connection import Connection, Deadline, Lost
from kquota.backends.kafka.security import KafkaSecurity
from kquota.core.quotas.version import Version, format_version
from kquota.errors import InputError, Rejected, Unreachable

ATTEMPTS = 3
"""How often a request is sent whose connection is lost."""
_BACK_OFF_S = 0.1
_LONGEST_BACK_OFF_S = 1.0
"""As Java's client has it (reconnect.backoff.max.ms)."""
DESCRIBE_QUORUM: Final = 55
"""The number of a message that brokers serve in KRaft clusters only (KIP-595; production-ready since 3.3)."""
PAUSE_S: Final = 0.1
"""Before a request is sent again whose error may pass."""

Outcome: TypeAlias = Callable[[Any], tuple[int, str | None]]
"""The code and the message of the error that an answer has."""


def of_itself(answer: Any) -> tuple[int, str | None]:
    """The error of the whole answer."""
    return answer.error_code, answer.error_message


def of_first(answer: Any) -> tuple[int, str | None]:
    """The error of the first result, of which there is only one."""
    if not answer[-1]:
        raise Rejected("the broker's answer is empty")
    return of_itself(answer[-1][0])


class Unanswered(Unreachable):
    """The request was sent, and no answer came: it may have been carried out, or not."""


class Session:
    """Requests to any one of the servers; every broker serves both messages, and forwards what is not its own.

    Connecting, authentication included, takes at most `timeout_s` seconds, and so does waiting for an answer. With
    `patient` a server that is not up yet (it refuses connections, or closes them) is tried again for as long; without,
    each server has one try.
    """

    def __init__(self, servers: Servers, timeout_s: float, security: KafkaSecurity, *, patient: bool = False) -> None:
        if not 0 < timeout_s <= 1e6:
            raise InputError(f"a time-out of {timeout_s:g} s is not between 0 and 1,000,000 s")
        servers.check(security.protocol)
        self._servers = servers.servers
        self._timeout_s = timeout_s
        self._hurry_until = -math.inf
        self._security = security
        self._patient = patient
        self._connection: Connection | None = None

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @property
    def is_kraft(self) -> bool:
        """Whether the cluster runs without ZooKeeper, as far as is known; True before the first request."""
        return self._connection is None or self._connection.speaks(DESCRIBE_QUORUM)

    @property
    def version(self) -> Version | None:
        """The brokers' release by what they serve; None before 2.6, and before the first request."""
        return None if self._connection is None else version_of(self._connection.offered)

    def describe_cluster(self, kind: int = wire.BROKERS) -> Any:
        """The nodes of that kind; of brokers before 2.8 from their metadata. Raises as `answer` does."""
        connection = self._open(self.deadline())
        known = (wire.ApiKey.DESCRIBE_CLUSTER, wire.ApiKey.METADATA)
        if kind == wire.BROKERS and [connection.speaks(key) for key in known] == [False, True]:
            (reply,) = self.ask([wire.MetadataRequest()], wire.MetadataResponse)
            return wire.DescribeClusterResponse(
                reply.throttle_time_ms, NONE, None, None, reply.cluster_id or "", reply.controller_id, reply.brokers
            )
        return self.answer(wire.DescribeClusterRequest(False, kind), wire.DescribeClusterResponse)

    def deadline(self) -> Deadline:
        """The end of a wait that begins now; where a write was lost, what is left of its time, and a second."""
        left = self._hurry_until - time.monotonic()
        # Long after that write, a cluster may be back.
        return Deadline(self._timeout_s if left < -self._timeout_s else min(self._timeout_s, max(left, _BACK_OFF_S)))

    def hurry(self, write: Deadline) -> None:
        """Gives the questions that follow a lost write no more time than the write had, until one is answered."""
        self._hurry_until = time.monotonic() + write.left + 1

    def answer(self, request: wire.Request, kind: type, outcome: Outcome = of_itself) -> Any:
        """The answer, once its error is not one that may pass. Raises its error, and as `ask` does."""
        (answer,) = self.settled([request], kind, outcome)
        code, message = outcome(answer)
        if code != NONE:
            raise error_of(code, message)
        return answer

    def settled(self, requests: Sequence[wire.Request], kind: type, outcome: Outcome = of_itself) -> list[Any]:
        """The answers, once no error in them is one that may pass, or the time is up. Raises as `ask` does."""
        deadline = self.deadline()
        while True:
            answers = self.ask(requests, kind, deadline)
            # Asking once more must leave time for the answer.
            if not any(is_transient(outcome(answer)[0]) for answer in answers) or deadline.left < 2 * PAUSE_S:
                return answers
            time.sleep(PAUSE_S)

    def ask(
        self, requests: Sequence[wire.Request], kind: type, deadline: Deadline | None = None, *, once: bool = False
    ) -> list[Any]:
        """The answers in the order of the requests.

        When the connection is lost they are all sent again, on a new one: they must bear being carried out twice. With
        `once` nothing is sent again. Raises Unreachable (Unanswered once something was sent), Unauthorized, Rejected,
        InputError.
        """
        deadline = deadline or self.deadline()
        attempt = 0
        sent = False
        while True:
            try:
                connection = self._open(deadline)
                sent = True
                answers = connection.ask(requests, kind, deadline)
                self._hurry_until = -math.inf
                return answers
            except Lost as lost:
                assert self._connection is not None
                server = self._connection.server
                self.close()
                attempt += 1
                # Another server may be better off than the one that left.
                first = self._servers.index(server) + 1
                self._servers = (*self._servers[first:], *self._servers[:first])
                if once or lost.timed_out or attempt == ATTEMPTS or deadline.left <= _BACK_OFF_S:
                    late = f"Kafka at {server} did not answer within {deadline.seconds:.3g} s"
                    why = late if lost.timed_out else f"lost Kafka at {server}: {lost.why}"
                    raise Unanswered(why, hint=lost.hint) from None
                time.sleep(_BACK_OFF_S)
            except Unreachable as error:
                if sent:
                    raise Unanswered(error.message, hint=error.hint) from None
                raise
            except BaseException:
                # Half a conversation is none: an answer to this request must not be taken for the next one's.
                self.close()
                raise

    def _open(self, deadline: Deadline) -> Connection:
        if self._connection is not None:
            return self._connection
        pause = _BACK_OFF_S
        before: dict[Server, Lost] = {}
        while True:
            failures: list[tuple[Server, Lost]] = []
            for index, server in enumerate(self._servers):
                try:
                    share = deadline.share(len(self._servers) - index)
                    self._connection = Connection.open(server, self._security, share)
                except Lost as lost:
                    # The last try may have no time left; an earlier one knows more.
                    failure = before.get(server, lost) if lost.timed_out else lost
                    before[server] = failure
                    failures.append((server, failure))
                    continue
                return self._connection
            waits = any(lost.turned_away or (self._patient and (lost.refused or lost.closed)) for _, lost in failures)
            if not waits or deadline.left <= pause:
                break
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_BACK_OFF_S)
        last, cause = failures[-1]
        hint = (another_product(last, deadline.left) if cause.closed and not cause.turned_away else "") or cause.hint
        if len(failures) == 1:
            raise Unreachable(f"cannot reach Kafka at {last}: {cause.why}", hint=hint)
        reasons = "; ".join(f"{server}: {failure.why}" for server, failure in failures)
        raise Unreachable(f"cannot reach Kafka at any of {len(failures)} servers: {reasons}", hint=hint)


def another_product(server: Server, timeout_s: float) -> str:
    """The option for a ZooKeeper, where one answers instead of a broker; else nothing."""
    if not speaks_zookeeper(server.host, server.port, timeout_s):
        return ""
    return f"port {server.port} speaks ZooKeeper: use --zookeeper {server}"


# A broker does not report its version. Each release brought a message, or a version of one. The table is compared with
# kafka-python's in a test.

SIGNS: Final = (
    ((4, 4), 18, 5),
    ((4, 3), 35, 5),
    ((4, 2), 2, 11),
    ((4, 1), 0, 13),
    ((4, 0), 0, 12),
    ((3, 9), 1, 17),
    ((3, 8), 0, 11),
    ((3, 7), 1, 16),
    ((3, 6), 24, 4),
    ((3, 5), 1, 15),
    ((3, 4), 6, 8),
    ((3, 3), 29, 3),
    ((3, 2), 11, 9),
    ((3, 1), 1, 13),
    ((3, 0), 65, 0),
    ((2, 8), 60, 0),
    ((2, 7), 50, 0),
    ((2, 6), 48, 0),
)
"""A release, the number of a message, and the version of the message that is new in the release; newest first."""


def version_of(offered: Mapping[int, Any]) -> Version | None:
    """The release, or the newest one that kquota knows; None before 2.6.

    A KRaft broker of 3.4 serves the same messages as one of 3.3, and counts as 3.3.
    """
    releases = (release for release, key, version in SIGNS if key in offered and offered[key].max_version >= version)
    return next(((*release, 0) for release in releases), None)


def release_of(offered: Mapping[int, Any]) -> str:
    """The release as people write it: `Kafka 3.9`, `Kafka 4.4 or later`, `Kafka before 2.6`."""
    version = version_of(offered)
    if version is None:
        return "Kafka before 2.6"
    return f"Kafka {format_version(version)}" + (" or later" if version[:2] == SIGNS[0][0] else "")
