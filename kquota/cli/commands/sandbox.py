"""`kquota sandbox`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kquota.cli.exit_codes import ExitCode
from kquota.cli.streams import Group, note


def _default_directory() -> Path:
    from kquota.state import state_folder

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
_output = click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Output format on stdout.",
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
      kquota sandbox stop
    """


@command.command("start")
@click.option("--port", type=click.IntRange(1, 65535), metavar="PORT", help="The port to serve on; else a free one.")
@_directory
@_output
def start(port: int | None, directory: Path, output: str) -> None:
    """Start the sandbox and print its connect string; a sandbox that runs already goes on running."""
    from kquota import sandbox

    running = sandbox.status(directory)
    if running is not None and port in (None, running.port):
        note(f"the sandbox in {running.directory} runs already")
        state = running
    else:
        state = sandbox.start(directory, port)
    _print(output, state.connect, running=True, connect=state.connect, pid=state.pid, directory=state.directory)


@command.command("stop")
@_directory
def stop(directory: Path) -> None:
    """Stop the sandbox; its data stays in its folder."""
    from kquota import sandbox

    if sandbox.stop(directory):
        note("stopped")
    else:
        note("not running")


@command.command("status")
@_directory
@_output
def status(directory: Path, output: str) -> ExitCode:
    """Print the connect string of a running sandbox; exits with 4 when it does not run."""
    from kquota import sandbox

    state = sandbox.status(directory)
    if state is None:
        if output == "json":
            _print(output, "", running=False)
        note("not running")
        return ExitCode.UNREACHABLE
    _print(output, state.connect, running=True, connect=state.connect, pid=state.pid, directory=state.directory)
    return ExitCode.OK


def _print(output: str, text: str, **fields: Any) -> None:
    if output == "json":
        from kquota.documents.encoding import to_json

        click.echo(to_json({"kind": "kquota.sandbox", "version": 1, **fields}), nl=False)
    else:
        click.echo(text)
