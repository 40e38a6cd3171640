"""Functions with their source in a file that is named after its content: numba keeps machine code by its file.

Executors get kquota as an archive, anew for each job and mostly in another place, and numba knows no file in it.
Compiling takes ten seconds in each of their processes. The source is therefore written once to the user's cache.
"""

import hashlib
import sys
import tempfile
from importlib.abc import InspectLoader
from pathlib import Path
from types import FunctionType
from zipimport import zipimporter


def is_packed(module: str) -> bool:
    """Whether a module that is imported came out of an archive."""
    spec = sys.modules[module].__spec__
    return spec is not None and isinstance(spec.loader, zipimporter)


def unpacked(function: FunctionType, cache: Path | None = None) -> FunctionType:
    """The function as one of a file below the cache, `~/.cache` by default; its globals stay the same.

    Raises RuntimeError when there is no place to write to, or no source.
    """
    loader = sys.modules[function.__module__].__spec__.loader  # type: ignore[union-attr]
    text = loader.get_source(function.__module__) if isinstance(loader, zipimporter | InspectLoader) else None
    if text is None:
        raise RuntimeError(f"{function.__module__} has no source")
    source = text.encode()
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
