"""Kafka's own kafka-configs as a service: command lines in, answers out. See `ConfigCommands.java`."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.brokers import zookeeper_mode
from tests.brokers.kafka import COORDINATES, VERSION
from tests.brokers.maven import class_path, retrieve
from tests.support.processes import java

SOURCE = Path(__file__).with_name("ConfigCommands.java")
LAST_WITH_ZOOKEEPER = "2.8.2"
"""The last release whose tool writes quotas to ZooKeeper."""

_JARS = {
    VERSION: (f"kafka-{VERSION}", COORDINATES),
    LAST_WITH_ZOOKEEPER: (
        f"config-command-{LAST_WITH_ZOOKEEPER}",
        # Without a binding slf4j 1.7 complains on stderr, in the middle of the first command.
        (f"org.apache.kafka:kafka_2.13:{LAST_WITH_ZOOKEEPER}", "org.slf4j:slf4j-nop:1.7.30"),
    ),
    zookeeper_mode.VERSION: (f"kafka-{zookeeper_mode.VERSION}-zookeeper", zookeeper_mode.COORDINATES),
}
_QUIET = ("-Dlog4j2.level=OFF", "-Dzookeeper.sasl.client=false")
_SMALL = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class Answer(NamedTuple):
    """What a command line came to."""

    exit: int
    stdout: str
    stderr: str

    @property
    def first(self) -> str:
        """The first line on stderr."""
        return self.stderr.partition("\n")[0]


class ConfigCommand:
    """One process that runs the tool of a release again and again; a context manager. `jvm_flags` are the process's."""

    def __init__(self, release: str, jvm_flags: Sequence[str] = ()) -> None:
        jars = retrieve(*_JARS[release])
        self._process = subprocess.Popen(
            [java(), *_SMALL, *_QUIET, *jvm_flags, "-cp", class_path(jars), str(SOURCE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __enter__(self) -> ConfigCommand:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def run(self, argv: Sequence[str]) -> Answer:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        words = (f"-{base64.b64encode(word.encode()).decode()}" for word in argv)
        self._process.stdin.write(" ".join(words) + "\n")
        self._process.stdin.flush()
        fields = self._process.stdout.readline().split()
        if not fields or fields[0] != "answer":
            raise RuntimeError(f"{SOURCE.name} ended with {self._process.poll()} at {list(argv)}")
        out, err = (base64.b64decode(field[1:]).decode() for field in fields[2:])
        return Answer(int(fields[1]), out, err)
