"""What people type first: options by another name, numbers with commas, names in capitals, and patterns as names."""

import errno
import io
from pathlib import Path
from unittest.mock import Mock

import click
import pytest

from kquota import DEFAULT, Entity, QuotaKey, QuotaSnapshot, Unreachable
from kquota.backends.memory import MemoryBackend
from kquota.cli.main import run
from tests.cli.conftest import Kquota, TerminalStream, in_memory

QUOTAS = "kind: kquota.quotas\nversion: 1\nquotas:\n  - {entity: {user: bob}, values: {producer_byte_rate: 1MB}}\n"


def test_client_id_is_client(kquota: Kquota, tmp_path: Path) -> None:
    (tmp_path / "q.yaml").write_text(QUOTAS)
    short, long = (
        kquota("resolve", "--quotas", "q.yaml", "--user", "bob", option, "app1")
        for option in ("--client", "--client-id")
    )
    assert (short.code, short.out) == (0, long.out)
    assert kquota("export", "--quotas", "q.yaml", "--client-id", "app1").code == 0


def test_quotas_may_be_named_as_kubectl_names_what_it_gets(kquota: Kquota, tmp_path: Path) -> None:
    (tmp_path / "q.yaml").write_text(QUOTAS)
    plain = kquota("describe", "--quotas", "q.yaml").out
    assert (
        plain
        == kquota("get", "quotas", "--quotas", "q.yaml").out
        == kquota("describe", "quotas", "--quotas", "q.yaml").out
    )


def test_names_in_capitals_and_patterns(kquota: Kquota, tmp_path: Path) -> None:
    (tmp_path / "q.yaml").write_text(QUOTAS)
    capitals = kquota("resolve", "--user", "BOB", "--client", "a", "--quotas", "q.yaml")
    assert "did you mean 'bob'?" in capitals.err
    pattern = kquota("resolve", "--user", "bo*", "--client", "a", "--quotas", "q.yaml")
    assert "'bo*' is taken as a name; 'kquota describe --match' takes patterns" in pattern.err


MB = 1_000_000
BOB, KEY = Entity(user="bob"), QuotaKey.PRODUCER_BYTE_RATE
HERE = ("--zookeeper", "zk1:2181")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MemoryBackend:
    """A cluster in memory behind every address, and a folder of its own for the files of the user."""
    backend = in_memory(monkeypatch, QuotaSnapshot({BOB: {KEY: 20 * MB}}), "zookeeper://zk1:2181")
    for variable in ("KQUOTA_ZOOKEEPER", "KQUOTA_BOOTSTRAP_SERVER", "KQUOTA_CONTEXT", "KQUOTA_CONFIG"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("KQUOTA_JOURNAL", str(tmp_path / "journal"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "q.yaml").write_text(QUOTAS)
    return backend


def test_short_options(cluster: MemoryBackend, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["describe", "-q", "--user", "nobody", *HERE]) == 0
    assert capsys.readouterr() == ("", "")


def test_a_lease_whose_end_is_no_date_is_refused(cluster: MemoryBackend, capsys: pytest.CaptureFixture[str]) -> None:
    """No entry of the journal could hold it: the write would have no end, and no way back."""
    alter = ["alter", "--user", "bob", "--add-config", "producer_byte_rate=30MB", *HERE, "--for"]
    assert run([*alter, "9999999d"]) == 2
    assert "'9999999d' is longer than 1000 years" in capsys.readouterr().err
    assert run([*alter, "365000d"]) == 0
    assert run(["undo", "--yes", *HERE]) == 0


def test_a_full_disk_is_no_bug(
    cluster: MemoryBackend, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    full = FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp', '/var/tmp']")
    monkeypatch.setattr("tempfile.mkdtemp", Mock(side_effect=full))
    assert run(["edit", "--yes", *HERE]) == 3
    wanted = "kquota: No usable temporary directory found in ['/tmp', '/var/tmp'] (make room, or have TMPDIR name"
    assert capsys.readouterr().err.startswith(wanted)


def test_a_cluster_that_goes_after_the_plan_was_shown(
    cluster: MemoryBackend, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "alter", Mock(side_effect=Unreachable("no answer")))
    assert run(["apply", "q.yaml", "--yes", *HERE]) == 4
    assert capsys.readouterr().err.endswith("kquota: no answer. Nothing was written.\n")


def test_a_file_is_described_as_a_cluster_is(cluster: MemoryBackend, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["describe", "--quotas", "q.yaml", "--user", "bob", "-o", "csv"]) == 0
    assert capsys.readouterr().out == ("user,client-id,ip,key,value,unit\nbob,,,producer_byte_rate,1000000,bytes/s\n")
    assert run(["describe", "--quotas", "q.yaml", "--broker", "1"]) == 2
    assert "ask them, by --bootstrap-server HOST:PORT" in capsys.readouterr().err
    assert run(["describe"]) == 2
    assert "no cluster given: use --bootstrap-server" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["describe"], "cluster: zookeeper://zk1:2181"),
        (["plan", "q.yaml"], "cluster: zookeeper://zk1:2181"),
        (["lint"], "cluster: zookeeper://zk1:2181"),
        (["resolve", "--user", "bob", "--client", "x"], "cluster: zookeeper://zk1:2181"),
        (["diff", "q.yaml", "live"], "B: zookeeper://zk1:2181"),
    ],
)
def test_a_terminal_sees_which_cluster_was_read(
    arguments: list[str], line: str, cluster: MemoryBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    for terminal in (TerminalStream(), io.StringIO()):
        monkeypatch.setattr("sys.stderr", terminal)
        assert run([*arguments, *HERE]) == 0
        assert (line in terminal.getvalue().splitlines()) == terminal.isatty()


def test_the_command_of_a_hint_reaches_the_same_cluster(
    cluster: MemoryBackend, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the options that were given by hand; what the environment names, the next command finds itself."""
    change = ["alter", "--user", "bob", "--add-config", "producer_byte_rate=30MB", "--yes"]
    assert run(["plan", "q.yaml", "--out", "plan.json", *HERE]) == 0
    assert "'kquota apply plan.json --zookeeper zk1:2181' applies it" in capsys.readouterr().err
    assert run([*change, *HERE]) == 0
    assert "'kquota undo 1 --zookeeper zk1:2181' takes it back" in capsys.readouterr().err
    assert run(["undo", "1", "--zookeeper", "zk1:2181", "--yes"]) == 0
    assert "'kquota undo 2 --zookeeper zk1:2181' takes it back" in capsys.readouterr().err
    monkeypatch.setenv("KQUOTA_ZOOKEEPER", "zk1:2181")
    assert run(change) == 0
    assert "'kquota undo 3' takes it back" in capsys.readouterr().err


def test_a_workload_to_copy_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`kquota help workload > workload.yaml` makes a workload as it stands."""
    from kquota.documents.workload import read_workload

    assert run(["help", "workload"]) == 0
    (tmp_path / "workload.yaml").write_text(capsys.readouterr().out)
    assert [client.name for client in read_workload(tmp_path / "workload.yaml").workload.clients][:2] == [
        "orders",
        "etl",
    ]


def test_an_export_into_a_file(cluster: MemoryBackend, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["export", "--out", "mine.yaml", *HERE]) == 0
    assert capsys.readouterr() == ("", "wrote mine.yaml; 'kquota plan mine.yaml' compares it with a cluster\n")
    assert run(["plan", "mine.yaml", "--exit-code", *HERE]) == 0
    assert run(["export", "--out", "mine.yaml", "--update", "mine.yaml", *HERE]) == 2
    capsys.readouterr()
    assert run(["export", "-o", "rpk", *HERE]) == 0
    assert "rpk cluster quotas" in capsys.readouterr().out
    assert run(["export", "-o", "json", *HERE]) == 2
    assert "'json' is not one of 'kquota', 'kafka-configs'" in capsys.readouterr().err


def test_a_dry_run_says_what_the_run_would_ask(cluster: MemoryBackend, capsys: pytest.CaptureFixture[str]) -> None:
    alter = ["alter", "--user-defaults", "--add-config", "producer_byte_rate=10", "--dry-run", *HERE]
    assert run(alter) == 0
    assert "; the run asks about this, and a script needs --yes [low-default]" in capsys.readouterr().err
    assert run([*alter, "--yes"]) == 0
    assert "a script needs --yes" not in capsys.readouterr().err
    assert Entity(user=DEFAULT) not in cluster.describe()


def test_the_change_is_shown_before_the_question(
    cluster: MemoryBackend, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once: after a yes, it is not shown again."""
    monkeypatch.setattr("sys.stdin", TerminalStream())
    shown = []

    def answer(question: str, **_: object) -> bool:
        shown.append(capsys.readouterr().out)
        return True

    monkeypatch.setattr(click, "confirm", answer)
    assert run(["alter", "--user-defaults", "--add-config", "producer_byte_rate=10", *HERE]) == 0
    assert "user=<default>  producer_byte_rate       -  10 B/s" in shown[0]
    assert "user=<default>" not in capsys.readouterr().out
