"""SASL mechanisms: what properties say of them, and the bytes of each conversation."""

import base64
import sys
import types
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from kquota.backends.clientprops import kafka_security
from kquota.backends.kafka.oauth import ClientCredentials, FileToken, MskIam, OAuthBearer
from kquota.backends.kafka.security import Kerberos, Sasl
from kquota.errors import InputError, Unauthorized, Unreachable
from tests.support.certificates import authority, tls_from_files
from tests.support.oauth import CLIENT_ID, CLIENT_SECRET, AuthorizationServer

OAUTH = "org.apache.kafka.common.security.oauthbearer."
BEARER = f"{OAUTH}OAuthBearerLoginModule"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"
IAM = "software.amazon.msk.auth.iam.IAMLoginModule"
HOST = "b-1.demo.abc123.c2.kafka.eu-west-1.amazonaws.com"


def sasl_of(tmp_path: Path, mechanism: str, *lines: str) -> Sasl:
    """The login of a client.properties."""
    file = tmp_path / "client.properties"
    file.write_text(
        "".join(f"{line}\n" for line in ("security.protocol=SASL_SSL", f"sasl.mechanism={mechanism}", *lines))
    )
    sasl = kafka_security(file).sasl
    assert sasl is not None
    assert "s3cret" not in repr(sasl)
    return sasl


def converse(conversation: Generator[bytes, bytes, None], *answers: bytes) -> list[bytes]:
    """What the client sends when it is answered so; it must then have come to its end."""
    sent = [next(conversation)]
    sent += [conversation.send(answer) for answer in answers[:-1]]
    with pytest.raises(StopIteration):
        conversation.send(answers[-1])
    return sent


# --- OAUTHBEARER -----------------------------------------------------------------------------------------------------


class Fixed:
    """A token that is known."""

    def __init__(self, token: str) -> None:
        self._token = token

    def token(self, host: str, timeout_s: float) -> str:
        return self._token


def test_a_bearer_token_is_sent_as_the_rfc_says() -> None:
    sasl = OAuthBearer(Fixed("a.b-c_d="), {"traceId": "12 3", "logicalCluster": "lkc"})
    sent = converse(sasl.converse("host", 1), b"")
    assert sent == [b"n,,\x01auth=Bearer a.b-c_d=\x01traceId=12 3\x01logicalCluster=lkc\x01\x01"]


@pytest.mark.parametrize("token", ["", "s3 cret", "a\x01auth=x", "a\nb", "ü"])
def test_what_is_no_token_is_not_sent(token: str) -> None:
    with pytest.raises(InputError, match="not a bearer token") as raised:
        next(OAuthBearer(Fixed(token)).converse("host", 1))
    assert not token or token not in raised.value.message


@pytest.mark.parametrize("extension", [{"auth": "x"}, {"a1": "x"}, {"a": ""}, {"a": "x\x01auth=y"}, {"a": "ü"}])
def test_extensions_that_cannot_be_sent(extension: dict[str, str]) -> None:
    with pytest.raises(InputError, match="cannot be sent"):
        OAuthBearer(Fixed("token"), extension)


def test_a_token_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a token"
    path.write_text("a.b.c\n")
    url = path.as_uri()
    lines = (f"sasl.jaas.config={BEARER} required extension_traceId=1;", f"sasl.oauthbearer.token.endpoint.url={url}")
    sasl = sasl_of(tmp_path, "OAUTHBEARER", *lines)
    assert sasl == OAuthBearer(FileToken(path), {"traceId": "1"})
    assert FileToken(path).token("host", 1) == "a.b.c"
    path.unlink()
    with pytest.raises(InputError, match="no such file"):
        FileToken(path).token("host", 1)


@pytest.mark.parametrize("newer", [True, False])
def test_the_client_of_a_token_endpoint(tmp_path: Path, newer: bool) -> None:
    """By the properties of Kafka 4.1 or by the login module's options; the stores for it are options in any case."""
    pem = tmp_path / "ca.pem"
    pem.write_text(authority("ca").pem)
    options = f"ssl.truststore.location={pem}"
    lines = ["sasl.oauthbearer.token.endpoint.url=https://idp:8443/token?x=y", "sasl.oauthbearer.header.urlencode=true"]
    if newer:
        credentials = "sasl.oauthbearer.client.credentials.client"
        lines += [f"{credentials}.id=me", f"{credentials}.secret=s3cret", "sasl.oauthbearer.scope=quotas"]
    else:
        options += ' clientId="me" clientSecret="s3cret" scope="quotas"'
    handler = f"sasl.login.callback.handler.class={OAUTH}secured.OAuthBearerLoginCallbackHandler"
    sasl = sasl_of(tmp_path, "OAUTHBEARER", handler, *lines, f"sasl.jaas.config={BEARER} required {options};")
    expected = ClientCredentials(
        "https://idp:8443/token?x=y", "me", "s3cret", "quotas", urlencode=True, tls=tls_from_files(truststore=pem)
    )
    assert sasl == OAuthBearer(expected)
    assert sasl.who == "as the client 'me' of https://idp:8443/token"


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ((), "endpoint.url is missing"),
        (("sasl.oauthbearer.token.endpoint.url=http://idp/",), "the client of the token endpoint is missing"),
        (("sasl.login.callback.handler.class=com.example.Login",), "com.example.Login is not supported"),
        ((f"sasl.oauthbearer.jwt.retriever.class={OAUTH}JwtBearerJwtRetriever",), "JwtBearerJwtRetriever is not supp"),
        (
            ("sasl.oauthbearer.client.credentials.client.id=me", "sasl.oauthbearer.token.endpoint.url=http://idp/"),
            "the secret of the client me is missing",
        ),
        (
            (
                "sasl.oauthbearer.client.credentials.client.id=me",
                "sasl.oauthbearer.client.credentials.client.secret=s3cret",
                "sasl.oauthbearer.token.endpoint.url=ftp://u:s3cret@idp/",
            ),
            "the token endpoint ftp://idp/ is no http",
        ),
    ],
)
def test_oauth_that_cannot_be_used(tmp_path: Path, lines: tuple[str, ...], says: str) -> None:
    with pytest.raises(InputError, match=says) as raised:
        sasl_of(tmp_path, "OAUTHBEARER", *lines, f"sasl.jaas.config={BEARER} required;")
    assert "s3cret" not in f"{raised.value} {raised.value.hint}"


def test_a_token_endpoint_grants_and_refuses(tmp_path: Path) -> None:
    with AuthorizationServer(tmp_path) as server:
        token = ClientCredentials(server.url, CLIENT_ID, CLIENT_SECRET, "read quotas").token("host", 5)
        assert token.count(".") == 2
        ((headers, form),) = server.requests
        assert form == {"grant_type": ["client_credentials"], "scope": ["read quotas"]}
        assert headers["Content-Type"] == "application/x-www-form-urlencoded"
        with pytest.raises(Unauthorized, match=r"answers 401: invalid_client$") as raised:
            ClientCredentials(server.url, CLIENT_ID, "wr0ng").token("host", 5)
        assert "wr0ng" not in repr(raised.value)
        ClientCredentials(server.url, CLIENT_ID, CLIENT_SECRET, urlencode=True).token("host", 5)
        with pytest.raises(Unauthorized):
            ClientCredentials(server.url, "a b:", "c&d", urlencode=True).token("host", 5)
        basic = server.requests[-1][0]["Authorization"].removeprefix("Basic ")
        assert base64.b64decode(basic) == b"a+b%3A:c%26d"
        # A redirection could lead anywhere: the secret does not follow.
        with pytest.raises(Unreachable, match=r"answers 307$"):
            ClientCredentials(f"{server.url}/moved", CLIENT_ID, CLIENT_SECRET).token("host", 5)
        with pytest.raises(Unreachable, match="without an access_token"):
            ClientCredentials(f"{server.url}/empty", CLIENT_ID, CLIENT_SECRET).token("host", 5)
        with pytest.raises(Unauthorized, match=r"answers 401$"):
            ClientCredentials(f"{server.url}/nested", CLIENT_ID, CLIENT_SECRET).token("host", 5)
        secure = server.url.replace("http:", "https:")
        with pytest.raises(Unreachable, match="cannot reach the token endpoint https:"):
            ClientCredentials(secure, CLIENT_ID, CLIENT_SECRET).token("host", 5)
    with pytest.raises(Unreachable, match="token: connection refused"):
        ClientCredentials(server.url, CLIENT_ID, CLIENT_SECRET).token("host", 5)


# --- GSSAPI ----------------------------------------------------------------------------------------------------------


class FakeGssapi(types.ModuleType):
    """Stands in for the library: tokens and wrapped messages can be told apart, and what it was asked for is kept."""

    def __init__(self, *, offer: bytes = b"\x01\x00\xff\xff", fails: str | None = None) -> None:
        super().__init__("gssapi")
        self.asked: dict[str, Any] = {}
        self.offer = offer
        asked = self.asked

        class GSSError(Exception):
            pass

        class SecurityContext:
            def __init__(self, **arguments: Any) -> None:
                asked.update(arguments)
                self.complete = False

            def step(self, token: bytes | None) -> bytes | None:
                if fails is not None:
                    raise GSSError(fails)
                self.complete = token == b"AP-REP"
                return None if self.complete else b"AP-REQ"

            def unwrap(self, message: bytes) -> Any:
                assert message.startswith(b"wrapped:")
                return types.SimpleNamespace(message=message.removeprefix(b"wrapped:"))

            def wrap(self, message: bytes, encrypt: bool) -> Any:
                assert not encrypt
                return types.SimpleNamespace(message=b"wrapped:" + message)

        self.SecurityContext = SecurityContext
        self.exceptions = types.SimpleNamespace(GSSError=GSSError)
        self.Name = lambda name, name_type: (name, name_type)
        self.NameType = types.SimpleNamespace(hostbased_service="service", kerberos_principal="principal")
        self.MechType = types.SimpleNamespace(kerberos="krb5")
        self.Credentials = lambda **arguments: arguments


def test_kerberos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exchange of RFC 4752 with mutual authentication, and no security layer after it."""
    library = FakeGssapi()
    monkeypatch.setitem(sys.modules, "gssapi", library)
    sasl = sasl_of(tmp_path, "GSSAPI", "sasl.kerberos.service.name=kafka")
    sent = converse(sasl.converse("broker.example.com", 1), b"AP-REP", b"wrapped:" + library.offer, b"")
    assert sent == [b"AP-REQ", b"", b"wrapped:\x01\x00\x00\x00"]
    assert library.asked == {
        "name": ("kafka@broker.example.com", "service"),
        "creds": None,
        "mech": "krb5",
        "usage": "initiate",
    }


def test_kerberos_with_a_keytab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = FakeGssapi()
    monkeypatch.setitem(sys.modules, "gssapi", library)
    jaas = f'{KERBEROS} required useKeyTab=true keyTab="/etc/k.keytab" principal="me@EXAMPLE.COM" serviceName=kafka;'
    sasl = sasl_of(tmp_path, "GSSAPI", f"sasl.jaas.config={jaas}")
    assert sasl == Kerberos("kafka", "me@EXAMPLE.COM", "/etc/k.keytab")
    assert sasl.who == "as 'me@EXAMPLE.COM'"
    next(sasl.converse("broker", 1))
    assert library.asked["creds"] == {
        "name": ("me@EXAMPLE.COM", "principal"),
        "usage": "initiate",
        "store": {"client_keytab": "/etc/k.keytab"},
    }


def test_kerberos_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", FakeGssapi(fails="Major: no creds\nMinor: no cache"))
    with pytest.raises(Unauthorized, match="Kerberos: Major: no creds Minor: no cache"):
        next(Kerberos("kafka").converse("broker", 1))
    monkeypatch.setitem(sys.modules, "gssapi", FakeGssapi())
    conversation = Kerberos("kafka").converse("broker", 1)
    next(conversation)
    conversation.send(b"AP-REP")
    with pytest.raises(Unauthorized, match="wants a security layer"):
        conversation.send(b"wrapped:\x04\x00\xff\xff")


# --- AWS_MSK_IAM -----------------------------------------------------------------------------------------------------


@pytest.fixture
def signer(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Stands in for AWS's library; what it was asked for."""
    asked: list[tuple[str, ...]] = []

    def answering(name: str) -> Any:
        def make(*arguments: str) -> tuple[str, int]:
            asked.append((name, *arguments))
            return "aHR0cHM", 1_700_000_000_000

        return make

    names = ("generate_auth_token", "generate_auth_token_from_profile", "generate_auth_token_from_role_arn")
    provider = types.SimpleNamespace(**{name: answering(name) for name in names})
    package = types.ModuleType("aws_msk_iam_sasl_signer")
    package.MSKAuthTokenProvider = provider  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", package)
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    return asked


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ("", ("generate_auth_token", "eu-west-1")),
        ('awsProfileName="ops"', ("generate_auth_token_from_profile", "eu-west-1", "ops")),
        ('awsRoleArn="arn:r"', ("generate_auth_token_from_role_arn", "eu-west-1", "arn:r")),
        (
            'awsRoleArn="arn:r" awsRoleSessionName="me"',
            ("generate_auth_token_from_role_arn", "eu-west-1", "arn:r", "me"),
        ),
    ],
)
def test_msk(tmp_path: Path, signer: list[tuple[str, ...]], options: str, asked: tuple[str, ...]) -> None:
    """On the wire it is OAUTHBEARER; the region is in the broker's name."""
    sasl = sasl_of(tmp_path, "AWS_MSK_IAM", f"sasl.jaas.config={IAM} required {options};")
    assert sasl.mechanism == "OAUTHBEARER"
    assert converse(sasl.converse(HOST, 1), b"") == [b"n,,\x01auth=Bearer aHR0cHM\x01\x01"]
    assert signer == [asked]
    handler = "sasl.login.callback.handler.class=software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler"
    assert sasl_of(tmp_path, "OAUTHBEARER", handler, f"sasl.jaas.config={BEARER} required {options};") == sasl


def test_the_region_of_msk(signer: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"the AWS region of 10\.0\.0\.1 is not known"):
        MskIam().token("10.0.0.1", 1)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-2")
    MskIam().token("10.0.0.1", 1)
    MskIam().token("boot-x.c1.kafka-serverless.ap-south-1.amazonaws.com", 1)
    assert [region for _, region in signer] == ["us-east-2", "ap-south-1"]


def test_msk_that_fails(signer: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    provider: Any = sys.modules["aws_msk_iam_sasl_signer"].MSKAuthTokenProvider

    def no_profile(*_: str) -> None:
        raise OSError("The config profile (ops)\ncould not be found")

    def no_credentials(*_: str) -> None:
        raise AttributeError("'NoneType' object has no attribute 'access_key'")

    monkeypatch.setattr(provider, "generate_auth_token_from_profile", no_profile)
    monkeypatch.setattr(provider, "generate_auth_token", no_credentials)
    with pytest.raises(Unauthorized, match=r"AWS makes no token: The config profile \(ops\) could not be found"):
        MskIam(profile="ops").token(HOST, 1)
    with pytest.raises(Unauthorized, match="there are no AWS credentials"):
        MskIam().token(HOST, 1)
