"""kquota as admins run it against a secured ZooKeeper: what works, and how each mistake ends.

Every run is also a search: none of the secrets is in what it prints.
"""

from pathlib import Path

import pytest

from tests.backends.conftest import PLAIN_MODULE, STORE_PASSWORD, SecuredZooKeeper
from tests.backends.secured_cli import WRONG, failed, kquota, on_a_terminal, shows_nothing

USER, PASSWORD = {"KQUOTA_ZOOKEEPER_USERNAME": "kafka"}, {"KQUOTA_ZOOKEEPER_PASSWORD": "secret"}
OPS = {"KQUOTA_ZOOKEEPER_USERNAME": "ops", "KQUOTA_ZOOKEEPER_PASSWORD": "ops-secret"}
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
        ("plain", (), USER | PASSWORD),
        ("plain", (), USER | {"KQUOTA_ZOOKEEPER_PASSWORD_FILE": "password"}),
        ("plain", ("--zk-jaas-file", "jaas.conf"), {}),
        ("plain", (), {"KQUOTA_ZOOKEEPER_JAAS_FILE": "jaas.conf"}),
        ("tls", ("--zk-tls-config-file", "jks.properties", "--zk-jaas-file", "jaas.conf"), {}),
        ("tls", ("--zk-tls-config-file", "p12.properties"), {}),
        ("plain", (), OPS | {"KQUOTA_ZOOKEEPER_SCHEME": "digest"}),
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
    chroot = secured_zookeeper.in_chroot(f"/{request.node.name}")
    where = ("--zookeeper", getattr(secured_zookeeper, port) + chroot, *arguments)
    config = ("--add-config", "producer_byte_rate=2048")
    altered = kquota("alter", *where, "--user", "u", *config, cwd=zookeeper_files, **environment)
    assert altered.code == 0, altered.err
    assert all(line.startswith(("cluster: ", "'kquota undo ")) for line in altered.err.splitlines()), altered.err
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
    address = secured_zookeeper.plain + secured_zookeeper.in_chroot("/contexts")
    (zookeeper_files / "config.yaml").write_text(
        f"contexts:\n  bare: {{zookeeper: '{address}'}}\n  whole: {{zookeeper: '{address}', zk-jaas-file: jaas.conf}}\n"
    )
    config = {"KQUOTA_CONFIG": "config.yaml"}
    login = USER | PASSWORD
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
    address = secured_zookeeper.plain + secured_zookeeper.in_chroot("/asked")
    arguments = ("describe", "--zookeeper", address)
    for password, code in (("secret", 0), (WRONG, 5)):
        shown, ended = on_a_terminal(arguments, password, tmp_path, KQUOTA_ZOOKEEPER_USERNAME="kafka")
        assert ended == code, shown
        assert shown.startswith(f"cluster: zookeeper://{address}\nkquota: password of kafka for ZooKeeper: ")
        shows_nothing(shown)


def test_the_drop_in_takes_kafkas_own_options(secured_zookeeper: SecuredZooKeeper, zookeeper_files: Path) -> None:
    """KAFKA_OPTS as Kafka's scripts hand it to the JVM."""
    chroot = secured_zookeeper.in_chroot("/drop-in")
    where = ("kafka-configs", "--zookeeper", secured_zookeeper.plain + chroot, "--entity-type", "users")
    options = {"KAFKA_OPTS": "-Xmx1g -Djava.security.auth.login.config=jaas.conf"}
    alter = ("--alter", "--entity-name", "u", "--add-config", "producer_byte_rate=2048")
    altered = kquota(*where, *alter, cwd=zookeeper_files, **options)
    assert altered.code == 0, altered.err
    assert all(line.startswith(("cluster: ", "'kquota undo ")) for line in altered.err.splitlines()), altered.err
    assert "producer_byte_rate=2048" in kquota(*where, "--describe", cwd=zookeeper_files, **options).out
    others = {"KAFKA_OPTS": "-Djava.security.auth.login.config=brokers.conf"}  # nothing about ZooKeeper: anonymous
    assert "ACLs forbid" in kquota(*where, "--describe", cwd=zookeeper_files, **others).err


@pytest.mark.parametrize(
    ("port", "arguments", "environment", "code", "says"),
    [
        ("plain", ("--zk-jaas-file", "wrong.conf"), {}, 5, "refused the authentication"),
        ("tls", ("--zk-tls-config-file", "untrusting.properties"), {}, 4, "certificate verify failed"),
        ("tls", ("--zk-tls-config-file", "stranger.properties"), {}, 5, "refuses the certificate"),
        ("tls", ("--zk-tls-config-file", "anonymous.properties"), {}, 5, "wants a client certificate"),
        ("plain", ("--zk-tls-config-file", "p12.properties"), {}, 4, "is that the TLS port"),
        ("tls", (), {}, 4, "it may be a TLS port"),
        ("plain", (), USER, 3, "the password of kafka for ZooKeeper is missing"),
        ("plain", (), USER | {"KQUOTA_ZOOKEEPER_PASSWORD_FILE": "missing"}, 3, "missing: no such file"),
        ("plain", ("--zk-jaas-file", "brokers.conf"), {}, 3, "there is no context Client in it"),
        (
            "plain",
            (),
            USER | {"KQUOTA_ZOOKEEPER_PASSWORD": WRONG, "KQUOTA_ZOOKEEPER_SCHEME": "ip"},
            3,
            "unknown ZooKeeper scheme",
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
    monkeypatch.chdir(zookeeper_files)
    command = ["describe", "--zookeeper", getattr(secured_zookeeper, port), *arguments]
    if "is missing" in says:
        # In this process there may be a terminal.
        ran = kquota(*command, cwd=zookeeper_files, **environment)
        assert (ran.code, len(ran.err.splitlines())) == (code, 1)
        assert says in ran.err
    else:
        failed(code, says, command, zookeeper_files, capfd, environment)
