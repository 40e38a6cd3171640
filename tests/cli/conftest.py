"""Running kquota as a process, as scripts do."""

import io
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import click
import pytest
from jsonschema import Draft202012Validator

from kquota.access import Access
from kquota.backends.memory import MemoryBackend
from kquota.core.change.plan import Cluster
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.documents.encoding import schema
from tests.support import here, processes
from tests.support.scheduling import by_day


@dataclass(frozen=True)
class Ran:
    """What a command line came to."""

    code: int
    out: str
    err: str

    @property
    def first(self) -> str:
        return self.err.partition("\n")[0]

    @property
    def rest(self) -> str:
        """Stderr without what every write says: which cluster it is, its release, and the way back."""
        said = (
            r"^(?:cluster: .*|Kafka [0-9.]+, by what the brokers serve .*"
            r"|'kquota undo .*' takes it back|.*not in the journal: 'kquota undo' .*)\n"
        )
        return re.sub(said, "", self.err, flags=re.MULTILINE)

    @property
    def complaint(self) -> str:
        """The one line on stderr besides; fails when there are more, or a traceback."""
        lines = self.rest.splitlines()
        assert len(lines) == 1, self.err
        return lines[0]


class Kquota(Protocol):
    """Runs `kquota ARGUMENTS…` with more environment."""

    def __call__(self, *arguments: str, **environment: str) -> Ran: ...


@pytest.fixture
def kquota(tmp_path: Path) -> Kquota:
    """A kquota that runs in an empty folder, without the developer's own settings: a process, or by day mostly not."""

    def run(*arguments: str, **environment: str) -> Ran:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("KQUOTA_")}
        clean |= {"XDG_CONFIG_HOME": str(tmp_path / ".config"), "XDG_CACHE_HOME": str(tmp_path / ".cache")}
        clean |= {"XDG_STATE_HOME": str(tmp_path / ".state")}
        clean |= {"PYTHONPATH": str(Path(__file__).parents[2])} | environment
        if by_day() and here.will_do(arguments, clean):
            done = here.run(arguments, tmp_path, clean)
        else:
            done = processes.kquota(arguments, tmp_path, clean, timeout_s=300)
        return Ran(done.returncode, done.stdout, done.stderr)

    return run


def in_memory(patch: pytest.MonkeyPatch, quotas: QuotaSnapshot, cluster: str) -> MemoryBackend:
    """A cluster in memory with those quotas, behind every address, and `cluster` as its name in all rooms."""
    backend = MemoryBackend(quotas)
    patch.setattr(Access, "open", lambda *_: backend)
    for room in ("changes", "cli.altering", "cli.writing", "cli.commands.undo", "cli.commands.reconcile"):
        patch.setattr(f"kquota.{room}.place_of", lambda _: Cluster(cluster))
    return backend


def commands(group: click.Group, *above: str) -> Iterator[tuple[str, click.Command]]:
    """The commands that do something, by their names."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, *above, name)
        else:
            yield " ".join((*above, name)), command


def validated(text: str, name: str) -> dict[str, Any]:
    """A JSON document, held against the schema of that name."""
    document: dict[str, Any] = json.loads(text)
    Draft202012Validator(schema(name)).validate(document)
    return document


def quotas(**rates: float | str) -> str:
    """A quotas file with a producer_byte_rate for each user, and no other key."""
    entries = [{"entity": {"user": user}, "values": {"producer_byte_rate": rate}} for user, rate in rates.items()]
    return json.dumps({"kind": "kquota.quotas", "version": 1, "quotas": entries})


class TerminalStream(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


Golden = Callable[[str, str], None]


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compares text with a file in `golden/`; `pytest --update-golden` writes it."""

    def compare(name: str, text: str) -> None:
        path = Path(__file__).parent / "golden" / name
        if request.config.getoption("--update-golden"):
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8")

    return compare
