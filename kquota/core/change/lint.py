"""Lint: quotas that have no effect or surprise, each finding with its proof and what to do about it.

A rule finds by a function of what is known; `RULES` lists them all. Nothing is looked up here: what a rule must know
beside the quotas (threads, windows, capacity) is in `Facts`, and a rule that would have to guess says nothing.
"""

from __future__ import annotations

import enum
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias
from urllib.parse import unquote

from kquota.core.change.misnomer import USER_PREFIX, doubt, is_literal_default, prefixed_user, slips
from kquota.core.duration import duration
from kquota.core.quotas.entity import DEFAULT, Entity, EntityType
from kquota.core.quotas.quota import BYTE_RATES, CLIENT_KEYS, QuotaKey, Value, check_value, format_number, limit_text
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.core.quotas.static import enforced
from kquota.core.quotas.version import Version
from kquota.core.resolve.resolver import DEFAULTS, Resolver, encode_user
from kquota.errors import InputError


class Severity(enum.IntEnum):
    """How bad a finding is; the numbers are ordered."""

    NOTE = 1
    WARNING = 2
    ERROR = 3

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True)
class Facts:
    """What rules may know beside the quotas.

    `threads` are num.io.threads and num.network.threads. `capacity` is the bytes/s that one broker can take in.
    `internal` are users whom no default should limit. `callback` is a broker's client.quota.callback.class. `version`
    is the brokers' Kafka version.
    """

    threads: int = 11
    capacity: int | None = None
    internal: tuple[str, ...] = ()
    callback: str | None = None
    version: Version | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding: what is wrong, why that is certain, and what to do. `key` is None where it is about the entity,
    `entity` where it is about all of them; `by` is the entity that is to blame."""

    rule: Rule
    entity: Entity | None
    key: QuotaKey | None
    message: str
    proof: str
    hint: str
    by: Entity | None = None

    @property
    def severity(self) -> Severity:
        """That of its rule."""
        return self.rule.severity


_Found: TypeAlias = Iterator[
    tuple[Entity | None, QuotaKey | None, str, str, str] | tuple[Entity | None, QuotaKey | None, str, str, str, Entity]
]
"""The fields of findings, but for the rule."""


@dataclass(frozen=True)
class Rule:
    """A rule by its name, such as `unreachable`; `about` says in a sentence what it finds."""

    name: str
    severity: Severity
    about: str
    check: Callable[[QuotaSnapshot, Facts], _Found] = field(repr=False, compare=False)

    def findings(self, snapshot: QuotaSnapshot, facts: Facts) -> Iterator[Finding]:
        """What the rule finds."""
        return (Finding(self, *parts) for parts in self.check(snapshot, facts))


def lint(
    snapshot: QuotaSnapshot, facts: Facts | None = None, rules: Iterable[Rule] | None = None
) -> tuple[Finding, ...]:
    """All findings, the worst first, then in the order of entities."""
    facts = facts or Facts()
    if facts.version is not None:
        snapshot = enforced(snapshot, facts.version)
    findings = [finding for rule in rules or RULES for finding in rule.findings(snapshot, facts)]
    return tuple(sorted(findings, key=_order))


def concerning(findings: Iterable[Finding], entities: Collection[Entity]) -> tuple[Finding, ...]:
    """The errors and warnings that are about one of these entities or all quotas, or that one of them is to blame for.

    What is wrong with a plan, of all that is wrong with the cluster that it leads to.
    """
    return tuple(
        finding
        for finding in findings
        if finding.severity >= Severity.WARNING
        and (finding.entity is None or finding.entity in entities or finding.by in entities)
    )


def _order(finding: Finding) -> tuple[object, ...]:
    entity = finding.entity
    return (-finding.severity, () if entity is None else entity.sort_key, finding.rule.name, str(finding.key))


# What hides a value from every client that its entity names, by the levels of KIP-55: a level that comes first and
# matches all of them. Levels 1 to 6 always keep somebody: a client that nobody else names, or an empty client-id.
def _hiding(values: Mapping[Entity, Value], entity: Entity, *, empty_client_id: bool = False) -> Entity | None:
    if empty_client_id and entity.user is not None and entity.client_id is None:
        # Brokers before 2.0 have client-id defaults for an empty client-id as well.
        above = Entity(user=entity.user, client_id=DEFAULT)
        return above if above in values else None
    if entity.user is not None or entity.ip is not None:
        return None
    candidates = [Entity(user=DEFAULT, client_id=DEFAULT), Entity(user=DEFAULT)]
    if entity.client_id is not DEFAULT:
        candidates.insert(0, Entity(user=DEFAULT, client_id=entity.client_id))
    return next((candidate for candidate in candidates if candidate in values), None)


def _by_key(snapshot: QuotaSnapshot) -> Iterator[tuple[QuotaKey, Mapping[Entity, Value]]]:
    for key in CLIENT_KEYS:
        yield key, {entity: values[key] for entity, values in snapshot.items() if key in values}


def unreached(entities: Iterable[Entity]) -> str:
    """The first users that have a quota of their own, which comes before one of a client-id of any user."""
    own = [entity for entity in entities if isinstance(entity.user, str) and entity.client_id in (None, DEFAULT)]
    users = [*dict.fromkeys(f"user={entity.user}" for entity in own)]
    return f"{', '.join(users[:3])}{' and others' * (len(users) > 3)}"


def _unreachable(snapshot: QuotaSnapshot, facts: Facts) -> _Found:
    for key, values in _by_key(snapshot):
        own = unreached(values)
        beside = f", which does not reach {own}" if own else ""
        for entity in values:
            by = _hiding(values, entity, empty_client_id=snapshot.empty_client_id)
            if by is not None:
                whom = "user of this client-id" if entity.user is None else "client-id of this user, an empty one too,"
                yield (
                    entity,
                    key,
                    f"governs no client: {by} comes first for every one",
                    f"every {whom} has {key} from {by} ({limit_text(key, values[by])}) or from a more specific entity",
                    f"drop it, or set it on <user, client-id> pairs: --user-defaults --client {_name(entity)}{beside}"
                    if entity.user is None and entity.client_id is not DEFAULT
                    else "drop it",
                    by,
                )


def _shadowed(snapshot: QuotaSnapshot, facts: Facts) -> _Found:
    for key, values in _by_key(snapshot):
        own = unreached(values)
        for entity in values:
            if entity.client_id is None and entity.user is not None:
                by = Entity(user=entity.user, client_id=DEFAULT)
                if by in values and not snapshot.empty_client_id:
                    yield (
                        entity,
                        key,
                        f"governs clients with an empty client-id only: {by} comes first for all others",
                        f"<user, default client-id> stands above user, and an empty client-id escapes it ({key} of {by}"
                        f" is {limit_text(key, values[by])})",
                        "delete one of the two",
                        by,
                    )
            elif isinstance(entity.user, str) or entity.client_id is None or not own:
                continue
            elif _hiding(values, entity) is None:
                client = "" if entity.client_id is DEFAULT else f" --client {shlex.quote(entity.client_id)}"
                yield (
                    entity,
                    key,
                    "does not govern the clients of users that have a quota of their own",
                    f"user stands above client-id; users with {key}: {own}",
                    f"for those, set pairs; 'kquota resolve --all{client}' shows all",
                )


def _name(entity: Entity) -> str:
    name = entity.client_id
    return "NAME" if name is None or name is DEFAULT else name


def _empty_client_id(snapshot: QuotaSnapshot, facts: Facts) -> _Found:
    if snapshot.empty_client_id:
        return
    for key, values in _by_key(snapshot):
        for entity in values:
            if entity.client_id is not DEFAULT:
                continue
            instead = Entity(user=DEFAULT if entity.user is None else entity.user)
            governed = instead in values or Entity(user=DEFAULT) in values
            if not governed and _hiding(values, entity) is None:
                yield (
                    entity,
                    key,
                    "a client that sends no client-id escapes it",
                    "brokers give an empty client-id no client-id default (KAFKA-13341)",
                    f"set {key} on {instead} as well",
                )


_ENCODED = re.compile(r"%[0-9A-F]{2}")


def _encoded_name(snapshot: QuotaSnapshot, facts: Facts) -> _Found:
    for entity, kind, name in _names(snapshot):
        if _ENCODED.search(name) and encode_user(unquote(name)) == name:
            yield (
                entity,
                None,
                f"the {kind.value} is URL-encoded: no client has that name",
                f"decoded it is {unquote(name)!r}; migrations to KRaft before 3.6.2, 3.7.1 and 3.8.0 took the names"
                " of ZooKeeper's nodes over undecoded (KAFKA-16411)",
                "set the values on the decoded name and delete this entity",
            )


def _user_prefix(snapshot: QuotaSnapshot, facts: Facts) -> _Found:
    for entity, kind, name in _names(snapshot):
        meant = prefixed_user(kind, name)
        if meant is not None:
            yield (
                entity,
                None,
                "the user has the prefix of an ACL: no client has that name",
                f"quotas go by the principal's name alone: {meant!r}",
                f"set the values on the name without '{USER_PREFIX}' and delete this entity",
            )


def _literal_default(snapshot: QuotaSnapshot, facts: Facts) -> _Found:
    for entity, kind, name in _names(snapshot):
        if is_literal_default(name):
            yield (
                entity,
                None,
                f"the {kind.value} is literally named <default>: it is not the default entity",
                "the default entity has no name in the protocol, and a tool that gave it one made this",
                f"set the values on the default of {kind.plural} and delete this entity",
            )


def _doubtful_name(snapshot: QuotaSnapshot, facts: Facts) -> _Found:
    for entity, kind, name in _names(snapshot):
        why = doubt(kind, name)
        if why is not None:
            yield (
                entity,
                None,
                f"the {kind.value} looks like a slip: hardly any client has that name",
                why,
                "delete this entity, and then set the values on the name that is meant",
            )


def _similar_name(snapshot: QuotaSnapshot, facts: Facts) -> _Found:
    for kind in (EntityType.USER, EntityType.CLIENT_ID):
        named: dict[str, Entity] = {}
        for entity, part, name in _names(snapshot):
            if part is kind:
                named.setdefault(name, entity)
        for name, other in (near := slips(named)).items():
            if name < other or other not in near:
                yield (
                    named[name],
                    None,
                    f"the {kind.value} is nearly another one, {other!r}",
                    "they differ by a letter, and a quota on a name that no client has limits nobody",
                    "where one of them is a slip, delete that entity",
                    named[other],
                )


LOW_BYTE_RATE = 1000
"""Bytes/s below which a limit is likely a number that lacks its unit."""


def _suspiciously_low(snapshot: QuotaSnapshot, facts: Facts) -> _Found:
    for entity, key, value in _values(snapshot, *BYTE_RATES):
        if 0 < value < LOW_BYTE_RATE:
            yield (
                entity,
                key,
                f"is {limit_text(key, value)}: a client is as good as stopped",
                f"a request of 1 MB is throttled for {duration(round(1e9 / value))}; a number without a unit counts"
                " bytes per second",
                f"write the unit, such as {format_number(value)}MB, or delete it",
            )


_WINDOW_S, _FETCH_BYTES = 10, 1 << 20
"""How long a burst lasts, and what a consumer asks of one partition at once, by the defaults of Kafka."""
LONG_FREEZE_S = 600
"""A client that is blocked for longer is as good as stopped."""


def _blocking_default(snapshot: QuotaSnapshot, facts: Facts) -> _Found:
    for entity, key, value in _values(snapshot, *BYTE_RATES):
        seconds = _FETCH_BYTES / value - _WINDOW_S if value >= LOW_BYTE_RATE else 0.0
        if seconds > LONG_FREEZE_S and DEFAULT in entity:
            yield (
                entity,
                key,
                f"is {limit_text(key, value)}: one request blocks a client without a quota of its own",
                f"a request of 1 MiB is throttled for {duration(round(1000 * seconds))}",
                f"write the unit, such as {format_number(value)}kB, or choose more",
            )
    for entity, key, value in _values(snapshot, QuotaKey.CONNECTION_CREATION_RATE):
        if 0 < value <= 1 and DEFAULT in entity:
            yield (
                entity,
                key,
                f"is {limit_text(key, value)}: it delays the connections of any host that starts several clients",
                "a client connects to several brokers, and anew after each failure",
                "choose more, or set it on single addresses",
            )


def _low_share(snapshot: QuotaSnapshot, facts: Facts) -> _Found:
    for entity, key, value in _values(snapshot, QuotaKey.REQUEST_PERCENTAGE):
        if 0 < value < 1:
            yield (
                entity,
                key,
                f"is {limit_text(key, value)}: less than a hundredth of one thread",
                f"100 is one thread: for {100 * value:g} % of a thread, set {100 * value:g}",
                f"set {100 * value:g}, or know that so little is enough",
            )


def _below_fetch(snapshot: QuotaSnapshot, facts: Facts) -> _Found:
    for entity, key, value in _values(snapshot, QuotaKey.CONSUMER_BYTE_RATE):
        if 0 < value * _WINDOW_S < _FETCH_BYTES:
            yield (
                entity,
                key,
                "is less than one fetch: consumers read in small pieces with long pauses",
                f"{limit_text(key, value)} for {_WINDOW_S} s are {format_number(value * _WINDOW_S)} bytes;"
                f" a fetch of one partition asks for {_FETCH_BYTES}",
                f"at least {limit_text(key, -(-_FETCH_BYTES // _WINDOW_S))}",
            )


def _above_capacity(snapshot: QuotaSnapshot, facts: Facts) -> _Found:
    most = 100 * facts.threads
    for entity, key, value in _values(snapshot, QuotaKey.REQUEST_PERCENTAGE):
        if value >= most:
            yield (
                entity,
                key,
                "limits nothing: no client can use so much",
                f"it counts percents of one thread, and a broker has {facts.threads} threads ({most} %)",
                "choose less, or delete it",
            )


def _below_one(snapshot: QuotaSnapshot, facts: Facts) -> _Found:
    for entity, key, value in _values(snapshot, QuotaKey.CONTROLLER_MUTATION_RATE):
        if 0 < value < 1:
            yield (
                entity,
                key,
                "is less than one partition a second: creating an ordinary topic uses it up for long",
                f"after a topic of 12 partitions it takes {12 / value:.0f} s until there is as much credit again",
                "at least 1",
            )


def _hits_internal(snapshot: QuotaSnapshot, facts: Facts) -> _Found:
    for key in CLIENT_KEYS:
        resolver = Resolver.of(snapshot, key)
        for user in facts.internal:
            # A client-id that nobody has, and none: different defaults govern them.
            for client_id in ("\0", ""):
                resolution = resolver.resolve(user, client_id)
                if resolution.level in DEFAULTS and resolution.entity is not None and resolution.limit is not None:
                    yield (
                        resolution.entity,
                        key,
                        f"limits the internal principal {user}",
                        f"{user} has no {key} of its own, so {resolution.entity} ({limit_text(key, resolution.limit)})"
                        " governs it",
                        f"give {user} a value of its own",
                    )
                    break


def _rejected(snapshot: QuotaSnapshot, facts: Facts) -> _Found:
    for entity, key, value in _values(snapshot, *QuotaKey):
        try:
            check_value(key, value)
        except InputError as error:
            yield (
                entity,
                key,
                f"is {format_number(value)}, which brokers of other versions reject",
                error.message,
                "KRaft refuses it since 3.5 (KAFKA-14943): set a positive value, or delete it",
            )


def _oversubscribed(snapshot: QuotaSnapshot, facts: Facts) -> _Found:
    if facts.capacity is None:
        return
    for key in BYTE_RATES:
        named = {
            entity: value
            for entity, _, value in _values(snapshot, key)
            if all(name is not DEFAULT for _, name in entity.parts)
        }
        total = int(sum(value for entity, value in named.items() if _hiding(named, entity) is None))
        if total > facts.capacity:
            yield (
                None,
                key,
                f"named entities may use {100 * total / facts.capacity:.0f} % of what a broker can take",
                f"{len(named)} entities add up to {limit_text(key, total)} on each broker, and its capacity is"
                f" {limit_text(key, facts.capacity)}",
                "quotas of all clients at once exceed the broker: lower them, or know that not all come at once",
            )


def _callback(snapshot: QuotaSnapshot, facts: Facts) -> _Found:
    if facts.callback and snapshot:
        yield (
            None,
            None,
            "a custom callback decides all quotas of users and clients",
            f"client.quota.callback.class is {facts.callback}: what is stored counts only as far as that class wants",
            "ask whoever runs the brokers what it does",
        )


def _not_enforced(snapshot: QuotaSnapshot, facts: Facts, *, of_version: bool = True) -> _Found:
    for entity, key, value, reason in snapshot.ignored:
        if reason.startswith("not ") == of_version:
            yield (
                entity,
                key,
                f"is {reason}" if of_version else reason,
                f"brokers do not apply it: {limit_text(key, value)} limits nobody",
                "delete it, or upgrade the brokers" if of_version else "set it anew with kquota, and delete that znode",
            )


_not_encoded = partial(_not_enforced, of_version=False)


def _one_address(snapshot: QuotaSnapshot, facts: Facts) -> _Found:
    for entities in snapshot.addresses.values():
        for entity in entities[1:]:
            yield (
                entity,
                QuotaKey.CONNECTION_CREATION_RATE,
                f"is another spelling of {entities[0]}",
                "brokers keep one limit for each address: the last write decides, and deleting one lifts the other",
                "delete both, and then set one",
                entities[0],
            )


def _values(snapshot: QuotaSnapshot, *keys: QuotaKey) -> Iterator[tuple[Entity, QuotaKey, Value]]:
    return ((entity, key, values[key]) for key in keys for entity, values in snapshot.items() if key in values)


def _names(snapshot: QuotaSnapshot) -> Iterator[tuple[Entity, EntityType, str]]:
    return ((entity, kind, name) for entity in snapshot for kind, name in entity.parts if name is not DEFAULT)


RULES = (
    Rule("unreachable", Severity.WARNING, "A value that governs no client, whoever connects.", _unreachable),
    Rule("shadowed", Severity.NOTE, "A value that governs fewer clients than it names.", _shadowed),
    Rule("empty-client-id", Severity.NOTE, "A client-id default that an empty client-id escapes.", _empty_client_id),
    Rule("encoded-name", Severity.WARNING, "A URL-encoded name that a migration left behind.", _encoded_name),
    Rule("user-prefix", Severity.ERROR, f"A user with the prefix '{USER_PREFIX}'.", _user_prefix),
    Rule("literal-default", Severity.ERROR, "A name that is literally '<default>'.", _literal_default),
    Rule("doubtful-name", Severity.WARNING, "A name that looks like a slip.", _doubtful_name),
    Rule("similar-name", Severity.NOTE, "A name that is nearly one other name.", _similar_name),
    Rule("suspiciously-low", Severity.WARNING, "A byte rate below 1 kB/s.", _suspiciously_low),
    Rule(
        "blocking-default",
        Severity.WARNING,
        "A default so low that one request blocks a client for more than 10 minutes, or that an ip gets one connection"
        " a second at most.",
        _blocking_default,
    ),
    Rule(
        "low-request-percentage",
        Severity.WARNING,
        "A request_percentage below 1: 50 % of a thread is 50, not 0.5.",
        _low_share,
    ),
    Rule("consumer-below-fetch", Severity.WARNING, "A consumer quota smaller than a fetch.", _below_fetch),
    Rule("request-above-capacity", Severity.WARNING, "A request_percentage above thread capacity.", _above_capacity),
    Rule("mutation-below-one", Severity.WARNING, "A controller_mutation_rate below one.", _below_one),
    Rule("internal-principal", Severity.ERROR, "A default that limits an internal principal.", _hits_internal),
    Rule("rejected-value", Severity.ERROR, "A value that old or new brokers reject.", _rejected),
    Rule("one-address", Severity.ERROR, "Two ip entities of one address.", _one_address),
    Rule("oversubscribed", Severity.WARNING, "Quotas that add up to more than a broker's capacity.", _oversubscribed),
    Rule("not-enforced", Severity.WARNING, "A value that brokers of that version do not enforce.", _not_enforced),
    Rule("not-encoded", Severity.ERROR, "A user in ZooKeeper whose znode is not URL-encoded.", _not_encoded),
    Rule("custom-callback", Severity.WARNING, "A callback class that replaces Kafka's own quotas.", _callback),
)
