"""The shells: their scripts, the line that they hand over, and the answer in the form that each can take."""

import os
from importlib.resources import files
from typing import Final

import click
from click.shell_completion import CompletionItem, ShellComplete

from kquota.cli.completion import words


class _Shell(ShellComplete):
    """What the shells have in common. They hand over the line before the cursor, and after it."""

    script: str
    """The file beside this module that the shell sources."""
    _typed: words.Word

    def source(self) -> str:
        return (files("kquota.cli.completion") / self.script).read_text(encoding="utf-8")

    def get_completion_args(self) -> tuple[list[str], str]:
        before = words.split(os.environ["_KQUOTA_BEFORE"])
        os.environ.update(words.assignments(before))
        after = os.environ.get("_KQUOTA_AFTER", "")
        # What is left of the word under the cursor is no word of its own.
        following = words.split(after)[0 if after[:1].isspace() else 1 :]
        self.ctx_args["obj"] = tuple(word.value for word in following)
        self._typed = before[-1]
        return [word.value for word in before[1:-1]], self._typed.value

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[str]]:
        """Whole words, `--option=` included, that can be typed and shown."""
        found = super().get_completions(args, incomplete)
        name, equals, _ = incomplete.partition("=")
        if incomplete.startswith("-") and equals:
            for item in found:
                item.value = f"{name}={item.value}"
        return [item for item in found if item.value.isprintable()]

    def complete(self) -> str:
        args, incomplete = self.get_completion_args()
        return self._answer(self.get_completions(args, incomplete))

    def _answer(self, items: list[CompletionItem[str]]) -> str:
        return "\n".join(map(self.format_completion, items))


class Bash(_Shell):
    """Bash inserts what it gets: the words are quoted here, as far as readline replaces them."""

    name = "bash"
    script = "kquota.bash"

    def _answer(self, items: list[CompletionItem[str]]) -> str:
        for item in items:
            if item.type != "plain":
                return item.type
        typed = self._typed.raw
        # readline splits at = and : too, and replaces only what follows ($2); what is before it stays as it is.
        replaced = os.environ.get("_KQUOTA_WORD", "")
        kept = words.split(typed.removesuffix(replaced))[-1]
        texts = [text for item in items if (text := words.quoted_rest(item.value, kept)) is not None]
        going_on = ["nospace"] if len(items) == 1 and items[0].open else []
        return "\n".join([*going_on, *(f"={text}" for text in texts)])


class Zsh(_Shell):
    """Zsh quotes what it inserts."""

    name = "zsh"
    script = "_kquota"

    def format_completion(self, item: CompletionItem[str]) -> str:
        kind = item.type if item.type != "plain" else "open" if item.open else "described" if item.help else "whole"
        return f"{kind}\t{item.value}\t{_line(item.help)}"


class Fish(_Shell):
    """Fish quotes what it inserts, and puts no blank after = and the like."""

    name = "fish"
    script = "kquota.fish"

    def format_completion(self, item: CompletionItem[str]) -> str:
        if item.type != "plain":
            return item.type
        return f"{item.value}\t{_line(item.help)}" if item.help else item.value


def _line(text: str | None) -> str:
    return click.unstyle(" ".join((text or "").split()))


SHELLS: Final[dict[str, type[_Shell]]] = {shell.name: shell for shell in (Bash, Zsh, Fish)}
