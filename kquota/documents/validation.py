"""What is wrong with a document, mistake by mistake, each with its place. The only module that knows jsonschema."""

import difflib
import functools
import itertools
import json
import operator
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias

from kquota.core.quotas.entity import EntityType
from kquota.core.quotas.quota import QuotaKey
from kquota.errors import InputError

Step = str | int
MOST: Final = 20
"""More mistakes than these are counted only."""
_LONG: Final = 1_000
"""Items of a list from which on jsonschema, which is slow, is shown the first ones alone that do not fit."""
_LONGEST: Final = 200
"""Characters of a message: jsonschema repeats the value."""
_OF_QUOTAS: Final = {
    "kquota.quota-history": "audit, recommend and follow read it; here give a quotas file, as 'kquota describe -o yaml'"
    " writes",
    "kquota.plan": "'kquota apply PLAN --dry-run' shows it; here give the quotas file that it was made of",
}
"""What to do with a document that is about quotas, and no quotas file."""


class Mistake(NamedTuple):
    """Something wrong in a document: the keys and indexes that lead there, a message, and how to mend it."""

    steps: tuple[Step, ...]
    message: str
    hint: str | None = None


def refuse(where: object, data: object, mistakes: Iterable[Mistake], line: Callable[[Sequence[Step]], str]) -> NoReturn:
    """Raises InputError for the first mistake in the document, and names the next ones in `others`.

    `line` gives `, line N` for a place; `where` is the file.
    """
    ordered = sorted(mistakes, key=lambda mistake: _position(data, mistake.steps))
    texts: list[str] = []
    for steps, message, hint in ordered[:MOST]:
        text = f"{where}{line(steps)}: {_place(steps)}: {message}"
        texts.append(f"{text} ({hint})" if hint and texts else text)
    if len(ordered) > MOST:
        texts.append(f"{where}: and {len(ordered) - MOST} more mistakes")
    raise InputError(texts[0], hint=ordered[0].hint, others=texts[1:])


def mistakes(data: Mapping[str, Any], rules: Mapping[str, Any]) -> list[Mistake]:
    """Where a document does not fit its JSON Schema; of a list of thousands, the first items that do not.

    Raises RecursionError for a document that is nested too deep.
    """
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    # Without its name: jsonschema up to 4.17 looks for the schema's own parts under it, and fails for a URN.
    rules = {key: value for key, value in rules.items() if key != "$id"}
    wanted = rules.get("properties", {}).get("kind", {}).get("const")
    if wanted is not None and "kind" in data and data["kind"] != wanted:
        # Whatever else does not fit follows from that.
        hint = _OF_QUOTAS.get(str(data["kind"])) if wanted == "kquota.quotas" else None
        return [Mistake(("kind",), f"expected {wanted}, found {_kind(data['kind'])}", hint)]
    few, numbers = _suspects(data, rules)
    errors = itertools.islice(Draft202012Validator(rules).iter_errors(few), 10 * MOST)
    distinct = dict.fromkeys(mistake for error in errors for mistake in _explained(best_match(iter([error])), numbers))
    meant = {(mistake.steps[:-1], mistake.hint) for mistake in distinct}
    # A key that is nearly the one that is missing is one mistake.
    return [mistake for mistake in distinct if (mistake.steps, _did_you_mean(_missing(mistake))) not in meant]


def type_name(value: object) -> str:
    """The word of JSON for a type; the value itself is not shown, as it may be a secret in the wrong place."""
    return _NAMES.get(type(value)) or type(value).__name__


_NAMES: Final[Mapping[type, str]] = {
    dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null", int: "number", float: "number",
}  # fmt: skip


def _explained(problem: Any, numbers: Mapping[str, Sequence[int]]) -> Iterator[Mistake]:
    """The mistakes in one error of jsonschema; `numbers` are the indexes of the items that it was shown."""
    steps: list[Step] = list(problem.absolute_path)
    if len(steps) > 1 and steps[0] in numbers:
        steps[1] = numbers[str(steps[0])][int(steps[1])]
    if problem.validator == "additionalProperties":
        known = list(problem.schema.get("properties", {}))
        for key in problem.instance:
            if key not in known:
                yield Mistake((*steps, key), "unknown key", _meant(str(key), known))
        return
    message = problem.message if len(problem.message) <= _LONGEST else f"{problem.message[:_LONGEST]}…"
    hint = None
    if problem.validator == "required":
        properties = problem.schema.get("properties", {})
        missing = [name for name in problem.validator_value if name not in problem.instance]
        lines = [f"'{name}: {properties[name]['const']}'" for name in missing if "const" in properties.get(name, {})]
        if lines:
            message = f"{missing[0]!r} is a required property"
            hint = f"add {' and '.join(lines)}"
    elif problem.validator == "type":
        expected = problem.validator_value
        message = f"expected {_types(expected)}, found {type_name(problem.instance)}"
    elif problem.validator == "const":
        message = f"expected {json.dumps(problem.validator_value)}"
    elif problem.validator in ("oneOf", "anyOf") and all(cause.validator == "type" for cause in problem.context):
        wanted = dict.fromkeys(_form(cause) for cause in problem.context)
        message = f"expected {' or '.join(wanted)}, found {type_name(problem.instance)}"
    if problem.instance is None and steps[-2:-1] == ["values"] and re.match(r"\d", str(steps[-1])):
        hint = "a number has no commas: 1500000, or 1.5MB"  # a comma in braces begins another key
    yield Mistake(tuple(steps), message, hint)


def _types(expected: str | Sequence[str]) -> str:
    return expected if isinstance(expected, str) else " or ".join(expected)


def _form(problem: Any) -> str:
    """The type that is wanted; of an object with one fixed key that key too, as in `{default: true}`."""
    for name in problem.schema.get("required", ()):
        rule = problem.schema.get("properties", {}).get(name, {})
        if "const" in rule:
            return f"{{{name}: {json.dumps(rule['const'])}}}"
    return _types(problem.validator_value)


def _suspects(data: Mapping[str, Any], rules: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, list[int]]]:
    """The document with each long list cut down to some items that do not fit, and the indexes of these."""
    few, numbers, checks = dict(data), {}, Checks(rules)
    for name, part in data.items():
        rule = rules.get("properties", {}).get(name, {}).get("items")
        if isinstance(part, list) and len(part) > _LONG and rule is not None:
            check = checks.of(rule)
            wrong = (index for index, item in enumerate(part) if not check(item))
            numbers[name] = [*itertools.islice(wrong, MOST + 1)]
            few[name] = [part[index] for index in numbers[name]]
    return few, numbers


Check: TypeAlias = Callable[[Any], bool]


class Checks:
    """Makes checks of the parts of a schema: a yes or no, as jsonschema is slow and takes long to load."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._made: dict[int, Check] = {}

    def of(self, rules: Any) -> Check:
        """Whether a value fits these rules."""
        if isinstance(rules, bool):
            return lambda value: rules
        key = id(rules)
        if key not in self._made:
            self._made[key] = partial(self._later, key)  # for rules that lead back to themselves
            made = [self._keyword(keyword, rule, rules) for keyword, rule in rules.items()]
            checks = [check for check in made if check is not None]
            self._made[key] = checks[0] if len(checks) == 1 else partial(_every, checks)
        return self._made[key]

    def _later(self, key: int, value: Any) -> bool:
        return self._made[key](value)

    def _keyword(self, keyword: str, rule: Any, rules: Mapping[str, Any]) -> Check | None:
        if keyword in LIMITS:
            kind, holds = LIMITS[keyword]
            return lambda value: (kind and _NAMES.get(type(value)) != kind) or holds(value, rule)
        if keyword == "type":
            kinds = {rule} if isinstance(rule, str) else {*rule}
            whole = "integer" in kinds
            return lambda value: type_name(value) in kinds or (whole and _is_whole(value))
        if keyword == "$ref":
            return self.of(functools.reduce(operator.getitem, rule.removeprefix("#/").split("/"), self._schema))
        if keyword == "properties" or (keyword == "additionalProperties" and "properties" not in rules):
            named = {name: self.of(schema) for name, schema in rules.get("properties", {}).items()}
            others = self.of(rules.get("additionalProperties", True))
            return lambda value: (
                not isinstance(value, dict) or all(named.get(name, others)(part) for name, part in value.items())
            )
        if keyword in ("propertyNames", "items"):
            check, kind_of = self.of(rule), dict if keyword == "propertyNames" else list
            return lambda value: not isinstance(value, kind_of) or all(map(check, value))
        if keyword in ("oneOf", "anyOf"):
            ways, most = [*map(self.of, rule)], 1 if keyword == "oneOf" else len(rule)
            return lambda value: 1 <= sum([way(value) for way in ways]) <= most
        if keyword == "if":
            test, then, otherwise = self.of(rule), self.of(rules.get("then", True)), self.of(rules.get("else", True))
            return lambda value: (then if test(value) else otherwise)(value)
        return None


def _every(checks: Sequence[Check], value: Any) -> bool:
    for check in checks:  # noqa: SIM110 - all() makes a generator for each of a million values
        if not check(value):
            return False
    return True


def _is_whole(value: Any) -> bool:
    return type(value) is int or (type(value) is float and value.is_integer())


def _same(value: Any, rule: Any) -> bool:
    return bool(value == rule) and isinstance(value, bool) == isinstance(rule, bool)


LIMITS: Final[Mapping[str, tuple[str, Callable[[Any, Any], bool]]]] = {
    "const": ("", _same),
    "enum": ("", lambda value, rule: any(_same(value, choice) for choice in rule)),
    "required": ("object", lambda value, rule: all(name in value for name in rule)),
    "minProperties": ("object", lambda value, rule: len(value) >= rule),
    "minItems": ("array", lambda value, rule: len(value) >= rule),
    "maxItems": ("array", lambda value, rule: len(value) <= rule),
    "uniqueItems": ("array", lambda value, rule: len({*map(json.dumps, value)}) == len(value)),
    "minLength": ("string", lambda value, rule: len(value) >= rule),
    "maxLength": ("string", lambda value, rule: len(value) <= rule),
    "pattern": ("string", lambda value, rule: re.search(rule, value) is not None),
    "minimum": ("number", lambda value, rule: value >= rule),
    "maximum": ("number", lambda value, rule: value <= rule),
    "exclusiveMinimum": ("number", lambda value, rule: value > rule),
    "exclusiveMaximum": ("number", lambda value, rule: value < rule),
}
"""The type of value that a keyword is about, empty for any, and whether it holds."""


def _position(data: Any, steps: Iterable[Step]) -> tuple[int, ...]:
    """Where in the document that is, for sorting: the index at each level, also of a key."""
    position = []
    for step in steps:
        if isinstance(data, dict) and step in data:
            position.append([*data].index(step))
            data = data[step]
        elif isinstance(data, list) and isinstance(step, int) and step < len(data):
            position.append(step)
            data = data[step]
        else:
            break
    return tuple(position)


def _missing(mistake: Mistake) -> str:
    """The key that is said to be missing."""
    match = re.fullmatch(r"'(.*)' is a required property", mistake.message)
    return match[1] if match else ""


def _kind(kind: object) -> str:
    """The kind that a document says it is; another text may be anything, and is not shown."""
    is_kind = isinstance(kind, str) and re.fullmatch(r"kquota\.[a-z_-]{1,40}", kind)
    return str(kind) if is_kind else "another"


_WITHIN: Final = {
    **dict.fromkeys((kind.value for kind in EntityType), "entity"),
    **dict.fromkeys((key.value for key in QuotaKey), "values"),
}
"""Which key of an entry of quotas holds it: who begins writes both as flat keys."""


IN_ALL: Final = "how much in all is 'requests' of one 'size': size: 100kB, requests: 50000 are 5 GB"
"""How a client of a workload sends an amount."""


def _meant(word: str, known: Collection[str]) -> str:
    if word in ("total", "amount", "volume") and "requests" in known:
        return IN_ALL
    if _WITHIN.get(word) in known:
        return f"write {_WITHIN[word]}: {{{word}: …}}"
    return close_to(word, known) or f"keys: {', '.join(known)}"


def close_to(word: str, known: Collection[str]) -> str:
    """Whether the nearest of the known words is meant; empty where none is near."""
    close = difflib.get_close_matches(word, known, n=1)
    return _did_you_mean(close[0]) if close else ""


def _did_you_mean(word: str) -> str:
    return f"did you mean {word}?"


def _place(steps: Iterable[Step]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).lstrip(".") or "document"
