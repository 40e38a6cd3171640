"""One probe of a live broker: prepared, run, cleaned up, and compared with the prediction, whatever ended it."""

import contextlib
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal, NamedTuple

from kquota.access import Access, load_config
from kquota.backends.kafka import KafkaBackend, KafkaSecurity
from kquota.backends.kafka.brokers import KafkaBrokerConfigs
from kquota.backends.kafka.connection import Connection, Deadline, Lost
from kquota.backends.kafka.nodes import Nodes
from kquota.brokers import BrokerFacts
from kquota.core.enforcement.generation import BrokerSettings
from kquota.core.findings.probe import Comparison, Exchange, Limits, Load, Probe, compare
from kquota.core.quotas.quota import QuotaKey, limit_text, parse_value
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.core.resolve.resolver import Resolution, resolve
from kquota.errors import InputError, KquotaError, Refused, Unauthorized, Unreachable
from kquota.probe.client import Client, Pace, Partition

_POLL_S: Final = 0.1


class Usual(NamedTuple):
    """What a probe sends unless somebody says: its rate per second, the size, and what is never exceeded."""

    rate: float
    size: int
    most: int


USUAL: Final = {
    Probe.PRODUCE: Usual(1_000_000, 10_000, 100_000_000),
    Probe.FETCH: Usual(1_000_000, 50_000, 100_000_000),
    Probe.REQUEST: Usual(20, 1, 10_000),
}
EndedBy = Literal["duration", "bound", "interrupt"]


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """What is sent, by whom, and to what.

    `user` is whom the broker takes us for where the login does not say. Raises InputError for what does not go
    together, Refused for Kafka's own topics.
    """

    kind: Probe
    load: Load
    topic: str
    client_id: str = "kquota-probe"
    user: str | None = None
    partition: int = 0
    create_topic: bool = False
    facts: BrokerFacts = field(default_factory=BrokerFacts)
    timeout_s: float = 10.0
    quotas: QuotaSnapshot | None = None
    """The quotas, where the login may not read those of the cluster."""
    admin: KafkaSecurity | None = None
    """Another login, which reads the quotas and the broker's settings."""

    def __post_init__(self) -> None:
        if not self.topic:
            raise InputError(f"a {self.kind.value} probe needs a topic")
        if self.topic.startswith("__"):
            raise Refused(f"{self.topic}: topics that begin with __ are Kafka's own")
        if self.create_topic and self.partition:
            raise InputError("a topic that is created has partition 0 only")


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What a broker did, and what was predicted; times are ms.

    `user` and `client_id` are who was charged. `limits` are what governed it, by `resolution` and the broker's own
    settings. `left` are topics that could not be deleted.
    """

    kind: Probe
    broker: int
    user: str
    client_id: str
    resolution: Resolution
    limits: Limits
    comparison: Comparison
    ended_by: EndedBy
    left: tuple[str, ...] = ()


class Listener:
    """Hears of a run while it goes on; this one ignores it."""

    def warn(self, text: str) -> None:
        """Something that bears on the result."""

    def read(self, snapshot: QuotaSnapshot) -> None:
        """The quotas that govern, with what is unusable or ignored of them."""

    def ending(self) -> None:
        """The load is over: what was created is about to be deleted, which must not be disturbed."""


def run(
    request: ProbeRequest, bootstrap: str, security: KafkaSecurity | None = None, listener: Listener | None = None
) -> ProbeResult:
    """Loads a live broker as the request says, and compares how it throttled with the prediction.

    Waits out every throttle. KeyboardInterrupt ends the load early, and not the run. What was created is deleted in any
    case. Raises InputError, Unreachable, Unauthorized, Rejected.
    """
    return _Run(request, bootstrap, security or KafkaSecurity(), listener or Listener()).execute()


def probe(
    kind: Probe | str,
    *,
    bootstrap_server: str | None = None,
    context: str | None = None,
    command_config: Path | str | None = None,
    security: KafkaSecurity | None = None,
    rate: float | str | None = None,
    size: int | str | None = None,
    duration_s: float = 30.0,
    most: int | str | None = None,
    topic: str | None = None,
    partition: int = 0,
    create_topic: bool = False,
    client_id: str = "kquota-probe",
    user: str | None = None,
    kafka_version: str = "4.0",
    server_properties: Path | str | None = None,
    timeout_s: float = 10.0,
    listener: Listener | None = None,
) -> ProbeResult:
    """Loads a live broker a little with one kind of request, and compares how it throttles with the prediction.

    `kind` is `produce`, `fetch` or `request`; each needs a `topic`. `rate` is in bytes or requests per second, `size`
    in bytes of a record or of a fetch; `most` is never exceeded (100 MB, or 10,000 requests). Bytes may be texts such
    as `"500kB"`. The cluster is named as for `connect`. It takes `duration_s` seconds and asks nobody.

    In the result `comparison` holds the throttles that were `observed`, and the `least` and `most` that were predicted,
    in ms. Raises InputError, Refused, Unreachable, Unauthorized, Rejected.

        result = probe("produce", topic="load", rate="500kB", bootstrap_server="localhost:9092")
        print(result.comparison.agreement, result.comparison.observed.total_ms)
    """
    kind = Probe(kind)
    usual = USUAL[kind]
    load = Load(
        rate=amount(kind, usual.rate if rate is None else rate),
        size=int(amount(kind, usual.size if size is None else size)),
        duration_s=duration_s,
        most=int(amount(kind, usual.most if most is None else most)),
    )
    access = (
        Access(bootstrap_server, isolated=True)
        if context is None
        else Access.of_context(load_config().context(context))
    )
    if not access.bootstrap_server:
        raise InputError("no brokers: give bootstrap_server, or a context that has it")
    login = replace(access, command_config=access.command_config if command_config is None else Path(command_config))
    facts = BrokerFacts(kafka_version, server_properties)
    request = ProbeRequest(kind, load, topic or "", client_id, user, partition, create_topic, facts, timeout_s)
    return run(request, access.bootstrap_server, security or login.kafka_security(), listener)


def amount(kind: Probe, given: float | str) -> float:
    """A number in the unit of the probe, such as `500kB`. Raises InputError unless it is above 0."""
    value, hint = 0.0, None
    try:
        in_words = isinstance(given, str) and kind.unit == "bytes"
        value = float(parse_value(QuotaKey.PRODUCER_BYTE_RATE, str(given)) if in_words else given)
    except InputError as error:
        # What is said of 0 and less is about quotas.
        hint = None if str(given).strip().startswith(("-", "0")) else error.hint
    except ValueError:
        pass
    if not 0 < value < float("inf"):
        raise InputError(f"{given!r} is not a number above 0", hint=hint)
    return value


class _Run:
    """A probe while it runs."""

    def __init__(self, request: ProbeRequest, bootstrap: str, security: KafkaSecurity, listener: Listener) -> None:
        self._request, self._bootstrap, self._security, self._listener = request, bootstrap, security, listener
        self._exchanges: list[Exchange] = []
        self._has_created = False
        self._ended_by: EndedBy = "duration"
        self._user = self._principal()

    def _principal(self) -> str:
        """The user that the broker takes us for."""
        user, sasl, tls = self._request.user, self._security.sasl, self._security.tls
        if sasl is None and (tls is None or tls.identity is None):
            if user not in (None, "ANONYMOUS"):
                raise InputError(
                    f"without a login brokers take a client for ANONYMOUS, and not for {user}",
                    hint="--command-config FILE with the login, or no --user",
                )
            return "ANONYMOUS"
        if user is None and sasl is None:
            raise InputError("the user of a certificate is the broker's to say", hint="--user NAME")
        return str(getattr(sasl, "username", "")) if user is None else user

    def execute(self) -> ProbeResult:
        """Reads what governs the client, runs the load, and deletes what was created."""
        request = self._request
        left: tuple[str, ...] = ()
        with contextlib.closing(Nodes(self._bootstrap, timeout_s=request.timeout_s, security=self._security)) as nodes:
            try:
                if request.create_topic:
                    self._create(nodes)
                partition = self._partition(nodes)
                resolution, limits = self._prepared(partition.leader)
                self._drive(partition)
                ended_ms = time.time() * 1000
            finally:
                self._listener.ending()
                if self._has_created:
                    try:
                        nodes.delete_topic(request.topic)
                    except KquotaError as error:
                        left = (request.topic,)
                        self._listener.warn(f"not deleted: {request.topic}: {error.message}")
        lasted_s = (ended_ms - self._exchanges[0].sent_ms) / 1000 if self._exchanges else 0.0
        load = replace(request.load, duration_s=min(request.load.duration_s, lasted_s))
        comparison = compare(request.kind, self._exchanges, limits, load)
        due = load.rate * (load.duration_s - comparison.observed.total_ms / 1000)
        if comparison.charged + load.size < 0.9 * due:
            self._listener.warn(
                f"while no throttle held it back, the client sent {comparison.charged / due:.0%} of what was due:"
                " it, the network or the broker was too slow for the rate"
            )
        charged = (request.kind, partition.leader, self._user, request.client_id)
        return ProbeResult(*charged, resolution, limits, comparison, self._ended_by, left)

    def _create(self, nodes: Nodes) -> None:
        """Makes the topic. Raises InputError where there is one, which is never deleted."""
        topic = self._request.topic
        if nodes.topic(topic) is None:
            self._has_created = True  # or is about to: whatever comes now, it is deleted in the end
            self._has_created = nodes.create_topic(topic)
        if not self._has_created:
            raise InputError(f"topic {topic!r} already exists")

    def _partition(self, nodes: Nodes) -> Partition:
        """The partition, once it has a leader. Raises InputError where there is no such topic or partition."""
        topic, number = self._request.topic, self._request.partition
        patience = Deadline(self._request.timeout_s)
        while True:
            metadata = nodes.topic(topic)
            parts = [] if metadata is None else metadata.partitions
            leader = next((part.leader_id for part in parts if part.partition_index == number), None)
            addresses = nodes.addresses()
            if leader in addresses:
                return Partition(topic, number, leader, addresses[leader])
            if not patience.left or not (leader is not None or self._has_created):
                break
            time.sleep(_POLL_S)
        if leader is not None:
            raise Unreachable(f"partition {number} of topic {topic!r} has no leader now")
        what = "there is no such topic" if metadata is None else f"it has no partition {number}"
        makes = metadata is None and self._request.kind is not Probe.FETCH
        hint = "--create-topic makes it for the probe" if makes else None
        raise InputError(f"topic {topic!r}: {what}", hint=hint)

    def _prepared(self, broker: int) -> tuple[Resolution, Limits]:
        """What governs the client there, by the quotas and the broker's settings."""
        timeout_s = self._request.timeout_s
        admin = self._request.admin or self._security
        if self._request.quotas is not None:
            snapshot = self._request.quotas
        else:
            with KafkaBackend(self._bootstrap, timeout_s=timeout_s, security=admin) as backend:
                snapshot = backend.describe()
        with KafkaBrokerConfigs(self._bootstrap, timeout_s=timeout_s, security=admin) as configs:
            facts = self._request.facts
            known = facts.settings() or self._settings(configs, broker)
        resolution = self._resolution(snapshot)
        return resolution, Limits(resolution.limit, known.windows, facts.generation)

    def _settings(self, configs: KafkaBrokerConfigs, broker: int) -> BrokerSettings:
        try:
            return configs.settings(broker, self._request.facts.version)
        except Unauthorized as error:
            self._listener.warn(f"broker {broker} does not report its settings: {error.message}")
            return BrokerSettings()

    def _resolution(self, snapshot: QuotaSnapshot) -> Resolution:
        snapshot = self._request.facts.enforced(snapshot)
        self._listener.read(snapshot)
        by_key = {resolution.key: resolution for resolution in resolve(snapshot, self._user, self._request.client_id)}
        other = by_key[QuotaKey.REQUEST_PERCENTAGE]
        if self._request.kind.key is not other.key and other.limit is not None:
            self._listener.warn(
                f"{other.key} ({limit_text(other.key, other.limit)}) also applies to this client; if it throttles, you"
                " see it under 'observed' only"
            )
        return by_key[self._request.kind.key]

    def _drive(self, partition: Partition) -> None:
        """Runs the load; Ctrl-C ends it."""
        timeout_s = self._request.timeout_s
        try:
            connection = Connection.open(partition.address, self._security, Deadline(timeout_s))
            connection.client_id = self._request.client_id
            with contextlib.closing(connection):
                pace = Pace(self._request.load)
                Client(connection, partition, pace, self._exchanges, timeout_s).drive(self._request.kind)
        except KeyboardInterrupt:
            self._ended_by = "interrupt"
        except Lost as lost:
            raise Unreachable(f"lost Kafka at {partition.address}: {lost.why}", hint=lost.hint) from None
        else:
            self._ended_by = "bound" if pace.exhausted else "duration"
