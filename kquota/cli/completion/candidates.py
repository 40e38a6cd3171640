"""The words that an option's value may be, each function for one kind of value."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from kquota.cli import contexts

Items = list[CompletionItem[str]]


def context_names(_ctx: click.Context, incomplete: str) -> Items:
    """The contexts of the configuration file."""
    return [
        CompletionItem(context.name, help=context.comment or ", ".join(context.addresses.values()))
        for context in contexts.load_config().contexts.values()
        if context.name.startswith(incomplete)
    ]
