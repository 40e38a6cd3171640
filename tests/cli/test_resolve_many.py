"""`kquota resolve --all`, `--who` and `-o tree`."""

import csv
import io
import json
import sys
from pathlib import Path

import pytest

from kquota.cli import reach
from kquota.cli.main import run
from tests.brokers.kafka import KafkaBroker
from tests.cli.conftest import Golden, Kquota, validated
from tests.cli.terminal import on_terminal
from tests.cli.test_resolve import QUOTAS
from tests.support.data import data_rows
from tests.support.processes import ran

CLIENTS = "user,client_id,ip\nuser1,clientA,10.0.0.7\nuser2,clientB,10.0.0.8\nuser3,,10.0.0.9\nuser3,clientA,\n"


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "quotas.yaml").write_text(QUOTAS)
    (tmp_path / "clients.csv").write_text(CLIENTS)
    return "quotas.yaml"


@pytest.mark.parametrize("output", ["table", "csv", "json"])
def test_every_known_pair(kquota: Kquota, file: str, golden: Golden, output: str) -> None:
    """Each user with each client-id, any other, and none; each answer is that of resolving the client alone."""
    done = kquota("resolve", "--all", "--quotas", file, "-o", output)
    assert (done.code, done.err) == (0, "")
    golden(f"resolve_all.{output}", done.out)
    if output == "json":
        documents = [validated(line, "resolution") for line in done.out.splitlines()]
        assert len(documents) == 3 * 3
        (found,) = [
            each for each in documents if each["client"]["user"] == "user2" and each["client"]["client-id"] == ""
        ]
        alone = validated(
            kquota("resolve", "--user", "user2", "--client", "", "--quotas", file, "-o", "json").out, "resolution"
        )
        assert all(resolution in alone["resolutions"] for resolution in found["resolutions"])


def test_all_is_narrowed_by_a_name(kquota: Kquota, file: str) -> None:
    done = kquota("resolve", "--all", "--user", "user2", "--quotas", file, "-o", "csv")
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert {(row["user"], row["client_id"]) for row in rows} == {
        ("user2", "clientA"),
        ("user2", "<other>"),
        ("user2", ""),
    }


def test_too_many_are_refused(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reach, "MOST", 8)
    arguments = ["resolve", "--all", "--quotas", str(tmp_path / file)]
    assert run(arguments) == 8
    assert capsys.readouterr() == (
        "",
        "kquota: there are 9 known clients, more than 8 (narrow it by --user or --client, or -o csv)\n",
    )
    assert run([*arguments, "-o", "csv"]) == 0


@pytest.mark.parametrize(
    ("who", "count", "clients"),
    [
        ("user=<default>", "2 of 4 observed", [("user3", ""), ("user3", "clientA")]),
        ("client-id=clientA", "2 of 4 observed", [("user1", "clientA"), ("user3", "clientA")]),
        ("ip=<default>", "3 of 4 observed", [("user1", "clientA"), ("user2", "clientB"), ("user3", "")]),
        ("user=nobody", "user=nobody has no quotas; governs 0 of 4 observed", []),
    ],
)
def test_which_observed_clients_an_entity_governs(
    kquota: Kquota, file: str, who: str, count: str, clients: list[tuple[str, str]]
) -> None:
    done = kquota("resolve", "--who", who, "--clients", "clients.csv", "--quotas", file, "-o", "csv")
    assert done.code == 0
    assert done.complaint.endswith(f"{count} clients")
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert [(row["user"], row["client_id"]) for row in rows] == clients
    assert {row["entity"] for row in rows} <= {who}


def test_which_known_clients_an_entity_governs(kquota: Kquota, file: str, golden: Golden) -> None:
    done = kquota("resolve", "--who", "client-id=clientA", "--quotas", file)
    assert done.code == 0
    golden("resolve_who.table", done.out + done.err)
    some = kquota("resolve", "--who", "user=<default>", "--quotas", file)
    assert some.complaint.endswith("known clients ('kquota resolve --all' shows the others)")


def test_each_observed_client(kquota: Kquota, file: str) -> None:
    """Each answer is that of resolving the client alone."""
    done = kquota("resolve", "--clients", "clients.csv", "--match", "user3", "--quotas", file, "-o", "json")
    found = [validated(line, "resolution") for line in done.out.splitlines()]
    alone = json.loads(kquota("resolve", "--user", "user3", "--client", "clientA", "--quotas", file, "-o", "json").out)
    assert (done.code, [each["client"]["client-id"] for each in found]) == (0, ["", "clientA"])
    assert found[1]["resolutions"]
    assert all(resolution in alone["resolutions"] for resolution in found[1]["resolutions"])
    assert kquota("resolve", "--clients", "clients.csv", "--all", "--quotas", file).code == 2


def test_clients_come_through_a_pipe(file: str, tmp_path: Path) -> None:
    arguments = ["--who", "user=user1", "--clients", "-", "-o", "json", "--quotas", str(tmp_path / file)]
    usage = '{"user": "user1", "client_id": "x", "api": "produce"}\n'
    done = ran([sys.executable, "-m", "kquota", "resolve", *arguments], given=usage)
    (line,) = done.stdout.splitlines()
    found = validated(line, "resolution")
    assert (found["client"], [each["key"] for each in found["resolutions"]]) == (
        {"user": "user1", "client-id": "x", "ip": None},
        ["producer_byte_rate", "request_percentage"],
    )


@pytest.mark.parametrize(("arguments", "code", "says"), data_rows("refused/resolve_many.txt"))
def test_what_does_not_go_together(
    kquota: Kquota, file: str, tmp_path: Path, arguments: str, code: str, says: str
) -> None:
    (tmp_path / "binary").write_bytes(b"user\n\xff\n")
    done = kquota("resolve", "--quotas", file, *arguments.split())
    assert done.code == int(code)
    assert says in done.err


def test_a_client_as_a_tree(kquota: Kquota, file: str, golden: Golden) -> None:
    arguments = ("--user", "user2", "--client", "clientA", "--ip", "10.0.0.7", "--brokers", "3", "--quotas", file)
    done = kquota("resolve", *arguments, "-o", "tree")
    assert (done.code, done.err) == (0, "")
    golden("resolve.tree", done.out)
    limits = {
        each["key"]: each["limit_on_brokers"]
        for each in validated(kquota("resolve", *arguments, "-o", "json").out, "resolution")["resolutions"]
    }
    assert (limits["producer_byte_rate"], limits["request_percentage"]) == (3 * 10485760, None)
    assert "ON 3 BROKERS" in kquota("resolve", *arguments).out


def test_a_tree_with_every_exception(kquota: Kquota, file: str, tmp_path: Path, golden: Golden) -> None:
    (tmp_path / "server.properties").write_text("client.quota.callback.class=com.example.Mine\n")
    arguments = ("--user", "user2", "--quotas", file, "--server-properties", "server.properties")
    done = kquota("resolve", *arguments, "--kafka-version", "2.4", "-o", "tree")
    assert (done.code, done.err) == (0, "")
    golden("resolve_caveats.tree", done.out)
    document = validated(kquota("resolve", *arguments, "-o", "json").out, "resolution")
    assert [each["name"] for each in document["caveats"]] == ["custom-callback", "empty-client-id"]


def test_a_terminal_gets_a_tree_of_lines(file: str, tmp_path: Path) -> None:
    arguments = ("resolve", "--user", "user1", "--quotas", file, "-o", "tree")
    shown = on_terminal(arguments, tmp_path, COLUMNS="120", LANG="C.UTF-8")
    assert "├── " in shown
    assert "producer_byte_rate: 1 MB/s" in shown


def test_live_brokers_are_asked_for_their_callback(kquota: Kquota, kraft: KafkaBroker) -> None:
    """This one has none; asking it costs no warning."""
    done = kquota("resolve", "--user", "treed", "--bootstrap-server", kraft.bootstrap, "-o", "tree")
    assert (done.code, done.rest) == (0, "")
    assert "callback" not in done.out
    assert json.dumps(done.out).startswith('"user treed, client-id (empty)')
