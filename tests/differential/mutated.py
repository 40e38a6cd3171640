"""Runs mutated command lines (`scripts`) through Kafka's own tools and the drop-in, and classifies what differs.

    python -m tests.differential.mutated [--seed TEXT] [--lines N] [--on 2.8.2,4.3.1,3.9.1]

N lines each go to the tool of 2.8.2 on ZooKeeper, that of 4.3.1 on a KRaft broker, and that of 3.9.1 on ZooKeeper
(credentials) and on a broker in ZooKeeper mode. Compared are the exit code, stdout, the first line of stderr and what
the cluster holds. Differences are of three classes: A changes what a script sees or does; `words` is the first line of
stderr only; `purpose` is where the drop-in says that it does not do a thing. After a difference of state the rest of a
sequence is not compared. The exit code is 1 where there is a difference of class A.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from kquota.backends.kafka.raw import RawQuotas
from kquota.sandbox import Sandbox
from tests.brokers import zookeeper_mode
from tests.brokers.kafka import AT_ONCE, VERSION, KafkaBroker
from tests.brokers.zookeeper_mode import ZooKeeperModeBroker
from tests.differential import scripts
from tests.differential.command_lines import Words
from tests.differential.config_command import LAST_WITH_ZOOKEEPER, ConfigCommand
from tests.differential.test_config_command import Brokers, Chroots, Cluster, Run, Step, steps, with_files
from tests.support.kafka_configs import ZooKeeper, run_as


class Difference(NamedTuple):
    """One command line of which the tools do not make the same."""

    kind: str
    words: Words
    theirs: Step
    ours: Step


class Job(NamedTuple):
    """A release of the tool on a cluster."""

    name: str
    cluster: Cluster
    kafka: Run
    kquota: Run
    corpus: scripts.Corpus
    on_brokers: bool


class BrokersInZooKeeperMode(Brokers):
    """Brokers whose quotas are nodes as well."""

    def __init__(self, broker: ZooKeeperModeBroker) -> None:
        super().__init__(broker)
        hosts, _, path = broker.zookeeper.partition("/")
        self._nodes = ZooKeeper(hosts, f"/{path}")

    def state(self) -> object:
        nodes = self._nodes.nodes()
        return super().state(), {path: data for path, data in nodes.items() if "marker" not in path}


def kind_of(theirs: Step, ours: Step) -> str | None:
    """The class of a difference; None where there is none."""
    if ours == theirs:
        return None
    if ours.complaint.startswith("kquota: ") and ours.exit == 1:
        return "purpose"
    same = (ours.exit, ours.stdout, ours.state) == (theirs.exit, theirs.stdout, theirs.state)
    return "words" if same else "A"


def differences(job: Job, seed: str, count: int, folder: Path) -> Iterator[Difference | None]:
    """What became of each of `count` lines: the difference, or None."""
    rng = random.Random(f"{seed} {job.name}")
    done = 0
    for lines in scripts.sequences(f"{seed} {job.name}", job.corpus, on_brokers=job.on_brokers):
        before = {} if job.on_brokers else scripts.nodes(rng)
        written = with_files(lines[: count - done], folder)
        theirs, ours = (steps(job.cluster, run, before, written) for run in (job.kafka, job.kquota))
        for words, expected, got in zip(written, theirs, ours, strict=True):
            done += 1
            kind = kind_of(expected, got)
            yield None if kind is None else Difference(kind, words, expected, got)
            if kind is not None and expected.state != got.state:
                break
        if done >= count:
            return


@contextlib.contextmanager
def jobs(releases: Sequence[str]) -> Iterator[Iterator[Job]]:
    """The jobs, each with its servers, one after the other: they are heavy."""
    with contextlib.ExitStack() as stack:
        yield (job for release in releases for job in _started(release, stack))


def _started(release: str, stack: contextlib.ExitStack) -> Iterator[Job]:
    with contextlib.ExitStack() as servers:
        tool = servers.enter_context(ConfigCommand(release))
        tool.run(["--help"])  # log4j of 3.9 complains once on stderr
        if release == VERSION:
            broker = servers.enter_context(KafkaBroker(settings=AT_ONCE))
            _add_credentials(tool, broker.bootstrap)
            cluster = servers.enter_context(contextlib.closing(Brokers(broker)))
            yield Job(release, cluster, tool.run, _as("current"), scripts.ON_BROKERS, on_brokers=True)
            return
        sandbox = servers.enter_context(Sandbox())
        chroots = servers.enter_context(contextlib.closing(Chroots(sandbox)))
        if release == LAST_WITH_ZOOKEEPER:
            yield Job(release, chroots, tool.run, _as("2.8"), scripts.ON_ZOOKEEPER, on_brokers=False)
            return
        corpus = scripts.CREDENTIALS_ON_ZOOKEEPER
        yield Job(f"{release} --zookeeper", chroots, tool.run, _as("3.9"), corpus, on_brokers=False)
        older = servers.enter_context(ZooKeeperModeBroker(f"{sandbox.connect}/kafka"))
        cluster = servers.enter_context(contextlib.closing(BrokersInZooKeeperMode(older)))
        name = f"{release} --bootstrap-server"
        yield Job(name, cluster, tool.run, _as("3.9"), scripts.ON_BROKERS, on_brokers=True)


def _as(tool: str) -> Run:
    return lambda argv: run_as(tool, argv)


def _add_credentials(tool: ConfigCommand, bootstrap: str) -> None:
    for user, mechanism in (("alice", "SCRAM-SHA-256"), ("alice", "SCRAM-SHA-512"), ("admin", "SCRAM-SHA-512")):
        change = f"--alter --user {user} --add-config {mechanism}=[password=secret]".split()
        assert tool.run(["--bootstrap-server", bootstrap, *change]).exit == 0
    with RawQuotas(bootstrap) as raw:
        while len(raw.scram_users()) < 2:
            time.sleep(0.05)


def main(arguments: Sequence[str] | None = None) -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(prog="python -m tests.differential.mutated", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", default="scripts", metavar="TEXT")
    parser.add_argument("--lines", type=int, default=1000, metavar="N")
    releases = (LAST_WITH_ZOOKEEPER, VERSION, zookeeper_mode.VERSION)
    parser.add_argument("--on", default=",".join(releases), metavar="RELEASES")
    options = parser.parse_args(arguments)
    worst = 0
    with tempfile.TemporaryDirectory() as folder, jobs(options.on.split(",")) as started:
        for job in started:
            kinds: Counter[str] = Counter()
            for difference in itertools.islice(
                differences(job, options.seed, options.lines, Path(folder)), options.lines
            ):
                kinds["equal" if difference is None else difference.kind] += 1
                if difference is not None:
                    _print(job.name, difference)
                    worst += difference.kind == "A"
            print(
                f"{job.name}: {kinds.total()} lines: {', '.join(f'{n} {kind}' for kind, n in kinds.items())}",
                flush=True,
            )
    return 1 if worst else 0


def _print(name: str, difference: Difference) -> None:
    print(f"{name} {difference.kind}: {difference.words}")
    for field in Step._fields:
        theirs, ours = getattr(difference.theirs, field), getattr(difference.ours, field)
        if theirs != ours:
            print(f"    {field}: Kafka {theirs!r}\n    {' ' * len(field)}  kquota {ours!r}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
