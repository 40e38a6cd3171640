"""What Kafka takes and nobody can mean: names that no client has, on which a quota would never do anything.

Values are checked where they are made (`kquota.core.quotas.quota.check_value`), and those checks have no exception. A
name is another matter: Kafka stores any, and a cluster may hold such a one on purpose.
"""

import re
from collections import defaultdict
from collections.abc import Iterable

from kquota.core.quotas.entity import DEFAULT, NEAR_PART, EntityType, Name, address, meant_type

USER_PREFIX = "User:"
"""What ACLs and logs put before the name of a user; quotas go by the name alone."""


def prefixed_user(entity_type: EntityType, name: Name) -> str | None:
    """The name of the user that is meant where one has the prefix of ACLs; None for every other name."""
    if entity_type is EntityType.USER and name is not DEFAULT and name.startswith(USER_PREFIX):
        return name.removeprefix(USER_PREFIX)
    return None


def is_literal_default(name: Name) -> bool:
    """Whether the name is the text `<default>`: the default entity itself has no name."""
    return name == DEFAULT.value


def misnomer(entity_type: EntityType, name: Name) -> str | None:
    """Why hardly any client goes by that name, and what was meant; None for a name like any other."""
    if is_literal_default(name):
        flag = f"--{entity_type.plural.removesuffix('s')}-defaults"
        return f"the name '{name}' is not the default entity: that is {flag}, or {entity_type.value}={name} as --entity"
    meant = prefixed_user(entity_type, name)
    if meant is not None:
        return f"quotas go by the principal's name alone, {meant!r}, without the '{USER_PREFIX}' of ACLs"
    return None


_ATTRIBUTE = re.compile(r"\s*(?:[A-Za-z][\w.-]*|\d+(?:\.\d+)*)\s*=")
_DEFAULT_WORDS = frozenset({"default", "<default>", "defaults", "{default}", "__default__"})
_QUOTES = ("''", '""')


def doubt(entity_type: EntityType, name: Name) -> str | None:
    """Why a name looks like a slip, in words; None for a name like any other. A distinguished name is none."""
    if name is DEFAULT or not name or is_literal_default(name):
        return None
    flag = f"--{entity_type.plural.removesuffix('s')}-defaults"
    if name != name.strip():
        return f"the name {name!r} begins or ends with a blank"
    if not name.isprintable():
        return f"the name {name!r} has an invisible character in it"
    # A wildcard certificate has a name such as *.example.com.
    if name == "*" or (entity_type is EntityType.USER and name.endswith("*")):
        return f"'*' is no wildcard in quotas: name each {entity_type.value}, or all of them by {flag}"
    if name.strip().lower() in _DEFAULT_WORDS:
        return f"the name {name!r} is not the default entity: that is {flag}"
    if re.fullmatch("(grand )?totals?|summe|gesamt(summe)?", name, re.IGNORECASE):
        return f"the name {name!r} looks like a row of totals in a table"
    if name[0] + name[-1] in _QUOTES and len(name) > 1:
        return f"the name {name!r} has its quotes in it"
    part = NEAR_PART.search(name)
    if part is not None:
        meant = meant_type(part["word"])
        return f"the name {name!r} seems to hold another part: that is {meant.value}=NAME of an entity of its own"
    if entity_type is EntityType.IP:
        return _doubtful_address(name)
    if re.search("[,;]", name) and not _ATTRIBUTE.match(name):
        return f"the name {name!r} looks like a list: give each name by itself"
    return None


def _doubtful_address(name: str) -> str | None:
    """Why no client connects from an ip of that name, or which address brokers make of it."""
    if re.fullmatch(r"[0-9A-Fa-f.:]+/[0-9]+", name):
        return f"{name!r} is a network, and quotas are for single addresses"
    if ":" not in name and (whole := address(name)) != name:
        return f"{name!r} is {whole} to brokers: write the whole address"
    parts = name.split(".")
    if len(parts) == 4 and all(part.isdecimal() for part in parts) and any(int(part) > 255 for part in parts):
        return f"{name!r} is no address: a part of it is above 255"
    return None


_WORD = re.compile(r"[^\W\d_]{4,}")
_SHORT = 4
"""Words of so many letters may lack one. Another letter is no slip in them, as in `prod` and `prop`: they are codes."""


def slips(names: Iterable[str]) -> dict[str, str]:
    """Names that are nearly one other name, by that name: a letter is missing, another one, elsewhere, or upper case.

    Digits count clients: the other name has the same digits, where there is one. A name of the larger family is no
    slip. Where three families are so alike, none has a slip.
    """
    families: dict[str, dict[str, str]] = defaultdict(dict)
    for name in names:
        parts = re.split(r"(\d+)", name)
        families["0".join(parts[::2])]["-".join(parts[1::2])] = name
    first: dict[str, str] = {}
    near: dict[str, set[str]] = defaultdict(set)
    # Words are near where they are the same without a letter: one look-up for each, as there may be thousands.
    for word in sorted({word for stem in families for word in _WORD.findall(stem)}):
        folded = word.casefold()
        places = range(len(folded) if len(folded) > _SHORT else 0)
        for form in (folded, *(folded[:at] + folded[at + 1 :] for at in places)):
            other = first.setdefault(form, word)
            if other is not word:
                near[word].add(other)
                near[other].add(word)
    alike: dict[str, set[str]] = defaultdict(set)
    for stem in families if near else ():
        for match in _WORD.finditer(stem):
            others = (stem[: match.start()] + word + stem[match.end() :] for word in near.get(match[0], ()))
            alike[stem].update(other for other in others if other in families)
    slip: dict[str, str] = {}
    for one, other in ((one, min(others)) for one, others in alike.items() if len(others) == 1):
        here, there = families[one], families[other]
        same = here.keys() & there.keys()
        if alike[other] == {one} and len(here) <= len(there):
            slip[here[min(same or here)]] = there[min(same or there)]
    return slip
