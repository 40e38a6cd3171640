"""The state of a follower on the disk.

It is enough to go on after a kill as if nothing had been.
"""

import hashlib
import json
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from kquota.audit.engines.portable import decode, encode
from kquota.audit.settings import AuditSettings
from kquota.core.change.history import QuotaHistory
from kquota.documents.quotas import quotas_document
from kquota.errors import InputError, Locked, Refused
from kquota.files import replacing
from kquota.lock import locked

VERSION: Final = 12
"""The version of a checkpoint, with all that is in it."""
_NAME: Final = "checkpoint"


def about(settings: AuditSettings, settle_ms: int, live: int | None = None) -> dict[str, str]:
    """Of each thing that decides what a state means, a text that is the same only for the same thing.

    The quotas of the variant `live` may change later.
    """
    read = settings.read
    both = (settings.quotas, settings.against)
    quotas, against = ("live" if variant == live else _digest(history) for variant, history in enumerate(both))
    return {
        "quotas": quotas,
        "quotas to compare with (--against)": against,
        "broker settings": repr((settings.generation, settings.windows, settings.controller_windows, read.version)),
        "options for reading": repr((read.broker, read.zone, read.num_partitions)),
        "settle time": str(settle_ms),
    }


def save(folder: Path, about: dict[str, str], state: Any) -> None:
    """Writes the state, whole or not at all. Raises InputError where it cannot be written."""
    try:
        with replacing(folder / _NAME) as aside:
            aside.write_bytes(heading(about) + b"\n" + encode(state))
    except OSError as error:
        raise InputError(f"{folder}: cannot write the checkpoint: {error.strerror or error}") from None


def claim(folder: Path) -> ExitStack:
    """Takes a folder for this process alone, until the stack that is returned is closed.

    Raises Refused where another process has it, and InputError where it cannot be used.
    """
    held = ExitStack()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        held.enter_context(locked(folder / ".lock", wait_s=0, what=str(folder)))
    except Locked:
        raise Refused(f"{folder}: another kquota follows with this checkpoint", hint="name another folder") from None
    except OSError as error:
        raise InputError(f"{folder}: cannot use it for checkpoints: {error.strerror or error}") from None
    return held


def load(folder: Path, about: dict[str, str]) -> Any:
    """The state that was saved last; None where none was.

    Raises Refused for a checkpoint of another version, of other quotas or settings, or that others can write;
    InputError for one that is damaged.
    """
    path = folder / _NAME
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
        if not path.exists():
            return None
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{folder}: cannot use it for checkpoints: {error.strerror or error}") from None
    # Whoever can write there can have the findings say anything.
    if status.st_uid not in (os.geteuid(), 0) or status.st_mode & 0o022:
        raise Refused(f"{folder}: others can write to this folder", hint="chmod go-w, or name another folder")
    line, _, rest = data.partition(b"\n")
    compare(line, folder, about)
    try:
        return decode(rest)
    except ValueError as error:
        raise InputError(f"{path}: the checkpoint is damaged: {error}", hint="remove it to begin anew") from None


def heading(about: dict[str, str]) -> bytes:
    """A line that says what a checkpoint is of."""
    return json.dumps({"kind": "kquota.checkpoint", "version": VERSION, "settings": about}).encode()


def compare(line: bytes, folder: Path, about: dict[str, str]) -> None:
    """Compares the heading of a checkpoint with what is asked for.

    Raises Refused for another version or other settings, and InputError for something else than a heading.
    """
    try:
        head = json.loads(line)
        version, saved = head["version"], head["settings"]
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{folder}: the checkpoint in it was not written by kquota") from None
    hint = "name another folder with --checkpoint, or remove this one to begin anew"
    if version != VERSION:
        raise Refused(f"{folder}: a checkpoint of version {version}; this kquota reads {VERSION}", hint=hint)
    other = [name for name in about if saved.get(name) != about[name]]
    if other:
        raise Refused(f"{folder}: a checkpoint of an audit with other {', '.join(other)}", hint=hint)


def _digest(history: QuotaHistory | None) -> str:
    if history is None:
        return ""
    whole = [history.changes_ms, *(quotas_document(snapshot)["quotas"] for snapshot in history.snapshots)]
    return hashlib.sha256(json.dumps(whole, sort_keys=True, default=str).encode()).hexdigest()
