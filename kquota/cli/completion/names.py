"""The names of a cluster's entities, for completion: remembered for a minute, asked for in another process.

The shell waits for at most half a second. A process of its own asks the cluster, without a terminal and with a limit of
its own. So nothing can keep the shell waiting or prompt for a password. What comes too late for this Tab is there for
the next one.
"""

import contextlib
import json
import os
import signal
import tempfile
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from kquota.access import Access, xdg_directory
from kquota.cli import session
from kquota.cli.completion import seconds_left
from kquota.cli.contexts import SETTINGS, Given
from kquota.core.quotas.entity import DEFAULT, Entity, EntityType
from kquota.documents.quotas import read_quotas

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
        given = Given.of(**{name: ctx.params.get(name) for name in ("context", *SETTINGS)})
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
    return xdg_directory("XDG_CACHE_HOME", "~/.cache") / "kquota" / f"names-{digest}.json"


def _remembered(cache: Path) -> Names | None:
    with contextlib.suppress(OSError, ValueError):
        if 0 <= time.time() - cache.stat().st_mtime < FRESH_S:
            names: Names = json.loads(cache.read_text(encoding="utf-8"))
            return names
    return None


def _remember(cache: Path, entities: Iterable[Entity]) -> None:
    cache.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=cache.parent)  # for its owner only
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(_names(entities), file)
        os.replace(temporary, cache)
    except OSError:
        os.unlink(temporary)
        raise


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
