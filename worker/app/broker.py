"""The connection to NATS as FastStream's broker: addresses, credentials, TLS, and the declared outputs."""

from __future__ import annotations

import ssl
from typing import Any

import nats.errors
from faststream.nats import JStream, NatsBroker, NatsCredentials, NatsNKey, NatsUserPassword
from faststream.security import BaseSecurity

from schemas.analysis import AnalysisResult
from schemas.audit import AuditEvent
from schemas.failure import ValidationFailure
from schemas.subjects import Subjects
from schemas.taxonomy import RequestKind
from worker.app.settings import NatsSettings

CONNECTION: dict[str, Any] = {
    "max_reconnect_attempts": -1,  # the default gives up after 60 tries and closes for good
    "reconnect_time_wait": 1,
    "ping_interval": 10,  # otherwise a silent partition goes unnoticed for minutes
    "max_outstanding_pings": 2,
}


def make_broker(settings: NatsSettings, *, name: str = "rca-worker") -> NatsBroker:
    """A broker that reconnects for ever. Not connected yet."""
    broker = NatsBroker(
        list(settings.servers), security=_security(settings), name=name, logger=None, **CONNECTION
    )
    _declare(broker, Subjects(settings.prefix))
    return broker


def _security(settings: NatsSettings) -> BaseSecurity | None:
    context = ssl.create_default_context(cafile=str(settings.ca_file)) if settings.ca_file else None
    if settings.credentials_file:
        return NatsCredentials(str(settings.credentials_file), ssl_context=context)
    if settings.nkey_file:
        return NatsNKey.from_file(str(settings.nkey_file), ssl_context=context)
    if settings.user:
        return NatsUserPassword(settings.user, settings.password.get_secret_value(), ssl_context=context)
    return BaseSecurity(ssl_context=context) if context else None


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


def refusal(problem: Exception) -> str:
    """What to do about credentials that the server does not take; empty for any other problem."""
    said = str(problem)
    if isinstance(problem, nats.errors.Error) and "auth" in said.lower():
        return (
            f"the NATS server refuses the credentials ({said}); check RCA_NATS__USER and RCA_NATS__PASSWORD, "
            "RCA_NATS__NKEY_FILE or RCA_NATS__CREDENTIALS_FILE"
        )
    return ""
