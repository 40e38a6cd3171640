"""Command lines of kafka-configs, right and wrong, as people and scripts write them, for both kinds of connection.

In the words of a command line `@ADDRESS@` stands for the cluster, and `@FILE:text@` for the path of a file with that
text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from hypothesis import strategies as st

ADDRESS = "@ADDRESS@"
T = TypeVar("T")
Words = list[str]
Line = st.SearchStrategy[Words]

_NAMES = st.sampled_from(
    [
        *["alice"] * 6,
        *["bob"] * 2,
        *["CN=a,OU=b", "<default>", "User:alice", "a b", "a+b", "a%20b", "100%", "*", "a/b", "~", "ü", "日本", "😀"],
        *["a\tb", "A", "--describe", "-", "...", ""],
    ]
)
_IPS = st.sampled_from(
    [
        *["127.0.0.1"] * 4,
        *["10.0.0.7"] * 2,
        *["::1", "0:0:0:0:0:0:0:1", "[::1]", "1.2", "localhost", "<default>", "", "256.1.1.1", "1.2.3.4.5"],
        *["not a host", "A,B", "0x7f.1", "fe80::1%nowhere"],
    ]
)
_RATES = ["producer_byte_rate", "consumer_byte_rate"]
_KEYS = [*_RATES, "request_percentage", "controller_mutation_rate"]
_CONNECTIONS = "connection_creation_rate"
_ODD_KEYS = [_CONNECTIONS, "producer_byte_rates", "a;c", "$a", "", "x", "y", "retention.ms", "Producer_byte_rate"]
_SCRAM = ["SCRAM-SHA-256", "SCRAM-SHA-512"]
_INTEGERS = st.one_of(st.integers(1, 10**7).map(str), st.integers(0, 12).map(lambda power: str(1024 * 10**power)))
_TOO_LARGE = ["2147483648", "9223372036854775807", "9223372036854775808", "99999999999999999999", "1e19", "1e400"]
_NO_NUMBERS = [
    "",
    "inf",
    "nan",
    "0x10",
    "1_000",
    "abc",
    "10MB",
    "50%",
    "１",
    "true",
    "1024L",
    "5]",
    "[1,2]",
    "1=2",
    "1 2",
]
_ODD_VALUES = st.sampled_from(
    [
        *["0", "-1", "1e3", "NaN", "Infinity", "-Infinity", " 5 ", "+5", "007", "1024.0", "1024d", "1.5f", "0x1p3"],
        *["12.3", "0.1", "1e-7", "1024.0000001", "5.000001", "9007199254740993", "-0", "[5]", "[[5]]", "[5"],
        *["2147483647", "\u00a05", *_TOO_LARGE, *_NO_NUMBERS],
    ]
)
_PASSWORDS = st.sampled_from(
    ["[password=secret]", "[iterations=4096,password=a=b,c]", "[iterations=1,password=x]", "[pasword=x]", "password=x"]
)


@dataclass(frozen=True, eq=False)
class _Choice(Generic[T]):
    """A strategy without its text, which names each strategy in it anew: all of them together are gigabytes."""

    strategy: st.SearchStrategy[T] = field(repr=False)


def _weighted(*choices: tuple[int, st.SearchStrategy[T]]) -> st.SearchStrategy[T]:
    """One of the strategies, each as often as its weight says (`one_of` ignores repetitions)."""
    named = [_Choice(choice) for weight, choice in choices for _ in range(weight)]
    return st.sampled_from(named).flatmap(lambda choice: choice.strategy)


_VALUES = _weighted((4, _INTEGERS), (1, _ODD_VALUES))


def _option(name: str, value: st.SearchStrategy[str]) -> Line:
    """An option with its argument, in any of the ways to write it."""
    forms = (
        lambda v: [f"--{name}", v],
        lambda v: [f"--{name}", v],
        lambda v: [f"--{name}={v}"],
        lambda v: [f"-{name}", v],
    )
    return st.tuples(st.sampled_from(forms), value).map(lambda pair: pair[0](pair[1]))


def _all(*parts: Line) -> Line:
    return st.tuples(*parts).map(lambda lists: [word for words in lists for word in words])


_NOTHING: Line = st.just([])


def _flag(name: str) -> Line:
    return st.just([f"--{name}"])


# --- Entities ---


def _part(flag: str, names: st.SearchStrategy[str]) -> Line:
    return _weighted((3, _option(flag, names)), (1, _flag(f"{flag}-defaults")))


def _type(kind: str) -> Line:
    return _option("entity-type", st.just(kind))


def _named(names: st.SearchStrategy[str]) -> Line:
    return _weighted((3, _option("entity-name", names)), (1, _flag("entity-default")))


def _users_and_clients(names: st.SearchStrategy[str]) -> Line:
    """A user, a client or a pair of both, in the short form or the long one."""
    user, client, name = _part("user", names), _part("client", names), _named(names)
    pair = st.one_of(_all(user, client), _all(client, user))
    long = st.one_of(_all(_type("users"), name), _all(name, _type("clients")))
    long_pair = st.one_of(
        _all(_type("users"), name, _type("clients"), name),
        _all(name, _type("clients"), _type("users"), name),
        _all(_type("clients"), _type("users"), name, name),
    )
    return _weighted((6, user), (3, client), (5, pair), (3, long), (3, long_pair))


def _ips(names: st.SearchStrategy[str]) -> Line:
    return _weighted((3, _part("ip", names)), (1, _all(_type("ips"), _named(names))))


def _wrong_entities(names: st.SearchStrategy[str], ips: st.SearchStrategy[str]) -> Line:
    user, client, ip, name = _part("user", names), _part("client", names), _part("ip", ips), _named(names)
    kind = _option("entity-type", st.sampled_from(["users", "clients", "ips", "ips", "Users", "bogus", ""]))
    return st.one_of(
        *[_NOTHING, _all(user, user), _all(ip, user), _all(client, _type("users"), name), kind],
        st.lists(st.one_of(kind, name), min_size=1, max_size=4).map(
            lambda lists: [word for words in lists for word in words]
        ),
    )


def _types(names: st.SearchStrategy[str]) -> Line:
    """What only a describe takes: types without names."""
    users, clients, ips = map(_type, ("users", "clients", "ips"))
    name = st.one_of(_option("entity-name", names), _flag("entity-default"))
    alone = st.one_of(users, clients, ips, _all(users, clients), _all(clients, users))
    half = st.one_of(_all(users, name, clients), _all(clients, name, users), _all(users, clients, name))
    return _weighted((8, alone), (4, half), (1, _all(users, name, name)))


# --- Configs ---


def _keys(usual: Sequence[str], scram: bool) -> st.SearchStrategy[str]:
    odd = st.sampled_from([*_KEYS, *_ODD_KEYS, *(_SCRAM if scram else [])])
    return _weighted((24, st.sampled_from(usual)), (1, odd))


def _items(keys: st.SearchStrategy[str], connections: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[str, str]]:
    """Keys with their values."""
    return keys.flatmap(lambda key: st.tuples(st.just(key), connections if key == _CONNECTIONS else _VALUES))


def _pairs(items: st.SearchStrategy[tuple[str, str]], scram: bool) -> st.SearchStrategy[str]:
    pair = items.map("=".join)
    if scram:
        pair = _weighted((9, pair), (1, st.tuples(st.sampled_from(_SCRAM), _PASSWORDS).map("=".join)))
    spaced = pair.map(lambda text: f" {text.replace('=', ' = ', 1)} ")
    many = st.lists(_weighted((4, pair), (1, spaced)), min_size=1, max_size=6).map(",".join)
    odd = st.one_of(
        many.map(lambda text: f"{text},"),
        many.map(lambda text: text.replace(",", ",,", 1)),
        st.sampled_from(["", ",", "=", "k", "a==", "a,=b", "a=[b,c,d=e", "[a=1]"]),
        st.text(alphabet="ab=,[] \t", max_size=12),
    )
    return _weighted((6, pair), (6, many), (1, odd))


def _files(items: st.SearchStrategy[tuple[str, str]]) -> st.SearchStrategy[str]:
    """Files of properties."""
    line = st.tuples(st.sampled_from(["=", ":", " ", " = "]), items).map(lambda drawn: drawn[0].join(drawn[1]))
    other = st.sampled_from(["# comment", "! comment", "", "a\\u0062=1", "producer_byte_rate=1\\\n  2", "x=\\u12"])
    lines = st.lists(_weighted((5, line), (1, other)), max_size=3)
    return lines.map(lambda lines: f"@FILE:{chr(10).join(lines)}@")


def _deletions(keys: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    many = st.lists(keys, min_size=1, max_size=3).map(",".join)
    odd = st.one_of(many.map(lambda text: f" {text} ,"), st.sampled_from(["", ",", "a,,b"]))
    return _weighted((6, keys), (2, many), (1, odd))


def _changes(usual: Sequence[str], connections: st.SearchStrategy[str], scram: bool) -> Line:
    """What an alter is to do; `usual` are the keys that the entity can have."""
    keys = _keys(usual, scram)
    items = _items(keys, connections)
    add = _option("add-config", _pairs(items, scram))
    file = _option("add-config-file", _weighted((5, _files(items)), (1, st.just("/nowhere"))))
    delete = _option("delete-config", _deletions(keys))
    wrong = st.one_of(_NOTHING, _all(add, add), _all(add, file))
    return _weighted((10, add), (5, delete), (3, _all(add, delete)), (1, _all(delete, delete)), (2, file), (1, wrong))


# --- Command lines ---


def _command_lines(
    connected: Line,
    ips: st.SearchStrategy[str],
    connections: st.SearchStrategy[str],
    extras: Line,
    *,
    scram: bool,
) -> Line:
    """Command lines of a tool: how it is told the cluster, ips and their quotas, and words that do not belong."""
    names = _weighted((20, _NAMES), (1, st.sampled_from([".", ".."])))
    users, addresses, wrong_entities = _users_and_clients(names), _ips(ips), _wrong_entities(names, ips)
    changes = _changes([*_RATES, *_KEYS], connections, scram)
    alter = _weighted(
        (9, _all(_flag("alter"), users, changes)),
        (3, _all(_flag("alter"), addresses, _changes([_CONNECTIONS], connections, scram))),
        (1, _all(_flag("alter"), st.one_of(addresses, wrong_entities), changes)),
    )
    shown = _weighted((8, _types(names)), (4, users), (2, addresses), (1, wrong_entities))
    wrong = st.one_of(
        _all(users, changes),
        _all(_flag("describe"), users, changes),
        _all(_flag("describe"), _flag("alter"), users),
        _all(_flag("alter"), _types(names), changes),
    )
    core = _weighted((16, alter), (10, _all(_flag("describe"), shown)), (1, wrong))
    right = st.one_of(_all(connected, core), _all(core, connected))
    return _weighted((12, right), (1, st.one_of(_all(extras, connected, core), _all(connected, core, extras))))


def _to(connection: str, *wrong: Line) -> Line:
    """The option that names the cluster; now and then with something wrong about it."""
    to = _option(connection, st.just(ADDRESS))
    return _weighted((30, to), (1, st.one_of(_all(to, to), *wrong)))


_HARMLESS = [["stray"], ["--describe=x"], ["-"], ["--"]]
_HARMFUL = [["--help"], ["--blah"], ["-x"], ["---user"], ["--alt"]]
_SWALLOWING = [["--user"], ["--add-config"]]
"""They take the option that follows for their argument, which may be the connection."""

ON_ZOOKEEPER = _command_lines(
    _to("zookeeper", _NOTHING, st.just(["--zookeeper", ADDRESS, "--bootstrap-server", "127.0.0.1:1"])),
    _IPS,
    _VALUES,
    st.sampled_from(
        [*_HARMLESS, *_HARMLESS, ["--force"], *_HARMFUL, *_SWALLOWING, ["--all"], ["--zk-tls-config-file", "/nowhere"]]
    ),
    scram=True,
)
"""What the tool of 2.8 is told, credentials included."""

ON_BROKERS = _command_lines(
    _to("bootstrap-server", _NOTHING),
    _IPS,
    _weighted(
        (4, st.integers(1_000, 2**31 - 1).map(str)),
        (1, st.sampled_from(["0", "-1", "1e4", "+5000", "5000.5", "[5000]", "Infinity", *_TOO_LARGE, *_NO_NUMBERS])),
    ),
    st.sampled_from([*_HARMLESS, *_HARMLESS, *_HARMFUL, ["--all"], ["--force"], ["--command-config", "/nowhere"]]),
    scram=False,
)
"""What the current tool is told.

Quotas of connections are so large that they do not hold up the tools.
"""


# --- Nodes ---

_CONFIGS = st.sampled_from(
    [
        '{"version":1,"config":{"producer_byte_rate":"1024"}}',
        '{"version":1,"config":{"producer_byte_rate":"2048  ","x":"1","consumer_byte_rate":"-1"}}',
        '{"version":1,"config":{"SCRAM-SHA-256":"salt=a,stored_key=b,server_key=c,iterations=4096"}}',
        '{"version":1,"config":{}}',
        '{"config":{"request_percentage":"1","request_percentage":"2"}}',
        '{"version":1,"config":{"producer_byte_rate":1024}}',
        '{"version":1,"config":null}',
        "[1]",
        "not json",
        "",
        None,
    ]
)
_PATHS = st.sampled_from(
    [
        *["users/alice", "users/bob", "users/<default>", "users/CN%3Da%2COU%3Db", "users/%3Cdefault%3E"],
        *["users/alice/clients/alice", "users/alice/clients/<default>", "users/<default>/clients/bob"],
        *["clients/alice", "clients/<default>", "clients/a b", "clients/a+b", "clients/100%", "users/bob/clients/a%zz"],
        *["ips/127.0.0.1", "ips/<default>"],
    ]
)


def nodes() -> st.SearchStrategy[Mapping[str, str | None]]:
    """What may be in a ZooKeeper before: paths below `/config`, and the data."""
    return st.one_of(st.just({}), st.dictionaries(_PATHS, _CONFIGS, max_size=4))
