"""Documents as text: JSON and YAML, read and written. The only module that knows the YAML library."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from kquota.errors import InputError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

Document: TypeAlias = dict[str, Any]


def to_json(document: Mapping[str, Any]) -> str:
    """Indented JSON, ending in a newline; raises ValueError rather than print NaN or Infinity, which JSON has not."""
    return _spelled_out(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)) + "\n"


def to_json_line(document: Mapping[str, Any]) -> str:
    """JSON on one line, without its newline; raises ValueError as `to_json` does."""
    return _spelled_out(json.dumps(document, ensure_ascii=False, allow_nan=False))


def _spelled_out(text: str) -> str:
    """JSON whose strings hold nothing that could drive a terminal or reverse its lines: an escape says the same.

    The standard library does so up to U+001F; C1 controls, directions, line separators and halves of pairs are left.
    """
    return text if text.isascii() and "\x7f" not in text else _NOT_ASCII.sub(_json_escape, text)


_NOT_ASCII = re.compile("[^\x00-\x7e]")


def _json_escape(match: re.Match[str]) -> str:
    return match[0] if match[0].isprintable() else json.dumps(match[0])[1:-1].replace("\x7f", "\\u007f")


def to_yaml(document: Mapping[str, Any]) -> str:
    """Block-style YAML 1.2 in the document's own key order; nothing in it drives a terminal (see `quoted`)."""
    from ruamel.yaml import YAML
    from ruamel.yaml.representer import RoundTripRepresenter

    class Representer(RoundTripRepresenter):
        """A text that is not printable stands between quotation marks, where escapes are known."""

    def represent(representer: Representer, text: str) -> Any:
        style = None if text.isprintable() else '"'
        return representer.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Representer.add_representer(str, represent)
    yaml = YAML()
    yaml.Representer = Representer
    yaml.default_flow_style = False
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.width = 120
    out = io.StringIO()
    yaml.dump(dict(document), out)
    # The library takes some for printable that are not seen, or turn a line round.
    return "\n".join(_UNPRINTABLE.sub(_escaped, line) for line in out.getvalue().split("\n"))


def quoted(text: str) -> str:
    """The text between quotation marks, as YAML 1.1 and 1.2 read it, and HCL: what is not printable is escaped."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{_UNPRINTABLE.sub(_escaped, escaped)}"'


# What YAML calls printable, but without what ends a line somewhere, changes its direction or is not seen at all.
_UNPRINTABLE = re.compile(r"[^\x20-\x7e]")


def _escaped(match: re.Match[str]) -> str:
    char = match[0]
    if char.isprintable():
        return char
    return f"\\u{ord(char):04x}" if char <= "\uffff" else f"\\U{ord(char):08x}"


def to_flow(value: Any) -> str:
    """A scalar, or a mapping of such in YAML's flow style: `{user: alice, client-id: {default: true}}`."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{to_flow(key)}: {to_flow(part)}" for key, part in value.items()) + "}"
    if isinstance(value, str):
        plain = _PLAIN_FLOW.match(value) and value.lower() not in _NOT_TEXT
        return value if plain else quoted(value)
    return json.dumps(value)


def read_document(path: Path, schema_name: str) -> Document:
    """Reads a JSON or YAML file and holds it against its schema.

    Raises InputError, naming the file and where there is one the line or the place in the document.
    """
    text = read_text(path)
    data = parse(path, text)
    _validate(path, data, schema_name, lambda steps: line_of(text, steps))
    return data


def write_text(path: Path, text: str, *, mode: int | None = None) -> None:
    """Writes a file, whole or not at all, with those permissions; else with those it has, or for its owner only.

    Raises InputError when it cannot be written.
    """
    import tempfile

    temporary: Path | None = None
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", newline="", dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as file:
            temporary = Path(file.name)
            if mode is None and path.exists():
                mode = path.stat().st_mode & 0o7777
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
    return io.StringIO(read_raw_text(path), newline=None).read()


@lru_cache(maxsize=1)
def _standard_input() -> bytes:
    """What is piped in, kept because errors read it again to name a line."""
    return sys.stdin.buffer.read()


def read_raw_text(path: Path) -> str:
    """The file's text with the line ends that it has; `-` is standard input.

    Raises InputError when it cannot be read.
    """
    try:
        return (_standard_input() if str(path) == "-" else path.read_bytes()).decode("utf-8")
    except IsADirectoryError:
        raise InputError(f"{path}: is a directory, not a file") from None
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None


def parse(path: Path, text: str) -> Document:
    """The mapping in a JSON or YAML text. Raises InputError naming the line."""
    # YAML 1.2 contains JSON, but the JSON parser is a hundred times faster and its errors fit JSON.
    data = _parse_json(path, text) if text.lstrip().startswith("{") else _parse_yaml(path, text)
    if not isinstance(data, dict):
        found = "nothing" if data is None else _type_name(data)
        raise InputError(f"{path}: expected a mapping at the top, found {found}")
    return data


def _parse_json(path: object, text: str) -> Any:
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


def _parse_yaml(path: object, text: str) -> Any:
    from ruamel.yaml import YAML
    from ruamel.yaml.constructor import SafeConstructor

    class Constructor(SafeConstructor):
        """A time is text, as in JSON."""

    Constructor.add_constructor("tag:yaml.org,2002:timestamp", SafeConstructor.construct_yaml_str)
    yaml = YAML(typ="safe")
    yaml.Constructor = Constructor
    with _yaml_errors(path):
        return yaml.load(text)


@contextlib.contextmanager
def _yaml_errors(path: object) -> Iterator[None]:
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        yield
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark else ""
        raise InputError(f"{path}{line}: {error.problem or error.context}") from None
    except YAMLError as error:
        raise InputError(f"{path}: {str(error).splitlines()[0]}") from None


@dataclass(frozen=True)
class Located:
    """A document of a stream, which knows where each part of it is written."""

    name: str
    data: Document
    _line: Callable[[Sequence[object]], str]

    def place(self, steps: Sequence[object]) -> str:
        """`FILE, line N` of what keys and indexes lead to."""
        return self.name + self._line(steps)

    @contextlib.contextmanager
    def at(self, steps: Sequence[object]) -> Iterator[None]:
        """Puts the place in front of an InputError's message."""
        try:
            yield
        except InputError as error:
            raise type(error)(f"{self.place(steps)}: {error.message}", hint=error.hint) from None

    def validate(self, schema_name: str) -> None:
        """Raises InputError naming the place when the document does not fit its schema."""
        _validate(self.name, self.data, schema_name, self._line)


def parsed_documents(name: str, text: str) -> list[Located]:
    """The mappings of a YAML stream, or the one of a JSON text; empty documents are left out.

    Raises InputError naming the line.
    """
    from ruamel.yaml import YAML

    located: list[tuple[Any, Callable[[Sequence[object]], str]]]
    if text.lstrip().startswith("{"):
        located = [(_parse_json(name, text), lambda steps: line_of(text, steps))]
    else:
        with _yaml_errors(name):
            roots = [*YAML(typ="safe", pure=True).compose_all(text)]
            loaded = [*YAML(typ="safe", pure=True).load_all(text)]
        located = [(data, partial(_line_in, root)) for data, root in zip(loaded, roots, strict=True)]
    documents = []
    for data, line in located:
        if isinstance(data, dict):
            documents.append(Located(name, data, line))
        elif data is not None:
            raise InputError(f"{name}{line(())}: expected a mapping, found {_type_name(data)}")
    return documents


def entry_lines(path: Path, name: str) -> tuple[int, ...]:
    """The lines, from 1, at which the entries of the document's list of that name begin."""
    from ruamel.yaml import YAML

    root = YAML(pure=True).compose(read_text(path))
    lists = [value for key, value in root.value if key.value == name]
    return tuple(item.start_mark.line + 1 for value in lists for item in value.value)


def schemas_folder() -> Traversable:
    """The folder of the schemas: inside the package where it is installed, beside it in a checkout."""
    from importlib.resources import files

    inside = files("kquota.documents") / "schemas"
    return inside if inside.is_dir() else Path(__file__).resolve().parents[2] / "schemas"


def schema_names() -> tuple[str, ...]:
    """The names of all schemas."""
    names = (file.name for file in schemas_folder().iterdir())
    return tuple(sorted(name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)))


_SUFFIX = ".schema.json"


@lru_cache
def schema(name: str) -> Document:
    """The JSON Schema of that name."""
    loaded: Document = json.loads((schemas_folder() / f"{name}{_SUFFIX}").read_text(encoding="utf-8"))
    return loaded


def _validate(path: object, data: Document, schema_name: str, line: Callable[[Sequence[object]], str]) -> None:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    # Without its name: jsonschema up to 4.17 looks for the schema's own parts under it, and fails for a URN.
    rules = {key: value for key, value in schema(schema_name).items() if key != "$id"}
    wanted = rules.get("properties", {}).get("kind", {}).get("const")
    if wanted is not None and "kind" in data and data["kind"] != wanted:
        # Whatever else does not fit follows from that.
        raise InputError(f"{path}{line(['kind'])}: kind: expected {wanted}, found {_kind(data['kind'])}")
    problem = best_match(Draft202012Validator(rules).iter_errors(data))
    if problem is None:
        return
    steps = list(problem.absolute_path)
    message, hint = problem.message if len(problem.message) <= 200 else f"{problem.message[:200]}…", None
    if problem.validator == "additionalProperties":
        known = list(problem.schema["properties"])
        steps.append(next(key for key in problem.instance if key not in known))
        message, hint = "unknown key", _meant(str(steps[-1]), known)
    elif problem.validator == "required":
        properties = problem.schema.get("properties", {})
        missing = [name for name in problem.validator_value if name not in problem.instance]
        lines = [f"'{name}: {properties[name]['const']}'" for name in missing if "const" in properties.get(name, {})]
        hint = f"add {' and '.join(lines)}" if lines else None
    elif problem.validator == "type":
        message = f"expected {problem.validator_value}, found {_type_name(problem.instance)}"
    raise InputError(f"{path}{line(steps)}: {_place(steps)}: {message}", hint=hint)


def _kind(found: object) -> str:
    """The kind that a document says it is; another text may be anything, and is not shown."""
    is_kind = isinstance(found, str) and re.fullmatch(r"kquota\.[a-z_-]{1,40}", found)
    return str(found) if is_kind else "another"


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
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        node = YAML(typ="safe", pure=True).compose(text)
    except YAMLError:
        return ""
    return _line_in(node, steps)


def _line_in(node: Any, steps: Iterable[object]) -> str:
    from ruamel.yaml import MappingNode, SequenceNode

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
    before = parse(path, text)
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
        unchanged = parse(path, edited) == {**before, key: value}
    except InputError:
        unchanged = False
    if not unchanged:
        raise InputError(
            f"{path}: {key} cannot be set without rewriting the file", hint=f"write {key}: {value} into it"
        )
    return edited


_PLAIN = re.compile(r"[A-Za-z_][\w.-]*\Z", re.ASCII)
_PLAIN_FLOW = re.compile(r"(?:[A-Za-z_][\w.-]*|\d+(?:\.\d+)? (?:%|[KMGT]?i?B/s|kB/s))\Z", re.ASCII)
"""Names, and the values that `humanize` writes."""
_NOT_TEXT = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}


def compose(text: str) -> Any:
    """The root node of a YAML text: nodes know their `id`, `value`, `flow_style`, `start_mark` and `end_mark`."""
    from ruamel.yaml import YAML

    return YAML(typ="safe", pure=True).compose(text)


def rewritten(path: object, text: str, change: Callable[[Any], object]) -> str:
    """A YAML text after a change of its data in place, with its comments, in the library's own style.

    Raises InputError where the library cannot do that.
    """
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.width = 4096
    out = io.StringIO()
    with _yaml_errors(path):
        data = yaml.load(text)
        change(data)
        yaml.dump(data, out)
    return out.getvalue()
