"""The review of a plan: everything that speaks against it, as values, before anybody is asked and anything is written.

Every command that writes has its plan reviewed here, so that one refuses what another refuses. `KINDS` is the one list
of objections; the README's table and the help topic are generated from it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from kquota.core.change.lint import LONG_FREEZE_S, RULES, Finding, concerning, lint
from kquota.core.change.lint import Severity as Grade
from kquota.core.change.misnomer import doubt, misnomer
from kquota.core.change.plan import Action, Objection, Plan, Severity
from kquota.core.duration import duration
from kquota.core.quotas.alteration import Alteration
from kquota.core.quotas.entity import DEFAULT, Entity, address
from kquota.core.quotas.quota import BYTE_RATES, CLIENT_KEYS, humanize, limit_text
from kquota.core.quotas.selector import Selector, selected
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.core.resolve.resolver import DEFAULTS, Resolver

_SMALLEST = 10
"""Below so many entities a share says nothing."""
_WINDOW_S = 11
"""quota.window.num windows of quota.window.size.seconds, by their defaults."""
SHORT_FREEZE_S = 30
"""A client waits so long for a response (`request.timeout.ms`), then it connects anew: shorter ones pass unseen."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of objection; `about` says in a sentence when there is one."""

    name: str
    severity: Severity
    about: str
    lifted_by: tuple[str, ...]

    def objection(self, message: str) -> Objection:
        """An objection of this kind."""
        return Objection(self.name, self.severity, message, self.lifted_by)


def _refusal(name: str, about: str, *lifted_by: str) -> Kind:
    return Kind(name, Severity.REFUSAL, about, (*lifted_by, "--force"))


def _question(name: str, about: str) -> Kind:
    return Kind(name, Severity.QUESTION, about, ("--yes", "--force"))


def _warning(name: str, about: str) -> Kind:
    return Kind(name, Severity.WARNING, about, ())


DELETED_SHARE = _refusal(
    "deleted-share",
    "More than 20 % of the cluster's entities would be deleted, where it has ten or more.",
    "--max-deleted",
)
CHANGED_SHARE = _refusal(
    "changed-share",
    "More than 50 % of the cluster's entities would be changed or deleted, where it has ten or more.",
    "--max-changed",
)
PROTECTED = _refusal("protected", "An entity that the quotas file protects would change.")
INTERNAL = _refusal("internal-principal", "A default would limit a principal that the quotas file calls internal.")
FREEZE = _question(
    "freeze", "A client at its current byte rate limit would be blocked for more than 10 minutes under the lower one."
)
SHORT_FREEZE = _warning(
    "short-freeze", "A client at its current byte rate limit would be blocked for 30 seconds to 10 minutes."
)
LOW_DEFAULT = _question(
    "low-default",
    "A byte rate below 1 kB/s would be set for a default entity: all clients without a quota of their own would stop.",
)
NO_BROKER = _question(
    "no-broker",
    "No broker was ever registered at this place of ZooKeeper, and brokers are registered below another: the chroot is"
    " missing.",
)
DELETED_DEFAULT = _question(
    "deleted-default",
    "A plan would delete the value of a default entity, which alter and delete do only by its name: clients without a"
    " quota of their own would have no limit, or that of another default.",
)
TAKES_OVER = _warning(
    "takes-over",
    "A new quota of a user, or of the default user, takes the place of one that a client-id has, and lifts or lowers"
    " its clients' limit.",
)
FELT = (SHORT_FREEZE.name, TAKES_OVER.name)
"""Warnings about what clients get from one moment to the next, which lint does not find."""
UNSEEN = _warning(
    "unseen-limits",
    "A byte rate is set through a controller, which does not show the current limits: whether clients would be blocked"
    " is not known.",
)
LOG_SPACE = _refusal(
    "log-space", "A recording would write more than a log dir of the broker has room for, beside a reserve of 10 %."
)
LEVEL_OFF = _refusal(
    "level-off",
    "A recording could not give the request logger its level back: brokers do not take OFF (KIP-817). It would be FATAL"
    " afterwards, at which no request is logged.",
)
UNMEASURED = _question("unmeasured-log", "How much a recording will write is not known, and only the time ends it.")


_SLIPS = ("blocking-default", "low-request-percentage")
"""Rules that find values most likely meant in another unit. A value that was so low before was meant so."""


def _of_rules() -> Iterator[Kind]:
    """Lint's errors refuse a plan that sets such a value, as do names that look like a slip; warnings are said.

    What governs no client is asked about: whoever sets it in an emergency takes the clients for limited. So is a value
    that is most likely a slip.
    """
    for rule in RULES:
        if rule.name == INTERNAL.name or rule.severity < Grade.WARNING:
            continue
        if rule.name in ("one-address", "unreachable", *_SLIPS):
            yield _question(rule.name, rule.about)
        else:
            refuses = rule.severity is Grade.ERROR or rule.name == "doubtful-name"
            yield (_refusal if refuses else _warning)(rule.name, rule.about)


_RULES = {kind.name: kind for kind in _of_rules()}
_UNREACHABLE = next(rule for rule in RULES if rule.name == "unreachable")
_KNOWN = [rule for rule in RULES if rule is _UNREACHABLE or rule.name in _SLIPS]
KINDS = tuple(
    sorted(
        (
            *(DELETED_SHARE, CHANGED_SHARE, PROTECTED, INTERNAL, FREEZE, LOW_DEFAULT, SHORT_FREEZE, UNSEEN, TAKES_OVER),
            *(DELETED_DEFAULT, NO_BROKER, LOG_SPACE, LEVEL_OFF, UNMEASURED),
            *_RULES.values(),
        ),
        key=lambda kind: -kind.severity,
    )
)


@dataclass(frozen=True)
class Guards:
    """What may be changed at once.

    `most_deleted` and `most_changed` are shares of the entities that exist (0 to 1; clusters of fewer than ten entities
    are free). `protected` entities are never changed. `internal` are principals (users by name) that no default entity
    may begin to limit.
    """

    most_deleted: float = 0.2
    most_changed: float = 0.5
    protected: tuple[Selector, ...] = ()
    internal: tuple[str, ...] = ()

    @property
    def never_too_many(self) -> float:
        """So many changes are no larger share than these, whatever the cluster has: 2 by default."""
        return _SMALLEST * min(self.most_deleted, self.most_changed)


def review(
    plan: Plan, current: QuotaSnapshot, guards: Guards | None = None, findings: Sequence[Finding] | None = None
) -> tuple[Objection, ...]:
    """What speaks against the plan on a cluster that has the quotas of `current`, the gravest first.

    `current` may be a part of the cluster, as long as it has what `related` says of the plan's entities. `findings` are
    what `lint` finds in the quotas as the plan leaves them, where that is known already. The plan's own objections are
    not looked at; `with_review` keeps them.
    """
    guards = guards or Guards()
    if not plan:
        return ()
    objections = (
        *_shares(plan, guards),
        *_protected(plan, guards),
        *_internal(plan, current, guards),
        *_findings(plan, current, findings),
        *freezes(plan, current),
        *_deleted_defaults(plan),
        *_deleted_spellings(plan, current),
        *_taken_over(plan, current),
    )
    return gravest_first(objections)


def gravest_first(objections: Iterable[Objection]) -> tuple[Objection, ...]:
    """In the one order of objections, whoever found them and when: a plan's fingerprint is of the order as well."""
    places = {kind.name: place for place, kind in enumerate(KINDS)}
    last = len(places)
    return tuple(
        sorted(
            objections, key=lambda objection: (-objection.severity, places.get(objection.name, last), objection.message)
        )
    )


def with_review(
    plan: Plan, current: QuotaSnapshot, guards: Guards | None = None, findings: Sequence[Finding] | None = None
) -> Plan:
    """The plan with its review. What a saved plan's own review found stays, but for shares: these are judged anew."""
    shares = (DELETED_SHARE.name, CHANGED_SHARE.name)
    kept = [objection for objection in plan.objections if objection.name not in shares]
    known = {(objection.name, objection.message) for objection in kept}
    anew = review(plan, current, guards, findings)
    new = [objection for objection in anew if (objection.name, objection.message) not in known]
    return replace(plan, objections=gravest_first((*kept, *new)))


def of_names(alterations: Iterable[Alteration]) -> tuple[Objection, ...]:
    """What speaks against the names of entities that are to be set, also where nothing would change."""
    kinds = {rule.name: rule for rule in RULES}
    wished = QuotaSnapshot({alteration.entity: alteration.set for alteration in alterations})
    names = [kinds["user-prefix"], kinds["literal-default"], kinds["doubtful-name"]]
    return tuple(
        _RULES[finding.rule.name].objection(f"{finding.entity}: {_about_names(finding.entity)}")
        for finding in lint(wished, rules=names)
        if finding.entity is not None
    )


def standing(objections: Iterable[Objection], *, yes: bool = False, force: bool = False) -> tuple[Objection, ...]:
    """The objections that stop a plan: refusals unless `force`, questions unless `yes` or `force`; never a warning."""
    least = Severity.REFUSAL if yes else Severity.QUESTION
    return () if force else tuple(objection for objection in objections if objection.severity >= least)


def related(entity: Entity) -> tuple[Entity, ...]:
    """The entity and the entities that may govern its clients instead: what its review has to know."""
    if entity.ip is not None:
        return (entity,)
    users = {entity.user, DEFAULT, None}
    clients = {entity.client_id, DEFAULT, None}
    entities = {Entity(user, client) for user in users for client in clients if user is not None or client is not None}
    return tuple(sorted(entities, key=lambda other: other.sort_key))


def _deleted_defaults(plan: Plan) -> Iterator[Objection]:
    for change in plan.changes:
        if DEFAULT in change.entity and not change.relative:
            for key, old in change.before.items():
                if key not in change.after:
                    yield DELETED_DEFAULT.objection(f"{change.entity}: {key} {limit_text(key, old)} would be deleted")


def _deleted_spellings(plan: Plan, current: QuotaSnapshot) -> Iterator[Objection]:
    gone = [change.entity for change in plan.changes if not change.after and isinstance(change.entity.ip, str)]
    kept = plan.applied_to(current).addresses if gone else {}
    for entity in gone:
        for other in kept.get(address(str(entity.ip)), ()):
            why = f"deleting it may lift the limit of {other} too, another spelling (set that again afterwards)"
            yield _RULES["one-address"].objection(f"{entity}: {why}")


def _taken_over(plan: Plan, current: QuotaSnapshot) -> Iterator[Objection]:
    """Quotas of client-ids of any user that no longer govern the clients of users who had no quota of their own."""
    for key in CLIENT_KEYS:
        users = [
            change.entity.user
            for change in plan.changes
            if change.entity.client_id is None and key in change.after.keys() - change.before.keys()
        ]
        named = [user for user in users if user is not None]
        if not named:
            continue
        was = Resolver.of(current, key)
        for entity, values in current.items():
            if entity.client_id is None or isinstance(entity.user, str) or key not in values:
                continue
            client_id = entity.client_id if isinstance(entity.client_id, str) else "\0"
            taken = [
                user
                for user in named
                if (entity.user is None or user is not DEFAULT)  # a pair with the default user goes before that
                and was.resolve(user if isinstance(user, str) else "\0", client_id).entity == entity
            ]
            if taken:
                whose = f"{Entity(user=taken[0])}" + (f" and {len(taken) - 1} more" if len(taken) > 1 else "")
                yield TAKES_OVER.objection(
                    f"{entity}: {key} {limit_text(key, values[key])} will not govern the clients of {whose}"
                )


def freezes(plan: Plan, current: QuotaSnapshot) -> Iterator[Objection]:
    """For how long a client stands still that uses its present byte rate in full when the lower limit comes.

    The delay is (rate - limit) / limit times the window (`QuotaUtils.throttleTime`), and nothing bounds it. What
    governs the clients of an entity decides, so the deletion of a limit above a lower default counts as well; where a
    client gets another counter, that one has counted nothing yet.
    """
    after: QuotaSnapshot | None = None
    worst: dict[Entity, tuple[float, str]] = {}
    for key in BYTE_RATES:
        touched = [change for change in plan.changes if key in change.keys]
        if not touched:
            continue
        after = after or plan.applied_to(current)
        was, becomes = Resolver.of(current, key), Resolver.of(after, key)
        for change in touched:
            for user, client_id in _clients(change.entity):
                old, new = was.resolve(user, client_id), becomes.resolve(user, client_id)
                if change.entity not in (old.entity, new.entity) or old.sensor != new.sensor:
                    continue
                # No client has the rate of the largest value, which stands for no limit.
                if old.limit in (None, key.value_type.maximum) or new.limit is None or not new.limit > 0:
                    continue
                assert old.limit is not None
                seconds = (old.limit - new.limit) / new.limit * _WINDOW_S
                if seconds > worst.get(change.entity, (0.0, ""))[0]:
                    worst[change.entity] = seconds, f"{key} {humanize(key, old.limit)} to {humanize(key, new.limit)}"
    for entity, (seconds, what) in worst.items():
        if seconds >= SHORT_FREEZE_S:
            kind = FREEZE if seconds > LONG_FREEZE_S else SHORT_FREEZE
            yield kind.objection(
                f"{entity}: a client at its current limit would be blocked for up to"
                f" {duration(round(1000 * seconds))} ({what})"
            )


def _clients(entity: Entity) -> Iterator[tuple[str, str]]:
    """A client of the entity with a name that no other entity has, and one without a client-id."""
    user = entity.user if isinstance(entity.user, str) else "\0"
    if isinstance(entity.client_id, str):
        yield user, entity.client_id
    else:
        yield user, "\0"
        yield user, ""


def _shares(plan: Plan, guards: Guards) -> Iterator[Objection]:
    if plan.existing < _SMALLEST:
        return
    deleted = plan.count(Action.DELETE)
    changed = deleted + plan.count(Action.UPDATE)
    for count, most, what, kind in (
        (deleted, guards.most_deleted, "delete", DELETED_SHARE),
        (changed, guards.most_changed, "change", CHANGED_SHARE),
    ):
        if count > most * plan.existing:
            share = 100 * count / plan.existing
            yield kind.objection(
                f"it would {what} {count} of {plan.existing} entities ({share:.0f} %, at most {100 * most:.0f} %)"
            )


def _protected(plan: Plan, guards: Guards) -> Iterator[Objection]:
    for change in plan.changes:
        selector = selected(change.entity, guards.protected)
        if selector is not None:
            yield PROTECTED.objection(
                f"it would {change.action.value} {change.entity}, which is protected by {selector}"
            )


def _internal(plan: Plan, current: QuotaSnapshot, guards: Guards) -> Iterator[Objection]:
    if not guards.internal:
        return
    after = plan.applied_to(current)
    touched = {change.entity for change in plan.changes}
    for key in CLIENT_KEYS:
        was, is_ = Resolver.of(current, key), Resolver.of(after, key)
        for user in guards.internal:
            # With a client-id that nobody has and without one: these are governed by different defaults.
            for client_id in ("\0", ""):
                now = is_.resolve(user, client_id)
                if now.level in DEFAULTS and now.entity in touched and now.limit != was.resolve(user, client_id).limit:
                    yield INTERNAL.objection(f"{key} of {now.entity} would limit the internal principal {user}")
                    break


def _findings(plan: Plan, current: QuotaSnapshot, findings: Sequence[Finding] | None) -> Iterator[Objection]:
    """What lint finds about what the plan sets; other values of the same entities were there before."""
    setting = {change.entity: change for change in plan.changes if not change.after.keys().isdisjoint(change.keys)}
    if not setting:
        return
    if findings is None:
        findings = lint(plan.applied_to(current))
    known = {(finding.rule, finding.entity, finding.key) for finding in lint(current, rules=_KNOWN)}
    for finding in concerning(findings, setting.keys()):
        kind = _RULES.get(finding.rule.name)
        if kind is None or finding.entity is None:
            continue
        if kind is _RULES["suspiciously-low"] and DEFAULT in (finding.entity.user, finding.entity.client_id):
            kind = LOW_DEFAULT
        for entity in (finding.entity, finding.by):
            change = setting.get(entity) if entity is not None else None
            if change is not None and (finding.key is None or finding.key in change.keys):
                was_there = (finding.rule, finding.entity, finding.key) in known
                if was_there and (finding.rule is not _UNREACHABLE or entity is finding.by):
                    continue  # a low value that was meant, or one that governed nobody before and is left alone
                key = "" if finding.key is None else f" {finding.key}"
                why = _about_names(finding.entity) if finding.key is None else None
                proof = finding.hint if finding.rule is _UNREACHABLE else finding.proof
                yield kind.objection(f"{finding.entity}{key}: {why or f'{finding.message} ({proof})'}")
                break


def _about_names(entity: Entity) -> str | None:
    """What was meant by the names of an entity, where one is most likely a mistake."""
    return next((why for kind, name in entity.parts if (why := misnomer(kind, name) or doubt(kind, name))), None)
