"""Questions about quotas that are answered from the quotas alone: which one governs a client, and what is wrong."""

from collections.abc import Iterable
from pathlib import Path

from kquota.brokers import BrokerFacts
from kquota.core.change.lint import Facts, Finding
from kquota.core.change.lint import lint as lint_quotas
from kquota.core.quotas.quota import QuotaKey, parse_value
from kquota.core.quotas.static import NO_STATIC_QUOTAS
from kquota.core.quotas.version import parse_version
from kquota.core.resolve.resolver import Resolution
from kquota.core.resolve.resolver import resolve as resolve_client
from kquota.documents.quotas import read_quota_file
from kquota.inputs import Quotas, snapshot_of


def resolve(
    quotas: Quotas,
    user: str = "ANONYMOUS",
    client_id: str = "",
    ip: str | None = None,
    *,
    kafka_version: str = "4.0",
    server_properties: Path | str | None = None,
) -> tuple[Resolution, ...]:
    """Which quota governs a client: a Resolution for each quota key, and for connections where `ip` is given.

    `user` is the principal's name and `client_id` what the client says; a client without one has the empty one. A
    Resolution has the `limit` in the unit of its key (None for no limit; each broker grants it by itself). It has the
    `level` and `entity` that the limit comes from, the `sensor` whose counter is charged, and the quotas that it
    `shadows`. `server_properties` adds the static defaults of brokers before 3.0. Raises InputError, and what
    `QuotaBackend.describe` raises for a cluster.

        for each in resolve("quotas.yaml", user="alice", client_id="app1"):
            print(each.key, each.limit, each.sensor)
    """
    facts = BrokerFacts(kafka_version, server_properties)
    settings = facts.settings()
    static = NO_STATIC_QUOTAS if settings is None else settings.static
    return resolve_client(facts.enforced(snapshot_of(quotas)), user, client_id, ip, static)


def lint(
    quotas: Quotas,
    *,
    cluster: str | None = None,
    internal: Iterable[str] = (),
    capacity: int | str | None = None,
    threads: int = 11,
    callback: str | None = None,
    kafka_version: str | None = None,
) -> tuple[Finding, ...]:
    """What does not do what it looks like, the worst first: each Finding has its `rule`, `severity`, proof and hint.

    `cluster` names the overlay of a file that is meant. `internal` are principals that no default should limit, beside
    the file's own. `capacity` is what one broker can take in bytes/s (`"200MB"`), `threads` its num.io.threads and
    num.network.threads together, `callback` its client.quota.callback.class. Raises InputError, and what
    `QuotaBackend.describe` raises for a cluster.

        bad = [found for found in lint("quotas.yaml") if found.severity >= Severity.WARNING]
    """
    names = tuple(internal)
    if isinstance(quotas, str | Path):
        file = read_quota_file(Path(quotas), cluster)
        quotas, names = file.snapshot, (*names, *file.internal)
    most = int(parse_value(QuotaKey.PRODUCER_BYTE_RATE, capacity)) if isinstance(capacity, str) else capacity
    version = None if kafka_version is None else parse_version(kafka_version)
    facts = Facts(threads=threads, capacity=most, internal=names, callback=callback, version=version)
    return tuple(lint_quotas(snapshot_of(quotas), facts))
