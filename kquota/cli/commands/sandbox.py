"""`kquota sandbox`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from kquota import sandbox
from kquota.cli.exit_codes import ExitCode
from kquota.cli.grammar import Group
from kquota.cli.streams import note
from kquota.cli.views import Document, View, shown_as
from kquota.sandbox import SandboxState
from kquota.state import state_folder


def _default_directory() -> Path:
    return state_folder("sandbox", "KQUOTA_SANDBOX")


_directory = click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="KQUOTA_SANDBOX",
    default=_default_directory,
    show_default="the user's state folder",
    metavar="DIR",
    help="The sandbox's own folder.",
)


@click.group("sandbox", cls=Group)
def command() -> None:
    """A real ZooKeeper on the loopback address, for first steps and demos.

    It runs from the jars that PySpark brings; nothing else is downloaded. What it prints is a connect string for
    --zookeeper.

    \b
    Examples:
      export KQUOTA_ZOOKEEPER=$(kquota sandbox start)
      kquota alter --user alice --add-config producer_byte_rate=10MB
      kquota sandbox start --dir second       # another one beside it
      kquota sandbox stop
    """


@command.command("start")
@click.option("--port", type=click.IntRange(1, 65535), metavar="PORT", help="The port to serve on; else a free one.")
@_directory
@shown_as("text", "json")
def start(port: int | None, directory: Path) -> View:
    """Start the sandbox and print its connect string; a sandbox that runs already goes on running.

    It serves on the port that it had before, where that is free.
    """
    last = sandbox.last_port(directory)
    running = sandbox.status(directory)
    if running is not None and port in (None, running.port):
        note(f"the sandbox in {running.directory} runs already")
        state = running
    else:
        state = sandbox.start(directory, port)
        if last is not None and state.port != last:
            note(f"its address is new: it was {sandbox.HOST}:{last}")
    if sys.stdout is not None and sys.stdout.isatty():
        where = "" if directory == _default_directory() else f" --dir {directory}"
        note(f"use it: export KQUOTA_ZOOKEEPER={state.connect}")
        note(f"'kquota sandbox stop{where}' ends it, and keeps its data")
    return _running(state)


@command.command("stop")
@_directory
def stop(directory: Path) -> None:
    """Stop the sandbox; its data stays in its folder."""
    if sandbox.stop(directory):
        note("stopped")
    else:
        note("not running")


@command.command("status")
@_directory
@shown_as("text", "json")
def status(directory: Path) -> View:
    """Print the connect string of a running sandbox; exits with 4 when it does not run."""
    state = sandbox.status(directory)
    if state is None:
        note("not running")
        return View(screen=lambda: (), document=lambda: _document(running=False), code=ExitCode.UNREACHABLE)
    return _running(state)


def _running(state: SandboxState) -> View:
    return View(
        screen=lambda: [state.connect],
        document=lambda: _document(running=True, connect=state.connect, pid=state.pid, directory=state.directory),
    )


def _document(**fields: Any) -> Document:
    return {"kind": "kquota.sandbox", "version": 1, **fields}
