"""Decides whether the cluster confirms an answer: state and connection of the object, and the action."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from worker.domain.cluster.changes import revision_number
from worker.domain.cluster.fields import dig, owner_of, referred, whole
from worker.domain.cluster.pods import pod_failing, pod_restarts
from worker.domain.diagnosis.actions import EDITING, ProposedAction, misfit, remedies_of
from worker.domain.diagnosis.causes import Diagnosis, Strength, named
from worker.domain.diagnosis.facts import ClusterFacts
from worker.domain.diagnosis.search import Searched, ambiguous, search, standing
from worker.domain.diagnosis.structure import chain_of, gitops_managed, pods_of, revisions
from worker.domain.values.objects import ObjectRef


class Doubt(enum.StrEnum):
    """Why an answer is not corroborated."""

    NOTHING_WRONG = "nothing_wrong_with_object"
    EXPLAINED_ELSEWHERE = "explained_elsewhere"
    NO_CAUSE_STATED = "no_cause_stated"
    AMBIGUOUS = "ambiguous"
    UNKNOWN = "unknown"
    ACTION_DOES_NOT_FIT = "action_does_not_fit"


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim of an answer: the object to blame, the action to take, if any, and the owner of a pod."""

    object: ObjectRef
    action: ProposedAction | None = None
    owner: ObjectRef | None = None


@dataclass(frozen=True, slots=True)
class ClaimVerdict:
    """The verdict on a claim: `doubt` is None if it is confirmed, `finding` confirms or contradicts it."""

    doubt: Doubt | None
    reason: str
    finding: Diagnosis | None = None

    @property
    def confirmed(self) -> bool:
        """True if state, connection and action are all confirmed."""
        return self.doubt is None


def corroborate(facts: ClusterFacts, signal: ObjectRef, claim: Claim) -> ClaimVerdict:
    """Judge a claim by the findings that remain after a search from the signal's resource."""
    searched = search(facts, signal)
    stand = standing(searched.findings)
    blamed = _names_of(facts, claim)
    matching = [f for f in stand if any(named(s) in blamed for s in f.subjects)]
    if not matching:
        return _unmatched(searched, stand, claim, blamed)
    if claim.action is None:
        return ClaimVerdict(None, matching[0].sentence, matching[0])
    action = claim.action
    reasons = [_misfit(facts, action, finding) for finding in matching]
    fitting = [f for f, reason in zip(matching, reasons, strict=True) if not reason]
    if not fitting:
        told = f"{matching[0].sentence} But {reasons[0]}."
        return ClaimVerdict(Doubt.ACTION_DOES_NOT_FIT, told, matching[0])
    clear = next((f for f in fitting if not ambiguous(f, searched.findings)), None)
    if clear is None:
        told = f"{fitting[0].sentence} But a dependency is unhealthy, too."
        return ClaimVerdict(Doubt.AMBIGUOUS, told, fitting[0])
    if clear.strength is not Strength.DIRECT and facts.unsettled:
        told = f"{clear.sentence} But not everything it depends on could be read."
        return ClaimVerdict(Doubt.UNKNOWN, told, clear)
    return ClaimVerdict(None, clear.sentence, clear)


def _unmatched(
    searched: Searched, stand: tuple[Diagnosis, ...], claim: Claim, blamed: set[tuple[str, str, str]]
) -> ClaimVerdict:
    own = next((f for f in searched.findings if any(named(s) in blamed for s in f.subjects)), None)
    if own is None:
        told = f"No known state of {claim.object} is a cause."
        return ClaimVerdict(Doubt.NOTHING_WRONG, told, stand[0] if stand else None)
    if own.strength is Strength.SYMPTOM and stand[0].strength is Strength.SYMPTOM:
        return ClaimVerdict(Doubt.NO_CAUSE_STATED, own.sentence, own)
    told = f"{stand[0].sentence} This explains {claim.object}."
    return ClaimVerdict(Doubt.EXPLAINED_ELSEWHERE, told, stand[0])


def _names_of(facts: ClusterFacts, claim: Claim) -> set[tuple[str, str, str]]:
    """The object, and what controls it. A pod or ReplicaSet stands for its owner unless its pods are well."""
    found = {named(claim.object)}
    if claim.object.kind.lower() not in {"pod", "replicaset"}:
        return found
    pods = pods_of(facts, claim.object)
    if claim.owner and not pods:
        return {*found, named(claim.owner)}
    sick = [pod for pod in pods if pod_failing(pod) or pod_restarts(pod)]
    return found.union(named(owner) for pod in sick[:1] for owner in chain_of(facts, pod)[1:])


def _misfit(facts: ClusterFacts, action: ProposedAction, finding: Diagnosis) -> str:
    scaled = facts.get(finding.object) if finding.object.kind in {"Deployment", "StatefulSet"} else None
    replicas = whole(dig(scaled, "spec", "replicas")) if scaled else None
    changed = (*action.targets, finding.object)
    keeper = next((o for ref in changed if (o := _custom_owner(facts, ref))), None)
    if keeper and remedies_of(action.workflow.action_type) & EDITING:
        return f"{keeper} would undo what {action.workflow.action_type} edits"
    gitops = gitops_managed(facts, *finding.subjects)
    return misfit(_undo(facts, finding, action), finding, replicas, gitops=gitops)


def _custom_owner(facts: ClusterFacts, ref: ObjectRef) -> ObjectRef | None:
    """The custom resource that owns an object, as its controller or not, and keeps its spec as it wants it."""
    manifest = facts.get(ref) if ref.kind not in {"Pod", "Secret"} else None
    owner = referred(owner_of(manifest or {}), ref.namespace)
    return owner if "." in owner.api_version.partition("/")[0] else None


def _undo(facts: ClusterFacts, finding: Diagnosis, action: ProposedAction) -> ProposedAction:
    """The action with its revision: without one, or with 0, the one before the newest, as `kubectl` does."""
    found = () if action.revision else revisions(facts, finding.object)
    return replace(action, revision=revision_number(found[-2])) if len(found) > 1 else action


def diagnose(facts: ClusterFacts, signal: ObjectRef) -> tuple[Diagnosis, ...]:
    """All findings, the best first: for incidents that no model has answered."""
    searched = search(facts, signal)
    stand = standing(searched.findings, searched.circle)
    rest = sorted((f for f in searched.findings if f not in stand), key=lambda f: (-f.strength, len(f.path)))
    return (*stand, *rest)
