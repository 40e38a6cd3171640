"""kquota against bare kazoo on an embedded ZooKeeper: the same reads and the same transactions, without the meaning.

    python -m benchmarks.zookeeper [--entities N] [--alters N] [--repeat N]

The baseline sends the same MultiRead requests and transactions and looks at no answer; the ratio is what paths, JSON,
entities, comparing and settling cost. The best of the repeats counts.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from kquota.backends import znode
from kquota.backends.zookeeper import ZooKeeperBackend
from kquota.backends.zookeeper.limits import ENTITIES_PER_TRANSACTION, READS_PER_REQUEST, WINDOW
from kquota.backends.zookeeper.multiread import MultiRead
from kquota.core.alteration import Alteration
from kquota.core.entity import Entity
from kquota.core.quota import QuotaKey
from kquota.sandbox import Sandbox


def best(repeat: int, action: Callable[[], object]) -> float:
    """The shortest wall time of the action, in seconds."""
    times = []
    for _ in range(repeat):
        gc.collect()
        started = time.perf_counter()
        action()
        times.append(time.perf_counter() - started)
    return min(times)


def pipelined(requests: Sequence[Callable[[], Any]]) -> None:
    handles: deque[Any] = deque()
    for request in requests:
        if len(handles) >= WINDOW:
            handles.popleft().get(timeout=60)
        handles.append(request())
    while handles:
        handles.popleft().get(timeout=60)


def bare_describe(client: Any) -> None:
    """What a describe asks of the server, and nothing else."""

    def call(request: Any) -> Any:
        handle = client.handler.async_result()
        client._call(request, handle)
        return handle

    paths = [f"/config/users/{name}" for name in client.get_children("/config/users")]
    reads = [(4, path) for path in paths]
    chunks = [reads[start : start + READS_PER_REQUEST] for start in range(0, len(reads), READS_PER_REQUEST)]
    pipelined([lambda chunk=chunk: call(MultiRead(chunk, "")) for chunk in chunks])  # type: ignore[misc]


def bare_alter(client: Any, paths: Sequence[str]) -> None:
    """Read, then set with the version and notify, in transactions of the same size."""
    reads = [(4, path) for path in paths]
    nodes: list[Any] = []
    for start in range(0, len(reads), READS_PER_REQUEST):
        handle = client.handler.async_result()
        client._call(MultiRead(reads[start : start + READS_PER_REQUEST], ""), handle)
        nodes += handle.get(timeout=60)
    requests = []
    for start in range(0, len(paths), ENTITIES_PER_TRANSACTION):
        transaction = client.transaction()
        for path, node in list(zip(paths, nodes, strict=True))[start : start + ENTITIES_PER_TRANSACTION]:
            transaction.set_data(path, b'{"version":1,"config":{"producer_byte_rate":"4096"}}', node.version)
            transaction.create(znode.CHANGE_PREFIX, b'{"version":2,"entity_path":"users/u"}', sequence=True)
        requests.append(transaction.commit_async)
    pipelined(requests)


def main() -> None:
    from kazoo.client import KazooClient

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entities", type=int, default=100_000)
    parser.add_argument("--alters", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    entities = [Entity(user=f"service-{number:08}") for number in range(max(arguments.entities, arguments.alters))]
    alterations = [Alteration(entity, {QuotaKey.PRODUCER_BYTE_RATE: 2048}) for entity in entities]
    some = alterations[: arguments.alters]
    # Room for the notifications of every round.
    with Sandbox(jvm_flags=("-Xmx1g",)) as server, ZooKeeperBackend(server.connect, timeout_s=60) as backend:
        client = KazooClient(server.connect)
        client.start()
        started = time.perf_counter()
        assert all(result.error is None for result in backend.alter(alterations))
        print(f"create    {len(entities):>7} entities: kquota {time.perf_counter() - started:6.2f} s")
        assert len(backend.describe()) == len(entities)
        report("describe", len(entities), arguments.repeat, backend.describe, lambda: bare_describe(client))
        paths = [znode.znode_path(alteration.entity) for alteration in some]
        report("alter", len(some), arguments.repeat, lambda: backend.alter(some), lambda: bare_alter(client, paths))
        client.stop()
        client.close()


def report(what: str, count: int, repeat: int, ours: Callable[[], object], bare: Callable[[], object]) -> None:
    bare_s, ours_s = best(repeat, bare), best(repeat, ours)
    print(f"{what:<9} {count:>7} entities: kquota {ours_s:6.2f} s, bare {bare_s:6.2f} s, ratio {ours_s / bare_s:.2f}")


if __name__ == "__main__":
    main()
