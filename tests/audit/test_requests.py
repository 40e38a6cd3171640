"""A log holds each request once, or says which it has again and how many it lacks; and it is one broker's."""

import gzip
import json
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from zlib import crc32
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kquota import Entity, InputError, QuotaKey, QuotaSnapshot
from kquota.audit import run
from kquota.audit.engines import local
from kquota.audit.engines.portable import decode, encode
from kquota.audit.result import AuditResult
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import ReadSettings, plan_splits, request_log
from kquota.audit.sources.lost import ANY, notes
from kquota.audit.sources.requests import Requests, check, identity, missing
from kquota.cli.auditing import doubts_of
from kquota.core.change.history import QuotaHistory
from kquota.core.findings.prediction import Prediction
from kquota.core.findings.verdicts import Verdict
from tests.audit.mangled import check as check_mangled
from tests.audit.recorded import DATA
from tests.audit.request_lines import STAMP, compact, fields
from tests.support.data import data_rows
from tests.support.scheduling import examples

JAVA = {"softwareName": "apache-kafka-java", "softwareVersion": "3.9.0"}
LIMITS = {"slow": 100, "fast": 1_000_000, "absent": 1_000}
QUOTAS = QuotaHistory.of(
    QuotaSnapshot({Entity(user=user): {QuotaKey.PRODUCER_BYTE_RATE: limit} for user, limit in LIMITS.items()})
)


def log_line(number: int, user: str = "fast", *, host: str = "10.0.0.1", client: int = 50000, **changes: Any) -> str:
    """A request of a Java client, two of them a second."""
    made = fields(
        connection=f"{host}:9092-10.0.0.2:{client}-0-3", principal=f"User:{user}", clientInformation=JAVA, **changes
    )
    made["requestHeader"]["correlationId"] = number
    stamp = STAMP.replace("20:30,456", f"{20 + number // 120:02}:{number // 2 % 60:02},{number % 2 * 500:03}")
    return f"[{stamp}] DEBUG Completed request:{compact(made)} (kafka.request.logger)"


def whole_log(**changes: Any) -> list[str]:
    """A minute of two users."""
    users = {"slow": 50001, "fast": 50002}
    return [log_line(n, user, client=client, **changes) for n in range(120) for user, client in users.items()]


def audit(folder: Path, broker: str | None = None, **read: Any) -> AuditResult:
    settings = AuditSettings(QUOTAS, read=ReadSettings(broker, **read))
    return local.audit(plan_splits([str(folder)], "auto"), settings, "logs")


def refused(folder: Path, says: str) -> None:
    with pytest.raises(InputError, match=says):
        audit(folder)


def written(folder: Path, lines: Sequence[str], name: str = "kafka-request.log") -> Path:
    data = "".join(f"{line}\n" for line in lines).encode()
    (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return folder


def verdicts(result: AuditResult) -> dict[str, Verdict]:
    return {str(quota.entity.user): quota.verdict for quota in result.quotas}


def predicted(result: AuditResult, user: str) -> Prediction:
    return next(found for (_, _, sensor), found in result.predictions.items() if sensor == f"{user}:")


WHOLE = {"slow": Verdict.THROTTLED, "fast": Verdict.NOT_THROTTLED, "absent": Verdict.NOBODY_SEEN}


@settings(max_examples=examples(25), deadline=None)
@example(1073741824)  # epoch milliseconds behind the time of a container's runtime
@example(4000000154)  # and behind an apostrophe
@example(10492333)  # a piece of a line holds a whole request
@example(20679639)  # a prefix before fields of CSV names the broker
@example(13282619)  # and hides that the first of them is quoted
@example(21937)  # an envelope is cut off behind its request
@example(700783)  # times that viewers put before the name of a pod
@example(700860)
@example(4300010192)  # colours that were quoted
@example(4300000091)  # letters that were escaped twice
@example(4300020410)  # tabs that were escaped
@example(4300030261)  # and other backslashes
@example(1119780689)  # a date that never changes before epoch milliseconds
@given(st.integers(0, 1 << 33))
def test_whatever_was_made_of_a_log_no_verdict_is_wrong(seed: int) -> None:
    """The findings are those of the bare log, or it is said what makes them other ones."""
    with TemporaryDirectory() as folder:
        check_mangled(seed, Path(folder))


def test_masked_brokers_are_not_known_by_the_ports_of_clients(tmp_path: Path) -> None:
    """Clients on two hosts may have the same port."""
    clients = {"slow": "10.0.0.2", "fast": "10.0.0.3"}
    lines = [log_line(n, user) for n in range(120) for user in clients]
    masked = [
        text.replace("10.0.0.1:9092-10.0.0.2:", f"INTERNAL_IP-{host}:")
        for text, host in zip(lines, [*clients.values()] * 120, strict=True)
    ]
    assert verdicts(audit(written(tmp_path, masked))) == WHOLE


def masked_lines(
    brokers: int, numbers: Callable[[int, int], int] = lambda n, broker: n, count: int = 60
) -> list[tuple[int, str]]:
    """(broker, line) of clients that have a connection to each broker; `numbers` of a line and a broker."""
    return [
        (broker, log_line(n, user, client=client + broker)
            .replace("10.0.0.1:9092-", "INTERNAL_IP-")
            .replace(f'"correlationId":{n},', f'"correlationId":{numbers(n, broker)},'))
        for n in range(count)
        for broker in range(brokers)
        for user, client in (("slow", 50000), ("fast", 51000))
    ]  # fmt: skip


MASKED: dict[str, Callable[[str, int], str]] = {
    "heading": lambda text, broker: f"==> broker-{broker}/kafka-request.log <==\n{text}",
    "number": lambda text, broker: f"{broker} | {text}",
    "address": lambda text, broker: f"<15>1 2026-05-04T10:20:30Z 10.3.3.{broker} kafka 17 - - {text}",
    "behind": lambda text, broker: f"{text} [broker={broker}]",
    "file": lambda text, broker: json.dumps({"log": {"path": f"/pods/kafka-{broker}/0.log"}, "message": text}),
    "label": lambda text, broker: json.dumps({"tags": ["env:prod", f"pod:kafka-{broker}"], "message": text}),
    "printed": lambda text, broker: json.dumps(
        {"logStreamName": f"b-{broker}", "type": "k8s", "message": text}, indent=4
    ),
    "printed behind": lambda text, broker: json.dumps({"MESSAGE": text, "host": {"name": f"b-{broker}"}}, indent=4),
    "yaml": lambda text, broker: (
        f"---\nresource:\n  labels:\n    pod_name: b-{broker}\nseverity: INFO\ntextPayload: '{text}'"
    ),
    "export": lambda text, broker: f"_HOSTNAME=b-{broker}\nPRIORITY=6\nMESSAGE={text}\n_TRANSPORT=stdout\n",
    "resource": lambda text, broker: json.dumps(
        {"resource": {"attributes": [{"key": "pod", "value": {"stringValue": f"kafka-{broker}"}}]}, "body": text}
    ),
    "unescaped": lambda text, broker: f'{{"ts":"{text[1:24]}","message":"{text[31:]}","pod":"kafka-{broker}"}}',
    "parsed": lambda text, broker: json.dumps(
        {"time": text[1:24], "node": broker, **json.loads(text[text.index("{") : text.rindex(" (")])}
    ),
}
"""What shows brokers whose addresses are masked; none of it was known by its name."""


@pytest.mark.parametrize("how", MASKED)
def test_masked_brokers_are_told_apart_by_whatever_differs(tmp_path: Path, how: str) -> None:
    """Their rates added up in silence, three times as much as any broker saw."""
    written(tmp_path, [MASKED[how](text, broker) for broker, text in masked_lines(3)])
    refused(tmp_path, "lines of several brokers: they are from")


def test_masked_brokers_that_take_turns_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the lines that the compiled reader reads, each twelfth was looked at: they were of one broker."""
    monkeypatch.setattr(request_log, "is_worth", lambda *_: True)
    written(tmp_path, [MASKED["address"](text, broker) for broker, text in masked_lines(2, count=96)])
    refused(tmp_path, "lines of several brokers: they are from")
    assert (audit(tmp_path, broker="1").quality.several_brokers or "").startswith("they are from"), "a word is no proof"


def test_masked_brokers_are_told_apart_by_the_numbers_that_a_client_shares_among_them(tmp_path: Path) -> None:
    """With nothing around lines; their rates added up in silence."""
    written(tmp_path, [text for _, text in masked_lines(3, lambda n, broker: 3 * n + broker)])
    refused(tmp_path, "lines of several brokers: connections of one client share")


def test_masked_brokers_are_told_apart_by_the_files_of_one_folder(tmp_path: Path) -> None:
    """A client has connections in several files at a time, and no connection is in two."""
    lines = masked_lines(3)
    for broker in range(3):
        written(tmp_path, [text for each, text in lines if each == broker], f"kafka-{broker}.log")
    refused(tmp_path, "lines of several brokers: they are from")


def test_masked_brokers_are_told_apart_by_the_names_of_their_parts(tmp_path: Path) -> None:
    """As MSK writes a file of each broker into one folder, each few minutes: rates of brokers added up in silence."""
    lines = masked_lines(3)
    for broker in range(3):
        own = [text for each, text in lines if each == broker]
        for part in range(4):
            written(
                tmp_path, own[30 * part : 30 * (part + 1)], f"Broker-{broker}_10-{20 + part}_ab{part}{broker}.log.gz"
            )
    refused(tmp_path, "lines of several brokers: word 2 of the file's name is 0, 1, 2")


def test_parts_of_one_masked_broker_are_not_told_apart_by_their_minutes(tmp_path: Path) -> None:
    """Where clients connect anew, no connection is in two parts, and each minute of an hour comes again in the next."""
    parts: dict[str, list[str]] = defaultdict(list)
    for n in range(120):
        hour, quarter = divmod(n // 15, 4)
        name = f"Broker-1_{10 + hour}-{15 * quarter or '00'}_x.log"
        for user, client in (("slow", 50000), ("fast", 51000)):
            text = log_line(n, user, client=client + n // 15)
            parts[name].append(text.replace("10.0.0.1:9092-", "INTERNAL_IP-"))
    for name, lines in parts.items():
        written(tmp_path, lines, name)
    assert verdicts(audit(tmp_path)) == WHOLE


def test_masked_brokers_are_told_apart_where_one_log_ends_and_another_begins(tmp_path: Path) -> None:
    """As `zcat broker-*.gz` leaves them; the halves of one log in the wrong order are of one broker."""
    lines = masked_lines(2)
    logs = [[text for each, text in lines if each == broker] for broker in range(2)]
    written(tmp_path, [*logs[0], *logs[1]])
    refused(tmp_path, r"lines of several brokers: they are from log 1 in .*, log 2 in ")
    written(tmp_path, [*logs[0][60:], *logs[0][:60]])
    assert verdicts(audit(tmp_path))["slow"] is Verdict.THROTTLED


@pytest.mark.parametrize("name", ["rotated-{half}.log", "{user}.log"])
def test_files_of_one_masked_broker_are_not_told_apart(tmp_path: Path, name: str) -> None:
    """Those that follow each other, and those of each user, whose client-ids are the same."""
    files: dict[str, list[str]] = defaultdict(list)
    for place, (_, text) in enumerate(masked_lines(1)):
        user = "slow" if "User:slow" in text else "fast"
        files[name.format(half=place // 60, user=user)].append(text)
    for each, lines in files.items():
        written(tmp_path, lines, each)
    assert verdicts(audit(tmp_path))["fast"] is Verdict.NOT_THROTTLED


def test_what_may_be_brokers_or_connections_is_said(tmp_path: Path) -> None:
    """With one connection of each value nobody knows, and neither answer may be silent."""
    lines = [f"node-{broker} {text}" for broker, text in masked_lines(3) if "User:slow" in text]
    assert audit(written(tmp_path, lines)).quality.several_brokers == "they are from node-0, node-1, node-2"
    folder = tmp_path / "one"
    folder.mkdir()
    assert audit(written(folder, whole_log())).quality.several_brokers is None


def test_a_merged_file_beside_the_folders_of_brokers_is_refused(tmp_path: Path) -> None:
    """Each request counted once, and for the broker that is called like the folder of the merged file."""
    lines = masked_lines(2)
    for broker in range(2):
        (tmp_path / f"broker-{broker}").mkdir()
        written(tmp_path / f"broker-{broker}", [text for each, text in lines if each == broker])
    written(tmp_path, [text for _, text in lines], "all.log")
    refused(tmp_path, "the same requests are in files of two brokers")


def test_folders_with_parts_of_a_stream_are_no_brokers(tmp_path: Path) -> None:
    """Each had a third of the rates, as where a collector wrote the partitions of a topic."""
    for part, name in enumerate(("partition=0", "partition=1", "partition=2")):
        (tmp_path / name).mkdir()
        written(tmp_path / name, [text for place, text in enumerate(whole_log()) if place // 2 % 3 == part])
    refused(tmp_path, "partition=0 and partition=1 are of one broker")
    assert verdicts(audit(tmp_path, broker="1")) == WHOLE


def test_what_differs_between_clients_is_no_broker(tmp_path: Path) -> None:
    """Threads of the network, what collectors parsed, files that follow each other, and parts of one stream."""
    thread = "[data-plane-kafka-network-thread-0-ListenerName(SASL)-SASL-{}] "
    lines = [
        json.dumps({"user": user, "threadId": client, "n": n, "message": thread.format(client) + text})
        for n in range(120)
        for user, client in (("slow", 50001), ("fast", 50002))
        for text in [log_line(n, user, client=client)]
    ]
    for part in range(3):
        written(tmp_path, lines[part::3], f"part-{part}.log")
    assert verdicts(audit(tmp_path)) == WHOLE


CLIENTS: dict[str, Callable[[str, str, str, int], str]] = {
    "country": lambda text, user, host, port: json.dumps({"geo": {"iso": {"2": "DE", "3": "US"}[host]}, "log": text}),
    "tenant": lambda text, user, host, port: json.dumps({"tenant": {"slow": "t17", "fast": "t4"}[user], "log": text}),
    "session": lambda text, user, host, port: json.dumps({"session": f"s-{port * 7919}", "log": text}),
    "thread": lambda text, user, host, port: text.replace("] DEBUG", f"] [{port % 3}] DEBUG"),
    "printed": lambda text, user, host, port: json.dumps(
        {"log": text, "tenant": {"slow": "t17", "fast": "t4"}[user]}, indent=2
    ),
    "prefix": lambda text, user, host, port: f"host-{host}.clients.example {text}",
    "partition": lambda text, user, host, port: json.dumps({"topic": "logs", "partition": port % 3, "value": text}),
    "team": lambda text, user, host, port: json.dumps(
        {"team": "pay" if port % 2 else "ship", "log": text.replace("pears", f"topic{port % 2}")}
    ),
}
"""What collectors make of a client, its connection and its thread; none of it was known by its name."""


@pytest.mark.parametrize("how", CLIENTS)
def test_what_is_made_of_a_client_is_no_broker(tmp_path: Path, how: str) -> None:
    """One broker was refused as several, where each connection had one value of it."""
    clients = [("slow", "2", 50001), ("slow", "2", 50002), ("fast", "3", 50003), ("fast", "3", 50004)]
    clients += [("fast", "2", 50005), ("slow", "2", 50006)]
    lines = [
        CLIENTS[how](
            log_line(n, user, client=port).replace("10.0.0.1:9092-10.0.0.2:", f"INTERNAL_IP-10.0.0.{host}:"),
            user,
            host,
            port,
        )
        for n in range(40)
        for user, host, port in clients
    ]
    assert verdicts(audit(written(tmp_path, lines))) == WHOLE


@pytest.mark.parametrize(
    "other",
    ["[2026-05-04 10:20:30,123] INFO something happened (kafka.server.{})", '"errorCode":0,"{}":[' + '"topic",' * 50],
)
def test_other_lines_are_no_headings(tmp_path: Path, other: str) -> None:
    """A container prints all loggers in one stream, and long lines in pieces: those may follow a client's requests."""
    lines = [
        text
        for n in range(0, 120, 20)
        for client, logger in ((50001, "ControllerApis"), (50002, "ConfigAdminManager"), (50003, "ControllerApis"))
        for text in [
            other.format(logger),
            *(log_line(m, "slow", host="127.0.0.1", client=client) for m in range(n, n + 20)),
        ]
    ]
    assert verdicts(audit(written(tmp_path, lines)))["slow"] is Verdict.THROTTLED


def test_requests_of_one_number_and_one_second_may_be_others(tmp_path: Path) -> None:
    """Half of them counted, and their client was *not throttled*."""
    lines = [
        re.sub(r',[0-9]{3}\]|(?<="correlationId":)[0-9]+', lambda m: "]" if "]" in m[0] else "0", line)
        for line in whole_log()
    ]
    assert set(verdicts(audit(written(tmp_path, lines))).values()) <= {Verdict.THROTTLED, Verdict.UNDETERMINED}


def test_ends_of_requests_without_their_beginnings_are_lost_requests(tmp_path: Path) -> None:
    """As `grep USER` leaves of lines that a container's runtime cut: one is no more than the beginning of a log."""
    first, *others = whole_log()
    end = first[300:]
    assert verdicts(audit(written(tmp_path, [end, first, *others]))) == WHOLE
    found = verdicts(audit(written(tmp_path, [first, end, *others])))
    assert found == {"slow": Verdict.THROTTLED, "fast": Verdict.UNDETERMINED, "absent": Verdict.UNDETERMINED}


@pytest.mark.parametrize("at", [500, 520])
def test_a_line_of_two_requests_is_where_others_are_lost(tmp_path: Path, at: int) -> None:
    """A hole in a log begins in one request and ends in another. Those between were of any kind, and anybody's."""
    text = "\n".join(lines := whole_log())
    start, end = text.index(lines[100]) + at, text.index(lines[150]) + 600
    result = audit(written(tmp_path, [text[:start] + text[end:]]))
    assert result.quality.noted["request-log"] >= {*ANY}


def test_holes_of_a_truncated_log_are_no_brokers(tmp_path: Path) -> None:
    """A log that is copied and cut to nothing while a broker writes begins with zeros."""
    lines = ["\0" * 5000 + line if place % 60 == 0 else line for place, line in enumerate(whole_log())]
    result = audit(written(tmp_path, lines))
    assert (verdicts(result), result.quality.events) == (WHOLE, len(lines))


def test_a_packed_log_within_a_log_is_a_lost_part(tmp_path: Path) -> None:
    """As `cat kafka-request.log*` joins them."""
    text = "".join(f"{line}\n" for line in whole_log())
    (tmp_path / "kafka-request.log").write_bytes(text.encode() + gzip.compress(text.replace("10:", "11:").encode()))
    found = verdicts(audit(tmp_path))
    assert found == {"slow": Verdict.THROTTLED, "fast": Verdict.UNDETERMINED, "absent": Verdict.UNDETERMINED}


def test_a_part_of_a_log_shows_the_least(tmp_path: Path) -> None:
    """As a recording that takes turns: its rates and shares stood there as if they were of all that happened."""
    whole = predicted(audit(written(tmp_path, whole_log())), "slow")
    result = audit(written(tmp_path, [line for place, line in enumerate(whole_log()) if place % 60 < 36]))
    (row,) = (row for row in result.findings.to_pylist() if row["sensor"] == "slow:")
    assert (row["verdict"], row["peak_rate_max"]) == ("throttled", None)
    assert row["reason"] == "about 72 of 216 requests are not in the log, by their numbers"
    part = predicted(result, "slow")
    for name in ("throttle_time_ms", "throttle_time_max_ms", "delivered_per_s"):
        least, of_all = getattr(part, name), getattr(whole, name)
        assert (least.estimate, least.high) == (None, None)
        assert least.low <= of_all.estimate
    assert (part.muted_share.estimate, part.muted_share.high) == (None, 1)


@pytest.mark.parametrize("scanned", [True, False])
def test_what_is_outside_a_time_is_as_if_it_had_not_been_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scanned: bool
) -> None:
    """Two recordings in one file were one with a gap."""
    monkeypatch.setattr(request_log, "is_worth", lambda *_: scanned)
    lines = whole_log()
    part = audit(written(tmp_path, lines[60:140], "part.log"))
    (tmp_path / "part.log").unlink()
    since_ms, until_ms = (
        1000 * datetime(2026, 5, 4, 10, 20, second, tzinfo=UTC).timestamp() - 100 for second in (15, 35)
    )
    result = audit(written(tmp_path, lines), since_ms=since_ms, until_ms=until_ms)
    assert result.findings.equals(part.findings)
    assert (result.quotas, result.quality.answers) == (part.quotas, part.quality.answers)
    assert (result.quality.events, result.quality.outside) == (80, len(lines) - 80)
    with pytest.raises(InputError, match=f"none of {len(lines)} records is of the time that is asked about"):
        audit(tmp_path, until_ms=0)


def test_numbers_of_other_connections_are_other_requests(tmp_path: Path) -> None:
    """And so are those of other moments: some clients give each request the same number."""
    lines = [log_line(7, client=client) for client in range(50001, 50021)]
    lines += [log_line(n).replace(f'"correlationId":{n},', '"correlationId":7,') for n in range(20)]

    assert (audit(written(tmp_path, lines)).quality.events, len(lines)) == (40, 40)


@pytest.mark.parametrize(("later_ms", "part"), [(1, 1.0), (700, 1.0), (700, 0.3)])
def test_requests_that_are_there_with_two_times_are_refused(tmp_path: Path, later_ms: int, part: float) -> None:
    """Two layouts print other parts of a second, and of a line without a time the collector's clock counts."""
    lines = whole_log()
    times = re.compile(r"\[([^\]]+),([0-9]{3})\]")
    later = [times.sub(lambda at: f"[{at[1]},{min(int(at[2]) + later_ms, 999):03}]", text, count=1) for text in lines]
    written(tmp_path, lines[: int(part * len(lines))])
    written(tmp_path, later, "server.log")
    refused(tmp_path, "the same requests are there twice, with other times")


@pytest.mark.parametrize("date", ["[build 2026-04-01T00:00:00Z]", '{"began":"2026-05-04 09:00:00,123"}'])
def test_a_date_that_never_changes_is_no_time(tmp_path: Path, date: str) -> None:
    """All requests had the time of the nearest date, and the highest rates."""
    lines = [line.replace("DEBUG", date) for line in whole_log()]
    refused(written(tmp_path, lines), "many requests of a connection have one time")


def test_a_burst_within_a_second_has_one_time_where_times_are_seconds(tmp_path: Path) -> None:
    """A client with 30 requests in a second had its log refused, as of a date that is not the time."""
    burst = [log_line(n, "slow", client=50003).replace(f":{20 + n // 120:02}:", ":20:") for n in range(30)]
    burst = [re.sub(r"10:[0-9:]+,[0-9]+", "10:20:07", line, count=1) for line in burst]
    lines = [re.sub(r",[0-9]{3}\]", "]", line) for line in whole_log()]
    assert verdicts(audit(written(tmp_path, [*lines, *burst]))) == WHOLE


def test_a_clock_of_half_a_day_is_refused(tmp_path: Path) -> None:
    """Its pattern has `hh` in the place of `HH`. The requests of two halves of a day were at one time."""
    lines = [
        re.sub("10:20:([0-5])", lambda at: f"{'01:00' if at[1] > '2' else '12:59'}:{(int(at[1]) + 3) % 6}", text)
        for text in whole_log()
    ]
    refused(written(tmp_path, lines), "the clock has 12 hours")
    assert verdicts(audit(written(tmp_path, [lines[-1].replace("01:00", "00:30"), *lines]))) == WHOLE


def test_a_clock_that_was_set_back_is_said(tmp_path: Path) -> None:
    """Requests of before and after stood at the same times without a word. A log from back to front has none."""
    lines = whole_log()
    half = len(lines) // 2
    back = [*lines[:half], *(line.replace(" 10:20:", " 10:19:", 1) for line in lines[half:])]
    for text, times in ((lines, 0), (lines[::-1], 0), (back, 1)):
        doubts = " ".join(doubts_of(audit(written(tmp_path, text)).quality, "UTC"))
        assert doubts.count("the broker's clock was set back at 2026-05-04 10:20:") == times


def test_a_line_that_cannot_be_read_is_outside_by_its_own_time(tmp_path: Path) -> None:
    """It made everybody undetermined who sent requests in another hour."""
    lines = whole_log()
    written(tmp_path, [lines[0][:400], *lines[60:]])
    since_ms = 1000 * datetime(2026, 5, 4, 10, 20, 30, tzinfo=UTC).timestamp()
    result = audit(tmp_path, since_ms=since_ms)
    assert (result.quality.rejected, verdicts(result)["fast"]) == (0, Verdict.NOT_THROTTLED)
    written(tmp_path, [*lines[60:-1], lines[-1][:400]])
    result = audit(tmp_path, since_ms=since_ms)
    assert (result.quality.rejected, verdicts(result)["fast"]) == (1, Verdict.UNDETERMINED)


def test_whoever_goes_on_knows_whose_requests_were_read() -> None:
    """After a restart, a merged file beside the folders of brokers was read in silence, and clusters had any size."""
    one, keys = Requests(()), identity(np.arange(1000).astype(np.uint64))
    one.brokers, one.cluster_sizes = {"broker-1/a.log": "broker-1", "all.log": "all"}, {1}
    one.news(keys, "broker-1/a.log")
    other = Requests(one.brokers, decode(encode(one.kept())))
    assert (other.cluster_sizes, other.sketch()) == ({1}, one.sketch())
    with pytest.raises(InputError, match="in files of two brokers"):
        other.news(keys, "all.log")


def test_requests_that_two_tasks_have_are_refused(tmp_path: Path) -> None:
    """Nobody has seen both; a few that a collector delivered twice are not worth it."""
    one, other = Requests(), Requests()
    keys = identity(np.arange(1000).astype(np.uint64))
    assert one.news(keys, "one.log").all()
    assert other.news(keys[500:], "other.log").all()
    with pytest.raises(InputError, match=r"one[.]log and other[.]log: the same requests are there twice"):
        check([one.sketch(), other.sketch()])
    check([one.sketch()])


def test_a_part_that_was_forgotten_is_known_by_its_sketch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory of a task has an end."""
    monkeypatch.setattr("kquota.audit.sources.requests._MOST", 100)
    requests, keys = Requests(), identity(np.arange(5000).astype(np.uint64))
    for start in range(0, 5000, 500):
        assert requests.news(keys[start : start + 500], "a.log").all()
    requests.news(keys[:2000], "b.log")
    with pytest.raises(InputError, match=r"a\.log and b\.log"):
        check([requests.sketch()])


CUT = (
    '{"isForwarded":false,"requestHeader":{"requestApiKey":1,"clientId":%s,"requestApiKeyName":"FETCH"},"request":{"max'
)
APP = CUT % '"app"'


@pytest.mark.parametrize(
    ("text", "keys", "client"),
    [
        (APP, 2, "app"),
        (json.dumps({"log": APP}), 2, "app"),
        (json.dumps({"m": json.dumps([APP])}), 2, "app"),
        (f'"{APP.replace(chr(34), chr(34) * 2)}', 2, "app"),
        (CUT % '"a\\"pp"', 2, ""),  # not an app called a
        (CUT % '""', 2, ""),
        (APP[:90], 4, "app"),  # what it asked for is cut off, too
        (f"[{APP},{CUT % 1}", 4, ""),  # two in a line
        ("Completed request:RequestHeader(apiKey=FETCH, apiVersion=8, clientId=app, correlationId=3) -- {re", 2, "app"),
        *(  # a name that a collector changed is another one
            (f"Completed request:RequestHeader(apiKey=FETCH, clientId={name}, correlationId=3) -- {{re", 2, "")
            for name in ('a ""b""', "a\\\\b", "&lt;b&gt;", "#303#266", "\ufffd")
        ),
        (CUT % '"\ufffdpp"', 2, ""),
        (
            "Completed request:RequestHeader(apiKey=FETCH, apiVersion=8, clientId=a, correlationId=3, correlationId=4",
            2,
            "",
        ),
        *((text, int(keys), client) for text, keys, client in data_rows("request_log_text/lost.txt")),
    ],
)
def test_what_a_line_that_cannot_be_read_leaves_open(text: str, keys: int, client: str) -> None:
    """Whatever it may be charged to, by the API and the client-id that are left of it."""
    found = set(notes(text))
    assert (len(found), {note.client_id for note in found}) == (keys, {client} if keys else set())


RANDOM = Random(4)


@pytest.mark.parametrize(
    ("numbers", "own", "lacking"),
    [
        (list(range(3, 1203)), False, 0),
        (sorted(RANDOM.sample(range(3, 1203), 70)), False, 1100),
        (sorted(RANDOM.sample(range(3, 1203), 400)), False, 0),  # of three brokers, it may be
        (sorted(RANDOM.sample(range(3, 1203), 400)), True, 797),
        ([n for n in range(1200) if n % 100 < 20], False, 880),
        ([*range(500), *range(900, 1200)], False, 0),  # once elsewhere, as where the leader was
        (list(range(0, 60, 4)), False, 0),  # too few
    ],
)
def test_what_a_connection_lacks(numbers: Sequence[int], own: bool, lacking: int) -> None:
    """Of a client that shares its numbers among brokers nothing follows, unless nearly all are missing."""
    found = missing(np.ones(len(numbers), np.int64), np.array(numbers), np.full(len(numbers), own))
    assert found[:, 4].sum() == pytest.approx(lacking, rel=0.1)


def test_a_few_requests_of_each_connection_are_enough_together() -> None:
    """Where most are missing; a connection that asks now and then proves nothing by itself."""
    numbers = np.concatenate([np.array(sorted(RANDOM.sample(range(1000), 8))) for _ in range(4)])
    assert missing(np.arange(32) // 8, numbers, np.zeros(32, bool))[:, 4].sum() > 2000
    assert not len(missing(np.zeros(8, np.int64), numbers[:8], np.zeros(8, bool)))


@pytest.mark.parametrize("files", [1, 3])
@pytest.mark.parametrize(("part", "verdict"), [(0.0, {"not throttled"}), (0.1, {"undetermined"})])
def test_what_java_clients_of_one_broker_lack_is_known(
    tmp_path: Path, part: float, verdict: set[str], files: int
) -> None:
    """Answers to METADATA say that there is one: no other broker has the numbers in between, but another file may."""
    with gzip.open(DATA / "pairs" / "none" / "broker-1" / "kafka-request.log.gz", "rt") as log:
        java = [line.rstrip() for line in log if "apache-kafka-java" in line and "ANONYMOUS" not in line]
    lines = [line for line in java if RANDOM.random() >= part]
    quotas = {"client-id=<default>": {"producer_byte_rate": "1GB", "consumer_byte_rate": "1GB"}}
    for file in range(files):
        written(tmp_path, lines[file::files], f"{file}.log")
    findings = run.audit(tmp_path, quotas).findings
    assert {*findings["verdict"].to_pylist()} == verdict


def test_numbers_that_all_connections_share_are_nobodys() -> None:
    """As a generator of logs counts its lines."""
    numbers = np.arange(4000)
    assert not len(missing(numbers % 200, numbers, np.ones(4000, bool)))


SHARDS: dict[str, Callable[[int, str], int]] = {
    "hash": lambda place, text: crc32(text.encode()) % 4,
    "turns": lambda place, text: place % 4,
    "batches": lambda place, text: place // 25 % 4,
}


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("how", SHARDS)
def test_what_one_file_lacks_may_be_in_another(tmp_path: Path, how: str, lost: bool) -> None:
    """Several collectors behind a load balancer write parts of one stream: each file lacked most requests."""
    librdkafka = {"softwareName": "librdkafka", "softwareVersion": "2.6.0"}
    lines = [
        line.replace(json.dumps(JAVA, separators=(",", ":")), json.dumps(librdkafka)) if user == "fast" else line
        for n in range(400)
        for user, client in (("slow", 50001), ("fast", 50002))
        for line in [log_line(n, user, client=client)]
    ]
    for part in range(3 if lost else 4):
        shard = [line for place, line in enumerate(lines) if SHARDS[how](place, line) == part]
        written(tmp_path, shard, f"part-{part}.log")
    result = verdicts(audit(tmp_path))
    assert result == (WHOLE | dict.fromkeys(("fast", "absent"), Verdict.UNDETERMINED) if lost else WHOLE)


@pytest.mark.parametrize("late_s", [0, 10_810])
def test_the_zone_of_a_log_is_that_of_all_its_lines(tmp_path: Path, late_s: int) -> None:
    """A collector that reads a log later is late by any minutes: some lines were put there, and their rates halved."""
    begin = datetime(2026, 10, 24, 23, 59, 30, tzinfo=UTC)
    berlin, lines = ZoneInfo("Europe/Berlin"), []
    for n in range(120):
        at = begin + timedelta(seconds=n / 2)
        collected = begin + timedelta(seconds=late_s + n / 50) if late_s else at + timedelta(milliseconds=20)
        local = at if late_s else at.astimezone(berlin)
        for text in (log_line(n, "slow", client=50001), log_line(n, "fast", client=50002)):
            text = text.replace(text[1:20], f"{local:%Y-%m-%d %H:%M:%S}")
            lines.append(f"{collected:%Y-%m-%dT%H:%M:%S.%f}Z stdout F {text}")
    result = audit(written(tmp_path, lines))
    assert verdicts(result) == WHOLE
    quality = result.quality
    assert (quality.last_ms or 0) - (quality.first_ms or 0) == 59_500
