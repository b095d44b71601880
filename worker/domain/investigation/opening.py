"""Opens an investigation: gathers facts from the cluster, and writes the first turn for the model.

The later messages of the worker are here too: about calls that are not run, and about rejected answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pydantic import TypeAdapter

from schemas.enrichment import DetectedLabels
from schemas.incident import Signal
from worker.domain.enrichment.enrich import FirstLook, enrich
from worker.domain.intake.accepted import sent_enrichment
from worker.domain.investigation.prompt import PromptFacts, opening_turn
from worker.domain.untrusted.evidence import Evidence, EvidenceLog
from worker.domain.untrusted.redaction.redact import redact
from worker.domain.values.conversation import Reply, ToolCall, ToolResult, ToolTurn, Turn, UserTurn
from worker.domain.values.ports import Clock, Cluster
from worker.domain.verdict.answers.parse import is_final, submissions
from worker.domain.verdict.judge import correction_message
from worker.domain.verdict.verdict import Rejected, Verdict

NOT_LOOKED = FirstLook(unread=("anything",))
MAX_CALLS_PER_REPLY = 12
WRAP_UP = (
    "The budget of this investigation is nearly used up. Give the final answer now, from what you know: call "
    "submit_result and no other tool. If that is not enough, investigation_outcome insufficient_data is a valid answer."
)
NOT_RUN = "error: not run: the budget of this investigation is used up; give the final answer"
NOT_RUN_BESIDE_ANSWER = "error: not run: the same reply submitted an answer"
TOO_MANY = (
    f"error: not run: at most {MAX_CALLS_PER_REPLY} tool calls in one reply; ask again for what matters most"
)


@dataclass(frozen=True, slots=True)
class Opening:
    """The first turn, and the facts behind it. Made once, then replayed from the journal."""

    text: str
    fence_token: str
    evidence: tuple[Evidence, ...]
    detected_labels: DetectedLabels | None
    failed_sources: tuple[str, ...]
    first_look: FirstLook = NOT_LOOKED


OPENING_STEP = TypeAdapter(Opening)


async def open_investigation(
    request: Signal,
    cluster: Cluster,
    clock: Clock,
    *,
    deadline_seconds: float,
    fence_token: str,
    tells_filters: bool = False,
) -> Opening:
    """Gather facts about the signal's resource, and write the first turn. Failed sources are facts, never
    errors.

    `tells_filters`: whether the model is told the labels of a workflow search, for tools of other servers.
    """
    found = await enrich(request, cluster, clock, deadline_seconds=deadline_seconds)
    log = EvidenceLog(now=clock.now)
    numbered = tuple(log.add(replace(item, body=redact(item.body))) for item in found.evidence)
    sent = sent_enrichment(request)
    labels = sent.detected_labels if sent and sent.detected_labels else found.detected_labels
    facts = PromptFacts(
        fence_token=fence_token,
        evidence=numbered,
        detected_labels=labels,
        custom_labels=sent.custom_labels if sent else {},
        unknown_sources=found.failed_sources,
        tells_filters=tells_filters,
    )
    return Opening(
        text=opening_turn(request, facts),
        fence_token=fence_token,
        evidence=numbered,
        detected_labels=labels,
        failed_sources=tuple(found.failed_sources),
        first_look=found.first_look,
    )


def correction(reply: Reply, verdict: Verdict, attempt: str) -> Turn:
    """The message about a rejected answer: as the result of the call that submitted it, if one did."""
    text = correction_message(verdict.problems, attempt) if isinstance(verdict, Rejected) else ""
    if not reply.tool_calls:
        return UserTurn(text)
    if not is_final(reply):  # providers refuse a history in which a tool call has no result
        return ToolTurn(refusals(reply.tool_calls, NOT_RUN), note=text)
    first, others = submissions(reply)[0], NOT_RUN_BESIDE_ANSWER
    results = (refusals((call,), text if call is first else others)[0] for call in reply.tool_calls)
    return ToolTurn(tuple(results))


def refusals(calls: Sequence[ToolCall], text: str) -> tuple[ToolResult, ...]:
    """The text as the result of each of the calls."""
    return tuple(ToolResult(call.id, call.name, text, ok=False) for call in calls)
