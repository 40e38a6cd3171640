"""`kquota kafka-configs`: a drop-in for Kafka's own tool, for users, clients, ips and their combinations.

It takes Kafka's options, and answers with Kafka's stdout and exit code; an error is one line on stderr. It is the tool
of 2.8, the last one that writes quotas to ZooKeeper, when `--zookeeper` is the connection, else the current one.
docs/kafka-configs.md has a table of what differs from Kafka on purpose.
"""

import re
import sys
from collections.abc import Sequence
from typing import TextIO

import click

from kquota.cli.kafka_configs import options
from kquota.cli.kafka_configs.options import Options, Refusal
from kquota.cli.text import safe
from kquota.errors import KquotaError

_PASSWORD = re.compile(r"(password=)(?!\*{8}).*?(?=\](?:,|\Z)|\Z)", re.IGNORECASE | re.DOTALL)


def run(argv: Sequence[str]) -> int:
    """Executes one command line of kafka-configs and returns its exit code."""
    try:
        given = Options(argv)
        if not argv or given.has("help"):
            raise Refusal(options.TITLE, usage=True)
        if given.has("version"):
            _out(options.VERSIONS[given.has("zookeeper")])
            return 0
        options.check(given)
        if given.has("zookeeper"):
            from kquota.cli.kafka_configs import zookeeper

            zookeeper.run(given, _out)
        else:
            from kquota.cli.kafka_configs import bootstrap

            bootstrap.run(given, _out)
    except Refusal as refusal:
        message = _PASSWORD.sub(r"\1********", str(refusal))
        _print(f"{message}\n{options.USAGE}" if refusal.usage else message, sys.stderr)
    except KquotaError as error:
        _print(f"kquota: {error.whole}", sys.stderr)
    else:
        return 0
    return 1


def _out(line: str) -> None:
    _print(line, sys.stdout)


def _print(line: str, stream: TextIO) -> None:
    """Prints a line as Java does. Not click's echo, which cuts colours out of names."""
    # Bytes of the command line that are no UTF-8 come out as Java's replacement character, not as an error. Half a
    # character, which an escape in JSON can be, is a question mark to Java, and so is what the locale does not have.
    line = re.sub("[\ud800-\udc7f\udd00-\udfff]", "?", line)
    text = line.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if stream.isatty():  # scripts get what Kafka's tool gives them, but a name must not drive a terminal
        text = re.sub(r"[^\n\t]+", lambda match: safe(match[0]), text)
    encoding = stream.encoding or "utf-8"
    stream.write(text.encode(encoding, "replace").decode(encoding) + "\n")
    stream.flush()


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
    """Do to quotas what Kafka's kafka-configs does.

    With --zookeeper it is the tool of Kafka 2.8.2, else the tool of 4.4.0. Alters are written down for 'kquota history'
    and 'kquota undo', in the folder KQUOTA_JOURNAL; KQUOTA_KAFKA_CONFIGS_JOURNAL=off turns that off.

    \b
    Examples:
      kquota kafka-configs --zookeeper localhost:2181 --describe --entity-type users
      kquota kafka-configs --bootstrap-server localhost:9092 --alter --user alice --add-config producer_byte_rate=1024
    """
    return run(argv)
