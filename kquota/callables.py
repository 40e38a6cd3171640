"""Packages that are called like the function that they are about: `kquota.audit(...)`, `kquota.probe(...)`.

A package and a function of the library cannot both be an attribute of `kquota` by the same name. So the package is the
function as well. Its module `run` is imported when it is called.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inspect import Signature


class _CallablePackage(ModuleType):
    """A package whose call is that of the function in `run` that has the package's name."""

    @property
    def _function(self) -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(import_module(f"{self.__name__}.run"), self.__name__.rpartition(".")[2])
        return function

    @property
    def __signature__(self) -> Signature:
        import inspect

        return inspect.signature(self._function)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._function(*arguments, **named)


def make_callable(package: str) -> None:
    """Makes that package, which is being imported, callable."""
    sys.modules[package].__class__ = _CallablePackage
