"""Documents, command lines, frames and nodes at random, from a fixed seed: never a bug of ours, never long."""

import contextlib
import json
import random
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from kquota.backends import wire, znode
from kquota.cli.main import COMMANDS, run
from kquota.errors import KquotaError
from tests.support.data import data_text
from tests.support.wire import encode_response

SEED = 20_261_122
DOCUMENTS = 60
COMMAND_LINES = 60
FRAMES = 2_000
WORDS = (
    "", "a", "alice", "<default>", "*", "\x1b[31m", "\udcff", "\u202e", "a\nb", "1e400", "9" * 5_000, "-1", "0", "NaN",
    "10MB", "user=a,client-id=b", "user=", "producer_byte_rate=1", "producer_byte_rate", "quotas.json", "nowhere", "-",
    "/dev/null", "127.0.0.1:1", "127.0.0.1:1/a,b", "[::1]:1", ":", "2.8", "99.99", "json", "csv", "table", "%zz", "--",
    "kquota.quotas",
)  # fmt: skip
QUOTAS = yaml.safe_load(data_text("cli/fuzz_quotas.yaml"))
WORKLOAD = yaml.safe_load(data_text("cli/fuzz_workload.yaml"))
VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1e308, 10**400, 2**63, 0.5, "", [], {}, [[]], {"default": True}, {"default": False}, "(a+)+$",
    "(", "${b}", *WORDS[:16],
)  # fmt: skip


def mutated(document: Any, dice: random.Random) -> Any:
    """The document with something in it replaced, renamed, doubled or left out."""
    document = json.loads(json.dumps(document))
    for _ in range(dice.randint(1, 3)):
        places: list[tuple[Any, Any]] = []
        todo = [document]
        while todo:
            part = todo.pop()
            keys = list(part) if isinstance(part, dict) else range(len(part)) if isinstance(part, list) else ()
            places += [(part, key) for key in keys]
            todo += [part[key] for key in keys]
        if not places:
            break
        part, key = dice.choice(places)
        match dice.randrange(4):
            case 0:
                del part[key]
            case 1 if isinstance(part, dict):
                part[dice.choice(WORDS)] = part.pop(key)
            case 2 if isinstance(part, list):
                part.append(part[key])
            case _:
                part[key] = dice.choice(VALUES)
    return document


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KQUOTA_JOURNAL", str(tmp_path / "journal"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    Path("empty.json").write_text('{"kind":"kquota.quotas","version":1,"quotas":[]}')
    Path("quotas.json").write_text(json.dumps(QUOTAS))


def bounded(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    started = time.process_time()
    code = run(arguments)
    out, err = capsys.readouterr()
    assert code != 70, (arguments, err)
    assert time.process_time() - started < 20, arguments
    wild = {char for char in out + err if not char.isprintable() and char != "\n"}
    assert not wild, (arguments, wild)


def test_documents(capsys: pytest.CaptureFixture[str]) -> None:
    dice = random.Random(SEED)
    for number in range(DOCUMENTS):
        quotas, workload = mutated(QUOTAS, dice), mutated(WORKLOAD, dice)
        text = json.dumps(quotas)
        if number % 3 == 1:  # cut, with a byte of another kind, or as YAML
            text = text[: dice.randrange(len(text))]
        elif number % 3 == 2:
            at = dice.randrange(len(text))
            text = (
                "# YAML\n" + text[:at] + dice.choice(["\t", "&", "*", "!", "'", "\x85", "{", "\n- "]) + text[at + 1 :]
            )
        Path("q.yaml").write_bytes(text.encode("utf-8", "surrogatepass"))
        Path("w.json").write_text(json.dumps(workload))
        for arguments in (
            ["lint", "q.yaml", "-o", dice.choice(["table", "json", "sarif", "github"])],
            ["plan", "q.yaml", "--quotas", "empty.json", "-o", dice.choice(["table", "json", "markdown"])],
            ["diff", "quotas.json", "q.yaml"],
            ["resolve", "--user", "a", "--client", "b", "--quotas", "q.yaml"],
            ["simulate", "w.json", "--quotas", "q.yaml", "-o", dice.choice(["table", "json", "csv"])],
        ):
            bounded(arguments, capsys)


def test_plans_and_journals(capsys: pytest.CaptureFixture[str]) -> None:
    """What kquota wrote itself, and somebody changed."""
    assert run(["plan", "quotas.json", "--cluster", "c", "--quotas", "empty.json", "--out", "plan.json"]) == 0
    plan = json.loads(Path("plan.json").read_text())
    entry = {
        "kind": "kquota.journal", "version": 1, "id": "x", "cluster": "zookeeper://127.0.0.1:1", "command": "apply",
        "started": 1, "finished": 2, "expires": 3, "undoes": None, "outcome": "applied", "error": None, "plan": plan,
    }  # fmt: skip
    Path("journal").mkdir()
    dice = random.Random(SEED)
    for _ in range(DOCUMENTS):
        Path("p.json").write_text(json.dumps(mutated(plan, dice)))
        Path("journal/x.json").write_text(json.dumps(mutated(entry, dice)))
        for arguments in (
            ["diff", "p.json", "quotas.json", "--cluster", "c"],
            ["apply", "p.json", "--yes", "--zookeeper", "127.0.0.1:1", "--timeout", "0.1"],
            ["history", *dice.choice([[], ["x"], ["-o", "json"]])],
            ["undo", *dice.choice([[], ["x"]]), "--yes", "--zookeeper", "127.0.0.1:1", "--timeout", "0.1"],
        ):
            bounded(arguments, capsys)


_ENDLESS = ("sandbox", "watch", "probe", "exporter", "top", "kafka-configs")


def test_command_lines(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import click

    from kquota.cli.main import cli

    monkeypatch.setattr("sys.stdin", open("/dev/null", encoding="utf-8"))  # noqa: SIM115 - for the time of the test
    dice = random.Random(SEED)
    # The others start servers, follow changes for ever, or take Kafka's own command line.
    names = [name for name in COMMANDS if name not in _ENDLESS]
    for _ in range(COMMAND_LINES):
        name = dice.choice(names)
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        options = [option for param in command.params for option in param.opts if option.startswith("--")]
        words = []
        for _ in range(dice.randint(0, 5)):
            words += [dice.choice(options)] if options and dice.random() < 0.6 else []
            words += [dice.choice(WORDS)] if dice.random() < 0.8 else []
        bounded([name, *words, "--timeout", "0.1"] if "--timeout" in options else [name, *words], capsys)


def test_frames_and_nodes() -> None:
    """Bytes that were an answer or a node, changed somewhere."""
    dice = random.Random(SEED)
    parts = [wire.EntityData("user", "a"), wire.EntityData("client-id", None)]
    entry = wire.QuotaEntry(parts, [wire.ValueData("producer_byte_rate", 1.0), wire.ValueData("x", float("nan"))])
    answer = encode_response(wire.DescribeClientQuotasResponse(0, 0, "", [entry] * 3), 1, 7)
    node = b'{"version":1,"config":{"producer_byte_rate":"1024","x":"y"}}'
    for _ in range(FRAMES):
        frame, data = bytearray(answer), bytearray(node)
        for changed in (frame, data):
            for _ in range(dice.randint(1, 4)):
                changed[dice.randrange(len(changed))] = dice.randrange(256)
            del changed[dice.randrange(len(changed)) :][: dice.randrange(2) * len(changed)]
        with contextlib.suppress(wire.FrameError):
            wire.decode_response(wire.DescribeClientQuotasResponse, 1, bytes(frame))
        with contextlib.suppress(KquotaError):
            znode.NodeConfig.decode(bytes(data))
            znode.entity_of("/config/users/" + data.decode("latin-1"))
