"""Lines of a request log with something changed: fields of another type, damage, other layouts."""

import json
from collections.abc import Iterator, Sequence
from copy import deepcopy
from random import Random
from typing import Any

from kquota.audit.sources.envelope import START

_START = START.encode()
_TEXTS = [
    "", "x", 'a"b', "a\\b", "größe", "日本", "a\tb", "\x7f", "\u2028", "a/b", "User:", ":", "User:a:b", "ann", "null",
    "unknown", "apache-kafka-java", "10.0.0.1:9092-10.0.0.2:50000-0-3", "::1:9092-fe80::1:5-1-2-3", "nonsense",
    *("x" * length for length in (31, 32, 33, 63, 64, 65, 127, 128, 200, 20000)), "PRODUCE", "FETCH", "SHARE_FETCH",
    "METADATA", "Produce", "X", "ALTER_PARTITION", "CREATE_TOPICS", "fetch",
]  # fmt: skip
_NUMBERS = [
    0, -1, 1, 5, 127, 128, 126, 16382, 16383, 16384, 2**31 - 1, 2**31, 2**40, 2**53 + 1, 10**17, 10**18, 2**63 - 1,
    2**63, 2**64, -(2**63), 10**30, 1.0, 0.0, 0.1, 1e-5, 1e7, 1.5e300, 123456789.123456789, 0.1234567890123456, 1e15,
    -0.0, -5.5, 2147483647.0, 2147483647.5,
]  # fmt: skip
_ANY: list[Any] = [
    *_TEXTS, *_NUMBERS, None, True, False, [], {}, [[]], [{}], [None], [1, 2], {"a": [1, {"b": None}]}, [{"a": 1}] * 2,
]  # fmt: skip
_APIS = [
    "PRODUCE", "FETCH", "SHARE_FETCH", "METADATA", "HEARTBEAT", "ALTER_PARTITION", "CREATE_TOPICS", "NEW_API",
    "END_TXN",
]  # fmt: skip
_TOPIC = [{"topic": "pears", "name": "pears"}, {"topicId": "KQAJ0mieSH-u0ivOtCN0AQ"}, {"topic": None}, {"topicId": ""}]
_TAGS = [
    {"abortedTransactions": [{"producerId": 1, "firstOffset": 2}] * 130},
    {"currentLeader": {"leaderId": 1, "leaderEpoch": 2}},
    {"records": None},
    {"abortedTransactions": None},
]
_REPLICAS = [
    {"replicaId": 2}, {"replicaId": -1}, {"replicaState": {"replicaId": 3}}, {"replicaState": None},
    {"replicaState": {}}, {"replicaState": {"replicaId": -1}}, {"replicaState": "x"},
]  # fmt: skip
_BITS = [
    b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b" ", b"0", b"-", b".", b"e", b"\\u0061", b"\xc3\xa9",
    b"\xff", b"\0", b"\r",
]  # fmt: skip
_DIGITS = [
    b"", b"00", b"01", b"1e5", b"1.5", b"-0", b"-1", b"12345678901234567890", b"9" * 18, b"9" * 19, b"NaN", b"5.0",
]  # fmt: skip
_LAYOUTS = [
    b"%s INFO %s", b"2026-01-01T00:00:00.123456789Z stdout F [%s] DEBUG Completed request:%s", b"no stamp %.0s%s",
    b"[%s] [2026-11-20 14:22:47,000] %s", b"%s456 DEBUG %s", b"[%s] DEBUG [b] Completed request:%s", b"%s+02:00 %s",
    b"%sZ %s", b"1%s %s", b"%.19s %s", b"%.19s,1 %s", b"%.19s,1234567890 %s", b'{"isForwarded" %s %s',
]  # fmt: skip
_ENDS = [b"\r\n", b"", b"}\n", b" }\n", b'"\n', b"\xff\n", b"{}\n", b"\0\n"]


def mutated(lines: Sequence[bytes], count: int, seed: int) -> Iterator[bytes]:
    """So many of them, each with a line end."""
    random = Random(seed)
    while count:
        line = random.choice(lines)
        try:
            changed = _fields(line, random) if random.random() < 0.6 else _bytes(line, random)
        except (KeyError, TypeError, AttributeError, IndexError, ValueError, RecursionError):
            continue
        yield changed.replace(b"\n", b" ") + b"\n"
        count -= 1


def _fields(line: bytes, random: Random) -> bytes:
    start = line.index(_START)
    fields = json.loads(line[start : line.rindex(b"}") + 1])
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        _change(fields, random)
    text = json.dumps(fields, separators=(",", ":"), ensure_ascii=random.random() < 0.3)
    return line[:start] + text.encode("utf-8", "surrogatepass") + b" (kafka.request.logger)"


def _paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from _paths(inner, (*at, key))


def _at(value: Any, path: Sequence[Any]) -> Any:
    for step in path:
        value = value[step]
    return value


def _change(fields: dict[str, Any], random: Random) -> None:
    paths = list(_paths(fields))
    path = random.choice(paths[1:])
    around = _at(fields, path[:-1])
    dicts = [value for value in (_at(fields, each) for each in paths) if isinstance(value, dict)]
    lists = [value for value in (_at(fields, each) for each in paths) if isinstance(value, list)]
    match random.randrange(10):
        case 0:
            around[path[-1]] = deepcopy(random.choice(_ANY))
        case 1:
            random.choice(dicts)[random.choice(["newField", "", "taggedFields", "records", "ä"])] = deepcopy(
                random.choice(_ANY)
            )
        case 2:
            chosen = random.choice(dicts)
            items = random.sample(list(chosen.items()), len(chosen))
            chosen.clear()
            chosen.update(items)
        case 3:
            del around[path[-1]]
        case 4:
            fields["requestHeader"]["requestApiVersion"] = random.choice([*range(-1, 22), 2**40])
            for topics in [value for value in lists if value and isinstance(value[0], dict)]:
                topics[0].update(random.choice(_TOPIC))
        case 5:
            fields["requestHeader"]["clientId"] = deepcopy(random.choice(_ANY))
            fields["principal"] = f"User:{random.choice(_TEXTS)}"
        case 6:
            around[path[-1]] = random.choice(_NUMBERS)
        case 7:
            some = random.choice(lists)
            some.extend(some[:1] * random.choice([1, 2, 126, 127, 200]))
        case 8:
            fields["requestHeader"]["requestApiKeyName"] = random.choice(_APIS)
            fields["throttleTimeMs"] = random.choice([0, 300])
        case _:
            fields["request"].update(deepcopy(random.choice(_REPLICAS)))
            for topic in fields["response"].get("responses") or ():
                for part in topic["partitions"]:
                    part.update(deepcopy(random.choice(_TAGS)))


def _bytes(line: bytes, random: Random) -> bytes:
    at, line = random.randrange(1, len(line)), line.rstrip(b"\n")
    to = at + random.randrange(200)
    start = max(line.find(_START), 0)
    match random.randrange(10):
        case 0:
            return line[:at]
        case 1:
            return line[:at] + bytes([random.randrange(256)]) + line[at + 1 :]
        case 2:
            return line[:at] + random.choice(_BITS) + line[at:]
        case 3:
            return line[:at] + line
        case 4:
            return line[:at] + line[to:]
        case 5:  # a key twice
            begin = line.index(b',"', at)
            end = line.index(b',"', begin + 1)
            return line[:end] + line[begin:end] + line[end:]
        case 6:
            bit = random.choice([b":", b",", b"{"])
            return line.replace(bit, bit + b" ")
        case 7:
            return random.choice(_LAYOUTS) % (line[1:24], line[start:])
        case 8:
            return line + random.choice(_ENDS)
        case _:
            places = [place for place in range(len(line)) if 48 <= line[place] <= 57]
            place = random.choice(places)
            return line[:place] + random.choice(_DIGITS) + line[place + 1 :]
