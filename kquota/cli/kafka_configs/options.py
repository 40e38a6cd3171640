"""The command line as jopt-simple 5.0.4 reads it, with abbreviations off; no library of Python's reads it so."""

from __future__ import annotations

from collections.abc import Sequence

from kquota.cli.kafka_configs.failures import Refusal
from kquota.cli.kafka_configs.tool import CURRENT, DEFAULTS, KAFKA_2_8, Tool


class Options:
    """What the command line said, in its order."""

    def __init__(self, tool: Tool) -> None:
        self.tool = tool
        self._detected: list[tuple[str, str | None]] = []

    def add(self, name: str, argument: str | None) -> None:
        """Takes down one occurrence of an option."""
        self._detected.append((name, argument))

    def has(self, *names: str) -> bool:
        """Whether one of the options was given."""
        return any(name in names for name, _ in self._detected)

    def values(self, name: str) -> list[str]:
        """The arguments of an option, in order."""
        return [argument for given, argument in self._detected if given == name and argument is not None]

    def value(self, name: str) -> str | None:
        """The argument of an option that counts once, None without it. Raises Refusal when it was given twice.

        Jopt complains when the value is asked for, and not earlier: that decides which of several errors is shown.
        """
        values = self.values(name)
        if len(values) > 1:
            raise Refusal(f"Found multiple arguments for option {name}, but you asked for only one")
        return values[0] if values else None

    @property
    def entity_types(self) -> list[str]:
        """The entity types: first from `--entity-type`, then from the flags in an order of Kafka's own."""
        flags = {**self.tool.flags, **DEFAULTS}
        return self.values("entity-type") + [kind for flag, kind in flags.items() if self.has(flag)]

    @property
    def entity_names(self) -> list[str]:
        """The names, "" for a default; they belong to the types by position. Raises Refusal for a flag given twice."""
        long_form = [argument or "" for name, argument in self._detected if name in ("entity-name", "entity-default")]
        named = [self.value(flag) or "" for flag in self.tool.flags if self.has(flag)]
        return long_form + named + ["" for flag in DEFAULTS if self.has(flag)]


def tool_of(argv: Sequence[str]) -> Tool:
    """The version that the command line was written for: 2.8 when ZooKeeper is the first connection that it names."""
    for word in argv:
        name = word.lstrip("-").partition("=")[0] if word.startswith("-") else ""
        if name == "zookeeper":
            return KAFKA_2_8
        if name in ("bootstrap-server", "bootstrap-controller"):
            break
    return CURRENT


def parse(argv: Sequence[str], tool: Tool) -> Options:
    """Reads a command line. Raises Refusal for an unknown option or one without its argument."""
    options = Options(tool)
    words = iter(argv)
    for word in words:
        if word == "--":
            break
        if not word.startswith("-") or word == "-":
            continue  # a stray word means nothing to Kafka
        name, equals, argument = word[2 if word.startswith("--") else 1 :].partition("=")
        if name in tool.without_argument:
            options.add(name, None)
            continue
        if name not in tool.with_argument:
            # After a single dash jopt takes the letters for options of one letter each, of which there are none.
            raise Refusal(f"{name if word.startswith('--') else word[1]} is not a recognized option")
        if not equals:
            following = next(words, None)
            if following is None:
                raise Refusal(f"Option {name} requires an argument")
            argument = following  # whatever it is, an option included
        _add(options, name, argument)
    return options


def _add(options: Options, name: str, argument: str) -> None:
    """A list of `--delete-config` loses its empty items, unless it has no other."""
    items = [item for item in argument.split(",") if item] if name == "delete-config" else []
    for item in items or [argument]:
        options.add(name, item)
