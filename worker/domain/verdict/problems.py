"""What is wrong with a model's answer: one problem a finding, all of them returned at once."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class ProblemKind(enum.StrEnum):
    """Groups of problems, in the order in which they decide the reason for human review."""

    UNREADABLE = "unreadable"
    RCA = "rca"
    WORKFLOW_UNKNOWN = "workflow_unknown"
    WORKFLOW_MISMATCH = "workflow_mismatch"
    PARAMETERS = "parameters"
    FORBIDDEN = "forbidden"


@dataclass(frozen=True, slots=True)
class Problem:
    """`path` in the answer (`selected_workflow.parameters.NEW_SIZE`), and a message that says how to mend it."""

    kind: ProblemKind
    path: str
    message: str
