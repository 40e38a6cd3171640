"""`kquota sandbox`."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from kquota import sandbox
from kquota.cli.exit_codes import ExitCode
from kquota.cli.grammar import Group
from kquota.cli.options import declared, flag, group, path, value, values
from kquota.cli.progress import progress
from kquota.cli.streams import note
from kquota.cli.views import Document, View, shown_as
from kquota.documents.derive import picked, present
from kquota.errors import Refused
from kquota.sandbox import SandboxState, Server, ZooKeeper
from kquota.state import state_folder


@dataclass(frozen=True)
class Which:
    """A sandbox of the user."""

    dir: Path | None = path(
        "The sandbox's own folder.", metavar="DIR", envvar="KQUOTA_SANDBOX", show_default="the user's state folder"
    )
    broker: bool = flag("A Kafka broker in place of a ZooKeeper.")
    user: Sequence[str] = values("NAME", "Who may log in to the broker, besides alice and bob.")

    @property
    def directory(self) -> Path:
        """Its folder. Raises InputError where the user has no home folder."""
        return self.dir or state_folder("sandbox-broker" if self.broker else "sandbox", "KQUOTA_SANDBOX")

    @property
    def server(self) -> Server:
        """What runs in it."""
        if self.broker:
            from kquota.sandbox.broker import Broker

            return Broker(self.user)
        return ZooKeeper()


_WHICH: Any = group(Which, user=None)


@click.group("sandbox", cls=Group)
def command() -> None:
    """Start a real broker or ZooKeeper, for first steps.

    The broker needs Java 17, and Apache Maven once for Kafka's jars, or a Kafka that KAFKA_HOME names. The ZooKeeper
    runs from the jars that PySpark brings. What start prints is an address for --bootstrap-server or --zookeeper.
    There, the broker takes every client for ANONYMOUS. It has another address where users log in, such as alice.

    \b
    Examples:
      export KQUOTA_BOOTSTRAP_SERVER=$(kquota sandbox start --broker)
      kquota alter --user alice --add-config producer_byte_rate=10MB
      kquota sandbox status --broker -o json      # also the page of metrics, and how its users log in
      kquota sandbox stop --broker
      export KQUOTA_ZOOKEEPER=$(kquota sandbox start)
    """


@command.command("start")
@declared
@shown_as("text", "json")
def start(
    *,
    port: int | None = value("PORT", "The port to serve on; else a free one.", type=click.IntRange(1, 65535)),
    which: Which = group(Which),
) -> View:
    """Start the sandbox and print its address; a sandbox that runs already goes on running.

    It serves on the port that it had before, where that is free.
    """
    if which.user and not which.broker:
        raise click.UsageError("--user needs --broker")
    directory, server = which.directory, which.server
    last = sandbox.last_port(directory, server)
    running = sandbox.status(directory)
    if running is not None and last is not None and port in (None, running.port):
        note(f"the sandbox in {running.directory} runs already")
        if new := [user for user in which.user if user not in _users(running)]:
            raise Refused(f"it has no user {new[0]}", hint="stop it, and start it again: it keeps its data")
        state = running
    else:
        with progress(f"starting {'a broker' if which.broker else 'ZooKeeper'}: this takes up to a minute"):
            state = sandbox.start(directory, port, server)
        if last is not None and state.port != last:
            note(f"its address is new: it was {sandbox.HOST}:{last}")
    if sys.stdout is not None and sys.stdout.isatty():
        note(f"use it: export KQUOTA_{'BOOTSTRAP_SERVER' if which.broker else 'ZOOKEEPER'}={state.connect}")
    return _running(state, server, which)


@command.command("stop")
@declared
def stop(*, which: Which = _WHICH) -> None:
    """Stop the sandbox; its data stays in its folder."""
    note("stopped" if sandbox.stop(which.directory) else _not_running(which))


@command.command("status")
@declared
@shown_as("text", "json")
def status(*, which: Which = _WHICH) -> View:
    """Print the address of a running sandbox; exits with 4 when it does not run."""
    state = sandbox.status(which.directory)
    if state is None:
        note(_not_running(which))
        return View(screen=lambda: (), document=lambda: _document(running=False), code=ExitCode.UNREACHABLE)
    server = replace(which, broker=state.login is not None).server  # --dir alone does not say which of the two it is
    note(f"its log: {Path(state.directory, server.log_file)} (all there is to know: -o json)")
    return _running(state, server, which)


def _not_running(which: Which) -> str:
    """Says so, and which of the two sandboxes runs instead."""
    other = replace(which, broker=not which.broker)
    if which.dir is not None or sandbox.status(other.directory) is None:
        return "not running"
    return f"not running, but the {other.server.title} is: {'with' if other.broker else 'without'} --broker"


def _users(state: SandboxState) -> dict[str, str]:
    """The users of a broker, each with its file for --command-config."""
    if state.login is None:
        return {}
    from kquota.sandbox.broker import logins

    return logins(Path(state.directory))


def _running(state: SandboxState, server: Server, which: Which) -> View:
    where = f"{'--zookeeper' if state.login is None else '--bootstrap-server'} {state.connect}"
    requests = None if server.request_log is None else str(Path(state.directory, server.request_log))
    users = _users(state)
    note(f"its quotas: kquota describe {where}")
    if state.metrics is not None:
        note(f"its metrics: kquota top --metrics {state.metrics}")
    if requests is not None:
        note(f"its requests: kquota record {where} --log {shlex.quote(requests)} --size 1GB")
    if users:
        options = f"--bootstrap-server {state.login} --command-config {shlex.quote([*users.values()][-1])}"
        note(f"every client of {state.connect} is ANONYMOUS; at {state.login} log in {', '.join(users)}:")
        note(f"  kquota probe produce --topic load --create-topic {options}")
    folder = "" if which.dir is None else f" --dir {shlex.quote(state.directory)}"
    note(f"its end, which keeps its data: kquota sandbox stop{'' if state.login is None else ' --broker'}{folder}")
    fields = picked(state, "connect pid directory") | {"log": str(Path(state.directory, server.log_file))}
    fields |= present(
        request_log=requests, metrics=state.metrics, login=state.login, users=None if state.login is None else users
    )
    return View(screen=lambda: [state.connect], document=lambda: _document(running=True, **fields))


def _document(**fields: Any) -> Document:
    return {"kind": "kquota.sandbox", "version": 1, **fields}
