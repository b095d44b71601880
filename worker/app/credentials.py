"""Credentials and TLS for NATS, from files. An error in a file names the variable that names the file.

Files are read once. After a renewal the server ends the connection of an old JWT, and the worker is started again.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nkeys  # type: ignore[import-untyped]  # it ships no types
from faststream.nats import NatsCredentials, NatsNKey, NatsUserPassword
from faststream.nats.security import NatsSecurity

from worker.app.settings import ConfigurationError, read_text
from worker.app.settings.groups import NatsSettings

MAX_BYTES = 1_000_000
JWT_BEGIN, SEED_BEGIN = "BEGIN NATS USER JWT", "BEGIN USER NKEY SEED"
JWT_PARTS = 3


def security(settings: NatsSettings) -> NatsSecurity:
    """Credentials and TLS as FastStream takes them. Raises ConfigurationError."""
    tls: dict[str, Any] = {
        "ssl_context": _context(settings),
        "tls_hostname": settings.tls_server_name or None,
        "tls_handshake_first": settings.tls_first,
    }
    if settings.credentials_file:
        return NatsCredentials.from_raw(_credentials(settings.credentials_file), **tls)
    if settings.nkey_file:
        name = "RCA_NATS__NKEY_FILE"
        return NatsNKey.from_seed(_seed(name, read_text(name, settings.nkey_file, MAX_BYTES)), **tls)
    if settings.user:
        return NatsUserPassword(settings.user, settings.password.get_secret_value(), **tls)
    return NatsSecurity(**tls)


def _context(settings: NatsSettings) -> ssl.SSLContext | None:
    if not (settings.ca_file or settings.cert_file or settings.tls_first):
        return None  # a server that requires TLS is verified with the system's authorities
    if settings.ca_file:
        read_text("RCA_NATS__CA_FILE", settings.ca_file, MAX_BYTES)
    with _explained("RCA_NATS__CA_FILE: not a PEM certificate"):
        context = ssl.create_default_context(
            cafile=settings.ca_file
        )  # with a file: this authority and no other
    context.minimum_version = ssl.TLSVersion.TLSv1_2  # Debian's Python leaves it to the system's policy
    if settings.cert_file and settings.key_file:
        for name, path in (
            ("RCA_NATS__CERT_FILE", settings.cert_file),
            ("RCA_NATS__KEY_FILE", settings.key_file),
        ):
            read_text(name, path, MAX_BYTES)
        with _explained(
            "RCA_NATS__CERT_FILE, RCA_NATS__KEY_FILE: not a PEM certificate and its key, without a pass phrase"
        ):
            # Without the argument OpenSSL asks the terminal for the pass phrase of a key that has one.
            context.load_cert_chain(settings.cert_file, settings.key_file, password="")
    return context


def _credentials(path: Path) -> str:
    name = "RCA_NATS__CREDENTIALS_FILE"
    text = read_text(name, path, MAX_BYTES)
    jwt, seed = _after(JWT_BEGIN, text), _after(SEED_BEGIN, text)
    if jwt.count(".") != JWT_PARTS - 1:
        raise ConfigurationError(f"{name}: no user JWT in {path}")
    _seed(name, seed)
    return text


def _after(marker: str, text: str) -> str:
    """The line after the one with the marker; empty when there is none."""
    lines = iter(text.splitlines())
    return next((next(lines, "").strip() for line in lines if marker in line), "")


def _seed(name: str, text: str) -> str:
    seed = text.strip()
    try:
        pair = nkeys.from_seed(bytearray(seed.encode()))
        is_user = pair.public_key.startswith(b"U")
        pair.wipe()
    except (nkeys.NkeysError, ValueError, IndexError):
        is_user = False
    if not is_user:
        raise ConfigurationError(f"{name}: not the NKey seed of a user (SU...)") from None
    return seed


@contextmanager
def _explained(problem: str) -> Iterator[None]:
    try:
        yield
    except (ssl.SSLError, ValueError) as e:
        reason = e.reason if isinstance(e, ssl.SSLError) and e.reason else type(e).__name__
        raise ConfigurationError(f"{problem} ({reason})") from None
