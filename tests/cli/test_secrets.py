"""A secret is planted wherever one can be given, rightly or by mistake: it is in no output, and not in tracebacks."""

import base64
import http.server
import json
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kquota.backends import wire
from kquota.backends.secrets import crosses_networks, without
from kquota.cli.main import run
from tests.backends.test_kafka_peers import VERSIONS, Peer
from tests.cli.conftest import quotas
from tests.support.data import data_text
from tests.support.listening import serving

SECRET = "S3cr3t-m4rker"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
JAAS = f'sasl.jaas.config={PLAIN} required username="alice" password="{SECRET}";\n'


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    Path("quotas.json").write_text(quotas(alice=1))
    Path("store.pem").write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")


@pytest.fixture
def hides(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Runs a command line, with and without --debug; returns the last exit code and stderr."""

    def check(*arguments: str) -> tuple[int, str]:
        for debug in (["--debug"], []):
            capsys.readouterr()
            code = run([*debug, *arguments])
            shown = "".join(capsys.readouterr())
            for text in (SECRET, base64.b64encode(f"alice:{SECRET}".encode()).decode(), SECRET.upper()):
                assert text not in shown, shown
            assert code not in (0, 70), shown
        return code, shown

    return check


@pytest.fixture(scope="module")
def echo() -> Iterator[str]:
    """The URL of a server that answers errors with what it was sent, headers and all."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent = self.headers["Authorization"] or "nothing"
            encoded = sent.rpartition(" ")[2]
            if sent.startswith("Basic "):
                sent += " " + base64.b64decode(encoded).decode()
            code = int(self.path[1:4])
            if code == 999:
                self.wfile.write(f"{sent} is no HTTP\r\n\r\n".encode())
                return
            body = json.dumps({"error": sent, "error_description": sent, "status": "error"}).encode()
            self.send_response_only(code, sent)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with serving(Handler) as url:
        yield url


@pytest.mark.parametrize(
    "properties",
    [
        *data_text("cli/secrets.properties").split("---\n"),
        f"security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n{JAAS.replace('alice', 'al' + chr(0))}",
    ],
)
def test_client_properties(properties: str, hides: Callable[..., tuple[int, str]]) -> None:
    """Each mistake is named, its value is not."""
    assert SECRET in properties
    Path("client.properties").write_text(properties)

    assert hides("describe", "--bootstrap-server", "127.0.0.1:1", "--command-config", "client.properties")[0] in (3, 4)


def test_a_slip_of_a_known_word_is_shown(hides: Callable[..., tuple[int, str]]) -> None:
    for text, says in (
        ("security.protocol=SASL_SLL\n", "unknown security.protocol SASL_SLL ("),
        (f"security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-265\n{JAAS}", "sasl.mechanism SCRAM-SHA-265 is not"),
    ):
        Path("client.properties").write_text(text)
        assert says in hides("describe", "--bootstrap-server", "a:1", "--command-config", "client.properties")[1]


def test_what_a_broker_says_of_a_password(hides: Callable[..., tuple[int, str]]) -> None:
    """It may repeat it."""

    def answer(request: wire.Request, _: wire.RequestHeader) -> Any:
        match request:
            case wire.ApiVersionsRequest():
                return wire.ApiVersionsResponse(0, VERSIONS)
            case wire.SaslHandshakeRequest():
                return wire.SaslHandshakeResponse(0, ["PLAIN"])
            case wire.SaslAuthenticateRequest(token):
                return wire.SaslAuthenticateResponse(58, f"who is {token.decode()}?", b"")
        raise EOFError

    Path("token").write_text(SECRET + "\n")
    for login in (
        f"sasl.mechanism=PLAIN\n{JAAS}",
        f"sasl.mechanism=OAUTHBEARER\nsasl.jaas.config={OAUTH} required;\n"
        f"sasl.oauthbearer.token.endpoint.url=file://{Path('token').resolve()}\n",
    ):
        Path("client.properties").write_text(f"security.protocol=SASL_PLAINTEXT\n{login}")
        with Peer(answer) as peer:
            code, shown = hides(
                "describe", "--bootstrap-server", peer.bootstrap, "--command-config", "client.properties"
            )
        assert code == 5
        assert "who is" in shown


@pytest.mark.parametrize("path", ["/400/token", "/500/token", "/999/token", f"/401/token?key={SECRET}"])
def test_a_token_endpoint(path: str, echo: str, hides: Callable[..., tuple[int, str]]) -> None:
    """It may repeat the client's secret."""

    def answer(request: wire.Request, _: wire.RequestHeader) -> Any:
        return ... if isinstance(request, wire.ApiVersionsRequest) else None

    Path("client.properties").write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.jaas.config={OAUTH} required clientId=alice clientSecret={SECRET};\n"
        f"sasl.oauthbearer.token.endpoint.url={echo}{path}\n"
    )
    with Peer(answer) as peer:
        live = ("--bootstrap-server", peer.bootstrap, "--timeout", "5")
        assert hides("describe", *live, "--command-config", "client.properties")[0] in (4, 5)


@pytest.mark.parametrize(
    "environment",
    [
        {"TOKEN": SECRET},
        {"TOKEN": f"{SECRET}\n"},
        {"TOKEN": f"{SECRET}\r\n"},
        {"TOKEN": f"{SECRET}\nmore"},
        {"TOKEN": f"Bearer {SECRET}"},
        {"TOKEN": f"{SECRET}\xfc"},
        {"TOKEN": f"{SECRET}\udcff"},
        {"USERNAME": "alice", "PASSWORD": SECRET},
        {"USERNAME": "alice", "PASSWORD": f"{SECRET}\n"},
        {"USERNAME": "alice", "PASSWORD": f"{SECRET}\udcff"},
        {"PASSWORD": SECRET},
    ],
)
def test_prometheus(
    environment: dict[str, str], echo: str, hides: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With line ends as mounted secrets have them, and with what no header carries."""
    for name, value in environment.items():
        monkeypatch.setenv(f"KQUOTA_PROMETHEUS_{name}", value)
    for path in ("/400", "/401", "/503", "/999", f"/503?key={SECRET}", "/503\x7f"):
        code, _ = hides("audit", "--prometheus", echo + path, "--quotas", "quotas.json")
        assert code in (3, 4, 5)


def test_a_token_with_the_line_end_of_its_file_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    from kquota.metrics.prometheus import Credentials

    credentials = Credentials.of({"KQUOTA_PROMETHEUS_TOKEN": "tok\r\n"})

    assert credentials.header == {"Authorization": "Bearer tok"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("describe", "--bootstrap-server", f"alice:{SECRET}@127.0.0.1:1"),
        ("describe", "--bootstrap-server", f"SASL_SSL://alice:{SECRET}@127.0.0.1:1"),
        ("describe", "--zookeeper", f"alice:{SECRET}@127.0.0.1:1"),
        ("describe", "--zookeeper", f"zk://alice:{SECRET}@127.0.0.1:1"),
        ("audit", "--prometheus", f"http://alice:{SECRET}@127.0.0.1:1", "--quotas", "quotas.json"),
        ("audit", "--prometheus", f"ftp://alice:{SECRET}@127.0.0.1:1", "--quotas", "quotas.json"),
        ("alter", "--zookeeper", "127.0.0.1:1", "--user", "a", "--add-config", f"SCRAM-SHA-256=[password={SECRET}]"),
    ],
)
def test_credentials_where_none_belong(arguments: tuple[str, ...], hides: Callable[..., tuple[int, str]]) -> None:
    hides(*arguments)


def test_zookeeper(hides: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """A login of its digest scheme is what is sent to a server that never answers."""
    monkeypatch.setenv("KQUOTA_ZOOKEEPER_USERNAME", "alice")
    monkeypatch.setenv("KQUOTA_ZOOKEEPER_PASSWORD", SECRET)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        live = ("--zookeeper", f"127.0.0.1:{listener.getsockname()[1]}", "--timeout", "1")
        for scheme in ("digest", "sasl", SECRET):
            monkeypatch.setenv("KQUOTA_ZOOKEEPER_SCHEME", scheme)
            hides("describe", *live)
        monkeypatch.delenv("KQUOTA_ZOOKEEPER_USERNAME")
        hides("describe", *live, "--zk-tls-config-file", "quotas.json")
        for text in (SECRET, f"Client {{ {SECRET} required; }};", f"Client {{ {PLAIN} required password={SECRET}; }};"):
            Path("jaas.conf").write_text(text)
            hides("describe", *live, "--zk-jaas-file", "jaas.conf")


@pytest.mark.parametrize(
    ("hosts", "crosses"),
    [
        (["localhost"], False),
        (["127.0.0.1", "::1", "LOCALHOST"], False),
        (["127.0.0.1", "broker"], True),
        (["localhost.example.com"], True),
        (["127.0.0.1.example.com"], True),
    ],
)
def test_what_is_this_machine(hosts: list[str], crosses: bool) -> None:
    assert crosses_networks(hosts) is crosses


def test_short_secrets_are_words() -> None:
    assert without("user said use us", "us") == "user said use ********"
    assert without("xlong-secretx a.b", "long-secret", "", None, "a.b") == "x********x ********"


@pytest.mark.parametrize(
    ("lines", "warns"),
    [
        (f"sasl.mechanism=PLAIN\n{JAAS}", "the password goes to the brokers without TLS"),
        ("sasl.mechanism=OAUTHBEARER\nsasl.jaas.config=" + OAUTH + " required;\n"
         "sasl.oauthbearer.token.endpoint.url=file:///nowhere\n", "the token goes to the brokers without TLS"),
        (f"sasl.mechanism=SCRAM-SHA-256\n{JAAS.replace('plain.Plain', 'scram.Scram')}", None),
    ],
)  # fmt: skip
def test_a_password_in_clear_text_is_warned_of(
    lines: str, warns: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once, also with --quiet; not where it does not leave this machine, and not with TLS."""
    for protocol, server, expected in (
        ("SASL_PLAINTEXT", "broker.invalid:9092", warns),
        ("SASL_PLAINTEXT", "localhost:1", None),
        ("SASL_SSL", "broker.invalid:9092", None),
    ):
        Path("client.properties").write_text(f"security.protocol={protocol}\n{lines}")
        run(["--quiet", "describe", "--bootstrap-server", server, "--command-config", "client.properties"])
        warnings = re.findall("kquota: warning: (.*)", capsys.readouterr().err)
        assert len(warnings) == (expected is not None), warnings
        assert all(text.startswith(str(expected)) for text in warnings)


def test_a_token_over_http_is_warned_of(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KQUOTA_PROMETHEUS_TOKEN", SECRET)
    for url, expected in (
        ("http://prometheus.invalid", 1),
        ("https://prometheus.invalid", 0),
        ("http://localhost:1", 0),
    ):
        run(["--quiet", "audit", "--prometheus", url, "--quotas", "quotas.json", "--timeout", "2"])
        assert capsys.readouterr().err.count("go over http, and whoever listens") == expected
    monkeypatch.delenv("KQUOTA_PROMETHEUS_TOKEN")
    for url, expected in (
        ("http://idp.invalid/token", 1),
        ("https://idp.invalid/token", 0),
        ("http://localhost:1/token", 0),
    ):
        Path("client.properties").write_text(
            "security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n"
            f"sasl.jaas.config={OAUTH} required clientId=alice clientSecret={SECRET};\n"
            f"sasl.oauthbearer.token.endpoint.url={url}\n"
        )
        live = ("--bootstrap-server", "broker.invalid:9092", "--command-config", "client.properties")
        run(["--quiet", "describe", *live])
        assert capsys.readouterr().err.count("the secret goes to the token endpoint over http") == expected
    monkeypatch.setenv("KQUOTA_ZOOKEEPER_USERNAME", "super")
    monkeypatch.setenv("KQUOTA_ZOOKEEPER_PASSWORD", SECRET)
    for scheme, expected in (("digest", 1), ("sasl", 0)):
        monkeypatch.setenv("KQUOTA_ZOOKEEPER_SCHEME", scheme)
        run(["describe", "--zookeeper", "zk.invalid", "--timeout", "1"])
        assert capsys.readouterr().err.count("goes to ZooKeeper without TLS") == expected
