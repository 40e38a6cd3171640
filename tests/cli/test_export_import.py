"""export and import as people use them, and the exported commands run by Kafka's own tool."""

import os
import shlex
import sys
from pathlib import Path

import pytest

from kquota import DEFAULT, Alteration, Entity, Plan, QuotaBackend, QuotaKey, QuotaSnapshot
from kquota.backends.kafka import KafkaBackend
from kquota.backends.memory import MemoryBackend
from kquota.cli.commands import import_
from kquota.cli.commands.export import FORMATS
from kquota.core.change.plan import plan
from kquota.documents.foreign import kafka_configs
from kquota.documents.quotas import quotas_text, read_quota_file
from tests.brokers.kafka import AT_ONCE, CONFIG_COMMAND, KafkaBroker
from tests.cli.conftest import Golden, Kquota
from tests.cli.test_describe_alter import filled
from tests.support.data import wrong_documents
from tests.support.processes import ran

__all__ = ["filled"]

WARNED = {"rpk": 4, "jikkou": 3, "strimzi": 7, "terraform": 2}
"""How many lines of warnings a format gives for the quotas of `filled`."""


@pytest.mark.parametrize("format_", FORMATS)
def test_export_prints_every_format(kquota: Kquota, filled: str, golden: Golden, format_: str) -> None:
    """The whole cluster; what a format cannot say, a line each, and code 9."""
    done = kquota("export", "--zookeeper", filled, "-o", format_)
    assert done.code == (9 if format_ in WARNED else 0)
    assert len(done.err.splitlines()) == WARNED.get(format_, 0)
    golden(f"export.{format_}", done.out + done.err)


def test_what_export_writes_plans_to_nothing(kquota: Kquota, filled: str, tmp_path: Path) -> None:
    """Also by way of another tool's format, where that can say everything."""
    (tmp_path / "quotas.yaml").write_text(kquota("export", "--zookeeper", filled).out)
    again = kquota("export", "--quotas", "quotas.yaml", "--format", "kafka-configs")
    (tmp_path / "quotas.sh").write_text(again.out)
    assert kquota("import", "--from", "kafka-configs", "quotas.sh", "--out", "imported.yaml").code == 0
    for file in ("quotas.yaml", "imported.yaml"):
        done = kquota("plan", file, "--prune", "--exit-code", KQUOTA_ZOOKEEPER=filled)
        assert (done.code, done.out, done.err) == (0, "", "nothing changes\n")
    assert (tmp_path / "imported.yaml").read_text() == (tmp_path / "quotas.yaml").read_text()


def test_export_selects_and_updates(kquota: Kquota, filled: str, tmp_path: Path) -> None:
    path = tmp_path / "quotas.yaml"
    path.write_text(kquota("export", "--user", "alice", KQUOTA_ZOOKEEPER=filled).out.replace("10 MB/s", "9MB # ?", 0))
    assert path.read_text().count("entity:") == 1
    path.write_text("# mine\n" + path.read_text())
    path.chmod(0o640)
    os.link(path, tmp_path / "same")
    (tmp_path / "link.yaml").symlink_to(path)

    done = kquota("export", "--update", "quotas.yaml", "--user", "alice", KQUOTA_ZOOKEEPER=filled)
    assert (done.code, done.err) == (0, "quotas.yaml: nothing changes\n")
    assert path.samefile(tmp_path / "same"), "a file that is right is not written"
    done = kquota("export", "--update", "link.yaml", KQUOTA_ZOOKEEPER=filled)
    assert (done.code, done.out, done.err) == (0, "", "link.yaml: 7 added, 0 changed, 0 removed\n")
    assert path.read_text().startswith("# mine\n")
    assert path.stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "link.yaml").is_symlink()
    assert kquota("plan", "quotas.yaml", "--prune", "--exit-code", KQUOTA_ZOOKEEPER=filled).code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["--update", "x", "--format", "rpk"], 2, "only a quotas file of kquota can be updated"),
        (["--update", "missing.yaml"], 3, "missing.yaml: no such file"),
        (["--broker", "1"], 2, "brokers have no quotas"),
    ],
)
def test_what_cannot_be_exported(kquota: Kquota, chroot: str, arguments: list[str], code: int, complaint: str) -> None:
    done = kquota("export", *arguments, KQUOTA_ZOOKEEPER=chroot)
    assert (done.code, done.out) == (code, "")
    assert complaint in done.err


def test_import_names_file_and_line(kquota: Kquota, tmp_path: Path) -> None:
    (tmp_path / "rpk.yaml").write_text("quotas:\n  - entity: [{type: user}]\n    values: []\n")
    done = kquota("import", "--from", "rpk", "rpk.yaml", "--out", "out.yaml")
    assert done.code == 3
    assert done.complaint.startswith("kquota: rpk.yaml, line 2: quotas[0].entity[0]: 'name' is a required property")
    assert not (tmp_path / "out.yaml").exists()
    (tmp_path / "rpk.yaml").write_text(
        "quotas: [{entity: [{type: client-id-prefix, name: a}], values: [{key: producer_byte_rate, value: '1'}]}]"
    )
    done = kquota("import", "--from", "rpk", "rpk.yaml")
    assert done.code == 9
    assert done.complaint == "kquota: warning: rpk.yaml, line 1: Kafka has no quotas by client-id-prefix"


@pytest.mark.parametrize(("text", "message"), wrong_documents("cli/wrong_files.txt"))
def test_other_tools_files_are_refused_by_name(kquota: Kquota, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "f").write_text(text)
    for command in (("lint", "f"), ("plan", "--quotas", "f", "f"), ("import", "--from", "rpk", "f")):
        done = kquota(*command)
        assert (done.code, done.out) == (3, "")
        assert done.complaint.startswith(f"kquota: f: {message}")


def test_a_byte_order_mark_hides_no_resource(kquota: Kquota, tmp_path: Path) -> None:
    """As Windows saves files: the first resource was passed over where a second one followed."""
    config = 'config = {{ "producer_byte_rate" = 5 }}'
    resource = 'resource "kafka_quota" "{0}" {{\n  entity_type = "user"\n  entity_name = "{0}"\n  ' + config + "\n}}\n"
    (tmp_path / "f").write_text("\ufeff" + resource.format("a") + resource.format("b"))
    assert kquota("import", "f").out.count("entity:") == 2, "it shows that it is Terraform's"


def test_an_empty_pipe_has_no_quotas_to_import(kquota: Kquota, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("\n")
    for dialect in import_.FORMATS:
        assert kquota("import", "--from", dialect, "f").code == 3


PRODUCER, REQUEST = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE
TRICKY = QuotaSnapshot(
    {
        Entity(user=DEFAULT): {PRODUCER: 12_345_678},
        Entity(user='it\'s "$HOME" `x` \\ #, ü=[1]'): {PRODUCER: 1 << 40, REQUEST: 12.345},
        Entity(client_id="--alter"): {REQUEST: 1e-3},
        Entity(user="CN=a,OU=b", client_id=DEFAULT): {QuotaKey.CONTROLLER_MUTATION_RATE: 0.1},
        Entity(ip="127.0.0.1"): {QuotaKey.CONNECTION_CREATION_RATE: 7},
    }
)


def tool(folder: Path, command: list[str]) -> str:
    """An executable that stands for kafka-configs.sh."""
    script = folder / "kafka-configs.sh"
    script.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    script.chmod(0o755)
    return str(script)


@pytest.mark.server
def test_kafkas_own_tool_runs_what_was_exported(tmp_path: Path) -> None:
    """Kafka's tool sets, and prints, exactly what was exported; kquota's drop-in does the same."""
    exported = kafka_configs.export(TRICKY)
    assert not exported.unsaid
    (tmp_path / "quotas.sh").write_text(exported.text, encoding="utf-8")
    with KafkaBroker(settings=AT_ONCE) as broker, KafkaBackend(broker.bootstrap) as backend:
        own = broker.command(CONFIG_COMMAND)
        for command in (own, [sys.executable, "-m", "kquota", "kafka-configs"]):
            script = ["sh", "quotas.sh", "--bootstrap-server", broker.bootstrap]
            done = ran(script, tmp_path, {"KAFKA_CONFIGS": tool(tmp_path, command)})
            assert done.returncode == 0, done.stdout + done.stderr
            assert backend.describe() == TRICKY
            assert not planned(backend, tmp_path)
            if command is own:
                printed = ""
                for kinds in (["users"], ["clients"], ["users", "clients"], ["ips"]):
                    types = [word for kind in kinds for word in ("--entity-type", kind)]
                    utf8 = ("-Dstdout.encoding=UTF-8", "-Dsun.stdout.encoding=UTF-8")
                    printed += broker.kafka_configs("--describe", *types, jvm_flags=utf8).stdout
                assert kafka_configs.read("printed", printed) == TRICKY
            removals = [Alteration(entity, remove=frozenset(values)) for entity, values in TRICKY.items()]
            assert [result.error for result in backend.alter(removals)] == [None] * len(TRICKY)


def planned(backend: QuotaBackend, folder: Path) -> Plan:
    """The plan, with prune, of what is exported from a backend."""
    (folder / "quotas.yaml").write_text(quotas_text(backend.describe()), encoding="utf-8")
    return plan(backend.describe(), read_quota_file(folder / "quotas.yaml").desired, prune=True)


def test_what_the_memory_backend_holds_plans_to_nothing(tmp_path: Path) -> None:
    with MemoryBackend(TRICKY) as memory:
        assert not planned(memory, tmp_path)
