"""Kafka's answers to sequences, in the format of the replay."""

from collections.abc import Iterator, Sequence
from typing import Any

from kquota.core.quotas.quota import format_number
from tests.differential.oracle import Oracle


def answered(oracle: Oracle, vectors: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The vectors with `expected` and `debug_readout` as Kafka's classes have them."""
    asked = (command for number, vector in enumerate(vectors) for command in commands(number, vector))
    answers = iter(oracle.ask(asked))
    return [{**vector, **_expected(vector, answers)} for vector in vectors]


def commands(number: int, vector: dict[str, Any]) -> Iterator[str]:
    """What to ask for one vector."""
    config, kind, t0 = vector["config"], vector["type"], vector["t0_ms"]
    windows = f"{config['window_num']} {config['window_size_s'] * 1000}"
    cap = config["window_size_s"] * 1000
    expires = int(config.get("sensor_expiry", False))
    if "+" in kind:
        yield f"new b{number} {windows} {_limit(config['byte_quota'])} - {expires}"
        yield f"new r{number} {windows} {_limit(config['request_quota'])} {cap} {expires}"
        for t, *fields in vector["events"]:
            yield f"{kind.split('+')[0]}2 b{number} r{number} {t0 + t} {' '.join(map(str, fields))}"
        return
    if kind.startswith("mutation"):
        yield f"bucket s{number} {windows} {_limit(config['quota'])} {expires}"
    else:
        yield f"new s{number} {windows} {_limit(config['quota'])} {cap if kind == 'request' else '-'} {expires}"
    changes = list(config.get("quota_changes", ()))
    for t, *fields in vector["events"]:
        while changes and changes[0][0] <= t:
            yield f"quota s{number} {_limit(changes.pop(0)[1])}"
        if kind.startswith("mutation"):
            topics, waited = fields[0], fields[1] if len(fields) > 1 else 0
            yield " ".join([kind.removeprefix("mutation_"), f"s{number}", *map(str, (t0 + t, waited, *topics))])
            continue
        command, amount = fields if kind == "request" else (kind, *fields)
        if command != "exempt":
            yield f"{command} s{number} {t0 + t} {amount}"


def _limit(limit: float | None) -> str:
    return "-" if limit is None else format_number(limit)


def _expected(vector: dict[str, Any], answers: Iterator[list[str]]) -> dict[str, Any]:
    kind = vector["type"]
    if "+" in kind:
        delays = [tuple(map(int, next(answers))) for _ in vector["events"]]
        bandwidth = kind.split("+")[0]
        return {
            "expected": {
                "bandwidth_throttle_ms": [bytes_ms for bytes_ms, _ in delays],
                "request_throttle_ms": [request_ms for _, request_ms in delays],
                "throttle_ms": [max(pair) for pair in delays],
                "throttled_by": [
                    None if max(pair) <= 0 else bandwidth if pair[0] > pair[1] else "request" for pair in delays
                ],
            }
        }
    if kind.startswith("mutation"):
        responses = [next(answers) for _ in vector["events"]]
        errors = [[None if error == "-" else int(error) for error in response[2:]] for response in responses]
        return {
            "expected": {
                "throttle_ms": [int(response[0]) for response in responses],
                "accepted": [[error is None for error in topics] for topics in errors],
                "error_throttle_ms": errors,
            },
            "debug_readout": {"tokens_after": [float(response[1]) for response in responses]},
        }
    checked = [kind != "request" or event[1] == "request" for event in vector["events"]]
    rows = [next(answers) if check else None for check in checked]
    return {
        "expected": {"throttle_ms": [row and int(row[0]) for row in rows]},
        "debug_readout": {
            "observed_rate": [row and float(row[1]) for row in rows],
            "window_ms": [row and int(row[2]) for row in rows],
        },
    }
