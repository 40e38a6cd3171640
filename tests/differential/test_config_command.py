"""The drop-in against Kafka's own kafka-configs: the same command lines, on one live cluster each, and no difference.

Compared after every command line: the exit code, stdout, and what the cluster holds.
"""

import contextlib
import hashlib
import itertools
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import pytest

from kquota import EntityType, QuotaFilter
from kquota.backends.kafka.raw import RawQuotas
from tests.brokers.kafka import VERSION, KafkaBroker
from tests.differential import scripts
from tests.differential.config_command import LAST_WITH_ZOOKEEPER, ConfigCommand
from tests.differential.scripts import ADDRESS, Words
from tests.support.kafka_configs import ZooKeeper, run_as
from tests.support.sandbox import Sandbox

SCRIPTED = 12
"""How many sequences of mutated lines each cluster sees."""
MARKER = {"user": "marker"}
"""An entity that no command line names: once it shows what was written last, everything before it shows as well."""
_VISIBLE_S = 60.0
Nodes = Mapping[str, str | None]
Run = Callable[[Sequence[str]], tuple[int, str, str]]


class Step(NamedTuple):
    """What one command line came to."""

    exit: int
    stdout: str
    state: object


class Cluster(Protocol):
    """What a tool is told to work on."""

    @property
    def address(self) -> str: ...

    def reset(self, before: Nodes) -> None:
        """Goes back to a known state."""
        ...

    def state(self) -> object:
        """All that can be seen of the quotas."""
        ...


class Brokers:
    """A cluster of brokers that both tools use in turn, each from the same state: no quotas."""

    def __init__(self, broker: KafkaBroker) -> None:
        self.address = broker.bootstrap
        self._raw = RawQuotas(broker.bootstrap)
        self._writes = 0

    def close(self) -> None:
        self._raw.close()

    def reset(self, before: Nodes) -> None:
        for quota in self._raw.describe():
            if quota.entity != MARKER:
                self._raw.alter(quota.entity, {}, list(quota.values))
        self._writes = 0
        self._settle()

    def state(self) -> object:
        self._settle()
        return sorted(str((sorted(entity.items()), values)) for entity, values in self._raw.describe())

    def _settle(self) -> None:
        """Waits for what was written before: a broker's own copy of the metadata lags behind."""
        self._writes += 1
        wanted = {"request_percentage": float(self._writes)}
        self._raw.alter(MARKER, wanted)
        only = QuotaFilter({EntityType.USER: MARKER["user"]}, strict=True)
        deadline = time.monotonic() + _VISIBLE_S
        while [quota.values for quota in self._raw.describe(only)] != [wanted]:
            assert time.monotonic() < deadline, "the broker does not show what was written"
            time.sleep(0.001)


class Chroots:
    """A new chroot for each sequence of each tool."""

    def __init__(self, zookeeper: Sandbox) -> None:
        self._nodes = ZooKeeper(zookeeper.connect)

    def close(self) -> None:
        self._nodes.close()

    @property
    def address(self) -> str:
        return self._nodes.placeholders["@ZK@"]

    def reset(self, before: Nodes) -> None:
        self._nodes.prepare({"znodes": {f"/config/{path}": data for path, data in before.items()}})

    def state(self) -> object:
        return self._nodes.state({})


@pytest.fixture(scope="module")
def brokers(kraft: KafkaBroker) -> Iterator[Brokers]:
    with contextlib.closing(Brokers(kraft)) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def chroots(zookeeper: Sandbox) -> Iterator[Chroots]:
    with contextlib.closing(Chroots(zookeeper)) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def current() -> Iterator[ConfigCommand]:
    with ConfigCommand(VERSION) as tool:
        yield tool


@pytest.fixture(scope="module")
def older() -> Iterator[ConfigCommand]:
    with ConfigCommand(LAST_WITH_ZOOKEEPER) as tool:
        yield tool


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


# --- What is not compared to the letter ---

_KEYS = re.compile(r"(salt|stored_key|server_key)=[A-Za-z0-9+/=]+")
_BLANKS = re.compile(
    r'((?:(?:producer|consumer)_byte_rate|connection_creation_rate)(?:=|":"))\s*([^,"\n]*?)[ \t]+(?=[,"\n])'
)
"""Kafka 2.8 checks whole numbers trimmed and stores them untrimmed, which stops brokers that start with them."""


def without_chance(text: str, address: str) -> str:
    """The text without what differs from run to run, and without the blanks that kquota need not store."""
    return _BLANKS.sub(r"\1\2", _KEYS.sub(r"\1=*", text.replace(address, ADDRESS)))


def steps(cluster: Cluster, run: Run, before: Nodes, lines: Sequence[Words]) -> list[Step]:
    """What a tool makes of the command lines, one after the other."""
    cluster.reset(before)
    found = []
    for words in lines:
        argv = [word.replace(ADDRESS, cluster.address) for word in words]
        code, out, _ = run(argv)
        texts = (without_chance(text, cluster.address) for text in (out, repr(cluster.state())))
        found.append(Step(code, *texts))
    return found


def with_files(lines: Sequence[Words], folder: Path) -> list[Words]:
    """The command lines with paths for the files that they carry."""

    def path(match: re.Match[str]) -> str:
        file = folder / hashlib.sha256(match[1].encode()).hexdigest()
        file.write_text(match[1], encoding="utf-8")
        return str(file)

    return [[re.sub(r"@FILE:(.*)@", path, word, flags=re.DOTALL) for word in words] for words in lines]


def compare(cluster: Cluster, kafka: Run, kquota: Run, before: Nodes, lines: Sequence[Words]) -> None:
    """Fails at the first command line of which the tools do not make the same."""
    expected, got = (steps(cluster, run, before, lines) for run in (kafka, kquota))
    for words, theirs, ours in zip(lines, expected, got, strict=True):
        assert ours == theirs, words


pytestmark = pytest.mark.timeout(7200)  # of the nightly profile


def scripted(corpus: scripts.Corpus, *, on_brokers: bool) -> list[list[Words]]:
    return list(itertools.islice(scripts.sequences("ci", corpus, on_brokers=on_brokers), SCRIPTED))


def test_scripts_on_brokers(brokers: Brokers, current: ConfigCommand, folder: Path) -> None:
    for lines in scripted(scripts.ON_BROKERS, on_brokers=True):
        compare(brokers, current.run, run_as, {}, with_files(lines, folder))


def test_scripts_on_zookeeper(chroots: Chroots, older: ConfigCommand, folder: Path) -> None:
    rng = random.Random("ci")
    for lines in scripted(scripts.ON_ZOOKEEPER, on_brokers=False):
        compare(chroots, older.run, run_as, scripts.nodes(rng), with_files(lines, folder))
