"""Hash codes of Java, and the order in which a `HashSet` or the keys of a `HashMap` are walked through."""

import base64
from collections.abc import Callable, Sequence
from typing import TypeVar

_MASK = 0xFFFFFFFF


T = TypeVar("T")


def hash_order(keys: Sequence[T], hash_of: Callable[[T], int], room: int = 16) -> list[T]:
    """The keys, which were put in one after the other, in the order of a walk; `hash_of` gives `hashCode`.

    A table starts with the power of two that is not below `room`, and doubles when more than three quarters are taken.
    Keys in the same place stay in the order in which they came (unless there are eight of them, which then become a
    tree).
    """
    places = 1
    while places < room or len(keys) > places * 3 / 4:
        places *= 2

    def place(key: T) -> int:
        code = hash_of(key) & _MASK
        return (code ^ code >> 16) & (places - 1)  # `HashMap.hash`: the higher half counts as well

    return sorted(keys, key=place)


def string_hash(text: str) -> int:
    """`String.hashCode`, as 32 bits without a sign."""
    code = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(data[::2], data[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & _MASK
    return code


def uuid_hash(text: str) -> int:
    """`hashCode` of Kafka's `Uuid`, from its text (base64). Raises ValueError for what is not one."""
    data = base64.urlsafe_b64decode(text + "==")
    if len(data) != 16:
        raise ValueError(f"{text!r} is not an id")
    folded = int.from_bytes(data[:8], "big") ^ int.from_bytes(data[8:], "big")
    return (folded >> 32 ^ folded) & _MASK
