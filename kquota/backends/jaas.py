"""JAAS logins: the value of sasl.jaas.config, and the files of java.security.auth.login.config.

As `org.apache.kafka.common.security.JaasConfig` and `sun.security.provider.ConfigFile` read them: words, texts in
quotes, comments of Java. No message shows any of the text, which holds passwords.
"""

import re
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
    tokens = _Tokens(text)
    login = tokens.login()
    tokens.expect("end")
    return login


def parse_file(text: str) -> dict[str, list[Login]]:
    """The logins of each context of a file, such as `Client { … };`. Raises ValueError for anything else."""
    tokens = _Tokens(text)
    contexts: dict[str, list[Login]] = {}
    while not tokens.at("end"):
        logins = contexts.setdefault(tokens.name(), [])
        tokens.expect("{")
        while not tokens.at("}"):
            logins.append(tokens.login())
        tokens.expect("}")
        tokens.expect(";")
    return contexts


class _Tokens:
    """What the text is made of; each is its kind (text, end or the mark itself) and its value."""

    def __init__(self, text: str) -> None:
        self._rest = _scan(text)
        self._next = next(self._rest)

    def at(self, kind: str) -> bool:
        return self._next[0] == kind

    def expect(self, kind: str) -> str:
        """The value of the next token, which must be of that kind."""
        found, value = self._next
        if found != kind:
            raise ValueError("not a JAAS configuration")
        if kind != "end":
            self._next = next(self._rest)
        return value

    def name(self) -> str:
        return self.expect("text")

    def login(self) -> Login:
        module = self.name()
        if self.name().lower() not in _FLAGS:
            raise ValueError("not a JAAS configuration")
        options: dict[str, str] = {}
        while not self.at(";"):
            name = self.name()
            self.expect("=")
            options[name] = self.name()
        self.expect(";")
        return Login(module, options)


def _scan(text: str) -> Iterator[tuple[str, str]]:
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
