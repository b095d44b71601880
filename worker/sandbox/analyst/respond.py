"""One request in, one reply out: tool calls while the rules ask, then the final answer. Stateless."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from worker.domain.cluster.fields import moment
from worker.domain.diagnosis.causes import Diagnosis
from worker.domain.diagnosis.facts import ClusterFacts
from worker.domain.diagnosis.search import search, standing
from worker.domain.diagnosis.statements import statements
from worker.domain.diagnosis.structure import observed, pods_of
from worker.domain.untrusted.injection import suspicious_lines
from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst import answer, objections
from worker.sandbox.analyst.alert_words import recovered, spoken_finding
from worker.sandbox.analyst.choose import ACTIONS, Selection, Situation, choose
from worker.sandbox.analyst.lookup import Lookup
from worker.sandbox.analyst.signals import choose_signal
from worker.sandbox.analyst.transcript import SUBMIT, Call, Incident, Seen, Transcript, read_request, words_in

NAME = "offline-analyst"
"""What a client asks for."""
MODEL = f"{NAME} (rules, not a language model)"
"""What answers, in its own words."""
MAX_ROUNDS = 9
"""Rounds of looking at the cluster; after that the best explanation so far counts."""
MAX_LAST_ROUND = 14
MAX_CALLS, MAX_PODS = 8, 3
LOGS = "get_pod_logs"
"""If a cause is known and only logs are open, the catalog is read in the same round, to save one."""
CHARS_PER_TOKEN = 4
READY = Call("report_ready", {"word": "ready"})
"""What `rca doctor` asks a model for, to see whether it calls tools."""


@dataclass(frozen=True, slots=True)
class Concluded:
    """What the rules make of the cluster: the findings that stand, and what is said about the first one.

    `observed`: signal types of the signal's object. `reported`: those of the finding in events.
    """

    stand: tuple[Diagnosis, ...] = ()
    said: tuple[str, ...] = ()
    observed: tuple[str, ...] = ()
    reported: tuple[str, ...] = ()
    recovered: str = ""

    @property
    def finding(self) -> Diagnosis | None:
        """The best explanation."""
        return next(iter(self.stand), None)


def respond(request: dict[str, Any]) -> dict[str, Any]:
    """The chat completion for a request (OpenAI API, non-streaming). Never raises for its content."""
    transcript = read_request(request)
    thought = think(transcript)
    calls = thought if isinstance(thought, list) else [Call(SUBMIT, answer.body_of(thought))]
    message: dict[str, Any] = {"role": "assistant", "content": None}
    if isinstance(thought, answer.AnalystAnswer) and not transcript.submits:
        message["content"] = answer.write(thought)
    else:
        message["tool_calls"] = [_tool_call(call, transcript.rounds, i) for i, call in enumerate(calls)]
    finish = "stop" if message["content"] else "tool_calls"
    return {
        "id": f"chatcmpl-{_digest(request)}",
        "object": "chat.completion",
        "created": 0,
        "model": MODEL,
        "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}],
        "usage": _usage(request, message),
    }


def think(transcript: Transcript) -> list[Call] | answer.AnalystAnswer:
    """The next tool calls, or the final answer."""
    if READY.name in transcript.tools:
        return [READY]
    lookup, incident = Lookup(transcript), transcript.incident
    facts = ClusterFacts(now=moment(incident.received), texts=True)
    found = lookup.conclude(facts, lambda known: _concluded(known, incident))
    settled = any(s.call is not None and s.call.name == "get_resource_context" for s in transcript.seen)
    wanted: list[Call] = []
    if transcript.tools_allowed and transcript.rounds < MAX_ROUNDS and not settled:
        wanted = lookup.calls()[:MAX_CALLS]
        if wanted and not (found.finding and all(call.name == LOGS for call in wanted)):
            return wanted
    objected = objections.read(transcript.corrections)
    severity = answer.severity_of(incident, found.finding)
    signal = _signal(transcript, found, objected)
    if objected.target and found.finding:
        found = replace(found, stand=(_other_object(found.finding, objected, incident.resource),))
    selection = choose(found.stand, Situation(facts, transcript, objected, signal, severity))
    if selection.questions or wanted:
        if transcript.tools_allowed and transcript.rounds < MAX_LAST_ROUND:
            return [*wanted, *selection.questions][:MAX_CALLS]
        selection = Selection(why_not="the budget ended before a choice", context=selection.context)
    blamed = selection.choice.finding if selection.choice else found.finding
    return answer.AnalystAnswer(
        incident=incident,
        target=blamed.object if blamed else incident.resource,
        finding=found.finding,
        said=found.said,
        recovered=found.recovered,
        selection=selection,
        severity=severity,
        signal_type=signal,
        warnings=_planted(transcript.seen),
        failed=transcript.failed,
        chain=_chain(found.finding, lookup, incident.resource),
        looked=any(not s.failed for s in transcript.answered.values()),
    )


def _concluded(facts: ClusterFacts, incident: Incident) -> Concluded:
    searched = search(facts, incident.resource)
    stand = standing(searched.findings, searched.circle)
    if not stand and not facts.open:
        spoken = spoken_finding(facts, incident)
        stand = (spoken,) if spoken else ()
    if not stand:
        return Concluded(recovered="" if facts.open else recovered(facts, incident))
    pods = pods_of(facts, incident.resource)[:MAX_PODS]
    seen = [name for pod in pods for name in observed(facts, incident.resource, pod)]
    reasons = {e.reason for e in facts.events_in(incident.resource.home) if e.warning}
    reported = tuple(sorted(reasons & set(stand[0].signals)))
    return Concluded(stand, statements(facts, stand[0]), tuple(dict.fromkeys(seen)), reported)


def _chain(finding: Diagnosis | None, lookup: Lookup, resource: ObjectRef) -> list[tuple[str, Sequence[str]]]:
    """The steps from the cause to the signal, each with the ids of what shows it."""
    if finding is None:
        return []
    about = (*finding.reads, *finding.subjects)
    reads = dict.fromkeys(id_ for ref in about for id_ in lookup.evidence_of(ref))
    steps: list[tuple[str, Sequence[str]]] = [(finding.sentence, list(reads)[:4])]
    if resource not in finding.subjects:
        shown = [id_ for edge in finding.path for id_ in lookup.evidence_of(edge.to)]
        ids = list(dict.fromkeys([*shown, *lookup.evidence_of(resource)]))
        steps.append((f"{resource} depends on it.", ids[:4]))
    return steps


def _other_object(finding: Diagnosis, objected: objections.Objections, resource: ObjectRef) -> Diagnosis:
    """The finding about another object that may be blamed, when the worker has refused the first one."""
    others = [ref for ref in finding.also if ref.kind != "Pod"] if objected.rounds < 2 else []
    blamed = next(iter(others), resource)
    return replace(finding, object=blamed, also=tuple(ref for ref in finding.also if ref != blamed))


def _planted(seen: Sequence[Seen]) -> list[str]:
    """A warning that names where text speaks to its reader; empty when none does."""
    catalog = ("list_available", "list_workflows", "get_workflow", "search_")
    planted = [s for s in seen if not s.source.startswith(catalog) and suspicious_lines(s.body)]
    places = [item.evidence_id or f"{item.source} {item.scope}".strip() for item in planted]
    told = ", ".join(dict.fromkeys(places))
    return [f"evidence {told} holds text that instructs its reader; it was read as data"] if places else []


def _signal(transcript: Transcript, found: Concluded, objected: objections.Objections) -> str:
    offered = (*transcript.signal_types, *_of_catalog(transcript), *found.reported)
    known = objected.signal_types or offered
    chosen = choose_signal(found.finding, found.observed, transcript.incident.signal_type, known)
    return "" if objected.signal_type and not objected.signal_types else chosen


def _of_catalog(transcript: Transcript) -> list[str]:
    """Signal types that the catalog has shown."""
    bodies = [s.json() for s in transcript.seen if s.call and s.call.name == ACTIONS.name]
    return [name for body in bodies for name in words_in(body.get("more_signal_types"))]


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
