"""Every command that prints a table, on terminals of four widths: nothing is wider than the terminal.

The commands are walked in the command tree: a new one that prints a table fails here until it is shown, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from rich.cells import cell_len

from kquota.access import Access
from kquota.backends.memory import MemoryBackend
from kquota.cli.commands.audit import audited_view
from kquota.cli.main import COMMANDS, cli, run
from kquota.cli.views import View, show
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey
from kquota.core.quotas.snapshot import QuotaSnapshot
from tests.cli.test_screens import LONG, WIDTHS, shown

WHO = Entity(user=LONG)
PAIR = Entity(user=LONG, client_id="an-application-with-quite-a-long-client-id")
QUOTAS = f"""\
kind: kquota.quotas
version: 1
quotas:
  - {{entity: {{user: "{LONG}"}}, values: {{producer_byte_rate: 1234567, request_percentage: 150%}}}}
  - entity: {{user: "{LONG}", client-id: {PAIR.client_id}}}
    labels: {{owner: the-team-of-the-platform, ticket: PLATFORM-4711}}
    values: {{producer_byte_rate: 2345678, consumer_byte_rate: 3456789, controller_mutation_rate: 5}}
  - {{entity: {{user: {{default: true}}}}, values: {{consumer_byte_rate: 500kB}}}}
  - {{entity: {{ip: {{default: true}}}}, values: {{connection_creation_rate: 5}}}}
"""
WORKLOAD = f"""\
kind: kquota.workload
version: 1
duration: 5s
brokers: {{count: 2, max.connection.creation.rate: 20}}
clients:
  - {{name: "{LONG}", user: "{LONG}", client-id: app1, api: produce, rate: 4MB, size: 40kB}}
  - {{name: topics, user: "{LONG}", client-id: {PAIR.client_id}, api: CreateTopics, pace: 1, topics: 7, partitions: 80}}
  - {{name: storm, api: connect, ip: 10.0.0.1, pace: 40, start: 0, stop: 3}}
"""
USAGE = "time_ms,user,client_id,api,bytes\n" + "".join(
    f"{1_770_000_000_000 + 100 * number},\"{LONG}\",{client},produce,500000\n"
    for number in range(150)
    for client in ("app1", PAIR.client_id)
)
VALUES = {QuotaKey.PRODUCER_BYTE_RATE: 1_000_000, QuotaKey.CONSUMER_BYTE_RATE: 2_000_000}
ZOOKEEPER = ("--zookeeper", "zookeeper-1.a-long-domain.example.com:2181,zookeeper-2.a-long-domain.example.com:2181")
CONFIG = f"""\
current-context: a-context-with-quite-a-long-name-in-the-file
contexts:
  a-context-with-quite-a-long-name-in-the-file:
    zookeeper: {ZOOKEEPER[1]}
    comment: a remark that is about as long as such remarks are in real files of real people
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with files to work on, and a cluster in memory behind every address."""
    for name, text in (("q.yaml", QUOTAS), ("w.yaml", WORKLOAD), ("u.csv", USAGE), ("c.yaml", CONFIG)):
        (tmp_path / name).write_text(text)
    (tmp_path / "none.yaml").write_text("kind: kquota.quotas\nversion: 1\nquotas: []\n")
    for name in [name for name in os.environ if name.startswith("KQUOTA_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("KQUOTA_CONFIG", str(tmp_path / "c.yaml"))
    monkeypatch.setenv("KQUOTA_JOURNAL", str(tmp_path / "journal"))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(tmp_path)
    quotas = QuotaSnapshot({WHO: VALUES, PAIR: VALUES, Entity(ip="2001:db8:85a3::8a2e:370:7334"): {
        QuotaKey.CONNECTION_CREATION_RATE: 20
    }})
    backend = MemoryBackend(quotas)
    monkeypatch.setattr(Access, "open", lambda *_: backend)
    return tmp_path


def brokers() -> View:
    """Brokers, with a limit of theirs that is a long name."""
    from kquota.cli.brokers import snapshot_view
    from kquota.core.change.broker import BrokerConfig, Hidden, Source

    name = "listener.name.a-long-listener.max.connection.creation.rate"
    hidden = (Hidden("max.connection.creation.rate", "100", Source.DEFAULT),)
    return snapshot_view({1: (BrokerConfig(name, "200", Source.BROKER, hidden),)})


def migrated() -> View:
    """What a migration damaged, and the commands that mend it, which are wider than many terminals."""
    from kquota.cli.commands.migrate import damaged_view
    from kquota.core.change.migration import Damage, Finding
    from kquota.core.quotas.alteration import Alteration

    mend = (Alteration(PAIR, VALUES),)
    finding = Finding(Damage.UNDECODED, PAIR, f"KRaft {PAIR}", "ZooKeeper has another value than KRaft has", mend)
    return damaged_view([finding], "zk:2181", "broker:9092", code=0)


def probed() -> View:
    """A probe that was throttled."""
    from tests.documents.test_probe import RESULT

    from kquota.cli.commands.probe import probed_view

    return probed_view(RESULT)


def audited(folder: Path) -> View:
    """The audit of a recorded log."""
    from tests.cli.test_report import recorded

    result, settings = recorded()
    return audited_view(result, settings, None, show_all=True)


