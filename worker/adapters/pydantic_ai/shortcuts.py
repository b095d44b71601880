"""Avoids work that the client libraries repeat at every call, although it is needed once or not at all.

It is most of what a call costs in CPU: the OpenAI client walks through the whole conversation in search of
keys to rename, of which a chat completion has none; pydantic-ai derives the schema of each tool; and a client
is copied for each request that it must not retry.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from worker.domain.values.conversation import ToolSpec

TOOL_SETS = 16
"""How many sets of tools are remembered for one model."""


def without_retries(model: Model[Any]) -> ModelSettings:
    """Settings that make the client of the model send each request once.

    A client that can be configured once for all requests is configured here instead.
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


def derived_once(model: Model[Any]) -> Callable[[Sequence[ToolSpec]], ModelRequestParameters]:
    """A function for the part of a request to this model that says which tools there are.

    It derives each set of tools once; the model itself derives nothing any more.
    """
    derive = model.customize_request_parameters
    model.customize_request_parameters = _as_it_is  # type: ignore[method-assign]  # of this one model

    @lru_cache(maxsize=TOOL_SETS)
    def derived(tools: str) -> ModelRequestParameters:
        return derive(ModelRequestParameters(function_tools=[ToolDefinition(**t) for t in json.loads(tools)]))

    def parameters(tools: Sequence[ToolSpec]) -> ModelRequestParameters:
        return derived(json.dumps([_definition(tool) for tool in tools]))

    return parameters


def _definition(tool: ToolSpec) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters_json_schema": dict(tool.parameters),
        "strict": tool.is_answer,
    }
