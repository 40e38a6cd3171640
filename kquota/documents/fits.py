"""Whether a document fits a JSON Schema, and no more: a schema becomes functions, far faster than jsonschema.

jsonschema explains what does not fit. A keyword that is not known here fits nothing, so that jsonschema decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Fits = Callable[[Any], bool]

_NOTES = {"$schema", "$id", "$defs", "$comment", "title", "description", "examples", "default", "format"}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_TYPES: dict[str, Fits] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": _is_number,
    "integer": lambda value: _is_number(value) and (isinstance(value, int) or value.is_integer()),
}


def compiled(schema: Mapping[str, Any]) -> Fits:
    """A function that says whether a value fits for sure: what it refuses may fit all the same."""
    known: dict[str, Fits] = {}

    def make(rules: Any) -> Fits:
        if isinstance(rules, bool):
            return lambda value: rules
        checks: list[Fits] = []
        for keyword, rule in rules.items():
            if keyword in _NOTES or keyword in ("additionalProperties", "then", "else"):
                continue
            checks.append(keyword_check(keyword, rule, rules))
        if "additionalProperties" in rules and "properties" not in rules:
            checks.append(properties({}, rules))
        if len(checks) == 1:
            return checks[0]
        return _every(checks)

    def reference(name: str) -> Fits:
        def check(value: Any) -> bool:
            if name not in known:
                part: Any = schema
                for step in name.removeprefix("#").strip("/").split("/"):
                    part = part[step] if step else part
                known[name] = make(part)
            return known[name](value)

        return check

    def properties(named: Mapping[str, Any], rules: Mapping[str, Any]) -> Fits:
        if "patternProperties" in rules:
            return _unknown
        checks = {name: make(rule) for name, rule in named.items()}
        others = make(rules.get("additionalProperties", True))

        def check(value: Any) -> bool:
            if not isinstance(value, dict):
                return True
            for name, part in value.items():
                if not isinstance(name, str) or not checks.get(name, others)(part):
                    return False
            return True

        return check

    def keyword_check(keyword: str, rule: Any, rules: Mapping[str, Any]) -> Fits:
        match keyword:
            case "$ref":
                return reference(rule) if rule.startswith("#/") else _unknown
            case "type":
                kinds = [_TYPES[kind] for kind in ([rule] if isinstance(rule, str) else rule)]
                return kinds[0] if len(kinds) == 1 else lambda value: any(kind(value) for kind in kinds)
            case "const":
                return lambda value: type(value) is type(rule) and value == rule
            case "enum":
                return lambda value: any(type(value) is type(each) and value == each for each in rule)
            case "required":
                needed = frozenset(rule)
                return lambda value: not isinstance(value, dict) or value.keys() >= needed
            case "properties":
                return properties(rule, rules)
            case "propertyNames":
                name_fits = make(rule)
                return lambda value: not isinstance(value, dict) or all(map(name_fits, value))
            case "items":
                item_fits = make(rule)
                return lambda value: not isinstance(value, list) or all(map(item_fits, value))
            case "oneOf":
                ones = [make(each) for each in rule]
                # A doubt about one of them is a doubt about how many fit.
                return _unknown if any(map(_doubtful, rule)) else lambda value: _exactly_one(ones, value)
            case "anyOf":
                some = [make(each) for each in rule]
                return lambda value: any(each(value) for each in some)
            case "allOf":
                every = [make(each) for each in rule]
                return _every(every)
            case "minLength":
                return lambda value: not isinstance(value, str) or len(value) >= rule
            case "maxLength":
                return lambda value: not isinstance(value, str) or len(value) <= rule
            case "minItems":
                return lambda value: not isinstance(value, list) or len(value) >= rule
            case "maxItems":
                return lambda value: not isinstance(value, list) or len(value) <= rule
            case "minProperties":
                return lambda value: not isinstance(value, dict) or len(value) >= rule
            case "maxProperties":
                return lambda value: not isinstance(value, dict) or len(value) <= rule
            case "minimum":
                return lambda value: not _is_number(value) or value >= rule
            case "maximum":
                return lambda value: not _is_number(value) or value <= rule
            case "exclusiveMinimum":
                return lambda value: not _is_number(value) or value > rule
            case "exclusiveMaximum":
                return lambda value: not _is_number(value) or value < rule
            case "pattern":
                pattern = re.compile(rule)
                return lambda value: not isinstance(value, str) or pattern.search(value) is not None
        return _unknown

    def _doubtful(rules: Any) -> bool:
        """Whether a part is not understood: that it does not fit would be no more than a guess."""
        if not isinstance(rules, dict):
            return False
        if rules.get("$ref", "#/").startswith("#/") and "$ref" in rules:
            part: Any = schema
            for step in rules["$ref"].removeprefix("#").strip("/").split("/"):
                part = part[step] if step else part
            return _doubtful(part)
        return bool(rules.keys() - _KNOWN)

    return make(schema)


_KNOWN = _NOTES | {
    "type", "const", "enum", "required", "properties", "additionalProperties", "minLength", "maxLength", "minimum",
    "maximum", "exclusiveMinimum", "exclusiveMaximum", "pattern", "$ref", "minProperties", "maxProperties",
}  # fmt: skip


def _every(checks: list[Fits]) -> Fits:
    def check(value: Any) -> bool:
        for each in checks:  # noqa: SIM110 - all() makes a generator for each of a million values
            if not each(value):
                return False
        return True

    return check


def _exactly_one(checks: list[Fits], value: Any) -> bool:
    found = 0
    for each in checks:
        found += each(value)
    return found == 1


def _unknown(value: Any) -> bool:
    return False
