"""JKS, Java's own keystore format, as `sun.security.provider.JavaKeyStore` and `KeyProtector` of the JDK read it.

Written here because the one library for it, pyjks, has had no release since 2020 and needs a C compiler. The format:
0xFEEDFEED, a version, the entries, and the SHA-1 of the password, two words and all that. A private key is XORed with a
chain of SHA-1 digests of its password.
"""

import hashlib
import hmac
from dataclasses import dataclass, field
from typing import Final

MAGIC: Final = b"\xfe\xed\xfe\xed"
_KEY_ENTRY = 1
_CERTIFICATE_ENTRY = 2
_WHITENER = b"Mighty Aphrodite"
_DIGEST_BYTES = 20
_SALT_BYTES = 20


class JksError(Exception):
    """Why a store or a key in it cannot be read, in a few words."""


class WrongPassword(JksError):
    """The password does not open the store or the key; a damaged store looks the same."""


@dataclass(frozen=True)
class KeyEntry:
    """A protected private key and the certificates that go with it, our own first (DER)."""

    alias: str
    protected_key: bytes = field(repr=False)
    chain: tuple[bytes, ...] = field(repr=False)

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


@dataclass(frozen=True)
class Jks:
    """What a store holds, in its order."""

    keys: tuple[KeyEntry, ...]
    certificates: tuple[bytes, ...] = field(repr=False)
    """The trusted certificates (DER)."""


def read_jks(data: bytes, password: str | None) -> Jks:
    """Reads a store; as in Java its integrity is checked only where there is a password. Raises JksError."""
    body = data[:-_DIGEST_BYTES]
    reader = _Reader(body, len(MAGIC))
    version = reader.number(4)
    if version not in (1, 2):
        raise JksError(f"it is a JKS store of the unknown version {version}")
    expected = None if password is None else _sha1(_utf16(password), _WHITENER, body)
    if expected is not None and not hmac.compare_digest(expected, data[-_DIGEST_BYTES:]):
        raise WrongPassword("its password is wrong, or it is damaged")
    keys: list[KeyEntry] = []
    certificates: list[bytes] = []
    for _ in range(reader.number(4)):
        tag = reader.number(4)
        alias = reader.block(2).decode("utf-8", "replace")
        reader.number(8)  # when it was made
        if tag == _KEY_ENTRY:
            protected = reader.block(4)
            chain = tuple(reader.certificate(version) for _ in range(reader.number(4)))
            keys.append(KeyEntry(alias, protected, chain))
        elif tag == _CERTIFICATE_ENTRY:
            certificates.append(reader.certificate(version))
        else:
            raise JksError("it is damaged")
    return Jks(tuple(keys), tuple(certificates))


class _Reader:
    """Big-endian numbers and blocks with their length."""

    def __init__(self, data: bytes, position: int) -> None:
        self._data = data
        self._position = position

    def number(self, size: int) -> int:
        return int.from_bytes(self._take(size))

    def block(self, length_size: int) -> bytes:
        return self._take(self.number(length_size))

    def certificate(self, version: int) -> bytes:
        if version == 2:
            self.block(2)  # its type, "X.509"
        return self.block(4)

    def _take(self, size: int) -> bytes:
        part = self._data[self._position : self._position + size]
        if len(part) < size:
            raise JksError("it is damaged")
        self._position += size
        return part


def _der(data: bytes, tag: int) -> tuple[bytes, bytes]:
    """The content of the DER value at the start of the data, and what is after it. Raises JksError."""
    if len(data) < 2 or data[0] != tag:
        raise JksError("its private key is damaged")
    start, length = 2, data[1]
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(data[2:start])
    if len(data) < start + length:
        raise JksError("its private key is damaged")
    return data[start : start + length], data[start + length :]


def _sha1(*parts: bytes) -> bytes:
    return hashlib.sha1(b"".join(parts), usedforsecurity=False).digest()


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be", "surrogatepass")
