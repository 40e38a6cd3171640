"""The formats of other tools: what `kquota export --format` writes and `kquota import --from` reads.

A module per format. `export(snapshot)` is in each; `read(name, text)` in each format that can be imported. What a
format cannot say is left out and named: nothing is lost in silence.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey, Value, check_value, format_number
from kquota.core.quotas.snapshot import Problem, QuotaSnapshot, Values
from kquota.errors import InputError

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
) -> tuple[QuotaSnapshot, list[Problem]]:
    """What a format can say of the quotas, and a problem for each entity or value that it cannot."""
    said: dict[Entity, Values] = {}
    unsaid: list[Problem] = []
    for entity, values in snapshot.items():
        reason = entity_rule(entity)
        if reason is not None:
            unsaid.append(Problem(str(entity), reason))
            continue
        reasons = {key: value_rule(key, value) for key, value in values.items()}
        unsaid.extend(Problem(f"{entity}: {key}", why) for key, why in reasons.items() if why is not None)
        said[entity] = {key: value for key, value in values.items() if reasons[key] is None}
    return QuotaSnapshot(said), unsaid


_TOOLS = tuple(
    (what, dialect, tuple(re.compile(sign, re.MULTILINE) for sign in signs))
    for what, dialect, *signs in (
        ("Strimzi's KafkaUser", "strimzi", r"""\bapiVersion["']?\s*:\s*["']?kafka\.strimzi\.io/"""),
        ("Jikkou's resource", "jikkou", r"""\bapiVersion["']?\s*:\s*["']?[\w.]*\bjikkou\.io/"""),
        ("Terraform's kafka_quota", "terraform", r"""^\s*resource\s+"?kafka_quota"?\s"""),
        ("another Terraform file", None, r"""^\s*(?:resource|module|variable|provider)\s+"[^"]*"[^{\n]*\{"""),
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


def refuse_others(name: object, text: str, dialect: str | None = None) -> None:
    """Raises InputError naming the tool for a text that is plainly another one's than the dialect's."""
    for what, its_dialect, signs in _TOOLS:
        if all(sign.search(text) for sign in signs):
            if its_dialect is None or its_dialect != dialect:
                known = its_dialect and f"kquota import --from {its_dialect} {name}"
                raise InputError(f"{name}: this is {what}", hint=known or "kquota does not read such files")
            return


def nothing_understood(problems: Sequence[Problem], otherwise: str) -> InputError:
    """The error where none of a text is the dialect's: to say "no quotas" would be an answer."""
    reason = f"{problems[0].where}: {problems[0].message}" if problems else otherwise
    return InputError(reason, hint="no quotas were found in the file" if problems else None)


def as_double(key: QuotaKey, value: Value) -> str | None:
    """The rule of tools that send every value as a double (AlterClientQuotas does), and of what kquota would read."""
    try:
        number = check_value(key, value)
    except InputError as error:
        return error.message.removeprefix(f"{key}: ")
    if key.value_type.integral and int(float(number)) != number:
        return f"{format_number(number)} has more digits than the double that the tool makes of it"
    return None
