"""The current tool on brokers: describe and alter by the two quota messages. What is a valid value, the broker says."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kquota.backends.clientprops import kafka_security
from kquota.backends.kafka.quotas import value_of
from kquota.backends.kafka.raw import BrokerError, RawQuotas
from kquota.backends.kafka.security import KafkaSecurity
from kquota.backends.kafka.session import Unanswered
from kquota.backends.properties import read_properties
from kquota.cli.kafka_configs import configs, journal
from kquota.cli.kafka_configs.options import Options, Refusal
from kquota.cli.security import ask
from kquota.core.java import hash_order, string_hash
from kquota.core.quotas.entity import DEFAULT, Entity, EntityType
from kquota.core.quotas.quota import QuotaKey
from kquota.core.quotas.selector import ANY, Match, QuotaFilter
from kquota.core.quotas.snapshot import Values
from kquota.errors import InputError, Uncertain

_PATIENT = True
"""Whether brokers that are not up yet are waited for."""
_TYPES = {kind.plural: kind for kind in EntityType}
_TITLES = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}
_IP_KEYS = {QuotaKey.CONNECTION_CREATION_RATE.value}
_QUOTA_KEYS = {key.value for key in QuotaKey} - _IP_KEYS
_UNCERTAIN = (-1, 7, 13)
"""The errors that leave open whether the request was carried out."""


def run(options: Options, write: Callable[[str], None]) -> None:
    """Executes a checked command; `write` prints a line. Raises Refusal and KquotaError."""
    if options.has("bootstrap-controller"):
        raise Refusal("quotas cannot be asked of the controllers: use --bootstrap-server")
    if options.has("alter"):
        if len(options.entity_types) != len(options.entity_names):
            raise Refusal("An entity name must be specified for every entity type")
        _alter(options, write)
    else:
        with _opened(options) as raw:
            _describe(raw, options, write)


def _opened(options: Options) -> RawQuotas:
    """The brokers; nothing is connected before the first request."""
    file = options.value("command-config")
    properties = {} if file is None else read_properties(Path(file))
    given = [properties.get(name, "").strip() for name in ("request.timeout.ms", "default.api.timeout.ms")]
    timeout_s = max((int(text) / 1000 for text in given if text.isdecimal()), default=60.0)
    login = KafkaSecurity() if file is None else kafka_security(Path(file), ask)
    return RawQuotas(
        options.value("bootstrap-server") or "", timeout_s=max(timeout_s, 0.001), security=login, patient=_PATIENT
    )


def _filter(options: Options) -> QuotaFilter:
    """What is asked for: types and names by position, a type without a name standing for all of them."""
    types, names = options.entity_types, options.entity_names
    if len(names) > len(types):
        raise Refusal("More entity names specified than entity types")
    matches: list[Match] = [name or DEFAULT for name in names]
    matches += [ANY] * (len(types) - len(names))
    return QuotaFilter({_TYPES[kind]: match for kind, match in zip(types, matches, strict=True)}, strict=True)


def _describe(raw: RawQuotas, options: Options, write: Callable[[str], None]) -> None:
    quotas = raw.describe(_filter(options))
    for quota in hash_order(quotas, lambda quota: _entity_hash(quota.entity), room=len(quotas)):
        keys = hash_order(list(quota.values), string_hash, room=len(quota.values))
        pairs = ", ".join(f"{key}={configs.double_text(quota.values[key])}" for key in keys)
        names = [(title, quota.entity[kind]) for kind, title in _TITLES.items() if kind in quota.entity]
        titles = [f"the default {title}" if name is None else f"{title} '{name}'" for title, name in names]
        write(f"Quota configs for {', '.join(titles)} are {pairs}")
    # Kafka's tool knows credentials of named users only, so it does not ask where a default or a client is named.
    if "users" in options.entity_types and "clients" not in options.entity_types and "" not in options.entity_names:
        for user in raw.scram_users(options.entity_names):
            principal = f"user-principal '{user.name}'"
            if user.error is not None:
                write(f"Error retrieving SCRAM credential configs for {principal}: {user.error.message}")
                continue
            pairs = ", ".join(f"{mechanism}=iterations={iterations}" for mechanism, iterations in user.credentials)
            write(f"SCRAM credential configs for {principal} are {pairs}")


def _entity_hash(entity: Mapping[str, str | None]) -> int:
    """`ClientQuotaEntity.hashCode`: it decides in which order lines are printed."""
    return 31 + sum(string_hash(kind) ^ (0 if name is None else string_hash(name)) for kind, name in entity.items())


def _alter(options: Options, write: Callable[[str], None]) -> None:
    types, names = options.entity_types, options.entity_names
    adding, deleting = configs.to_add(options), configs.to_delete(options)
    known = _IP_KEYS if types[0] == "ips" else _QUOTA_KEYS
    scram = [key for key in (*adding, *deleting) if key in configs.SCRAM and types == ["users"]]
    unknown = [key for key in (*adding, *deleting) if key not in known and key not in scram]
    if unknown:
        raise Refusal(
            f"Only {'connection quota' if types[0] == 'ips' else 'quota'} configs can be altered for '{types[0]}' using"
            f" --bootstrap-server. Unexpected config names: {', '.join(unknown)}"
        )
    if scram:
        raise Refusal(configs.NO_QUOTAS)
    if types == ["users"] and not adding and not deleting and len(names) != 1:
        raise Refusal("there is nothing to alter")
    if adding or deleting or types != ["users"]:
        with _opened(options) as raw:
            _alter_quotas(raw, options, adding, deleting)
    kind, name = types[0], names[0]
    done = f"{kind.removesuffix('s')} {name}." if name else f"{kind} in the cluster."
    write(f"Completed updating {'' if name else 'default '}config for {done}")


def _alter_quotas(raw: RawQuotas, options: Options, adding: dict[str, str], deleting: Sequence[str]) -> None:
    quotas = raw.describe(_filter(options))
    stored = quotas[0].values if quotas else {}
    missing = [key for key in deleting if key not in stored]
    if missing:
        raise Refusal(f"Invalid config(s): {','.join(missing)}")
    values = {}
    for key, text in adding.items():
        number = configs.parse_double(text)
        if number is None:
            raise Refusal(f"Cannot parse quota configuration value for {key}: {text}{configs.advice(key, text)}")
        values[key] = number
    pairs = zip(options.entity_types, options.entity_names, strict=True)
    entity = {_TYPES[kind].value: name or None for kind, name in pairs}
    after = {key: value for key, value in {**stored, **values}.items() if key not in deleting}
    with journal.recording(f"kafka://{options.value('bootstrap-server')}") as begin:
        with contextlib.suppress(InputError):  # a name that kquota does not take is no reason not to alter
            named = {EntityType(kind): name or DEFAULT for kind, name in entity.items()}
            begin(Entity.of(named), _values_of(stored), _values_of(after))
        try:
            raw.alter(entity, values, deleting)
        except BrokerError as error:
            if error.code in _UNCERTAIN:
                raise Uncertain(error.message) from None
            raise
        except Unanswered as error:
            raise Uncertain(error.message) from None


def _values_of(quotas: Mapping[str, float]) -> Values:
    """The quotas that are in a unit of kquota's: what no broker could use is left out."""
    return {
        key: value
        for key in QuotaKey
        if key.value in quotas and (value := value_of(key, quotas[key.value])) is not None
    }
