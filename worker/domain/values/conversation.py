"""The conversation between the worker and a model, independent of any provider's format."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """One tool as the model sees it. `parameters` is a JSON Schema object.

    `is_answer`: calling it is the final answer. Its schema is enforced by providers that can do so.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    is_answer: bool = False


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call that the model made.

    If its arguments are not a JSON object, `problem` says so and it is not run.
    """

    id: str
    name: str
    arguments: Mapping[str, Any]
    problem: str = ""


class Finish(enum.StrEnum):
    """Why a model stopped, according to the provider."""

    STOP = "stop"
    TOOL_CALLS = "tool_calls"
    LENGTH = "length"
    REFUSAL = "refusal"
    OTHER = "other"


CACHED_PRICE = 0.1
"""The usual price of a cached input token, as a share of the price of a new one."""


@dataclass(frozen=True, slots=True)
class CallUsage:
    """Tokens of one call; `cached_tokens` is the part of the input served from the provider's cache.

    `cached_price` is what one of these costs, as a share of the price of a new one.
    """

    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    cached_price: float = CACHED_PRICE


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of a model. `raw` is the adapter's own serialisation: signed parts survive a replay.

    `thinking_chars` counts what the server put into a reasoning field, which is not part of the answer.
    """

    text: str
    tool_calls: tuple[ToolCall, ...]
    finish: Finish
    usage: CallUsage
    model: str
    raw: str = ""
    thinking_chars: int = 0


@dataclass(frozen=True, slots=True)
class UserTurn:
    """Text from the worker: the incident, a correction, a budget notice."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The answer to one tool call, already cut to the budget. `seconds` is how long the tool took."""

    call_id: str
    name: str
    content: str
    ok: bool = True
    seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class ToolTurn:
    """Results of all tool calls of the reply before, and a note to the model (may be empty)."""

    results: tuple[ToolResult, ...]
    note: str = ""


Turn = UserTurn | Reply | ToolTurn


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One call: the constant prefix (tools, system) and everything said so far.

    `tools_allowed`: tools may be called besides the one that submits the answer. `urgency` is the number of
    the request's lane, 0 for the most urgent. It only orders calls that wait for a slot.
    """

    system: str
    tools: tuple[ToolSpec, ...]
    turns: tuple[Turn, ...]
    tools_allowed: bool = True
    deadline_seconds: float = 120.0
    urgency: int = 2
