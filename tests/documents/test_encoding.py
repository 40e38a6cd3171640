"""JSON as it is written: the standard library's text, a part at a time."""

import json
import math
from enum import IntEnum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kquota.documents.encoding import Each, json_parts, to_json, to_json_line, to_yaml


class Level(IntEnum):
    """A number of a type of its own, as levels are."""

    USER = 3


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(),
    st.just(Level.USER),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner), st.tuples(inner)),
    max_leaves=12,
)


def encoded(document: dict[str, Any]) -> str:
    """The standard library's text, with what could drive a terminal spelled out."""
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    return "".join(
        char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1].replace("\x7f", "\\u007f")
        for char in text
    )


@settings(max_examples=50)
@given(st.dictionaries(st.text(), VALUES, max_size=4))
def test_it_is_the_standard_librarys_json(document: dict[str, Any]) -> None:
    """Any document has the text that the standard library's encoder gives it."""
    assert to_json(document) == encoded(document) + "\n"


@pytest.mark.parametrize("value", [math.nan, math.inf, [math.nan], {"a": [{"b": -math.inf}]}, {1, 2}])
def test_what_json_has_not_is_refused(value: object) -> None:
    """Neither NaN, nor Infinity, nor a set is ever printed."""
    with pytest.raises(TypeError if isinstance(value, set) else ValueError, match="JSON"):
        to_json({"value": value})


def test_a_long_list_is_made_and_written_item_by_item() -> None:
    """When the first part is out, most of the items are not made yet; together the parts are the whole text."""
    made = []

    def make(number: int) -> dict[str, Any]:
        made.append(number)
        return {"number": number, "text": "x" * 1000}

    items = range(2000)
    parts = json_parts({"kind": "long", "items": Each(items, make), "end": 1})
    first = next(parts)

    assert len(made) < 1000
    assert first + "".join(parts) == to_json({"kind": "long", "items": [make(item) for item in items], "end": 1})


def test_every_format_has_the_items() -> None:
    """JSON on one line and YAML have the same list."""
    document = {"items": Each((1, 2), lambda number: {"number": number}), "none": Each((), lambda number: {})}
    expected = {"items": [{"number": 1}, {"number": 2}], "none": []}

    assert json.loads(to_json(document)) == json.loads(to_json_line(document)) == expected
    assert to_yaml(document) == to_yaml(expected)
