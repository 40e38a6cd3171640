"""The names under which monitoring keeps the quota metrics of brokers, and what they are about.

Kafka names its MBeans `kafka.server:type=Produce,user=alice,client-id=app1` with the attributes `byte-rate` and
`throttle-time`; an empty tag is left out, and the user is URL-encoded (`Sanitizer`). A client-id with other characters
than letters, digits, `-`, `_`, `%`, `.` and space is quoted (`ObjectName.quote`; `Sanitizer.jmxSanitize`). Exporters
make of it what their rules say. Read are the rules that are common, the broken ones included:

| series | labels | from |
|---|---|---|
| `kafka_server_quota_byte_rate`, `…_request_time`, `…_throttle_time` | `resource`, `user`, `clientId` | the JMX exporter's example |
| the same | `resource="Produce, user=alice"`, `clientId` | its rules in another order |
| `kafka_server_produce_byte_rate`, `kafka_server_Fetch_byte_rate` | `user`, `client_id` or `clientId` | Confluent's stacks, older rules |
| `kafka_server_quota_produce_byte_rate` | `user`, `client` | rules in articles |
| `kafka_server_quota_byte_rate`, `kafka_server_quota_throttle_time_ms` | `quota_type`, `quota_scope`, `user`, `client_id`, `broker` | Chitragupta |
| `kafka_server_quota_tokens`, `…_controllermutation_tokens` | as the first three | live views only |
| `kafka_server_socket_server_metrics_connection_accept_rate` | `ip` | live views only |
| `redpanda_kafka_quotas_client_quota_throughput_by_entity` (a counter) | `redpanda_quota_type`, `redpanda_quota_user`, `…_client_id` | Redpanda 26.2 |

The broker is the label `broker`, else `pod`, else `instance`. Redpanda's histogram `…_client_quota_throughput` adds all
clients of a rule up and says nothing about any of them; it is left out, as are series of groups of client-ids.
"""  # noqa: E501 - a table

import enum
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import unquote

from kquota.core.change.history import EARLIEST_MS, LATEST_MS
from kquota.core.findings.use import Counter
from kquota.core.quotas.quota import QuotaKey


class Nature(enum.Enum):
    """What the values of a series are."""

    RATE = "rate"
    """The broker's windowed rate, in units of the quota key per second, at each time."""
    COUNTER = "counter"
    """What was charged up to each time, since the counter began."""
    THROTTLE = "throttle"
    """The mean throttle time (ms) of throttled requests in the last half minute or minute; 0 where there were none."""
    TOKENS = "tokens"
    """What is left in the bucket of a mutation quota; negative where the controller throttles."""


class Series(NamedTuple):
    """What one series is about. `user` (the principal's name) and `client_id` are None where it sums over all."""

    broker: str
    key: QuotaKey
    nature: Nature
    user: str | None
    client_id: str | None
    part: str = ""
    """Tells series apart that are to be added up: the shard."""

    @property
    def counter(self) -> Counter:
        """The counter of a broker that the series is about."""
        return Counter(self.broker, self.key, self.user or "", self.client_id or "")


class Swallowed(ValueError):
    """A series of a counter whose user is a part of the metric's name, and cannot be restored from it."""

    def __init__(self, name: str, key: QuotaKey) -> None:
        super().__init__(
            f"{name}: a rule of the JMX exporter such as type=(.+), client-id=(.+) made the user a part of the metric's"
            " name, where it cannot be told; 'kquota generate jmx-exporter' writes rules that keep it as a label"
        )
        self.key = key


_KEYS: Final = {
    "produce": QuotaKey.PRODUCER_BYTE_RATE,
    "fetch": QuotaKey.CONSUMER_BYTE_RATE,
    "request": QuotaKey.REQUEST_PERCENTAGE,
    "controllermutation": QuotaKey.CONTROLLER_MUTATION_RATE,
    # Chitragupta
    "producer": QuotaKey.PRODUCER_BYTE_RATE,
    "consumer": QuotaKey.CONSUMER_BYTE_RATE,
    # Redpanda
    "produce_quota": QuotaKey.PRODUCER_BYTE_RATE,
    "fetch_quota": QuotaKey.CONSUMER_BYTE_RATE,
}
_RATES: Final = {
    QuotaKey.PRODUCER_BYTE_RATE: "byte_rate",
    QuotaKey.CONSUMER_BYTE_RATE: "byte_rate",
    QuotaKey.REQUEST_PERCENTAGE: "request_time",
    QuotaKey.CONTROLLER_MUTATION_RATE: "mutation_rate",
}
_ATTRIBUTE: Final = r"(?P<attribute>byte_rate|request_time|mutation_rate|throttle_time(?:_ms)?)"
_QUOTA: Final = re.compile(
    rf"kafka_server_(?:quota_)?(?:(?P<type>produce|fetch|request|controllermutation)_)?{_ATTRIBUTE}", re.I
)
_IN_NAME: Final = re.compile(
    rf"kafka_server_(?:quota_)?(?P<type>produce|fetch|request|controllermutation)_.+_{_ATTRIBUTE}", re.I
)
"""What rules such as `kafka.server<type=(.+), client-id=(.+)><>(.+)` make of a user or a client-id."""
_REDPANDA: Final = re.compile(r"(?:redpanda|vectorized)_kafka_quotas_client_quota_throughput_by_entity(?:_total)?")
_TOKENS: Final = re.compile(r"kafka_server_(?:quota_)?(?:(?P<type>controllermutation)_)?(?P<attribute>tokens)", re.I)
_CONNECTIONS: Final = re.compile(r"kafka_server_socket_server_metrics_connection_accept_rate", re.I)
_SWALLOWED: Final = re.compile(r"(?P<type>[^,]+), user=(?P<user>.*)", re.S)
_MBEAN: Final = re.compile(
    r"kafka\.server:type=(?P<type>[A-Za-z]+)(?:,user=(?P<user>[^,]+))?(?:,client-id=(?P<client>.+))?:(?P<attribute>[a-z-]+)",
    re.S,
)
SELECTOR: Final = (
    '{__name__=~"(?i:kafka_server_(quota_)?((produce|fetch|request|controllermutation)_(.+_)?)?'
    '(byte_rate|request_time|mutation_rate|throttle_time(_ms)?))|.*_client_quota_throughput_by_entity(_total)?"}'
)
"""The series above, as Prometheus selects them."""
LIVE_SELECTOR: Final = (
    '{__name__=~"(?i:kafka_server_(quota_)?((produce|fetch|request|controllermutation)_(.+_)?)?'
    "(byte_rate|request_time|mutation_rate|tokens|throttle_time(_ms)?)|"
    'kafka_server_socket_server_metrics_connection_accept_rate)|.*_client_quota_throughput_by_entity(_total)?"}'
)
"""The same and what only a live view reads: tokens of mutations, and the connection rates of ips."""
IDENTITY: Final = (
    "resource",
    "quota_type",
    "quota_scope",
    "type",
    "user",
    "client_id",
    "clientId",
    "clientid",
    "client",
    "ip",
    "redpanda_quota_type",
    "redpanda_quota_user",
    "redpanda_quota_client_id",
)
"""The labels that say which counter of a broker a series is about, in all dialects."""


def of_labels(labels: Mapping[str, str], broker: str | None) -> Series | None:
    """The series behind a metric's labels (`__name__` included); None for a metric that is not about a client's quota.

    `broker` is the broker's name as the caller knows it; None: as the labels say. Raises ValueError for labels that no
    known rule makes, Swallowed for one that puts the user into the name.
    """
    name = labels.get("__name__", "")
    where = _where(labels, broker)
    if _REDPANDA.fullmatch(name):
        return _of_redpanda(labels, where)
    if inside := _IN_NAME.fullmatch(name):
        raise Swallowed(name, _KEYS[inside["type"].lower()])
    match = _QUOTA.fullmatch(name)
    return None if match is None else _of_kafka(labels, match, where)


def of_live_labels(labels: Mapping[str, str], broker: str | None) -> Series | None:
    """As `of_labels`, and the series that only a live view reads: tokens, and the connections of an ip.

    The client-id of connections is the ip.
    """
    name = labels.get("__name__", "")
    tokens = _TOKENS.fullmatch(name)
    if tokens is not None:
        return _of_kafka(labels, tokens, _where(labels, broker))
    if _CONNECTIONS.fullmatch(name):
        ip = labels.get("ip")
        key = QuotaKey.CONNECTION_CREATION_RATE
        return Series(_where(labels, broker), key, Nature.RATE, None, ip) if ip else None
    return of_labels(labels, broker)


def _where(labels: Mapping[str, str], broker: str | None) -> str:
    if broker is not None:
        return broker
    return next((labels[name] for name in ("broker", "pod", "instance") if name in labels), "")


def _of_kafka(labels: Mapping[str, str], match: re.Match[str], where: str) -> Series | None:
    kind = match["type"] or labels.get("resource") or labels.get("quota_type") or labels.get("type") or ""
    user = labels.get("user")
    swallowed = _SWALLOWED.fullmatch(kind)
    if swallowed:
        kind, user = swallowed["type"], swallowed["user"]
    attribute = match["attribute"].lower()
    client = next((labels[n] for n in ("client_id", "clientId", "clientid", "client") if n in labels), None)
    scope = labels.get("quota_scope")
    if scope == "user":
        client = None
    elif scope in ("client-id", "client"):
        user = None
    return _series(kind, attribute, user, client, where)


@lru_cache(maxsize=65536)
def of_mbean(name: str, broker: str) -> Series | None:
    """The series behind `<ObjectName>:<attribute>`, as JmxTool names it; None for another's. Raises ValueError."""
    match = _MBEAN.fullmatch(name)
    if match is None or match["type"].lower() not in _KEYS:
        return None
    attribute = match["attribute"].replace("-", "_")
    if attribute not in (*_RATES.values(), "throttle_time"):
        return None
    return _series(match["type"], attribute, match["user"], match["client"], broker)


def _series(kind: str, attribute: str, user: str | None, client: str | None, broker: str) -> Series | None:
    key = _KEYS.get(kind.lower())
    if key is None:
        raise ValueError(
            f"no quota of a client is called {kind!r}" if kind else "no label says which quota it is about"
        )
    if attribute.startswith("throttle_time"):
        nature = Nature.THROTTLE
    elif attribute == "tokens" and key is QuotaKey.CONTROLLER_MUTATION_RATE:
        nature = Nature.TOKENS
    elif attribute == _RATES[key]:
        nature = Nature.RATE
    else:
        raise ValueError(f"{kind} has no {attribute}")
    if not user and not client:
        return None
    return Series(broker, key, nature, unquote(user) if user else None, _unquoted(client) if client else None)


def _of_redpanda(labels: Mapping[str, str], broker: str) -> Series | None:
    key = _KEYS.get(labels.get("redpanda_quota_type", ""))
    user, client = labels.get("redpanda_quota_user"), labels.get("redpanda_quota_client_id")
    if key is None or (not user and not client):
        return None
    return Series(broker, key, Nature.COUNTER, user or None, client or None, labels.get("shard", ""))


def _unquoted(text: str) -> str:
    """The inverse of `ObjectName.quote`; a text that is not quoted stays."""
    if len(text) < 2 or not (text.startswith('"') and text.endswith('"')):
        return text
    return re.sub(r"\\(.)", lambda escape: "\n" if escape[1] == "n" else escape[1], text[1:-1], flags=re.S)


def checked(nature: Nature, time_ms: int, value: float) -> float | None:
    """The value as it counts, None for one that says nothing. Raises ValueError for one that cannot be.

    Brokers report NaN for a mean over nothing: no request was throttled.
    """
    if not EARLIEST_MS <= time_ms < LATEST_MS:
        raise ValueError("the time is not one between 2001 and 2100")
    if value != value:
        return 0.0 if nature is Nature.THROTTLE else None
    if nature is Nature.TOKENS:  # a bucket without a limit holds 11 seconds of 2^63, and one in debt is below 0
        return value
    if not 0 <= value < 2.0**63:
        raise ValueError(f"{value:g} is not a {nature.value} of a quota")
    return value
