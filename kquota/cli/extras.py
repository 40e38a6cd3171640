"""How to add an extra to the kquota that runs: by the tool and from the source that kquota was installed with."""

import json
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit

from kquota.errors import MissingDependency

_NAME = "kquota[]"
"""The requirement where only the name is on record."""


def remedy(error: MissingDependency) -> str | None:
    """The hint of the error: the command that installs the missing extra, where an extra is missing."""
    return error.hint if error.extra is None else install_command(error.extra)


def install_command(extra: str) -> str:
    """A command that installs kquota with that extra (or several, with commas) where kquota is installed now."""
    origin = _origin()
    if origin is None:
        return f"this kquota has no room for extras: in a clone of kquota, pip install '.[{extra}]'"
    source, editable = origin
    wanted = f"'{source.replace('[]', f'[{extra}]')}'"
    # The name is not on PyPI: without an address on record, a folder of wheels or an index of one's own had it.
    whence = "" if source != _NAME else "; without internet, with --no-index --find-links DIR of its wheels"
    prefix = Path(sys.prefix)
    if (prefix / "pipx_metadata.json").exists():
        return f"pipx install --force {wanted}{whence}"
    if (prefix / "uv-receipt.toml").exists():
        return f"uv tool install --force {wanted}{whence}"
    return f"pip install {'-e ' if editable else ''}{wanted}{whence}"


def _origin() -> tuple[str, bool] | None:
    """The requirement that installed kquota, with `[]` where extras go, and whether it is editable; None in a zipapp.

    The record is direct_url.json (PEP 610), which is missing where kquota came from a package index.
    """
    try:
        installed = distribution("kquota")
    except PackageNotFoundError:
        return None
    if not Path(str(installed.locate_file(""))).is_dir():  # in a zipapp, nothing can be added beside kquota
        return None
    record = installed.read_text("direct_url.json")
    if record is None:
        return _NAME, False
    direct: Mapping[str, object] = json.loads(record)
    address = urlsplit(str(direct["url"]))
    info, vcs = direct.get("dir_info"), direct.get("vcs_info")
    editable = isinstance(info, dict) and bool(info.get("editable"))
    if address.scheme == "file":
        return f"{unquote(address.path)}[]", editable
    prefix = f"{vcs['vcs']}+" if isinstance(vcs, dict) else ""
    # Without a user and a password: a hint is no place for them.
    host = address.netloc.rpartition("@")[2]
    return f"kquota[] @ {prefix}{address._replace(netloc=host).geturl()}", editable
