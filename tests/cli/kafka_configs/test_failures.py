"""What fails with an exception of Java's, and secrets in error messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from kquota.cli.kafka_configs.failures import shown_arguments
from tests.cli.kafka_configs.conftest import WARNING, B, Ran, Tool, Z


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
            "--bootstrap-server 127.0.0.1:1, --describe --user u",
            "org.apache.kafka.common.config.ConfigException: Configuration 'bootstrap.servers' values must not be"
            " empty.",
            None,
        ),
        (
            "--bootstrap-server 127.0.0.1:99999 --describe --user u",
            "org.apache.kafka.common.KafkaException: Failed to create new KafkaAdminClient",
            "kquota: malformed bootstrap server '127.0.0.1:99999': a port is at most 65535",
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
        (f"{B} --alter --user u --add-config-file=", "java.io.IOException: Is a directory", None),
        (f"{B} --alter --user u --add-config-file /no//where/", "java.nio.file.NoSuchFileException: /no/where", None),
        (
            f"{B} --alter --user u --add-config-file /dev/zero",
            "java.io.IOException: kquota: /dev/zero is larger than 16 MiB",
            None,
        ),
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


CONFIG = "org.apache.kafka.common.config.ConfigException: Invalid value {} for configuration {}: {}"
NOT_CREATED = "org.apache.kafka.common.KafkaException: Failed to create new KafkaAdminClient"


@pytest.mark.parametrize(
    ("properties", "exception"),
    [
        ("request.timeout.ms=abc", CONFIG.format("abc", "request.timeout.ms", "Not a number of type INT")),
        ("request.timeout.ms=-1", CONFIG.format("-1", "request.timeout.ms", "Value must be at least 0")),
        ("retries=-1", CONFIG.format("-1", "retries", "Value must be at least 0")),
        (
            "sasl.login.refresh.min.period.seconds=99999",
            CONFIG.format("99999", "sasl.login.refresh.min.period.seconds", "Not a number of type SHORT"),
        ),
        (
            "sasl.login.refresh.window.factor=.2",
            CONFIG.format("0.2", "sasl.login.refresh.window.factor", "Value must be at least 0.5"),
        ),
        (
            "enable.metrics.push=yes",
            CONFIG.format("yes", "enable.metrics.push", "Expected value to be either true or false"),
        ),
        (
            "client.dns.lookup=bogus",
            CONFIG.format(
                "bogus",
                "client.dns.lookup",
                "String must be one of: use_all_dns_ips, resolve_canonical_bootstrap_servers_only",
            ),
        ),
        (
            "security.protocol=TLS",
            CONFIG.format(
                "TLS",
                "security.protocol",
                "String must be one of (case insensitive): SASL_SSL, PLAINTEXT, SSL, SASL_PLAINTEXT",
            ),
        ),
        ("sasl.login.class=", CONFIG.format("", "sasl.login.class", "Class  could not be found.")),
        ("default.api.timeout.ms=5000", NOT_CREATED),
        ("request.timeout.ms=9\ndefault.api.timeout.ms=8", NOT_CREATED),
        ("security.protocol=SSL\nssl.truststore.location=/nowhere", NOT_CREATED),
        # These are right: what follows is that nobody is there.
        ("request.timeout.ms=90000\nretries=3\nsecurity.protocol=plaintext", "java.util.concurrent.TimeoutException"),
        (
            "request.timeout.ms=900\ndefault.api.timeout.ms=900",
            "java.util.concurrent.ExecutionException: org.apache.kafka.common.errors.TimeoutException: Timed out"
            " waiting for a node assignment. Call: describeClientQuotas",
        ),
    ],
)
def test_settings_of_the_client_that_kafka_refuses(tool: Tool, tmp_path: Path, properties: str, exception: str) -> None:
    file = tmp_path / "client.properties"
    file.write_text(properties)
    ran = tool(*B.split(), "--describe", "--user", "u", "--command-config", str(file))
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.splitlines()[1] == exception


@pytest.mark.parametrize(
    ("address", "complaint"),
    [
        ("127.0.0.1:1/chroot/", "Path must not end with / character"),
        ("127.0.0.1:1//c", 'Invalid path string "//c" caused by empty node name specified @1'),
        ("127.0.0.1:x", 'For input string: "x"'),
        ("127.0.0.1:99999", "port out of range:99999"),
        (",", "A HostProvider may not be empty!"),
    ],
)
def test_addresses_that_zookeepers_client_refuses(tool: Tool, address: str, complaint: str) -> None:
    assert tool("--zookeeper", address, "--describe", "--user", "u") == Ran(1, WARNING, f"{complaint}\n")
