"""Quotas over time: as a document, and out of the journal."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota import Entity, InputError, Plan, QuotaKey, QuotaSnapshot
from kquota.core.change.history import QuotaHistory
from kquota.core.change.plan import Outcome, plan
from kquota.documents.encoding import to_json
from kquota.documents.history import history_document, journal_history, read_history
from kquota.documents.journal import Entry, Journal
from kquota.documents.quotas import read_quotas
from tests.core.strategies import snapshots
from tests.support.data import data_text

ALICE, BOB = Entity(user="alice"), Entity(user="bob")
RATE = QuotaKey.PRODUCER_BYTE_RATE
NINE = 1_773_219_600_000
"""2026-03-11 09:00:00 UTC."""
FILE = data_text("documents/history.yaml")
LATER = "{kind: kquota.quotas, version: 1, quotas: [{entity: {user: bob}, values: {producer_byte_rate: 5}}]}"


def written(folder: Path, text: str) -> Path:
    (folder / "later.yaml").write_text(LATER)
    file = folder / "history.yaml"
    file.write_text(text)
    return file


def test_periods(tmp_path: Path) -> None:
    """Given in place and by a file beside it; times in ISO and in ms."""
    expected = QuotaHistory(
        (QuotaSnapshot({ALICE: {RATE: 10_000_000}}), QuotaSnapshot({BOB: {RATE: 5}}), QuotaSnapshot()),
        (NINE, NINE + 500),
    )
    assert read_history(written(tmp_path, FILE)) == expected


def test_a_quotas_file_holds_at_all_times(tmp_path: Path) -> None:
    written(tmp_path, FILE)
    assert read_history(tmp_path / "later.yaml") == QuotaHistory.of(QuotaSnapshot({BOB: {RATE: 5}}))


@pytest.mark.parametrize(
    "since",
    [
        "2026-03-11T10:00:00+01:00",
        "2026-03-11 09:00:00",
        "'2026-03-11T09:00:00.000Z'",
        "20260311T090000Z",
        "2026-03-11T09:00Z",
    ],
)
def test_forms_of_a_time(tmp_path: Path, since: str) -> None:
    """With and without a zone, quoted or not: YAML's own times are read as they are written."""
    assert read_history(written(tmp_path, FILE.replace("2026-03-11T09:00:00Z", since))).changes_ms[0] == NINE


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("2026-03-11T09:00:00Z", "tomorrow", "periods[1]: from: 'tomorrow' is not a time"),
        ("2026-03-11T09:00:00Z", "2027-01-01", "periods[2]: it begins before the one before it"),
        ("1773219600500", "1773219600", "periods[2]: from: not a time between 2001 and 2100"),
        ("1773219600500", "0001-01-01", "periods[2]: from: not a time between 2001 and 2100"),
        ("1773219600500", "1773219600000", "periods[2]: it begins before the one before it"),
        ("    quotas: []\n", "    quotas: []\n  - quotas: []\n", "periods[3]: from is missing"),
        ("  - quotas:\n", "  - from: 1\n    quotas:\n", "periods[0]: the first one has no from"),
        ("later.yaml", "none.yaml", "periods[1]: {folder}/none.yaml: no such file"),
        ("10MB", "-1", "periods[0]: quotas[0]: "),
        ("{user: alice}", "{usr: alice}", "history.yaml, line 5: periods[0].quotas[0].entity.usr: unknown key"),
        ("    quotas: []\n", "    quotas: []\n    file: x\n", "periods[2]"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, old: str, new: str, says: str) -> None:
    assert old in FILE
    with pytest.raises(InputError) as caught:
        read_history(written(tmp_path, FILE.replace(old, new)))
    assert says.format(folder=tmp_path) in caught.value.message
    assert caught.value.message.startswith(str(tmp_path / "history.yaml"))


def test_who_reads_no_history_names_who_does(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected kquota\.quotas, found kquota\.quota-history") as caught:
        read_quotas(written(tmp_path, FILE))
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("audit, recommend and follow read it; here give a quotas file")
    with pytest.raises(InputError) as caught:
        read_quotas(written(tmp_path, "kind: kquota.plan\nversion: 2\n"))
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("'kquota apply PLAN --dry-run' shows it; here give the quotas file")


@st.composite
def histories(draw: st.DrawFn) -> QuotaHistory:
    """Some snapshots, each another than the one before."""
    chosen = [draw(snapshots)]
    for snapshot in draw(st.lists(snapshots, max_size=4)):
        if snapshot != chosen[-1]:
            chosen.append(snapshot)
    times = draw(
        st.sets(st.integers(1_000_000_000_000, 4_000_000_000_000), min_size=len(chosen) - 1, max_size=len(chosen) - 1)
    )
    return QuotaHistory(tuple(chosen), tuple(sorted(times)))


@given(history=histories())
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, history: QuotaHistory) -> None:
    file = tmp_path_factory.mktemp("history") / "history.json"
    file.write_text(to_json(history_document(history)), encoding="utf-8")
    assert read_history(file) == history


def entry(time_ms: int, planned: Plan, outcome: Outcome | None = "applied", cluster: str = "kafka://a") -> Entry:
    finished = None if outcome is None else time_ms
    return Entry(f"id-{time_ms}", cluster, "apply", time_ms, planned, finished=finished, outcome=outcome)


@given(history=histories(), interrupted=st.booleans())
def test_the_journal_leads_back(history: QuotaHistory, interrupted: bool) -> None:
    """Whether the runs ended well, or were killed after all was done, or before anything was."""
    plans = [plan(before, after, prune=True) for before, after in pairwise(history.snapshots)]
    entries = [entry(time, planned) for time, planned in zip(history.changes_ms, plans, strict=True)]
    if interrupted and entries:
        entries[-1] = entry(history.changes_ms[-1], plans[-1], None)
    assert journal_history(entries, history.latest) == history
    nothing_done = [
        entry(history.changes_ms[-1] + 5, plan(history.latest, history.snapshots[0], prune=True), outcome)
        for outcome in (None, "rolled back", "incomplete")
        if history.changes_ms and history.latest != history.snapshots[0]
    ]
    assert journal_history([*entries, *nothing_done], history.latest) == history


def test_a_journal_of_a_folder(tmp_path: Path) -> None:
    """What apply writes is what is read."""
    before, after = QuotaSnapshot({ALICE: {RATE: 1}}), QuotaSnapshot({ALICE: {RATE: 2}, BOB: {RATE: 3}})
    journal = Journal(tmp_path)
    begun = journal.begin(Entry("", "kafka://a", "apply", NINE, plan(before, after)))
    journal.finish(begun, "applied", now=NINE + 40)
    assert journal_history(journal.read().entries, after) == QuotaHistory((before, after), (NINE,))


def test_what_does_not_join_up_is_refused() -> None:
    """Somebody else changed the entity since; nothing is guessed."""
    planned = plan(QuotaSnapshot({ALICE: {RATE: 1}}), QuotaSnapshot({ALICE: {RATE: 2}}))
    for outcome in ("applied", None):
        with pytest.raises(InputError, match=r"entry id-7 .* user=alice was changed by something else"):
            journal_history([entry(7, planned, outcome)], QuotaSnapshot({ALICE: {RATE: 9}}))


def test_what_an_entry_left_alone_did_not_happen() -> None:
    """Of an alter of several entities that made some of its changes."""
    planned = plan(QuotaSnapshot(), QuotaSnapshot({ALICE: {RATE: 2}, BOB: {RATE: 3}}))
    partly = replace(entry(7, planned, "incomplete"), untouched=(BOB,))
    after = QuotaSnapshot({ALICE: {RATE: 2}, BOB: {RATE: 9}})
    assert journal_history([partly], after).snapshots[0] == QuotaSnapshot({BOB: {RATE: 9}})
