"""The configs of brokers that ZooKeeper holds: what is set dynamically, below `/config/brokers`. Read only.

A running broker checks a value before it is stored, which a writer to ZooKeeper cannot do in its place: the tool of
Kafka 2.8 writes there only while the broker is down. Source: `kafka.admin.ConfigCommand` of Kafka 2.8.
"""

from kquota.backends import BrokerConfigs
from kquota.backends.addresses import Address
from kquota.backends.znode import NodeConfig
from kquota.backends.zookeeper.security import ZooKeeperSecurity
from kquota.backends.zookeeper.session import Session
from kquota.core.change.broker import (
    Broker,
    BrokerAlteration,
    BrokerAlterResult,
    BrokerConfig,
    BrokerSnapshot,
    Setting,
    broker_text,
    is_shown,
    level_of,
    rank,
    read_value,
)
from kquota.core.quotas.entity import DEFAULT
from kquota.errors import Rejected

_ALIVE = "/brokers/ids"
_CONFIGS = "/config/brokers"


class ZooKeeperBrokerConfigs(BrokerConfigs):
    """Reads the dynamic configs of brokers; see `BrokerConfigs`. What server.properties say is not known here.

    `connect` is `host:port[,host:port][/chroot]`. Connects at the first use; each wait is at most `timeout_s` seconds.
    Raises InputError for a malformed address.
    """

    def __init__(self, connect: str, *, timeout_s: float = 10.0, security: ZooKeeperSecurity | None = None) -> None:
        self._session = Session(Address.parse(connect), timeout_s, security or ZooKeeperSecurity())
        self._is_open = False

    def close(self) -> None:
        self._session.close()

    def describe(self, broker: Broker | None = None) -> BrokerSnapshot:
        if not self._is_open:
            self._session.open()
            self._is_open = True
        brokers: list[Broker] = [DEFAULT, *self._ids()] if broker is None else [broker]
        default = self._settings(DEFAULT)
        return {id: _configs([*([] if id is DEFAULT else self._settings(id)), *default]) for id in brokers}

    def alter(self, alteration: BrokerAlteration, *, validate_only: bool = False) -> BrokerAlterResult:
        raise Rejected(
            f"{broker_text(alteration.broker)}: the configs of brokers are not altered through ZooKeeper",
            hint="give --bootstrap-server: a running broker checks the value, and takes it at once",
        )

    def wait_visible(self, result: BrokerAlterResult, *, timeout_s: float = 10.0) -> bool:
        return True

    def _ids(self) -> list[int]:
        """The brokers that are alive or have a config."""
        names = {name for children in self._session.children([_ALIVE, _CONFIGS]) for name in children or ()}
        return sorted(int(name) for name in names if name.isdecimal())

    def _settings(self, broker: Broker) -> list[Setting]:
        name = broker.value if broker is DEFAULT else str(broker)
        (node,) = self._session.nodes([f"{_CONFIGS}/{name}"], fresh=True)
        entries = NodeConfig.decode(None if node is None else node.data).entries
        return [
            Setting(name, read_value(name, value), level_of(broker))
            for name, value in entries.items()
            if isinstance(value, str) and is_shown(name)
        ]


def _configs(settings: list[Setting]) -> tuple[BrokerConfig, ...]:
    """The configs that those settings make up, of which the earlier is the stronger."""
    names = sorted({setting.name for setting in settings}, key=rank)
    configs = []
    for name in names:
        first, *rest = (setting for setting in settings if setting.name == name)
        configs.append(BrokerConfig(name, first.value, first.source, tuple(rest)))
    return tuple(configs)
