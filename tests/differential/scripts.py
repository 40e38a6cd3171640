"""Command lines of kafka-configs by mutation: lines as documentation and scripts have them, bent in a few places.

What is wrong about a line is what goes wrong in scripts: an empty variable, a quote too many, a trailing blank, an
option twice, another form. In the words of a line `@ADDRESS@` stands for the cluster, and `@FILE:text@` for the path of
a file with that text. The same seed gives the same lines.
"""

import random
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from tests.support.data import data_text

ADDRESS = "@ADDRESS@"
Words = list[str]
Rng = random.Random

# --- What people write ---

_QUOTAS: Final = data_text("kafka_configs/quotas.txt")
_IPS: Final = data_text("kafka_configs/ips.txt")
_CREDENTIALS: Final = data_text("kafka_configs/credentials.txt")
_SHOWN: Final = data_text("kafka_configs/shown.txt")
_OTHERS: Final = data_text("kafka_configs/others.txt")


def _lines(text: str) -> list[Words]:
    return [shlex.split(line) for line in re.split(r"\n(?=--)", text.strip())]


class Corpus:
    """The lines of one kind of tool, and how it is connected."""

    def __init__(self, connection: str, *texts: str) -> None:
        self.connection = connection
        self.lines = [words for text in texts for words in _lines(text)]


ON_ZOOKEEPER: Final = Corpus("zookeeper", _QUOTAS, _QUOTAS, _IPS, _CREDENTIALS, _OTHERS)
ON_BROKERS: Final = Corpus("bootstrap-server", _QUOTAS, _QUOTAS, _IPS, _SHOWN, _OTHERS)

# --- How lines are bent ---

Option = list[str]
"""One option with its argument, as words, or a word alone."""
Mutation = Callable[[Rng, list[Option]], list[Option]]

_FLAGS = frozenset(
    {"alter", "describe", "all", "entity-default", "force", "help", "version"}
    | {"user-defaults", "client-defaults", "ip-defaults", "broker-defaults"}
)


def _words(text: str, *others: str) -> tuple[str, ...]:
    """The words of a text, and others that have blanks in them, or nothing."""
    return (*others, *text.split())


_NAMES = _words(
    """alice user1 clientA admin User:alice <default> * a* a/b a%2Fb 100% a+b a&b a;b a,b a=b [a] -alice --user ALICE
    "alice" 'alice' $USER ${USER} `id` CN=a,OU=b é e\u0301 日本 😀 ... _ default a\\b % %zz ~ null""",
    *("", " ", "alice ", " alice", "a\tb", "a\nb", "\u202ealice", "\ufeffalice", "alice bob", "x" * 200),
)
_VALUES = _words(
    """1 0 -1 +1 007 1024.0 1e3 1E3 0x10 1_000 1,024 1.5 .5 5. 1d 1f 1L 10MB 50% NaN Infinity -0 2147483648 1=2
    9223372036854775807 9223372036854775808 "7" '7' [7] [7 7] ${RATE} unlimited null true １２ 1e-7 1e400 0.0000001
    4.9e-324 123456789.123456789 100.000000001""",
    *("", "10 MB", " 7", "7 ", "7\u00a0", "7\t"),
)
_KEYS = _words(
    """producer_byte_rate consumer_byte_rate request_percentage controller_mutation_rate connection_creation_rate
    producer.byte.rate Producer_Byte_Rate quota k; retention.ms SCRAM-SHA-256""",
    *("", "producer_byte_rate ", '"producer_byte_rate"'),
)
_STRAY = _words(
    """- -- extra --verbose -v --desc --alt --entity --bootstrap ---describe -h --user-default --entity_type —describe
    --Describe # && --topic --broker --dry-run --force --all --entity-default --help""",
    "",
)
_FILES = (
    *(
        "{}={}",
        "{} = {}",
        "{}:{}",
        "{}\t{}",
        "  {}={}",
        "{}={}\\\n",
        "# x\n{}={}",
        "{}=\\u0031{}",
        "{}={}\n{0}=2",
        "{}",
    ),
    *("\ufeff{}={}", "{}={}\r\n", "export {}={}", '{}="{}"', "a\\=b={}{}", "!{}\n", "{}={}\n\n\n", "{}={} # five"),
)


def _options(words: Words) -> list[Option]:
    """The words by option."""
    options: list[Option] = []
    waiting = iter(words)
    for word in waiting:
        name = word.lstrip("-")
        if word.startswith("-") and name not in _FLAGS and "=" not in word:
            options.append([word, next(waiting, "")])
        else:
            options.append([word])
    return options


def _named(options: Sequence[Option], *names: str) -> list[int]:
    """The places of options with an argument by those names, or of any."""
    return [
        index
        for index, option in enumerate(options)
        if len(option) == 2 and (not names or option[0].lstrip("-") in names) and ADDRESS not in option[1]
    ]


def _replaced(options: list[Option], index: int, *instead: Option) -> list[Option]:
    return [*options[:index], *instead, *options[index + 1 :]]


def _other_form(rng: Rng, options: list[Option]) -> list[Option]:
    """`--user=alice`, `-user alice`: the same to jopt."""
    index = rng.randrange(len(options))
    option = options[index]
    name = option[0].lstrip("-")
    form = rng.choice(("--{}", "-{}"))
    if len(option) == 2 and rng.random() < 0.7:
        return _replaced(options, index, [f"{form.format(name)}={option[1]}"])
    return _replaced(options, index, [form.format(name), *option[1:]])


def _shuffled(rng: Rng, options: list[Option]) -> list[Option]:
    return rng.sample(options, len(options))


def _twice(rng: Rng, options: list[Option]) -> list[Option]:
    at = rng.randrange(len(options) + 1)
    return [*options[:at], list(rng.choice(options)), *options[at:]]


def _dropped(rng: Rng, options: list[Option]) -> list[Option]:
    if len(options) < 2:
        return options
    index = rng.randrange(len(options))
    option = options[index]
    return _replaced(options, index, *([] if len(option) == 1 or rng.random() < 0.5 else [option[:1]]))


def _with_a_stray_word(rng: Rng, options: list[Option]) -> list[Option]:
    at = rng.randrange(len(options) + 1)
    return [*options[:at], [rng.choice(_STRAY)], *options[at:]]


def _renamed(rng: Rng, options: list[Option]) -> list[Option]:
    found = _named(options, "user", "client", "entity-name")
    if not found:
        return options
    index = rng.choice(found)
    return _replaced(options, index, [options[index][0], rng.choice(_NAMES)])


def _revalued(rng: Rng, options: list[Option]) -> list[Option]:
    """Another number, or another key, somewhere in what is set or deleted."""
    found = _named(options, "add-config", "delete-config")
    if not found:
        return options
    index = rng.choice(found)
    name, text = options[index]
    items = text.split(",")
    at = rng.randrange(len(items))
    key, equals, value = items[at].partition("=")
    if "SCRAM" not in items[at] and equals and rng.random() < 0.7:
        value = rng.choice(_VALUES)
    else:
        key = rng.choice(_KEYS)
    items[at] = f"{key}{equals}{value}"
    return _replaced(options, index, [name, ",".join(items)])


def _from_a_file(rng: Rng, options: list[Option]) -> list[Option]:
    found = _named(options, "add-config")
    if not found:
        return options
    index = rng.choice(found)
    key, value = options[index][1].partition(",")[0].partition("=")[::2]
    # `str.format` with both kinds of fields would not do.
    text = rng.choice(_FILES).replace("{0}", key).replace("{}", key, 1).replace("{}", value, 1)
    return _replaced(options, index, ["--add-config-file", f"@FILE:{text}@"])


_MUTATIONS: Mapping[Mutation, int] = {
    **{_other_form: 4, _shuffled: 2, _twice: 1, _dropped: 1, _with_a_stray_word: 2},
    **{_renamed: 5, _revalued: 6, _from_a_file: 2},
}
"""What is done to a line, and how often."""


def line(rng: Rng, corpus: Corpus) -> Words:
    """One line of somebody's, with up to four things changed about it."""
    connected = [[f"--{corpus.connection}", ADDRESS]]
    options = _options(rng.choice(corpus.lines))
    options = connected + options if rng.random() < 0.7 else options + connected
    for mutation in rng.choices([*_MUTATIONS], [*_MUTATIONS.values()], k=rng.choice((0, 1, 1, 1, 2, 2, 3, 4))):
        options = mutation(rng, options) or options
    return [word for option in options for word in option]


_RATE = re.compile(r"connection_creation_rate[^0-9a-zA-Z,]*([0-9]+)")
_ENOUGH = 100_000


def is_for_brokers(words: Words) -> bool:
    """Whether a line does no harm to those that come after it on the same brokers.

    A limit of connections that a test would meet does, and so do credentials, which only Kafka's tool alters there.
    """
    text = " ".join(words)
    return "SCRAM-SHA-" not in text and all(len(rate) < 19 and int(rate) >= _ENOUGH for rate in _RATE.findall(text))


def _makes_credentials(words: Words) -> bool:
    """Whether a line makes credentials, which the drop-in leaves to Kafka's tool."""
    return any("SCRAM-SHA-" in word and "=" in word for word in words)


def sequences(seed: str, corpus: Corpus, *, on_brokers: bool) -> Iterator[list[Words]]:
    """Lines for one cluster after another, a few each; without an end."""
    rng = random.Random(f"{seed} {corpus.connection}")
    while True:
        lines = [line(rng, corpus) for _ in range(rng.randrange(3, 8))]
        fits = is_for_brokers if on_brokers else lambda words: not _makes_credentials(words)
        yield [words for words in lines if "\0" not in "".join(words) and fits(words)]


# --- What may be there before ---

_NODES = (
    '{"version":1,"config":{"producer_byte_rate":"1024","consumer_byte_rate":"2048"}}',
    '{"version":1,"config":{"SCRAM-SHA-256":"salt=YQ==,stored_key=YQ==,server_key=YQ==,iterations=4096"}}',
    '{"version":1,"config":{"request_percentage":"50.0","x":"y"}}',
)
_PLACES = (
    "users/user1",
    "users/alice",
    "clients/clientA",
    "users/user1/clients/clientA",
    "users/<default>",
    "ips/10.1.2.3",
)


def nodes(rng: Rng) -> dict[str, str | None]:
    """Config nodes as Kafka writes them, and as somebody with an editor or a broken disk has left them."""
    found: dict[str, str | None] = {}
    for place in rng.sample(_PLACES, rng.choice((0, 0, 1, 2, 3))):
        text, at = rng.choice(_NODES), rng.randrange(40)
        swapped = text[:at] + rng.choice('{}[]":,1x') + text[at + 1 :]
        found[place] = rng.choice((text, text, text[:at], swapped, f"\ufeff{text}", f" \n{text}\n", text * 2, None))
    return found
