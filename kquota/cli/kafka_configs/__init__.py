"""`kquota kafka-configs`: a drop-in for Kafka's own tool, for users, clients, ips and their combinations.

It takes Kafka's command line as it is, and answers with Kafka's stdout, first line on stderr and exit code: as the tool
of 2.8, the last one that writes quotas to ZooKeeper, when `--zookeeper` is the connection, else as the current one.
`KQUOTA_KAFKA_CONFIGS=2.8` or `=current` chooses the tool, whatever the connection.

Where it differs from Kafka on purpose:

- A write to ZooKeeper is a compare-and-set together with its change notification; Kafka's last writer wins. A cluster
  on its way to KRaft, where such a write is lost, is refused.
- Passwords of the command line are shown as asterisks in error messages.
- `--describe` on ZooKeeper prints stored SCRAM keys as Kafka does, which no other command of kquota does, but not on a
  terminal: there it prints `SCRAM-SHA-256=[hidden]`. Scripts that compare or parse the line, in a pipe or a file, get
  what Kafka's tool gave them; people only want to know that a credential is there, and a screen is shared, recorded
  and pasted. Through brokers no credentials are listed or altered.
- A stack trace is its first line only; a line of kquota's own may say more. What cannot be reached is reported at once,
  not after 30 s.
- Topics, brokers and the like are none of kquota's business: one line on stderr, and 1.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from typing import TextIO

import click

from kquota.cli.kafka_configs import java
from kquota.cli.kafka_configs.failures import Failure, Refusal, shown_arguments, without_secrets
from kquota.cli.kafka_configs.options import Options, parse, tool_of
from kquota.cli.kafka_configs.tool import CURRENT, KAFKA_2_8, QUOTA_TYPES, USAGE, Tool
from kquota.cli.kafka_configs.validation import check
from kquota.cli.text import safe
from kquota.errors import KquotaError

_TOOLS = {"2.8": KAFKA_2_8, "current": CURRENT}


def run(argv: Sequence[str]) -> int:
    """Executes one command line of kafka-configs and returns its exit code; prints as Kafka does."""
    try:
        tool = _tool(argv)
        options = parse(argv, tool)
        if not argv or options.has("help"):
            raise Refusal(tool.title, usage=True)
        if options.has("version"):
            _print(tool.version)
            return 0
        check(options)
        _execute(options)
    except (Refusal, java.IllegalArgument) as refusal:
        lines = [without_secrets(str(refusal))]
        if isinstance(refusal, Refusal) and refusal.usage:
            lines.append(USAGE.rstrip("\n"))
    except Failure as failure:
        lines = [f"Error while executing config command with args '{shown_arguments(argv)}'", failure.line]
        if failure.note is not None:
            lines.append(f"kquota: {failure.note}")
    except KquotaError as error:
        lines = [f"kquota: {error.message}" + (f" ({error.hint})" if error.hint else "")]
    else:
        return 0
    sys.stdout.flush()
    for line in lines:
        _print(line, sys.stderr)
    return 1


def _tool(argv: Sequence[str]) -> Tool:
    chosen = os.environ.get("KQUOTA_KAFKA_CONFIGS")
    if not chosen:
        return tool_of(argv)
    if chosen not in _TOOLS:
        raise Refusal(f"kquota: KQUOTA_KAFKA_CONFIGS is {chosen!r}, not one of {', '.join(_TOOLS)}")
    return _TOOLS[chosen]


def _execute(options: Options) -> None:
    kind = options.entity_types[0]
    if kind not in QUOTA_TYPES:
        raise Refusal(
            f"kquota: {kind} have no quotas: use Kafka's own kafka-configs (kquota knows users, clients, ips)"
        )
    if options.has("zookeeper"):
        from kquota.cli.kafka_configs import zookeeper

        zookeeper.run(options, _print)
    else:
        from kquota.cli.kafka_configs import bootstrap

        bootstrap.run(options, _print)


def _print(line: str, file: TextIO | None = None) -> None:
    # Bytes of the command line that are no UTF-8 come out as Java's replacement character, not as an error.
    text = line.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    stream = sys.stdout if file is None else file
    if stream.isatty():  # scripts get what Kafka's tool gives them, but a name must not drive a terminal
        text = re.sub(r"[^\n\t]+", lambda match: safe(match[0]), text)
    click.echo(text, file=stream)


class _Untouched(click.Command):
    """Takes the command line as it is: click would read some of it, `--` for one, in a way of its own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.params["argv"] = tuple(args)
        return []


@click.command(
    "kafka-configs",
    cls=_Untouched,
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
    options_metavar="",
)
@click.argument("argv", nargs=-1, type=click.UNPROCESSED, metavar="[KAFKA'S OWN OPTIONS]...")
def command(argv: tuple[str, ...]) -> int:
    """Do what Kafka's kafka-configs does to quotas: same options, output and exit codes.

    \b
    Examples:
      kquota kafka-configs --zookeeper localhost:2181 --describe --entity-type users
      kquota kafka-configs --bootstrap-server localhost:9092 --alter --user alice --add-config producer_byte_rate=1024
    """
    return run(argv)
