"""SCRAM credentials as Kafka 2.8 writes them to ZooKeeper and shows them."""

import base64
import hashlib
import hmac
import re
import secrets
import sys

from kquota.cli.kafka_configs.configs import SCRAM
from kquota.cli.kafka_configs.options import Refusal

_GIVEN = re.compile(r"(?:iterations=([0-9]{1,10}),)?password=(.+)", re.DOTALL)
_LEAST_ITERATIONS, _MOST_ITERATIONS = 4096, 2**31 - 1


def stored_credential(mechanism: str, given: str) -> str:
    """What is stored for `[iterations=n,]password=text`. Raises Refusal, without showing the password."""
    match = _GIVEN.fullmatch(given)
    if match is None:
        raise Refusal(f"Invalid credential property {mechanism}: expected [iterations=<number>,password=<text>]")
    iterations = int(match[1] or _LEAST_ITERATIONS)
    if not _LEAST_ITERATIONS <= iterations <= _MOST_ITERATIONS:
        raise Refusal(
            f"Iterations {iterations} is less than the minimum {_LEAST_ITERATIONS} required for {mechanism}, or too"
            " large"
        )
    digest = mechanism.removeprefix("SCRAM-").replace("-", "").lower()
    salt = secrets.token_hex(16).encode()
    salted = hashlib.pbkdf2_hmac(digest, match[2].encode("utf-8", "surrogateescape"), salt, iterations)
    stored_key = hashlib.new(digest, hmac.digest(salted, b"Client Key", digest)).digest()
    server_key = hmac.digest(salted, b"Server Key", digest)
    texts = [base64.b64encode(part).decode() for part in (salt, stored_key, server_key)]
    return f"salt={texts[0]},stored_key={texts[1]},server_key={texts[2]},iterations={iterations}"


def shown(key: str, value: str) -> str:
    """A value as `--describe` prints it: on a terminal without the keys of a credential, else as it is stored."""
    return "[hidden]" if key in SCRAM and sys.stdout.isatty() else value
