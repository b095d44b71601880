"""The request: analyse again after a remediation failed (DD-RECOVERY-002, DD-RECOVERY-003)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StringConstraints, WithJsonSchema
from pydantic_core import PydanticCustomError

from schemas.enrichment import EnrichmentResults
from schemas.fields import (
    INT64_MAX,
    INT64_MIN,
    MAX_ITEMS,
    AtMost,
    Count,
    Id,
    LongText,
    Message,
    NonBlank,
    Positive,
    ShortText,
    Timestamp,
)
from schemas.incident import Signal
from schemas.taxonomy import SeverityWord


def _always_true(value: Any) -> Any:
    if value is not True:
        raise PydanticCustomError("wrong_kind", "true: other requests go to the incident subject")
    return value


def _scalars_as_text(value: Any) -> Any:
    """Turn scalars into text as JSON writes them (`5`, `true`).

    Null means absent. Anything else is left to validation, which rejects it.
    """
    if not isinstance(value, Mapping):
        return value
    return {
        name: json.dumps(item) if isinstance(item, (bool, int, float)) else item
        for name, item in value.items()
        if item is not None
    }


class OriginalRCA(Message):
    """The root cause analysis that led to the failed remediation."""

    summary: LongText
    """The root cause as it was seen then."""
    signal_type: NonBlank
    """The signal type as it was determined then."""
    severity: SeverityWord
    """The severity as it was assessed then."""
    contributing_factors: Annotated[tuple[LongText, ...], AtMost(MAX_ITEMS)] = ()
    """What contributed."""


class SelectedWorkflowSummary(Message):
    """The workflow that was executed and failed."""

    workflow_id: NonBlank
    """Its id in the catalog."""
    version: ShortText
    """Its version."""
    container_image: ShortText
    """The image or bundle that was run."""
    parameters: Annotated[
        dict[ShortText, LongText],
        AtMost(MAX_ITEMS),
        BeforeValidator(_scalars_as_text),
        WithJsonSchema(
            {
                "type": "object",
                "additionalProperties": {
                    "anyOf": [{"type": t} for t in ("string", "number", "boolean", "null")]
                },
            }
        ),
    ] = Field(default_factory=dict)
    """What it was given. Scalars are turned to text."""
    rationale: LongText
    """Why it was selected."""


class ExecutionFailure(Message):
    """How the execution failed."""

    failed_step_index: Count
    """The failed step, counted from 0."""
    failed_step_name: ShortText
    """Its name."""
    reason: Annotated[str, StringConstraints(strict=True, pattern=r"^[A-Z][A-Za-z0-9]*$", max_length=128)]
    """A reason code as Kubernetes writes them (`DeadlineExceeded`), never prose. Unlisted codes are legal."""
    message: LongText
    """The error message."""
    exit_code: Annotated[int, Field(strict=True, ge=INT64_MIN, le=INT64_MAX)] | None = None
    """Exit code, if there was one."""
    failed_at: Timestamp
    """When it failed."""
    execution_time: ShortText
    """How long it had run, such as `2m34s`."""


class PreviousExecution(Message):
    """The attempt before, that failed."""

    workflow_execution_ref: Id
    """Name of the failed WorkflowExecution."""
    original_rca: OriginalRCA
    """What was believed to be the cause."""
    selected_workflow: SelectedWorkflowSummary
    """What was done about it."""
    failure: ExecutionFailure
    """How that failed."""


class RecoveryRequest(Signal):
    """Analyse again: `rca.request.recovery`, or `.p0` to `.p3` behind it for a lane."""

    is_recovery_attempt: Annotated[
        Literal[True], BeforeValidator(_always_true), WithJsonSchema({"const": True})
    ]
    """Always true."""
    recovery_attempt_number: Positive
    """Which recovery attempt this is, counted from 1. Part of the request key."""
    previous_execution: PreviousExecution
    """The attempt that failed."""
    enrichment_results: EnrichmentResults
    """What was known about the resource; may be empty."""
