"""The configs of brokers (KIP-226, KIP-339, KIP-700), and the request loggers of brokers and controllers (KIP-412).

A broker answers for itself and for the cluster-wide default only, so each is asked on a connection of its own. The
own transport does it: the AdminClient of confluent-kafka 2.16 cannot name the default, and keeps one synonym of a name.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from kquota.backends import Closable, wire
from kquota.backends.addresses import Server
from kquota.backends.kafka.codes import NONE
from kquota.backends.kafka.connection import Deadline
from kquota.backends.kafka.nodes import Nodes
from kquota.backends.kafka.security import KafkaSecurity
from kquota.backends.kafka.session import PAUSE_S
from kquota.backends.serverprops import inter_broker_of, listeners_of, settings_of
from kquota.core.change.broker import (
    RATE,
    Broker,
    BrokerAlteration,
    BrokerAlterResult,
    BrokerConfig,
    BrokerSnapshot,
    Setting,
    Source,
    broker_text,
    is_shown,
    level_of,
    listener_of,
    rank,
    read_value,
)
from kquota.core.change.plan import Cluster
from kquota.core.change.recording import ANCESTORS, LOGGER, Level, Space
from kquota.core.change.recording import level_of as logger_level
from kquota.core.enforcement.generation import BrokerSettings
from kquota.core.enforcement.sensors import protected_listener
from kquota.core.quotas.entity import DEFAULT
from kquota.core.quotas.version import CONNECTION_RATES, Since, Version, format_version
from kquota.errors import InputError, Rejected

_SOURCES: Final = dict(enumerate(Source, 2))
"""By their numbers in `DescribeConfigsResponse.ConfigSource`, which are in the order of `Source`, from 2 on."""


class KafkaBrokerConfigs(Closable):
    """The limits of brokers, and the settings by which they measure quotas. A context manager, as a `QuotaBackend`.

    `bootstrap` is `host:port[,host:port]`; every broker must be reachable where it says that clients of that listener
    find it. Each wait for one of them is at most `timeout_s` seconds. Raises InputError for a malformed address.
    """

    def __init__(self, bootstrap: str, *, timeout_s: float = 10.0, security: KafkaSecurity | None = None) -> None:
        self._nodes = Nodes(bootstrap, timeout_s=timeout_s, security=security)

    def close(self) -> None:
        self._nodes.close()

    def describe(self, broker: Broker | None = None) -> BrokerSnapshot:
        """The configs of one broker, or of the cluster-wide default and all brokers.

        Raises InputError for a broker that there is not; Unreachable, Unauthorized, Rejected.
        """
        if broker is not None:
            return {broker: self._configs(broker)}
        brokers: list[Broker] = [DEFAULT, *sorted(self.addresses())]
        return {id: self._configs(id) for id in brokers}

    def alter(self, alteration: BrokerAlteration, *, validate_only: bool = False) -> BrokerAlterResult:
        """Applies the alteration as a whole; with `validate_only` nothing is written and `after` is what would be.

        Raises InputError for what the broker does not take, and as `describe` does.
        """
        broker = alteration.broker
        before = self._rates(broker)
        result = BrokerAlterResult(broker, before, alteration.applied_to(before))
        if alteration.set:
            self._check_age(broker)
            if broker is not DEFAULT:
                self._check_listeners(broker, alteration)
        if result.changed:
            changes = {name: str(rate) for name, rate in alteration.set.items()}
            removed = dict.fromkeys(sorted(alteration.remove))
            self._nodes.alter_configs(
                wire.BROKER_RESOURCE, _node(broker), {**changes, **removed}, validate_only=validate_only
            )
        return result

    def wait_visible(self, result: BrokerAlterResult, *, timeout_s: float = 10.0) -> bool:
        """Waits until the broker shows what the result changed; returns whether it did in time."""
        patience = Deadline(timeout_s)
        while self._rates(result.broker) != dict(result.after):
            if not patience.left:
                return False
            time.sleep(min(PAUSE_S, patience.left))
        return True

    def _rates(self, broker: Broker) -> dict[str, int]:
        """The rates that are set for that broker itself, not those that it inherits."""
        level = level_of(broker)
        values = {config.name: config.value_at(level) for config in self._configs(broker) if config.is_alterable}
        return {name: value for name, value in values.items() if isinstance(value, int)}

    def _configs(self, broker: Broker) -> tuple[BrokerConfig, ...]:
        read = self._read(broker)
        shown = [_config(entry) for entry in read if is_shown(entry.name)]
        if broker is not DEFAULT:
            properties = _properties(read)
            inter_broker = protected_listener(listeners_of(properties), inter_broker_of(properties))
            shown = [
                replace(config, is_protected=listener.upper() == inter_broker)
                if (listener := listener_of(config.name)) is not None
                else config
                for config in shown
            ]
        return tuple(sorted(shown, key=lambda config: rank(config.name)))

    def _check_age(self, broker: Broker) -> None:
        """Raises Rejected by a broker that would take the rate, and does not know it."""
        with self._nodes.asking(_node(broker)) as session:
            version = session.version
        if version is not None and version < CONNECTION_RATES:
            since = Since(CONNECTION_RATES, "KIP-612")
            raise Rejected(f"{RATE} is not enforced by Kafka {format_version(version)}: {since}")

    def _check_listeners(self, broker: int, alteration: BrokerAlteration) -> None:
        """Raises InputError for the rate of a listener that the broker has not: it would take it, to no effect."""
        listeners = next((entry.value or "" for entry in self._read(broker) if entry.name == "listeners"), "")
        known = {part.partition("://")[0].strip().lower() for part in listeners.split(",")}
        for name in alteration.set:
            listener = listener_of(name)
            if listener is not None and listener not in known:
                raise InputError(
                    f"{broker_text(broker)} has no listener {listener!r}", hint=f"listeners: {', '.join(sorted(known))}"
                )

    def settings(self, broker: int, version: Version) -> BrokerSettings:
        """By which settings a live broker measures. Raises what describe raises."""
        return settings_of(_properties(self._read(broker)), broker_text(broker), version)

    def _read(self, broker: Broker) -> Any:
        # Which listeners have a rate is not known beforehand: a filter of keys takes whole names only.
        return self._nodes.configs(wire.BROKER_RESOURCE, _node(broker))

    def addresses(self) -> dict[int, Server]:
        """Where the brokers are that are alive."""
        return self._nodes.addresses()


def _properties(configs: Sequence[wire.DescribeConfigsResourceResult]) -> dict[str, str]:
    """The values of a broker as properties, its listeners without those of a controller in the same process."""
    properties = {config.name: config.value for config in configs if config.value is not None}
    controllers = {name.strip().upper() for name in properties.get("controller.listener.names", "").split(",")}
    listeners = [
        listener
        for listener in properties.get("listeners", "").split(",")
        if listener.partition("://")[0].strip().upper() not in controllers
    ]
    return {**properties, "listeners": ",".join(listeners)}


def _node(broker: Broker) -> int | None:
    return None if broker is DEFAULT else broker


def _config(entry: wire.DescribeConfigsResourceResult) -> BrokerConfig:
    """An entry and its synonyms, of which the first is the one in effect."""
    settings = [
        Setting(synonym.name, read_value(entry.name, synonym.value), _SOURCES[synonym.source])
        for synonym in entry.synonyms
        if synonym.source in _SOURCES
    ]
    source = _SOURCES.get(entry.config_source, Source.DEFAULT_CONFIG)
    return BrokerConfig(entry.name, read_value(entry.name, entry.value), source, tuple(settings[1:]))


class KafkaLoggers(Closable):
    """The request loggers of a cluster's brokers or controllers. A context manager, as a `QuotaBackend`.

    `bootstrap` is `host:port[,host:port]` of brokers (Kafka 2.8 and later), or with `controllers` of KRaft controllers
    (Kafka 3.7 and later). Raises InputError for a malformed address.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        timeout_s: float = 10.0,
        security: KafkaSecurity | None = None,
        controllers: bool = False,
    ) -> None:
        self._nodes = Nodes(bootstrap, timeout_s=timeout_s, security=security, controllers=controllers)
        self._address = f"{'controller' if controllers else 'kafka'}://{bootstrap}"

    @property
    def noun(self) -> str:
        """What a node is called: `broker` or `controller`."""
        return self._nodes.noun

    def close(self) -> None:
        self._nodes.close()

    def place(self) -> Cluster:
        """Which cluster it is. Raises Unreachable, Unauthorized, Rejected."""
        return Cluster(self._address, self._nodes.cluster_id())

    def nodes(self) -> tuple[int, ...]:
        """The ids of the nodes that are alive. Raises as `place` does."""
        return tuple(sorted(self._nodes.addresses()))

    def level(self, node: int) -> Level:
        """The level of a node's request logger. Raises InputError for a node that is not alive, and as `place` does."""
        configs = self._nodes.configs(wire.LOGGER_RESOURCE, node, [LOGGER, *ANCESTORS])
        level = logger_level({config.name: config.value for config in configs if config.value is not None})
        if level is None:
            raise Rejected(
                f"{self.noun} {node} has no logger {LOGGER}", hint="its logging is not log4j, which Kafka changes"
            )
        return level

    def set_level(self, node: int, level: str | None) -> None:
        """Sets the level of a node's request logger; None takes its own level away, so that it has an ancestor's.

        Raises Uncertain where an answer was lost, and as `level` does.
        """
        self._nodes.alter_configs(wire.LOGGER_RESOURCE, node, {LOGGER: level})

    def spaces(self, node: int) -> tuple[Space, ...]:
        """The volumes of a broker's log dirs. Raises Rejected where the node does not say, and as `level` does."""
        request = wire.DescribeLogDirsRequest([])
        with self._nodes.asking(node) as session:
            (answer,) = session.ask([request], wire.DescribeLogDirsResponse)
        return tuple(
            Space(node, directory.log_dir, _known(directory.total_bytes), _known(directory.usable_bytes))
            for directory in answer.results
            if directory.error_code == NONE
        )


def _known(size: int) -> int | None:
    return None if size < 0 else size
