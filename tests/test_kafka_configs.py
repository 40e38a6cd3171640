"""The runner of recorded cases: it finds what differs, and does not call equal what it did not run."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import kafka_configs as runner

RECORDED = Path(__file__).with_name("vectors") / "kafka_configs.json"
WARNING = (
    "Warning: --zookeeper is deprecated and will be removed in a future version of Kafka.\n"
    "Use --bootstrap-server instead to specify a broker to connect to.\n"
)
QUOTA = '{"version":1,"config":{"producer_byte_rate":"1024"}}'


@pytest.mark.parametrize("backend", runner.SERVERS)
def test_kafkas_answers_are_ours(backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    """On a ZooKeeper, a broker of a current Kafka, and one that runs with ZooKeeper."""
    code = runner.main([str(RECORDED), "--backend", backend])
    lines = capsys.readouterr().out.splitlines()
    assert code == 0, lines
    assert lines[0].startswith(f"{backend}: ")
    assert int(lines[-1].split()[2]) > 70


def case(**changes: Any) -> dict[str, Any]:
    """A recorded case, with changes to what is expected."""
    expect = {
        "exit": 0,
        "stdout": f"{WARNING}Completed updating config for entity: user-principal 'a'.\n",
        "stderr": "",
        "state": {"znodes": {"/config/users/a": QUOTA}, "new_notifications": ['{"version":2,"entity_path":"users/a"}']},
    }
    argv = ["--zookeeper", "@ZK@", "--alter", "--user", "a", "--add-config", "producer_byte_rate=1024"]
    return {"id": "x", "backend": "zk-cli", "argv": argv, "pre_state": {"znodes": {}}, "expect": expect | changes}


def test_the_runner_finds_what_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cases = [
        case(),
        case(exit=1),
        case(stdout="another\n"),
        case(state={"znodes": {}}),
        case(state={"new_notifications": []}),
    ]
    file = tmp_path / "cases.json"
    file.write_text(json.dumps({"cases": cases}))
    assert runner.main([str(file)]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "1 of 5 equal"
    file.write_text(json.dumps({"cases": cases[:1]}))
    assert runner.main([str(file), "--backend", "zk-cli"]) == 0
    assert capsys.readouterr().out == "zk-cli: 1 of 1 equal\n1 of 1 equal\n"
