"""`--match`: one pattern for describe, export, resolve and lint."""

import json
from pathlib import Path

import pytest

from kquota.documents.quotas import read_quotas
from tests.cli.conftest import Kquota
from tests.support.data import data_text

QUOTAS = data_text("cli/matched.yaml")


@pytest.fixture
def quotas(tmp_path: Path) -> str:
    path = tmp_path / "quotas.yaml"
    path.write_text(QUOTAS)
    return str(path)


def test_describe(kquota: Kquota, chroot: str, quotas: str) -> None:
    assert kquota("apply", quotas, "--yes", "--force", KQUOTA_ZOOKEEPER=chroot).code == 0
    ran = kquota("describe", "--match", "team-a-*", "-o", "name", KQUOTA_ZOOKEEPER=chroot)
    assert ran.out.split() == ["user=team-a-x", "user=bob,client-id=team-a-etl"]
    wide = kquota("describe", "--match", "bob", "--match", "user=team-b*", "-o", "wide", KQUOTA_ZOOKEEPER=chroot)
    assert [line.split()[0] for line in wide.out.splitlines()[1:]] == ["user=team-b-x", "user=bob,client-id=team-a-etl"]
    one = kquota("describe", "--entity-type", "users", "--match", "team-a-*", "-o", "name", KQUOTA_ZOOKEEPER=chroot)
    assert one.out.split() == ["user=team-a-x"]
    none = kquota("describe", "--match", "team-c-*", KQUOTA_ZOOKEEPER=chroot)
    assert (none.code, none.out, none.err) == (0, "", "no entity with quotas has a name like 'team-c-*'\n")
    broker = kquota("describe", "--broker", "1", "--match", "x", KQUOTA_ZOOKEEPER=chroot)
    assert broker.code == 2


def test_export(kquota: Kquota, quotas: str, tmp_path: Path) -> None:
    ran = kquota("export", "--quotas", quotas, "--match", "team-a-*")
    (tmp_path / "out.yaml").write_text(ran.out)
    assert [str(entity) for entity in read_quotas(tmp_path / "out.yaml")] == [
        "user=team-a-x",
        "user=bob,client-id=team-a-etl",
    ]
    assert "no entity with quotas" in kquota("export", "--quotas", quotas, "--match", "z").err


def test_resolve_who_and_all(kquota: Kquota, quotas: str, tmp_path: Path) -> None:
    who = kquota("resolve", "--who", "user=<default>", "--match", "team-a-*", "--quotas", quotas, "-o", "json")
    clients = [json.loads(line)["client"] for line in who.out.splitlines()]
    assert clients
    assert all("team-a" in str(client) for client in clients)
    assert who.err.endswith("known clients with a name like 'team-a-*'\n")
    seen = tmp_path / "seen.csv"
    seen.write_text("user,client_id,ip\nteam-a-new,app,1.2.3.4\nother,app,1.2.3.4\n")
    observed = kquota(
        *("resolve", "--who", "user=<default>", "--match", "team-a-*", "--quotas", quotas),
        *("--clients", str(seen), "-o", "csv"),
    )
    assert [line.split(",")[0] for line in observed.out.splitlines()[1:]] == ["team-a-new"]
    assert "governs 1 of 1 observed clients" in observed.err
    every = kquota("resolve", "--all", "--match", "user=team-b-*", "--quotas", quotas, "-o", "csv")
    assert {line.split(",")[0] for line in every.out.splitlines()[1:]} == {"team-b-x"}
    assert kquota("resolve", "--user", "a", "--match", "a*", "--quotas", quotas).code == 2


def test_lint(kquota: Kquota, quotas: str) -> None:
    every = json.loads(kquota("lint", quotas, "-o", "json").out)["findings"]
    some = json.loads(kquota("lint", quotas, "--match", "team-b-*", "-o", "json").out)["findings"]
    assert some == [each for each in every if (each["entity"] or {}).get("user") == "team-b-x"]
    assert 0 < len(some) < len(every)


def test_an_empty_pattern(kquota: Kquota, quotas: str) -> None:
    assert kquota("export", "--quotas", quotas, "--match", "").code == 3
