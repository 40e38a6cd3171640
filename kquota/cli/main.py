"""The `kquota` command: its subcommands, and how an error becomes one line and an exit code.

Nothing but click is imported here; a subcommand's module is imported when it is used, and what is heavy inside it when
it runs.
"""

import contextlib
import importlib
import io
import os
import re
import sys
from collections.abc import Mapping, Sequence

import click

from kquota import __version__
from kquota.cli.exit_codes import ExitCode, exit_code_of
from kquota.cli.streams import Terminated, global_options, guarded, note, say, say_lines, with_global_options
from kquota.errors import InputError, KquotaError, MissingDependency, Unauthorized, Unreachable

# What each command is for stands here as well as in its module (a test compares), so that `kquota --help` need not
# import all of them.
GROUPS = {
    "Quotas": {
        "describe": "Show the quotas that are set.",
        "alter": "Set and delete quotas.",
        "delete": "Delete all quotas of entities.",
        "resolve": "Explain which quota governs a client, or whom a quota governs.",
        "watch": "Follow the changes of quotas.",
        "history": "Show kquota's writes, and what became of each.",
        "undo": "Revert an apply, an alter or a delete, or end a recording.",
    },
    "Quotas as a file": {
        "export": "Write a cluster's quotas as a file, also as another tool's.",
        "import": "Read another tool's quotas, and write them as a quotas file.",
        "lint": "Find quotas that have no effect or surprise, in FILE or live.",
        "plan": "Show what would give a cluster the quotas of FILE.",
        "apply": "Apply a quotas file, or a plan that 'plan --out' kept.",
        "edit": "Edit a cluster's quotas, review the plan, and apply it.",
        "reconcile": "Revert writes with --for when their time is over.",
        "diff": "Show what would turn A into B: clusters, files or plans.",
    },
    "Traffic": {
        "record": "Switch brokers' request logs on for a while, and always back.",
        "audit": "Show who would be throttled, when, by which quota, how much.",
        "follow": "Follow a log or a topic: when throttling begins and ends.",
        "recommend": "Recommend quotas from recorded usage.",
        "simulate": "Show what brokers would do to a workload.",
        "top": "Show who is throttled or near it now.",
        "exporter": "Serve limits, drift, leases and findings to Prometheus.",
        "generate": "Write rules, alerts and a dashboard for 'kquota exporter'.",
        "probe": "Load a live broker a little, and check how it throttles.",
    },
    "Clusters and settings": {
        "doctor": "Check the installation, the settings and the login.",
        "config": "Name clusters, and choose the one to talk to.",
        "sandbox": "Start a real broker or ZooKeeper, for first steps.",
        "migrate": "Check what a migration to KRaft made of the quotas.",
        "kafka-configs": "Do to quotas what Kafka's kafka-configs does.",
    },
    "Help": {
        "help": "Explain a concept, or a command.",
        "schema": "Print the JSON Schema of a document, or the names of all.",
    },
}
"""The commands by what people do with them."""

COMMANDS = {name: about for group in GROUPS.values() for name, about in group.items()}

_TRIED = {
    "describe": "list get show ls quotas list-quotas",
    "alter": "set add create update",
    "delete": "rm remove",
    "undo": "revert rollback",
    "resolve": "why who explain",
}
_PERHAPS = {
    "audit": "throttled",
    "top": "throttle",
    "diff": "compare drift",
    "doctor": "status",
    "history": "log leases reason message",
    "lint": "validate check",
    "export": "backup dump",
    "follow": "tail",
    "exporter": "monitor",
    "help": "completion",
}
_TRIED_OPTIONS = {
    "--add-config": "--set --add --config --quota",
    "--delete-config": "--unset --delete --remove",
    "--for": "--until --ttl",
    "--file": "-f",
    "--yes": "-y --auto-approve",
    "-n": "--last --limit",
    "--since": "--from --after",
    "--until": "--to --before",
    "--who": "--entity --user-defaults --client-defaults",
    "-o": "--out --format",
    "--only": "--user --client --client-id --match",
    "--duration": "--for",
    "--bootstrap-server": "-b",
    "--exit-code": "--detailed-exitcode",
    "--message": "--reason --comment --ticket --why",
    "--user": "--principal --username",
    "--listen": "--port --address",
}

_A_FILE = ("-f", "--file", "--filename", "--log", "--plan")
"""Options before what is an argument here."""


def _by_word(tried: Mapping[str, str]) -> dict[str, str]:
    return {word: meant for meant, words in tried.items() for word in words.split()}


ALIASES = _by_word(_TRIED)
"""Words that people try first, with the command that they mean."""
LIKE, _MEANT = _by_word(_PERHAPS), _by_word(_TRIED_OPTIONS)
"""Words with the command that they may mean, and options with the option that they mean where a command has it."""

_MODULES = {"import": "kquota.cli.commands.import_", "kafka-configs": "kquota.cli.kafka_configs"}
"""Where the module is not the one of the command's name: a word of Python, and a command with a folder of its own."""


_BEGIN = """\
kquota: which command? Three to begin with:

  kquota describe --bootstrap-server HOST:PORT                      the quotas that are set
  kquota resolve --user alice --client app1 --bootstrap-server …    which of them governs a client
  kquota alter --user alice --add-config producer_byte_rate=10MB --bootstrap-server … --dry-run

'kquota --help' lists all commands, 'kquota help concepts' explains quotas."""


_WIDTH_WITHOUT_TERMINAL = 78
"""What click leaves for text of the 80 columns that it assumes then."""


class LazyGroup(click.Group):
    """A group whose subcommands are imported on use: `kquota.cli.commands.<name>` holds `command`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = _MODULES.get(cmd_name, f"kquota.cli.commands.{cmd_name}")
        command: click.Command = importlib.import_module(module).command
        # Kafka's own command line is taken as it is.
        return command if cmd_name == "kafka-configs" else with_global_options(command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # One column for all groups.
        width = max(map(len, COMMANDS))
        for group, commands in GROUPS.items():
            with formatter.section(group):
                formatter.write_dl([(f"{name:<{width}}", about) for name, about in commands.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args == ["version"]:
            click.echo(f"kquota, version {__version__}")
            ctx.exit()
        meant = ALIASES.get(args[0]) if args else None
        if meant is not None:
            note(f"'kquota {args[0]}' is 'kquota {meant}'")
            args = [meant, *args[1:]]
        if args[:2] == ["describe", "quotas"]:  # as `kubectl get` has it
            args = [args[0], *args[2:]]
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib

            alike = difflib.get_close_matches(args[0], COMMANDS, n=1)
            for close in filter(None, (LIKE.get(args[0]), *alike)):
                text = f"{error.message} Did you mean {close!r}? {COMMANDS[close]}"
                raise click.UsageError(text, ctx) from None
            raise


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Run 'kquota COMMAND --help' for the options and examples of a command, 'kquota help concepts' for how"
    " quotas work, 'kquota help completion' for the Tab key.",
)
@click.version_option(__version__, "-V", "--version", prog_name="kquota")
def cli() -> None:
    """Kafka client quotas: describe and alter them, explain them, and audit or simulate who would be throttled.

    \b
    Examples:
      kquota describe --bootstrap-server host:9092
      kquota alter --bootstrap-server host:9092 --user alice --add-config producer_byte_rate=10MB
      kquota resolve --bootstrap-server host:9092 --user alice --client app1
      kquota audit kafka-request.log --quotas quotas.yaml
      kquota simulate workload.yaml --quotas quotas.yaml
    """


cli.params.extend(global_options())


def run(argv: Sequence[str]) -> int:
    """Runs one command line and returns its exit code. Never raises, and prints a traceback only with `--debug`.

    The exit code says what became of the work: it does not depend on who reads the output. Where the work is done and
    its output is lost to more than a reader that went away, it is OUTPUT.
    """
    with guarded() as output:
        code = _run(argv, guarded=output is not None)
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        # Kafka's tool does not look at what became of its output, and neither do the scripts that call it.
        lost = None if output is None else output.lost
        if lost is not None and code in (ExitCode.OK, ExitCode.DIFFERENT) and "kafka-configs" not in argv[:2]:
            _complain(f"the output could not be written: {lost.strerror}", "all else is done")
            return ExitCode.OUTPUT
        return code


def _run(argv: Sequence[str], *, guarded: bool) -> int:
    # The process ends in `finally`-safe code paths only: an error is one line on stderr, whatever it was.
    debug = "--debug" in argv
    if "_KQUOTA_COMPLETE" in os.environ:
        from kquota.cli.completion import complete

        return complete(cli, os.environ["_KQUOTA_COMPLETE"])
    if not argv:
        say_lines(_BEGIN)
        return ExitCode.USAGE
    try:
        # click loads shutil, and with it three compressors, to learn that there is no terminal.
        width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _WIDTH_WITHOUT_TERMINAL
        result = cli.main(args=list(argv), prog_name="kquota", standalone_mode=False, terminal_width=width)
        sys.stdout.flush()
        return int(result) if isinstance(result, int) else ExitCode.OK
    except click.UsageError as error:
        _show(_advised(error))
        return ExitCode.USAGE
    except click.ClickException as error:
        _show(error)
        return ExitCode.INPUT
    except KquotaError as error:
        if debug:
            _traceback()
        _complain(error.message, _hint(error))
        for other in error.others if isinstance(error, InputError) else ():
            _complain(other, None)
        return exit_code_of(error)
    except (KeyboardInterrupt, click.Abort) as error:
        say("kquota: interrupted")
        # click makes its own error of the interrupt.
        return ExitCode.TERMINATED if isinstance(error.__cause__, Terminated) else ExitCode.INTERRUPTED
    except (SystemExit, BrokenPipeError) as error:
        # In this mode click raises SystemExit for one reason: a pipe was broken. Of the standard streams none can be,
        # where they are the process's own.
        if not guarded:
            return ExitCode.OK
        _complain(f"internal error: a pipe was broken ({type(error).__name__})", "this is a bug: see 'kquota --debug'")
        return ExitCode.INTERNAL
    except Exception as error:
        if debug:
            _traceback()
        if isinstance(error, OSError) and _NO_ROOM.match(str(error.strerror)):
            _complain(str(error.strerror), "make room, or have TMPDIR name another folder")
            return ExitCode.INPUT
        _complain(f"internal error: {type(error).__name__}: {error}", "this is a bug: run again with 'kquota --debug'")
        return ExitCode.INTERNAL


def _advised(error: click.UsageError) -> click.UsageError:
    """The error, and what to write instead of a word that stands where no word belongs."""
    ctx = error.ctx
    if ctx is None:
        return error
    options = [option for param in ctx.command.params for option in param.opts]
    advice = ""
    if isinstance(error, click.NoSuchOption):
        advice = _instead_of(error.option_name, options, ctx)
        return click.UsageError(f"No such option {error.option_name!r}{advice}", ctx)
    if isinstance(error, click.BadOptionUsage) and ctx.command.name == "describe":
        plural = {"--user": "users", "--client": "clients", "--ip": "ips"}.get(error.option_name)
        advice = f" All of them: --entity-type {plural}" if plural else ""
        return click.UsageError(f"{error.message}{advice}", ctx)
    if isinstance(error, click.BadParameter) and error.param and "-o" in error.param.opts:
        if "--report" in options:
            advice = " --report FILE.html writes a page."
        elif "--out" in options:
            advice = " --out FILE writes a file."
        return click.UsageError(f"{error.format_message()}{advice}", ctx)
    if extra := re.match(r"Got unexpected extra arguments? \(([^ )]+)", error.message):
        is_file = re.search(r"\.(?:ya?ml|json|csv|log)$", extra[1]) is not None
        if is_file and {"--out", "--quotas"} & {*options}:
            advice = ". --out FILE writes a file" if "--out" in options else ". --quotas FILE reads a file"
        elif "--client" in options:
            quotas = "; quotas are one list: --add-config KEY=VALUE,KEY=VALUE" if "--add-config" in options else ""
            advice = f". Entities are options: --user NAME, --client NAME or --ip ADDRESS{quotas}"
        elif f"--{extra[1]}" in options:
            advice = f". Did you mean '--{extra[1]}'?"
    return click.UsageError(f"{error.message}{advice}", ctx) if advice else error


def _instead_of(option: str, options: Sequence[str], ctx: click.Context) -> str:
    """What to write in place of an option that there is not: what people mean by it, else what is really alike."""
    import difflib

    from kquota.core.quotas.quota import QuotaKey

    if (meant := _MEANT.get(option)) in options:
        return f". Did you mean {meant!r}?"
    if ctx.command.name == "audit" and option in ("--user", "--client", "--client-id", "--match", "--only"):
        return ". Clients share counters, so all are judged: 'kquota help verdicts' has a gate for one of them."
    for argument in ctx.command.params if option in _A_FILE else ():
        if isinstance(argument, click.Argument):
            return f". {argument.make_metavar(ctx).strip('[]…')} stands without an option."
    key = option.lstrip("-").replace("-", "_")
    if key in map(str, QuotaKey) and "--add-config" in options:
        return f". Did you mean: --add-config {key}=VALUE"
    if (word := option.lstrip("-")) in COMMANDS:
        return f". 'kquota {word}' is a command of its own."
    known = [name[2:] for name in options if name.startswith("--")]
    if close := difflib.get_close_matches(word, known, n=2, cutoff=0.7):
        return f". Did you mean {' or '.join(repr(f'--{name}') for name in close)}?"
    return "." if ctx.parent else f". Options of a command come after it: kquota COMMAND {option} …"


def _show(error: click.ClickException) -> None:
    """What click says of an error, which repeats words of the command line."""
    output = io.StringIO()
    error.show(output)
    # click indents choices by tabs, which are spelled out as all control characters are.
    say_lines(output.getvalue().expandtabs(4))


_NO_ROOM = re.compile("no space left|disk quota exceeded|no usable temporary directory", re.IGNORECASE)
_OF_A_CLUSTER = re.compile(
    r"cannot (?:reach|authenticate to) (?:Kafka|ZooKeeper)\b|ZooKeeper at \S+ re(?:fused|quires)\b"
)
"""Errors on the way to a cluster, which is the way that doctor walks."""
_NOT_ALLOWED = re.compile(r"[A-Z_]+_AUTHORIZATION_FAILED\b")
"""Brokers' answers to a login that may not do what was asked."""


def _hint(error: KquotaError) -> str | None:
    """The error's hint, and the next step: for a missing extra, the command that installs it here."""
    if isinstance(error, Unauthorized | Unreachable) and _OF_A_CLUSTER.match(error.message):
        return "; ".join(filter(None, (error.hint, "'kquota doctor' checks each step of the way")))
    if isinstance(error, Unauthorized) and _NOT_ALLOWED.match(error.message):
        return "; ".join(filter(None, (error.hint, "'kquota doctor' names the permission that is missing")))
    if not isinstance(error, MissingDependency):
        return error.hint
    from kquota.cli.extras import remedy

    return remedy(error)


def _complain(message: str, hint: str | None) -> None:
    line = " ".join(message.split())
    say(f"kquota: {line}" + (f" ({hint})" if hint else ""))


def _traceback() -> None:
    import traceback

    for part in traceback.format_exception(sys.exception()):
        # A message that has lines of its own is one line, as everywhere.
        if part.startswith((" ", "\n", "Traceback")):
            say_lines(part)
        else:
            say(part.rstrip("\n"))
