"""The second half of a verdict: the chosen workflow, its target, its parameters, and whether it may run at all."""

from __future__ import annotations

from dataclasses import replace

from worker.domain.catalog.selection import (
    for_final_choice,
    mismatches,
    other_signal_type,
    unmet_labels,
    works_against_gitops,
)
from worker.domain.cluster.history import same_as_before, summary
from worker.domain.untrusted.evidence import one_line
from worker.domain.values.workflows import SelectionContext, Workflow
from worker.domain.verdict.answers.answer import Answer, AnsweredAlternative, AnsweredWorkflow
from worker.domain.verdict.approval.factors import FactorCode
from worker.domain.verdict.checks.facts import Findings, VerdictFacts, lookup_context
from worker.domain.verdict.checks.parameters import check_values
from worker.domain.verdict.checks.repetition import repeats
from worker.domain.verdict.checks.reported import is_reported
from worker.domain.verdict.checks.safety import check_safety
from worker.domain.verdict.checks.targets import (
    ResolvedObject,
    TargetChoice,
    choose_target,
    target_part,
    within_scope,
)
from worker.domain.verdict.problems import ProblemKind

WORKFLOW_PATH = "selected_workflow"
SHOWN_CHARS = 120
MAX_PROBLEM_CHARS = 600


def check_choice(
    answer: Answer, facts: VerdictFacts, affected: ResolvedObject | None, signal_type: str, found: Findings
) -> TargetChoice:
    """The target and final parameters of the chosen workflow; nothing when none is chosen or it cannot be judged."""
    nothing = TargetChoice(None, {})
    chosen = answer.selected_workflow
    if chosen is None:
        if not answer.workflow_stated:
            message = (
                "missing required field: selected_workflow (workflow_id, confidence, parameters; or null)"
            )
            found.add(ProblemKind.UNREADABLE, WORKFLOW_PATH, message)
        return nothing
    _check_confidence(chosen.confidence, found)
    workflow = facts.workflow
    if workflow is None or workflow.workflow_id != chosen.workflow_id:
        found.add(
            ProblemKind.WORKFLOW_UNKNOWN, f"{WORKFLOW_PATH}.workflow_id", _unknown(chosen, answer, facts)
        )
        return nothing
    _check_identity(chosen, workflow, found)
    context = replace(lookup_context(answer, facts.context), signal_type=signal_type)
    target = nothing if affected is None else _check_target(chosen, workflow, affected, facts, found)
    _check_fit(workflow, context, affected, target, found)
    safety = check_safety(workflow, facts.safety, chosen.estimated_downtime_seconds)
    found.problems += safety.problems
    found.factors += safety.factors
    if facts.named_in:
        found.require_approval(FactorCode.WORKFLOW_NAMED_IN_EVIDENCE, ", ".join(facts.named_in))
    if facts.shown is not None and not is_reported(signal_type, facts.shown):
        found.require_approval(FactorCode.SIGNAL_TYPE_NOT_REPORTED, signal_type)
    if facts.failed is not None and repeats(workflow, target.parameters, facts.failed):
        message = "this workflow has failed with these parameters: choose another, other parameters, or null"
        found.add(ProblemKind.FORBIDDEN, WORKFLOW_PATH, message)
    _check_history((chosen.rationale or answer.rationale).strip(), workflow, facts, found)
    return target


def _check_confidence(confidence: float | None, found: Findings) -> None:
    path = f"{WORKFLOW_PATH}.confidence"
    told = any(p.path == path for p in found.problems)
    if not told and (confidence is None or not 0 <= confidence <= 1):
        found.add(ProblemKind.UNREADABLE, path, "is required, a number from 0 to 1")


def _unknown(chosen: AnsweredWorkflow, answer: Answer, facts: VerdictFacts) -> str:
    if not chosen.workflow_id.strip():
        return f"missing required field: {WORKFLOW_PATH}.workflow_id"
    context = lookup_context(answer, facts.context)
    labels = [
        ("environment", context.environment),
        ("priority", context.priority),
        ("severity", context.severity),
    ]
    shown = ", ".join(f"{name}={one_line(value, 40)}" for name, value in labels if value)
    return (
        f"{one_line(chosen.workflow_id, SHOWN_CHARS)} is not in the catalog or does not fit ({shown}): "
        "choose an id that list_workflows returns, or null"
    )


def _check_identity(chosen: AnsweredWorkflow, workflow: Workflow, found: Findings) -> None:
    version, image = chosen.version.strip().removeprefix("v"), chosen.container_image.strip()
    if version and version != workflow.version.removeprefix("v"):
        message = (
            f"the catalog has version {workflow.version or '(none)'}, not {one_line(version, SHOWN_CHARS)}"
        )
        found.add(ProblemKind.WORKFLOW_MISMATCH, f"{WORKFLOW_PATH}.version", message)
    if image and image != workflow.container_image:
        message = f"the catalog has {workflow.container_image or 'no image'}: leave the image out or copy it exactly"
        found.add(ProblemKind.WORKFLOW_MISMATCH, f"{WORKFLOW_PATH}.container_image", message)


def _check_target(
    chosen: AnsweredWorkflow,
    workflow: Workflow,
    affected: ResolvedObject,
    facts: VerdictFacts,
    found: Findings,
) -> TargetChoice:
    other = None if facts.other_target is None else within_scope(facts.other_target)
    target = choose_target(workflow, chosen.parameters, affected, other, facts.unseen_parameters)
    scope = target.target or affected.ref
    empty = {n for n, v in target.parameters.items() if v == "" and target_part(n) == "namespace"}
    checked = check_values(workflow, target.parameters, set() if scope.namespace else empty)
    told = {p.path for p in target.problems}
    found.problems += [*target.problems, *(p for p in checked.problems if p.path not in told)]
    found.factors += [*target.factors, *checked.factors]
    found.notes += [*target.notes, *checked.notes]
    return replace(target, parameters=checked.values)


def _check_fit(
    workflow: Workflow,
    context: SelectionContext,
    affected: ResolvedObject | None,
    target: TargetChoice,
    found: Findings,
) -> None:
    objects = [*(affected.chain if affected else ()), *((target.target,) if target.target else ())]
    final = replace(context, components=tuple((o.api_version, o.kind) for o in objects))
    for mismatch in mismatches(workflow, for_final_choice(final)):
        message = f"{workflow.workflow_id} does not fit: {mismatch}; choose another workflow, or null"
        found.add(
            ProblemKind.WORKFLOW_UNKNOWN, f"{WORKFLOW_PATH}.workflow_id", one_line(message, MAX_PROBLEM_CHARS)
        )
    if made_for := other_signal_type(workflow, final):
        found.require_approval(FactorCode.WORKFLOW_FOR_OTHER_SIGNAL, made_for)
    for label in unmet_labels(workflow, final):
        found.require_approval(FactorCode.WORKFLOW_LABEL_UNMET, label)
    if works_against_gitops(workflow, final):
        found.warnings.append(f"the target is managed by GitOps, {workflow.workflow_id} is not made for that")


def _check_history(rationale: str, workflow: Workflow, facts: VerdictFacts, found: Findings) -> None:
    """What did not help this resource before, with the spec it has now, may be chosen again, but not in silence."""
    if facts.history_problem:
        found.require_approval(FactorCode.HISTORY_UNKNOWN, f"{workflow.workflow_id}, {facts.history_problem}")
    before = same_as_before(workflow.workflow_id, workflow.action_type, facts.failed_here)
    if not before:
        return
    past = f"did not help this resource before, with the spec it has now ({summary(before[-1])})"
    if not rationale:
        message = (
            f"{workflow.workflow_id} {past}: say why it is right this time, choose another workflow, or null"
        )
        found.add(ProblemKind.FORBIDDEN, f"{WORKFLOW_PATH}.rationale", one_line(message, MAX_PROBLEM_CHARS))
        return
    found.require_approval(FactorCode.FAILED_BEFORE, summary(before[-1]))
    found.warnings.append(one_line(f"{workflow.workflow_id} {past}", MAX_PROBLEM_CHARS))


def known_alternatives(
    answer: Answer, facts: VerdictFacts, found: Findings
) -> tuple[AnsweredAlternative, ...]:
    """Alternatives that the catalog knows, without the chosen one: context for a person."""
    chosen = answer.selected_workflow.workflow_id if answer.selected_workflow else ""
    kept: dict[str, AnsweredAlternative] = {}
    for alternative in answer.alternatives:
        if alternative.workflow_id not in facts.alternatives:
            shown = one_line(alternative.workflow_id, SHOWN_CHARS)
            found.notes.append(f"alternative {shown} is not in the catalog or does not fit: left out")
        elif alternative.workflow_id != chosen:
            kept.setdefault(alternative.workflow_id, alternative)
    return tuple(kept.values())
