"""What a migration from ZooKeeper to KRaft made of the quotas: both sides compared, known damage reported by its name.

Two things went wrong before Kafka 3.6.2, 3.7.1 and 3.8.0. Names were taken over as ZooKeeper keeps them (`CN%3Da` for
`CN=a`, KAFKA-16222). Defaults became entities with the empty name, before 3.6 with the name `<default>` (KAFKA-16411).
Source: `kafka.zk.migration.ZkConfigMigrationClient` of Kafka 3.7.
"""

import enum
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from kquota.core.quotas.alteration import Alteration
from kquota.core.quotas.entity import DEFAULT, Entity, EntityType
from kquota.core.quotas.quota import QuotaKey, Value, check_value, differ, format_value
from kquota.core.quotas.selector import EVERYTHING, QuotaFilter
from kquota.core.quotas.snapshot import QuotaSnapshot, Values
from kquota.core.resolve.resolver import encode_user
from kquota.errors import InputError

Parts: TypeAlias = tuple[tuple[EntityType, str | None], ...]
"""An entity as KRaft keeps it: None is the default, and the empty name is a name, which no `Entity` has."""

_FIXED: Final = "fixed in 3.6.2, 3.7.1 and 3.8.0"


class Damage(enum.Enum):
    """What is wrong."""

    UNDECODED_NAME = "undecoded-name"
    NAMED_DEFAULT = "named-default"
    MISSING = "missing"
    EXTRA = "extra"
    DIFFERENT = "different"

    __hash__ = object.__hash__

    @property
    def cause(self) -> str | None:
        """The bug that is known for it, and where it is mended."""
        return _CAUSES.get(self)


_CAUSES = {
    Damage.UNDECODED_NAME: f"KAFKA-16222, {_FIXED}",
    Damage.NAMED_DEFAULT: f"KAFKA-16411, {_FIXED}",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One damage: where it is, what shows it, and what mends it."""

    damage: Damage
    entity: Entity
    """The entity as ZooKeeper means it; of an extra one, as KRaft has it."""
    where: str
    proof: str
    mend: tuple[Alteration, ...] = ()
    """Alterations on KRaft, in their order."""
    note: str | None = None
    """What else is to know or to do."""


def parts_of(entity: Entity) -> Parts:
    """The entity as KRaft keeps it."""
    return tuple((kind, None if name is DEFAULT else name) for kind, name in entity.parts)


def compare(
    zookeeper: QuotaSnapshot,
    kraft: QuotaSnapshot,
    nameless: Mapping[Parts, Values],
    filter: QuotaFilter = EVERYTHING,
) -> tuple[Finding, ...]:
    """The damage to the entities that match, ZooKeeper's side taken for what was meant.

    `nameless` are the quotas on KRaft of entities with an empty name. The damage is in the order of entities. A quota
    that brokers with ZooKeeper ignore, for its znode is not encoded, was meant as well: the controller's dual write
    makes such znodes.
    """
    wanted: dict[Entity, Values] = dict(zookeeper)
    for ignored in zookeeper.ignored:
        wanted[ignored.entity] = {ignored.key: ignored.value} | dict(wanted.get(ignored.entity, {}))
    stored = {parts_of(entity): values for entity, values in kraft.items()} | dict(nameless)
    meant = {parts_of(entity) for entity in wanted}
    claimed: set[Parts] = set()
    findings: list[Finding] = []
    for entity, values in wanted.items():
        copies = [parts for parts in _damaged(entity) if parts in stored and parts not in meant]
        claimed.update(copies)
        findings += _compared(entity, values, kraft.get(entity), {parts: stored[parts] for parts in copies})
    for parts, values in stored.items():
        if parts not in meant and parts not in claimed:
            findings.append(_extra(parts, values))
    asked = (finding for finding in findings if filter.matches(finding.entity))
    return tuple(sorted(asked, key=lambda finding: (finding.entity.sort_key, finding.where)))


def _damaged(entity: Entity) -> Iterator[Parts]:
    """What the migration may have called the entity, all parts right excepted."""
    spellings: list[list[tuple[EntityType, str | None]]] = []
    for kind, name in entity.parts:
        if name is DEFAULT:
            spellings.append([(kind, None), (kind, ""), (kind, DEFAULT.value)])
        else:
            encoded = name if kind is EntityType.IP else encode_user(name)
            spellings.append([(kind, spelling) for spelling in dict.fromkeys((name, encoded))])
    yield from itertools.islice(itertools.product(*spellings), 1, None)  # the first is the right one


def _compared(entity: Entity, values: Values, present: Values | None, copies: Mapping[Parts, Values]) -> list[Finding]:
    """What became of one entity of ZooKeeper's: `present` is what KRaft has on it, `copies` what under wrong names."""
    settable = _settable(values)
    right = (Alteration(entity, settable),) if settable else ()
    findings: list[Finding] = []
    for parts, copy in copies.items():
        # With several copies, what is missing is set once.
        mend = right if present is None and not findings else ()
        removal = _removal(parts, copy)
        proof = f"ZooKeeper has {_shown(values)} on {entity}, KRaft has {_shown(copy)} on {_text(parts)}"
        findings.append(
            Finding(
                _damage_of(entity, parts),
                entity,
                f"KRaft {_text(parts)}",
                proof if present is None else f"{proof} beside the right one",
                mend if removal is None else (*mend, removal),
                note=_note(_UNDELETABLE if removal is None else None, values if mend else {}),
            )
        )
    where = f"KRaft {entity}"
    if present is None and not copies:
        proof = f"ZooKeeper has {_shown(values)}, KRaft has nothing"
        findings.append(Finding(Damage.MISSING, entity, where, proof, right, note=_note(None, values)))
    elif present is not None and dict(values) != dict(present):
        proof = f"ZooKeeper has {_shown(values)}, KRaft has {_shown(present)}"
        surplus = frozenset(present.keys() - values.keys())
        wrong = {key: value for key, value in settable.items() if differ(value, present.get(key))}
        mend = (Alteration(entity, wrong, surplus),) if wrong or surplus else ()
        findings.append(Finding(Damage.DIFFERENT, entity, where, proof, mend, note=_note(_ON_PURPOSE, values)))
    return findings


_ON_PURPOSE = "unless it was altered on purpose since"
_UNDELETABLE = "brokers refuse to delete it, as its name is empty; it limits nobody whose name is not"


def _extra(parts: Parts, values: Values) -> Finding:
    """What KRaft has, and ZooKeeper has not under any name that the migration could have made this one of."""
    removal = _removal(parts, values)
    where, proof = f"KRaft {_text(parts)}", f"KRaft has {_shown(values)}, ZooKeeper has nothing"
    if removal is None:
        default = _entity((kind, name or None) for kind, name in parts)
        return Finding(Damage.NAMED_DEFAULT, default, where, proof, note=_UNDELETABLE)
    return Finding(Damage.EXTRA, removal.entity, where, proof, (removal,), note=_ON_PURPOSE)


def _damage_of(entity: Entity, parts: Parts) -> Damage:
    pairs = zip(parts_of(entity), parts, strict=True)
    of_default = any(meant is None and stored is not None for (_, meant), (_, stored) in pairs)
    return Damage.NAMED_DEFAULT if of_default else Damage.UNDECODED_NAME


def _entity(parts: Iterable[tuple[EntityType, str | None]]) -> Entity:
    """The entity of parts without an empty name."""
    return Entity.of({kind: DEFAULT if name is None else name for kind, name in parts})


def _removal(parts: Parts, values: Values) -> Alteration | None:
    """What deletes an entity of KRaft's; None where a name is empty, which no request may have."""
    if any(name == "" for _, name in parts):
        return None
    return Alteration(_entity(parts), remove=frozenset(values))


def _settable(values: Values) -> dict[QuotaKey, Value]:
    """The values that KRaft takes: ZooKeeper may hold others, such as 0."""
    taken = {}
    for key, value in values.items():
        try:
            taken[key] = check_value(key, value)
        except InputError:
            continue
    return taken


def _note(note: str | None, values: Values) -> str | None:
    """The note, and which of the values KRaft does not take."""
    settable = _settable(values)
    refused = [f"{key}={format_value(key, value)}" for key, value in values.items() if key not in settable]
    more = f"KRaft does not take {', '.join(refused)}" if refused else None
    return "; ".join(part for part in (note, more) if part) or None


def _shown(values: Values) -> str:
    return ",".join(f"{key}={format_value(key, value)}" for key, value in values.items()) or "nothing"


def _text(parts: Parts) -> str:
    """As `str(entity)`; an empty name is `""`."""
    if all(name != "" for _, name in parts):
        return str(_entity(parts))
    return ",".join(f"{kind.value}={DEFAULT.value if name is None else name or _EMPTY}" for kind, name in parts)


_EMPTY = '""'
