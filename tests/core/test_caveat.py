"""The exceptions of brokers: said where they apply, and nowhere else."""

import pytest

from kquota import DEFAULT, Entity, QuotaKey, QuotaSnapshot
from kquota.core.quotas.quota import LONG_MAX, Value
from kquota.core.resolve.caveat import caveats

PRODUCER = QuotaKey.PRODUCER_BYTE_RATE
NOTHING = QuotaSnapshot()
USER = QuotaSnapshot({Entity(user="bob"): {PRODUCER: 1}})
CLIENTS = QuotaSnapshot(
    {Entity(client_id=DEFAULT): {PRODUCER: 1}, Entity(user=DEFAULT): {QuotaKey.CONSUMER_BYTE_RATE: 1}}
)
ALL_KEYS: dict[QuotaKey, Value] = {key: 1 for key in QuotaKey if key is not QuotaKey.CONNECTION_CREATION_RATE}


def names(snapshot: QuotaSnapshot, client_id: str = "app", **facts: object) -> list[str]:
    return [each.name for each in caveats(snapshot, "alice", client_id, **facts)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("snapshot", "client_id", "applies"),
    [
        (CLIENTS, "", True),
        (CLIENTS, "app", False),
        (USER, "", False),
        (QuotaSnapshot({Entity(user="alice", client_id=DEFAULT): {PRODUCER: 1}}), "", True),
        (QuotaSnapshot({Entity(user="eve", client_id=DEFAULT): {PRODUCER: 1}}), "", False),
        (QuotaSnapshot({Entity(client_id=DEFAULT): {PRODUCER: 1}, Entity(user=DEFAULT): {PRODUCER: 1}}), "", False),
    ],
)
def test_an_empty_client_id(snapshot: QuotaSnapshot, client_id: str, applies: bool) -> None:
    assert names(snapshot, client_id) == (["empty-client-id"] if applies else [])


def test_a_custom_callback() -> None:
    (caveat,) = caveats(NOTHING, "alice", "app", callback="com.example.Mine")
    assert (caveat.name, "com.example.Mine" in caveat.message) == ("custom-callback", True)


@pytest.mark.parametrize(("version", "applies"), [((2, 4, 9), True), ((2, 5, 0), False), (None, False)])
def test_a_removed_quota_that_still_throttles(version: tuple[int, int, int] | None, applies: bool) -> None:
    assert ("removed-quota" in names(NOTHING, version=version)) == applies
    everything = QuotaSnapshot({Entity(user="alice"): ALL_KEYS})
    assert names(everything, version=version) == []


def test_whose_counter_it_may_be() -> None:
    """Only users have quotas: a client without any is counted by its user, unless others had quotas before."""
    snapshot = QuotaSnapshot({Entity(user="bob"): ALL_KEYS})
    (caveat,) = caveats(snapshot, "alice", "app", version=(4, 0, 0))
    assert "may also be :app until" in caveat.message


@pytest.mark.parametrize(("version", "applies"), [((2, 7, 0), False), ((3, 4, 1), True), ((3, 5, 0), False)])
def test_mutations_in_kraft_mode(version: tuple[int, int, int], applies: bool) -> None:
    limited = QuotaSnapshot({Entity(user="alice"): {QuotaKey.CONTROLLER_MUTATION_RATE: 5.0}})
    assert ("kraft-mutations" in names(limited, version=version)) == applies


def test_an_unlimited_value_governs() -> None:
    assert names(QuotaSnapshot({Entity(user=DEFAULT): {PRODUCER: LONG_MAX}})) == ["unlimited-value"]
