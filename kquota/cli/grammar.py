"""How command lines are read: the classes of kquota's commands, and of groups of them."""

import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

import click
from click.core import augment_usage_errors

from kquota.cli.options import declared
from kquota.core.quotas.entity import DEFAULT, EntityType, Name

_MOST: Final = 20
"""More options than these do not help whoever reads them."""
_RARE: Final = (
    *("entity_types", "entity_names", "entity_default", "no_headers", "sort_by", "journal", "wait", "log_timezone"),
    *("quota_window_num", "quota_window_size_seconds", "num_partitions", "quarantine", "engine", "master"),
    *("prometheus_match", "step", "last", "recorded_under", "quotas_journal", "checkpoint", "settle"),
    *("keep", "out_json"),
)
"""The parameters that the help of a command with more options leaves to --help-all."""
ALL_OPTIONS: Final = "kquota.help-all"
CALLED: Final = "kquota.called"
"""The command line, as a shell takes it."""


class Command(click.Command):
    """A command that refuses a second value for an option that takes one; click would silently take the last.

    Its help shows the options that people need; where these are many, `--help-all` shows the others.
    """

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        params = super().get_params(ctx)
        return [*params, _HELP_ALL] if self._rare(ctx, params) and ALL_OPTIONS not in ctx.meta else params

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        params = self.get_params(ctx)
        rare = self._rare(ctx, params) if ALL_OPTIONS not in ctx.meta else []
        records = [record for param in params if param not in rare and (record := param.get_help_record(ctx))]
        if records:
            with formatter.section("Options"):
                formatter.write_dl(records)

    def _rare(self, ctx: click.Context, params: Sequence[click.Parameter]) -> list[click.Parameter]:
        shown = [param for param in params if isinstance(param, click.Option) and param.get_help_record(ctx)]
        return [param for param in shown if param.name in _RARE] if len(shown) > _MOST + 1 else []  # and --help

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[CALLED] = shlex.join(["kquota", str(self.name), *args])
        with augment_usage_errors(ctx):
            _, _, given = self.make_parser(ctx).parse_args(args=list(args))
        for param, times in Counter(given).items():
            if isinstance(param, click.Option) and times > 1 and not (param.multiple or param.count or param.is_flag):
                raise click.UsageError(
                    f"Found multiple arguments for option {param.name}, but you asked for only one", ctx
                )
        return super().parse_args(ctx, args)


def _help_all(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        ctx.meta[ALL_OPTIONS] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


_HELP_ALL = click.Option(
    ["--help-all"], is_flag=True, is_eager=True, expose_value=False, callback=_help_all, help="Show all options."
)


def command(name: str) -> Callable[[Callable[..., Any]], click.Command]:
    """Makes a command of a function, with the options that its parameters declare."""
    return lambda function: click.command(name, cls=Command)(declared(function))


class Group(click.Group):
    """A group whose help says of each command all that its first line says."""

    command_class = Command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, child.get_short_help_str(limit=200)) for name, child in sorted(self.commands.items())]
            )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.commands and not args[0].startswith("-"):
            names = sorted(self.commands)
            near = [name for name in names if name.startswith(f"{args[0]}-")]
            there = f"Did you mean {near[0]!r}?" if near else f"Commands: {', '.join(names)}."
            raise click.UsageError(f"No such command {args[0]!r}. {there}", ctx)
        return super().resolve_command(ctx, args)


# --- How `--entity-name` and `--entity-default` go with `--entity-type`: by their place on the command line ----------

_ORDER: Final = "kquota.entity_names"
TYPES: Final = {kind.plural: kind for kind in EntityType}


def keep_name(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    """The callback of both options: click calls back in the order of the command line."""
    names_given(ctx).extend(value if isinstance(value, tuple) else [DEFAULT] * value)
    return value


def names_given(ctx: click.Context) -> list[Name]:
    """The names and defaults that were given so far, in their order."""
    names: list[Name] = ctx.meta.setdefault(_ORDER, [])
    return names


def next_type(ctx: click.Context) -> EntityType | None:
    """The type that one more --entity-name would go with, or None."""
    types: tuple[str, ...] = ctx.params.get("entity_types") or ()
    names = names_given(ctx)
    return TYPES.get(types[len(names)]) if len(names) < len(types) else None
