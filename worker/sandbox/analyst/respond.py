"""One request in, one reply out: tool calls while something is open, else the final answer. Pure and stateless."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

from worker.sandbox.analyst import answer, injection, objections
from worker.sandbox.analyst.facts import Facts
from worker.sandbox.analyst.finding import Finding
from worker.sandbox.analyst.investigator import investigate
from worker.sandbox.analyst.selection import Selection, select
from worker.sandbox.analyst.signals import choose_signal
from worker.sandbox.analyst.transcript import Call, Transcript, read_request

NAME = "offline-analyst"
"""What a client asks for."""
MODEL = f"{NAME} (rules, not a language model)"
"""What answers, in its own words."""
MAX_ROUNDS = 7
"""Rounds of looking at the cluster; after that the best explanation so far counts."""
MAX_LAST_ROUND = 11
MAX_CALLS = 8
CHARS_PER_TOKEN = 4
SEVERITIES = ("critical", "high", "medium", "low")


def respond(request: dict[str, Any]) -> dict[str, Any]:
    """The chat completion for a request (OpenAI chat completions, non-streaming). Never raises for what it reads."""
    transcript = read_request(request)
    calls, text = think(transcript)
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if calls:
        message["tool_calls"] = [_tool_call(call, transcript.rounds, i) for i, call in enumerate(calls)]
    return {
        "id": f"chatcmpl-{_digest(request)}",
        "object": "chat.completion",
        "created": 0,
        "model": MODEL,
        "choices": [
            {
                "index": 0,
                "message": message,
                "finish_reason": "tool_calls" if calls else "stop",
                "logprobs": None,
            }
        ],
        "usage": _usage(request, message),
    }


def think(transcript: Transcript) -> tuple[list[Call], str]:
    """The next tool calls, or the text of the final answer."""
    facts = Facts(transcript)
    objected = objections.read(transcript.corrections)
    finding = _accepted_target(investigate(facts, transcript.incident), transcript, objected)
    if transcript.tools_allowed and facts.wanted and transcript.rounds < MAX_ROUNDS and not _settled(facts):
        return facts.wanted[:MAX_CALLS], ""
    severity = severity_of(transcript, finding)
    selection = Selection(why_not="the cause is not known")
    if finding is not None:
        selection = select(finding, facts, transcript, objected, severity)
    if selection.questions:
        if transcript.tools_allowed and transcript.rounds < MAX_LAST_ROUND:
            return selection.questions[:MAX_CALLS], ""
        selection = Selection(
            why_not="the budget ended before a workflow could be chosen", context=selection.context
        )
    return [], answer.write(_verdict(transcript, facts, finding, selection, severity))


def _accepted_target(
    finding: Finding | None, transcript: Transcript, objected: objections.Objections
) -> Finding | None:
    """The finding with another object to blame when the worker has refused the first one."""
    if finding is None or not objected.target:
        return finding
    other = (
        finding.workload if finding.workload not in (None, finding.target) and objected.rounds < 2 else None
    )
    return replace(finding, target=other or transcript.incident.resource)


def _settled(facts: Facts) -> bool:
    """Whether the choice of a workflow has begun: then the cluster is not looked at again."""
    return bool(facts.catalog)


def _verdict(
    transcript: Transcript, facts: Facts, finding: Finding | None, selection: Selection, severity: str
) -> answer.AnswerParts:
    places = injection.planted(transcript.seen)
    warnings = (
        [
            f"evidence {', '.join(places)} holds text that instructs its reader; it was read as data and not followed"
        ]
        if places
        else []
    )
    return answer.AnswerParts(
        incident=transcript.incident,
        finding=finding,
        selection=selection,
        severity=severity,
        signal_type=_signal(transcript, facts, finding),
        warnings=warnings,
        failed=transcript.failed,
        evidence=sum(1 for s in transcript.seen if s.source != "sender" and not s.failed),
    )


def _signal(transcript: Transcript, facts: Facts, finding: Finding | None) -> str:
    objected = objections.read(transcript.corrections)
    known = list(objected.signal_types) or known_signals(transcript, facts)
    chosen = choose_signal(finding, transcript.incident.signal_type, known)
    return "" if objected.signal_type and not objected.signal_types else chosen


def known_signals(transcript: Transcript, facts: Facts) -> list[str]:
    """Names that the prompt lists and that the catalog has shown."""
    names = list(transcript.signal_types)
    for item in facts.catalog:
        for key in ("signal_types_in_catalog", "signal_types"):
            found = item.body.get(key)
            names += [str(n) for n in found] if isinstance(found, list) else []
    return list(dict.fromkeys(names))


def severity_of(transcript: Transcript, finding: Finding | None) -> str:
    """The signal's severity where it states one, else by environment and by what was found."""
    stated = {"warning": "medium", "info": "low", "error": "high"}.get(
        transcript.incident.severity, transcript.incident.severity
    )
    if stated in SEVERITIES:
        return stated
    environment = transcript.incident.environment
    if environment.startswith("prod"):
        return (
            "critical"
            if finding is not None and finding.family in {"node", "oom", "disk", "pool"}
            else "high"
        )
    return "low" if environment.startswith("dev") else "medium"


def _tool_call(call: Call, round_number: int, index: int) -> dict[str, Any]:
    return {
        "id": f"call_{round_number}_{index}_{_digest([call.name, call.arguments])[:8]}",
        "type": "function",
        "function": {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)},
    }


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:24]


def _usage(request: dict[str, Any], message: dict[str, Any]) -> dict[str, Any]:
    prompt = len(json.dumps([request.get("messages"), request.get("tools")], default=str)) // CHARS_PER_TOKEN
    completion = max(1, len(json.dumps(message, default=str)) // CHARS_PER_TOKEN)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
