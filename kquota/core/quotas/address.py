"""Ip addresses as brokers compare them: by what they are, however they are spelled."""

import ipaddress
import re

_IPV4 = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}", re.ASCII)


def address(text: str) -> str:
    """The address in its usual spelling, as Java's `InetAddress.getByName` reads it; another text is as it was.

    A leading zero is decimal there, and an IPv4 address inside IPv6 is IPv4.
    """
    if _IPV4.fullmatch(text):
        parts = [int(part) for part in text.split(".")]
        return ".".join(map(str, parts)) if max(parts) <= 255 else text
    if ":" not in text or "%" in text:
        return text
    try:
        found = ipaddress.IPv6Address(text)
    except ValueError:
        return text
    return str(found.ipv4_mapped or found)
