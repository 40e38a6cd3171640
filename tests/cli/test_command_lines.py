"""Command lines that are none, and what people type first: each gets one answer, with the line to write."""

import pytest

from kquota.cli.grammar import Command
from kquota.cli.main import cli
from tests.cli.conftest import Kquota, commands

TWICE = "Found multiple arguments for option"
SET = "alter --add-config producer_byte_rate=1"
WHERE = "(a file, a context, kafka://HOST:PORT, zookeeper://HOST:PORT, or live: the cluster of the options)"
KIP_55 = "(KIP-55 leaves the name out for the default, which Kafka never took: give --entity-default)"

# What click refuses, by the code of wrong usage.
USAGE = [
    ("alter --user alice", ""),
    (SET, ""),
    (f"{SET} --user alice --user-defaults", "name each by --entity TYPE=NAME, such as user=<default>"),
    (f"{SET} --user alice --entity-type clients", ""),
    (f"{SET} --entity-type users", KIP_55),
    (f"{SET} --entity-type users --entity-type clients", KIP_55),
    (f"{SET} --entity-name alice", ""),
    ("alter --file quotas.yaml --user alice", ""),
    (f"{SET} --file quotas.yaml", ""),
    ("alter --entity user=alice", ""),
    ("describe --entity-type topics", ""),
    ("describe --nonsense", ""),
    ("resolve", ""),
    ("nonsense", ""),
    ("describe --broker 1 --zookeeper 127.0.0.1:1", ""),
    ("describe --broker 1 --broker-defaults", ""),
    ("describe --broker 1 --user alice", ""),
    ("describe --broker 1 --entity-type users", ""),
    ("describe --broker 1 --entity-name 1", ""),
    ("describe --entity-type brokers --entity-type users", ""),
    ("describe --entity-type brokers --entity-type brokers", ""),
    ("describe --entity-type brokers --entity-name 1 --entity-name 2", ""),
    ("alter --entity-type brokers --add-config a=1", ""),
    ("alter --broker 1", ""),
    ("alter --broker 1 --entity user=alice --add-config a=1", ""),
    ("alter --broker 1 --file quotas.yaml", ""),
    # Options by another name, and words in the wrong place.
    ("alter --set x=1", "No such option '--set'. Did you mean '--add-config'?"),
    ("alter --unset x=1", "No such option '--unset'. Did you mean '--delete-config'?"),
    ("alter --default", "Did you mean '--ip-defaults' or '--user-defaults'?"),
    ("alter --producer-byte-rate 5MB", "Did you mean: --add-config producer_byte_rate=VALUE"),
    ("audit --follow", "'kquota follow' is a command of its own"),
    ("describe -b broker:9092", "Did you mean '--bootstrap-server'?"),
    ("plan q.yaml --detailed-exitcode", "Did you mean '--exit-code'?"),
    ("probe produce --for 5s", "Did you mean '--duration'?"),
    ("plan q.yaml -out=plan.json", "--out FILE writes a file"),
    ("apply -f q.yaml", "No such option '-f'. FILE stands without an option."),
    ("alter -f q.yaml", "Did you mean '--file'?"),
    ("apply q.yaml --auto-approve", "Did you mean '--yes'?"),
    ("export q.yaml", "(q.yaml). --out FILE writes a file"),
    ("show plan.json", "(plan.json). --quotas FILE reads a file"),
    ("sandbox start broker", "(broker). Did you mean '--broker'?"),
    ("audit a.log -o html", "--report FILE.html writes a page."),
    ("describe --timeout soon", "'soon' is not a valid"),
    ("alter --user alice --delete-config x --reason INC-1", "Did you mean '--message'?"),
    ("exporter --port 9645", "Did you mean '--listen'?"),
    ("resolve --principal alice", "Did you mean '--user'?"),
    ("audit a.log --user alice", "so all are judged: 'kquota help verdicts' has a gate for one of them"),
    ("drift quotas.yaml", "Did you mean 'diff'?"),
    ("config use prod", "No such command 'use'. Did you mean 'use-context'?"),
    ("config list", "Commands: delete-context, get-contexts, set-context, use-context, view."),
    ("help drift", "Did you mean 'diff'?"),
    ("audit a.log --from 12:00", "Did you mean '--since'?"),
    ("resolve --entity user=alice", "Did you mean '--who'?"),
    ("get user alice", "Entities are options: --user NAME"),
    ("set --user alice producer_byte_rate=12MB", "quotas are one list: --add-config KEY=VALUE"),
    ("alter --user alice --add-config x=1 --until 12:00", "Did you mean '--for'?"),
    ("alter --user alice --quota x=1", "Did you mean '--add-config'?"),
    ("describe --user-default", "Did you mean '--user-defaults'"),
    ("--bootstrap-server kafka:9092 describe", "come after it: kquota COMMAND --bootstrap-server …"),
    ("diff before.yaml", "Missing argument 'B': what to compare with. For the cluster itself: kquota diff before.yaml"),
    ("throttled", "Did you mean 'audit'? Show who would be throttled"),
    ("compare a b", "Did you mean 'diff'?"),
    ("status", "Did you mean 'doctor'?"),
    ("completion", "Did you mean 'help'?"),
    ("descripe", "Did you mean 'describe'?"),
    ("help precedense", "Did you mean 'precedence'?"),
    ("resolve --who --user alice", "--user is no entity: --who user=NAME, client-id=NAME or ip=ADDRESS"),
    (f"{SET} --user alice consumer_byte_rate=2", "one list"),
    ("alter --user alice --add-config producer_byte_rate 10MB", "KEY=VALUE,KEY=VALUE"),
    ("resolve alice app1", "Entities are options: --user NAME, --client NAME or --ip ADDRESS\n"),
    ("lint quotas.yaml quotas.yaml", "unexpected extra argument (quotas.yaml)\n"),
    ("plan", "Missing argument 'FILE'."),
    ("history --prune 9d --bootstrap-server a:9092", "nothing that narrows it goes beside it"),
    ("describe -o jsn", "Invalid value for '-o' / '--output': 'jsn' is not one of"),
    # Who writes an entity and its values in turns wants different values, not all of them for each.
    (f"{SET} --entity user=a --entity user=b --add-config request_percentage=9", "--add-config would be for every"),
    (f"{SET} --entity user=a --entity user=b --add-config request_percentage=9", "or different values by --file"),
    # Nothing is read or written where an option that takes one value has two.
    ("alter --file a.yaml --file b.yaml", TWICE),
    ("alter --broker 1 --broker 2 --add-config max.connection.creation.rate=9", TWICE),
    ("describe --broker 1 --broker 2", TWICE),
    ("top --user alice --user bob --metrics x --once", TWICE),
    ("top --client a --client-id b --metrics x --once", TWICE),
    ("probe produce --topic load --client a --client-id b", TWICE),
    ("simulate workload.yaml --quotas a.yaml --quotas b.yaml", TWICE),
    ("audit log --quotas a.yaml --quotas b.yaml", TWICE),
    ("diff a.yaml live --bootstrap-server a:9092 --bootstrap-server b:9092", TWICE),
    ("config set-context here --zookeeper a:2181 --zookeeper b:2181", TWICE),
]
# What kquota refuses, by the code of wrong input.
INPUT = [
    ("alter --user u --add-config producer_byte_rate=1,000,000", "a number has no commas: 1000000, or 1.5MB"),
    ("alter --user u --add-config producer_byte_rate=1,5MB", "a number has no commas: 1000000, or 1.5MB"),
    ("alter --user alice --add-config producer_byterate=1", "(did you mean 'producer_byte_rate'?)"),
    ("alter --user alice --add-config xyz=1", "(quota keys: producer_byte_rate, "),
    ("alter --user alice --add-config request_percentage=unlimited", "deleting the key gives the default)"),
    ("diff quotas.yml live", WHERE),
    (f"diff {'x' * 300} live", WHERE),
    ("schema nothing", "no schema named 'nothing'"),
]


@pytest.mark.parametrize(
    ("code", "line", "advice"), [*((2, *each) for each in USAGE), *((3, *each) for each in INPUT)], ids=str
)
def test_what_is_refused_gets_the_line_to_write(kquota: Kquota, code: int, line: str, advice: str) -> None:
    """On stderr, and nothing is asked of the cluster."""
    cluster = "KQUOTA_BOOTSTRAP_SERVER" if "broker" in line else "KQUOTA_ZOOKEEPER"
    done = kquota(*line.split(), **{cluster: "127.0.0.1:1"})
    assert (done.code, done.out) == (code, "")
    assert done.err.splitlines()[-1].startswith("Error: " if code == 2 else "kquota: ")
    assert advice in done.err or advice in " ".join(done.err.split())


def test_an_option_of_another_command_is_no_advice(kquota: Kquota) -> None:
    assert "--add-config" not in kquota("describe", "--set", "x").err


def test_no_command_lets_the_last_of_several_win() -> None:
    found = dict(commands(cli))
    assert [name for name, command in found.items() if not isinstance(command, Command)] == ["kafka-configs"]
