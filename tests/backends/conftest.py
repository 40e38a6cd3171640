"""One real broker for all tests of this package: every kind of listener, and an authorizer."""

import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from kquota.backends.kafka import KafkaBackend
from kquota.core.quotas.alteration import Alteration
from tests.brokers.kafka import KafkaBroker, Listener, password_of
from tests.support.certificates import Certificate, authority, keytool
from tests.support.oauth import AuthorizationServer
from tests.support.processes import free_ports
from tests.support.sandbox import Sandbox, kazoo
from tests.support.waiting import until

SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearer"
KEY_PASSWORD = "k3y"
STORE_PASSWORD = "st0re-marker"
JKS_KEY_PASSWORD = "jks-k3y"


@dataclass(frozen=True)
class Certificates:
    """An authority, a server on the loopback address and a client that it signed, and a stranger, in a folder.

    There are `ca.pem`, and for the others `NAME.pem`, `NAME.key` (that of the client is encrypted) and both in
    `NAME.store.pem`.
    """

    folder: Path
    ca: Certificate
    server: Certificate
    client: Certificate
    stranger: Certificate

    def __truediv__(self, name: str) -> Path:
        return self.folder / name


@pytest.fixture(scope="package")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Made for this run."""
    folder = tmp_path_factory.mktemp("tls")
    ca, stranger = authority("ca"), authority("stranger")
    made = Certificates(folder, ca, ca.sign("server", hosts=["127.0.0.1"]), ca.sign("client"), stranger)
    (folder / "ca.pem").write_text(ca.pem)
    for name in ("server", "client", "stranger"):
        certificate: Certificate = getattr(made, name)
        key = certificate.key_pem(KEY_PASSWORD if name == "client" else None)
        (folder / f"{name}.pem").write_text(certificate.pem)
        (folder / f"{name}.key").write_text(key)
        (folder / f"{name}.store.pem").write_text(key + certificate.pem)
    return made


@pytest.fixture(scope="package")
def stores(certificates: Certificates) -> Path:
    """`ca.jks`, `ca.p12`, `stranger.p12`, `client.jks`, `client.p12` and `stranger.key.p12`, next to the PEM files."""
    folder = certificates.folder
    for name, file, kind in (
        ("ca.jks", "ca", "JKS"),
        ("ca.p12", "ca", "PKCS12"),
        ("stranger.p12", "stranger", "PKCS12"),
    ):
        what = ("-alias", "it", "-file", f"{file}.pem", "-keystore", name, "-storetype", kind)
        keytool("-importcert", *what, "-storepass", STORE_PASSWORD, cwd=folder)
    # Java 17 reads no key that is encrypted as OpenSSL does it now.
    (folder / "client.open.key").write_text(certificates.client.key_pem())
    (folder / "client.p12").write_bytes(certificates.client.pkcs12(STORE_PASSWORD))
    (folder / "stranger.key.p12").write_bytes(certificates.stranger.pkcs12(STORE_PASSWORD))
    passwords = ("-srcstorepass", STORE_PASSWORD, "-deststorepass", STORE_PASSWORD, "-destkeypass", JKS_KEY_PASSWORD)
    stores = ("-srckeystore", "client.p12", "-destkeystore", "client.jks", "-deststoretype", "JKS", "-srcalias", "me")
    keytool("-importkeystore", *stores, *passwords, cwd=folder)
    return folder


@pytest.fixture(scope="package")
def authorization_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuthorizationServer]:
    """Whose tokens the listener OIDC believes."""
    with AuthorizationServer(tmp_path_factory.mktemp("oauth")) as server:
        yield server


@dataclass(frozen=True)
class Cluster:
    """A real broker and its listeners (host:port)."""

    broker: KafkaBroker

    @property
    def plain(self) -> str:
        """PLAINTEXT; ANONYMOUS may do everything."""
        return self.broker.bootstrap

    @property
    def sasl(self) -> str:
        """SASL_PLAINTEXT: PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512."""
        return self.broker.sasl_bootstrap

    @property
    def tls(self) -> str:
        """SSL."""
        return self.broker.addresses["TLS"]

    @property
    def mtls(self) -> str:
        """SSL with client certificates."""
        return self.broker.addresses["MTLS"]

    @property
    def sasl_tls(self) -> str:
        """SASL_SSL: PLAIN."""
        return self.broker.addresses["SASL_TLS"]


@pytest.fixture(scope="package")
def cluster(certificates: Certificates, authorization_server: AuthorizationServer) -> Iterator[Cluster]:
    """Everybody may do nothing, but for the super users; carol has SCRAM credentials, bob may describe."""
    listeners = [
        Listener("TLS", "SSL"),
        Listener("MTLS", "SSL", {"ssl.client.auth": "required"}),
        Listener(
            "SASL_TLS",
            "SASL_SSL",
            {
                "sasl.enabled.mechanisms": "PLAIN",
                "plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_admin="{password_of("admin")}";',
            },
        ),
        Listener(
            "OIDC",
            "SASL_SSL",
            {
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "oauthbearer.sasl.jaas.config": f"{BEARER}LoginModule required;",
                "oauthbearer.sasl.server.callback.handler.class": f"{BEARER}ValidatorCallbackHandler",
                "oauthbearer.sasl.oauthbearer.jwks.endpoint.url": authorization_server.jwks.as_uri(),
                # Kafka 4.4 asks for an audience and an issuer, or for these.
                "oauthbearer.sasl.oauthbearer.allow.unverified.audience": "true",
                "oauthbearer.sasl.oauthbearer.allow.unverified.issuer": "true",
            },
        ),
    ]
    scram = {
        f"listener.name.sasl_plaintext.scram-sha-{bits}.sasl.jaas.config": f"{SCRAM_MODULE} required;"
        for bits in (256, 512)
    }
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates / "server.store.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates / "ca.pem"),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        **scram,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:admin;User:carol;User:CN=client;User:service",
    }
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={authorization_server.jwks.as_uri()}"
    with KafkaBroker(settings=settings, listeners=listeners, jvm_flags=[allowed]) as broker:
        admin = AdminClient(broker.client())
        for mechanism, password in ((ScramMechanism.SCRAM_SHA_256, b"c-256"), (ScramMechanism.SCRAM_SHA_512, b"c-512")):
            added = UserScramCredentialUpsertion("carol", ScramCredentialInfo(mechanism, 4096), password)
            admin.alter_user_scram_credentials([added])["carol"].result(60)
        for acl in admin.create_acls([_may("bob", AclOperation.DESCRIBE_CONFIGS)]).values():
            acl.result(60)
        yield Cluster(broker)


def _may(user: str, operation: AclOperation) -> AclBinding:
    pattern = (ResourceType.BROKER, "kafka-cluster", ResourcePatternType.LITERAL)
    return AclBinding(*pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW)


@dataclass(frozen=True)
class SecuredZooKeeper:
    """A real ZooKeeper and its ports (host:port); on both the users are kafka (secret) and other (else)."""

    sandbox: Sandbox
    tls: str
    """For clients with a certificate that the authority signed."""

    @property
    def plain(self) -> str:
        """Without encryption."""
        return self.sandbox.connect

    def in_chroot(self, path: str) -> str:
        """Makes an open node of that name, and returns it."""
        with kazoo(self.plain) as client:
            client.ensure_path(path)
        return path


@pytest.fixture(scope="package")
def secured_zookeeper(
    certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecuredZooKeeper]:
    """SASL, TLS with client certificates, and ZooKeeper's own digest scheme."""
    jaas = tmp_path_factory.mktemp("sasl") / "jaas.conf"
    module_class = "org.apache.zookeeper.server.auth.DigestLoginModule"
    jaas.write_text(f'Server {{ {module_class} required user_kafka="secret" user_other="else"; }};')
    (port,) = free_ports(1)
    config = {
        "secureClientPort": str(port),
        "secureClientPortAddress": "127.0.0.1",
        # The plain port must be Netty's as well.
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": str(certificates / "server.store.pem"),
        "ssl.keyStore.type": "PEM",
        "ssl.trustStore.location": str(certificates / "ca.pem"),
        "ssl.trustStore.type": "PEM",
        "authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        "authProvider.2": "org.apache.zookeeper.server.auth.X509AuthenticationProvider",
    }
    flags = [f"-Djava.security.auth.login.config={jaas}"]
    # SASL and TLS need more than the plain server: ZooKeeper's own TLS classes refer to Netty's.
    with Sandbox(extra_config=config, jvm_flags=flags, extra_jars=[r"netty-(?!all).*\.jar"]) as sandbox:
        until(lambda: _takes_connections(port))  # ZooKeeper opens it after the plain one, which the sandbox waits for
        yield SecuredZooKeeper(sandbox, f"127.0.0.1:{port}")


def _takes_connections(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=10):
        return True
    return False


@pytest.fixture
def kafka(cluster: Cluster) -> Iterator[KafkaBackend]:
    """A backend that finds no quotas, and leaves none."""
    with KafkaBackend(cluster.plain) as backend:
        yield backend
        # Only a backend that wrote knows what there is to wait for.
        snapshot = backend.describe()
        results = backend.alter([Alteration(entity, remove=frozenset(values)) for entity, values in snapshot.items()])
        assert backend.wait_visible(results) == ()
