"""Start-up stays light: nothing heavy is imported until it is needed."""

from __future__ import annotations

import math
import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = (
    "rich", "kazoo", "kafka", "confluent_kafka", "pyspark", "pyarrow", "pandas", "numpy", "numba", "yaml",
    "jsonschema", "javaproperties", "ssl", "asyncio", "cryptography", "gssapi", "aws_msk_iam_sasl_signer", "vl_convert",
    "jinja2", "prometheus_client",
)  # fmt: skip
ROOT = str(Path(__file__).parents[2])

RUN = f"""
import atexit, sys
from kquota.cli.main import run
atexit.register(lambda: print("LOADED", *sorted(set({HEAVY!r}) & set(sys.modules))))
run(sys.argv[1:])
"""


def loaded_by(*arguments: str, **environment: str) -> str:
    """What of the heavy modules one run of kquota has loaded."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | environment,
        check=True,
    )
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["describe", "--help"],
        ["alter", "--help"],
        ["resolve", "--help"],
        ["audit", "--help"],
        ["recommend", "--help"],
        ["simulate", "--help"],
        ["probe", "--help"],
        ["sandbox", "start", "--help"],
        ["diff", "--help"],
        ["watch", "--help"],
        ["exporter", "--help"],
        ["resolve", "--who", "user", "--zookeeper", "localhost"],
        ["export", "--help"],
        ["import", "--help"],
        ["migrate", "check", "--help"],
        ["migrate", "check", "--zookeeper", "localhost"],
        ["config", "view", "--help"],
        ["kafka-configs", "--help"],
        ["kafka-configs", "--zookeeper", "localhost", "--alter", "--user", "alice"],
        ["describe", "--nonsense"],
        ["nonsense"],
        ["alter", "--user", "alice", "--zookeeper", "localhost"],
        ["alter", "--user", "alice", "--add-config", "producer_byte_rate=-1", "--zookeeper", "localhost"],
        ["alter", "--broker", "1", "--add-config", "max.connection.creation.rate=0", "--bootstrap-server", "b:1"],
    ],
)
def test_nothing_heavy_is_loaded(arguments: list[str]) -> None:
    """Help, usage errors and bad values need click only."""
    assert loaded_by(*arguments) == "LOADED"


@pytest.mark.parametrize(
    "words", ["kquota des", "kquota describe --us", "kquota audit --fail-on ", "kquota alter --add-config p"]
)
def test_completion_loads_nothing_heavy(words: str) -> None:
    """Pressing Tab is instant."""
    assert loaded_by(**{"_KQUOTA_COMPLETE": "bash_complete", "_KQUOTA_BEFORE": words}) == "LOADED"


def test_import_is_free() -> None:
    """The package itself loads nothing at all."""
    code = "import sys; before = set(sys.modules); import kquota; print(len(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)

    assert int(done.stdout) == 1


def cpu_of(*command: str, **environment: str) -> float:
    """The least CPU seconds of several runs: noise only ever adds."""

    def once() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, *command], capture_output=True, cwd=ROOT, env=os.environ | environment, check=False
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return statistics.median(sorted(once() for _ in range(9))[:3])


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (["--help"], {}),
        (["describe", "--nonsense"], {}),
        ([], {"_KQUOTA_COMPLETE": "bash_complete", "_KQUOTA_BEFORE": "kquota des"}),
    ],
    ids=["help", "usage error", "completion"],
)
def test_costs_at_most_twice_an_import_of_click(arguments: list[str], environment: dict[str, str]) -> None:
    """A promise of the design, measured in CPU seconds side by side: not a time but a ratio."""
    baseline = cost = math.inf
    # Noise only ever adds, and on a busy machine it lasts: both are measured until a quiet moment was among them.
    for _ in range(10):
        baseline = min(baseline, cpu_of("-c", "import click"))
        cost = min(cost, cpu_of("-m", "kquota", *arguments, **environment))
        if cost <= 2 * baseline:
            break

    assert cost <= 2 * baseline
