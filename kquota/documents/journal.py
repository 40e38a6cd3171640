"""The journal: one file per change of a cluster, written before the first quota is (schemas/journal.schema.json)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from kquota.core.plan import Plan
from kquota.core.report import Outcome
from kquota.documents.encoding import Document, read_document, to_json, write_text
from kquota.documents.plan import plan_document, plan_of
from kquota.errors import InputError

KIND = "kquota.journal"
VERSION = 1
Command = Literal["apply", "undo", "reconcile"]


@dataclass(frozen=True)
class Entry:
    """What one run set out to do, and what came of it; times are ms since the epoch.

    Without an outcome it is still running or was killed: any of its entities may have the old or the new values. With
    `incomplete` some of them have the one, some the other.
    """

    id: str
    cluster: str
    command: Command
    started: int
    plan: Plan
    finished: int | None = None
    expires: int | None = None
    undoes: str | None = None
    outcome: Outcome | None = None
    error: str | None = None

    @property
    def may_have_changed(self) -> bool:
        """Whether there may be something to take back."""
        return self.outcome != "rolled back"


@dataclass(frozen=True)
class Journal:
    """The folder of entries; it is made when the first entry is. A file is written whole or not at all."""

    folder: Path

    def begin(
        self,
        plan: Plan,
        *,
        cluster: str,
        command: Command,
        now: int,
        expires: int | None = None,
        undoes: str | None = None,
    ) -> Entry:
        """Writes down what is about to be done. Raises InputError when the folder cannot be written."""
        base = f"{datetime.fromtimestamp(now // 1000, UTC):%Y%m%dT%H%M%SZ}-{plan.fingerprint}"
        id = base
        for number in range(2, 10_000):
            if not self._file(id).exists():
                break
            id = f"{base}-{number}"
        entry = Entry(id, cluster, command, now, plan, expires=expires, undoes=undoes)
        self._write(entry)
        return entry

    def finish(self, entry: Entry, outcome: Outcome, *, now: int, error: str | None = None) -> Entry:
        """Writes down what came of it."""
        finished = replace(entry, outcome=outcome, finished=now, error=error)
        self._write(finished)
        return finished

    def entries(self, cluster: str | None = None) -> tuple[Entry, ...]:
        """The entries (of one cluster), the oldest first. Raises InputError for a file that is none."""
        files = self.folder.glob("*.json") if self.folder.is_dir() else ()
        entries = sorted((_entry(file) for file in files), key=lambda entry: (entry.started, entry.id))
        return tuple(entry for entry in entries if cluster is None or entry.cluster == cluster)

    def entry(self, id: str) -> Entry:
        """The entry of that id, or of a beginning or fingerprint that only one has. Raises InputError."""
        found = [entry for entry in self.entries() if entry.id == id]
        found = found or [entry for entry in self.entries() if entry.id.startswith(id) or id in entry.id.split("-")]
        if len(found) == 1:
            return found[0]
        what = "no entry" if not found else f"{len(found)} entries"
        raise InputError(f"{what} {id!r} in the journal {self.folder}", hint="'kquota history' lists them")

    def _file(self, id: str) -> Path:
        return self.folder / f"{id}.json"

    def _write(self, entry: Entry) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_text(self._file(entry.id), to_json(entry_document(entry)))
        except (OSError, InputError) as error:
            raise InputError(
                f"the journal cannot be written: {error}", hint="set KQUOTA_JOURNAL to a folder that can"
            ) from None


def entry_document(entry: Entry) -> Document:
    """The entry as it is kept."""
    return {
        "kind": KIND,
        "version": VERSION,
        "id": entry.id,
        "cluster": entry.cluster,
        "command": entry.command,
        "started": entry.started,
        "finished": entry.finished,
        "expires": entry.expires,
        "undoes": entry.undoes,
        "outcome": entry.outcome,
        "error": entry.error,
        "plan": plan_document(entry.plan),
    }


def _entry(file: Path) -> Entry:
    document = read_document(file, "journal")
    try:
        plan = plan_of(document["plan"])
    except (InputError, KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise InputError(f"{file}: its plan cannot be read: {error}") from None
    return Entry(
        document["id"],
        document["cluster"],
        document["command"],
        document["started"],
        plan,
        document.get("finished"),
        document.get("expires"),
        document.get("undoes"),
        document["outcome"],
        document.get("error"),
    )
