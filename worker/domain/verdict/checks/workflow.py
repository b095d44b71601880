"""Checks of the chosen workflow.

They cover its existence and fit, its target and parameters, and whether it may run at all.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from schemas.safety import SafetyContext
from worker.domain.catalog import selection
from worker.domain.catalog.parameter_values import BadValueError, check_value
from worker.domain.cluster.history import same_as_before, summary
from worker.domain.untrusted.evidence import one_line
from worker.domain.values.json_read import read_json
from worker.domain.values.objects import ObjectRef
from worker.domain.values.remediations import FailedExecution
from worker.domain.values.workflows import Parameter, ParameterType, SelectionContext, Workflow, action_name
from worker.domain.verdict.answers.answer import Answer, AnsweredAlternative, AnsweredWorkflow, ProblemKind
from worker.domain.verdict.approval.factors import FactorCode
from worker.domain.verdict.checks.evidence import is_reported
from worker.domain.verdict.checks.facts import MAX_ALTERNATIVES, VerdictFacts, lookup_context
from worker.domain.verdict.checks.parameters import check_values
from worker.domain.verdict.checks.report import CheckReport
from worker.domain.verdict.checks.targets import (
    ResolvedObject,
    TargetChoice,
    choose_target,
    spelling,
    target_part,
    within_scope,
)

WORKFLOW_PATH = "selected_workflow"
SHOWN_CHARS = 120
MAX_PROBLEM_CHARS = 600


def check_identity(
    answer: Answer, facts: VerdictFacts, report: CheckReport
) -> tuple[AnsweredWorkflow, Workflow] | None:
    """Check that the chosen workflow is in the catalog and described as there.

    Returns the choice and the catalog's workflow; None when nothing is chosen or the id is not usable.
    """
    chosen = answer.selected_workflow
    if chosen is None:
        if not answer.workflow_stated:
            message = "is required (workflow_id, confidence, rationale, parameters), or null"
            report.reject(ProblemKind.UNREADABLE, WORKFLOW_PATH, message)
        return None
    confidence = f"{WORKFLOW_PATH}.confidence"
    known = chosen.confidence is not None and 0 <= chosen.confidence <= 1
    if not known and not any(p.path == confidence for p in report.problems):
        report.reject(ProblemKind.UNREADABLE, confidence, "is required: a number from 0 to 1")
    workflow = facts.workflow
    if workflow is None or (workflow.workflow_id != chosen.workflow_id and not chosen.by_action):
        message = _unknown(chosen, answer, facts)
        report.reject(ProblemKind.WORKFLOW_UNKNOWN, f"{WORKFLOW_PATH}.workflow_id", message)
        return None
    version, image = chosen.version.strip(), chosen.container_image.strip()
    if version and _release(version) != _release(workflow.version):
        shown = one_line(version, SHOWN_CHARS)
        message = f"the catalog has version {workflow.version or '(none)'}, not {shown}"
        report.reject(ProblemKind.WORKFLOW_MISMATCH, f"{WORKFLOW_PATH}.version", message)
    if image and image != workflow.container_image:
        message = f"the catalog has {workflow.container_image or 'no image'}: copy it, or leave it out"
        report.reject(ProblemKind.WORKFLOW_MISMATCH, f"{WORKFLOW_PATH}.container_image", message)
    return chosen, workflow


def _release(version: str) -> str:
    """A version without the letter v and without zeros at its end: V2.3.0, v2.3 and 2.3 are the same."""
    return re.sub(r"(?:\.0+)+$", "", version.strip().lower().removeprefix("v"))


def _unknown(chosen: AnsweredWorkflow, answer: Answer, facts: VerdictFacts) -> str:
    if not chosen.workflow_id.strip():
        return "is required"
    context = lookup_context(answer, facts.context)
    labels = {name: getattr(context, name) for name in ("environment", "priority", "severity")}
    shown = ", ".join(f"{name}={one_line(value, 40)}" for name, value in labels.items() if value)
    return (
        f"{one_line(chosen.workflow_id, SHOWN_CHARS)} is not in the catalog or does not fit ({shown}): "
        "choose an id that list_workflows returns, or null"
    )


def check_target(
    chosen: AnsweredWorkflow,
    workflow: Workflow,
    affected: ResolvedObject,
    facts: VerdictFacts,
    report: CheckReport,
) -> TargetChoice:
    """Check target and parameters. Returns the object the workflow acts on and the final parameters."""
    other = None if facts.other_target is None else within_scope(facts.other_target)
    target = choose_target(workflow, chosen.parameters, affected, report, other, facts.unseen_parameters)
    scope = target.target or affected.ref
    empty = {n for n, v in target.parameters.items() if v == "" and target_part(n) == "namespace"}
    values = check_values(workflow, target.parameters, report, set() if scope.namespace else empty)
    return replace(target, parameters=values)


def check_fit(
    workflow: Workflow, context: SelectionContext, objects: Iterable[ObjectRef], report: CheckReport
) -> None:
    """Check the labels of the workflow against the context.

    `objects` are the affected one, its owners, the target.
    """
    final = replace(context, components=tuple((o.api_version, o.kind) for o in objects))
    for mismatch in selection.mismatches(workflow, selection.for_final_choice(final)):
        message = f"{workflow.workflow_id} does not fit: {mismatch}; choose another workflow, or null"
        report.reject(
            ProblemKind.WORKFLOW_UNKNOWN, f"{WORKFLOW_PATH}.workflow_id", one_line(message, MAX_PROBLEM_CHARS)
        )
    if made_for := selection.other_signal_type(workflow, final):
        report.require_approval(FactorCode.WORKFLOW_FOR_OTHER_SIGNAL, made_for)
    for label in selection.unmet_labels(workflow, final):
        report.require_approval(FactorCode.WORKFLOW_LABEL_UNMET, label)
    if selection.works_against_gitops(workflow, final):
        report.warnings.append(f"A GitOps tool manages the target and may undo {workflow.workflow_id}.")


def check_reported(signal_type: str, facts: VerdictFacts, report: CheckReport) -> None:
    """Check that the cluster reports the signal type that the workflow was chosen for."""
    if facts.shown is not None and not is_reported(signal_type, facts.shown):
        report.require_approval(FactorCode.SIGNAL_TYPE_NOT_REPORTED, signal_type)


def check_history(
    rationale: str,
    workflow: Workflow,
    parameters: Mapping[str, Any],
    facts: VerdictFacts,
    report: CheckReport,
) -> None:
    """Check that no failed remediation is repeated.

    The execution that a recovery is about must not be repeated with the same parameters. What did not help
    this resource earlier, with the spec it has now, may be chosen again with a rationale, and a human
    approves.
    """
    if facts.failed is not None and repeats(workflow, parameters, facts.failed):
        message = "has failed with these parameters: choose another workflow, other parameters, or null"
        report.reject(ProblemKind.FORBIDDEN, WORKFLOW_PATH, message)
    if facts.history_problem:
        detail = f"{workflow.workflow_id}, {facts.history_problem}"
        report.require_approval(FactorCode.HISTORY_UNKNOWN, detail)
    before = same_as_before(workflow.workflow_id, workflow.action_type, facts.failed_here)
    if not before:
        return
    past = f"{workflow.workflow_id} did not help this resource before, with its present spec"
    past = one_line(f"{past} ({summary(before[-1])})", MAX_PROBLEM_CHARS)
    if not rationale.strip():
        message = f"is required: {past}; say why it is right this time, choose another workflow, or null"
        report.reject(ProblemKind.FORBIDDEN, f"{WORKFLOW_PATH}.rationale", message)
        return
    report.require_approval(FactorCode.FAILED_BEFORE, summary(before[-1]))
    report.warnings.append(f"{past}.")


def known_alternatives(
    answer: Answer, facts: VerdictFacts, report: CheckReport
) -> tuple[AnsweredAlternative, ...]:
    """Alternatives that the catalog knows, without the chosen one: context for a human."""
    chosen = answer.selected_workflow.workflow_id if answer.selected_workflow else ""
    kept: dict[str, AnsweredAlternative] = {}
    for place, alternative in enumerate(answer.alternatives):
        if alternative.workflow_id not in facts.alternatives:
            shown = one_line(alternative.workflow_id, SHOWN_CHARS)
            late, unfit = f"only {MAX_ALTERNATIVES} are looked up", "it is not in the catalog or does not fit"
            why = late if place >= MAX_ALTERNATIVES else unfit
            report.notes.append(f"alternative {shown} was left out: {why}")
        elif alternative.workflow_id != chosen:
            kept.setdefault(alternative.workflow_id, alternative)
    return tuple(kept.values())


def names_action(patterns: Iterable[str], action_type: str) -> bool:
    """True if a pattern is the action type in any spelling, its first word (`scale`), or a matching glob.

    An example of a glob is `delete_*`.
    """
    action = action_name(action_type)
    wanted = [action_name(p) for p in patterns if p.strip()]
    return any(p == action.partition("_")[0] or _covers(p, action) for p in wanted)


def forbids(patterns: Iterable[str], workflow: Workflow) -> bool:
    """True if a pattern names the workflow, its action type, or any words in the action type.

    `delete` forbids `force_delete_pod`.

    Wider than for allowed actions, because a missed prohibition costs more than one that reaches too far.
    """
    words = action_name(workflow.action_type).split("_")
    numbers = range(len(words))
    runs = ["_".join(words[start : end + 1]) for start in numbers for end in numbers[start:]]
    meant = [action_name(workflow.workflow_id), *runs]
    wanted = [action_name(p) for p in patterns if p.strip()]
    return any(_covers(p, name) for p in wanted for name in meant)


def _covers(pattern: str, name: str) -> bool:
    """True if both are the same or the glob matches, whatever separates the words, in singular or plural."""
    return fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(_squeezed(name), _squeezed(pattern))


def _squeezed(name: str) -> str:
    return name.replace("_", "").removesuffix("s")


def check_safety(
    workflow: Workflow,
    safety: SafetyContext | None,
    answered_downtime_seconds: int | None,
    report: CheckReport,
) -> None:
    """Check the workflow against the safety context.

    The downtime is that of the catalog. If it states none, the model's estimate can fail the check, but never
    pass it: nothing has checked that number.
    """
    if safety is None:
        return
    limits = safety.safety_constraints
    action = action_name(workflow.action_type)
    _check_downtime(workflow, limits.max_downtime_seconds, answered_downtime_seconds, report)
    if forbids(limits.forbidden_actions, workflow):
        message = f"{action} is forbidden for this incident: choose another kind of action, or null"
        report.reject(ProblemKind.FORBIDDEN, f"{WORKFLOW_PATH}.workflow_id", message)
    elif limits.allowed_actions is not None and not names_action(
        limits.allowed_actions, workflow.action_type
    ):
        report.require_approval(FactorCode.ACTION_NOT_ALLOWED, action)
    if limits.requires_approval:
        report.require_approval(FactorCode.SAFETY_REQUIRES_APPROVAL)
    if safety.rego_policy.dry_run:
        report.require_approval(FactorCode.SAFETY_DRY_RUN)


def _check_downtime(workflow: Workflow, limit: int | None, answered: int | None, report: CheckReport) -> None:
    if limit is None:
        return
    declared = workflow.estimated_downtime_seconds
    seconds, source = (answered, "this answer") if declared is None else (declared, "the catalog")
    if seconds is not None and seconds > limit:
        message = f"{source} estimates {seconds} s of downtime, but at most {limit} s are acceptable"
        message = f"{message}: choose another workflow, or null"
        report.reject(ProblemKind.FORBIDDEN, f"{WORKFLOW_PATH}.workflow_id", message)
    elif declared is None:
        estimate = f", and the answer estimates {answered} s" if answered is not None else ""
        report.require_approval(FactorCode.DOWNTIME_UNKNOWN, f"at most {limit} s{estimate}")


def repeats(workflow: Workflow, parameters: Mapping[str, Any], failed: FailedExecution) -> bool:
    """True if workflow and parameters are those that failed.

    Values compare by meaning (`2`, `2.0` and `"2"` are the same number), names in any spelling, defaults
    count as given. Parameters that name the target count only where both sides have them: older executions
    were given the target in other ways.
    """
    if failed.workflow_id.strip() != workflow.workflow_id:
        return False
    pairs = [(p, _given(parameters, p.name), _given(failed.parameters, p.name)) for p in workflow.parameters]
    return all(
        _meaning(p, now) == _meaning(p, before)
        for p, now, before in pairs
        if target_part(p.name) is None or (now is not None and before is not None)
    )


def _given(parameters: Mapping[str, Any], name: str) -> Any:
    """The value of this name, else of the first one that is it in another spelling; None if there is none."""
    if name in parameters:
        return parameters[name]
    return next((value for other, value in parameters.items() if spelling(other) == spelling(name)), None)


def _meaning(parameter: Parameter, value: Any) -> str:
    value = parameter.default if value is None else value
    if value is None:
        return ""
    if parameter.type is ParameterType.ARRAY and isinstance(value, str):
        value = read_json(value, [item.strip() for item in value.split(",")])
    try:
        value = check_value(parameter, value)
    except BadValueError:
        return str(value).strip()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, sort_keys=True)
