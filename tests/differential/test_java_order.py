"""The order of Java's hash tables against Java's own, with texts and with Kafka's ids as keys."""

import shutil
import subprocess
from pathlib import Path

from kquota.core.java import hash_order, string_hash, uuid_hash
from tests.brokers.maven import class_path, retrieve
from tests.differential.test_sizes import JACKSON

SOURCE = Path(__file__).with_name("HashOrder.java")


def test_the_order_is_that_of_java() -> None:
    java = shutil.which("java")
    assert java is not None, "java is not on PATH"
    jars = retrieve("kafka-clients-4.4.0", ["org.apache.kafka:kafka-clients:4.4.0", JACKSON])
    command = [java, "-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8", "-cp", class_path(jars), str(SOURCE)]

    run = subprocess.run([*command, "20261121", "600"], capture_output=True, timeout=120, check=False)

    assert run.returncode == 0, run.stderr.decode()
    lines = run.stdout.decode().splitlines()
    assert len(lines) == 3 * 600
    for number, (given, walked, room) in enumerate(zip(lines[::3], lines[1::3], lines[2::3], strict=True)):
        hash_of = string_hash if number % 2 == 0 else uuid_hash
        assert hash_order(given.split(), hash_of, int(room)) == walked.split()
