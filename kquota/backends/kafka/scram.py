"""SCRAM-SHA-256 and SCRAM-SHA-512, the client's side (RFC 5802, RFC 7677), as a generator.

As in Kafka's `ScramSaslClient`: names and passwords in UTF-8 without SASLprep, no channel binding, at least 4,096
iterations. Hashing is imported with this module, which is needed for SCRAM only.
"""

import base64
import binascii
import hashlib
import hmac
import os
from collections.abc import Generator

from kquota.errors import Unauthorized

_LEAST_ITERATIONS = 4096
_MOST_ITERATIONS = 1_000_000
"""Kafka takes 16,384 at most (`ScramControlManager`); a hostile server must not make us count for hours."""


def scram(mechanism: str, username: str, password: str, *, nonce: str | None = None) -> Generator[bytes, bytes, None]:
    """Yields what to send, is sent what the server answers, and returns once the server has proved itself.

    Raises Unauthorized when the server says no, or is not who knows the password's keys.
    """
    digest = mechanism.removeprefix("SCRAM-").replace("-", "").lower()
    nonce = nonce or base64.b64encode(os.urandom(24)).decode()
    name = username.replace("=", "=3D").replace(",", "=2C")
    first_bare = f"n={name},r={nonce}".encode()

    server_first = yield b"n,," + first_bare
    answer = _attributes(server_first)
    server_nonce, salt, iterations = answer.get("r", ""), _decoded(answer.get("s")), answer.get("i", "")
    if not server_nonce.startswith(nonce) or server_nonce == nonce or not salt or not iterations.isascii():
        raise Unauthorized(f"{mechanism}: the server's answer does not follow the mechanism")
    count = int(iterations) if iterations.isdigit() and len(iterations) < 10 else 0
    if not _LEAST_ITERATIONS <= count <= _MOST_ITERATIONS:
        raise Unauthorized(
            f"{mechanism}: the server asks for {iterations[:20] or 'no'} iterations"
            f" ({_LEAST_ITERATIONS} to {_MOST_ITERATIONS} are taken)"
        )

    final_bare = b"c=biws,r=" + server_nonce.encode()
    signed = first_bare + b"," + server_first + b"," + final_bare
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, count)
    client_key = hmac.digest(salted, b"Client Key", digest)
    signature = hmac.digest(hashlib.new(digest, client_key).digest(), signed, digest)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))

    answer = _attributes((yield final_bare + b",p=" + base64.b64encode(proof)))
    if "e" in answer:
        raise Unauthorized(f"{mechanism}: {answer['e']}")
    expected = hmac.digest(hmac.digest(salted, b"Server Key", digest), signed, digest)
    if not hmac.compare_digest(_decoded(answer.get("v")), expected):
        raise Unauthorized(
            f"{mechanism}: the server's signature is wrong",
            hint="it does not know the password: this may not be the server it says it is",
        )


def _attributes(message: bytes) -> dict[str, str]:
    """`a=1,b=2` as a mapping; what is not of that form is not in it."""
    pairs = (part.partition("=") for part in message.decode("utf-8", "replace").split(","))
    return {name: value for name, equals, value in pairs if equals}


def _decoded(text: str | None) -> bytes:
    try:
        return base64.b64decode(text or "", validate=True)
    except (binascii.Error, ValueError):
        return b""
