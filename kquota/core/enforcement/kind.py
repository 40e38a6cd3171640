"""What a counter counts, and what a request is charged as: one set of numbers for every table that holds them."""

import enum


class Kind(enum.IntEnum):
    """A kind of counter, and of the event that charges it. Compiled code and columns of numbers hold it as an int."""

    PRODUCE = 0
    """Produced bytes."""
    FETCH = 1
    """Fetched bytes: a delayed fetch is taken back."""
    REQUEST = 2
    """Thread time, in ns: a delay is at most one window. A request of this kind is charged for nothing else."""
    CONNECTION = 3
    """Connections: a delay is at most one window. A refused connection of an ip is taken back."""
    MUTATION = 4
    """Topics created, deleted or extended by a version that knows THROTTLING_QUOTA_EXCEEDED: some are rejected."""
    PERMISSIVE = 5
    """The same by an older version, which is muted instead. The kinds from MUTATION on have a token bucket."""


# The members as plain numbers. Looking one up in its class takes Python 3.11 longer than charging a request, and numba
# takes the type of each member of the class anew whenever a member is an argument of compiled code.
PRODUCE, FETCH, REQUEST, CONNECTION, MUTATION, PERMISSIVE = (int(kind) for kind in Kind)
