"""Regular expressions of files: as Python reads them, and in a time that is bounded."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.core.quotas.expression import Expression
from kquota.errors import InputError

atoms = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\d", r"\w", "é", r"\."])
expressions = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"({'|'.join(parts)})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "*?", "{2}", "{1,3}", "{2,}"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=6,
)  # fmt: skip


@given(expressions, st.lists(st.text("abé.1", max_size=6), min_size=1, max_size=5), st.sampled_from(["", "^", "(?i)"]))
def test_all_ways_at_once_are_pythons_ways(pattern: str, names: list[str], prefix: str) -> None:
    expression = Expression(prefix + pattern + ("$" if prefix == "^" else ""))
    for name in names:
        expected = re.fullmatch(expression.pattern, name) is not None
        assert expression.fullmatch(name) == expected
        assert expression._program.run(name) == expected


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+$", "(a|a)*b", "(a|aa)+$", "(.*)*x", "(a*)*b", "(?:a?){25}a{25}b", "a*a*a*a*a*a*b", "([a-z]+-?)+[0-9]",
        "(x+x+)+y", ".*.*.*.*.*=.*", "(?:(?:a{1,4}){1,4}){1,4}b", "|".join(["a*"] * 50) + "c",
    ],
)  # fmt: skip
def test_no_expression_hangs(pattern: str) -> None:
    """Those that take Python's engine ages, over names as long as Kafka takes them."""
    expression = Expression(pattern)
    started = time.process_time()
    for name in ("a" * 40 + "!", "a" * 2_000 + "!", "ab-" * 1_000):
        expression.fullmatch(name)
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("(", "not a regular expression"),
        ("[" * 500, "not a regular expression"),
        ("(a)\\1", "groupref"),
        ("a(?=b)", "assert"),
        (r"\bword", "borders of words"),
        ("(?:(?:a{100}){100}){100}", "states"),
        ("a{99999999999}", "not a regular expression"),
        ("a" * 2000, "2000 characters"),
    ],
)
def test_what_cannot_be_bounded_is_refused(pattern: str, says: str) -> None:
    with pytest.raises(InputError, match=re.escape(says)):
        Expression(pattern)
