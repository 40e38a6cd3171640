"""Stores that the JDK's keytool and others made, read for OpenSSL."""

import contextlib
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.backends import stores
from kquota.backends.tls import Pem, client_context
from kquota.errors import InputError, MissingDependency
from tests.support.certificates import Certificate, authority, keytool, tls_from_files

STORE, KEY = "store-secret", "key-secret"


@pytest.fixture(scope="module")
def ca() -> Certificate:
    return authority("ca")


@pytest.fixture(scope="module")
def me(ca: Certificate) -> Certificate:
    return ca.sign("me")


@pytest.fixture(scope="module")
def folder(ca: Certificate, me: Certificate, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`key.jks` (its key has a password of its own), `key.p12`, `key.pem`, `trust.jks`, `trust.p12`, `trust.pem`."""
    folder = tmp_path_factory.mktemp("stores")
    (folder / "key.p12").write_bytes(me.pkcs12(STORE))
    (folder / "key.pem").write_text("# mine\n" + me.pem + me.key_pem(KEY))
    (folder / "trust.pem").write_text(f"# {ca.certificate.subject.rfc4514_string()}: Autorité\n" + ca.pem)
    passwords = ("-srcstorepass", STORE, "-deststorepass", STORE, "-destkeypass", KEY)
    kinds = ("-srcstoretype", "PKCS12", "-deststoretype", "JKS", "-srcalias", "me")
    keytool("-importkeystore", "-srckeystore", "key.p12", "-destkeystore", "key.jks", *kinds, *passwords, cwd=folder)
    for name, kind in (("trust.jks", "JKS"), ("trust.p12", "PKCS12")):
        what = ("-alias", "ca", "-file", "trust.pem", "-keystore", name, "-storetype", kind, "-storepass", STORE)
        keytool("-importcert", *what, cwd=folder)
    return folder


@pytest.mark.parametrize("kind", ["jks", "p12", "pem"])
def test_stores_of_every_kind(folder: Path, kind: str, ca: Certificate, me: Certificate) -> None:
    """Told apart by their content, not by their names."""
    trust, key = (folder / f"{name}.{kind}" for name in ("trust", "key"))
    tls = tls_from_files(
        truststore=trust, truststore_password=STORE, keystore=key, keystore_password=STORE, key_password=KEY
    )

    assert tls.ca == Pem(ca.pem, "")
    assert tls.identity is not None
    assert tls.identity.text.endswith(me.pem)
    assert ("ENCRYPTED" in tls.identity.text) == (kind == "pem")
    if kind != "pem":
        assert tls.identity.text == me.key_pem() + me.pem
    (trusted,) = client_context(tls).get_ca_certs()
    assert trusted["subject"] == ((("commonName", "ca"),),)


def test_a_jks_truststore_needs_no_password(folder: Path, ca: Certificate) -> None:
    """As in Java, its integrity is then not checked; certificates of key entries are trusted too."""
    assert stores.trusted(folder / "trust.jks", None).text == ca.pem
    assert stores.trusted(folder / "key.jks", None).text.count("BEGIN CERTIFICATE") == 1


@pytest.mark.parametrize(
    ("name", "password", "key_password", "says"),
    [
        ("key.jks", "wrong", KEY, "its password is wrong, or it is damaged"),
        ("key.jks", STORE, "wrong", "the password of its private key is wrong"),
        ("key.jks", STORE, None, "the password of its private key is wrong"),
        ("key.p12", "wrong", None, "its password is wrong, or it is damaged"),
        ("key.p12", None, None, "its password is wrong, or it is damaged"),
        ("trust.jks", STORE, None, "there is no private key in it"),
        ("trust.p12", STORE, None, "there is no private key in it"),
        ("trust.pem", None, None, "there is no private key in it"),
        ("missing.jks", STORE, None, "no such file"),
        (".", STORE, None, "is a directory"),
        ("jceks", STORE, None, "it is a JCEKS store"),
        ("text", STORE, None, "it is no keystore"),
        ("empty", STORE, None, "it is no keystore"),
        ("der", STORE, None, "it is no PKCS12 store, or it is damaged"),
        ("damaged.pem", None, None, "its PEM text is damaged"),
        ("keyonly.pem", None, None, "there is no certificate in it"),
    ],
)
def test_keystores_that_cannot_be_used(
    folder: Path, name: str, password: str | None, key_password: str | None, says: str, me: Certificate
) -> None:
    """One line with the file and the reason."""
    (folder / "jceks").write_bytes(b"\xce\xce\xce\xce\0\0\0\2")
    (folder / "text").write_text("hello")
    (folder / "empty").write_text("")
    (folder / "der").write_bytes(b"\x30\x03\x02\x01\x05")
    (folder / "damaged.pem").write_text("-----BEGIN PRIVATE KEY-----\nA\n-----END PRIVATE KEY-----\n")
    (folder / "keyonly.pem").write_text(me.key_pem())
    with pytest.raises(InputError, match=says) as raised:
        tls_from_files(keystore=folder / name, keystore_password=password, key_password=key_password)
    assert raised.value.message.startswith(f"{folder / name}: ")
    assert "\n" not in raised.value.message


@pytest.mark.parametrize("name", ["key.pem", "missing.p12", "key.p12", "nothing.pem"])
def test_truststores_that_cannot_be_used(folder: Path, name: str) -> None:
    """Such as one of another password."""
    (folder / "nothing.pem").write_text("-----BEGIN NOTHING-----\n-----END NOTHING-----\n")
    if name == "key.pem":
        assert stores.trusted(folder / name, None).text.count("BEGIN") == 1  # the key is left out
        return
    with pytest.raises(InputError, match=f"{name}: "):
        stores.trusted(folder / name, "wrong")


@given(st.integers(min_value=0), st.integers(1, 255))
def test_a_damaged_jks_store_is_never_read(folder: Path, where: int, difference: int) -> None:
    """Whatever byte is another one, its integrity says so."""
    data = bytearray((folder / "key.jks").read_bytes())
    data[where % len(data)] ^= difference
    if data[:4] == stores.JKS:
        with pytest.raises(InputError):
            stores.read_jks(bytes(data), STORE)


@given(st.binary(max_size=200), st.integers(0, 300))
def test_anything_behind_the_magic_is_an_error_or_a_store(folder: Path, tail: bytes, keep: int) -> None:
    """Without a password too, where nothing is checked first."""
    head = (folder / "key.jks").read_bytes()[: 4 + keep]
    with contextlib.suppress(InputError):
        keys, certificates = stores.read_jks(head + tail, None)
        assert len(keys) + len(certificates) <= len(head + tail)
        for entry in keys:
            entry.private_key("x")


def test_without_the_library_pkcs12_names_the_extra(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other kinds do not need it."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "cryptography"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)

    with pytest.raises(MissingDependency, match="cryptography") as raised:
        stores.trusted(folder / "trust.p12", STORE)

    assert raised.value.extra == "stores"
    assert stores.trusted(folder / "trust.jks", STORE).text


def test_keys_are_never_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What OpenSSL reads is gone when the context is there, and nobody else could read it."""
    import ssl

    seen: list[tuple[str, int]] = []
    load = ssl.SSLContext.load_cert_chain

    def watched(self: ssl.SSLContext, certfile: str, keyfile: None = None, password: str | None = None) -> None:
        seen.append((certfile, os.stat(certfile).st_mode & 0o077 if not certfile.startswith("/proc/") else 0))
        load(self, certfile, keyfile, password)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", watched)
    client_context(tls_from_files(keystore=folder / "key.jks", keystore_password=STORE, key_password=KEY))

    ((path, others),) = seen
    assert others == 0
    assert not os.path.exists(path)
