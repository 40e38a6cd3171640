"""Names and keys that are nearly right, and first steps that go nowhere: each has a next step."""

from pathlib import Path

import pytest

from kquota.core.quotas.quota import QuotaKey, parse_value
from tests.cli.conftest import Kquota
from tests.support.data import data_text

QUOTAS = data_text("cli/slips.yaml")


FREE = "no quota limits this client\n"
WITHOUT = "for a client without a client-id (--client NAME for another)\n"


@pytest.fixture(autouse=True)
def quotas(tmp_path: Path) -> None:
    (tmp_path / "quotas.yaml").write_text(QUOTAS)


@pytest.mark.parametrize(
    ("arguments", "note"),
    [
        ("--user alise", f"{WITHOUT}no quota is set for user=alise; did you mean 'alice'?\n{FREE}"),
        ("--user bob --client wroker-1", f"no quota is set for client-id=wroker-1; did you mean 'worker-1'?\n{FREE}"),
        ("--user bob --client worker-2", FREE),
        ("--user alice --client wroker-1", ""),
        ("--user somebody --client else", FREE),
        ("--user alise --quiet", ""),
        ("--ip 10.0.0.71", FREE),
    ],
)
def test_a_name_that_is_nearly_one_with_quotas(kquota: Kquota, arguments: str, note: str) -> None:
    done = kquota("resolve", *arguments.split(), "--quotas", "quotas.yaml")
    assert (done.code, done.err) == (0, note)


def test_a_new_name_that_is_nearly_one_with_quotas(kquota: Kquota, tmp_path: Path) -> None:
    """It would limit nobody: plan and lint say so, once for many, and ask nothing."""
    note = "user=alcie is a new name; did you mean 'alice'?"
    head = "user,client-id,producer_byte_rate\n"
    (tmp_path / "new.csv").write_text(f"{head}alcie,,1MB\nalcie,app,1MB\nbob,worker-2,1MB\n")
    planned = kquota("plan", "new.csv", "--quotas", "quotas.yaml")
    assert [line for line in planned.err.splitlines() if "did you mean" in line] == [note]
    assert kquota("plan", "new.csv", "--quotas", "new.csv").err == "nothing changes\n"
    (tmp_path / "new.csv").write_text(f"{head}alcie,,1MB\nalice,,1MB\n")
    done = kquota("lint", "new.csv", "--fail-on", "warning")
    assert (done.code, done.err) == (0, "1 note\n")
    assert done.out.startswith("new.csv:2: note: user=alcie: the user is nearly another one, 'alice' [similar-name]")
    words = [f"{one}{other}ation" for one in ("bakt", "dolm", "fenr") for other in ("ub", "ev", "iz", "og")]
    for name, letters in (("known", ""), ("many", "s")):
        (tmp_path / f"{name}.csv").write_text(head + "".join(f",{word}{letters},1MB\n" for word in words))
    told = kquota("plan", "many.csv", "--quotas", "known.csv").err.splitlines()
    assert ["did you mean" in line for line in told] == [False, *[True] * 5, False]
    assert told[-1] == "and 7 more new names are nearly others: 'kquota lint' shows them"


@pytest.mark.parametrize(("new", "meant"), [("Tenant-098", "tenant-098"), ("tenatn-5", "tenant-001")])
def test_a_slip_among_numbered_names(kquota: Kquota, tmp_path: Path, new: str, meant: str) -> None:
    """The name with the same digits is meant; one of the many is no slip, and no note when it is new."""
    (tmp_path / "known.csv").write_text("user,producer_byte_rate\ntenant-098,1MB\ntenant-097,1MB\n")
    (tmp_path / "new.csv").write_text(f"user,producer_byte_rate\n{new},1MB\ntenant-001,1MB\ntenant-098,1MB\n")
    planned = kquota("plan", "new.csv", "--quotas", "known.csv")
    assert f"user={new} is a new name; did you mean {meant!r}?" in planned.err.splitlines()
    assert planned.err.count("did you mean") == 1
    linted = kquota("lint", "new.csv")
    assert f"user={new}: the user is nearly another one, {meant!r} [similar-name]" in linted.out
    assert linted.out.count("similar-name") == 1


def test_many_new_names_are_no_slips_of_a_known_one(kquota: Kquota, tmp_path: Path) -> None:
    (tmp_path / "known.csv").write_text("user,producer_byte_rate\nTenant-029,1MB\n")
    (tmp_path / "new.csv").write_text("user,producer_byte_rate\ntenant-029,1MB\ntenant-030,1MB\n")
    assert "did you mean" not in kquota("plan", "new.csv", "--quotas", "known.csv").err


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        (
            "kquota.plan",
            "kquota.plan ('kquota apply PLAN --dry-run' shows it; here give the quotas file that it was made of)",
        ),
        ("kquota.quota", "kquota.quota"),
        ("s3cret", "another"),
    ],
)
def test_another_document_says_which_it_is(kquota: Kquota, tmp_path: Path, kind: str, found: str) -> None:
    (tmp_path / "other.yaml").write_text(f"version: 1\nkind: {kind}\nchanges: []\n")
    done = kquota("lint", "other.yaml")
    assert done.code == 3
    assert done.complaint == f"kquota: other.yaml, line 2: kind: expected kquota.quotas, found {found}"


def test_unlimited_is_the_largest_value_where_there_is_one() -> None:
    assert parse_value(QuotaKey.PRODUCER_BYTE_RATE, "unlimited") == 2**63 - 1


def test_unlimited_is_shown_as_it_was_typed(kquota: Kquota, tmp_path: Path) -> None:
    """Before a write and in a plan, as `describe` shows it afterwards."""
    head = "kind: kquota.quotas\nversion: 1\nquotas:\n"
    (tmp_path / "now.yaml").write_text(head + "- entity: {user: alice}\n  values: {producer_byte_rate: 1MB}\n")
    (tmp_path / "wanted.yaml").write_text(head + "- entity: {user: alice}\n  values: {producer_byte_rate: unlimited}\n")
    done = kquota("plan", str(tmp_path / "wanted.yaml"), "--quotas", str(tmp_path / "now.yaml"))
    assert "unlimited (Long.MAX_VALUE)" in done.out
    assert "9223372036854775807" not in done.out
