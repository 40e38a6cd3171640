"""Runs recorded cases of Kafka's kafka-configs through the drop-in, on real servers, and says whether they are equal.

    python -m tests.support.kafka_configs FILE [--backend zk-cli,protocol-kraft]

FILE (`.json` or `.json.gz`) holds `cases` of `{id, backend, argv, pre_state, expect}`. Every case gets a chroot of its
own in a sandbox ZooKeeper (`zk-cli`), or a real broker without any other quota, of a current Kafka (`protocol-kraft`)
or of the last one that has ZooKeeper (`protocol-zkbroker`), in the state that it names. Compared are the exit code,
stdout, the state afterwards and the new change notifications; the order of keys inside a line counts. Of stderr only
that there is a message exactly where the exit code is not 0. The last line is `N of M equal`; the exit code is 0 only
when all are equal and there was at least one, 1 otherwise, 2 for a wrong call or an unreadable file. A case of a
backend that is not known is never equal; with --backend, only the backends named are run and counted.
"""

import argparse
import contextlib
import gzip
import io
import itertools
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol
from unittest import mock

from kquota.backends import znode
from kquota.backends.kafka.raw import RawQuotas
from kquota.cli.kafka_configs import run
from kquota.cli.kafka_configs.configs import double_text, parse_double
from tests.brokers.kafka import AT_ONCE, KafkaBroker
from tests.brokers.zookeeper_mode import ZooKeeperModeBroker
from tests.support.sandbox import Sandbox

Case = Mapping[str, Any]
Expected = Mapping[str, Any]
_VISIBLE_S = 60.0


@dataclass(frozen=True)
class Outcome:
    """What one run came to."""

    exit: int
    stdout: str
    stderr: str
    state: Mapping[str, Any]


class Server(Protocol):
    """A server that cases run on."""

    @property
    def placeholders(self) -> Mapping[str, str]:
        """What stands for the server in recorded texts, and its address."""
        ...

    def prepare(self, state: Mapping[str, Any]) -> None:
        """Brings about the state, and nothing else."""
        ...

    def state(self, expected: Mapping[str, Any]) -> Mapping[str, Any]:
        """The state now; where it lags behind, once it is what is expected, or at last as it is."""
        ...


# --- Servers ---


class ZooKeeper:
    """A chroot of its own for each case; `/config` and the directories below it are no part of the state."""

    _numbers: ClassVar[Iterator[int]] = itertools.count()

    def __init__(self, connect: str, chroot: str = "") -> None:
        from kazoo.client import KazooClient

        self._client = KazooClient(connect)
        self._client.start()
        self._connect = connect
        self._chroot = chroot
        self._known_changes: set[str] = set()

    def close(self) -> None:
        self._client.stop()
        self._client.close()

    @property
    def placeholders(self) -> Mapping[str, str]:
        return {"@ZK@": self._connect + self._chroot}

    def prepare(self, state: Mapping[str, Any]) -> None:
        self._chroot = f"/case-{next(self._numbers)}"
        self._client.create(self._chroot)
        self.fill(state)

    def clear(self) -> None:
        """Removes the state from a chroot that a broker lives in, and notifies the broker of each entity that is gone.

        Without a notification the broker would keep the quotas, in the worst case those of the address that the cases
        come from. All change notifications stay, as old ones.
        """
        for root in znode.ENTITY_ROOTS.values():
            gone: dict[str, str | None] = {}
            self._collect(root, gone)
            for path in sorted(gone, reverse=True):  # children first
                if path == root:
                    continue
                self._client.delete(self._chroot + path)
                entity = path.removeprefix(f"{znode.CONFIG}/")
                if entity.count("/") % 2:  # `users/a` and `users/a/clients/b` are entities, `users/a/clients` is none
                    notification = json.dumps({"version": 2, "entity_path": entity}).encode()
                    self._client.create(self._chroot + znode.CHANGE_PREFIX, notification, sequence=True)
        self._known_changes = set(self._changes())

    def fill(self, state: Mapping[str, Any]) -> None:
        """Creates the nodes of the state."""
        for path, data in sorted(state.get("znodes", {}).items()):
            full = self._chroot + path
            for parent in znode.parents(full):
                if not self._client.exists(parent):
                    self._create(parent, None)
            self._create(full, data)

    def _create(self, path: str, data: str | None) -> None:
        from kazoo.protocol.serialization import Create
        from kazoo.security import OPEN_ACL_UNSAFE

        # kazoo's own create would write empty data for none.
        handle = self._client.handler.async_result()
        request = Create(path, None if data is None else data.encode(), OPEN_ACL_UNSAFE, 0)
        self._client._call(request, handle)
        handle.get()

    def nodes(self) -> dict[str, str | None]:
        """The config nodes of all entities, by path, with their data."""
        nodes: dict[str, str | None] = {}
        for root in znode.ENTITY_ROOTS.values():
            self._collect(root, nodes)
            nodes.pop(root, None)
        return nodes

    def state(self, expected: Mapping[str, Any]) -> Mapping[str, Any]:
        nodes = self.nodes()
        changes = self._changes()
        new = [changes[path] for path in sorted(changes) if path not in self._known_changes]
        return {"znodes": nodes, "new_notifications": new}

    def _changes(self) -> dict[str, str | None]:
        changes: dict[str, str | None] = {}
        self._collect(znode.CHANGES, changes)
        changes.pop(znode.CHANGES, None)
        return changes

    def _collect(self, path: str, into: dict[str, str | None]) -> None:
        full = self._chroot + path
        if not self._client.exists(full):
            return
        data, _ = self._client.get(full)
        into[path] = None if data is None else data.decode()
        for name in self._client.get_children(full):
            self._collect(f"{path}/{name}", into)


class Broker:
    """A KRaft broker; its quotas are removed before each case."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._raw = RawQuotas(bootstrap)

    def close(self) -> None:
        self._raw.close()

    @property
    def placeholders(self) -> Mapping[str, str]:
        return {"@BOOTSTRAP@": self._bootstrap}

    def prepare(self, state: Mapping[str, Any]) -> None:
        for quota in self._raw.describe():
            self._raw.alter(quota.entity, {}, list(quota.values))
        for wanted in state.get("quotas", ()):
            values = {key: parse_double(text) or 0.0 for key, text in wanted["values"].items()}
            self._raw.alter(wanted["entity"], values)
        expected = {"quotas": state.get("quotas", [])}
        if not same_state(expected, shown := self.state(expected)):
            raise RuntimeError(f"the broker shows {shown}, and not {expected}")
        self._await_admission()

    def _await_admission(self) -> None:
        """Returns once the broker takes new connections from here; one case may have set that nobody may connect."""
        with RawQuotas(self._bootstrap, timeout_s=_VISIBLE_S) as newcomer:
            newcomer.describe()

    def state(self, expected: Mapping[str, Any]) -> Mapping[str, Any]:
        deadline = time.monotonic() + _VISIBLE_S
        while True:
            shown = {
                "quotas": [
                    {"entity": quota.entity, "values": {key: double_text(value) for key, value in quota.values.items()}}
                    for quota in self._raw.describe()
                ]
            }
            if same_state(expected, shown) or time.monotonic() > deadline:
                return shown
            time.sleep(0.01)


class ZooKeeperBroker(Broker):
    """A broker in ZooKeeper mode: its quotas are the nodes of its chroot."""

    def __init__(self, bootstrap: str, nodes: ZooKeeper) -> None:
        super().__init__(bootstrap)
        self._nodes = nodes

    @property
    def placeholders(self) -> Mapping[str, str]:
        return {**super().placeholders, **self._nodes.placeholders}

    def prepare(self, state: Mapping[str, Any]) -> None:
        self._nodes.clear()
        self._await_admission()
        self._nodes.fill(state)

    def state(self, expected: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**super().state(expected), **self._nodes.state(expected)}


@contextlib.contextmanager
def zookeeper() -> Iterator[ZooKeeper]:
    with Sandbox() as sandbox, contextlib.closing(ZooKeeper(sandbox.connect)) as server:
        yield server


@contextlib.contextmanager
def broker() -> Iterator[Broker]:
    with KafkaBroker(settings=AT_ONCE) as started, contextlib.closing(Broker(started.bootstrap)) as server:
        yield server


@contextlib.contextmanager
def zookeeper_broker() -> Iterator[ZooKeeperBroker]:
    """A real broker of the last Kafka that has ZooKeeper, and its ZooKeeper."""
    with (
        Sandbox() as sandbox,
        ZooKeeperModeBroker(f"{sandbox.connect}/kafka") as started,
        contextlib.closing(ZooKeeper(sandbox.connect, "/kafka")) as nodes,
        contextlib.closing(ZooKeeperBroker(started.bootstrap, nodes)) as server,
    ):
        yield server


SERVERS: Mapping[str, Callable[[], contextlib.AbstractContextManager[Server]]] = {
    "zk-cli": zookeeper,
    "protocol-kraft": broker,
    "protocol-zkbroker": zookeeper_broker,
}

# --- Comparing ---


def execute(case: Case, server: Server) -> Outcome:
    """Brings about the state before and runs the command line."""
    server.prepare(case["pre_state"])
    code, out, err = run_as([substituted(word, server) for word in case["argv"]])
    return Outcome(code, out, err, server.state(case["expect"].get("state", {})))


def run_as(argv: Sequence[str]) -> tuple[int, str, str]:
    """Runs a command line in this process in the place of Kafka's tool: the exit code, stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.dict(os.environ, {"KQUOTA_KAFKA_CONFIGS_JOURNAL": "off"}),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code = run(argv)
    return code, out.getvalue(), err.getvalue()


def substituted(text: str, server: Server) -> str:
    """The text with the server's address for its placeholder."""
    for placeholder, address in server.placeholders.items():
        text = text.replace(placeholder, address)
    return text


def differences(expect: Expected, outcome: Outcome, server: Server) -> Iterator[str]:
    """What is not as recorded."""
    if outcome.exit != expect["exit"]:
        yield f"exit: expected {expect['exit']}, got {outcome.exit}"
    expected = substituted(expect["stdout"], server)
    unordered = expect.get("stdout_lines_unordered", False)
    if outcome.stdout != expected and not (
        unordered and sorted(outcome.stdout.splitlines()) == sorted(expected.splitlines())
    ):
        yield f"stdout: expected {expected!r}, got {outcome.stdout!r}"
    if bool(outcome.exit) != bool(outcome.stderr.strip()) or "Traceback" in outcome.stderr:
        yield f"stderr: expected a message where the exit code is not 0, got {outcome.stderr!r}"
    state = expect.get("state", {})
    if not same_state(state, outcome.state):
        yield f"state: expected {dict(state)}, got {dict(outcome.state)}"


def same_state(expected: Mapping[str, Any], got: Mapping[str, Any]) -> bool:
    """Whether what is expected is so; what is not mentioned may be as it likes."""
    if "quotas" in expected and "quotas" in got and canonical(expected["quotas"]) != canonical(got["quotas"]):
        return False
    return all(
        expected[part] == got[part] for part in ("znodes", "new_notifications") if part in expected and part in got
    )


def canonical(quotas: Iterable[Mapping[str, Any]]) -> list[str]:
    """Quotas in an order that depends on themselves only."""
    return sorted(json.dumps([quota["entity"], quota["values"]], sort_keys=True) for quota in quotas)


# --- The command ---


@dataclass
class Report:
    """The counts of cases per backend, and what differs."""

    equal: Counter[str]
    total: Counter[str]
    differing: list[str]

    def lines(self) -> Iterator[str]:
        yield from self.differing
        for backend, count in self.total.items():
            runs = backend in SERVERS
            yield f"{backend}: {self.equal[backend]} of {count} equal" if runs else f"{backend}: {count} not run"
        yield f"{self.equal.total()} of {self.total.total()} equal"

    @property
    def is_good(self) -> bool:
        """Whether all are equal, and there was one."""
        return bool(self.total) and self.equal == self.total


def compare(cases: Iterable[Case], backends: frozenset[str] | None = None) -> Report:
    """Runs the cases of the backends, or of all that there are."""
    report = Report(Counter(), Counter(), [])
    grouped: dict[str, list[Case]] = {}
    for case in cases:
        if backends is None or case["backend"] in backends:
            grouped.setdefault(case["backend"], []).append(case)
    for backend, group in grouped.items():
        report.total[backend] = len(group)
        if backend not in SERVERS:
            continue
        with SERVERS[backend]() as server:
            for case in group:
                try:
                    outcome = execute(case, server)
                    found = list(differences(case["expect"], outcome, server))
                except Exception as error:  # one case that cannot be run must not hide the others
                    found = [f"{type(error).__name__}: {error}"]
                report.differing += [f"{case['id']}: {what}" for what in found]
                report.equal[backend] += not found
    return report


def load(path: Path) -> Mapping[str, Any]:
    data = path.read_bytes()
    document: Mapping[str, Any] = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    return document


def main(arguments: Sequence[str] | None = None) -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(prog="python -m tests.support.kafka_configs", description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("--backend", help="only these backends, separated by commas", metavar="BACKENDS")
    options = parser.parse_args(arguments)
    backends = None
    if options.backend is not None:
        backends = frozenset(name.strip() for name in options.backend.split(","))
        unknown = sorted(backends - SERVERS.keys())
        if unknown:
            parser.error(f"cannot be run: {', '.join(unknown)} (there are {', '.join(SERVERS)})")
    try:
        cases = load(options.file)["cases"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        parser.error(f"cannot read {options.file}: {type(error).__name__}: {error}")
    report = compare(cases, backends)
    print("\n".join(report.lines()))
    return 0 if report.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
