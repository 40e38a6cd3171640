"""The garbage collector, which looks seldom while kquota works.

By default it looks for cycles after 700 new objects. kquota makes many objects and hardly any cycles, and the looking
would take a tenth of the time of a command and of an audit.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_SELDOM: Final = 500_000
"""New objects between two looks."""


def look_seldom() -> None:
    """From now on, for the life of a process that is kquota's own."""
    gc.set_threshold(_SELDOM)


@contextmanager
def looking_seldom() -> Iterator[None]:
    """Meanwhile only, in a process that may be anybody's; one that never looks, or more seldom, stays as it is."""
    before = gc.get_threshold()
    if 0 < before[0] < _SELDOM:
        look_seldom()
    try:
        yield
    finally:
        gc.set_threshold(*before)
