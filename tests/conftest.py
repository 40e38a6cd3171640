"""A real ZooKeeper for the whole session, a chroot of its own for each test, and real brokers.

Nothing is skipped where Java or PySpark is missing: the tests fail.
"""

import atexit
import gc
import itertools
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import SystemRandom
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from kquota.backends import znode
from kquota.backends.kafka import KafkaBackend
from kquota.cli.commands.record import appender_text
from kquota.core.quotas.alteration import Alteration, AlterResult
from kquota.garbage import look_seldom
from tests.brokers.kafka import AT_ONCE, KafkaBroker
from tests.brokers.zookeeper_mode import USERS, ZooKeeperModeBroker
from tests.support import compiled
from tests.support.browser import Browser
from tests.support.processes import QUICK_SPARK
from tests.support.sandbox import Sandbox, kazoo
from tests.support.scheduling import (
    LONG_WITHOUT_SERVERS,
    WITH_SERVERS,
    arrange,
    hide_java,
    is_long,
    needs_server,
    waits_for_night,
)
from tests.support.workers import Workers

# Workers import all tests, and tests start hundreds of interpreters: each keeps what it compiled for the next.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Spark's JVMs live for seconds here: what the optimizing compiler takes does not come back.
os.environ.update(QUICK_SPARK)

ROOT = Path(__file__).resolve().parents[1]
# The journal, the locks and the settings of whoever runs the tests are not for them, nor those of other runs.
_HOME = "kquota-test-home-"
if _HOME not in os.environ.get("XDG_STATE_HOME", ""):  # workers have what the first process made
    _home = Path(tempfile.mkdtemp(prefix=_HOME))
    atexit.register(shutil.rmtree, _home, ignore_errors=True)
    os.environ |= {"XDG_CONFIG_HOME": str(_home / "config"), "XDG_STATE_HOME": str(_home / "state")}
# One compilation of the kernel serves all workers, all processes, and executors that have kquota in an archive.
os.environ["NUMBA_CACHE_DIR"] = str(compiled.COMPILED)
_numbers = itertools.count()
_clients: dict[str, Any] = {}
"""Who makes chroots, by the ZooKeeper: to connect takes longer."""
# How long an example takes says nothing where servers and other tests run beside it.
_SLOW = (HealthCheck.too_slow,)
settings.register_profile("here", deadline=None, suppress_health_check=_SLOW)
if settings.get_current_profile_name() == "default":  # in CI Hypothesis chooses its own
    settings.load_profile("here")

# make test and make quick: fewer examples, for the minutes between two edits. Each run draws the same: what fails there
# was broken by the edit. make nightly draws anew.
settings.register_profile(
    "daily", settings.get_profile(settings.get_current_profile_name()), max_examples=15, derandomize=True
)
settings.register_profile("quick", max_examples=20, deadline=None, suppress_health_check=_SLOW)
# make nightly: many more examples of every law, and ten million events against Kafka's own classes.
settings.register_profile("nightly", max_examples=500, deadline=None, suppress_health_check=_SLOW)


def pytest_configure(config: pytest.Config) -> None:
    """Draws the order, and lets tests interrupt what they start also where a shell runs them in the background.

    Such a shell ignores SIGINT, and nohup ignores SIGHUP.
    """
    if config.option.order is None:
        config.option.order = SystemRandom().randrange(10**6)
    config.option.loadscopereorder = False
    look_seldom()
    if config.option.without_servers:
        hide_java()
        if config.option.daily:  # make quick
            compiled.hide()
        if not config.getoption("--hypothesis-profile"):
            settings.load_profile("quick")
    elif config.option.daily and not config.getoption("--hypothesis-profile"):
        settings.load_profile("daily")
    if config.option.workers:
        config.pluginmanager.register(Workers(config.option.workers))
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)


def pytest_addoption(parser: pytest.Parser) -> None:
    """To write golden files, to repeat an order, and to leave out what takes long."""
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew")
    parser.addoption("--order", type=int, metavar="N", help="the tests of each module in the order of an earlier run")
    parser.addoption("--without-servers", action="store_true", help="only the tests that start no server, and no Java")
    parser.addoption("--daily", action="store_true", help="without the long tests, which make nightly runs")
    parser.addoption("--workers", type=int, metavar="N", help="this many tests at once, each module by one worker")


def pytest_report_header(config: pytest.Config) -> str:
    """How to repeat this order."""
    return f"random order within modules: --order={config.option.order}"


def pytest_collection_finish() -> None:
    """Whoever looks for garbage need not look at thousands of tests."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)  # pytest itself then brings together the tests that share a fixture's parameter
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Random within modules."""
    arrange(items, config.option.order)
    quick, daily = config.option.without_servers, config.option.daily
    left_out = {
        item
        for item in items
        if (quick and needs_server(item)) or (daily and (waits_for_night(item) or (quick and is_long(item))))
    }
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Modules that need servers are not even imported where there shall be none, nor long ones by `make quick`."""
    place = collection_path.relative_to(ROOT).as_posix() if collection_path.is_relative_to(ROOT) else ""
    left_out = {*WITH_SERVERS, *(LONG_WITHOUT_SERVERS if config.option.daily else ())}
    return (config.option.without_servers and place in left_out) or None


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[Sandbox]:
    """A running ZooKeeper."""
    with Sandbox() as sandbox, kazoo(sandbox.connect) as client:
        _clients[sandbox.connect] = client
        yield sandbox


def new_chroot(zookeeper: Sandbox) -> str:
    """The connect string of an empty chroot that nobody else has."""
    path = f"/test-{next(_numbers)}"
    client = _clients[zookeeper.connect]
    client.retry(client.create, path)
    return zookeeper.connect + path


@pytest.fixture
def chroot(zookeeper: Sandbox) -> str:
    """The connect string of an empty chroot that nobody else has."""
    return new_chroot(zookeeper)


@pytest.fixture
def znodes(chroot: str) -> Iterator[Any]:
    """A plain kazoo client in the chroot, to look at nodes and to prepare them."""
    with kazoo(chroot) as client:
        yield client


@pytest.fixture(scope="session")
def started_zookeeper_mode_broker(zookeeper: Sandbox) -> Iterator[ZooKeeperModeBroker]:
    """The broker behind `zookeeper_mode_broker`."""
    with ZooKeeperModeBroker(f"{zookeeper.connect}/zookeeper-mode") as broker:
        yield broker


def _remove_quotas(broker: KafkaBroker) -> Sequence[AlterResult]:
    with KafkaBackend(broker.bootstrap) as backend:
        quotas = backend.describe()
        return backend.alter([Alteration(entity, remove=frozenset(values)) for entity, values in quotas.items()])


@pytest.fixture
def zookeeper_mode_broker(started_zookeeper_mode_broker: ZooKeeperModeBroker) -> Iterator[ZooKeeperModeBroker]:
    """A broker in ZooKeeper mode without quotas, but with users; none are left in its ZooKeeper, nor in its memory."""
    broker = started_zookeeper_mode_broker
    yield broker
    results = _remove_quotas(broker)
    with kazoo(broker.zookeeper) as client:
        for root in znode.ENTITY_ROOTS.values():
            for name in client.get_children(root):
                if name not in USERS:
                    client.delete(f"{root}/{name}", recursive=True)
    assert [result for result in results if result.error is not None and result.entity.ip is None] == []


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A real browser without a window."""
    with Browser() as browser:
        yield browser


@pytest.fixture(scope="session")
def kraft() -> Iterator[KafkaBroker]:
    """A running broker of a current Kafka, for tests that bear the quotas that others left on it."""
    with KafkaBroker(settings=AT_ONCE) as broker:
        yield broker


@pytest.fixture(scope="session")
def configured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A broker with limits of its own, without permissions for alice, and with the request log that kquota prints."""
    logging = tmp_path_factory.mktemp("log4j") / "log4j2.yaml"
    root = "    Root:\n      level: INFO\n      AppenderRef:\n        ref: RequestAppender\n"
    logging.write_text(appender_text("log4j2") + root)
    settings = {
        "max.connection.creation.rate": "5000",
        "listener.name.plaintext.max.connection.creation.rate": "700",
        "quota.window.num": "7",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:admin",
    }
    with KafkaBroker(settings=settings, logging=logging) as broker:
        yield broker


@pytest.fixture(scope="module")
def broker(kraft: KafkaBroker) -> KafkaBroker:
    """The same, without the quotas that other modules left on it. Its users, topics and credentials may be there."""
    _remove_quotas(kraft)
    return kraft
