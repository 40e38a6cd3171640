"""The current tool on a real broker."""

from typing import Any

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from kquota.backends import wire
from tests.backends.test_kafka_peers import Peer
from tests.brokers.kafka import KafkaBroker
from tests.cli.conftest import Ran
from tests.cli.kafka_configs.conftest import Tool
from tests.support.waiting import PATIENCE_S, settled, until


@pytest.fixture
def bootstrap(kraft: KafkaBroker) -> str:
    return kraft.bootstrap


@pytest.mark.parametrize(
    ("entity", "done", "title"),
    [
        ("--user b3 --client c", "config for client c", "user-principal 'b3', client-id 'c'"),
        ("--user b4 --client-defaults", "config for user b4", "user-principal 'b4', the default client-id"),
        ("--user-defaults", "default config for users in the cluster", "the default user-principal"),
        (
            "--entity-type users --entity-name b6 --entity-type clients --entity-name c",
            "config for user b6",
            "user-principal 'b6', client-id 'c'",
        ),
        ("--ip-defaults", "default config for ips in the cluster", "the default ip"),
    ],
)
def test_alter_and_describe_on_a_broker(tool: Tool, bootstrap: str, entity: str, done: str, title: str) -> None:
    key = "connection_creation_rate" if "--ip" in entity else "producer_byte_rate"
    line = f"--bootstrap-server {bootstrap} {entity}"
    completed = Ran(0, f"Completed updating {done}.\n", "")
    assert tool(f"{line} --alter --add-config {key}=10485760") == completed
    shown = f"Quota configs for {title} are {key}=1.048576E7\n"
    assert settled(lambda: tool(f"{line} --describe"), Ran(0, shown, "")) == Ran(0, shown, "")
    assert tool(f"{line} --alter --delete-config {key}") == completed
    assert settled(lambda: tool(f"{line} --describe"), Ran(0, "", "")) == Ran(0, "", "")
    assert tool(f"{line} --alter --delete-config {key}") == Ran(1, "", f"Invalid config(s): {key}\n")


def test_credentials_are_listed(tool: Tool, kraft: KafkaBroker, bootstrap: str) -> None:
    """A line after those of quotas, for users alone; their keys no broker shows."""
    line = f"--bootstrap-server {bootstrap}"
    admin = AdminClient(kraft.client())

    def administer(change: UserScramCredentialUpsertion | UserScramCredentialDeletion) -> None:
        admin.alter_user_scram_credentials([change])[change.user].result(PATIENCE_S)

    credentials = [
        ("s1", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)),
        ("s1", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 5000)),
        ("s2", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)),
    ]
    for user, info in credentials:  # one of a user at a time
        administer(UserScramCredentialUpsertion(user, info, b"x"))
    assert tool(f"{line} --alter --user s1 --add-config producer_byte_rate=7").code == 0
    try:
        # The order of the mechanisms is the broker's, and another one in each of its lives.
        title = "SCRAM credential configs for user-principal 's1' are "
        pairs = ["SCRAM-SHA-256=iterations=4096", "SCRAM-SHA-512=iterations=5000"]
        either = [f"{title}{', '.join(each)}\n" for each in (pairs, pairs[::-1])]
        second = "SCRAM credential configs for user-principal 's2' are SCRAM-SHA-512=iterations=4096\n"
        quota = "Quota configs for user-principal 's1' are producer_byte_rate=7.0\n"
        until(lambda: tool(f"{line} --describe --user s1").out in [quota + each for each in either])
        assert settled(lambda: tool(f"{line} --describe --user s2").out, second) == second
        everybody = tool(f"{line} --describe --entity-type users").out
        assert any(each in everybody for each in either)
        assert second in everybody
        for other in (
            "--user s3",
            "--user-defaults",
            "--user s1 --client c",
            "--entity-type users --entity-type clients",
        ):
            assert "SCRAM" not in tool(f"{line} --describe {other}").out
    finally:
        tool(f"{line} --alter --user s1 --delete-config producer_byte_rate")
        for user, info in credentials:
            administer(UserScramCredentialDeletion(user, info.mechanism))


def test_credentials_that_a_broker_does_not_show(tool: Tool) -> None:
    """One user's error is a line, as with Kafka, and no error of the command; that of all is."""
    results = [
        wire.DescribeUserScramCredentialsResult("a", 0, None, [wire.CredentialInfo(9, 1)]),
        wire.DescribeUserScramCredentialsResult("b", 42, "no", []),
        wire.DescribeUserScramCredentialsResult("c", 91, "none", []),
    ]
    codes = iter([0, 31])

    def answer(request: wire.Request, _: wire.RequestHeader) -> Any:
        if isinstance(request, wire.DescribeUserScramCredentialsRequest):
            return wire.DescribeUserScramCredentialsResponse(0, next(codes), None, results)
        return ...

    with Peer(answer) as peer:
        ran = tool(f"--bootstrap-server {peer.bootstrap} --describe --entity-type users")
        assert ran.out.splitlines() == [
            "SCRAM credential configs for user-principal 'a' are UNKNOWN=iterations=1",
            "Error retrieving SCRAM credential configs for user-principal 'b': no",
        ]
        assert (ran.code, ran.err) == (0, "")
        refused = tool(f"--bootstrap-server {peer.bootstrap} --describe --entity-type users")
    assert refused.err == "kquota: Cluster authorization failed.\n"
