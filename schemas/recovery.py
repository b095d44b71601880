"""The request to analyse again after a remediation failed (DD-RECOVERY-002, DD-RECOVERY-003)."""

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
    """The root cause as it was understood then."""
    signal_type: NonBlank
    """The signal type that was determined then."""
    severity: SeverityWord
    """The severity that was assessed then."""
    contributing_factors: Annotated[tuple[LongText, ...], AtMost(MAX_ITEMS)] = ()
    """Factors that contributed to the root cause."""


class SelectedWorkflowSummary(Message):
    """The workflow that was executed and failed."""

    workflow_id: NonBlank
    """Id of the workflow in the catalog."""
    version: ShortText
    """Version of the workflow."""
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
    """Parameters of the execution. Scalars are converted to text."""
    rationale: LongText
    """Why the workflow was selected."""


class ExecutionFailure(Message):
    """How the execution failed."""

    failed_step_index: Count
    """Index of the failed step, counted from 0."""
    failed_step_name: ShortText
    """Name of the failed step."""
    reason: Annotated[str, StringConstraints(strict=True, pattern=r"^[A-Z][A-Za-z0-9]*$", max_length=128)]
    """A reason code as Kubernetes writes them (`DeadlineExceeded`), not prose. Any such code is accepted."""
    message: LongText
    """The error message of the failure."""
    exit_code: Annotated[int, Field(strict=True, ge=INT64_MIN, le=INT64_MAX)] | None = None
    """Exit code of the failed step, if it had one."""
    failed_at: Timestamp
    """When the execution failed."""
    execution_time: ShortText
    """How long the execution had run, such as `2m34s`."""


class PreviousExecution(Message):
    """The previous attempt, which failed."""

    workflow_execution_ref: Id
    """Name of the failed WorkflowExecution."""
    original_rca: OriginalRCA
    """The root cause analysis on which the execution was based."""
    selected_workflow: SelectedWorkflowSummary
    """The workflow that was executed."""
    failure: ExecutionFailure
    """The failure of this execution."""


class RecoveryRequest(Signal):
    """Analyse again: `rca.request.recovery`, with a suffix `.p0` to `.p3` for a priority lane."""

    is_recovery_attempt: Annotated[
        Literal[True], BeforeValidator(_always_true), WithJsonSchema({"const": True})
    ]
    """Always true."""
    recovery_attempt_number: Positive
    """Number of this recovery attempt, counted from 1. It is part of the request key."""
    previous_execution: PreviousExecution
    """The attempt that failed."""
    enrichment_results: EnrichmentResults
    """What is known about the resource; may be empty."""
