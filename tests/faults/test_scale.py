"""A hundred thousand entities and a million clients: what they take, and that a sandbox survives them.

SCALE says which share of them it is, in percent; `make nightly` takes all. Memory is that of a process of its own, and
time is that of its CPU: other work on the machine does not count.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kquota import Alteration, Entity, QuotaKey, QuotaSnapshot
from kquota.access import connect
from tests.conftest import new_chroot
from tests.support.sandbox import Sandbox

PERCENT = int(os.environ.get("SCALE", "1"))
ENTITIES = 1_000 * PERCENT
CLIENTS = 10_000 * PERCENT
RATE = QuotaKey.PRODUCER_BYTE_RATE
pytestmark = pytest.mark.timeout(7200)

CHILD = """\
import json, re, resource, sys, time
from pathlib import Path
from kquota.cli import main
code = main.run(sys.argv[2:])
status = Path("/proc/self/status").read_text()
others = resource.getrusage(resource.RUSAGE_CHILDREN)
Path(sys.argv[1]).write_text(json.dumps({
    "code": code,
    "memory_mb": (int(re.search(r"VmHWM:\\s+(\\d+)", status)[1]) + others.ru_maxrss) >> 10,
    "cpu_s": time.process_time() + others.ru_utime + others.ru_stime,
}))
"""
"""Runs a command line; its memory is what it had at most, as the kernel counted since it began."""


@dataclass(frozen=True)
class Cost:
    """What a command took, with its greatest helper."""

    code: int
    memory_mb: float
    cpu_s: float


def cost(folder: Path, *arguments: str) -> Cost:
    """What the command took; its output goes to a file in the folder."""
    answer = folder / "cost.json"
    with (folder / "out").open("wb") as out:
        subprocess.run(
            [sys.executable, "-c", CHILD, str(answer), *arguments],
            cwd=folder, stdout=out, env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}, check=True,
        )  # fmt: skip
    found = Cost(**json.loads(answer.read_text()))
    print(" ".join(arguments), found)
    return found


def quotas_file(path: Path, rate: int) -> None:
    """A plain one, as `kquota export` writes it."""
    rows = (
        f"  - {{entity: {{user: user-{number:06}}}, values: {{{RATE}: {rate + number % 7}}}}}\n"
        for number in range(ENTITIES)
    )
    path.write_text("kind: kquota.quotas\nversion: 1\nquotas:\n" + "".join(rows), encoding="utf-8")


def test_a_plan_of_all_entities(tmp_path: Path) -> None:
    """Each of them changes."""
    quotas_file(tmp_path / "before.yaml", 1000)
    quotas_file(tmp_path / "after.yaml", 2000)

    found = cost(tmp_path, "plan", "after.yaml", "--quotas", "before.yaml")

    assert found.code == 0
    assert (tmp_path / "out").read_text().count("\n~  user=user-") == ENTITIES
    assert found.memory_mb <= 400, found
    assert found.cpu_s <= 120, found


def test_an_audit_of_all_clients(tmp_path: Path) -> None:
    """Each has a counter of its own, and a tenth of them are throttled."""
    number = np.arange(2 * CLIENTS)
    pq.write_table(
        pa.table(
            {
                "time_ms": 1_700_000_000_000 + number % CLIENTS * 10_000 // CLIENTS + number // CLIENTS * 60_000,
                "broker": ["1"] * len(number),
                "user": [f"user-{client}" for client in (number % CLIENTS).tolist()],
                "client_id": ["app"] * len(number),
                "api": ["produce"] * len(number),
                "bytes": np.where(number % 10 == 0, 30_000, 1_000),
            }
        ),
        tmp_path / "usage.parquet",
    )
    (tmp_path / "quotas.yaml").write_text(
        f"kind: kquota.quotas\nversion: 1\nquotas: [{{entity: {{user: {{default: true}}}}, values: {{{RATE}: 1kB}}}}]\n"
    )

    found = cost(tmp_path, "audit", "usage.parquet", "--quotas", "quotas.yaml", "--engine", "local")

    assert found.code == 0
    with (tmp_path / "out").open(encoding="utf-8") as rows:
        assert sum(row.startswith("user user-") for row in rows) == min(500, CLIENTS // 10)
    assert found.memory_mb <= 2000, found
    assert found.cpu_s <= 120, found


def test_a_sandbox_survives_all_entities(zookeeper: Sandbox) -> None:
    """They are written at once, described and deleted; the server is the same process afterwards."""
    pid = zookeeper.pid
    users = [Entity(user=f"user-{number:06}") for number in range(ENTITIES)]
    with connect(zookeeper=new_chroot(zookeeper)) as backend:
        written = backend.alter([Alteration(user, {RATE: 1000}) for user in users])
        assert [result.error for result in written if result.error is not None] == []
        assert backend.describe() == QuotaSnapshot({user: {RATE: 1000} for user in users})
        deleted = backend.alter([Alteration(user, remove=frozenset({RATE})) for user in users])
        assert [result.error for result in deleted if result.error is not None] == []
        assert not backend.describe()
    assert pid is not None
    assert zookeeper.pid == pid
    assert Path(f"/proc/{pid}/cmdline").read_bytes()
