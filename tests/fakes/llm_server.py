"""A language model on loopback that answers from a script, in the protocol of the path that is called.

`.../messages` is Anthropic's, `...:generateContent` Gemini's, `.../converse` Bedrock's, any other OpenAI chat completions,
which Azure, Groq and Mistral speak too.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.fakes.loopback import served
from tests.fakes.provider_wires import bedrock, gemini


@dataclass
class Said:
    """One scripted answer. `tool_calls` are (name, arguments as JSON text or object).

    With `cut_at` only so many bytes of the answer are sent; `cut_politely` then ends the body as if that were all of it,
    else the connection is closed.
    """

    text: str | None = None
    tool_calls: list[tuple[str, Any]] = field(default_factory=list)
    finish: str = ""
    refusal: str | None = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    error: dict[str, Any] | None = None
    delay_seconds: float = 0.0
    body: bytes | None = None
    call_id: str = ""
    cut_at: int | None = None
    cut_politely: bool = False


Script = Callable[[dict[str, Any], int], Said]


class ScriptedLLM:
    """`script(request, number)` decides about each call; `requests` keeps what was sent."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append(body)
        self.headers.append(dict(request.headers))
        self.paths.append(request.path_qs)
        said = self.script(body, len(self.requests))
        await asyncio.sleep(said.delay_seconds)
        if said.body is not None:
            return web.Response(
                body=said.body, content_type="application/json", status=said.status, headers=said.headers
            )
        if said.status != 200:
            error = said.error or {"message": f"status {said.status}", "type": "test"}
            return web.json_response({"error": error}, status=said.status, headers=said.headers)
        whole, content_type = answer_bytes(said, body, len(self.requests), request.path)
        if said.cut_at is not None:
            return await _cut(request, whole, content_type, said)
        return web.Response(body=whole, content_type=content_type)


async def _cut(request: web.Request, whole: bytes, content_type: str, said: Said) -> web.StreamResponse:
    headers = {"Content-Type": content_type}
    if not said.cut_politely:
        headers["Content-Length"] = str(len(whole))
    response = web.StreamResponse(headers=headers)
    await response.prepare(request)
    await response.write(whole[: said.cut_at])
    if not said.cut_politely and request.transport is not None:
        request.transport.close()
    return response


def answer_bytes(said: Said, request: dict[str, Any], number: int, path: str) -> tuple[bytes, str]:
    """A successful answer as it goes over the wire, and its content type."""
    if path.endswith("/converse"):
        return json.dumps(
            bedrock(said.text, said.tool_calls, said.finish, number)
        ).encode(), "application/json"
    if "generateContent" in path or "streamGenerateContent" in path:
        whole = json.dumps(gemini(said.text, said.tool_calls, said.finish))
        if "stream" not in path:
            return whole.encode(), "application/json"
        return f"data: {whole}\r\n\r\n".encode(), "text/event-stream"
    if path.endswith("/messages"):
        message, events = _anthropic(said, request, number)
        named = ((event["type"], event) for event in events)
    else:
        message = _openai(said, request, number)
        named = (("", chunk) for chunk in _openai_chunks(message))
    if not request.get("stream"):
        return json.dumps(message).encode(), "application/json"
    lines = [f"event: {name}\n" * bool(name) + f"data: {json.dumps(event)}\n\n" for name, event in named]
    end = "" if path.endswith("/messages") else "data: [DONE]\n\n"
    return "".join([*lines, end]).encode(), "text/event-stream"


def _openai_chunks(message: dict[str, Any]) -> list[dict[str, Any]]:
    """The same answer in pieces: text in two halves, each tool call, how it ends, what it used."""
    [choice] = message["choices"]
    said = choice["message"]
    text = said["content"] or ""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": text[: len(text) // 2]}]
    deltas.append({"content": text[len(text) // 2 :]})
    deltas += [{"tool_calls": [{"index": i, **call}]} for i, call in enumerate(said.get("tool_calls", []))]

    def chunk(choices: list[dict[str, Any]], usage: dict[str, Any] | None = None) -> dict[str, Any]:
        about = {name: message[name] for name in ("id", "created", "model")}
        return {**about, "object": "chat.completion.chunk", "choices": choices, "usage": usage}

    pieces = [chunk([{"index": 0, "delta": delta, "finish_reason": None}]) for delta in deltas]
    end = chunk([{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}])
    end["x_groq"] = {"id": message["id"], "usage": message["usage"]}  # where Groq says it
    return [*pieces, end, chunk([], message["usage"])]


def _openai(said: Said, request: dict[str, Any], number: int) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": said.text}
    if said.refusal:
        message["refusal"] = said.refusal
    if said.tool_calls:
        message["tool_calls"] = [
            {
                "id": said.call_id or f"provider_{number}_{i}",
                "type": "function",
                "function": {
                    "name": name,
                    "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments),
                },
            }
            for i, (name, arguments) in enumerate(said.tool_calls)
        ]
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": request["model"],
        "choices": [
            {
                "index": 0,
                "message": message,
                "finish_reason": said.finish or ("tool_calls" if said.tool_calls else "stop"),
                "logprobs": None,
            }
        ],
        "usage": {
            "prompt_tokens": 1000 * number,
            "completion_tokens": 50,
            "total_tokens": 1000 * number + 50,
            "prompt_tokens_details": {"cached_tokens": 900},
        },
    }


def _anthropic(
    said: Said, request: dict[str, Any], number: int
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The answer as one message, and as the events of a stream."""
    content: list[dict[str, Any]] = [{"type": "text", "text": said.text}] if said.text else []
    content += [
        {"type": "tool_use", "id": f"toolu_{number}_{i}", "name": name, "input": arguments}
        for i, (name, arguments) in enumerate(said.tool_calls)
    ]
    usage = {
        "input_tokens": 100,
        "output_tokens": 50,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 900,
    }
    stop = "tool_use" if said.tool_calls else "end_turn"
    message = {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": request["model"],
        "stop_sequence": None,
        "usage": usage,
    }
    whole = {**message, "content": content, "stop_reason": stop}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}
    ]
    for index, block in enumerate(content):
        text = block["type"] == "text"
        events += [
            {
                "type": "content_block_start",
                "index": index,
                "content_block": {"type": "text", "text": ""} if text else {**block, "input": {}},
            },
            {
                "type": "content_block_delta",
                "index": index,
                "delta": {"type": "text_delta", "text": block["text"]}
                if text
                else {"type": "input_json_delta", "partial_json": json.dumps(block["input"])},
            },
            {"type": "content_block_stop", "index": index},
        ]
    events += [
        {
            "type": "message_delta",
            "delta": {"stop_reason": stop, "stop_sequence": None},
            "usage": {"output_tokens": 50},
        },
        {"type": "message_stop"},
    ]
    return whole, events


@asynccontextmanager
async def serve(script: Script) -> AsyncIterator[ScriptedLLM]:
    """Run the server on a free loopback port; `llm.url` is its address without `/v1`."""
    llm = ScriptedLLM(script)
    app = web.Application(client_max_size=16 << 20)
    app.router.add_post("/{path:.*}", llm.handle)
    async with served(app) as llm.url:
        yield llm
