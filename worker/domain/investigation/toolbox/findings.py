"""What a tool found, before it is numbered and fenced."""

from __future__ import annotations

from dataclasses import dataclass

from worker.domain.values.workflow_search import Target


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
