"""A chat completions request, read: the incident, what was seen so far, what was asked, what was refused.

Only the worker's own lines outside of fences are read as its words: incident bullets, the list of signal types, its
corrections. Everything between fences is data.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst.refs import as_dict, as_list, make_ref

FENCE = re.compile(
    r"<data-(?P<token>[\w-]+)(?P<attrs>[^>\n]*)>\n(?P<body>.*?)\n?</data-(?P=token)>", re.DOTALL
)
ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')
CUT_LINE = re.compile(r"\n?\[cut: (?P<what>[^\n]*)\]\s*$")
BULLET = re.compile(r"^\s*[-*] (?P<name>[A-Z][A-Za-z _-]{1,40}): (?P<value>.+)$", re.MULTILINE)
SIGNAL_LINE = re.compile(r"^[-*` ]*([A-Z][A-Za-z0-9]{3,60})`?(?:: |$)", re.MULTILINE)
SIGNAL_HEADING = re.compile(r"^#+ .*signal types?.*$", re.IGNORECASE | re.MULTILINE)
LOG_ERROR = re.compile(
    r"no such log|does not exist|has no container|forbidden|unavailable|timeout|no answer|not run|bad arguments"
)
NOT_SPECIFIED = {"not specified", "none", "unknown", "n/a", ""}


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call that was made."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Seen:
    """One fenced piece of evidence. `call` is what asked for it; None for what the first turn brought."""

    source: str
    scope: str
    body: str
    cut: str
    evidence_id: str
    call: Call | None = None

    @property
    def failed(self) -> bool:
        """Whether it is a tool's error in place of a result."""
        if not self.body.startswith("error: ") or "\n" in self.body:
            return False
        return self.call is not None and (self.source != "get_pod_logs" or bool(LOG_ERROR.search(self.body)))


@dataclass(frozen=True, slots=True)
class Incident:
    """The request as the first turn states it. Empty strings where it says nothing."""

    signal_type: str = ""
    severity: str = ""
    resource: ObjectRef = field(default_factory=lambda: ObjectRef("", ""))
    environment: str = ""
    priority: str = ""
    risk_tolerance: str = ""
    received: str = ""
    message: str = ""
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """The remediation that was tried before a recovery."""

    workflow_id: str
    reason: str
    signal_type: str


@dataclass(frozen=True, slots=True)
class Transcript:
    """Everything a request says. `corrections` are the worker's answers to final answers that it refused."""

    incident: Incident
    seen: tuple[Seen, ...]
    calls: tuple[Call, ...]
    tools: frozenset[str]
    tools_allowed: bool
    signal_types: tuple[str, ...]
    answers: tuple[str, ...]
    corrections: tuple[str, ...]
    rounds: int
    failed: FailedAttempt | None


def read_request(request: dict[str, Any]) -> Transcript:
    """Read a request body. Never raises: what cannot be read is left out."""
    messages = [m for m in as_list(request.get("messages")) if isinstance(m, dict)]
    system = "\n".join(_text(m) for m in messages if m.get("role") in ("system", "developer"))
    users = [_text(m) for m in messages if m.get("role") == "user"]
    opening = users[0] if users else ""
    calls = _calls(messages)
    answers, corrections = _dialogue(messages)
    outside = FENCE.sub("\n", opening)
    tools = frozenset(
        str(as_dict(as_dict(t).get("function")).get("name")) for t in as_list(request.get("tools"))
    )
    return Transcript(
        incident=_incident(opening, outside),
        seen=(*_fenced(opening, None), *_results(messages, calls)),
        calls=tuple(calls.values()),
        tools=tools,
        tools_allowed=bool(tools) and request.get("tool_choice") != "none" and not _wrap_up(messages),
        signal_types=_signal_types(system),
        answers=tuple(answers),
        corrections=tuple(corrections),
        rounds=sum(1 for m in messages if m.get("role") == "assistant" and m.get("tool_calls")),
        failed=_failed_attempt(outside),
    )


def _text(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(str(as_dict(part).get("text") or "") for part in as_list(content))


def _calls(messages: list[dict[str, Any]]) -> dict[str, Call]:
    found: dict[str, Call] = {}
    for message in messages:
        for call in as_list(message.get("tool_calls")):
            function = as_dict(as_dict(call).get("function"))
            try:
                arguments = json.loads(str(function.get("arguments") or "{}"))
            except (ValueError, RecursionError):
                arguments = {}
            found[str(as_dict(call).get("id"))] = Call(str(function.get("name") or ""), as_dict(arguments))
    return found


def _results(messages: list[dict[str, Any]], calls: dict[str, Call]) -> Iterator[Seen]:
    for message in messages:
        if message.get("role") != "tool":
            continue
        call = calls.get(str(message.get("tool_call_id")), Call("", {}))
        text = _text(message)
        fenced = list(_fenced(text, call))
        yield from fenced or [Seen(call.name, "", text, "", "", call)]


def _fenced(text: str, call: Call | None) -> Iterator[Seen]:
    for match in FENCE.finditer(text):
        attributes = dict(ATTRIBUTE.findall(match["attrs"]))
        body, cut = match["body"], ""
        if note := CUT_LINE.search(body):
            body, cut = body[: note.start()], note["what"]
        yield Seen(
            source=attributes.get("source", ""),
            scope=attributes.get("scope", ""),
            body=body,
            cut=cut,
            evidence_id=attributes.get("id", ""),
            call=call,
        )


def _dialogue(messages: list[dict[str, Any]]) -> tuple[list[str], list[str]]:
    answers: list[str] = []
    corrections: list[str] = []
    answered = False
    for message in messages:
        role = message.get("role")
        if role == "assistant":
            answered = not message.get("tool_calls")
            if answered:
                answers.append(_text(message))
        elif role == "user" and answered:
            corrections.append(_text(message))
    return answers, corrections


def _wrap_up(messages: list[dict[str, Any]]) -> bool:
    """Whether the worker's last words ask for the final answer."""
    last = messages[-1] if messages else {}
    text = _text(last) if last.get("role") == "user" else ""
    return bool(
        re.search(r"final answer now|without any tool call|tool calls are no longer", text, re.IGNORECASE)
    )


def _incident(opening: str, outside: str) -> Incident:
    bullets: dict[str, str] = {}
    for match in BULLET.finditer(outside):
        bullets.setdefault(match["name"].strip().lower(), match["value"].strip())
    sender = {s.scope: s.body for s in _fenced(opening, None) if s.source == "sender"}
    return Incident(
        signal_type=bullets.get("signal type", ""),
        severity=bullets.get("severity", "").lower(),
        resource=_resource(bullets.get("resource", ""), bullets.get("api version", "")),
        environment=_stated(bullets.get("environment", "")).lower(),
        priority=_stated(bullets.get("priority", "")).split(" ")[0],
        risk_tolerance=_stated(bullets.get("risk tolerance", "").split(" (")[0]).lower(),
        received=bullets.get("received time", "").split(" ")[0],
        message="\n".join(sender.get(part, "") for part in ("error_message", "description")).strip(),
        labels=_pairs(sender.get("signal_labels", "")),
    )


def _stated(value: str) -> str:
    return "" if value.lower() in NOT_SPECIFIED else value


def _resource(text: str, api_version: str) -> ObjectRef:
    parts = text.split(" ", maxsplit=1)[0].strip("`").split("/")
    if len(parts) >= 3:
        return make_ref(parts[1], "/".join(parts[2:]), parts[0], api_version)
    if len(parts) == 2:
        return make_ref(parts[0], parts[1], "", api_version)
    return ObjectRef("", "")


def _pairs(text: str) -> dict[str, str]:
    try:
        return {str(k): str(v) for k, v in as_dict(json.loads(text)).items()}
    except (ValueError, RecursionError):
        lines = (line.partition("=") if "=" in line else line.partition(":") for line in text.splitlines())
        return {k.strip(" -\"'"): v.strip(" ,\"'") for k, separator, v in lines if separator}


def _signal_types(system: str) -> tuple[str, ...]:
    heading = SIGNAL_HEADING.search(system)
    if heading is None:
        return ()
    section = re.split(r"^#+ ", system[heading.end() :], maxsplit=1, flags=re.MULTILINE)[0]
    return tuple(dict.fromkeys(SIGNAL_LINE.findall(section)))


def _failed_attempt(outside: str) -> FailedAttempt | None:
    """What was executed before and failed, from the worker's own bullets; None for a first analysis."""
    heading = re.search(r"^#+ .*previous.*attempt.*$", outside, re.IGNORECASE | re.MULTILINE)
    if heading is None:
        return None
    section = outside[heading.start() :]
    bullets = {
        m["name"].strip().lower(): m["value"].strip() for m in reversed(list(BULLET.finditer(section)))
    }
    return FailedAttempt(
        workflow_id=bullets.get("workflow", "").split(" ")[0].strip("`"),
        reason=next((v.split(" ")[0].strip("`*,.") for k, v in bullets.items() if k.endswith("reason")), ""),
        signal_type=bullets.get("signal type then", ""),
    )
