"""Answers of Kafka's own kafka-configs to chosen command lines, as the repository's own recorded cases.

    python -m tools.recording.kafka_configs       rewrites tests/vectors/kafka_configs.json

The format is that of `tests.support.kafka_configs`, which runs the drop-in through them. Random command lines are
compared with the live tool in `tests/differential`; here are the documented ones, brokers in ZooKeeper mode included.
"""

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.brokers.kafka import VERSION
from tests.differential.config_command import LAST_WITH_ZOOKEEPER, Answer, ConfigCommand
from tests.support.kafka_configs import SERVERS, Server, canonical, same_state, substituted

CASES = Path(__file__).resolve().parents[2] / "tests" / "vectors" / "kafka_configs.json"
RELEASES = {"zk-cli": LAST_WITH_ZOOKEEPER, "protocol-kraft": VERSION, "protocol-zkbroker": VERSION}
"""The release whose tool answers, by kind of server."""

_VISIBLE_S = 5.0
_ENTITIES = (
    *("--user alice", "--client app1", "--user alice --client app1", "--user-defaults", "--client-defaults"),
    *("--user alice --client-defaults", "--client app1 --user-defaults", "--user-defaults --client-defaults"),
    "--entity-type users --entity-name alice --entity-type clients --entity-default",
    "--entity-default --entity-name bob --entity-type users --entity-type clients",
    *("--user CN=a,L=<default>", "--user <default>", "--user User:alice", "--client client1?@%", "--user 日本"),
)
_VALUES = (
    *("producer_byte_rate=1024,consumer_byte_rate=2048,request_percentage=12.3,controller_mutation_rate=10000000",),
    *("producer_byte_rate=0", "producer_byte_rate=-1", "producer_byte_rate=1.5", "consumer_byte_rate=+5"),
    *("producer_byte_rate=[1024]", "producer_byte_rate=NaN", "request_percentage=NaN", "request_percentage=1e3"),
    *("producer_byte_rate=9223372036854775807", "producer_byte_rate=9223372036854775808", "producer_byte_rate=abc"),
    *("request_percentage=", "producer_byte_rate=10MB", "foo=1,bar=2", "connection_creation_rate=1", "=5"),
)
_IP_VALUES = (
    *("connection_creation_rate=20", "connection_creation_rate=0", "connection_creation_rate=-1", "foo=1"),
    *("connection_creation_rate=2147483648", "producer_byte_rate=1"),
)
_TYPES = (
    *("--entity-type users", "--entity-type clients", "--entity-type ips", "--entity-type users --entity-type clients"),
    *("--entity-type clients --entity-type users", "--entity-type users --entity-name alice --entity-type clients"),
    *("--entity-type clients --entity-name app1 --entity-type users", "--user alice", "--user nobody", "--ip-defaults"),
    *("--user-defaults --client-defaults", "--client app1 --user alice", "--entity-type users --entity-default"),
)
_WRONG = (
    *("--user alice", "--describe", "--describe --alter --user alice", "--describe --user alice --add-config a=1"),
    *("--describe --entity-type users --entity-type users", "--describe --ip 1.2.3.4 --user u", "--blah", "--help"),
    *("--describe --entity-name A --entity-type users --client B", "--describe --ip A,B", "--alter --user alice"),
    *("--alter --entity-type users --add-config consumer_byte_rate=1", "--describe --user u --user v"),
    *("--alter --entity-type users --entity-type clients --entity-name a --add-config producer_byte_rate=1",),
    *("--alter --user alice --delete-config producer_byte_rate,foo", "--describe --entity-type users --user"),
    *("--alter --user alice --add-config producer_byte_rate=1 --add-config-file /nowhere",),
    *("--alter --user alice --add-config-file /nowhere", "--alter --user alice --delete-config SCRAM-SHA-256,foo"),
)
_BEFORE: Mapping[str, Mapping[str, str]] = {
    "users/alice": {"producer_byte_rate": "1024", "request_percentage": "50"},
    "users/<default>": {"consumer_byte_rate": "1"},
    "clients/app1": {"producer_byte_rate": "2"},
    "clients/<default>": {"producer_byte_rate": "3"},
    "users/alice/clients/app1": {"producer_byte_rate": "4"},
    "users/alice/clients/<default>": {"producer_byte_rate": "5"},
    "users/<default>/clients/<default>": {"producer_byte_rate": "6"},
    "ips/127.0.0.1": {"connection_creation_rate": "10000"},
    "ips/<default>": {"connection_creation_rate": "20000"},
}
"""An entity of most kinds, by the path of its node below `/config`."""
_NAMES = {"users": "user", "clients": "client-id", "ips": "ip"}


def _lines() -> Iterator[tuple[str, bool]]:
    """Command lines, and whether there is something before."""
    for entity in _ENTITIES:
        yield f"{entity} --alter --add-config producer_byte_rate=1024", False
    for value in _VALUES:
        yield f"--user alice --alter --add-config {value}", False
    for value in _IP_VALUES:
        yield f"--ip 10.0.0.7 --alter --add-config {value}", False
    # Nobody may connect any more from where the cases come from: the cases after this one hold only on a clean server.
    yield "--ip 127.0.0.1 --alter --add-config connection_creation_rate=0", False
    for entity in ("--user alice", "--client app1", "--user alice --client app1", "--user-defaults --client-defaults"):
        yield f"{entity} --alter --delete-config producer_byte_rate", True
    yield "--ip-defaults --alter --delete-config connection_creation_rate", True
    yield "--user alice --alter --add-config consumer_byte_rate=7 --delete-config producer_byte_rate", True
    for types in _TYPES:
        yield f"{types} --describe", True
    for line in _WRONG:
        yield line, False


def _state(backend: str) -> dict[str, Any]:
    """`_BEFORE` as that kind of server holds it."""
    if backend == "protocol-kraft":
        return {
            "quotas": [
                {"entity": dict(_parts(path)), "values": {key: f"{float(value)}" for key, value in values.items()}}
                for path, values in _BEFORE.items()
            ]
        }
    text = '{{"version":1,"config":{}}}'
    return {
        "znodes": {
            f"/config/{path}": text.format(json.dumps(values, separators=(",", ":")))
            for path, values in _BEFORE.items()
        }
    }


def _parts(path: str) -> Iterator[tuple[str, str | None]]:
    words = path.split("/")
    for kind, name in zip(words[::2], words[1::2], strict=True):
        yield _NAMES[kind], None if name == "<default>" else name


def record() -> Iterator[dict[str, Any]]:
    """Every case with what the tool answered."""
    for backend, release in RELEASES.items():
        connection = ["--zookeeper", "@ZK@"] if backend == "zk-cli" else ["--bootstrap-server", "@BOOTSTRAP@"]
        with SERVERS[backend]() as server, ConfigCommand(release) as tool:
            for number, (line, has_state) in enumerate(_lines()):
                before = (
                    _state(backend) if has_state else {"quotas": []} if backend == "protocol-kraft" else {"znodes": {}}
                )
                argv = [*connection, *line.split(" ")]
                server.prepare(before)
                answer = tool.run([substituted(word, server) for word in argv])
                expect = _expected(answer, server, before, altered=answer.exit == 0 and "--alter" in argv)
                yield {
                    "id": f"{backend}/{number}",
                    "backend": backend,
                    "argv": argv,
                    "pre_state": before,
                    "expect": expect,
                }


def _expected(answer: Answer, server: Server, before: Mapping[str, Any], *, altered: bool) -> dict[str, Any]:
    def placed(text: str) -> str:
        for placeholder, address in server.placeholders.items():
            text = text.replace(address, placeholder)
        return text

    expect: dict[str, Any] = {"exit": answer.exit, "stdout": placed(answer.stdout)}
    lines = placed(answer.stderr).splitlines()
    if answer.first.startswith("Error while executing"):
        expect |= {"stderr_contains": ["\n".join(lines[:2])], "stderr_has_java_stacktrace": True}
    elif len(lines) > 5:
        expect |= {"stderr_contains": lines[:1], "stderr_has_usage": True}
    else:
        expect["stderr"] = placed(answer.stderr)
    return {**expect, "state": _changed(server, before) if altered else server.state({})}


def _changed(server: Server, before: Mapping[str, Any]) -> Mapping[str, Any]:
    """The state once it is another: a broker's own copy of the metadata lags behind."""
    deadline = time.monotonic() + _VISIBLE_S
    while same_state(before, state := server.state({})) and time.monotonic() < deadline:
        time.sleep(0.01)
    return state


def main() -> None:
    cases = list(record())
    for case in cases:
        if "quotas" in (state := case["expect"]["state"]):
            case["expect"]["state"] = {**state, "quotas": sorted(state["quotas"], key=lambda quota: canonical([quota]))}
    about = {"_about": "Written by python -m tools.recording.kafka_configs", "releases": RELEASES}
    lines = ",\n".join(json.dumps(case, ensure_ascii=False, separators=(",", ":")) for case in cases)
    CASES.write_text(f'{{"meta":{json.dumps(about)},\n"cases":[\n{lines}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
