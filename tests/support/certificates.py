"""Certificates for tests on secured servers, made anew each time: authorities, and what they sign."""

from __future__ import annotations

import datetime
import ipaddress
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

from kquota.backends import stores
from kquota.backends.tls import Tls

QUICK_TOOL = ("-J-XX:+UseSerialGC", "-J-XX:TieredStopAtLevel=1")


@dataclass(frozen=True)
class Certificate:
    """A certificate with its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def key_pem(self, password: str | None = None) -> str:
        """The private key in PKCS 8, encrypted where there is a password."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, _encryption(password)).decode()

    def pkcs12(self, password: str) -> bytes:
        """A keystore with both."""
        return pkcs12.serialize_key_and_certificates(b"me", self.key, self.certificate, None, _encryption(password))

    def sign(self, name: str, *, authority: bool = False, hosts: Sequence[str] = ()) -> Certificate:
        """A certificate `CN=name` that this one signs, for those host names and addresses."""
        return _issue(name, self, authority=authority, hosts=hosts)


def authority(name: str) -> Certificate:
    """One that signs itself."""
    return _issue(name, None, authority=True, hosts=())


def keytool(*arguments: str, cwd: Path) -> None:
    """Runs the JDK's keytool without questions. Raises subprocess.CalledProcessError with what it said."""
    subprocess.run(
        ["keytool", *QUICK_TOOL, "-noprompt", *arguments], cwd=cwd, check=True, capture_output=True, text=True
    )


def _issue(name: str, issuer: Certificate | None, *, authority: bool, hosts: Sequence[str]) -> Certificate:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=2))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    )
    if hosts:
        names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    return Certificate(builder.sign(key if issuer is None else issuer.key, SHA256()), key)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _encryption(password: str | None) -> KeySerializationEncryption:
    return NoEncryption() if password is None else BestAvailableEncryption(password.encode())


def tls_from_files(
    *,
    truststore: Path | None = None,
    truststore_password: str | None = None,
    keystore: Path | None = None,
    keystore_password: str | None = None,
    key_password: str | None = None,
    verify_host: bool = True,
) -> Tls:
    """What properties with these stores come to."""
    return Tls(
        None if truststore is None else stores.trusted(truststore, truststore_password),
        None if keystore is None else stores.identity(keystore, keystore_password, key_password),
        keystore_password if key_password is None else key_password,
        verify_host,
    )
