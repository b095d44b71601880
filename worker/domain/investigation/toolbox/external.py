"""Tools of MCP servers that operators have mounted: how they are named, shown to the model and called.

Nothing that such a server says is trusted. Names, descriptions and schemas become part of the prompt, so they
are bounded, cleaned, reduced to what every model provider accepts, and searched for instructions. Answers are
evidence from outside (`mcp:<server>`), which proves nothing about the cluster.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from pydantic import RootModel, model_validator

from worker.domain.investigation.toolbox.tool import ToolContext, ToolDef, ToolOutput, ToolProblem
from worker.domain.untrusted.evidence import EXTERNAL, one_line
from worker.domain.untrusted.injection import suspicious_lines
from worker.domain.untrusted.redaction.redact import redact_json
from worker.domain.values.errors import ExternalToolError
from worker.domain.values.external_tools import ExternalTool
from worker.domain.values.ports import ExternalTools
from worker.domain.values.tokens import fits

MAX_TOOLS = 16
SPEC_TOKENS = 200
"""The tokens for one tool; its description and its schema get half each.

All tools together cost at most 3,200 tokens.
"""
MAX_DESCRIPTION = 300  # characters
MAX_ARGUMENTS = 4_000  # characters of JSON
MAX_DEPTH = 8
MAX_TEXT = 100_000
"""Characters of an answer that are examined; far fewer are shown."""
NOT_PLAIN = re.compile(r"[^A-Za-z0-9_-]")
MAX_NAME = 64
"""Longest tool name that the providers accept. They accept only letters, digits, `_` and `-`."""
NOT_REACHED = "its server has not been reached yet: nothing is known about it"
WITHHELD = "its description is withheld: it reads like instructions to its reader"
NO_TEXT = "the answer holds no text"
ANYTHING: Mapping[str, Any] = {"type": "object", "properties": {}}


class ExternalArguments(RootModel[dict[str, Any]]):
    """Arguments of a mounted tool: any JSON object within bounds. The server validates the rest."""

    @model_validator(mode="before")
    @classmethod
    def _within_bounds(cls, arguments: Any) -> Any:
        if depth_of(arguments) > MAX_DEPTH:
            raise ValueError(f"nested deeper than {MAX_DEPTH}")
        if len(json.dumps(arguments)) > MAX_ARGUMENTS:
            raise ValueError(f"longer than {MAX_ARGUMENTS} characters")
        return arguments


def shown_name(server: str, name: str) -> str:
    """The name of the tool for the model."""
    return NOT_PLAIN.sub("_", f"{server}_{name}")[:MAX_NAME]


def mounted_tools(external: ExternalTools) -> list[ToolDef]:
    """The mounted tools as they are when an investigation starts; at most 16."""
    return [_defined(external, tool) for tool in external.tools()[:MAX_TOOLS]]


def _defined(external: ExternalTools, tool: ExternalTool) -> ToolDef:
    async def run(_: ToolContext, asked: ExternalArguments) -> ToolOutput:
        return await _call(external, tool, asked)

    return ToolDef(
        shown_name(tool.server, tool.name),
        _description(tool),
        ExternalArguments,
        run,
        source=f"{EXTERNAL}{tool.server}",
        parameters=_parameters(tool.parameters),
    )


async def _call(external: ExternalTools, tool: ExternalTool, asked: ExternalArguments) -> ToolOutput:
    """Call the tool.

    Secrets are removed from the arguments, wherever the model got them; the answer is cut.
    """
    server, name = tool.server, tool.name
    arguments = redact_json(asked.root)
    scope = f"{server}.{name} {one_line(json.dumps(arguments), 160)}"
    try:
        answer = await external.call(server, name, arguments)
    except ExternalToolError as error:
        message = f"{server}: {str(error)[:MAX_TEXT]}"
        raise ToolProblem(message, scope=scope, passing=error.passing) from error
    text, cut = answer.text, one_line(answer.left_out, 160)
    if len(text) > MAX_TEXT:
        shown = text[:MAX_TEXT].rpartition("\n")[0] or text[:MAX_TEXT]
        cut = "; ".join(part for part in (cut, f"{len(text) - len(shown)} characters at the end") if part)
        text = shown
    return ToolOutput(text if text.strip() else NO_TEXT, scope, cut)


def _description(tool: ExternalTool) -> str:
    said = one_line(tool.description[: 4 * MAX_DESCRIPTION], MAX_DESCRIPTION) if tool.reached else NOT_REACHED
    if suspicious_lines(said):
        said = WITHHELD
    while not fits(said, SPEC_TOKENS // 2):
        said = one_line(said, len(said) * 3 // 4)
    return f"From outside ({tool.server}), proves nothing about the cluster: {said}"


def _parameters(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The most detailed form of the schema that is short enough and contains no instructions."""
    for depth, described in ((3, True), (3, False), (1, False)):
        plain = plain_schema(schema, depth, described=described)
        text = json.dumps(plain)
        if fits(text, SPEC_TOKENS // 2) and not suspicious_lines(text):
            return plain
    return ANYTHING


TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array"})
PROPERTY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""Property names that the providers accept."""
MAX_PROPERTIES, MAX_VALUES = 20, 20
MAX_WORDS, MAX_VALUE = 120, 60  # characters
MAX_NUMBER = 2**53
"""Beyond it JSON parsers no longer agree on a number (RFC 8259, section 6)."""
REFERENCE = "#/$defs/"
DEEPEST = 32


def depth_of(value: Any) -> int:
    """Return how deep objects and lists are nested; counted up to 33."""
    level, depth = [value], 0
    while depth <= DEEPEST:
        inner = [child for item in level for child in _children(item)]
        if not inner and not any(isinstance(item, Mapping | list | tuple) for item in level):
            return depth
        level, depth = inner, depth + 1
    return depth


def _children(value: Any) -> Sequence[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    return value if isinstance(value, list | tuple) else ()


def plain_schema(schema: Mapping[str, Any], depth: int, *, described: bool) -> dict[str, Any]:
    """The first `depth` levels of the schema of an object.

    Omitted parts are unconstrained, because the server validates.
    """
    definitions = schema.get("$defs")
    known = definitions if isinstance(definitions, Mapping) else {}
    plain = _plain({**schema, "type": "object"}, known, depth, described=described)
    return {**plain, "properties": plain.get("properties", {})}


def _plain(schema: Any, known: Mapping[str, Any], depth: int, *, described: bool) -> dict[str, Any]:
    full = _resolved(schema, known)
    kind = _type(full.get("type"))
    plain: dict[str, Any] = {"type": kind} if kind else {}
    if described and isinstance(said := full.get("description"), str) and said.strip():
        plain["description"] = one_line(said[: 4 * MAX_WORDS], MAX_WORDS)
    if values := _values(full.get("enum")):
        plain["enum"] = values
    if (
        depth
        and kind == "array"
        and (item := _plain(full.get("items"), known, depth - 1, described=described))
    ):
        plain["items"] = item
    if depth and kind == "object" and isinstance(properties := full.get("properties"), Mapping):
        plain["properties"] = {
            name: _plain(value, known, depth - 1, described=described)
            for name, value in islice(properties.items(), MAX_PROPERTIES)
            if isinstance(name, str) and PROPERTY.fullmatch(name)
        }
        if required := _required(full.get("required"), plain["properties"]):
            plain["required"] = required
    return plain


def _resolved(schema: Any, known: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema behind a reference or a choice; of several forms the first one that is not null."""
    if not isinstance(schema, Mapping):
        return {}
    found = _referenced(schema, known)
    for word in ("anyOf", "oneOf"):
        forms = found.get(word)
        if isinstance(forms, list):
            chosen = next((f for f in forms if isinstance(f, Mapping) and f.get("type") != "null"), {})
            found = {**_referenced(chosen, known), **found}
    return found


def _referenced(schema: Mapping[str, Any], known: Mapping[str, Any]) -> Mapping[str, Any]:
    name = schema.get("$ref")
    if not isinstance(name, str):
        return schema
    target = known.get(name.removeprefix(REFERENCE))
    return {**target, **schema} if isinstance(target, Mapping) else schema


def _type(stated: Any) -> str:
    words = stated if isinstance(stated, list) else [stated]
    return next((word for word in words if isinstance(word, str) and word in TYPES), "")


def _values(stated: Any) -> list[Any]:
    """The enum values, if they are few and short. A part of the list would be wrong."""
    values = stated if isinstance(stated, list) and len(stated) <= MAX_VALUES else []
    return values if all(map(_sendable, values)) else []


def _sendable(value: Any) -> bool:
    """True if a value is short and can be written by every JSON library."""
    if isinstance(value, int):
        return abs(value) < MAX_NUMBER
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, str) and len(value) <= MAX_VALUE and one_line(value, MAX_VALUE) == value


def _required(stated: Any, properties: Mapping[str, Any]) -> list[str]:
    names = stated[: 5 * MAX_PROPERTIES] if isinstance(stated, list) else []
    return [name for name in properties if name in names]
