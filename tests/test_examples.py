"""Every example runs, as it is written.

But host:2181 stands for the tests' ZooKeeper, host:9092 for the tests' broker, prometheus:9090 for samples that were
recorded, broker-1:7071 for a page that was, a whole ID for the entry of the journal, and to probe or to watch for
some time is to do it for two seconds. Who would serve or look for ever does it once.
A file is followed until nothing comes for a second.
Where there is no address, the current context names the broker. A person at a terminal says yes.

An example that asks for an exit code (`--fail-on`, `--exit-code`) finds something and gets it; a watch without an end
is interrupted; others end with 0. An example that is new runs without further ado, or this file lacks what it names.
"""

import contextlib
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kquota import Alteration, Entity, QuotaBackend, QuotaKey
from kquota.access import connect
from kquota.core.quotas.snapshot import Values
from kquota.documents.config import read_config
from kquota.documents.journal import number_of
from kquota.documents.quotas import read_quota_file, read_quotas
from kquota.documents.workload import read_workload
from tests.audit.prometheus_server import RECORDED, fake_prometheus
from tests.brokers.kafka import KafkaBroker
from tests.cli.test_audit import LINE
from tests.conftest import new_chroot
from tests.support import examples
from tests.support.data import data_text
from tests.support.processes import QUICK_SPARK, install, ran, spark_options
from tests.support.sandbox import Sandbox
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[1]
TOPICS = ["load", "usage", "throttled"]
"""The topics that examples load, read and write."""
SAMPLES = RECORDED.parent
EXAMPLES = examples.every()
CURRENT = data_text("examples/current.yaml")
# The two entries of the journal that undo takes back; the second one has an end, for reconcile.
APPLIED = CURRENT + "  - {entity: {user: batch}, values: {consumer_byte_rate: 3MB, producer_byte_rate: 3MB}}\n"
# What is changed, what is new, and what lint finds: a client-id's quota under one of the default user.
QUOTAS = APPLIED.replace("5MB", "10MB").replace("version: 1\n", "version: 1\nclusters: {prod: {}}\n") + (
    "  - {entity: {client-id: reports}, values: {consumer_byte_rate: 2MB}}\n"
)
PROPOSED = CURRENT.replace("5MB", "10kB")
BACKFILL = CURRENT.replace("5MB", "50MB")
HISTORY = data_text("examples/history.yaml")
WORKLOAD = data_text("examples/workload.yaml")
USAGE = "time_ms,broker,user,client_id,api,bytes\n" + "".join(
    f"{1_773_219_600_000 + 100 * number},1,alice,app1,produce,100000\n" for number in range(50)
)


@dataclass(frozen=True)
class World:
    """A folder with all files that examples name, a broker, and a ZooKeeper."""

    home: Path
    broker: str
    request_log: Path
    zookeeper: Sandbox
    prometheus: str
    entry: str

    def live(self, script: str, chroot: str) -> str:
        """The example with real addresses."""
        script = re.sub(r"(?:[\w.-]+:2181,?)+(?:/\w+)?", chroot, script)
        script = re.sub(r"[\w.-]+:9092", self.broker, script)
        script = script.replace("http://prometheus:9090", self.prometheus)
        script = script.replace("http://broker-1:7071/metrics", "page.prom")
        script = " ".join(self.entry if number_of(word) else word for word in script.split(" "))
        if re.match("kquota (?:history|undo)\\b", script):
            # The first entry is about the user batch.
            script = re.sub(r"\b25\b", "2", re.sub(r"\b24\b", "1", script))
            script = script.replace("--user alice", "--user batch")
        if re.match("kquota (?:exporter|top)\\b", script) and "--once" not in script:
            script += " --once"
        if script.startswith("kquota watch"):
            return re.sub(r"--for \w+", "--for 2s", script)
        if script.startswith("kquota follow"):
            script = script.replace("--since 1m", "--since 2026-01-01T00:00")  # the log is no live one
            return re.sub(r" --until-idle \w+", "", script) + " --until-idle 1s"
        return re.sub(r"\A(kquota probe \w+)(.*?)(?: --duration \w+|\Z)", r"\1 --duration 2s\2", script)


def give(home: Path, **settings: str) -> dict[str, str]:
    """The environment of a person whose home that is."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("KQUOTA_", "XDG_", "SPARK_"))}
    return {
        **clean,
        **QUICK_SPARK,
        "SPARK_SUBMIT_OPTS": spark_options({"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": 2}),
        "PATH": os.pathsep.join((str(home / "bin"), str(Path(sys.executable).parent), os.environ["PATH"])),
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "HOME": str(home),
        "EDITOR": "true",
        "GITHUB_STEP_SUMMARY": str(home / "summary.md"),
        **settings,
    }


def kquota(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a command line that prepares something."""
    command = [sys.executable, "-m", "kquota", *arguments]
    return subprocess.run(command, cwd=home, env=give(home), capture_output=True, text=True, check=True)


def contexts(broker: str, zookeeper: str) -> str:
    """The configuration file."""
    old = {"zookeeper": zookeeper}
    clusters = {"prod": {"bootstrap-server": broker}, "staging": old, "legacy": old}
    return json.dumps({"current-context": "prod", "contexts": clusters})


def make_it(cluster: QuotaBackend, quotas: Mapping[Entity, Values]) -> None:
    """Gives a cluster these quotas and no others."""
    with cluster:
        found = cluster.describe()
        changes = []
        for entity in {*found, *quotas}:
            now, then = found.get(entity, {}), quotas.get(entity, {})
            if now != then:
                changes.append(Alteration(entity, then, frozenset(now) - frozenset(then)))
        assert all(result.error is None for result in cluster.alter(changes))


RPK = """\
{"quotas": [{"entity": [{"type": "user", "name": "alice"}], "values": [{"key": "producer_byte_rate", "value": "9"}]}]}
"""


def write_files(home: Path) -> None:
    """The files that examples name."""
    texts = {
        "current.yaml": CURRENT,
        "applied.yaml": APPLIED,
        "described.yaml": CURRENT,
        "yesterday.yaml": CURRENT,
        "quotas.yaml": QUOTAS,
        "mine.yaml": APPLIED.replace("5MB", "30 MB"),
        "proposed.yaml": PROPOSED,
        "new.yaml": PROPOSED,
        "old.yaml": CURRENT,
        "backfill.yaml": BACKFILL,
        "history.yaml": HISTORY,
        "workload.yaml": WORKLOAD,
        "usage.csv": USAGE,
        "tenants.csv": "Department,user,producer_byte_rate\nsales,alice,10MB\n",
        "server.properties": "quota.producer.default=2000000\nquota.window.num=21\n",
        "alice.properties": "security.protocol=PLAINTEXT\n",
        "admin.properties": "security.protocol=PLAINTEXT\n",
        "bin/notify-send": "#!/bin/sh\n",
        "bin/kafka-configs.sh": "#!/bin/sh\necho \"Quota configs for client-id 'app' are producer_byte_rate=9.0\"\n",
        "quotas.sh": "kafka-configs.sh --alter --user-defaults --add-config producer_byte_rate=9\n",
        "rpk.json": RPK,
        "kafka-jmx.csv": (SAMPLES / "kafka-jmx.csv").read_text(),
        "page.prom": (SAMPLES / "scrape-resource.prom").read_text(),
    }
    log = "".join(LINE % (number, number % 2) for number in range(9))
    texts |= dict.fromkeys(("kafka-request.log", "logs/broker-1/kafka-request.log"), log)
    texts["logs/broker-2/kafka-request.log"] = log.replace("10.0.0.1:", "10.0.0.3:")
    for name, text in texts.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    for program in (home / "bin").iterdir():
        program.chmod(0o755)
    from pyarrow import csv, parquet

    parquet.write_table(csv.read_csv(home / "usage.csv"), home / "usage.parquet")
    author = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
    for words in (("init", "--quiet"), ("add", "quotas.yaml"), ("commit", "--quiet", "--message", "Quotas")):
        subprocess.run(["git", *author, *words], cwd=home, check=True)


@pytest.fixture(scope="module")
def world(zookeeper: Sandbox, kraft: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Everything that the examples take for granted; the broker has no quotas afterwards."""
    home = tmp_path_factory.mktemp("home")
    write_files(home)
    install(home / "bin" / "kquota")
    config = home / ".config" / "kquota" / "config.yaml"
    config.parent.mkdir(parents=True)
    config.write_text(contexts(kraft.bootstrap, zookeeper.connect))
    before = read_quotas(home / "current.yaml")
    make_it(connect(bootstrap_server=kraft.bootstrap), before)
    topics = AdminClient(kraft.client())
    for created in topics.create_topics([NewTopic(name, 1, 1) for name in TOPICS]).values():
        created.result()
    from pyarrow import parquet

    rows = parquet.read_table(home / "usage.parquet").to_pylist()
    producer = Producer(kraft.client())
    producer.produce("load", b"a record")
    for row in rows:
        producer.produce("usage", json.dumps(row | {"broker": str(row["broker"])}))
    assert producer.flush(60) == 0
    # An hour's work that is over, for undo and reconcile; and a plan of what is there now.
    kquota(home, "alter", "--user", "batch", "--add-config", "consumer_byte_rate=3MB", "--yes")
    kquota(home, "apply", "applied.yaml", "--for", "1s", "--yes")
    [_, entry] = json.loads(kquota(home, "history", "-o", "json").stdout)["entries"]
    kquota(home, "plan", "quotas.yaml", "--out", "plan.json")
    last = json.loads(RECORDED.read_text())["data"]["result"][0]["values"][-1][0]
    # As of a minute ago whenever somebody asks: the examples take longer than a sample lives.
    with fake_prometheus(lambda: time.time() - 60 - last) as prometheus:
        yield World(home, kraft.bootstrap, kraft.request_log, zookeeper, prometheus.url, entry["id"])
    for deleted in topics.delete_topics(TOPICS).values():
        deleted.result()
    make_it(connect(bootstrap_server=kraft.bootstrap), {})
    kquota(home, "alter", "--broker-defaults", "--delete-config", "max.connection.creation.rate")


def expected_code(script: str) -> int:
    """What the example promises."""
    if script.startswith("kquota watch") and not re.search("--for|--count", script):
        return 130
    return 1 if re.search(r"--fail-on|--exit-code", script) else 0


def change_something(world: World, chroot: str) -> None:
    """For those who watch the broker or the ZooKeeper."""
    change = [Alteration(Entity(user="somebody"), {QuotaKey.PRODUCER_BYTE_RATE: 1000})]
    clusters = [connect(bootstrap_server=world.broker)]
    if chroot.startswith(world.zookeeper.connect):
        clusters.append(connect(zookeeper=chroot))
    for cluster in clusters:
        with cluster:
            cluster.alter(change)


@contextlib.contextmanager
def somebody() -> Iterator[int]:
    """A terminal at which somebody says yes."""
    outer, inner = pty.openpty()
    try:
        os.write(outer, b"yes\n")
        yield inner
    finally:
        os.close(outer)
        os.close(inner)


@pytest.mark.parametrize("script", sorted(EXAMPLES))
def test_an_example_runs(world: World, tmp_path: Path, script: str) -> None:
    """In a home of its own, on a cluster that no other example has changed."""
    home = tmp_path / "home"
    shutil.copytree(world.home, home)
    applied = read_quotas(home / "applied.yaml")
    make_it(connect(bootstrap_server=world.broker), applied)
    chroot = "127.0.0.1:1"
    if re.search(r":2181|legacy|staging", script):
        chroot = new_chroot(world.zookeeper)
        make_it(connect(zookeeper=chroot), read_quotas(home / "backfill.yaml"))
        (home / ".config" / "kquota" / "config.yaml").write_text(contexts(world.broker, chroot))

    if "kquota probe" in script:
        (home / "kafka-request.log").unlink()
        (home / "kafka-request.log").symlink_to(world.request_log)
    out, err = home / "out", home / "err"
    with somebody() as terminal, out.open("wb") as stdout, err.open("wb") as stderr:
        process = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", world.live(script, chroot)],
            cwd=home,
            env=give(home),
            stdin=terminal,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        try:
            if "kquota watch" in script:
                until(lambda: process.poll() is not None or b"watching" in err.read_bytes())
                change_something(world, chroot)
                if expected_code(script) == 130:
                    until(lambda: process.poll() is not None or out.read_bytes() != b"")
                    os.killpg(process.pid, signal.SIGINT)
            code = process.wait(600)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if "kquota sandbox start" in script:  # which outlives its shell
                kquota(home, "sandbox", "stop")

    said = (
        f"{EXAMPLES[script].source}: {script}\nexit code {code}\n{out.read_text()[-2000:]}\n{err.read_text()[-2000:]}"
    )
    assert code == expected_code(script), said
    assert "Traceback" not in said, said


def test_there_are_examples_of_every_kind() -> None:
    """So that none are lost when texts are written differently."""
    for found in (examples.of_commands(), examples.of_topics(), examples.of_pages()):
        sources = [example.source for example in found]
        assert len(sources) >= 3
    written = sum(page.read_text().count("```sh\n") for page in examples.pages())
    assert len([block for block in examples.blocks() if block.language == "sh"]) == written


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_pages_turn_completion_on(world: World, shell: str) -> None:
    """Each line in its shell."""
    lines = [line for block in examples.blocks() for line in block.text.splitlines()]
    [line] = [line for line in lines if f"_KQUOTA_COMPLETE={shell}_source" in line]
    start, check = {
        "bash": (["bash", "--norc", "-euo", "pipefail", "-c"], "complete -p kquota"),
        "zsh": (["zsh", "-f", "-c"], "[[ $_comps[kquota] == _kquota_completion ]]"),
        "fish": (["fish", "--no-config", "-c"], "complete -c kquota | string match -q '*_kquota_completion*'"),
    }[shell]
    before = "autoload -Uz compinit; compinit -D -u\n" if shell == "zsh" else ""
    done = subprocess.run(
        [*start, f"{before}{line}\n{check}"], env=give(world.home), capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")


def is_config(block: examples.Block) -> bool:
    """Whether the block is a configuration file, or a part of one."""
    return block.text.startswith(("current-context:", "contexts:"))


def test_the_configuration_file_of_the_pages_is_one(tmp_path: Path) -> None:
    configs = []
    for block in filter(is_config, examples.blocks()):
        file = tmp_path / "config.yaml"
        file.write_text(block.text)
        configs.append(read_config(file))

    assert [config.current in config.contexts for config in configs if config.current] == [True]
    assert [len(config.contexts) for config in configs if config.current] == [2]
    assert all(config.contexts for config in configs)


def test_the_files_of_the_pages_are_read(tmp_path: Path) -> None:
    """Each by its kind."""
    readers: Mapping[str, Callable[[Path], object]] = {
        "kquota.quotas": lambda file: [
            read_quota_file(file, name) for name in (None, "prod") if name is None or f"{name}:" in file.read_text()
        ],
        "kquota.workload": read_workload,
    }
    texts = [block.text for block in examples.blocks() if block.language == "yaml" and not is_config(block)]
    for text in texts:
        file = tmp_path / "file.yaml"
        file.write_text(text)
        readers[text.splitlines()[0].removeprefix("kind: ")](file)
    assert len(texts) >= 2


PYTHON = [block for block in examples.blocks() if block.language == "python" and block.not_run is None]


@pytest.mark.parametrize("block", PYTHON, ids=[block.page for block in PYTHON])
def test_the_python_of_the_pages_runs(world: World, block: examples.Block) -> None:
    script = world.live(block.text, new_chroot(world.zookeeper))
    done = ran([sys.executable, "-c", script])

    assert (done.returncode, done.stderr) == (0, "")


def test_everything_that_the_pages_install_is_there() -> None:
    """The targets of make and the extras; the wheel, the zipapp and the demo have tests of their own."""
    lines = [
        line.split("#")[0].split()
        for block in examples.blocks()
        if block.language == "sh" and block.not_run is None
        for line in block.text.splitlines()
    ]
    install = [line for line in lines if line and line[0] in examples.INSTALLERS]
    assert {line[0] for line in install} == set(examples.INSTALLERS)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for program, *words in install:
        if program == "make":
            assert ran(["make", "--dry-run", *words]).returncode == 0
        elif program in ("pip", "pipx"):
            assert words[0] == "install"
            [extra] = re.fullmatch(r"'?\.(?:\[(\w+)\])?'?", words[1]).groups()  # type: ignore[union-attr]
            assert extra is None or extra in extras
