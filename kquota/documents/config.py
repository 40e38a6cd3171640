"""The configuration file: named clusters (schemas/config.schema.json). It holds no secrets, only paths of files."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kquota.documents.encoding import Document, line_of, read_document, read_text, replaced_scalar, write_text
from kquota.errors import InputError


@dataclass(frozen=True, slots=True)
class Context:
    """A cluster by a name: its address, and how to get there. Paths are absolute."""

    name: str
    bootstrap_server: str | None = None
    bootstrap_controller: str | None = None
    zookeeper: str | None = None
    command_config: Path | None = None
    zk_tls_config_file: Path | None = None
    zk_jaas_file: Path | None = None
    timeout: float | None = None
    comment: str = ""

    @property
    def addresses(self) -> Mapping[str, str]:
        """The addresses that are given, by the name of their option."""
        given = {
            "bootstrap-server": self.bootstrap_server,
            "bootstrap-controller": self.bootstrap_controller,
            "zookeeper": self.zookeeper,
        }
        return {option: address for option, address in given.items() if address is not None}


@dataclass(frozen=True, slots=True)
class Config:
    """A configuration file: contexts by name, and the name of the current one."""

    path: Path
    contexts: Mapping[str, Context] = field(default_factory=dict)
    current: str | None = None

    def context(self, name: str) -> Context:
        """The context of that name. Raises InputError listing those that there are."""
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


def _read_context(path: Path, name: object, entry: Document) -> Context:
    if not isinstance(name, str) or not name or not name.isprintable():
        raise InputError("a context's name is text", hint="write it in quotation marks")

    def file(key: str) -> Path | None:
        if key not in entry:
            return None
        try:
            return path.parent.absolute() / Path(entry[key]).expanduser()
        except RuntimeError:
            raise InputError(f"{key}: whose home directory is that?") from None

    context = Context(
        name,
        bootstrap_server=entry.get("bootstrap-server"),
        bootstrap_controller=entry.get("bootstrap-controller"),
        zookeeper=entry.get("zookeeper"),
        command_config=file("command-config"),
        zk_tls_config_file=file("zk-tls-config-file"),
        zk_jaas_file=file("zk-jaas-file"),
        timeout=entry.get("timeout"),
        comment=entry.get("comment", ""),
    )
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
    # The file itself, where the path is a link to it.
    target = path.resolve()
    text = replaced_scalar(path, target.read_bytes().decode("utf-8"), "current-context", name)
    write_text(target, text, mode=target.stat().st_mode & 0o7777)


def contexts_document(config: Config, current: str | None) -> Document:
    """The contexts as `get-contexts -o json` prints them (schemas/contexts.schema.json)."""
    return {
        "kind": "kquota.contexts",
        "version": 1,
        "file": str(config.path),
        "current": current,
        "contexts": [
            {"name": context.name, **context.addresses, "comment": context.comment}
            for context in config.contexts.values()
        ],
    }


def settings_document(
    path: Path, context: str | None, settings: Iterable[tuple[str, object, str, str | None]]
) -> Document:
    """The settings in effect (schemas/settings.schema.json), each as its name, value, kind of origin and its name."""
    return {
        "kind": "kquota.settings",
        "version": 1,
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
