"""Rows, read by the fast loop, against entries, read field by field: on whole frames and on broken ones."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from kquota.backends import wire
from kquota.backends.kafka.quotas import read_rows
from kquota.core.quotas.entity import DEFAULT, Entity
from kquota.core.quotas.quota import QuotaKey

# Where lengths get a second byte, texts that look like lengths, and what Kafka really sends.
texts = st.one_of(
    st.sampled_from(["", "\x01", "\0", "\x05user", "x" * 125, "x" * 126, "x" * 127, "x" * 128, "\x01" * 143, "日本😀"]),
    st.text(max_size=8),
)
types = st.sampled_from(["user", "client-id", "ip"]) | texts
keys = st.sampled_from([key.value for key in QuotaKey]) | texts
entities = st.lists(st.builds(wire.EntityData, types, st.none() | texts), max_size=3)
doubles = st.sampled_from([1.0, 1024.5]) | st.floats(allow_nan=False)
values = st.lists(st.builds(wire.ValueData, keys, doubles), max_size=3)
# Entities have values of each other, as in a real answer.
entries = st.lists(values, min_size=1, max_size=3).flatmap(
    lambda some: st.lists(st.builds(wire.QuotaEntry, entities, st.sampled_from(some) | values), max_size=8)
)
answers = st.builds(wire.DescribeClientQuotasResponse, st.just(0), st.integers(0, 99), st.none(), st.none() | entries)


def as_rows(entries: Any) -> list[wire.Row]:
    return [
        (tuple(part.entity_type for part in entity), tuple(part.entity_name for part in entity), tuple(values))
        for entity, values in entries
    ]


def outcome(kind: Any, version: int, frame: bytes) -> object:
    """What a frame is read as, entries as rows; or what is wrong with it."""
    try:
        correlation_id, answer = wire.decode_response(kind, version, frame)
    except wire.FrameError as error:
        return str(error)
    rows = answer[3] if answer[3] is None or kind is wire.DescribedRows else as_rows(answer[3])
    # repr, because a NaN is no other's equal
    return (
        correlation_id,
        answer[:3],
        repr(rows if rows is None else [(*row[:2], [*map(tuple, row[2])]) for row in rows]),
    )


def both(version: int, frame: bytes) -> None:
    expected = outcome(wire.DescribeClientQuotasResponse, version, frame)
    assert outcome(wire.DescribedRows, version, frame) == expected


@given(answers, st.integers(0, 1))
def test_rows_are_the_entries(answer: wire.DescribeClientQuotasResponse, version: int) -> None:
    frame = wire.encode_response(answer, version, 7)
    both(version, frame)
    rows = None if answer.entries is None else as_rows(answer.entries)
    assert wire.encode_response(wire.DescribedRows(*answer[:3], rows), version, 7) == frame


@given(answers, st.data())
def test_a_broken_frame_has_the_same_error(answer: wire.DescribeClientQuotasResponse, data: st.DataObject) -> None:
    """Cut off anywhere, and with any byte replaced: tagged fields, nulls, other lengths, texts that are not UTF-8."""
    frame = wire.encode_response(answer, 1, 7)
    for end in range(len(frame)):
        both(1, frame[:end])
    for _ in range(20):
        at = data.draw(st.integers(0, len(frame) - 1))
        byte = data.draw(st.sampled_from([0, 1, 2, 3, 5, 0x7F, 0x80, 0x81, 0xFF]) | st.integers(0, 255))
        both(1, frame[:at] + bytes([byte]) + frame[at + 1 :])


@given(st.binary(max_size=80))
def test_any_bytes(data: bytes) -> None:
    both(1, bytes.fromhex("00000007 00  00000000 0000 00") + data)


def test_tagged_fields_are_read_past() -> None:
    """In a part, in a value and in an entry, also where the loop has read the same before."""
    plain = "02 05 75736572 03 6161 00  02 02 6b 3ff0000000000000 00  00"
    tagged = (
        "02 05 75736572 03 6262 01 05 01 ff  02 02 6b 3ff0000000000000 00  00",
        "02 05 75736572 03 6363 00  02 02 6b 3ff0000000000000 01 05 01 ff  00",
        "02 05 75736572 03 6464 00  02 02 6b 3ff0000000000000 00  01 05 01 ff",
    )
    frame = bytes.fromhex("00000007 00  00000000 0000 00  06" + plain + "".join(tagged) + plain + "00")
    both(1, frame)
    _, answer = wire.decode_response(wire.DescribedRows, 1, frame)
    assert [names for _, names, _ in answer.rows or ()] == [("aa",), ("bb",), ("cc",), ("dd",), ("aa",)]


rows = st.lists(
    st.tuples(st.sampled_from(["user", "client-id", "ip", "group"]), st.none() | texts), min_size=1, max_size=2
).flatmap(lambda parts: st.tuples(st.just(tuple(zip(*parts, strict=True))), values.map(tuple)))


@given(st.lists(rows, max_size=6))
@example(
    [((("user",), ("",)), (("producer_byte_rate", 1.0),)), ((("user",), (None,)), (("producer_byte_rate", math.nan),))]
)
def test_entities_of_rows_are_checked_ones(drawn: list[Any]) -> None:
    """None that its own constructor would refuse; what is shared among rows is what each has alone."""
    rows: list[wire.Row] = [(types, names, values) for (types, names), values in drawn]
    stored = read_rows(rows)
    for entity, values in stored.values.items():
        assert Entity(*entity) == entity
        assert type(entity) is Entity
        parts = {kind.value: name for kind, name in entity.parts}
        alone = [
            read_rows([(types, names, held)]).values
            for types, names, held in rows
            if {kind: DEFAULT if name is None else name for kind, name in zip(types, names, strict=True)} == parts
        ]
        assert repr(alone[-1][entity]) == repr(values)
