"""Start-up stays light: nothing heavy is imported until it is needed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.data import data_rows
from tests.support.processes import ran

HEAVY = (
    "rich", "kazoo", "kafka", "confluent_kafka", "pyspark", "pyarrow", "pandas", "numpy", "numba", "yaml",
    "jsonschema", "javaproperties", "ssl", "asyncio", "cryptography", "gssapi", "aws_msk_iam_sasl_signer", "vl_convert",
    "jinja2", "prometheus_client",
)  # fmt: skip
ROOT = str(Path(__file__).parents[2])

RUN = """
import atexit, sys
from kquota.cli.main import run
atexit.register(lambda: print("LOADED", *sys.modules))
run(sys.argv[1:])
"""
RUN_ALL = """
import json, sys
from kquota.cli.main import run
found = {}
for words in json.loads(sys.argv[1]):
    run(words)
    found[" ".join(words)] = sorted(sys.modules.keys() & set(sys.argv[2:]))
print("\\n" + json.dumps(found))
"""


def modules_of(*arguments: str, **environment: str) -> set[str]:
    """The modules that one run of kquota has loaded."""
    done = ran([sys.executable, "-c", RUN, *arguments], environment=environment)
    return set(done.stdout.splitlines()[-1].split()[1:])


COMMANDS = [line.split() for (line,) in data_rows("cli/light.txt")]


def test_nothing_heavy_is_loaded() -> None:
    """Help, usage errors and bad values need click only: all in one process, which nothing of them stays in."""
    command = [sys.executable, "-c", RUN_ALL, json.dumps(COMMANDS), *HEAVY]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == {" ".join(words): [] for words in COMMANDS}


@pytest.mark.parametrize(
    "words", ["kquota des", "kquota describe --us", "kquota audit --fail-on ", "kquota alter --add-config p"]
)
def test_completion_loads_nothing_heavy(words: str) -> None:
    """Pressing Tab is instant."""
    assert not modules_of(_KQUOTA_COMPLETE="bash_complete", _KQUOTA_BEFORE=words) & set(HEAVY)


def test_an_audit_of_few_lines_loads_neither_pandas_nor_numba(tmp_path: Path) -> None:
    """Each takes as long as all else; Arrow would load pandas for its first array."""
    (tmp_path / "usage.csv").write_text("time_ms,user,client_id,api,bytes\n0,alice,app,produce,1\n")
    quotas = tmp_path / "quotas.csv"
    quotas.write_text("user,client-id,ip,key,value\nalice,,,producer_byte_rate,1\n")

    loaded = modules_of("audit", str(tmp_path / "usage.csv"), "--quotas", str(quotas))

    assert "pyarrow" in loaded
    assert not loaded & {"pandas", "numba"}


def test_import_is_free() -> None:
    """The package itself loads nothing at all."""
    code = "import sys; before = set(sys.modules); import kquota; print(len(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)

    assert int(done.stdout) == 1


@pytest.mark.parametrize(
    ("arguments", "environment", "most"),
    [
        (["--help"], {}, 8),
        (["describe", "--nonsense"], {}, 36),
        ([], {"_KQUOTA_COMPLETE": "bash_complete", "_KQUOTA_BEFORE": "kquota des"}, 38),
        (["alter", "--help"], {}, 80),
    ],
    ids=["help", "usage error", "completion", "help of alter"],
)
def test_loads_few_modules(arguments: list[str], environment: dict[str, str], most: int) -> None:
    """A module costs about a millisecond; `python -m benchmarks.startup` has the CPU time beside an import of click."""
    loaded = {name for name in modules_of(*arguments, **environment) if name.split(".")[0] == "kquota"}

    assert len(loaded) <= most
