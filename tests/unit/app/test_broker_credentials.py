"""Credentials and certificates from files: what is read, and how every fault is named."""

from __future__ import annotations

import ssl

import pytest
import trustme
from faststream.nats import NatsCredentials, NatsNKey, NatsUserPassword
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nkeys import PREFIX_BYTE_ACCOUNT

from tests.fakes.nats_accounts import Operator, key
from worker.app.broker import MAX_FILE_BYTES, security
from worker.app.settings.environment import ConfigurationError
from worker.app.settings.groups import NatsSettings


@pytest.fixture
def file(tmp_path):
    """Writes a file and returns its path."""

    def write(content, name="file"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def refusal(**values):
    with pytest.raises(ConfigurationError) as caught:
        security(NatsSettings(**values))
    assert caught.value.__cause__ is None
    return str(caught.value)


def test_without_anything_there_is_no_tls():
    assert security(NatsSettings()).ssl_context is None


def test_a_user_and_a_password():
    found = security(NatsSettings(user="u", password="p"))
    assert isinstance(found, NatsUserPassword)
    assert ("u", "p") == (found.username, found.password)


@pytest.mark.parametrize("text", ["{}", "{}\n", "\n {}\r\n"])
def test_a_seed(file, text):
    pair = key()
    found = security(NatsSettings(nkey_file=file(text.format(pair.seed))))
    assert isinstance(found, NatsNKey)
    assert (pair.seed, False) == (found.seed, found.seed_is_file)


def test_credentials(file):
    text = Operator().credentials()
    found = security(NatsSettings(credentials_file=file(text)))
    assert isinstance(found, NatsCredentials)
    assert text == str(found.credentials)


@pytest.mark.parametrize("field", ["nkey_file", "credentials_file", "ca_file"])
def test_files_that_cannot_be_read_are_named_with_their_variable(tmp_path, file, field):
    name = f"RCA_NATS__{field.upper()}"
    assert f"{name}: cannot read /none: No such file or directory" == refusal(**{field: "/none"})
    assert f"{name}: cannot read {tmp_path}: Is a directory" == refusal(**{field: tmp_path})
    assert refusal(**{field: file(b"\xff\xfe")}).endswith("is not UTF-8 text")
    assert refusal(**{field: file(b"x" * (MAX_FILE_BYTES + 1))}).endswith("is larger than 1000000 bytes")


@pytest.mark.parametrize("field", ["cert_file", "key_file"])
def test_a_missing_half_of_a_certificate_is_named(file, field):
    leaf = trustme.CA().issue_cert("rca-worker")
    both = {
        "cert_file": file(leaf.cert_chain_pems[0].bytes(), "cert"),
        "key_file": file(leaf.private_key_pem.bytes(), "key"),
    }
    said = refusal(**{**both, field: "/none"})
    assert f"RCA_NATS__{field.upper()}: cannot read /none: No such file or directory" == said


@pytest.mark.parametrize(
    "text",
    ["", "SUAA", key(PREFIX_BYTE_ACCOUNT).seed, key().public, key().seed[:-1] + "\x00"],
    ids=["nothing", "a beginning", "of an account", "public", "ends in a zero byte"],
)
def test_only_the_seed_of_a_user_is_one(file, text):
    said = refusal(nkey_file=file(text))
    assert "RCA_NATS__NKEY_FILE: not the NKey seed of a user (SU...)" == said


@pytest.mark.parametrize(
    ("cut", "complaint"),
    [
        (lambda text: "", "no user JWT"),
        (lambda text: text.replace("BEGIN NATS USER JWT", "BEGIN"), "no user JWT"),
        (lambda text: text[: text.index("BEGIN NATS USER JWT") + 19], "no user JWT"),
        (lambda text: text.replace(".", ""), "no user JWT"),
        (lambda text: text[: text.index("\n-----BEGIN USER")], "not the NKey seed"),
        (lambda text: text.replace("\nSU", "\nSA"), "not the NKey seed"),
    ],
)
def test_broken_credentials_are_refused_and_not_shown(file, cut, complaint):
    text = Operator().credentials()
    said = refusal(credentials_file=file(cut(text)))
    assert said.startswith("RCA_NATS__CREDENTIALS_FILE: ")
    assert complaint in said
    assert not {line for line in text.splitlines() if len(line) > 50 and "***" not in line and line in said}


@given(text=st.text() | st.text(alphabet="SUABCDEFGHIJ234567", min_size=50, max_size=60))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_text_breaks_the_reading(tmp_path, text):
    path = tmp_path / "any"
    path.write_text(text)
    for field in ("nkey_file", "credentials_file", "ca_file"):
        assert refusal(**{field: path}).startswith(f"RCA_NATS__{field.upper()}: ")


def test_an_authority_is_the_only_one_that_is_trusted(file):
    context = security(NatsSettings(ca_file=file(trustme.CA().cert_pem.bytes()))).ssl_context
    assert (ssl.CERT_REQUIRED, True) == (context.verify_mode, context.check_hostname)
    assert 1 == context.cert_store_stats()["x509_ca"]
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2


def test_names_and_order_of_tls_are_passed_on():
    found = security(NatsSettings(tls_server_name="nats.example", tls_first=True))
    assert ("nats.example", True) == (found.tls_hostname, found.tls_handshake_first)
    assert found.ssl_context.check_hostname


def test_text_is_no_authority(file):
    assert "RCA_NATS__CA_FILE: not a PEM certificate" in refusal(ca_file=file("hello"))


def test_a_certificate_and_the_key_of_another_are_refused(file):
    ca = trustme.CA()
    one, other = ca.issue_cert("a"), ca.issue_cert("b")
    said = refusal(
        cert_file=file(one.cert_chain_pems[0].bytes(), "cert"),
        key_file=file(other.private_key_pem.bytes(), "key"),
    )
    assert "RCA_NATS__CERT_FILE, RCA_NATS__KEY_FILE: not a PEM certificate and its key" in said
    assert "KEY_VALUES_MISMATCH" in said


def test_a_key_with_a_pass_phrase_is_refused_and_nobody_is_asked_for_it(file):
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        PrivateFormat,
        load_pem_private_key,
    )

    leaf = trustme.CA().issue_cert("a")
    private = load_pem_private_key(leaf.private_key_pem.bytes(), None)
    locked = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"phrase"))
    said = refusal(cert_file=file(leaf.cert_chain_pems[0].bytes(), "cert"), key_file=file(locked, "key"))
    assert "without a pass phrase" in said
