"""What is refused before anything is asked of a cluster: one clear line on stderr, and Kafka's exit code."""

import pytest

from tests.cli.kafka_configs.conftest import Tool, Z
from tests.support.data import data_rows

SCRAM = "SCRAM-SHA-256=[password=x]"


@pytest.mark.parametrize(("line", "message"), data_rows("refused/kafka_configs.txt"))
def test_refuses_on_one_line(tool: Tool, line: str, message: str) -> None:
    ran = tool(line)
    assert (ran.code, ran.out) == (1, "")
    assert ran.first.startswith(message)
    has_usage = "exactly one action" in message or "can't be used" in message
    assert ("--describe  " in ran.err) == has_usage
    assert len(ran.err.splitlines()) == 1 or has_usage


def test_passwords_are_never_shown(tool: Tool) -> None:
    for secret in ("[password=hunter2]", "[iterations=8192,password=hunter2]x,hunter2]", "[password=hunter2"):
        for name in ("SCRAM-SHA-256", "foo"):
            ran = tool(*Z.split(), "--alter", "--user", "u", f"--add-config={name}={secret},producer_byte_rate=1")
            assert ran.code == 1
            assert "hunter2" not in ran.err + ran.out
