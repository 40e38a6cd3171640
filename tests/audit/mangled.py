"""Request logs as collectors leave them: some clients, in a random envelope, cut, thinned, repeated, mixed."""

import json
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta
from html import escape
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from unittest.mock import patch

from kquota import Entity, InputError, QuotaKey, QuotaSnapshot
from kquota.audit.engines import local
from kquota.audit.result import AuditResult
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import ReadSettings, plan_splits, request_log
from kquota.core.change.history import QuotaHistory
from kquota.core.findings.verdicts import Verdict
from tests.audit.request_lines import PARTITION, asking, compact, fetch, fields

_BEGIN = datetime(2026, 5, 4, 10, 20, tzinfo=UTC)
_JAVA = {"softwareName": "apache-kafka-java", "softwareVersion": "3.9.0"}
_BYTES, _FETCHED = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
QUOTAS = {
    ("slow", _BYTES): (100, Verdict.THROTTLED),
    ("fast", _BYTES): (1_000_000, Verdict.NOT_THROTTLED),
    ("reader", _FETCHED): (400, Verdict.THROTTLED),
    ("idler", _FETCHED): (1_000_000, Verdict.NOT_THROTTLED),
    ("absent", _BYTES): (1_000, Verdict.NOBODY_SEEN),
}
"""The limits, and what is true of them."""
USERS = {
    "slow": 'CN=slow,O="A\\, Ü"',
    "fast": "svc/fast@REALM",
    "reader": "reader",
    "idler": "漢字 idler",
    "absent": "absent",
}
_HISTORY = QuotaHistory.of(
    QuotaSnapshot({Entity(user=USERS[user]): {key: limit} for (user, key), (limit, _) in QUOTAS.items()})
)

Layout = Callable[[datetime, str], str]
BERLIN = timedelta(hours=2)
LAYOUTS: dict[str, Layout] = {
    "kafka": lambda at, text: (
        f"[{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03}] DEBUG {text} (kafka.request.logger)"
    ),
    "blank": lambda at, text: f"{at + BERLIN:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03} +0200 DEBUG {text}",
    "name": lambda at, text: f"[{at + BERLIN:%Y/%m/%d %H:%M:%S}.{at.microsecond // 1000:03} CEST] [thread-1] {text}",
    "iso": lambda at, text: f"{at:%Y-%m-%dT%H:%M:%S.%f}Z DEBUG {text}",
    "basic": lambda at, text: f"{at:%Y%m%dT%H%M%S},{at.microsecond // 1000:03} DEBUG {text}",
    "date": lambda at, text: f"{at:%d %b %Y %H:%M:%S},{at.microsecond // 1000:03} {text}",
    "millis": lambda at, text: f"{round(at.timestamp() * 1000)} DEBUG {text}",
    "layout": lambda at, text: json.dumps({"timeMillis": round(at.timestamp() * 1000), "message": text}),
    "ecs": lambda at, text: json.dumps({"@timestamp": at.isoformat(), "log": {"level": "DEBUG"}, "message": text}),
    "parsed": lambda at, text: json.dumps(
        {"time": at.isoformat(), **json.loads(text.removeprefix("Completed request:"))},
        sort_keys=True,
        ensure_ascii=False,  # in a dump, `\\u1234` may be a letter, or the user u1234 of a domain: it is refused
    ),
}
"""How a broker's own layout shows the time."""


class Around(NamedTuple):
    """What a collector adds to a line."""

    at: datetime
    pod: str


Wrapper = Callable[[str, Around], str]
_RED = "\x1b[01;31m\x1b[KCompleted\x1b[m\x1b[K"


def _backslashed(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\t", "\\t")


def _csv(text: str, around: Around, delimiter: str = ",") -> str:
    doubled = text.replace('"', '""')
    return f'"{around.at:%b %d, %Y @ %H:%M:%S.000}"{delimiter}"{doubled}"{delimiter}{around.pod}'


WRAPPERS: dict[str, Wrapper] = {
    "docker": lambda text, around: compact(
        {"log": text + "\n", "stream": "stdout", "time": f"{around.at:%Y-%m-%dT%H:%M:%S.%f}Z"}
    ),
    "loki": lambda text, around: json.dumps(
        {"labels": {"pod": around.pod}, "line": text, "timestamp": around.at.isoformat()}
    ),
    "tuple": lambda text, around: json.dumps([str(round(around.at.timestamp() * 1e9)), text]),
    "elastic": lambda text, around: json.dumps(
        {"_source": {"message": text, "kubernetes": {"pod_name": around.pod}, "@timestamp": around.at.isoformat()}}
    ),
    "journald": lambda text, around: json.dumps(
        {
            "__REALTIME_TIMESTAMP": str(round(around.at.timestamp() * 1e6)),
            "__MONOTONIC_TIMESTAMP": "1234567890123",
            "MESSAGE": text,
            "_HOSTNAME": around.pod,
        }
    ),
    "started": lambda text, around: json.dumps(
        {"start_time": "2026-04-01T00:00:00Z", "log": text, "pod": around.pod, "time": {"$date": around.at.isoformat()}}
    ),
    "consumer": lambda text, around: f"CreateTime:{round(around.at.timestamp() * 1000)}\t{around.pod}\t{text}",
    "fluent": lambda text, around: (
        f'[0] kube.{around.pod}: [{around.at.timestamp():.9f}, {{"log"=>{json.dumps(text)}}}]'
    ),
    "gelf": lambda text, around: json.dumps(
        {"short_message": text, "timestamp": around.at.timestamp(), "host": around.pod}, ensure_ascii=False
    ),
    "splunk": lambda text, around: json.dumps({"preview": False, "result": {"_raw": text, "host": around.pod}}),
    "element": lambda text, around: f"  {json.dumps({'m': text, 'pod': around.pod})},",
    "logfmt": lambda text, around: f"ts={around.at.isoformat()} level=debug msg={json.dumps(text)} pod={around.pod}",
    "cri": lambda text, around: f"{around.at:%Y-%m-%dT%H:%M:%S.%f}000Z stdout F {text}",
    "compose": lambda text, around: f"{around.pod}  | {text}",
    "kubectl": lambda text, around: f"[pod/{around.pod}/kafka] {text}",
    "stern": lambda text, around: f"{around.pod} kafka {text}",
    "syslog": lambda text, around: f"<15>{around.at:%b %e %H:%M:%S} {around.pod} kafka[17]: {text}",
    "shell": lambda text, around: "echo '" + text.replace("'", "'\\''") + "'",
    "csv": _csv,
    "excel": lambda text, around: _csv(text, around, ";"),
}
WRAPPERS_OF_LARGE_SEEDS: dict[str, Wrapper] = WRAPPERS | {
    "octets": lambda text, around: json.dumps({"MESSAGE": list(text.encode()), "_HOSTNAME": around.pod}),
    "column": lambda text, around: '"{}"'.format(text.replace('"', '""')),
    "python": lambda text, around: repr({"message": text, "pod": around.pod}),
    "tsv": lambda text, around: f"{around.at.isoformat()}\t{around.pod}\t{_backslashed(text)}",
    "grep": lambda text, around: f"{around.pod}/kafka-request.log:12:{text}".replace("Completed", _RED),
}
"""And those that came later: the smaller seeds in tests stand for what they stood for."""
QUOTING: dict[str, Callable[[str], str]] = {
    "yaml": lambda text: "textPayload: '" + text.replace("'", "''") + "'",
    "sql": lambda text: "INSERT INTO logs VALUES (3, 'x', '" + text.replace("'", "''") + "');",
    "xml": lambda text: f"<Event level='DEBUG'><Message a=\"b\">{escape(text, quote=False)}</Message></Event>",
    "html": lambda text: f"<td>{escape(text)}</td>",
    "bytes": lambda text: repr(text.encode()),
    "dump": lambda text: "VALUES ('" + text.replace("\\", "\\\\").replace("'", "\\'").replace('"', '\\"') + "');",
    "tsv": lambda text: f"17\t{_backslashed(text)}\t\\N",
    "clickhouse": lambda text: _backslashed(text).replace("'", "\\'") + "\tkafka-0",
    "cdata": lambda text: f"<log4j:message><![CDATA[{text}]]></log4j:message>",
    "csv": lambda text: 'kafka,"{}"'.format(text.replace('"', '""')),
    "kibana": lambda text: 'kafka,"{0}","{0}"'.format(text.replace('"', '""')),
    "json": lambda text: json.dumps({"log": text, "stream": "stdout"}),
    "syslog": lambda text: f'<134>1 - host kafka 81 ID47 [origin ip="10.0.0.1" software="rsyslogd"] {text}',
}
"""What is done to quotes in a line."""


def listed(document: str, lines: Sequence[str]) -> str:
    """One line of several, as the interfaces of log stores answer."""
    made: dict[str, Any] = {
        "elastic": {
            "took": 3,
            "hits": {"total": {"value": 2}, "hits": [{"_source": {"message": one}} for one in lines]},
        },
        "loki": {
            "data": {"result": [{"stream": {"pod": "b"}, "values": [["1777890030456000000", one]]} for one in lines]}
        },
        "array": [{"timestamp": "1777890030456000000", "line": one} for one in lines],
        "strings": {"changed": False, "stdout_lines": list(lines)},
    }
    if document == "joined":
        return "".join(json.dumps({"logStream": "b", "logEvents": [{"id": "1", "message": one}]}) for one in lines)
    return json.dumps(made[document])


SHOWS_POD = set(WRAPPERS_OF_LARGE_SEEDS) - {"docker", "tuple", "cri", "shell", "column", "python"}
"""The envelopes that name where a line is from, wherever they stand."""


class Made(NamedTuple):
    """A log as it was left."""

    text: bytes
    brokers: int
    whole: bool
    """Whether each request of the broker is there."""
    cut: Collection[QuotaKey]
    """Of what some lines are there in part."""
    requests: int
    named: bool
    """Whether something distinguishes the brokers."""
    how: str


def _is_whole(text: str) -> bool:
    """Whether the whole request is in the beginning of a line: of what collectors put behind it, some is cut off."""
    ends = [text.rfind(name) for name in ("softwareVersion", "totalTimeMs", "sendTimeMs", "throttleTimeMs")]
    return min(ends) >= 0 and "}" in text[max(ends) :]


def made(random: Random, names: Sequence[str]) -> Made:
    """A log and what was done to it, with wrappers of those names."""
    brokers = random.choice([1, 1, 1, 2, 3])
    layout, wrappers = random.choice(sorted(LAYOUTS)), random.choices(names, k=random.randrange(4))
    if wrappers.count("octets") > 1:  # no journal holds another
        wrappers = [name for name in wrappers if name != "octets"]
    damage = random.choice(["", "", "", "cut", "cut at all", "sampled", "bursts", "said", "pieces"])
    masked = random.random() < 0.2
    lines: list[tuple[datetime, str, QuotaKey]] = []
    for broker in range(brokers):
        for number in range(400 if damage == "sampled" else 120):
            for place, (user, key) in enumerate(QUOTAS):
                at = _BEGIN + timedelta(milliseconds=500 * number + 7 * place + broker)
                if user != "absent":
                    text = LAYOUTS[layout](at, _request(USERS[user], key, number, place, broker, masked=masked))
                    lines.append((at, _wrapped(text, wrappers, at, f"kafka-{broker}"), key))
    requests = len(lines)
    lines.sort()
    texts = [text for _, text, _ in lines]
    whole, cut = False, set(QuotaKey)
    if damage == "cut":
        limit = random.randrange(60, max(map(len, texts)) + 40)
        cut = {key for _, text, key in lines if len(text) > limit and not _is_whole(text[:limit])}
        texts = [text[:limit] for text in texts]
    elif damage == "cut at all":
        texts = [text[: random.randrange(len(text))] if random.random() < 0.3 else text for text in texts]
    elif damage == "sampled":
        kept = random.choice([0.03, 0.06])
        texts = [text for text in texts if random.random() < kept]
    elif damage == "bursts":
        texts = [text for place, text in enumerate(texts) if place % 80 < 40]
    elif damage == "said":
        texts = [text for text in texts if random.random() < 0.9] + ["Suppressed 48 messages from kafka.service"]
    else:
        whole = True
    if damage == "pieces":
        texts = _pieces(texts, random)
    if random.random() < 0.3:  # what is no request
        texts.insert(
            random.randrange(len(texts) + 1), "[2026-05-04 10:20:00,000] INFO started (kafka.server.KafkaServer)"
        )
    if whole and damage == "" and random.random() < 0.3:
        texts += random.sample(texts, min(50, len(texts)))
    end = random.choice(["\n", "\n", "\r\n"])
    return Made(
        "".join(text + end for text in texts).encode(),
        brokers,
        whole,
        cut,
        requests,
        not masked or bool(SHOWS_POD & set(wrappers)),
        f"{brokers} brokers, {layout}, {wrappers}, {damage}, {masked=}",
    )


def _request(user: str, key: QuotaKey, number: int, place: int, broker: int, *, masked: bool) -> str:
    host = "INTERNAL_IP" if masked else f"10.0.1.{broker}:9092"
    partition = {**PARTITION, "recordsSizeInBytes": 400}
    found: dict[str, Any] = fields() if key is _BYTES else fetch([partition], request=asking((0, number)))
    found |= {"connection": f"{host}-10.0.0.2:{50000 + place}-0-{broker}", "principal": f"User:{user}"}
    found |= {"clientInformation": _JAVA}
    found["requestHeader"] |= {"correlationId": number, "clientId": f"app {place}"}
    return f"Completed request:{compact(found)}"


def _wrapped(text: str, wrappers: Sequence[str], at: datetime, pod: str) -> str:
    for level, wrapper in enumerate(wrappers, 1):
        text = WRAPPERS_OF_LARGE_SEEDS[wrapper](text, Around(at + timedelta(milliseconds=300 * level), pod))
    return text


def _pieces(texts: Sequence[str], random: Random) -> list[str]:
    """As containerd cuts lines."""
    size = random.randrange(200, 1200)
    found = []
    for text in texts:
        parts = [text[start : start + size] for start in range(0, len(text), size)]
        for part in parts:
            found.append(f"2026-05-04T10:22:00.000000000Z stdout {'F' if part is parts[-1] else 'P'} {part}")
    return found


def check(seed: int, folder: Path) -> str:
    """Reads a log that was made with that seed; raises AssertionError where something is wrongly said or not said."""
    log = made(Random(seed), sorted(WRAPPERS_OF_LARGE_SEEDS if seed >> 32 else WRAPPERS))
    (folder / "kafka-request.log").write_bytes(log.text)
    try:
        with patch.object(request_log, "is_worth", return_value=bool(seed % 2)):  # odd: the compiled reader reads
            result = _audit(folder)
    except InputError as error:
        told = error.message
        several, none = "lines of several brokers" in told, "can be read" in told
        # Of epoch ms behind the date of pieces, which is one for all, nobody knows that they are the time.
        at_once = "have one time" in told and ", pieces, " in log.how
        assert (several and log.brokers > 1) or (none and not log.whole) or at_once, f"{told}: {log.how}"
        return f"{log.how}: {told}"
    assert log.brokers == 1 or not log.named or not log.whole, f"several brokers are one: {log.how}"
    found = {(str(quota.entity.user), quota.key): quota.verdict for quota in result.quotas}
    for (user, key), (_, truth) in QUOTAS.items():
        verdict = found[USERS[user], key]
        if log.brokers > 1 or len(log.text.splitlines()) < 30:  # of so few requests nothing follows
            continue
        assert verdict in (truth, Verdict.UNDETERMINED), f"{user} is {verdict}: {log.how}"
        if log.whole:
            assert verdict is truth, f"{user} is no longer {truth} but {verdict}: {log.how}"
        elif truth is not Verdict.THROTTLED:
            assert verdict is Verdict.UNDETERMINED or key not in log.cut, f"{user} is {verdict}: {log.how}"
    if log.whole:
        assert result.quality.events == log.requests, log.how
    return log.how


def _audit(folder: Path) -> AuditResult:
    return local.audit(plan_splits([str(folder)], "auto"), AuditSettings(_HISTORY, read=ReadSettings()), "logs")
