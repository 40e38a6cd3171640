"""What kafka-configs checks before it connects, in its order: only the first complaint is shown."""

from __future__ import annotations

from kquota.cli.kafka_configs import java
from kquota.cli.kafka_configs.failures import Refusal
from kquota.cli.kafka_configs.options import Options
from kquota.cli.kafka_configs.tool import DEFAULTS, QUOTA_TYPES

_CONNECTIONS = ("bootstrap-server", "bootstrap-controller", "zookeeper")


def check(options: Options) -> None:
    """Raises Refusal for the first thing that is wrong with the command line (`ConfigCommandOptions.checkArgs`)."""
    if options.has("alter") == options.has("describe"):
        raise Refusal("Command must include exactly one action: --describe, --alter", usage=True)
    if options.has("describe"):
        for other in ("add-config", "delete-config"):
            if options.has(other):
                raise Refusal(f'Option "[describe]" can\'t be used with option "[{other}]"', usage=True)
    _check_types(options)
    names = options.entity_names
    _check_connection(options)
    _check_names(options, any(names))
    if options.has("describe"):
        _check_describe(options, any(names))
    else:
        _check_alter(options, names)


def _check_types(options: Options) -> None:
    tool = options.tool
    types = options.entity_types
    seen: set[str] = set()
    surplus = [kind for kind in types if kind in seen or seen.add(kind)]  # type: ignore[func-returns-value]
    if surplus:
        raise Refusal(f"Duplicate entity type(s) specified: {','.join(surplus)}")
    if tool.needs_connection_first and not options.has(*_CONNECTIONS):
        raise Refusal(tool.no_connection)
    by_broker = options.has("bootstrap-server", "bootstrap-controller")
    allowed = tool.broker_types if by_broker else tool.zookeeper_types
    for kind in types:
        if kind not in allowed:
            raise Refusal(
                f"Invalid entity type {kind}, the entity type must be one of {tool.separator.join(allowed)}"
                f" with {tool.broker_option if by_broker else tool.zookeeper_option}"
            )
    if not types:
        raise Refusal("At least one entity type must be specified")
    if len(types) > 1 and set(types) != {"users", "clients"}:
        raise Refusal("Only 'users' and 'clients' entity types may be specified together")
    if options.has("entity-name", "entity-type", "entity-default") and options.has(*tool.flags, *DEFAULTS):
        raise Refusal("--entity-{type,name,default} should not be used in conjunction with specific entity flags")


def _check_connection(options: Options) -> None:
    tool = options.tool
    connections = sum(options.has(name) for name in _CONNECTIONS)
    if connections == 0:
        raise Refusal(tool.no_connection)
    if connections > 1:
        raise Refusal(tool.many_connections)
    if options.has("all") and options.has("zookeeper"):
        raise Refusal("--bootstrap-server must be specified for --all")
    if tool.checks_tls_file and options.has("zk-tls-config-file") and not options.has("zookeeper"):
        raise Refusal("Only the --zookeeper option can be used with the --zk-tls-config-file option.")


def _check_names(options: Options, named: bool) -> None:
    types = options.entity_types
    if not named:
        return
    if "brokers" in types or "broker-loggers" in types:
        for broker in _given(options, "entity-name", "broker", "broker-logger"):
            if java.parse_integer(broker, 2**31 - 1) is None:
                raise Refusal(f"The entity name for {types[0]} must be a valid integer broker id, but it is: {broker}")
    if "ips" in types:
        for ip in _given(options, "entity-name", "ip"):
            if not (ip == "<default>" and options.tool.takes_default_for_ip) and not java.resolves(ip):
                raise Refusal(f"The entity name for ips must be a valid IP or resolvable host, but it is: {ip}")


def _given(options: Options, *names: str) -> list[str]:
    return [value for name in names if (value := options.value(name)) is not None]


def _check_describe(options: Options, named: bool) -> None:
    types = options.entity_types
    with_default = {*QUOTA_TYPES, "brokers"}
    if options.tool.checks_default_of and options.has("entity-default") and with_default.isdisjoint(types):
        raise Refusal(f"--entity-default must not be specified with --describe of {','.join(types)}")
    if "broker-loggers" in types and not named:
        raise Refusal(f"{_an(options)} entity name must be specified with --describe of {','.join(types)}")


def _check_alter(options: Options, names: list[str]) -> None:
    types = options.entity_types
    if not {*QUOTA_TYPES, "brokers"}.isdisjoint(types):
        if not names:
            raise Refusal(options.tool.nothing_named)
    elif not any(names):
        raise Refusal(f"{_an(options)} entity name must be specified with --alter of {','.join(types)}")
    if options.has("add-config") and options.has("add-config-file"):
        raise Refusal("Only one of --add-config or --add-config-file must be specified")
    if not options.has("add-config", "add-config-file", "delete-config"):
        raise Refusal(
            "At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter"
        )


def _an(options: Options) -> str:
    return options.tool.nothing_named[:2]
