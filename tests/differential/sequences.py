"""Random event sequences of the kinds that tell implementations apart, as vectors of the replay's format.

Everything comes from the seed, so a failure is reproduced by its id.
"""

import random
from collections.abc import Iterator
from typing import Any

KINDS = ("produce", "fetch", "request", "produce+request", "fetch+request")
MUTATIONS = ("mutation_strict", "mutation_permissive")


def sequences(seed: int, events: int, length: tuple[int, int] = (40, 400)) -> Iterator[dict[str, Any]]:
    """Sequences with that many events in all (or a few more), without `expected`."""
    chance = random.Random(seed)
    made = 0
    while made < events:
        kind = KINDS[made % len(KINDS)]
        vector = sequence(chance, kind, chance.randint(*length))
        vector["id"] = f"{kind}-{seed}-{made}"
        made += len(vector["events"])
        yield vector


def mutations(seed: int, events: int, length: tuple[int, int] = (20, 100)) -> Iterator[dict[str, Any]]:
    """Sequences of controller mutations, strict and permissive, likewise."""
    chance = random.Random(seed)
    made = 0
    while made < events:
        kind = MUTATIONS[made % len(MUTATIONS)]
        vector = mutation(chance, kind, chance.randint(*length))
        vector["id"] = f"{kind}-{seed}-{made}"
        made += len(vector["events"])
        yield vector


HOUR_MS = 3_600_000
ODD_QUOTAS = (None, 0, -1, 0.001, 333.333, 1e15, float("nan"), float("inf"))
"""What ZooKeeper may hold is not always sensible."""
ODD_AMOUNTS = (0, 2**31, 2**53 + 1, 2**60)


def drawn(seed: int) -> dict[str, Any]:
    """One sequence of any kind and length, with what is rare in the others: idle hours, odd quotas, a young clock."""
    chance = random.Random(seed)
    vector = sequence(chance, chance.choice(KINDS), chance.choice((3, 40, 400, 2000)))
    config, events = vector["config"], vector["events"]
    vector["id"], config["sensor_expiry"] = f"drawn-{seed}", True
    if chance.random() < 0.2:
        config["window_size_s"] = chance.randint(1, 3600)
    if chance.random() < 0.3:
        config[chance.choice([name for name in config if name.endswith("quota")])] = chance.choice(ODD_QUOTAS)
    if chance.random() < 0.3:
        span_ms = 1000 * config["window_num"] * config["window_size_s"]
        idle_ms = chance.choice((HOUR_MS, HOUR_MS, span_ms, 3 * span_ms)) + chance.choice((-1, 0, 1))
        for event in events[chance.randrange(len(events)) :]:
            event[0] += idle_ms
    if chance.random() < 0.2:
        chance.choice(events)[2 if vector["type"] == "request" else 1] = chance.choice(ODD_AMOUNTS)
    if chance.random() < 0.2 and min(event[0] for event in events) >= 0:
        vector["t0_ms"] = chance.choice((0, 1))
    return vector


def drawn_mutation(seed: int) -> dict[str, Any]:
    """One sequence of controller mutations of any length."""
    chance = random.Random(seed)
    return {"id": f"drawn-{seed}", **mutation(chance, chance.choice(MUTATIONS), chance.choice((3, 40, 400)))}


def mutation(chance: random.Random, kind: str, count: int) -> dict[str, Any]:
    """One sequence of requests, with debts of minutes, hours and now and then more than 25 days."""
    samples = chance.choice((1, 2, 3, 10, 11, 11, 11, 100))
    seconds = chance.choice((1, 1, 1, 2, 10))
    quota = _mutation_quota(chance)
    burst = samples * seconds * (quota or 1)
    largest = max(2, int(burst * chance.choice((0.1, 0.5, 1, 1, 2, 20, 1000))))
    idle_hours = chance.random() < 0.4

    def partitions() -> int:
        return chance.choice((0, 1, 1, 3, int(burst), int(burst) + 1, chance.randint(1, largest)))

    events: list[list[Any]] = []
    now = 0
    for _ in range(count):
        event: list[Any] = [now, [partitions() for _ in range(chance.choice((0, 1, 1, 1, 2, 3, 6)))]]
        if chance.random() < 0.3:
            event.append(chance.choice((0, 1, 40, 500, 3000, 20_000, 10**6, 2**31)))
        events.append(event)
        match chance.randrange(12):
            case 0 | 1:
                now += 0
            case 2:
                now += samples * seconds * 1000 + chance.choice((-1, 0, 1))
            case 3 if idle_hours:
                now += 3_600_000 + chance.choice((-1, 0, 1, 50_000))
            case 4 if chance.random() < 0.1:
                now = max(now - chance.choice((1, 700)), 0)  # a clock that is set back
            case _:
                now += int(chance.expovariate(1 / (1000 * chance.choice((0.005, 1, seconds)))))
    config: dict[str, Any] = {"window_num": samples, "window_size_s": seconds}
    config["quota"] = chance.choice((quota, quota, quota, None))
    if idle_hours:
        config["sensor_expiry"] = chance.random() < 0.8
    if chance.random() < 0.4:
        at = sorted(chance.choice(events)[0] for _ in range(chance.randint(1, 5)))
        config["quota_changes"] = [[t, chance.choice((None, quota, _mutation_quota(chance)))] for t in at]
    # Kafka's bucket is full because the clock shows epoch ms; on one that starts at 0 it is not.
    t0 = chance.choice((0, 1_700_000_000_000, chance.randint(1_500_000_000_000, 1_800_000_000_000)))
    return {"type": kind, "t0_ms": t0, "config": config, "events": events}


def _mutation_quota(chance: random.Random) -> float:
    return chance.choice(
        (0, 0.001, 0.1, 0.5, 1, 5, 10, 25.681, 1 / 3, 2000, 10_000, round(chance.uniform(0.01, 99), 4))
    )


def sequence(chance: random.Random, kind: str, count: int) -> dict[str, Any]:
    """One sequence of a kind."""
    samples = chance.choice((1, 1, 2, 3, 5, 11, 11, 11, 11, 30))
    seconds = chance.choice((1, 1, 1, 2, 5, 10))
    times = list(_times(chance, samples, seconds, count))
    config: dict[str, Any] = {"window_num": samples, "window_size_s": seconds}
    byte_quota = _byte_quota(chance)
    request_quota = chance.choice((0, 0.01, 0.5, 1, 2, 10, 50, 200.0, round(chance.uniform(0.01, 100), 3)))
    span_s = max((max(times) - min(times)) / 1000, 1)
    bytes_mean = (byte_quota or 1) * span_s / count * chance.choice((0.5, 0.9, 1, 1, 1.2, 5))
    nanos_mean = (request_quota or 1) * 1e7 * span_s / count * chance.choice((0.5, 1, 1, 1.5, 5))

    def size() -> int:
        return min(_amount(chance, bytes_mean), 2**40)

    def nanos() -> int:
        return min(_amount(chance, nanos_mean), 2**45)

    match kind:
        case "produce" | "fetch":
            config["quota"] = chance.choice((byte_quota, byte_quota, byte_quota, None))
            events: list[Any] = [[t, size()] for t in times]
        case "request":
            config["quota"] = request_quota
            kinds = ("request", "request", "request", "network", "exempt")
            events = [[t, chance.choice(kinds), nanos()] for t in times]
        case "produce+request":
            config |= {"byte_quota": byte_quota, "request_quota": request_quota}
            events = [[t, size(), nanos(), chance.choice((0, 1, -1))] for t in times]
        case _:
            config |= {"byte_quota": byte_quota, "request_quota": request_quota}
            events = [[t, size(), nanos()] for t in times]
    if kind in ("produce", "fetch", "request") and chance.random() < 0.3:
        at = sorted(chance.choice(times) for _ in range(chance.randint(1, 4)))
        config["quota_changes"] = [[t, chance.choice((None, _byte_quota(chance)))] for t in at]
    return {
        "type": kind,
        "t0_ms": chance.randint(1_500_000_000_000, 1_800_000_000_000),
        "config": config,
        "events": events,
    }


def _byte_quota(chance: random.Random) -> float:
    return chance.choice((0, 1, 2, 10, 500, 1000, 65536, 10_000_000, 2**30, round(chance.uniform(1, 100_000), 5)))


def _amount(chance: random.Random, mean: float) -> int:
    match chance.randrange(10):
        case 0:
            return 0
        case 1:
            return int(mean * chance.choice((5, 20, 100)))
        case _:
            return int(chance.expovariate(1 / mean)) if mean > 0 else 0


def _times(chance: random.Random, samples: int, seconds: int, count: int) -> Iterator[int]:
    """Offsets: dense, sparse, with exact window edges and silences around N windows; some from a clock set back."""
    window = seconds * 1000
    pace = chance.choice((1, 5, 50, 300, 1100)) * seconds
    set_back = chance.random() < 0.1
    now = 0
    for _ in range(count):
        yield now
        if set_back and chance.random() < 0.05:
            now -= chance.choice((1, 20, window, 3 * window + 7))
            continue
        match chance.randrange(20):
            case 0:
                now += window
            case 1:
                now += samples * window + chance.choice((-1, 0, 1))
            case 2:
                now += chance.randint(0, 3 * samples * window)
            case 3 | 4:
                now += 0
            case _:
                now += chance.randint(0, 2 * pace)
