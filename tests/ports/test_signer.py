"""Keys that sign audit chains, from files as `openssl` writes them. Vectors: RFC 8032 section 7.1, RFC 8410 section 10."""

from __future__ import annotations

import base64
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.adapters.ed25519_keys import (
    Ed25519Check,
    Ed25519Signer,
    KeyUnusable,
    read_public_key,
    read_signing_key,
)

SEED = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
PUBLIC = bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
OF_72 = bytes.fromhex(
    "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
    "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
)
PRIVATE_PEM = b"""-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC
-----END PRIVATE KEY-----
"""
PUBLIC_PEM = b"""-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=
-----END PUBLIC KEY-----
"""
RSA = base64.b64encode(bytes.fromhex("300d06092a864886f70d0101010500") + b"x" * 200)


def file(tmp_path, content):
    path = tmp_path / "key"
    path.write_bytes(content)
    return path


def test_a_signature_is_that_of_the_standard_each_time():
    signer = Ed25519Signer(SEED)
    assert [OF_72] * 3 == [signer.sign(b"\x72") for _ in range(3)]
    assert hashlib.sha256(PUBLIC).hexdigest() == signer.key_id


@given(st.binary(max_size=200), st.integers(0, 511))
def test_only_the_signature_of_the_very_text_is_good(text, bit):
    signer, check = Ed25519Signer(SEED), Ed25519Check(PUBLIC)
    signature = signer.sign(text)
    flipped = bytearray(signature)
    flipped[bit // 8] ^= 1 << bit % 8
    assert signer.key_id == check.key_id
    assert [True, False, False, False] == [
        check.good(text, signature),
        check.good(text + b"x", signature),
        check.good(text, bytes(flipped)),
        Ed25519Check(bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")).good(
            text, signature
        ),
    ]


@pytest.mark.parametrize("signature", [b"", b"x", b"x" * 63, b"x" * 65])
def test_what_is_no_signature_is_not_good(signature):
    assert not Ed25519Check(PUBLIC).good(b"", signature)


def test_keys_are_read_from_pem_and_from_base64(tmp_path):
    signer, check = (
        read_signing_key(file(tmp_path, PRIVATE_PEM)),
        read_public_key(file(tmp_path, PUBLIC_PEM)),
    )
    assert check.good(b"text", signer.sign(b"text"))
    raw = read_signing_key(file(tmp_path, base64.b64encode(SEED) + b"\n"))
    assert (raw.key_id, OF_72) == (
        read_public_key(file(tmp_path, base64.b64encode(PUBLIC))).key_id,
        raw.sign(b"\x72"),
    )
    with_public = bytes.fromhex("3053020101300506032b657004220420") + SEED + b"\xa1\x23\x03\x21\x00" + PUBLIC
    pem = b"-----BEGIN PRIVATE KEY-----\n" + base64.b64encode(with_public) + b"\n-----END PRIVATE KEY-----"
    assert raw.key_id == read_signing_key(file(tmp_path, pem)).key_id


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (PUBLIC_PEM, "this is a PUBLIC KEY; an Ed25519 PRIVATE KEY is needed"),
        (b"-----BEGIN PRIVATE KEY-----\n" + RSA + b"\n-----END PRIVATE KEY-----", "not an Ed25519 key"),
        (b"-----BEGIN PRIVATE KEY-----\n?\n-----END PRIVATE KEY-----", "neither PEM nor base64"),
        (base64.b64encode(SEED[:-1]), "31 bytes"),
        (b"\xff\xfe", "neither PEM nor base64"),
        (b"", "0 bytes"),
        (b"secret words", "neither PEM nor base64"),
    ],
)
def test_what_is_no_signing_key_is_told_without_showing_it(tmp_path, content, why):
    with pytest.raises(KeyUnusable, match=why) as raised:
        read_signing_key(file(tmp_path, content))
    assert "secret" not in str(raised.value).replace(str(tmp_path), "")


def test_what_is_no_public_key_is_reported(tmp_path):
    for content in (PRIVATE_PEM, base64.b64encode(b"x" * 31)):
        with pytest.raises(KeyUnusable):
            read_public_key(file(tmp_path, content))
    with pytest.raises(KeyUnusable, match="No such file"):
        read_public_key(tmp_path / "none")
    with pytest.raises(KeyUnusable, match="directory"):
        read_signing_key(tmp_path)
