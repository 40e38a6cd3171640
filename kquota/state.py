"""Where kquota keeps what outlives a run: beside the files of other programs (XDG base directories)."""

import contextlib
import os
from pathlib import Path

from kquota.errors import InputError

_BASES = {"state": ".local/state", "config": ".config", "cache": ".cache"}
CLUSTER = Path("cluster")
"""In the place of the journal's folder: the journal that the cluster itself keeps."""


def own_folder(kind: str, setting: str) -> Path:
    """Kquota's folder below the base directory of that kind, of which XDG has relative ones ignored.

    The kinds are `state`, `config` and `cache`. Raises InputError, naming the setting that replaces the folder, where
    the user has no home folder.
    """
    base = os.environ.get(f"XDG_{kind.upper()}_HOME", "")
    try:
        return (Path(base) if os.path.isabs(base) else Path.home() / _BASES[kind]) / "kquota"
    except RuntimeError:
        raise InputError(f"this user has no home folder for kquota's {kind}", hint=f"set {setting} or HOME") from None


def state_folder(name: str, setting: str) -> Path:
    """What has that name in the folder of the state. Raises InputError as `own_folder`."""
    return own_folder("state", setting) / name


def journal_folder() -> Path:
    """`$KQUOTA_JOURNAL`, else the journal beside the state of other programs. Raises InputError."""
    return Path(os.environ.get("KQUOTA_JOURNAL") or state_folder("journal", "KQUOTA_JOURNAL"))


def usual_beside(folder: Path) -> Path | None:
    """This user's journal where nothing names another one, if it is there and the one in use is another `folder`."""
    with contextlib.suppress(InputError, OSError):  # there is no home folder, or it is closed to this user
        usual = state_folder("journal", "KQUOTA_JOURNAL")
        return usual if usual.resolve() != folder.resolve() and usual.is_dir() else None
    return None
