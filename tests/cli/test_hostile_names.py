"""Names, keys and the words of servers may hold escapes: no output lets them drive a terminal or begin a line."""

import ast
import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kquota.backends import wire
from kquota.backends.znode import znode_path
from kquota.cli import main
from kquota.cli.main import run
from kquota.core.quotas.entity import Entity
from tests.backends.test_kafka_peers import Peer
from tests.cli.conftest import Kquota, TerminalStream

HOSTILE = "a\x1b]0;owned\x07\x9b31m\u202e\x7f\r\nkquota: forged\n::error::forged\u2028\U000e0001"
SURROGATE = HOSTILE + "\ud800"
UNDECODED = HOSTILE + "\udcff"
"""As an argument that is no UTF-8 comes."""
ALLOWED = "\n"


def assert_tame(text: str) -> None:
    """Nothing but printable characters and line ends, and no line that a name began."""
    wild = {char for char in text if not char.isprintable() and char not in ALLOWED}
    assert not wild, f"{sorted(map(ascii, wild))} in {text!a}"
    assert not re.search(r"^(kquota: forged|::error::forged)", text, re.MULTILINE), ascii(text)


@pytest.fixture
def tame(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Runs a command line in this process, looks at all that it prints, and returns its exit code and its stdout."""

    def check(*arguments: str) -> tuple[int, str]:
        capsys.readouterr()
        code = run([*arguments, "--color", "never"])
        out, err = capsys.readouterr()
        assert_tame(out)
        assert_tame(err)
        assert code != 70, err
        return code, out

    return check


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KQUOTA_JOURNAL", str(tmp_path / "journal"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def document(**values: Any) -> dict[str, Any]:
    return {"kind": "kquota.quotas", "version": 1} | values


QUOTAS = document(
    quotas=[
        {
            "entity": {"user": HOSTILE},
            "values": {"producer_byte_rate": 1, "consumer_byte_rate": 1},
            "labels": {"team": HOSTILE},
        },
        {"entity": {"user": HOSTILE, "client-id": HOSTILE}, "values": {"request_percentage": 50}},
        {"entity": {"user": {"default": True}}, "values": {"consumer_byte_rate": 10}},
    ],
    protected=[{"user": ".*owned.*"}],
)


def named(out: str) -> bool:
    """Whether the JSON in a text holds the name as it is."""
    found = False

    def look(value: object) -> None:
        nonlocal found
        if isinstance(value, dict):
            for part in value.values():
                look(part)
        elif isinstance(value, list):
            for part in value:
                look(part)
        elif isinstance(value, str):
            found = found or HOSTILE in value

    for line in [out] if out.startswith("{\n") else out.splitlines():
        look(json.loads(line))
    return found


def test_names_in_a_file(tame: Callable[..., tuple[int, str]]) -> None:
    """Every command that shows names of a file, in each of its formats; JSON and YAML have them exactly."""
    from kquota.documents.encoding import parse

    Path("quotas.json").write_text(json.dumps(QUOTAS))
    Path("empty.json").write_text(json.dumps(document(quotas=[])))
    who = ("--user", HOSTILE, "--client", HOSTILE)
    exact: tuple[tuple[str, ...], ...] = (
        ("lint", "quotas.json", "-o", "json"),
        ("lint", "quotas.json", "-o", "sarif"),
        ("plan", "quotas.json", "--quotas", "empty.json", "-o", "json"),
        ("diff", "empty.json", "quotas.json", "-o", "json"),
        ("resolve", *who, "--quotas", "quotas.json", "-o", "json"),
        ("resolve", "--all", "--quotas", "quotas.json", "-o", "json"),
    )
    for arguments in exact:
        code, out = tame(*arguments)
        assert code == 0, arguments
        assert named(out), arguments
    _, out = tame("resolve", *who, "--quotas", "quotas.json", "-o", "yaml")
    assert named(json.dumps(parse(Path("x"), out)))
    _, out = tame("export", "--quotas", "quotas.json")
    assert [entry["entity"] for entry in parse(Path("x"), out)["quotas"]][1] == {"user": HOSTILE}
    for arguments in (
        ("lint", "quotas.json"),
        ("lint", "quotas.json", "-o", "github"),
        ("plan", "quotas.json", "--quotas", "empty.json"),
        ("plan", "empty.json", "--quotas", "quotas.json", "--prune"),
        ("plan", "quotas.json", "--quotas", "empty.json", "-o", "markdown"),
        ("diff", "quotas.json", "empty.json"),
        ("diff", "quotas.json", "empty.json", "-o", "markdown"),
        *(("resolve", *who, "--quotas", "quotas.json", "-o", output) for output in ("table", "tree", "csv")),
        *(("resolve", "--all", "--quotas", "quotas.json", "-o", output) for output in ("table", "csv")),
        ("resolve", "--who", f"user={HOSTILE}", "--quotas", "quotas.json"),
        *(("export", "--quotas", "quotas.json", "--format", name) for name in ("rpk", "jikkou", "strimzi")),
        ("export", "--quotas", "quotas.json", "--format", "kafka-configs"),
        ("export", "--quotas", "quotas.json", "--format", "terraform"),
    ):
        tame(*arguments)


def test_names_in_records(tame: Callable[..., tuple[int, str]]) -> None:
    Path("quotas.json").write_text(json.dumps(QUOTAS))
    rows = [
        {"time_ms": 1773219600000 + 100 * n, "broker": "1", "user": HOSTILE, "client_id": HOSTILE, "api": "produce"}
        | {"bytes": 10_000, "request_time_ns": 1000}
        for n in range(20)
    ]
    Path("usage.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + f'{{"{SURROGATE!r}": \n')
    for command in (
        ("audit", "usage.jsonl", "--quotas", "quotas.json"),
        ("audit", "usage.jsonl", "--quotas", "quotas.json", "--what-if", "quotas.json"),
        ("recommend", "usage.jsonl"),
        ("simulate", "--events", "usage.jsonl", "--quotas", "quotas.json"),
    ):
        for output in ("table", "json", "csv", "markdown", "yaml"):
            _, out = tame(*command, "-o", output)
            if output == "json" and out:
                assert named(out), command
            if output == "csv" and out:
                assert len({len(row) for row in csv.reader(io.StringIO(out))}) == 1


@pytest.mark.parametrize(
    "bad",
    [
        {HOSTILE: 1},
        document(quotas=[{"entity": {HOSTILE: "x"}, "values": {}}]),
        document(quotas=[{"entity": {"user": "a"}, "values": {HOSTILE: 1}}]),
        document(quotas=[{"entity": {"user": "a"}, "values": {"producer_byte_rate": HOSTILE}}]),
        document(quotas=[{"entity": {"user": SURROGATE}, "values": {"producer_byte_rate": -1}}]),
        document(quotas=[{"entity": {"user": "a"}, "values": {}, "clusters": {HOSTILE: {}}}]),
        document(quotas=[], unmanaged=[{"user": HOSTILE + "("}]),
        document(quotas=[{"entity": {"user": SURROGATE}, "values": {"producer_byte_rate": 1}}]),
    ],
)
def test_files_that_are_wrong(bad: dict[str, Any], tame: Callable[..., tuple[int, str]]) -> None:
    """Their own words are repeated in errors."""
    Path("bad.json").write_text(json.dumps(bad))
    Path("bad.yaml").write_text(f"# not JSON\n{json.dumps(bad)}")
    Path("empty.json").write_text(json.dumps(document(quotas=[])))
    for name in ("bad.json", "bad.yaml"):
        for output in ("table", "github", "json", "sarif"):
            tame("lint", name, "-o", output)
        tame("plan", name, "--quotas", "empty.json")
        tame("plan", name, "--quotas", "empty.json", "-o", "json")
        tame("diff", "empty.json", name)


def test_words_of_the_command_line(tame: Callable[..., tuple[int, str]]) -> None:
    """Click repeats them; bytes that are no UTF-8 come as halves of pairs."""
    Path("quotas.json").write_text(json.dumps(document(quotas=[])))
    for arguments in (
        (HOSTILE,),
        ("describe", f"--{HOSTILE}"),
        ("describe", "--zookeeper", HOSTILE),
        ("describe", "--bootstrap-server", UNDECODED),
        ("lint", UNDECODED),
        ("alter", "--zookeeper", "127.0.0.1:1", "--timeout", "1", "--user", "a", "--add-config", HOSTILE),
        *(
            ("resolve", "--user", "a\udcff", "--client", UNDECODED, "--quotas", "quotas.json", "-o", output)
            for output in ("table", "tree", "json", "yaml", "csv")
        ),
    ):
        tame(*arguments)
        tame("--debug", *arguments)


def test_names_and_foreign_keys_in_zookeeper(chroot: str, znodes: Any, tame: Callable[..., tuple[int, str]]) -> None:
    """What a cluster holds, of quotas and of others, through every command that reads or writes it."""
    user = Entity(user=HOSTILE)
    stored = {"producer_byte_rate": "1", HOSTILE: HOSTILE, "consumer_byte_rate": HOSTILE}
    for path, config in ((znode_path(user), stored), ("/config/users/bad%zz", stored), ("/config/users/x\u202e", {})):
        znodes.create(path, json.dumps({"version": 1, "config": config}).encode(), makepath=True)
    znodes.ensure_path("/config/changes")
    Path("quotas.json").write_text(
        json.dumps(document(quotas=[{"entity": {"user": HOSTILE}, "values": {"producer_byte_rate": 10}}]))
    )
    live = ("--zookeeper", chroot)
    for output in ("table", "wide", "json", "yaml", "csv", "name"):
        _, out = tame("describe", *live, "-o", output)
        assert output != "json" or named(out)
    for output in ("table", "json", "github", "sarif"):
        tame("lint", *live, "-o", output)
    for name in ("kquota", "rpk", "jikkou", "strimzi", "terraform", "kafka-configs"):
        tame("export", *live, "--format", name)
    tame("export", *live, "--update", "quotas.json")
    tame("plan", "quotas.json", *live)
    tame("apply", "quotas.json", *live, "--yes", "--force")
    tame("history")
    _, out = tame("history", "-o", "json")
    tame("undo", "--yes", *live)
    for output in ("table", "json", "yaml", "csv"):
        tame("alter", *live, "--user", HOSTILE, "--add-config", "producer_byte_rate=7", "-o", output)
        tame("alter", *live, "--user", HOSTILE, "--delete-config", "request_percentage", "-o", output)
    tame("alter", *live, "--user", HOSTILE, "--delete-config", "request_percentage", "--strict-delete")


def test_words_of_a_broker(tame: Callable[..., tuple[int, str]]) -> None:
    """Its texts of errors, and what it calls entities and keys."""
    Path("quotas.json").write_text(json.dumps(QUOTAS))

    def knows(request: wire.Request) -> Any:
        if isinstance(request, wire.ApiVersionsRequest):
            return ...
        raise EOFError

    def refuses(request: wire.Request, _: wire.RequestHeader) -> Any:
        match request:
            case wire.DescribeClientQuotasRequest():
                return wire.DescribeClientQuotasResponse(0, 44, HOSTILE, None)
            case wire.AlterClientQuotasRequest(entries):
                return wire.AlterClientQuotasResponse(
                    0, [wire.AlterEntryResult(44, HOSTILE, each.entity) for each in entries]
                )
        return knows(request)

    def shows(request: wire.Request, _: wire.RequestHeader) -> Any:
        if isinstance(request, wire.DescribeClientQuotasRequest):
            unknown = wire.ValueData(HOSTILE, 1.0)
            entries = [
                wire.QuotaEntry([wire.EntityData("user", HOSTILE)], [unknown, wire.ValueData("producer_byte_rate", 2)]),
                wire.QuotaEntry([wire.EntityData(HOSTILE, "x")], [unknown]),
            ]
            return wire.DescribeClientQuotasResponse(0, 0, "", entries)
        return knows(request)

    for answer in (refuses, shows):
        with Peer(answer) as peer:
            live = ("--bootstrap-server", peer.bootstrap, "--timeout", "5")
            for output in ("table", "json", "yaml", "csv", "name", "wide"):
                tame("describe", *live, "-o", output)
            tame("alter", *live, "--user", HOSTILE, "--add-config", "producer_byte_rate=7")
            tame("plan", "quotas.json", *live)
            tame("lint", *live, "-o", "github")


def test_a_terminal_of_the_drop_in(chroot: str, znodes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts get what Kafka's tool gives them, but a terminal is not driven."""
    from kquota.cli import kafka_configs

    path = znode_path(Entity(user=HOSTILE))
    config = {"producer_byte_rate": "1", HOSTILE: HOSTILE}
    znodes.create(path, json.dumps({"version": 1, "config": config}).encode(), makepath=True)

    screen, errors = TerminalStream(), TerminalStream()
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setattr("sys.stderr", errors)
    kafka_configs.run(["--zookeeper", chroot, "--describe", "--entity-type", "users"])
    kafka_configs.run(["--zookeeper", chroot, "--describe", "--entity-type", HOSTILE])

    assert "owned" in screen.getvalue()
    for text in (screen.getvalue(), errors.getvalue()):
        assert not {char for char in text if not char.isprintable()} - {"\n", "\t"}, ascii(text)


def test_stderr_has_one_way() -> None:
    """`say` spells out what it prints: whoever prints an error elsewhere forgets to."""
    folder = Path(main.__file__).parent
    others = [
        f"{path.name}:{node.lineno}"
        for path in sorted(folder.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("echo", "secho")
        and any(keyword.arg == "err" for keyword in node.keywords)
    ]

    assert len(others) == 1, f"say, warn or note of kquota.cli.streams instead: {others}"
    assert others[0].startswith("streams.py:")


def test_a_process_says_no_more(kquota: Kquota) -> None:
    """As scripts call it, with an argument that is not UTF-8."""
    ran = kquota("lint", "a\udcff\x1b.yaml")

    assert ran.code == 3
    assert_tame(ran.out)
    assert_tame(ran.err)
