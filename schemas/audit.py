"""The audit trail: one event per step of an analysis, in the order of the steps.

`correlation_id` is the remediation id. A worker that takes a request over publishes stored events again as
they are, so readers drop events whose `event_id` they have seen.

The events of a request are a chain: each has the hash of the one before (`schemas.chain` says how it is
computed). Every event belongs to one; messages that are rejected before a run begins, conflicts of keys and
the requests of operators leave no event but a message on another subject. A request has more than one chain
only if the journal of its earlier runs was gone (it is kept 24 hours) or could not be read to its end. A
chain ends with `response.complete` or `response.failed`, where it may be signed; after `response.failed` it
goes on when the dead letter is sent again.
"""

from __future__ import annotations

import enum
from typing import Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints
from pydantic.functional_validators import model_validator
from pydantic_core import PydanticCustomError

from schemas.analysis import Approval, Corroboration, DiagnosedCause, HumanReviewReason, Status
from schemas.enrichment import DetectedLabels
from schemas.failure import DeadLetterReason
from schemas.fields import Count, Flag, Fraction, Id, Message, Positive, Seconds, Sha256, Text, Timestamp
from schemas.taxonomy import RequestKind
from schemas.usage import Usage


class EventType(enum.StrEnum):
    """What happened."""

    REQUEST_ACCEPTED = "request.accepted"
    REQUEST_RESUMED = "request.resumed"
    ENRICHMENT_COMPLETED = "enrichment.completed"
    LLM_REQUEST = "llm.request"
    LLM_RESPONSE = "llm.response"
    LLM_TOOL_CALL = "llm.tool_call"
    VALIDATION_ATTEMPT = "workflow.validation_attempt"
    ALIGNMENT_CHECKED = "alignment.checked"
    CORROBORATION_CHECKED = "corroboration.checked"
    POLICY_DECIDED = "policy.decided"
    RESPONSE_COMPLETE = "response.complete"
    RESPONSE_FAILED = "response.failed"


class Outcome(enum.StrEnum):
    """The outcome of a step; `pending` if it will be retried."""

    SUCCESS = "success"
    FAILURE = "failure"
    PENDING = "pending"


ENDS = frozenset({EventType.RESPONSE_COMPLETE, EventType.RESPONSE_FAILED})
"""The events that end a chain."""


class RequestAccepted(Message):
    """A request was decoded and its analysis begins."""

    event_type: Literal[EventType.REQUEST_ACCEPTED] = EventType.REQUEST_ACCEPTED
    kind: RequestKind
    """The kind of the request."""
    subject: Text
    """The subject of the request."""
    request_digest: Sha256
    """Digest of the request."""
    ignored_fields: tuple[Text, ...] = ()
    """Paths of fields in the message that were ignored."""
    replayed: Flag = False
    """Whether the request is a replayed dead letter."""


class RequestResumed(Message):
    """Another run continues a request."""

    event_type: Literal[EventType.REQUEST_RESUMED] = EventType.REQUEST_RESUMED
    run: Text
    """The run that continues."""
    replayed_steps: Count
    """Number of journaled steps that are replayed."""
    deliveries: Count
    """How often the message was delivered."""
    continues: Sha256 | None = None
    """If this begins another chain: the hash of the last readable event of the previous chain."""


class EnrichmentCompleted(Message):
    """Facts about the resource were gathered."""

    event_type: Literal[EventType.ENRICHMENT_COMPLETED] = EventType.ENRICHMENT_COMPLETED
    evidence_ids: tuple[Text, ...] = ()
    """Ids of the gathered evidence."""
    failed_sources: tuple[Text, ...] = ()
    """Sources that could not be read."""
    detected_labels: DetectedLabels | None = None
    """Labels that were detected on the resource."""
    duration_seconds: Seconds = 0.0
    """How long it took."""


class LLMRequest(Message):
    """A model is about to be called."""

    event_type: Literal[EventType.LLM_REQUEST] = EventType.LLM_REQUEST
    call: Positive
    """Number of the call, counted from 1."""
    model: Text
    """The model that is called."""
    prompt_chars: Count
    """Size of the whole prompt, in characters."""
    prompt_preview: Annotated[str, StringConstraints(max_length=500)] = ""
    """The start of what is new since the previous call, with secrets removed. Tool results are left out,
    because they have events of their own."""
    tools: tuple[Text, ...] = ()
    """Names of the tools that are offered."""


class LLMResponse(Message):
    """A model answered."""

    event_type: Literal[EventType.LLM_RESPONSE] = EventType.LLM_RESPONSE
    call: Positive
    """Number of the call, counted from 1."""
    model: Text
    """The model that answered, as it names itself."""
    finish: Text
    """Why the model stopped."""
    response_chars: Count
    """Size of the text, in characters."""
    has_analysis: Flag = False
    """Whether it contains text, not only tool calls."""
    response_preview: Annotated[str, StringConstraints(max_length=500)] = ""
    """The start of the text, with secrets removed."""
    tool_calls: Count = 0
    """Number of requested tool calls, not counting the one that submits the answer."""
    usage: Usage = Usage()
    """Tokens and cost of this call."""
    duration_seconds: Seconds = 0.0
    """How long it took."""


class LLMToolCall(Message):
    """A tool was run for the model."""

    event_type: Literal[EventType.LLM_TOOL_CALL] = EventType.LLM_TOOL_CALL
    index: Positive
    """Number of the tool call in this request, counted from 1."""
    name: Text
    """Name of the tool."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the call, bounded, with secrets removed from names and values."""
    succeeded: Flag
    """Whether the tool returned a result, not an error."""
    result_chars: Count
    """Size of the result as the model saw it, in characters."""
    result_preview: Annotated[str, StringConstraints(max_length=500)] = ""
    """The start of the result, with secrets removed."""
    duration_seconds: Seconds = 0.0
    """How long it took."""


class ValidationAttempted(Message):
    """An answer of the model was checked."""

    event_type: Literal[EventType.VALIDATION_ATTEMPT] = EventType.VALIDATION_ATTEMPT
    attempt: Positive
    """Number of the answer, counted from 1."""
    max_attempts: Positive
    """How many answers are allowed."""
    is_valid: Flag
    """Whether the answer passed every check."""
    errors: tuple[Text, ...] = ()
    """Every error of the answer."""
    workflow_id: Text | None = None
    """The workflow that the answer named."""
    human_review_reason: HumanReviewReason | None = None
    """The reason for human review, unless a later answer is accepted."""
    is_final_attempt: Flag = False
    """Whether no further attempt follows."""


class AlignmentChecked(Message):
    """Some evidence reads like instructions to its reader, or a second model was asked for its choice."""

    event_type: Literal[EventType.ALIGNMENT_CHECKED] = EventType.ALIGNMENT_CHECKED
    suspicious: dict[Text, Text] = Field(default_factory=dict)
    """The suspicious words by the id of their evidence, with secrets removed."""
    second_model: Text | None = None
    """The second model, if it was asked."""
    problem: Text = ""
    """Why the second model made no choice; empty if it made one, or was not asked."""
    misaligned: Flag = False
    """Whether there is such text and the second model, which does not see it, chose otherwise."""


class CorroborationChecked(Message):
    """Rules checked the answer against the state of the cluster, or made a diagnosis without an answer."""

    event_type: Literal[EventType.CORROBORATION_CHECKED] = EventType.CORROBORATION_CHECKED
    corroboration: Corroboration | None = None
    """The finding about the answer; null if there is no answer."""
    causes: tuple[DiagnosedCause, ...] = ()
    """The causes that the rules found; only if there is no answer."""
    reads: Count = 0
    """Number of cluster reads that it took."""
    duration_seconds: Seconds = 0.0
    """How long it took."""


class PolicyDecided(Message):
    """Approval rules were evaluated."""

    event_type: Literal[EventType.POLICY_DECIDED] = EventType.POLICY_DECIDED
    policy: Text
    """The policy that decided."""
    approval: Approval
    """The decision of the policy."""
    injection_detected: Flag = False
    """Whether some evidence reads like instructions."""
    corroboration: Corroboration | None = None
    """Whether the state of the cluster confirms the answer."""
    parameters_of_model: tuple[Text, ...] = ()
    """Names of the workflow's parameters whose values only the model chose."""


class ResponseComplete(Message):
    """The result is ready to be published."""

    event_type: Literal[EventType.RESPONSE_COMPLETE] = EventType.RESPONSE_COMPLETE
    status: Status
    """The outcome of the request."""
    human_review_reason: HumanReviewReason | None = None
    """Why a human must review the result, if one must."""
    workflow_id: Text | None = None
    """The workflow that was selected."""
    confidence: Fraction | None = None
    """The model's confidence in the selected workflow."""
    approval_required: Flag = False
    """Whether a human must approve before the workflow is executed."""
    result_sha256: Sha256
    """SHA-256 of the published result."""
    usage: Usage = Usage()
    """Calls, tokens, cost and time of the analysis."""


class ResponseFailed(Message):
    """The request becomes a dead letter."""

    event_type: Literal[EventType.RESPONSE_FAILED] = EventType.RESPONSE_FAILED
    reason: DeadLetterReason
    """Why the request could not be served."""
    error: Text
    """The last error, in one line."""
    phase: Text = ""
    """The step in which the error occurred."""
    result_sha256: Sha256
    """SHA-256 of the body of the `failed` result."""
    usage: Usage = Usage()
    """Calls, tokens, cost and time until then."""


Payload = Annotated[
    RequestAccepted
    | RequestResumed
    | EnrichmentCompleted
    | LLMRequest
    | LLMResponse
    | LLMToolCall
    | ValidationAttempted
    | AlignmentChecked
    | CorroborationChecked
    | PolicyDecided
    | ResponseComplete
    | ResponseFailed,
    Field(discriminator="event_type"),
]


class Signature(Message):
    """A signature of the chain up to an event (Ed25519, RFC 8032)."""

    key_id: Sha256
    """SHA-256 of the 32 bytes of the public key."""
    value: Annotated[str, StringConstraints(strict=True, pattern=r"^[A-Za-z0-9+/]{86}==$")]
    """The signature in base64; `schemas.chain.head_text` is what is signed."""


class AuditEvent(Message):
    """`rca.audit.<event type>`: one step of an analysis."""

    event_id: Id
    """Unique id. It stays the same when the event is published again."""
    chain: Id
    """Id of the chain: the run that began it."""
    sequence: Positive
    """Position in the chain, counted from 1."""
    prev: Sha256
    """Hash of the previous event; for the first event, hash of the request key and the chain."""
    hash: Sha256
    """SHA-256 of the canonical JSON of the event without this field."""
    signature: Signature | None = None
    """Signature of the chain; only in its last event, if a key is configured."""
    event_type: EventType
    """What happened. It equals the event type of the payload."""
    outcome: Outcome = Outcome.SUCCESS
    """The outcome of the step."""
    time: Timestamp
    """When the step happened."""
    correlation_id: Id
    """The remediation id."""
    request_key: Text
    """Key of the request in subjects."""
    incident_id: Id
    """Id of the incident."""
    payload: Payload
    """What happened, in detail."""

    @model_validator(mode="after")
    def _one_type(self) -> Self:
        if self.payload.event_type is not self.event_type:
            raise PydanticCustomError("event_type", "the event type of the payload")
        return self
