"""Kafka's own metrics classes as a service: commands in, answers out. See `MetricsOracle.java` for the commands."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from kquota.core.enforcement import Generation
from tests.brokers.maven import class_path, retrieve

SOURCE = Path(__file__).with_name("MetricsOracle.java")

RELEASES = {Generation.N_PLUS_1_BY_LAST: "4.4.0", Generation.N_BY_START: "3.7.2"}
"""The release that answers for each generation."""

_COORDINATES = {
    # server-common brings QuotaUtils, server the mutation quotas; in 3.7 both were Scala, in the core jar.
    "4.4.0": [
        "org.apache.kafka:kafka-clients:4.4.0",
        "org.apache.kafka:kafka-server-common:4.4.0",
        "org.apache.kafka:kafka-server:4.4.0",
    ],
    "3.7.2": ["org.apache.kafka:kafka-clients:3.7.2"],
}


def kafka_classes(generation: Generation) -> str:
    """The class path of that release; retrieved once."""
    release = RELEASES[generation]
    return class_path(retrieve(f"oracle-{release}", _COORDINATES[release]))


def ask(generation: Generation, commands: Iterable[str]) -> list[list[str]]:
    """The fields of each answer, in order. Raises RuntimeError when Java is missing or the program fails."""
    java = shutil.which("java")
    if java is None:
        raise RuntimeError("java is not on PATH: Kafka's own classes need a JDK (17 or later)")
    command = [java, "-Xmx512m", "-cp", kafka_classes(generation), str(SOURCE)]
    text = "\n".join(commands) + "\n"
    run = subprocess.run(command, input=text, capture_output=True, text=True, timeout=300, check=False)
    if run.returncode != 0:
        raise RuntimeError(f"{SOURCE.name} failed with {run.returncode}:\n{run.stderr[-4000:]}")
    return [line.split() for line in run.stdout.splitlines()]
