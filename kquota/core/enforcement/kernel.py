"""One implementation, two ways to run it: the functions marked `@compilable`, through numba or as they are.

This module is above all others of the package that have such functions, and imports them. Nothing is compiled, and
neither numpy nor numba is loaded, before `kernel(...)` is asked for a compiled kernel. Both
kernels give identical results; the compiled one is about a hundred times faster after about a second to load.
"""

import contextlib
import enum
import functools
import hashlib
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.abc import InspectLoader
from operator import attrgetter
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final, TypeVar
from zipimport import zipimporter

from kquota.core.enforcement.broker import Throttle, Verdict
from kquota.core.enforcement.compilable import COMPILABLE, INLINED
from kquota.core.enforcement.counter import Counter, Counters, counter_of, new_counters
from kquota.core.enforcement.generation import Generation, QuotaWindows
from kquota.core.enforcement.replay import Summaries, new_summaries
from kquota.core.enforcement.traffic.state import Traffic
from kquota.errors import MissingDependency

R = TypeVar("R")


class Mode(enum.Enum):
    """How a kernel runs."""

    AUTO = "auto"
    """Compiled where numba is installed, else plain."""
    COMPILED = "compiled"
    PLAIN = "plain"


@dataclass(frozen=True)
class Kernel:
    """The functions of the modules of this package, all in one mode; documented there."""

    mode: Mode
    column: Callable[[Any, str], Any]
    """A sequence as the kernel takes it: a list, or an array of `int64`, `float64`, `int8` or `bool`."""
    rows: Callable[[Sequence[Any]], Any]
    """Rows of one type, at least one, as the kernel takes them: a list of them, or an array of records."""
    table: Callable[[int, int, str], Any]
    """That many rows of as many columns, all zero: lists of a list, or an array."""
    measure: Callable[[Counter, int], float]
    measure_tokens: Callable[[Counter, int, float], float]
    wake: Callable[[Counter, int], None]
    charge_counter: Callable[[Counter, int, int, float, float], Verdict]
    check: Callable[[Counter, int, int, float, float], Verdict]
    note: Callable[[Counter, int, int, float], None]
    charge_request: Callable[
        [int, Counter, float, Counter, float, int, float, float, bool, bool], tuple[Verdict, Verdict, Throttle]
    ]
    max_fetch_bytes: Callable[[float, int, int], int]
    replay_many: Callable[..., None]
    run_traffic: Callable[[Traffic, int], int]
    end_traffic: Callable[[Traffic], None]

    def new_counters(
        self,
        rows: int,
        windows: QuotaWindows,
        generation: Generation,
        controller: QuotaWindows | None = None,
        *,
        expires: bool = True,
    ) -> Counters:
        """That many new counters; `controller` has the windows of mutation counters, where they differ."""
        return new_counters(rows, windows, generation, self.table, controller, expires=expires)

    def new_counter(self, windows: QuotaWindows, generation: Generation, *, expires: bool = True) -> Counter:
        """A new counter by itself."""
        return self.counter_of(self.new_counters(1, windows, generation, expires=expires), 0, 0)

    def counter_of(self, counters: Counters, row: int, kind: int) -> Counter:
        """The counter of a row. Compiled code cannot return rows to Python, as it allocates nothing."""
        return counter_of(counters, row, kind)

    def new_summaries(self, rows: int) -> Summaries:
        """Room for the summaries of that many counters."""
        return new_summaries(rows, self.column)

    def is_kept(self, work: str = "run_traffic") -> bool:
        """Whether an earlier process left the machine code of one of the functions on the disk."""
        return self.mode is Mode.PLAIN or is_kept(getattr(self, work))


_LOADING_S: Final = 0.6
"""How long it takes to load numba. Loading what an earlier process compiled takes 50 ms."""
_COMPILING_S: Final = {"run_traffic": 12.0, "replay_many": 2.0}
"""How long it takes to compile a function of `Kernel`."""
_MADE_HERE = ("mode", "column", "rows", "table")
_NAMES = tuple(name for name in Kernel.__annotations__ if name not in _MADE_HERE)


def kernel(mode: Mode = Mode.AUTO) -> Kernel:
    """The kernel of that mode, made once. Raises MissingDependency for COMPILED without numba."""
    if mode is not Mode.PLAIN:
        try:
            return _compiled_kernel()
        except ImportError as error:
            if mode is Mode.COMPILED:
                raise MissingDependency(
                    "the compiled kernel needs numba; without numba the same code runs plain, only slower",
                    extra="kernel",
                ) from error
    return _plain_kernel()


def is_worth(plain_s: float, compiling_s: float, kept: Callable[[], bool]) -> bool:
    """Whether compiled code is soonest done with work that takes `plain_s` without it; `kept` says whether it is there.

    On a machine where it is not, which runs kquota for the first time, a small log is read before it is.
    """
    if plain_s >= compiling_s:
        return True
    return ("numba" in sys.modules or plain_s > _LOADING_S) and kept()


def kernel_for(work: str, plain_s: float) -> Kernel:
    """The kernel that is soonest done with the `work` of one of its functions, which takes `plain_s` uncompiled."""
    worth = is_worth(plain_s, _COMPILING_S[work], lambda: kernel(Mode.AUTO).is_kept(work))
    return kernel(Mode.AUTO if worth else Mode.PLAIN)


@functools.cache
def _plain_kernel() -> Kernel:
    functions = {function.__name__: function for function in _functions()}
    named = {name: functions[name] for name in _NAMES}
    return Kernel(Mode.PLAIN, lambda values, dtype: as_list(values), list, _table, **named)


@functools.cache
def _compiled_kernel() -> Kernel:
    import numpy

    # numba names its cache files after the function and checks the time stamp of the function's own file, not of what
    # it calls. With a fingerprint of all of them in the name, a change anywhere can never meet stale machine code.
    functions = _functions()
    fingerprint = _fingerprint(functions)
    compiled: dict[FunctionType, Any] = {}
    namespaces: dict[str, dict[str, Any]] = {}
    for function in functions:
        namespace = namespaces.setdefault(function.__module__, dict(function.__globals__))
        twin = FunctionType(function.__code__, namespace, f"{function.__name__}_{fingerprint}")
        twin.__qualname__ = twin.__name__
        twin.__module__ = function.__module__
        twin.__defaults__ = function.__defaults__
        # No kernel allocates, so none needs the reference counts of its arrays: atomic, and ten times the whole work.
        options = {
            "error_model": "numpy",
            # LLVM puts the bodies in. numba's own way ("inline") copies all of `Traffic` for each call, and LLVM then
            # takes long to see that nothing changes it.
            "forceinline": function in INLINED,
            "nogil": True,
            "_nrt": False,
            # Nothing calls it from C, and Python calls the functions of `Kernel` alone: a wrapper that unpacks all of
            # `Traffic` takes long to compile.
            "no_cfunc_wrapper": True,
            "no_cpython_wrapper": function.__name__ not in _NAMES,
        }
        compiled[function] = jit(twin, **options)
    for namespace in namespaces.values():
        for name, value in namespace.items():
            if isinstance(value, FunctionType) and value in compiled:
                namespace[name] = compiled[value]
    return Kernel(
        Mode.COMPILED,
        lambda values, dtype: numpy.ascontiguousarray(values, dtype=dtype),
        _records,
        lambda rows, columns, dtype: numpy.zeros((rows, columns), dtype),
        **{name: compiled[function] for function in functions if (name := function.__name__) in _NAMES},
    )


def jit(function: Callable[..., Any], **options: Any) -> Any:
    """What numba makes of a function, kept on the disk for the next process. Raises ImportError without numba.

    In a folder that NUMBA_CACHE_DIR names, one compilation serves every copy of the same source, packed or not.
    """
    import numba

    folder = numba.config.CACHE_DIR
    with contextlib.suppress(RuntimeError):  # no directory to write to: compiled in each process then
        if isinstance(function, FunctionType) and (folder or is_packed(function.__module__)):
            function = unpacked(function, Path(folder) if folder else None)
        compiled = numba.njit(**options)(function)
        compiled._cache = _cache()(function)
        return compiled
    return numba.njit(**options)(function)


@functools.cache
def _cache() -> Callable[[Any], Any]:
    """numba's cache, without machine code of an older kquota.

    numba reads for which types there is some before it compares the time of the source, and fails where these are gone.
    """
    from numba.core import event
    from numba.core.caching import FunctionCache

    class Compiling(event.Listener):  # type: ignore[misc]
        def on_start(self, begun: Any) -> None:
            _compiling.append(begun)

        def on_end(self, ended: Any) -> None:
            _compiling.pop()

    event.register("numba:compile", Compiling())

    class Cache(FunctionCache):  # type: ignore[misc]
        def load_overload(self, sig: Any, target_context: Any) -> Any:
            try:
                return super().load_overload(sig, target_context)
            except Exception:  # whatever pickle makes of it
                self.flush()
                return None

    return Cache


_compiling: list[Any] = []


def is_compiling() -> bool:
    """Whether a function is compiled just now: the first audit of a large log on a machine takes half a minute so."""
    return bool(_compiling)


def is_kept(function: Any) -> bool:
    """Whether an earlier process left the machine code of a function on the disk."""
    if not hasattr(function, "stats"):  # numba can be told not to compile
        return True
    folder = function.stats.cache_path
    # The name has the fingerprint of the source in it; behind it are the versions of Python and numba.
    return folder is not None and any(Path(folder).glob(f"*.{function.__name__}-*.nbi"))


def _functions() -> list[FunctionType]:
    """All compilable functions, in an order that does not depend on which module was imported first."""
    return sorted(COMPILABLE, key=lambda function: (function.__module__, function.__name__))


def _table(rows: int, columns: int, dtype: str) -> list[list[Any]]:
    zero: Any = 0.0 if dtype == "float64" else 0
    return [[zero] * columns for _ in range(rows)]


def _records(rows: Sequence[Any]) -> Any:
    import numpy

    of: Callable[..., Any] = type(rows[0])
    values, form = _form(of)
    return numpy.array([values(row) for row in rows], form).view(numpy.recarray)


@functools.cache
def _form(of: Callable[..., Any]) -> tuple[Callable[[Any], Any], Any]:
    """The fields of a row of that type, and the type of its record. Making the latter takes longer than the records."""
    import numpy

    fields = [(name, "f8" if kind is float else "i8") for name, kind in of.__annotations__.items()]
    return attrgetter(*of.__annotations__), numpy.dtype((numpy.record, fields))


def as_rows(of: type[R], rows: Sequence[R]) -> list[R]:
    """Rows of any kernel as objects of their type. The plain kernel has such objects already."""
    return rows if isinstance(rows, list) else [of(*values) for values in rows.tolist()]  # type: ignore[attr-defined]


def set_field(rows: Any, name: str, values: Sequence[Any]) -> None:
    """Sets a field of all rows of any kernel; record by record takes ten times as long."""
    if not isinstance(rows, list):
        rows[name] = values
        return
    for row, value in zip(rows, values, strict=True):
        setattr(row, name, value)


def as_list(values: Sequence[Any]) -> list[Any]:
    """A column of any kernel as Python's own numbers, which are faster than an array's and do not overflow."""
    listed: list[Any] = values.tolist() if hasattr(values, "tolist") else list(values)
    return listed


def _fingerprint(functions: Sequence[FunctionType]) -> str:
    """A digest of everything that decides what the functions compute: code, constants and the globals they name."""
    digest = hashlib.sha256(sys.version.encode())
    for function in functions:
        code = function.__code__
        named = f"{function.__module__}.{function.__name__}{function.__defaults__!r}"
        digest.update(f"{named}{code.co_consts!r}{code.co_varnames!r}".encode())
        digest.update(code.co_code + bytes([function in INLINED]))
        for name in code.co_names:
            value = function.__globals__.get(name)
            if isinstance(value, type):
                value = getattr(value, "_fields", None)
            if not isinstance(value, FunctionType | ModuleType):
                digest.update(f"{name}={value!r}".encode())
    return digest.hexdigest()[:12]


def is_packed(module: str) -> bool:
    """Whether a module that is imported came out of an archive."""
    spec = sys.modules[module].__spec__
    return spec is not None and isinstance(spec.loader, zipimporter)


def _source(module: str) -> str:
    """The source of a module that is imported. Raises RuntimeError without one."""
    spec = sys.modules[module].__spec__
    loader = None if spec is None else spec.loader
    text = loader.get_source(module) if isinstance(loader, zipimporter | InspectLoader) else None
    if text is None:
        raise RuntimeError(f"{module} has no source")
    return text


@functools.cache
def _digest(module: str) -> str:
    """Of the sources of a module and of those that it imports from, whose constants are in its machine code."""
    source = _source(module)
    imported = sorted(set(re.findall(r"^from (kquota\.[\w.]+) import", source, re.MULTILINE)))
    text = "\0".join([sys.version, source, *map(_source, imported)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def unpacked(function: FunctionType, cache: Path | None = None) -> FunctionType:
    """The function as one of a file below the cache, `~/.cache` by default; its globals stay the same.

    The file is named after its content: numba keeps machine code by its file, and knows no file in an archive. Spark's
    executors get kquota as one, anew for each job, and compiling takes ten seconds in each of their processes.

    Raises RuntimeError when there is no place to write to, or no source.
    """
    source = _source(function.__module__).encode()
    try:
        folder = (cache or Path.home() / ".cache") / f"kquota-{_digest(function.__module__)}"
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
