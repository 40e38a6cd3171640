"""The quotas as texts and doubles: what Kafka's own tool needs, which sends any number and lets the broker judge it.

Everything of kquota's own goes through `KafkaBackend`, which refuses values that a broker could not use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kquota.backends import Closable, wire
from kquota.backends.addresses import Servers
from kquota.backends.kafka.codes import CODES, NONE, RESOURCE_NOT_FOUND
from kquota.backends.kafka.quotas import describe_request, is_sendable
from kquota.backends.kafka.security import KafkaSecurity
from kquota.backends.kafka.session import Outcome, Session, of_itself
from kquota.core.quotas.selector import EVERYTHING, QuotaFilter
from kquota.errors import InputError, Rejected


class RawQuota(NamedTuple):
    """One entity as a broker shows it: its names by entity type, None for the default, and its values by key."""

    entity: Mapping[str, str | None]
    values: Mapping[str, float]


class ScramUser(NamedTuple):
    """What a broker says of one user's SCRAM credentials: (mechanism, iterations) each, or why it does not."""

    name: str
    credentials: Sequence[tuple[str, int]]
    error: BrokerError | None


class BrokerError(Rejected):
    """What a broker answered instead of doing it: the code of the error and the text that came with it, if any did."""

    def __init__(self, code: int, text: str | None) -> None:
        super().__init__(text or (CODES[code].text if code in CODES else f"error {code}"))
        self.code = code


class RawQuotas(Closable):
    """The quotas of a cluster through its brokers; a context manager that connects at the first request.

    Connecting takes at most `timeout_s` seconds, and so does waiting for any answer; with `patient`, servers that are
    not up yet are waited for as long. Nothing is remembered: a broker shows what was written when its own copy of the
    metadata has it. Raises InputError for a malformed address; every request raises Unreachable, Unauthorized, Rejected
    where the broker serves no such request, and BrokerError.
    """

    def __init__(
        self, bootstrap: str, *, timeout_s: float = 30.0, security: KafkaSecurity | None = None, patient: bool = False
    ) -> None:
        self._session = Session(Servers.parse(bootstrap), timeout_s, security or KafkaSecurity(), patient=patient)

    def close(self) -> None:
        """Ends the connection; a second call does nothing."""
        self._session.close()

    def describe(self, filter: QuotaFilter = EVERYTHING) -> list[RawQuota]:
        """The entities that match, in the order of the broker. Raises InputError for a name that cannot be sent."""
        request = describe_request(filter)
        if request is None:
            raise InputError("a name that is not Unicode, or too long for a request, is no entity's")
        answer = self._ask(request, wire.DescribeClientQuotasResponse)
        return [RawQuota(dict(entry.entity), dict(entry.values)) for entry in answer.entries or ()]

    def alter(self, entity: Mapping[str, str | None], values: Mapping[str, float], remove: Sequence[str] = ()) -> None:
        """Sets values of one entity, then removes keys: all of it or nothing.

        A key that comes twice is sent twice, for the broker to judge.
        """
        operations = [wire.OpData(key, value, False) for key, value in values.items()]
        operations += [wire.OpData(key, 0.0, True) for key in remove]
        entry = wire.AlterEntry([wire.EntityData(kind, name) for kind, name in entity.items()], operations)

        def outcome(answer: wire.AlterClientQuotasResponse) -> tuple[int, str | None]:
            failed = [(result.error_code, result.error_message) for result in answer.entries if result.error_code]
            return failed[0] if failed else (NONE, None)

        self._ask(wire.AlterClientQuotasRequest([entry], False), wire.AlterClientQuotasResponse, outcome)

    def scram_users(self, names: Sequence[str] = ()) -> list[ScramUser]:
        """The users that have SCRAM credentials, of those named or of all, in the order of the broker.

        Brokers since Kafka 2.7 (KIP-554). Raises InputError for a name that cannot be sent.
        """
        if not all(map(is_sendable, names)):
            raise InputError("a name that is not Unicode, or too long for a request, is no entity's")
        answer = self._ask(
            wire.DescribeUserScramCredentialsRequest([wire.UserName(name) for name in names]),
            wire.DescribeUserScramCredentialsResponse,
        )
        return [
            ScramUser(
                result.user,
                [
                    (wire.SCRAM_MECHANISMS.get(info.mechanism, "UNKNOWN"), info.iterations)
                    for info in result.credential_infos
                ],
                BrokerError(result.error_code, result.error_message) if result.error_code else None,
            )
            for result in answer.results
            if result.error_code != RESOURCE_NOT_FOUND
        ]

    def _ask(self, request: wire.Request, kind: type, outcome: Outcome = of_itself) -> Any:
        (answer,) = self._session.settled([request], kind, outcome)
        code, text = outcome(answer)
        if code != NONE:
            raise BrokerError(code, text)
        return answer
