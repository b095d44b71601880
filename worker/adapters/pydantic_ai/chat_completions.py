"""OpenAI chat completions of a server behind an address of its own: vLLM, Ollama, LiteLLM, a gateway.

Takes half of the CPU of OpenAI's client, and 20 MiB less. Each turn of a conversation is encoded once.
Replies have the form that pydantic-ai gives them, so that another provider can continue the conversation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import httpx2
from pydantic_ai._special_tokens import break_special_tokens as safe
from pydantic_ai._special_tokens import restore_special_tokens_in_response as restored
from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError
from pydantic_ai.messages import ModelResponse, ModelResponsePart, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.profiles.openai import OpenAIJsonSchemaTransformer
from pydantic_ai.settings import ToolChoice
from pydantic_ai.usage import RequestUsage

from worker.adapters.pydantic_ai.answers import MAX_PARTS
from worker.domain.values.conversation import ModelRequest, Reply, UserTurn

PROVIDER: Final = "openai"
THOUGHTS: Final = ("reasoning", "reasoning_content")
"""Fields in which servers return what a model has thought, and in which they want it back."""
TAGGED: Final = re.compile(r"<think>(.*?)</think>", re.DOTALL)
FINISH: Final[dict[str, Any]] = {
    **{reason: reason for reason in ("stop", "length", "content_filter")},
    **dict.fromkeys(("tool_calls", "function_call"), "tool_call"),
}
REMEMBERED: Final = 512  # turns whose JSON is kept
encoded = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


class ChatCompletions:
    """One model of the server at `url`. With `streams`, answers arrive in pieces.

    Raises errors of httpx2, ModelAPIError, and errors of Python for an answer in another form.
    """

    def __init__(
        self, name: str, http: httpx2.AsyncClient, *, url: str, key: str, max_tokens: int, streams: bool
    ) -> None:
        self._name, self._http, self._address, self._streams = name, http, url, streams
        self._url = httpx2.URL(f"{url.rstrip('/')}/chat/completions")
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        options = {"max_completion_tokens": max_tokens, "stream": streams}
        self._options = encoded(options | ({"stream_options": {"include_usage": True}} if streams else {}))

    async def call(self, request: ModelRequest, tool_choice: ToolChoice) -> ModelResponse:
        """Make one call."""
        messages = ",".join(_messages(request))
        tools = json.dumps([(t.name, t.description, dict(t.parameters), t.is_answer) for t in request.tools])
        choice = f'"tools":{_tools(tools)},"tool_choice":{encoded(tool_choice)},' if request.tools else ""
        body = f'{{"model":{encoded(self._name)},"messages":[{messages}],{choice}{self._options[1:]}'.encode()
        async with self._http.stream("POST", self._url, headers=self._headers, content=body) as response:
            if self._streams and response.is_success:
                return self._read(await self._merged(response))
            await response.aread()
        if response.is_success:
            return self._read(response.json())
        try:
            error = response.json()
        except ValueError:
            error = response.text
        error = error.get("error", error) if isinstance(error, dict) else error
        raise ModelHTTPError(response.status_code, self._name, error, headers=response.headers)

    async def _merged(self, response: httpx2.Response) -> dict[str, Any]:
        """The answer that arrives in pieces, in the form of one that arrives at once."""
        texts: dict[str, list[str]] = {name: [] for name in ("content", "refusal", *THOUGHTS)}
        calls: dict[int, dict[str, Any]] = {}
        answer: dict[str, Any] = {"model": "", "finish_reason": ""}
        line = b""
        async for piece in response.aiter_bytes():
            *lines, line = (line + piece).split(b"\n")
            for data in (text[5:].strip() for text in lines if text.startswith(b"data:")):
                if data != b"[DONE]":
                    self._add(json.loads(data), answer, texts, calls)
        if not answer["finish_reason"] and not texts["refusal"]:
            raise ModelAPIError(self._name, "the answer was cut: it does not say why it ends")
        message = {**{name: "".join(said) for name, said in texts.items()}, "tool_calls": [*calls.values()]}
        return {**answer, "choices": [{"message": message, "finish_reason": answer["finish_reason"]}]}

    def _add(self, chunk: Any, answer: dict[str, Any], texts: dict[str, list[str]], calls: Any) -> None:
        if error := chunk.get("error"):
            raise ModelAPIError(self._name, f"the answer broke off: {error}", body=error)
        choice: dict[str, Any] = next(iter(chunk.get("choices") or ()), {})
        names = ("model", "usage", "finish_reason")
        answer |= {name: part[name] for part in (chunk, choice) for name in names if part.get(name)}
        delta = choice.get("delta") or {}
        for name in texts.keys() & delta.keys():
            texts[name].append(_text(delta[name]))
        for part in delta.get("tool_calls") or ():
            index, function = part.get("index"), part.get("function") or {}
            if index is None:  # then one that has an id begins the next call
                index = len(calls) - (0 if part.get("id") or not calls else 1)
            call = calls.setdefault(index, {**part, "function": {"name": "", "arguments": ""}})["function"]
            call |= {name: call[name] + (function.get(name) or "") for name in call}

    def _read(self, answer: dict[str, Any]) -> ModelResponse:
        choice, usage = answer["choices"][0], RequestUsage(unmeasured_requests=1)
        about: Any = {"provider": PROVIDER, "provider_fallback": PROVIDER, "provider_url": self._address}
        if said := answer.get("usage"):
            usage = RequestUsage.extract({"model": self._name, "usage": said}, api_flavor="chat", **about)
        read = ModelResponse(
            [] if (refusal := choice["message"].get("refusal")) else list(_parts(choice["message"])),
            usage=usage,
            model_name=answer["model"],
            provider_name=PROVIDER,
            provider_url=self._address,
            finish_reason="content_filter" if refusal else FINISH.get(choice["finish_reason"]),
            provider_details={"refusal": refusal} if refusal else {"finish_reason": choice["finish_reason"]},
        )
        return restored(read)


def _messages(request: ModelRequest) -> Iterator[str]:
    """The messages. A server that returns thoughts in a field wants it with all tool calls that follow."""
    yield _message("system", request.system)
    turns = request.turns
    fields = {field for turn in turns if isinstance(turn, Reply) for field in _reply(turn.raw)[1]}
    spoken = [
        n for n, t in enumerate(turns) if not isinstance(t, Reply) and (isinstance(t, UserTurn) or t.note)
    ]
    for number, turn in enumerate(turns):
        if isinstance(turn, UserTurn):
            yield _message("user", turn.text)
        elif isinstance(turn, Reply):
            text, own = _reply(turn.raw)
            bare = len(fields) == 1 and not own and number > spoken[-1] and turn.tool_calls
            yield from [f'{text[:-1]},"{min(fields)}":""}}' if bare else text] if text else []
        else:
            yield from (_message("tool", r.content, r.call_id) for r in turn.results)
            yield from [_message("user", turn.note)] if turn.note else []


@lru_cache(REMEMBERED)
def _message(role: str, text: str, call_id: str = "") -> str:
    about = {"role": role, "tool_call_id": call_id} if call_id else {"role": role}
    return encoded({**about, "content": safe(text)})


@lru_cache(REMEMBERED)
def _reply(raw: str) -> tuple[str, frozenset[str]]:
    """A reply of any provider as JSON (empty if it says nothing), and the fields of thoughts in it."""
    texts, calls, fields = [], [], dict[str, str]()
    for part in json.loads(raw)[0]["parts"]:
        kind, ours = part["part_kind"], part.get("provider_name") == PROVIDER
        if kind == "tool-call":
            function = {"name": safe(part["tool_name"]), "arguments": safe(encoded(part["args"] or {}))}
            signed = (part.get("provider_details") or {}) if ours else {}
            calls.append({"id": part["tool_call_id"], "type": "function", "function": function, **signed})
        elif kind == "thinking" and ours and part.get("id") in THOUGHTS:
            before = fields.get(part["id"])
            fields[part["id"]] = "\n\n".join(filter(None, (before, safe(part["content"]))))
        elif kind in {"text", "thinking"}:
            text = safe(part["content"])
            texts.append(text if kind == "text" else f"<think>\n{text}\n</think>")
    if not texts and not calls:
        return "", frozenset()
    message = {"role": "assistant", **fields, "content": "\n\n".join(texts) if texts else None}
    return encoded(message | ({"tool_calls": calls} if calls else {})), frozenset(fields)


@lru_cache(16)
def _tools(tools: str) -> str:
    """The tools as JSON, from name, description, schema and strictness of each."""
    wired = []
    for name, description, schema, strict in json.loads(tools):
        parameters = OpenAIJsonSchemaTransformer(schema, strict=strict).walk()
        function = {"name": name, "description": description, "parameters": parameters}
        wired.append({"type": "function", "function": function | ({"strict": True} if strict else {})})
    return encoded(wired)


def _parts(message: dict[str, Any]) -> Iterator[ModelResponsePart]:
    thoughts = [field for field in THOUGHTS if isinstance(message.get(field), str) and message[field]]
    yield from (ThinkingPart(message[field], id=field, provider_name=PROVIDER) for field in thoughts[:1])
    for number, text in enumerate(TAGGED.split(_text(message.get("content")))):
        if text:
            yield ThinkingPart(text) if number % 2 else TextPart(text)
    for call in (message.get("tool_calls") or ())[:MAX_PARTS]:
        function, extra = call["function"], call.get("extra_content")
        part = ToolCallPart(function["name"], function.get("arguments"), call.get("id") or "")
        if extra:
            part.provider_name, part.provider_details = PROVIDER, {"extra_content": extra}
        yield part


def _text(content: Any) -> str:
    """Text, also where a server sends it in a list of parts. Raises TypeError for anything else."""
    if isinstance(content, list):
        return "".join(part["text"] for part in content if part.get("type") == "text")
    return "" + (content or "")
