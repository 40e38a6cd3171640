"""SCRAM credentials as Kafka 2.8 writes them to ZooKeeper and shows them (`ScramFormatter`, `ScramCredentialUtils`)."""

from __future__ import annotations

import re
import sys

from kquota.cli.kafka_configs.configs import SCRAM
from kquota.cli.kafka_configs.failures import Refusal

_GIVEN = re.compile(r"(?:iterations=([0-9]*),)?password=(.*)")
_LEAST_ITERATIONS = 4096
_MOST_ITERATIONS = 2**31 - 1


def stored_credential(mechanism: str, given: str) -> str:
    """What is stored for `[iterations=n,]password=text`. Raises Refusal, without showing the password."""
    name = mechanism.replace("-", "_")
    match = _GIVEN.fullmatch(given)
    if match is None:
        raise Refusal(f"Invalid credential property {name}={_without_password(given)}")
    digits, password = match.groups()
    if digits == "":
        raise Refusal('For input string: ""')
    # int() refuses texts of thousands of digits; eleven are too many for Java already.
    iterations = _LEAST_ITERATIONS if digits is None else int(digits.lstrip("0")[:11] or "0")
    if iterations > _MOST_ITERATIONS:
        raise Refusal(f'For input string: "{digits}"')
    if iterations < _LEAST_ITERATIONS:
        raise Refusal(f"Iterations {iterations} is less than the minimum {_LEAST_ITERATIONS} required for {name}")
    if not password:
        # A key of no bytes is none to Java (`SecretKeySpec`); here it would let anybody in.
        raise Refusal("Empty key")
    import base64
    import hashlib
    import hmac
    import secrets

    digest = mechanism.removeprefix("SCRAM-").replace("-", "").lower()
    salt = secrets.token_hex(16).encode()
    salted = hashlib.pbkdf2_hmac(digest, password.encode("utf-8", "surrogateescape"), salt, iterations)
    stored_key = hashlib.new(digest, hmac.digest(salted, b"Client Key", digest)).digest()
    server_key = hmac.digest(salted, b"Server Key", digest)
    texts = [base64.b64encode(part).decode() for part in (salt, stored_key, server_key)]
    return f"salt={texts[0]},stored_key={texts[1]},server_key={texts[2]},iterations={iterations}"


def _without_password(given: str) -> str:
    """The text with asterisks for what is, or may be meant as, the password."""
    name, equals, _ = given.rpartition("password=")
    known = re.match(r"iterations=[^,]*,?", given)
    beginning = known[0] if known else ""
    if given == beginning:
        return given
    return f"{beginning}password=********" if equals and name == beginning else f"{beginning}********"


def shown(key: str, value: str) -> str:
    """A value as `--describe` prints it: on a terminal without the keys of a credential, else as it is stored."""
    return "[hidden]" if key in SCRAM and sys.stdout.isatty() else value
