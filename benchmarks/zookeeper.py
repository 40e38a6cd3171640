"""kquota against kazoo on an embedded ZooKeeper: the same reads and the same transactions, without the meaning.

    python -m benchmarks.zookeeper [--entities N] [--alters N] [--repeat N]

Two baselines, neither of which looks at an answer. Bare kazoo is its own public API: `get_children`, `get_async` of
every node and transactions, pipelined. It asks for one node a request and kquota for a thousand (`MultiRead`, which
kazoo does not know), so kquota is the faster one. "The same requests" are kquota's own, sent through a bare kazoo: what
the ratio is above 1 are paths, JSON, entities, comparing and settling. The best of the repeats counts, all in turns.
"""

import argparse
import gc
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from kquota.backends import znode
from kquota.backends.zookeeper import ZooKeeperBackend
from kquota.backends.zookeeper.requests import ENTITIES_PER_TRANSACTION, GET_DATA, WINDOW, MultiRead, requests_of
from kquota.core.quotas.alteration import Alteration
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey
from tests.support.sandbox import Sandbox

TIERS = 20
"""How many different values the entities have, as where a platform hands out small, medium and large."""
GETS = 1000
"""Single reads of bare kazoo in flight."""


def pipelined(requests: Iterable[Callable[[], Any]], window: int = WINDOW) -> list[Any]:
    """The answers, with a bounded number of requests unanswered."""
    handles: deque[Any] = deque()
    answers = []
    for request in requests:
        if len(handles) >= window:
            answers.append(handles.popleft().get(timeout=60))
        handles.append(request())
    return answers + [handle.get(timeout=60) for handle in handles]


def get_nodes(client: Any, paths: Sequence[str]) -> list[int]:
    """The version of every node, by kazoo's own API."""
    answers = pipelined((lambda path=path: client.get_async(path) for path in paths), GETS)  # type: ignore[misc]
    return [stat.version for _, stat in answers]


def multi_read(client: Any, paths: Sequence[str]) -> list[int]:
    """The version of every node, by kquota's request."""

    def call(request: Any) -> Any:
        handle = client.handler.async_result()
        client._call(request, handle)
        return handle

    reads = [(GET_DATA, path) for path in paths]
    requests = [MultiRead(chunk, "") for chunk in requests_of(reads, "")]
    answers = pipelined(lambda request=request: call(request) for request in requests)  # type: ignore[misc]
    return [node.version for nodes in answers for node in nodes]


Read: TypeAlias = Callable[[Any, Sequence[str]], list[int]]


def bare_describe(client: Any, read: Read) -> None:
    """What a describe asks of the server, and nothing else."""
    read(client, [f"/config/users/{name}" for name in client.get_children("/config/users")])


def bare_alter(client: Any, read: Read, paths: Sequence[str]) -> None:
    """Read, then set with the version and notify, in transactions of the size of kquota's."""
    versions = read(client, paths)
    requests = []
    for start in range(0, len(paths), ENTITIES_PER_TRANSACTION):
        transaction = client.transaction()
        for path, version in list(zip(paths, versions, strict=True))[start : start + ENTITIES_PER_TRANSACTION]:
            transaction.set_data(path, b'{"version":1,"config":{"producer_byte_rate":"4096"}}', version)
            transaction.create(znode.CHANGE_PREFIX, b'{"version":2,"entity_path":"users/u"}', sequence=True)
        requests.append(transaction.commit_async)
    pipelined(requests)


def compare(what: str, count: int, repeat: int, *actions: Callable[[], object]) -> list[str]:
    """Runs kquota, bare kazoo and the same requests in turns; the lines that say how they compare."""
    times: list[list[float]] = [[] for _ in actions]
    for _ in range(repeat):
        for action, each in zip(actions, times, strict=True):
            gc.collect()
            started = time.perf_counter()
            action()
            each.append(time.perf_counter() - started)
    ours, kazoo, same = map(min, times)
    print(f"{what} {count}: kquota {ours:.2f} s, bare kazoo {kazoo:.2f} s, the same requests {same:.2f} s")
    return [
        f"{what} of {count}, kquota / bare kazoo: {ours / kazoo:.2f} (aim: at most 1.3)",
        f"{what} of {count}, kquota / the same requests: {ours / same:.2f} (aim: none)",
    ]


def main() -> None:
    from kazoo.client import KazooClient

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entities", type=int, default=100_000)
    parser.add_argument("--alters", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    alterations = [
        Alteration(Entity(user=f"service-{number:08}"), {QuotaKey.PRODUCER_BYTE_RATE: 2048 + number % TIERS})
        for number in range(max(arguments.entities, arguments.alters))
    ]
    some = alterations[: arguments.alters]
    paths = [znode.znode_path(alteration.entity) for alteration in some]
    # Room for the notifications of every round.
    with Sandbox(jvm_flags=("-Xmx1g",)) as server, ZooKeeperBackend(server.connect, timeout_s=60) as backend:
        client = KazooClient(server.connect)
        client.start()
        started = time.perf_counter()
        assert all(result.error is None for result in backend.alter(alterations))
        print(f"create {len(alterations)}: kquota {time.perf_counter() - started:.2f} s")
        assert len(backend.describe()) == len(alterations)
        lines = compare(
            "describe",
            len(alterations),
            arguments.repeat,
            backend.describe,
            lambda: bare_describe(client, get_nodes),
            lambda: bare_describe(client, multi_read),
        )
        lines += compare(
            "alter",
            len(some),
            arguments.repeat,
            lambda: backend.alter(some),
            lambda: bare_alter(client, get_nodes, paths),
            lambda: bare_alter(client, multi_read, paths),
        )
        client.stop()
        client.close()
    print("", *lines, sep="\n")


if __name__ == "__main__":
    main()
