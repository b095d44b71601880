"""The connection to NATS as FastStream's broker: addresses, credentials, TLS, and the declared outputs.

An error in a file of credentials names the variable that names the file. Files are read once: after a renewal
the server ends the connection of an old JWT, and the worker is started again.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nkeys  # type: ignore[import-untyped]  # it ships no types
from faststream.nats import JStream, NatsBroker, NatsCredentials, NatsNKey, NatsUserPassword
from faststream.nats.security import NatsSecurity
from nats.aio.client import Client

from schemas.analysis import AnalysisResult
from schemas.audit import AuditEvent
from schemas.failure import ValidationFailure
from schemas.subjects import Subjects
from worker.app.link import BrokerLink
from worker.app.settings.environment import ConfigurationError, read_text
from worker.app.settings.groups import NatsSettings

OLDEST_SERVER = (2, 11)
"""Older servers have no fence over several subjects, which the journal needs
(Nats-Expected-Last-Subject-Sequence-Subject).
"""
MIN_MAX_PAYLOAD = 2_000_000
"""In bytes, for the largest request with its headers in a dead letter."""
CONNECTION: dict[str, Any] = {
    "max_reconnect_attempts": -1,  # the default gives up after 60 tries and closes for good
    "reconnect_time_wait": 1,
    "ping_interval": 10,  # else a silent partition goes unnoticed for minutes
    "max_outstanding_pings": 2,
}
MAX_FILE_BYTES = 1_000_000
JWT_BEGIN, SEED_BEGIN = "BEGIN NATS USER JWT", "BEGIN USER NKEY SEED"
JWT_PARTS = 3


def make_broker(settings: NatsSettings, link: BrokerLink, *, name: str = "rca-worker") -> NatsBroker:
    """A broker that reconnects for ever, and tells `link` what happens to it. Not connected yet.

    Raises ConfigurationError for credentials and certificates that cannot be read.
    """
    broker = NatsBroker(
        list(settings.servers),
        security=security(settings),
        name=name,
        logger=None,
        inbox_prefix=settings.inbox_prefix,
        error_cb=link.on_error,
        closed_cb=link.on_closed,
        reconnected_cb=link.on_reconnected,
        **CONNECTION,
    )
    _declare(broker, Subjects(settings.prefix))
    return broker


def unsuitable(nc: Client) -> str:
    """Return why a worker cannot use this server; empty if it can."""
    version = nc.connected_server_version
    if (version.major, version.minor) < OLDEST_SERVER:
        return f"the NATS server has version {version.major}.{version.minor}; a worker needs {'.'.join(map(str, OLDEST_SERVER))}"
    if nc.max_payload < MIN_MAX_PAYLOAD:
        return f"the NATS server allows messages of {nc.max_payload:,} bytes; set max_payload to 2MB in its configuration"
    return ""


def missing_tls(settings: NatsSettings, nc: Client) -> str:
    """The problem if TLS is wanted and the server has none, which nats-py ignores silently; else empty."""
    wanted = settings.ca_file or settings.cert_file
    if not wanted or nc._server_info.get("tls_required"):  # noqa: SLF001 - nats-py says it nowhere else
        return ""
    return "the NATS server offers no TLS, which RCA_NATS__CA_FILE and RCA_NATS__CERT_FILE ask for"


def _declare(broker: NatsBroker, subjects: Subjects) -> None:
    """Outputs as FastStream publishers, so that AsyncAPI shows them.

    The adapters publish, with their fences.
    """
    outputs = [
        (subjects.result_subjects(), subjects.results_stream, AnalysisResult),
        (subjects.validation_subjects(), subjects.validation_stream, ValidationFailure),
        ((subjects.audit(">"),), subjects.audit_stream, AuditEvent),
    ]
    for names, stream, model in outputs:
        for subject in names:
            broker.publisher(subject, stream=JStream(stream, declare=False), schema=model)


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
        return NatsNKey.from_seed(_seed(name, read_text(name, settings.nkey_file, MAX_FILE_BYTES)), **tls)
    if settings.user:
        return NatsUserPassword(settings.user, settings.password.get_secret_value(), **tls)
    return NatsSecurity(**tls)


def _context(settings: NatsSettings) -> ssl.SSLContext | None:
    if not (settings.ca_file or settings.cert_file or settings.tls_first):
        return None  # a server that requires TLS is verified with the system's authorities
    if settings.ca_file:
        read_text("RCA_NATS__CA_FILE", settings.ca_file, MAX_FILE_BYTES)
    with _explained("RCA_NATS__CA_FILE: not a PEM certificate"):
        # With a file: this authority and no other.
        context = ssl.create_default_context(cafile=settings.ca_file)
    context.minimum_version = ssl.TLSVersion.TLSv1_2  # Debian's Python leaves it to the system's policy
    if settings.cert_file and settings.key_file:
        for name, path in (
            ("RCA_NATS__CERT_FILE", settings.cert_file),
            ("RCA_NATS__KEY_FILE", settings.key_file),
        ):
            read_text(name, path, MAX_FILE_BYTES)
        with _explained(
            "RCA_NATS__CERT_FILE, RCA_NATS__KEY_FILE: not a PEM certificate and its key, without a pass phrase"
        ):
            # Without the argument OpenSSL asks the terminal for the pass phrase of a key that has one.
            context.load_cert_chain(settings.cert_file, settings.key_file, password="")
    return context


def _credentials(path: Path) -> str:
    name = "RCA_NATS__CREDENTIALS_FILE"
    text = read_text(name, path, MAX_FILE_BYTES)
    jwt, seed = _after(JWT_BEGIN, text), _after(SEED_BEGIN, text)
    if jwt.count(".") != JWT_PARTS - 1:
        raise ConfigurationError(f"{name}: no user JWT in {path}")
    _seed(name, seed)
    return text


def _after(marker: str, text: str) -> str:
    """The line after the one with the marker; empty if there is none."""
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
