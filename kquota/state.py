"""Where kquota keeps what outlives a run: beside the state of other programs (XDG base directories)."""

import os
from pathlib import Path

from kquota.errors import InputError

CLUSTER = Path("cluster")
"""In the place of the journal's folder: the journal that the cluster itself keeps."""


def state_folder(name: str, setting: str) -> Path:
    """`kquota/NAME` below `$XDG_STATE_HOME` or `~/.local/state`.

    Raises InputError, naming the setting that replaces it, where the user has no home folder.
    """
    state = os.environ.get("XDG_STATE_HOME", "")
    try:
        base = Path(state) if os.path.isabs(state) else Path.home() / ".local" / "state"
    except RuntimeError:
        raise InputError(
            "this user has no home folder to keep state in", hint=f"set {setting}, or HOME, to a folder"
        ) from None
    return base / "kquota" / name


def journal_folder() -> Path:
    """`$KQUOTA_JOURNAL`, else the journal beside the state of other programs. Raises InputError."""
    return Path(os.environ.get("KQUOTA_JOURNAL") or state_folder("journal", "KQUOTA_JOURNAL"))
