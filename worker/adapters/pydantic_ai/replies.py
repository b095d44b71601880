"""Turns a provider's response into a Reply, and corrects known faults of providers.

Repeated tool-call ids are replaced, arguments that are no JSON object become an empty object in the history
(some servers refuse to read back what they wrote) and a problem on the call, unpaired surrogates (legal in
JSON, in no encoding) are replaced, and a turn keeps a bounded number of tool calls.
"""

from __future__ import annotations

import dataclasses
import json
import math
from functools import lru_cache
from typing import Any

from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.usage import RequestUsage

from worker.domain.untrusted.evidence import one_line
from worker.domain.values.conversation import CACHED_PRICE, CallUsage, Finish, Reply, ToolCall
from worker.domain.verdict.answers.json_text import same_value

MAX_DEPTH = 32
MAX_TOOL_CALLS = 64
"""Of one turn. The rest is dropped, also from the history."""
MAX_ENCODINGS = 3
"""How often arguments may be encoded: some models write the object as a JSON string."""
MAX_TOKENS = 1_000_000_000
"""No provider's call has more, of input or of output."""
MAX_VALUES = 10_000
"""Values in the arguments of one call, at all levels."""
FINISH = {
    "stop": Finish.STOP,
    "tool_call": Finish.TOOL_CALLS,
    "length": Finish.LENGTH,
    "content_filter": Finish.REFUSAL,
}


def reply_of(response: ModelResponse, *, configured_name: str, turn: int) -> Reply:
    """The provider's response as a Reply.

    `turn` makes the minted tool-call ids unique in the conversation.
    """
    calls: list[ToolCall] = []
    parts: list[Any] = []
    part: Any
    for part in response.parts:
        if isinstance(part, ToolCallPart):
            if len(calls) == MAX_TOOL_CALLS:
                continue
            arguments, problem = read_arguments(part.args)
            name, call_id = encodable(part.tool_name), f"call_{turn}_{len(calls) + 1}"
            calls.append(ToolCall(call_id, name, arguments, problem))
            parts.append(dataclasses.replace(part, tool_name=name, tool_call_id=call_id, args=arguments))
        elif isinstance(part, (TextPart, ThinkingPart)):
            parts.append(dataclasses.replace(part, content=encodable(part.content)))
        else:
            parts.append(part)
    usage = _bounded(response.usage)
    kept = dataclasses.replace(response, parts=parts, usage=usage)
    known = _cached_price(response.model_name, response.provider_name, response.provider_url)
    return Reply(
        text=kept.text or "",
        tool_calls=tuple(calls),
        finish=_finish(response, has_calls=bool(calls)),
        usage=CallUsage(
            input_tokens=usage.input_tokens,
            cached_tokens=usage.cache_read_tokens,
            output_tokens=usage.output_tokens,
            cost_usd=_cost(kept),
            cached_price=CACHED_PRICE if known is None else known,
        ),
        thinking_chars=sum(len(p.content) for p in kept.parts if isinstance(p, ThinkingPart)),
        model=response.model_name or configured_name,
        raw=ModelMessagesTypeAdapter.dump_json([kept]).decode(),
    )


def _bounded(usage: RequestUsage) -> RequestUsage:
    """The tokens of a call without impossible counts, which would lift the budget or fit into no result.

    The library leaves out negative ones.
    """
    tokens = min(usage.input_tokens, MAX_TOKENS)
    return dataclasses.replace(
        usage,
        input_tokens=tokens,
        cache_read_tokens=min(usage.cache_read_tokens, tokens),
        output_tokens=min(usage.output_tokens, MAX_TOKENS),
    )


def _finish(response: ModelResponse, *, has_calls: bool) -> Finish:
    details = response.provider_details or {}
    if details.get("refusal"):
        return Finish.REFUSAL
    # A reason that pydantic-ai does not know is no stop.
    unnamed = "stop" if details.get("finish_reason") is None else ""
    finish = FINISH.get(response.finish_reason or unnamed, Finish.OTHER)
    if finish is Finish.STOP and has_calls:
        return Finish.TOOL_CALLS
    return finish


def read_arguments(args: object) -> tuple[dict[str, Any], str]:
    """Arguments of a tool call, and their problem (empty if there is none)."""
    if args is None or args == "":
        return {}, ""
    try:
        value = args
        for _ in range(MAX_ENCODINGS):
            if isinstance(value, str) and (value is args or value.lstrip()[:1] in {"{", '"'}):
                value = json.loads(value, object_pairs_hook=_object)
        value = encodable(value)
    except _TwoValues as twice:
        return {}, f"the key {one_line(str(twice), 60)!r} stands twice with different values; give it once"
    except (ValueError, RecursionError):
        return {}, "the arguments are not valid JSON, or nested too deeply; send one flat JSON object"
    if _values(value) > MAX_VALUES:
        return {}, f"the arguments hold more than {MAX_VALUES} values; send one flat JSON object"
    if not isinstance(value, dict):
        return {}, f"the arguments are a JSON {type(value).__name__}; send one JSON object"
    return value, ""


class _TwoValues(Exception):  # noqa: N818 - a state of the arguments
    """An object has one key twice, with different values."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    twice = pairs if len(found) < len(pairs) else []
    for key, value in twice:
        if not same_value(value, found[key]):
            raise _TwoValues(key)
    return found


def _values(value: Any) -> int:
    """The number of values in a JSON value, at all levels."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(_values(item) for item in inside)


def encodable(value: Any, levels: int = MAX_DEPTH) -> Any:
    """A JSON value whose texts can be written as UTF-8. Raises RecursionError for one with more levels.

    Raises ValueError for NaN and infinities: Python's reader accepts them, but JSON does not have them.

    JSON readers and writers give up at different depths, so one may accept what another cannot write.
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
    if _cached_price(response.model_name, response.provider_name, response.provider_url) is None:
        return None
    try:
        return float(response.cost().total_price)
    except (LookupError, AssertionError, ValueError):
        return None


@lru_cache(maxsize=64)
def _cached_price(model: str | None, provider: str | None, url: str | None) -> float | None:
    """The price of a cached input token as a share of the price of a new one.

    It comes from the price list. None for a model that is not in it.

    Searching the whole list in vain costs as much as the rest of reading a reply.
    """

    def price(cached: int) -> float:
        usage = RequestUsage(input_tokens=1_000, cache_read_tokens=cached)
        known = ModelResponse([], usage=usage, model_name=model, provider_name=provider, provider_url=url)
        return float(known.cost().input_price)

    try:
        return round(price(1_000) / new, 4) if (new := price(0)) else CACHED_PRICE
    except (LookupError, AssertionError, ValueError):
        return None
