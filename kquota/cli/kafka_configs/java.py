"""Habits of the Java and Scala runtimes that show in kafka-configs' output: orders of hash tables, numbers, names.

Sources: `java.util.Properties` (a ConcurrentHashMap since Java 9), `java.util.HashMap`, `scala.collection` of 2.13,
`String.split`, `Double.toString`, `URLDecoder`, `InetAddress.getByName` and ZooKeeper's `PathUtils.validatePath`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from kquota.core.java import hash_order, spread, string_hash, units

if TYPE_CHECKING:
    from ipaddress import IPv6Address

_BLANKS = "".join(map(chr, range(0x21)))


class IllegalArgument(Exception):
    """What Java throws as IllegalArgumentException: the tool prints its message and nothing else."""


def trim(text: str) -> str:
    """`String.trim`: cuts off every character up to the blank."""
    return text.strip(_BLANKS)


def split(text: str, separator: re.Pattern[str], *, keep_trailing: bool) -> list[str]:
    """`String.split`: without `keep_trailing` (limit 0) empty pieces at the end are dropped, with it (limit -1) kept.

    A text without any separator is its own only piece, also when it is empty.
    """
    pieces = []
    start = 0
    for match in separator.finditer(text):
        pieces.append(text[start : match.start()])
        start = match.end()
    if not pieces:
        return [text]
    pieces.append(text[start:])
    while not keep_trailing and pieces and not pieces[-1]:
        pieces.pop()
    return pieces


# --- Hash tables -------------------------------------------------------------------------------------------------


def _by_bucket(items: Iterable[tuple[str, int]], size: int) -> list[str]:
    return [key for key, _ in sorted(items, key=lambda item: spread(item[1]) & (size - 1))]


def properties_order(keys: Iterable[str]) -> list[str]:
    """The order in which `java.util.Properties` hands out keys that were put in that order."""
    hashes = {key: string_hash(key) for key in keys}
    size = 16
    while len(hashes) * 4 >= size * 3:
        size *= 2
    return _by_bucket(hashes.items(), size)


def hash_map_order(hashes: Iterable[tuple[str, int]]) -> list[str]:
    """The order in which `new HashMap(n)` hands out n keys, each given with its hash code (unsigned)."""
    items = list(hashes)
    return [key for key, _ in hash_order(items, lambda item: item[1], room=len(items))]


def mutable_set_order(keys: Iterable[str]) -> list[str]:
    """The order of Scala's mutable HashSet: by bucket, and in a bucket by hash."""
    hashes = {key: spread(string_hash(key)) for key in keys}
    size = 16
    while len(hashes) * 4 >= size * 3:
        size *= 2

    def place(key: str) -> tuple[int, int]:
        value = hashes[key]
        return value & (size - 1), value - (1 << 32 if value >> 31 else 0)

    return sorted(hashes, key=place)


def immutable_order(keys: Iterable[str]) -> list[str]:
    """The order of Scala's immutable sets and maps: as inserted up to four keys, then the order of a hash trie."""
    distinct = list(dict.fromkeys(keys))
    return distinct if len(distinct) <= 4 else _trie_order([(key, _improve(string_hash(key))) for key in distinct], 0)


def _improve(value: int) -> int:
    value = value + ~(value << 9) & 0xFFFFFFFF
    value ^= value >> 14
    value = value + (value << 4) & 0xFFFFFFFF
    return value ^ value >> 10


def _trie_order(items: list[tuple[str, int]], shift: int) -> list[str]:
    if shift > 30:
        return [key for key, _ in items]
    slots: dict[int, list[tuple[str, int]]] = {}
    for item in items:
        slots.setdefault(item[1] >> shift & 31, []).append(item)
    ordered = [slots[slot] for slot in sorted(slots)]
    own = [slot[0][0] for slot in ordered if len(slot) == 1]
    return own + [key for slot in ordered if len(slot) > 1 for key in _trie_order(slot, shift + 5)]


# --- Numbers -----------------------------------------------------------------------------------------------------

_DECIMAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[dDfF]?\Z", re.ASCII)
_HEX = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?\d+[dDfF]?\Z", re.ASCII)
_SPECIAL = re.compile(r"[+-]?(?:NaN|Infinity)\Z")
_INTEGER = re.compile(r"[+-]?\d+\Z")


def parse_double(text: str) -> float | None:
    """`Double.parseDouble`, or None where it fails: blanks around and a final d or f are fine, underscores are not."""
    trimmed = trim(text)
    if _SPECIAL.match(trimmed):
        return float(trimmed)
    if _DECIMAL.match(trimmed):
        return float(trimmed.rstrip("dDfF"))
    if _HEX.match(trimmed):
        number = re.sub(r"(?<=\d)[dDfF]\Z", "", trimmed)
        try:
            return float.fromhex(number)
        except OverflowError:
            return float("-inf") if number.startswith("-") else float("inf")
    return None


def parse_integer(text: str, maximum: int) -> int | None:
    """`Long.parseLong` or `Integer.parseInt` by the type's maximum, or None where it fails; any digits of Unicode."""
    if not _INTEGER.match(text):
        return None
    if len(text.lstrip("+-").lstrip("0")) > 19:  # int() refuses texts of thousands of digits
        return None
    number = int(text)
    return number if -maximum - 1 <= number <= maximum else None


def double_text(number: float) -> str:
    """`Double.toString` of Java 19 and later (older ones add a digit to a few numbers): `1024.0`, `1.0E7`, `NaN`."""
    if number != number:
        return "NaN"
    if number in (float("inf"), float("-inf")):
        return "Infinity" if number > 0 else "-Infinity"
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        text = format(Decimal(repr(number)), "f")
        return text if "." in text else f"{text}.0"
    sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    if len(digits) == 1:  # Java takes the nearest number of two digits: of the least double 4.9E-324
        sign, digits, exponent = Decimal(format(number, ".1e")).normalize().as_tuple()
    assert isinstance(exponent, int)
    first, *rest = map(str, digits)
    return f"{'-' if sign else ''}{first}.{''.join(rest) or '0'}E{exponent + len(rest)}"


# --- Names -------------------------------------------------------------------------------------------------------


def url_decode(text: str) -> str:
    """`URLDecoder.decode` in UTF-8. Raises IllegalArgument for a bad escape, with Java's message."""
    out = bytearray()
    position = 0
    while position < len(text):
        character = text[position]
        if character != "%":
            out += b" " if character == "+" else character.encode("utf-8", "surrogatepass")
            position += 1
            continue
        if position + 2 >= len(text):
            raise IllegalArgument("URLDecoder: Incomplete trailing escape (%) pattern")
        escape = text[position + 1 : position + 3]
        out.append(_hex_byte(escape))
        position += 3
    return out.decode("utf-8", "replace")


def _hex_byte(escape: str) -> int:
    head = "URLDecoder: Illegal hex characters in escape (%) pattern - "
    digits = escape[1:] if escape[0] in "+-" else escape
    wrong = next((index for index, digit in enumerate(digits) if digit not in "0123456789abcdefABCDEF"), None)
    if wrong is not None:
        raise IllegalArgument(f'{head}Error at index {wrong + len(escape) - len(digits)} in: "{escape}"')
    if escape[0] == "-" and int(digits, 16) > 0:
        raise IllegalArgument(f"{head}negative value")
    return int(digits, 16)


def check_path(path: str) -> None:
    """`PathUtils.validatePath` of ZooKeeper. Raises IllegalArgument with its message for a path that no node can have.

    The path is absolute and does not end with a slash.
    """
    chars = units(path)
    for index in range(1, len(chars)):
        reason = _path_fault(chars, index)
        if reason:
            raise IllegalArgument(f'Invalid path string "{path}" caused by {reason} @{index}')


_SLASH, _DOT = ord("/"), ord(".")


def _path_fault(units: list[int], index: int) -> str | None:
    unit, last = units[index], units[index - 1]
    ends = index + 1 == len(units) or units[index + 1] == _SLASH
    if unit == 0:
        return "null character not allowed"
    if unit == _SLASH and last == _SLASH:
        return "empty node name specified"
    if unit == _DOT and last == _DOT:
        return "relative paths not allowed" if units[index - 2] == _SLASH and ends else None
    if unit == _DOT:
        return "relative paths not allowed" if last == _SLASH and ends else None
    control = unit <= 0x1F or 0x7F <= unit <= 0x9F
    return "invalid character" if control or 0xD800 <= unit <= 0xF8FF or unit >= 0xFFF0 else None


def resolves(host: str, resolve: Callable[[str], object] | None = None) -> bool:
    """Whether `InetAddress.getByName` finds an address: a literal, a short form such as `1.2`, or a name that is known.

    `resolve` stands in for the name service in tests; it raises OSError for a name that is not known.
    """
    if not host:
        return True  # Java takes it for the loopback address
    if host.startswith("["):
        return host.endswith("]") and _is_ipv6(host[1:-1])
    if re.fullmatch(r"\d+(?:\.\d+){0,3}", host, re.ASCII):
        return _is_ipv4(host)
    if ":" in host:
        return _is_ipv6(host)
    # Python maps other scripts to ASCII (IDNA), and the C library reads hexadecimal numbers; Java does neither.
    if (
        not host.isascii()
        or re.match(r"0[xX]", host)
        or any(character.isspace() or character == "\0" for character in host)
    ):
        return False
    import socket

    try:
        if resolve is not None:
            resolve(host)
        else:
            socket.getaddrinfo(host, None)
    except (OSError, UnicodeError):
        return False
    return True


def _is_ipv4(text: str) -> bool:
    """One to four decimal parts, the last of which fills the bytes that are left."""
    *head, tail = [int(part[-20:]) for part in text.split(".")]
    return all(part <= 255 for part in head) and tail < 1 << 8 * (4 - len(head))


def _is_ipv6(text: str) -> bool:
    import ipaddress
    import socket

    address, percent, zone = text.partition("%")
    try:
        ipaddress.IPv6Address(address)
    except ValueError:
        return False
    if not percent or zone.isdecimal():
        return not percent or bool(zone)
    return any(name == zone for _, name in socket.if_nameindex()) and _has_zone_for(
        zone, ipaddress.IPv6Address(address)
    )


_ADDRESSES = Path("/proc/net/if_inet6")
"""A line an IPv6 address of this host: it in 32 digits, and at the end its interface."""


def _has_zone_for(interface: str, address: IPv6Address) -> bool:
    """Whether `Inet6Address` finds a scope on the interface: an IPv6 address as local as the one that is asked for."""
    from ipaddress import IPv6Address

    try:
        lines = [line.split() for line in _ADDRESSES.read_text(encoding="ascii").splitlines()]
    except OSError:
        return True  # no Linux: nobody to ask
    there = [IPv6Address(bytes.fromhex(line[0])) for line in lines if line[-1] == interface]
    return any(
        (other.is_link_local or not address.is_link_local) and (other.is_site_local or not address.is_site_local)
        for other in there
    )
