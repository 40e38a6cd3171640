"""Which release of Kafka a broker is, by the messages that it serves.

A broker does not report its version. Each release brought a message, or a version of one. The table is compared with
kafka-python's in a test.
"""

from collections.abc import Mapping
from typing import Any, Final

from kquota.core.quotas.version import Version, format_version

SIGNS: Final = (
    ((4, 4), 18, 5),
    ((4, 3), 35, 5),
    ((4, 2), 2, 11),
    ((4, 1), 0, 13),
    ((4, 0), 0, 12),
    ((3, 9), 1, 17),
    ((3, 8), 0, 11),
    ((3, 7), 1, 16),
    ((3, 6), 24, 4),
    ((3, 5), 1, 15),
    ((3, 4), 6, 8),
    ((3, 3), 29, 3),
    ((3, 2), 11, 9),
    ((3, 1), 1, 13),
    ((3, 0), 65, 0),
    ((2, 8), 60, 0),
    ((2, 7), 50, 0),
    ((2, 6), 48, 0),
)
"""A release, the number of a message, and the version of the message that is new in the release; newest first."""


def version_of(offered: Mapping[int, Any]) -> Version | None:
    """The release, or the newest one that kquota knows; None before 2.6.

    A KRaft broker of 3.4 serves the same messages as one of 3.3, and counts as 3.3.
    """
    releases = (release for release, key, version in SIGNS if key in offered and offered[key].max_version >= version)
    return next(((*release, 0) for release in releases), None)


def release_of(offered: Mapping[int, Any]) -> str:
    """The release as people write it: `Kafka 3.9`, `Kafka 4.4 or later`, `Kafka before 2.6`."""
    version = version_of(offered)
    if version is None:
        return "Kafka before 2.6"
    return f"Kafka {format_version(version)}" + (" or later" if version[:2] == SIGNS[0][0] else "")
