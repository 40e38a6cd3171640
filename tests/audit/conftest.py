"""One real Spark for all tests of the audit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kquota.audit import spark as job
from tests.cli.conftest import kquota

__all__ = ["kquota", "spark"]


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A session on two cores."""
    session = job.open_session("local[2]")
    yield session
    session.stop()
