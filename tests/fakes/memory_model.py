"""A model that says what a test wrote for it: the Model port without a server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from worker.domain.values.conversation import CallUsage, Finish, ModelRequest, Reply, ToolCall

USAGE = CallUsage(input_tokens=1_000, cached_tokens=600, output_tokens=100)
Said = Reply | Exception
Script = Callable[[ModelRequest, int], Said]
"""From the request and the number of the call (from 1) to a reply, or an exception to raise."""


class MemoryModel:
    """Plays a script, and keeps every request. A list of replies repeats its last one."""

    def __init__(self, script: Script | Iterable[Said], name: str = "memory-model") -> None:
        self._script: Script
        if callable(script):
            self._script = script
        else:
            lines = list(script)
            self._script = lambda _, number: lines[min(number, len(lines)) - 1]
        self._name = name
        self.requests: list[ModelRequest] = []

    @property
    def name(self) -> str:
        return self._name

    def then(self, *lines: Said) -> None:
        """What it says from now on."""
        before = self.calls
        self._script = lambda _, number: lines[min(number - before, len(lines)) - 1]

    @property
    def calls(self) -> int:
        """How often it was asked."""
        return len(self.requests)

    async def ask(self, request: ModelRequest) -> Reply:
        self.requests.append(request)
        said = self._script(request, len(self.requests))
        if isinstance(said, Exception):
            raise said
        return said


def says(text: str, finish: Finish = Finish.STOP, *, usage: CallUsage = USAGE) -> Reply:
    """A reply without tool calls."""
    return Reply(text, (), finish, usage, "memory-model-1", raw=f"raw:{text[:40]}")


def calls(*wanted: tuple[str, Mapping[str, Any]], text: str = "", usage: CallUsage = USAGE) -> Reply:
    """A reply that asks for tools, each `(name, arguments)`."""
    made = tuple(
        ToolCall(f"call_{number}", name, dict(arguments)) for number, (name, arguments) in enumerate(wanted)
    )
    return Reply(text, made, Finish.TOOL_CALLS, usage, "memory-model-1")


def final(answer: Mapping[str, Any], prose: str = "The new image crashes at start.", **options: Any) -> Reply:
    """A final answer in the required form."""
    return says(f"{prose}\n```json\n{json.dumps(answer)}\n```", **options)
