"""What people type first: options by another name, numbers with commas, names in capitals, and patterns as names."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Kquota

QUOTAS = "kind: kquota.quotas\nversion: 1\nquotas:\n  - {entity: {user: bob}, values: {producer_byte_rate: 1MB}}\n"


def test_client_id_is_client(kquota: Kquota, tmp_path: Path) -> None:
    (tmp_path / "q.yaml").write_text(QUOTAS)
    short, long = (
        kquota("resolve", "--quotas", "q.yaml", "--user", "bob", option, "app1")
        for option in ("--client", "--client-id")
    )
    assert (short.code, short.out) == (0, long.out)
    assert kquota("export", "--quotas", "q.yaml", "--client-id", "app1").code == 0


def test_options_that_are_called_otherwise(kquota: Kquota) -> None:
    for tried, meant in (("--set", "--add-config"), ("--unset", "--delete-config")):
        ran = kquota("alter", tried, "x=1")
        assert ran.code == 2
        assert f"No such option {tried!r}. Did you mean {meant!r}?" in ran.err
    assert "--add-config" not in kquota("describe", "--set", "x").err


def test_a_number_with_commas(kquota: Kquota) -> None:
    ran = kquota("alter", "--user", "u", "--add-config", "producer_byte_rate=1,000,000", KQUOTA_ZOOKEEPER="127.0.0.1:1")
    assert (ran.code, "a number has no commas: 1000000, or 1MB" in ran.err) == (3, True)


def test_names_in_capitals_and_patterns(kquota: Kquota, tmp_path: Path) -> None:
    (tmp_path / "q.yaml").write_text(QUOTAS)
    capitals = kquota("resolve", "--user", "BOB", "--client", "a", "--quotas", "q.yaml")
    assert "did you mean 'bob'?" in capitals.err
    pattern = kquota("resolve", "--user", "bo*", "--client", "a", "--quotas", "q.yaml")
    assert "'bo*' is taken as a name; 'kquota describe --match' takes patterns" in pattern.err
