"""Functions out of a zip archive, with their source as a file: numba keeps machine code of files only.

Executors get kquota as an archive, anew for each job and mostly in another place. Compiling takes ten seconds in each
of their processes. The source is therefore written once to the user's cache, in a folder named after its content.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from pathlib import Path
from types import FunctionType
from zipimport import zipimporter


def is_packed(module: str) -> bool:
    """Whether a module that is imported came out of an archive."""
    spec = sys.modules[module].__spec__
    return spec is not None and isinstance(spec.loader, zipimporter)


def unpacked(function: FunctionType, cache: Path | None = None) -> FunctionType:
    """The function as one of a file below the cache, `~/.cache` by default; its globals stay the same.

    Raises RuntimeError when there is no place to write to.
    """
    loader = sys.modules[function.__module__].__spec__.loader  # type: ignore[union-attr]
    assert isinstance(loader, zipimporter)
    source = (loader.get_source(function.__module__) or "").encode()
    digest = hashlib.sha256(sys.version.encode() + source).hexdigest()[:16]
    try:
        folder = (cache or Path.home() / ".cache") / f"kquota-{digest}"
        file = folder / f"{function.__module__}.py"
        if not file.exists():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=folder, delete=False) as draft:
                draft.write(source)
            Path(draft.name).replace(file)
    except OSError as error:
        raise RuntimeError(f"no cache for compiled functions: {error}") from error
    code = function.__code__.replace(co_filename=str(file))
    twin = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    twin.__qualname__ = function.__qualname__
    twin.__module__ = function.__module__
    return twin
