"""Kafka's own metrics classes as a service: commands in, answers out. See `MetricsOracle.java` for the commands."""

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from kquota.core.enforcement import Generation
from tests.brokers.maven import class_path, retrieve
from tests.support.processes import java

SOURCE = Path(__file__).with_name("MetricsOracle.java")

MANAGER = Path(__file__).with_name("KafkasManager.java")

RELEASES = {Generation.CAPPED: "4.4.0", Generation.N_PLUS_1_BY_LAST: "4.3.1", Generation.N_BY_START: "3.7.2"}
"""The release that answers for each generation."""

_COORDINATES = {
    # server-common brings QuotaUtils, server the managers; in 3.7 both were Scala, in the core jar.
    **{
        release: [f"org.apache.kafka:kafka-{part}:{release}" for part in ("clients", "server-common", "server")]
        for release in ("4.4.0", "4.3.1")
    },
    "3.7.2": ["org.apache.kafka:kafka-clients:3.7.2"],
}


def kafka_classes(generation: Generation) -> str:
    """The class path of that release; retrieved once."""
    release = RELEASES[generation]
    return class_path(retrieve(f"oracle-{release}", _COORDINATES[release]))


class Oracle:
    """A JVM that answers until it is closed. Raises RuntimeError when Java is missing or the program fails."""

    def __init__(self, generation: Generation) -> None:
        self.generation = generation
        classes = kafka_classes(generation)
        self._compiled = tempfile.TemporaryDirectory()
        if generation.by_last:  # the manager was Scala before
            subprocess.run(["javac", "-cp", classes, "-d", self._compiled.name, str(MANAGER)], check=True)
        path = f"{classes}{os.pathsep}{self._compiled.name}"
        self._command = [java(), "-Xmx512m", "-XX:+UseSerialGC", "-cp", path, str(SOURCE)]
        self._start()

    def _start(self) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed with the JVM)
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )

    def ask(self, commands: Iterable[str]) -> list[list[str]]:
        """The fields of each answer, in order. The sensors of one call are not those of the next."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        answers: list[list[str]] = []
        try:
            self._process.stdin.write("\n".join([*commands, "end\n"]))
            self._process.stdin.flush()
            for line in self._process.stdout:
                if line == "end\n":
                    return answers
                answers.append(line.split())
        except BrokenPipeError:
            pass
        self._errors.seek(0)
        said = self._errors.read()[-4000:]
        self.close()
        self._start()  # so that Hypothesis can find out which of the commands it was
        raise RuntimeError(f"{SOURCE.name} failed:\n{said}")

    def close(self) -> None:
        """Ends the JVM."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait(timeout=300)
        self._errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._compiled.cleanup()
