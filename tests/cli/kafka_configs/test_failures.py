"""What fails with an exception of Java's, and secrets in error messages."""

from __future__ import annotations

import pytest

from kquota.cli.kafka_configs.failures import shown_arguments
from tests.cli.kafka_configs.conftest import B, Tool, Z


@pytest.mark.parametrize(
    ("line", "exception", "note"),
    [
        (
            f"{Z} --describe --user u",
            "kafka.zookeeper.ZooKeeperClientTimeoutException: Timed out waiting for connection while in state: "
            "CONNECTING",
            "kquota: cannot reach ZooKeeper at 127.0.0.1:1: connection refused",
        ),
        (
            f"{B} --describe --user u",
            "java.util.concurrent.TimeoutException",
            "kquota: cannot reach Kafka at 127.0.0.1:1: connection refused",
        ),
        (
            "--bootstrap-server nonsense --describe --user u",
            "org.apache.kafka.common.KafkaException: Failed to create new KafkaAdminClient",
            "kquota: malformed bootstrap server 'nonsense'",
        ),
        (
            "--bootstrap-controller 127.0.0.1:1 --describe --user u",
            "java.util.concurrent.ExecutionException: org.apache.kafka.common.errors.UnsupportedEndpointTypeException:"
            " This Admin API is not yet supported when communicating directly with the controller quorum.",
            None,
        ),
        (
            f"{B} --alter --user u --add-config-file /nowhere",
            "java.nio.file.NoSuchFileException: /nowhere",
            None,
        ),
        (f"{B} --alter --user u --add-config-file /", "java.io.IOException: Is a directory", None),
        (
            f"{B} --describe --user u --command-config /nowhere",
            "java.nio.file.NoSuchFileException: /nowhere",
            None,
        ),
        (
            f"{B} --alter --user u --client c --add-config ,",
            "java.lang.IllegalStateException: Altering user SCRAM credentials should never occur for more zero or"
            " multiple users: List(c, u)",
            None,
        ),
    ],
)
def test_anything_else_fails_with_javas_exception(tool: Tool, line: str, exception: str, note: str | None) -> None:
    ran = tool(line)
    lines = [f"Error while executing config command with args '{line}'", exception, *([note] if note else [])]
    assert (ran.code, ran.err.splitlines()) == (1, lines)


def test_passwords_are_never_shown(tool: Tool) -> None:
    for secret in ("[password=hunter2]", "[iterations=8192,password=hunter2]x,hunter2]", "[password=hunter2"):
        for name in ("SCRAM-SHA-256", "foo"):
            ran = tool(*Z.split(), "--alter", "--user", "u", f"--add-config={name}={secret},producer_byte_rate=1")
            assert ran.code == 1
            assert "hunter2" not in ran.err + ran.out
    assert shown_arguments(["a=[password=x],b=1", "c"]) == "a=[password=********],b=1 c"
