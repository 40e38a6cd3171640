"""Every command that prints a table, on terminals of four widths: no table is wider than the terminal.

The commands are walked in the command tree: a new one that prints a table fails here until it is shown, too.
"""

from __future__ import annotations

import gzip
import itertools
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from rich.cells import cell_len

from kquota import Entity, QuotaKey, QuotaSnapshot
from kquota.cli import session, views
from kquota.cli.main import cli, run
from kquota.core.change.broker import BrokerConfig, Setting, Source
from kquota.core.enforcement import Generation, QuotaWindows
from kquota.core.findings.probe import Comparison, Limits, Probe, Throttling
from kquota.core.resolve.resolver import resolve
from tests.audit.recorded import LOG
from tests.audit.recorded import QUOTAS as RECORDED
from tests.cli.conftest import commands, in_memory
from tests.cli.test_screens import LONG, WIDTHS, shown
from tests.support.data import data_rows, data_text
from tests.test_recorder import Loggers

SAMPLES = Path(__file__).parents[1] / "data" / "samples"
CLIENT = "an-application-with-quite-a-long-client-id"
USAGE = "time_ms,user,client_id,api,bytes\n" + "".join(
    f'{1_770_000_000_000 + 100 * number},"{LONG}",{client},produce,50000\n'
    for number in range(150)
    for client in ("app1", CLIENT)
)
BROKER = ("--bootstrap-server", "broker-1.a-long-domain.example.com:9092", "--broker")
ADDRESS = "zookeeper-1.a-long-domain.example.com:2181,zookeeper-2.a-long-domain.example.com:2181"
VALUES = {QuotaKey.PRODUCER_BYTE_RATE: 1_000_000, QuotaKey.CONSUMER_BYTE_RATE: 2_000_000}
LIVE = QuotaSnapshot(
    {
        Entity(user=LONG): VALUES,
        Entity(user=LONG, client_id=CLIENT): VALUES,
        Entity(ip="2001:db8:85a3::8a2e:370:7334"): {QuotaKey.CONNECTION_CREATION_RATE: 20},
    }
)
SHOWN = data_rows("widths/lines.txt")
"""The commands that print tables, each with command lines that show all of them."""


class Brokers:
    """The configs of one broker, in memory."""

    limit = BrokerConfig(
        "listener.name.a-long-listener.max.connection.creation.rate",
        200,
        Source.DYNAMIC_BROKER_CONFIG,
        (Setting("max.connection.creation.rate", 100, Source.DEFAULT_CONFIG),),
    )

    def __enter__(self) -> Brokers:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def describe(self, broker: object) -> dict[int, tuple[BrokerConfig, ...]]:
        return {1: (self.limit,)}

    def alter(self, alteration: Any, *, validate_only: bool) -> Any:
        from kquota.core.change.broker import BrokerAlterResult

        return BrokerAlterResult(alteration.broker, {}, dict(alteration.set))


class Side(Brokers):
    """A side of a migration, in memory."""

    def migrated(self) -> tuple[QuotaSnapshot, tuple[()]]:
        return QuotaSnapshot({}), ()

    def describe(self, broker: object = None) -> Any:
        return LIVE


def probed(*_: object) -> Any:
    """What a probe found."""
    from kquota.probe.run import ProbeResult

    seen = Throttling(1_234_567, 1234, 98_765)
    compared = Comparison(12_345, 987_654_321, 3_600_000, seen, seen, replace(seen, total_ms=2_345_678))
    (resolution, *_rest) = resolve(LIVE, LONG, CLIENT)
    limits = Limits(1_000_000, QuotaWindows(), Generation.N_PLUS_1_BY_LAST)
    return ProbeResult(Probe.PRODUCE, 1, LONG, CLIENT, resolution, limits, compared, "duration")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with files to work on, and a cluster in memory behind every address."""
    files = {name: data_text(f"widths/{name}") for name in ("quotas.yaml", "workload.yaml", "config.yaml")}
    files["usage.csv"] = USAGE
    files["none.yaml"] = "kind: kquota.quotas\nversion: 1\nquotas: []\n"
    for name, sample in (("page.prom", "scrape-resource.prom"), ("sampled.json", "quotas.json")):
        files[name] = (
            (SAMPLES / sample).read_text().replace("alice", "a-rather-long-name-of-some-application-of-a-team")
        )
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    for name in [name for name in os.environ if name.startswith("KQUOTA_")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", "sed -i 's/consumer_byte_rate: [^,}]*/consumer_byte_rate: 1234567/'")
    monkeypatch.setenv("KQUOTA_CONFIG", str(tmp_path / "config.yaml"))
    monkeypatch.setenv("KQUOTA_JOURNAL", str(tmp_path / "journal"))
    monkeypatch.chdir(tmp_path)
    in_memory(monkeypatch, LIVE, f"zookeeper://{ADDRESS}")
    monkeypatch.setattr(session, "open_broker_configs", lambda *_: Brokers())
    monkeypatch.setattr(session, "open_broker_loggers", lambda *_: Loggers({1: "ERROR", 1002: None}))
    monkeypatch.setattr(session, "open_migration", lambda *_: (Side(), Side()))
    monkeypatch.setattr("kquota.cli.commands.probe.run", probed)
    return tmp_path


def options(command: click.Command) -> set[str]:
    return {option for each in command.params for option in each.opts}


def test_every_command_with_tables_is_shown() -> None:
    """A command with `--sort-by` prints tables; nothing but the printer of views prints any."""
    with_tables = {name for name, command in commands(cli) if "--sort-by" in options(command)}
    assert with_tables - {"follow"} == {name for name, _ in SHOWN}  # which has the tables of audit
    assert all("--no-headers" in options(command) for name, command in commands(cli) if name in with_tables)
    sources = Path(views.__file__).parent.rglob("*.py")
    assert {path.name for path in sources if re.search(r"\bprint_(table|csv)\(", path.read_text())} == {
        "text.py",
        "views.py",
    }


@pytest.mark.parametrize(("name", "arguments"), SHOWN)
def test_no_table_is_wider_than_the_terminal(
    name: str, arguments: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At each width; the columns that matter most are there, or each row is a block."""
    parts: list[views.Part] = []

    def keep(part: views.Part) -> None:
        if isinstance(part, views.Table):
            part = replace(part, rows=list(part.rows), styles=list(part.styles))
        parts.append(part)

    with monkeypatch.context() as patch:
        if name in ("history", "undo"):
            assert run(["apply", "quotas.yaml", "--yes", "--force"]) == 0, capsys.readouterr().err
        patch.setattr(views, "_print", keep)
        code = run([*name.split(), *arguments.split()])
    assert code in (0, 1), capsys.readouterr().err
    tables = [part for part in parts if isinstance(part, views.Table)]
    assert tables, parts

    for width in WIDTHS:
        for table in tables:
            assert not any(column.spare for column in table.columns if column.heading == "QUOTA"), "which one it is"
            lines = shown(width, printer(table), monkeypatch)
            assert max(map(cell_len, lines)) <= width, "\n".join(lines)
            assert next(column.heading for column in table.columns if not column.spare) in "\n".join(lines)


@pytest.mark.parametrize(
    ("line", "headings"),
    [
        ("top --metrics b1=page.prom --quotas sampled.json --once", "COUNTER KEY SET FOR LIMIT THROTTLE"),
        (
            "top --metrics b1=page.prom --metrics b2=page.prom --quotas sampled.json --once",
            "COUNTER KEY SET FOR LIMIT THROTTLE",
        ),
        ("top --metrics b1=page.prom --quotas sampled.json --once --all", "STATE COUNTER KEY LIMIT THROTTLE"),
        ("resolve --user alice --client etl --quotas quotas.yaml", "KEY LIMIT LEVEL FROM"),
        ("audit logged.csv --quotas quotas.yaml --engine local --in-force", "WHO QUOTA LIMIT DELAYED LOGGED WHEN"),
        (
            "audit usage.csv --quotas quotas.yaml --engine local --against none.yaml",
            "CHANGE USER CLIENT-ID QUOTA DELAYED",
        ),
        ("audit long.log --quotas recorded.json --engine local --against none.yaml", "USER CLIENT-ID QUOTA DELAYED"),
    ],
)
def test_who_which_quota_and_how_much_stay(
    line: str, headings: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a row of a table on the narrowest terminal, and not as a block."""
    time, *rows = USAGE.splitlines()
    (folder / "logged.csv").write_text("\n".join([f"{time},throttle_time_ms", *(f"{row},9" for row in rows)]) + "\n")
    (folder / "recorded.json").write_text(RECORDED.read_text())
    with gzip.open(LOG, "rt") as log:
        text = "".join(itertools.islice(log, 8000))
    (folder / "long.log").write_text(re.sub(r'(User:|"clientId":")', r"\1a-rather-long-name-of-", text))

    lines = shown(80, lambda: run(line.split()), monkeypatch)

    head = next(words for words in map(str.split, lines) if headings.split()[0] in words)
    assert set(headings.split()) <= {*head}, "\n".join(lines)


def printer(part: views.Part) -> Callable[[], None]:
    return lambda: views._print(part)


def test_what_is_to_be_copied_stands_on_its_own_line(capsys: pytest.CaptureFixture[str]) -> None:
    """The commands that mend a migration are no cells of a table."""
    (arguments,) = (arguments for name, arguments in SHOWN if name == "migrate check")
    assert run(["migrate", "check", *arguments.split()]) == 0
    out = capsys.readouterr().out
    copied = [line for line in out.splitlines() if line.startswith("kquota alter ")]
    assert len(copied) == len(LIVE)
    assert "TO MEND" not in out


def test_a_wrong_column_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    """What was written, or took long, is shown all the same."""
    for words in (
        ["alter", "--user", "bob", "--add-config", "producer_byte_rate=1MB"],
        ["delete", "--user", LONG],
        ["apply", "quotas.yaml", "--yes", "--force"],
        ["alter", *BROKER, "1", "--add-config", "max.connection.creation.rate=200"],
    ):
        assert run([*words, "--sort-by", "size"]) == 0
        assert "warning: --sort-by: there is no column 'size'; the columns are" in capsys.readouterr().err
