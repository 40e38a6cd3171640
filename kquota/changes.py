"""The one road of every write, as the library has it: a wish becomes a plan, the plan has its review, and then it is
applied and journalled. The commands are these functions with questions and tables around them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from kquota import reconcile
from kquota.backends import QuotaBackend, cluster_of, describe_entities
from kquota.backends.addresses import option_of
from kquota.core.change.plan import ApplyReport, Change, Cluster, Plan, plan_of
from kquota.core.change.plan import plan as core_plan
from kquota.core.change.review import (
    NO_BROKER,
    UNSEEN,
    Guards,
    freezes,
    gravest_first,
    of_names,
    related,
    standing,
    with_review,
)
from kquota.core.quotas.alteration import Alteration, AlterResult, WrittenQuotas, merge, quotas_of
from kquota.core.quotas.entity import DEFAULT, Entity, EntityType
from kquota.core.quotas.quota import QuotaKey
from kquota.core.quotas.selector import ANY, QuotaFilter
from kquota.core.quotas.snapshot import QuotaSnapshot, Values
from kquota.core.resolve.resolver import Resolution, Resolver, resolve_ip
from kquota.documents.journal import Entry, Journal, Pages
from kquota.documents.quotas import read_quota_file
from kquota.errors import Conflict, InputError, KquotaError, Locked, Refused, Uncertain, Unreachable
from kquota.leases import Lease, Leases, read_leases
from kquota.leases import kept as kept_values
from kquota.reconcile import Terms
from kquota.state import CLUSTER, journal_folder

_ATTEMPTS = 20
"""How often in a row an alteration is planned anew because another writer changed the same key meanwhile."""


def journal_of(cluster: QuotaBackend, folder: Path | None = None) -> Journal:
    """The journal in that folder, else beside the state of other programs (XDG); with `CLUSTER`, the cluster's own.

    Raises InputError for a cluster that keeps none.
    """
    folder = folder or journal_folder()
    if folder != CLUSTER:
        return Journal(folder)
    kept_in = cluster.journal()
    if kept_in is None:
        raise InputError("this cluster keeps no journal", hint="give a folder: --journal DIR")
    return Journal(CLUSTER, kept_in=kept_in)


# --- The library's own functions -----------------------------------------------------------------------------------


def plan(
    cluster: QuotaBackend,
    wish: Path | str | WrittenQuotas | Iterable[Alteration],
    *,
    prune: bool = False,
    overlay: str | None = None,
    guards: Guards | None = None,
) -> Plan:
    """What has to change on a cluster for a wish to come true, with its review in `Plan.objections`; writes nothing.

    The wish is a quotas file by its path, the quotas that entities shall have, or alterations: entities, keys and
    values may be texts, as in `{"user=alice": {"producer_byte_rate": "10MB"}}`. `prune` deletes what a
    file or a mapping does not name; `overlay` is the cluster of a file's overlays. A file brings its guards with it;
    `guards` replaces them. Raises InputError for a wrong wish, the error of an alteration that the cluster would
    refuse, and what `QuotaBackend.describe` raises.

        with connect(context="prod") as cluster:
            planned = plan(cluster, "quotas.yaml", prune=True)
            print(planned.changes, planned.objections)
    """
    if isinstance(wish, (str, Path)):
        file = read_quota_file(Path(wish), overlay)
        guards = guards or file.guards
        current = cluster.describe()
        made = core_plan(current, file.desired, prune=prune, unmanaged=file.unmanaged)
    elif isinstance(wish, Mapping):
        desired = quotas_of(wish)
        for entity, values in desired.items():
            if values:
                Alteration(entity, values)  # the rules of what an entity may carry live there
        current = cluster.describe()
        made = core_plan(current, desired, prune=prune)
    else:
        if prune:
            raise InputError("alterations name all that changes: nothing is left to prune")
        answered = rehearse(cluster, list(wish), guards)
        for result in answered.results:
            if result.error is not None:
                raise result.error
        return answered.plan
    return placed(with_review(replace(made, cluster=cluster_of(cluster)), current, guards), cluster)


def apply(
    cluster: QuotaBackend,
    plan: Plan,
    *,
    yes: bool = False,
    force: bool = False,
    expires: int | None = None,
    rollback: bool = True,
    journal: Path | None = None,
) -> ApplyReport:
    """Makes the changes of a plan, and writes down the way back before.

    Raises Refused where an objection of the plan stands: `yes` answers questions, `force` lifts refusals as well; and
    for a plan of another cluster. `expires` is when `kquota reconcile` takes it back, in ms since the epoch. Raises
    Conflict where the cluster is not as the plan found it, and what `kquota.reconcile.apply` raises.

        report = apply(cluster, plan(cluster, "quotas.yaml"), yes=True)
        print(report.outcome, report.entry)
    """
    stopped = standing(plan.objections, yes=yes, force=force)
    if stopped:
        raise Refused(stopped[0].message, hint=f"lifted by {' or '.join(stopped[0].lifted_by)}")
    check_cluster(plan, cluster)
    book = journal_of(cluster, journal)
    terms = Terms(journal=book, cluster=place_of(cluster).address, expires=expires, rollback=rollback)
    return reconcile.apply(plan, cluster, terms)


def undo(cluster: QuotaBackend, id: str | None = None, *, journal: Path | None = None) -> ApplyReport:
    """Takes back an entry of the journal, by its id or number; without one, the last of this cluster that stands.

    Of an entry that is undone already, nothing is done once more. Raises InputError where there is none, and for a
    recording of requests (`kquota record`); Conflict where an entity was changed since.

        undo(cluster, report.entry)
    """
    book = journal_of(cluster, journal)
    here = place_of(cluster)
    pages = book.read()
    entry = to_undo(pages, id, here)
    if entry.id in pages.undone:
        return ApplyReport(already=tuple(change.entity for change in entry.plan.changes))
    if entry.levels:  # it has no quotas, and an undo of none would count as done
        raise InputError(
            f"entry {entry.name} switched request loggers on, and changed no quotas",
            hint=f"'kquota undo {entry.name}' switches them back",
        )
    back = pages.way_back(entry)
    check_cluster(back, cluster)
    terms = Terms(journal=book, cluster=here.address, command="undo", undoes=entry.id)
    return reconcile.apply(back, cluster, terms)


# --- What the commands share ---------------------------------------------------------------------------------------


def place_of(backend: QuotaBackend) -> Cluster:
    """Which cluster a backend works on; one in memory has an address as well."""
    return cluster_of(backend) or Cluster("memory")


def check_cluster(plan: Plan, backend: QuotaBackend) -> None:
    """Raises Refused for a plan that was made for another cluster."""
    if plan.cluster is None:
        return
    here = cluster_of(backend)
    if here is None or not plan.cluster.is_same(here):
        raise Refused(
            f"the plan was made for {plan.cluster}, and this is {here or 'no cluster'}", hint="plan again for this one"
        )


def to_undo(pages: Pages, id: str | None, here: Cluster, about: Callable[[Entity], bool] | None = None) -> Entry:
    """The entry to take back: of that id or number, else the last of the cluster that stands.

    `about` are the entities that are meant. Raises InputError where there is none, and for one of another cluster;
    Locked where its run has not ended.
    """
    entry = last_standing(pages, here, about) if id is None else pages.entry(id)
    if not entry.is_of(here) and entry.cluster != here.address:
        raise InputError(
            f"entry {entry.name} was done at {entry.cluster}, not at {here.address}",
            hint=f"give {option_of(entry.cluster)}",
        )
    if entry.kept and not entry.plan.changes:
        raise InputError(
            f"entry {entry.name} changed when a value ends, and no value",
            hint="'kquota alter' with --for gives it another end",
        )
    journal = pages.journal or Journal(pages.folder)
    # What a recording switched may be switched back at any time.
    if not entry.levels and journal.is_written(entry):  # what it writes afterwards would have no way back
        by = f" by {entry.by}" if entry.by else ""
        raise Locked(f"entry {entry.name} is still being written{by}", hint="undo it when that run has ended")
    return entry


def last_standing(pages: Pages, cluster: Cluster, about: Callable[[Entity], bool] | None = None) -> Entry:
    """The last entry that can be taken back and is no undo itself; with `about`, for such an entity.

    Raises InputError where there is none.
    """
    for entry in reversed(pages.of(cluster)):
        if entry.undoes is not None or not pages.can_be_undone(entry):
            continue
        if about is None or any(about(change.entity) for change in pages.way_back(entry).changes):
            return entry
    whom = "" if about is None else " of these entities"
    raise InputError(f"nothing{whom} to undo at {cluster.address} in the journal {pages.folder}", hint=pages.elsewhere)


def with_freezes(plan: Plan, backend: QuotaBackend) -> Plan:
    """A plan that takes something back, with the freezes alone as its review: what was there may be there again."""
    around = describe_entities(backend, [entity for change in plan.changes for entity in related(change.entity)])
    return replace(plan, objections=gravest_first(freezes(plan, around)))


@dataclass(frozen=True)
class Rehearsal:
    """A dry run of alterations: what each would do, and the plan of the possible ones, with its review.

    `blind`: a controller answered, which does not show what is set; the plan is good for its review alone. `kept` are
    leases whose value is set once more, which gives them another end or none; `ended` are leases that the plan ends.
    `around` are the quotas as they are, of all entities that may govern the same clients.
    """

    results: tuple[AlterResult, ...]
    plan: Plan
    blind: bool = False
    kept: tuple[Lease, ...] = ()
    ended: tuple[Lease, ...] = ()
    around: QuotaSnapshot = field(default_factory=QuotaSnapshot)

    def among(self, leases: Leases, alterations: Sequence[Alteration], *, expires: int | None) -> Rehearsal:
        """The rehearsal with what the alterations mean for leases; `expires` is their own end in ms since the epoch."""
        values = {result.entity: result.after for result in self.results if result.error is None and not result.blind}
        kept = leases.kept_by(alterations, values)
        ended = leases.ended_by(self.plan) if expires is None else ()
        return replace(self, kept=tuple(lease for lease in kept if lease not in ended), ended=ended)


def rehearse(backend: QuotaBackend, alterations: Sequence[Alteration], guards: Guards | None = None) -> Rehearsal:
    """Plans alterations. Reads no more of the cluster than their review needs; raises what a dry run raises."""
    results = backend.alter(alterations, validate_only=True)
    if any(result.blind for result in results):
        return Rehearsal(results, _unseen(results), blind=True)
    made = plan_of(alterations, results)
    if not made:
        return Rehearsal(results, replace(made, objections=of_names(alterations)))
    guards = guards or Guards()
    # Where no share can be too large, the rest of the cluster need not be read.
    few = len(made.changes) <= guards.never_too_many and not guards.internal
    around = [entity for change in made.changes for entity in related(change.entity)]
    seen: Mapping[Entity, Values] = describe_entities(backend, around) if few else backend.describe()
    if few and any(change.entity.ip is not None for change in made.changes):
        # Other spellings of the same address.
        seen = {**seen, **backend.describe(QuotaFilter({EntityType.IP: ANY}))}
    of_all = [change.entity for change in made.changes if not isinstance(change.entity.user, str)]
    if few and any(entity.client_id and (entity.user or Entity(user=DEFAULT) in seen) for entity in of_all):
        # Users whom neither the client-id nor its pair with all users reaches.
        seen = {**seen, **backend.describe(QuotaFilter({EntityType.USER: ANY}, strict=True))}
    made = replace(made, existing=0 if few else len(seen), cluster=cluster_of(backend))
    current = QuotaSnapshot({**seen, **{result.entity: result.before for result in results}})
    return Rehearsal(results, placed(with_review(made, current, guards), backend), around=current)


def governing_of(quotas: QuotaSnapshot, entity: Entity, key: QuotaKey) -> Resolution:
    """What governs the clients of an entity that no other entity names; of a default entity, of nobody's names."""
    user, client_id, ip = (
        name if isinstance(name, str) else "\0" for name in (entity.user, entity.client_id, entity.ip)
    )
    return Resolver.of(quotas, key).resolve(user, client_id) if entity.ip is None else resolve_ip(quotas, ip)


def unwritten(error: KquotaError) -> KquotaError:
    """The error of what came before the first write, which says so where people would wonder."""
    if isinstance(error, Unreachable) and not isinstance(error, Uncertain):
        error.message = f"{error.message.removeprefix('nothing was written: ').rstrip('.')}. Nothing was written."
    return error


def placed(plan: Plan, backend: QuotaBackend) -> Plan:
    """The plan with a question where brokers read their quotas from another place than this backend."""
    place = backend.elsewhere() if plan else None
    if place is None:
        return plan
    question = NO_BROKER.objection(f"no broker was ever registered here, but at {place}: is the chroot missing?")
    return replace(plan, objections=gravest_first((*plan.objections, question)))


def _unseen(results: Sequence[AlterResult]) -> Plan:
    """What is set through a controller, as if nothing had been there: for the review of names and values."""
    changes = tuple(
        Change(result.entity, {}, result.after) for result in results if result.error is None and result.after
    )
    made = with_review(Plan(changes), QuotaSnapshot())
    rates = {QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE}
    if not any(rates & result.blind for result in results):
        return made
    unseen = UNSEEN.objection(
        "controllers do not show the current limits: whether a busy client would be blocked under a lower one is not"
        " known"
    )
    return replace(made, objections=gravest_first((*made.objections, unseen)))


@dataclass(frozen=True)
class Altered(Rehearsal):
    """What came of alterations: a result per entity in the order of mention, and the journal's entries.

    The plan is the first one. `unverified` were written, but a describe shows other values. `interrupted`: it was
    stopped before its end. `unfinished` is why the journal does not know what came of it.
    """

    entries: tuple[str, ...] = ()
    unverified: tuple[Entity, ...] = ()
    interrupted: bool = False
    unfinished: str | None = None
    leases: Leases = field(default_factory=Leases)
    """Those of the cluster before the write, as far as the journal can be read."""


def alter(
    backend: QuotaBackend,
    alterations: Sequence[Alteration],
    terms: Terms,
    *,
    consent: Callable[[Rehearsal], None],
    guards: Guards | None = None,
    writing: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Altered:
    """Alters on the one road: rehearse, ask for consent, apply, journal.

    An alteration is about its own keys: when another writer changes one of these meanwhile, it is planned anew, and
    `consent` is asked again. Entities that cannot be altered have their error in their result; the others are altered
    all the same. Before the journal has an entry, what `consent` and `QuotaBackend.alter` raise is raised; afterwards
    it is the error of every entity that is left. Through a controller nothing can be planned: it is written at once,
    without a way back or an end. `writing` is entered for each write. A leased value that is wished again gets the end
    of `terms`, or stays for good.
    """
    pending = merge(alterations)
    rounds = _Rounds({wish.entity: wish for wish in pending}, pending, backend, terms, consent, guards, writing)
    while rounds.pending:
        rounds.turn()
    return rounds.altered()


@dataclass
class _Rounds:
    """An alteration on its way: what is still pending, and what came of the rest."""

    wishes: Mapping[Entity, Alteration]
    pending: Sequence[Alteration]
    backend: QuotaBackend
    terms: Terms
    consent: Callable[[Rehearsal], None]
    guards: Guards | None
    writing: Callable[[], AbstractContextManager[object]]
    due: set[Entity] = field(default_factory=set)
    """What this round writes."""
    attempt: int = 0
    results: dict[Entity, AlterResult] = field(default_factory=dict)
    """What the last rehearsal of each said, which is what came of it unless the result has an error."""
    entries: list[str] = field(default_factory=list)
    unverified: list[Entity] = field(default_factory=list)
    first: Rehearsal | None = None
    interrupted: bool = False
    unfinished: str | None = None
    leases: Leases | None = None
    kept: tuple[Lease, ...] = ()
    owed: tuple[Lease, ...] = ()
    """Kept by entities that need no write, while the journal does not know: a write of others may lose its race."""
    ended: tuple[Lease, ...] = ()

    def _began(self, entry: Entry) -> None:
        self.entries.append(entry.id)
        self.terms.begun(entry)

    def turn(self) -> None:
        """Writes what is pending, as it is planned now. Raises what comes before the first write of all."""
        self.due = {alteration.entity for alteration in self.pending}
        try:
            report = self._written()
        except KquotaError as error:  # before the first write of this round
            stopped = self.terms.stop()
            is_tried_again = _lost_a_race(error) and self.attempt < _ATTEMPTS - 1 and not stopped
            if not self.entries and not is_tried_again:
                raise error if self.first is not None and self.first.blind else unwritten(error) from None
            # What the rounds before have written is written.
            report = ApplyReport(failed=tuple((entity, error) for entity in self.due), interrupted=stopped)
        self._settle(report)
        if self.pending:
            time.sleep(min(0.2, 0.005 * 2.0**self.attempt))  # rival writers get out of each other's step

    def _written(self) -> ApplyReport:
        """Plans what is pending, asks for consent, and applies it."""
        rehearsal = rehearse(self.backend, self.pending, self.guards)
        self.first = self.first or rehearsal
        if rehearsal.blind:
            self.consent(rehearsal)
            self.results = {result.entity: result for result in self.backend.alter(self.pending)}
            self.due = set()
            return ApplyReport()
        if self.leases is None:
            self.leases = read_leases(self.terms.journal, place_of(self.backend))
        rehearsal = rehearsal.among(self.leases, self.pending, expires=self.terms.expires)
        planned = rehearsal.plan
        self.results |= {result.entity: result for result in rehearsal.results}
        self.due = {change.entity for change in planned.changes}
        new = (*self.owed, *(lease for lease in rehearsal.kept if lease not in self.kept))
        self.owed = tuple(lease for lease in new if lease.entity not in self.due)
        if planned or planned.objections or new:
            self.consent(rehearsal)
        if not planned and not new:
            return ApplyReport()
        if planned.cluster is None:  # the ends of leases alone are of this cluster, too
            planned = replace(planned, cluster=cluster_of(self.backend))
        with self.writing():
            terms = replace(self.terms, kept=kept_values(new), rollback=False, begun=self._began)
            report = reconcile.apply(planned, self.backend, terms)
        if report.entry is not None:
            self.kept, self.owed = (*self.kept, *new), ()
        self.ended = (*self.ended, *(lease for lease in rehearsal.ended if lease not in self.ended))
        return report

    def _settle(self, report: ApplyReport) -> None:
        """Takes what came of a round; what lost a race to another writer stays pending."""
        self.unverified += report.unverified
        self.unfinished = report.unfinished or self.unfinished
        errors = dict(report.failed)
        for entity in report.unknown:
            errors.setdefault(
                entity, Uncertain(f"{entity} may or may not have been altered", hint="describe it to see")
            )
        again = {*report.skipped, *(entity for entity, error in errors.items() if _lost_a_race(error))}
        self.attempt = self.attempt + 1 if again == self.due else 0
        if again == self.due and report.entry in self.entries and self.unfinished is None:
            self.entries.remove(report.entry)  # it lost its race: nothing of it can be taken back
        self.interrupted = report.interrupted or (bool(again) and self.terms.stop())
        if self.interrupted or self.attempt == _ATTEMPTS:
            stopped, lost = Refused("not altered: it was stopped before"), Conflict("not altered: not tried")
            errors |= dict.fromkeys(report.skipped, stopped if self.interrupted else lost)
            again = set()
        for entity in errors.keys() - again:
            before = self.results[entity].before if entity in self.results else {}
            self.results[entity] = AlterResult(entity, before, before, errors[entity])
        self.pending = tuple(wish for entity, wish in self.wishes.items() if entity in again)

    def altered(self) -> Altered:
        """What came of all."""
        first = self.first or Rehearsal((), Plan(()))
        return Altered(
            tuple(self.results[entity] for entity in self.wishes),
            first.plan,
            kept=self.kept,
            ended=tuple(lease for lease in self.ended if self.results[lease.entity].error is None),
            around=first.around,
            entries=tuple(self.entries),
            unverified=tuple(self.unverified),
            interrupted=self.interrupted,
            unfinished=self.unfinished,
            leases=self.leases or Leases(),
        )


def _lost_a_race(error: KquotaError) -> bool:
    return isinstance(error, Conflict) and not isinstance(error, Locked)
