"""How command lines are read: the classes of kquota's commands, and of groups of them."""

from __future__ import annotations

from collections import Counter

import click


class Command(click.Command):
    """A command that refuses a second value for an option that takes one; click would silently take the last."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        _, _, given = self.make_parser(ctx).parse_args(args=list(args))
        for param, times in Counter(given).items():
            if isinstance(param, click.Option) and times > 1 and not (param.multiple or param.count or param.is_flag):
                raise click.UsageError(
                    f"Found multiple arguments for option {param.name}, but you asked for only one", ctx
                )
        return super().parse_args(ctx, args)


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
            raise click.UsageError(f"No such command {args[0]!r}. Commands: {', '.join(sorted(self.commands))}.", ctx)
        return super().resolve_command(ctx, args)
