"""A chat completions request, read: the incident, what tools answered, what was refused.

Only the worker's own lines outside of fences are read as its words: incident bullets, the list of signal
types, its corrections. Everything between fences is data.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from worker.domain.cluster.fields import mapping, mappings, sequence, text
from worker.domain.cluster.kinds import CLUSTER_SCOPED, canonical_kind
from worker.domain.values.objects import ObjectRef

FENCE = re.compile(
    r"<data-(?P<token>[\w-]+)(?P<attrs>[^>\n]*)>\n(?P<body>.*?)\n?</data-(?P=token)>", re.DOTALL
)
ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')
SAME_AS_FIRST = re.compile(r"the same as (E\d+)")
CUT_LINE = re.compile(r"\n?\[cut: (?P<what>[^\n]*)\]\s*$")
BULLET = re.compile(r"^\s*[-*] (?P<name>[A-Z][A-Za-z _-]{1,40}): (?P<value>.+)$", re.MULTILINE)
SIGNAL_LINE = re.compile(r"^[-*` ]*([A-Z][A-Za-z0-9]{3,60})`?(?:: |$)", re.MULTILINE)
SIGNAL_HEADING = re.compile(r"^#+ .*signal types?.*$", re.IGNORECASE | re.MULTILINE)
WRAP_UP = re.compile(r"final answer now|without any tool call|tool calls are no longer", re.IGNORECASE)
SUBMIT = "submit_result"
NOT_SPECIFIED = {"not specified", "none", "unknown", "n/a", ""}


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call, made or to be made."""

    name: str
    arguments: dict[str, Any]

    @property
    def signature(self) -> str:
        """What makes two calls the same question."""
        kept = {k: v for k, v in self.arguments.items() if v not in ("", None, False)}
        return f"{self.name} {json.dumps(kept, sort_keys=True, default=str)}"


def call_to(tool: str, /, **arguments: Any) -> Call:
    """A call without the arguments that are empty."""
    return Call(tool, {k: v for k, v in arguments.items() if v not in ("", None, False)})


@dataclass(frozen=True, slots=True)
class Seen:
    """One fenced piece of data. `call` is what asked for it; None for what the first turn brought."""

    source: str
    scope: str
    body: str
    cut: str
    evidence_id: str
    call: Call | None = None

    @property
    def failed(self) -> bool:
        """True if it is a tool's error in place of a result."""
        return self.call is not None and self.body.startswith("error: ")

    def json(self) -> dict[str, Any]:
        """The body as a JSON object; empty when it is none."""
        if self.failed:
            return {}
        try:
            return mapping(json.loads(self.body))
        except (ValueError, RecursionError):
            return {}


@dataclass(frozen=True, slots=True)
class Incident:
    """The request as the first turn states it. Empty strings where it says nothing."""

    signal_type: str = ""
    severity: str = ""
    resource: ObjectRef = field(default_factory=lambda: ObjectRef("", ""))
    environment: str = ""
    risk_tolerance: str = ""
    received: str = ""
    message: str = ""

    @property
    def words(self) -> str:
        """The name of the signal taken apart, and its message."""
        return f"{re.sub(r'(?<=[a-z0-9])(?=[A-Z])', ' ', self.signal_type)} {self.message}"


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """The remediation that was tried before a recovery."""

    workflow_id: str
    reason: str
    signal_type: str


@dataclass(frozen=True, slots=True)
class Transcript:
    """Everything a request says. `corrections` are the worker's answers to final answers that it refused.

    `tools` are those that read; `submits`: the answer is submitted through a tool, too.
    """

    incident: Incident
    seen: tuple[Seen, ...]
    answered: dict[str, Seen]
    tools: frozenset[str]
    tools_allowed: bool
    submits: bool
    signal_types: tuple[str, ...]
    corrections: tuple[str, ...]
    rounds: int
    failed: FailedAttempt | None

    def result(self, call: Call) -> Seen | None:
        """The result of a call that was made; None when it was not, or has no result yet."""
        return self.answered.get(call.signature)

    def since(self, context: Call) -> dict[str, Seen]:
        """Results between two get_resource_context calls: the catalog's answers depend on their target."""
        found: dict[str, Seen] = {}
        for seen in self.seen:
            if seen.call is None:
                continue
            if seen.call.signature == context.signature:
                found.setdefault(context.signature, seen)
            elif seen.call.name == context.name and found:
                break
            elif found:
                found[seen.call.signature] = seen
        return found


def read_request(request: dict[str, Any]) -> Transcript:
    """Read a request body. Never raises: what cannot be read is left out."""
    messages = mappings(request.get("messages"))
    system = "\n".join(_text(m) for m in messages if m.get("role") in ("system", "developer"))
    opening = next((_text(m) for m in messages if m.get("role") == "user"), "")
    calls, choice = _calls(messages), request.get("tool_choice")
    first = tuple(_fenced(opening, None))
    results = tuple(_as_shown_first(seen, first) for seen in _results(messages, calls))
    outside = FENCE.sub("\n", opening)
    tools = frozenset(text(mapping(t.get("function")).get("name")) for t in mappings(request.get("tools")))
    return Transcript(
        incident=_incident(opening, outside),
        seen=(*first, *results),
        answered={s.call.signature: s for s in results if s.call is not None},
        tools=tools - {SUBMIT},
        tools_allowed=bool(tools - {SUBMIT})
        and choice in (None, "auto", "required")
        and not _wrap_up(messages),
        submits=SUBMIT in tools and choice != "none",
        signal_types=_signal_types(system),
        corrections=tuple(_corrections(messages, calls)),
        rounds=sum(1 for m in messages if m.get("role") == "assistant" and m.get("tool_calls")),
        failed=_failed_attempt(outside),
    )


def _text(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(text(part.get("text")) for part in mappings(content))


def _calls(messages: list[dict[str, Any]]) -> dict[str, Call]:
    found: dict[str, Call] = {}
    for message in messages:
        for call in mappings(message.get("tool_calls")):
            function = mapping(call.get("function"))
            try:
                arguments = json.loads(str(function.get("arguments") or "{}"))
            except (ValueError, RecursionError):
                arguments = {}
            found[str(call.get("id"))] = Call(text(function.get("name")), mapping(arguments))
    return found


def _results(messages: list[dict[str, Any]], calls: dict[str, Call]) -> Iterator[Seen]:
    for message in messages:
        if message.get("role") != "tool" or _is_submission(message, calls):
            continue
        call, said = calls.get(str(message.get("tool_call_id")), Call("", {})), _text(message)
        yield from list(_fenced(said, call)) or [Seen(call.name, "", said, "", "", call)]


def _as_shown_first(seen: Seen, first: tuple[Seen, ...]) -> Seen:
    """The result; if it only names a repeated item of the first turn, with the body of that item."""
    named = SAME_AS_FIRST.fullmatch(seen.body)
    repeated = next((s for s in first if named and s.evidence_id == named[1]), None)
    return replace(seen, body=repeated.body) if repeated else seen


def _fenced(said: str, call: Call | None) -> Iterator[Seen]:
    for match in FENCE.finditer(said):
        attributes = dict(ATTRIBUTE.findall(match["attrs"]))
        body, cut = match["body"], ""
        if note := CUT_LINE.search(body):
            body, cut = body[: note.start()], note["what"]
        source, scope, identity = (attributes.get(name, "") for name in ("source", "scope", "id"))
        yield Seen(source, scope, body, cut, identity, call)


def _corrections(messages: list[dict[str, Any]], calls: dict[str, Call]) -> Iterator[str]:
    """Yield the responses to final answers: as the result of a submitting call, or after a text."""
    answered = False
    for message in messages:
        if message.get("role") == "assistant":
            answered = not message.get("tool_calls")
        elif (message.get("role") == "user" and answered) or (
            message.get("role") == "tool" and _is_submission(message, calls)
        ):
            yield _text(message)


def _is_submission(message: dict[str, Any], calls: dict[str, Call]) -> bool:
    call = calls.get(str(message.get("tool_call_id")))
    return call is not None and call.name == SUBMIT


def _wrap_up(messages: list[dict[str, Any]]) -> bool:
    """True if the worker's last words ask for the final answer."""
    last = messages[-1] if messages else {}
    return last.get("role") == "user" and bool(WRAP_UP.search(_text(last)))


def _incident(opening: str, outside: str) -> Incident:
    bullets: dict[str, str] = {}
    for match in BULLET.finditer(outside):
        bullets.setdefault(match["name"].strip().lower(), match["value"].strip())
    sender = {s.scope: s.body for s in _fenced(opening, None) if s.source == "sender"}
    return Incident(
        signal_type=bullets.get("signal type", ""),
        severity=bullets.get("severity", "").lower(),
        resource=_resource(bullets.get("resource", ""), bullets.get("api version", "")),
        environment=_stated(bullets.get("environment", "")),
        risk_tolerance=_stated(bullets.get("risk tolerance", "").split(" (")[0]),
        received=bullets.get("received time", "").split(" ")[0],
        message="\n".join(sender.get(part, "") for part in ("error_message", "description")).strip(),
    )


def _stated(value: str) -> str:
    return "" if value.lower() in NOT_SPECIFIED else value.lower()


def _resource(written: str, api_version: str) -> ObjectRef:
    parts = written.split(" ", maxsplit=1)[0].strip("`").split("/")
    if len(parts) < 2:
        return ObjectRef("", "")
    namespace, kind, name = ("", *parts) if len(parts) == 2 else (parts[0], parts[1], "/".join(parts[2:]))
    kind = canonical_kind(kind)
    return ObjectRef(kind, name, "" if kind in CLUSTER_SCOPED else namespace, api_version)


def _signal_types(system: str) -> tuple[str, ...]:
    heading = SIGNAL_HEADING.search(system)
    if heading is None:
        return ()
    section = re.split(r"^#+ ", system[heading.end() :], maxsplit=1, flags=re.MULTILINE)[0]
    return tuple(dict.fromkeys(SIGNAL_LINE.findall(section)))


def _failed_attempt(outside: str) -> FailedAttempt | None:
    """The execution that failed before, from the worker's own bullets; None for a first analysis."""
    heading = re.search(r"^#+ .*previous.*attempt.*$", outside, re.IGNORECASE | re.MULTILINE)
    if heading is None:
        return None
    found = reversed(list(BULLET.finditer(outside[heading.start() :])))
    bullets = {m["name"].strip().lower(): m["value"].strip() for m in found}
    return FailedAttempt(
        workflow_id=bullets.get("workflow", "").split(" ")[0].strip("`"),
        reason=next((v.split(" ")[0].strip("`*,.") for k, v in bullets.items() if k.endswith("reason")), ""),
        signal_type=bullets.get("signal type then", ""),
    )


def words_in(value: Any) -> list[str]:
    """The texts of a JSON array."""
    return [item for item in sequence(value) if isinstance(item, str)]
