"""kafka-configs, Kafka's own tool: a shell script of its commands, and what `--describe` prints.

Sources: `kafka.admin.ConfigCommand` of 2.8 and 4.x. Both print names as they are between quotation marks, so a user who
is called `a', client-id 'b` looks the same as the pair.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from kquota.core.quotas.entity import DEFAULT, Entity, EntityType, Name
from kquota.core.quotas.quota import QuotaKey, Value, check_value, format_value, held, parse_stored, without_unit
from kquota.core.quotas.snapshot import Problem, QuotaSnapshot
from kquota.documents.foreign import Exported, Found, Unread, as_double, divided
from kquota.errors import InputError

_HEAD = """\
#!/bin/sh
# Client quotas as commands of Kafka's own tool; what is set and not named here stays as it is. Run it with
#   sh THIS_FILE --bootstrap-server localhost:9092      (and --command-config FILE, where brokers want a login)
# and with KAFKA_CONFIGS=/path/to/kafka-configs.sh where that is not on the PATH.
set -e
: "${KAFKA_CONFIGS:=kafka-configs.sh}"
"""
_LOCALE = """\
# Java reads the command line in the character set of the locale.
LC_ALL=C.UTF-8
export LC_ALL
"""


def export(snapshot: QuotaSnapshot) -> Exported:
    """A shell script with a command for each entity; its arguments (the connection) go to every command."""
    quotas, unsaid = divided(snapshot, _no_argument, as_double)
    text = ""
    for entity, values in quotas.items():
        pairs = ",".join(f"{key}={format_value(key, value)}" for key, value in values.items())
        text += f'"$KAFKA_CONFIGS" "$@" --alter {_options(entity)} --add-config {pairs}\n'
    return Exported(_HEAD + ("" if text.isascii() else _LOCALE) + text, unsaid)


def _no_argument(entity: Entity) -> str | None:
    if any(name is not DEFAULT and not name.isprintable() for _, name in entity.parts):
        return "a script with such a name would drive the terminal that shows it"
    return None


def _options(entity: Entity) -> str:
    return " ".join(
        f"--entity-type {kind.plural} "
        + ("--entity-default" if name is DEFAULT else f"--entity-name {shlex.quote(name)}")
        for kind, name in entity.parts
    )


# --- Import --------------------------------------------------------------------------------------------------------

_DESCRIBED = re.compile(r"\s*(?:Quota configs|Configs) for (?P<entity>.*) are(?: (?P<pairs>.*))?\Z", re.DOTALL)
_SCRAM = "SCRAM credential configs for "
_NOT_QUOTAS = re.compile(rf"\s*\Z|Warning: --zookeeper is deprecated|Use --bootstrap-server instead|{_SCRAM}")
# Kafka 0.9 and 0.10.0 wrote clients:NAME; word processors turn the quotation marks round.
_USER = r"(?:user-principal ['‘](?P<user>.+)['’]|users:(?P<old_user>.+)|(?:the )?default user-principal)"
_CLIENT = r"(?:client-id ['‘](?P<client>.+)['’]|clients:(?P<old_client>.+)|(?:the )?default client-id)"
_IP = r"(?:ips? ['‘](?P<ip>.+)['’]|(?:the )?default ips?)"
_TITLES = [re.compile(pattern, re.DOTALL) for pattern in (f"{_USER}, {_CLIENT}", _USER, _CLIENT, _IP)]
# A stored credential has commas of its own; so does one that a command sets.
_STORED_SCRAM = re.compile(
    r"(?:^|(?<=,))SCRAM-SHA-\d+=(?:\[hidden\]|salt=[^,]*,stored_key=[^,]*,server_key=[^,]*,iterations=\d+)(?:,|\Z)"
)
_GIVEN_SCRAM = re.compile(r"(?:^|(?<=,))\s*SCRAM-SHA-\d+\s*=\s*(?:\[[^\]]*\]|[^,]*)(?:,|\Z)")
_TOOL = re.compile(r"kafka[-_]configs", re.IGNORECASE)
_WINDOWS = re.compile(r"kafka[-_]configs\.(?:bat|cmd)\b", re.IGNORECASE)
_PLURALS = {kind.plural: kind for kind in EntityType}
_NAMED = {"user": EntityType.USER, "client": EntityType.CLIENT_ID, "ip": EntityType.IP}
_DEFAULTS = {f"{flag}-defaults": kind for flag, kind in _NAMED.items()}
_OTHER_FLAGS = {"alter", "describe", "all", "entity-default", "broker-defaults", "force", "help", "version"}


def read(name: str, text: str) -> QuotaSnapshot:
    """The quotas of what `kafka-configs --describe` printed, or of a shell script of `kafka-configs --alter` commands.

    SCRAM credentials, which are no quotas, are left out; other lines and commands about other things become problems.
    Raises InputError naming the line, also for a command that has a variable where an entity or a value should be. A
    text in which nothing is of the tool is an error, too.
    """
    text = text.replace("\r\n", "\n")
    lines = text.split("\n")
    if any(_DESCRIBED.match(line) or line.startswith(_SCRAM) for line in lines):
        return _described(name, lines)
    if _WINDOWS.search(text):
        hint = "import what 'kafka-configs --describe' prints"
        raise InputError(f"{name}: a script of Windows, which import does not read", hint=hint)
    if _TOOL.search(text) or _OPTION_ALTER.search(text):
        return _commanded(name, text)
    raise InputError(f"{name}: neither what kafka-configs --describe prints nor a script of its commands")


def _described(name: str, lines: list[str]) -> QuotaSnapshot:
    reading = Found()
    for number, line in enumerate(lines, 1):
        match = _DESCRIBED.match(line)
        if match is None and _NOT_QUOTAS.match(line):
            continue
        with reading.at(f"{name}, line {number}"):
            if match is None:
                raise Unread("not a line of quotas")
            title = next(filter(None, (pattern.fullmatch(match["entity"]) for pattern in _TITLES)), None)
            if title is None:
                raise Unread("not a user, client-id or ip")
            names = title.groupdict()
            # A part that is there without a name is the default.
            entity = Entity(
                *(
                    names[part] or names.get(f"old_{part}") or DEFAULT if part in names else None
                    for part in ("user", "client", "ip")
                )
            )
            values = _values(_STORED_SCRAM.sub("", match["pairs"] or ""))
            known = reading.quotas.setdefault(entity, {})
            if other := [key for key, value in values.items() if known.get(key, value) != value]:
                raise InputError(f"{other[0]} of {entity} is given twice, with other values")
            known.update(values)
    return reading.snapshot("", understood=bool(reading.quotas) or any(line.startswith(_SCRAM) for line in lines))


def _values(pairs: str) -> dict[QuotaKey, Value]:
    values = {}
    for pair in pairs.split(","):
        key_name, equals, text = pair.partition("=")
        if not pair.strip():
            continue
        if not equals:
            raise InputError("a quota is written as KEY=VALUE")
        key = QuotaKey.parse(key_name.strip())
        values[key] = _value(key, text.strip().removeprefix("[").removesuffix("]"))
    return values


def _value(key: QuotaKey, text: str) -> Value:
    """A value as Java reads it: whole numbers exactly, anything else as a double."""
    number = parse_stored(key, text)
    if number is None:
        # The current tool prints whole numbers as doubles, such as 1.0E7; this key is of that type.
        number = parse_stored(QuotaKey.REQUEST_PERCENTAGE, text)
        if number == 2.0**63:
            number = held(int(number))  # as a double, the greatest whole number is this one
    if number is None:
        raise InputError(f"{key}: not a number", hint=without_unit(key, text))
    return check_value(key, number)


def _commanded(name: str, text: str) -> QuotaSnapshot:
    reading, understood, within = Found(), text.startswith(_HEAD), 0
    for number, words, bare in _commands(name, text):
        head = next((word for word in words if word not in _BEFORE), "")
        within = max(0, within + (head in _OPEN) - (head in _CLOSE))
        tool = next((index for index, word in enumerate(words) if _TOOL.search(word)), None)
        if tool is None and not _alters_quotas(words):
            continue
        with reading.at(where := f"{name}, line {number}"):
            if _TYPOGRAPHIC.search(bare):
                raise Unread("typographic dashes, blanks or quotation marks: type ordinary ones")
            altered = _altered(words if tool is None else words[tool + 1 :])
            if altered is None:
                continue
            understood = True
            if within:
                reading.problems.append(Problem(where, "read as if it ran: it is within a branch or a loop"))
            entity, add, delete = altered
            values = reading.quotas.setdefault(entity, {})
            values.update(_values(_GIVEN_SCRAM.sub("", add)))
            for key_name in filter(None, map(str.strip, delete.split(","))):
                if not key_name.startswith("SCRAM-"):
                    values.pop(QuotaKey.parse(key_name), None)
    understood = understood or any("typographic" not in problem.message for problem in reading.problems)
    return reading.snapshot(f"{name}: no command in it sets quotas", understood=understood)


def _alters_quotas(words: list[str]) -> bool:
    """Whether a command whose tool is in a variable or has another name is the tool by its options."""
    options = {match[1] for word in words if (match := _OPTION.match(word))}
    return "alter" in options and not options.isdisjoint({"add-config", "add-config-file", "delete-config"})


_OPTION = re.compile(r"--?([a-z]+(?:-[a-z]+)*)(?==|\Z)")
"""Kafka's tool takes one dash as well."""
_OPTION_ALTER = re.compile(r"(?:^|\s)--?alter\b")
_OPEN, _CLOSE = {"if", "for", "while", "until", "case", "select"}, {"fi", "done", "esac"}
_BEFORE = {"then", "do", "else", "{", "!", "time"}
_TYPOGRAPHIC = re.compile("[\u2010-\u2015‘’“”\xa0]")
"""What word processors and web pages make of dashes, of quotation marks, and of blanks."""
_Options = list[tuple[str, str]]
"""The options of a command in their order, with their arguments; empty for a flag."""


def _altered(words: list[str]) -> tuple[Entity, str, str] | None:
    """The entity of a command with what it adds and deletes; None for one that alters nothing.

    Raises Unread for a command that is about something else, or whose options only the shell sees.
    """
    options, loose = _given(words)
    names = {option for option, _ in options}
    if "alter" not in names:
        if loose and "describe" not in names:
            raise Unread("its options are in a variable")
        return None
    if names.isdisjoint({"entity-type", *_NAMED, *_DEFAULTS}) or not _PLURALS.keys() >= {
        *_texts(options, "entity-type")
    }:
        raise Unread("not about users, clients or ips")
    if _texts(options, "add-config-file"):
        raise InputError("--add-config-file: the values are in another file")
    add, delete = (",".join(_texts(options, option)) for option in ("add-config", "delete-config"))
    if not add.strip() and not delete.strip():
        raise InputError("--alter without --add-config or --delete-config sets and deletes nothing")
    return _entity(options), add, delete


def _given(words: list[str]) -> tuple[_Options, bool]:
    """(the options of a command, whether there are words that the shell may make options of)."""
    options: _Options = []
    loose = False
    rest = iter(words)
    for word in rest:
        match = _OPTION.match(word)
        if match is None:
            loose |= _expands(word)
            continue
        option, equals, argument = match[1], *word[match.end() :].partition("=")[1:]
        if option not in _OTHER_FLAGS and option not in _DEFAULTS and not equals:
            given = next(rest, None)
            if given is None:
                raise InputError(f"--{option} requires an argument")
            argument = given
        options.append((option, argument))
    return options, loose


def _entity(options: _Options) -> Entity:
    """Names and defaults belong to the types by their place; an empty name is the default."""
    types = [_PLURALS[kind] for kind in _texts(options, "entity-type")]
    names = _texts(options, "entity-name", "entity-default")
    if len(types) != len(names):
        raise InputError("--entity-name or --entity-default belongs to each --entity-type")
    pairs = [*zip(types, names, strict=True)]
    pairs += [
        ((_NAMED | _DEFAULTS)[option], text) for option in (*_NAMED, *_DEFAULTS) for text in _texts(options, option)
    ]
    chosen: dict[EntityType, Name] = {kind: text or DEFAULT for kind, text in pairs}
    if len(chosen) < len(pairs):
        raise InputError("an entity type is given twice")
    return Entity.of(chosen)


def _texts(options: _Options, *wanted: str) -> list[str]:
    """The arguments of these options. Raises InputError for an argument with a variable in it."""
    given = [(option, word) for option, word in options if option in wanted]
    for option, word in given:
        if _expands(word):
            hint = "run it against 'kquota sandbox start --broker', and import what --describe prints there"
            raise InputError(f"--{option} has a variable in it", hint=hint)
    return [word.translate(_SHOWN) for _, word in given]


# A word keeps what is special to the shell hidden where it is quoted: what is left has its meaning.
_SPECIAL = ";&|()\n$`"
_HIDDEN = {ord(char): 0xE000 + place for place, char in enumerate(_SPECIAL)}
_SHOWN = {hidden: char for char, hidden in _HIDDEN.items()}
_IN_DOUBLE = {char: hidden for char, hidden in _HIDDEN.items() if chr(char) not in "$`"}
_PART = re.compile(
    r"""(?P<double>"(?:\\.|[^"\\])*")|(?P<single>'[^']*')|\\(?P<newline>\n)|(?P<escaped>\\.)|(?P<comment>(?<!\S)\#[^\n]*)""",
    re.DOTALL,
)
_QUOTED = re.compile(r""""(?:\\.|[^"\\])*"|'[^']*'""", re.DOTALL)
_HELD = re.compile(r"\s--?alter\b")


def _commands(name: str, text: str) -> Iterator[tuple[int, list[str], str]]:
    """(line, words, text without quoted parts) of each simple command, before a POSIX shell puts anything in.

    A word that holds a command, as in `bash -c '…'` and `ssh HOST '…'`, is one by itself.
    """
    line = 1
    for piece in re.split(r"([;&|()\n]+)", _PART.sub(_hidden, text)):
        try:
            words = shlex.split(piece) if piece.strip(";&|()\n") else []
        except ValueError:
            raise InputError(f"{name}, line {line}: a quotation mark or backslash is not closed") from None
        held = [word for word in words if _TOOL.search(word) and _HELD.search(word)]
        for command in held:
            yield from ((line, inner, bare) for _, inner, bare in _commands(name, command.translate(_SHOWN)))
        if words and not held:
            yield line, words, _QUOTED.sub("", piece)
        line += len(re.findall(f"[\n\r{chr(_HIDDEN[10])}]", piece))


def _hidden(part: re.Match[str]) -> str:
    """A quoted part with what is not special in it hidden, a blank for a line that goes on, nothing for a comment."""
    if part["comment"] or part["newline"]:
        return "\r" if part["newline"] else ""
    return part[0].translate(_IN_DOUBLE if part["double"] else _HIDDEN)


def _expands(word: str) -> bool:
    """Whether the shell puts something in."""
    return re.search("[$`]", word) is not None
