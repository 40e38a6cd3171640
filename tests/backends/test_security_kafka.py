"""kquota as admins run it against secured brokers: what works, and how each mistake ends.

Every run is also a search: none of the secrets is in what it prints.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kquota import Entity, KafkaSecurity, KquotaError, Plain, Tls, Unauthorized, Unreachable
from kquota.backends.clientprops import kafka_security
from kquota.backends.kafka import KafkaBackend
from tests.backends.conftest import (
    BEARER,
    JKS_KEY_PASSWORD,
    KEY_PASSWORD,
    PLAIN_MODULE,
    SCRAM_MODULE,
    STORE_PASSWORD,
    Certificates,
    Cluster,
)
from tests.backends.contract import rate
from tests.backends.secured_cli import ROOT, TIMEOUT_S, WRONG, failed, kquota, on_a_terminal, shows_nothing
from tests.brokers.kafka import VERSION, password_of
from tests.differential.config_command import ConfigCommand
from tests.support.certificates import tls_from_files
from tests.support.data import data_rows
from tests.support.oauth import CLIENT_ID, CLIENT_SECRET, AuthorizationServer, unsigned
from tests.support.waiting import until


@dataclass(frozen=True)
class Scene:
    """What properties files are made of."""

    cluster: Cluster
    stores: Path
    authorization_server: AuthorizationServer
    folder: Path

    def plain(self, user: str = "admin", password: str | None = None, protocol: str = "SASL_PLAINTEXT") -> str:
        login = f'username="{user}" password="{password or password_of(user)}"'
        return (
            f"security.protocol={protocol}\nsasl.mechanism=PLAIN\nsasl.jaas.config={PLAIN_MODULE} required {login};\n"
        )

    def scram(self, mechanism: str, password: str) -> str:
        login = f'username="carol" password="{password}"'
        return (
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
            f"sasl.jaas.config={SCRAM_MODULE} required {login};\n"
        )

    def trust(self, name: str = "ca.p12", password: str = STORE_PASSWORD) -> str:
        # With a blank at the end, which Kafka does not take for a part of it.
        return f"ssl.truststore.location={self.stores / name}\nssl.truststore.password={password} \n"

    def key(self, name: str, password: str = STORE_PASSWORD, key_password: str = "") -> str:
        of_the_key = f"ssl.key.password={key_password}\n" if key_password else ""
        return f"ssl.keystore.location={self.stores / name}\nssl.keystore.password={password}\n{of_the_key}"

    def mtls(self, *lines: str) -> str:
        return "security.protocol=SSL\n" + "".join(lines)

    def bearer(self, options: str, url: str) -> str:
        handler = f"sasl.login.callback.handler.class={BEARER}LoginCallbackHandler"
        endpoint = f"{handler}\nsasl.oauthbearer.token.endpoint.url={url}\n"
        return (
            f"security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n{endpoint}"
            f"sasl.jaas.config={BEARER}LoginModule required {options};\n{self.trust()}"
        )

    def secret(self, secret: str) -> str:
        """The login of a client by the token endpoint."""
        return self.bearer(f'clientId="{CLIENT_ID}" clientSecret="{secret}"', self.authorization_server.url)

    def token(self, token: str) -> str:
        """The login by a file with that token."""
        path = self.folder / "token"
        path.write_text(token)
        return self.bearer("", path.as_uri())

    def pem_text(self) -> str:
        """PEM inside the properties, as a file of Kafka's has it: lines that are continued."""

        def text(name: str) -> str:
            return (self.stores / name).read_text().strip().replace("\n", " \\\n")

        return (
            "ssl.keystore.type=PEM\nssl.truststore.type=PEM\n"
            f"ssl.keystore.key={text('client.open.key')}\nssl.keystore.certificate.chain={text('client.pem')}\n"
            f"ssl.truststore.certificates={text('ca.pem')}\n"
        )


@pytest.fixture
def scene(cluster: Cluster, stores: Path, authorization_server: AuthorizationServer, tmp_path: Path) -> Scene:
    """On the real broker."""
    return Scene(cluster, stores, authorization_server, tmp_path)


@pytest.fixture(scope="module")
def own_tool(
    cluster: Cluster, stores: Path, authorization_server: AuthorizationServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Scene, ConfigCommand]]:
    """Kafka's own tool, one process for all its runs, and a scene whose tokens it may fetch."""
    scene = Scene(cluster, stores, authorization_server, tmp_path_factory.mktemp("tool"))
    token = scene.folder / "token"
    allowed = "-Dorg.apache.kafka.sasl.oauthbearer.allowed"
    flags = (f"{allowed}.urls={authorization_server.url},{token.as_uri()}", f"{allowed}.files={token}")
    with ConfigCommand(VERSION, flags) as tool:
        yield scene, tool


WORKS: dict[str, tuple[str, Callable[[Scene], str]]] = {
    "PLAIN": ("SASL_PLAINTEXT", lambda scene: scene.plain()),
    "SCRAM-SHA-256": ("SASL_PLAINTEXT", lambda scene: scene.scram("SCRAM-SHA-256", "c-256")),
    "SCRAM-SHA-512": ("SASL_PLAINTEXT", lambda scene: scene.scram("SCRAM-SHA-512", "c-512")),
    "PLAIN over TLS": ("SASL_TLS", lambda scene: scene.plain(protocol="SASL_SSL") + scene.trust("ca.jks")),
    "PEM": (
        "MTLS",
        lambda scene: scene.mtls(scene.trust("ca.pem"), scene.key("client.store.pem", key_password=KEY_PASSWORD)),
    ),
    "PKCS12": ("MTLS", lambda scene: scene.mtls(scene.trust("ca.p12"), scene.key("client.p12"))),
    "JKS": (
        "MTLS",
        lambda scene: scene.mtls(scene.trust("ca.jks"), scene.key("client.jks", key_password=JKS_KEY_PASSWORD)),
    ),
    "PEM text": ("MTLS", lambda scene: scene.mtls(scene.pem_text())),
    "token endpoint": ("OIDC", lambda scene: scene.secret(CLIENT_SECRET)),
    "token file": ("OIDC", lambda scene: scene.token(scene.authorization_server.token())),
}


@pytest.mark.parametrize("kind", WORKS)
def test_it_works(scene: Scene, kafka: KafkaBackend, tmp_path: Path, kind: str) -> None:
    """A value that is altered is shown, as by any other client."""
    listener, properties = WORKS[kind]
    (tmp_path / "client.properties").write_text(properties(scene))
    where = ("--bootstrap-server", scene.cluster.broker.addresses[listener], "--command-config", "client.properties")
    change = ("--user", "u" + kind, "--add-config", "producer_byte_rate=2048")
    altered = kquota("alter", *where, *change, cwd=tmp_path)
    assert altered.code == 0, altered.err
    assert all(line.startswith(("cluster: ", "'kquota undo ")) for line in altered.err.splitlines()), altered.err
    assert until(lambda: [str(entity) for entity in kafka.describe()]) == [f"user=u{kind}"]
    described = kquota("describe", *where, "-o", "csv", cwd=tmp_path)
    assert described.code == 0
    assert "2048" in described.out


@pytest.mark.parametrize("kind", ["JKS", "PKCS12", "PEM text", "token endpoint", "token file"])
def test_kafkas_own_tool_reads_the_same_file(own_tool: tuple[Scene, ConfigCommand], tmp_path: Path, kind: str) -> None:
    """The files of these tests are those of Java's tools."""
    scene, tool = own_tool
    listener, properties = WORKS[kind]
    file = tmp_path / "client.properties"
    file.write_text(properties(scene))
    where = ("--bootstrap-server", scene.cluster.broker.addresses[listener], "--command-config", str(file))
    described = tool.run([*where, "--describe", "--entity-type", "users"])
    assert described.exit == 0, described.stderr


FAILS: dict[str, tuple[str, Callable[[Scene], str]]] = {
    "wrong password of PLAIN": ("SASL_PLAINTEXT", lambda scene: scene.plain(password=WRONG)),
    "wrong password of SCRAM": ("SASL_PLAINTEXT", lambda scene: scene.scram("SCRAM-SHA-512", WRONG)),
    "wrong secret of a client": ("OIDC", lambda scene: scene.secret(WRONG)),
    "expired token": ("OIDC", lambda scene: scene.token(scene.authorization_server.token(age_s=7200))),
    "token that nobody signed": ("OIDC", lambda scene: scene.token(unsigned("service"))),
    "token without permission": ("OIDC", lambda scene: scene.token(scene.authorization_server.token("alice"))),
    "no permission": ("SASL_PLAINTEXT", lambda scene: scene.plain("alice")),
    "no client certificate": ("MTLS", lambda scene: scene.mtls(scene.trust())),
    "client certificate of a stranger": (
        "MTLS",
        lambda scene: scene.mtls(scene.trust(), scene.key("stranger.key.p12")),
    ),
    "broker of a stranger": ("TLS", lambda scene: scene.mtls(scene.trust("stranger.p12"))),
    "broker that the system does not trust": ("TLS", lambda scene: scene.mtls()),
    "TLS to a plain port": ("PLAINTEXT", lambda scene: scene.mtls(scene.trust())),
    "plain to a TLS port": ("TLS", lambda scene: ""),
    "SASL to a TLS port": ("SASL_TLS", lambda scene: scene.plain()),
    "plain to a SASL port": ("SASL_PLAINTEXT", lambda scene: ""),
    "wrong password of a store": ("MTLS", lambda scene: scene.mtls(scene.trust(), scene.key("client.p12", WRONG))),
    "wrong password of a key": (
        "MTLS",
        lambda scene: scene.mtls(scene.trust(), scene.key("client.jks", key_password=WRONG)),
    ),
    "wrong password of a key in PEM": (
        "MTLS",
        lambda scene: scene.mtls(scene.trust(), scene.key("client.store.pem", key_password=WRONG)),
    ),
    "store without a key": ("MTLS", lambda scene: scene.mtls(scene.key("ca.jks"))),
    "store that is missing": ("TLS", lambda scene: scene.mtls(scene.trust("no.jks"))),
    "password that nobody types": (
        "MTLS",
        lambda scene: scene.mtls(f"ssl.keystore.location={scene.stores / 'client.store.pem'}"),
    ),
}
SAID = {mistake: (int(code), says) for mistake, code, says in data_rows("refused/logins.txt")}


@pytest.mark.parametrize("mistake", [*FAILS, *(SAID.keys() - FAILS.keys())])
def test_it_fails(scene: Scene, tmp_path: Path, mistake: str, capfd: pytest.CaptureFixture[str]) -> None:
    (listener, properties), (code, says) = FAILS[mistake], SAID[mistake]
    file = tmp_path / "client.properties"
    file.write_text(properties(scene))
    address = scene.cluster.broker.addresses[listener]
    if mistake == "password that nobody types":
        ran = kquota("describe", "--bootstrap-server", address, "--command-config", str(file), cwd=tmp_path)
        assert (ran.code, len(ran.err.splitlines())) == (code, 1)
        assert says in ran.err
        return
    failed(code, says, ["describe", "--bootstrap-server", address, "--command-config", str(file)], tmp_path, capfd)

    def describe() -> None:
        security = kafka_security(file)
        shows_nothing(repr(security))
        with KafkaBackend(address, security=security, timeout_s=TIMEOUT_S) as backend:
            backend.describe()

    with pytest.raises(KquotaError) as raised:
        describe()
    error: BaseException | None = raised.value
    while error is not None:
        shows_nothing(f"{error!r} {error}")
        error = error.__context__


@pytest.mark.parametrize(
    ("package", "extra", "lines"),
    [
        ("gssapi", "gssapi", "sasl.mechanism=GSSAPI\nsasl.kerberos.service.name=kafka\n"),
        (
            "aws_msk_iam_sasl_signer",
            "msk",
            "sasl.mechanism=AWS_MSK_IAM\nsasl.jaas.config=software.amazon.msk.auth.iam.IAMLoginModule required;\n",
        ),
    ],
)
def test_an_extra_that_is_missing(cluster: Cluster, tmp_path: Path, package: str, extra: str, lines: str) -> None:
    """Exit code 8, and what to install."""
    (tmp_path / f"{package}.py").write_text("raise ImportError('as if it were not installed')")
    (tmp_path / "client.properties").write_text(f"security.protocol=SASL_PLAINTEXT\n{lines}")
    where = ("--bootstrap-server", cluster.sasl, "--command-config", "client.properties")
    ran = kquota("describe", *where, cwd=tmp_path, PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    assert (ran.code, len(ran.err.splitlines())) == (8, 1), ran.err
    assert f"[{extra}]')" in ran.err


def test_a_password_is_asked_for_on_the_terminal(cluster: Cluster, tmp_path: Path) -> None:
    """Without echo; the question follows the name of the cluster."""
    (tmp_path / "client.properties").write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f"sasl.jaas.config={PLAIN_MODULE} required username=admin;\n"
    )
    arguments = ("describe", "--bootstrap-server", cluster.sasl, "--command-config", "client.properties", "-o", "csv")
    shown, code = on_a_terminal(arguments, password_of("admin"), tmp_path)
    assert code == 0, shown
    assert shown.startswith(f"cluster: kafka://{cluster.sasl}\nkquota: password of admin: ")
    shows_nothing(shown)
    assert on_a_terminal(arguments, WRONG, tmp_path)[1] == 5


def as_user(user: str) -> KafkaSecurity:
    return KafkaSecurity(sasl=Plain(user, password_of(user)))


def trusting(certificates: Certificates, *, verify_host: bool = True) -> Tls:
    return tls_from_files(truststore=certificates / "ca.pem", verify_host=verify_host)


def test_permissions(cluster: Cluster) -> None:
    """Without a permission nothing at all can be done; a describe needs another one than an alter."""
    with KafkaBackend(cluster.sasl, security=as_user("alice")) as backend:
        for action in (backend.describe, lambda: backend.alter([rate(Entity(user="u"))])):
            with pytest.raises(Unauthorized, match="CLUSTER_AUTHORIZATION_FAILED: Cluster authorization failed"):
                action()
    with KafkaBackend(cluster.sasl, security=as_user("bob")) as backend:
        assert len(backend.describe()) == 0
        with pytest.raises(Unauthorized, match="CLUSTER_AUTHORIZATION_FAILED: Cluster authorization failed"):
            backend.alter([rate(Entity(user="u")), rate(Entity(user="u", client_id="c"))])


def test_tls_compares_the_host_name(cluster: Cluster, certificates: Certificates) -> None:
    by_name = cluster.tls.replace("127.0.0.1", "localhost")  # the certificate is for the address
    with (
        KafkaBackend(by_name, security=KafkaSecurity(trusting(certificates))) as backend,
        pytest.raises(Unreachable, match=r"localhost.*[Hh]ostname mismatch"),
    ):
        backend.describe()
    with KafkaBackend(by_name, security=KafkaSecurity(trusting(certificates, verify_host=False))) as backend:
        assert len(backend.describe()) == 0
