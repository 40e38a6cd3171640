"""What people type first: options by another name, numbers with commas, names in capitals, and patterns as names."""

from __future__ import annotations

import io
import re
import time
from pathlib import Path

import click
import pytest

from kquota import __version__
from kquota.access import Access
from kquota.backends.memory import MemoryBackend
from kquota.cli.commands.help import TOPICS
from kquota.cli.main import run
from kquota.core.change.plan import Cluster
from kquota.core.quotas.entity import DEFAULT, Entity
from kquota.core.quotas.quota import QuotaKey
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.documents.journal import Journal
from tests.cli.conftest import Kquota

QUOTAS = "kind: kquota.quotas\nversion: 1\nquotas:\n  - {entity: {user: bob}, values: {producer_byte_rate: 1MB}}\n"


def test_client_id_is_client(kquota: Kquota, tmp_path: Path) -> None:
    (tmp_path / "q.yaml").write_text(QUOTAS)
    short, long = (
        kquota("resolve", "--quotas", "q.yaml", "--user", "bob", option, "app1")
        for option in ("--client", "--client-id")
    )
    assert (short.code, short.out) == (0, long.out)
    assert kquota("export", "--quotas", "q.yaml", "--client-id", "app1").code == 0


def test_options_that_are_called_otherwise(kquota: Kquota) -> None:
    for tried, meant in (("--set", "--add-config"), ("--unset", "--delete-config")):
        ran = kquota("alter", tried, "x=1")
        assert ran.code == 2
        assert f"No such option {tried!r}. Did you mean {meant!r}?" in ran.err
    assert "--add-config" not in kquota("describe", "--set", "x").err


def test_a_number_with_commas(kquota: Kquota) -> None:
    ran = kquota("alter", "--user", "u", "--add-config", "producer_byte_rate=1,000,000", KQUOTA_ZOOKEEPER="127.0.0.1:1")
    assert (ran.code, "a number has no commas: 1000000, or 1MB" in ran.err) == (3, True)


def test_names_in_capitals_and_patterns(kquota: Kquota, tmp_path: Path) -> None:
    (tmp_path / "q.yaml").write_text(QUOTAS)
    capitals = kquota("resolve", "--user", "BOB", "--client", "a", "--quotas", "q.yaml")
    assert "did you mean 'bob'?" in capitals.err
    pattern = kquota("resolve", "--user", "bo*", "--client", "a", "--quotas", "q.yaml")
    assert "'bo*' is taken as a name; 'kquota describe --match' takes patterns" in pattern.err


MB = 1_000_000
BOB, KEY = Entity(user="bob"), QuotaKey.PRODUCER_BYTE_RATE
HERE = ("--zookeeper", "zk1:2181")


class _Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MemoryBackend:
    """A cluster in memory behind every address, and a folder of its own for the files of the user."""
    backend = MemoryBackend(QuotaSnapshot({BOB: {KEY: 20 * MB}}))
    monkeypatch.setattr(Access, "open", lambda *_: backend)
    for room in ("changes", "cli.commands.alter", "cli.commands.apply", "cli.commands.undo", "cli.commands.reconcile"):
        monkeypatch.setattr(f"kquota.{room}.place_of", lambda _: Cluster("zookeeper://zk1:2181"))
    for variable in ("KQUOTA_ZOOKEEPER", "KQUOTA_BOOTSTRAP_SERVER", "KQUOTA_CONTEXT", "KQUOTA_CONFIG"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("KQUOTA_JOURNAL", str(tmp_path / "journal"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "q.yaml").write_text(QUOTAS)
    return backend


@pytest.mark.parametrize("asked", ["version", "-V", "--version"])
def test_the_version_by_every_name(asked: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([asked]) == 0
    assert capsys.readouterr().out == f"kquota, version {__version__}\n"


def test_a_word_that_is_no_command_of_a_group(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "list"]) == 2
    assert "No such command 'list'. Commands: current-context, delete-context, " in capsys.readouterr().err


def test_short_options(cluster: MemoryBackend, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["describe", "-q", "--user", "nobody", *HERE]) == 0
    assert capsys.readouterr() == ("", "")
    assert run(["describe", "-v", *HERE]) == 2
    assert "No such option '-v': 'kquota -V' shows the version, --debug shows" in capsys.readouterr().err


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
    for terminal in (_Terminal(), io.StringIO()):
        monkeypatch.setattr("sys.stderr", terminal)
        assert run([*arguments, *HERE]) == 0
        assert (line in terminal.getvalue().splitlines()) == terminal.isatty()


def test_a_terminal_sees_that_the_environment_beats_the_current_context(
    cluster: MemoryBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a context alone, its name stands beside its address."""
    config = "current-context: prod\ncontexts: {prod: {zookeeper: prod:2181}}\n"
    (tmp_path / "kquota").mkdir()
    (tmp_path / "kquota" / "config.yaml").write_text(config)
    alter = ["alter", "--user", "bob", "--add-config", "producer_byte_rate=20MB"]
    for command in (["describe"], ["plan", "q.yaml"], ["lint"], [*alter, "--dry-run"]):
        monkeypatch.delenv("KQUOTA_ZOOKEEPER", raising=False)
        monkeypatch.setattr("sys.stderr", terminal := _Terminal())
        assert run(command) == 0
        assert "cluster: prod (context), zookeeper://prod:2181" in terminal.getvalue().splitlines()
        monkeypatch.setenv("KQUOTA_ZOOKEEPER", "elsewhere:2181")
        monkeypatch.setattr("sys.stderr", terminal := _Terminal())
        assert run(command) == 0
        said = terminal.getvalue().splitlines()
        assert "cluster: zookeeper://elsewhere:2181" in said
        assert "KQUOTA_ZOOKEEPER names the cluster; the current context prod is left out" in said
        assert "prod:2181" not in terminal.getvalue()


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


def test_a_limit_of_ten_bytes_for_everybody_is_asked_about(
    cluster: MemoryBackend, capsys: pytest.CaptureFixture[str]
) -> None:
    """The unit was forgotten: `producer_byte_rate=10`."""
    alter = ["alter", "--user-defaults", "--add-config", "producer_byte_rate=10", *HERE]
    assert run(alter) == 8
    assert "10 B/s" in (said := capsys.readouterr().err)
    assert "use --yes or --force if you mean it [low-default]" in said
    assert Entity(user=DEFAULT) not in cluster.describe()
    assert run([*alter, "--yes"]) == 0
    assert cluster.describe()[Entity(user=DEFAULT)] == {KEY: 10}


def test_a_limit_is_raised_for_two_hours(
    cluster: MemoryBackend, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 1_770_000_000_000
    monkeypatch.setattr(time, "time_ns", lambda: now * 1_000_000)
    assert run(["alter", "--user", "bob", "--add-config", "producer_byte_rate=40MB", "--for", "2h", *HERE]) == 0
    assert "ends 2026-02-02 04:40:00 UTC, then 20 MB/s again, if 'kquota reconcile' runs" in capsys.readouterr().err
    (entry,) = Journal(Path("journal")).entries()
    assert (entry.command, entry.expires) == ("alter", now + 7_200_000)
    monkeypatch.setattr("sys.stderr", terminal := _Terminal())
    assert run(["reconcile", *HERE]) == 0
    assert (
        terminal.getvalue()
        == f"nothing is due; 1 lease, next at 2026-02-02 04:40:00 UTC (journal {Path.cwd()}/journal)\n"
    )
    assert cluster.describe()[BOB] == {KEY: 40 * MB}
    now += 7_200_000
    assert run(["reconcile", *HERE]) == 0
    assert cluster.describe()[BOB] == {KEY: 20 * MB}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--user", "bob", "--bootstrap-controller", "c:1"], "controllers do not show"),
        (["--broker", "1", "--bootstrap-server", "b:1"], "limits of brokers are not in it"),
    ],
)
def test_where_nothing_can_be_taken_back_nothing_is_for_a_time(
    options: list[str], why: str, cluster: MemoryBackend, capsys: pytest.CaptureFixture[str]
) -> None:
    key = "max.connection.creation.rate" if "--broker" in options else "producer_byte_rate"
    assert run(["alter", "--add-config", f"{key}=5000", "--for", "2h", *options]) == 2
    assert re.search(why, capsys.readouterr().err)


@pytest.mark.parametrize("address", [("--bootstrap-server", "127.0.0.1:1"), ("--zookeeper", "127.0.0.1:1")])
def test_a_cluster_that_cannot_be_reached_leads_to_doctor(
    address: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["describe", *address, "--timeout", "2"]) == 4
    assert "'kquota doctor' checks each step of the way)" in capsys.readouterr().err


def test_a_workload_to_copy_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The example of `kquota help workload` is a workload as it stands."""
    from kquota.documents.workload import read_workload

    assert run(["help", "workload"]) == 0
    (example,) = re.findall(r"(?m)^    kind: [^\n]+\n(?:    [^\n]+\n)+", capsys.readouterr().out)
    (tmp_path / "workload.yaml").write_text(re.sub(r"(?m)^    ", "", example))
    assert [client.name for client in read_workload(tmp_path / "workload.yaml").workload.clients][:2] == [
        "orders",
        "etl",
    ]


def test_help_lists_its_topics(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help"]) == 0
    listed = capsys.readouterr().out.partition("Topics, as in 'kquota help concepts':\n")[2]
    assert re.split(r",\s+", listed.strip()) == list(TOPICS)


def test_a_plan_repeats_no_finding_about_what_stays(
    cluster: MemoryBackend, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A low limit that is there already is lint's to find, and no news of the plan."""
    low = QUOTAS + "  - {entity: {user: carol}, values: {producer_byte_rate: 10}}\n"
    (tmp_path / "q.yaml").write_text(low)
    assert run(["plan", "q.yaml", *HERE]) == 0
    shown = capsys.readouterr()
    assert "warning: producer_byte_rate of user=carol: is 10 B/s" in shown.out
    assert run(["apply", "q.yaml", "--yes", *HERE]) == 0
    (tmp_path / "q.yaml").write_text(low.replace("1MB", "2MB"))
    capsys.readouterr()
    assert run(["plan", "q.yaml", *HERE]) == 0
    shown = capsys.readouterr()
    assert "carol" not in shown.out
    assert "1 finding about quotas that stay: 'kquota lint' shows them" in shown.err


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


def test_a_probe_below_the_limit_has_a_verdict_and_no_ratio_of_noise(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four requests of 600 waited a little on a busy machine, and no quota is set."""
    from kquota.core.enforcement import Generation, QuotaWindows
    from kquota.core.findings.probe import Comparison, Limits, Probe, Throttling
    from kquota.core.resolve.resolver import resolve
    from kquota.probe.run import ProbeResult

    seen, none = Throttling(91, 4, 40), Throttling(0, 0, 0)
    found = ProbeResult(
        Probe.PRODUCE,
        1,
        "alice",
        "app",
        resolve(QuotaSnapshot(), "alice", "app")[0],
        Limits(None, QuotaWindows(), Generation.N_PLUS_1_BY_LAST),
        Comparison(600, 600, 30_000, seen, none, none),
        "duration",
    )
    monkeypatch.setattr("kquota.cli.commands.probe.run", lambda *_: found)
    assert run(["probe", "produce", "--topic", "load", "--yes", "--bootstrap-server", "b:1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "Verdict: not throttled, as predicted. Waits below 1 % of the run are noise."
    (ratio,) = (line.split() for line in lines if line.startswith("predicted / observed"))
    assert ratio == ["predicted", "/", "observed", "-"]


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        ("get user alice", "Did you mean: kquota describe --user alice"),
        (
            "set --user alice producer_byte_rate=12MB",
            "Did you mean: kquota alter --add-config producer_byte_rate=12MB --user alice",
        ),
        ("resolve alice etl", "Did you mean: kquota resolve --user alice --client etl"),
        ("delete ip=10.0.0.7 --dry-run", "Did you mean: kquota delete --ip 10.0.0.7 --dry-run"),
        (
            "alter --user alice --add-config x=1 --until 12:00",
            "Did you mean '--for'? A length of time, such as --for 2h.",
        ),
        ("alter --user alice --quota x=1", "Did you mean '--add-config'?"),
        ("describe --user-default", "Did you mean '--user-defaults'"),
        ("--bootstrap-server kafka:9092 describe", "Give it after the command: kquota COMMAND --bootstrap-server …"),
        (
            "diff before.yaml",
            "Missing argument 'B': what to compare with. For the cluster itself: kquota diff before.yaml",
        ),
        ("throttled", "'kquota audit' shows who is throttled in a log, 'kquota top' who is throttled now."),
        ("leases", "'kquota history --leases'"),
    ],
)
def test_a_first_try_gets_the_line_to_write(words: str, advice: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words.split()) == 2
    assert advice in capsys.readouterr().err


def test_options_that_are_nothing_alike_are_not_suggested(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["apply", "quotas.yaml", "--alter"]) == 2
    said = capsys.readouterr().err
    assert "No such option '--alter'." in said
    assert "Did you mean" not in said


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
    monkeypatch.setattr("sys.stdin", _Terminal())
    shown = []

    def answer(question: str, **_: object) -> bool:
        shown.append(capsys.readouterr().out)
        return True

    monkeypatch.setattr(click, "confirm", answer)
    assert run(["alter", "--user-defaults", "--add-config", "producer_byte_rate=10", *HERE]) == 0
    assert "user=<default>  producer_byte_rate       -  10 B/s" in shown[0]
    assert "user=<default>" not in capsys.readouterr().out
