"""The answer of a model, in one shape, whatever form it was written in.

Values that the verdict has to judge stay as the model wrote them: a severity outside the list or a parameter
of the wrong type is kept here and rejected there.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from worker.domain.values.objects import ObjectRef


class InvestigationOutcome(enum.StrEnum):
    """How the investigation ended, in the words of the model."""

    ACTIONABLE = "actionable"
    NOT_ACTIONABLE = "not_actionable"
    PROBLEM_RESOLVED = "problem_resolved"
    INCONCLUSIVE = "inconclusive"
    INSUFFICIENT_DATA = "insufficient_data"


@dataclass(frozen=True, slots=True)
class AnsweredWorkflow:
    """The workflow the model chose. `confidence` is 0..1, or None when absent or out of range.

    `by_action`: the model named an action instead of an id, which may stand for the only workflow that takes
    it.
    """

    workflow_id: str
    confidence: float | None = None
    version: str = ""
    container_image: str = ""
    rationale: str = ""
    estimated_risk: str = ""
    estimated_downtime_seconds: int | None = None
    impact_on_dependencies: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    by_action: bool = False


@dataclass(frozen=True, slots=True)
class AnsweredAlternative:
    """Another workflow that the model considered: context for a human, never a fallback."""

    workflow_id: str
    confidence: float | None = None
    rationale: str = ""


@dataclass(frozen=True, slots=True)
class AnsweredClaim:
    """A step of the causal chain, and the ids of the evidence that it cites, whether or not they exist."""

    text: str
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """Everything the model said, in one shape. `workflow_stated`: it named a workflow or said null.

    `affected_resource` is the object that it blames, with an empty text for each part that it does not name.
    `asks_for_human`: it asks for a human to review or approve. That can only make the result stricter.
    """

    summary: str = ""
    severity: str = ""
    signal_type: str = ""
    contributing_factors: tuple[str, ...] = ()
    causal_chain: tuple[AnsweredClaim, ...] = ()
    affected_resource: ObjectRef | None = None
    selected_workflow: AnsweredWorkflow | None = None
    workflow_stated: bool = False
    alternatives: tuple[AnsweredAlternative, ...] = ()
    outcome: str = ""
    rationale: str = ""
    confidence: float | None = None
    asks_for_human: bool = False
    warnings: tuple[str, ...] = ()
    context_used: Mapping[str, str] = field(default_factory=dict)
    recovery_analysis: Mapping[str, Any] | None = None
    recovery_strategy: Mapping[str, Any] | None = None
    prose: str = ""
    notes: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()


class Unreadable(enum.StrEnum):
    """Why no answer could be read."""

    EMPTY = "empty"
    TOO_LONG = "too_long"
    REFUSED = "refused"
    UNFINISHED = "unfinished"
    TOOL_CALL = "tool_call"
    IN_THOUGHT = "in_thought"
    NO_JSON = "no_json"
    NO_ANSWER = "no_answer"
    ESCAPED = "escaped"
    TRUNCATED = "truncated"
    BROKEN_JSON = "broken_json"
    CONTRADICTORY = "contradictory"


HOW_TO_ANSWER = (
    "Answer again in full: call submit_result once. If you cannot call it, write the same object as JSON in one ```json"
    ' fence, with "root_cause_analysis" (summary, severity, signal_type, contributing_factors, affectedResource),'
    ' "confidence" and "selected_workflow" (workflow_id, confidence, rationale, parameters; or null when no workflow fits).'
)


class UnreadableAnswer(Exception):  # noqa: N818 - a state of the answer
    """No answer could be read, for this `reason`. `problem` is what the model is told."""

    def __init__(self, reason: Unreadable, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.problem = Problem(ProblemKind.UNREADABLE, "", f"{message} {HOW_TO_ANSWER}")


class ProblemKind(enum.StrEnum):
    """Kinds of problems. The first kind in this order decides the reason for human review."""

    UNREADABLE = "unreadable"
    RCA = "rca"
    WORKFLOW_UNKNOWN = "workflow_unknown"
    WORKFLOW_MISMATCH = "workflow_mismatch"
    PARAMETERS = "parameters"
    FORBIDDEN = "forbidden"


@dataclass(frozen=True, slots=True)
class Problem:
    """Why an answer is rejected, and how to correct it.

    The path names the place in the answer (`selected_workflow.parameters.NEW_SIZE`).
    """

    kind: ProblemKind
    path: str
    message: str
