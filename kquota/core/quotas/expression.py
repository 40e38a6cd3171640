"""Regular expressions of quota files, which take a time that grows with the length of a name and no faster.

Python's own engine tries one way after the other: `(a+)+` over 40 letters takes years. It is asked only where the ways
are few; other expressions walk all ways at once (Thompson's construction, as RE2 does). What needs more than that, such
as references to groups and looking around, is refused, as RE2 refuses it.
"""

from __future__ import annotations

import re
import warnings
from functools import cached_property
from typing import Any, Final

from kquota.errors import InputError

_MOST_STATES: Final = 1_000
_LONGEST: Final = 1_000
"""Characters of an expression."""
_MOST_WAYS: Final = 100_000
"""Ways that Python's engine may try on one name."""
_MOST_KNOWN: Final = 10_000
_MOST: Final = 1 << 16
"""From here on a bound of a repetition is none."""


class Expression:
    """An expression that matches a whole name. Raises InputError for a malformed expression, or one without a bound."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        if len(pattern) > _LONGEST:
            raise InputError(f"a regular expression of {len(pattern)} characters: at most {_LONGEST} are read")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._compiled = re.compile(pattern)
                self._parsed = _parser().parse(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            raise InputError(f"{pattern!r} is not a regular expression: {error}") from None
        self._branches, self._loops = _ways(self._parsed)
        _ = self._program  # what cannot be bounded is refused at once

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and other.pattern == self.pattern

    def __hash__(self) -> int:
        return hash(self.pattern)

    def fullmatch(self, name: str) -> bool:
        """Whether the expression matches the name from its first to its last character."""
        if self._loops < 20 and self._branches * (len(name) + 1) ** self._loops <= _MOST_WAYS:
            return self._compiled.fullmatch(name) is not None
        return self._program.run(name)

    @cached_property
    def _program(self) -> _Program:
        program = _Program(self._compiled.flags)
        try:
            end = program.add(self._parsed, program.start)
        except _Unbounded as reason:
            raise InputError(
                f"the regular expression {self.pattern!r} cannot be read: {reason}",
                hint="as in RE2, there is no looking around and no reference to a group",
            ) from None
        program.final = end
        return program


def _parser() -> Any:
    return re._parser  # type: ignore[attr-defined]


class _Unbounded(Exception):
    """A part of an expression that is not walked in one pass."""


def _ways(parsed: Any) -> tuple[int, int]:
    """How many ways Python's engine has, at most: a factor, and the exponent of the name's length."""
    factor, loops = 1, 0
    for op, argument in parsed:
        match str(op):
            case "BRANCH":
                inner = [_ways(branch) for branch in argument[1]]
                factor *= sum(each for each, _ in inner)
                loops += max(each for _, each in inner)
            case "SUBPATTERN":
                more, deeper = _ways(argument[3])
                factor, loops = factor * more, loops + deeper
            case "MAX_REPEAT" | "MIN_REPEAT":
                least, most, body = argument
                more, deeper = _ways(body)
                simple = len(body) == 1 and str(body[0][0]) in ("LITERAL", "NOT_LITERAL", "ANY", "IN")
                if not simple and int(most) > 1:
                    loops += 20  # a loop of loops, or of branches: exponential
                elif int(most) >= _MOST:
                    loops += 1
                else:
                    factor, loops = factor * more * (int(most) - least + 1), loops + deeper
        factor = min(factor, _MOST_WAYS + 1)
    return factor, loops


class _Program:
    """States, each with what it reads and where that leads, and the states that it is at once."""

    def __init__(self, flags: int) -> None:
        self._flags = flags & (re.IGNORECASE | re.DOTALL | re.ASCII | re.UNICODE)
        if flags & (re.MULTILINE | re.LOCALE):
            self._flags |= flags & re.MULTILINE
        self._reads: list[tuple[re.Pattern[str], int] | None] = []
        self._also: list[list[int]] = []
        self._only_at_start: set[int] = set()
        self._only_at_end: set[int] = set()
        self.start = self._state()
        self.final = self.start
        self._known: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def _state(self) -> int:
        if len(self._also) >= _MOST_STATES:
            raise _Unbounded(f"it takes more than {_MOST_STATES} states")
        self._reads.append(None)
        self._also.append([])
        return len(self._also) - 1

    def add(self, parsed: Any, at: int) -> int:
        """The state in which what is parsed has been read from there on."""
        for op, argument in parsed:
            at = self._add(str(op), argument, at, (op, argument))
        return at

    def _add(self, op: str, argument: Any, at: int, item: Any) -> int:
        match op:
            case "LITERAL" | "NOT_LITERAL" | "ANY" | "IN":
                return self._one(item, at)
            case "SUBPATTERN":
                _, more, less, body = argument
                if more or less:
                    raise _Unbounded("it changes its flags in the middle")
                return self.add(body, at)
            case "BRANCH":
                end = self._state()
                for branch in argument[1]:
                    begin = self._state()
                    self._also[at].append(begin)
                    self._also[self.add(branch, begin)].append(end)
                return end
            case "MAX_REPEAT" | "MIN_REPEAT":
                least, most, body = argument
                return self._repeated(least, most, body, at)
            case "AT":
                where = str(argument)
                if where not in ("AT_BEGINNING", "AT_BEGINNING_STRING", "AT_END", "AT_END_STRING"):
                    raise _Unbounded("it looks at the borders of words")
                if self._flags & re.MULTILINE:
                    raise _Unbounded("it looks at the borders of lines")
                end = self._state()
                self._also[at].append(end)
                (self._only_at_start if "BEGINNING" in where else self._only_at_end).add(end)
                return end
        raise _Unbounded(f"it has {op.lower().replace('_', ' ')}")

    def _one(self, item: Any, at: int) -> int:
        """A state that reads one character, as Python's engine reads it."""
        parser = _parser()
        state = parser.State()
        state.flags = self._flags
        compiler: Any = re._compiler  # type: ignore[attr-defined]
        one = compiler.compile(parser.SubPattern(state, [item]), self._flags)
        begin, end = self._state(), self._state()
        self._also[at].append(begin)
        self._reads[begin] = (one, end)
        return end

    def _repeated(self, least: int, most: Any, body: Any, at: int) -> int:
        for _ in range(least):
            at = self.add(body, at)
        if int(most) >= _MOST:
            loop = self._state()
            self._also[at].append(loop)
            self._also[self.add(body, loop)].append(loop)
            return loop
        end = self._state()
        self._also[at].append(end)
        for _ in range(int(most) - least):
            at = self.add(body, at)
            self._also[at].append(end)
        return end

    def run(self, name: str) -> bool:
        states = self._with_also({self.start}, at_start=True, at_end=not name)
        for number, char in enumerate(name, 1):
            at_end = number == len(name)
            key = (states, char)
            found = None if at_end else self._known.get(key)
            if found is None:
                read = {step[1] for state in states if (step := self._reads[state]) and step[0].fullmatch(char)}
                found = self._with_also(read, at_start=False, at_end=at_end)
                if not at_end:
                    if len(self._known) >= _MOST_KNOWN:
                        self._known.clear()
                    self._known[key] = found
            states = found
            if not states:
                return False
        return self.final in states

    def _with_also(self, states: set[int], *, at_start: bool, at_end: bool) -> frozenset[int]:
        todo, found = list(states), set(states)
        while todo:
            for other in self._also[todo.pop()]:
                closed = (other in self._only_at_start and not at_start) or (other in self._only_at_end and not at_end)
                if other not in found and not closed:
                    found.add(other)
                    todo.append(other)
        return frozenset(found)
