"""The first user turn of an incident: all sections in order, and the evidence gathered before the first call.

The safety context is policy for the choice of a workflow and no evidence about the cause. The sender's `task`
is never shown: it would be an instruction by the sender.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from schemas.enrichment import DetectedLabels
from schemas.incident import Signal
from schemas.recovery import RecoveryRequest
from schemas.safety import SafetyContext
from worker.domain.investigation.prompt import sections as section
from worker.domain.investigation.prompt.recovery import ANSWER_FORM, previous_attempt
from worker.domain.investigation.prompt.sections import word
from worker.domain.untrusted.evidence import Evidence, fence, one_line
from worker.domain.untrusted.redaction.redact import redact
from worker.domain.values.tokens import cut_middle, fits

SENDER_TOKENS = {
    "error_message": 250,
    "description": 200,
    "signal_labels": 200,
    "signal_annotations": 200,
    "original_rca": 200,
    "rationale": 120,
    "failure_message": 200,
    "safety_context": 300,
    "forbidden_actions": 120,
    "allowed_actions": 120,
    "affected_resources": 100,
    "custom_labels": 120,
    "contributing_factors": 120,
    "parameters": 250,
}
"""How much of each text of the sender is shown, in tokens."""
TURN_TOKENS = 3_450
SHARES = (1.0, 0.5, 0.2, 0.05)
"""Fractions of these limits, tried in order until the turn fits."""
LEAST_TOKENS = 20
SOURCE_CHARS = 300
SAFETY_FIELDS = {
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
SAFETY_TITLE = "## Safety Context (policy for the choice of a workflow, not evidence)"


@dataclass(frozen=True, slots=True)
class PromptFacts:
    """What was observed. There is no field for a conclusion, a confidence or a chosen workflow.

    `tells_filters`: whether the model needs the labels as arguments, because tools of other servers search
    workflows too.
    """

    fence_token: str
    evidence: Sequence[Evidence] = ()
    detected_labels: DetectedLabels | None = None
    custom_labels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    unknown_sources: Sequence[str] = ()
    tells_filters: bool = False


def opening_turn(request: Signal, facts: PromptFacts) -> str:
    """The whole turn as Markdown. Texts of the sender and of the cluster are redacted, bounded and fenced.

    If the turn is too long, the texts of the sender are cut shorter, so that the evidence keeps its room.
    """
    turn = ""
    for share in SHARES:
        turn = _turn(request, facts, partial(_shown, share))
        if fits(turn, TURN_TOKENS):
            break
    return turn


def _shown(share: float, name: str, text: str) -> str:
    """A text of the sender, redacted and cut to this share of its tokens."""
    return cut_middle(redact(text), max(LEAST_TOKENS, int(SENDER_TOKENS[name] * share))).text


def _turn(request: Signal, facts: PromptFacts, shown: Callable[[str, str], str]) -> str:
    """The user turn.

    `shown(name, text)` is a text of the sender, redacted and cut; `sender(name, text)` is the same in a
    fence.
    """

    def sender(name: str, text: str) -> str:
        return fence(Evidence(source="sender", scope=name, body=shown(name, text)), facts.fence_token)

    title, before, after = "Incident Analysis Request", "", ""
    if isinstance(request, RecoveryRequest):
        title = f"Recovery Analysis Request (Attempt {request.recovery_attempt_number})"
        before, after = previous_attempt(request, sender, shown), ANSWER_FORM
    sections = [
        f"# {title}\nData of this request stands in fences <data-{facts.fence_token}>.",
        before,
        section.summary(request, sender),
        section.details(request, sender),
        section.deduplication(request),
        section.storm(request, shown),
        section.cluster(request, sender),
        section.business(request),
        section.environment(facts.detected_labels, facts.custom_labels, shown, told=facts.tells_filters),
        safety_section(request.safety_context, shown, 12 * SENDER_TOKENS["safety_context"]),
        evidence_pack(facts),
        after,
    ]
    return "\n\n".join(section for section in sections if section)


def evidence_pack(facts: PromptFacts) -> str:
    """The evidence gathered before the first call.

    Sources that failed are named as unknown, not as absent.
    """
    lines = ["## Evidence gathered so far"]
    lines += [fence(_clean(item), facts.fence_token) for item in facts.evidence]
    if not facts.evidence:
        lines.append("Nothing could be read from the cluster.")
    if facts.unknown_sources:
        lines.append(
            f"Could not be read, so unknown: {', '.join(word(source, SOURCE_CHARS) for source in facts.unknown_sources)}."
        )
    return "\n".join(lines)


def _clean(item: Evidence) -> Evidence:
    """The item without secrets in its heading and its note: the body was searched when it was read."""
    return replace(item, scope=redact(item.scope), cut=redact(item.cut))


def safety_section(context: SafetyContext | None, shown: Callable[[str, str], str], most_chars: int) -> str:
    """The section about the safety context; empty without one. `most_chars` bounds all but its limits."""
    if context is None:
        return ""
    limits = [f"- {limit}" for limit in limits_of(context, shown)]
    about = shown_context(context)
    lines = [*limits, one_line(shown("safety_context", about), most_chars)] if about else limits
    return "\n".join([SAFETY_TITLE, *lines]) if lines else ""


def limits_of(context: SafetyContext, shown: Callable[[str, str], str]) -> Iterator[str]:
    """The limits, each as a sentence that says what happens beyond it.

    `shown` bounds the names of actions.
    """

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
    """Return the parts that are not limits, as compact JSON; empty if none is set."""
    told = context.model_dump(mode="json", include=SAFETY_FIELDS, exclude_defaults=True)
    return json.dumps(told, separators=(",", ":"), ensure_ascii=False) if told else ""
