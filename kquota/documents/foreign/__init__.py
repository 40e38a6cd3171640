"""The formats of other tools: what `kquota export --format` writes and `kquota import --from` reads.

A module per format. `export(snapshot)` is in each; `read(name, text)` in each format that can be imported. What a
format cannot say is left out and named: nothing is lost in silence.
"""

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey, Value, check_value, format_number
from kquota.core.quotas.snapshot import Problem, QuotaSnapshot, Values
from kquota.documents.encoding import Document
from kquota.errors import InputError, placed

EntityRule: TypeAlias = Callable[[Entity], str | None]
"""Why an entity cannot be said, None where it can."""
ValueRule: TypeAlias = Callable[[QuotaKey, Value], str | None]


@dataclass(frozen=True)
class Exported:
    """A text in another tool's format, and what of the quotas is not in it."""

    text: str
    unsaid: tuple[Problem, ...] = ()


def divided(
    snapshot: QuotaSnapshot, entity_rule: EntityRule, value_rule: ValueRule
) -> tuple[QuotaSnapshot, tuple[Problem, ...]]:
    """What a format can say of the quotas, and a problem for each entity or value that it cannot."""
    quotas: dict[Entity, Values] = {}
    unsaid: list[Problem] = []
    for entity, values in snapshot.items():
        reason = entity_rule(entity)
        if reason is not None:
            unsaid.append(Problem(str(entity), reason))
            continue
        reasons = {key: value_rule(key, value) for key, value in values.items()}
        unsaid.extend(Problem(f"{entity}: {key}", why) for key, why in reasons.items() if why is not None)
        quotas[entity] = {key: value for key, value in values.items() if reasons[key] is None}
    return QuotaSnapshot(quotas), tuple(unsaid)


_LOG = "Kafka's request log"
_TOOLS = tuple(
    (what, dialect, tuple(re.compile(sign, re.MULTILINE) for sign in signs))
    for what, dialect, *signs in (
        (_LOG, None, r"""\bCompleted request ?:|["']requestHeader["']\s*:"""),
        ("Strimzi's KafkaUser", "strimzi", r"""\bapiVersion["']?\s*:\s*["']?kafka\.strimzi\.io/"""),
        ("Jikkou's resource", "jikkou", r"""\bapiVersion["']?\s*:\s*["']?[\w.]*\bjikkou\.io/"""),
        ("Terraform's kafka_quota", "terraform", r"""^\s*resource\s+"?kafka_quota"?\s"""),
        ("another Terraform file", None, r"""^\s*(?:resource|module|variable|provider)\s+"[^"]*"[^{\n]*\{"""),
        ("Terraform's state or plan", None, r"""(?:\A|[{,\n])\s*"(?:terraform_version|planned_values)"\s*:"""),
        ("an Ansible playbook's kafka_quotas", None, r"\bkafka_quotas?\s*:"),
        ("Julie's topology", None, r"""^\W*context["']?\s*:""", r"""\b(?:projects|platform)["']?\s*:"""),
        (
            "kafka-helmsman's quotas",
            None,
            r"""\bprincipal["']?\s*:""",
            r"\b(?:producer-byte-rate|consumer-byte-rate|client)",
        ),
        ("kcl's quotas", None, r"""\bentity_?type["']?\s*:""", r"""\b(?:entries|values)["']?\s*:"""),
        ("rpk's quotas", "rpk", r"""\bquotas["']?\s*:""", r"""\bentity["']?\s*:\s*(?:-|\[)""", r"""\bkey["']?\s*:"""),
        ("output of kafka-configs", "kafka-configs", r"^\s*(?:Quota configs|Configs) for .* are\b"),
        ("a script of kafka-configs", "kafka-configs", r"(?i)\bkafka[-_]configs\b.*--?alter\b"),
        ("an error message", None, r"""\A\s*\{\s*"(?:errors?|error_?code|message|code|status|statusCode)"\s*:"""),
    )
)
"""Tools whose files have quotas: what such a file is, its dialect where import reads it, and what is in its text."""


def tool_of(text: str) -> tuple[str, str | None] | None:
    """What a text plainly is, such as "rpk's quotas", and its dialect where import reads it; else None."""
    return next(((what, dialect) for what, dialect, signs in _TOOLS if all(sign.search(text) for sign in signs)), None)


def refuse_others(name: object, text: str, dialect: str | None = None) -> None:
    """Raises InputError naming the tool for a text that is plainly another one's than the dialect's."""
    what, its_dialect = tool_of(text) or ("", dialect)
    if what and (its_dialect is None or its_dialect != dialect):
        known = its_dialect and f"kquota import --from {its_dialect} {name}"
        known = f"kquota audit {name}" if what == _LOG else known
        raise InputError(f"{name}: this is {what}", hint=known or "kquota does not read such files")


class Unread(Exception):
    """Why a part of a text is no quota for kquota: it is another tool's, or known to that tool only."""


class Found:
    """What a reader has found in a text so far: quotas, and parts that are none."""

    def __init__(self) -> None:
        self.quotas: dict[Entity, dict[QuotaKey, Value]] = {}
        self.problems: list[Problem] = []

    @contextlib.contextmanager
    def at(self, place: str) -> Iterator[None]:
        """Makes a problem of an Unread, and puts the place in front of the message of an InputError."""
        try:
            with placed(place):
                yield
        except Unread as reason:
            self.problems.append(Problem(place, str(reason)))

    def add(self, entity: Entity, values: dict[QuotaKey, Value]) -> None:
        """Adds an entity. Raises InputError for one that is there already."""
        if entity in self.quotas:
            raise InputError(f"{entity} is given twice")
        self.quotas[entity] = values

    def snapshot(self, otherwise: str, *, understood: bool) -> QuotaSnapshot:
        """All of it. Raises InputError where none of the text was `understood`: "no quotas" would be an answer."""
        if not understood and not self.problems:
            raise InputError(otherwise)
        if not understood:
            first = self.problems[0]
            raise InputError(f"{first.where}: {first.message}", hint="no quotas were found in the file")
        return QuotaSnapshot(self.quotas, tuple(self.problems))


def resources(data: Document) -> list[tuple[tuple[str | int, ...], Document]]:
    """The resources of a document, as Kubernetes has them, each with its place: itself, or the items of a list."""
    items = data.get("items")
    return [((), data)] if items is None else [(("items", number), item) for number, item in enumerate(items)]


def stored_only(key: QuotaKey, value: Value) -> str | None:
    """The rule of kquota's own files: a cluster may hold what kquota does not write, such as 0."""
    try:
        check_value(key, value)
    except InputError as error:
        return error.message.removeprefix(f"{key}: ")
    return None


def as_double(key: QuotaKey, value: Value) -> str | None:
    """The rule of tools that send every value as a double (AlterClientQuotas does), and of what kquota would read."""
    reason = stored_only(key, value)
    if reason is None and key.value_type.integral and int(float(value)) != value:
        return f"{format_number(value)} has more digits than the double that the tool makes of it"
    return reason
