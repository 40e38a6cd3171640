"""Shell words: what a line says as far as it is typed, and a name as the rest of a word."""

import os
import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a line: what it means, how it is written, and the quotation mark that it is still in (or nothing)."""

    value: str
    raw: str
    quote: str = ""


_BLANKS = " \t\n"
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})", re.ASCII)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)\Z", re.ASCII | re.DOTALL)
_HOME = re.compile(r"~(?=/|\Z)")


def split(line: str) -> list[Word]:
    """The words of a line; the last one is that at its end, empty after a blank.

    Quotes as in bash, zsh and fish; of expansions only exported variables and `~`, for nothing may be executed here.
    """
    words = []
    position = 0
    while True:
        while position < len(line) and line[position] in _BLANKS:
            position += 1
        word, end = _read(line, position)
        words.append(word)
        if end == len(line):
            return words
        position = end


def _read(line: str, start: int) -> tuple[Word, int]:
    """The word that begins there, and where it ends."""
    out: list[str] = []
    quote = ""
    position = start
    while position < len(line):
        char = line[position]
        rest = line[position + 1 : position + 2]
        if char == "\\" and _is_escape(quote, rest):
            out.append(rest if rest != "\n" else "")
            position = min(position + 2, len(line))
            continue
        variable = _VARIABLE.match(line, position) if quote != "'" else None
        value = variable and os.environ.get(variable[1] or variable[2])
        if variable and value is not None:
            out.append(value)
            position = variable.end()
            continue
        if quote:
            if char == quote:
                quote = ""
            else:
                out.append(char)
        elif char in "\"'":
            quote = char
        elif char in _BLANKS:
            break
        elif char == "~" and position == start and _HOME.match(line, position):
            out.append(os.path.expanduser("~"))
        else:
            out.append(char)
        position += 1
    return Word("".join(out), line[start:position], quote), position


def _is_escape(quote: str, following: str) -> bool:
    """Whether a backslash takes the meaning from what follows; between single quotes only fish knows some."""
    if quote == "'":
        return False
    return not quote or (following != "" and following in '"$`\\\n')


def assignments(words: list[Word]) -> dict[str, str]:
    """The variables that are set before the command, as in `KQUOTA_CONTEXT=prod kquota …`; they leave the list."""
    found = {}
    while words and (match := _ASSIGNMENT.match(words[0].value)):
        found[match[1]] = match[2]
        del words[0]
    return found


_SPECIAL = re.compile(r"[^\w@%+=:,./-]")


def quoted_rest(value: str, typed: Word) -> str | None:
    """What to write after a beginning so that bash reads the value; None where the value begins in another way.

    A quotation mark that is still open is left open: readline closes it.
    """
    if not value.startswith(typed.value):
        return None
    rest = value[len(typed.value) :]
    if typed.quote == "'":
        return rest.replace("'", "'\\''")
    if typed.quote == '"':
        # No backslash keeps an exclamation mark from the history without staying in the word.
        return re.sub(r'["$`\\]', r"\\\g<0>", rest).replace("!", "\"'!'\"")
    return _SPECIAL.sub(r"\\\g<0>", rest)
