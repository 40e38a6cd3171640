"""Quotas as a table of a spreadsheet."""

import csv as standard
import io
import re
from pathlib import Path

import pytest
from hypothesis import given

from kquota import DEFAULT, Entity, InputError, QuotaKey, QuotaSnapshot
from kquota.documents.foreign import csv
from kquota.documents.quotas import writable
from tests.cli.conftest import Kquota
from tests.documents.snapshots import snapshots
from tests.support.data import wrong_documents

PRODUCER, REQUEST = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE


def read(name: str, text: str) -> QuotaSnapshot:
    return QuotaSnapshot(csv.read(name, text)[0])


@given(snapshots())
def test_a_table_reads_back(snapshot: QuotaSnapshot) -> None:
    said, _ = writable(snapshot)
    for dialect in (
        {},
        {"delimiter": ";", "quoting": standard.QUOTE_ALL, "lineterminator": "\r\n"},
        {"delimiter": "\t"},
    ):
        out = io.StringIO()
        standard.writer(out, **dialect).writerows([csv.HEADINGS, *csv.rows(said)])
        text = out.getvalue()
        if "\r" not in text.replace("\r\n", ""):  # the reader of files makes one kind of line ends
            assert read("t", "\ufeff" + text) == said


def test_as_spreadsheets_save_it() -> None:
    german = "sep=;\r\nuser;key;value;unit;;\r\n"
    german += "<default>;producer_byte_rate;1,5;MB/s;;\r\n;;;;;\r\n007;request_percentage;12,5;;;\r\n"
    assert read("t", german) == QuotaSnapshot(
        {Entity(user=DEFAULT): {PRODUCER: 1_500_000}, Entity("007"): {REQUEST: 12.5}}
    )
    thousands = read("t", "user;key;value;unit\na;producer_byte_rate;1.024,5;MB/s\n")
    assert thousands == QuotaSnapshot({Entity("a"): {PRODUCER: 1_024_500_000}})
    tabs = 'Key\tValue\tUser\tClient-Id\nproducer_byte_rate\t"1024"\ta\t\\<default>\n'
    assert read("t", tabs) == QuotaSnapshot({Entity("a", "<default>"): {PRODUCER: 1024}})


@pytest.mark.parametrize(
    ("name", "as_formula", "kept"),
    [
        # LibreOffice 7.4 made 7, 100000 and 2 of some of them, and gives them back so.
        *((name, True, True) for name in ("007", "1e5", "1.50", "1/2", "2026-01-02", "+49", "=1+1", "@a", '-"')),
        ("1234567890123456", True, True),
        *((name, True, False) for name in ("1.23457E+11", "#REF!")),  # a spreadsheet has lost the name already
        *((name, False, True) for name in ("alice", "42", "0", "3scale-app", "10.0.0.1", "a=b", "TRUE")),
    ],
)
def test_a_name_that_a_spreadsheet_would_change_is_a_formula_of_its_text(
    name: str, as_formula: bool, kept: bool
) -> None:
    ((cell, *_),) = csv.rows(QuotaSnapshot({Entity(name): {PRODUCER: 1024}}))
    assert cell == ('="' + name.replace('"', '""') + '"' if as_formula else name)
    for saved in (cell, *((name,) if kept else ())):
        assert csv._name(saved) == name


@pytest.mark.parametrize(("table", "said"), wrong_documents("cli/wrong_tables.csv"))
def test_a_mistake_is_named_with_line_and_column(table: str, said: str) -> None:
    with pytest.raises(InputError) as raised:
        csv.read("t", f"{table}\n", {"Tenant": ""} if table.startswith("tenant") else {})
    assert raised.value.message.startswith(f"t, line {said}")


def test_a_mistake_of_many_rows_is_named_once_with_their_lines() -> None:
    """A department writes `10 mb/s` in a hundred rows, and rows of totals among them."""
    rows = "".join(f"team{n};{n} mb/s\n" for n in range(1, 30)) + ";n/a\nteam9;-\n;\n;7 MB\n"
    with pytest.raises(InputError) as refused:
        read("t", "As agreed;\n\nuser;producer_byte_rate\n" + rows + "a;10 MB / s\n")
    assert str(refused.value).endswith("unknown unit 'mb/s' in '1 mb/s'; also in line 5, 6, 7 and 25 more")
    assert [re.split(r"column \d(?: \(user\))?: ", other)[1] for other in refused.value.others] == [
        "a row that names no client; also in line 36 (fill it in, or delete a row of totals)",
        "producer_byte_rate: '-' is not a number (a positive number of bytes/s; an empty cell sets no value)",
    ]
    for cell in ("", "n/a"):
        with pytest.raises(InputError) as refused:
            read("t", f"user,key,value\na,producer_byte_rate,{cell}\n")
        assert refused.value.hint == "a positive number of bytes/s", "an empty cell is no value there"


@pytest.mark.parametrize("title", ["", "Quotas", "Quotas;;", "Quotas, as agreed", "\n\nQuotas\tof, 2026\n"])
def test_a_title_does_not_say_what_separates_columns(title: str) -> None:
    quotas = read("t", f"{title}\nuser;producer_byte_rate (kB/s)\nalice;1,5\n")
    assert quotas == QuotaSnapshot({Entity(user="alice"): {PRODUCER: 1500}})


def test_each_wrong_cell_of_a_row_is_named_as_it_stands_in_the_file() -> None:
    """A share may have three decimals, and bytes per second have none."""
    rows = "a;1,5 MBit;2,500;3,500\nb;2,500 MB;0,5;1\n"
    with pytest.raises(InputError) as refused:
        read("t", f"user;producer_byte_rate;consumer_byte_rate;request_percentage\n{rows}")
    key = "column 3: consumer_byte_rate: "
    messages = (refused.value.message, *refused.value.others)
    assert [each.partition(" (a unit makes")[0] for each in messages] == [
        "t, line 2, column 2: producer_byte_rate: unknown unit 'MBit' in '1,5 MBit'",
        f"t, line 2, {key}in 2,500 a comma may stand before thousands or decimals (write 2500)",
        f"t, line 3, {key}0,5 must be a whole number of bytes/s",
    ]


@pytest.mark.parametrize(
    ("table", "hint"),
    [
        ("Tenant;Producer MB/s\na;5", "user, client-id, ip name a client"),  # it may be the column of names
        ("user;producer_byte_rat;consumer_byte_rate\na;5MB;5MB", "did you mean producer_byte_rate? Else plan, apply, "),
    ],
)
def test_a_column_that_may_be_meant_is_not_to_be_left_out(table: str, hint: str) -> None:
    with pytest.raises(InputError) as raised:
        read("t", f"{table}\n")
    assert (raised.value.hint or "").startswith(hint)
    assert ("--ignore-column" in (raised.value.hint or "")) == ("Else" in hint)


def test_a_heading_may_have_the_unit_of_its_numbers() -> None:
    rates = read("t", "user,Producer byte rate (MB/s),request_percentage [%]\na,1.5,20\nb,500kB,\n")
    assert rates == QuotaSnapshot({Entity("a"): {PRODUCER: 1_500_000, REQUEST: 20.0}, Entity("b"): {PRODUCER: 500_000}})
    for produce in ("produce rate MB/s", "Produce (MB/s)", "Producer MB/s"):
        words = read("t", f"user,{produce},Request percentage %\na,1.5,20\n")
        assert words == QuotaSnapshot({Entity("a"): {PRODUCER: 1_500_000, REQUEST: 20.0}})


def test_blanks_of_a_spreadsheets_format_are_read() -> None:
    """French and ISO set thousands apart by them, and before a unit they may not break."""
    table = "user;producer_byte_rate;Consumer MB/s\na;5\xa0MB/s;2\u202f500,5\nb;2 500;\n"
    rates = {
        Entity("a"): {PRODUCER: 5_000_000, QuotaKey.CONSUMER_BYTE_RATE: 2_500_500_000},
        Entity("b"): {PRODUCER: 2500},
    }
    assert read("t", table) == QuotaSnapshot(rates)
    with pytest.raises(InputError, match="unknown unit '5000'"):
        read("t", "user;producer_byte_rate\na;2 5000\n")


def test_a_file_with_overlays_says_that_none_is_used(kquota: Kquota, tmp_path: Path) -> None:
    head = "kind: kquota.quotas\nversion: 1\nclusters: {prod: {}, dev: {}}\nquotas: []\n"
    (tmp_path / "q.yaml").write_text(head)
    without = "q.yaml: no overlay of its clusters is used: --cluster NAME chooses one of dev, prod"
    assert without in kquota("plan", "q.yaml", "--quotas", "q.yaml").err
    assert without not in kquota("plan", "q.yaml", "--quotas", "q.yaml", "--cluster", "dev").err


@pytest.mark.parametrize("name", ["Grand Total", "Summe", "Gesamtsumme"])
def test_a_row_of_totals_is_refused(kquota: Kquota, tmp_path: Path, name: str) -> None:
    (tmp_path / "t.csv").write_text(f"user;Producer MB/s\na;5\nb;2,5\n{name};7,5\n")
    (tmp_path / "none.yaml").write_text("kind: kquota.quotas\nversion: 1\nquotas: []\n")
    planned = kquota("plan", "t.csv", "--quotas", "none.yaml").err
    assert f"apply will refuse this: user={name}: the name '{name}' looks like a row of totals" in planned


def test_other_columns_are_left_out_by_name(kquota: Kquota, tmp_path: Path) -> None:
    """A table of another department: plan names the option, and so does what reads it."""
    (tmp_path / "t.csv").write_text("Department,user,client-id,produce rate MB/s,Notes,\nx,a,,5,y,\n,b,etl,2,,\n")
    assert "--ignore-column 'Department'" in kquota("lint", "t.csv").complaint
    others = ("--ignore-column", "Department", "--ignore-column", "Notes")
    assert kquota("lint", "t.csv", *others).complaint == "nothing found"
    assert kquota("import", "t.csv", "--ignore-column", "notes", *others[:2]).out.count("producer_byte_rate") == 2
    unknown = kquota("lint", "t.csv", *others, "--ignore-column", "Owner").complaint
    assert (
        "line 1: there is no column 'Owner' to ignore; the headings are user, client-id, produce rate MB/s" in unknown
    )
    (tmp_path / "twice.csv").write_text("user,User,producer_byte_rate\na,x,5MB\n")
    assert "by --ignore-column 'User'" in kquota("lint", "twice.csv").complaint
    assert "{user: a}\n" in kquota("import", "twice.csv", "--ignore-column", "User").out
    (tmp_path / "none.yaml").write_text("kind: kquota.quotas\nversion: 1\nquotas: []\n")
    assert "b" in kquota("plan", "t.csv", *others, "--quotas", "none.yaml").out
    assert kquota("import", "none.yaml").complaint.startswith("kquota: none.yaml: whose format is it? (--from kafka-")


def test_all_other_columns_are_named_at_once_and_hide_no_wrong_cell(kquota: Kquota, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("Team,user,producer_byte_rate,consumer_byte_rat,Notes\nx,a,viel,1MB,y\n")
    refused = kquota("lint", "t.csv").err
    assert "t.csv, line 2, column 3: producer_byte_rate: 'viel' is not a number" in refused
    assert "NAME=HEADING, and leave others out by --ignore-column 'Team' --ignore-column 'Notes')" in refused


def test_what_describe_writes_is_planned_linted_and_imported(kquota: Kquota, tmp_path: Path) -> None:
    text = "kind: kquota.quotas\nversion: 1\nquotas:\n- entity: {user: a}\n  values: {producer_byte_rate: 10MB}\n"
    (tmp_path / "q.yaml").write_text(
        text + "- entity: {client-id: {default: true}}\n  values: {request_percentage: 12.5}\n"
    )
    table = kquota("describe", "--quotas", "q.yaml", "-o", "csv").out
    assert table.splitlines()[:2] == ["user,client-id,ip,key,value,unit", "a,,,producer_byte_rate,10000000,bytes/s"]
    (tmp_path / "t.csv").write_text(table)
    assert kquota("plan", "--quotas", "q.yaml", "--prune", "--exit-code", "t.csv").code == 0
    assert kquota("lint", "t.csv", "--fail-on", "error").code == 0
    imported = kquota("import", "--from", "csv", "t.csv", "--out", "i.yaml")
    assert imported.code == 0
    assert kquota("plan", "--quotas", "q.yaml", "--prune", "--exit-code", "i.yaml").code == 0
    (tmp_path / "t.xlsx").write_bytes(b"PK\x03\x04\x14\x00\xff")
    refused = kquota("plan", "--quotas", "q.yaml", "t.xlsx")
    assert (refused.code, refused.err) == (
        3,
        "kquota: t.xlsx: a spreadsheet's own file, or an archive (save a spreadsheet as CSV, in UTF-8)\n",
    )
    (tmp_path / "t.csv").write_text(table.replace("12.5", "0.0001"))
    assert kquota("plan", "--quotas", "q.yaml", "--exit-code", "t.csv").code == 1
    assert "t.csv:3: " in kquota("lint", "t.csv").out


def test_a_row_for_each_tenant_is_planned_and_linted(kquota: Kquota, tmp_path: Path) -> None:
    head = "User;Client ID;producer_byte_rate;Consumer byte rate;request_percentage"
    table = f"\ufeffsep=;\n{head}\na;;10MB;20 MB/s;12,5\nb;app;;1kB;\nc;;;;\n"
    (tmp_path / "t.csv").write_text(table)
    (tmp_path / "q.yaml").write_text("kind: kquota.quotas\nversion: 1\nquotas: []\n")
    assert read("t", table) == QuotaSnapshot(
        {
            Entity("a"): {PRODUCER: 10_000_000, QuotaKey.CONSUMER_BYTE_RATE: 20_000_000, REQUEST: 12.5},
            Entity("b", "app"): {QuotaKey.CONSUMER_BYTE_RATE: 1000},
        }
    )
    planned = kquota("plan", "--quotas", "q.yaml", "t.csv", "--exit-code")
    assert planned.code == 1
    told = kquota("plan", "--quotas", "q.yaml", "t.csv", "--exit-code", "-o", "json")
    assert (told.code, "exit code 1, as --exit-code asks" in told.err) == (1, True)
    assert "2 entities to create" in planned.out + planned.err
    assert kquota("import", "--from", "csv", "t.csv").code == 0
    for arguments in ("plan t.csv --prune --quotas q.yaml", "lint t.csv", "import t.csv", "import t.csv --from csv"):
        assert "t.csv: 1 row without a value sets no quota: line 5\n" in kquota(*arguments.split()).err
    (tmp_path / "t.csv").write_text(table + "d;;;;\ne;;;;\nf;;;;\ng;;;;\n")
    assert "t.csv: 5 rows without a value set no quota: lines 5, 6, 7 and 2 more\n" in kquota("lint", "t.csv").err
    (tmp_path / "t.csv").write_text(table.replace("1kB", "1 kb"))
    assert "t.csv, line 4, column 4: consumer_byte_rate" in kquota("lint", "t.csv").err


@pytest.mark.parametrize("text", ["Tenant;producer_byte_rate (MB/s)\na;10\n", "Tenant,Owner\na,b\n", ""])
def test_other_headings_are_named_beside_those_that_are_read(kquota: Kquota, tmp_path: Path, text: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    (tmp_path / "q.yaml").write_text("kind: kquota.quotas\nversion: 1\nquotas: []\n")
    refused = kquota("plan", "--quotas", "q.yaml", "t.csv")
    assert refused.code == 3
    assert "user, client-id, ip name a client" in refused.err
    assert ("name a client: call that column so, or by --column user=HEADING" in refused.err) == bool(text)
    assert ("=HEADING; --ignore-column HEADING leaves others out)\n" in refused.err) == ("Owner" in text)
    if text:
        assert "t.csv, line 1, column 1: 'Tenant' is not a column of quotas" in refused.err
        assert ("(also wrong: 'Owner'); the headings are Tenant, Owner" in refused.err) == ("Owner" in text)


def test_a_column_of_no_known_quota_is_no_column_to_leave_out(kquota: Kquota, tmp_path: Path) -> None:
    """Without it there is no quota left; and what was left out is no heading."""
    (tmp_path / "t.csv").write_text("user,Department,Produktionsrate MB/s\na,x,10\n")
    refused = kquota("lint", "t.csv", "--ignore-column", "Department").err
    assert "the headings are user, Produktionsrate MB/s" in refused
    assert "--ignore-column" not in refused


@pytest.mark.parametrize("fetch", ["Fetch MB/s", "fetch_rate (MB/s)", "Fetch (MB/s)", "fetch byte rate [MB/s]"])
def test_fetch_is_a_word_for_a_consumers_rate(fetch: str) -> None:
    rates = {Entity("a"): {PRODUCER: 5_000_000, QuotaKey.CONSUMER_BYTE_RATE: 2_000_000}}
    assert read("t", f"user;Produce MB/s;{fetch}\na;5;2\n") == QuotaSnapshot(rates)


def test_no_rate_is_left_out_by_a_hint(kquota: Kquota, tmp_path: Path) -> None:
    """It may be a quota of each row, which a plan without it would not mention."""
    (tmp_path / "t.csv").write_text("user;Produce MB/s;Lesen MB/s;Kommentar\na;5;2;x\n")
    refused = kquota("lint", "t.csv").err
    assert "column 3: 'Lesen MB/s' is not a column of quotas (also wrong: 'Kommentar'); the headings are" in refused
    assert "as in 'produce MB/s', 'fetch rate (kB/s)' or" in refused
    assert refused.endswith("by --column NAME=HEADING, and leave others out by --ignore-column 'Kommentar')\n")


def test_a_heading_of_another_word_is_named_on_the_command_line(kquota: Kquota, tmp_path: Path) -> None:
    """A table that is sent each month need not be edited each month."""
    (tmp_path / "t.csv").write_text("Tenant;Lesen (MB/s);Kommentar\na;2;x\n")
    meant = ("--column", "user=tenant", "--column", "fetch=Lesen (MB/s)", "--ignore-column", "Kommentar")
    for command in (["lint"], ["plan", "--quotas", "none.yaml"], ["import"]):
        (tmp_path / "none.yaml").write_text("kind: kquota.quotas\nversion: 1\nquotas: []\n")
        done = kquota(*command, "t.csv", *meant)
        assert (done.code, "not a column" in done.err) == (0, False)
    assert "- entity: {user: a}\n    values: {consumer_byte_rate: 2 MB/s}\n" in done.out
    absent = kquota("lint", "t.csv", *meant[2:], "--column", "user=Kunde").err
    assert "there is no column 'Kunde' that is user; the headings are Tenant, Lesen (MB/s)" in absent
    assert "'user' is not NAME=HEADING, such as user=Tenant\n" in kquota("lint", "t.csv", "--column", "user").err
    both = kquota("lint", "t.csv", *meant, "--ignore-column", "tenant")
    assert (both.code, "--ignore-column 'tenant' leaves out what --column user=tenant reads" in both.err) == (2, True)
    unknown = kquota("lint", "t.csv", *meant, "--column", "owner=Tenant").err
    assert "column 1: 'owner' is not a column of quotas" in unknown


def test_a_comma_in_a_table_with_commas_is_named(kquota: Kquota, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('user,producer_byte_rate\na,"1 001,5 MB/s"\n')
    refused = kquota("lint", "t.csv").err
    assert "line 2, column 2: producer_byte_rate: 1 001,5 MB/s has a comma" in refused


def test_two_decimal_marks_in_one_table_are_refused(kquota: Kquota, tmp_path: Path) -> None:
    """With semicolons, both were read; a negative number with a comma had an unknown unit."""
    table = tmp_path / "t.csv"
    table.write_text("user;producer_byte_rate\na;2.5 MB/s\nb;2,5 MB/s\nc.1,5;1,5 MB/s\n")
    assert (
        "t.csv: two marks stand before decimals: '.' in line 2, ',' in line 3 (use one" in kquota("lint", "t.csv").err
    )
    table.write_text("user;producer_byte_rate\na;-2,5 MB/s\n")
    assert "producer_byte_rate: -2,5 MB/s must be greater than 0" in kquota("lint", "t.csv").err
