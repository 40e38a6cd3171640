"""The shells: their scripts, the line that they hand over, and the answer in the form that each can take."""

from __future__ import annotations

import os
from typing import Final

import click
from click.shell_completion import CompletionItem, ShellComplete

from kquota.cli.completion import words

_BASH = """\
# kquota's completion for bash. To be sourced, or put where bash-completion looks:
# ~/.local/share/bash-completion/completions/kquota

%(complete_func)s() {
    local line
    COMPREPLY=()
    # An answer is a line: what replaces $2, after an equals sign, or how to go on.
    while IFS= read -r line; do
        case $line in
            =*) COMPREPLY+=("${line:1}") ;;
            nospace) compopt -o nospace ;;
            file) compopt -o default ;;
            dir) compopt -o dirnames ;;
        esac
    done <<< "$(
        _KQUOTA_BEFORE="${COMP_LINE:0:COMP_POINT}" _KQUOTA_AFTER="${COMP_LINE:COMP_POINT}" _KQUOTA_WORD="$2" \\
            %(complete_var)s=bash_complete "$1" 2> /dev/null
    )"
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""

_ZSH = """\
#compdef %(prog_name)s
# kquota's completion for zsh. To be put into a folder of $fpath as _%(prog_name)s, or sourced after compinit.

%(complete_func)s() {
    local line kind
    local -a fields whole open described
    # An answer is a line: its kind, the word, and what it means, with tabs between them.
    for line in "${(@f)$(
        _KQUOTA_BEFORE="${(j: :)words[1,CURRENT-1]} $QIPREFIX$IPREFIX$PREFIX" \\
            _KQUOTA_AFTER="$SUFFIX ${(j: :)words[CURRENT+1,-1]}" \\
            %(complete_var)s=zsh_complete %(prog_name)s 2> /dev/null
    )}"; do
        fields=("${(@s:\t:)line}")
        case $fields[1] in
            whole) whole+=("$fields[2]") ;;
            open) open+=("$fields[2]") ;;
            described) described+=("${fields[2]//:/\\\\:}:$fields[3]") ;;
            file|dir)
                [[ $PREFIX == -*=* ]] && compset -P 1 '*='
                if [[ $fields[1] == dir ]]; then _path_files -/; else _path_files; fi
                ;;
        esac
    done
    (( $#described )) && _describe -V options described -U
    (( $#whole )) && compadd -U -V names -a whole
    (( $#open )) && compadd -U -V keys -S '' -a open
    return 0
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    %(complete_func)s "$@"
else
    compdef %(complete_func)s %(prog_name)s
fi
"""

_FISH = """\
# kquota's completion for fish. To be put into ~/.config/fish/completions as %(prog_name)s.fish, or sourced.

function %(complete_func)s
    type -q %(prog_name)s; or return
    # What is behind the cursor, fish does not tell.
    set -l answer (_KQUOTA_BEFORE=(commandline -cp | string collect) \\
        %(complete_var)s=fish_complete %(prog_name)s 2>/dev/null)
    set -l head (string match -r -- '^-[^=]*=' (commandline -ct))
    switch "$answer[1]"
        case file
            printf '%%s\\n' "$head"(__fish_complete_path (string replace -- "$head" '' (commandline -ct)))
        case dir
            printf '%%s\\n' "$head"(__fish_complete_directories (string replace -- "$head" '' (commandline -ct)))
        case '*'
            string join -- \\n $answer
    end
end

complete --no-files --keep-order --command %(prog_name)s --arguments "(%(complete_func)s)"
"""


class _Shell(ShellComplete):
    """What the shells have in common. They hand over the line before the cursor, and after it."""

    _typed: words.Word

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
    source_template = _BASH

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
    source_template = _ZSH

    def format_completion(self, item: CompletionItem[str]) -> str:
        kind = item.type if item.type != "plain" else "open" if item.open else "described" if item.help else "whole"
        return f"{kind}\t{item.value}\t{_line(item.help)}"


class Fish(_Shell):
    """Fish quotes what it inserts, and puts no blank after = and the like."""

    name = "fish"
    source_template = _FISH

    def format_completion(self, item: CompletionItem[str]) -> str:
        if item.type != "plain":
            return item.type
        return f"{item.value}\t{_line(item.help)}" if item.help else item.value


def _line(text: str | None) -> str:
    return click.unstyle(" ".join((text or "").split()))


SHELLS: Final[dict[str, type[_Shell]]] = {shell.name: shell for shell in (Bash, Zsh, Fish)}
