"""What an answer is judged by, and what the checks note down on the way."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from schemas.analysis import ApprovalFactor
from schemas.safety import SafetyContext
from schemas.taxonomy import Severity, normalize_severity
from worker.domain.catalog.selection import for_final_choice
from worker.domain.values.remediations import FailedExecution, PastRemediation
from worker.domain.values.workflows import SelectionContext, Workflow
from worker.domain.verdict.answers.answer import Answer
from worker.domain.verdict.approval.factors import FactorCode, factor
from worker.domain.verdict.checks.targets import ResolvedObject
from worker.domain.verdict.problems import Problem, ProblemKind


@dataclass(frozen=True, slots=True)
class VerdictFacts:
    """Everything an answer is judged by.

    `context`: business labels of the request, detected and custom labels of the affected resource.
    `affected`: the resource the answer blames, looked up; None when it names none.
    `workflow`: what the catalog returned for the chosen id in `lookup_context`; None for unknown and unfit alike.
    `other_target`: the object of `targets.other_target`, looked up.
    `unseen_parameters`: those of the chosen parameters that name an object which stands in no evidence.
    `alternatives`: those ids of the answer's alternatives that the catalog knows.
    `instructions`: texts of the evidence that try to instruct whoever reads them.
    `steering`: ids of evidence that speaks of what to do or decide, or that nobody here can read.
    `shown`: reasons of Kubernetes that the cluster itself reports, in lower case; None when nobody looked.
    `named_in`: evidence of the cluster or the sender that names the chosen workflow.
    `failed_here`: executions that did not help the affected resource while its spec was what it is now;
    `history_problem` says why they are not known.
    `not_seen` are sources around the signal (pods, events) that nobody could read.
    """

    context: SelectionContext
    affected: ResolvedObject | None = None
    workflow: Workflow | None = None
    other_target: ResolvedObject | None = None
    unseen_parameters: frozenset[str] = frozenset()
    alternatives: frozenset[str] = frozenset()
    signal_types: frozenset[str] = frozenset()
    safety: SafetyContext | None = None
    failed: FailedExecution | None = None
    instructions: tuple[str, ...] = ()
    steering: tuple[str, ...] = ()
    shown: frozenset[str] | None = None
    named_in: tuple[str, ...] = ()
    failed_here: tuple[PastRemediation, ...] = ()
    history_problem: str = ""
    not_seen: tuple[str, ...] = ()


@dataclass(slots=True)
class Findings:
    problems: list[Problem] = field(default_factory=list)
    factors: list[ApprovalFactor] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, kind: ProblemKind, path: str, message: str) -> None:
        self.problems.append(Problem(kind, path, message))

    def require_approval(self, code: FactorCode, detail: str = "") -> None:
        self.factors.append(factor(code, detail))


def lookup_context(answer: Answer, context: SelectionContext) -> SelectionContext:
    """The context in which the chosen workflow is fetched: the severity is the answer's, the component is judged later."""
    severity = normalize_severity(answer.severity) or Severity.UNKNOWN
    return for_final_choice(replace(context, severity=severity, components=()))
