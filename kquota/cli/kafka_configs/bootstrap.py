"""The current tool on brokers: describe and alter by the two quota messages, as Kafka's AdminClient sends them.

Sources: `kafka.admin.ConfigCommand` (`alterConfig`, `alterQuotaConfigs`, `describeQuotaConfigs`) and
`org.apache.kafka.clients.admin.KafkaAdminClient`. What is a valid value, the broker says.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from kquota.cli.kafka_configs import adminclient, configs, java, journal
from kquota.cli.kafka_configs.failures import Failure, Refusal
from kquota.cli.kafka_configs.options import Options
from kquota.core.java import string_hash
from kquota.core.quotas.entity import DEFAULT, Entity, EntityType
from kquota.core.quotas.filter import ANY, Match, QuotaFilter
from kquota.core.quotas.quota import QuotaKey
from kquota.core.quotas.snapshot import Values
from kquota.errors import InputError, Rejected, Unauthorized, Unreachable

if TYPE_CHECKING:
    from kquota.backends.kafka import KafkaSecurity
    from kquota.backends.kafka.raw import BrokerError, RawQuota, ScramUser

_PATIENT = True
"""Whether brokers that are not up yet are waited for."""
_DESCRIBE_MS = 30_000
"""How long Kafka's tool waits for a describe; of a client that waits less, the client's own error comes first."""
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


_UNCERTAIN = (-1, 7, 13)
"""The errors that leave open whether the request was carried out."""


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
        from kquota.backends.kafka.raw import RawQuotas

        self._to_controllers = options.has("bootstrap-controller")
        address = options.value("bootstrap-controller" if self._to_controllers else "bootstrap-server") or ""
        self.name = f"kafka://{address}"
        """As the journal has it."""
        file = options.value("command-config")
        properties = {} if file is None else configs.load_properties(file)
        if options.tool.checks_addresses:
            adminclient.check_list(address)
        adminclient.check_settings(properties)
        servers = adminclient.servers(address)
        if not any(_is_known(server.host, server.port) for server in servers.servers):
            raise adminclient.not_created(f"no host of {address} is known")
        self._timeout_ms = adminclient.api_timeout_ms(properties)
        self._raw = RawQuotas(
            servers, timeout_s=max(self._timeout_ms, 1) / 1000, security=_security(file), patient=_PATIENT
        )

    def __enter__(self) -> _Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self._raw.close()

    def describe(self, filter: QuotaFilter) -> list[RawQuota]:
        """The entities that match, in the broker's order."""
        with self._failures("describeClientQuotas"):
            return self._raw.describe(filter)

    def scram_users(self, names: Sequence[str]) -> list[ScramUser]:
        """The users with SCRAM credentials, of those named or of all."""
        with self._failures("describeUserScramCredentials"):
            return self._raw.scram_users(names)

    def alter(self, entity: Mapping[str, str | None], values: Mapping[str, float], remove: Sequence[str]) -> None:
        """Changes one entity, all of it or nothing."""
        with self._failures("alterClientQuotas"):
            self._raw.alter(entity, values, remove)

    @contextlib.contextmanager
    def _failures(self, call: str) -> Iterator[None]:
        """Turns an error of a request into the exception of Java's that it stands for; `call` is Kafka's name of it."""
        from kquota.backends.kafka.raw import BrokerError
        from kquota.backends.kafka.session import Unanswered

        if self._to_controllers:
            raise Failure(
                _EXECUTION,
                f"{_ERRORS}UnsupportedEndpointTypeException: This Admin API is not yet supported when communicating"
                " directly with the controller quorum.",
            )
        try:
            yield
        except BrokerError as error:
            raise Failure(_EXECUTION, _answer(error), uncertain=error.code in _UNCERTAIN) from None
        except Unreachable as error:
            uncertain = isinstance(error, Unanswered)
            if self._timeout_ms >= _DESCRIBE_MS:
                exception, why = "java.util.concurrent.TimeoutException", None
            else:
                exception = _EXECUTION
                why = f"{_ERRORS}TimeoutException: Timed out waiting for a node assignment. Call: {call}"
            raise Failure(exception, why, note=error.message, uncertain=uncertain) from None
        except Unauthorized as error:
            raise Failure(_EXECUTION, f"{_ERRORS}SaslAuthenticationException: {error.message}") from None
        except Rejected as error:
            raise Failure(_EXECUTION, f"{_ERRORS}UnsupportedVersionException: {error.message}") from None


def _answer(error: BrokerError) -> str:
    """The exception of Java's for what a broker answered."""
    return f"{_ERRORS}{_EXCEPTIONS.get(error.code, 'UnknownServerException')}: {error.message}"


def _security(file: str | None) -> KafkaSecurity:
    from kquota.backends.kafka import KafkaSecurity

    if file is None:
        return KafkaSecurity()
    from pathlib import Path

    from kquota.cli.security import kafka_security

    try:
        return kafka_security(Path(file))
    except InputError as error:
        raise adminclient.not_created(error.message) from None


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
        keys = java.hash_map_order((key, string_hash(key)) for key in values)
        pairs = ", ".join(f"{key}={java.double_text(values[key])}" for key in keys)
        write(f"Quota configs for {_title(entity)} are {pairs}")
    # Kafka's tool knows credentials of named users only, so it does not ask where a default or a client is named.
    if "users" in options.entity_types and "clients" not in options.entity_types and "" not in options.entity_names:
        _describe_credentials(cluster, options.entity_names, write)


def _describe_credentials(cluster: _Cluster, names: Sequence[str], write: Callable[[str], None]) -> None:
    """A line for each user that has SCRAM credentials, without their keys, which no broker shows."""
    for user in cluster.scram_users(names):
        principal = f"user-principal '{user.name}'"
        if user.error is not None:
            write(
                f"Error retrieving SCRAM credential configs for {principal}: ExecutionException: {_answer(user.error)}"
            )
            continue
        pairs = ", ".join(f"{mechanism}=iterations={iterations}" for mechanism, iterations in user.credentials)
        write(f"SCRAM credential configs for {principal} are {pairs}")


def _entity_hash(entity: Mapping[str, str | None]) -> int:
    """`ClientQuotaEntity.hashCode`."""
    parts = (string_hash(kind) ^ (0 if name is None else string_hash(name)) for kind, name in entity.items())
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
    adding, deleting = configs.to_add(options, write), configs.to_delete(options)
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
    entity = {_TYPES[kind].value: name or None for kind, name in pairs}
    after = {key: value for key, value in {**stored, **values}.items() if key not in deleting}
    with journal.recording(cluster.name) as begin:
        with contextlib.suppress(InputError):  # a name that kquota does not take is no reason not to alter
            begin(_entity_of(entity), _values_of(stored), _values_of(after))
        cluster.alter(entity, values, deleting)


def _entity_of(entity: Mapping[str, str | None]) -> Entity:
    names = {kind: DEFAULT if name is None else name for kind, name in entity.items()}
    return Entity(user=names.get("user"), client_id=names.get("client-id"), ip=names.get("ip"))


def _values_of(quotas: Mapping[str, float]) -> Values:
    """The quotas that are in a unit of kquota's: what no broker could use is left out."""
    from kquota.backends.kafka.quotas import value_of

    return {
        key: value
        for key in QuotaKey
        if key.value in quotas and (value := value_of(key, quotas[key.value])) is not None
    }


def _done(kind: str, name: str) -> str:
    if name:
        return f"Completed updating config for {kind.removesuffix('s')} {name}."
    return f"Completed updating default config for {kind} in the cluster."
