"""Kafka versions as people write them, and what brokers enforce since when: the one place that knows.

A release is a tag of apache/kafka in which the behaviour was looked up, not the release that a proposal names.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from kquota.core.quotas.entity import DEFAULT, Entity
from kquota.core.quotas.quota import QuotaKey
from kquota.errors import InputError

Version: TypeAlias = tuple[int, int, int]
"""Major, minor and patch; 0.10.1 is (0, 10, 1)."""

NEWEST: Final[Version] = (4, 0, 0)
"""What brokers are taken to be unless somebody says."""

_VERSION: Final = re.compile(r"v?(?P<numbers>\d+(?:\.\d+)*)(?:[-.](?P<suffix>[A-Za-z].*))?", re.ASCII)


def parse_version(text: str) -> Version:
    """The version of a Kafka release: `3.7.1`, `3.8`, `4.0.0`, `3.9-IV0`, `0.10.2.1`; what is not said is 0.

    Raises InputError for another text, for a version of Confluent Platform, and for 3 alone: Kafka 3.8 changed how
    samples are dropped.
    """
    match = _VERSION.fullmatch(text.strip())
    if match is None:
        raise InputError(f"{text!r} is not a Kafka version", hint="for example 3.7 or 4.0.0")
    if (match["suffix"] or "").lower().startswith(("ccs", "ce")):
        raise InputError(
            f"{text!r} is a version of Confluent Platform", hint="give the Kafka version in it: 7.5 is Kafka 3.5"
        )
    numbers = [int(number) for number in match["numbers"].split(".")]
    if numbers == [3]:
        raise InputError(f"Kafka version {text!r} is ambiguous", hint="3.7 and 3.8 drop samples differently")
    major, minor, patch, *_ = [*numbers, 0, 0]
    return major, minor, patch


def format_version(version: Version) -> str:
    """The version as people write it: `0.9`, `0.10.0`, `2.8`, `3.7.1`."""
    major, minor, patch = version
    # 0.10.0 and 0.10.1 are as far apart as other minor releases.
    return f"{major}.{minor}.{patch}" if patch or (major, minor) == (0, 10) else f"{major}.{minor}"


class Since(NamedTuple):
    """The release that brought something, and the proposal that it comes from."""

    version: Version
    kip: str

    def __str__(self) -> str:
        return f"since {format_version(self.version)} ({self.kip})"


KEYS: Final[Mapping[QuotaKey, Since]] = {
    QuotaKey.PRODUCER_BYTE_RATE: Since((0, 9, 0), "KIP-13"),
    QuotaKey.CONSUMER_BYTE_RATE: Since((0, 9, 0), "KIP-13"),
    QuotaKey.REQUEST_PERCENTAGE: Since((0, 11, 0), "KIP-124"),
    QuotaKey.CONTROLLER_MUTATION_RATE: Since((2, 7, 0), "KIP-599"),
    QuotaKey.CONNECTION_CREATION_RATE: Since((2, 8, 0), "KIP-612"),
}
"""The release of each quota key: the first tag whose brokers read it (`DynamicConfig`, `QuotaConfigs`)."""

USERS: Final = Since((0, 10, 1), "KIP-55")
"""Quotas of users and of <user, client-id>, and defaults that are stored in ZooKeeper, the default client-id's too."""

# What brokers do, by the release that changed it; each was looked up in the tags before and after.
STATIC_SINCE: Final = (0, 9, 0)
"""`quota.producer.default` and `quota.consumer.default` (KIP-13)."""
STATIC_REMOVED: Final = (3, 0, 0)
"""Brokers no longer read them (KAFKA-12591)."""
MUTING: Final = (2, 0, 0)
"""A response is sent at once and the channel is muted; before, the response was held back (KIP-219).

Since then, too, the longer of two delays counts instead of their sum, and a throttled fetch is taken back.
"""
EMPTY_CLIENT_ID_ESCAPES: Final = (2, 0, 0)
"""An empty client-id has no client-id default any more (`DefaultQuotaCallback`, KIP-257; KAFKA-13341)."""
FETCH_CAP: Final = (2, 5, 0)
"""A fetch returns at most as many bytes as the quota's windows let through (KAFKA-9677)."""
REMOVAL_HOLDS: Final = (2, 5, 0)
"""The removal of the last quota of a client ends its throttling (KAFKA-9658)."""
CONNECTION_RATES: Final = (2, 7, 0)
"""`max.connection.creation.rate` of brokers and listeners (KIP-612)."""
CONTROLLER_WINDOWS: Final = (2, 7, 0)
"""`controller.quota.window.*` (KIP-599)."""
KRAFT: Final = (2, 8, 0)
"""Clusters without ZooKeeper."""
KRAFT_MUTATIONS: Final = (3, 5, 0)
"""`controller_mutation_rate` in KRaft mode; in ZooKeeper mode since 2.7 (KAFKA-14351)."""
SAMPLES_BY_LAST_EVENT: Final = (3, 8, 0)
"""N+1 samples, each kept until N windows after its last event (PR 15889)."""
DELAYS_CAPPED: Final = (4, 4, 0)
"""A delay of 2^31 ms or more is 2,147,483,647 ms; before, its low 32 bits count (`ClientQuotaManager`)."""
BITS_CLEARED: Final = (4, 2, 0)
"""A kind of entity is forgotten with its last quota (KAFKA-19282)."""


def ignored(entity: Entity, key: QuotaKey, version: Version) -> str | None:
    """Why brokers of that version do not enforce a quota, such as `not enforced by Kafka 2.6: since 2.8 (KIP-612)`.

    None where they do.
    """
    since = KEYS[key]
    what = ""
    if version >= since.version and version < USERS.version:
        if entity.user is not None:
            since, what = USERS, "quotas of users "
        elif entity.client_id is DEFAULT:
            since, what = USERS, "a stored default client-id "
    if version >= since.version:
        return None
    return f"not enforced by Kafka {format_version(version)}: {what}{since}"


def approximations(version: Version) -> tuple[str, ...]:
    """What brokers of that version do otherwise than kquota replays and simulates it, a sentence each."""
    sentences = []
    if version < MUTING:
        sentences.append(
            "before 2.0 a broker held back the response of a throttled request and kept a throttled fetch recorded; "
            "here the response is sent at once, the channel is muted, and a throttled fetch is taken back (KIP-219)"
        )
        if version >= KEYS[QuotaKey.REQUEST_PERCENTAGE].version:
            sentences.append(
                "before 2.0 a request over a byte rate and over its request_percentage waited for the sum of both "
                "delays; here for the longer one"
            )
    if KEYS[QuotaKey.PRODUCER_BYTE_RATE].version <= version < FETCH_CAP:
        sentences.append(
            "before 2.5 nothing kept a fetch below what the quota's windows let through; here its size is bounded so "
            "(KAFKA-9677)"
        )
    return tuple(sentences)
