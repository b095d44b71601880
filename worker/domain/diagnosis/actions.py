"""What an action of the catalog does, and whether it fits a finding of the rules.

The name of an action type is the operator's own and trusted. A name whose words are not understood fits only
if the workflow declares a signal type of the finding, and covers the kind of the finding's object.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from worker.domain.diagnosis.causes import Diagnosis, Remedy, Strength, named
from worker.domain.values.objects import ObjectRef
from worker.domain.values.workflows import Workflow

WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
R = Remedy
NAMES: Sequence[tuple[str, frozenset[Remedy]]] = (
    (r"^restart (?!kubelet|node|container runtime)", frozenset({R.RESTART})),
    (r"pull secret|registry (?:secret|credential)", frozenset({R.REFRESH_PULL_SECRET})),
    (r"(?:rotate|refresh|renew) (?:credential|secret|password)", frozenset({R.ROTATE_CREDENTIALS})),
    (r"connection", frozenset({R.RAISE_CONNECTIONS})),
    (r"\bgit|revert commit", frozenset({R.REVERT_SOURCE})),
    (r"memory", frozenset({R.INCREASE_MEMORY})),
    (r"\bcpu", frozenset({R.INCREASE_CPU})),
    (r"rollback|roll back|undo rollout", frozenset({R.ROLL_BACK})),
    (r"\b(?:hpa|autoscaler)\b|horizontal pod autoscaler", frozenset({R.RAISE_AUTOSCALER})),
    (r"\bpdb\b|disruption budget", frozenset({R.RELAX_DISRUPTION_BUDGET})),
    (r"network polic", frozenset({R.FIX_NETWORK_POLICY})),
    (r"certificate|\bcert\b", frozenset({R.RENEW_CERTIFICATE})),
    (r"node (?:selector|affinit)", frozenset({R.FIX_PLACEMENT})),
    (r"(?:pod|anti) ?affinit|topology spread", frozenset({R.RELAX_POD_RULES})),
    (r"\bplacement|(?<!session )\baffinit", frozenset({R.FIX_PLACEMENT, R.RELAX_POD_RULES})),
    (r"taint", frozenset({R.REMOVE_TAINT})),
    (r"quota", frozenset({R.RAISE_QUOTA})),
    (r"probe", frozenset({R.FIX_PROBE})),
    (r"finali[sz]er", frozenset({R.REMOVE_FINALIZER})),
    (r"deadline", frozenset({R.EXTEND_DEADLINE})),
    (r"uncordon", frozenset({R.UNCORDON})),
    (r"drain", frozenset({R.DRAIN})),
    (r"cordon", frozenset({R.CORDON})),
    (r"clean\w*(?: up)? (?:node|disk)", frozenset({R.CLEAN_NODE})),
    (r"(?:provision|add|scale up|create) node|node capacity", frozenset({R.ADD_CAPACITY})),
    (r"restart (?:kubelet|node|container runtime)", frozenset({R.RESTART_NODE_AGENT})),
    (r"(?:expand|resize|grow|enlarge) (?:persistent volume|pvc|volume|claim)", frozenset({R.EXPAND_VOLUME})),
    (r"clean\w*(?: up)? (?:persistent volume|pvc|volume|claim)", frozenset({R.CLEAN_VOLUME})),
    (r"\bpvc\b|persistent volume claim|\bclaim\b", frozenset({R.RECREATE_CLAIM})),
    (r"(?:restore|recreate) (?:config|secret)", frozenset({R.RESTORE_CONFIGURATION})),
    (r"config", frozenset({R.PATCH_CONFIGURATION})),
    (r"\bimage", frozenset({R.FIX_IMAGE})),
    (r"selector", frozenset({R.FIX_SELECTOR})),
    (r"service (?:target )?port|(?:fix|patch) service$", frozenset({R.FIX_SELECTOR, R.FIX_PORT})),
    (r"resume|unsuspend", frozenset({R.RESUME})),
    (r"restart", frozenset({R.RESTART})),
    (r"scale (?:down|in)\b|downscale", frozenset({R.SCALE_DOWN})),
    (r"scale (?:up|out)\b|upscale", frozenset({R.SCALE_UP})),
    (r"scale", frozenset({R.SCALE_UP, R.SCALE_DOWN})),
)  # fmt: skip


OPPOSITE = re.compile(r"^(?:decrease|reduce|lower|shrink|disable|suspend|pause|stop|add taint|taint)\b")
"""Actions that take something away. They fit no finding, whatever the workflow declares."""
EDITING = frozenset(
    {R.ROLL_BACK, R.PATCH_CONFIGURATION, R.RESTORE_CONFIGURATION, R.FIX_IMAGE, R.INCREASE_MEMORY, R.INCREASE_CPU, R.FIX_PROBE,
     R.SCALE_UP, R.SCALE_DOWN, R.RAISE_AUTOSCALER, R.RELAX_DISRUPTION_BUDGET, R.FIX_NETWORK_POLICY, R.FIX_SELECTOR, R.FIX_PORT,
     R.FIX_PLACEMENT, R.RELAX_POD_RULES, R.RESUME}
)  # fmt: skip
"""Remedies that change an object's spec or data. A GitOps tool reverts such changes."""
WITHOUT_CHANGE = frozenset(
    {R.INCREASE_MEMORY, R.INCREASE_CPU, R.SCALE_UP, R.SCALE_DOWN, R.RAISE_AUTOSCALER, R.FIX_PLACEMENT, R.RELAX_POD_RULES, R.RESUME}
)  # fmt: skip
"""Remedies of something that is too small, stopped, or fits no node. It need not have been otherwise before."""


@dataclass(frozen=True, slots=True)
class ProposedAction:
    """The proposed action, its targets, and its parameters for a revision and a number of replicas."""

    workflow: Workflow
    targets: tuple[ObjectRef, ...] = ()
    revision: int | None = None
    replicas: int | None = None


def remedies_of(action_type: str) -> frozenset[Remedy]:
    """The kinds of remedy that the name of an action type means; empty for a name that is not understood."""
    words = _words(action_type)
    if OPPOSITE.search(words):
        return frozenset()
    return next((found for pattern, found in NAMES if re.search(pattern, words)), frozenset())


def _words(action_type: str) -> str:
    return " ".join(WORD.findall(action_type)).lower()


def misfit(
    action: ProposedAction, finding: Diagnosis, replicas_now: int | None = None, *, gitops: bool = False
) -> str:
    """Return why the action does not fit, else "". `gitops`: a GitOps tool owns the changed object."""
    offered = _narrowed(remedies_of(action.workflow.action_type), action, replicas_now)
    name = action.workflow.action_type
    declared = _declared_for(action.workflow, finding) and not OPPOSITE.search(_words(name))
    strange = "" if declared else f"{name} does not act on {finding.cause}"
    wrong = _unfit(offered, action, finding, gitops=gitops) if offered else strange
    if wrong:
        return wrong
    others = [t for t in action.targets if not any(named(t) == named(s) for s in finding.subjects)]
    return f"{others[0]} is not what the finding is about" if others else ""


def _unfit(offered: frozenset[Remedy], action: ProposedAction, finding: Diagnosis, *, gitops: bool) -> str:
    name = action.workflow.action_type
    if gitops and offered & EDITING and not action.workflow.gitops_aware:
        return f"a GitOps tool would undo what {name} edits"
    if offered == {Remedy.REVERT_SOURCE}:
        changed = gitops and finding.remedies & (EDITING - WITHOUT_CHANGE)
        return "" if changed else "there is no change at a GitOps source to revert"
    if not offered & finding.remedies:
        return f"{name} does not act on {finding.cause}"
    if Remedy.ROLL_BACK in offered and action.revision not in {None, finding.revision}:
        return f"revision {action.revision} is not the one before the change ({finding.revision})"
    if offered == {Remedy.PATCH_CONFIGURATION} and not _signals_match(action.workflow, finding):
        return f"{action.workflow.workflow_id} is declared for other signal types"
    return ""


def _narrowed(offered: frozenset[Remedy], action: ProposedAction, now: int | None) -> frozenset[Remedy]:
    """Tell scaling up and down apart by the chosen number, if both numbers are known."""
    if not offered & {Remedy.SCALE_UP, Remedy.SCALE_DOWN} or action.replicas is None or now is None:
        return offered
    return frozenset({Remedy.SCALE_UP if action.replicas > now else Remedy.SCALE_DOWN})


def _declared_for(workflow: Workflow, finding: Diagnosis) -> bool:
    if finding.strength is not Strength.DIRECT:
        return False
    components = {c.rpartition("/")[2].lower() for c in workflow.labels.get("component", ())}
    return _signals_match(workflow, finding) and finding.object.kind.lower() in components


def _signals_match(workflow: Workflow, finding: Diagnosis) -> bool:
    signals = {s.lower() for s in workflow.labels.get("signal_type", ())}
    return bool(signals & {s.lower() for s in finding.signals})
