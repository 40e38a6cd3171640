"""The journal: one file per change of a cluster, written before the first quota is (schemas/journal.schema.json).

Many writers share it. An entry is there when it is whole, and never takes another entry's name; its number says what
came first, whatever the clocks say. What cannot be read hides no other. Where the bytes are kept is a `JournalStore`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pwd
import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from kquota.core.change.journal_store import JournalStore
from kquota.core.change.plan import Change, Cluster, Outcome, Plan, servers_of
from kquota.core.change.recording import LOGGER, Level, LevelChange
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey, Value, differ
from kquota.documents.derive import each, picked
from kquota.documents.encoding import Document, Located, headed, to_json_line
from kquota.documents.folder import FolderStore
from kquota.documents.plan import plan_document, plan_of
from kquota.documents.quotas import read_entity
from kquota.errors import InputError
from kquota.state import CLUSTER

Command = Literal["apply", "alter", "delete", "undo", "reconcile", "kafka-configs", "record"]
Kept: TypeAlias = tuple[tuple[Entity, tuple[QuotaKey, ...]], ...]
"""Values by their names alone: the keys of each entity."""

_ID = re.compile(r"[0-9]{8}T[0-9]{6}Z-[0-9a-f]{12}-(?P<cluster>[0-9a-f]{4})-(?P<number>[0-9]+)", re.ASCII)
_LONGEST_ERROR = 1000
_WORST = "\x7f" * (_LONGEST_ERROR + 1)
"""No error is longer in an entry, where such a character has six."""


@dataclass(frozen=True)
class Entry:
    """What one run set out to do, and what came of it; times are ms since the epoch.

    Without an outcome it is still running or was killed: any of its entities may have the old or the new values. With
    `incomplete` some of them have the one, some the other. `untouched` are entities of the plan that the run did not
    change, or took back. `unknown` are entities that the run may or may not have changed, as an answer was lost or
    another writer came before the rollback; None where the journal does not say.
    """

    id: str
    """Empty of a draft."""
    cluster: str
    command: Command
    started: int
    plan: Plan
    finished: int | None = None
    expires: int | None = None
    undoes: str | None = None
    outcome: Outcome | None = None
    error: str | None = None
    untouched: tuple[Entity, ...] = ()
    levels: tuple[LevelChange, ...] = ()
    """The request loggers that are switched on; such an entry changes no quotas."""
    by: str | None = None
    """Who did it, as `user@host`."""
    kept: Kept = ()
    """Leased values that were set already: from now on they end at `expires`, or with None never (`kquota.leases`)."""
    part: Kept = ()
    """Of the entry that it `undoes`, the values that it takes back; empty for all that are left."""
    unknown: tuple[Entity, ...] | None = None
    message: str | None = None
    """Why it was done, in the words of who did it: a ticket, a reason."""
    file: str | None = None
    """The quotas file that it was done by, and its commit where git knows it."""
    known: Cluster | None = None
    """Of an entry without a cluster id, the cluster that other entries of the journal know at its address."""

    def is_of(self, cluster: str | Cluster) -> bool:
        """Whether it was done at that cluster: by the cluster ids where both are known, else by the addresses."""
        here = Cluster(cluster) if isinstance(cluster, str) else cluster
        return self.place.is_same(here)

    @property
    def place(self) -> Cluster:
        """Which cluster it was done at; by its address alone where nobody knows more."""
        return self.known or self.plan.cluster or Cluster(self.cluster)

    @property
    def may_have_changed(self) -> bool:
        """Whether there may be something to take back."""
        return self.outcome != "rolled back" and (bool(self.plan.changes or self.levels) or self.undoes is not None)

    @property
    def number(self) -> int:
        """Its place in the journal."""
        return number_of(self.id)

    @property
    def name(self) -> str:
        """What people call it, and commands take: its number in the journal."""
        return name_of(self.id)

    @property
    def file_name(self) -> str:
        """The name of its file in the journal."""
        return f"{self.id}.json"

    @property
    def made(self) -> Plan:
        """The changes of the plan that the run made, or may have made."""
        if not self.untouched:
            return self.plan
        untouched = set(self.untouched)
        changes = tuple(change for change in self.plan.changes if change.entity not in untouched)
        return replace(self.plan, changes=changes)

    @property
    def certain(self) -> tuple[Change, ...]:
        """The changes that the run made for certain."""
        if self.outcome == "applied":
            return self.made.changes
        if self.outcome != "incomplete" or self.unknown is None:
            return ()
        unknown = set(self.unknown)
        return tuple(change for change in self.made.changes if change.entity not in unknown)

    @property
    def values(self) -> frozenset[tuple[Entity, QuotaKey]]:
        """The values that it changed, or may have changed."""
        return frozenset((change.entity, key) for change in self.made.changes for key in change.keys)

    @property
    def parts(self) -> frozenset[tuple[Entity, QuotaKey]]:
        """The values of `part`."""
        return frozenset((entity, key) for entity, keys in self.part for key in keys)


class Unreadable(NamedTuple):
    """A file of the journal that is no entry: its name, and what is wrong with it."""

    name: str
    why: str

    @property
    def number(self) -> int:
        """The number of the entry that it should be; 0 where its name has none."""
        return number_of(self.name)


@dataclass(frozen=True)
class Pages:
    """What was read of a journal: its entries in the order of their beginnings, and the files that are none."""

    folder: Path
    entries: tuple[Entry, ...]
    unreadable: tuple[Unreadable, ...] = ()
    journal: Journal | None = None
    """Where they were read."""

    def of(self, cluster: str | Cluster) -> tuple[Entry, ...]:
        """The entries of one cluster, whatever address it was reached at."""
        return tuple(entry for entry in self.entries if entry.is_of(cluster))

    @cached_property
    def undone(self) -> frozenset[str]:
        """The ids of the entries that were taken back as a whole."""
        return self._taken_back[0]

    @cached_property
    def _taken_back(self) -> tuple[frozenset[str], Mapping[str, frozenset[tuple[Entity, QuotaKey]]]]:
        """The entries that were taken back as a whole, and the values of others that were taken back."""
        by_id = {entry.id: entry for entry in self.entries if entry.undoes is not None or entry.plan}
        whole: set[str] = set()
        parts: dict[str, frozenset[tuple[Entity, QuotaKey]]] = {}
        # Backwards: what an undo took back has undone nothing, where the undo was taken back itself.
        for entry in reversed(self.entries):
            if entry.undoes is None or entry.outcome != "applied" or entry.id in whole:
                continue
            lost = parts.get(entry.id, frozenset())
            if not entry.part and not lost:
                whole.add(entry.undoes)
            elif entry.undoes in by_id:
                values = by_id[entry.undoes].values
                parts[entry.undoes] = parts.get(entry.undoes, frozenset()) | ((entry.parts or values) - lost)
                if parts[entry.undoes] >= values:
                    whole.add(entry.undoes)
        return frozenset(whole), parts

    def undone_by(self, entry: Entry) -> tuple[Entry, ...]:
        """The entries that took it back, each a part or the whole, in their order."""
        return self._undoings.get(entry.id, ())

    @cached_property
    def _undoings(self) -> Mapping[str, tuple[Entry, ...]]:
        """By the id of an entry, what took it back and stands."""
        undoings: dict[str, tuple[Entry, ...]] = {}
        for entry in self.entries:
            if entry.undoes is not None and entry.outcome == "applied" and entry.id not in self.undone:
                undoings[entry.undoes] = (*undoings.get(entry.undoes, ()), entry)
        return undoings

    def way_back(self, entry: Entry) -> Plan:
        """The plan that takes an entry back: its values before, without the values that were taken back already."""
        back = entry.made.inverse
        taken = self._taken_back[1].get(entry.id)
        if not taken:
            return back
        left = {
            change.entity: [key for key in change.keys if (change.entity, key) not in taken] for change in back.changes
        }
        return replace(back, changes=tuple(change.of(keys) for change in back.changes if (keys := left[change.entity])))

    def setter(self, entity: Entity, key: QuotaKey, value: Value | None, since: Entry) -> Entry | None:
        """The last entry after `since` that gave an entity this value, if the last one that touched it did."""
        for entry in reversed(self.of(since.place)):
            if entry.id == since.id:
                return None
            for change in entry.made.changes if entry.may_have_changed else ():
                if change.entity == entity and key in change.keys:
                    return None if differ(change.after.get(key), value) else entry
        return None

    def can_be_undone(self, entry: Entry) -> bool:
        """Whether it may have changed something that was not taken back since."""
        return entry.may_have_changed and entry.id not in self.undone

    def entry(self, text: str) -> Entry:
        """The entry of that id or number. Raises InputError where there is none; of a number also for several."""
        meant = [entry for entry in self.entries if text in (entry.id, entry.name)]
        if len(meant) == 1:
            return meant[0]
        if meant:  # somebody copied entries into the folder
            ids = ", ".join(entry.id for entry in meant)
            raise InputError(
                f"{text!r} means {len(meant)} entries of the journal {self.folder}", hint=f"choose one of {ids}"
            )
        broken = [file for file in self.unreadable if file.name.startswith(text) or str(file.number) == text]
        if broken:
            raise InputError(f"{self.folder / broken[0].name} cannot be read: {broken[0].why}")
        raise InputError(f"no entry {text!r} in the journal {self.folder}", hint=self.elsewhere)

    @property
    def elsewhere(self) -> str:
        """Where to look for an entry that is not here."""
        here, other = (" --journal cluster", "a folder") if self.folder == CLUSTER else ("", "'cluster'")
        return (
            f"'kquota history{here}' lists what was done, by number; --journal names another journal, such as {other}"
        )


@dataclass(frozen=True)
class Journal:
    """The entries of a folder, which is made for the first one. With `kept_in`, that store has them instead."""

    folder: Path
    message: str | None = None
    """Why its user writes, for the entries that are begun: a ticket, a reason."""
    file: str | None = None
    """The quotas file of those entries."""
    kept_in: JournalStore | None = None

    @property
    def store(self) -> JournalStore:
        """What keeps the entries."""
        if self.kept_in is None and self.folder == CLUSTER:
            raise InputError("the journal of a cluster is not read here", hint="give a folder: --journal DIR")
        return self.kept_in or FolderStore(self.folder)

    def begin(self, draft: Entry) -> Entry:
        """Writes down what is about to be done and by whom, and keeps the room for what will come of it.

        The draft gets its id and its author here, and the message and the file of the journal. Until `finish` or
        `release`, everybody sees that the entry is being written (`is_written`). Raises InputError when it cannot be
        written, and the errors of a journal's cluster.
        """
        entry = replace(draft, by=_author(), message=self.message, file=self.file)
        moment = f"{datetime.fromtimestamp(entry.started // 1000, UTC):%Y%m%dT%H%M%SZ}"
        entities = tuple(change.entity for change in entry.plan.changes)
        worst = replace(entry, id="x" * 80, outcome="incomplete", finished=entry.started, error=_WORST)
        most = len(_bytes(replace(worst, untouched=entities, unknown=entities)))

        def named(names: Sequence[str]) -> tuple[str, bytes, int]:
            nonlocal entry
            number = max(map(number_of, names), default=0) + 1
            id = f"{moment}-{entry.plan.fingerprint}-{cluster_digest(entry.cluster)}-{number}"
            entry = replace(entry, id=id)
            return entry.file_name, _bytes(entry), most

        self.store.create(named)
        return entry

    def finish(
        self,
        entry: Entry,
        outcome: Outcome,
        *,
        now: int,
        error: str | None = None,
        untouched: Iterable[Entity] = (),
        unknown: Iterable[Entity] | None = None,
    ) -> Entry:
        """Writes down what came of it. Where that fails it raises as `begin`, and the entry is as `begin` left it."""
        error = error if error is None or len(error) <= _LONGEST_ERROR else f"{error[:_LONGEST_ERROR]}…"
        finished = replace(entry, outcome=outcome, finished=now, error=error, untouched=tuple(untouched))
        if outcome == "incomplete" and unknown is not None:
            finished = replace(finished, unknown=tuple(unknown))
        self.store.replace(entry.file_name, _bytes(finished))
        return finished

    def release(self, entry: Entry) -> None:
        """Lets an entry go whose run ends without a word about it; does nothing after `finish`."""
        self.store.release(entry.file_name)

    def is_written(self, entry: Entry) -> bool:
        """Whether a run that may still write has begun the entry; of other hosts nobody may know."""
        return entry.outcome is None and self.store.is_held(entry.file_name)

    def is_abandoned(self, entry: Entry) -> bool:
        """Whether the run that began the entry died; of other hosts nobody may know."""
        if entry.outcome is not None or self.store.is_held(entry.file_name):
            return False
        return self.store.sees_all_hosts or (entry.by or "").rpartition("@")[2] == socket.gethostname()

    def ids(self, cluster: str | None = None) -> tuple[str, ...]:
        """The ids that the entries have for names, the newest first, without a look into them.

        With a cluster, entries that certainly belong to another cluster are left out.
        """
        with contextlib.suppress(InputError):
            matches = [match for name in self.names() if (match := _ID.fullmatch(name.removesuffix(".json")))]
            if cluster is not None:
                matches = [match for match in matches if match["cluster"] == cluster_digest(cluster)]
            return tuple(sorted((match[0] for match in matches), key=lambda id: (number_of(id), id), reverse=True))
        return ()

    def names(self) -> list[str]:
        """The names of the entries that are there. Raises InputError for the folder."""
        return self.store.names()

    def read(self, names: Iterable[str] | None = None) -> Pages:
        """The entries of these names, or all; whatever else is there is among the unreadable.

        Raises InputError for the folder only.
        """
        entries: list[Entry] = []
        unreadable: list[Unreadable] = []
        for name, data in self.store.read(sorted(self.names() if names is None else names)):
            try:
                if isinstance(data, InputError):
                    raise data
                entries.append(_entry(name, data))
            except InputError as error:
                unreadable.append(Unreadable(name, error.message.removeprefix(f"{name}: ")))
            except Exception as error:  # a file may hold anything, and must not hide the others
                unreadable.append(Unreadable(name, f"no entry of the journal ({type(error).__name__})"))
        entries.sort(key=lambda entry: (entry.number, entry.started, entry.id))
        return Pages(self.folder, _placed(entries), tuple(unreadable), self)

    def remove(self, entries: Iterable[Entry]) -> None:
        """Forgets entries. Raises InputError for the folder."""
        self.store.remove([entry.file_name for entry in entries])


def _author() -> str:
    """Who runs this process, and where: `user@host`. The environment has no say, as it could name anybody."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # containers may run as a number
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def cluster_digest(cluster: str) -> str:
    """Four hexadecimal digits of a cluster's name, as they are in the ids of its entries."""
    return hashlib.sha256(cluster.encode("utf-8", "surrogatepass")).hexdigest()[:4]


def name_of(id: str) -> str:
    """What people call the entry of that id, and commands take: its number in the journal, else the id."""
    return str(number_of(id) or id)


def number_of(name: str) -> int:
    """The number of an entry by its id or its file's name; 0 for other names."""
    numbered = _ID.fullmatch(name.removesuffix(".json"))
    return int(numbered["number"]) if numbered else 0


def entry_document(entry: Entry) -> Document:
    """The entry as it is kept: without what most entries have not, such as a message."""
    document = {
        **headed("journal"),
        **picked(entry, f"id {_AS_IT_IS} untouched unknown"),
        "levels": [
            {**picked(change, "node before=before.name inherited=before.inherited after"), "logger": LOGGER}
            for change in entry.levels
        ],
        "kept": each(entry.kept, "entity=0 keys=1"),
        "part": each(entry.part, "entity=0 keys=1"),
        "plan": plan_document(replace(entry.plan, message=None)),
    }
    absent = {field.name for field in fields(entry) if getattr(entry, field.name) == field.default}
    return {name: value for name, value in document.items() if name not in absent & _RARE}


_AS_IT_IS: Final = "cluster command started finished expires undoes by message file outcome error"
"""The fields that a document has under their names, as they are."""
_RARE: Final = {"by", "message", "file", "untouched", "unknown", "levels", "kept", "part"}


def _kept(document: Sequence[Document]) -> Kept:
    return tuple((read_entity(kept["entity"]), tuple(map(QuotaKey.parse, kept["keys"]))) for kept in document)


def _bytes(entry: Entry) -> bytes:
    """The entry as a line."""
    return to_json_line(entry_document(entry)).encode()


def _entry(name: str, data: bytes) -> Entry:
    """Raises InputError."""
    document = _document(name, data)
    if document["id"] != name.removesuffix(".json"):
        raise InputError(f"it is a copy of the entry {document['id']}")
    same: dict[str, Any] = {field: document.get(field) for field in _AS_IT_IS.split()}
    return Entry(
        document["id"],
        plan=plan_of(document["plan"]),
        untouched=tuple(map(read_entity, document.get("untouched", ()))),
        unknown=tuple(map(read_entity, document["unknown"])) if "unknown" in document else None,
        levels=tuple(
            LevelChange(level["node"], Level(level["before"], level["inherited"]), level["after"])
            for level in document.get("levels", ())
        ),
        kept=_kept(document.get("kept", ())),
        part=_kept(document.get("part", ())),
        **same,
    )


def _placed(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """The entries, with their clusters: where one has no cluster id, the next entry of one of its servers has a say,
    or the last one.
    """
    places = [entry.place for entry in entries if entry.place.id is not None]
    known = {server: place for place in places for server in servers_of(place.address)}
    placed: list[Entry] = []
    for entry in reversed(entries):
        servers = servers_of(entry.place.address)
        if entry.place.id is not None:
            known.update(dict.fromkeys(servers, entry.place))
        else:
            entry = replace(entry, known=next((known[server] for server in servers if server in known), None))
        placed.append(entry)
    return tuple(reversed(placed))


def _document(name: str, data: bytes) -> Document:
    """The last line that is whole, or all of it, as it fits the schema: what comes last was written last.

    Raises InputError.
    """
    *before, last = [line for line in data.split(b"\n") if line.strip(b" ")] or [b""]
    for text in (last, data, *reversed(before)):
        try:
            document = json.loads(text)
            break
        except (ValueError, RecursionError):
            continue
    else:
        raise InputError("empty" if not data.strip() else "not JSON: cut off, or written by something else")
    if not isinstance(document, dict):
        raise InputError("not a JSON object")
    Located(name, document, lambda steps: "").validate("journal")
    return document
