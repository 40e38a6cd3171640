"""Usage tables and request logs as a workload: each client's requests as they were recorded, in the open loop.

In memory and on one machine, for `kquota simulate --events`; `kquota.audit.spark` does the same for any amount.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import Any

import numpy as np

from kquota.audit.batch import UNKNOWN, Batch, Int64s, Tally, UnreadFile
from kquota.audit.samples import Samples
from kquota.audit.sources import ReadSettings, plan_splits, read
from kquota.core.enforcement.kind import FETCH, PRODUCE
from kquota.core.simulation.workload import FETCH_API, PRODUCE_API, Brokers, Client, Events, Workload
from kquota.errors import InputError

_APIS: dict[int, str] = {PRODUCE: PRODUCE_API, FETCH: FETCH_API}
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


def read_events(
    paths: Sequence[str],
    dialect: str,
    settings: ReadSettings,
    brokers: Brokers,
    left_out: Callable[[str, str], None] = lambda path, why: None,
) -> Recording:
    """Reads files of usage events. Raises InputError when there are none that can be read.

    `brokers` gives the windows, by the brokers' names in the events. `left_out` is called with each file that
    is not read, or read once although it is given twice, and why.
    """
    tally = Tally()
    batches = []
    for split in plan_splits(paths, dialect, left_out):
        for batch in read(split, settings, tally):
            if isinstance(batch, Samples):
                raise InputError(f"{split.path}: holds samples, not requests: there is nothing in it to replay")
            # The topics of a request are no requests of their own, and connections are none.
            if isinstance(batch, Batch) and len(batch) and batch.only is None:
                batches.append(batch)
    if not batches:
        raise InputError(f"{', '.join(paths)}: no usage event can be read ({tally.rejected} rejected)")
    names: dict[tuple[str, str, str, str], int] = {}
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
    plain = Counter(f"{user}:{client_id}" for _, user, client_id, _ in names)
    for (broker, user, client_id, api), owner in names.items():
        start, end = int(starts[owner]), int(starts[owner + 1])
        if start < end:
            name = f"{user}:{client_id}"
            name = name if plain[name] == 1 else f"{name} ({api}, {broker})"
            clients.append(Client(name, api, user, client_id, brokers=(broker,), closed=False, given=(start, end)))
    workload = Workload(
        int(times.max()) - first + 1,
        tuple(clients),
        Brokers(tuple(sorted({broker for broker, *_ in names})), brokers.windows, brokers.controller_windows),
        origin_ms=first,
        events=Events(times[rows], sizes[rows], nanos[rows], rows),
    )
    distances = np.unique(times) - first
    return Recording(
        workload,
        tally.rejected,
        int((~known).sum()),
        all(np.all(batch.request_complete) for batch in batches),
        tuple(tally.unread.values()),
        gcd(*map(int, distances)),
    )


def _sizes(batch: Batch) -> Int64s:
    """The bytes charged; UNKNOWN where they are not known exactly."""
    sizes: Int64s = np.where(~np.asarray(batch.bytes_complete) & np.isin(batch.kind, [*_APIS]), UNKNOWN, batch.bytes)
    return sizes


def _owners(batch: Batch, names: dict[tuple[str, str, str, str], int]) -> Int64s:
    """The number of each row's client; new ones join `names`."""
    parts = (batch.broker, batch.user, batch.client_id)
    combined = batch.kind.astype(np.int64)
    for part in parts:
        combined = combined * max(len(part.values), 1) + part.codes
    distinct, inverse = np.unique(combined, return_inverse=True)
    numbers = []
    for code in map(int, distinct):
        texts = []
        for part in reversed(parts):
            code, place = divmod(code, max(len(part.values), 1))
            texts.append(part.values[place])
        client_id, user, broker = texts
        numbers.append(names.setdefault((broker, user, client_id, _APIS.get(code, _OTHER_API)), len(names)))
    owners: Int64s = np.array(numbers, np.int64)[inverse]
    return owners


def spread_events(workload: Workload, grid_ms: int, window_seconds: int) -> Workload:
    """The same, with each event cut into ten a sample, evenly over the bin that begins with it."""
    events = workload.events
    assert events is not None
    parts = min(10 * grid_ms // (1000 * window_seconds), 10_000)
    offsets = np.arange(parts) * grid_ms // parts
    times = (np.asarray(events.times)[:, None] + offsets).ravel()
    clients = tuple(
        replace(client, given=(client.given[0] * parts, client.given[1] * parts))
        for client in workload.clients
        if client.given is not None
    )
    return replace(
        workload,
        duration_ms=workload.duration_ms + grid_ms,
        clients=clients,
        events=Events(times, _cut(events.sizes, parts), _cut(events.nanos, parts), np.repeat(events.order, parts)),
    )


def _cut(values: Any, parts: int) -> Int64s:
    """Whole numbers in parts that differ by 1 at most and add up to the whole."""
    edges = np.asarray(values)[:, None] * np.arange(parts + 1) // parts
    cut: Int64s = np.diff(edges, axis=1).ravel()
    return cut
