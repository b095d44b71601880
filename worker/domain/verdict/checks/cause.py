"""The first half of a verdict: root cause, severity, signal type, affected resource, outcome."""

from __future__ import annotations

from schemas.taxonomy import Severity, SignalType, normalize_severity
from worker.domain.untrusted.evidence import one_line
from worker.domain.verdict.answers.answer import Answer
from worker.domain.verdict.approval.factors import FactorCode
from worker.domain.verdict.checks.facts import Findings, VerdictFacts
from worker.domain.verdict.checks.targets import Existence, ResolvedObject, within_scope
from worker.domain.verdict.problems import ProblemKind
from worker.domain.verdict.verdict import NOTHING_TO_DO, InvestigationOutcome

MISSING_TARGET = "missing required field: root_cause_analysis.affectedResource (kind, name, namespace)"
RCA_PATH = "root_cause_analysis"
TARGET_PATH = f"{RCA_PATH}.affectedResource"
OUTCOME_ALIASES = {"resolved": "problem_resolved"}
SHOWN_CHARS = 120
SHOWN_TYPES_CHARS = 400


def check_cause(answer: Answer, found: Findings) -> Severity | None:
    if not answer.summary.strip():
        found.add(ProblemKind.RCA, f"{RCA_PATH}.summary", f"missing required field: {RCA_PATH}.summary")
    levels = ", ".join(Severity)
    severity = normalize_severity(answer.severity)
    if not answer.severity.strip():
        message = f"missing required field: {RCA_PATH}.severity ({levels})"
        found.add(ProblemKind.RCA, f"{RCA_PATH}.severity", message)
    elif severity is None:
        shown = one_line(answer.severity, SHOWN_CHARS)
        found.add(ProblemKind.RCA, f"{RCA_PATH}.severity", f"must be one of {levels}, not {shown}")
    elif severity is Severity.UNKNOWN:
        found.require_approval(FactorCode.SEVERITY_UNKNOWN)
    return severity


def check_signal_type(stated: str, known: frozenset[str], found: Findings) -> str:
    """The canonical spelling; empty when the model did not say."""
    types = {t.lower(): t for t in [*sorted(known), *map(str, SignalType)]}
    if not stated.strip() or stated.strip().lower() in types:
        return types.get(stated.strip().lower(), "")
    shown, allowed = (
        one_line(stated, SHOWN_CHARS),
        one_line(", ".join(sorted(types.values())), SHOWN_TYPES_CHARS),
    )
    found.add(
        ProblemKind.RCA, f"{RCA_PATH}.signal_type", f"{shown} is not a signal type; use one of {allowed}"
    )
    return ""


def check_affected(answer: Answer, facts: VerdictFacts, found: Findings) -> ResolvedObject | None:
    named = answer.affected_resource
    if named is None or not named.kind.strip() or not named.name.strip():
        found.add(ProblemKind.RCA, TARGET_PATH, MISSING_TARGET)
        return None
    if facts.affected is None:
        found.add(ProblemKind.RCA, TARGET_PATH, f"{_shown(named.kind, named.name)} could not be looked up")
        return None
    affected = within_scope(facts.affected)
    if affected.ref != facts.affected.ref:
        found.notes.append(f"{affected.ref.kind} has cluster scope: the namespace was left out")
    if affected.namespaced and not affected.ref.namespace:
        message = f"missing required field: {TARGET_PATH}.namespace ({affected.ref.kind} is namespaced)"
        found.add(ProblemKind.RCA, f"{TARGET_PATH}.namespace", message)
        return None
    _check_existence(affected, found)
    if facts.not_seen:
        found.require_approval(FactorCode.SIGNAL_CONTEXT_UNREAD, " and ".join(facts.not_seen))
    if facts.steering:
        found.require_approval(FactorCode.STEERING_TEXT, ", ".join(facts.steering))
    return affected


def _check_existence(affected: ResolvedObject, found: Findings) -> None:
    ref = affected.ref
    if affected.existence is Existence.NOT_FOUND:
        detail = affected.detail or f"{ref} was not found in the cluster"
        found.add(ProblemKind.RCA, TARGET_PATH, f"{detail}: name an object that exists")
    elif not affected.seen_in and not affected.requested:
        message = (
            f"{ref} stands in no evidence: look at it before blaming it, or name what the evidence shows"
        )
        found.add(ProblemKind.RCA, TARGET_PATH, message)
    if affected.existence is Existence.UNVERIFIABLE:
        detail = f"{ref}: {affected.detail or 'the cluster gave no answer'}"
        found.require_approval(FactorCode.RESOURCE_UNVERIFIED, detail)
    elif affected.existence is Existence.ABSENT:
        found.notes.append(f"{ref} is not in the cluster, as the evidence shows")
        found.require_approval(FactorCode.RESOURCE_ABSENT, str(ref))
    if affected.outside:
        found.require_approval(FactorCode.RESOURCE_ELSEWHERE, f"{ref} {affected.outside}")
    if affected.owners_note:
        found.require_approval(FactorCode.OWNERS_UNVERIFIED, f"{ref}: {affected.owners_note}")


def check_outcome(answer: Answer, found: Findings) -> InvestigationOutcome | None:
    word = answer.outcome.strip().lower().replace("-", "_").replace(" ", "_")
    word = OUTCOME_ALIASES.get(word, word)
    if not word:
        return None
    if word not in set(InvestigationOutcome):
        message = (
            f"must be one of {', '.join(InvestigationOutcome)}, not {one_line(answer.outcome, SHOWN_CHARS)}"
        )
        found.add(ProblemKind.UNREADABLE, "investigation_outcome", message)
        return None
    outcome = InvestigationOutcome(word)
    if outcome in NOTHING_TO_DO and answer.selected_workflow is not None:
        message = f"says {outcome} although a workflow is selected: say actionable, or select null"
        found.add(ProblemKind.UNREADABLE, "investigation_outcome", message)
    return outcome


def _shown(kind: str, name: str) -> str:
    return one_line(f"{kind} {name}", SHOWN_CHARS)
