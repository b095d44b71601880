"""What became of the workflows that were proposed: results set against the outcomes that executors published.

`rca outcomes report` and the policy input (`track_record`) count alike. A workflow counts as proposed when a completed result
selects it. It succeeded or failed when it was executed as proposed and is known to have helped or not to have helped
(`PastRemediation.successful`, `unsuccessful`). Everything else is unknown: no outcome, a cancelled execution, one whose effect
was not assessed, and the execution of another workflow than the proposed one.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from pydantic import AliasPath, BaseModel, ConfigDict, Field, ValidationError

from schemas.fields import Timestamp
from schemas.outcome import RemediationOutcome
from worker.domain.values.remediations import PastRemediation, TrackRecord, spec_drifted


class Effect(enum.Enum):
    """What is known of a proposed workflow."""

    SUCCEEDED = enum.auto()
    FAILED = enum.auto()
    UNKNOWN = enum.auto()


class _StoredResult(BaseModel):
    """What is read of a stored result: a newer version may have more. Without a workflow, `workflow_id` is empty."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    completed_at: Timestamp
    required: bool = Field(validation_alias=AliasPath("approval", "required"))
    would_require: bool | None = Field(None, validation_alias=AliasPath("approval", "would_require"))
    environment: str = ""
    workflow_id: str = Field("", validation_alias=AliasPath("selected_workflow", "workflow_id"))
    action_type: str = Field("", validation_alias=AliasPath("selected_workflow", "action_type"))
    corroborated_by: str = Field("", validation_alias=AliasPath("corroboration", "by"))


@dataclass(frozen=True, slots=True, order=True)
class ProposalGroup:
    """What proposals are counted by. `action` is the action type, or the workflow id where that is not known.

    `environment` is empty in results of earlier versions, `corroboration` where nothing was checked.
    """

    action: str
    environment: str
    corroboration: str = ""


@dataclass(frozen=True, slots=True)
class ProposalCounts:
    """Proposed workflows, and what became of them: `proposed` is the sum of `succeeded`, `failed` and `unknown`.

    `would_pass` counts those for which the approval rules required no approval, whether or not that was enforced.
    """

    proposed: int = 0
    would_pass: int = 0
    succeeded: int = 0
    failed: int = 0
    unknown: int = 0


@dataclass(frozen=True, slots=True)
class OutcomeReport:
    """Counts by group, of all together, and of those that would have passed.

    `unmatched` counts outcomes of requests without a proposed workflow: the result has expired, or never was ours.
    `unreadable` counts messages that are neither a result nor an outcome.
    """

    groups: Mapping[ProposalGroup, ProposalCounts]
    total: ProposalCounts
    passing: ProposalCounts
    unmatched: int
    unreadable: int


@dataclass(frozen=True, slots=True)
class _Proposal:
    group: ProposalGroup
    workflow_id: str
    would_pass: bool
    at: datetime


class _Assessed(NamedTuple):
    proposal: _Proposal
    effect: Effect


@dataclass(slots=True)
class Proposals:
    """Collects results and outcomes by request key, in any order. The last message of a key counts."""

    _proposals: dict[str, _Proposal] = field(default_factory=dict)
    _outcomes: dict[str, PastRemediation] = field(default_factory=dict)
    _unreadable: int = 0
    _unmatched: int = 0

    def add_result(self, key: str, body: bytes) -> None:
        """A stored result."""
        try:
            result = _StoredResult.model_validate_json(body)
        except ValidationError:
            self._unreadable += 1
            return
        self._proposals.pop(key, None)
        if not (chosen := result.workflow_id):
            return
        required = result.required if result.would_require is None else result.would_require
        group = ProposalGroup(result.action_type or chosen, result.environment, result.corroborated_by)
        self._proposals[key] = _Proposal(group, chosen, not required, result.completed_at)

    def add_outcome(self, key: str, body: bytes) -> None:
        """A published outcome."""
        try:
            outcome = RemediationOutcome.model_validate_json(body)
        except ValidationError:
            self._unreadable += 1
            return
        self._outcomes[key] = PastRemediation(
            id=key,
            at=outcome.completed_at,
            workflow_id=outcome.workflow_id,
            outcome=outcome.outcome,
            score=outcome.effectiveness_score,
            resolved=outcome.signal_resolved,
            drifted=spec_drifted(outcome.assessment_reason),
        )

    def forget(self, before: datetime) -> None:
        """Drop results that are older, and outcomes without a result: whoever starts to read now does not find them either.

        The time of an outcome is that of the executor's clock, so it decides nothing.
        """
        self._proposals = {key: found for key, found in self._proposals.items() if found.at >= before}
        kept = {key: found for key, found in self._outcomes.items() if key in self._proposals}
        self._unmatched += len(self._outcomes) - len(kept)
        self._outcomes = kept

    def track_records(self) -> dict[tuple[str, str], TrackRecord]:
        """What became of each action in each environment."""
        found = dict[tuple[str, str], list[_Assessed]]()
        for one in self._assessed():
            found.setdefault((one.proposal.group.action, one.proposal.group.environment), []).append(one)
        totals = {place: _count(members) for place, members in found.items()}
        return {
            place: TrackRecord(total.proposed, total.succeeded, total.failed)
            for place, total in totals.items()
        }

    def report(self, since: datetime | None = None) -> OutcomeReport:
        """What became of the workflows that were proposed since then."""
        groups = dict[ProposalGroup, list[_Assessed]]()
        found = [one for one in self._assessed() if since is None or one.proposal.at >= since]
        for one in found:
            groups.setdefault(one.proposal.group, []).append(one)
        return OutcomeReport(
            groups={group: _count(members) for group, members in sorted(groups.items())},
            total=_count(found),
            passing=_count([one for one in found if one.proposal.would_pass]),
            unmatched=self._unmatched + sum(key not in self._proposals for key in self._outcomes),
            unreadable=self._unreadable,
        )

    def _assessed(self) -> Iterator[_Assessed]:
        for key, proposal in self._proposals.items():
            executed = self._outcomes.get(key)
            if executed is None or executed.workflow_id != proposal.workflow_id:
                yield _Assessed(proposal, Effect.UNKNOWN)
            elif executed.successful:
                yield _Assessed(proposal, Effect.SUCCEEDED)
            else:
                yield _Assessed(proposal, Effect.FAILED if executed.unsuccessful else Effect.UNKNOWN)


def _count(found: Sequence[_Assessed]) -> ProposalCounts:
    effects = Counter(one.effect for one in found)
    return ProposalCounts(
        proposed=len(found),
        would_pass=sum(one.proposal.would_pass for one in found),
        succeeded=effects[Effect.SUCCEEDED],
        failed=effects[Effect.FAILED],
        unknown=effects[Effect.UNKNOWN],
    )
