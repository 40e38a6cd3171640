"""Usage becomes a ledger: each request is charged to the counters of all quotas under test.

A resolution in plain Python stands for all clients that no quota names; everything for each row is an array operation.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import repeat
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from kquota.audit.batch import CHARGED_KEYS, KEYS, Batch, Bools, Column, Int64s
from kquota.audit.ledger import loops
from kquota.audit.ledger.rows import CHARGES, COLUMNS, NEVER, OPTIONAL, Ledger, fingerprint
from kquota.audit.settings import AuditSettings, Together
from kquota.core.enforcement.kind import CONNECTION, MUTATION
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.core.resolve.resolver import Resolver, Sensor, encode_user, resolve_ip

KEPT_CLIENTS: Final = 1_000_000
"""Once more clients are known, all are forgotten: the tables would grow with every task."""
_BITS: Final = 24
_MASK: Final = (1 << _BITS) - 1
_KIND_BITS: Final = 3
_KINDS: Final = (1 << _KIND_BITS) - 1
_MOST_RESOLVED: Final = 100_000
NAMELESS: Final = 0
"""The number of the empty string; also of a tag that a counter does not have."""
_ABSENT: Final = {"throttle_ms": -1, "connection": 0, "detail": 0}
"""What stands in an optional column where the export says nothing."""


class _Interner:
    """Small integers for strings, the same for the life of a worker."""

    def __init__(self) -> None:
        self.index: dict[str, int] = {"": NAMELESS}
        self.names: list[str] = [""]
        self._fingerprints = np.zeros(0, np.int64)

    def numbers(self, names: Sequence[str]) -> Int64s:
        """The numbers of the strings; of one at least, so that a column without any has something to point to."""
        return np.fromiter((self.number(name) for name in names or ("",)), np.int64, max(1, len(names)))

    def number(self, name: str) -> int:
        """The number of a string."""
        code = self.index.get(name)
        if code is None:
            code = self.index[name] = len(self.names)
            self.names.append(name)
        return code

    def told_apart(self, codes: Int64s, names: Collection[str] | None) -> Int64s:
        """Different for strings that are among the names, or empty, and 0 for all others; without names for all."""
        if names is None:
            return codes
        own = self.names
        numbers = (code + 1 if code == NAMELESS or own[code] in names else 0 for code in codes.tolist())
        return np.fromiter(numbers, np.int64, len(codes))

    def column(self, codes: Int64s) -> Column:
        """The strings with these numbers."""
        is_used = np.zeros(len(self.names), bool)
        is_used[codes] = True
        own = np.cumsum(is_used, dtype=np.int32) - np.int32(1)
        return Column(own[codes], [self.names[code] for code in np.flatnonzero(is_used).tolist()])

    def fingerprints(self, codes: Int64s) -> Int64s:
        """Those of the strings with these numbers."""
        if len(self._fingerprints) < len(self.names):
            new = [fingerprint(name) for name in self.names[len(self._fingerprints) :]]
            self._fingerprints = np.concatenate([self._fingerprints, np.array(new, np.int64)])
        of_codes: Int64s = self._fingerprints[codes]
        return of_codes


class _Memo:
    """Whole numbers, each with a row of others, asked for many at once: 24 bytes each, where a dict has 159."""

    def __init__(self, width: int) -> None:
        self._keys = np.zeros(0, np.int64)
        self._values = np.zeros((0, width), np.int64)

    def __len__(self) -> int:
        return len(self._keys)

    def look_up(self, keys: Int64s, compute: Callable[[Int64s], Int64s]) -> Int64s:
        """The row of each key; rows of unknown keys are computed, in the order of the keys, and kept."""
        places = np.searchsorted(self._keys, keys)
        inside = places < len(self._keys)
        known = inside.copy()
        known[inside] = self._keys[places[inside]] == keys[inside]
        if not known.all():
            new = np.unique(keys[~known])
            at = np.searchsorted(self._keys, new)
            values = compute(new)
            self._keys, self._values = np.insert(self._keys, at, new), np.insert(self._values, at, values, axis=0)
            places = np.searchsorted(self._keys, keys)
        rows: Int64s = self._values[places]
        return rows


class _Limiting(NamedTuple):
    """What limits a client, and whether its counter has the tags of a user and of a client-id."""

    by_user: bool
    by_client_id: bool
    level: int
    """0 where nothing limits it."""
    limit: float
    entity: str


_NOTHING: Final = _Limiting(False, False, 0, 0.0, "")


class _Period:
    """What one snapshot of a variant's history charges clients to."""

    def __init__(self, variant: int, number: int, quotas: QuotaSnapshot) -> None:
        self.variant, self.number = variant, number
        self.charged = _Memo(2)
        """Distinct client → the charges of its bytes and of its thread time; -1 for none."""
        self._quotas = quotas
        self._resolvers = {key: Resolver.of(quotas, key) for key in KEYS}
        self.resolve = lru_cache(_MOST_RESOLVED)(self._resolve)
        self.names = {key: _names(key, self._resolvers[key].values) for key in KEYS}
        """The users and the client-ids that quotas of a key name."""
        self.times_requests = bool(self._resolvers[QuotaKey.REQUEST_PERCENTAGE].values)

    def _resolve(self, key: QuotaKey, user: str, client_id: str) -> _Limiting:
        """What limits a client, the same on all brokers."""
        if key is QuotaKey.CONNECTION_CREATION_RATE:
            resolution = resolve_ip(self._quotas, client_id)
        else:
            resolution = self._resolvers[key].resolve(user, client_id)
        if resolution.limit is None or resolution.entity is None or resolution.level is None:
            return _NOTHING
        tags = bool(resolution.sensor.user), bool(resolution.sensor.client_id)
        return _Limiting(*tags, int(resolution.level), float(resolution.limit), str(resolution.entity))


def _names(key: QuotaKey, entities: Collection[Entity]) -> tuple[Collection[str], Collection[str] | None]:
    """The users and the client-ids in these entities; None in place of ips, which are spelled in several ways."""
    users = {entity.user for entity in entities if isinstance(entity.user, str)}
    client_ids = {entity.client_id for entity in entities if isinstance(entity.client_id, str)}
    return users, None if key is QuotaKey.CONNECTION_CREATION_RATE else client_ids


class _Piece(NamedTuple):
    """What a batch was charged under one period."""

    columns: dict[str, Any]
    charge_of: Int64s
    """Of each code, -1 for none."""
    charges: Int64s
    events: Int64s
    value: Int64s
    incomplete_ms: Int64s | None
    silent: Bools | None


class Charger:
    """Charges batches, and keeps what it knows of clients between them; a copy for another process knows nothing."""

    def __init__(self, settings: AuditSettings) -> None:
        self.settings = settings
        self.ungoverned = 0
        """Events that no quota limits."""
        self.rows = 0
        """How many wait to be taken."""
        self._pieces: list[_Piece] = []
        self._forget()

    def __reduce__(self) -> tuple[type[Charger], tuple[AuditSettings]]:
        return Charger, (self.settings,)

    def _forget(self) -> None:
        self._brokers, self._users, self._clients = _Interner(), _Interner(), _Interner()
        self._sensors, self._entities = _Interner(), _Interner()
        self._counters: dict[tuple[int, QuotaKey], _Memo] = {}
        """(variant, key) → (broker, tags) → the place in the columns of counters."""
        self._of_counters = {name: array("q") for name in ("counter", "home", "variant", "broker", "key", "sensor")}
        self._of_charges = array("q")
        """(place of the counter, client, period, entity, level) of each charge."""
        self._limits = array("d")
        self._periods: list[list[_Period]] = [[] for _ in self.settings.variants]
        self.change(self.settings)

    def change(self, settings: AuditSettings) -> None:
        """Goes on under longer histories of quotas, which begin with those so far."""
        self.settings = settings
        self._changes = [np.array(history.changes_ms, np.int64) for history in settings.variants]
        for variant, (periods, history) in enumerate(zip(self._periods, settings.variants, strict=True)):
            known, new = len(periods), history.snapshots[len(periods) :]
            periods += [_Period(variant, number, snapshot) for number, snapshot in enumerate(new, known)]

    def charge(self, batch: Batch) -> None:
        """Takes the next events."""
        if not len(batch):
            return
        names = (self._brokers, batch.broker), (self._users, batch.user), (self._clients, batch.client_id)
        known = [interner.numbers(column.values) for interner, column in names]
        if max(len(self._users.names), len(self._clients.names)) > _MASK or len(self._brokers.names) > 1 << 12:
            raise OverflowError("more than 16 million users or client-ids, or 4096 brokers, in one task")
        keys = loops.client_keys(
            batch.kind, known[0] << 2 * _BITS + _KIND_BITS, batch.broker.codes, known[1] << _BITS, batch.user.codes,
            known[2], batch.client_id.codes, 2 * _BITS,
        )  # fmt: skip
        codes, clients = loops.dense_codes(keys)
        for changes, periods in zip(self._changes, self._periods, strict=True):
            if not len(changes):
                self._charge(batch, codes, clients, periods[0])
                continue
            in_period = np.searchsorted(changes, batch.time_ms, side="right")
            for number in np.unique(in_period).tolist():
                rows = in_period == number
                here, present = np.unique(codes[rows], return_inverse=True)
                self._charge(batch.take(rows), present.astype(np.int32), clients[here], periods[number])

    def _charge(self, batch: Batch, codes: Any, clients: Int64s, period: _Period) -> None:
        charged = period.charged.look_up(clients, lambda new: self._charges_of(new, period))
        if period.variant == 0:
            free = (charged.max(axis=1) < 0) & (clients >> 2 * _BITS & _KINDS != MUTATION)
            self.ungoverned += int(np.count_nonzero(free[codes])) if free.any() else 0
        self._add(batch, codes, charged[:, 0], batch.bytes, batch.bytes_complete)
        if period.times_requests:
            # An export without thread times still names the clients whose request quota cannot be judged.
            nanos = batch.request_ns if batch.request_ns is not None else np.zeros(len(batch), np.int64)
            complete = False if batch.request_ns is None else batch.request_complete
            # Of its counters of bytes and of thread time the kind says which requests are the same. Without
            # connections nobody asks.
            timed = replace(batch, detail=None if batch.connection is None else batch.kind.astype(np.int64))
            self._add(timed, codes, charged[:, 1], nanos, complete)

    def _charges_of(self, clients: Int64s, period: _Period) -> Int64s:
        """What the bytes and the thread time of distinct clients are charged to; -1 for nothing."""
        kinds = clients >> 2 * _BITS & _KINDS
        charges = np.full((len(clients), 2), -1)
        for kind, key in CHARGED_KEYS.items():
            which = kinds == kind
            charges[which, 0] = self._charge_to(clients[which], key, period)
        if period.times_requests:
            # A topic is a part of a request, whose thread time is an event of its own; a connection is none.
            which = (kinds != MUTATION) & (kinds != CONNECTION)
            charges[which, 1] = self._charge_to(clients[which], QuotaKey.REQUEST_PERCENTAGE, period)
        return charges

    def _charge_to(self, clients: Int64s, key: QuotaKey, period: _Period) -> Int64s:
        """New charges of distinct clients under a key; -1 for clients that no quota limits."""
        charges = np.full(len(clients), -1)
        if not len(clients):
            return charges
        users, client_ids = clients >> _BITS & _MASK, clients & _MASK
        of_users, of_clients = period.names[key]
        alike = self._users.told_apart(users, of_users) << 32 | self._clients.told_apart(client_ids, of_clients)
        _, firsts, likes = np.unique(alike, return_index=True, return_inverse=True)
        pairs = zip(users[firsts].tolist(), client_ids[firsts].tolist(), strict=True)
        limiting = [period.resolve(key, self._users.names[user], self._clients.names[name]) for user, name in pairs]
        which = np.flatnonzero(np.array([quota.level > 0 for quota in limiting])[likes])
        by_user, by_client_id, levels, limits, entities = (
            np.array(column)[likes[which]]
            for column in zip(*((*quota[:4], self._entities.number(quota.entity)) for quota in limiting), strict=True)
        )
        tags = users[which] * by_user << _BITS | client_ids[which] * by_client_id
        tagged = clients[which] >> 2 * _BITS + _KIND_BITS << 2 * _BITS | tags
        counters = self._counters.setdefault((period.variant, key), _Memo(1))
        places = counters.look_up(tagged, lambda new: self._begun(new, key, period.variant))[:, 0]
        numbers = np.full(len(which), period.number)
        self._of_charges.frombytes(np.column_stack([places, clients[which], numbers, entities, levels]).tobytes())
        charges[which] = len(self._limits) + np.arange(len(which))
        self._limits.frombytes(limits.tobytes())
        return charges

    def _begun(self, tagged: Int64s, key: QuotaKey, variant: int) -> Int64s:
        """The places of new counters; each is given as its broker and the numbers of its tags."""
        first, number = len(self._of_counters["counter"]), KEYS.index(key)
        brokers = (tagged >> 2 * _BITS).tolist()
        names = [self._brokers.names[broker] for broker in brokers]
        users = (self._users.names[user] for user in (tagged >> _BITS & _MASK).tolist())
        clients = (self._clients.names[client] for client in (tagged & _MASK).tolist())
        tags = [Sensor(encode_user(user), client) for user, client in zip(users, clients, strict=True)]
        sensors = [*map(str, tags)]
        named = zip(names, sensors, strict=True)
        ids = [fingerprint(str(variant), broker, key.value, sensor) for broker, sensor in named]
        columns: tuple[Iterable[int], ...] = (
            ids,
            map(self._home, ids, names, tags),
            repeat(variant, len(ids)),
            brokers,
            repeat(number, len(ids)),
            map(self._sensors.number, sensors),
        )
        for column, numbers in zip(self._of_counters.values(), columns, strict=True):
            column.extend(numbers)
        return np.arange(first, first + len(tagged))[:, np.newaxis]

    def _home(self, counter_id: int, broker: str, tags: Sensor) -> int:
        match self.settings.kept:
            case Together.COUNTER:
                return counter_id
            case Together.USER:
                return fingerprint(broker, tags.user)
            case Together.CLIENT_ID:
                return fingerprint(broker, tags.client_id)
            case Together.BROKER:
                return fingerprint(broker)

    def _add(self, batch: Batch, codes: Any, charged: Int64s, values: Int64s, complete: bool | Bools) -> None:
        """Keeps the governed rows of a batch: `charged` is the charge of each code, -1 for none."""
        governed = charged >= 0
        if not governed.any():
            return
        events, sums = loops.totals(codes, values, len(charged))
        columns = {
            "code": codes,
            "time": batch.time_ms,
            "value": values,
            **{name: getattr(batch, name) for name in OPTIONAL if getattr(batch, name) is not None},
        }
        if not governed.all():
            rows = governed[codes]
            columns = {name: column[rows] for name, column in columns.items()}
        incomplete_ms = None
        if complete is not True:
            lacking = slice(None) if complete is False else np.flatnonzero(~np.asarray(complete))
            incomplete_ms = np.full(len(charged), NEVER)
            np.minimum.at(incomplete_ms, codes[lacking], batch.time_ms[lacking])
            incomplete_ms = incomplete_ms[governed]
        silent = None
        if batch.throttle_ms is not None:
            silent = np.bincount(codes[batch.throttle_ms < 0], minlength=len(charged))[governed] > 0
        piece = _Piece(columns, charged, charged[governed], events[governed], sums[governed], incomplete_ms, silent)
        self._pieces.append(piece)
        self.rows += len(columns["code"])

    def take(self, ordinal: tuple[int, int]) -> Iterator[Ledger]:
        """All that was charged since the last call, as one ledger if it is anything; `ordinal` is its place."""
        pieces, self._pieces, self.rows = self._pieces, [], 0
        if not pieces:
            return
        count = len(self._limits)
        events, value = np.zeros(count, np.int64), np.zeros(count, np.int64)
        incomplete_ms, silent = np.full(count, NEVER), np.zeros(count, bool)
        for piece in pieces:
            events[piece.charges] += piece.events
            value[piece.charges] += piece.value
            if piece.incomplete_ms is not None:
                incomplete_ms[piece.charges] = np.minimum(incomplete_ms[piece.charges], piece.incomplete_ms)
            silent[piece.charges] |= True if piece.silent is None else piece.silent
        used = np.flatnonzero(events)
        totals = {"events": events, "value": value, "incomplete_ms": incomplete_ms, "silent": silent}
        local = np.zeros(count, np.int32)
        local[used] = np.arange(len(used))
        columns: dict[str, Any] = dict.fromkeys(OPTIONAL)
        columns["code"] = np.concatenate([local[piece.charge_of][piece.columns["code"]] for piece in pieces])
        for name in COLUMNS[1:]:
            if any(name in piece.columns for piece in pieces):
                parts = ((piece.columns.get(name), len(piece.columns["code"])) for piece in pieces)
                columns[name] = np.concatenate(
                    [np.full(rows, _ABSENT[name]) if part is None else part for part, rows in parts]
                )
        yield Ledger(ordinal, self._table(used, {name: column[used] for name, column in totals.items()}), **columns)
        if sum(len(period.charged) for periods in self._periods for period in periods) > KEPT_CLIENTS:
            self._forget()

    def _table(self, charges: Int64s, totals: dict[str, Any]) -> pa.Table:
        """Those charges (`CHARGES`)."""
        places, clients, *limits = np.frombuffer(self._of_charges, np.int64).reshape(-1, 5)[charges].T
        own = dict(zip(("period", "entity", "level"), limits, strict=True))
        own |= {name: np.frombuffer(column, np.int64)[places] for name, column in self._of_counters.items()}
        users, client_ids = clients >> _BITS & _MASK, clients & _MASK
        # Multiplied by two odd constants so that (a, b) and (b, a) differ; the product wraps, which mixes.
        one, other = np.int64(-7046029254386353131), np.int64(-4417276706812531889)
        mixed = self._users.fingerprints(users) * one ^ self._clients.fingerprints(client_ids) * other
        columns: dict[str, Any] = {
            **own,
            "member": mixed & np.int64((1 << 63) - 1),
            "broker": self._brokers.column(own["broker"]),
            "sensor": self._sensors.column(own["sensor"]),
            "entity": self._entities.column(own["entity"]),
            "limit": np.frombuffer(self._limits, np.float64)[charges],
            "user": self._users.column(users),
            "client_id": self._clients.column(client_ids),
            **totals,
        }
        return pa.table([_arrow(columns[field.name], field.type) for field in CHARGES], schema=CHARGES)


def _arrow(column: Any, kind: pa.DataType) -> pa.Array:
    if isinstance(column, np.ndarray):
        return pa.array(column).cast(kind)
    return pa.DictionaryArray.from_arrays(column.codes, pa.array(column.values, pa.string()))
