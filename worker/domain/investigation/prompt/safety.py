"""The safety context: the limits that checks enforce, told as limits, and what depends on the service.

It is policy for the choice of a workflow and no evidence about the cause. The sender's `task` is never shown: it would be an
instruction by the sender.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator

from schemas.safety import SafetyContext
from worker.domain.untrusted.evidence import one_line

SHOWN_FIELDS = {
    "priority",
    "criticality",
    "environment",
    "service",
    "dependencies",
    "data_criticality",
    "user_impact",
    "rego_policy",
}
MOST_ACTION_CHARS = 1_000
TITLE = "## Safety Context (policy for the choice of a workflow, not evidence)"


def safety_section(context: SafetyContext | None, shown: Callable[[str, str], str], most_chars: int) -> str:
    """The section, with at most so many characters of what is no limit; empty when nothing was said."""
    if context is None:
        return ""
    limits = [f"- {limit}" for limit in limits_of(context, shown)]
    about = shown_context(context)
    lines = [*limits, one_line(shown("safety_context", about), most_chars)] if about else limits
    return "\n".join([TITLE, *lines]) if lines else ""


def limits_of(context: SafetyContext, shown: Callable[[str, str], str]) -> Iterator[str]:
    """The limits, each as a sentence that says what happens beyond it. `shown` bounds the names of actions."""

    def actions(which: str, names: Iterable[str]) -> str:
        return one_line(shown(which, ", ".join(names)), MOST_ACTION_CHARS) or "none"

    said = context.safety_constraints
    if said.forbidden_actions:
        yield f"Forbidden actions: {actions('forbidden_actions', said.forbidden_actions)}. A workflow that takes one is rejected."
    if said.allowed_actions is not None:
        yield f"Allowed actions: {actions('allowed_actions', said.allowed_actions)}. Any other needs the approval of a person."
    if said.max_downtime_seconds is not None:
        yield (
            f"Downtime: at most {said.max_downtime_seconds} s. A workflow that takes longer is rejected; give "
            "estimated_downtime_seconds and impact_on_dependencies."
        )
    if said.requires_approval or context.rego_policy.dry_run:
        yield "A person must approve any workflow."


def shown_context(context: SafetyContext) -> str:
    """What is no limit, as compact JSON; empty if nothing is set."""
    told = context.model_dump(mode="json", include=SHOWN_FIELDS, exclude_defaults=True)
    return json.dumps(told, separators=(",", ":"), ensure_ascii=False) if told else ""
