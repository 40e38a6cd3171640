"""What the schemas have in common with each other, and with the types whose values the documents hold."""

import enum
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

from kquota.audit.run import Engine
from kquota.core import check
from kquota.core.change import broker, lint, plan, recording
from kquota.core.change.migration import Damage
from kquota.core.enforcement import Generation
from kquota.core.findings import finding, prediction, probe, recommendation, use, verdicts, whatif
from kquota.core.quotas.quota import QuotaKey
from kquota.core.tabular import members
from kquota.documents import journal
from kquota.probe.run import EndedBy
from kquota.recorder import Ended

SCHEMAS = {
    path.name.removesuffix(".schema.json"): json.loads(path.read_text(encoding="utf-8"))
    for path in (Path(__file__).parents[2] / "schemas").iterdir()
}


def words(kind: Any) -> frozenset[object]:
    """The words of an enumeration or of a Literal."""
    if not isinstance(kind, enum.EnumMeta):
        return frozenset(get_args(kind))
    members: list[Any] = list(kind)
    return frozenset(str(each) if isinstance(each, int) else each.value for each in members)


ENUMERATIONS: tuple[Any, ...] = (
    QuotaKey, Generation, Damage, EndedBy, check.State, plan.Action, plan.Severity, plan.Outcome, lint.Severity,
    broker.Source, journal.Command, prediction.Source, finding.Basis, verdicts.Verdict, whatif.Verdict, finding.State,
    finding.Under, use.State, probe.Probe, probe.Agreement, recommendation.Scope, recommendation.Change,
    recommendation.Basis,
)  # fmt: skip
TYPES: set[frozenset[object]] = {
    *map(words, ENUMERATIONS),
    frozenset(each.unit for each in probe.Probe),
    words(Engine) - {"auto"},
    words(whatif.Outcome) - {"as before"},
    words(Ended) | {"undo"},
    words(plan.Outcome) | {None},
    words(recording.Fate) | {None},
    words(QuotaKey) - {"controller_mutation_rate", "connection_creation_rate"},
    frozenset(each.name.replace("_", " ") for each in fields(plan.ApplyReport))
    - {"entry", "interrupted", "unfinished"},
    words(lint.Severity) - {"note"},
}
UNTYPED: list[frozenset[object]] = [
    frozenset({"NaN", "Infinity", "-Infinity"}),
    frozenset({"installation", "settings", "cluster"}),
    frozenset({"broker", "controller"}),
    frozenset({"option", "environment", "context", "default"}),
    frozenset({"open", "closed"}),
    frozenset({"even", "random"}),
    frozenset({0, 1, -1, "all"}),
    frozenset({"produce", "fetch", "other"}),
    frozenset({"bytes", "requests", "partitions", "connections"}),
    frozenset({"acks_0", "follower_fetch", "forwarded", "inter_broker"}),
    frozenset({"KafkaClientQuota", "KafkaClientQuotaList"}),
    frozenset({"USERS_DEFAULT", "USER", "USER_CLIENT", "USER_ALL_CLIENTS", "CLIENT", "CLIENTS_DEFAULT"}),
    frozenset(
        {"custom-callback", "empty-client-id", "kraft-mutations", "removed-quota", "sticky-state", "unlimited-value"}
    ),
]
"""Words that only one module writes, or another tool's."""


def enumerations(part: Any, place: str) -> Iterator[tuple[str, frozenset[object]]]:
    """(place, words) of each enumeration in a schema."""
    if isinstance(part, dict):
        if isinstance(part.get("enum"), list):
            yield place, frozenset(part["enum"])
        for name, each in part.items():
            yield from enumerations(each, f"{place}/{name}")
    elif isinstance(part, list):
        for each in part:
            yield from enumerations(each, place)


def test_the_words_of_the_schemas_are_those_of_the_types() -> None:
    """A new member of an enumeration is missing here until each schema that lists the members has it."""
    found = [each for name, schema in SCHEMAS.items() for each in enumerations(schema, name)]
    assert {place: sorted(map(str, some)) for place, some in found if some not in TYPES.union(UNTYPED)} == {}
    assert set(UNTYPED) <= {some for _, some in found}


def test_parts_of_one_name_are_the_same_in_all_schemas() -> None:
    """Schemas are published each by itself, so that what they share stands in each of them."""
    parts: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, schema in SCHEMAS.items():
        for part, rules in schema.get("$defs", {}).items():
            if part not in ("value", "values"):  # of documents that people write, and of ours
                parts[part][json.dumps(rules, sort_keys=True)].append(name)
    assert {part: [*some.values()] for part, some in parts.items() if len(some) > 1} == {}


def test_findings_have_the_members_that_their_declaration_names() -> None:
    described = SCHEMAS["audit"]["properties"]["findings"]["items"]["properties"]
    assert {*described} == {*members(finding.Finding), "recorded_under"}
    clients = described["clients"]["items"]["properties"]
    assert {*clients} == {*members(finding.Client), "user", "client-id", "ip"}
