"""JAAS logins: the value of sasl.jaas.config, and the files of java.security.auth.login.config.

As `org.apache.kafka.common.security.JaasConfig` and `sun.security.provider.ConfigFile` read them: words, texts in
quotes, comments of Java. No message shows any of the text, which holds passwords.
"""

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

_FLAGS = frozenset({"required", "requisite", "sufficient", "optional"})
_TOKEN = re.compile(
    r"""(?:\s|//[^\n]*|/\*.*?\*/)*(?:(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?P<mark>[={};])"""
    r"""|(?P<word>[^\s={};"']+)|(?P<end>\Z))""",
    re.DOTALL,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}


@dataclass(frozen=True)
class Login:
    """A login module, by its Java class, and its options."""

    module: str
    options: dict[str, str] = field(repr=False)


def parse_login(text: str) -> Login:
    """The one login of a sasl.jaas.config. Raises ValueError for anything else."""
    tokens = deque(_scan(text))
    login = _login(tokens)
    _take(tokens, "end")
    return login


def parse_file(text: str) -> dict[str, list[Login]]:
    """The logins of each context of a file, such as `Client { … };`. Raises ValueError for anything else."""
    tokens = deque(_scan(text))
    contexts: dict[str, list[Login]] = {}
    while tokens[0][0] != "end":
        logins = contexts.setdefault(_take(tokens, "text"), [])
        _take(tokens, "{")
        while tokens[0][0] != "}":
            logins.append(_login(tokens))
        tokens.popleft()
        _take(tokens, ";")
    return contexts


def _login(tokens: deque[tuple[str, str]]) -> Login:
    module, flag = _take(tokens, "text"), _take(tokens, "text")
    if flag.lower() not in _FLAGS:
        raise ValueError("not a JAAS configuration")
    options: dict[str, str] = {}
    while tokens[0][0] != ";":
        name = _take(tokens, "text")
        _take(tokens, "=")
        options[name] = _take(tokens, "text")
    tokens.popleft()
    return Login(module, options)


def _take(tokens: deque[tuple[str, str]], kind: str) -> str:
    """The value of the next token, which must be of that kind."""
    actual, value = tokens.popleft()
    if actual != kind:
        raise ValueError("not a JAAS configuration")
    return value


def _scan(text: str) -> Iterator[tuple[str, str]]:
    """What the text is made of; each is its kind (text, end or the mark itself) and its value."""
    position = 0
    while True:
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError("not a JAAS configuration")
        position = match.end()
        if match["mark"]:
            yield match["mark"], match["mark"]
        elif match["end"] is not None:
            yield "end", ""
            return
        else:
            yield "text", match["word"] or _unquoted(match["text"])


def _unquoted(text: str) -> str:
    """A text without its quotes; a backslash is as in Java's `StreamTokenizer`, but for octal numbers."""
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), text[1:-1], flags=re.DOTALL)
