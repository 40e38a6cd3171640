"""Options where they are taken: the default of a parameter says which option of the command line gives it.

One declaration has the option's name, its type, its help and what the command gets. `declared` reads a command's
declarations, and `group` the declarations of a value that several commands take.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


class _Option(NamedTuple):
    """What gives a parameter: a decorator of click, which takes the names and how it is meant."""

    decorator: Callable[..., Callable[..., Any]]
    names: Sequence[str]
    how: dict[str, Any]

    def add(self, name: str, function: F) -> F:
        """The command with the option or the argument for its parameter of that name."""
        derived = [] if self.names or self.decorator is not click.option else [f"--{name.replace('_', '-')}"]
        added: F = self.decorator(*self.names, *derived, name, **self.how)(function)
        return added


class _Group(NamedTuple):
    """Options that make one value: by the name of each, its declaration; what is None there is left out."""

    make: Callable[..., object]
    declared: Mapping[str, Any]

    def add(self, name: str, function: F) -> F:
        """The command with the options, whose value is its argument of that name.

        This is the door: behind it, a command has typed values and no options by name.
        """

        @functools.wraps(function)
        def command(*args: Any, **given: Any) -> Any:
            taken = {option: how and given.pop(option) for option, how in self.declared.items()}
            return function(*args, **given, **{name: self.make(**taken)})

        return _add_all(self.declared, command)  # type: ignore[return-value]


def option(about: str, *names: str, **how: Any) -> Any:
    """An option, with its help and what click takes; of the parameter `out_json` it is `--out-json` without `names`.

    A default that is given is shown.
    """
    if "default" in how:
        how.setdefault("show_default", True)
    return _Option(click.option, names, {"help": about, **how})


def argument(**how: Any) -> Any:
    """An argument, as click takes it."""
    return _Option(click.argument, (), how)


def value(metavar: str, about: str, *names: str, **how: Any) -> Any:
    """An option that takes what its metavar says."""
    return option(about, *names, metavar=metavar, **how)


def values(metavar: str, about: str, *names: str, **how: Any) -> Any:
    """The same, to be given several times."""
    return value(metavar, about, *names, multiple=True, **how)


def flag(about: str, *names: str, **how: Any) -> Any:
    """An option without a value."""
    return option(about, *names, is_flag=True, **how)


def path(about: str, *names: str, metavar: str = "FILE", **how: Any) -> Any:
    """An option that takes a path; of a folder its metavar is DIR."""
    file_okay = metavar != "DIR"
    return option(about, *names, type=click.Path(path_type=Path, file_okay=file_okay), metavar=metavar, **how)


def count(about: str, *names: str, metavar: str | None = "N", **how: Any) -> Any:
    """An option that takes a whole number above 0."""
    return option(about, *names, type=click.IntRange(min=1), metavar=metavar, **how)


def lasting(about: str, *names: str, **how: Any) -> Any:
    """An option that takes a length of time, in ms."""
    return option(about, *names, **{"type": duration, "metavar": "TIME", **how})


def choice(of: Iterable[str], about: str, *names: str, **how: Any) -> Any:
    """An option that takes one of some words."""
    return option(about, *names, type=click.Choice([*of]), **how)


def by(decorator: Callable[..., Any]) -> Any:
    """What a decorator of its own adds."""
    return _Option(lambda _name: decorator, (), {})


def declared(function: F) -> F:
    """Adds to a command what the defaults of its parameters declare, in their order."""
    return _add_all(_declarations(function), function)


def group(make: Callable[..., object], **instead: Any) -> Any:
    """Several options that make one value: the parameters of `make` declare them.

    `instead` has other declarations for some of them; None leaves the parameter out, which is None then.
    """
    return _Group(make, _declarations(make) | instead)


def _declarations(function: Callable[..., object]) -> dict[str, Any]:
    """What the defaults of a function's parameters declare, by their names."""
    given = {name: parameter.default for name, parameter in signature(function).parameters.items()}
    return {name: default for name, default in given.items() if isinstance(default, _Option | _Group)}


def _add_all(declarations: Mapping[str, Any], function: F) -> F:
    for name, declaration in reversed([*declarations.items()]):
        if declaration is not None:
            function = declaration.add(name, function)
    return function


_UNITS = {"d": 86_400_000, "h": 3_600_000, "min": 60_000, "m": 60_000, "s": 1000, "ms": 1}


def _length(text: str, unit: str, such_as: str) -> int:
    parts = re.findall(rf"(\d{{1,9}})({unit})", text)
    if not parts or "".join(map("".join, parts)) != text:
        raise click.BadParameter(f"{text!r} is not a length of time, such as {such_as}")
    return sum(int(number) * _UNITS[unit] for number, unit in parts)


def duration(text: str) -> int:
    """A length of time such as 90s, 30m, 2h or 1d12h, in milliseconds. Raises click.BadParameter."""
    return _length(text, "min|[dhms]", "90s, 30m, 2h or 1d12h")


def fine_duration(text: str) -> int:
    """The same, also such as 500ms."""
    return _length(text, "min|ms|[dhms]", "500ms, 90s or 2m")
