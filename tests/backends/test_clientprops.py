"""Kafka's own property files become the security settings of connections."""

from pathlib import Path

import pytest

from kquota import InputError, KafkaSecurity, Plain, Scram, Tls, ZooKeeperSecurity
from kquota.backends.clientprops import kafka_security, left_as_is, zookeeper_security
from tests.support.certificates import authority, tls_from_files


def login(username: str, password: str) -> dict[str, str]:
    """The environment that logs in."""
    return {"KQUOTA_ZOOKEEPER_USERNAME": username, "KQUOTA_ZOOKEEPER_PASSWORD": password}


@pytest.fixture
def pem(tmp_path: Path) -> Path:
    """A file with a certificate and its private key, which is encrypted."""
    path = tmp_path / "store.pem"
    alice = authority("alice")
    path.write_text(alice.key_pem("k3y") + alice.pem)
    return path


def test_zookeeper_tls(tmp_path: Path, pem: Path) -> None:
    """Only the zookeeper.* names count."""
    file = tmp_path / "tls.properties"
    file.write_text(
        "# Kafka's own\n"
        "zookeeper.ssl.client.enable=true\n"
        "zookeeper.clientCnxnSocket : org.apache.zookeeper.ClientCnxnSocketNetty\n"
        f"zookeeper.ssl.keystore.location={pem}\n"
        "zookeeper.ssl.keystore.password=k3y\n"
        f"zookeeper.ssl.truststore.location={pem}\n"
        "zookeeper.ssl.truststore.type=PEM\n"
        "ssl.keystore.location=/nowhere.jks\n"
    )

    security = zookeeper_security(file, environment=login("kafka", "secret"))

    expected = tls_from_files(truststore=pem, keystore=pem, key_password="k3y")
    assert security == ZooKeeperSecurity("kafka", "secret", tls=expected)
    assert "secret" not in repr(security)
    assert "k3y" not in repr(security)
    assert "BEGIN" not in repr(security)


@pytest.mark.parametrize(
    ("enabled", "tls"),
    [("zookeeper.ssl.client.enable=false\n", False), ("", True), ("zookeeper.ssl.client.enable=", False)],
)
def test_zookeeper_tls_has_a_switch(tmp_path: Path, pem: Path, enabled: str, tls: bool) -> None:
    """Where it is missing, a store says what is meant."""
    file = tmp_path / "tls.properties"
    file.write_text(f"{enabled}\nzookeeper.ssl.truststore.location={pem}\n")

    assert (zookeeper_security(file).tls is not None) == tls


def test_the_host_name_check_can_be_turned_off(tmp_path: Path) -> None:
    """As in Kafka, by an empty algorithm."""
    file = tmp_path / "tls.properties"
    file.write_text("zookeeper.ssl.client.enable=true\nzookeeper.ssl.endpoint.identification.algorithm=\n")

    assert zookeeper_security(file).tls == Tls(verify_host=False)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("zookeeper.ssl.truststore.location=/a/missing.pem\n", "/a/missing.pem: no such file"),
        ("a=\\uZZZZ\n", "not a properties file"),
        ("", "zookeeper.ssl.client.enable is missing"),
        ("zookeeper.ssl.client.enabel=true\n", "zookeeper.ssl.client.enable is missing"),
    ],
)
def test_what_cannot_be_used(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "tls.properties"
    file.write_text(text)

    with pytest.raises(InputError, match=says):
        zookeeper_security(file)
    if "client.enable" in says:
        assert zookeeper_security(file, may_be_plain=True).tls is None, "Kafka's own tool goes on"


DIGEST = "org.apache.zookeeper.server.auth.DigestLoginModule"


def test_a_jaas_file_of_kafka(tmp_path: Path) -> None:
    """What KAFKA_OPTS names, with the contexts of others."""
    file = tmp_path / "jaas.conf"
    file.write_text(
        f"""// of the brokers
KafkaServer {{
  {PLAIN} required username="admin" password="x" user_admin="x";
}};
/* and of ZooKeeper; */
Client {{
  {DIGEST} required
  username="kafka"
  password="s3;cr{{et";
}};
"""
    )

    security = zookeeper_security(jaas_file=file)

    assert security == ZooKeeperSecurity("kafka", "s3;cr{et")
    assert zookeeper_security(None, file, login("other", "else")) == ZooKeeperSecurity("other", "else")
    assert "s3;cr" not in repr(security)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "no such file"),
        ("Client {", "not a JAAS configuration"),
        (f"Client {{ {DIGEST} required username=a password=s3cret; }}", "not a JAAS configuration"),
        ("Client { };", "no context Client"),
        (f"Server {{ {DIGEST} required username=a password=s3cret; }};", "no context Client"),
        ("Client { com.sun.security.auth.module.Krb5LoginModule required; };", "Krb5LoginModule is not supported"),
        (f"Client {{ {DIGEST} required password=s3cret; }};", "gives no username"),
        (f"Client {{ {DIGEST} required username=a; }};", "the password of a for ZooKeeper is missing"),
    ],
)
def test_jaas_files_that_cannot_be_used(tmp_path: Path, text: str | None, says: str) -> None:
    """One line with the reason, without the password."""
    file = tmp_path / "jaas.conf"
    if text is not None:
        file.write_text(text)

    with pytest.raises(InputError, match=says) as raised:
        zookeeper_security(jaas_file=file)

    assert "s3cret" not in f"{raised.value} {raised.value.hint}"


# --- Kafka ---------------------------------------------------------------------------------------------------------

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def client_properties(tmp_path: Path, *lines: str) -> Path:
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{line}\n" for line in lines))
    return file


def test_a_file_without_security(tmp_path: Path, pem: Path) -> None:
    """PLAINTEXT is the default; stores and logins do not count then."""
    file = client_properties(
        tmp_path, "bootstrap.servers=localhost:9092", f"ssl.truststore.location={pem}", "sasl.mechanism=GSSAPI"
    )
    assert kafka_security(file) == KafkaSecurity()


@pytest.mark.parametrize(
    ("jaas", "username", "password"),
    [
        (f'{PLAIN} required username="alice" password="s3cret";', "alice", "s3cret"),
        (f"  {PLAIN} required  username='alice'  password=s3cret ; ", "alice", "s3cret"),
        (f'{PLAIN} required user_bob="x" password="a;b=c" username = "CN=a,OU=b";', "CN=a,OU=b", "a;b=c"),
        (rf'{PLAIN} required username="a\\b" password="\"q\" \x";', "a\\b", '"q" x'),
    ],
)
def test_plain_logins(tmp_path: Path, jaas: str, username: str, password: str) -> None:
    """As `JaasConfig` reads them."""
    escaped = jaas.replace("\\", "\\\\")
    lines = ("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", f"sasl.jaas.config={escaped}")

    security = kafka_security(client_properties(tmp_path, *lines))

    assert security == KafkaSecurity(sasl=Plain(username, password))
    assert password not in repr(security)


def test_scram_over_tls(tmp_path: Path, pem: Path) -> None:
    """A login on several lines, and every store."""
    file = client_properties(
        tmp_path,
        "security.protocol=sasl_ssl",
        "sasl.mechanism=SCRAM-SHA-512",
        f"sasl.jaas.config={SCRAM} required \\",
        '    username="carol" \\',
        '    password="s3cret";',
        f"ssl.truststore.location={pem}",
        f"ssl.keystore.location={pem}",
        "ssl.keystore.type=PEM",
        "ssl.key.password=k3y",
        "ssl.endpoint.identification.algorithm=",
    )

    security = kafka_security(file)

    assert security == KafkaSecurity(
        tls=tls_from_files(truststore=pem, keystore=pem, key_password="k3y", verify_host=False),
        sasl=Scram("SCRAM-SHA-512", "carol", "s3cret"),
    )
    assert "s3cret" not in repr(security)
    assert "k3y" not in repr(security)


def test_pem_text_in_the_properties(tmp_path: Path, pem: Path) -> None:
    """With blanks where files have ends of lines, as a continued line has them."""
    key, _, certificate = pem.read_text().partition("-----BEGIN CERTIFICATE-----")
    chain = "-----BEGIN CERTIFICATE-----" + certificate
    file = client_properties(
        tmp_path,
        "security.protocol=SSL",
        f"ssl.keystore.key={' '.join(key.split(chr(10)))}",
        f"ssl.keystore.certificate.chain={chain.strip().replace(chr(10), ' ')}",
        "ssl.truststore.certificates=" + chain.strip().replace("\n", " \\\n  "),
        "ssl.key.password=k3y",
    )

    assert kafka_security(file).tls == tls_from_files(truststore=pem, keystore=pem, key_password="k3y")


def test_tls_alone_checks_the_host(tmp_path: Path) -> None:
    """With the system's authorities."""
    assert kafka_security(client_properties(tmp_path, "security.protocol=SSL")) == KafkaSecurity(tls=Tls())


def test_secrets_that_are_not_there_are_asked_for(tmp_path: Path, pem: Path) -> None:
    """The password of a user, and that of a private key."""
    asked: list[str] = []

    def ask(what: str) -> str:
        asked.append(what)
        return "k3y"

    file = client_properties(
        tmp_path,
        "security.protocol=SASL_SSL",
        "sasl.mechanism=PLAIN",
        f"sasl.jaas.config={PLAIN} required username=alice;",
        f"ssl.keystore.location={pem}",
    )

    security = kafka_security(file, ask)

    assert security == KafkaSecurity(tls_from_files(keystore=pem, key_password="k3y"), Plain("alice", "k3y"))
    assert asked == ["password of alice", f"password of the private key of {pem}"]


def test_configuration_providers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets in other files and in the environment (KIP-297); what no provider has is left as it is."""
    (tmp_path / "secrets.properties").write_text("user=alice\n")
    (tmp_path / "password").write_text("s3cret")
    monkeypatch.setenv("KQUOTA_TEST_PROTOCOL", "SASL_PLAINTEXT")
    provider = "org.apache.kafka.common.config.provider"
    lines = [
        "config.providers=file, dir,env",
        f"config.providers.file.class={provider}.FileConfigProvider",
        f"config.providers.dir.class={provider}.DirectoryConfigProvider",
        f"config.providers.env.class={provider}.EnvVarConfigProvider",
        "security.protocol=${env:KQUOTA_TEST_PROTOCOL}",
        "sasl.mechanism=PLAIN",
        f'sasl.jaas.config={PLAIN} required username="${{file:{tmp_path}/secrets.properties:user}}" '
        f'password="${{dir:{tmp_path}:password}}${{other:x}}";',
    ]

    assert kafka_security(client_properties(tmp_path, *lines)) == KafkaSecurity(sasl=Plain("alice", "s3cret${other:x}"))
    assert left_as_is(tmp_path / "client.properties") == ["${other:x} is sent as it is: config.providers has no other"]
    for wrong, says in (
        ("client.id=${env:KQUOTA_TEST_NOTHING}", "names nothing that is there"),
        ("client.id=${file:/a/missing.properties:x}", "/a/missing.properties: no such file"),
        ("config.providers.env.class=com.example.Vault", "provider env is not supported: com.example.Vault"),
    ):
        with pytest.raises(InputError, match=says):
            kafka_security(client_properties(tmp_path, *lines, wrong))


SASL = ("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN")


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (("security.protocol=TLS",), "unknown security.protocol TLS"),
        (("security.protocol=SASL_SSL",), "sasl.kerberos.service.name is missing"),  # GSSAPI is Kafka's default
        (("security.protocol=SASL_SSL", "sasl.mechanism=ANONYMOUS"), "ANONYMOUS is not supported"),
        (SASL, "sasl.jaas.config is missing"),
        ((*SASL, "sasl.jaas.config=com.example.Login required a=b;"), "login module com.example.Login"),
        ((*SASL, f"sasl.jaas.config={PLAIN} required username=a;"), "the password of a is missing"),
        ((*SASL, f"sasl.jaas.config={PLAIN} required username=a password=s3cret"), "cannot be read"),
        ((*SASL, f'sasl.jaas.config={PLAIN} required username=a password="s3cret;'), "cannot be read"),
        ((*SASL, f"sasl.jaas.config={PLAIN};"), "cannot be read"),
        (("security.protocol=SSL", "ssl.keystore.location=/a/missing.pem"), "/a/missing.pem: no such file"),
        (("security.protocol=SSL", "ssl.keystore.key=-----BEGIN"), "ssl.keystore.key: there is no private key"),
        (("security.protocol=SSL", "ssl.keystore.key=a", "ssl.keystore.location=b"), "give either"),
        (("security.protocol=SSL", "ssl.truststore.certificates=a"), "truststore.certificates: there are no cert"),
    ],
)
def test_what_kafka_security_cannot_use(tmp_path: Path, lines: tuple[str, ...], says: str) -> None:
    """One line with the reason, without the password."""
    with pytest.raises(InputError, match=says) as raised:
        kafka_security(client_properties(tmp_path, *lines))

    assert "s3cret" not in f"{raised.value} {raised.value.hint}"
