"""What is wrong with an answer: one problem for each finding, all of them returned at once."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class ProblemKind(enum.StrEnum):
    """Kinds of problems, in the order in which they decide the reason for human review."""

    UNREADABLE = "unreadable"
    RCA = "rca"
    WORKFLOW_UNKNOWN = "workflow_unknown"
    WORKFLOW_MISMATCH = "workflow_mismatch"
    PARAMETERS = "parameters"
    FORBIDDEN = "forbidden"


@dataclass(frozen=True, slots=True)
class Problem:
    """Why an answer is rejected: a path in it (`selected_workflow.parameters.NEW_SIZE`), and how to correct it."""

    kind: ProblemKind
    path: str
    message: str
