"""Tools of other servers in memory: answers from a table, an exception for a failure; keeps what was asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from worker.domain.values.errors import ExternalToolError
from worker.domain.values.external_tools import ExternalAnswer, ExternalTool

DOCS = ExternalTool(
    "docs",
    "search",
    "Search the runbooks.",
    {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
)


@dataclass
class MemoryExternal:
    """`answers` are texts or exceptions by the name of the tool, the same ones each time."""

    offered: Sequence[ExternalTool] = (DOCS,)
    answers: dict[str, str | ExternalAnswer | ExternalToolError] = field(default_factory=dict)
    asked: list[tuple[str, str, Mapping[str, Any]]] = field(default_factory=list)

    def tools(self) -> Sequence[ExternalTool]:
        return self.offered

    async def call(self, server: str, name: str, arguments: Mapping[str, Any]) -> ExternalAnswer:
        self.asked.append((server, name, arguments))
        if (server, name) not in {(tool.server, tool.name) for tool in self.offered}:
            raise ExternalToolError(f"{name} is not a tool of this server")
        said = self.answers.get(name, f"{name} of {server}")
        if isinstance(said, ExternalToolError):
            raise said
        return said if isinstance(said, ExternalAnswer) else ExternalAnswer(said)
