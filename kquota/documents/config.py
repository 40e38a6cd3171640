"""The configuration file: named clusters (schemas/config.schema.json). It holds no secrets, only paths of files."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kquota.documents.edits import REMOVED, Steps, edited
from kquota.documents.encoding import Document, headed, line_of, read_document, read_text, to_yaml, write_text
from kquota.errors import InputError
from kquota.state import CLUSTER

ADDRESSES: Final = ("bootstrap_server", "bootstrap_controller", "zookeeper")


@dataclass(frozen=True, slots=True)
class Context:
    """A cluster by a name: its address, and how to get there. Paths are absolute.

    The fields are the keys of the file, with a hyphen for each underscore.
    """

    name: str
    bootstrap_server: str | None = None
    bootstrap_controller: str | None = None
    zookeeper: str | None = None
    command_config: Path | None = None
    zk_tls_config_file: Path | None = None
    zk_jaas_file: Path | None = None
    timeout: float | None = None
    comment: str = ""
    require_message: bool = False
    """Whether every write needs a reason (`-m`)."""
    journal: Path | None = None
    """Where its writes are kept: a folder, or the word `cluster`."""

    @property
    def addresses(self) -> Mapping[str, str]:
        """The addresses that are given, by the name of their option."""
        given = ((name.replace("_", "-"), getattr(self, name)) for name in ADDRESSES)
        return {option: address for option, address in given if address is not None}


@dataclass(frozen=True, slots=True)
class Config:
    """A configuration file: contexts by name, and the name of the current one."""

    path: Path
    contexts: Mapping[str, Context] = field(default_factory=dict)
    current: str | None = None

    def context(self, name: str) -> Context:
        """The context of that name. Raises InputError that lists the known names."""
        try:
            return self.contexts[name]
        except KeyError:
            known = ", ".join(self.contexts)
            hint = f"contexts: {known}" if known else "it has no contexts"
            raise InputError(f"no context {name!r} in {self.path}", hint=hint) from None


def read_config(path: Path) -> Config:
    """Reads a configuration file. Raises InputError naming the file, the line and the place in it."""
    document = read_document(path, "config")
    contexts = {}
    for name, entry in document["contexts"].items():
        try:
            contexts[name] = _read_context(path, name, entry)
        except InputError as error:
            line = line_of(read_text(path), ("contexts", name))
            raise InputError(f"{path}{line}: contexts.{name}: {error.message}", hint=error.hint) from None
    return Config(path, contexts, document.get("current-context"))


_FILES = ("command-config", "zk-tls-config-file", "zk-jaas-file", "journal")


def _read_context(path: Path, name: object, entry: Document) -> Context:
    if not isinstance(name, str) or not name or not name.isprintable():
        raise InputError("a context's name is text", hint="write it in quotation marks")

    def file(key: str) -> Path:
        try:
            return path.parent.absolute() / Path(entry[key]).expanduser()
        except RuntimeError:
            raise InputError(f"{key}: whose home directory is that?") from None

    settings: dict[str, Any] = {
        key.replace("-", "_"): file(key) if key in _FILES else value for key, value in entry.items()
    }
    if entry.get("journal") == str(CLUSTER):
        settings["journal"] = CLUSTER
    context = Context(name, **settings)
    if context.timeout == math.inf:
        raise InputError("timeout: not a finite number")
    if not context.addresses:
        raise InputError("no cluster", hint="give it a bootstrap-server, a bootstrap-controller or a zookeeper")
    if len(context.addresses) > 1 and context.bootstrap_controller is not None:
        raise InputError(
            f"{' and '.join(context.addresses)} are too many addresses", hint="one, or zookeeper and bootstrap-server"
        )
    return context


def use_context(path: Path, name: str) -> None:
    """Makes a context the current one: the file is replaced as a whole, and keeps all else that is written in it.

    Raises InputError for a context that is not there, and where the file cannot be written.
    """
    read_config(path).context(name)
    _edit(path, {("current-context",): name})


def set_context(path: Path, name: str, settings: Mapping[str, str | float | None], *, current: bool) -> bool:
    """Creates a context, or changes the given settings of it; None removes a setting. Returns whether it is new.

    `settings` are keys of the file, such as `bootstrap-server`. `current` makes the context the current one. The file
    is replaced as a whole and keeps its comments; a file that is not there is made. Raises InputError for settings
    that no context can have, and where the file cannot be written.
    """
    exists = path.exists()
    document: Document = read_document(path, "config") if exists else {"contexts": {}}
    before = document["contexts"].get(name)
    entry = {key: value for key, value in {**(before or {}), **settings}.items() if value is not None}
    _read_context(path, name, entry)
    if not exists:
        _make(path, {"current-context": name, "contexts": {name: entry}} if current else {"contexts": {name: entry}})
        return True
    edits: dict[Steps, Any] = {}
    if before is None:
        edits["contexts", name] = entry
    else:
        for key, value in settings.items():
            if value is not None:
                edits["contexts", name, key] = value
            elif key in before:
                edits["contexts", name, key] = REMOVED
    if current:
        edits["current-context",] = name
    _edit(path, edits)
    return before is None


def delete_context(path: Path, name: str) -> bool:
    """Removes a context from the file; returns whether it was the current one, which the file then lacks.

    Raises InputError for a context that is not there, and where the file cannot be written.
    """
    config = read_config(path)
    config.context(name)
    edits: dict[Steps, Any] = {("contexts", name): REMOVED}
    if config.current == name:
        edits["current-context",] = REMOVED
    _edit(path, edits)
    return config.current == name


def _make(path: Path, document: Document) -> None:
    """Writes a new file, which only its owner reads."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path.parent}: cannot be made: {error.strerror}") from None
    write_text(path, to_yaml(document), mode=0o600)


def _edit(path: Path, edits: Mapping[Steps, Any]) -> None:
    """Writes the file with these places changed: the file itself, where the path is a link to it."""
    target = path.resolve()
    text = target.read_bytes().decode("utf-8")
    write_text(target, edited(path, text, edits), mode=target.stat().st_mode & 0o7777)


def contexts_document(config: Config, current: str | None) -> Document:
    """The contexts as `get-contexts -o json` prints them (schemas/contexts.schema.json)."""
    return {
        **headed("contexts"),
        "file": str(config.path),
        "current": current,
        "contexts": [
            {
                "name": context.name,
                **context.addresses,
                "comment": context.comment,
                **({} if context.journal is None else {"journal": str(context.journal)}),
                **({"require-message": True} if context.require_message else {}),
            }
            for context in config.contexts.values()
        ],
    }


def settings_document(
    path: Path, context: str | None, settings: Iterable[tuple[str, object, str, str | None]]
) -> Document:
    """The settings in effect (schemas/settings.schema.json), each as its name, value, kind of origin and its name."""
    return {
        **headed("settings"),
        "file": str(path),
        "context": context,
        "settings": [
            {
                "name": name,
                "value": value if isinstance(value, float | int) and math.isfinite(value) else str(value),
                "origin": {"from": origin} | ({} if where is None else {"name": where}),
            }
            for name, value, origin, where in settings
        ],
    }
