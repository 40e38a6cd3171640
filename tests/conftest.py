"""A real ZooKeeper for the whole session, and a chroot of its own for each test.

Nothing is skipped where Java or PySpark is missing: the tests fail.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

from kquota.sandbox import Sandbox

_numbers = itertools.count()

# make nightly: many more examples of every law, and ten million events against Kafka's own classes.
settings.register_profile("nightly", max_examples=500, deadline=None)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--update-golden` writes the golden files anew."""
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew")


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[Sandbox]:
    """A running ZooKeeper."""
    with Sandbox() as sandbox:
        yield sandbox


@pytest.fixture
def chroot(zookeeper: Sandbox) -> str:
    """The connect string of an empty chroot that nobody else has."""
    from kazoo.client import KazooClient

    path = f"/test-{next(_numbers)}"
    client = KazooClient(zookeeper.connect)
    client.start()
    try:
        client.create(path)
    finally:
        client.stop()
        client.close()
    return zookeeper.connect + path


@pytest.fixture
def znodes(chroot: str) -> Iterator[Any]:
    """A plain kazoo client in the chroot, to look at nodes and to prepare them."""
    from kazoo.client import KazooClient

    client = KazooClient(chroot)
    client.start()
    yield client
    client.stop()
    client.close()
