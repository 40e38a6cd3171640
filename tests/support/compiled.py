"""The compiled kernel, once for all tests: `python -m tests.support.compiled` fills the cache that they share.

Compiling all of it takes most of a minute, and each worker that meets an empty cache would do it for itself.
"""

import os
from pathlib import Path

COMPILED = Path(__file__).resolve().parents[2] / "build" / "numba"
"""The folder of the machine code, for NUMBA_CACHE_DIR."""


def use() -> None:
    """Simulates a little, and audits a recorded log: after that, this process has nearly all machine code."""
    from kquota.core.enforcement import Generation, kernel
    from kquota.core.quotas.entity import Entity
    from kquota.core.quotas.quota import QuotaKey
    from kquota.core.quotas.snapshot import QuotaSnapshot
    from kquota.core.simulation.engine import simulate
    from kquota.core.simulation.workload import Client, Workload
    from tests.audit import recorded

    client = Client("c", "produce", "alice", pace=10, size=100, latency_ms=1)
    quotas = QuotaSnapshot({Entity(user="alice"): {QuotaKey.PRODUCER_BYTE_RATE: 500}})
    simulate(Workload(20_000, (client,)), quotas, generation=Generation.N_PLUS_1_BY_LAST, using=kernel())
    recorded.findings()


def main() -> None:
    """Uses everything that is compiled."""
    os.environ["NUMBA_CACHE_DIR"] = str(COMPILED)

    from tests.audit import test_scanner

    test_scanner.test_what_clients_send_is_usual()
    use()


if __name__ == "__main__":
    main()
