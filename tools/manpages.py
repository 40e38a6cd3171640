"""The manual: one page per command, of the quotas file, of the configuration file, and of each topic of `kquota help`.

Commands are read from Click, files from their JSON Schemas and `docs/examples/`, topics from their texts.
"""

import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from kquota import __version__
from kquota.cli.commands.help import TOPICS, text_of
from kquota.cli.exit_codes import ExitCode
from kquota.cli.main import cli
from kquota.core.quotas.entity import EntityType
from kquota.core.quotas.quota import QuotaKey
from kquota.documents.encoding import Document, schema

EXAMPLES = Path(__file__).resolve().parents[1] / "docs" / "examples"

_FILES = ("kquota.yaml(5)", "kquota-config.yaml(5)")
_QUOTA_KEYS = {key.value for key in QuotaKey}
_TOPICS = tuple(f"kquota-{topic}(7)" for topic in TOPICS)

_QUOTAS_FILE = """\
The quotas file says which quotas a cluster should have: 'kquota plan' shows what would change, 'kquota apply' makes it
so, 'kquota lint' looks for mistakes. It is YAML or JSON; what 'kquota describe -o yaml' and '-o json' print is one. The
file may have any name; '--quotas FILE' takes it instead of a live cluster.

A file can be for several clusters: entries say what differs there, and values may hold variables. Without '--cluster
NAME', all that is said of clusters is left out.

A key that is not known, a variable that is not declared or an entity that is given twice is an error, with the line or
the entry that it is in. Editors find it too, with the schema that 'kquota schema quotas' prints.
"""
_CONFIG_FILE = """\
The configuration file gives clusters names, so that '--context NAME', KQUOTA_CONTEXT or the current context stand for
an address and what it takes to get there. It is ~/.config/kquota/config.yaml (XDG_CONFIG_HOME is heeded), or the file
that KQUOTA_CONFIG names. It is YAML or JSON, and holds no secrets, only the paths of files that do. 'kquota schema
config' prints its schema.

A setting comes from an option, else from the environment, else from the context. 'kquota config view --show-origin'
says what came from where.
"""


def pages() -> Iterator[tuple[str, str]]:
    """(file name, troff) of every page."""
    yield from _command_pages(cli, context_of(cli, "kquota"))
    yield "kquota.yaml.5", _file_page("kquota.yaml", "quotas", _QUOTAS_FILE, _quota_keys())
    yield "kquota-config.yaml.5", _file_page("kquota-config.yaml", "config", _CONFIG_FILE, "")
    for topic in TOPICS:
        yield f"kquota-{topic}.7", _topic_page(topic)


def context_of(command: click.Command, name: str, **more: Any) -> click.Context:
    """The context in which a command's help is shown, as click makes it for a command line."""
    # click keeps the help option of a command's first context, which may have had other names.
    command._help_option = None
    return click.Context(command, info_name=name, **{**command.context_settings, **more})


def _command_pages(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    name = context.command_path.replace(" ", "-")
    paragraphs, examples = _parts(command.help or "")
    usage = " ".join(command.collect_usage_pieces(context))
    text = [
        _head(name, 1, command.get_short_help_str(limit=200)),
        f".SH SYNOPSIS\n.B {escape(context.command_path)}\n{_line(usage)}",
        ".SH DESCRIPTION\n" + _prose(paragraphs),
    ]
    options = [option for option in command.params if isinstance(option, click.Option)]
    asked = command.get_help_option(context)
    records = [option.get_help_record(context) for option in (*options, *([asked] if asked else []))]
    if any(records):
        text.append(".SH OPTIONS\n" + "".join(_option(*record) for record in records if record is not None))
    children = _children(command, context)
    if children:
        entries = (
            _tagged(f".BR {escape(f'{name}-{child.info_name}')} (1)", child.command.get_short_help_str(limit=200))
            for child in children
        )
        text.append(".SH COMMANDS\n" + "".join(entries))
    if examples:
        text.append(".SH EXAMPLES\n" + _verbatim(examples))
    text.append(".SH EXIT STATUS\n" + _exit_status(name))
    if context.parent is None:
        related = (*_FILES, *_TOPICS)
    else:
        related = (f"{context.parent.command_path.replace(' ', '-')}(1)", *_FILES, *_TOPICS[:1])
    text.append(_see_also(related))
    yield f"{name}.1", "".join(text)
    for child in children:
        yield from _command_pages(child.command, child)


def _children(command: click.Command, context: click.Context) -> list[click.Context]:
    if not isinstance(command, click.Group):
        return []
    found = [(name, command.get_command(context, name)) for name in command.list_commands(context)]
    return [context_of(child, name, parent=context) for name, child in found if child is not None]


def _parts(text: str) -> tuple[str, str]:
    """A command's help without its examples, and the examples."""
    description, _, examples = inspect.cleandoc(text).partition("\b\nExamples:\n")
    return description, examples


def _exit_status(name: str) -> str:
    if name == "kquota-kafka-configs":
        return _line("That of Kafka's own tool: 0 when it is done, 1 when it is not.")
    return "".join(_tagged(f".B {code.value}", code.meaning) for code in ExitCode)


def _file_page(name: str, schema_name: str, description: str, more: str) -> str:
    rules = schema(schema_name)
    entries = "".join(_tagged(f".B {escape(path)}", text) for path, text in members(rules))
    example = (EXAMPLES / f"{schema_name}.yaml").read_text(encoding="utf-8")
    related = tuple(f"kquota{command}(1)" for command in ("", *_COMMANDS_OF[schema_name])) + _FILES + _TOPICS[:1]
    return "".join(
        (
            _head(name, 5, rules["title"]),
            ".SH DESCRIPTION\n" + _prose(description),
            ".SH KEYS\n" + entries,
            more,
            ".SH EXAMPLES\n" + _verbatim(example),
            _see_also(tuple(page for page in related if page != f"{name}(5)")),
        )
    )


_COMMANDS_OF = {"quotas": ("-plan", "-apply", "-lint", "-describe"), "config": ("-config",)}


def members(rules: Document) -> Iterator[tuple[str, str]]:
    """(path, meaning) of every key that a schema describes, in the schema's order."""
    yield from _members(rules, rules, "")


def _members(rules: Document, node: Document, path: str) -> Iterator[tuple[str, str]]:
    for name, member in node.get("properties", {}).items():
        if name in _QUOTA_KEYS:
            continue  # a section of their own
        resolved = _resolved(rules, member)
        here = f"{path}{name}"
        if "const" in resolved:
            yield here, f"Always {resolved['const']}."
        elif "description" in resolved:
            yield here, resolved["description"]
        yield from _members(rules, resolved, f"{here}.")
        for part, suffix in (("additionalProperties", ".NAME"), ("items", "[]")):
            inner = resolved.get(part)
            if isinstance(inner, dict):
                yield from _inner(rules, inner, here + suffix)


def _inner(rules: Document, inner: Document, path: str) -> Iterator[tuple[str, str]]:
    resolved = _resolved(rules, inner)
    # What a list or a mapping holds, where that has a meaning of its own.
    if "description" in resolved:
        yield path, resolved["description"]
    yield from _members(rules, resolved, f"{path}.")


def _resolved(rules: Document, node: Document) -> Document:
    if "$ref" not in node:
        return node
    found: Document = rules["$defs"][node["$ref"].removeprefix("#/$defs/")]
    return {**found, **node}


def _quota_keys() -> str:
    def entry(key: QuotaKey) -> str:
        carriers = "ips" if key.entity_types == {EntityType.IP} else "users, client-ids and their pairs"
        return _tagged(f".B {escape(key.value)}", f"{key.unit}, of {carriers}.")

    return ".SH QUOTA KEYS\n" + _prose("Each limit holds per broker.") + "".join(map(entry, QuotaKey))


def _topic_page(topic: str) -> str:
    title, _, text = text_of(topic).partition("\n")
    others = tuple(page for page in _TOPICS if page != f"kquota-{topic}(7)")
    return (
        _head(f"kquota-{topic}", 7, title.removeprefix("# "))
        + ".SH DESCRIPTION\n"
        + _prose(text)
        + _see_also(("kquota(1)", *others))
    )


def _head(name: str, section: int, purpose: str) -> str:
    return (
        f'.TH "{escape(name)}" "{section}" "" "kquota {__version__}" "kquota"\n'
        f".SH NAME\n{escape(name)} \\- {escape(purpose.rstrip('.'))}\n"
    )


def _prose(text: str) -> str:
    """Paragraphs; what is indented, or stands after a \\b, is kept as it is."""
    out = []
    for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
        if not paragraph.strip():
            continue
        literal = paragraph.lstrip().startswith("\b") or all(line.startswith("  ") for line in paragraph.splitlines())
        if literal:
            out.append(".PP\n" + _verbatim(paragraph.replace("\b\n", "")))
        elif re.search(r"\S {3,}\S", paragraph):
            # A small table.
            out.append(".PP\n" + _verbatim(paragraph))
        else:
            out.append(".PP\n" + "".join(map(_line, paragraph.splitlines())))
    return "".join(out).removeprefix(".PP\n")


def _verbatim(text: str) -> str:
    lines = textwrap.dedent(text.strip("\n")).splitlines()
    return ".RS 2\n.nf\n" + "".join(_line(line) for line in lines) + ".fi\n.RE\n"


def _option(switches: str, meaning: str) -> str:
    first, _, rest = switches.partition(" ")
    if first.endswith(","):
        second, _, rest = rest.partition(" ")
        first += f" {second}"
    # A long choice may be broken after each bar.
    value = escape(rest).replace("|", "|\\:")
    return _tagged(f"\\fB{escape(first)}\\fR {value}".rstrip(), meaning)


def _tagged(tag: str, text: str) -> str:
    return f".TP\n{tag}\n" + _line(text.replace("`", ""))


def _see_also(names: tuple[str, ...]) -> str:
    parts = [re.fullmatch(r"(.*)\((\d)\)", name) for name in names]
    lines = [f".BR {escape(part[1])} ({part[2]})" for part in parts if part is not None]
    return ".SH SEE ALSO\n" + ",\n".join(lines) + "\n"


def _line(text: str) -> str:
    """A line of text, which may begin with anything."""
    escaped = escape(text)
    return (f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped) + "\n"


_ESCAPES = {
    "\\": "\\e",
    "-": "\\-",
    # These would come out as typographic characters, and could not be copied.
    "'": "\\(aq",
    "`": "\\(ga",
    "^": "\\(ha",
    "~": "\\(ti",
}


def escape(text: str) -> str:
    """Text of which troff changes nothing."""
    return "".join(
        _ESCAPES.get(character, character) if character.isascii() else f"\\[u{ord(character):04X}]"
        for character in text
    )
