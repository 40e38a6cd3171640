"""OAUTHBEARER (RFC 7628, KIP-255) and where its tokens are from: a token endpoint (KIP-768), a file, or AWS.

As `OAuthBearerSaslClient` and `DefaultJwtRetriever` of Kafka.
"""

import base64
import json
import os
import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from urllib.parse import quote_plus, urlencode

from kquota.backends.secrets import without
from kquota.backends.tls import Tls, client_context
from kquota.errors import InputError, MissingDependency, Unauthorized, Unreachable
from kquota.files import read_text

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_EXTENSION_NAME = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")
_LARGEST_ANSWER = 1 << 20
_REGION = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.(?:api\.)?amazonaws\.")


class TokenSource(Protocol):
    """Where a bearer token is from; as a text it says so: "with the token in /run/token"."""

    def token(self, host: str, timeout_s: float) -> str:
        """A token for the broker on that host. Raises Unauthorized, Unreachable, InputError, MissingDependency."""


@dataclass(frozen=True)
class OAuthBearer:
    """A bearer token, with SASL extensions (KIP-342). Raises InputError for extensions that cannot be sent."""

    source: TokenSource
    extensions: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in self.extensions.items():
            if not _EXTENSION_NAME.fullmatch(name) or name == "auth" or not _EXTENSION_VALUE.fullmatch(value):
                raise InputError(f"the SASL extension {name} cannot be sent: its name or its value is not allowed")

    mechanism = "OAUTHBEARER"

    @property
    def who(self) -> str:
        return str(self.source)

    def converse(self, host: str, timeout_s: float) -> Generator[bytes, bytes, None]:
        token = self.source.token(host, timeout_s)
        if not _TOKEN.fullmatch(token):
            raise InputError(f"cannot authenticate {self.source}: it is not a bearer token")
        fields = {"auth": f"Bearer {token}", **self.extensions}
        pairs = "".join(f"{name}={value}\x01" for name, value in fields.items())
        answer = yield f"n,,\x01{pairs}\x01".encode()
        if answer:
            # A refusal, as JSON; the broker ends the exchange with an error once that is acknowledged.
            yield b"\x01"
            raise Unauthorized(without(_shortened(answer.decode("utf-8", "replace")), token))


@dataclass(frozen=True)
class FileToken:
    """The token that a file holds."""

    path: Path

    def __str__(self) -> str:
        return f"with the token in {self.path}"

    def token(self, host: str, timeout_s: float) -> str:
        return read_text(self.path, _LARGEST_ANSWER).strip()


@dataclass(frozen=True)
class ClientCredentials:
    """A token of a token endpoint, for a client with a secret (RFC 6749, section 4.4).

    `urlencode` encodes the two before they are sent, as the RFC wants and Kafka does on demand
    (sasl.oauthbearer.header.urlencode). `tls` is for an https endpoint. Raises InputError for another kind of URL.
    """

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None = None
    urlencode: bool = False
    tls: Tls | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"https?://[!-.0-~][!-~]*", self.url, re.IGNORECASE):
            raise InputError(f"the token endpoint {self._shown_url} is no http or https URL")

    def __str__(self) -> str:
        return f"as the client {self.client_id!r} of {self._shown_url}"

    @property
    def _shown_url(self) -> str:
        """The URL without what could be a secret."""
        return re.sub(r"//[^/@]*@", "//", self.url).partition("?")[0]

    def token(self, host: str, timeout_s: float) -> str:
        from kquota.backends.http import NoAnswer, fetch

        names = [self.client_id, self.client_secret]
        basic = base64.b64encode(":".join(map(quote_plus, names) if self.urlencode else names).encode()).decode()
        endpoint, secrets = f"the token endpoint {self._shown_url}", (self.client_secret, basic)
        headers = {"Authorization": f"Basic {basic}", "Accept": "application/json", "User-Agent": "kquota"}
        form = urlencode({"grant_type": "client_credentials"} | ({"scope": self.scope} if self.scope else {})).encode()
        context = client_context(self.tls or Tls()) if self.url.lower().startswith("https:") else None
        try:
            body = fetch(self.url, headers, body=form, timeout_s=timeout_s, most=_LARGEST_ANSWER, context=context)
        except NoAnswer as error:
            if error.code is None:
                raise Unreachable(f"cannot reach {endpoint}: {without(_shortened(str(error)), *secrets)}") from None
            refusal = f"{endpoint} answers {error.code}{without(error.said('error', 'error_description'), *secrets)}"
            if error.code in (400, 401, 403):
                raise Unauthorized(refusal, hint="check the client's id, its secret and the scope") from None
            raise Unreachable(refusal) from None
        except (ValueError, OverflowError):
            raise InputError(f"{endpoint} is no http or https URL") from None
        try:
            token = json.loads(body)["access_token"]
        except (ValueError, TypeError, KeyError, RecursionError):
            token = None
        if not isinstance(token, str):
            raise Unreachable(f"{endpoint} answers without an access_token")
        return token.strip()


@dataclass(frozen=True)
class MskIam:
    """AWS_MSK_IAM: a token that AWS's own signer makes of IAM credentials; MSK takes it as OAUTHBEARER.

    The credentials are what AWS's tools find: the default ones, a profile's, or the credentials of a role to assume.
    """

    profile: str | None = None
    role: str | None = None
    session_name: str | None = None

    def __str__(self) -> str:
        return "with AWS IAM"

    def token(self, host: str, timeout_s: float) -> str:
        try:
            from aws_msk_iam_sasl_signer import MSKAuthTokenProvider as signer
        except ImportError:
            raise MissingDependency(
                "AWS_MSK_IAM needs the package aws-msk-iam-sasl-signer-python", extra="msk"
            ) from None
        region = self._region(host)
        try:
            if self.role is not None:
                names = [] if self.session_name is None else [self.session_name]
                made = signer.generate_auth_token_from_role_arn(region, self.role, *names)
            elif self.profile is not None:
                made = signer.generate_auth_token_from_profile(region, self.profile)
            else:
                made = signer.generate_auth_token(region)
        except AttributeError:
            # What the signer makes of no credentials at all.
            raise Unauthorized("there are no AWS credentials", hint="aws configure, or AWS_PROFILE") from None
        except Exception as error:
            # Those of botocore have no class in common but this one.
            raise Unauthorized(f"AWS makes no token: {' '.join(str(error).split())}") from None
        token: str = made[0]
        return token

    @staticmethod
    def _region(host: str) -> str:
        """That of the broker by its name, else that of the environment, as AWS's own client."""
        match = _REGION.search(host)
        region = match[1] if match else os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        if not region:
            raise InputError(f"the AWS region of {host} is not known", hint="set AWS_REGION")
        return region


def _shortened(text: str) -> str:
    return " ".join(text.split())[:300]
