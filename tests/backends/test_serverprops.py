"""A broker's server.properties becomes the settings that decide about quotas."""

from pathlib import Path

import pytest

from kquota import InputError, QuotaKey
from kquota.backends.serverprops import read_server_properties
from kquota.core.enforcement import QuotaWindows
from kquota.core.enforcement.generation import BrokerSettings
from kquota.core.quotas.static import StaticQuotas
from kquota.core.quotas.version import Version
from tests.support.data import data_rows, data_text

FILE = data_text("brokers/ours.properties")
NOW: Version = (4, 0, 0)


def read(tmp_path: Path, text: str, version: Version = (2, 8, 0)) -> BrokerSettings:
    file = tmp_path / "server.properties"
    file.write_text(text)
    return read_server_properties(file, version)


def test_everything_that_decides_about_quotas(tmp_path: Path) -> None:
    assert read(tmp_path, FILE) == BrokerSettings(
        windows=QuotaWindows(21, 2),
        controller_windows=QuotaWindows(100, 1),
        static=StaticQuotas({QuotaKey.PRODUCER_BYTE_RATE: 1048576}),
        connection_rate=200,
        listeners={"INTERNAL": None, "CLIENTS": 50},
        inter_broker_listener="INTERNAL",
    )


def test_an_empty_file_is_kafkas_own_defaults(tmp_path: Path) -> None:
    assert read(tmp_path, "", NOW) == BrokerSettings(inter_broker_listener="PLAINTEXT")


def test_a_controller_has_no_inter_broker_listener(tmp_path: Path) -> None:
    settings = read(tmp_path, "process.roles=controller\nlisteners=CONTROLLER://:9093\n", NOW)
    assert (list(settings.listeners), settings.inter_broker_listener) == (["CONTROLLER"], None)


def test_later_brokers_do_not_read_the_static_defaults_and_are_told_so(tmp_path: Path) -> None:
    settings = read(tmp_path, FILE, NOW)
    assert not settings.static.values
    (problem,) = settings.problems
    assert problem.where.endswith("server.properties: quota.producer.default")
    assert "0.9 to 2.8" in problem.message


def test_earlier_brokers_do_not_limit_connections(tmp_path: Path) -> None:
    settings = read(tmp_path, FILE, (2, 6, 0))
    assert settings.connection_rate is None
    assert settings.listeners == {"INTERNAL": None, "CLIENTS": None}
    assert settings.controller_windows == QuotaWindows()


@pytest.mark.parametrize("name", ["quota.producer.override", "quota.consumer.bytes.per.second.overrides"])
@pytest.mark.parametrize("version", [(0, 9, 0), (2, 8, 0), NOW])
def test_the_overrides_of_kip_13_were_never_shipped(tmp_path: Path, name: str, version: Version) -> None:
    """KIP-13: quota.producer.override="clientA:4M,clientB:10M"."""
    settings = read(tmp_path, f'{name}="clientA:4M,clientB:10M"\n', version)
    (problem,) = settings.problems
    assert name in problem.where
    assert "KIP-13" in problem.message
    assert not settings.static.values


@pytest.mark.parametrize(("line", "says"), data_rows("refused/server_properties.txt"))
def test_what_a_broker_would_refuse(tmp_path: Path, line: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, "ssl.keystore.password=hush\n" + line + "\n")
    assert "server.properties: " in caught.value.message
    assert says in caught.value.message
    assert "hush" not in caught.value.message
