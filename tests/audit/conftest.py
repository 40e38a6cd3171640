"""One real Spark for all tests of the audit, and one cluster."""

from collections.abc import Iterator
from typing import Any

import pytest

from kquota.audit.engines import spark as job
from tests.audit.cluster import SparkCluster
from tests.cli.conftest import kquota

__all__ = ["kquota", "spark"]


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    session = job.open_session("local[2]")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def cluster() -> Iterator[SparkCluster]:
    with SparkCluster(workers=2) as cluster:
        yield cluster
