"""kquota as admins run it against secured servers: what works, and how each mistake ends.

Every run is also a search: none of the secrets is in what it prints.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from kquota.backends.clientprops import kafka_security
from kquota.backends.kafka import KafkaBackend
from kquota.cli import main
from kquota.errors import KquotaError
from tests.backends.conftest import (
    BEARER,
    KEY_PASSWORD,
    PLAIN_MODULE,
    SCRAM_MODULE,
    Certificates,
    Cluster,
    SecuredZooKeeper,
)
from tests.brokers.kafka import password_of
from tests.certificates import keytool
from tests.oauth import CLIENT_ID, CLIENT_SECRET, AuthorizationServer

ROOT = Path(__file__).parents[2]
STORE_PASSWORD = "st0re-marker"
WRONG = "wr0ng-marker"
JKS_KEY_PASSWORD = "jks-k3y"
SECRETS = (
    *(STORE_PASSWORD, WRONG, KEY_PASSWORD, JKS_KEY_PASSWORD, CLIENT_SECRET, "c-256", "c-512", "-----BEGIN", "eyJ"),
    *(password_of(user) for user in ("admin", "alice", "bob")),
    *("secret\n", "=secret", "'secret'", '"secret"', "ops-secret"),
)
TIMEOUT_S = 5


@dataclass(frozen=True)
class Ran:
    """What a command line came to."""

    code: int
    out: str
    err: str


def kquota(*arguments: str, cwd: Path, **environment: str) -> Ran:
    """Runs kquota without a terminal, and without the developer's own settings."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("KQUOTA_", "KAFKA_"))}
    done = subprocess.run(
        [sys.executable, "-m", "kquota", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=clean | {"PYTHONPATH": str(ROOT)} | environment,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        timeout=60,
        check=False,
    )
    shows_nothing(done.stdout + done.stderr)
    return Ran(done.returncode, done.stdout, done.stderr)


def shows_nothing(text: str) -> None:
    """Fails when there is a secret in the text."""
    assert [secret for secret in SECRETS if secret in text] == []


def shows_nothing_when_debugged(
    arguments: Sequence[str], capfd: pytest.CaptureFixture[str], environment: Mapping[str, str] | None = None
) -> None:
    """Runs it once more in this process, with `--debug`."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (environment or {}).items():
            patch.setenv(name, value)
        assert main.run(["--debug", *arguments]) != 0
    printed = capfd.readouterr()
    assert "Traceback" in printed.err
    shows_nothing(printed.out + printed.err)


def failed(
    code: int,
    says: str,
    arguments: Sequence[str],
    cwd: Path,
    capfd: pytest.CaptureFixture[str],
    environment: Mapping[str, str] | None = None,
) -> None:
    """Expects one line and that exit code within the time-out, start-up aside."""
    started = time.monotonic()
    ran = kquota(*arguments, "--timeout", str(TIMEOUT_S), cwd=cwd, **(environment or {}))
    took = time.monotonic() - started
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (code, "", 1), ran.err
    assert says in ran.err
    assert took < TIMEOUT_S + 5
    shows_nothing_when_debugged([*arguments, "--timeout", str(TIMEOUT_S)], capfd, environment)


# --- Brokers ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
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
    passwords = (
        "-srcstorepass",
        STORE_PASSWORD,
        "-deststorepass",
        STORE_PASSWORD,
        "-destkeypass",
        JKS_KEY_PASSWORD,
    )
    stores = ("-srckeystore", "client.p12", "-destkeystore", "client.jks", "-deststoretype", "JKS", "-srcalias", "me")
    keytool("-importkeystore", *stores, *passwords, cwd=folder)
    return folder


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

    def key(self, name: str, password: str = STORE_PASSWORD) -> str:
        return f"ssl.keystore.location={self.stores / name}\nssl.keystore.password={password}\n"

    def mtls(self, *lines: str) -> str:
        return "security.protocol=SSL\n" + "".join(lines)

    def bearer(self, options: str = "", url: str = "", protocol: str = "SASL_SSL") -> str:
        handler = f"sasl.login.callback.handler.class={BEARER}LoginCallbackHandler"
        endpoint = f"{handler}\nsasl.oauthbearer.token.endpoint.url={url}\n" if url else ""
        return (
            f"security.protocol={protocol}\nsasl.mechanism=OAUTHBEARER\n{endpoint}"
            f"sasl.jaas.config={BEARER}LoginModule required {options};\n"
        )

    def token(self, token: str) -> str:
        """A file with that token, as an URL."""
        path = self.folder / "token"
        path.write_text(token)
        return path.as_uri()

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


WORKS: dict[str, tuple[str, Callable[[Scene], str]]] = {
    "PLAIN": ("SASL_PLAINTEXT", lambda scene: scene.plain()),
    "SCRAM-SHA-256": ("SASL_PLAINTEXT", lambda scene: scene.scram("SCRAM-SHA-256", "c-256")),
    "SCRAM-SHA-512": ("SASL_PLAINTEXT", lambda scene: scene.scram("SCRAM-SHA-512", "c-512")),
    "PLAIN over TLS": ("SASL_TLS", lambda scene: scene.plain(protocol="SASL_SSL") + scene.trust("ca.jks")),
    "PEM": (
        "MTLS",
        lambda scene: scene.mtls(
            scene.trust("ca.pem"), scene.key("client.store.pem"), f"ssl.key.password={KEY_PASSWORD}"
        ),
    ),
    "PKCS12": ("MTLS", lambda scene: scene.mtls(scene.trust("ca.p12"), scene.key("client.p12"))),
    "JKS": (
        "MTLS",
        lambda scene: scene.mtls(
            scene.trust("ca.jks"), scene.key("client.jks"), f"ssl.key.password={JKS_KEY_PASSWORD}"
        ),
    ),
    "PEM text": ("MTLS", lambda scene: scene.mtls(scene.pem_text())),
    "unsecured token": (
        "UNSECURED",
        lambda scene: scene.bearer('unsecuredLoginStringClaim_sub="service"', protocol="SASL_PLAINTEXT"),
    ),
    "token endpoint": (
        "OIDC",
        lambda scene: (
            scene.bearer(f'clientId="{CLIENT_ID}" clientSecret="{CLIENT_SECRET}"', scene.authorization_server.url)
            + scene.trust()
        ),
    ),
    "token file": (
        "OIDC",
        lambda scene: scene.bearer("", scene.token(scene.authorization_server.token())) + scene.trust(),
    ),
}


@pytest.mark.parametrize("kind", WORKS)
def test_it_works(scene: Scene, kafka: KafkaBackend, tmp_path: Path, kind: str) -> None:
    """A value that is altered is shown, as by any other client."""
    listener, properties = WORKS[kind]
    (tmp_path / "client.properties").write_text(properties(scene))
    where = ("--bootstrap-server", scene.cluster.broker.addresses[listener], "--command-config", "client.properties")
    change = ("--user", "u" + kind, "--add-config", "producer_byte_rate=2048")
    altered = kquota("alter", *where, *change, cwd=tmp_path)
    assert (altered.code, altered.err) == (0, "")
    deadline = time.monotonic() + 10
    while not (seen := [str(entity) for entity in kafka.describe()]) and time.monotonic() < deadline:
        pass
    assert seen == [f"user=u{kind}"]
    described = kquota("describe", *where, "-o", "csv", cwd=tmp_path)
    assert described.code == 0
    assert "2048" in described.out


@pytest.mark.parametrize("kind", ["JKS", "PKCS12", "PEM text", "token endpoint", "token file", "unsecured token"])
def test_kafkas_own_tool_reads_the_same_file(scene: Scene, tmp_path: Path, kind: str) -> None:
    """The files of these tests are those of Java's tools."""
    listener, properties = WORKS[kind]
    file = tmp_path / "client.properties"
    file.write_text(properties(scene))
    urls = f"{scene.authorization_server.url},{(scene.folder / 'token').as_uri()}"
    described = scene.cluster.broker.kafka_configs(
        *("--command-config", str(file), "--describe", "--entity-type", "users"),
        bootstrap=scene.cluster.broker.addresses[listener],
        jvm_flags=(
            f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={urls}",
            f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.files={scene.folder / 'token'}",
        ),
    )
    assert described.returncode == 0, described.stderr


FAILS: dict[str, tuple[str, Callable[[Scene], str], int, str]] = {
    "wrong password of PLAIN": (
        "SASL_PLAINTEXT",
        lambda scene: scene.plain(password=WRONG),
        5,
        "Authentication failed: Invalid username or password",
    ),
    "wrong password of SCRAM": (
        "SASL_PLAINTEXT",
        lambda scene: scene.scram("SCRAM-SHA-512", WRONG),
        5,
        "invalid credentials with SASL mechanism SCRAM-SHA-512",
    ),
    "wrong secret of a client": (
        "OIDC",
        lambda scene: (
            scene.bearer(f'clientId="{CLIENT_ID}" clientSecret="{WRONG}"', scene.authorization_server.url)
            + scene.trust()
        ),
        5,
        "answers 401: invalid_client",
    ),
    "expired token": (
        "OIDC",
        lambda scene: scene.bearer("", scene.token(scene.authorization_server.token(age_s=7200))) + scene.trust(),
        5,
        "invalid_token",
    ),
    "token that nobody signed": (
        "OIDC",
        lambda scene: scene.bearer('unsecuredLoginStringClaim_sub="service"') + scene.trust(),
        5,
        "invalid_token",
    ),
    "token without permission": (
        "UNSECURED",
        lambda scene: scene.bearer('unsecuredLoginStringClaim_sub="alice"', protocol="SASL_PLAINTEXT"),
        5,
        "CLUSTER_AUTHORIZATION_FAILED",
    ),
    "no permission": ("SASL_PLAINTEXT", lambda scene: scene.plain("alice"), 5, "CLUSTER_AUTHORIZATION_FAILED"),
    "no client certificate": ("MTLS", lambda scene: scene.mtls(scene.trust()), 5, "wants a client certificate"),
    "client certificate of a stranger": (
        "MTLS",
        lambda scene: scene.mtls(scene.trust(), scene.key("stranger.key.p12")),
        5,
        "refuses the client certificate",
    ),
    "broker of a stranger": (
        "TLS",
        lambda scene: scene.mtls(scene.trust("stranger.p12")),
        4,
        "certificate verify failed",
    ),
    "broker that the system does not trust": ("TLS", lambda scene: scene.mtls(), 4, "certificate verify failed"),
    "TLS to a plain port": ("PLAINTEXT", lambda scene: scene.mtls(scene.trust()), 4, "is that a TLS port"),
    "plain to a TLS port": ("TLS", lambda scene: "", 4, "it speaks TLS"),
    "SASL to a TLS port": ("SASL_TLS", lambda scene: scene.plain(), 4, "it speaks TLS"),
    "plain to a SASL port": ("SASL_PLAINTEXT", lambda scene: "", 4, "see security.protocol"),
    "wrong password of a store": (
        "MTLS",
        lambda scene: scene.mtls(scene.trust(), scene.key("client.p12", WRONG)),
        3,
        "client.p12: its password is wrong, or it is damaged",
    ),
    "wrong password of a key": (
        "MTLS",
        lambda scene: scene.mtls(scene.trust(), scene.key("client.jks"), f"ssl.key.password={WRONG}"),
        3,
        "client.jks: the password of its private key is wrong",
    ),
    "wrong password of a key in PEM": (
        "MTLS",
        lambda scene: scene.mtls(scene.trust(), scene.key("client.store.pem"), f"ssl.key.password={WRONG}"),
        3,
        "client.store.pem cannot be used",
    ),
    "store without a key": ("MTLS", lambda scene: scene.mtls(scene.key("ca.jks")), 3, "there is no private key in it"),
    "store that is missing": ("TLS", lambda scene: scene.mtls(scene.trust("no.jks")), 3, "no.jks: no such file"),
    "password that nobody types": (
        "MTLS",
        lambda scene: scene.mtls(f"ssl.keystore.location={scene.stores / 'client.store.pem'}"),
        3,
        "client.store.pem is missing, and there is no terminal to ask for it",
    ),
}


@pytest.mark.parametrize("mistake", FAILS)
def test_it_fails(scene: Scene, tmp_path: Path, mistake: str, capfd: pytest.CaptureFixture[str]) -> None:
    """One line, the right exit code, in time."""
    listener, properties, code, says = FAILS[mistake]
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
    assert f"pip install 'kquota[{extra}]'" in ran.err


def test_a_password_is_asked_for_on_the_terminal(cluster: Cluster, tmp_path: Path) -> None:
    """Without echo; what is printed is the question."""
    (tmp_path / "client.properties").write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f"sasl.jaas.config={PLAIN_MODULE} required username=admin;\n"
    )
    arguments = ("describe", "--bootstrap-server", cluster.sasl, "--command-config", "client.properties", "-o", "csv")
    shown, code = on_a_terminal(arguments, password_of("admin"), tmp_path)
    assert code == 0, shown
    assert shown.startswith("kquota: password of admin: ")
    shows_nothing(shown)
    assert on_a_terminal(arguments, WRONG, tmp_path)[1] == 5


def on_a_terminal(arguments: Sequence[str], typed: str, cwd: Path, **environment: str) -> tuple[str, int]:
    """What a terminal of its own shows when that is typed after the question, and the exit code."""
    ours, theirs = os.openpty()
    code = (
        "import fcntl, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
        " from kquota.cli.main import run; sys.exit(run(sys.argv[1:]))"
    )
    shown = b""
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        with contextlib.suppress(OSError):  # the other end is closed
            while part := os.read(ours, 4096):
                if not shown.endswith(b": ") and (shown + part).endswith(b": "):
                    os.write(ours, typed.encode() + b"\n")
                shown += part
        os.close(ours)
    return shown.decode().replace("\r\n", "\n"), process.returncode


# --- ZooKeeper -------------------------------------------------------------------------------------------------------

DIGEST = "org.apache.zookeeper.server.auth.DigestLoginModule"


@pytest.fixture
def zookeeper_files(stores: Path, tmp_path: Path) -> Path:
    """What admins have: a JAAS file, the TLS properties with stores of each kind, a file with the password."""
    (tmp_path / "jaas.conf").write_text(f'Client {{ {DIGEST} required username="kafka" password="secret"; }};\n')
    (tmp_path / "wrong.conf").write_text(f'Client {{ {DIGEST} required username="kafka" password="{WRONG}"; }};\n')
    (tmp_path / "brokers.conf").write_text(f"KafkaClient {{ {PLAIN_MODULE} required username=a password=b; }};\n")
    (tmp_path / "password").write_text("secret\n")
    for name, trust, key in (
        ("jks", "ca.jks", "client.p12"),
        ("p12", "ca.p12", "client.p12"),
        ("stranger", "ca.p12", "stranger.key.p12"),
        ("untrusting", "stranger.p12", "client.p12"),
        ("anonymous", "ca.p12", None),
    ):
        lines = [
            "zookeeper.ssl.client.enable=true",
            "zookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty",
        ]
        for store, file in (("truststore", trust), ("keystore", key)):
            if file is not None:
                lines += [
                    f"zookeeper.ssl.{store}.location={stores / file}",
                    f"zookeeper.ssl.{store}.password={STORE_PASSWORD}",
                ]
        (tmp_path / f"{name}.properties").write_text("".join(f"{line}\n" for line in lines))
    return tmp_path


@pytest.mark.parametrize(
    ("port", "arguments", "environment"),
    [
        ("plain", (), {"KQUOTA_ZOOKEEPER_USERNAME": "kafka", "KQUOTA_ZOOKEEPER_PASSWORD": "secret"}),
        ("plain", (), {"KQUOTA_ZOOKEEPER_USERNAME": "kafka", "KQUOTA_ZOOKEEPER_PASSWORD_FILE": "password"}),
        ("plain", ("--zk-jaas-file", "jaas.conf"), {}),
        ("plain", (), {"KQUOTA_ZOOKEEPER_JAAS_FILE": "jaas.conf"}),
        ("tls", ("--zk-tls-config-file", "jks.properties", "--zk-jaas-file", "jaas.conf"), {}),
        ("tls", ("--zk-tls-config-file", "p12.properties"), {}),
        (
            "plain",
            (),
            {
                "KQUOTA_ZOOKEEPER_USERNAME": "ops",
                "KQUOTA_ZOOKEEPER_PASSWORD": "ops-secret",
                "KQUOTA_ZOOKEEPER_SCHEME": "digest",
            },
        ),
    ],
    ids=["password", "password-file", "JAAS", "JAAS-by-environment", "JAAS-over-TLS", "mTLS", "digest"],
)
def test_zookeeper_works(
    secured_zookeeper: SecuredZooKeeper,
    zookeeper_files: Path,
    port: str,
    arguments: tuple[str, ...],
    environment: dict[str, str],
    request: pytest.FixtureRequest,
) -> None:
    """Each in a chroot of its own."""
    from tests.backends.test_security_zookeeper import in_chroot

    chroot = in_chroot(secured_zookeeper, f"/{request.node.name}")
    where = ("--zookeeper", getattr(secured_zookeeper, port) + chroot, *arguments)
    config = ("--add-config", "producer_byte_rate=2048")
    altered = kquota("alter", *where, "--user", "u", *config, cwd=zookeeper_files, **environment)
    assert (altered.code, altered.err) == (0, "")
    described = kquota("describe", *where, "-o", "csv", cwd=zookeeper_files, **environment)
    assert described.code == 0
    assert "2048" in described.out
    if not environment.get("KQUOTA_ZOOKEEPER_SCHEME"):
        stranger = kquota("describe", "--zookeeper", secured_zookeeper.plain + chroot, cwd=zookeeper_files)
        assert stranger.code == 5
        assert "ACL" in stranger.err


def test_a_named_context_gets_no_credentials_of_the_environment(
    secured_zookeeper: SecuredZooKeeper, zookeeper_files: Path
) -> None:
    """They are another cluster's. What comes by another way than its name goes with the rest of the environment."""
    from tests.backends.test_security_zookeeper import in_chroot

    address = secured_zookeeper.plain + in_chroot(secured_zookeeper, "/contexts")
    (zookeeper_files / "config.yaml").write_text(
        f"contexts:\n  bare: {{zookeeper: '{address}'}}\n  whole: {{zookeeper: '{address}', zk-jaas-file: jaas.conf}}\n"
    )
    config = {"KQUOTA_CONFIG": "config.yaml"}
    login = {"KQUOTA_ZOOKEEPER_USERNAME": "kafka", "KQUOTA_ZOOKEEPER_PASSWORD": "secret"}
    wrong = login | {"KQUOTA_ZOOKEEPER_PASSWORD": WRONG}

    def ended(*arguments: str, **environment: str) -> int:
        ran = kquota(*arguments, cwd=zookeeper_files, **config, **environment)
        assert ran.code == 0 or "ACL" in ran.err, ran.err
        return ran.code

    assert ended("alter", "--user", "u", "--add-config", "producer_byte_rate=1", "--context", "whole", **wrong) == 0
    assert ended("describe", "--context", "whole", **wrong) == 0
    assert ended("describe", "--context", "bare", **login) == 5
    assert ended("diff", "context:bare", "context:bare", **login) == 5
    assert ended("diff", "context:whole", "context:whole", **wrong) == 0
    assert ended("describe", KQUOTA_CONTEXT="bare", **login) == 0
    assert ended("describe", "--zookeeper", address, **login) == 0


def test_the_password_of_zookeeper_is_asked_for(secured_zookeeper: SecuredZooKeeper, tmp_path: Path) -> None:
    """By a username alone."""
    from tests.backends.test_security_zookeeper import in_chroot

    arguments = ("describe", "--zookeeper", secured_zookeeper.plain + in_chroot(secured_zookeeper, "/asked"))
    for password, code in (("secret", 0), (WRONG, 5)):
        shown, ended = on_a_terminal(arguments, password, tmp_path, KQUOTA_ZOOKEEPER_USERNAME="kafka")
        assert ended == code, shown
        assert shown.startswith("kquota: password of kafka for ZooKeeper: ")
        shows_nothing(shown)


def test_the_drop_in_takes_kafkas_own_options(secured_zookeeper: SecuredZooKeeper, zookeeper_files: Path) -> None:
    """KAFKA_OPTS as Kafka's scripts hand it to the JVM."""
    from tests.backends.test_security_zookeeper import in_chroot

    chroot = in_chroot(secured_zookeeper, "/drop-in")
    where = ("kafka-configs", "--zookeeper", secured_zookeeper.plain + chroot, "--entity-type", "users")
    options = {"KAFKA_OPTS": "-Xmx1g -Djava.security.auth.login.config=jaas.conf"}
    alter = ("--alter", "--entity-name", "u", "--add-config", "producer_byte_rate=2048")
    altered = kquota(*where, *alter, cwd=zookeeper_files, **options)
    assert (altered.code, altered.err) == (0, "")
    assert "producer_byte_rate=2048" in kquota(*where, "--describe", cwd=zookeeper_files, **options).out
    others = {"KAFKA_OPTS": "-Djava.security.auth.login.config=brokers.conf"}  # nothing about ZooKeeper: anonymous
    assert "NoAuth" in kquota(*where, "--describe", cwd=zookeeper_files, **others).err


@pytest.mark.parametrize(
    ("port", "arguments", "environment", "code", "says"),
    [
        ("plain", ("--zk-jaas-file", "wrong.conf"), {}, 5, "refused the authentication"),
        ("tls", ("--zk-tls-config-file", "untrusting.properties"), {}, 4, "certificate verify failed"),
        ("tls", ("--zk-tls-config-file", "stranger.properties"), {}, 5, "refuses the certificate"),
        ("tls", ("--zk-tls-config-file", "anonymous.properties"), {}, 5, "wants a client certificate"),
        ("plain", ("--zk-tls-config-file", "p12.properties"), {}, 4, "is that the TLS port"),
        ("tls", (), {}, 4, "neither a TLS port"),
        ("plain", (), {"KQUOTA_ZOOKEEPER_USERNAME": "kafka"}, 3, "the password of kafka for ZooKeeper is missing"),
        (
            "plain",
            (),
            {"KQUOTA_ZOOKEEPER_USERNAME": "kafka", "KQUOTA_ZOOKEEPER_PASSWORD_FILE": "missing"},
            3,
            "missing: no such file",
        ),
        ("plain", ("--zk-jaas-file", "brokers.conf"), {}, 3, "there is no context Client in it"),
        (
            "plain",
            (),
            {"KQUOTA_ZOOKEEPER_USERNAME": "u", "KQUOTA_ZOOKEEPER_PASSWORD": WRONG, "KQUOTA_ZOOKEEPER_SCHEME": "ip"},
            3,
            "unknown ZooKeeper scheme ip",
        ),
    ],
    ids=[
        *("wrong password", "untrusted server", "stranger", "no certificate", "TLS to plain", "plain to TLS"),
        *("no password", "no password file", "no Client", "scheme"),
    ],
)
def test_zookeeper_fails(
    secured_zookeeper: SecuredZooKeeper,
    zookeeper_files: Path,
    port: str,
    arguments: tuple[str, ...],
    environment: dict[str, str],
    code: int,
    says: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One line, the right exit code, in time."""
    monkeypatch.chdir(zookeeper_files)
    command = ["describe", "--zookeeper", getattr(secured_zookeeper, port), *arguments]
    if "is missing" in says:
        # In this process there may be a terminal.
        ran = kquota(*command, cwd=zookeeper_files, **environment)
        assert (ran.code, len(ran.err.splitlines())) == (code, 1)
        assert says in ran.err
    else:
        failed(code, says, command, zookeeper_files, capfd, environment)
