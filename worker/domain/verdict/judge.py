"""Judges a model's answer: accepts it, perhaps with corrections by code, or rejects it with every problem.

Pure. Facts of the cluster and the catalog were looked up before, and are in VerdictFacts. The required fields
are those of the canonical answer (ADR-055), severities and signal types those of DD-LLM-001.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from schemas.taxonomy import Severity
from worker.domain.untrusted.evidence import one_line
from worker.domain.values.workflows import Workflow
from worker.domain.verdict.answers.answer import Answer, Problem, ProblemKind
from worker.domain.verdict.approval.factors import FactorCode
from worker.domain.verdict.checks import cause
from worker.domain.verdict.checks import workflow as choice
from worker.domain.verdict.checks.evidence import check_claims
from worker.domain.verdict.checks.facts import VerdictFacts, lookup_context
from worker.domain.verdict.checks.report import CheckReport
from worker.domain.verdict.checks.targets import ResolvedObject, TargetChoice
from worker.domain.verdict.verdict import NO_OBJECT, Accepted, Rejected, Verdict

MAX_SHOWN_PROBLEMS = 24
MAX_PROBLEM_CHARS = 600
NO_TARGET = TargetChoice(None, {})


def judge(answer: Answer, facts: VerdictFacts) -> Verdict:
    """Check everything the model said, in the order of an answer. Never raises."""
    report = CheckReport(list(answer.problems), notes=list(answer.notes), warnings=list(answer.warnings))
    severity = cause.check_cause(answer, report)
    signal_type = cause.check_signal_type(answer, facts, report)
    affected = cause.check_affected(answer, facts, report)
    outcome = cause.check_outcome(answer, report)
    cause.check_confidence(answer, report)
    cause.check_evidence(facts, report)
    claims = check_claims(answer.causal_chain, facts.reported_by, report)
    if answer.asks_for_human:
        report.require_approval(FactorCode.MODEL_ASKS_FOR_HUMAN)
    workflow, target = _check_choice(answer, facts, affected, signal_type, report)
    blamed = None if any(p.path.startswith(cause.TARGET_PATH) for p in report.problems) else affected
    alternatives = choice.known_alternatives(answer, facts, report)
    _note_missing(answer, report)
    chosen = answer.selected_workflow
    accepted = Accepted(
        answer=answer,
        severity=severity or Severity.UNKNOWN,
        signal_type=signal_type,
        affected=blamed.ref if blamed else NO_OBJECT,
        root_owner=blamed.chain[-1] if blamed else NO_OBJECT,
        outcome=outcome,
        workflow=workflow,
        target=target.target,
        parameters=target.parameters,
        confidence=chosen.confidence if chosen else answer.confidence,
        alternatives=alternatives,
        claims=claims,
        unverified=bool(facts.not_seen) or (blamed is not None and blamed.unverified),
        approval_factors=tuple(dict.fromkeys(report.factors)),
        warnings=tuple(dict.fromkeys(report.warnings)),
        notes=tuple(dict.fromkeys(report.notes)),
    )
    if not report.problems:
        return accepted
    return Rejected(tuple(report.problems), _without_choice(accepted))


def _without_choice(accepted: Accepted) -> Accepted:
    """The answer without the workflow that did not pass its checks."""
    return replace(
        accepted,
        answer=replace(accepted.answer, selected_workflow=None, problems=()),
        outcome=None,
        workflow=None,
        target=None,
        parameters={},
        confidence=accepted.answer.confidence,
        misaligned="",
        approval_factors=(),
    )


def _check_choice(
    answer: Answer,
    facts: VerdictFacts,
    affected: ResolvedObject | None,
    signal_type: str,
    report: CheckReport,
) -> tuple[Workflow | None, TargetChoice]:
    """Check the chosen workflow. Returns it with its target and parameters; None when it cannot be judged."""
    identified = choice.check_identity(answer, facts, report)
    if identified is None:
        return None, NO_TARGET
    chosen, workflow = identified
    target = choice.check_target(chosen, workflow, affected, facts, report) if affected else NO_TARGET
    context = replace(lookup_context(answer, facts.context), signal_type=signal_type)
    objects = [*(affected.chain if affected else ()), *([target.target] if target.target else [])]
    choice.check_fit(workflow, context, objects, report)
    choice.check_safety(workflow, facts.safety, chosen.estimated_downtime_seconds, report)
    choice.check_reported(signal_type, facts, report)
    choice.check_history(chosen.rationale or answer.rationale, workflow, target.parameters, facts, report)
    return workflow, target


def correction_message(problems: Sequence[Problem], attempt: str = "the next attempt") -> str:
    """The message to the model: everything that is wrong, and what to send instead, as which attempt."""
    places = [f"{p.path}: " if p.path else "" for p in problems[:MAX_SHOWN_PROBLEMS]]
    told = [one_line(p.message, MAX_PROBLEM_CHARS) for p in problems]
    lines = [f"- {place}{message}" for place, message in zip(places, told, strict=False)]
    if len(problems) > MAX_SHOWN_PROBLEMS:
        lines.append(f"- and {len(problems) - MAX_SHOWN_PROBLEMS} more")
    if any(p.kind is ProblemKind.UNREADABLE for p in problems):
        closing = f"Submit the whole answer again: this is {attempt}."
    else:
        closing = (
            f"Correct these points, keep the rest, and submit the whole answer again: this is {attempt}. Use the tools "
            "if you need facts. If no workflow fits, set selected_workflow to null and give a rationale."
        )
    return "\n".join(["The answer was rejected:", *lines, closing])


def _note_missing(answer: Answer, report: CheckReport) -> None:
    chosen = answer.selected_workflow
    missing = {
        "signal_type": not answer.signal_type.strip(),
        "contributing_factors": not answer.contributing_factors,
        "rationale": not (chosen.rationale if chosen else answer.rationale).strip(),
        "estimated_risk": chosen is not None and not chosen.estimated_risk.strip(),
        "context_used": not answer.context_used,
    }
    report.notes += [f"the answer gives no {name}" for name, absent in missing.items() if absent]
