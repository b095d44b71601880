"""One call of a model through pydantic-ai.

One call is one `pydantic_ai.direct.model_request`: the loop, the retries and every word of the prompt are
ours, so the prefix of a conversation stays byte-identical and the provider can cache it. Chosen over the
library's Agent (which adds text of its own) and over a router library (size, import time).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import httpx2
from pydantic_ai import ModelSettings
from pydantic_ai.direct import model_request, model_request_stream
from pydantic_ai.exceptions import ModelAPIError, UnexpectedModelBehavior, UserError
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequestPart,
    ModelResponse,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.messages import ModelRequest as ProviderRequest
from pydantic_ai.settings import ToolChoice

from worker.adapters.pydantic_ai import providers
from worker.adapters.pydantic_ai.answers import CALL, MAX_BODY_BYTES, CallState, bound_answer
from worker.adapters.pydantic_ai.failures import one_line, translate
from worker.adapters.pydantic_ai.replies import reply_of
from worker.adapters.pydantic_ai.shortcuts import derived_once, without_retries
from worker.domain.values.conversation import ModelRequest, Reply, ToolSpec, Turn, UserTurn
from worker.domain.values.errors import GiveUp, GiveUpReason, Retry, RetryReason, UnreadableReply

UNBUILT = (
    ValueError,
    TypeError,
    ArithmeticError,
    RecursionError,
    LookupError,
    AttributeError,
    AssertionError,
    UserError,
)
"""Errors of the libraries while they build a request or read an unexpected answer."""


class PydanticAIModel:
    """A model named `<provider>:<name>`, as pydantic-ai does.

    Examples: `openai-chat:gpt-5`, `anthropic:claude-sonnet-4-6`.

    `openai-chat` with a `base_url` is any server that speaks OpenAI chat completions. `max_output_tokens`
    bounds one answer. With `silence_seconds`, answers are streamed, and one that is silent for this long has
    failed. Raises ModelUnusable for an unknown name, a missing key or a provider that is not installed.
    """

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        max_output_tokens: int = 4_096,
        silence_seconds: float | None = None,
    ) -> None:
        self._http = httpx2.AsyncClient(
            # The request's own deadline is shorter; this one notices a server that accepts no connection.
            timeout=httpx2.Timeout(
                silence_seconds or providers.READ_SECONDS, connect=providers.CONNECT_SECONDS
            ),
            limits=httpx2.Limits(max_connections=None),  # slots and RCA_LLM__MAX_CONCURRENT bound the calls
            headers={"Accept-Encoding": "identity"},
            event_hooks={"response": [bound_answer]},
            follow_redirects=False,  # a redirect would carry the key to another host
            trust_env=base_url is None,  # an explicit address is reached directly
        )
        self.name = name
        """The configured name."""
        self._streams, self._own_address = silence_seconds is not None, base_url is not None
        self._model = providers.provider_model(name, base_url=base_url, api_key=api_key, http=self._http)
        self._errors: tuple[type[Exception], ...] = (
            ModelAPIError,
            UnexpectedModelBehavior,
            httpx2.HTTPError,
            *UNBUILT,
            *providers.client_errors(name.partition(":")[0]),
        )
        self._settings = ModelSettings(
            max_tokens=max_output_tokens, cache=True, **without_retries(self._model)
        )
        self._parameters_of = derived_once(self._model)

    async def close(self) -> None:
        """Close the connections."""
        await providers.close_model(self._model)
        await self._http.aclose()

    async def ask(self, request: ModelRequest) -> Reply:
        """Make one call. The deadline of the request covers all of it."""
        settings = ModelSettings(**self._settings)
        if not request.tools_allowed:  # the tools stay in the request: they are part of the cached prefix
            settings["tool_choice"] = self._only_the_answer(request.tools)
        call = CallState()
        token = CALL.set(call)
        try:
            async with asyncio.timeout(request.deadline_seconds):
                response = await self._call(request, settings)
            return reply_of(response, configured_name=self.name, turn=len(request.turns))
        except TimeoutError as e:
            message = f"no answer within {request.deadline_seconds:.0f} s"
            raise Retry(RetryReason.MODEL_UNAVAILABLE, message) from e
        except self._errors as e:
            raise _failure(e, call) from e
        finally:
            CALL.reset(token)

    def _only_the_answer(self, tools: Sequence[ToolSpec]) -> ToolChoice:
        """The choice that leaves only the tool of the answer.

        A server behind an address of its own, and a model that cannot be forced, may choose: the conversation
        names the tool.
        """
        answers = [tool.name for tool in tools if tool.is_answer]
        if not answers:
            return "none"
        can_be_forced = self._model.profile.get("supports_forced_tool_choice", True)
        return answers if can_be_forced and not self._own_address else "auto"

    async def _call(self, request: ModelRequest, settings: ModelSettings) -> ModelResponse:
        messages = [_provider_message(request.system, turn) for turn in request.turns]
        tools = self._parameters_of(request.tools)
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
            raise UnreadableReply(RetryReason.MODEL_UNAVAILABLE, "the answer is cut: no finish reason")
        return response


def _failure(error: Exception, call: CallState) -> Retry | GiveUp:
    """The meaning of a failed call.

    Before the provider has answered, the request is at fault, and would fail again.
    """
    if call.too_long:
        return GiveUp(
            GiveUpReason.MODEL_REJECTED_REQUEST, f"the answer is longer than {MAX_BODY_BYTES // 2**20} MiB"
        )
    if not isinstance(error, UNBUILT) or isinstance(error, ModelAPIError):
        return translate(error)
    what = one_line(f"{type(error).__name__}: {error}")
    if call.answered:
        return UnreadableReply(RetryReason.MODEL_UNAVAILABLE, f"the answer cannot be read: {what}")
    return GiveUp(GiveUpReason.MODEL_REJECTED_REQUEST, f"the request cannot be written: {what}")


def _provider_message(system: str, turn: Turn) -> ModelMessage:
    """The turn in pydantic-ai's types. `instructions` is repeated on every request, as the library wants."""
    if isinstance(turn, Reply):
        return ModelMessagesTypeAdapter.validate_json(turn.raw)[0]
    parts: list[ModelRequestPart] = []
    if isinstance(turn, UserTurn):
        parts.append(UserPromptPart(turn.text))
    else:
        parts.extend(ToolReturnPart(r.name, r.content, r.call_id) for r in turn.results)
        if turn.note:
            parts.append(UserPromptPart(turn.note))
    return ProviderRequest(parts=parts, instructions=system)
