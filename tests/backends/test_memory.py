"""The reference backend keeps the contract."""

import pytest

from kquota.backends import QuotaBackend
from kquota.backends.memory import MemoryBackend
from kquota.core.quotas.snapshot import Problem, QuotaSnapshot
from tests.backends.contract import PRODUCER, U1, BackendContract, rate


class TestMemoryBackend(BackendContract):
    @pytest.fixture
    def backend(self) -> QuotaBackend:
        return MemoryBackend()

    def test_it_starts_from_a_snapshot_and_leaves_that_alone(self) -> None:
        snapshot = QuotaSnapshot({U1: {PRODUCER: 1}}, (Problem("quotas.yaml:3", "unknown key"),))
        with MemoryBackend(snapshot) as backend:
            backend.alter([rate(U1, 2)])
            assert backend.describe().problems == snapshot.problems
        assert dict(snapshot[U1]) == {PRODUCER: 1}
