"""Traffic that a quota held back while it was recorded: raising the quota promises nothing."""

import html
import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from kquota.documents.encoding import schema
from kquota.documents.plan import plan_document, plan_of
from tests.cli.conftest import Kquota, quotas

START_MS = 1_773_219_600_000
VALIDATOR = Draft202012Validator(schema("audit"))


@pytest.fixture(autouse=True)
def files(tmp_path: Path) -> None:
    """Half a minute of 10 kB/s of alice, held back by 8 kB/s, and of bob, who was not; with and without the answers."""
    for name, head in (("answered.csv", ",throttle_time_ms"), ("silent.csv", "")):
        lines = [f"time_ms,broker,user,client_id,api,bytes{head}"]
        for number in range(300):
            time = START_MS + 100 * number
            lines.append(f"{time},1,alice,app,produce,1000" + (f",{5 * (number > 200)}" if head else ""))
            lines.append(f"{time},1,bob,app,produce,1000" + (",0" if head else ""))
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    (tmp_path / "then.json").write_text(quotas(alice=8000, bob=20_000))
    (tmp_path / "raised.json").write_text(quotas(alice=20_000, bob=30_000))
    (tmp_path / "lower.json").write_text(quotas(alice=5000, bob=5000))
    (tmp_path / "none.json").write_text(quotas(carol=1))


def audited(kquota: Kquota, *arguments: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(kquota("audit", *arguments, "-o", "json").out)
    VALIDATOR.validate(document)
    return document


def verdicts(document: dict[str, Any]) -> dict[str, str]:
    return {finding["sensor"]: finding["verdict"] for finding in document["findings"]}


def test_raising_promises_nothing(kquota: Kquota) -> None:
    """Who was held back may want more; the least that it wants is named, and every quota ends in the same verdict."""
    document = audited(kquota, "answered.csv", "--quotas", "raised.json")

    assert verdicts(document) == {"alice:": "undetermined", "bob:": "not throttled"}
    (alice,) = (finding for finding in document["findings"] if finding["sensor"] == "alice:")
    assert "held back" in alice["reason"]
    assert alice["wanted_at_least"] == alice["peak_rate"] > 0
    assert alice["peak_rate_max"] is None
    assert (alice["throttled_events"], alice["throttle_time_ms"]) == (None, None)
    assert alice["recorded_under"] == {"source": "log", "limit": None, "held_back": True}
    assert document["recorded_under"] == {"source": "log", "quotas": None, "throttled": True}
    told = {quota["entity"]["user"]: (quota["verdict"], quota["counters"]) for quota in document["quotas"]}
    assert told["alice"] == ("undetermined", {"throttled": 0, "undetermined": 1, "not_throttled": 0})
    assert told["bob"][0] == "not throttled"


def test_lowering_is_certain(kquota: Kquota) -> None:
    """Whoever is throttled for what it got is throttled for what it wants."""
    document = audited(kquota, "answered.csv", "--quotas", "lower.json")

    assert verdicts(document) == {"alice:": "throttled", "bob:": "throttled"}


def test_the_brokers_answers_are_the_answer_of_quotas_in_force(kquota: Kquota) -> None:
    """The replay begins with empty windows, and so delayed fewer requests, and later, than the log beside it shows."""
    document = audited(kquota, "answered.csv", "--quotas", "then.json", "--in-force", "--report", "r.html")

    (alice,) = (finding for finding in document["findings"] if finding["sensor"] == "alice:")
    logged = alice["logged"]
    assert {name: alice[name] for name in logged} == logged
    assert logged["throttled_events"] == alice["clients"][0]["throttled_events"] == 99
    assert (alice["first_throttled_ms"], alice["last_throttled_ms"]) == (START_MS + 20_100, START_MS + 29_900)


def test_quotas_in_force_are_compared_with_others(kquota: Kquota) -> None:
    """The log says how often each client was throttled, and not for how long."""
    document = audited(kquota, "answered.csv", "--quotas", "then.json", "--in-force", "--against", "lower.json")

    assert verdicts(document)["alice:"] == "throttled"
    assert document["comparison"]["summary"]["no_longer_throttled"] == 1  # bob


@pytest.mark.parametrize("begin", [-60_000, -200_000, 2_000])
def test_a_change_of_live_quotas_is_said(kquota: Kquota, chroot: str, tmp_path: Path, begin: int) -> None:
    """The quotas of now were not in force before it, while the log was recorded or later."""
    where = ("--zookeeper", chroot)
    assert kquota("alter", *where, "--user", "alice", "--add-config", "producer_byte_rate=8000").code == 0
    first = time.time_ns() // 1_000_000 + begin
    lines = [f"{first + 200 * number},1,alice,app,produce,1000,0" for number in range(500)]
    (tmp_path / "now.csv").write_text("time_ms,broker,user,client_id,api,bytes,throttle_time_ms\n" + "\n".join(lines))

    done = kquota("audit", "now.csv", *where, "--in-force")

    assert done.code == 0
    assert ("quotas changed during or since the recording (" in done.err) == (begin < 0)
    assert ("--quotas-journal " in done.err) == (begin < 0)


def test_a_recording_that_goes_on_is_no_change_of_quotas(kquota: Kquota, chroot: str, tmp_path: Path) -> None:
    """Who looks at a log while it is recorded has an entry of `kquota record` in the journal."""
    where = ("--zookeeper", chroot)
    assert kquota("alter", *where, "--user", "alice", "--add-config", "producer_byte_rate=8000").code == 0
    (file,) = (tmp_path / ".state" / "kquota" / "journal").glob("*.json")
    entry = json.loads(file.read_text())
    level = {"node": 1, "before": "WARN", "inherited": True, "after": "DEBUG", "logger": "kafka.request.logger"}
    plan = plan_document(replace(plan_of(entry["plan"]), changes=()))
    file.write_text(json.dumps(entry | {"command": "record", "outcome": None, "levels": [level], "plan": plan}))
    first = time.time_ns() // 1_000_000 - 60_000
    (tmp_path / "now.csv").write_text(
        f"time_ms,broker,user,client_id,api,bytes,throttle_time_ms\n{first},1,alice,app,produce,1000,0\n"
    )
    done = kquota("audit", "now.csv", *where, "--in-force")
    assert (done.code, "quotas changed" in done.err, "no entry of" in done.err) == (0, False, False)


def test_a_journal_that_does_not_answer_is_said(kquota: Kquota, chroot: str, tmp_path: Path) -> None:
    where = ("--zookeeper", chroot)
    alter = ("alter", *where, "--user", "alice", "--add-config", "producer_byte_rate=8000")
    assert kquota(*alter).code == 0

    done = kquota("audit", "answered.csv", *where, "--in-force", KQUOTA_JOURNAL=str(tmp_path / ("long" * 100)))

    assert done.code == 0
    assert "whether quotas changed since this was recorded is not known: " in done.err


def test_a_log_can_deny_that_quotas_were_in_force(kquota: Kquota) -> None:
    """A quota that was set after the recording began was said to have delayed nearly all of it."""
    lower = kquota("audit", "answered.csv", "--quotas", "lower.json", "--in-force")

    assert "user alice producer_byte_rate: these quotas delay 250 requests and the log shows 99" in lower.err


@pytest.mark.parametrize("against", [(), ("--against", "then.json")])
def test_every_warning_stands_in_every_document(
    kquota: Kquota, chroot: str, tmp_path: Path, against: tuple[str, ...]
) -> None:
    """Markdown and the page of quotas that had changed, or that the log denies, said nothing of it."""
    where = ("--zookeeper", chroot)
    for user, limit in (("alice", "5000"), ("bob", "5000")):
        assert kquota("alter", *where, "--user", user, "--add-config", f"producer_byte_rate={limit}").code == 0
    (tmp_path / "torn.csv").write_text((tmp_path / "answered.csv").read_text() + "never,1,bob,app,produce,1000,0\n")

    asked = ("audit", "torn.csv", "short.csv", *where, "--in-force", *against, "--report", "r.html")
    (tmp_path / "short.csv").write_text("time_ms,broker\n1,1\n")
    document, text = kquota(*asked, "-o", "json"), kquota(*asked, "-o", "markdown")

    said = [line.removeprefix("kquota: warning: ") for line in text.err.splitlines() if "kquota: warning: " in line]
    for begin in ("quotas changed during or since", "user alice producer_byte_rate: these", "2 records", "not read to"):
        assert [line for line in said if line.startswith(begin)], said
    assert json.loads(document.out)["warnings"] == said
    assert VALIDATOR.is_valid(json.loads(document.out))
    page, lines = html.unescape((tmp_path / "r.html").read_text()), text.out.replace("\\", "")
    for warning in said:
        assert f"<li>{warning}</li>" in page
        assert f"\nWarning: {warning}.\n" in f"{lines}\n"


@pytest.mark.parametrize("command", ["audit", "plan"])
@pytest.mark.parametrize("output", ["table", "markdown", "json"])
def test_nobody_is_called_no_longer_throttled(kquota: Kquota, command: str, output: str) -> None:
    """Not in a table, not in a comment on a pull request, and --fail-on undetermined keeps its promise."""
    if command == "audit":
        arguments = ["answered.csv", "--quotas", "raised.json", "--against", "then.json"]
    else:
        arguments = ["raised.json", "--quotas", "then.json", "--usage", "answered.csv"]

    done = kquota(command, *arguments, "--fail-on", "undetermined", "-o", output)

    assert done.code == 1
    if output == "json":
        summary = json.loads(done.out)["comparison"]["summary"]
        assert (summary["no_longer_throttled"], summary["undetermined"]) == (0, 1)
    else:
        assert "no longer throttled" not in done.out + done.err
        assert "wanted at least" in done.out


def test_whether_it_was_throttled_before_may_be_unknown(kquota: Kquota) -> None:
    """Not in a table, a sentence or a comment is such a client newly throttled; --fail-on keeps its promise."""
    arguments = ["lower.json", "--quotas", "raised.json", "--usage", "answered.csv", "--fail-on", "newly-throttled"]
    table, markdown = (kquota("plan", *arguments, "-o", output) for output in ("table", "markdown"))

    assert (table.code, markdown.code) == (1, 1)
    assert re.search("^throttled \\(unknown before\\) +alice ", table.out, re.MULTILINE)
    assert "1 client throttled (unknown before), 1 client newly throttled; " in table.err
    assert "| throttled (unknown before) | `alice` |" in markdown.out


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [
        ([], "not throttled"),
        (["none"], "not throttled"),
        (["then.json"], "undetermined"),
    ],
)
def test_what_was_in_force_can_be_said(kquota: Kquota, recorded: list[str], expected: str) -> None:
    """Where the export has no throttle times, the replay of what was in force says who was held back."""
    document = audited(
        kquota, "silent.csv", "--quotas", "raised.json", *(["--recorded-under", *recorded] if recorded else [])
    )

    assert verdicts(document) == {"alice:": expected, "bob:": "not throttled"}
    assert document["recorded_under"]["source"] == {"none": "none", "then.json": "file"}.get(
        "".join(recorded), "unknown"
    )
    assert document["recorded_under"]["throttled"] is None


@pytest.mark.parametrize(
    ("recorded", "expected"), [("", "not throttled"), ("none", "not throttled"), ("then.json", "undetermined")]
)
def test_samples_may_be_of_who_was_held_back(kquota: Kquota, tmp_path: Path, recorded: str, expected: str) -> None:
    """A rate at the limit of then may have been throttled; whoever does not say what was in force is warned."""
    series = 'kafka_server_produce_byte_rate{user="alice",broker="1"} 8000'
    (tmp_path / "rates.txt").write_text("".join(f"{series} {START_MS + 5000 * number}\n" for number in range(20)))

    done = kquota(
        "audit",
        "rates.txt",
        "--quotas",
        "raised.json",
        "-o",
        "json",
        *(["--recorded-under", recorded] * bool(recorded)),
    )

    assert verdicts(json.loads(done.out)) == {"alice:": expected}
    assert ("1 counter without throttle times" in done.err) == (not recorded)


def test_what_was_sent_after_mutes_is_no_burst_of_the_client(kquota: Kquota, tmp_path: Path) -> None:
    """Without connections nobody can tell them apart, where the client stays below the limit on average."""
    rows = [f"{START_MS + 20_000 * burst},alice,produce,1000,20000" for burst in range(5) for _ in range(20)]
    (tmp_path / "bursts.csv").write_text("time_ms,user,api,bytes,throttle_time_ms\n" + "\n".join(rows) + "\n")
    for limit, expected in ((1000, "throttled"), (1500, "undetermined")):
        (tmp_path / "asked.json").write_text(quotas(alice=limit))
        assert verdicts(audited(kquota, "bursts.csv", "--quotas", "asked.json")) == {"alice:": expected}


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ({}, "undetermined"),
        ({"zed": 1}, "undetermined"),
        ({"zed": 1, "alice": 1}, "undetermined"),
        ({"zed": 1, "alice": 300}, "not throttled"),
    ],
    ids=["of nobody", "of somebody else", "of a few of its requests", "of all its requests"],
)
def test_throttle_times_speak_for_the_requests_that_have_them(
    kquota: Kquota, tmp_path: Path, answers: dict[str, int], expected: str
) -> None:
    """A throttle time of 0 says nothing of other clients, nor of requests without a throttle time."""
    (tmp_path / "zed.json").write_text(quotas(alice=20_000, zed=20_000))
    rows = [{"time_ms": START_MS + 100 * number, "user": "alice"} for number in range(300)]
    rows.append({"time_ms": START_MS, "user": "zed"})
    for user, count in answers.items():
        for row in [row for row in rows if row["user"] == user][:count]:
            row["throttle_time_ms"] = 0
    lines = [json.dumps({"client_id": "app", "api": "produce", "bytes": 1000} | row) for row in rows]
    (tmp_path / "mixed.jsonl").write_text("\n".join(lines) + "\n")

    document = audited(kquota, "mixed.jsonl", "--quotas", "zed.json", "--recorded-under", "then.json")

    assert verdicts(document) == {"alice:": expected, "zed:": "not throttled"}
    (alice,) = (finding for finding in document["findings"] if finding["sensor"] == "alice:")
    assert (alice["logged"] is None) == (expected == "undetermined")


def test_the_quotas_that_were_in_force_keep_their_verdicts(kquota: Kquota, tmp_path: Path) -> None:
    """There is no more traffic than there was, where nothing changes."""
    (tmp_path / "high.json").write_text(quotas(alice=20_000, bob=20_000))

    document = audited(kquota, "answered.csv", "--quotas", "high.json", "--recorded-under", "high.json")

    assert verdicts(document) == {"alice:": "not throttled", "bob:": "not throttled"}


def test_a_contradiction_is_said(kquota: Kquota) -> None:
    """The log knows better than whoever says that nothing was in force."""
    done = kquota("audit", "answered.csv", "--quotas", "raised.json", "--recorded-under", "none", "-o", "json")

    assert "the usage shows throttling" in done.err
    assert verdicts(json.loads(done.out))["alice:"] == "undetermined"


@pytest.mark.parametrize(("share", "expected"), [(1.0, "not throttled"), (0.5, "undetermined"), (2.0, "undetermined")])
def test_another_quota_that_still_holds_them_back(kquota: Kquota, tmp_path: Path, share: float, expected: str) -> None:
    """A client that is throttled as much as it was by its thread time sends no more bytes than it did.

    Where that quota throttles it more, what waits may come at once, and be more than the recording shows.
    """
    values = {"producer_byte_rate": 20_000, "request_percentage": 4}
    entries = [{"entity": {"user": "alice"}, "values": values}]
    (tmp_path / "both.json").write_text(json.dumps({"kind": "kquota.quotas", "version": 1, "quotas": entries}))
    lines = ["time_ms,broker,user,client_id,api,bytes,request_time_ns,throttle_time_ms"]
    lines += [f"{START_MS + 100 * number},1,alice,app,produce,1000,5000000," for number in range(300)]
    (tmp_path / "timed.csv").write_text("\n".join(lines) + "\n")
    free = audited(kquota, "timed.csv", "--quotas", "both.json")
    (time_ms,) = (row["throttle_time_ms"] for row in free["findings"] if "percent" in row["key"])
    answers = [0] * 299 + [round(share * time_ms)]
    rows = [f"{line}{answer}" for line, answer in zip(lines[1:], answers, strict=True)]
    (tmp_path / "timed.csv").write_text("\n".join([lines[0], *rows]) + "\n")

    document = audited(kquota, "timed.csv", "--quotas", "both.json")

    found = {finding["key"]: finding["verdict"] for finding in document["findings"]}
    assert found == {"request_percentage": "throttled", "producer_byte_rate": expected}


def test_a_neighbour_that_was_held_back(kquota: Kquota, tmp_path: Path) -> None:
    """A client that shares a counter with one that is throttled is not called free of it."""
    lines = ["time_ms,broker,user,client_id,api,bytes,throttle_time_ms"]
    for number in range(300):
        time = START_MS + 100 * number
        lines.append(f"{time},1,alice,app0,produce,100,{9 * (number < 20)}")
        lines.append(f"{time},1,alice,app1,produce,{1000 if number < 200 else 20000},0")
    (tmp_path / "shared.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "low.json").write_text(quotas(alice=5000))
    (tmp_path / "high.json").write_text(quotas(alice=20_000))

    done = kquota("audit", "shared.csv", "--quotas", "high.json", "--against", "low.json", "-o", "json")

    outcomes = {change["client-id"]: change["outcome"] for change in json.loads(done.out)["comparison"]["clients"]}
    assert "no longer throttled" not in outcomes.values()


def test_the_log_says_when_a_limit_throttled_that_no_replay_can_judge(kquota: Kquota) -> None:
    """Of thread time a log holds a part. Where the quota was in force, its answers say how often and when."""
    log = Path(__file__).parents[1] / "data" / "request_log"
    quotas = str(log / "quotas.json")

    def found(*more: str) -> tuple[Any, Any]:
        done = kquota("audit", str(log / "kafka-request.log.gz"), "--quotas", quotas, "-o", "json", *more)
        document = json.loads(done.out)
        (frank,) = (each for each in document["findings"] if each["sensor"] == "frank:")
        return frank, done.err

    open_, _ = found()
    judged, _ = found("--recorded-under", quotas)
    table = kquota("audit", str(log / "kafka-request.log.gz"), "--quotas", quotas).err

    assert (open_["verdict"], open_["throttled_events"], open_["first_throttled_ms"]) == ("undetermined", None, None)
    assert judged["verdict"] == "throttled"
    assert judged["throttled_events"] == open_["logged"]["throttled_events"] == 265
    assert judged["first_throttled_ms"] < judged["last_throttled_ms"]
    assert "the log itself shows throttled requests of user bob with client-id fraud-reader consumer_byte_rate" in table
    assert "as these quotas would, and of user frank request_percentage; where they were in force, add" in table
