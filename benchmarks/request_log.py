"""Reading a JSON request log against the least that any reading needs: parsing the JSON of each line.

    python -m benchmarks.request_log [--lines 400000] [--repeat 5] [--processes 2]

The log is generated, the same in every run: lines like those of `tests/data/request_log`, with other clients, sizes and
times. The bare loop finds the object in a line and gives it to orjson; ours is the map side of the audit: read,
resolve, pack, dump. Each is one process per core over pieces of the same file, in turns; CPU seconds are what a noisy
machine leaves comparable, and count from when a process has started and imported.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

from kquota.audit import sources
from kquota.audit.batch import Batch, Tally
from kquota.audit.engines.portable import encode
from kquota.audit.ledger.charge import Charger
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import ReadSettings, Split, plan_splits
from kquota.core.change.history import QuotaHistory
from kquota.core.quotas.entity import DEFAULT, Entity
from kquota.core.quotas.quota import QuotaKey
from kquota.core.quotas.snapshot import QuotaSnapshot

QUOTAS = QuotaSnapshot(
    {
        Entity(user=DEFAULT): {QuotaKey.PRODUCER_BYTE_RATE: 200_000, QuotaKey.CONSUMER_BYTE_RATE: 200_000},
        **{Entity(user=f"user-{number}"): {QuotaKey.PRODUCER_BYTE_RATE: 50_000} for number in range(0, 200, 3)},
    }
)
_SHARES = {"PRODUCE": 0.56, "FETCH": 0.25, "LIST_OFFSETS": 0.18, "HEARTBEAT": 0.01}
"""Those of the recorded log."""
_START_S = 1_780_000_000
_SOFTWARE = {"softwareName": "confluent-kafka-python", "softwareVersion": "2.16.1-rdkafka-2.16.0"}


def write_log(path: Path, lines: int, *, seed: int = 5, users: int = 200) -> None:
    """Writes that many lines in Kafka's own layout, some 500 a second, of so many users."""
    random = Random(seed)
    with path.open("w", encoding="utf-8") as file:
        for number in range(lines):
            file.write(line(number, 1000 * _START_S + 2 * number, random, users))


def line(number: int, time_ms: int, random: Random, users: int = 200) -> str:
    """A line of a request of that time (epoch ms)."""
    (api,) = random.choices(list(_SHARES), list(_SHARES.values()))
    stamp = f"{datetime.fromtimestamp(time_ms // 1000, UTC):%Y-%m-%d %H:%M:%S},{time_ms % 1000:03}"
    text = json.dumps(_request(api, number, random, users), separators=(",", ":"))
    return f"[{stamp}] DEBUG Completed request:{text} (kafka.request.logger)\n"


def _request(api: str, number: int, random: Random, users: int) -> dict[str, Any]:
    user = random.randrange(users)
    size = int(random.lognormvariate(8.5, 1.0))
    partition = random.randrange(12)
    key, version, request, response = _body(api, size, partition, number)
    return {
        "isForwarded": False,
        "requestHeader": {
            "requestApiKey": key,
            "requestApiVersion": version,
            "correlationId": number,
            "clientId": f"app-{user % 50}",
            "requestApiKeyName": api,
        },
        "request": request,
        "response": response,
        "connection": f"10.0.0.1:9092-10.{user >> 8}.{user & 255}.7:{40000 + user}-{user % 3}-{user}",
        "totalTimeMs": random.randrange(200, 5000) / 1000,
        "requestQueueTimeMs": random.randrange(20, 400) / 1000,
        "localTimeMs": random.randrange(50, 900) / 1000,
        "remoteTimeMs": random.randrange(0, 3000) / 1000,
        "throttleTimeMs": random.choice((0, 0, 0, random.randrange(1, 1000))),
        "responseQueueTimeMs": random.randrange(10, 90) / 1000,
        "sendTimeMs": random.randrange(20, 300) / 1000,
        "securityProtocol": "SASL_SSL",
        "principal": f"User:user-{user}",
        "listener": "SASL_SSL",
        "clientInformation": _SOFTWARE,
    }


def _body(api: str, size: int, partition: int, offset: int) -> tuple[int, int, dict[str, Any], dict[str, Any]]:
    """(API key, version, request, response)."""
    topic = "r3IRhpJiTnOM9i0B4tRT5g"
    if api == "PRODUCE":
        data = [{"name": f"topic-{partition}", "partitionData": [{"index": partition, "recordsSizeInBytes": size}]}]
        answer: dict[str, Any] = {
            "index": partition,
            "errorCode": 0,
            "baseOffset": offset,
            "logAppendTimeMs": -1,
            "logStartOffset": 0,
        }
        answers = [
            {"name": f"topic-{partition}", "partitionResponses": [answer | {"recordErrors": [], "errorMessage": None}]}
        ]
        request: dict[str, Any] = {"transactionalId": None, "acks": -1, "timeoutMs": 30000, "topicData": data}
        return 0, 10, request, {"responses": answers, "throttleTimeMs": 0}
    if api == "FETCH":
        asked = {"partition": partition, "currentLeaderEpoch": 0, "fetchOffset": offset, "lastFetchedEpoch": -1}
        both = [asked | {"logStartOffset": -1, "partitionMaxBytes": 25000, "partition": index} for index in (0, 1)]
        wait = {"maxWaitMs": 500, "minBytes": 1, "maxBytes": 50000, "isolationLevel": 1, "sessionId": 0}
        got: dict[str, Any] = {
            "partitionIndex": partition,
            "errorCode": 0,
            "highWatermark": offset,
            "lastStableOffset": offset,
        }
        got |= {"logStartOffset": 0, "abortedTransactions": [], "preferredReadReplica": -1, "recordsSizeInBytes": size}
        return (
            1,
            16,
            wait | {"sessionEpoch": -1, "topics": [{"topicId": topic, "partitions": both}], "forgottenTopicsData": []},
            {
                "throttleTimeMs": 0,
                "errorCode": 0,
                "sessionId": 0,
                "responses": [{"topicId": topic, "partitions": [got]}],
            },
        )
    if api == "LIST_OFFSETS":
        where = [{"name": "metrics", "partitions": [{"partitionIndex": 0, "currentLeaderEpoch": -1, "timestamp": -2}]}]
        found = {"partitionIndex": 0, "errorCode": 0, "timestamp": -1, "offset": offset, "leaderEpoch": 0}
        answered = {"throttleTimeMs": 0, "topics": [{"name": "metrics", "partitions": [found]}]}
        return 2, 7, {"replicaId": -1, "isolationLevel": 1, "topics": where}, answered
    member = {"groupId": "g", "generationId": 1, "memberId": "m", "groupInstanceId": None}
    return 12, 4, member, {"throttleTimeMs": 0, "errorCode": 0}


def parse(splits: list[Split]) -> tuple[int, float]:
    """(lines, CPU seconds) of the bare loop."""
    from orjson import loads

    started, lines = time.process_time(), 0
    for split in splits:
        with open(split.path, "rb") as file:
            offset = split.start
            if offset:
                file.seek(offset - 1)
                offset += len(file.readline()) - 1
            for line in file:
                if offset >= split.end:
                    break
                loads(line[line.index(b'{"isForwarded"') : line.rindex(b"}") + 1])
                offset += len(line)
                lines += 1
    return lines, time.process_time() - started


def read(splits: list[Split]) -> tuple[int, float]:
    """(lines, CPU seconds) of the first half of the audit."""
    # Libraries and machine code are loaded before it counts, as orjson is.
    warm = Charger(AuditSettings(QuotaHistory.of(QUOTAS)))
    _charge(warm, [Split(split.dialect, split.path, 0, 1 << 20, rows=1 << 30) for split in splits[:1]])
    started = time.process_time()
    lines = _charge(Charger(AuditSettings(QuotaHistory.of(QUOTAS))), splits)
    return lines, time.process_time() - started


def _charge(charger: Charger, splits: list[Split]) -> int:
    tally = Tally()
    for number, split in enumerate(splits):
        for batch in sources.read(split, ReadSettings(broker="1"), tally):
            assert isinstance(batch, Batch)
            charger.charge(batch)
        for ledger in charger.take((number, 0)):
            for _, part in ledger.parted(8):
                encode(part)
    assert not tally.rejected
    return tally.events + tally.exempt


def measured(work: Callable[[list[Split]], tuple[int, float]], parts: list[list[Split]]) -> tuple[int, float]:
    """(lines, CPU seconds) of all processes."""
    with ProcessPoolExecutor(len(parts), get_context("spawn")) as pool:
        results = list(pool.map(work, parts))
    return sum(lines for lines, _ in results), sum(seconds for _, seconds in results)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.request_log", description=__doc__)
    parser.add_argument("--lines", type=int, default=400_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kafka-request.log"
        write_log(path, options.lines)
        print(f"{options.lines} lines, {path.stat().st_size / 2**20:.0f} MB, {options.processes} processes")
        splits = plan_splits([str(path)], "request-log")
        parts = [splits[number :: options.processes] for number in range(options.processes)]
        parts = [part for part in parts if part]
        ratios, rates = [], []
        for _ in range(options.repeat):
            (bare, bare_s), (ours, ours_s) = measured(parse, parts), measured(read, parts)
            assert bare == ours == options.lines
            bare_rate, our_rate, ratio = bare / bare_s, ours / ours_s, bare_s / ours_s
            rates.append((bare_rate, our_rate))
            ratios.append(ratio)
            print(f"lines per CPU second: bare loop {bare_rate:.0f}, read and charge {our_rate:.0f}, {ratio:.2f}")
        bare_rate, our_rate = (statistics.median(column) for column in zip(*rates, strict=True))
        ratio = statistics.median(ratios)
        print(f"median: {our_rate:.0f} of {bare_rate:.0f} lines per CPU second, {ratio:.2f} of the rate")


if __name__ == "__main__":
    main()
