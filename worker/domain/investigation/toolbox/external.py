"""Tools of other servers that operators have mounted: how they are named, shown to the model, called and answered.

Everything about them is hostile: names, descriptions and schemas stand in the prompt and are bounded, cleaned and searched
for instructions; answers are evidence from outside (`mcp:<server>`), which proves nothing about the cluster.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic import RootModel, model_validator

from worker.domain.investigation.toolbox.external_schema import depth_of, plain_schema
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
"""Of one tool, its description and schema each at most half: all of them together cost at most 3,200 tokens."""
MAX_DESCRIPTION = 300  # characters
MAX_ARGUMENTS = 4_000  # characters of JSON
MAX_DEPTH = 8
MAX_TEXT = 100_000
"""Characters of an answer that are looked at at all. What is shown is far less."""
NOT_PLAIN = re.compile(r"[^A-Za-z0-9_-]")
MAX_NAME = 64
"""Longest name of a tool that the providers' APIs take; they take only letters, digits, `_` and `-`."""
NOT_REACHED = "its server has not been reached yet: nothing is known about it"
WITHHELD = "its description is withheld: it reads like instructions to its reader"
NO_TEXT = "the answer holds no text"
ANYTHING: Mapping[str, Any] = {"type": "object", "properties": {}}


class ExternalArguments(RootModel[dict[str, Any]]):
    """Arguments of a mounted tool: any JSON object within bounds. Its server checks the rest."""

    @model_validator(mode="before")
    @classmethod
    def _within_bounds(cls, arguments: Any) -> Any:
        if depth_of(arguments) > MAX_DEPTH:
            raise ValueError(f"nested deeper than {MAX_DEPTH}")
        if len(json.dumps(arguments)) > MAX_ARGUMENTS:
            raise ValueError(f"longer than {MAX_ARGUMENTS} characters")
        return arguments


def shown_name(server: str, name: str) -> str:
    """What the model calls the tool."""
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
    """Its answer, cut to what is looked at. No secret leaves in the arguments, wherever the model has it from."""
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
    """The most telling form of the schema that is short enough and holds no instructions."""
    for depth, described in ((3, True), (3, False), (1, False)):
        plain = plain_schema(schema, depth, described=described)
        text = json.dumps(plain)
        if fits(text, SPEC_TOKENS // 2) and not suspicious_lines(text):
            return plain
    return ANYTHING
