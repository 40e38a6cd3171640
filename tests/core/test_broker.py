"""The limits of brokers: names, values, levels."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota import DEFAULT, InputError
from kquota.core.change.broker import (
    RATE,
    UNLIMITED,
    BrokerAlteration,
    BrokerConfig,
    Setting,
    Source,
    beside,
    check_name,
    humanize,
    is_shown,
    level_of,
    listener_of,
    parse_broker,
    parse_rate,
    rank,
    read_value,
)
from kquota.core.enforcement.sensors import protected_listener

LISTENER = f"listener.name.internal.{RATE}"


def test_names_of_limits() -> None:
    """The broker-wide rate, and that of any listener."""
    assert check_name(RATE) == RATE
    assert check_name(LISTENER) == LISTENER
    assert (listener_of(RATE), listener_of(LISTENER)) == (None, "internal")
    assert is_shown("quota.window.num")
    assert not is_shown("log.dirs")
    assert sorted(["num.io.threads", LISTENER, RATE], key=rank) == [RATE, LISTENER, "num.io.threads"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("num.io.threads", "is shown, but not altered"),
        ("quota.window.num", "is shown, but not altered"),
        ("max.connections", "is no limit"),
        ("connection_creation_rate", "is no limit"),
        (f"listener.name..{RATE}", "is no limit"),
        (f"listener.name.INTERNAL.{RATE}", "no listener is called 'INTERNAL'"),
    ],
)
def test_what_cannot_be_altered(name: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        check_name(name)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0", "greater than 0"),
        ("-1", "greater than 0"),
        ("2147483648", "too large for an INT"),
        ("9" * 99, "too large for an INT"),
        ("1.5", "not a whole number"),
        ("1e3", "not a whole number"),
        ("10MB", "not a whole number"),
        ("٣", "not a whole number"),
        ("", "empty"),
    ],
)
def test_rates_that_are_none(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        parse_rate(RATE, text)


@given(st.integers(1, UNLIMITED))
def test_a_shown_rate_can_be_read(value: int) -> None:
    """What describe prints, alter takes."""
    assert parse_rate(RATE, humanize(RATE, value).replace(" connections", "")) == value
    assert read_value(RATE, str(value)) == value


@pytest.mark.parametrize("text", ["x", "-1", "", "1.0", "2147483648", "9" * 20])
def test_ids_that_are_none(text: str) -> None:
    with pytest.raises(InputError, match="not a broker's id"):
        parse_broker(text)


def test_values_by_level() -> None:
    """A synonym of another name is another config's value."""
    config = BrokerConfig(
        LISTENER,
        20,
        Source.DYNAMIC_BROKER_CONFIG,
        (Setting(RATE, 250, Source.DYNAMIC_BROKER_CONFIG), Setting(LISTENER, 7, Source.STATIC_BROKER_CONFIG)),
    )
    assert config.value_at(level_of(1)) == 20
    assert config.value_at(level_of(DEFAULT)) is None
    assert config.value_at(Source.STATIC_BROKER_CONFIG) == 7
    assert config.hidden == (Setting(LISTENER, 7, Source.STATIC_BROKER_CONFIG),)


@pytest.mark.parametrize(
    ("listeners", "inter_broker", "kept"),
    [
        (("INTERNAL", "EXTERNAL"), "INTERNAL", False),
        (("INTERNAL", "EXTERNAL"), "EXTERNAL", True),
        (("INTERNAL",), "INTERNAL", True),
        (("INTERNAL", "EXTERNAL"), None, True),
    ],
)
def test_the_inter_broker_listener_keeps_its_own_rate_only(
    listeners: tuple[str, ...], inter_broker: str | None, kept: bool
) -> None:
    """Where there are several listeners; the only one keeps the rate of its broker too."""
    rate = BrokerConfig(RATE, 250, Source.DYNAMIC_BROKER_CONFIG)
    protected = protected_listener(listeners, inter_broker) == "INTERNAL"
    listener = BrokerConfig(LISTENER, 20, Source.DYNAMIC_BROKER_CONFIG, is_protected=protected)

    assert beside(listener, (rate, listener)) is (rate if kept else None)


def test_an_alteration_is_checked() -> None:
    """As one of quotas is."""
    for arguments, says in (
        ((1, {}), "nothing to set"),
        ((1, {RATE: 0}), "greater than 0"),
        ((1, {"num.io.threads": 4}), "not altered"),
        ((DEFAULT, {RATE: 1}, frozenset({RATE})), "both added and deleted"),
    ):
        with pytest.raises(InputError, match=says):
            BrokerAlteration(*arguments)
