"""What is refused before anything is asked of a cluster: one clear line on stderr, and Kafka's exit code."""

import pytest

from tests.cli.kafka_configs.conftest import B, Tool, Z

ADD = "--add-config producer_byte_rate=1"
SCRAM = "SCRAM-SHA-256=[password=x]"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--blah", "blah is not a recognized option"),
        (f"{B} --desc", "desc is not a recognized option"),
        (f"{B} --describe --user", "Option user requires an argument"),
        (f"{B} --user alice", "Command must include exactly one action: --describe, --alter"),
        (f"{Z} --user a --describe --alter", "Command must include exactly one action: --describe, --alter"),
        (f"{Z} --user a --describe {ADD}", 'Option "[describe]" can\'t be used with option "[add-config]"'),
        (f"{B} --describe --user a --user-defaults", "Duplicate entity type(s) specified: users"),
        (f"{Z} --describe --entity-type bogus", "Invalid entity type bogus"),
        (f"{B} --describe", "At least one entity type must be specified"),
        (f"{B} --describe --ip 1.2.3.4 --user u", "Only 'users' and 'clients' entity types may be specified together"),
        (
            f"{Z} --entity-name A --entity-type users --client B --describe",
            "--entity-{type,name,default} should not be",
        ),
        ("--describe --user u", "One of --bootstrap-server"),
        (f"{Z} {B} --describe --user u", "Only one of --bootstrap-server"),
        (f"{Z} --all --describe --user u", "--bootstrap-server must be specified for --all"),
        (f"{B} --zk-tls-config-file f --describe --user u", "Only the --zookeeper option can be used with"),
        (f"{Z} --describe --ip A,B", "The entity name for ips must be a valid IP or resolvable host, but it is: A,B"),
        (f"{B} --describe --user u --user v", "Found multiple arguments for option user, but you asked for only one"),
        (f"{B} --alter --entity-type users {ADD}", "An entity-name or default entity must be specified with --alter"),
        (f"{B} --alter --user u {ADD} --add-config-file f", "Only one of --add-config or --add-config-file must be"),
        (f"{B} --alter --user u", "At least one of --add-config, --add-config-file, or --delete-config must be"),
        (f"{B} --describe --topic t", "topics have no quotas: use Kafka's own kafka-configs"),
        (f"{B} --bootstrap-controller 127.0.0.1:1 --describe --user u", "Only one of --bootstrap-server"),
        ("--bootstrap-controller 127.0.0.1:1 --describe --user u", "quotas cannot be asked of the controllers"),
        # Past the checks, before anything is sent.
        (f"{B} --alter --entity-type users {ADD} --entity-name a --entity-name b", "An entity name must be specified"),
        (f"{B} --describe --entity-type users --entity-name a --entity-name b", "More entity names specified than"),
        (f"{B} --alter --user u --add-config a==", "Invalid entity config: all configs to be added must be in the"),
        (f"{B} --alter --user u --add-config a;c=b", "Invalid character found for config key: a;c"),
        (f"{B} --alter --user u --add-config foo=1,bar=2", "Only quota configs can be altered for 'users'"),
        (f"{B} --alter --client c --add-config {SCRAM}", "Only quota configs can be altered for 'clients'"),
        (f"{B} --alter --ip 1.2.3.4 {ADD}", "Only connection quota configs can be altered for 'ips'"),
        (f"{B} --alter --user u --add-config {SCRAM}", "kquota: SCRAM credentials are no quotas: alter them with"),
        ("--bootstrap-server nonsense --describe --user u", "kquota: malformed bootstrap server 'nonsense'"),
        (f"{B} --alter --user u --add-config-file /nowhere", "kquota: /nowhere: no such file or directory"),
        (f"{B} --describe --user u --command-config /nowhere", "kquota: /nowhere: no such file or directory"),
        (f"{B} --describe --user u", "kquota: cannot reach Kafka at 127.0.0.1:1: connection refused"),
    ],
)
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
