"""Quota entities: whom a quota is set for.

Ten shapes exist: user, client-id and <user, client-id> with either part named or default (eight), a named ip and the
default ip. Sources: KIP-55, KIP-546, KIP-612; `org.apache.kafka.common.quota.ClientQuotaEntity`.
"""

from __future__ import annotations

import enum
import ipaddress
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from typing import Final, Literal, NamedTuple, Self, TypeAlias

from kquota.errors import InputError, InvalidRequest


class EntityType(enum.Enum):
    """The entity types of the protocol; the value is Kafka's name on the wire."""

    USER = "user"
    CLIENT_ID = "client-id"
    IP = "ip"

    # Members are singletons: their identity is a hash as good as that of their names, and much cheaper.
    __hash__ = object.__hash__

    @property
    def plural(self) -> str:
        """The name of the znode directory and of `--entity-type`: `users`, `clients`, `ips`."""
        return {"user": "users", "client-id": "clients", "ip": "ips"}[self.value]


class Default(enum.Enum):
    """The default entity's name: a type of its own, so that the literal name `<default>` stays an ordinary name."""

    DEFAULT = "<default>"

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return "DEFAULT"


DEFAULT: Final = Default.DEFAULT
Name: TypeAlias = str | Literal[Default.DEFAULT]


_PLACES: Final = {EntityType.USER: 0, EntityType.CLIENT_ID: 1, EntityType.IP: 2}


class _Names(NamedTuple):
    user: Name | None
    client_id: Name | None
    ip: Name | None


class Entity(_Names):
    """One quota entity; a part that is None is not in the entity.

    Raises InvalidRequest for an ip mixed with a user or client-id and for no part at all, InputError for an empty name.
    Immutable, hashable, ordered for display (`sort_key`). A tuple, because snapshots have thousands of them as keys:
    tuples are made, hashed and compared several times as fast as other objects.
    """

    __slots__ = ()

    def __new__(cls, user: Name | None = None, client_id: Name | None = None, ip: Name | None = None) -> Self:
        entity = super().__new__(cls, user, client_id, ip)
        if ip is not None and (user is not None or client_id is not None):
            raise InvalidRequest(
                "INVALID_REQUEST: an ip entity cannot be combined with a user or a client-id",
                hint="set the connection quota of the ip in a command of its own",
            )
        if user is None and client_id is None and ip is None:
            raise InvalidRequest("INVALID_REQUEST: an entity needs a user, a client-id or an ip")
        text = f"{user}{client_id}{ip}"
        if not text.isascii() and _HALF.search(text):
            raise InputError(f"{str(entity)!r} is not valid Unicode", hint="Kafka knows names in UTF-8 only")
        if user == "" or client_id == "" or ip == "":
            empty = next(entity_type.value for entity_type, name in entity.parts if name == "")
            raise InputError(
                f"empty {empty} is not supported",
                hint=f"the default has a flag of its own: --{empty.removesuffix('-id')}-defaults",
            )
        return entity

    @property
    def parts(self) -> tuple[tuple[EntityType, Name], ...]:
        """The (type, name) pairs that are present, user before client-id."""
        return tuple([(kind, name) for kind, name in zip(_PLACES, self, strict=True) if name is not None])

    @property
    def types(self) -> frozenset[EntityType]:
        """The entity types present."""
        return _SHAPES[self.user is not None, self.client_id is not None]

    def name_of(self, entity_type: EntityType) -> Name | None:
        """The name under that type, or None when the entity has no such part."""
        return self[_PLACES[entity_type]]

    @property
    def sort_key(self) -> tuple[int, str, str]:
        """Users, then clients, then pairs by user, then ips; defaults before names, none of which is empty."""
        user, client_id, ip = self
        kind = 3 if ip is not None else 0 if client_id is None else 1 if user is None else 2
        return kind, _text(user) + _text(ip), _text(client_id)

    def __str__(self) -> str:
        r"""The canonical text form, such as `user=alice,client-id=<default>`.

        `<default>` is the default entity; a name that is literally `<default>` is written `\<default>`. A backslash in
        a name is doubled; a comma or semicolon that would read as a separator, or as one that is nearly right
        (`,client=`), is written `\,` or `\;`.
        """
        return ",".join(f"{entity_type.value}={_format_name(name)}" for entity_type, name in self.parts)

    @classmethod
    def of(cls, names: Mapping[EntityType, Name]) -> Self:
        """The entity of parts by their types."""
        return cls(names.get(EntityType.USER), names.get(EntityType.CLIENT_ID), names.get(EntityType.IP))

    @classmethod
    @lru_cache(maxsize=10_000)  # most counters have the entity of many others
    def parse(cls, text: str) -> Self:
        """Reads the text form `TYPE=NAME[,TYPE=NAME]`.

        Raises InputError for anything else, also for a name that goes on with what is nearly another part
        (`user=alice,client=app1`), and InvalidRequest for an impossible combination.
        """
        names: dict[EntityType, Name] = {}
        position = 0
        while True:
            match = _COMPONENT.match(text, position)
            if match is None:
                near = _NEAR_START.match(text, position)
                meant = f"did you mean {meant_type(near['word']).value}=? " if near is not None else ""
                raise InputError(
                    f"malformed entity {text!r}: expected TYPE=NAME[,TYPE=NAME]",
                    hint=f"{meant}for example user=alice,client-id=app1 or user=<default>",
                )
            entity_type = EntityType(match.group(1))
            if entity_type in names:
                raise InputError(f"malformed entity {text!r}: {entity_type.value} is given twice")
            names[entity_type], position = _read_name(text, match.end(), {*names, entity_type})
            if position == len(text):
                break
            position += 1
        return cls.of(names)


trusted_entity: Callable[[tuple[Name | None, Name | None, Name | None]], Entity] = partial(tuple.__new__, Entity)
"""(user, client-id, ip) → the entity, unchecked and at a fifth of the cost: for decoders that know what they have."""

_HALF = re.compile("[\ud800-\udfff]")
"""Half of a surrogate pair: UTF-8 has none."""

_SHAPES: Final = {
    (True, False): frozenset({EntityType.USER}),
    (False, True): frozenset({EntityType.CLIENT_ID}),
    (True, True): frozenset({EntityType.USER, EntityType.CLIENT_ID}),
    (False, False): frozenset({EntityType.IP}),
}
"""The entity types, by whether there is a user and whether there is a client-id."""


def _text(name: Name | None) -> str:
    """The name for sorting: no name is empty, so the default comes first."""
    return name if isinstance(name, str) else ""


# A comma separates components only where a component follows it, so a distinguished name ("CN=a,OU=b") needs no
# escaping. Backslash takes the special meaning from what follows it; the text form is total: every name has one.
_COMPONENT = re.compile(r"(user|client-id|ip)=")
_SEPARATOR = re.compile(r",(?=(?:user|client-id|ip)=)")
# What people write for the types: behind a comma or a semicolon it is most likely a part that was meant.
_WORDS = r"(?:user[-_. ]?names?|users?|principals?|client[-_. ]?ids?|clients?|ip[-_. ]?address(?:es)?|ips?)"
NEAR_PART = re.compile(rf"[,;]\s*(?P<word>{_WORDS})\s*=", re.IGNORECASE)
_NEAR_START = re.compile(rf"\s*(?P<word>{_WORDS})\s*[=:]", re.IGNORECASE)


def meant_type(word: str) -> EntityType:
    """The entity type that a word such as `client` or `users` stands for."""
    return {"c": EntityType.CLIENT_ID, "i": EntityType.IP}.get(word[:1].lower(), EntityType.USER)


def _format_name(name: Name) -> str:
    if name is DEFAULT:
        return DEFAULT.value
    escaped = NEAR_PART.sub(_escaped, name.replace("\\", "\\\\"))
    return "\\" + escaped if escaped == DEFAULT.value else escaped


def _escaped(part: re.Match[str]) -> str:
    return re.sub("[,;]", r"\\\g<0>", part[0], count=1)


def _read_name(text: str, start: int, given: Collection[EntityType]) -> tuple[Name, int]:
    """Reads up to the next separator or the end; returns the name and where it ended. `given` are the types so far."""
    out: list[str] = []
    position = start
    while position < len(text) and _SEPARATOR.match(text, position) is None:
        if text[position] == "\\" and position + 1 < len(text):
            position += 1
        elif (near := NEAR_PART.match(text, position)) is not None:
            meant = meant_type(near["word"])
            whole = f"{text[:position]},{meant.value}={text[near.end() :].lstrip()}"
            separator = near[0][0]
            why = f"{meant.value} is given twice" if meant in given else f"did you mean {whole}?"
            raise InputError(
                f"malformed entity {text!r}: {why}",
                hint=f"if it is a part of the name, write \\{separator} for the {separator!r}",
            )
        out.append(text[position])
        position += 1
    if text[start:position] == DEFAULT.value:
        return DEFAULT, position
    return "".join(out), position


_IPV4 = re.compile(r"(?=.{1,15}\Z)\d+(?:\.\d+){0,3}", re.ASCII)  # Java takes a longer text for a host's name


def address(text: str) -> str:
    """The address in its usual spelling, as Java's `InetAddress.getByName` reads it; another text is as it was.

    The last number of `10.7` fills three bytes. A leading zero is decimal, and an IPv4 address inside IPv6 is IPv4.
    """
    with suppress(ValueError, OverflowError):
        if _IPV4.fullmatch(text):
            *first, last = map(int, text.split("."))
            return ".".join(map(str, (*bytes(first), *last.to_bytes(4 - len(first), "big"))))
        if ":" in text and "%" not in text:
            whole = ipaddress.IPv6Address(text[1:-1] if text[0] + text[-1] == "[]" else text)
            return str(whole.ipv4_mapped or whole)
    return text
