"""A request that passed validation, as every later stage sees it.

Also in the terms of the checks: labels of the search, names it mentions, the execution that failed before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property

from schemas.enrichment import EnrichmentResults
from schemas.incident import IncidentRequest, Signal, request_digest
from schemas.recovery import RecoveryRequest
from schemas.subjects import REPLAY_HEADER, Subjects, request_key
from schemas.taxonomy import UNKNOWN_ENVIRONMENT, RequestKind
from worker.domain.cluster.kinds import KINDS, SPELLINGS, canonical_kind
from worker.domain.intake.decode import InvalidRequest, decode
from worker.domain.values.delivery import Delivery
from worker.domain.values.objects import ObjectRef
from worker.domain.values.remediations import FailedExecution
from worker.domain.values.workflows import SelectionContext

NAME = r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?(?![a-zA-Z0-9-])"
KIND = rf"(?i:{'|'.join(sorted(SPELLINGS, key=len, reverse=True))})"
QUOTED = re.compile(rf"""["'`]({NAME})["'`]""")
BEHIND_SLASH = re.compile(rf"(?<![a-zA-Z0-9./-]){KIND}/({NAME})")
BEHIND_KIND = re.compile(rf"""(?<![a-zA-Z0-9./-]){KIND}[\s:=(\[]{{1,3}}(?=[a-z.]*[0-9-])({NAME})""")
"""A kind before a name, as in `pod api-0`.

Without a sign that it is a name, it could be any word of a sentence.
"""

ALERT_WINDOW = timedelta(minutes=15)
"""How long a condition lasts before alerts of the kubernetes mixin fire on it."""


@dataclass(frozen=True)
class AcceptedRequest:
    """A valid request and where it came from. `body` holds the bytes of the message.

    `ignored_fields`: paths in the message that the worker does not read. `notes`: remarks for the result.
    `replayed`: a dead letter that was sent again, whose `failed` result may be replaced. `known_digest`: the
    digest of the original, if this request was redacted.
    """

    request: Signal
    delivery: Delivery
    body: bytes = b""
    ignored_fields: tuple[str, ...] = ()
    replayed: bool = False
    notes: tuple[str, ...] = ()
    known_digest: str = ""

    @property
    def kind(self) -> RequestKind:
        """Incident or recovery."""
        return RequestKind.RECOVERY if isinstance(self.request, RecoveryRequest) else RequestKind.INCIDENT

    @cached_property
    def key(self) -> str:
        """The key of its result, its journal and its audit trail."""
        return request_key(self.request.remediation_id, attempt_number(self.request))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of its content: tells another request with the same key apart."""
        return self.known_digest or request_digest(self.request)


def accept(
    body: bytes, headers: Mapping[str, str], delivery: Delivery, subjects: Subjects, cluster_name: str = ""
) -> AcceptedRequest | InvalidRequest:
    """Decode a message. Its hostile `headers` are read only for the mark of a replayed dead letter."""
    parsed = subjects.parse_request(delivery.subject)
    kind = parsed[0] if parsed else RequestKind.INCIDENT
    decoded = decode(body, kind, delivery.stored_at, cluster_name)
    if isinstance(decoded, InvalidRequest):
        return decoded
    return AcceptedRequest(
        decoded.request, delivery, body, decoded.ignored_fields, REPLAY_HEADER in headers, decoded.notes
    )


def base_context(request: Signal) -> SelectionContext:
    """Labels that come from the request and that the model cannot override.

    Labels that were not given constrain nothing.
    """
    sent = sent_enrichment(request)
    return SelectionContext(
        environment="" if request.environment == UNKNOWN_ENVIRONMENT else request.environment,
        priority=request.priority,
        risk_tolerance=request.risk_tolerance or "",
        business_category=request.business_category or "",
        cluster=request.cluster_name,
        custom_labels=sent.custom_labels if sent else {},
    )


def sent_enrichment(request: Signal) -> EnrichmentResults | None:
    """The enrichment of the sender, if it sent any."""
    return request.enrichment_results if isinstance(request, IncidentRequest | RecoveryRequest) else None


def signal_resource(request: Signal) -> ObjectRef:
    """The resource the signal is about."""
    namespace = "" if request.is_cluster_scoped else request.resource_namespace
    return ObjectRef(request.resource_kind, request.resource_name, namespace, request.resource_api_version)


def reported_condition(request: Signal) -> str:
    """The condition of the signal's resource that the alert reports; empty for a storm of alerts."""
    return "" if request.is_storm else request.signal_type


def alert_window(request: Signal) -> timedelta:
    """How long the opposite must hold to end the alert: as long as the signal recurred, at least 15 min."""
    first, last = request.first_seen or request.firing_time, request.last_seen or request.received_time
    return max(ALERT_WINDOW, last - first) if first else ALERT_WINDOW


def requested_names(request: Signal) -> frozenset[str]:
    """Names of objects of its own namespace that the request mentions in its texts, besides its resource.

    A word is a name if it follows the namespace or a kind (`shop/api-0`, `pod/api-0`, `node [worker-1]`), in
    quotes, or as the value of a label that is called like a kind.
    """
    home = request.resource_name if request.resource_kind == "Namespace" else request.resource_namespace
    behind = re.compile(rf"(?<![a-zA-Z0-9./-]){re.escape(home)}/({NAME})") if home else re.compile(r"(?!)()")
    names: set[str] = set()
    for text in (request.error_message, request.description, *request.signal_labels.values()):
        for form in (behind, QUOTED, BEHIND_SLASH, BEHIND_KIND):
            names.update(form.findall(text))
    names.update(value for label, value in request.signal_labels.items() if _is_kind(label))
    return frozenset(names - {""})


def _is_kind(label: str) -> bool:
    return canonical_kind(label.removesuffix("_name")) in KINDS


def failed_execution(request: Signal) -> FailedExecution | None:
    """For a recovery, the execution that failed before."""
    if not isinstance(request, RecoveryRequest):
        return None
    failed = request.previous_execution.selected_workflow
    return FailedExecution(failed.workflow_id, failed.parameters)


def attempt_number(request: Signal) -> int | None:
    """The number of the recovery attempt; None for an incident."""
    return request.recovery_attempt_number if isinstance(request, RecoveryRequest) else None
