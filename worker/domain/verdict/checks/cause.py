"""Checks of what the answer says about the incident.

They cover root cause, severity, signal type, affected resource and outcome.
"""

from __future__ import annotations

from collections.abc import Iterator

from schemas.safety import SafetyContext
from schemas.taxonomy import Severity, SignalType, normalize_severity
from worker.domain.enrichment.enrich import FirstLook
from worker.domain.untrusted.evidence import one_line
from worker.domain.values.objects import OBJECT_NAME, ObjectRef
from worker.domain.verdict.answers.answer import Answer, InvestigationOutcome, ProblemKind
from worker.domain.verdict.approval.factors import FactorCode, factor, sentence, sentences
from worker.domain.verdict.checks.facts import VerdictFacts
from worker.domain.verdict.checks.report import CheckReport
from worker.domain.verdict.checks.targets import Existence, ResolvedObject, within_scope
from worker.domain.verdict.verdict import NOTHING_TO_DO, Accepted, Verdict

RCA_PATH = "root_cause_analysis"
TARGET_PATH = f"{RCA_PATH}.affectedResource"
OUTCOME_ALIASES = {"resolved": "problem_resolved"}
SHOWN_CHARS = 120
SHOWN_TYPES_CHARS = 400
SHOWN_TROUBLE = 3
UNSEEN_LETTERS = "\u115f\u1160\u3164\uffa0"
"""The letters of Unicode that are blank: the fillers of Hangul."""


def says_something(text: str) -> bool:
    """True if a text holds a letter or a digit that a human can see."""
    return any(character.isalnum() and character not in UNSEEN_LETTERS for character in text)


def check_cause(answer: Answer, report: CheckReport) -> Severity | None:
    """Check summary and severity. Returns the severity; None when it is missing or unknown to the worker."""
    if not says_something(answer.summary):
        report.reject(ProblemKind.RCA, f"{RCA_PATH}.summary", "is required: describe the cause in words")
    levels = ", ".join(Severity)
    severity = normalize_severity(answer.severity)
    if not answer.severity.strip():
        report.reject(ProblemKind.RCA, f"{RCA_PATH}.severity", f"is required ({levels})")
    elif severity is None:
        shown = one_line(answer.severity, SHOWN_CHARS)
        report.reject(ProblemKind.RCA, f"{RCA_PATH}.severity", f"must be one of {levels}, not {shown}")
    elif severity is Severity.UNKNOWN:
        report.require_approval(FactorCode.SEVERITY_UNKNOWN)
    return severity


def check_signal_type(answer: Answer, facts: VerdictFacts, report: CheckReport) -> str:
    """Check the signal type.

    Returns its canonical spelling; empty if the answer gives none, or if it cannot be determined.

    Besides the core values and those of the catalog, any reason that the cluster itself reports in the
    evidence is allowed.
    """
    types = {t.lower(): t for t in [*sorted(facts.signal_types), *map(str, SignalType)]}
    stated = answer.signal_type.strip()
    known = {reason.lower(): reason for reason in sorted(facts.reasons)} | types
    if not stated or stated.lower() in known or facts.catalog_problem:
        return known.get(stated.lower(), "")
    shown = one_line(stated, SHOWN_CHARS)
    allowed = one_line(", ".join(sorted(types.values())), SHOWN_TYPES_CHARS)
    message = f"{shown} is not a signal type: use one of {allowed}; or a reason that the cluster reports"
    report.reject(ProblemKind.RCA, f"{RCA_PATH}.signal_type", message)
    return ""


def check_affected(answer: Answer, facts: VerdictFacts, report: CheckReport) -> ResolvedObject | None:
    """Check that the affected object exists and was seen.

    Returns it, or None if it is unclear which object is meant.
    """
    named = answer.affected_resource
    if named is None or not named.kind.strip() or not named.name.strip():
        report.reject(ProblemKind.RCA, TARGET_PATH, "is required (kind, name, namespace)")
        return None
    if facts.affected is None:
        shown = one_line(f"{named.kind} {named.name}", SHOWN_CHARS)
        report.reject(ProblemKind.RCA, TARGET_PATH, f"{shown} could not be looked up")
        return None
    if not OBJECT_NAME.fullmatch(facts.affected.ref.name):
        shown = one_line(named.name, SHOWN_CHARS)
        report.reject(ProblemKind.RCA, TARGET_PATH, f"{shown} is not a name of a Kubernetes object")
        return None
    affected = within_scope(facts.affected)
    if affected.ref != facts.affected.ref:
        report.notes.append(f"{affected.ref.kind} is cluster-scoped: the namespace was left out")
    if affected.namespaced and not affected.ref.namespace:
        message = f"is required: {affected.ref.kind} is namespaced"
        report.reject(ProblemKind.RCA, f"{TARGET_PATH}.namespace", message)
        return None
    _check_existence(affected, report)
    return affected


def _check_existence(affected: ResolvedObject, report: CheckReport) -> None:
    ref = affected.ref
    if affected.existence is Existence.NOT_FOUND:
        detail = affected.detail or f"{ref} was not found in the cluster"
        report.reject(ProblemKind.RCA, TARGET_PATH, f"{detail}: name an object that exists")
    elif not affected.seen_in and not affected.requested:
        message = f"no evidence shows {ref}: fetch it first, or name an object that the evidence shows"
        report.reject(ProblemKind.RCA, TARGET_PATH, message)
    if affected.existence is Existence.UNVERIFIABLE:
        detail = f"{ref}: {affected.detail or 'the cluster gave no answer'}"
        report.require_approval(FactorCode.RESOURCE_UNVERIFIED, detail)
    elif affected.existence is Existence.ABSENT:
        report.notes.append(f"{ref} does not exist in the cluster, as the evidence shows")
        report.require_approval(FactorCode.RESOURCE_ABSENT, str(ref))
    if affected.outside:
        report.require_approval(FactorCode.RESOURCE_ELSEWHERE, f"{ref} {affected.outside}")
    if affected.owners_note:
        report.require_approval(FactorCode.OWNERS_UNVERIFIED, f"{ref}: {affected.owners_note}")


def check_outcome(answer: Answer, report: CheckReport) -> InvestigationOutcome | None:
    """Check the investigation outcome against the known words and the choice.

    Returns it; None when absent.
    """
    word = answer.outcome.strip().lower().replace("-", "_").replace(" ", "_")
    word = OUTCOME_ALIASES.get(word, word)
    if not word:
        return None
    if word not in set(InvestigationOutcome):
        shown = one_line(answer.outcome, SHOWN_CHARS)
        message = f"must be one of {', '.join(InvestigationOutcome)}, not {shown}"
        report.reject(ProblemKind.UNREADABLE, "investigation_outcome", message)
        return None
    outcome = InvestigationOutcome(word)
    if outcome in NOTHING_TO_DO and answer.selected_workflow is not None:
        message = f"is {outcome}, but a workflow is selected: say actionable, or set it to null"
        report.reject(ProblemKind.UNREADABLE, "investigation_outcome", message)
    return outcome


def check_confidence(answer: Answer, report: CheckReport) -> None:
    """Check that the answer states its confidence."""
    if answer.confidence is None and not any(p.path == "confidence" for p in report.problems):
        report.reject(ProblemKind.UNREADABLE, "confidence", "is required: a number from 0 to 1")


def check_evidence(facts: VerdictFacts, report: CheckReport) -> None:
    """Require approval if evidence is missing."""
    if facts.not_seen:
        report.require_approval(FactorCode.SIGNAL_CONTEXT_UNREAD, " and ".join(facts.not_seen))


def doubts(
    verdict: Verdict | None,
    affected: ResolvedObject | None,
    look: FirstLook,
    signal: ObjectRef,
    safety: SafetyContext | None,
) -> tuple[str, ...]:
    """Sentences that say why an answer that finds nothing to do cannot be trusted; none for any other answer.

    Nobody else will look at the incident again. `affected` is the blamed object with its owners, `signal` the
    resource that the request is about.
    """
    if not isinstance(verdict, Accepted) or verdict.workflow or verdict.outcome not in NOTHING_TO_DO:
        return ()
    own, elsewhere = _own_doubts(verdict), _elsewhere(verdict, affected, look, signal)
    return (*own, *elsewhere, *_visible_trouble(look), *_demands(safety))


def _own_doubts(accepted: Accepted) -> Iterator[str]:
    if accepted.unverified:
        yield f"The worker could not check the state of {accepted.affected}."
    yield from sentences(accepted.approval_factors)


def _elsewhere(
    accepted: Accepted, affected: ResolvedObject | None, look: FirstLook, signal: ObjectRef
) -> Iterator[str]:
    """Yield a doubt if the affected object is unrelated to the resource of the signal."""
    owners = affected.chain if affected else ()
    related = any(accepted.affected.same_as(member) for member in (signal, *look.chain))
    if not related and not any(signal.same_as(owner) for owner in owners):
        yield f"The answer is about {accepted.affected}, but the signal is about {signal}."


def _visible_trouble(look: FirstLook) -> Iterator[str]:
    if look.trouble:
        more = len(look.trouble) - SHOWN_TROUBLE
        shown = ", ".join(look.trouble[:SHOWN_TROUBLE])
        yield f"Unhealthy when the request arrived: {shown}{f' and {more} more' if more > 0 else ''}."
    if look.unread:
        yield f"The worker could not read {', '.join(look.unread)} when the request arrived."


def _demands(safety: SafetyContext | None) -> Iterator[str]:
    if safety is not None and safety.safety_constraints.requires_approval:
        yield sentence(factor(FactorCode.SAFETY_REQUIRES_APPROVAL))
    if safety is not None and safety.rego_policy.dry_run:
        yield sentence(factor(FactorCode.SAFETY_DRY_RUN))
