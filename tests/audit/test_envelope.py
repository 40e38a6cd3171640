"""A request is the same request in whatever a collector or a viewer wraps around its line."""

import gzip
import json
import re
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from kquota.audit.sources import plan_splits
from kquota.audit.sources.envelope import Pieces, parted
from kquota.audit.sources.event import UsageEvent
from kquota.audit.sources.lost import ANY, notes
from kquota.audit.sources.names import Names, row_of
from kquota.audit.sources.request_line import parse
from kquota.errors import InputError
from tests.audit.mangled import QUOTING, WRAPPERS, WRAPPERS_OF_LARGE_SEEDS, Around, listed
from tests.audit.request_lines import MOMENT, STAMP, fetch, fields, line, parse_line
from tests.support.data import data_rows
from tests.support.scheduling import by_day


def is_same(wrapped: str, expected: UsageEvent, *names: str) -> bool:
    """Whether the request in a line is that one; of names that need escapes the reader may say that it cannot know."""
    try:
        return {parse_line(part, UTC) for part in parted(wrapped)} == {expected}
    except ValueError:
        return any(re.search(r"[\\'\"]|[^ -~]", name) for name in names)


REQUEST = line(fields()).partition("DEBUG ")[2].rstrip("\n")
"""A request whose line has lost its time."""
POD = Around(datetime.fromtimestamp(MOMENT / 1000, UTC), "kafka-0")
NAMES = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=12)


@example(["csv", "logfmt", "csv"], "alice", "app", False)
@example(["shell", "docker"], "alice", "'", False)
@given(st.lists(st.sampled_from(sorted(WRAPPERS_OF_LARGE_SEEDS)), max_size=3), NAMES, NAMES, st.booleans())
def test_any_envelopes_are_undone(wrappers: list[str], user: str, client: str, fetched: bool) -> None:
    """To a depth of three, in any order, with any names."""
    assume(wrappers.count("octets") < 2)  # no journal holds another
    made = fetch([]) if fetched else fields()
    made["principal"] = f"User:{user}"
    made["requestHeader"]["clientId"] = client
    bare = line(made)
    wrapped = bare
    for name in wrappers:
        wrapped = WRAPPERS_OF_LARGE_SEEDS[name](wrapped, POD)
    assert is_same(wrapped, parse_line(bare, UTC), user, client)


@pytest.mark.parametrize("runtime", ["containerd", "docker"])
def test_pieces_of_a_line_are_put_together(runtime: str) -> None:
    """Other streams come between them; what was cut at the end of a file is left."""
    text = line(fetch([], localTimeMs=1.5)).rstrip("\n")
    pieces, time = Pieces(), "2026-05-04T10:20:30.456789Z"
    cut = [text[start : start + 100] for start in range(0, len(text), 100)]
    if runtime == "docker":
        cut = [text + " " * 17000, "\n"]
        lines = [json.dumps({"log": each, "stream": "stdout", "time": time}, separators=(",", ":")) for each in cut]
    else:
        lines = [f"{time} stdout {'F' if each is cut[-1] else 'P'} {each}" for each in cut]
    other = f"{time} stderr F something else"

    found = [*map(pieces.whole, (lines[0], other, *lines[1:]))]

    whole = found.pop()
    assert found == [None, other, *[None] * (len(found) - 2)]
    assert whole is not None
    assert parse_line(whole, UTC) == parse_line(text, UTC)
    assert pieces.left() == []
    assert pieces.whole(lines[0]) is None
    assert len(pieces.left()) == 1


def test_sorted_and_flattened_keys_are_the_same_request() -> None:
    """Collectors that parse JSON write it in an order of their own, or without objects in objects."""
    made = fields()
    expected = parse_line(line(made), UTC)
    time = {"@timestamp": f"{STAMP.replace(',', '.').replace(' ', 'T')}Z"}
    flat = {f"requestHeader.{name}": value for name, value in made["requestHeader"].items()}
    flat |= {name: value for name, value in made.items() if name != "requestHeader"}
    assert parse_line(json.dumps(time | made, sort_keys=True), UTC) == expected
    assert parse_line(json.dumps(time | flat), UTC) == expected


@pytest.mark.parametrize(("time", "zone"), data_rows("request_log_text/times.txt"))
def test_a_zone_that_a_line_carries_counts(time: str, zone: str) -> None:
    """In every spelling; a local time beside its collector's time is in the zone in which both agree."""
    request = f"{time} DEBUG Completed request:{line(fields()).partition('Completed request:')[2]}"
    assert parse(request, ZoneInfo(zone)).moment == pytest.approx(MOMENT, abs=1)


TEXT_FORM = (
    f"[{STAMP}] DEBUG Completed request:RequestHeader(apiKey=HEARTBEAT, apiVersion=4, clientId=CLIENT, correlationId=7)"
    " -- {group_id=g},response:{throttle_time_ms=0,error_code=0} from connection 10.0.0.1:9092-10.0.0.2:50000-0;"
    "totalTime:1.5,requestQueueTime:0.1,localTime:1.0,remoteTime:0.0,throttleTime:0,responseQueueTime:0.1,sendTime:0.3,"
    "securityProtocol:SSL,principal:User:USER,listener:SSL (kafka.request.logger)"
)


@example("xml", "o'bob & <sons>", True)
@given(st.sampled_from(sorted(QUOTING)), st.text("ab'\"\\<>&;,|={}ü ", min_size=1, max_size=8), st.booleans())
def test_names_lose_what_an_envelope_does_to_quotes(quoting: str, name: str, old: bool) -> None:
    """In both forms of the log."""
    # A shell's apostrophe, which nobody can tell from this name; and what is no name in any log.
    assume("'\\'" not in name and "\\\\" not in name)
    made = fields() | {"principal": f"User:{name}"}
    made["requestHeader"]["clientId"] = name
    bare = TEXT_FORM.replace("CLIENT", name).replace("USER", name) if old else line(made).rstrip("\n")
    assert is_same(QUOTING[quoting](bare), parse_line(bare, UTC), name)


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("around", ["", "json", "csv"])
@pytest.mark.parametrize("name", ["bare", *sorted(WRAPPERS_OF_LARGE_SEEDS), *sorted(QUOTING)])
def test_a_request_that_was_cut_off_is_no_other_one(name: str, around: str, old: bool) -> None:
    """The end of an envelope is not the end of its message, and the half of a name is none."""
    bare = TEXT_FORM.replace("USER", "ann") if old else line(fields() | {"clientInformation": {"softwareName": "x"}})
    for cut in range(bare.index("principal"), len(bare), 7 if by_day() else 1):
        text = bare[:cut]
        if name in QUOTING:
            text = QUOTING[name](text)
        elif name != "bare":
            text = WRAPPERS_OF_LARGE_SEEDS[name](text, POD)
        assert is_same(QUOTING[around](text) if around else text, parse_line(bare, UTC), "\\")


@pytest.mark.parametrize("prefix", ["", "2026-05-04T10:20:31Z stdout F "])
@pytest.mark.parametrize("document", ["elastic", "loki", "array", "strings", "joined"])
@pytest.mark.parametrize("old", [False, True])
def test_each_request_of_a_document_counts(document: str, prefix: str, old: bool) -> None:
    """A viewer answers with one line of many requests, and lines of others among them."""
    texts = [line(fields(localTimeMs=number)).rstrip("\n") for number in (1.5, 2.5, 3.5)]
    if old:
        texts = [TEXT_FORM.replace("USER", user) for user in "abc"]
    found = [parse_line(part, UTC) for part in parted(prefix + listed(document, ["started", *texts, "x"]))]
    assert found == [parse_line(text, UTC) for text in texts]


def parts_of(text: str) -> list[UsageEvent | None]:
    """The requests in a line; None for what is refused."""
    found: list[UsageEvent | None] = []
    for part in parted(text):
        try:
            found.append(parse_line(part, UTC))
        except ValueError:
            found.append(None)
    return found


def test_a_request_between_documents_is_not_passed_over() -> None:
    """Where one of them is damaged, it does not go in silence, and is no other request."""
    one, damaged, other = (json.dumps({"m": line(fields(localTimeMs=number)).rstrip("\n")}) for number in (1, 2, 3))
    whole = [parse_line(json.loads(text)["m"], UTC) for text in (one, damaged, other)]
    for cut in range(damaged.index("isForwarded") + 11, len(damaged), 7 if by_day() else 1):
        found = parts_of(one + damaged[:cut] + other)
        assert None in found
        assert [each for each in found if each is not None] in ([], whole, whole[::2])


@pytest.mark.parametrize("document", ["elastic", "loki", "array", "strings", "joined"])
@pytest.mark.parametrize("old", [False, True])
def test_requests_of_a_document_that_was_cut_off_count(document: str, old: bool) -> None:
    """Those that are whole; of the last one it is said that it is not."""
    texts = [line(fields(localTimeMs=number)).rstrip("\n") for number in (1.5, 2.5, 3.5)]
    if old:
        texts = [TEXT_FORM.replace("USER", user) for user in "abc"]
    whole, text = [parse_line(each, UTC) for each in texts], listed(document, texts)
    marks = [mark.end() for mark in re.finditer("Completed request:" if old else "isForwarded", text)]
    for cut in range(marks[1], len(text) - 1, 9 if by_day() else 1):
        found = parts_of(text[:cut])
        events = [each for each in found if each is not None]
        assert events == whole[: len(events)]
        assert cut < marks[2] or (len(events) > 1 and None in found) or len(events) == 3


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("document", ["string", "copy"])
def test_each_line_of_a_text_counts(document: str, old: bool) -> None:
    """As collectors join lines, and as Ansible keeps the output of a command, also beside a list of the lines."""
    texts = [TEXT_FORM.replace("USER", user) for user in "abc"]
    if not old:
        texts = [line(fields(localTimeMs=number)).rstrip("\n") for number in (1.5, 2.5, 3.5)]
    joined = {"rc": 0, "stdout": "\n".join(["started", *texts, "x"])}
    found = parts_of(json.dumps(joined | ({"stdout_lines": texts} if document == "copy" else {})))
    assert set(found) == {parse_line(text, UTC) for text in texts}


def test_old_requests_that_share_a_line_are_refused() -> None:
    """The first one had the times and the principal of the last."""
    with pytest.raises(ValueError, match="several requests in one line"):
        parse(f"{TEXT_FORM}\r{TEXT_FORM}", UTC)


@pytest.mark.parametrize(
    "name", ["journald", "started", "consumer", "fluent", "loki", "tuple", "gelf", "elastic", "csv"]
)
def test_the_time_of_an_envelope_counts_for_a_line_without_one(name: str) -> None:
    """And no other time of it: systemd counts µs since the boot, too, and collectors tell when a container began."""
    text = WRAPPERS[name](REQUEST, POD)
    assert parse(text, UTC).moment == pytest.approx(MOMENT, abs=1000)


def test_tabs_around_a_time_in_a_python_text_are_its_ends() -> None:
    """Printed records of a consumer: the time of the record counted in place of the earlier time of the request."""
    text = str({"m": f"CreateTime:{round(MOMENT) + 300_000}\tkafka-0\t{round(MOMENT)} {REQUEST}"})
    assert parse(text, UTC).moment == pytest.approx(MOMENT, abs=1)


def test_the_start_of_a_container_is_not_the_time_of_its_collector() -> None:
    """Of each 15 lines, two came out at the start, a month before: as if the zone was 33 days off."""
    for minute in range(60):
        text = line(fields()).rstrip("\n").replace("10:20:30,", f"10:{minute:02}:02,")
        wrapped = json.dumps({"start_time": "2026-04-01T00:00:00Z", "log": text})
        assert parse(wrapped, UTC).moment == parse(text, UTC).moment


@pytest.mark.parametrize("name", ["_created", "creationTime", "pod_start_time", "process.start"])
def test_a_beginning_of_the_same_day_is_not_the_time_of_a_request(name: str) -> None:
    """All requests had one time, and their clients were throttled."""
    outer, dot, inner = name.partition(".")
    began = {outer: {inner: "2026-05-04T03:00:00Z"} if dot else "2026-05-04T03:00:00Z"}
    text = json.dumps({**began, "short_message": REQUEST, "timestamp": MOMENT / 1000})
    assert parse(text, UTC).moment == pytest.approx(MOMENT, abs=1)


@pytest.mark.parametrize(
    "wrapped",
    [
        f'1x,"{{}}",{STAMP[:10]}T10:20:33.000000017Z,{STAMP}Z',
        f'"{{}}","{MOMENT}"',
        f"{{}}\t{STAMP}",
        f"DEBUG {{}} (kafka.request.logger) at {STAMP}",
    ],
)
@pytest.mark.parametrize("text", [one.partition("DEBUG ")[2].partition(" (")[0] for one in (line(fields()), TEXT_FORM)])
def test_a_time_in_a_column_behind_counts_where_none_is_before(wrapped: str, text: str) -> None:
    """Tables of viewers have their columns in any order; the log was refused. The earliest one is the request's."""
    quoted = text.replace('"', '""') if '"{}"' in wrapped else text
    assert parse(wrapped.format(quoted), UTC).moment == pytest.approx(MOMENT, abs=1)


@pytest.mark.parametrize("seconds", [STAMP[:19], MOMENT // 1000])
@pytest.mark.parametrize("ms", ["+00:00", "Z"])
def test_of_one_second_the_time_with_ms_counts(seconds: object, ms: str) -> None:
    """A column for partitions has whole seconds: the requests of half of each second had one time."""
    for stamp, of in ((STAMP, ".456"), (STAMP.replace("456", "789"), ".789")):
        text = json.dumps({"TimestampTime": seconds, "Timestamp": f"{stamp[:19]}{of}{ms}", "Body": REQUEST})
        assert parse(text, UTC).moment == pytest.approx(MOMENT + (int(of[1:]) - 456), abs=1)


def test_a_line_of_csv_may_end_within_its_message() -> None:
    """Google Cloud keeps the ends of lines that a container prints; each line was cut off, as it seemed."""
    text = line(fields()).rstrip("\n")
    first, rest = '1x,"{}\n",{}Z\n'.format(text.replace('"', '""'), STAMP).splitlines()
    assert parse_line(f"{first}\n", UTC) == parse_line(text, UTC)
    with pytest.raises(ValueError, match="not a line of a request log"):
        parse_line(rest, UTC)


def test_a_layout_without_escapes_is_read() -> None:
    """A pattern that writes JSON by hand has the request's quotation marks as they are."""
    text = line(fields()).rstrip("\n").partition("DEBUG ")[2]
    whole = f'{{"ts":"{STAMP}","level":"DEBUG","msg":"{text}"}}'
    assert parse_line(whole, UTC) == parse_line(line(fields()), UTC)
    with pytest.raises(ValueError, match="truncated"):
        parse_line(whole.replace(text[text.index('ann"') :], ""), UTC)


def test_lines_may_end_as_on_old_macs() -> None:
    """A spreadsheet saves a table so, and it was one line with several requests."""
    texts = [line(fields(localTimeMs=ms)).rstrip("\n") for ms in (1.0, 2.0, 3.0)]
    assert parted("\r".join([*texts, ""])) == [*texts, ""]
    assert parted("\r\n".join(texts[:1])) == texts[:1]


@pytest.mark.parametrize("name", ["time", "asked"])
def test_of_times_that_are_days_apart_the_plain_one_counts_or_none(name: str) -> None:
    """A start, or the time of a later import, is never the request's."""
    text = json.dumps({"began": "2026-04-01T00:00:00Z", "log": REQUEST, name: f"{STAMP}Z".replace(" ", "T")})
    if name == "time":
        assert parse(text, UTC).moment == pytest.approx(MOMENT, abs=1)
        return
    with pytest.raises(ValueError, match="days apart"):
        parse(text, UTC)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[2026-05-04 18:20:30,456 CST] Completed request:", "the zone CST of a time is of several places"),
        ("[2026-05-04 12:20:30,456 SAST] Completed request:", "the zone SAST of a time is of several places, or not"),
        ("[2026-05-04 12:20:30,456 Central European Summer Time] Completed request:", "the zone Central European"),
        ("[2026-05-04 12:20:30,456 Europe/Berlim] Completed request:", "the zone Europe/Berlim of a time is not known"),
        ("May  4 10:20:30 kafka-0 Completed request:", "no timestamp before the request; these are read: "),
        ("[2026-05-04 10:20:30,45] Completed request:", "no timestamp before the request; these are read: "),
    ],
)
def test_a_time_that_is_not_known_is_refused(text: str, reason: str) -> None:
    """An ambiguous zone is never taken for UTC, a year is never guessed, and 45 ms are no 450 ms."""
    request = line(fields()).partition("Completed request:")[2]
    with pytest.raises(ValueError, match=reason):
        parse(text + request, timezone(timedelta(hours=1)))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("  {", "printed over several lines"),
        ('  "isForwarded": false,', "printed over several lines"),
        ("[2026-05-04 10:20:30,456] TRACE Handling request:RequestHeader(apiKey=PRODUCE)", "kafka.request.logger"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, reason: str) -> None:
    """With what helps."""
    with pytest.raises(ValueError, match=reason):
        parse(text, UTC)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("log.txt", "[2026-05-04".encode("utf-16"), "UTF-16 text"),
        ("log.txt", "[2026-05-04".encode("utf-16-le"), "UTF-16 text"),
        ("log.txt.gz", gzip.compress("[2026-05-04".encode("utf-16"), mtime=0), "UTF-16 text"),
        ("log.lz4", b"\x04\x22\x4d\x18rest", "lz4"),
        ("bundle.gz", gzip.compress(b"x" * 257 + b"ustar" + b"x" * 300, mtime=0), "an archive, whose members"),
        ("log.zip", b"PK\x03\x04rest", "a zip archive"),
        ("log.xz", b"\xfd7zXZ\x00rest", "xz"),
        ("system.journal", b"LPKSHHRH\x00rest", "a journal of systemd"),
        ("logs.tar", b"x" * 257 + b"ustar" + b"x" * 300, "an archive, whose members may be of several brokers"),
    ],
)
def test_a_packed_file_is_named(tmp_path: Path, name: str, content: bytes, reason: str) -> None:
    """With the command that unpacks it."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=reason):
        plan_splits([str(tmp_path / name)], "auto")


@pytest.mark.parametrize("between", ["", "\0", " "])
@pytest.mark.parametrize("name", ["", "gelf", "elastic"])
def test_requests_that_share_a_line_are_refused(between: str, name: str) -> None:
    """Where messages were joined without ends of lines, none of them counts alone in silence."""
    text, around = line(fields()).rstrip("\n"), Around(datetime.fromtimestamp(MOMENT / 1000, UTC), "b")
    text = WRAPPERS[name](text, around) if name else text
    with pytest.raises(ValueError, match="several requests in one line"):
        parse(between.join([text, text]), UTC)


def test_a_message_beside_what_was_made_of_it_is_one_request() -> None:
    """Collectors keep the original, and cut the short message of GELF."""
    text = line(fields()).rstrip("\n")
    expected = parse_line(text, UTC)
    assert parse_line(json.dumps({"message": text, "event": {"original": text}}), UTC) == expected
    assert parse_line(json.dumps({"short_message": text[:250], "full_message": text}), UTC) == expected


@pytest.mark.parametrize(
    "text", ['{"MESSAGE":null}', '{"MESSAGE": [91, 50', "May 04 10:20:30 b kafka: [1.2K blob data]"]
)
def test_a_message_that_journalctl_leaves_out_is_lost(text: str) -> None:
    """It may have been anybody's request."""
    with pytest.raises(ValueError, match="journalctl -o cat"):
        parse(text, UTC)
    assert set(notes(text)) == {*ANY}


def test_a_message_of_bytes_that_is_no_request_is_not_lost() -> None:
    """Colours make bytes of each message, also of those of other loggers."""
    assert not set(notes('{"MESSAGE": [91, 50], "PRIORITY": "6"}'))


@pytest.mark.parametrize(
    ("name", "wrapped"),
    [
        ("DOM\\ann", "2026-05-04\t{doubled}\tkafka-0"),
        ("DOM\\ann", "{{'message': '{doubled}'}}"),
        ("ann", '"2026","{escaped}"'),
    ],
)
def test_names_that_may_have_more_backslashes_are_refused(name: str, wrapped: str) -> None:
    """A dump doubles them without quotation marks, and other ones escape quotes alone."""
    bare = line(fields(principal=f"User:{name}")).rstrip("\n")
    text = wrapped.format(
        doubled=bare.replace("\\", "\\\\"), escaped=bare.replace('"', '\\"').replace("ann", "a\\\\nn")
    )
    with pytest.raises(ValueError, match="added backslashes"):
        parse(text, UTC)


def test_a_request_in_utf_16_behind_other_text_is_lost() -> None:
    """Where a second tool went on with the file."""
    assert set(notes(line(fields()).encode("utf-16-le").decode())) == set(notes(line(fields())))


def test_a_domain_in_csv_is_no_letter() -> None:
    """`CORP\\u1234` of the text form came out with a letter of Ethiopia."""
    text = TEXT_FORM.replace("USER", "CORP\\u1234")
    with pytest.raises(ValueError, match="added backslashes"):
        parse(f'"2026-05-04","{text}"', UTC)


@pytest.mark.parametrize(
    "name",
    [
        *("R&amp;D", "K#303#266ln", "K?ln", "K\ufffdln", "KÃ¶ln"),
        *("***@example.com", "[REDACTED]", "<email>", "DOM\\\\ann"),
        *("K├Âln", "K├╢ln", "Ð³Ñ€ÑƒÐ¿Ð¿Ð°", "K\\303\\266ln", "K<C3><B6>ln", "a\xa0b", "a\u200bb"),
    ],
)
def test_names_that_lost_letters_are_refused(name: str) -> None:
    """As web pages, rsyslog, less, other encodings and masks leave them: `Köln` was then nobody seen."""
    with pytest.raises(ValueError, match="lost or escaped letters"):
        row_of(parse_line(line(fields(principal=f"User:{name}")), UTC), Names())
    for good in ("Köln", "São João", "Ülo's café", "группа", "漢字"):
        assert row_of(parse_line(line(fields(principal=f"User:{good}")), UTC), Names())


def test_holes_before_a_line_take_no_time() -> None:
    """A log that was copied and truncated begins with as many zeros as it had bytes: 200,000 took minutes."""
    assert parse("\0" * 2_000_000 + line(fields()), UTC).event == parse_line(line(fields()), UTC)


def test_the_time_of_an_object_that_is_cut_off_is_not_known() -> None:
    """What was cut off may have been the time, and what is left the start of the container."""
    text = json.dumps({"start": "2026-04-01T00:00:00Z", "log": REQUEST, "time": f"{STAMP}Z"})
    with pytest.raises(ValueError, match="no timestamp"):
        parse(text[:-20], UTC)


@pytest.mark.parametrize(
    "envelope",
    [
        {"attributes": [{"key": "k8s.pod.name", "value": {"stringValue": "kafka-0"}}], "body": {"stringValue": "LINE"}},
        {"logStreamName": "kafka-0", "message": "LINE"},
    ],
)
def test_attributes_and_streams_name_the_broker(envelope: object) -> None:
    """As OpenTelemetry and CloudWatch have them."""
    text = json.dumps(envelope).replace('"LINE"', json.dumps(line(fields())))
    assert "kafka-0" in parse(text, UTC).origin.values()
