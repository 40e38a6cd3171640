"""The order of the tests: random within each module, and modules side by side on several workers.

A module is run by one worker as a whole, so its servers start once. Modules that share an expensive server are one unit
of work, and units that take long come first: no worker waits for a long one at the end.
"""

import atexit
import os
import shutil
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pytest
from hypothesis import settings

Value = TypeVar("Value")

_SCHEDULE: Mapping[str, Any] = tomllib.loads((Path(__file__).parents[1] / "schedule.toml").read_text(encoding="utf-8"))
UNITS: Mapping[str, Sequence[str]] = _SCHEDULE["units"]
"""Modules that share a server, by the server."""
LONG: Sequence[str] = _SCHEDULE["long"]
"""The units and modules that take longest, the longest first."""
SERVERS = frozenset(_SCHEDULE["servers"])
"""Fixtures that start a server."""
WITH_SERVERS: Sequence[str] = _SCHEDULE["with_servers"]
"""Folders and modules whose tests start servers, Java or other programs by themselves, or wait for them."""
NIGHTLY: Sequence[str] = _SCHEDULE["nightly"]
"""What `make test` leaves to `make nightly`: modules, and beginnings of the names of tests."""
LONG_WITHOUT_SERVERS: Sequence[str] = _SCHEDULE["long_without_servers"]
"""What `make quick` leaves to `make test`, whose kernel is compiled: modules, and beginnings of the names of tests."""

_NO_JAVA = """\
#!/bin/sh
echo "a test without servers starts ${0##*/}: tests/schedule.toml says which modules do that" >&2
exit 1
"""

_UNIT_OF = {module: unit for unit, modules in UNITS.items() for module in modules}


def unit_of(nodeid: str) -> str:
    """The unit of work that a test belongs to: a shared server's name, otherwise the path of its module."""
    module = nodeid.partition("::")[0]
    return _UNIT_OF.get(module, module)


def arrange(items: list[pytest.Item], seed: int) -> None:
    """Puts the tests into the order in which they run: long units first, and within a module as the seed has it."""
    modules: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        modules[item.nodeid.partition("::")[0]].append(item)

    def rank(module: str) -> tuple[int, str]:
        unit = unit_of(module)
        return (LONG.index(unit) if unit in LONG else len(LONG)), unit

    items.clear()
    for module in sorted(modules, key=rank):
        # Each module draws by itself: its order is the same where it runs alone.
        Random(f"{seed} {module}").shuffle(modules[module])
        items += modules[module]


def needs_server(item: pytest.Item) -> bool:
    """Whether one of the test's fixtures starts a server, or the test is marked as one that does."""
    return bool(item.get_closest_marker("server")) or not SERVERS.isdisjoint(getattr(item, "fixturenames", ()))


def waits_for_night(item: pytest.Item) -> bool:
    """Whether `make nightly` runs the test, and `make test` does not."""
    return item.nodeid.startswith(tuple(NIGHTLY))


def is_long(item: pytest.Item) -> bool:
    """Whether `make test` runs the test, and `make quick` does not."""
    return item.nodeid.startswith(tuple(LONG_WITHOUT_SERVERS))


def examples(many: int) -> int:
    """How many examples a law that takes long gets: `make nightly` tries that many, and each day has a fifth."""
    return max(5, many // 5) if by_day() else many


def part(values: Sequence[Value], number: int) -> Sequence[Value]:
    """Which of the values are tried where each costs a process: `make nightly` has all, and each day a third.

    Those of three tests with different numbers are all of them together.
    """
    return values[number % 3 :: 3] if by_day() else values


def by_day() -> bool:
    """Whether `make test` or `make quick` runs, and not `make nightly`."""
    return settings.get_current_profile_name() in ("daily", "quick")


def hide_java() -> None:
    """Lets tests that start Java or Maven fail: they need more than Python."""
    folder = Path(tempfile.mkdtemp(prefix="kquota-no-java-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for program in ("java", "mvn"):
        (folder / program).write_text(_NO_JAVA)
        (folder / program).chmod(0o755)
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
    os.environ.pop("JAVA_HOME", None)
