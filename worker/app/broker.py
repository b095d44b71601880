"""The connection to NATS as FastStream's broker: addresses, credentials, TLS, and the declared outputs."""

from __future__ import annotations

from typing import Any

from faststream.nats import JStream, NatsBroker
from nats.aio.client import Client

from schemas.analysis import AnalysisResult
from schemas.audit import AuditEvent
from schemas.failure import ValidationFailure
from schemas.subjects import Subjects
from schemas.taxonomy import RequestKind
from worker.app.credentials import security
from worker.app.link import BrokerLink
from worker.app.settings.groups import NatsSettings

OLDEST_SERVER = (2, 11)
"""Older ones know no fence over several subjects, which the journal needs (Nats-Expected-Last-Subject-Sequence-Subject)."""
MIN_MAX_PAYLOAD = 2_000_000
"""In bytes: a request at its cap, its headers and a dead letter's envelope."""
CONNECTION: dict[str, Any] = {
    "max_reconnect_attempts": -1,  # the default gives up after 60 tries and closes for good
    "reconnect_time_wait": 1,
    "ping_interval": 10,  # otherwise a silent partition goes unnoticed for minutes
    "max_outstanding_pings": 2,
}


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
    """Why a worker cannot use this server; empty when it can."""
    version = nc.connected_server_version
    if (version.major, version.minor) < OLDEST_SERVER:
        return f"the NATS server has version {version.major}.{version.minor}; a worker needs {'.'.join(map(str, OLDEST_SERVER))}"
    if nc.max_payload < MIN_MAX_PAYLOAD:
        return f"the NATS server allows messages of {nc.max_payload:,} bytes; set max_payload to 2MB in its configuration"
    return ""


def missing_tls(settings: NatsSettings, nc: Client) -> str:
    """What is wrong when TLS is wanted and the server has none; nats-py then goes on without a word."""
    wanted = settings.ca_file or settings.cert_file
    if not wanted or nc._server_info.get("tls_required"):  # noqa: SLF001 - nats-py says it nowhere else
        return ""
    return "the NATS server speaks no TLS, which RCA_NATS__CA_FILE and RCA_NATS__CERT_FILE ask for"


def _declare(broker: NatsBroker, subjects: Subjects) -> None:
    """Outputs as FastStream publishers, so that AsyncAPI shows them. The adapters publish, with their fences."""
    outputs: list[tuple[str, str, Any]] = [
        (subjects.result(kind, pattern), subjects.results_stream, AnalysisResult)
        for kind, pattern in ((RequestKind.INCIDENT, "*"), (RequestKind.RECOVERY, "*.*"))
    ]
    outputs += [
        (subjects.validation_request(), subjects.validation_stream, ValidationFailure),
        (subjects.validation_response(">"), subjects.validation_stream, ValidationFailure),
        (subjects.audit(">"), subjects.audit_stream, AuditEvent),
    ]
    for subject, stream, model in outputs:
        broker.publisher(subject, stream=JStream(stream, declare=False), schema=model)
