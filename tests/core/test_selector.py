"""Regular expressions of files, as Python reads them, and shell patterns of people."""

import re

import pytest

from kquota import DEFAULT, Entity, InputError
from kquota.core.quotas.selector import NamePatterns, expression


def test_an_expression_matches_whole_names() -> None:
    assert expression("team-[ab]-.*").fullmatch("team-a-etl")
    assert not expression("team-[ab]").fullmatch("team-a-etl")
    assert expression(r"(a)\1|\bword").fullmatch("aa")
    assert expression("a") == expression("a") != expression("b")


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
        expression(pattern)


ALICE = Entity(user="team-a-alice")
PAIR = Entity(user="bob", client_id="team-a-etl")
IP = Entity(ip="10.1.0.7")


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        ((), (True, True, True, True)),
        (("team-a-*",), (True, True, False, False)),
        (("TEAM-A-*",), (False, False, False, False)),
        (("user=team-a-*",), (True, False, False, False)),
        (("client-id=*",), (False, True, False, False)),
        (("10.1.*", "bob"), (False, True, True, False)),
        (("team-?-[a-c]lice",), (True, False, False, False)),
        (("*",), (True, True, True, False)),
        (("<default>",), (False, False, False, False)),
    ],
)
def test_which_entities_match(patterns: tuple[str, ...], expected: tuple[bool, ...]) -> None:
    """A default has no name."""
    match = NamePatterns(patterns)
    assert tuple(map(match.matches, (ALICE, PAIR, IP, Entity(user=DEFAULT)))) == expected


def test_names_with_odd_characters() -> None:
    """A line end is a character as any other, and an equals sign is no type."""
    assert NamePatterns(("a*b",)).matches(Entity(user="a\nb"))
    assert NamePatterns(("CN=*",)).matches(Entity(user="CN=alice,O=acme"))
