"""`kquota lint` on a file written for it and on a live cluster, in every format."""

import json
import re
from pathlib import Path

import pytest

from tests.cli.conftest import Golden, Kquota, quotas, validated
from tests.support.data import data_text

FILE = data_text("cli/lint.yaml")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "quotas.yaml"
    file.write_text(FILE)
    return file


@pytest.mark.parametrize("output", ["table", "json", "sarif", "github"])
def test_a_file_in_every_format(kquota: Kquota, file: Path, golden: Golden, output: str) -> None:
    done = kquota("lint", file.name, "--capacity", "1kB", "-o", output)
    assert done.code == 0
    golden(f"lint.{output}", done.out + done.err)
    if output == "json":
        validated(done.out, "lint")


def test_findings_in_a_row_share_their_proof_and_hint(kquota: Kquota, file: Path) -> None:
    """A table of a department has the same mistake in each row."""
    rows = "".join(f"  - {{entity: {{user: team-{n}}}, values: {{request_percentage: 0.5}}}}\n" for n in range(40))
    file.write_text(f"kind: kquota.quotas\nversion: 1\nquotas:\n{rows}")
    lines = kquota("lint", file.name).out.splitlines()
    assert len(lines) == 42
    assert [line.split(":")[1] for line in lines[:40]] == [str(number) for number in range(4, 44)]


def test_mistakes_of_a_file_that_is_not_read_are_findings_for_programs(kquota: Kquota, file: Path) -> None:
    """CI shows them at their lines; on stderr they stand as everywhere."""
    file.write_text(FILE.replace("1MB", "1M").replace("0.5", "-1"))
    done = kquota("lint", file.name, "-o", "json")
    mistakes = validated(done.out, "lint")["findings"]
    assert done.code == 3
    assert [(one["rule"], one["severity"], one["line"]) for one in mistakes] == [
        ("unreadable", "error", 9),
        ("unreadable", "error", 11),
    ]
    assert kquota("lint", file.name, "-o", "github").out.startswith(
        "::error file=quotas.yaml,line=9,title=unreadable::quotas["
    )
    assert (
        kquota("lint", file.name).err
        == done.err
        == "".join(f"kquota: quotas.yaml, line {one['line']}: {one['message']}\n" for one in mistakes)
    )


@pytest.mark.parametrize(
    ("fail_on", "line", "code"),
    [("note", 5, 1), ("warning", 5, 1), ("error", 5, 1), ("error", 8, 0), ("warning", 8, 1), ("note", 4, 0)],
)
def test_it_fails_on_what_is_asked(kquota: Kquota, file: Path, fail_on: str, line: int, code: int) -> None:
    """Line 5: errors, line 8: a warning, line 4: nothing."""
    head = FILE.splitlines()[:3] if line == 5 else FILE.splitlines()[:2]
    entries = {
        5: ["quotas:", *FILE.splitlines()[4:6]],
        8: ["quotas:", "  - entity: {user: x}", "    values: {consumer_byte_rate: 1000}"],
        4: ["quotas: []"],
    }
    file.write_text("\n".join([*head, *entries[line], ""]))
    assert kquota("lint", file.name, "--fail-on", fail_on).code == code
    told = kquota("lint", file.name, "--fail-on", fail_on, "-o", "json").err
    assert told == (f"exit code 1, as --fail-on {fail_on} asks\n" if code else "")


def test_a_cluster_is_linted_and_sarif_has_no_place(kquota: Kquota, chroot: str) -> None:
    for arguments in (
        "--client app --add-config producer_byte_rate=1MB",
        "--user-defaults --add-config producer_byte_rate=2kB",
    ):
        assert kquota("alter", *arguments.split(), KQUOTA_ZOOKEEPER=chroot).code == 0
    done = kquota("lint", "-o", "sarif", KQUOTA_ZOOKEEPER=chroot)
    (run,) = json.loads(done.out)["runs"]
    assert [result["ruleId"] for result in run["results"]] == ["unreachable"]
    assert "locations" not in run["results"][0]
    assert {rule["id"] for rule in run["tool"]["driver"]["rules"]} >= {"unreachable", "shadowed"}
    done = kquota("lint", KQUOTA_ZOOKEEPER=chroot)
    assert done.out.splitlines()[0].startswith("warning: producer_byte_rate of client-id=app: governs no client")
    assert done.err == "1 warning\n"


def test_findings_of_a_kind_come_by_their_lines(kquota: Kquota, file: Path) -> None:
    names = ("User:zoe", "User:bob", "User:eve")
    entries = (f"  - {{entity: {{user: '{name}'}}, values: {{consumer_byte_rate: 10MB}}}}" for name in names)
    file.write_text("\n".join(["kind: kquota.quotas", "version: 1", "quotas:", *entries]))
    heads = [line for line in kquota("lint", file.name).out.splitlines() if line.startswith("quotas.yaml:")]
    assert [line.split(":")[1] for line in heads] == ["4", "5", "6"]
    annotations = kquota("lint", file.name, "-o", "github").out.splitlines()
    assert [re.sub(r".*line=(\d+),.*", r"\1", line) for line in annotations] == ["4", "5", "6"]


def test_a_blank_at_the_end_of_a_name_is_seen(kquota: Kquota, file: Path) -> None:
    file.write_text(quotas(**{"bob ": 5_000_000}))
    assert ' warning: user="bob ": the user looks like a slip' in kquota("lint", file.name).out
    assert '::user="bob ": the user looks like a slip' in kquota("lint", file.name, "-o", "github").out
