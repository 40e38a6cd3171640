"""`kquota watch` on a real ZooKeeper and a real broker: lines as they come, and how it ends."""

import math
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kquota import DEFAULT, Alteration, Entity, QuotaBackend, QuotaKey, Rejected, Unauthorized, Unreachable
from kquota.access import connect
from kquota.cli.commands.watch import changes_of
from kquota.core.quotas.quota import Value
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.errors import KquotaError
from tests.brokers.kafka import KafkaBroker
from tests.cli.conftest import Golden, Kquota, validated
from tests.support.relay import Relay
from tests.support.waiting import PATIENCE_S, interrupted

ALICE = Entity(user="alice")
WATCHED = Entity(user="watched", client_id=DEFAULT)
PRODUCER = QuotaKey.PRODUCER_BYTE_RATE
ROOT = str(Path(__file__).parents[2])


class Watching:
    """A `kquota watch` that runs; its lines are read as they come."""

    def __init__(self, *arguments: str, cwd: Path) -> None:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("KQUOTA_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kquota", "watch", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=clean | {"PYTHONPATH": ROOT, "XDG_CONFIG_HOME": str(cwd)},
        )
        assert self.error().startswith("watching ")

    def line(self) -> str:
        return self._line(self.process.stdout)

    def error(self) -> str:
        return self._line(self.process.stderr)

    def end(self) -> tuple[int, str, str]:
        """The exit code, and what else was printed."""
        out, err = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, out.decode(), err.decode()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    @staticmethod
    def _line(stream: object) -> str:
        assert hasattr(stream, "fileno")
        text, end = b"", time.monotonic() + PATIENCE_S
        while not text.endswith(b"\n"):  # unbuffered: nothing that select does not see
            ready, _, _ = select.select([stream], [], [], max(0.0, end - time.monotonic()))
            assert ready, text
            byte = os.read(stream.fileno(), 1)
            assert byte, text
            text += byte
        return text.decode()


Start = Callable[..., Watching]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a `kquota watch`, and sees to it that it ends."""
    started: list[Watching] = []

    def start(*arguments: str) -> Watching:
        started.append(Watching(*arguments, cwd=tmp_path))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.kill()


def alter(backend: QuotaBackend, entity: Entity, **values: Value | None) -> None:
    """Sets values by the names of their keys; None removes one."""
    keys = {QuotaKey.parse(name): value for name, value in values.items()}
    rates = {key: value for key, value in keys.items() if value is not None}
    (result,) = backend.alter([Alteration(entity, rates, frozenset(keys.keys() - rates.keys()))])
    assert result.error is None


@pytest.fixture
def writer(chroot: str) -> Iterator[QuotaBackend]:
    with connect(zookeeper=chroot) as writer:
        yield writer


def test_each_change_is_a_line(start: Start, writer: QuotaBackend, chroot: str, golden: Golden) -> None:
    """At once, in the order of the changes; it ends after as many as it was told."""
    before_ms = time.time_ns() // 1_000_000
    text, json = (
        start("--zookeeper", chroot, "--interval", "100ms", "--count", "4"),
        start("--zookeeper", chroot, "--interval", "100ms", "--count", "4", "-o", "json"),
    )
    documents, lines = [], []
    for values in ({"producer_byte_rate": 5_000_000}, {"producer_byte_rate": 7_000_000}, {"producer_byte_rate": None}):
        alter(writer, ALICE, **values)
        lines.append(text.line())
        documents.append(validated(json.line(), "watch"))
    alter(writer, Entity(client_id="app\x1b1"), producer_byte_rate=1, request_percentage=2.5)
    lines.append(text.line())
    documents.append(validated(json.line(), "watch"))
    for watching in (text, json):
        assert watching.end() == (0, "", "")
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z  ", line) for line in lines)
    golden("watch.text", "".join(line[26:] for line in lines))
    assert [(each["entity"], each["key"], each["before"], each["after"]) for each in documents] == [
        ({"user": "alice"}, "producer_byte_rate", None, 5_000_000),
        ({"user": "alice"}, "producer_byte_rate", 5_000_000, 7_000_000),
        ({"user": "alice"}, "producer_byte_rate", 7_000_000, None),
        ({"client-id": "app\x1b1"}, "producer_byte_rate", None, 1),
    ]
    times = [each["time"] for each in documents]
    assert times == sorted(times)
    assert times[0][:10] >= time.strftime("%Y-%m-%d", time.gmtime(before_ms / 1000))


def found_again(watching: Watching, relay: Relay, writer: QuotaBackend, server: str) -> None:
    """A word when it is lost and one when it is back, and what changed in between."""
    relay.cut()
    lost = watching.error()
    assert lost.startswith(f"kquota: cannot reach {server} at {relay.address}: ")
    assert lost.endswith("; trying again\n")
    alter(writer, WATCHED, producer_byte_rate=5)
    relay.mend()
    found = validated(watching.line(), "watch")
    assert (found["entity"], found["before"], found["after"]) == (
        {"user": "watched", "client-id": {"default": True}},
        None,
        5,
    )
    assert watching.end() == (0, "", "kquota: connected again\n")


def test_it_finds_its_cluster_again(start: Start, writer: QuotaBackend, chroot: str) -> None:
    address, _, path = chroot.partition("/")
    with Relay(address) as relay:
        given = ("--zookeeper", f"{relay.address}/{path}", "--count", "1", "--timeout", "10", "-o", "json")
        found_again(start(*given), relay, writer, "ZooKeeper")


def test_it_finds_its_brokers_again(start: Start, kraft: KafkaBroker) -> None:
    with Relay(kraft.bootstrap) as relay, connect(bootstrap_server=kraft.bootstrap) as writer:
        given = ("--bootstrap-server", relay.address, "--interval", "100ms", "--count", "1", "-o", "json")
        try:
            found_again(start(*given), relay, writer, "Kafka")
        finally:
            alter(writer, WATCHED, producer_byte_rate=None)


def test_ctrl_c_ends_it(start: Start, chroot: str) -> None:
    watching = start("--zookeeper", chroot)
    assert interrupted(watching.process, signal.SIGINT) == (b"", b"\nkquota: interrupted\n")
    assert watching.process.returncode == 130


def test_nobody_reads_any_more(start: Start, chroot: str) -> None:
    """It ends quietly, and need not wait for a change."""
    watching = start("--zookeeper", chroot)
    assert watching.process.stdout is not None
    watching.process.stdout.close()
    assert watching.process.stderr is not None
    assert watching.process.wait(PATIENCE_S) == 0
    assert watching.process.stderr.read() == b""


def test_it_ends_after_its_time(kquota: Kquota, chroot: str) -> None:
    done = kquota("watch", "--zookeeper", chroot, "--for", "1s")
    assert (done.code, done.out) == (0, "")
    assert done.complaint == f"watching zookeeper://{chroot} (0 entities); looking every 1 s"


def test_its_interval_is_a_length_of_time(kquota: Kquota) -> None:
    errors = {each: kquota("watch", "--zookeeper", "x", "--interval", each).err for each in ("5", "99ms")}
    assert "'5' is not a length of time" in errors["5"]
    assert "--interval is at least 100ms" in errors["99ms"]


def test_it_gives_up_only_where_it_is_not_allowed(capfd: pytest.CaptureFixture[str]) -> None:
    """And what changed before the error, and meanwhile, is seen; what was there before is no change."""
    one, two = QuotaSnapshot({ALICE: {PRODUCER: 1}}), QuotaSnapshot({ALICE: {PRODUCER: 2}})
    readings: Iterator[QuotaSnapshot | KquotaError]
    readings = iter([one, two, Unreachable("lost it"), Rejected("not now"), one, Unauthorized("no longer")])

    def read() -> QuotaSnapshot:
        reading = next(readings)
        if isinstance(reading, QuotaSnapshot):
            return reading
        raise reading

    changes = changes_of(read, one, 0.0, math.inf)
    for after in (2, 1):
        change, key = next(changes)
        assert (change.entity, key, change.after) == (ALICE, PRODUCER, {PRODUCER: after})
    with pytest.raises(Unauthorized, match="no longer"):
        next(changes)
    assert capfd.readouterr().err == "kquota: lost it; trying again\nkquota: connected again\n"
