"""`kquota kafka-configs`: a drop-in for Kafka's own tool, for users, clients, ips and their combinations.

It takes Kafka's command line as it is, and answers with Kafka's stdout, first line on stderr and exit code: as the tool
of 2.8, the last one that writes quotas to ZooKeeper, when `--zookeeper` is the connection, else as the current one.
`KQUOTA_KAFKA_CONFIGS=2.8`, `=3.9` or `=current` chooses the tool, whatever the connection.

docs/kafka-configs.md has a table of what differs from Kafka on purpose. Above all: a write to ZooKeeper is a
compare-and-set together with its change notification; a cluster on its way to KRaft, where such a write is lost, is
refused; what is altered is written down in kquota's journal; passwords are shown as asterisks; and SCRAM keys in
ZooKeeper are not shown on a terminal, which is shared, recorded and pasted.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import click

from kquota.cli.kafka_configs import java, output
from kquota.cli.kafka_configs.failures import Failure, Refusal, shown_arguments, without_secrets
from kquota.cli.kafka_configs.options import Options, parse, tool_of
from kquota.cli.kafka_configs.tool import CURRENT, KAFKA_2_8, KAFKA_3_9, QUOTA_TYPES, USAGE, Tool
from kquota.cli.kafka_configs.validation import check
from kquota.errors import KquotaError

_TOOLS = ("2.8", "3.9", "current")


def run(argv: Sequence[str]) -> int:
    """Executes one command line of kafka-configs and returns its exit code; prints as Kafka does."""
    try:
        tool = _tool(argv)
        options = parse(argv, tool)
        if not argv or options.has("help"):
            raise Refusal(tool.title, usage=True)
        if options.has("version"):
            output.out(tool.version)
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
    for line in lines:
        output.err(line)
    return 1


def _tool(argv: Sequence[str]) -> Tool:
    """The tool that the environment names, else the last one that does to that connection what the command line says.

    Where the current one is asked for and the connection is ZooKeeper, it is the last one that has it.
    """
    chosen = os.environ.get("KQUOTA_KAFKA_CONFIGS")
    by_connection = tool_of(argv)
    if not chosen:
        return by_connection
    if chosen not in _TOOLS:
        raise Refusal(f"kquota: KQUOTA_KAFKA_CONFIGS is {chosen!r}, not one of {', '.join(_TOOLS)}")
    if chosen == "current":
        return CURRENT if by_connection is CURRENT else KAFKA_3_9
    return KAFKA_2_8 if chosen == "2.8" else KAFKA_3_9


def _execute(options: Options) -> None:
    kind = options.entity_types[0]
    if kind not in QUOTA_TYPES:
        raise Refusal(
            f"kquota: {kind} have no quotas: use Kafka's own kafka-configs (kquota knows users, clients, ips)"
        )
    if options.has("zookeeper"):
        from kquota.cli.kafka_configs import zookeeper

        zookeeper.run(options, output.out)
    else:
        from kquota.cli.kafka_configs import bootstrap

        bootstrap.run(options, output.out)


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

    With --zookeeper it is the tool of Kafka 2.8.2, else the tool of 4.3.1. KQUOTA_KAFKA_CONFIGS=2.8, 3.9 or current
    chooses the tool, whatever the connection. Alters are written down for 'kquota history' and 'kquota
    undo', in the folder KQUOTA_JOURNAL; KQUOTA_KAFKA_CONFIGS_JOURNAL=off turns that off.

    \b
    Examples:
      kquota kafka-configs --zookeeper localhost:2181 --describe --entity-type users
      kquota kafka-configs --bootstrap-server localhost:9092 --alter --user alice --add-config producer_byte_rate=1024
    """
    return run(argv)
