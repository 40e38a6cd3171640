"""Documents as text: JSON and YAML, read and written."""

from __future__ import annotations

import io
import json
import re
import sys
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache, partial
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kquota.documents.validation import Check, Checks, Mistake, mistakes, refuse, type_name
from kquota.errors import InputError, placed
from kquota.files import LARGEST, read_bytes, replacing

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from kquota.documents.reading import Node

Document: TypeAlias = dict[str, Any]


def headed(kind: str, version: int = 1) -> Document:
    """What every document begins with."""
    return {"kind": f"kquota.{kind}", "version": version}


@dataclass(frozen=True, slots=True)
class Each:
    """A list of documents, each of which is made when it is asked for, and forgotten when it is written."""

    things: Sequence[Any]
    make: Callable[[Any], Document]

    def __len__(self) -> int:
        return len(self.things)

    def __iter__(self) -> Iterator[Document]:
        return map(self.make, self.things)


def whole(document: Mapping[str, Any]) -> Document:
    """The document with lists in place of each `Each` in it, which are values of its own keys."""
    return {key: list(value) if isinstance(value, Each) else value for key, value in document.items()}


def to_json(document: Mapping[str, Any]) -> str:
    """Indented JSON, ending in a newline; raises ValueError rather than print NaN or Infinity, which JSON has not."""
    return "".join(json_parts(document))


def json_parts(document: Mapping[str, Any]) -> Iterator[str]:
    """The text of `to_json` in parts, which are written one after the other: reports of audits have gigabytes."""
    waiting: list[str] = []
    size = 0
    for piece in _pieces(document):
        waiting.append(piece)
        size += len(piece)
        if size > _PART:
            yield _spelled_out("".join(waiting))
            waiting, size = [], 0
    yield _spelled_out("".join(waiting)) + "\n"


_PART: Final = 1 << 18
"""Characters of a part."""


def _pieces(document: Mapping[str, Any]) -> Iterator[str]:
    """The text of an object, in which each item of its lists is a piece."""
    if not document:
        yield "{}"
        return
    before = "{\n  "
    for key, value in document.items():
        yield f"{before}{_json_key(key)}: "
        before = ",\n  "
        if isinstance(value, list | tuple | Each) and value:
            begin = "[\n    "
            for item in value:
                yield begin
                yield _json(item, "\n    ")
                begin = ",\n    "
            yield "\n  ]"
        else:
            yield _json(value, "\n  ")
    yield "\n}"


def _json(value: Any, line: str) -> str:
    """The text of a value; `line` is a new line with the indent of where it stands.

    The standard library's encoder with an indent takes four times as long, as it yields every bracket and comma.
    """
    kind = type(value)
    if kind is str:
        return _json_text(value)
    if value is None:
        return "null"
    if kind is bool:
        return "true" if value else "false"
    if kind is int or (kind is float and isfinite(value)):
        return repr(value)
    if kind is dict:
        if not value:
            return "{}"
        inner = line + "  "
        items = [f"{_json_key(key)}: {_json(item, inner)}" for key, item in value.items()]
        return f"{{{inner}{f',{inner}'.join(items)}{line}}}"
    if kind is list or kind is tuple:
        if not value:
            return "[]"
        inner = line + "  "
        return f"[{inner}{f',{inner}'.join([_json(item, inner) for item in value])}{line}]"
    if isinstance(value, dict | list | tuple | Each):
        return _json(dict(value) if isinstance(value, dict) else list(value), line)
    return _scalars.encode(value)


def _json_key(key: Any) -> str:
    if type(key) is str:
        return _json_text(key)
    return _scalars.encode({key: 0})[1:-4]  # as the standard library spells keys of other types


_json_text: Final = json.encoder.encode_basestring
_scalars: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False)


def to_json_line(document: Mapping[str, Any]) -> str:
    """JSON on one line, without its newline; raises ValueError as `to_json` does."""
    return _spelled_out(json.dumps(whole(document), ensure_ascii=False, allow_nan=False))


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
    from kquota.documents.reading import dumped

    # The library takes some for printable that are not seen, or turn a line round.
    return "\n".join(_UNPRINTABLE.sub(_escaped, line) for line in dumped(whole(document)).split("\n"))


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
    """A value in YAML's flow style: `{user: alice, client-id: {default: true}}`."""
    if isinstance(value, list):
        return f"[{', '.join(map(to_flow, value))}]"
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
    document = Located(str(path), parse(path, text), partial(line_of, text))
    document.validate(schema_name)
    return document.data


def write_text(path: Path, text: str, *, mode: int | None = None) -> None:
    """As `write_bytes`, in UTF-8."""
    write_bytes(path, text.encode(), mode=mode)


def write_bytes(path: Path, data: bytes, *, mode: int | None = None) -> None:
    """Writes a file, whole or not at all, with those permissions; else with those it has, or for its owner only.

    Raises InputError when it cannot be written.
    """
    try:
        if mode is None:
            mode = path.stat().st_mode & 0o7777 if path.exists() else 0o600
        with replacing(path, mode) as aside:
            aside.write_bytes(data)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None


def read_text(path: Path) -> str:
    """The file's text. Raises InputError when it cannot be read."""
    return io.StringIO(read_raw_text(path), newline=None).read()


@lru_cache(maxsize=1)
def _standard_input() -> bytes:
    """What is piped in, kept because errors read it again to name a line."""
    content = sys.stdin.buffer.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise InputError(f"-: is larger than {LARGEST >> 20} MiB")
    return content


@lru_cache(maxsize=8)
def _piped(path: Path) -> bytes:
    """What comes out of a pipe, such as `<(command)` in a shell, kept because it comes once."""
    return read_bytes(path)


def read_raw_text(path: Path) -> str:
    """The file's text with the line ends that it has; `-` is standard input.

    Raises InputError when it cannot be read.
    """
    try:
        if str(path) == "-":
            data = _standard_input()
        else:
            data = _piped(path) if path.is_fifo() else read_bytes(path)
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        if data.startswith(b"PK\x03\x04"):
            hint = "save a spreadsheet as CSV, in UTF-8"
            raise InputError(f"{path}: a spreadsheet's own file, or an archive", hint=hint) from None
        encoding = "UTF-16" if data[:2] in (BOM_UTF16_LE, BOM_UTF16_BE) else "CP1252"
        raise InputError(
            f"{path}: not UTF-8 text (byte {error.start})",
            hint=f"iconv -f {encoding} -t UTF-8 makes one of what Windows writes",
        ) from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None


def parse(path: Path, text: str) -> Document:
    """The mapping in a JSON or YAML text. Raises InputError naming the line."""
    # YAML 1.2 contains JSON, but the JSON parser is a hundred times faster and its errors fit JSON.
    data = _parse_json(path, text) if text.lstrip()[:1] in ("{", "[") else _parse_yaml(path, text)
    if not isinstance(data, dict):
        kind = "nothing" if data is None else type_name(data)
        raise InputError(f"{path}: expected a mapping at the top, found {kind}")
    return data


def _parse_json(path: object, text: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            seen: set[str] = set()
            for name, _ in pairs:
                if name in seen:
                    raise InputError(f"{path}: {name!r} is given twice")
                seen.add(name)
        return result

    try:
        return json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        try:  # flow-style YAML also starts with a brace
            return _parse_yaml(path, text)
        except InputError:
            raise InputError(f"{path}, line {error.lineno}: {error.msg}") from None
    except RecursionError:
        raise _too_deep(path) from None
    except ValueError:  # Python reads no numbers of thousands of digits
        raise InputError(f"{path}: a number in it is too long") from None


def _too_deep(path: object) -> InputError:
    return InputError(f"{path}: it is nested too deep")


def _parse_yaml(path: object, text: str) -> Any:
    roots = _nodes(path, text, places=False)
    if len(roots) > 1:
        raise InputError(f"{path}{roots[1].line_of(())}: another document begins here; one is expected")
    return roots[0].value if roots else None


def _nodes(path: object, text: str, *, places: bool = True) -> Sequence[Node]:
    from kquota.documents.reading import nodes, roots

    try:
        return nodes(text) if places else roots(text)
    except InputError as error:
        raise InputError(f"{path}{error.message}") from None


@dataclass(frozen=True)
class Located:
    """A document that knows where each part of it is written."""

    name: str
    data: Document
    _line: Callable[[Sequence[object]], str]

    def place(self, steps: Sequence[object]) -> str:
        """`FILE, line N` of what keys and indexes lead to."""
        return self.name + self._line(steps)

    def at(self, steps: Sequence[object]) -> AbstractContextManager[None]:
        """Puts the place in front of an InputError's message."""
        return placed(self.place(steps))

    def validate(self, schema_name: str) -> None:
        """Raises InputError naming the place when the document does not fit its schema."""
        misfits = mistakes_in(self.name, self.data, schema_name)
        if misfits:
            refuse(self.name, self.data, misfits, self._line)


def parsed_documents(name: str, text: str) -> list[Located]:
    """The mappings of a YAML stream, or the single mapping of a JSON text; empty documents are left out.

    Raises InputError naming the line.
    """
    located: list[tuple[Any, Callable[[Sequence[object]], str]]]
    if text.lstrip().startswith("{"):
        located = [(_parse_json(name, text), partial(line_of, text))]
    else:
        located = [(root.value, root.line_of) for root in _nodes(name, text)]
    documents = []
    for data, line in located:
        if isinstance(data, dict):
            documents.append(Located(name, data, line))
        elif data is not None:
            raise InputError(f"{name}{line(())}: expected a mapping, found {type_name(data)}")
    return documents


def entry_lines(path: Path, name: str) -> tuple[int, ...]:
    """The lines, from 1, at which the entries of the document's list of that name begin."""
    _, entries = root_of(read_text(path)).parts[name]
    return tuple(entry.start.line + 1 for entry, _ in entries.parts.values())


def root_of(text: str) -> Node:
    """The node of the document in a text. Raises InputError for a text that is not YAML."""
    if text.lstrip()[:1] in ("{", "["):
        # JSON may have tabs between values, and characters as pairs of escapes, which YAML has not.
        text = _ESCAPE.sub(lambda match: "\\uFFFD" if match[1] else match[0], text.replace("\t", " "))
    roots = _nodes("", text)
    if not roots:
        raise InputError(": nothing is in it")
    return roots[0]


_ESCAPE = re.compile(r"\\(?:(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL)


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


@lru_cache
def _check(schema_name: str) -> Check:
    rules = schema(schema_name)
    return Checks(rules).of(rules)


def mistakes_in(path: object, data: Document, schema_name: str) -> list[Mistake]:
    """Where a document does not fit the schema of that name. Raises InputError for one that is nested too deep."""
    try:
        return [] if _check(schema_name)(data) else mistakes(data, schema(schema_name))
    except RecursionError:
        raise _too_deep(path) from None


def line_of(text: str, steps: Sequence[object]) -> str:
    """`, line N` of the place that keys and indexes lead to in a YAML or JSON text; nothing where the text is none.

    Readers of documents ask when something is wrong: whole texts need no lines.
    """
    try:
        return root_of(text).line_of(steps)
    except InputError:
        return ""


_PLAIN_FLOW = re.compile(r"(?:[A-Za-z_][\w.-]*|\d+(?:\.\d+)? ?(?:%|[kKMGT]?i?B(?:/s)?))\Z", re.ASCII)
"""Names, and the values that people and `humanize` write."""
_NOT_TEXT = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
