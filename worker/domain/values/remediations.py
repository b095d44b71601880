"""Past remediations of a resource: what was executed, and its outcome (ADR-055, DD-HAPI-016)."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from schemas.outcome import ExecutionOutcome, RemediationOutcome

GOOD, MODERATE = 0.7, 0.4
SPEC_DRIFT = "specdrift"


class SpecMatch(enum.StrEnum):
    """How the present spec relates to a remediation."""

    BEFORE = "preRemediation"
    AFTER = "postRemediation"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class PastRemediation:
    """One remediation of a resource. Unknown values are empty or None.

    `id` is the request key. `at` is when it was executed, or chosen. `status` is that of our result,
    `outcome` a value of ExecutionOutcome or a word of the store, empty when none was reported. `score` is 0
    to 1. `drifted`: the spec was changed while the effect was assessed, so that `score` and `resolved` say
    nothing. `match` is the comparison of the store, if it compares specs itself.
    """

    id: str
    at: datetime | None = None
    workflow_id: str = ""
    action_type: str = ""
    signal_type: str = ""
    parameters_digest: str = ""
    status: str = ""
    outcome: str = ""
    score: float | None = None
    resolved: bool | None = None
    drifted: bool = False
    pre_hash: str = ""
    post_hash: str = ""
    match: SpecMatch | None = None
    side_effects: tuple[str, ...] = ()

    @property
    def action(self) -> str:
        """The action type, or the workflow id if that is unknown."""
        return self.action_type or self.workflow_id

    @property
    def unsuccessful(self) -> bool:
        """True if it was executed and is known not to have helped."""
        if self.outcome == ExecutionOutcome.FAILED:
            return True
        poor = self.score is not None and self.score < MODERATE
        return (
            self.outcome == ExecutionOutcome.COMPLETED
            and not self.drifted
            and (self.resolved is False or poor)
        )

    @property
    def successful(self) -> bool:
        """True if it was executed and known to help: the signal was resolved, or the score is good."""
        good = self.score is not None and self.score >= GOOD
        helped = good if self.resolved is None else self.resolved
        return (
            self.outcome == ExecutionOutcome.COMPLETED
            and helped
            and not self.drifted
            and not self.unsuccessful
        )

    def matches(self, spec_hash: str) -> SpecMatch | None:
        """Return how the present spec relates to it; None if that is unknown.

        A spec that is the same before and after counts as before.
        """
        if spec_hash and spec_hash == self.pre_hash:
            return SpecMatch.BEFORE
        if spec_hash and spec_hash == self.post_hash:
            return SpecMatch.AFTER
        if self.match is not None:
            return self.match
        return SpecMatch.NONE if spec_hash and self.pre_hash and self.post_hash else None

    def reported(self, outcome: RemediationOutcome) -> PastRemediation:
        """The remediation as its executor reports it."""
        return replace(
            self,
            at=outcome.completed_at,
            workflow_id=outcome.workflow_id,
            outcome=outcome.outcome,
            score=outcome.effectiveness_score,
            resolved=outcome.signal_resolved,
            drifted=spec_drifted(outcome.assessment_reason),
        )


def spec_drifted(assessment_reason: str) -> bool:
    """True if the spec was changed while the effect was assessed.

    The reason may be `SpecDrift` or `spec_drift`.
    """
    return assessment_reason.replace("_", "").casefold() == SPEC_DRIFT


@dataclass(frozen=True, slots=True)
class TrackRecord:
    """How often an action was proposed in an environment, and is known to have helped or failed."""

    proposed: int = 0
    succeeded: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class Past:
    """Remediations of a resource, in any order.

    `regression`: by the store, an earlier spec is in place again.
    """

    remediations: tuple[PastRemediation, ...] = ()
    regression: bool = False


@dataclass(frozen=True, slots=True)
class FailedExecution:
    """The workflow that was executed and failed, with its parameters as text."""

    workflow_id: str
    parameters: Mapping[str, str] = field(default_factory=dict)
