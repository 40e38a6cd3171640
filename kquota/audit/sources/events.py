"""Usage tables and request logs as a workload: each client's requests as they were recorded, in the open loop.

In memory and on one machine, for `kquota simulate --events`; `kquota.audit.engines.spark` does the same for any amount.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import Any, TypeAlias

import numpy as np

from kquota.audit.batch import UNKNOWN, Batch, Int64s, Tally, UnreadFile
from kquota.audit.sources import ReadSettings, hidden, origins, plan_splits, read, usage
from kquota.audit.sources.data_log import LOWER_BOUND
from kquota.audit.sources.mutations import TopicLog
from kquota.audit.sources.mutations import batches as topic_batches
from kquota.audit.sources.samples import Samples
from kquota.core.enforcement.apis import CONNECT_API
from kquota.core.enforcement.kind import CONNECTION, FETCH, MUTATION, PERMISSIVE, PRODUCE
from kquota.core.quotas.quota import QuotaKey
from kquota.core.simulation.workload import FETCH_API, PRODUCE_API, TOPIC_APIS, Brokers, Client, Events, Workload
from kquota.errors import InputError

_APIS: dict[int, str] = {
    PRODUCE: PRODUCE_API,
    FETCH: FETCH_API,
    CONNECTION: CONNECT_API,
    MUTATION: TOPIC_APIS[0],
    PERMISSIVE: TOPIC_APIS[0],
}
_OTHER_API = "other"


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded workload, and how good it is."""

    workload: Workload
    rejected: int
    """Records that cannot be read."""
    unsized: int
    """Requests whose size the export does not tell, such as throttled fetches; they are left out."""
    complete: bool
    """Whether all thread time is known; a request log lacks the network threads' share."""
    unread_files: tuple[UnreadFile, ...]
    """Files that could not be read to their ends."""
    grid_ms: int
    """What all the times are multiples of, from the first on: the width of the bins of a coarse export."""
    hidden: Mapping[QuotaKey, str]
    """Why a key's usage is not in it, or not all of it."""
    several_brokers: str | None
    """What may show that one log is of several brokers."""


def read_events(
    paths: Sequence[str], settings: ReadSettings, left_out: Callable[[str, str], None] = lambda path, why: None
) -> Recording:
    """Reads files of usage events. Raises InputError when there are none that can be read, or mixed brokers in a log.

    `left_out` is called with each file that is not read, or read once although it is given twice, and why.
    """
    tally = Tally()
    batches: list[Batch] = []
    topics: list[TopicLog] = []
    for split in plan_splits(paths, "auto", left_out):
        for batch in read(split, settings, tally):
            if isinstance(batch, Samples):
                raise InputError(f"{split.path}: holds samples, not requests: there is nothing in it to replay")
            if isinstance(batch, TopicLog):
                topics.append(batch)
            elif isinstance(batch, Batch) and len(batch):
                batches.append(batch)
    batches += topic_batches(topics, settings.num_partitions)
    if not batches:
        raise InputError(f"{', '.join(paths)}: no usage event can be read ({tally.rejected} rejected)")
    names: dict[_Name, int] = {}
    owners = np.concatenate([_owners(batch, names) for batch in batches])
    times = np.concatenate([batch.time_ms for batch in batches])
    sizes = np.concatenate([_sizes(batch) for batch in batches])
    nanos = np.concatenate(
        [np.zeros(len(batch), np.int64) if batch.request_ns is None else batch.request_ns for batch in batches]
    )
    known = sizes != UNKNOWN
    owners, times, sizes, nanos = owners[known], times[known], sizes[known], nanos[known]
    if not len(times):
        raise InputError(f"{', '.join(paths)}: no event has a size")
    # The order of the export decides between events of the same ms.
    rows = np.lexsort((np.arange(len(times)), times, owners))
    first = int(times.min())
    clients = []
    starts = np.searchsorted(owners[rows], np.arange(len(names) + 1))
    plain = Counter(map(_plain, names))
    for name, owner in names.items():
        start, end = int(starts[owner]), int(starts[owner + 1])
        if start < end:
            broker, user, client_id, kind = name
            label, api = _plain(name), _APIS.get(kind, _OTHER_API)
            if plain[label] > 1:
                old = "old" if kind == PERMISSIVE else ""
                label += f" ({', '.join(filter(None, (api, old, broker)))})"
            client = Client(label, api, brokers=(broker,), closed=False, strict=kind != PERMISSIVE, given=(start, end))
            if kind == CONNECTION:  # it has an ip in place of a client-id
                clients.append(replace(client, ip=client_id))
            else:
                clients.append(replace(client, user=user, client_id=client_id))
    workload = Workload(
        int(times.max()) - first + 1,
        tuple(clients),
        Brokers(names=tuple(sorted({broker for broker, *_ in names}))),
        origin_ms=first,
        events=Events(times[rows], sizes[rows], nanos[rows], rows),
    )
    unseen = {key: reason for key, reason in hidden(tally.noted).items() if reason is not None}
    if set(tally.noted) - {usage.DIALECT}:
        unseen.setdefault(QuotaKey.CONNECTION_CREATION_RATE, LOWER_BOUND)
    distances = np.unique(times) - first
    return Recording(
        workload,
        tally.rejected,
        int((~known).sum()),
        all(np.all(batch.request_complete) for batch in batches if batch.only is None),
        tuple(tally.unread.values()),
        gcd(*map(int, distances)),
        unseen,
        origins.check(", ".join(paths), (note for shown in tally.noted.values() for note in shown))
        or tally.several_brokers,
    )


_Name: TypeAlias = tuple[str, str, str, int]
"""Broker, user, client-id (or ip) and kind: whose requests are one client's."""


def _plain(name: _Name) -> str:
    """What a client is called where nobody else is called so."""
    _, user, client_id, kind = name
    return client_id if kind == CONNECTION else f"{user}:{client_id}"


def _sizes(batch: Batch) -> Int64s:
    """The bytes charged; UNKNOWN where they are not known exactly."""
    sizes: Int64s = np.where(~np.asarray(batch.bytes_complete) & np.isin(batch.kind, [*_APIS]), UNKNOWN, batch.bytes)
    return sizes


def _owners(batch: Batch, names: dict[_Name, int]) -> Int64s:
    """The number of each row's client; new ones join `names`."""
    parts = (batch.broker, batch.user, batch.client_id)
    kinds = batch.kind.astype(np.int64)
    if batch.only == MUTATION and batch.detail is not None:
        kinds += np.where(batch.detail != 0, PERMISSIVE - MUTATION, 0)
    combined = kinds
    for part in parts:
        combined = combined * max(len(part.values), 1) + part.codes
    _, rows, inverse = np.unique(combined, return_index=True, return_inverse=True)
    distinct = zip(*(part.take(rows).texts() for part in parts), kinds[rows].tolist(), strict=True)
    return np.array([names.setdefault(name, len(names)) for name in distinct], np.int64)[inverse]


def spread_events(workload: Workload, grid_ms: int, window_seconds: int) -> Workload:
    """The same, spread evenly over the bins: an event is cut into ten a sample. Topics and connections are not cut."""
    events = workload.events
    assert events is not None
    parts = min(10 * grid_ms // (1000 * window_seconds), 10_000)
    offsets = np.arange(parts) * grid_ms // parts
    times, sizes, nanos, order = map(np.asarray, (events.times, events.sizes, events.nanos, events.order))
    columns, clients, end = [], [], 0
    for client in workload.clients:
        assert client.given is not None
        rows = slice(*client.given)
        if client.mutates or client.api == CONNECT_API:
            _, first, inverse, counts = np.unique(
                times[rows], return_index=True, return_inverse=True, return_counts=True
            )
            place = np.arange(len(inverse)) - first[inverse]
            spread = times[rows] + place * grid_ms // counts[inverse]
            columns.append((spread, sizes[rows], nanos[rows], order[rows]))
        else:
            spread = (times[rows, None] + offsets).ravel()
            columns.append((spread, _cut(sizes[rows], parts), _cut(nanos[rows], parts), np.repeat(order[rows], parts)))
        clients.append(replace(client, given=(end, end + len(spread))))
        end += len(spread)
    return replace(
        workload,
        duration_ms=workload.duration_ms + grid_ms,
        clients=tuple(clients),
        events=Events(*map(np.concatenate, zip(*columns, strict=True))),
    )


def _cut(values: Any, parts: int) -> Int64s:
    """Whole numbers in parts that differ by 1 at most and add up to the whole."""
    edges = np.asarray(values)[:, None] * np.arange(parts + 1) // parts
    cut: Int64s = np.diff(edges, axis=1).ravel()
    return cut
