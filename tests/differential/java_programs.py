"""The programs in Java beside these tests, which ask classes of Java and of Kafka."""

import subprocess
from pathlib import Path

from tests.brokers.maven import class_path, retrieve
from tests.support.processes import java

_JACKSON = "com.fasterxml.jackson.core:jackson-databind:2.21.2"
_TEXTS = ("-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8")


def printed(program: str, *arguments: object, release: str | None = None) -> list[str]:
    """The lines that it prints, with the classes of that release of Kafka's client."""
    classes: list[str] = []
    if release is not None:
        jars = retrieve(f"kafka-clients-{release}", [f"org.apache.kafka:kafka-clients:{release}", _JACKSON])
        classes = ["-cp", class_path(jars)]
    command = [java(), *_TEXTS, *classes, str(Path(__file__).with_name(program)), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().splitlines()
