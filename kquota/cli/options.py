"""Options where they are taken: the default of a parameter says which option of the command line gives it.

One declaration has the option's name, its type, its help and what the command gets. `declared` reads a command's
declarations, and `group` the declarations of a value that several commands take.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo
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


_UNITS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "min": 60_000, "m": 60_000, "s": 1000, "ms": 1}


def _length(text: str, unit: str, such_as: str) -> int:
    short = re.sub(r"(?<=\d) ?(w|d|h|m|s)(?:eek|ay|our|inute|econd)s? ?", r"\1", text)
    parts = re.findall(rf"(\d{{1,9}})({unit})", short)
    if not parts or "".join(map("".join, parts)) != short:
        raise click.BadParameter(f"{text!r} is not a length of time, such as {such_as}")
    length = sum(int(number) * _UNITS[unit] for number, unit in parts)
    if length > 365_000 * _UNITS["d"]:  # its end would be no date
        raise click.BadParameter(f"{text!r} is longer than 1000 years")
    return length


def duration(text: str) -> int:
    """A length of time such as 90s, 30m, 1d12h or 2w, in milliseconds. Raises click.BadParameter."""
    return _length(text, "min|[wdhms]", "90s, 30m, 2h, 1d12h or 2w")


def fine_duration(text: str) -> int:
    """The same, also such as 500ms."""
    return _length(text, "min|ms|[wdhms]", "500ms, 90s or 2m")


class Seconds(click.FloatRange):
    """A number of seconds; or a length of time, as elsewhere."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        with suppress(click.BadParameter):
            value = fine_duration(str(value)) / 1000
        return super().convert(value, param, ctx)


def instant(text: str, zone: tzinfo = UTC) -> float:
    """The epoch ms of a time such as 2026-01-31T12:00, 12:00 of the last day, yesterday 12:00, or 2h for so long ago.

    Raises click.BadParameter.
    """
    from kquota.reconcile import now

    today = datetime.fromtimestamp(now() / 1000, zone)
    of_a_day = re.fullmatch(r"(today|yesterday|) ?(\d\d:\d\d.*|)", text) if text else None
    try:
        if of_a_day is None:
            moment = datetime.fromisoformat(text)
        else:
            day = today - timedelta(days=of_a_day[1] == "yesterday")
            moment = datetime.fromisoformat(f"{day:%Y-%m-%dT}{of_a_day[2] or '00:00'}")
    except ValueError:
        with suppress(click.BadParameter):
            return now() - duration(text.removesuffix(" ago"))
        such_as = "a time such as 2026-01-31T12:00, 12:00 or yesterday 12:00, or a length of time such as 1h"
        raise click.BadParameter(f"{text!r} is not {such_as}") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=zone)
    # A clock alone is the last time that clocks showed it.
    return (moment - timedelta(days=of_a_day is not None and not of_a_day[1] and moment > today)).timestamp() * 1000
