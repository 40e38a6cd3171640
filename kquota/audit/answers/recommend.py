"""Quotas for what an export shows to be wanted: two audits, one that measures and one that checks the outcome.

The first audit replays the export under two sets of quotas. Under the quotas in force, the replay shows when clients
were held back (unless the export itself does). With the quotas in question lifted, it counts what their entities use.
The second audit replays the export under what is recommended.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import translate
from typing import Any, Final

from kquota.audit.result import AuditResult
from kquota.audit.settings import AuditSettings, Question, Together, together
from kquota.core.change.history import QuotaHistory
from kquota.core.findings.finding import Basis
from kquota.core.findings.prediction import CounterName
from kquota.core.findings.recommendation import (
    Policy,
    Recommendation,
    Recommendations,
    Scope,
    Usage,
    entity_of,
    recommend,
    recommend_default,
    unlimited,
)
from kquota.core.findings.verdicts import QuotaVerdict, Verdict
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey, Value
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.core.resolve.resolver import Level, Resolution, Resolver
from kquota.errors import InputError

MEASURABLE = (QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE)
"""The keys that there are recommendations for: those whose observed rate does not depend on the limit."""


@dataclass(frozen=True)
class Wanted:
    """What to recommend."""

    scope: Scope = Scope.USERS
    default: bool = False
    """Whether to find a value for the default entity, and quotas of their own only for those that need more."""
    keys: tuple[QuotaKey, ...] = MEASURABLE
    only: tuple[str, ...] = ()
    """Shell patterns: the names of users (of client-ids for CLIENTS) to look at; none is all of them."""
    policy: Policy = field(default_factory=Policy)

    def selects(self, clients: Iterable[Mapping[str, Any]]) -> bool:
        """Whether there is to be a recommendation for one of the clients of a counter."""
        part = "client_id" if self.scope is Scope.CLIENTS else "user"
        names = {str(client[part]) for client in clients}
        return not self.only or any(re.match(translate(pattern), name) for pattern in self.only for name in names)


def recommendations(
    run: Callable[[AuditSettings], AuditResult], settings: AuditSettings, wanted: Wanted
) -> tuple[Recommendations, AuditResult]:
    """The recommended quotas, and the audit that measured; `settings.quotas` are the quotas that were in force.

    `run` audits the export under given settings. Raises InputError when nothing of it can be measured.
    """
    policy = wanted.policy
    lifted = unlimited(settings.quotas, wanted.scope, wanted.keys, default_only=wanted.default)
    question = Question(policy.max_throttled, policy.confidence)
    settings = replace(settings, question=question)
    measured = run(
        replace(
            settings,
            against=lifted,
            per_client=bool(settings.quotas),
            together=together(settings.quotas, lifted) if settings.quotas else Together.COUNTER,
        )
    )
    rows = _rows(measured.before)
    if any(row["basis"] not in (Basis.REQUESTS.value, Basis.CONNECTIONS.value) for row in rows.values()):
        raise InputError(
            "samples do not tell what each second was like",
            hint="recommend from requests: a request log, or a usage table",
        )
    rows = {name: row for name, row in rows.items() if wanted.selects(row["clients"])}
    undetermined = [row for row in rows.values() if row["verdict"] == Verdict.UNDETERMINED.value]
    resolutions = _resolutions(rows, settings.quotas.latest, wanted)
    outranked = {
        name: some for name, some in resolutions.items() if some and all(_outranks(one, wanted.scope) for one in some)
    }
    usages = {name: some for name, some in _usages(measured, rows, wanted).items() if name not in outranked}
    left_out = Counter(QuotaKey(row["key"]) for row in undetermined)
    entities = {Entity.parse(row["entity"]) for row in rows.values() if QuotaKey(row["key"]) in wanted.keys}
    entities |= {one.entity for some in outranked.values() for one in some if one.entity is not None}
    charged = sorted((one for one in entities if one.types != wanted.scope.default.types), key=str)
    if not usages:
        reasons = sorted({f"{row['key']}: {row['reason']}" for row in undetermined if row["reason"]})
        kinds = ", ".join(kind.option for kind in Scope.of(charged)) or "--entities"
        if charged:
            named = ", ".join(map(str, charged[:3])) + " and others" * (len(charged) > 3)
            reasons.insert(0, f"other quotas count them: {named}")
        reasons += [f"{unread.path}: {unread.reason}" for unread in measured.quality.unread_files[:3]]
        raise InputError(
            f"nothing to recommend: none of {measured.quality.events:,} requests counts for the quotas in question"
            + (f": {'; '.join(reasons)}" if reasons else ""),
            hint=f"{kinds}, --key and --only choose what is recommended for",
        )
    governing = {
        name: {
            one.entity: one.limit
            for one in some
            if one.entity is not None and one.limit is not None and not _outranks(one, wanted.scope)
        }
        for name, some in resolutions.items()
    }
    throttled = {
        (counter.key, counter.sensor)
        for counter, seconds in measured.measured.items()
        if counter.variant == 0 and seconds.throttled > policy.max_throttled * seconds.seconds
    }
    tight = {
        name: governing[name].keys() & {one.entity for one in some if (one.key, str(one.sensor)) in throttled}
        for name, some in resolutions.items()
    }
    recommended = [
        quota.beside(governing.get((quota.key, quota.entity), {}), tight.get((quota.key, quota.entity), ()), policy)
        for quota in _all(usages, settings.quotas.latest, governing, wanted)
    ]
    order = {key: place for place, key in enumerate(QuotaKey)}
    recommended.sort(key=lambda quota: (quota.entity.sort_key, order[quota.key]))
    looked_at = {(entity, quota.key) for quota in recommended for entity in (quota.entity, *quota.governed_by)}
    throttling = tuple(
        quota
        for quota in measured.quotas
        if quota.verdict is Verdict.THROTTLED and _is_left_out(quota, wanted, looked_at)
    )
    answer = Recommendations(wanted.scope, policy, recommended, left_out, measured.quotas, throttling, charged)
    proposed = {
        entity: {key: value for key, value in values.items() if key in wanted.keys}
        for entity, values in answer.proposed(settings.quotas.latest).items()
    }
    checked = run(replace(settings, quotas=QuotaHistory.of(QuotaSnapshot(proposed))))
    # The demand is not known in full of whom a quota held back for a time.
    held_back = {name for name, by_broker in usages.items() if any(usage.estimate.held for usage in by_broker)}
    return replace(answer, quotas=_predicted(answer, checked, held_back)), measured


def _is_left_out(quota: QuotaVerdict, wanted: Wanted, looked_at: Collection[tuple[Entity, QuotaKey]]) -> bool:
    """Whether nothing is said of a quota: it is of another key or kind of entity, or of nobody that `only` names."""
    if (quota.entity, quota.key) in looked_at:
        return False
    default = wanted.scope.default
    is_other = quota.key not in wanted.keys or quota.entity.types != default.types
    return is_other or bool(wanted.only and quota.entity != default)


def _rows(table: Any) -> dict[CounterName, dict[str, Any]]:
    """The findings by broker, key and sensor."""
    wanted = ["broker", "key", "sensor", "entity", "verdict", "reason", "basis", "events", "clients"]
    rows: list[dict[str, Any]] = table.select(wanted).to_pylist()
    return {(row["broker"], row["key"], row["sensor"]): row for row in rows}


def _usages(
    measured: AuditResult, rows: Mapping[CounterName, Mapping[str, Any]], wanted: Wanted
) -> dict[tuple[QuotaKey, Entity], list[Usage]]:
    """What each entity of the scope did, on each broker that it used."""
    usages: dict[tuple[QuotaKey, Entity], list[Usage]] = defaultdict(list)
    for counter, demand in sorted(measured.measured.items(), key=lambda item: item[0].name):
        row = rows.get(counter.name)
        if row is None or row["verdict"] == Verdict.UNDETERMINED.value:
            continue
        if counter.variant == 0 or demand.estimate is None or demand.peak <= 0:
            continue
        if Entity.parse(row["entity"]).types != wanted.scope.default.types:
            continue  # the quota of another level that is as good as none
        usages[counter.key, entity_of(counter.sensor)].append(
            Usage(counter.broker, row["events"], demand.seconds, demand.throttled, demand.peak, demand.estimate)
        )
    return usages


def _resolutions(
    rows: Mapping[CounterName, Mapping[str, Any]], quotas: QuotaSnapshot, wanted: Wanted
) -> dict[tuple[QuotaKey, Entity], list[Resolution]]:
    """What governs the clients of each entity of the scope, its loudest clients where it has many."""
    resolvers = {key: Resolver.of(quotas, key) for key in wanted.keys}
    resolutions: dict[tuple[QuotaKey, Entity], list[Resolution]] = defaultdict(list)
    for (_, name, sensor), row in rows.items():
        key = QuotaKey(name)
        if key not in resolvers or Entity.parse(row["entity"]).types != wanted.scope.default.types:
            continue
        clients = (resolvers[key].resolve(client["user"], client["client_id"]) for client in row["clients"])
        resolutions[key, entity_of(sensor)] += clients
    return resolutions


_OWN: Final = {Scope.USERS: Level.USER, Scope.CLIENTS: Level.CLIENT, Scope.USER_CLIENTS: Level.USER_CLIENT}


def _outranks(resolution: Resolution, scope: Scope) -> bool:
    """Whether a quota of more precise a level governs a client: one of an entity of the scope would not count."""
    return resolution.level is not None and resolution.level < _OWN[scope]


def _all(
    usages: Mapping[tuple[QuotaKey, Entity], Sequence[Usage]],
    current: QuotaSnapshot,
    governing: Mapping[tuple[QuotaKey, Entity], Mapping[Entity, Value]],
    wanted: Wanted,
) -> list[Recommendation]:
    scope, policy = wanted.scope, wanted.policy

    def own(entity: Entity, key: QuotaKey) -> bool:
        return key in current.get(entity, {})

    def limit_of(entity: Entity, key: QuotaKey) -> Value | None:
        # A default says nothing of clients that a quota of another level limits in its place.
        others = any(one.types != scope.default.types for one in governing.get((key, entity), {}))
        return None if others else scope.current(current, entity, key)

    quotas: list[Recommendation] = []
    for key in wanted.keys:
        left = {entity: by_broker for (one, entity), by_broker in usages.items() if one is key}
        if wanted.default:
            defaulted = {entity: by_broker for entity, by_broker in left.items() if not own(entity, key)}
            limit: Value | None = current.get(scope.default, {}).get(key)
            if defaulted:
                quotas += recommend_default(defaulted, scope.default, key, limit, policy)
            left = {entity: by_broker for entity, by_broker in left.items() if entity not in defaulted}
        quotas += [
            recommend(by_broker, entity, key, limit_of(entity, key), policy) for entity, by_broker in left.items()
        ]
    return [replace(quota, own=quota.current is None or own(quota.entity, quota.key)) for quota in quotas]


def _predicted(
    answer: Recommendations, checked: AuditResult, held_back: Collection[tuple[QuotaKey, Entity]]
) -> list[Recommendation]:
    """The recommendations with the share of the time that their counters were throttled in the second audit.

    The share is None for whom it is not known: what an entity that was held back wants, no recording shows.
    """
    rows = _rows(checked.findings)
    shares: dict[tuple[Entity, QuotaKey], float] = {}
    unknown: set[tuple[Entity, QuotaKey]] = set()
    for counter, seconds in checked.measured.items():
        governing = Entity.parse(rows[counter.name]["entity"])
        share = seconds.throttled / seconds.seconds
        if governing.types != answer.scope.default.types:
            continue
        own = entity_of(counter.sensor)
        for entity in {governing, own}:
            shares[entity, counter.key] = max(share, shares.get((entity, counter.key), 0.0))
            if (counter.key, own) in held_back:
                unknown.add((entity, counter.key))
    return [
        replace(quota, held_back=True)
        if (quota.entity, quota.key) in unknown
        else replace(quota, predicted=shares.get((quota.entity, quota.key)))
        for quota in answer.quotas
    ]
