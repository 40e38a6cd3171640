"""Keystores and truststores of Java's tools → PEM: PEM, PKCS12 and JKS, recognized by their content.

Like Java, which opens a PKCS12 file that is called JKS and the other way round: the `type` of a store says nothing that
its first bytes do not. PKCS12 is read by the library cryptography.

JKS, Java's own format, is read here as `sun.security.provider.JavaKeyStore` and `KeyProtector` of the JDK do: the one
library for it, pyjks, has had no release since 2020 and needs a C compiler. The format: 0xFEEDFEED, a version, the
entries, and the SHA-1 of the password, two words and all that. A private key is XORed with a chain of SHA-1 digests of
its password.
"""

import base64
import binascii
import dataclasses
import hashlib
import hmac
import io
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kquota.backends.secrets import Ask
from kquota.backends.tls import Pem, Tls
from kquota.errors import InputError, MissingDependency, placed
from kquota.files import read_bytes

JKS: Final = b"\xfe\xed\xfe\xed"
_KEY_ENTRY = 1
_CERTIFICATE_ENTRY = 2
_WHITENER = b"Mighty Aphrodite"
_DIGEST_BYTES = 20
_SALT_BYTES = 20
_JCEKS = b"\xce\xce\xce\xce"
_LARGEST_STORE = 64 << 20
_BLOCK = re.compile(r"-+BEGIN ([A-Z0-9 ]+?)-+(.*?)-+END \1-+", re.DOTALL)
_HEADER = re.compile(r"^[A-Za-z-]+: ", re.MULTILINE)


class WrongPassword(InputError):
    """A store or its key cannot be read with the password that was given, or without one."""


def trusted(path: Path, password: str | None) -> Pem:
    """The certificates of a truststore. Raises InputError where there are none, MissingDependency."""
    data = _read(path)
    if data.startswith(JKS):
        with placed(path):
            keys, others = read_jks(data, password)
        # As in Java, our own certificates are trusted as well.
        certificates = [*others, *(entry.chain[0] for entry in keys if entry.chain)]
        text = "".join(_pem("CERTIFICATE", certificate) for certificate in certificates)
    else:
        text = data.decode("utf-8", "replace") if _is_pem(data) else "".join(_pkcs12(path, data, password)[1])
    return trusted_text(text, str(path))


def identity(path: Path, password: str | None, key_password: str | None) -> Pem:
    """The private key of a keystore with its certificate and chain; of several keys, the first.

    A key in PEM stays encrypted if it is. Raises InputError where there is no key or a password is wrong,
    MissingDependency.
    """
    data = _read(path)
    if data.startswith(JKS):
        with placed(path):
            keys, _ = read_jks(data, password)
            secret = (password if key_password is None else key_password) or ""
            parts = [_pem("PRIVATE KEY", entry.private_key(secret)) for entry in keys[:1]]
        parts += [_pem("CERTIFICATE", certificate) for entry in keys[:1] for certificate in entry.chain]
    elif _is_pem(data):
        parts = [data.decode("utf-8", "replace")]
    else:
        own, certificates = _pkcs12(path, data, password)
        parts = [own or "", *certificates]
    return identity_text("".join(parts), str(path))


def trusted_text(text: str, origin: str) -> Pem:
    """The certificates of PEM text, with blanks for ends of lines where it is of properties. Raises InputError."""
    certificates = [block for label, block in _blocks(text, origin) if label == "CERTIFICATE"]
    if not certificates:
        raise InputError(f"{origin}: there are no certificates in it")
    return Pem("".join(certificates), origin)


def identity_text(text: str, origin: str) -> Pem:
    """The private key, the certificate and its chain of PEM text. Raises InputError where one is missing."""
    blocks = _blocks(text, origin)
    keys = [block for label, block in blocks if label.endswith("PRIVATE KEY")]
    certificates = [block for label, block in blocks if label == "CERTIFICATE"]
    if not keys:
        raise InputError(f"{origin}: there is no private key in it")
    if not certificates:
        raise InputError(f"{origin}: there is no certificate in it")
    return Pem("".join([keys[0], *certificates]), origin)


def tls_of(properties: Mapping[str, str], prefix: str, origin: str, ask: Ask) -> Tls:
    """What properties say about TLS: Kafka's properties (`ssl.keystore.location` …) with that prefix for `ssl.`.

    A password that is needed and not there is asked for. Raises InputError, MissingDependency.
    """

    def value(name: str) -> str | None:
        return properties.get(prefix + name) or None

    def read(read: Callable[[Path, str | None], Pem], store: str, location: str, password: str | None) -> Pem:
        if not Path(location).exists():
            here = "" if Path(location).is_absolute() else f"; it is looked for in {Path.cwd()}"
            raise InputError(f"{origin}: {prefix}{store}.location: {location}: no such file or directory{here}")
        try:
            return read(Path(location), password)
        except WrongPassword:
            if password is not None:
                raise
            return read(Path(location), ask(f"password of {location}"))

    for store, inline in (("truststore", ("certificates",)), ("keystore", ("key", "certificate.chain"))):
        for name in inline:
            if value(f"{store}.location") and value(f"{store}.{name}"):
                raise InputError(f"{origin}: give either {prefix}{store}.location or {prefix}{store}.{name}")
    ca = own = None
    if certificates := value("truststore.certificates"):
        ca = trusted_text(certificates, f"{origin}: {prefix}truststore.certificates")
    elif location := value("truststore.location"):
        ca = read(trusted, "truststore", location, value("truststore.password"))
    key_password, store_password = value("key.password"), value("keystore.password")
    if key := value("keystore.key"):
        own = identity_text(f"{key}\n{value('keystore.certificate.chain') or ''}", f"{origin}: {prefix}keystore.key")
    elif location := value("keystore.location"):
        own = read(
            lambda path, password: identity(path, password, key_password or password),
            "keystore",
            location,
            store_password,
        )
    algorithm = properties.get(f"{prefix}endpoint.identification.algorithm", "https")
    tls = Tls(ca, own, key_password or store_password, verify_host=algorithm.strip() != "")
    if tls.needs_key_password:
        assert own is not None
        tls = dataclasses.replace(tls, key_password=ask(f"password of the private key of {own.origin}"))
    return tls


def _read(path: Path) -> bytes:
    data = read_bytes(path, _LARGEST_STORE)
    if data.startswith(_JCEKS):
        raise InputError(f"{path}: it is a JCEKS store", hint="PEM, PKCS12 and JKS can be read")
    if not data.startswith((JKS, b"\x30")) and not _is_pem(data):
        raise InputError(f"{path}: it is no keystore", hint="PEM, PKCS12 and JKS can be read")
    return data


def _is_pem(data: bytes) -> bool:
    return b"-----BEGIN " in data


def _blocks(text: str, origin: str) -> list[tuple[str, str]]:
    """The blocks of PEM text with their labels, each brought into the form that OpenSSL reads."""
    blocks = []
    for label, body in _BLOCK.findall(text):
        if _HEADER.search(body):  # an encrypted key of the traditional form
            blocks.append((label, f"-----BEGIN {label}-----\n{body.strip()}\n-----END {label}-----\n"))
            continue
        try:
            blocks.append((label, _pem(label, base64.b64decode("".join(body.split()), validate=True))))
        except binascii.Error:
            raise InputError(f"{origin}: its PEM text is damaged") from None
    return blocks


def _pem(label: str, der: bytes) -> str:
    lines = textwrap.wrap(base64.b64encode(der).decode(), 64)
    return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""])


def _pkcs12(path: Path, data: bytes, password: str | None) -> tuple[str | None, list[str]]:
    """The private key, if there is one, and the certificates, its own first."""
    try:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12
    except ImportError:
        raise MissingDependency(
            f"{path}: reading a PKCS12 store needs the package cryptography", extra="stores"
        ) from None
    try:
        store = pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except ValueError as error:
        if "password" in str(error).lower():
            raise WrongPassword(f"{path}: its password is wrong, or it is damaged") from None
        raise InputError(f"{path}: it is no PKCS12 store, or it is damaged") from None
    own = [] if store.cert is None else [store.cert]
    certificates = [entry.certificate.public_bytes(Encoding.PEM).decode() for entry in (*own, *store.additional_certs)]
    if store.key is None:
        return None, certificates
    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return key.decode(), certificates


# --- JKS


@dataclass(frozen=True)
class KeyEntry:
    """A protected private key and the certificates that go with it, our own first (DER)."""

    protected_key: bytes = field(repr=False)
    chain: Sequence[bytes] = field(repr=False)

    def private_key(self, password: str) -> bytes:
        """The private key (DER, PKCS 8). Raises WrongPassword."""
        # An EncryptedPrivateKeyInfo: a sequence of the algorithm and an octet string.
        sequence, _ = _der(self.protected_key, 0x30)
        _, rest = _der(sequence, 0x30)
        protected, _ = _der(rest, 0x04)
        salt, body = protected[:_SALT_BYTES], protected[_SALT_BYTES:-_DIGEST_BYTES]
        secret = _utf16(password)
        digest, stream = salt, b""
        while len(stream) < len(body):
            digest = _sha1(secret, digest)
            stream += digest
        key = bytes(a ^ b for a, b in zip(body, stream, strict=False))
        if not hmac.compare_digest(_sha1(secret, key), protected[-_DIGEST_BYTES:]):
            raise WrongPassword("the password of its private key is wrong")
        return key


def read_jks(data: bytes, password: str | None) -> tuple[list[KeyEntry], list[bytes]]:
    """The keys and the trusted certificates (DER) of a store, in its order.

    As in Java its integrity is checked only where there is a password. Raises InputError.
    """
    body = data[:-_DIGEST_BYTES]
    stream = io.BytesIO(body[len(JKS) :])

    def take(size: int) -> bytes:
        part = stream.read(size)
        if len(part) < size:
            raise InputError("it is damaged")
        return part

    def number() -> int:
        return int.from_bytes(take(4))

    def certificate() -> bytes:
        if version == 2:
            take(int.from_bytes(take(2)))  # its type, "X.509"
        return take(number())

    version = number()
    if version not in (1, 2):
        raise InputError(f"it is a JKS store of the unknown version {version}")
    expected = None if password is None else _sha1(_utf16(password), _WHITENER, body)
    if expected is not None and not hmac.compare_digest(expected, data[-_DIGEST_BYTES:]):
        raise WrongPassword("its password is wrong, or it is damaged")
    keys: list[KeyEntry] = []
    certificates: list[bytes] = []
    for _ in range(number()):
        tag = number()
        take(int.from_bytes(take(2)) + 8)  # its alias, and when it was made
        if tag == _KEY_ENTRY:
            keys.append(KeyEntry(take(number()), [certificate() for _ in range(number())]))
        elif tag == _CERTIFICATE_ENTRY:
            certificates.append(certificate())
        else:
            raise InputError("it is damaged")
    return keys, certificates


def _der(data: bytes, tag: int) -> tuple[bytes, bytes]:
    """The content of the DER value at the start of the data, and what is after it. Raises InputError."""
    if len(data) < 2 or data[0] != tag:
        raise InputError("its private key is damaged")
    start, length = 2, data[1]
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(data[2:start])
    if len(data) < start + length:
        raise InputError("its private key is damaged")
    return data[start : start + length], data[start + length :]


def _sha1(*parts: bytes) -> bytes:
    return hashlib.sha1(b"".join(parts), usedforsecurity=False).digest()


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be", "surrogatepass")
