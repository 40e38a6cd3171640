"""Running command lines of kafka-configs in this process."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kquota.cli.kafka_configs import bootstrap, run, zookeeper
from tests.cli.conftest import Ran

WARNING = (
    "Warning: --zookeeper is deprecated and will be removed in a future version of Kafka.\n"
    "Use --bootstrap-server instead to specify a broker to connect to.\n"
)
FORMAT = 'Invalid entity config: all configs to be added must be in the format "key=val".'
Z, B = "--zookeeper 127.0.0.1:1", "--bootstrap-server 127.0.0.1:1"


Tool = Callable[..., Ran]


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "journal"
    monkeypatch.setenv("KQUOTA_JOURNAL", str(folder))
    return folder


@pytest.fixture
def tool(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, journal: Path) -> Tool:
    """Runs a command line in this process; one text is split at blanks.

    Servers that are not there are not waited for.
    """
    for name in ("KQUOTA_ZOOKEEPER_USERNAME", "KQUOTA_ZOOKEEPER_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("KQUOTA_KAFKA_CONFIGS_JOURNAL", raising=False)
    monkeypatch.setattr(bootstrap, "_PATIENT", False)
    monkeypatch.setattr(zookeeper, "_PATIENT", False)

    def execute(*argv: str) -> Ran:
        words = argv[0].split() if len(argv) == 1 else argv
        code = run(words)
        out, err = capsys.readouterr()
        return Ran(code, out, err)

    return execute


def node(**config: str) -> bytes:
    text = json.dumps({"version": 1, "config": {key.replace("__", "-"): value for key, value in config.items()}})
    return text.replace(": ", ":").replace(", ", ",").encode()
