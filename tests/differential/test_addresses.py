"""The addresses that names of ips stand for, against `InetAddress.getByName`, which brokers ask."""

import random

from kquota.core.quotas.entity import address
from tests.differential.java_programs import printed


def spellings(number: int) -> list[str]:
    """Ways to write an IPv4 address."""
    a, b, c, d = number.to_bytes(4, "big")
    rest = number % (1 << 24), number % (1 << 16)
    short = [str(number), f"{a}.{rest[0]}", f"{a}.{b}.{rest[1]}", f"{a}.{b}.{c}.{d}"]
    return [*short, f"::ffff:{a}.{b}.{c}.{d}", f"[::ffff:{number >> 16:x}:{number % (1 << 16):X}]"]


def test_an_address_is_that_of_java() -> None:
    chance = random.Random(20261127)
    names = [name for _ in range(100) for name in spellings(chance.getrandbits(chance.choice((8, 16, 32))))]

    assert printed("Addresses.java", *names) == [address(name) for name in names]
