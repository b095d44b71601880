"""The findings of the checks of one answer: problems, approval factors, warnings and notes."""

from __future__ import annotations

from dataclasses import dataclass, field

from schemas.analysis import ApprovalFactor
from worker.domain.catalog.parameter_values import SHOWN_CHARS
from worker.domain.untrusted.evidence import one_line
from worker.domain.verdict.answers.answer import Problem, ProblemKind
from worker.domain.verdict.approval.factors import FactorCode, factor

PARAMETERS_PATH = "selected_workflow.parameters"


@dataclass(slots=True)
class CheckReport:
    """The findings of the checks of one answer so far."""

    problems: list[Problem] = field(default_factory=list)
    factors: list[ApprovalFactor] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def reject(self, kind: ProblemKind, path: str, message: str) -> None:
        """Reject the answer for this problem."""
        self.problems.append(Problem(kind, path, message))

    def reject_parameter(self, name: str, message: str) -> None:
        """Reject the answer for this problem of a parameter of its workflow."""
        self.reject(ProblemKind.PARAMETERS, f"{PARAMETERS_PATH}.{one_line(name, SHOWN_CHARS)}", message)

    def require_approval(self, code: FactorCode, detail: str = "") -> None:
        """Require a human to approve, for this reason."""
        self.factors.append(factor(code, detail))
