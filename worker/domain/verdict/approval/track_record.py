"""Compares proposed workflows with the outcomes that executors published.

`rca outcomes report` and the policy input (`track_record`) count in the same way. A workflow counts as
proposed if a completed result selects it. It succeeded or failed if it was executed as proposed and is known
to have helped or not to have helped (`PastRemediation.successful`, `unsuccessful`). In all other cases its
effect is unknown: no outcome, a cancelled execution, an effect that was not assessed, or the execution of
another workflow.
"""

from __future__ import annotations

import enum
from array import array
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from typing import NamedTuple

from pydantic import AliasPath, BaseModel, ConfigDict, Field

from schemas.fields import Timestamp
from schemas.outcome import RemediationOutcome
from worker.domain.values.readable import readable
from worker.domain.values.remediations import PastRemediation, TrackRecord


class Effect(enum.Enum):
    """The known effect of a proposed workflow."""

    SUCCEEDED = enum.auto()
    FAILED = enum.auto()
    UNKNOWN = enum.auto()


class _StoredResult(BaseModel):
    """The fields that are read of a stored result; a newer version may have more.

    Without a workflow, `workflow_id` is empty.
    """

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
    """The key by which proposals are counted.

    `action` is the action type, or the workflow id if that is unknown.

    `environment` is empty in results of earlier versions, `corroboration` where nothing was checked.
    """

    action: str
    environment: str
    corroboration: str = ""


@dataclass(frozen=True, slots=True)
class ProposalCounts:
    """Numbers of proposed workflows. `proposed` is the sum of `succeeded`, `failed` and `unknown`.

    `would_pass` counts those for which the approval rules required no approval, whether or not that was
    enforced.
    """

    proposed: int = 0
    would_pass: int = 0
    succeeded: int = 0
    failed: int = 0
    unknown: int = 0


@dataclass(frozen=True, slots=True)
class OutcomeReport:
    """Counts by group, of all together, and of those that would have passed.

    `unmatched` counts outcomes of requests without a proposed workflow: the result has expired, or belongs to
    another prefix. `unreadable` counts messages that are neither a result nor an outcome.
    """

    groups: Mapping[ProposalGroup, ProposalCounts]
    total: ProposalCounts
    passing: ProposalCounts
    unmatched: int
    unreadable: int


class _Proposal(NamedTuple):
    """What many results have in common."""

    group: ProposalGroup
    workflow_id: str
    would_pass: bool


class _Assessed(NamedTuple):
    proposal: _Proposal
    effect: Effect


class Proposals:
    """Collects results and outcomes by request key, in any order.

    A request has one result, because its stream stores no second one. Of several outcomes, the last one
    counts. A worker keeps every stored result here, so a result takes 24 bytes: a number in place of its key,
    its time, and which proposal it makes.
    """

    def __init__(self) -> None:
        self._keys, self._times, self._made = array("q"), array("d"), array("L")
        self._proposals: dict[_Proposal, int] = {}
        self._outcomes: dict[int, PastRemediation] = {}
        self._unreadable = self._unmatched = 0

    def add_result(self, key: str, body: bytes) -> None:
        """Add a stored result; older results come first."""
        result = readable(_StoredResult, body)
        if result is None:
            self._unreadable += 1
            return
        if not (chosen := result.workflow_id):
            return
        required = result.required if result.would_require is None else result.would_require
        group = ProposalGroup(result.action_type or chosen, result.environment, result.corroborated_by)
        proposal = _Proposal(group, chosen, not required)
        self._keys.append(hash(key))
        self._times.append(result.completed_at.timestamp())
        self._made.append(self._proposals.setdefault(proposal, len(self._proposals)))

    def add_outcome(self, key: str, body: bytes) -> None:
        """Add a published outcome."""
        if outcome := readable(RemediationOutcome, body):
            self._outcomes[hash(key)] = PastRemediation(key).reported(outcome)
        else:
            self._unreadable += 1

    def forget(self, before: datetime | None, newest: int | None = None) -> None:
        """Drop older results, all but the `newest` results, and outcomes without a result.

        A worker that starts now does not find them either. The time of an outcome comes from the executor's
        clock, so it decides nothing.
        """
        since = 0.0 if before is None else before.timestamp()
        surplus = 0 if newest is None else max(0, len(self._times) - newest)
        old = surplus + sum(1 for _ in takewhile(lambda at: at < since, self._times[surplus:]))
        for column in (self._keys, self._times, self._made):
            del column[:old]
        kept = {key: self._outcomes[key] for key in self._executed()}
        self._unmatched += len(self._outcomes) - len(kept)
        self._outcomes = kept

    def _executed(self) -> set[int]:
        """The keys of the outcomes that have a result."""
        return {key for key in self._keys if key in self._outcomes}

    def track_records(self) -> dict[tuple[str, str], TrackRecord]:
        """The counts of each action in each environment."""
        found = dict[tuple[str, str], TrackRecord]()
        for group, more in self.report().groups.items():
            known = found.get((group.action, group.environment), TrackRecord())
            found[group.action, group.environment] = TrackRecord(
                known.proposed + more.proposed, known.succeeded + more.succeeded, known.failed + more.failed
            )
        return found

    def report(self, since: datetime | None = None) -> OutcomeReport:
        """The report about workflows that were proposed since that time; without a time, about all."""
        found = self._assessed(0.0 if since is None else since.timestamp())
        groups = dict[ProposalGroup, Counter[_Assessed]]()
        for one, times in found.items():
            groups.setdefault(one.proposal.group, Counter())[one] = times
        return OutcomeReport(
            groups={group: _count(members) for group, members in sorted(groups.items())},
            total=_count(found),
            passing=_count(Counter({one: times for one, times in found.items() if one.proposal.would_pass})),
            unmatched=self._unmatched + len(self._outcomes) - len(self._executed()),
            unreadable=self._unreadable,
        )

    def _assessed(self, since: float = 0.0) -> Counter[_Assessed]:
        """Return how often each proposal had which effect."""
        proposals, found = list(self._proposals), Counter[_Assessed]()
        for key, at, made in zip(self._keys, self._times, self._made, strict=True):
            if at >= since:
                proposal = proposals[made]
                found[_Assessed(proposal, _effect(proposal, self._outcomes.get(key)))] += 1
        return found


def _effect(proposal: _Proposal, executed: PastRemediation | None) -> Effect:
    if executed is None or executed.workflow_id != proposal.workflow_id:
        return Effect.UNKNOWN
    if executed.successful:
        return Effect.SUCCEEDED
    return Effect.FAILED if executed.unsuccessful else Effect.UNKNOWN


def _count(found: Counter[_Assessed]) -> ProposalCounts:
    effects = Counter[Effect]()
    for one, times in found.items():
        effects[one.effect] += times
    return ProposalCounts(
        proposed=found.total(),
        would_pass=sum(times for one, times in found.items() if one.proposal.would_pass),
        succeeded=effects[Effect.SUCCEEDED],
        failed=effects[Effect.FAILED],
        unknown=effects[Effect.UNKNOWN],
    )
