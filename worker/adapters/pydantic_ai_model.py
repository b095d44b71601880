"""The Model port on pydantic-ai, used as a provider adapter only.

One call is one `pydantic_ai.direct.model_request`: the loop, the retries and every word of the prompt are ours, so the
prefix of a conversation stays byte-identical and can be cached by the provider. Chosen over the library's Agent (adds
text of its own) and over a router library (size, import time).

What providers do wrong is put right here, where it comes in: tool-call ids that repeat are minted anew, arguments that
are no JSON object become an empty object in the history (some servers refuse to read back what they wrote) and a
problem on the call, unpaired surrogates (legal in JSON, in no encoding) are replaced.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
from collections.abc import Sequence
from typing import Any

import httpx2
from pydantic_ai import ModelSettings
from pydantic_ai.direct import model_request, model_request_stream
from pydantic_ai.exceptions import (
    ContentFilterError,
    ModelAPIError,
    ModelAuthenticationError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestRejectedError,
    UnexpectedModelBehavior,
    UserError,
)
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequestPart,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.messages import ModelRequest as ProviderRequest
from pydantic_ai.models import Model as ProviderModel
from pydantic_ai.models import ModelRequestParameters, infer_model
from pydantic_ai.providers import Provider, infer_provider_class
from pydantic_ai.tools import ToolDefinition

from worker.domain.values.conversation import (
    CallUsage,
    Finish,
    ModelRequest,
    Reply,
    ToolCall,
    ToolSpec,
    ToolTurn,
    Turn,
    UserTurn,
)
from worker.domain.values.errors import GiveUp, GiveUpReason, ReportedError, Retry, RetryReason

MAX_ERROR_CHARS = 300
MAX_DEPTH = 32
UNBUILT = (ValueError, TypeError, OverflowError, RecursionError, UserError)
"""What building and writing a request raises, whoever's text is in it. The same request fails again.

An answer that cannot be read is none of these: the library makes errors of its own of it.
"""
FINISH = {
    "stop": Finish.STOP,
    "tool_call": Finish.TOOL_CALLS,
    "length": Finish.LENGTH,
    "content_filter": Finish.REFUSAL,
}


class ModelUnusable(ReportedError):  # noqa: N818 - a state of the configuration
    """The model cannot be called as it is configured. The message says what to set."""


class PydanticAIModel:
    """A model named `<provider>:<name>` as pydantic-ai names them (`openai-chat:gpt-5`, `anthropic:claude-sonnet-4-6`).

    `openai-chat` with a `base_url` is any server that speaks OpenAI chat completions. `max_output_tokens` bounds one
    answer; `max_connections` bounds the pool. With `silence_seconds` answers are streamed, and one that is silent for
    so long has failed. Raises ModelUnusable for an unknown name, a missing key or a provider that is not installed.
    """

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        max_output_tokens: int = 4_096,
        max_connections: int = 100,
        silence_seconds: float | None = None,
    ) -> None:
        self._http = httpx2.AsyncClient(
            timeout=silence_seconds or 600.0,  # the request's own deadline is shorter
            limits=httpx2.Limits(max_connections=max_connections),
            trust_env=base_url is None,  # an explicit address is reached directly
        )
        self._name, self._streams = name, silence_seconds is not None
        self._model = _provider_model(name, base_url=base_url, api_key=api_key, http=self._http)
        self._settings = ModelSettings(max_tokens=max_output_tokens, max_retries=0, cache=True)

    @property
    def name(self) -> str:
        """The configured name."""
        return self._name

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def ask(self, request: ModelRequest) -> Reply:
        """Make one call. The deadline of the request covers all of it."""
        settings = ModelSettings(**self._settings)
        if not request.tools_allowed:
            settings["tool_choice"] = (
                "none"  # the tools stay in the request: they are part of the cached prefix
            )
        try:
            async with asyncio.timeout(request.deadline_seconds):
                response = await self._call(request, settings)
        except TimeoutError as e:
            message = f"no answer within {request.deadline_seconds:.0f} s"
            raise Retry(RetryReason.MODEL_UNAVAILABLE, message) from e
        except (ModelAPIError, UnexpectedModelBehavior, httpx2.HTTPError) as e:
            raise translate(e) from e
        except UNBUILT as e:
            message = f"the request cannot be written: {type(e).__name__}: {_one_line(e)}"
            raise GiveUp(GiveUpReason.MODEL_REJECTED_REQUEST, message[:MAX_ERROR_CHARS]) from e
        return reply_of(response, configured_name=self._name, turn=len(request.turns))

    async def _call(self, request: ModelRequest, settings: ModelSettings) -> ModelResponse:
        messages = provider_messages(request.system, request.turns)
        tools = ModelRequestParameters(function_tools=_definitions(request.tools))
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
        # A body that just ends is no error of the transport, and the library fills in a reason that is missing.
        said = response.provider_details or {}
        if response.state != "complete" or not (said.get("finish_reason") or said.get("refusal")):
            raise Retry(RetryReason.MODEL_UNAVAILABLE, "the answer was cut: it does not say why it ends")
        return response


def _provider_model(
    name: str, *, base_url: str | None, api_key: str | None, http: httpx2.AsyncClient
) -> ProviderModel:
    def provider(kind: str) -> Provider[Any]:
        options: dict[str, Any] = {"http_client": http}
        if base_url:
            options["base_url"] = base_url
        if api_key or base_url:
            options["api_key"] = api_key or "none"  # local servers ask for no key, their client does
        return infer_provider_class(kind)(**options)

    try:
        return infer_model(name, provider_factory=provider)
    except ImportError as e:
        raise ModelUnusable(f"{name}: the client of this provider is not installed ({_one_line(e)})") from e
    except (UserError, ValueError) as e:
        known = ":" in name and not str(e).startswith("Unknown")
        hint = "set RCA_LLM__API_KEY" if known else "name it as provider:model, such as openai-chat:gpt-5"
        raise ModelUnusable(f"{name} cannot be used: {hint}" + ("" if known else f" ({_one_line(e)})")) from e


def _one_line(problem: Exception) -> str:
    return " ".join(str(problem).split())[:MAX_ERROR_CHARS]


def _definitions(tools: Sequence[ToolSpec]) -> list[ToolDefinition]:
    return [
        ToolDefinition(name=t.name, description=t.description, parameters_json_schema=dict(t.parameters))
        for t in tools
    ]


def provider_messages(system: str, turns: Sequence[Turn]) -> list[ModelMessage]:
    """The conversation in pydantic-ai's types. `instructions` is repeated on every request, as the library wants."""
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


def reply_of(response: ModelResponse, *, configured_name: str, turn: int) -> Reply:
    """The provider's response as a Reply. `turn` makes the minted tool-call ids unique in the conversation."""
    calls: list[ToolCall] = []
    parts: list[Any] = []
    part: Any
    for part in response.parts:
        if isinstance(part, ToolCallPart):
            arguments, problem = read_arguments(part.args)
            name, call_id = encodable(part.tool_name), f"call_{turn}_{len(calls) + 1}"
            calls.append(ToolCall(call_id, name, arguments, problem))
            parts.append(dataclasses.replace(part, tool_name=name, tool_call_id=call_id, args=arguments))
        elif isinstance(part, (TextPart, ThinkingPart)):
            parts.append(dataclasses.replace(part, content=encodable(part.content)))
        else:
            parts.append(part)
    kept = dataclasses.replace(response, parts=parts)
    usage = response.usage
    return Reply(
        text=kept.text or "",
        tool_calls=tuple(calls),
        finish=_finish(response, has_calls=bool(calls)),
        usage=CallUsage(
            input_tokens=usage.input_tokens,
            cached_tokens=usage.cache_read_tokens,
            output_tokens=usage.output_tokens,
            cost_usd=_cost(response),
        ),
        model=response.model_name or configured_name,
        raw=ModelMessagesTypeAdapter.dump_json([kept]).decode(),
    )


def _finish(response: ModelResponse, *, has_calls: bool) -> Finish:
    if (response.provider_details or {}).get("refusal"):
        return Finish.REFUSAL
    finish = FINISH.get(response.finish_reason or "stop", Finish.OTHER)
    if finish is Finish.STOP and has_calls:
        return Finish.TOOL_CALLS
    return finish


def read_arguments(args: object) -> tuple[dict[str, Any], str]:
    """Arguments of a tool call, and what is wrong with them (empty when nothing is)."""
    if args is None or args == "":
        return {}, ""
    try:
        value = encodable(json.loads(args) if isinstance(args, str) else args)
    except (ValueError, RecursionError):
        return {}, "the arguments are not valid JSON, or nested too deeply; send one flat JSON object"
    if not isinstance(value, dict):
        return {}, f"the arguments are a JSON {type(value).__name__}; send one JSON object"
    return value, ""


def encodable(value: Any, levels: int = MAX_DEPTH) -> Any:
    """A JSON value whose texts can be written as UTF-8. Raises RecursionError for one with more levels.

    Raises ValueError for NaN and infinities: Python's reader lets them in, no JSON has them.

    JSON readers and writers give up at different depths, so what one of them lets in another cannot write.
    """
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("not a number of JSON")
    if not isinstance(value, list | dict):
        return value
    if not levels:
        raise RecursionError("nested too deeply")
    if isinstance(value, list):
        return [encodable(item, levels - 1) for item in value]
    return {encodable(key): encodable(item, levels - 1) for key, item in value.items()}


def _cost(response: ModelResponse) -> float | None:
    """Price in US dollars by the library's price list; None for a model that is not in it."""
    try:
        return float(response.cost().total_price)
    except (LookupError, AssertionError, ValueError):
        return None


HOPELESS: tuple[tuple[type[Exception], GiveUpReason], ...] = (
    (ModelAuthenticationError, GiveUpReason.MODEL_REFUSED_CREDENTIALS),
    (ModelContextWindowExceededError, GiveUpReason.CONTEXT_OVERFLOW),
    (ModelQuotaExceededError, GiveUpReason.MODEL_SPEND_CAP),
    (ModelRequestRejectedError, GiveUpReason.MODEL_REJECTED_REQUEST),
    (ContentFilterError, GiveUpReason.MODEL_REJECTED_REQUEST),
)
RETRYABLE_4XX = {408, 409, 425, 429}


def translate(error: Exception) -> Retry | GiveUp:
    """What a provider's failure means for the run: most 4xx never pass, everything else may."""
    message = _one_line(error)
    after = error.retry_after if isinstance(error, ModelAPIError) else None
    if isinstance(error, ModelRateLimitError):
        return Retry(RetryReason.MODEL_RATE_LIMITED, message, after)
    reason = next((reason for kind, reason in HOPELESS if isinstance(error, kind)), None)
    if reason is None and isinstance(error, ModelHTTPError) and 400 <= error.status_code < 500:
        if error.status_code in {401, 403}:
            reason = GiveUpReason.MODEL_REFUSED_CREDENTIALS
        elif error.status_code not in RETRYABLE_4XX:
            reason = GiveUpReason.MODEL_REJECTED_REQUEST
    if reason is not None:
        return GiveUp(reason, message)
    return Retry(RetryReason.MODEL_UNAVAILABLE, message, after)
