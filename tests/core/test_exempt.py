"""Which requests the request quota charges."""

import pytest

from kquota.audit.sources.request_line import JSON_LOG
from kquota.core.enforcement.apis import exempt_apis, is_spared
from kquota.core.quotas.version import Version

NOW: Version = (4, 3, 1)


@pytest.mark.parametrize("api", ["STOP_REPLICA", "CONTROLLED_SHUTDOWN", "LEADER_AND_ISR", "UPDATE_METADATA"])
def test_the_list_of_kip_124(api: str) -> None:
    """Requests "that update cluster state will be throttled only if authorization for ClusterAction fails".

    Brokers without ZooKeeper do not know them: such a request was recorded in an older release.
    """
    assert all(is_spared(api, version) for version in ((0, 11, 0), (2, 8, 0), (3, 9, 1), NOW))


@pytest.mark.parametrize(
    "api",
    [
        "HEARTBEAT", "JOIN_GROUP", "METADATA", "API_VERSIONS", "BROKER_HEARTBEAT", "BROKER_REGISTRATION",
        "CONTROLLER_REGISTRATION", "ALLOCATE_PRODUCER_IDS", "ASSIGN_REPLICAS_TO_DIRS", "WRITE_SHARE_GROUP_STATE",
        "SHARE_FETCH", "SHARE_ACKNOWLEDGE", "SHARE_GROUP_HEARTBEAT", "SASL_HANDSHAKE", "DESCRIBE_QUORUM",
    ],
)  # fmt: skip
def test_timing_sensitive_requests_and_others_of_brokers_are_charged(api: str) -> None:
    """KIP-124 rejects to "Exempt timing-sensitive requests such as consumer heartbeat"; the APIs of brokers among these
    need ClusterAction and are charged all the same.
    """
    assert not is_spared(api, NOW)


@pytest.mark.parametrize(
    ("api", "first", "last", "after"),
    [
        ("OFFSET_FOR_LEADER_EPOCH", (0, 11, 0), (2, 0, 1), (2, 1, 0)),
        ("ALTER_PARTITION", (3, 2, 0), NOW, None),
        ("FETCH_SNAPSHOT", (3, 0, 0), NOW, None),
        ("UPDATE_RAFT_VOTER", (3, 9, 0), NOW, None),
    ],
)
def test_the_releases(api: str, first: Version, last: Version, after: Version | None) -> None:
    before = (first[0], first[1] - 1, 9)
    assert [is_spared(api, version) for version in (before, first, last)] == [False, True, True]
    assert after is None or not is_spared(api, after)


def test_the_audit_reads_logs_of_2_8_and_later() -> None:
    apis = exempt_apis(JSON_LOG)
    assert {"LEADER_AND_ISR", "CONTROLLED_SHUTDOWN", "ALTER_ISR", "ALTER_PARTITION", "VOTE", "ENVELOPE"} <= apis
    assert not {"OFFSET_FOR_LEADER_EPOCH", "DESCRIBE_QUORUM", "PRODUCE", "FETCH"} & apis
