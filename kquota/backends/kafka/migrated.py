"""All quotas of a KRaft cluster, those included that no entity of kquota's stands for: a migration left them."""

import time
from typing import Final

from kquota.backends import ClosesOnExit, wire
from kquota.backends.kafka.address import Servers
from kquota.backends.kafka.codes import NONE, error_of, is_transient
from kquota.backends.kafka.quotas import read_entries, value_of
from kquota.backends.kafka.security import KafkaSecurity
from kquota.backends.kafka.session import Session
from kquota.core.change.migration import Parts
from kquota.core.quotas.entity import EntityType
from kquota.core.quotas.quota import QuotaKey, Value
from kquota.core.quotas.snapshot import QuotaSnapshot, Values
from kquota.errors import Rejected

_PAUSE_S: Final = 0.1
_TYPES: Final = {kind.value: kind for kind in EntityType}
_KEYS: Final = {key.value: key for key in QuotaKey}


class MigratedQuotas(ClosesOnExit):
    """What a migration made of quotas, read through brokers (`host:port[,host:port]`).

    Each wait for them is at most `timeout_s` seconds. Raises InputError for a malformed address.
    """

    def __init__(self, bootstrap: str, *, timeout_s: float = 10.0, security: KafkaSecurity | None = None) -> None:
        self._session = Session(Servers.parse(bootstrap), timeout_s, security or KafkaSecurity())

    def close(self) -> None:
        self._session.close()

    def read(self) -> tuple[QuotaSnapshot, dict[Parts, Values]]:
        """The quotas, and separately the quotas of entities with an empty name.

        Raises Unreachable and Unauthorized; Rejected where the brokers run with ZooKeeper.
        """
        request = wire.DescribeClientQuotasRequest([], strict=False)
        deadline = self._session.deadline()
        while True:
            (answer,) = self._session.ask([request], wire.DescribeClientQuotasResponse, deadline)
            if not is_transient(answer.error_code) or deadline.left < 2 * _PAUSE_S:
                break
            time.sleep(_PAUSE_S)
        if answer.error_code != NONE:
            raise error_of(answer.error_code, answer.error_message)
        if not self._session.is_kraft:
            raise Rejected(
                "these brokers run with ZooKeeper: they show what is there, not what was migrated",
                hint="check again when the brokers run with KRaft",
            )
        entries = answer.entries or ()
        stored = read_entries([entry for entry in entries if not _is_nameless(entry)])
        return QuotaSnapshot(stored.values, tuple(stored.problems)), {
            _parts(entry): _values(entry) for entry in entries if _is_nameless(entry)
        }


def _is_nameless(entry: wire.QuotaEntry) -> bool:
    return any(name == "" and kind in _TYPES for kind, name in entry.entity)


def _parts(entry: wire.QuotaEntry) -> Parts:
    named = {_TYPES[kind]: name for kind, name in entry.entity if kind in _TYPES}
    return tuple((kind, named[kind]) for kind in EntityType if kind in named)


def _values(entry: wire.QuotaEntry) -> Values:
    values: dict[QuotaKey, Value] = {}
    for name, number in entry.values:
        key = _KEYS.get(name)
        value = None if key is None else value_of(key, number)
        if key is not None and value is not None:
            values[key] = value
    return values
