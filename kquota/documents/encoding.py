"""Documents as text: JSON and YAML, read and written. The only module that knows the YAML library."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from kquota.errors import InputError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

Document: TypeAlias = dict[str, Any]


def to_json(document: Mapping[str, Any]) -> str:
    """Indented JSON, ending in a newline; raises ValueError rather than print NaN or Infinity, which JSON has not."""
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def to_json_line(document: Mapping[str, Any]) -> str:
    """JSON on one line, without its newline; raises ValueError as `to_json` does."""
    return json.dumps(document, ensure_ascii=False, allow_nan=False)


def to_yaml(document: Mapping[str, Any]) -> str:
    """Block-style YAML 1.2 in the document's own key order."""
    import io

    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.default_flow_style = False
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.width = 120
    out = io.StringIO()
    yaml.dump(dict(document), out)
    return out.getvalue()


def read_document(path: Path, schema_name: str) -> Document:
    """Reads a JSON or YAML file and holds it against its schema.

    Raises InputError, naming the file and where there is one the line or the place in the document.
    """
    text = read_text(path)
    data = _parse(path, text)
    _validate(path, text, data, schema_name)
    return data


def write_text(path: Path, text: str, *, mode: int | None = None) -> None:
    """Writes a file, whole or not at all, with those permissions (else for its owner only).

    Raises InputError when it cannot be written.
    """
    import tempfile

    temporary: Path | None = None
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", newline="", dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as file:
            temporary = Path(file.name)
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def read_text(path: Path) -> str:
    """The file's text. Raises InputError when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except IsADirectoryError:
        raise InputError(f"{path}: is a directory, not a file") from None
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None


def _parse(path: Path, text: str) -> Document:
    # YAML 1.2 contains JSON, but the JSON parser is a hundred times faster and its errors fit JSON.
    data = _parse_json(path, text) if text.lstrip().startswith("{") else _parse_yaml(path, text)
    if not isinstance(data, dict):
        raise InputError(f"{path}: expected a mapping at the top, found {type(data).__name__}")
    return data


def _parse_json(path: Path, text: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise InputError(f"{path}: {twice!r} is given twice")
        return result

    try:
        return json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        try:  # flow-style YAML also starts with a brace
            return _parse_yaml(path, text)
        except InputError:
            raise InputError(f"{path}, line {error.lineno}: {error.msg}") from None


def _parse_yaml(path: Path, text: str) -> Any:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        return YAML(typ="safe").load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark else ""
        raise InputError(f"{path}{line}: {error.problem or error.context}") from None
    except YAMLError as error:
        raise InputError(f"{path}: {str(error).splitlines()[0]}") from None


def entry_lines(path: Path, name: str) -> tuple[int, ...]:
    """The lines, from 1, at which the entries of the document's list of that name begin."""
    from ruamel.yaml import YAML

    root = YAML(pure=True).compose(read_text(path))
    lists = [value for key, value in root.value if key.value == name]
    return tuple(item.start_mark.line + 1 for value in lists for item in value.value)


def _schemas() -> Traversable:
    """The folder of the schemas: inside the package where it is installed, beside it in a checkout."""
    from importlib.resources import files

    inside = files("kquota.documents") / "schemas"
    return inside if inside.is_dir() else Path(__file__).resolve().parents[2] / "schemas"


def schema_names() -> tuple[str, ...]:
    """The names of all schemas."""
    names = (file.name for file in _schemas().iterdir())
    return tuple(sorted(name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)))


_SUFFIX = ".schema.json"


@lru_cache
def schema(name: str) -> Document:
    """The JSON Schema of that name."""
    loaded: Document = json.loads((_schemas() / f"{name}{_SUFFIX}").read_text(encoding="utf-8"))
    return loaded


def _validate(path: Path, text: str, data: Document, schema_name: str) -> None:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    # Without its name: jsonschema up to 4.17 looks for the schema's own parts under it, and fails for a URN.
    rules = {key: value for key, value in schema(schema_name).items() if key != "$id"}
    problem = best_match(Draft202012Validator(rules).iter_errors(data))
    if problem is None:
        return
    steps = list(problem.absolute_path)
    message, hint = problem.message if len(problem.message) <= 200 else f"{problem.message[:200]}…", None
    if problem.validator == "additionalProperties":
        known = list(problem.schema["properties"])
        steps.append(next(key for key in problem.instance if key not in known))
        message, hint = "unknown key", _meant(str(steps[-1]), known)
    elif problem.validator == "type":
        message = f"expected {problem.validator_value}, found {_type_name(problem.instance)}"
    raise InputError(f"{path}{line_of(text, steps)}: {_place(steps)}: {message}", hint=hint)


def _meant(word: str, known: Sequence[str]) -> str:
    import difflib

    close = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {close[0]}?" if close else f"keys: {', '.join(known)}"


def _type_name(value: object) -> str:
    """What JSON calls it; the value itself is not shown, as it may be a secret in the wrong place."""
    names = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}
    return names.get(type(value), "number" if isinstance(value, int | float) else type(value).__name__)


def _place(steps: Iterable[str | int]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).lstrip(".") or "document"


def line_of(text: str, steps: Iterable[object]) -> str:
    """`, line N` of the place that keys and indexes lead to in a YAML or JSON text; nothing where the text is none."""
    from ruamel.yaml import YAML, MappingNode, SequenceNode
    from ruamel.yaml.error import YAMLError

    try:
        node = YAML(typ="safe", pure=True).compose(text)
    except YAMLError:
        return ""
    mark = node.start_mark
    for step in steps:
        if isinstance(node, SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
            mark = node.start_mark
        elif isinstance(node, MappingNode):
            key, node = next(((key, value) for key, value in node.value if key.value == str(step)), (None, None))
            if key is None:
                break
            mark = key.start_mark
    return f", line {mark.line + 1}"


def replaced_scalar(path: Path, text: str, key: str, value: str) -> str:
    """The text of a YAML or JSON mapping with one of its top-level keys set to a text; all else stays as it is written.

    Raises InputError where that cannot be done without touching more.
    """
    from ruamel.yaml import YAML

    root = YAML(typ="safe", pure=True).compose(text)
    before = _parse(path, text)
    quoted = value if _PLAIN.match(value) and value.lower() not in _NOT_TEXT else json.dumps(value, ensure_ascii=False)
    for name, node in root.value:
        if name.value == key:
            start, end, new = (
                node.start_mark.index,
                node.end_mark.index,
                json.dumps(value) if root.flow_style else quoted,
            )
            break
    else:
        start = end = root.start_mark.index + bool(root.flow_style)
        indent = "\n" + " " * root.start_mark.column
        new = f"{json.dumps(key)}: {json.dumps(value)}, " if root.flow_style else f"{key}: {quoted}{indent}"
    edited = text[:start] + new + text[end:]
    try:
        unchanged = _parse(path, edited) == {**before, key: value}
    except InputError:
        unchanged = False
    if not unchanged:
        raise InputError(
            f"{path}: {key} cannot be set without rewriting the file", hint=f"write {key}: {value} into it"
        )
    return edited


_PLAIN = re.compile(r"[A-Za-z_][\w.-]*\Z", re.ASCII)
_NOT_TEXT = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
