"""Keys that sign the ends of audit chains, and their public sides: Ed25519 (RFC 8032) by PyNaCl.

A key file is PEM, as `openssl genpkey -algorithm ed25519` and `openssl pkey -pubout` write it (RFC 8410), or
the 32 bytes of the seed or public key in base64.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from pathlib import Path
from typing import Final

from nacl.exceptions import CryptoError
from nacl.signing import SigningKey, VerifyKey

from worker.domain.values.errors import ReportedError

KEY_BYTES: Final = 32
MAX_FILE_BYTES: Final = 16_384
PRIVATE_DER: Final = (
    bytes.fromhex("302e020100300506032b657004220420"),
    bytes.fromhex("3053020101300506032b657004220420"),
)
"""The bytes before the seed: version 1 of PKCS #8, and version 2, which adds the public key (RFC 5958)."""
PUBLIC_DER: Final = (bytes.fromhex("302a300506032b6570032100"),)
PRIVATE, PUBLIC = "PRIVATE KEY", "PUBLIC KEY"
PEM: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)


class KeyUnusable(ReportedError):  # noqa: N818 - named as the other things that a command cannot use
    """A key file does not hold the key that is needed.

    The message says why, and shows nothing of the content.
    """


class Ed25519Signer:
    """Implements Signer."""

    def __init__(self, seed: bytes) -> None:
        self._key = SigningKey(seed)
        self.key_id = _id(self._key.verify_key)

    def sign(self, text: bytes) -> bytes:
        return self._key.sign(text).signature


class Ed25519Check:
    """Implements SignatureCheck."""

    def __init__(self, public: bytes) -> None:
        self._key = VerifyKey(public)
        self.key_id = _id(self._key)

    def good(self, text: bytes, signature: bytes) -> bool:
        try:
            self._key.verify(text, signature)
        except (CryptoError, ValueError):  # ValueError: not 64 bytes
            return False
        return True


def read_signing_key(path: Path) -> Ed25519Signer:
    """The key to sign with. Raises KeyUnusable."""
    return Ed25519Signer(_read(path, PRIVATE, PRIVATE_DER))


def read_public_key(path: Path) -> Ed25519Check:
    """The key to check with. Raises KeyUnusable."""
    public = _read(path, PUBLIC, PUBLIC_DER)
    try:
        return Ed25519Check(public)
    except (CryptoError, ValueError) as e:
        raise KeyUnusable(f"{path}: not a valid Ed25519 public key") from e


def _read(path: Path, wanted: str, prefixes: tuple[bytes, ...]) -> bytes:
    try:
        with path.open("rb") as file:
            text = file.read(MAX_FILE_BYTES).decode("ascii")
    except OSError as e:
        raise KeyUnusable(f"{path}: {e.strerror or e}") from e
    except UnicodeDecodeError as e:
        raise KeyUnusable(f"{path}: neither PEM nor base64") from e
    found = PEM.search(text)
    if found is None:
        return _raw(path, text)
    if found[1] != wanted:
        raise KeyUnusable(f"{path}: this is a {found[1]}; an Ed25519 {wanted} is needed")
    return _from_der(path, _decoded(path, found[2]), prefixes)


def _from_der(path: Path, der: bytes, prefixes: tuple[bytes, ...]) -> bytes:
    for prefix in prefixes:
        key = der[len(prefix) : len(prefix) + KEY_BYTES]
        if der.startswith(prefix) and len(key) == KEY_BYTES:
            return key
    raise KeyUnusable(f"{path}: not an Ed25519 key; `openssl genpkey -algorithm ed25519` makes one")


def _raw(path: Path, text: str) -> bytes:
    key = _decoded(path, text)
    if len(key) != KEY_BYTES:
        raise KeyUnusable(f"{path}: {len(key)} bytes in base64; an Ed25519 key has {KEY_BYTES}")
    return key


def _decoded(path: Path, text: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except binascii.Error as e:
        raise KeyUnusable(f"{path}: neither PEM nor base64") from e


def _id(key: VerifyKey) -> str:
    return hashlib.sha256(bytes(key)).hexdigest()
