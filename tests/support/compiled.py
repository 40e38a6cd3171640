"""The compiled kernel, once for all tests: `python -m tests.support.compiled` fills the cache that they share.

Compiling all of it takes some 40 s, and each worker that meets an empty cache would do it for itself. `make
quick` runs without numba instead, as an installation without that extra does.
"""

import gzip
import itertools
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

from kquota.core.enforcement import Mode

COMPILED = Path(__file__).resolve().parents[2] / "build" / "numba"
"""The folder of the machine code, for NUMBA_CACHE_DIR."""


def hide() -> None:
    """Lets this process find no numba; other interpreters compile nothing."""
    os.environ["NUMBA_DISABLE_JIT"] = "1"
    sys.modules["numba"] = None  # type: ignore[assignment]  # import then says that there is none


def modes() -> Sequence[Mode]:
    """Both kernels, or the plain one where numba is hidden."""
    return (Mode.PLAIN,) if os.environ.get("NUMBA_DISABLE_JIT") else (Mode.PLAIN, Mode.COMPILED)


def use() -> None:
    """Simulates a little, and audits the beginning of a recorded log: after that, this process has the machine code.

    All of the log takes ten times as long, and loads nothing more.
    """
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
    asked = [
        patch(f"kquota.{room}.is_worth", return_value=True)
        for room in ("core.enforcement.kernel", "audit.ledger.loops")
    ]
    with asked[0], asked[1], tempfile.NamedTemporaryFile(suffix=".log") as beginning, gzip.open(recorded.LOG) as log:
        beginning.writelines(itertools.islice(log, 3000))
        beginning.flush()
        recorded.audit(Path(beginning.name), recorded.QUOTAS)


def main() -> None:
    """Uses everything that is compiled."""
    os.environ["NUMBA_CACHE_DIR"] = str(COMPILED)

    from tests.audit import test_scanner

    test_scanner.test_what_clients_send_is_usual()
    use()


if __name__ == "__main__":
    main()
