"""Whether a model's answer may be passed on: accepted with everything put right by code, or all its problems at once.

Pure. What has to be looked up in the cluster and the catalog is looked up beforehand and stands in VerdictFacts. The
required fields are those of the canonical answer (ADR-055), severities and signal types those of DD-LLM-001.
"""

from __future__ import annotations

from collections.abc import Sequence

from worker.domain.untrusted.evidence import one_line
from worker.domain.values.workflows import Workflow
from worker.domain.verdict.answers.answer import Answer
from worker.domain.verdict.approval.factors import FactorCode
from worker.domain.verdict.checks.alignment import follows_instruction
from worker.domain.verdict.checks.cause import check_affected, check_cause, check_outcome, check_signal_type
from worker.domain.verdict.checks.choice import check_choice, known_alternatives
from worker.domain.verdict.checks.facts import Findings, VerdictFacts
from worker.domain.verdict.problems import Problem, ProblemKind
from worker.domain.verdict.verdict import NOTHING_TO_DO, Accepted, InvestigationOutcome, Rejected, Verdict

MAX_SHOWN_PROBLEMS = 24
MAX_PROBLEM_CHARS = 600


def judge(answer: Answer, facts: VerdictFacts) -> Verdict:
    """Check everything the model said. Never raises."""
    found = Findings(problems=list(answer.problems), notes=list(answer.notes), warnings=list(answer.warnings))
    severity = check_cause(answer, found)
    signal_type = check_signal_type(answer.signal_type, facts.signal_types, found)
    affected = check_affected(answer, facts, found)
    outcome = check_outcome(answer, found)
    target = check_choice(answer, facts, affected, signal_type, found)
    if answer.asks_for_human:
        found.require_approval(FactorCode.MODEL_ASKS_FOR_HUMAN)
    if found.problems or severity is None or affected is None:
        return Rejected(tuple(found.problems))
    chosen = answer.selected_workflow
    alternatives = known_alternatives(answer, facts, found)
    _note_missing(answer, found)
    return Accepted(
        answer=answer,
        severity=severity,
        signal_type=signal_type,
        affected=affected.ref,
        root_owner=affected.chain[-1],
        outcome=outcome,
        workflow=facts.workflow if chosen else None,
        target=target.target,
        parameters=target.parameters,
        confidence=_fraction(chosen.confidence if chosen else answer.confidence),
        alternatives=alternatives,
        unverified=affected.unverified or bool(facts.not_seen),
        misaligned=_misaligned(outcome, facts.workflow if chosen else None, facts.instructions),
        approval_factors=tuple(dict.fromkeys(found.factors)),
        warnings=tuple(dict.fromkeys(found.warnings)),
        notes=tuple(dict.fromkeys(found.notes)),
    )


def correction_message(problems: Sequence[Problem]) -> str:
    """One message for the model: everything that is wrong, and what to send instead."""
    lines = [
        f"- {p.path}: {one_line(p.message, MAX_PROBLEM_CHARS)}"
        if p.path
        else f"- {one_line(p.message, MAX_PROBLEM_CHARS)}"
        for p in problems[:MAX_SHOWN_PROBLEMS]
    ]
    if len(problems) > MAX_SHOWN_PROBLEMS:
        lines.append(f"- and {len(problems) - MAX_SHOWN_PROBLEMS} more")
    if any(p.kind is ProblemKind.UNREADABLE for p in problems):
        closing = "Send the whole answer again: a short summary, then exactly one complete JSON object in the required form."
    else:
        closing = (
            "Correct these points and send the whole JSON answer again. Keep what was right. Use the tools if you need "
            "facts; if no workflow fits, selected_workflow null with a rationale is a valid answer."
        )
    return "\n".join(["The answer was not accepted:", *lines, closing])


def _fraction(confidence: float | None) -> float | None:
    """A confidence outside 0..1 says nothing."""
    return confidence if confidence is not None and 0 <= confidence <= 1 else None


def _misaligned(
    outcome: InvestigationOutcome | None, workflow: Workflow | None, instructions: Sequence[str]
) -> str:
    if not instructions:
        return ""
    if workflow is None and outcome in NOTHING_TO_DO:
        return f"the evidence holds instructions to its reader, and the answer is {outcome}"
    if workflow is not None and follows_instruction(workflow, instructions):
        return f"the evidence holds instructions to its reader that name {workflow.workflow_id} or its action"
    return ""


def _note_missing(answer: Answer, found: Findings) -> None:
    chosen = answer.selected_workflow
    missing = {
        "signal_type": not answer.signal_type.strip(),
        "contributing_factors": not answer.contributing_factors,
        "rationale": not (chosen.rationale if chosen else answer.rationale).strip(),
        "estimated_risk": chosen is not None and not chosen.estimated_risk.strip(),
        "context_used": not answer.context_used,
    }
    found.notes += [f"the answer does not say {name}" for name, absent in missing.items() if absent]
