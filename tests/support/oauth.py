"""An authorization server for tests: it signs tokens, publishes its key, and grants tokens to one client over HTTP."""

from __future__ import annotations

import base64
import json
import time
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256

from tests.support.listening import serving

CLIENT_ID, CLIENT_SECRET = "kquota-client", "kquota-client-secret"
SUBJECT = "service"
"""The principal that tokens are for."""


class AuthorizationServer:
    """A context manager; `url` is the token endpoint on the loopback address, `jwks` the public key as a file.

    Below `url`, `/moved` redirects to it, `/empty` grants nothing, and `/nested` refuses in words that are nested too
    deeply. What clients sent is in `requests`: the headers and the form of each.
    """

    def __init__(self, folder: Path) -> None:
        self._key = rsa.generate_private_key(65537, 2048)
        self.jwks = folder / "jwks.json"
        numbers = self._key.public_key().public_numbers()
        key = {
            "kty": "RSA",
            "kid": "one",
            "alg": "RS256",
            "use": "sig",
            "n": _number(numbers.n),
            "e": _number(numbers.e),
        }
        self.jwks.write_text(json.dumps({"keys": [key]}))
        self.requests: list[tuple[dict[str, str], dict[str, list[str]]]] = []
        self.url = ""
        self._stack = ExitStack()

    def __enter__(self) -> AuthorizationServer:
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                owner.requests.append((dict(self.headers), form))
                basic = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
                known = self.headers["Authorization"] == f"Basic {basic}"
                answer = {"access_token": owner.token()} if known else {"error": "invalid_client"}
                status = 200 if known else 401
                if self.path != "/token":
                    answer, status = {}, 307 if self.path == "/token/moved" else 200
                body = json.dumps(answer).encode()
                if self.path == "/token/nested":
                    status, body = 401, b'{"error": ' + b"[" * 50_000
                self.send_response(status)
                self.send_header("Location", "/token")
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self.url = f"{self._stack.enter_context(serving(Handler))}/token"
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def token(self, subject: str = SUBJECT, *, age_s: float = 0) -> str:
        """A signed token that is valid for an hour after it was made."""
        made = int(time.time() - age_s)
        claims = {"sub": subject, "iat": made, "exp": made + 3600, "iss": "kquota-tests", "scope": "quotas"}
        signed = f"{_text({'alg': 'RS256', 'kid': 'one', 'typ': 'JWT'})}.{_text(claims)}"
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), SHA256())
        return f"{signed}.{_base64(signature)}"


def unsigned(subject: str) -> str:
    """A token that nobody signed."""
    return f"{_text({'alg': 'none'})}.{_text({'sub': subject, 'iat': time.time(), 'exp': time.time() + 3600})}."


def _text(claims: dict[str, Any]) -> str:
    return _base64(json.dumps(claims).encode())


def _number(value: int) -> str:
    return _base64(value.to_bytes((value.bit_length() + 7) // 8))


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
