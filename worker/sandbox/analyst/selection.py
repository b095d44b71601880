"""The choice of a workflow: which questions to the catalog are open, and which of its answers convinces."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst import concepts, parameters, past
from worker.sandbox.analyst.concepts import ClauseTruth
from worker.sandbox.analyst.facts import CatalogAnswer, Facts
from worker.sandbox.analyst.finding import Finding, RemedyKind
from worker.sandbox.analyst.objections import Objections
from worker.sandbox.analyst.refs import as_dict, as_list, make_ref
from worker.sandbox.analyst.remedies import GITOPS_SAFE, remedy_of
from worker.sandbox.analyst.transcript import Call, Transcript

ERROR_ALERT = re.compile(r"slo\b|budget|burn|error|latency|5\d\d|availability", re.IGNORECASE)
MAX_ACTIONS = 4
MAX_DETAILS = 2
MAX_READ = 4
LEAST_CERTAINTY = 0.64
INDIRECT = frozenset({"Secret", "ServiceAccount", "Role", "ClusterRole", "PriorityClass"})
"""Kinds that workflows seldom act on themselves: the workload that uses them is asked about first."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A workflow that might help. `detail` is its full record, empty before it was fetched.

    `late` tells that the rollout has passed its progress deadline.
    """

    workflow_id: str
    remedy: RemedyKind
    score: float
    texts: dict[str, Any]
    reasons: tuple[str, ...] = ()
    detail: dict[str, Any] = field(default_factory=dict)
    late: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen workflow, what it acts on, its parameters; and others that were considered."""

    candidate: Candidate
    target: ObjectRef
    values: dict[str, Any]
    others: tuple[Candidate, ...] = ()


@dataclass(slots=True)
class Selection:
    """What came of it: a choice, open questions, or the reason why nothing fits."""

    choice: Choice | None = None
    questions: list[Call] = field(default_factory=list)
    why_not: str = ""
    context: dict[str, Any] = field(default_factory=dict)


def select(
    finding: Finding, facts: Facts, transcript: Transcript, objected: Objections, severity: str
) -> Selection:
    """Go on with the choice: ask what is not known yet, or decide."""
    why = _no_use(finding, facts)
    if objected.rounds > 1 or (objected.workflow and objected.rounds):
        why = why or "the worker refused the workflows that were chosen"
    if why:
        return Selection(why_not=why)
    last = Selection(why_not="no workflow of the catalog fits this cause")
    for anchor in anchors(finding, facts):
        selection = _at(anchor, finding, facts, transcript, objected, severity)
        if selection.choice is not None or selection.questions:
            return selection
        last = selection
    return last


def _no_use(finding: Finding, facts: Facts) -> str:
    if not finding.remedies:
        return "the cause needs a change that a person has to make"
    if finding.certainty < LEAST_CERTAINTY:
        return "the cause is not certain enough to act on it"
    return "" if facts.can_ask("list_workflows") else "there is no workflow catalog"


def anchors(finding: Finding, facts: Facts) -> list[ObjectRef]:
    """Objects whose labels the catalog is asked with: the target, and the workload behind it."""
    target, workload = finding.target, finding.workload
    missing = facts.absent(target.kind, target.name, target.namespace)
    order = [target] if workload is None or workload == target else [target, workload]
    if workload is not None and (target.kind in INDIRECT or missing):
        order = [workload]
    return order


def _at(
    anchor: ObjectRef,
    finding: Finding,
    facts: Facts,
    transcript: Transcript,
    objected: Objections,
    severity: str,
) -> Selection:
    """The choice with the labels of one object."""
    about = {
        "kind": anchor.kind,
        "name": anchor.name,
        "namespace": anchor.namespace,
        "api_version": _group_version(anchor),
    }
    if not facts.asked("get_resource_context", **about):
        actions_call = _call("list_available_actions", severity=severity)
        return Selection(questions=[_call("get_resource_context", **about), actions_call])
    context = next((c for ref, c in reversed(facts.contexts) if _same(ref, anchor)), {})
    answers = [a for a in facts.catalog if not context or a.target is None or _same(a.target, anchor)]
    futile = past.futile_actions(c for _, c in facts.contexts)
    offered = _actions(answers, finding)
    actions = [(name, remedy) for name, remedy in offered if name not in futile]
    if not actions:
        why = "the catalog offers no action for this cause and target"
        if offered:
            why = f"{', '.join(sorted(futile))} did not help here before, as the history shows"
        return Selection(why_not=why, context=context)
    pages = {str(a.call.arguments.get("action_type")): a for a in answers if a.call.name == "list_workflows"}
    unlisted = [name for name, _ in actions if name not in pages]
    if unlisted:
        return Selection(
            questions=[_call("list_workflows", action_type=n, severity=severity) for n in unlisted],
            context=context,
        )
    ranked = _ranked(actions, answers, finding, facts, transcript, context)
    return _decide(ranked, answers, finding, objected, Selection(context=context))


def _same(one: ObjectRef, other: ObjectRef) -> bool:
    return (one.kind, one.name, one.namespace) == (other.kind, other.name, other.namespace)


def _group_version(ref: ObjectRef) -> str:
    return ref.api_version if "." in ref.api_version.split("/", maxsplit=1)[0] else ""


def _call(tool: str, /, **arguments: Any) -> Call:
    return Call(tool, {k: v for k, v in arguments.items() if v not in ("", None)})


def _actions(answers: Sequence[CatalogAnswer], finding: Finding) -> list[tuple[str, RemedyKind]]:
    """Action types that could help, the most fitting first."""
    found: dict[str, RemedyKind] = {}
    for answer in answers:
        if answer.call.name != "list_available_actions":
            continue
        for action in as_list(answer.body.get("actions")):
            name = str(as_dict(action).get("action_type") or "")
            remedy = remedy_of(name, finding.remedies)
            if name and remedy is not None:
                found.setdefault(name, remedy)
    order = sorted(found.items(), key=lambda item: finding.remedies.index(item[1]))
    return order[:MAX_ACTIONS]


def _ranked(
    actions: Sequence[tuple[str, RemedyKind]],
    answers: Sequence[CatalogAnswer],
    finding: Finding,
    facts: Facts,
    transcript: Transcript,
    context: dict[str, Any],
) -> list[Candidate]:
    remedies = dict(actions)
    held, denied = situation(finding, facts, context)
    excluded = past.futile_actions(c for _, c in facts.contexts) | {
        transcript.failed.workflow_id if transcript.failed else ""
    }
    found: dict[str, Candidate] = {}
    for answer in answers:
        if answer.call.name != "list_workflows":
            continue
        remedy = remedies.get(str(answer.call.arguments.get("action_type")))
        for position, item in enumerate(as_list(answer.body.get("workflows"))):
            texts = as_dict(item)
            identity = str(texts.get("workflow_id") or "")
            if remedy is None or not identity or identity in excluded:
                continue
            candidate = weigh(identity, remedy, texts, finding, held, denied)
            if candidate is not None:
                bonus = -0.01 * position
                found.setdefault(
                    identity, Candidate(identity, remedy, candidate.score + bonus, texts, candidate.reasons)
                )
    return sorted(found.values(), key=lambda c: -c.score)


def situation(finding: Finding, facts: Facts, context: dict[str, Any]) -> tuple[set[str], set[str]]:
    """Concepts that hold and that do not: the finding's own, and those of the request and the target's labels."""
    held, denied = set(finding.traits), set(finding.denied)
    incident = facts.incident
    for name in ("production", "staging", "development"):
        if incident.environment not in ("", "unknown"):
            (held if incident.environment.startswith(name[:4]) else denied).add(name)
    if incident.risk_tolerance:
        for level in ("low", "medium", "high"):
            (held if incident.risk_tolerance == level else denied).add(f"risk_{level}")
    labels = {k.lower().replace("_", ""): v for k, v in as_dict(context.get("detected_labels")).items()}
    for label, concept in (("gitopsmanaged", "gitops"), ("helmmanaged", "helm"), ("stateful", "stateful")):
        if label in labels:
            (held if labels[label] is True else denied).add(concept)
    if not held & {"gitops", "helm"} and "gitops" in denied:
        held.add("imperative")
    elif held & {"gitops", "helm"}:
        denied.add("imperative")
    if not ERROR_ALERT.search(f"{incident.signal_type} {incident.message}"):
        denied.add("error_budget")
    _progress(finding, facts, held, denied)
    return held, denied - held


def _progress(finding: Finding, facts: Facts, held: set[str], denied: set[str]) -> None:
    """Whether a rollout has passed its deadline, and whether there is anything to go back to."""
    workload = finding.workload
    manifest = facts.of(workload, ask=False) if workload is not None else None
    if manifest is None or manifest.get("kind") != "Deployment":
        return
    found = [
        c
        for c in as_list(as_dict(manifest.get("status")).get("conditions"))
        if as_dict(c).get("type") == "Progressing"
    ]
    late = bool(found) and as_dict(found[0]).get("reason") == "ProgressDeadlineExceeded"
    (held if late else denied).add("progress_deadline")
    (denied if late else held).add("inside_deadline")
    annotations = as_dict(as_dict(manifest.get("metadata")).get("annotations"))
    if annotations.get("deployment.kubernetes.io/revision") == "1":
        held.add("every_revision")
        denied.add("healthy_before")
    elif "healthy_before" in held:
        denied.add("every_revision")


def weigh(
    identity: str,
    remedy: RemedyKind,
    texts: dict[str, Any],
    finding: Finding,
    held: set[str],
    denied: set[str],
) -> Candidate | None:
    """How well the texts of a workflow fit; None when they speak against it."""
    if any(
        concepts.judge(c, held, denied, strictly=True) is ClauseTruth.HOLDS
        for c in concepts.clauses(str(texts.get("when_not_to_use") or ""))
    ):
        return None
    wanted = concepts.clauses(f"{texts.get('when_to_use') or ''}. {texts.get('preconditions') or ''}")
    verdicts = [concepts.judge(c, held, denied) for c in wanted]
    holding = [c.text for c, v in zip(wanted, verdicts, strict=True) if v is ClauseTruth.HOLDS]
    failing = verdicts.count(ClauseTruth.FAILS)
    if (verdicts and not holding) or failing > len(holding):
        return None
    if "gitops" in held and remedy not in GITOPS_SAFE and not texts.get("gitops_aware"):
        return None
    score = 3.0 - finding.remedies.index(remedy) + min(len(holding), 3) - 1.5 * failing
    description = f"{texts.get('description') or ''} {texts.get('title') or ''}".lower()
    score += 0.8 if any(s.lower() in description for s in finding.symptoms) else 0.0
    score += 2.0 if "gitops" in held and texts.get("gitops_aware") else 0.0
    return Candidate(identity, remedy, score, texts, tuple(holding))


def _decide(
    ranked: Sequence[Candidate],
    answers: Sequence[CatalogAnswer],
    finding: Finding,
    objected: Objections,
    selection: Selection,
) -> Selection:
    """Fetch the best candidates, then take the best one that can be carried out."""
    details = {
        str(a.call.arguments.get("workflow_id")): _record(a.body)
        for a in answers
        if a.call.name == "get_workflow"
    }
    usable = [
        choice
        for candidate in ranked
        if candidate.workflow_id not in objected.text
        and (
            choice := _usable(
                candidate, details.get(candidate.workflow_id), finding, objected, selection.context
            )
        )
    ]
    unread = [c for c in ranked[:MAX_READ] if c.workflow_id not in details][:MAX_DETAILS]
    if unread and (not details or not usable):
        selection.questions = [_call("get_workflow", workflow_id=c.workflow_id) for c in unread]
    elif usable:
        usable.sort(key=lambda c: -(c.candidate.score + label_bonus(c.candidate, finding)))
        others = tuple(c.candidate for c in usable[1:3])
        selection.choice = replace(usable[0], others=others)
    else:
        selection.why_not = "no workflow that could help fits this target"
    return selection


def _usable(
    candidate: Candidate,
    detail: dict[str, Any] | None,
    finding: Finding,
    objected: Objections,
    context: dict[str, Any],
) -> Choice | None:
    """The workflow with its target and parameters; None when it cannot be carried out or is not known."""
    if not detail:
        return None
    chain = [
        make_ref(
            str(o.get("kind")),
            str(o.get("name")),
            str(o.get("namespace") or ""),
            str(o.get("apiVersion") or ""),
        )
        for o in as_list(context.get("owner_chain"))
        if isinstance(o, dict)
    ]
    target = parameters.acts_on(detail, finding, chain)
    values = parameters.fill(detail, finding, target) if target else None
    if target is None or values is None:
        return None
    values = {k: v for k, v in values.items() if k not in objected.parameters}
    return Choice(replace(candidate, detail=detail), target, values)


def label_bonus(candidate: Candidate, finding: Finding) -> float:
    """What the signal types that a workflow is labelled with add to its fit."""
    labels = as_dict(candidate.detail.get("labels"))
    declared = {str(v).lower() for v in as_list(labels.get("signal_type"))}
    wanted = {s.lower() for s in finding.symptoms}
    if candidate.late:
        wanted.add("progressdeadlineexceeded")
    return 0.6 * len(declared & wanted)


def _record(body: dict[str, Any]) -> dict[str, Any]:
    inner = body.get("workflow")
    return inner if isinstance(inner, dict) else body
