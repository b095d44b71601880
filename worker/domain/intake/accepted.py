"""A request that passed validation, as every later stage sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from schemas.incident import Signal, request_digest
from schemas.recovery import RecoveryRequest
from schemas.subjects import REPLAY_HEADER, Subjects, request_key
from schemas.taxonomy import RequestKind
from worker.domain.intake.context import attempt_number
from worker.domain.intake.decode import InvalidRequest, decode
from worker.domain.values.delivery import Delivery


@dataclass(frozen=True)
class AcceptedRequest:
    """A valid request and where it came from. `body` holds the bytes of the message.

    `ignored_fields`: paths in the message that the worker does not read. `notes`: remarks for the result.
    `replayed`: a dead letter that was sent again, whose `failed` result may be replaced.
    """

    request: Signal
    delivery: Delivery
    body: bytes = b""
    ignored_fields: tuple[str, ...] = ()
    replayed: bool = False
    notes: tuple[str, ...] = ()

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
        return request_digest(self.request)


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
