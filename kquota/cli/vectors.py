"""`kquota simulate --events` of a file of vectors: sequences of one counter with Kafka's own answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kquota.cli.views import Csv, Document, Note, Part, Table, View


def replayed(document: Mapping[str, Any]) -> View:
    """Replays every sequence: what came of it, beside what the file expects."""
    from kquota.core.enforcement import Mode, kernel
    from kquota.core.enforcement.vectors import (
        REPLAYS,
        RESOLUTION,
        Mismatch,
        compare,
        compare_resolution,
        generation_of,
        outcome_of,
        type_of,
    )
    from kquota.errors import InputError

    using = kernel(Mode.PLAIN)
    try:
        generation = generation_of(document)
    except ValueError:
        raise InputError(f"unknown algorithm {document['algorithm']!r}") from None
    rows: list[tuple[str, str, int, Mapping[str, Any], object]] = []
    for number, vector in enumerate(document["vectors"]):
        name = vector.get("id", f"vectors[{number}]")
        try:
            kind = type_of(vector)
            if kind == RESOLUTION:
                rows.append((name, kind, len(vector["cases"]), {}, compare_resolution(vector, generation, using)))
                continue
            if kind not in REPLAYS:
                raise InputError(f"unknown type {kind!r}", hint=f"there are {', '.join([*REPLAYS, RESOLUTION])}")
            outcome = outcome_of(vector, generation, using)
            difference = compare(vector, generation, using) if "expected" in vector else None
        except (KeyError, TypeError, ValueError, Mismatch) as error:
            raise InputError(f"{name}: cannot be replayed: {type(error).__name__}: {error}") from None
        rows.append((name, kind, len(vector["events"]), outcome, difference))
    equal = sum(difference is None for *_, difference in rows)

    def replay() -> Document:
        return {
            "kind": "kquota.replay",
            "version": 1,
            "generation": generation.value,
            "vectors": [
                {
                    "id": name,
                    "type": kind,
                    "events": events,
                    "equal": difference is None,
                    "difference": None if difference is None else str(difference),
                    "outcome": dict(outcome),
                }
                for name, kind, events, outcome, difference in rows
            ],
        }

    cells = [
        (name, kind, events, *_throttled(outcome), "equal" if difference is None else str(difference))
        for name, kind, events, outcome, difference in rows
    ]

    def screen() -> Iterator[Part]:
        from kquota.cli.text import Column, duration

        columns = [
            Column("VECTOR", style="bold"),
            Column("TYPE", style="cyan", whole=True, spare=2),
            Column("EVENTS", number=True, spare=1),
            Column("DELAYED", number=True),
            Column("THROTTLE TIME", number=True),
            Column("KAFKA'S ANSWERS"),
        ]
        yield Table(columns, [(*cell[:4], duration(cell[4]), cell[5]) for cell in cells])
        yield Note(f"{equal} of {len(rows)} equal")

    headings = ("id", "type", "events", "throttled", "throttle_ms", "answer")
    return View(screen=screen, document=replay, csv=lambda: Csv(headings, cells))


def _throttled(outcome: Mapping[str, Any]) -> tuple[int, int]:
    """(how many events were delayed or rejected with a delay, the sum of the delays)."""
    columns = ("throttle_ms",) if "throttle_ms" in outcome else ("delay_ms", "ip_throttle_ms")
    delays = [delay for column in columns for delay in outcome.get(column, ()) if delay is not None and delay > 0]
    return len(delays), sum(delays)
