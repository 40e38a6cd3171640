"""The current tool on brokers: describe and alter by the two quota messages, as Kafka's AdminClient sends them.

Sources: `kafka.admin.ConfigCommand` (`alterConfig`, `alterQuotaConfigs`, `describeQuotaConfigs`) and
`org.apache.kafka.clients.admin.KafkaAdminClient`. What is a valid value, the broker says.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from kquota.cli.kafka_configs import configs, java
from kquota.cli.kafka_configs.failures import Failure, Refusal
from kquota.cli.kafka_configs.options import Options
from kquota.core.entity import DEFAULT, EntityType
from kquota.core.filter import ANY, Match, QuotaFilter
from kquota.core.quota import QuotaKey
from kquota.errors import InputError, Rejected, Unauthorized, Unreachable

if TYPE_CHECKING:
    from kquota.backends.kafka import KafkaSecurity
    from kquota.backends.kafka.raw import RawQuota

_TIMEOUT_S = 30.0
_TYPES = {kind.plural: kind for kind in EntityType}
_IP_KEYS = frozenset({QuotaKey.CONNECTION_CREATION_RATE.value})
_QUOTA_KEYS = frozenset(key.value for key in QuotaKey) - _IP_KEYS
_EXECUTION = "java.util.concurrent.ExecutionException"
_ERRORS = "org.apache.kafka.common.errors."
_EXCEPTIONS = {
    -1: "UnknownServerException",
    7: "TimeoutException",
    31: "ClusterAuthorizationException",
    35: "UnsupportedVersionException",
    40: "InvalidConfigurationException",
    41: "NotControllerException",
    42: "InvalidRequestException",
    44: "PolicyViolationException",
    89: "ThrottlingQuotaExceededException",
}


def run(options: Options, write: Callable[[str], None]) -> None:
    """Executes a checked command; `write` prints a line. Raises Refusal and Failure."""
    with _Cluster(options) as cluster:
        if options.has("alter"):
            if len(options.entity_types) != len(options.entity_names):
                raise Refusal("An entity name must be specified for every entity type")
            _alter(cluster, options, write)
        else:
            _describe(cluster, options, write)


class _Cluster:
    """The brokers. Nothing is connected before the first request, as in Kafka's AdminClient."""

    def __init__(self, options: Options) -> None:
        from kquota.backends.kafka import Servers
        from kquota.backends.kafka.raw import RawQuotas

        security = _security(options.value("command-config"))
        self._to_controllers = options.has("bootstrap-controller")
        address = options.value("bootstrap-controller" if self._to_controllers else "bootstrap-server") or ""
        exception, message = "org.apache.kafka.common.KafkaException", "Failed to create new KafkaAdminClient"
        try:
            servers = Servers.parse(address)
        except InputError as error:
            raise Failure(exception, message, note=error.message) from None
        if not any(_is_known(server.host, server.port) for server in servers.servers):
            raise Failure(exception, message, note=f"no host of {address} is known")
        self._raw = RawQuotas(address, timeout_s=_TIMEOUT_S, security=security)

    def __enter__(self) -> _Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self._raw.close()

    def describe(self, filter: QuotaFilter) -> list[RawQuota]:
        """The entities that match, in the broker's order."""
        with self._failures():
            return self._raw.describe(filter)

    def alter(self, entity: Mapping[str, str | None], values: Mapping[str, float], remove: Sequence[str]) -> None:
        """Changes one entity, all of it or nothing."""
        with self._failures():
            self._raw.alter(entity, values, remove)

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        """Turns an error of a request into the exception of Java's that it stands for."""
        from kquota.backends.kafka.raw import BrokerError

        if self._to_controllers:
            raise Failure(
                _EXECUTION,
                f"{_ERRORS}UnsupportedEndpointTypeException: This Admin API is not yet supported when communicating"
                " directly with the controller quorum.",
            )
        try:
            yield
        except BrokerError as error:
            exception = _EXCEPTIONS.get(error.code, "UnknownServerException")
            raise Failure(_EXECUTION, f"{_ERRORS}{exception}: {error.message}") from None
        except Unreachable as error:
            raise Failure("java.util.concurrent.TimeoutException", note=error.message) from None
        except Unauthorized as error:
            raise Failure(_EXECUTION, f"{_ERRORS}SaslAuthenticationException: {error.message}") from None
        except Rejected as error:
            raise Failure(_EXECUTION, f"{_ERRORS}UnsupportedVersionException: {error.message}") from None


def _security(file: str | None) -> KafkaSecurity:
    from kquota.backends.kafka import KafkaSecurity

    if file is None:
        return KafkaSecurity()
    configs.load_properties(file)  # for Java's own errors
    from pathlib import Path

    from kquota.cli.security import kafka_security

    return kafka_security(Path(file))


def _is_known(host: str, port: int) -> bool:
    try:
        socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    return True


# --- Describe ----------------------------------------------------------------------------------------------------


def _filter(options: Options) -> QuotaFilter:
    """What is asked for: types and names by position, a type without a name standing for all of them."""
    types, names = options.entity_types, options.entity_names
    if len(names) > len(types):
        raise Refusal("More entity names specified than entity types")
    matches: list[Match] = [name or DEFAULT for name in names]
    matches += [ANY] * (len(types) - len(names))
    return QuotaFilter({_TYPES[kind]: match for kind, match in zip(types, matches, strict=True)}, strict=True)


def _describe(cluster: _Cluster, options: Options, write: Callable[[str], None]) -> None:
    quotas = cluster.describe(_filter(options))
    hashes = [(str(index), _entity_hash(quota.entity)) for index, quota in enumerate(quotas)]
    for index in java.hash_map_order(hashes):
        entity, values = quotas[int(index)]
        keys = java.hash_map_order((key, java.string_hash(key)) for key in values)
        pairs = ", ".join(f"{key}={java.double_text(values[key])}" for key in keys)
        write(f"Quota configs for {_title(entity)} are {pairs}")


def _entity_hash(entity: Mapping[str, str | None]) -> int:
    """`ClientQuotaEntity.hashCode`."""
    parts = (java.string_hash(kind) ^ (0 if name is None else java.string_hash(name)) for kind, name in entity.items())
    return (31 + sum(parts)) & 0xFFFFFFFF


def _title(entity: Mapping[str, str | None]) -> str:
    titles = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}
    parts = []
    for kind, title in titles.items():
        if kind in entity:
            name = entity[kind]
            parts.append(f"the default {title}" if name is None else f"{title} '{name}'")
    return ", ".join(parts)


# --- Alter -------------------------------------------------------------------------------------------------------


def _alter(cluster: _Cluster, options: Options, write: Callable[[str], None]) -> None:
    types, names = options.entity_types, options.entity_names
    adding, deleting = configs.to_add(options), configs.to_delete(options)
    if types[0] == "ips":
        unknown = java.immutable_order(key for key in (*adding, *deleting) if key not in _IP_KEYS)
        if unknown:
            raise Refusal(
                "Only connection quota configs can be added for 'ips' using --bootstrap-server."
                f" Unexpected config names: {','.join(unknown)}"
            )
    elif _is_scram(types, names, adding, deleting):
        # Nothing at all to do is what Kafka does as an alter of credentials; it needs one user for that.
        if len(names) != 1:
            raise Failure(
                "java.lang.IllegalStateException",
                "Altering user SCRAM credentials should never occur for more zero or multiple users:"
                f" List({', '.join(names)})",
            )
        if adding or deleting:
            raise Refusal("kquota: SCRAM credentials are no quotas: alter them with Kafka's own kafka-configs")
        write(_done(types[0], names[0]))
        return
    _alter_quotas(cluster, options, adding, deleting)
    write(_done(types[0], names[0]))


def _is_scram(types: list[str], names: list[str], adding: dict[str, str], deleting: list[str]) -> bool:
    """Whether no quota is to be altered. Raises Refusal for keys that cannot be altered, or not together."""
    with_client = types[0] == "clients" or len(types) == 2
    for keys, verb in ((list(adding), "added"), (deleting, "deleted")):
        unknown = [key for key in keys if key not in _QUOTA_KEYS and key not in configs.SCRAM]
        scram = [key for key in keys if key in configs.SCRAM]
        unexpected = [*unknown, *scram] if with_client else unknown
        if unexpected:
            is_set = verb == "added"
            shown = (
                _shown_set(adding, unknown, scram if with_client else []) if is_set else configs.shown_keys(unexpected)
            )
            raise Refusal(
                f"Only quota {'' if with_client else 'and SCRAM credential '}configs can be {verb} for"
                f" '{'clients' if with_client else 'users'}' using --bootstrap-server."
                f" Unexpected config names: {shown}"
            )
    has_quota = any(key in _QUOTA_KEYS for key in (*adding, *deleting))
    if any(key in configs.SCRAM for key in (*adding, *deleting)):
        if "" in names:
            raise Refusal(
                "The use of --entity-default or --user-defaults is not allowed with User SCRAM Credentials using"
                " --bootstrap-server."
            )
        if has_quota:
            raise Refusal(
                "Cannot alter both quota and SCRAM credential configs simultaneously for 'users' using"
                " --bootstrap-server."
            )
    return not has_quota


def _shown_set(adding: dict[str, str], unknown: list[str], scram: list[str]) -> str:
    """How Scala prints keys that were filtered out of what is to be added: in the order of the whole map."""
    order = java.immutable_order(adding)
    both = [*filter(unknown.__contains__, order), *filter(scram.__contains__, order)]
    if scram and len(both) > 4:
        return f"HashSet({', '.join(java.immutable_order(both))})"
    return f"Set({', '.join(both)})"


def _alter_quotas(cluster: _Cluster, options: Options, adding: dict[str, str], deleting: list[str]) -> None:
    quotas = cluster.describe(_filter(options))
    stored = quotas[0].values if quotas else {}
    missing = [key for key in deleting if key not in stored]
    if missing:
        raise Refusal(f"Invalid config(s): {','.join(missing)}")
    values = {}
    for key in java.immutable_order(adding):
        number = java.parse_double(adding[key])
        if number is None:
            raise Refusal(f"Cannot parse quota configuration value for {key}: {adding[key]}")
        values[key] = number
    pairs = zip(options.entity_types, options.entity_names, strict=True)
    cluster.alter({_TYPES[kind].value: name or None for kind, name in pairs}, values, deleting)


def _done(kind: str, name: str) -> str:
    if name:
        return f"Completed updating config for {kind.removesuffix('s')} {name}."
    return f"Completed updating default config for {kind} in the cluster."
