"""The words that an option's value may be, each function for one kind of value.

The names of a cluster's entities are remembered for a minute, and asked for in another process: the shell waits for at
most half a second. The process has no terminal and a limit of its own. So nothing can keep the shell waiting or prompt
for a password. What comes too late for this Tab is there for the next one.
"""

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Final

import click
from click.shell_completion import CompletionItem

from kquota.access import Access, load_config
from kquota.cli import grammar, session
from kquota.cli.completion import seconds_left
from kquota.cli.contexts import Given
from kquota.core.quotas.entity import DEFAULT, Entity, EntityType
from kquota.core.quotas.quota import QuotaKey
from kquota.documents.encoding import write_text
from kquota.documents.journal import Journal
from kquota.documents.quotas import read_quotas
from kquota.errors import KquotaError
from kquota.state import journal_folder, own_folder

Items = list[CompletionItem[str]]


def context_names(_ctx: click.Context, incomplete: str) -> Items:
    """The contexts of the configuration file."""
    return [
        CompletionItem(context.name, help=context.comment or ", ".join(context.addresses.values()))
        for context in load_config().contexts.values()
        if context.name.startswith(incomplete)
    ]


def journal_ids(ctx: click.Context, incomplete: str) -> Items:
    """The entries of the journal, the newest first; for undo only its cluster's entries."""
    cluster = None
    with ctx.scope(cleanup=False), contextlib.suppress(click.UsageError, KquotaError):
        if "zookeeper" in ctx.params:
            cluster = Given.of(**ctx.params).access().address
    ids = Journal(ctx.params.get("journal") or journal_folder()).ids(cluster)
    return [CompletionItem(id) for id in ids if id.startswith(incomplete)]


def topics(ctx: click.Context, incomplete: str) -> Items:
    """What 'kquota help' explains: the concepts, a page each, and the commands."""
    root = ctx.find_root()
    commands = root.command.list_commands(root) if isinstance(root.command, click.Group) else []
    pages = sorted(page.name.removesuffix(".md") for page in (files("kquota.cli") / "topics").iterdir())
    return [CompletionItem(name) for name in (*pages, *commands) if name.startswith(incomplete)]


def _names_of(kind: EntityType) -> Callable[[click.Context, str], Items]:
    """The names of that type that the cluster has quotas for."""
    return lambda ctx, incomplete: _items(known_names(ctx).get(kind.value, ()), incomplete)


users = _names_of(EntityType.USER)
clients = _names_of(EntityType.CLIENT_ID)
ips = _names_of(EntityType.IP)


def entity_names(ctx: click.Context, incomplete: str) -> Items:
    """Names of the type that the --entity-type before it says."""
    kind = grammar.next_type(ctx)
    return [] if kind is None else _names_of(kind)(ctx, incomplete)


def entities(ctx: click.Context, incomplete: str) -> Items:
    """Entities of the cluster as text, and before a type is typed the types."""
    if "=" in incomplete:
        return _items(known_names(ctx).get("entity", ()), incomplete)
    return [_open(f"{kind.value}=") for kind in EntityType if f"{kind.value}=".startswith(incomplete)]


def additions(_ctx: click.Context, incomplete: str) -> Items:
    """`KEY=` for each key, the last item of a list."""
    head, item = _list(incomplete)
    return [_open(f"{head}{key}=", key.unit) for key in QuotaKey if f"{key}=".startswith(item) and "=" not in item]


def deletions(_ctx: click.Context, incomplete: str) -> Items:
    """The keys, the last item of a list."""
    head, item = _list(incomplete)
    return [CompletionItem(f"{head}{key}") for key in QuotaKey if key.value.startswith(item)]


def _list(incomplete: str) -> tuple[str, str]:
    """What is before the last item of a list, and that item."""
    before, comma, item = incomplete.rpartition(",")
    return before + comma, item


def _items(words: Iterable[str], incomplete: str) -> Items:
    # A shell would print or insert the others as they are.
    return [CompletionItem(word) for word in dict.fromkeys(words) if word.startswith(incomplete) and word.isprintable()]


def _open(word: str, help: str | None = None) -> CompletionItem[str]:
    """A word that goes on: no blank is put after it."""
    return CompletionItem(word, help=help, open=True)


FRESH_S: Final = 60
"""How long an answer is good for."""
_FETCH_S: Final = 5
"""What asking may take altogether."""
_CONNECT_S: Final = 3.0
_LOOK_S: Final = 0.01

Names = dict[str, list[str]]
"""Sorted names by entity type (`user`, `client-id`, `ip`), and whole entities as text (`entity`)."""


def known_names(ctx: click.Context) -> Names:
    """The names in the cluster, or the quotas file, that the command line being completed is about.

    Empty when they are not to be had in time.
    """
    with ctx.scope(cleanup=False):
        given = Given.of(**ctx.params)
        source = session.QuotaSource(ctx.params.get("quotas"), given)
        cache = _cache_file(source)
        return _remembered(cache) or _fetched(source, cache) or {}


def _cache_file(source: session.QuotaSource) -> Path:
    """Where the names of that cluster, as seen by that user of it, are remembered."""
    import hashlib

    quotas, access = source.file, source.access or Access()
    files = (access.command_config, access.zk_tls_config_file, access.zk_jaas_file)
    identity = [
        *map(str, (access.address, *files)),
        None if access.isolated else os.environ.get("KQUOTA_ZOOKEEPER_USERNAME"),
        None if quotas is None else f"{quotas.resolve()} {quotas.stat().st_mtime_ns}",
        os.getcwd() if any(files) else None,
    ]
    digest = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:32]
    return own_folder("cache", "XDG_CACHE_HOME") / f"names-{digest}.json"


def _remembered(cache: Path) -> Names | None:
    with contextlib.suppress(OSError, ValueError):
        if 0 <= time.time() - cache.stat().st_mtime < FRESH_S:
            names: Names = json.loads(cache.read_text(encoding="utf-8"))
            return names
    return None


def _remember(cache: Path, entities: Iterable[Entity]) -> None:
    cache.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_text(cache, json.dumps(_names(entities)), mode=0o600)


def _fetched(source: session.QuotaSource, cache: Path) -> Names | None:
    """What another process finds out, if it does in time; it goes on, and remembers what it finds."""
    child = os.fork()
    if child == 0:
        try:
            _detach()
            _ask(source, cache)
        finally:
            os._exit(0)
    while seconds_left():
        ended, _ = os.waitpid(child, os.WNOHANG)
        names = _remembered(cache)
        if ended or names is not None:
            return names
        time.sleep(_LOOK_S)
    return None


def _detach() -> None:
    """Lets go of the terminal and of all files, and sets an end to this process."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    os.closerange(3, 64)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(_FETCH_S)


def _ask(source: session.QuotaSource, cache: Path) -> None:
    if source.file is not None:
        _remember(cache, read_quotas(source.file))
        return
    access = source.access or Access()
    with session.open_backend(replace(access, timeout_s=min(access.timeout_s, _CONNECT_S))) as backend:
        # The shell does not wait for the good-bye.
        _remember(cache, backend.describe())


def _names(entities: Iterable[Entity]) -> Names:
    listed = list(entities)
    named = {
        kind.value: {name for entity in listed if (name := entity.name_of(kind)) is not None and name is not DEFAULT}
        for kind in EntityType
    }
    return {kind: sorted(names) for kind, names in named.items()} | {"entity": [str(entity) for entity in listed]}
