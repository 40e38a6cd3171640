"""The part of schemas/audit.schema.json that follows from the declaration of a finding.

A member that the schema lacks gets the type of its field or property; people may add a description, which stays. A
member that no finding has any more goes.
"""

import enum
import json
from pathlib import Path
from typing import Any, get_args, get_type_hints

from kquota.core.findings.finding import Finding
from kquota.core.tabular import members

PATH = Path(__file__).resolve().parents[1] / "schemas" / "audit.schema.json"
_BESIDE = ("recorded_under",)
"""What the document of an audit adds to a finding."""
_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number"}


def audit_schema() -> str:
    """The schema with all members of a finding, and no others."""
    schema = json.loads(PATH.read_text(encoding="utf-8"))
    part = schema["properties"]["findings"]["items"]
    known, wanted = part["properties"], [*members(Finding), *_BESIDE]
    missing = [name for name in wanted if name not in known]
    part["properties"] = {name: rules for name, rules in known.items() if name in wanted}
    part["properties"] |= {name: _rules(name) for name in missing}
    part["required"] = [name for name in part["required"] if name in wanted] + missing
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _rules(name: str) -> dict[str, Any]:
    made: Any = getattr(Finding, name)
    hint = get_type_hints(made.fget)["return"] if isinstance(made, property) else get_type_hints(Finding)[name]
    kinds = get_args(hint) or (hint,)
    (kind,) = (part for part in kinds if part is not type(None))
    if issubclass(kind, enum.Enum):
        values = [member.value for member in kind]
        return {"enum": values if len(kinds) == 1 else [*values, None]}
    return {"type": _TYPES[kind] if len(kinds) == 1 else [_TYPES[kind], "null"]}
