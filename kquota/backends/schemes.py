"""Addresses with a scheme, as kquota itself prints them: `kafka://HOST:PORT`, `zookeeper://HOST:PORT/CHROOT`."""

import re
from typing import Final

from kquota.errors import InputError

OPTIONS: Final = {
    "kafka": "--bootstrap-server",
    "controller": "--bootstrap-controller",
    "zookeeper": "--zookeeper",
}
"""kquota's own schemes, with the option that takes what follows them."""
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""Kafka's security protocols, which its addresses may begin with."""
_SCHEME = re.compile(r"(?P<name>[0-9A-Za-z_.+-]+)://", re.ASCII)
_PRODUCTS = {"kafka": "brokers", "controller": "KRaft controllers", "zookeeper": "a ZooKeeper"}


def scheme_of(text: str) -> str:
    """The word before `://`; empty where there is none."""
    match = _SCHEME.match(text.strip())
    return "" if match is None else match["name"]


def without_scheme(text: str, own: str) -> str:
    """The address without kquota's own scheme, before the first server or before each.

    Raises InputError for the scheme of another product and for an unknown one. Names of listeners, which are written
    in upper case (`SASL_SSL://HOST:PORT`, `EXTERNAL://HOST:PORT`), are left to Kafka's addresses.
    """
    if "://" not in text:
        return text
    return ",".join(_bare(part, own) for part in text.split(","))


def _bare(part: str, own: str) -> str:
    match = _SCHEME.match(part.strip())
    if match is None:
        return part
    name, rest = match["name"], part.strip()[match.end() :]
    if name.lower() == own:
        return rest
    if name.lower() in OPTIONS:
        option = OPTIONS[name.lower()]
        raise InputError(
            f"{name}:// is for {_PRODUCTS[name.lower()]}, which {OPTIONS[own]} does not take",
            hint=f"use {option} {rest.rpartition('@')[2]}",
        )
    if own != "zookeeper" and (name.isupper() or name.upper() in PROTOCOLS):
        return part
    raise unknown(name, own)


def unknown(name: str, *own: str) -> InputError:
    """The error for a scheme that nobody knows."""
    return InputError(f"unknown scheme {name}://", hint=f"known: {', '.join(f'{each}://' for each in own)}")
