"""Leases: values that end. What a lease is, and how it ends, is decided here alone, from the entries of the journal.

A write with an end (`--for`) begins a lease of each value that it sets or deletes. A lease ends in one of the ways of
`Fate`, and never comes back to life: an undo of what ended it gives the value back without an end. A lease on top of a
lease ends first; the one below it waits for that. The journal stays append-only: all this is read from its order.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from kquota.core.change.plan import Cluster, Outcome, Plan
from kquota.core.quotas.alteration import Alteration
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey, Value, differ
from kquota.core.quotas.selector import Selector, selected
from kquota.core.quotas.snapshot import QuotaSnapshot, Values
from kquota.core.tabular import grouped
from kquota.documents.journal import Command, Entry, Journal, Kept, Pages, Unreadable, number_of

_MANY = 20
"""So many entries and changes are read in no time."""
_DIGITS = 10
"""A mark has fewer."""


class Fate(enum.Enum):
    """What became of a lease."""

    ON = "on"
    ENDED = "ended"
    """`kquota reconcile` took it back."""
    UNDONE = "undone"
    """Somebody took it back before."""
    PERMANENT = "made permanent"
    """Somebody set the same value again, without an end."""
    OVERTAKEN = "overtaken"
    """A later write of this journal, without an end, set another value."""
    CONFLICT = "conflict"
    """When its time was over, the value was another one, which no whole write of this journal had set."""


@dataclass(frozen=True, slots=True)
class Lease:
    """One value that ends: the entry that set `value`, and what is set again when it `ends` (ms since the epoch).

    None is no value. `by` is the entry that ended it, and `moved` the entry that last gave it another end. A lease that
    is `covered` lies below another one that is on, and waits for that.
    """

    entry: Entry
    entity: Entity
    key: QuotaKey
    value: Value | None
    back: Value | None
    then: Value | None
    """What is there after its end: `back`, or what a lease below puts back whose time is over by then."""
    ends: int
    fate: Fate = Fate.ON
    by: Entry | None = None
    moved: Entry | None = None
    covered: bool = False

    @property
    def is_on(self) -> bool:
        """Whether it has still to end."""
        return self.fate is Fate.ON

    def is_overdue(self, now: int) -> bool:
        """Whether it is on, its time is over, and it waits for no other lease."""
        return self.is_on and self.ends <= now and not self.covered


@dataclass(frozen=True)
class Leases:
    """The leases of one cluster, in the order of their beginnings."""

    all: tuple[Lease, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()
    """Files of the journal that cannot be read: leases may be missing."""

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Leases:
        """Reads the entries of one cluster, in the order of the journal."""
        leases: list[Lease] = []
        on: dict[tuple[Entity, QuotaKey], list[int]] = {}
        """Which leases of a value are on: their places in `leases`, the lowest lease first."""
        began: dict[str, range] = {}
        """The leases that an entry began: their places in `leases`."""

        def close(leased: tuple[Entity, QuotaKey], places: range, fate: Fate, by: Entry) -> None:
            for place in [place for place in on.get(leased, ()) if place in places]:
                on[leased].remove(place)
                leases[place] = replace(leases[place], fate=fate, by=by)

        for entry in entries:
            known = range(len(leases))
            began[entry.id] = known[len(leases) :]
            if entry.levels or not (entry.may_have_changed or entry.kept):
                continue
            reconciled = entry.command == "reconcile"
            settled = entry.kept if settles(entry.command, entry.outcome) else ()
            for leased in ((entity, key) for entity, keys in settled for key in keys):
                if entry.expires is None:
                    close(leased, known, Fate.CONFLICT if reconciled else Fate.PERMANENT, entry)
                elif on.get(leased):
                    place = on[leased][-1]
                    leases[place] = replace(leases[place], ends=entry.expires, moved=entry)
            written = [(change, key) for change in entry.made.changes for key in change.keys]
            if entry.undoes is None:
                sure = {change.entity for change in entry.certain}
                for change, key in written:
                    value, back = change.after.get(key), change.before.get(key)
                    if entry.expires is None and change.entity in sure:
                        close((change.entity, key), known, Fate.OVERTAKEN, entry)
                    elif entry.expires is not None and differ(value, back):
                        on.setdefault((change.entity, key), []).append(len(leases))
                        leases.append(Lease(entry, change.entity, key, value, back, back, entry.expires))
                began[entry.id] = range(len(known), len(leases))
            elif entry.outcome == "applied":
                # An entry that is not among these came before them all: it began no lease.
                own = began.get(entry.undoes, known[:0])
                for leased in entry.parts or on:
                    close(leased, own, Fate.ENDED if reconciled else Fate.UNDONE, entry)
                for change, key in written:
                    close((change.entity, key), known[own.stop :], Fate.OVERTAKEN, entry)
        for places in on.values():
            for place in places[:-1]:
                leases[place] = replace(leases[place], covered=True)
            for place in places[-1:]:
                top = leases[place]
                leases[place] = replace(top, then=_left([leases[below] for below in places[:-1]], top.back, top.ends))
        return cls(tuple(leases))

    @property
    def on(self) -> tuple[Lease, ...]:
        """The leases that have still to end."""
        return tuple(lease for lease in self.all if lease.is_on)

    def of_entry(self, entry: Entry) -> tuple[Lease, ...]:
        """The leases that an entry began."""
        return tuple(lease for lease in self.all if lease.entry.id == entry.id)

    def overdue(self, now: int) -> tuple[Lease, ...]:
        """The leases whose time is over, and that wait for no other lease."""
        return tuple(lease for lease in self.all if lease.is_overdue(now))

    def due(self, now: int) -> Mapping[str, Sequence[Lease]]:
        """What can be taken back now, by the id of the entry, the newest first."""
        return grouped(reversed(self.overdue(now)), lambda lease: lease.entry.id)

    def shown_in(self, snapshot: QuotaSnapshot) -> tuple[Lease, ...]:
        """The leases whose values a snapshot shows, of entities that are in it."""
        return tuple(
            lease
            for lease in self.on
            if not lease.covered
            and lease.entity in snapshot
            and not differ(snapshot[lease.entity].get(lease.key), lease.value)
        )

    def beneath(self, entity: Entity, key: QuotaKey, value: Value | None, at: int) -> Value | None:
        """What is there after a lease above `value` ended at that time (ms since the epoch)."""
        return _left([lease for lease in self.on if (lease.entity, lease.key) == (entity, key)], value, at)

    def kept_by(self, wishes: Iterable[Alteration], values: Mapping[Entity, Values]) -> tuple[Lease, ...]:
        """The leases whose value is wished again, while it is set: they get another end, or none."""
        return self._kept(
            {(wish.entity, key): wish.set.get(key) for wish in wishes for key in {*wish.set, *wish.remove}}, values
        )

    def kept_by_quotas(
        self,
        desired: Mapping[Entity, Values],
        values: Mapping[Entity, Values],
        *,
        prune: bool = False,
        unmanaged: Sequence[Selector] = (),
    ) -> tuple[Lease, ...]:
        """As `kept_by`, of the quotas that entities shall have; the other arguments are as in `plan`."""
        asked = {
            (lease.entity, lease.key): desired.get(lease.entity, {}).get(lease.key)
            for lease in self.on
            if (prune or lease.key in desired.get(lease.entity, {})) and selected(lease.entity, unmanaged) is None
        }
        return self._kept(asked, values)

    def _kept(
        self, asked: Mapping[tuple[Entity, QuotaKey], Value | None], values: Mapping[Entity, Values]
    ) -> tuple[Lease, ...]:
        return tuple(
            lease
            for lease in self.on
            if (lease.entity, lease.key) in asked
            and not differ(asked[lease.entity, lease.key], lease.value)
            and not differ(values.get(lease.entity, {}).get(lease.key), lease.value)
            and not lease.covered
        )

    def ended_by(self, plan: Plan) -> tuple[Lease, ...]:
        """The leases that a plan ends, when it is applied without an end."""
        changed = {(change.entity, key) for change in plan.changes for key in change.keys}
        return tuple(lease for lease in self.on if (lease.entity, lease.key) in changed)


@dataclass(frozen=True)
class Ending:
    """What is to be done about the leases of one entry that are over.

    `plan` takes back what is as the entry left it. `conflicts` are leases whose value somebody else has changed, with
    the present value. `part` are all of the leases, where others of the entry are on afterwards.
    """

    plan: Plan
    conflicts: tuple[tuple[Lease, Value | None], ...]
    part: Kept

    @property
    def kept(self) -> Kept:
        """The values in conflict, as the journal has them."""
        return kept(lease for lease, _ in self.conflicts)

    def assumed(self, entry: Entry) -> Entry:
        """What the journal would have of it."""
        made = Entry("", entry.cluster, "reconcile", entry.started, self.plan, undoes=entry.id, outcome="applied")
        return replace(made, kept=self.kept, part=self.part)


def ending(leases: Sequence[Lease], current: QuotaSnapshot, *, is_whole: bool) -> Ending:
    """How leases of one entry end on a cluster as it is now."""
    entry = leases[0].entry
    conflicts = []
    due: dict[Entity, list[QuotaKey]] = {}
    for lease in leases:
        value = current.get(lease.entity, {}).get(lease.key)
        if not differ(value, lease.value):
            due.setdefault(lease.entity, []).append(lease.key)
        elif differ(value, lease.back):
            conflicts.append((lease, value))
    changes = tuple(
        # What others do to other keys is no conflict.
        replace(change.inverse.of(due[change.entity]), relative=True)
        for change in entry.made.changes
        if change.entity in due
    )
    return Ending(Plan(changes, cluster=entry.plan.cluster), tuple(conflicts), () if is_whole else kept(leases))


def _left(below: Sequence[Lease], value: Value | None, at: int) -> Value | None:
    """What one reconcile leaves at that time, when it has set the value again that was above these leases."""
    for lease in reversed(below):
        if differ(lease.value, value) or lease.ends > at:
            break
        value = lease.back
    return value


def settles(command: Command, outcome: Outcome | None) -> bool:
    """Whether the values that an entry keeps have its end, or none, by what became of its other values.

    They were set before, so other values that failed do not matter. A reconcile tries its conflicts again, and an apply
    that was rolled back leaves everything as it was. alter and delete take nothing back.
    """
    if outcome == "rolled back":
        return command in ("alter", "delete")
    return outcome == "applied" or (outcome == "incomplete" and command != "reconcile")


def kept(leases: Iterable[Lease]) -> Kept:
    """The values of leases, as the journal has them: the keys of each entity."""
    by_entity = grouped(leases, lambda lease: lease.entity)
    return tuple((entity, tuple(lease.key for lease in group)) for entity, group in by_entity.items())


def read_leases(journal: Journal, cluster: str | Cluster, more: Sequence[Entry] = ()) -> Leases:
    """The leases of a cluster that are on; `more` are entries that a dry run adds to the journal.

    Raises InputError for the folder.
    """
    pages = read_entries(journal)
    return replace(Leases.of((*pages.of(cluster), *more)), unreadable=pages.unreadable)


def read_entries(journal: Journal) -> Pages:
    """The entries on which leases hang that are on, and all after them. Raises InputError for the folder.

    What is over stays over. So a long reading leaves a mark: how many entries are over, and the last of them. They are
    not read again, as long as there are so many up to that one.
    """
    names = sorted(journal.names(), key=lambda name: (number_of(name), name))
    count, _, last = journal.store.mark.partition(b" ")
    over = int(count) if count.isdigit() and len(count) < _DIGITS else 0
    if not 0 < over <= len(names) or names[over - 1].encode() != last:
        over = 0
    pages = journal.read(names[over:])
    if sum(1 + len(entry.plan.changes) for entry in pages.entries) > _MANY:
        on = [lease.entry.number for _, leases in by_place(pages.entries) for lease in leases.on]
        first = min([*on, *(file.number for file in pages.unreadable)], default=math.inf)
        now_over = sum(number_of(name) < first for name in names)
        if now_over > over:
            journal.store.mark = f"{now_over} {names[now_over - 1]}".encode()
    return pages


def by_place(entries: Sequence[Entry]) -> Iterator[tuple[Cluster, Leases]]:
    """The leases of each cluster that has some."""
    left = [entry for entry in entries if entry.expires is not None and not entry.levels]
    while left:
        place = left[0].place
        yield place, Leases.of(entry for entry in entries if entry.is_of(place))
        left = [entry for entry in left[1:] if not entry.is_of(place)]


def prune(journal: Journal, before: int) -> tuple[Entry, ...]:
    """Removes the oldest entries, which began before that time (ms since the epoch), and returns them.

    It stops at the first that is not over, as what came after it counts: a lease that is on, a run without an outcome,
    request loggers that are switched on. Raises InputError for the folder.
    """
    pages = journal.read()
    on = {lease.entry.id for _, leases in by_place(pages.entries) for lease in leases.on}

    def is_over(entry: Entry) -> bool:
        if entry.id in pages.undone:
            return True
        return entry.outcome is not None and entry.id not in on and not (entry.levels and entry.outcome == "incomplete")

    gone = tuple(takewhile(lambda entry: entry.started < before and is_over(entry), pages.entries))
    journal.remove(gone)
    return gone
