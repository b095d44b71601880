"""What a tool found, before it is numbered and fenced."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.enrichment import DetectedLabels
from worker.domain.cluster.objects import ObjectRef

RESULT_TOKENS = 1_800
"""Budget of one tool result without its fence (2,000 tokens with it)."""


@dataclass(frozen=True, slots=True)
class Target:
    """The object of the last get_resource_context: what label filters of the workflow choice speak of.

    `chain` starts with the object itself, its top owner is last. `exists` is None when that is not known.
    """

    ref: ObjectRef
    chain: tuple[ObjectRef, ...]
    detected_labels: DetectedLabels
    exists: bool | None = True


@dataclass(frozen=True, slots=True)
class Finding:
    """`scope` names what was really covered, `cut` what is missing and how to get it. Both may hold untrusted text."""

    body: str
    scope: str
    cut: str = ""
    target: Target | None = None


class ToolProblem(Exception):  # noqa: N818 - an answer for the model, not a fault
    """A tool cannot do what was asked. The message says what would work; `scope` what was tried.

    `passing` means that the same call may work later.
    """

    def __init__(self, message: str, *, scope: str = "", passing: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.scope = scope
        self.passing = passing
