"""`kquota doctor`: the lines, the exit codes, and the JSON document."""

import stat
import tomllib
from pathlib import Path

import pytest

from kquota import doctor
from kquota.core.check import State
from tests.cli.conftest import Kquota, validated
from tests.support.processes import free_ports

ROOT = Path(__file__).parents[2]


def test_without_a_cluster_the_installation_is_checked(kquota: Kquota) -> None:
    """That no cluster is named is a warning, with the way to name one."""
    ran = kquota("doctor")
    assert ran.code == 0, ran.err
    assert "ok    kquota: " in ran.out
    assert "no cluster is named, so none was checked" in ran.out
    assert "kquota config set-context" in ran.out
    assert kquota("doctor", "--fail-on", "warn").code == 1


def test_the_document(kquota: Kquota) -> None:
    (port,) = free_ports(1)
    ran = kquota("doctor", "--bootstrap-server", f"127.0.0.1:{port}", "-o", "json")
    assert ran.code == 4
    document = validated(ran.out, "doctor")
    assert document["cluster"] == f"kafka://127.0.0.1:{port}"
    failed = [check for check in document["checks"] if check["state"] == "fail"]
    assert [check["area"] for check in failed] == ["cluster"]
    assert f"nothing listens on port {port}" in failed[0]["remedy"]
    assert document["summary"]["fail"] == 1


def test_the_exit_code_is_that_of_the_first_failure(kquota: Kquota, tmp_path: Path) -> None:
    """3 for settings, 4 for servers out of reach."""
    config = tmp_path / ".config" / "kquota" / "config.yaml"
    config.parent.mkdir(parents=True)
    config.write_text("contexts: 7\n")
    ran = kquota("doctor")
    assert (ran.code, "fail  " + str(config) in ran.out) == (3, True)
    config.write_text("current-context: far\ncontexts:\n  far:\n    zookeeper: no-such-host.invalid\n")
    ran = kquota("doctor")
    assert ran.code == 4
    assert "zookeeper://no-such-host.invalid, by context far" in ran.out
    assert ": 1 context, current far\n" in ran.out
    assert "getent hosts no-such-host.invalid" in ran.out
    assert kquota("doctor", "--bootstrap-server", "a:1", "--zookeeper", "b:1").code == 3


def test_login_files_that_others_can_read(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL\nssl.truststore.location=ca.pem\n# no password\n")
    file.chmod(0o644)
    (found,) = doctor.check_login_file(file)
    assert (found.state, found.message) == (State.OK, "without secrets")
    file.write_text("ssl.keystore.password=x")
    (found,) = doctor.check_login_file(file)
    assert (found.state, found.remedy) == (State.WARN, f"chmod 600 {file}")
    file.chmod(stat.S_IRUSR)
    (found,) = doctor.check_login_file(file)
    assert found.state is State.OK
    (found,) = doctor.check_login_file(tmp_path / "none")
    assert found.state is State.FAIL


def test_a_journal_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert doctor.check_journal(tmp_path / "file" / "journal").state is State.WARN
    assert doctor.check_journal(tmp_path / "new" / "journal").state is State.OK


def test_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None, an old one, and one of today."""

    def java() -> tuple[State, str]:
        (found,) = [check for check in doctor.check_installation() if check.subject == "Java"]
        return found.state, found.message

    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert java() == (State.WARN, java()[1])
    assert "no java on the PATH" in java()[1]
    known = doctor._version
    with monkeypatch.context() as base:  # the base install needs no Java
        base.setattr(doctor, "_version", lambda name: None if name == "pyspark" else known(name))
        assert java()[0] is State.OK
    fake = tmp_path / "java"
    for version, state in (("1.8.0_402", State.WARN), ("11.0.2", State.WARN), ("17.0.1", State.OK), ("25", State.OK)):
        fake.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
        fake.chmod(0o755)
        assert java()[0] is state
        assert version in java()[1]


def test_maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sandbox's broker wants it, so that a host without it is told why, and not warned."""
    monkeypatch.setenv("PATH", str(tmp_path))
    (maven,) = [check for check in doctor.check_installation() if check.subject == "Maven"]
    assert maven.state is State.OK
    assert maven.message.startswith("there is no mvn on the PATH; 'kquota sandbox start --broker' gets Kafka by it")


def test_every_extra_is_checked() -> None:
    """The table of extras is that of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(doctor.EXTRAS) == set(project["optional-dependencies"])


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ("sasl.mechanism=PLAIN\n", "warn  {file}: sasl.mechanism has no effect: security.protocol is PLAINTEXT"),
        ("-----BEGIN CERTIFICATE-----\n", "warn  {file}: there is no security.protocol, sasl.* or ssl.* in it"),
        (
            "security.protocol=SASL_SSL\nsasl.mechanisms=PLAIN\nsasl.jaas.config=org.apache.kafka.common.security.plain."
            'PlainLoginModule required username="u" password="p";\n',
            "fail  login: {file}: sasl.mechanism is not set, so GSSAPI holds\n"
            "        did you mean sasl.mechanism by sasl.mechanisms?",
        ),
        (
            "security.protocol=SSL\nssl.truststore.location=no.pem\n",
            "fail  login: {file}: ssl.truststore.location: no.pem: no such file or directory; it is looked for in ",
        ),
    ],
)
def test_settings_that_are_in_vain(kquota: Kquota, tmp_path: Path, lines: str, says: str) -> None:
    file = tmp_path / "client.properties"
    file.write_text(lines)
    ran = kquota("doctor", "--bootstrap-server", "127.0.0.1:1", "--command-config", str(file), "--timeout", "1")
    assert says.format(file=file) in ran.out
    assert ran.out.index("settings") < ran.out.index("installation")
