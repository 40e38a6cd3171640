"""Random pairs: `python -m tools.accuracy.pairs.drawn SEED --out FOLDER`.

Clients, rates and quotas are drawn by the seed. They run on a real broker three times: without quotas (`none`), and
under two sets of random quotas (`a` and `b`). Each recording is audited under the quotas of the others, and the verdict
is held against what the clients really met. A folder that has recordings already is only measured. The log does not
say which of a client's quotas throttled it, so clients count, and not counters: `two` are clients with two quotas.
"""

import argparse
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from kquota.audit.sources.event import UsageEvent
from kquota.core.quotas.entity import DEFAULT, Entity
from kquota.core.quotas.quota import QuotaKey, Value
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.documents.encoding import to_json
from kquota.documents.quotas import quotas_document
from tools.accuracy.pairs import record
from tools.accuracy.pairs.measure import Mutation, Recording, audit
from tools.accuracy.pairs.workload import CLIENTS, FETCH, JAVA, LIBRDKAFKA, MUTATION, PRODUCE, REQUEST, Client

_RUNS = ("none", "a", "b")
_HEADER = 110
"""Bytes of a request beside its records, about."""


def _between(draw: Random, least: float, most: float) -> float:
    """As often within each factor."""
    return math.exp(draw.uniform(math.log(least), math.log(most)))


def workload(draw: Random) -> list[tuple[Client, QuotaKey, float]]:
    """The clients, with the key and about the rate of what each does. Topics and names are those of the fixed pairs."""
    fixed = {client.name: client for client in CLIENTS}
    drawn: list[tuple[Client, QuotaKey, float]] = []

    def paced(name: str, library: str, user: str, topic: str) -> float:
        per_s, size = round(_between(draw, 4, 50)), round(_between(draw, 80, 8000))
        settings = {"linger.ms": draw.choice(["0", "5", "20", "100"]), "acks": draw.choice(["1", "all"])}
        if draw.random() < 0.3:
            settings["compression.type"] = draw.choice(["gzip", "lz4", "zstd"])
        options = {"topic": topic, "per_s": per_s, "size": size}
        drawn.append((Client(name, library, user, "paced", options, settings), PRODUCE, per_s * (size + _HEADER)))
        return drawn[-1][2]

    const = paced("const", LIBRDKAFKA, "alice", "const")
    for number in range(8):
        library, user = ((LIBRDKAFKA, "alice"), (JAVA, "carol"))[number % 2]
        paced(f"p{number}", library, user, "load")
    for name, rate in (("burst", 25_000), ("txn", 20_000), ("loop", 200_000), ("jloop", 60_000), ("job", 80_000)):
        drawn.append((fixed[name], PRODUCE, rate))
    drawn.extend((fixed[name], PRODUCE, 20_000) for name in ("shared-a", "shared-b"))
    feed = 16 * (2_000 + _HEADER)
    drawn.extend((fixed[name], FETCH, feed) for name in ("fresh", "freshok", "jfresh"))
    drawn.extend((fixed[name], FETCH, feed / 2) for name in ("team-a", "team-b"))
    drawn += [(fixed["coupled"], FETCH, const), (fixed["jback"], FETCH, 500_000), (fixed["jpaced"], FETCH, 120_000)]
    drawn += [(fixed["poll"], REQUEST, 0.4), (fixed["mut"], MUTATION, 2), (fixed["jmut"], MUTATION, 2)]
    return drawn


def quotas(draw: Random, clients: Sequence[tuple[Client, QuotaKey, float]]) -> QuotaSnapshot:
    """Limits from a third of the rates to more than them: of clients or of users, or a default of all."""
    found: dict[Entity, dict[QuotaKey, Value]] = {}

    def limit(key: QuotaKey, rate: float) -> Value:
        near = rate * _between(draw, 0.3, 1.6)
        return max(round(near), 300) if key in (PRODUCE, FETCH) else max(round(near, 3), 0.02)

    by_user: dict[tuple[str, QuotaKey], float] = defaultdict(float)
    for client, key, rate in clients:
        by_user[client.user, key] += rate
    of_all = (Entity(user=DEFAULT), Entity(client_id=DEFAULT), Entity(DEFAULT, DEFAULT))
    match draw.choice(("clients", "users", "default")):
        case "users":
            for (user, key), rate in by_user.items():
                found.setdefault(Entity(user=user), {})[key] = limit(key, rate)
        case "default":
            found[draw.choice(of_all)] = {PRODUCE: limit(PRODUCE, 40_000), FETCH: limit(FETCH, 40_000)}
            found[Entity(user="grace")] = {PRODUCE: 10**9}  # who fills the topics, before the quotas are set too
        case _:
            for client, key, rate in clients:
                if draw.random() < 0.85:
                    entity = Entity(client_id=client.id) if draw.random() < 0.6 else Entity(client.user, client.id)
                    found[entity] = {key: limit(key, rate)}
                    if draw.random() < 0.35:
                        found[entity][REQUEST] = limit(REQUEST, 0.4)
    return QuotaSnapshot(found)


def run(seed: int, folder: Path) -> None:
    """Makes the recordings."""
    draw = Random(seed)
    clients = workload(draw)
    sets = {"none": QuotaSnapshot({}), **{name: quotas(draw, clients) for name in _RUNS[1:]}}
    feeders = [client for client in CLIENTS if client.name in ("feed", "feed4")]
    folder.mkdir(parents=True, exist_ok=True)
    with patch.object(record, "CLIENTS", (*feeders, *(client for client, _, _ in clients))):
        for name, wanted in sets.items():
            path = folder / f"{name}.json"
            path.write_text(to_json(quotas_document(wanted)), encoding="utf-8")
            record.main(["--quotas", str(path), "--out", str(folder / name), "--seconds", "40", "--until", "110"])


def throttle_times(recording: Recording, sensor: str) -> list[int]:
    """What the broker answered to the clients behind a sensor, ms."""
    user, _, client_id = sensor.partition(":")
    answered: list[UsageEvent | Mutation] = [*recording.mutations]
    answered += [event for events in recording.events.values() for event in events if not event.exemption]
    return [
        each.throttle_ms or 0
        for each in answered
        if each.time_ms >= recording.started_ms and user in ("", each.user) and client_id in ("", each.client_id)
    ]


def verdict_of(findings: Sequence[Mapping[str, Any]]) -> str:
    """What an audit says of the clients behind a sensor: the gravest verdict of their counters."""
    said = {(finding.get("predicted") or finding)["verdict"] for finding in findings}
    return next(verdict for verdict in ("throttled", "undetermined", "not throttled") if verdict in said)


def measure(folder: Path) -> Counter[tuple[str, ...]]:
    """How often which verdict met what; prints those that are wrong."""
    runs = {name: Recording(folder / name) for name in _RUNS}
    counts: Counter[tuple[str, ...]] = Counter()
    for before, after in ((before, after) for before in _RUNS for after in _RUNS[1:] if before != after):
        by_sensor: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        for finding in audit(runs[before], runs[after].quotas, runs[before].quotas)["findings"]:
            by_sensor[finding["sensor"]].append(finding)
        for sensor, findings in by_sensor.items():
            times, said = throttle_times(runs[after], sensor), verdict_of(findings)
            met = "throttled" if sum(times) else "not throttled"
            counts["raising" if before != "none" else "lowering", "two" if len(findings) > 1 else "one", said, met] += 1
            if said not in (met, "undetermined"):
                print(f"{before} to {after}: {sensor} is {said}, and met {sum(times)} ms", *findings, sep="\n  ")
    return counts


def main(argv: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.accuracy.pairs.drawn", description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--out", type=Path, required=True, help="folder of the recordings")
    options = parser.parse_args(argv)
    if not (options.out / _RUNS[-1] / "facts.json").exists():
        run(options.seed, options.out)
    for kind, count in sorted(measure(options.out).items()):
        print(*kind, count)
    return 0


if __name__ == "__main__":
    sys.exit(main())
