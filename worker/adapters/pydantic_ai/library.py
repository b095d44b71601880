"""One call through a model of pydantic-ai, without work that the client libraries repeat at every call.

The OpenAI client walks through the whole conversation in search of keys to rename, of which a chat completion
has none; pydantic-ai derives the schema of each tool; and a client is copied for each request that it must
not retry.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from pydantic_ai.direct import model_request, model_request_stream
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequestPart,
    ModelResponse,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.messages import ModelRequest as ProviderRequest
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings, ToolChoice
from pydantic_ai.tools import ToolDefinition

from worker.domain.values.conversation import ModelRequest, Reply, ToolSpec, ToolTurn, Turn, UserTurn
from worker.domain.values.errors import Retry, RetryReason

TOOL_SETS = 16
"""How many sets of tools are remembered for one model."""


class LibraryModel:
    """Calls a model of the library. Raises its errors, and Retry. With `streams`, answers are streamed."""

    def __init__(self, model: Model[Any], *, max_tokens: int, streams: bool) -> None:
        self._model, self._streams = model, streams
        self._settings = ModelSettings(max_tokens=max_tokens, cache=True, **without_retries(model))
        self._tools = ToolSets(model)

    @property
    def can_be_forced(self) -> bool:
        """Whether a request can name the only tool that may be called."""
        return bool(self._model.profile.get("supports_forced_tool_choice", True))

    async def close(self) -> None:
        """Close the connections that the model does not share with the others."""
        if self._model.system == "groq":
            await self._model.client.close()  # type: ignore[attr-defined]  # of this provider only

    async def call(self, request: ModelRequest, tool_choice: ToolChoice) -> ModelResponse:
        """Make one call."""
        settings = ModelSettings(**self._settings)
        if tool_choice != "auto":
            settings["tool_choice"] = tool_choice
        messages = provider_messages(request.system, request.turns)
        tools = self._tools.parameters(request.tools)
        if not self._streams:
            return await model_request(
                self._model, messages, model_settings=settings, model_request_parameters=tools
            )
        streaming = model_request_stream(
            self._model, messages, model_settings=settings, model_request_parameters=tools
        )
        async with streaming as pieces:
            async for _ in pieces:
                pass
        response = pieces.get()
        # A body that just ends is no transport error, and the library fills in a missing reason.
        said = response.provider_details or {}
        if response.state != "complete" or not (said.get("finish_reason") or said.get("refusal")):
            raise Retry(RetryReason.MODEL_UNAVAILABLE, "the answer was cut: it does not say why it ends")
        return response


def without_retries(model: Model[Any]) -> ModelSettings:
    """Settings by which the client of the model makes each request once. If a client can be told once for
    all requests, it is.
    """
    client: Any = getattr(model, "client", None)
    openai = sys.modules.get("openai")  # loaded if the model needs it
    if openai is not None and isinstance(client, openai.AsyncOpenAI):
        from worker.adapters.pydantic_ai.completions import PlainCompletions  # noqa: PLC0415

        client.chat.completions = PlainCompletions(client)
    if not hasattr(client, "max_retries"):
        can_be_told = "max_retries" not in model.unsupported_settings
        return ModelSettings(max_retries=0) if can_be_told else ModelSettings()
    client.max_retries = 0
    return ModelSettings()


def _as_it_is(model_request_parameters: ModelRequestParameters) -> ModelRequestParameters:
    return model_request_parameters


class ToolSets:
    """The tools of requests in the form of one model, each set derived once."""

    def __init__(self, model: Model[Any]) -> None:
        derive = model.customize_request_parameters

        @lru_cache(maxsize=TOOL_SETS)
        def derived(tools: str) -> ModelRequestParameters:
            return derive(
                ModelRequestParameters(function_tools=[ToolDefinition(**t) for t in json.loads(tools)])
            )

        self._derived = derived
        model.customize_request_parameters = _as_it_is  # type: ignore[method-assign]  # of this one model

    def parameters(self, tools: Sequence[ToolSpec]) -> ModelRequestParameters:
        """The part of a request that says which tools there are."""
        return self._derived(
            json.dumps(
                [
                    {
                        "name": tool.name,
                        "description": tool.description,
                        "parameters_json_schema": dict(tool.parameters),
                        "strict": tool.is_answer,
                    }
                    for tool in tools
                ]
            )
        )


def provider_messages(system: str, turns: Sequence[Turn]) -> list[ModelMessage]:
    """The conversation in pydantic-ai's types. `instructions` is repeated on every request, as the library
    wants.
    """
    return [_provider_message(system, turn) for turn in turns]


def _provider_message(system: str, turn: Turn) -> ModelMessage:
    if isinstance(turn, Reply):
        return ModelMessagesTypeAdapter.validate_json(turn.raw)[0]
    parts: list[ModelRequestPart] = []
    if isinstance(turn, UserTurn):
        parts.append(UserPromptPart(turn.text))
    else:
        parts.extend(_tool_returns(turn))
        if turn.note:
            parts.append(UserPromptPart(turn.note))
    return ProviderRequest(parts=parts, instructions=system)


def _tool_returns(turn: ToolTurn) -> list[ToolReturnPart]:
    return [ToolReturnPart(tool_name=r.name, content=r.content, tool_call_id=r.call_id) for r in turn.results]
