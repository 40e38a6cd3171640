"""The workload document: what `kquota simulate` runs (schemas/workload.schema.json)."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from kquota.core.enforcement import QuotaWindows
from kquota.core.enforcement.apis import CONNECT_API, api_named
from kquota.core.quotas.alteration import Alteration
from kquota.core.quotas.quota import QuotaKey, Value, check_value, parse_value
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.core.simulation.workload import FETCH_API, PRODUCE_API, TOPIC_APIS, Brokers, Burst, Change, Client, Workload
from kquota.documents.encoding import Document, read_document
from kquota.documents.quotas import quotas_of, read_entity
from kquota.documents.validation import IN_ALL
from kquota.errors import InputError, placed

T = TypeVar("T")

BATCH_SIZE: Final = 16_384
"""`batch.size` of Kafka's producer: the size of a request that names none."""

_NS: Final = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "min": 60 * 10**9,
    "h": 3600 * 10**9,
    "d": 86400 * 10**9,
}
_QUANTITY = re.compile(r"\s*(?P<number>\d+(?:\.\d*)?|\.\d+)\s*(?P<unit>\S*)\s*\Z", re.ASCII)
_PER: Final = {"": 1, "/s": 1, "/min": 60, "/h": 3600}
_DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class WorkloadFile:
    """A workload as its file gives it."""

    workload: Workload
    kafka_version: str | None
    quotas: QuotaSnapshot | None
    """The quotas in the file itself, where it has any."""


Configured: TypeAlias = Callable[[Brokers, str | None], Brokers]
"""Makes of the brokers of a file, and of its Kafka version, those that its clients meet."""


def read_workload(path: Path, configured: Configured = lambda brokers, _version: brokers) -> WorkloadFile:
    """Reads a workload document. Raises InputError naming the file and the place in it."""
    document = read_document(path, "workload")
    with placed(path):
        duration_ms = _ms(document["duration"], "duration")
        if duration_ms < 1:
            raise InputError("duration: must be greater than 0")
        clients = [*_each(document, "clients", _client)]
        changes = sorted(_each(document, "changes", _change), key=lambda change: change.at_ms)
        with placed("brokers"):
            brokers = _brokers(document.get("brokers", {}))
        workload = Workload(
            duration_ms=duration_ms,
            clients=tuple(clients),
            brokers=configured(brokers, document.get("kafka_version")),
            changes=tuple(changes),
            seed=document.get("seed", 1),
            scrape_ms=_scrapes(document.get("metrics_read", "unknown")),
        )
        quotas = quotas_of(document) if "quotas" in document else None
    return WorkloadFile(workload, document.get("kafka_version"), quotas)


def _each(document: Document, name: str, read: Callable[[Document], T]) -> Iterator[T]:
    """The items of a list, each read with its place in front of what is wrong with it."""
    for number, entry in enumerate(document.get(name, ())):
        with placed(f"{name}[{number}]"):
            yield read(entry)


def _client(entry: Document) -> Client:
    api = api_named(entry["api"])
    idle = next((key for key, apis in _ONLY.items() if key in entry and api not in apis), None)
    if idle is not None:
        amount = f"; {IN_ALL}" if idle == "backlog" else ""
        raise InputError(f"{idle}: has no meaning for {api}", hint=f"a key of {' and '.join(_ONLY[idle])}{amount}")
    name = entry.get("name") or entry.get("client-id") or entry.get("user") or api
    size, pace = _load(api, entry)
    fields: dict[str, Any] = {field: read(entry[key], key) for key, (field, read) in _FIELDS.items() if key in entry}
    acks = entry.get("acks", "all")
    return Client(
        name=name,
        api=api,
        brokers=tuple(entry.get("brokers", ())),
        closed=entry.get("loop", "closed") == "closed",
        pace=pace,
        size=size,
        random=entry.get("arrivals", "even") == "random",
        bursts=tuple(_burst(burst) for burst in entry.get("bursts", [])),
        acks=-1 if acks == "all" else acks,
        **fields,
    )


def _load(api: str, entry: Document) -> tuple[int, float | None]:
    """(size, pace) from two of rate, size and pace."""
    counts_bytes = api in (PRODUCE_API, FETCH_API)
    pace = _pace(entry["pace"]) if "pace" in entry else None
    if not counts_bytes:
        wrong = next((key for key in ("rate", "size") if key in entry), None)
        if wrong is not None:
            raise InputError(f"{wrong}: only produce and fetch have bytes", hint="give a pace, in requests per second")
        return 0, pace
    size = _bytes(entry["size"], "size") if "size" in entry else None
    if "rate" in entry:
        rate = _bytes(entry["rate"], "rate")
        if pace is not None and size is not None:
            raise InputError("rate, size and pace are one too many", hint="the third follows from two")
        if pace is not None:
            size = round(rate / pace)
        else:
            size = BATCH_SIZE if size is None else size
            pace = rate / size if size else None
    size = BATCH_SIZE if size is None else size
    if size < 1:
        raise InputError("size: must be at least one byte")
    return size, pace


def _burst(entry: Document) -> Burst:
    every = _ms(entry["every"], "every") if "every" in entry else None
    length = _ms(entry["length"], "length")
    if length < 1 or (every is not None and every < length):
        raise InputError("bursts: a burst is at least 1 ms long, and over before the next")
    return Burst(_ms(entry.get("at", 0), "at"), length, float(entry["factor"]), every)


def _change(entry: Document) -> Change:
    entity = read_entity(entry["entity"])
    values: dict[QuotaKey, Value | None] = {}
    for name, raw in entry["values"].items():
        key = QuotaKey.parse(name)
        values[key] = None if raw is None else parse_value(key, raw) if isinstance(raw, str) else check_value(key, raw)
    removed = frozenset(key for key, value in values.items() if value is None)
    Alteration(entity, {key: value for key, value in values.items() if value is not None}, removed)
    return Change(_ms(entry["at"], "at"), entity, values)


def _brokers(entry: Document | int) -> Brokers:
    entry = {"count": entry} if isinstance(entry, int) else entry
    names = tuple(entry.get("names") or (f"broker-{number}" for number in range(entry.get("count", 1))))
    if len(set(names)) < len(names):
        raise InputError("names: a broker is named twice")
    raw = entry.get("listeners", ["PLAINTEXT"])
    listeners: Mapping[str, int | None] = raw if isinstance(raw, dict) else dict.fromkeys(raw)
    inter_broker = entry.get("inter_broker_listener")
    if inter_broker is not None and inter_broker not in listeners:
        raise InputError(f"inter_broker_listener: {inter_broker!r} is none of {', '.join(listeners)}")
    return Brokers(
        names=names,
        windows=QuotaWindows(entry.get("quota.window.num", 11), entry.get("quota.window.size.seconds", 1)),
        controller_windows=QuotaWindows(
            entry.get("controller.quota.window.num", 11), entry.get("controller.quota.window.size.seconds", 1)
        ),
        connection_rate=entry.get("max.connection.creation.rate"),
        listeners=listeners,
        inter_broker_listener=inter_broker,
    )


def _scrapes(raw: Any) -> int | None:
    if raw == "unknown":
        return None
    return 0 if raw == "never" else max(_ms(raw, "metrics_read"), 1)


def _number(raw: Any, key: str, units: Mapping[str, int], default: str) -> Decimal:
    """A quantity in the smallest of the units; a bare number is in the default one."""
    match = _QUANTITY.match(str(raw))
    unit = (match["unit"] or default) if match else ""
    if match is None or unit not in units:
        known = ", ".join(unit for unit in units if unit.isascii())
        raise InputError(f"{key}: cannot read {raw!r}", hint=f"a number with one of {known}")
    return Decimal(match["number"]) * units[unit]


def _ns(raw: Any, key: str) -> int:
    """A time on a broker's threads; a bare number is ms."""
    return round(_number(raw, key, _NS, "ms"))


def _ms(raw: Any, key: str) -> int:
    """A length of time in ms; a bare number is seconds."""
    number = round(_number(raw, key, _NS, "s") / 10**6)
    if number > 366 * _DAY_MS:
        raise InputError(f"{key}: {raw!r} is longer than a year")
    return number


def _bytes(raw: Any, key: str) -> int:
    if raw == 0:
        return 0
    try:
        text = str(raw) if isinstance(raw, str) else format(Decimal(repr(raw)), "f")
        return int(parse_value(QuotaKey.PRODUCER_BYTE_RATE, text))
    except InputError as error:
        message = error.message.removeprefix(f"{QuotaKey.PRODUCER_BYTE_RATE}: ")
        raise InputError(f"{key}: {message}", hint="bytes, such as 20000, 20kB or 1MiB") from None


def _pace(raw: Any) -> float:
    match = _QUANTITY.match(str(raw))
    if match is None or match["unit"] not in _PER:
        raise InputError(f"pace: cannot read {raw!r}", hint="requests per second, such as 20, 0.5, 30/min or 2/h")
    return float(Decimal(match["number"]) / _PER[match["unit"]])


def _as_it_is(raw: Any, _key: str) -> Any:
    return raw


_AS_IT_IS: Final = (
    *("user", "client-id", "ip", "count", "connections", "listener", "requests", "in_flight", "topics", "partitions"),
    *("strict", "retry"),
)
_IN_MS: Final = ("start", "stop", "ramp", "think", "latency", "round_trip", "max_wait", "backoff")
_FIELDS: Final[Mapping[str, tuple[str, Callable[[Any, str], Any]]]] = {
    **{name: (name.replace("-", "_"), _as_it_is) for name in _AS_IT_IS},
    **{name: (f"{name}_ms", _ms) for name in _IN_MS},
    "honours_throttle": ("honours", _as_it_is),
    "request_time": ("nanos", _ns),
    "request_time_per_mib": ("nanos_per_mib", _ns),
    "network_time": ("network_nanos", _ns),
    "max_bytes": ("max_bytes", _bytes),
    "backlog": ("backlog", _bytes),
    "api_timeout": ("api_timeout_ms", lambda raw, key: None if raw == "never" else _ms(raw, key)),
}
"""The keys of a client that stand for one field each, and how they are read."""

_ONLY: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("topics", "strict", "api_timeout"), TOPIC_APIS),
    "partitions": (*TOPIC_APIS, FETCH_API),
    **dict.fromkeys(("backlog", "max_bytes", "max_wait"), (FETCH_API,)),
    "acks": (PRODUCE_API,),
    "backoff": (CONNECT_API,),
}
"""The keys of a client that only these requests have."""
