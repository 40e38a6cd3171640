"""Regular expressions of files, as Python reads them."""

import re

import pytest

from kquota.core.quotas.selector import Expression
from kquota.errors import InputError


def test_an_expression_matches_whole_names() -> None:
    assert Expression("team-[ab]-.*").fullmatch("team-a-etl")
    assert not Expression("team-[ab]").fullmatch("team-a-etl")
    assert Expression(r"(a)\1|\bword").fullmatch("aa")
    assert Expression("a") == Expression("a") != Expression("b")


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("(", "not a regular expression"),
        ("[" * 500, "not a regular expression"),
        ("a{99999999999}", "not a regular expression"),
        ("a" * 2000, "2000 characters"),
    ],
)
def test_a_malformed_or_long_expression_is_refused(pattern: str, says: str) -> None:
    with pytest.raises(InputError, match=re.escape(says)):
        Expression(pattern)
