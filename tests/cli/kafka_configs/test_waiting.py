"""A server that comes up while the tool is already running, as in an entrypoint or after a restart."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kquota.cli.kafka_configs import bootstrap, zookeeper
from tests.brokers.kafka import KafkaBroker
from tests.cli.conftest import Kquota, Ran
from tests.cli.kafka_configs.conftest import WARNING, Tool
from tests.support.processes import free_ports
from tests.support.relay import Relay

LATE_S = 1.0
CONTEXT = """\
contexts:
  late: {{{option}: "{address}", timeout: 600}}
"""


@contextlib.contextmanager
def late(target: str, late_s: float = LATE_S) -> Iterator[str]:
    """The address of a server that refuses connections for a while."""
    (port,) = free_ports(1)
    with contextlib.ExitStack() as stack:
        timer = threading.Timer(late_s, lambda: stack.enter_context(Relay(target, port)))
        timer.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            timer.join()


@contextlib.contextmanager
def restarting(target: str) -> Iterator[str]:
    """The address of one that takes connections for a second and ends them: what stands before it is up."""
    with Relay(target) as relay:
        relay.cut()
        timer = threading.Timer(LATE_S, relay.mend)
        timer.start()
        try:
            yield relay.address
        finally:
            timer.join()


@pytest.mark.parametrize("way", [late, restarting])
def test_brokers_that_come_up(
    tool: Tool,
    monkeypatch: pytest.MonkeyPatch,
    kraft: KafkaBroker,
    way: Callable[[str], contextlib.AbstractContextManager[str]],
) -> None:
    monkeypatch.setattr(bootstrap, "_PATIENT", True)
    started = time.monotonic()
    with way(kraft.bootstrap) as address:
        assert tool(f"--bootstrap-server {address} --describe --user nobody") == Ran(0, "", "")
    assert time.monotonic() - started >= LATE_S


def test_a_zookeeper_that_comes_up(tool: Tool, monkeypatch: pytest.MonkeyPatch, chroot: str) -> None:
    monkeypatch.setattr(zookeeper, "_PATIENT", True)
    target, _, path = chroot.partition("/")
    with late(target) as address:
        ran = tool(f"--zookeeper {address}/{path} --describe --user u")
    assert ran == Ran(0, f"{WARNING}Configs for user-principal 'u' are \n", "")


def test_a_time_out_that_is_given_is_waited_out(
    kquota: Kquota, chroot: str, kraft: KafkaBroker, tmp_path: Path
) -> None:
    """kquota's own commands: who says how long waits that long, everybody else hears of it at once."""
    target, _, path = chroot.partition("/")
    with late(target) as address:
        assert kquota("describe", "--zookeeper", f"{address}/{path}", "--timeout", "30").code == 0
    with late(kraft.bootstrap) as address:
        assert kquota("describe", "--bootstrap-server", address, "--timeout", "30").code == 0
    (port,) = free_ports(1)
    for option in ("--zookeeper", "--bootstrap-server", "--bootstrap-controller"):
        alter = ["alter", "--user", "a", "--add-config", "producer_byte_rate=1"]
        done = kquota(*alter, option, f"127.0.0.1:{port}", "--timeout", "0.5")
        assert (done.code, done.out) == (4, "")
    for option in ("--zookeeper", "--bootstrap-server"):
        context = tmp_path / "config.yaml"
        context.write_text(CONTEXT.format(option=option.removeprefix("--"), address=f"127.0.0.1:{port}"))
        started = time.monotonic()
        assert kquota("describe", "--context", "late", KQUOTA_CONFIG=str(context)).code == 4
        assert time.monotonic() - started < 60
