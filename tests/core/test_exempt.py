"""Which requests the request quota charges."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.audit.sources.request_line import JSON_LOG
from kquota.core.enforcement.exempt import EXEMPTIONS, exempt_apis, is_exempt
from kquota.core.quotas.version import Version

NOW: Version = (4, 3, 1)
RELEASES = st.tuples(st.integers(0, 4), st.integers(0, 11), st.integers(0, 3))


@pytest.mark.parametrize("api", ["STOP_REPLICA", "CONTROLLED_SHUTDOWN", "LEADER_AND_ISR", "UPDATE_METADATA"])
def test_the_list_of_kip_124(api: str) -> None:
    """Requests "that update cluster state will be throttled only if authorization for ClusterAction fails"."""
    for version in ((0, 11, 0), (2, 8, 0), (3, 9, 1)):
        assert is_exempt(api, version)
        assert not is_exempt(api, version, authorized=False)
    assert not is_exempt(api, NOW)


def test_kip_124_on_sasl_handshake() -> None:
    """The text: "SaslHandshake request will not be throttled when used for authentication, but will be throttled on
    quota violation if used at any other time."
    """
    for version in ((0, 11, 0), NOW):
        assert is_exempt("SASL_HANDSHAKE", version, authenticating=True)
        assert not is_exempt("SASL_HANDSHAKE", version)


def test_kip_124_on_replication() -> None:
    """The text: "Fetch requests used for replication will not be throttled based on request times"."""
    assert is_exempt("FETCH", NOW, follower=True)
    assert not is_exempt("FETCH", NOW)


def test_what_was_shipped_besides() -> None:
    assert is_exempt("PRODUCE", NOW, acks=0)
    assert not is_exempt("PRODUCE", NOW, acks=1)
    assert not is_exempt("PRODUCE", NOW, acks=-1)
    assert is_exempt("WRITE_TXN_MARKERS", NOW)


@pytest.mark.parametrize(
    "api",
    [
        "HEARTBEAT",
        "JOIN_GROUP",
        "METADATA",
        "API_VERSIONS",
        "BROKER_HEARTBEAT",
        "BROKER_REGISTRATION",
        "CONTROLLER_REGISTRATION",
        "ALLOCATE_PRODUCER_IDS",
        "ASSIGN_REPLICAS_TO_DIRS",
        "WRITE_SHARE_GROUP_STATE",
        "SHARE_FETCH",
        "SHARE_ACKNOWLEDGE",
        "SHARE_GROUP_HEARTBEAT",
    ],
)
def test_timing_sensitive_requests_and_others_of_brokers_are_charged(api: str) -> None:
    """KIP-124 rejects to "Exempt timing-sensitive requests such as consumer heartbeat"; the APIs of brokers among these
    need ClusterAction and are charged all the same.
    """
    assert not is_exempt(api, NOW)
    assert not is_exempt(api, NOW, controller=True)


@pytest.mark.parametrize(
    ("api", "first", "last", "after"),
    [
        ("OFFSET_FOR_LEADER_EPOCH", (0, 11, 0), (2, 0, 1), (2, 1, 0)),
        ("ALTER_ISR", (2, 7, 0), (3, 1, 2), (3, 2, 0)),
        ("ALTER_PARTITION", (3, 2, 0), NOW, None),
        ("FETCH_SNAPSHOT", (3, 0, 0), NOW, None),
        ("UPDATE_RAFT_VOTER", (3, 9, 0), NOW, None),
    ],
)
def test_the_releases(api: str, first: Version, last: Version, after: Version | None) -> None:
    before = (first[0], first[1] - 1, 9)
    assert [is_exempt(api, version) for version in (first, last)] == [True, True]
    assert is_exempt(api, before) is (first == (0, 11, 0))  # before 0.11 nothing is charged
    assert after is None or not is_exempt(api, after)


def test_what_a_broker_forwards_is_charged_there_and_exempt_on_the_controller() -> None:
    assert not is_exempt("DESCRIBE_QUORUM", NOW)
    assert is_exempt("DESCRIBE_QUORUM", NOW, controller=True)


@given(st.sampled_from([exemption.api for exemption in EXEMPTIONS]), RELEASES)
def test_the_apis_since_a_release_are_those_of_it_and_of_all_later_ones(api: str, since: Version) -> None:
    later = {since, *(edge for exemption in EXEMPTIONS if (edge := exemption.since) >= since)}
    charging = {version for version in later if version >= (0, 11, 0)}
    assert (api in exempt_apis(since)) is any(is_exempt(api, version) for version in charging)


def test_the_audit_reads_logs_of_2_8_and_later() -> None:
    apis = exempt_apis(JSON_LOG)
    assert {"LEADER_AND_ISR", "CONTROLLED_SHUTDOWN", "ALTER_ISR", "ALTER_PARTITION", "VOTE", "ENVELOPE"} <= apis
    assert not {"OFFSET_FOR_LEADER_EPOCH", "DESCRIBE_QUORUM", "PRODUCE", "FETCH"} & apis
