"""The marks of the functions that a kernel compiles. `kernel` assembles them; here nothing is compiled or imported."""

from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

COMPILABLE: list[FunctionType] = []
INLINED: set[FunctionType] = set()


def compilable(function: F) -> F:
    """Marks a function that is written in the subset of Python that numba compiles; returns it as it is.

    Such a function uses scalars, sequences by index, NamedTuples, module constants and other compilable functions. It
    allocates nothing: the caller hands in lists or arrays. Integer division and powers that differ between Java, numba
    and Python are spelled out.
    """
    assert isinstance(function, FunctionType)
    COMPILABLE.append(function)
    return function


def inlined(function: F) -> F:
    """`@compilable` for what runs at every event: its body replaces the call, which keeps the state in registers."""
    assert isinstance(function, FunctionType)
    INLINED.add(function)
    return compilable(function)
