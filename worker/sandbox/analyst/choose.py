"""The choice of a workflow: open questions to the catalog, and the workflow that passes the checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from worker.domain.cluster.fields import dig, mapping, mappings, text
from worker.domain.diagnosis.actions import EDITING, ProposedAction, misfit, remedies_of
from worker.domain.diagnosis.causes import Cause, Diagnosis, Remedy, Strength, named
from worker.domain.diagnosis.facts import ClusterFacts
from worker.domain.diagnosis.structure import gitops_managed
from worker.domain.values.objects import ObjectRef
from worker.domain.values.workflows import Workflow
from worker.sandbox.analyst import advice, parameters, past
from worker.sandbox.analyst.objections import Objections
from worker.sandbox.analyst.transcript import Call, Transcript, call_to, words_in

MAX_ACTIONS, MAX_DETAILS, MAX_ANCHORS = 5, 8, 3
ACTIONS = Call("list_available_actions", {})
"""Asked once, before anything is known: what actions there are at all."""
PREFERRED = (
    Remedy.RESTORE_CONFIGURATION, Remedy.INCREASE_MEMORY, Remedy.ROLL_BACK, Remedy.PATCH_CONFIGURATION, Remedy.DRAIN,
    Remedy.EXPAND_VOLUME, Remedy.SCALE_DOWN,
)  # fmt: skip
"""Of several remedies that help, the ones to take first."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen workflow, what it acts on, its parameters; and others that were considered."""

    workflow: Workflow
    finding: Diagnosis
    target: ObjectRef
    values: dict[str, Any]
    others: tuple[Workflow, ...] = ()


@dataclass(slots=True)
class Selection:
    """What came of it: a choice, open questions, or the reason why nothing fits."""

    choice: Choice | None = None
    questions: list[Call] = field(default_factory=list)
    why_not: str = ""
    context: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Situation:
    """What the choice is made from. `signal` is the signal type of the answer, `severity` its severity."""

    facts: ClusterFacts
    transcript: Transcript
    objected: Objections
    signal: str
    severity: str


def choose(stand: Sequence[Diagnosis], now: Situation) -> Selection:
    """Go on with the choice for the findings that stand: ask what is not known yet, or decide."""
    if now.objected.rounds > 1 or now.objected.workflow:
        return Selection(why_not="the worker refused the workflows that were chosen")
    if "list_workflows" not in now.transcript.tools:
        return Selection(why_not="there is no workflow catalog")
    last = Selection(why_not="the cause needs a change that a person has to make")
    for finding in stand:
        if finding.strength is Strength.SYMPTOM:
            continue
        for anchor in _anchors(finding):
            selection = _at(anchor, finding, now)
            if selection.choice is not None or selection.questions:
                return selection
            last = selection
    return last


def _anchors(finding: Diagnosis) -> list[ObjectRef]:
    """Objects for the queries of the catalog: the object to change, then others that may be blamed."""
    found = [finding.object, *(ref for ref in finding.also if ref.kind != "Pod")]
    return found[:MAX_ANCHORS]


def _at(anchor: ObjectRef, finding: Diagnosis, now: Situation) -> Selection:
    """The choice with the labels of one object."""
    names = _actions(now.transcript, finding)
    selection = Selection(why_not="the catalog offers no action for this cause and target")
    if not names:
        return selection
    asked = call_to("get_resource_context", kind=anchor.kind, name=anchor.name, namespace=anchor.namespace)
    answers = now.transcript.since(asked)
    lists = [call_to("list_workflows", action_type=n, severity=now.severity) for n in names]
    selection.questions = [c for c in (asked, *lists) if c.signature not in answers]
    if selection.questions:
        return selection
    selection.context = answers[asked.signature].json()
    futile = past.futile_actions([selection.context])
    pages = [answers[c.signature].json() for c in lists if c.arguments["action_type"] not in futile]
    ids = [text(w.get("workflow_id")) for page in pages for w in mappings(page.get("workflows"))]
    excluded = {"", *futile, now.transcript.failed.workflow_id if now.transcript.failed else ""}
    wanted = [i for i in dict.fromkeys(ids) if i not in excluded][:MAX_DETAILS]
    calls = [call_to("get_workflow", workflow_id=i) for i in wanted]
    selection.questions = [c for c in calls if c.signature not in answers]
    if not selection.questions:
        found = [workflow_of(answers[call.signature].json()) for call in calls]
        _decide([w for w in found if w is not None], finding, now, selection)
    return selection


def _actions(transcript: Transcript, finding: Diagnosis) -> list[str]:
    """Action types that could help: those that name one of the remedies, else those of unknown meaning."""
    offered = transcript.result(ACTIONS)
    names = [text(a.get("action_type")) for a in mappings(offered.json().get("actions") if offered else None)]
    wanted = finding.remedies | ({Remedy.REVERT_SOURCE} if finding.remedies & EDITING else set())
    helping = [n for n in names if remedies_of(n) & wanted]
    unknown = [n for n in names if n and not remedies_of(n)] if finding.strength is Strength.DIRECT else []
    return (helping or unknown)[:MAX_ACTIONS]


def workflow_of(record: dict[str, Any]) -> Workflow | None:
    """A workflow as get_workflow shows it; None when it could not be fetched."""
    identity = text(record.get("workflow_id"))
    if not identity:
        return None
    labels = {str(k): tuple(words_in(v)) for k, v in mapping(record.get("labels")).items()}
    return Workflow(
        workflow_id=identity,
        labels=labels,
        custom_labels={"gitops_aware": ("true",)} if record.get("gitops_aware") is True else {},
        parameters=tuple(parameters.parameter_of(p) for p in mappings(record.get("parameters"))),
        action_type=text(record.get("action_type")),
        when_to_use=text(record.get("when_to_use")),
        when_not_to_use=text(record.get("when_not_to_use")),
        preconditions=text(record.get("preconditions")),
    )


def _decide(found: Sequence[Workflow], finding: Diagnosis, now: Situation, selection: Selection) -> None:
    """Take the best of the workflows that fit and can be carried out."""
    labels = mapping(selection.context.get("detected_labels"))
    known = advice.facts_about(finding, now.transcript.incident, labels, now.facts)
    scores = {w.workflow_id: s for w in found if (s := advice.score(w, known)) is not None}
    scored = [w for w in found if w.workflow_id in scores]
    usable = [c for w in scored if (c := _usable(w, finding, now, selection.context))]
    usable.sort(key=lambda c: -scores[c.workflow.workflow_id] - _score(c.workflow, finding, now))
    if usable:
        others = tuple(c.workflow for c in usable[1:3])
        selection.choice = replace(usable[0], others=others)
        return
    selection.why_not = "no workflow that could help fits this cause and target"


def _usable(workflow: Workflow, finding: Diagnosis, now: Situation, context: dict[str, Any]) -> Choice | None:
    if workflow.workflow_id in now.objected.text:
        return None
    fields = ("kind", "name", "namespace", "apiVersion")
    chain = [ObjectRef(*(text(o.get(f)) for f in fields)) for o in mappings(context.get("owner_chain"))]
    target = parameters.acts_on(workflow, (*finding.subjects, *chain))
    values = parameters.fill(workflow, finding, target, now.facts) if target else None
    if target is None or values is None:
        return None
    gitops = dig(context, "detected_labels", "gitOpsManaged") is True
    gitops = gitops or gitops_managed(now.facts, *finding.subjects)
    replicas = dig(now.facts.get(target), "spec", "replicas") if target.kind != "Secret" else None
    action = ProposedAction(
        workflow,
        tuple(t for t in (target,) if any(named(t) == named(s) for s in finding.subjects)),
        next((v for n, v in values.items() if "REVISION" in n and isinstance(v, int)), None),
        next((v for n, v in values.items() if n.endswith("REPLICAS") and isinstance(v, int)), None),
    )
    if misfit(action, finding, replicas if isinstance(replicas, int) else None, gitops=gitops):
        return None
    kept = {k: v for k, v in values.items() if k not in now.objected.parameters}
    return Choice(workflow, finding, target, kept)


def _score(workflow: Workflow, finding: Diagnosis, now: Situation) -> float:
    """Preferred remedies first; then workflows that are declared for the signal, and for what was found."""
    remedies = remedies_of(workflow.action_type)
    rank = next((len(PREFERRED) - i for i, r in enumerate(PREFERRED) if r in remedies & finding.remedies), 0)
    declared = {s.lower() for s in workflow.labels.get("signal_type", ())}
    fitting = not declared or now.signal.lower() in declared
    if fitting and finding.cause is Cause.OUT_OF_MEMORY and Remedy.ROLL_BACK in remedies & finding.remedies:
        rank = len(PREFERRED) + 1  # the newest revision lowered the limit: undo it
    return (  # a preferred remedy outweighs what the texts say
        rank
        + 0.6 * (now.signal.lower() in declared)
        + 0.3 * bool(declared & {s.lower() for s in finding.signals})
        + 2.0 * workflow.gitops_aware
    )
